//! What dcctl itself writes: nothing follows its noticing that the lock is lost, whatever it was in the middle of.
//!
//! Each test stops the run between two requests of one step, where no stop request is looked at, takes the lock away,
//! and lets it go on. The API server's own audit log says what was written.

use dcctl::clock::{Clock, System};
use jiff::Timestamp;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::bed::dcctl::{Finished, Running};
use crate::bed::{Dcctl, Fault, Gate, Proxy, Rule, wait};
use crate::lock::rig::{LEASE, Rig, config_map, of_kind, text};

/// What is said of a write that was not sent because the Lease is gone.
const NOT_SENT: &str = "nothing more is written to this cluster, because this cluster's lock was reclaimed or deleted: \
                        nobody holds it now";

fn through(proxy: &Proxy, run: Dcctl) -> Running {
    run.with_kubeconfig(&proxy.kubeconfig("admin")).start()
}

/// Deletes the Lease under a run and waits until the run has noticed.
fn lose(rig: &Rig, run: &Running) {
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    run.journal().wait_for("lock.lost", |_| true);
}

/// The run ended because its lock was lost, and wrote nothing after the test's own last write.
#[track_caller]
fn assert_nothing_followed(rig: &Rig, ended: Running) -> Finished {
    let ended = ended.finish().expect_code(22);
    assert_eq!(rig.writes_since_ours("admin"), Vec::<String>::new(), "{}", ended.stdout);
    assert_eq!(ended.verdict()["data"]["lock"], "lost");
    ended
}

/// Why the step failed.
fn why(ended: &Finished, step: &str) -> Value {
    let finished = ended.events().into_iter().find(|event| event["type"] == "step.finished" && event["step"] == step);
    finished.expect("the step has an end")["data"]["failure"].clone()
}

#[test]
fn a_write_under_way_when_the_lock_is_lost_is_given_up_and_not_tried_in_another_way() {
    let rig = Rig::new().operator("ours");
    // The field is another's, so that the first apply is refused and a second one would take it over.
    rig.bed.api().apply(&config_map("theirs")).expect("the bed may do everything");
    let (proxy, gate) = (Proxy::start(&rig.bed), Gate::new());
    proxy.add(Rule::on("PATCH", "/configmaps/one").nth(1).reply(Fault::Hold(gate.clone())));
    let run = through(&proxy, rig.install());
    gate.wait_for(1);
    lose(&rig, &run);
    gate.open();
    let ended = assert_nothing_followed(&rig, run);
    let why = why(&ended, "install-the-operator");
    assert_eq!(why["code"], "lock.lost");
    assert!(text(&why["message"]).ends_with(NOT_SENT), "{why}");
    assert_eq!(why["causes"], json!(["the request was under way, and may still take effect"]));
}

#[test]
fn a_write_after_a_read_is_not_sent_when_the_lock_was_lost_meanwhile() {
    let rig = Rig::new().operator("ours");
    let (proxy, gate) = (Proxy::start(&rig.bed), Gate::new());
    // The install record is read to be judged, before the lock and under it, and once more to be written.
    proxy.add(Rule::on("GET", "/configmaps/dc-install").nth(3).reply(Fault::Hold(gate.clone())));
    let run = through(&proxy, rig.install());
    gate.wait_for(1);
    lose(&rig, &run);
    gate.open();
    let ended = assert_nothing_followed(&rig, run);
    let why = why(&ended, "install-the-operator");
    let said = format!("could not write the install record (ConfigMap dc-system/dc-install): {NOT_SENT}");
    assert_eq!((&why["code"], text(&why["message"])), (&json!("lock.lost"), said));
    let record = rig.bed.api().get("/api/v1/namespaces/dc-system/configmaps/dc-install");
    assert_eq!(record.expect("the API server answers"), None);
}

/// An install whose apply is answered by "come back in seven seconds", each time, and that has sent it once.
fn told_to_come_back(rig: &Rig, proxy: &Proxy) -> Running {
    let busy = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "ServiceUnavailable",
        "code": 503, "message": "come back later", "details": { "retryAfterSeconds": 7 } });
    proxy.add(Rule::on("PATCH", "/configmaps/one").request(Fault::Answer(503, busy.to_string())));
    let run = through(proxy, rig.install());
    wait::fact("the first apply", || (applies(proxy) >= 1).then_some(()));
    run
}

/// How often the apply was sent.
fn applies(proxy: &Proxy) -> usize {
    proxy.seen().iter().filter(|seen| seen.method == "PATCH").count()
}

#[test]
fn a_write_is_not_repeated_after_the_lock_was_lost() {
    let rig = Rig::new().operator("ours");
    let proxy = Proxy::start(&rig.bed);
    let run = told_to_come_back(&rig, &proxy);
    lose(&rig, &run);
    let before = applies(&proxy);
    assert_nothing_followed(&rig, run);
    assert_eq!(applies(&proxy), before, "it was sent again");
}

#[test]
fn a_failure_is_not_written_down_when_the_lock_is_lost_meanwhile() {
    let rig = Rig::new().declared().gated();
    let (proxy, held) = (Proxy::start(&rig.bed), Gate::new());
    let check = rig.gate("one");
    let run = through(&proxy, rig.bootstrap("one"));
    run.wait_for("process.started", |_| true);
    // The declaration is read, and then the phase is written on it.
    proxy.add(Rule::on("GET", "/instances/one").nth(1).reply(Fault::Hold(held.clone())));
    check.open(3);
    held.wait_for(1);
    lose(&rig, &run);
    held.open();
    let ended = assert_nothing_followed(&rig, run);
    assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"));
    let said = text(&of_kind(&ended.events(), "lock.lost")[0]["data"]["text"]);
    assert!(said.starts_with("stopping before \"Record the phase\": "), "{said}");
}

#[test]
fn a_run_that_stood_still_for_longer_than_its_lock_is_valid_writes_nothing_when_it_goes_on() {
    let rig = Rig::new().operator("ours");
    let proxy = Proxy::start(&rig.bed);
    let run = told_to_come_back(&rig, &proxy);
    // A renewal is told three seconds after an apply was answered, and the next one is four seconds away.
    let told = run.journal().events().len() as u64;
    run.journal().wait_for("lock.renewed", |event| event["seq"].as_u64() > Some(told));
    kill_process(run.supervisor(), Signal::STOP).expect("it runs");
    let before = applies(&proxy);
    let renewed = text(&rig.lease().expect("it is held")["spec"]["renewTime"]);
    let renewed: Timestamp = renewed.parse().expect("a time");
    // The machine slept: by its clock the lock is void, though nobody has touched the Lease.
    let age = || System.wall().duration_since(renewed).as_secs();
    let old = wait::until(wait::GENEROUS * 3, "the lock to be older than it is valid", || (age() > 61).then_some(()));
    old.expect("time passes");
    kill_process(run.supervisor(), Signal::CONT).expect("it is there");
    let ended = run.finish().expect_code(22);
    assert_eq!(applies(&proxy), before, "it was sent again");
    let verdict = ended.verdict();
    assert_eq!((&verdict["data"]["lock"], &verdict["data"]["holder"]), (&json!("lost"), &json!(rig.holder())));
}
