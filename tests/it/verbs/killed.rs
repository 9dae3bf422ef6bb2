//! A bootstrap that is killed after a step, front and supervisor alike: the same command builds the instance.

use std::fs;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::{Finished, Running};
use crate::bed::{Bed, Fault, LEASE, Proxy, Rule, wait};
use crate::lock::rig::Rig;
use crate::verbs::rig::copy;

const CHART: &str = "instance:
  readiness: { timeout: 2m }
  chart:
    path: chart/
    release: \"dc-${instance}\"
    timeout: 2m
    set: { instance.id: \"${instance}\", instance.host: \"${instance}.test\", replicas: 1, database.password: none }
";

/// A bundle with something to do in every step, whose check waits as long as its gate is there.
fn rig() -> Rig {
    let bed = Bed::take();
    let gate = bed.file("one.gate").display().to_string();
    let rig = Rig::on(bed).declared().slow_thing(0.2).building("echo built");
    let rig = rig.checked(&format!("test ! -p {gate} || read status < {gate}"));
    copy(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo/chart").as_ref(), &rig.bed.file("bundle/chart"));
    let bundle = rig.bed.file("bundle/bundle.yaml");
    let text = fs::read_to_string(&bundle).expect("it is there");
    fs::write(&bundle, text.replace("instance:\n", CHART)).expect("the test's folder can be written");
    rig
}

/// Front and supervisor are gone, in the middle of the run, and a person who knows that gives the lock back.
fn kill_both(rig: &Rig, run: &Running) {
    let (supervisor, journal) = (run.supervisor(), run.journal());
    // The front first, so that it takes over from nobody.
    run.signal(Signal::KILL);
    rustix::process::kill_process(supervisor, Signal::KILL).expect("the run is not over");
    wait::fact("the supervisor to be gone", || rustix::process::test_kill_process(supervisor).is_err().then_some(()));
    let is_over = journal.events().iter().any(|event| event["type"] == "run.finished");
    assert!(!is_over, "the run came to its end before it was killed");
    // Before the claim there is none.
    if rig.lease().is_some() {
        rig.bed.api().delete(LEASE).expect("the bed may do everything");
    }
}

/// Whether a tool that outlives its run is still at work: until it ends, it has its state or its release.
#[track_caller]
fn has_to_wait(finished: &Finished) -> bool {
    if finished.code() == Some(0) {
        return false;
    }
    let verdict = finished.verdict();
    let code = verdict["data"]["failure"]["code"].as_str().unwrap_or_default().to_owned();
    let waits = finished.code() == Some(6) && ["guard.state_locked", "guard.release_pending"].contains(&code.as_str());
    assert!(waits, "only a tool that is still at work may be waited for: {verdict}");
    true
}

/// Kills a bootstrap when this step has ended, and runs it until it is through.
fn killed_after(step: &str) {
    let rig = rig();
    let proxy = Proxy::start(&rig.bed);
    let gate = rig.gate("one");
    let bootstrap = || rig.bootstrap("one").arg("--build");
    let run = bootstrap().with_kubeconfig(&proxy.kubeconfig("admin")).start();
    if step == "verify" {
        run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
        // What comes after the last check is quick: it does not get through.
        proxy.add(Rule::on("PATCH", "/instances/one").request(Fault::HalfOpen));
        gate.open(0);
    }
    let ended = run.wait_for("step.finished", |event| event["data"]["id"] == step);
    assert_eq!(ended["data"]["outcome"], "done", "{step} had nothing to do");
    kill_both(&rig, &run);
    // A check that outlives its run waits no more.
    let opened = rustix::fs::open(gate.path(), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
    fs::remove_file(gate.path()).expect("it is there");
    drop(opened);

    wait::fact("the instance to be built", || (!has_to_wait(&bootstrap().run())).then_some(()));
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
    assert_eq!(rig.ledger.living("slow").len(), 1, "nothing is there twice, or lost");
    let get = |path: &str| rig.bed.api().get(path).expect("an answer").unwrap_or(Value::Null);
    assert_eq!(get("/api/v1/namespaces/dci-one")["metadata"]["labels"]["core.devicechain.io/instance"], "one");
    assert_eq!(get("/apis/apps/v1/namespaces/dci-one/deployments/web")["status"]["readyReplicas"], 1);
    let secrets = rig.bed.api().list("/api/v1/namespaces/dci-one/secrets").expect("an answer");
    let deployed = secrets.iter().filter(|secret| secret["metadata"]["labels"]["status"] == "deployed");
    assert_eq!(deployed.count(), 1, "one revision is deployed");
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.ledger.living("slow").len(), rig.phase("one")), (0, None));
}

#[test]
fn a_bootstrap_that_was_killed_after_the_images_were_built_is_gone_on_with() {
    killed_after("build-images");
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
