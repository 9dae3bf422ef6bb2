//! The chart of a live instance: an upgrade that fails, and releases that a killed Helm left in each of its ways.

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::{Finished, Running};
use crate::bed::wait;
use crate::chart::rig::{Rig, signal};

fn programs(finished: &Finished) -> Vec<String> {
    let started = finished.events().into_iter().filter(|event| event["type"] == "process.started");
    started.map(|event| event["data"]["program"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits for a program of a run, and gives its process.
fn program(run: &Running, name: &str) -> Pid {
    let started = run.wait_for("process.started", |event| event["data"]["program"] == name);
    let pid = started["data"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.expect("a process id")
}

fn wait_for_status(rig: &Rig, status: &str) {
    wait::fact(status, || (rig.history().last().is_some_and(|last| last == status)).then_some(()));
}

/// A live instance on a chart that can be moved.
fn live() -> Rig {
    let rig = Rig::declared();
    rig.bootstrap().run().expect_code(0);
    rig
}

#[test]
fn a_failed_upgrade_is_left_for_a_person_or_rolled_back_if_that_was_asked_for() {
    let rig = live();
    let verdict = rig.assert_failed(&rig.upgrade_in_vain("2s").run().expect_code(1), "chart.failed");
    assert_eq!(
        (rig.history(), rig.phase().as_deref()),
        (vec!["deployed".to_owned(), "failed".to_owned()], Some("Failed"))
    );
    assert!(!verdict["failure"].to_string().contains("rolled back"), "{verdict}");

    let rolled = rig.upgrade_in_vain("4s").args(["--on-chart-failure", "rollback"]).run().expect_code(1);
    let verdict = rig.assert_failed(&rolled, "chart.failed");
    assert!(
        verdict["failure"]["causes"].to_string().contains("the release was rolled back to revision 1"),
        "{verdict}"
    );
    assert_eq!(rig.history(), ["superseded", "failed", "failed", "deployed"]);
    let events = rolled.events();
    assert!(events.iter().all(|event| event["type"] != "process.interrupted"), "{events:?}");
    assert_eq!(rig.phase().as_deref(), Some("Failed"));

    rig.upgrade().run().expect_code(0);
    assert_eq!(rig.phase().as_deref(), Some("Ready"));
}

#[test]
fn a_hook_alone_that_changes_is_an_upgrade() {
    let rig = live();
    rig.upgrade().run().expect_code(0);
    assert_eq!(rig.history(), ["deployed"], "nothing changes");
    rig.change("templates/migrate.yaml", "are up to date", "are up to date again");
    rig.upgrade().run().expect_code(0);
    assert_eq!(rig.history(), ["superseded", "deployed"]);
}

#[test]
fn a_rollback_is_never_signalled() {
    let rig = live();
    let hold = |finalizers: Value| serde_json::json!({ "metadata": { "finalizers": finalizers } });
    // What the failed upgrade adds is held when the rollback takes it away.
    rig.change(
        "templates/configuration.yaml",
        "apiVersion: v1\nkind: Secret",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: added\n---\napiVersion: v1\nkind: Secret",
    );
    let run = rig.upgrade_in_vain("8s").args(["--on-chart-failure", "rollback"]).start();
    program(&run, "helm upgrade");
    let path = format!("/api/v1/namespaces/{}/configmaps/added", rig.namespace());
    wait::fact("the upgrade to add it", || rig.object("configmaps", "added"));
    rig.bed.api().merge(&path, &hold(serde_json::json!(["bed.dcctl/hold"]))).expect("the bed may do everything");
    program(&run, "helm rollback");
    run.signal(Signal::INT);
    run.wait_for("stop.requested", |_| true);
    rig.bed.api().merge(&path, &hold(Value::Null)).expect("the bed may do everything");
    let ended = run.finish();
    assert!(ended.events().iter().all(|event| event["type"] != "process.interrupted"), "{}", ended.stdout);
    assert_eq!(rig.history().last().map(String::as_str), Some("deployed"));
}

#[test]
fn a_release_that_a_killed_upgrade_left_pending_is_rolled_back_and_upgraded_by_the_next_one() {
    let rig = live();
    let run = rig.upgrade_in_vain("5m").start();
    let helm = program(&run, "helm upgrade");
    wait_for_status(&rig, "pending-upgrade");
    signal(helm, Signal::KILL);
    run.finish().expect_code(1);
    assert_eq!(rig.history(), ["deployed", "pending-upgrade"]);
    let done = rig.upgrade().run().expect_code(0);
    assert!(programs(&done).contains(&"helm rollback".to_owned()), "{:?}", programs(&done));
    let history = rig.history();
    assert_eq!(history.iter().filter(|status| *status == "deployed").count(), 1, "{history:?}");
    assert_eq!((history.last().map(String::as_str), rig.phase().as_deref()), (Some("deployed"), Some("Ready")));
}

#[test]
fn a_release_that_a_killed_rollback_left_pending_is_rolled_back_anew() {
    let rig = live();
    rig.upgrade_in_vain("2s").run().expect_code(1);
    // Back to the one whose pods never become ready.
    let mut rollback = rig.helm(&["rollback", &rig.release(), "2", "--wait", "--timeout", "5m"]);
    let mut rollback = rollback.spawn().expect("the bed has Helm");
    wait_for_status(&rig, "pending-rollback");
    rollback.kill().expect("it is our child");
    rollback.wait().expect("it is our child");
    assert_eq!(rig.history(), ["deployed", "failed", "pending-rollback"]);
    let refused = rig.upgrade().run().expect_code(6);
    assert_eq!(refused.verdict()["data"]["failure"]["code"], "guard.release_pending");
    assert_eq!((rig.history().len(), rig.phase().as_deref()), (3, Some("Failed")), "nothing was touched");

    let done = rig.when_old(|| rig.upgrade());
    assert!(programs(&done).contains(&"helm rollback".to_owned()), "{:?}", programs(&done));
    let history = rig.history();
    assert_eq!(history.iter().filter(|status| *status == "deployed").count(), 1, "{history:?}");
    assert_eq!((history.last().map(String::as_str), rig.phase().as_deref()), (Some("deployed"), Some("Ready")));
}

#[test]
fn a_release_that_a_killed_uninstall_left_is_finished_by_the_next_destroy_and_installed_by_the_next_upgrade() {
    let rig = live();
    let hold = |finalizers: Value| serde_json::json!({ "metadata": { "finalizers": finalizers } });
    let path = format!("/api/v1/namespaces/{}/configmaps/web", rig.namespace());
    rig.bed.api().merge(&path, &hold(serde_json::json!(["bed.dcctl/hold"]))).expect("the bed may do everything");
    let run = rig.destroy().start();
    let helm = program(&run, "helm uninstall");
    wait_for_status(&rig, "uninstalling");
    signal(helm, Signal::KILL);
    let verdict = run.finish().expect_code(1).verdict();
    assert_eq!(verdict["data"]["failure"]["code"], "chart.failed");
    assert_eq!((rig.history(), rig.phase().as_deref()), (vec!["uninstalling".to_owned()], Some("Destroying")));
    rig.bed.api().merge(&path, &hold(Value::Null)).expect("the bed may do everything");

    // A person decides that it is to live on.
    let ready = serde_json::json!({ "metadata": { "annotations": { "core.devicechain.io/phase": "Ready" } } });
    let declared = format!("/apis/core.devicechain.io/v1beta1/instances/{}", rig.instance);
    rig.bed.api().merge(&declared, &ready).expect("the bed may do everything");
    let done = rig.upgrade().run().expect_code(0);
    assert!(programs(&done).contains(&"helm uninstall".to_owned()), "{:?}", programs(&done));
    assert_eq!((rig.history(), rig.phase().as_deref()), (vec!["deployed".to_owned()], Some("Ready")));
    rig.destroy().run().expect_code(0);
    assert_eq!((rig.history(), rig.phase()), (Vec::new(), None));
}
