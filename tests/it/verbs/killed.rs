//! A bootstrap that is killed after a step, front and supervisor alike: the same command builds the instance.

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::{Bed, LEASE, wait};
use crate::lock::rig::Rig;

/// Kills a bootstrap when this step has ended, and runs it until it is through.
fn killed_after(step: &str) {
    let rig = Rig::on(Bed::take()).declared().slow_thing(0.2).checked("true");
    let run = rig.bootstrap("one").start();
    run.wait_for("step.finished", |event| event["data"]["id"] == step);
    let supervisor = run.supervisor();
    // The front first, so that it takes over from nobody.
    run.signal(Signal::KILL);
    rustix::process::kill_process(supervisor, Signal::KILL).ok();
    wait::fact("the supervisor to be gone", || rustix::process::test_kill_process(supervisor).is_err().then_some(()));
    // What a person does who knows that the holder is gone. A run that was through already has given it back.
    if rig.lease().is_some() {
        rig.bed.api().delete(LEASE).expect("the bed may do everything");
    }
    // An OpenTofu that outlives its run ends by itself; until then it has its state's lock.
    wait::fact("the instance to be built", || {
        let finished = rig.bootstrap("one").run();
        let code = finished.code();
        let is_live = code == Some(6) && finished.verdict()["data"]["failure"]["code"] == "guard.live_instance";
        (code == Some(0) || is_live).then_some(())
    });
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
    assert_eq!(rig.ledger.living("slow").len(), 1, "nothing is there twice, or lost");
    let namespace = rig.bed.api().get("/api/v1/namespaces/dci-one").expect("an answer").unwrap_or(Value::Null);
    assert_eq!(namespace["metadata"]["labels"]["core.devicechain.io/instance"], "one");
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.ledger.living("slow").len(), rig.phase("one")), (0, None));
}

#[test]
fn a_bootstrap_that_was_killed_after_it_had_the_lock_is_gone_on_with() {
    killed_after("claim-the-cluster");
}

#[test]
fn a_bootstrap_that_was_killed_after_the_check_of_the_cluster_is_gone_on_with() {
    killed_after("check-the-cluster");
}

#[test]
fn a_bootstrap_that_was_killed_after_the_declaration_is_gone_on_with() {
    killed_after("declare-the-instance");
}

#[test]
fn a_bootstrap_that_was_killed_after_the_infrastructure_is_gone_on_with() {
    killed_after("apply-infrastructure");
}

#[test]
fn a_bootstrap_that_was_killed_after_the_chart_is_gone_on_with() {
    killed_after("install-chart");
}

#[test]
fn a_bootstrap_that_was_killed_after_the_wait_is_gone_on_with() {
    killed_after("wait-for-readiness");
}

#[test]
fn a_bootstrap_that_was_killed_after_the_checks_of_the_bundle_is_gone_on_with() {
    killed_after("verify");
}
