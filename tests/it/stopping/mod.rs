//! One cancel is one cancel: the real OpenTofu with a real provider plugin in the middle of creating something, and
//! what a CI system does to the run at that moment.
//!
//! In every row the thing in flight is in the state afterwards, OpenTofu's own state lock is gone, the cluster's lock is
//! given back, the journal ends with a verdict, and a second bootstrap converges without a duplicate.

mod behind;
mod born;
mod both;
mod budget;
pub(crate) mod cast;
mod disks;
mod every;
mod gone;
mod granted;
mod left;
mod lost;
mod moments;
mod nowhere;
mod parent;
pub(crate) mod rig;
mod takeover;
mod terminal;
mod torn;
mod verbs;

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::{Fault, Gate, Proxy, Rule, wait};
use rig::Rig;

/// Long enough that every signal of a row comes while the creation is in flight.
const CREATION: f64 = 3.0;

#[test]
fn one_sigterm_lets_the_creation_finish_and_gives_the_lock_back() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    rig.assert_clean_stop(&finished.events());
    rig.assert_converges();
}

#[test]
fn every_signal_of_a_polite_cancel_is_the_same_one_request() {
    for signal in [Signal::INT, Signal::HUP] {
        let rig = Rig::new(CREATION);
        let run = rig.start();
        rig.wait_until_in_flight(&run);
        run.signal(signal);
        let finished = run.finish().expect_code(10);
        rig.assert_clean_stop(&finished.events());
        rig.assert_converges();
    }
}

#[test]
fn twenty_sigterms_are_one_interrupt() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    for _ in 0..20 {
        run.signal(Signal::TERM);
    }
    let finished = run.finish().expect_code(10);
    rig.assert_clean_stop(&finished.events());
    rig.assert_converges();
}

#[test]
fn sigint_then_sigterm_then_sigkill_of_the_front_is_one_interrupt() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    let journal = run.journal();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::INT);
    journal.wait_for("process.interrupted", |_| true);
    run.signal(Signal::TERM);
    run.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    rig.assert_clean_stop(&journal.events());
    rig.assert_converges();
}

#[test]
fn a_killed_front_is_the_one_request_to_stop() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    let journal = run.journal();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    let asked = journal.wait_for("stop.requested", |_| true);
    assert_eq!(asked["data"]["cause"], "front_gone", "{asked}");
    rig.assert_clean_stop(&journal.events());
    rig.assert_junit_tells_of_a_stop();
    rig.assert_converges();
}

#[test]
fn a_stop_while_files_are_read_ends_before_the_run_begins() {
    let rig = Rig::new(CREATION);
    // A kubeconfig that nobody ever finishes writing.
    let kubeconfig = rig.pipe("kubeconfig");
    let run = rig.bootstrap_with(&kubeconfig).start();
    // The handlers are armed before the run's folder is made.
    let folder = wait::fact("the run's folder", || rig.run_folders().pop());
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    assert_eq!(finished.verdict()["data"]["lock"], "never_taken");
    assert!(!folder.exists(), "a run that never began left {}", folder.display());
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_stop_while_the_lock_is_claimed_gives_back_what_the_claim_got() {
    let rig = Rig::new(CREATION);
    let proxy = Proxy::start(rig.bed());
    let gate = Gate::new();
    proxy.add(Rule::on("POST", "/leases").request(Fault::Hold(gate.clone())));
    let run = rig.bootstrap_with(&proxy.kubeconfig("admin")).start();
    gate.wait_for(1);
    run.signal(Signal::TERM);
    run.wait_for("stop.requested", |_| true);
    gate.open();
    let finished = run.finish().expect_code(10);
    assert_ne!(finished.verdict()["data"]["lock"], "left");
    wait::fact("the Lease to be gone", || rig.lease().is_none().then_some(()));
    assert_eq!(rig.created("before"), 0);
}

#[test]
fn a_stop_while_the_fence_is_asked_begins_no_further_step() {
    let rig = Rig::new(CREATION);
    let proxy = Proxy::start(rig.bed());
    let gate = Gate::new();
    proxy.add(Rule::on("GET", "/leases/dcctl").request(Fault::Hold(gate.clone())));
    let run = rig.bootstrap_with(&proxy.kubeconfig("admin")).start();
    gate.wait_for(1);
    run.signal(Signal::TERM);
    run.wait_for("stop.requested", |_| true);
    gate.open();
    let finished = run.finish().expect_code(10);
    assert_eq!(finished.verdict()["data"]["lock"], "released");
    assert_eq!(rig.created("before"), 0);
}

#[test]
fn a_second_ctrl_c_without_a_terminal_changes_nothing() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::INT);
    run.wait_for("process.interrupted", |_| true);
    run.signal(Signal::INT);
    let finished = run.finish().expect_code(10);
    let received = |event: &&Value| event["type"] == "signal.received";
    assert_eq!(finished.events().iter().filter(received).count(), 2);
    rig.assert_clean_stop(&finished.events());
    rig.assert_converges();
}

#[test]
fn sigquit_ends_at_once_and_leaves_the_lock() {
    let rig = Rig::new(30.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::QUIT);
    rig.assert_forced(&run.finish().expect_code(12).events());
}

#[test]
fn a_command_that_forces_a_run_ends_it_at_once_and_leaves_the_lock() {
    let rig = Rig::new(30.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    rig.bed().dcctl(["runs", "stop", "--force", "latest"]).run().expect_code(0);
    let events = run.finish().expect_code(12).events();
    rig.assert_forced(&events);
    let asked = events.iter().find(|event| event["type"] == "stop.requested").expect("it was asked");
    assert_eq!(asked["data"]["cause"], "command", "{asked}");
}
