//! Starting the program under test.

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Bed, LEASES};

#[test]
fn a_run_finds_its_cluster_and_its_exit_code_is_told() {
    let bed = Bed::take();
    bed.dcctl(["lock", "status"]).run().expect_code(0);
    bed.dcctl(["lock", "status", "--kube-context", "nowhere"]).run().expect_code(4);
    let lease = json!({ "metadata": { "name": "dcctl" }, "spec": { "holderIdentity": "somebody" } });
    bed.api().create(LEASES, &lease).expect("created");
    let held = bed.dcctl(["lock", "status"]).with_kubeconfig(bed.kubeconfig("ops")).run();
    assert!(held.stdout.contains("somebody"), "{}", held.stdout);
}

#[test]
fn a_refused_run_has_whole_events_and_a_verdict() {
    let bed = Bed::take();
    let refused = bed.dcctl(["install", "--bundle", "not-there"]).run().expect_code(3);
    assert_eq!(refused.verdict()["data"]["exit_code"], 3);
}

#[test]
fn a_run_that_detached_is_gone_when_its_test_is() {
    let bed = Bed::take();
    let bundle = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo");
    let run =
        bed.dcctl(["install", "--bundle", bundle, "--var", "pause=1h"]).env("DCCTL_VAR_DB_PASSWORD", "long-enough");
    let run = run.start();
    let journal = run.journal();
    run.wait_for("lock.claimed", |_| true);
    run.signal(Signal::KILL);
    assert_eq!(run.finish().killed_by(), Some(9));
    assert_eq!(journal.events()[0]["type"], "run.started");
    let mark = bed.mark();
    drop(bed);
    assert_eq!(mark.pids(), []);
}
