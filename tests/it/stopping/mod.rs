//! One cancel is one cancel: the real OpenTofu with a real provider plugin in the middle of creating something, and
//! what a CI system does to the run at that moment.
//!
//! In every row the thing in flight is in the state afterwards, OpenTofu's own state lock is gone, the cluster's lock is
//! given back, the journal ends with a verdict, and a second bootstrap converges without a duplicate.

mod rig;

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::wait;
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
fn a_stop_between_front_and_supervisor_leaves_nothing_behind() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    run.signal(Signal::TERM);
    let finished = run.finish();
    // The signal may have come before the program had armed its handlers: then it dies of it, with nothing begun.
    if finished.code().is_some() {
        let finished = finished.expect_code(10);
        assert_eq!(finished.verdict()["data"]["lock"].as_str().filter(|lock| *lock == "left"), None);
    }
    wait::fact("the lock to be free", || rig.lease().is_none().then_some(()));
}

#[test]
fn a_stop_during_the_claim_of_a_busy_lock_is_still_the_holders_message() {
    let rig = Rig::new(0.1);
    let holder = rig.start();
    holder.wait_for("lock.claimed", |_| true);
    let blocked = rig.bootstrap("other").run();
    let code = blocked.code();
    // Held live, unless the holder was done before the other run asked.
    assert!(matches!(code, Some(20) | Some(0)), "{code:?}\n{}", blocked.stdout);
    holder.finish().expect_code(0);
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
    let finished = run.finish().expect_code(12);
    let verdict = finished.verdict();
    assert_eq!(verdict["data"]["lock"], "left", "{verdict}");
    let unfinished = verdict["data"]["unfinished"].to_string();
    assert!(unfinished.contains("bed_thing.slow"), "{verdict}");
    assert_eq!(rig.lease().as_deref(), verdict["data"]["holder"].as_str());
}

#[test]
fn a_killed_supervisor_is_said_with_what_may_still_be_running() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    rig.kill_supervisor(&run);
    let finished = run.finish().expect_code(1);
    let verdict = finished.verdict();
    assert_eq!(verdict["data"]["failure"]["code"], "supervisor.killed", "{verdict}");
    assert_eq!(verdict["data"]["lock"], "left", "{verdict}");
    assert!(verdict["data"]["failure"]["causes"].to_string().contains("tofu apply"), "{verdict}");
    // Nobody signals OpenTofu: it finishes alone and writes its state.
    wait::fact("the rest to be created", || (rig.created("after") == 1).then_some(()));
}
