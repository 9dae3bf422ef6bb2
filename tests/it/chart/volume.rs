//! A volume of the chart outlives every repair: the claim that was there before is there afterwards, the very same.

use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::wait;
use crate::chart::rig::{Rig, signal};

const CLAIM: &str = "apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  annotations: { note.example.com/kept: \"no\" }
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: \"\"
  volumeName: {{ .Values.instance.id }}
  resources: { requests: { storage: 1Gi } }
";

/// A chart that claims a volume, and the volume.
fn with_a_volume() -> Rig {
    let rig = Rig::declared();
    fs::write(rig.bundle().join("chart/templates/volume.yaml"), CLAIM).expect("the test's folder can be written");
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": rig.instance },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "",
            "hostPath": { "path": "/nowhere" } } });
    rig.bed.api().create("/api/v1/persistentvolumes", &volume).expect("the bed may do everything");
    rig
}

/// Which claim it is; it is not on its way out.
#[track_caller]
fn claim(rig: &Rig) -> Value {
    let claim = rig.object("persistentvolumeclaims", "data").expect("the claim is there");
    assert_eq!(claim["metadata"]["deletionTimestamp"], Value::Null, "the claim is on its way out");
    claim["metadata"]["uid"].clone()
}

/// The same claim as before, and one revision that is deployed: the newest.
#[track_caller]
fn assert_mended(rig: &Rig, before: &Value) {
    assert_eq!(claim(rig), *before, "it is another claim");
    let history = rig.history();
    assert_eq!(history.iter().filter(|status| *status == "deployed").count(), 1, "{history:?}");
    assert_eq!(
        (history.last().map(String::as_str), rig.phase().as_deref()),
        (Some("deployed"), Some("Ready")),
        "{history:?}"
    );
}

/// The process of a program of a run.
fn program(run: &Running, name: &str) -> Pid {
    let started = run.wait_for("process.started", |event| event["data"]["program"] == name);
    let pid = started["data"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.expect("a process id")
}

fn wait_for_status(rig: &Rig, status: &str) {
    wait::fact(status, || (rig.history().last().is_some_and(|last| last == status)).then_some(()));
}

/// Kills the Helm of a run that waits in vain.
fn kill(run: Running, helm: Pid) {
    signal(helm, Signal::KILL);
    run.finish().expect_code(1);
}

#[test]
fn a_volume_outlives_a_first_install_that_was_killed() {
    let rig = with_a_volume();
    let (run, helm) = rig.start_in_vain();
    kill(run, helm);
    let before = claim(&rig);
    assert_eq!(rig.history(), ["pending-install"]);
    rig.bootstrap().run().expect_code(0);
    assert_mended(&rig, &before);
}

#[test]
fn a_volume_outlives_a_first_install_that_failed_and_an_upgrade_of_it_that_was_killed() {
    let rig = with_a_volume();
    rig.bootstrap_in_vain("2s").run().expect_code(1);
    let before = claim(&rig);
    assert_eq!(rig.history(), ["failed"]);
    let (run, helm) = rig.start_in_vain();
    kill(run, helm);
    assert_eq!(rig.history(), ["failed", "pending-upgrade"]);
    rig.bootstrap().run().expect_code(0);
    assert_mended(&rig, &before);
}

#[test]
fn a_volume_outlives_an_upgrade_that_was_killed() {
    let rig = with_a_volume();
    rig.bootstrap().run().expect_code(0);
    let before = claim(&rig);
    let run = rig.upgrade_in_vain("5m").start();
    let helm = program(&run, "helm upgrade");
    wait_for_status(&rig, "pending-upgrade");
    kill(run, helm);
    assert_eq!(rig.history(), ["deployed", "pending-upgrade"]);
    rig.upgrade().run().expect_code(0);
    assert_mended(&rig, &before);
}

#[test]
fn a_volume_outlives_a_rollback_that_was_killed() {
    let rig = with_a_volume();
    rig.bootstrap().run().expect_code(0);
    let before = claim(&rig);
    // What the failed upgrade adds is held when the rollback takes it away.
    rig.change(
        "templates/configuration.yaml",
        "apiVersion: v1\nkind: Secret",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: added\n---\napiVersion: v1\nkind: Secret",
    );
    let hold = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    let run = rig.upgrade_in_vain("8s").args(["--on-chart-failure", "rollback"]).start();
    let path = format!("/api/v1/namespaces/{}/configmaps/added", rig.namespace());
    wait::fact("the upgrade to add it", || rig.object("configmaps", "added"));
    rig.bed.api().merge(&path, &hold(json!(["bed.dcctl/hold"]))).expect("the bed may do everything");
    let helm = program(&run, "helm rollback");
    wait_for_status(&rig, "pending-rollback");
    kill(run, helm);
    assert_eq!(rig.history(), ["deployed", "failed", "pending-rollback"]);
    rig.bed.api().merge(&path, &hold(Value::Null)).expect("the bed may do everything");
    rig.upgrade().run().expect_code(0);
    assert_mended(&rig, &before);
}

#[test]
fn a_volume_outlives_a_rollback_that_was_killed_before_anything_was_deployed() {
    let rig = with_a_volume();
    rig.bootstrap_in_vain("2s").run().expect_code(1);
    let before = claim(&rig);
    let mut rollback = rig.helm(&["rollback", &rig.release(), "1", "--wait", "--timeout", "5m"]);
    let mut rollback = rollback.spawn().expect("the bed has Helm");
    wait_for_status(&rig, "pending-rollback");
    rollback.kill().expect("it is our child");
    rollback.wait().expect("it is our child");
    assert_eq!(rig.history(), ["failed", "pending-rollback"]);
    rig.when_old(|| rig.bootstrap());
    assert_mended(&rig, &before);
}

/// An uninstall was to take the claim along, unless the chart keeps it: finishing it changes nothing about that.
#[test]
fn a_volume_that_the_chart_keeps_outlives_an_uninstall_that_was_killed() {
    let rig = with_a_volume();
    rig.change("templates/volume.yaml", "note.example.com/kept: \"no\"", "helm.sh/resource-policy: keep");
    rig.bootstrap().run().expect_code(0);
    let before = claim(&rig);
    let hold = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    let path = format!("/api/v1/namespaces/{}/configmaps/web", rig.namespace());
    rig.bed.api().merge(&path, &hold(json!(["bed.dcctl/hold"]))).expect("the bed may do everything");
    let run = rig.destroy().start();
    let helm = program(&run, "helm uninstall");
    wait_for_status(&rig, "uninstalling");
    kill(run, helm);
    rig.bed.api().merge(&path, &hold(Value::Null)).expect("the bed may do everything");
    // A person decides that it is to live on.
    let ready = json!({ "metadata": { "annotations": { "core.devicechain.io/phase": "Ready" } } });
    let declared = format!("/apis/core.devicechain.io/v1beta1/instances/{}", rig.instance);
    rig.bed.api().merge(&declared, &ready).expect("the bed may do everything");
    rig.upgrade().run().expect_code(0);
    assert_mended(&rig, &before);
}

/// A Helm whose run was killed whole goes on: whatever it does to the release, nobody repairs it beside it.
#[test]
fn a_release_with_a_volume_is_not_mended_beside_a_helm_that_lives() {
    let rig = with_a_volume();
    rig.bootstrap().run().expect_code(0);
    let run = rig.upgrade_in_vain("5m").start();
    let helm = program(&run, "helm upgrade");
    wait_for_status(&rig, "pending-upgrade");
    let supervisor = run.supervisor();
    // The front first, so that it takes over from nobody.
    run.signal(Signal::KILL);
    signal(supervisor, Signal::KILL);
    wait::fact("the holder to be gone", || rustix::process::test_kill_process(supervisor).is_err().then_some(()));
    rig.reclaim();
    for run in [rig.upgrade(), rig.destroy()] {
        let verdict = rig.assert_failed(&run.run().expect_code(6), "guard.release_pending");
        assert!(verdict["failure"].to_string().contains(&helm.as_raw_nonzero().to_string()), "{verdict}");
        assert_eq!(rig.history(), ["deployed", "pending-upgrade"], "nothing was touched");
    }
    signal(helm, Signal::KILL);
    wait::fact("Helm to be gone", || rustix::process::test_kill_process(helm).is_err().then_some(()));
    rig.destroy().run().expect_code(0);
    assert_eq!((rig.history(), rig.phase()), (Vec::new(), None));
}
