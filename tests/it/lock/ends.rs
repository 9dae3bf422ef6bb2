//! Every way out gives the lock back, and says so.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lock::rig::Rig;

fn assert_free(rig: &Rig, verdict: &Value) {
    assert_eq!((&verdict["data"]["lock"], rig.lease()), (&json!("released"), None), "{verdict}");
}

#[test]
fn a_run_gives_the_lock_back_when_it_succeeds_when_it_fails_and_when_it_is_stopped() {
    let rig = Rig::new().declared().gated();
    let gate = rig.gate("good");
    let good = rig.bootstrap("good").start();
    gate.open(0);
    assert_free(&rig, &good.finish().expect_code(0).verdict());
    assert_eq!(rig.phase("good").as_deref(), Some("Ready"));

    let gate = rig.gate("bad");
    let bad = rig.bootstrap("bad").start();
    gate.open(3);
    let verdict = bad.finish().expect_code(1).verdict();
    assert_free(&rig, &verdict);
    assert_eq!(verdict["data"]["failure"]["code"], "verify.failed");
    assert_eq!(rig.phase("bad").as_deref(), Some("Failed"));

    let _gate = rig.gate("stopped");
    let stopped = rig.bootstrap("stopped").start();
    stopped.wait_for("process.started", |_| true);
    stopped.signal(Signal::TERM);
    assert_free(&rig, &stopped.finish().expect_code(10).verdict());
}

#[test]
fn a_forced_end_leaves_the_lock_and_says_whose_it_is() {
    let rig = Rig::new().gated();
    let _gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.started", |_| true);
    run.signal(Signal::QUIT);
    let verdict = run.finish().expect_code(12).verdict();
    assert_eq!(verdict["data"]["lock"], "left", "{verdict}");
    assert_eq!(rig.holder().as_deref(), verdict["data"]["holder"].as_str());
    assert!(verdict["data"]["next"].to_string().contains("dcctl lock status --kube-context bed"), "{verdict}");
    let status = rig.lock_status("human").run().expect_code(0).stdout;
    assert!(status.contains("is held") && status.contains("next:       wait for it to finish"), "{status}");
}

#[test]
fn a_foreign_finalizer_on_the_lease_is_not_a_release() {
    let rig = Rig::new().gated();
    let gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.started", |_| true);
    let kept = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    rig.bed.api().merge(crate::lock::rig::LEASE, &kept).expect("the bed may do everything");
    gate.open(0);
    let done = run.finish().expect_code(12);
    assert_eq!(done.verdict()["data"]["lock"], "left");
    assert!(done.stdout.contains("finalizers keep it: example.com/keep"), "{}", done.stdout);
}
