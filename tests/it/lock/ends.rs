//! Every way out gives the lock back, and says so.

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::{Fault, Gate, Proxy, Rule, wait};
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
    assert_eq!(
        (&verdict["data"]["lock"], &verdict["data"]["failure"]["code"]),
        (&json!("left"), &json!("stopped.forced"))
    );
    assert_eq!(rig.holder().as_deref(), verdict["data"]["holder"].as_str());
    assert!(verdict["data"]["next"].to_string().contains("dcctl lock status --kube-context bed"), "{verdict}");
    let status = rig.lock_status("human").run().expect_code(0).stdout;
    assert!(status.contains("is held") && status.contains("next:       it was asked to stop: wait until "), "{status}");
}

#[test]
fn a_finalizer_that_keeps_the_lease_is_told_with_what_helps_which_is_not_to_reclaim_it() {
    let rig = Rig::new().gated();
    let gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.started", |_| true);
    let kept = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    rig.bed.api().merge(crate::lock::rig::LEASE, &kept).expect("the bed may do everything");
    gate.open(0);
    let done = run.finish().expect_code(12);
    let verdict = &done.verdict()["data"];
    assert_eq!(verdict["lock"], "left");
    assert!(verdict["failure"]["causes"][0].to_string().contains("finalizers keep it: example.com/keep"), "{verdict}");
    let next = verdict["next"].to_string();
    assert!(next.contains("Whoever put the finalizers there has to take them off"), "{verdict}");
    assert!(next.contains("dcctl lock status") && !next.contains("reclaim"), "{verdict}");
}

#[test]
fn that_the_lock_is_given_back_is_in_the_journal_before_it_is_done() {
    let rig = Rig::new();
    let (proxy, gate) = (Proxy::start(&rig.bed), Gate::new());
    proxy.add(Rule::on("DELETE", "/leases/dcctl").nth(1).request(Fault::Hold(gate.clone())));
    let run = rig.bootstrap("one").with_kubeconfig(&proxy.kubeconfig("admin")).start();
    gate.wait_for(1);
    // Whoever takes over now, and finds no Lease, reads here that it was given back.
    let events = run.journal().events();
    let last = events.iter().rfind(|event| event["type"].as_str().is_some_and(|kind| kind.starts_with("lock.")));
    let last = last.expect("the run speaks of its lock");
    assert_eq!((&last["type"], &last["data"]["holder"]), (&json!("lock.releasing"), &json!(rig.holder())));
    gate.open();
    assert_free(&rig, &run.finish().expect_code(0).verdict());
}

#[test]
fn a_run_that_gives_nothing_back_does_not_say_that_it_will() {
    let rig = Rig::new();
    rig.other_holds("bob@laptop/9912/3a7f00c2d1e4b596", "2026-11-30T00:00:00.000000Z");
    let blocked = rig.bootstrap("one").run().expect_code(21);
    assert!(!blocked.stdout.contains("lock.releasing"), "{}", blocked.stdout);
}

#[test]
fn force_after_a_stop_leaves_a_last_will_that_is_over_no_later_than_before() {
    let rig = Rig::new().checked("trap '' TERM; echo began; while :; do read line < /dev/null; sleep 1; done");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.output", |event| event["data"]["text"] == "began");
    let will = |key: &str| {
        let lease = rig.lease().expect("it is held");
        lease["metadata"]["annotations"][format!("dcctl.devicechain.io/{key}")].as_str().map(str::to_owned)
    };
    run.signal(Signal::TERM);
    let deadline = wait::fact("the stop to be in the last will", || will("stop-deadline"));
    let requested = will("stop-requested");
    run.signal(Signal::QUIT);
    run.finish().expect_code(12);
    let time = |text: &str| text.parse::<Timestamp>().expect("a time");
    let after = will("stop-deadline").expect("it is still there");
    assert!(time(&after) <= time(&deadline), "{after} is later than {deadline}");
    assert_eq!((will("stop-requested"), will("stop-signal").as_deref()), (requested, Some("SIGTERM")));
}
