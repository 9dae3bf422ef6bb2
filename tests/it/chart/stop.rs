//! A stop while Helm waits: one interrupt, the release read afterwards, the lock given back.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::freezer::Freezer;
use crate::bed::wait;
use crate::chart::rig::Rig;

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

#[test]
fn a_sigterm_while_helm_waits_is_one_interrupt_and_a_truthful_verdict() {
    let rig = Rig::declared();
    let (run, helm) = rig.start_in_vain();
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    assert_eq!(count(&events, "process.interrupted"), 1);
    let interrupted = events.iter().find(|event| event["type"] == "process.interrupted").expect("counted above");
    assert_eq!(interrupted["data"]["signal"], "SIGINT");
    assert_eq!(interrupted["data"]["pid"], i64::from(helm.as_raw_nonzero().get()));
    assert_eq!(count(&events, "process.interrupt_reported"), 1, "Helm says so itself");
    assert_eq!(count(&events, "process.killed"), 0);
    let verdict = rig.assert_failed(&finished, "stopped.partial");
    assert_eq!(verdict["outcome"], "stopped");
    let step = events.iter().find(|event| event["type"] == "step.finished" && event["data"]["id"] == "install-chart");
    let note = step.expect("the step ends")["data"]["note"].to_string();
    assert!(note.contains(&rig.release()) && note.contains("failed"), "{note}");
    assert_eq!(rig.history(), ["failed"]);

    rig.bootstrap().run().expect_code(0);
    assert_eq!(rig.history(), ["superseded", "deployed"]);
}

#[test]
fn twenty_signals_are_one_interrupt() {
    let rig = Rig::new();
    let (run, _) = rig.start_in_vain();
    for _ in 0..10 {
        run.signal(Signal::TERM);
        run.signal(Signal::INT);
    }
    let finished = run.finish().expect_code(11);
    assert_eq!(count(&finished.events(), "process.interrupted"), 1);
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_killed_front_is_the_one_request() {
    let rig = Rig::new();
    let (run, _) = rig.start_in_vain();
    let journal = run.journal();
    run.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 11, "{verdict}");
    assert_eq!(count(&journal.events(), "process.interrupted"), 1);
    assert_eq!(rig.lease(), None);
}

#[test]
fn force_ends_helm_and_leaves_the_lock() {
    let rig = Rig::new();
    let (run, helm) = rig.start_in_vain();
    run.signal(Signal::QUIT);
    let finished = run.finish().expect_code(12);
    assert_eq!(finished.verdict()["data"]["lock"], "left");
    assert!(rig.lease().is_some());
    assert!(rustix::process::test_kill_process(helm).is_err(), "Helm has ended");
}

#[test]
fn a_helm_whose_supervisor_was_killed_is_interrupted_once_and_the_next_run_goes_on() {
    let rig = Rig::new();
    let (run, helm) = rig.start_in_vain();
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    let finished = run.finish().expect_code(1);
    let events = finished.events();
    assert_eq!((count(&events, "process.interrupted"), count(&events, "process.interrupt_reported")), (1, 1));
    assert_eq!(count(&events, "process.killed"), 0);
    let verdict = finished.verdict()["data"].clone();
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"supervisor.killed".into(), &"released".into()));
    assert!(verdict["failure"]["causes"].to_string().contains("the next run looks at the release"), "{verdict}");
    // Its new parent may not have noticed yet.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", helm.as_raw_nonzero())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "Helm lives: {stat}");
    assert_eq!(rig.lease(), None);
    rig.bootstrap().run().expect_code(0);
}

/// A stop whose budget ends before Helm does: Helm is killed, its release is left pending, and the next run, which knows that
/// this Helm has ended, repairs it under the lock.
#[test]
fn a_stop_that_leaves_a_pending_release_is_mended_by_the_next_run() {
    let rig = Rig::declared();
    let Some(freezer) = Freezer::new() else { return };
    let run = rig.bootstrap_in_vain("5m").arg("--stop-after").arg("1s").start();
    let started = run.wait_for("process.started", |event| event["data"]["program"] == "helm upgrade");
    rig.wait_until_pending();
    // It cannot heed its interrupt, and is killed with it.
    freezer.freeze(u32::try_from(started["data"]["pid"].as_u64().expect("a number")).expect("a number"));
    run.signal(Signal::TERM);
    run.wait_for("process.killed", |_| true);
    freezer.thaw();
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    assert_eq!(count(&events, "process.interrupted"), 1, "it gets one, and no second");
    let verdict = rig.assert_failed(&finished, "stopped.partial");
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None));
    assert_eq!(rig.history(), ["pending-install"]);

    let finished = rig.bootstrap().run().expect_code(0);
    let noted =
        finished.events().into_iter().any(|event| event["data"]["text"].to_string().contains("pending-install"));
    assert!(noted, "the repair is said: {}", finished.stdout);
    assert_eq!(rig.history(), ["deployed"]);
}

/// An upgrade of a live instance whose pods never become ready, while Helm waits for them.
fn upgrade_in_vain(rig: &Rig) -> Running {
    rig.bootstrap().run().expect_code(0);
    let run = rig.upgrade_in_vain("5m").start();
    rig.wait_until_pending();
    run
}

/// The upgrade failed and was left for the next one, which moves the instance.
#[track_caller]
fn assert_upgrade_goes_on(rig: &Rig) {
    assert_eq!(rig.history(), ["deployed", "failed"]);
    rig.upgrade().run().expect_code(0);
    assert_eq!(rig.history(), ["superseded", "failed", "deployed"]);
    assert_eq!(rig.phase().as_deref(), Some("Ready"));
}

#[test]
fn a_stop_of_an_upgrade_while_helm_waits_is_one_interrupt_and_the_next_one_moves_the_instance() {
    let rig = Rig::declared();
    let run = upgrade_in_vain(&rig);
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    assert_eq!((count(&events, "process.interrupted"), count(&events, "process.killed")), (1, 0));
    rig.assert_failed(&finished, "stopped.partial");
    assert_upgrade_goes_on(&rig);
}

#[test]
fn an_upgrade_whose_supervisor_is_killed_while_helm_waits_is_one_interrupt_and_the_next_one_moves_the_instance() {
    let rig = Rig::declared();
    let run = upgrade_in_vain(&rig);
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    let finished = run.finish().expect_code(1);
    let events = finished.events();
    assert_eq!((count(&events, "process.interrupted"), count(&events, "process.killed")), (1, 0));
    rig.assert_failed(&finished, "supervisor.killed");
    assert_upgrade_goes_on(&rig);
}

#[test]
fn an_uninstall_whose_supervisor_is_killed_is_not_signalled_and_is_seen_to_its_end() {
    let rig = Rig::declared();
    rig.bootstrap().run().expect_code(0);
    let path = format!("/api/v1/namespaces/{}/configmaps/web", rig.namespace());
    let hold = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    rig.bed.api().merge(&path, &hold(json!(["bed.dcctl/hold"]))).expect("the bed may do everything");
    let run = rig.destroy().start();
    run.wait_for("process.started", |event| event["data"]["program"] == "helm uninstall");
    let deleted = || rig.object("configmaps", "web").filter(|web| !web["metadata"]["deletionTimestamp"].is_null());
    wait::fact("Helm to wait for what is held", deleted);
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    run.wait_for("stop.requested", |_| true);
    rig.bed.api().merge(&path, &hold(Value::Null)).expect("the bed may do everything");
    let finished = run.finish().expect_code(1);
    let events = finished.events();
    assert_eq!((count(&events, "process.interrupted"), count(&events, "process.killed")), (0, 0));
    rig.assert_failed(&finished, "supervisor.killed");
    assert_eq!(rig.phase().as_deref(), Some("Destroying"));
    assert_eq!(rig.history(), Vec::<String>::new());
    rig.destroy().run().expect_code(0);
    assert_eq!(rig.phase(), None);
}
