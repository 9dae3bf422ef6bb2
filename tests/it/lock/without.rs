//! Runs that go on without the lock, because they were told to: they say so, and touch nothing of it.

use serde_json::{Value, json};

use crate::bed::wait;
use crate::lock::rig::{Rig, of_kind, text};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";

/// Nobody wrote to the Lease but the test.
#[track_caller]
fn assert_untouched(rig: &Rig, before: &Value) {
    assert_eq!(rig.lease().as_ref(), Some(before));
    let about = rig.lock_requests("admin");
    assert!(about.iter().all(|asked| ["create 409", "get 200"].contains(&asked.as_str())), "{about:?}");
}

#[test]
fn a_run_that_is_told_to_warns_and_does_everything_without_the_lock() {
    let rig = Rig::new().declared();
    let before = rig.other_holds(ALICE, LONG_AGO);
    let done = rig.bootstrap("one").args(["--on-busy", "warn"]).with_junit().run().expect_code(0);
    let verdict = done.verdict();
    assert_eq!((&verdict["data"]["lock"], &verdict["data"]["holder"]), (&json!("not_held"), &json!(ALICE)));
    let events = done.events();
    let blocked = of_kind(&events, "lock.blocked");
    assert_eq!((blocked.len(), &blocked[0]["data"]["manner"]), (1, &json!("continues")));
    let said = text(&blocked[0]["data"]["text"]);
    assert!(said.contains(&format!("is claimed by {ALICE}")), "{said}");
    assert!(said.ends_with("but if that run is live, this will fight it"), "{said}");
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
    let report = done.junit();
    let acquire = report.case("claim-the-cluster", "acquire");
    assert!(acquire.message.starts_with("went on without the lock: "), "{acquire:?}");
    for kind in ["lock.claimed", "lock.renewed", "lock.releasing", "lock.released", "lock.lost"] {
        assert!(of_kind(&events, kind).is_empty(), "{kind}");
    }
    assert_untouched(&rig, &before);
}

#[test]
fn a_failure_without_the_lock_is_written_down_like_any_other() {
    let rig = Rig::new().declared().checked("exit 3");
    let before = rig.other_holds(ALICE, LONG_AGO);
    let failed = rig.bootstrap("one").env("DCCTL_ON_BUSY", "warn").run().expect_code(1);
    assert_eq!(failed.verdict()["data"]["lock"], "not_held");
    assert_eq!(rig.phase("one").as_deref(), Some("Failed"));
    assert_untouched(&rig, &before);
}

#[test]
fn a_run_without_the_lock_that_is_refused_leaves_the_phase_of_the_run_at_work() {
    let rig = Rig::new().declared().gated();
    let gate = rig.gate("one");
    let at_work = rig.bootstrap("one").start();
    wait::fact("the run to be at work", || (rig.phase("one").as_deref() == Some("Bootstrapping")).then_some(()));
    // Nothing that a bootstrap may make its own: it is refused when the cluster is checked.
    let stray = json!({ "metadata": { "name": "other", "labels": { "core.devicechain.io/instance": "one",
        "app.kubernetes.io/managed-by": "dcctl" } } });
    rig.bed.api().create("/api/v1/namespaces", &stray).expect("the bed may do everything");
    let refused = rig.bootstrap("one").args(["--on-busy", "warn"]).run().expect_code(6);
    assert_eq!(refused.verdict()["data"]["failure"]["code"], "guard.instance_elsewhere");
    assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"));
    gate.open(0);
    at_work.finish().expect_code(0);
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
}

#[test]
fn when_the_time_to_wait_is_over_a_run_that_was_told_to_goes_on() {
    let rig = Rig::new();
    let before = rig.other_holds(ALICE, LONG_AGO);
    let run = rig.bootstrap("one").args(["--wait=5m", "--on-busy=warn"]).env("BED_SUSPENDED", rig.suspended()).start();
    let journal = run.journal();
    wait::fact("a word of waiting", || (!of_kind(&journal.events(), "lock.blocked").is_empty()).then_some(()));
    rig.suspend(301);
    let done = run.finish().expect_code(0);
    let manners: Vec<Value> =
        of_kind(&done.events(), "lock.blocked").iter().map(|event| event["data"]["manner"].clone()).collect();
    assert_eq!((manners.first(), manners.last()), (Some(&json!("waits")), Some(&json!("continues"))));
    assert_eq!(done.verdict()["data"]["lock"], "not_held");
    assert_eq!(rig.lease(), Some(before));
}

#[test]
fn an_install_refuses_unless_it_is_told_to_go_on() {
    let rig = Rig::new();
    let before = rig.other_holds(ALICE, LONG_AGO);
    rig.install().run().expect_code(21);
    rig.install().args(["--on-busy", "refuse"]).run().expect_code(21);
    let done = rig.install().args(["--on-busy", "warn"]).run().expect_code(0);
    assert_eq!(done.verdict()["data"]["lock"], "not_held");
    assert_untouched(&rig, &before);
}
