//! A person at a terminal: one Ctrl+C, a key that bounces, a second one that is meant, Ctrl+Z and `fg`, and a terminal that
//! is gone.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::Journal;
use crate::bed::terminal::{CTRL_C, CTRL_Z, Seat};
use crate::bed::wait;
use crate::cancel::job::{NAMESPACE, can_be_contained, is_program, send, supervises};
use crate::stopping::CREATION;
use crate::stopping::rig::Rig;

/// So long after the first a key that bounces is pressed again.
const BOUNCING: Duration = Duration::from_millis(100);

/// A run at a terminal whose slow thing is being created.
fn seated(rig: &Rig) -> (Seat, Journal) {
    let run_dir = rig.bed().file("run");
    let seat = Seat::take(rig.own().env("DCCTL_OUTPUT", "human").arg("--run-dir").arg(&run_dir));
    let journal = Journal::at(run_dir.join("events.jsonl"));
    seat.wait_for("bed_thing.slow");
    rig.wait_until_slow(&journal);
    (seat, journal)
}

fn of_kind(journal: &Journal, kind: &str) -> Vec<Value> {
    journal.events().into_iter().filter(|event| event["type"] == kind).collect()
}

#[test]
fn one_ctrl_c_and_one_of_a_key_that_bounces_are_one_interrupt() {
    for presses in [1, 2] {
        let rig = Rig::new(CREATION);
        let (seat, journal) = seated(&rig);
        seat.press(CTRL_C);
        if presses == 2 {
            journal.wait_for("signal.received", |_| true);
            let _ = wait::until(BOUNCING, "the run to end", || of_kind(&journal, "run.finished").pop());
            seat.press(CTRL_C);
        }
        seat.expect_code(10);
        assert_eq!(of_kind(&journal, "signal.received").len(), presses);
        rig.assert_clean_stop(&journal.events());
        rig.assert_converges();
    }
}

#[test]
fn a_second_ctrl_c_later_is_force_and_leaves_the_lock() {
    let rig = Rig::new(60.0);
    let (seat, journal) = seated(&rig);
    seat.press(CTRL_C);
    seat.wait_for("Ctrl+C again");
    let first = journal.wait_for("signal.received", |_| true);
    assert_eq!((&first["data"]["signal"], &first["data"]["sender_pid"]), (&"SIGINT".into(), &Value::Null), "{first}");
    journal.wait_for("process.interrupt_reported", |_| true);
    // A key that bounces would have done it by now.
    let _ = wait::until(Duration::from_millis(400), "the run to end", || of_kind(&journal, "run.finished").pop());
    seat.press(CTRL_C);
    let screen = seat.expect_code(12);
    let verdict = journal.wait_for("run.finished", |_| true)["data"].clone();
    assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&12.into(), &"left".into()), "{verdict}");
    assert_eq!(rig.lease().as_deref(), verdict["holder"].as_str(), "{verdict}");
    assert_eq!(
        of_kind(&journal, "process.interrupted").len(),
        2,
        "OpenTofu's state lock is not given back by one alone"
    );
    let next = verdict["next"].to_string();
    assert!(next.contains("bed_thing.slow") && next.contains("made a second time"), "{verdict}");
    assert!(screen.contains("the lock was left behind"), "{screen}");
    rig.assert_no_state_lock();
}

/// To the kernel its sender has no number there, as a key has none.
#[test]
fn interrupts_from_outside_of_a_container_with_a_terminal_are_no_keys() {
    if !can_be_contained("signals from outside of a container") {
        return;
    }
    let rig = Rig::new(CREATION);
    let run_dir = rig.bed().file("run");
    let run = rig.own().env("DCCTL_OUTPUT", "human").arg("--run-dir").arg(&run_dir);
    let seat = Seat::take_contained(run, NAMESPACE);
    let journal = Journal::at(run_dir.join("events.jsonl"));
    rig.wait_until_slow(&journal);
    let mut all = rig.bed().mark().pids().into_iter();
    let front = all.find(|pid| is_program(*pid, "dcctl") && !supervises(*pid)).expect("it is there");
    for round in 1..=2 {
        send(front, Signal::INT);
        wait::fact("it to be heard", || (of_kind(&journal, "signal.received").len() == round).then_some(()));
        // A key that bounces would have done it by now.
        let _ = wait::until(Duration::from_millis(400), "the run to end", || of_kind(&journal, "run.finished").pop());
    }
    let screen = seat.expect_code(10);
    assert!(!screen.contains("Ctrl+C again"), "{screen}");
    rig.assert_clean_stop(&journal.events());
}

/// Its input is no terminal, so no key is force.
#[test]
fn who_cannot_force_by_a_key_is_not_told_that_one_would() {
    let rig = Rig::new(CREATION);
    let run_dir = rig.bed().file("run");
    let run = rig.own().env("DCCTL_OUTPUT", "human").arg("--run-dir").arg(&run_dir).by_shell("exec \"$@\" < /dev/null");
    let seat = Seat::take(run);
    let journal = Journal::at(run_dir.join("events.jsonl"));
    rig.wait_until_slow(&journal);
    seat.press(CTRL_C);
    let screen = seat.expect_code(10);
    assert!(screen.contains("asked to stop by SIGINT") && !screen.contains("Ctrl+C again"), "{screen}");
}

/// A run that was stopped by Ctrl+Z while the slow thing is being created. A typed line takes it to the front again.
fn suspended(rig: &Rig) -> (Seat, Journal) {
    let run_dir = rig.bed().file("run");
    let run = rig.own().env("DCCTL_OUTPUT", "human").arg("--run-dir").arg(&run_dir);
    // Only a shell that controls jobs makes a job of it.
    let seat = Seat::take(run.by_shell("set -m; \"$@\"; echo it stands still; read go; fg"));
    let journal = Journal::at(run_dir.join("events.jsonl"));
    rig.wait_until_slow(&journal);
    seat.press(CTRL_Z);
    seat.wait_for("it stands still\n");
    (seat, journal)
}

#[test]
fn a_supervisor_that_is_killed_behind_ctrl_z_is_replaced_after_fg() {
    let rig = Rig::new(CREATION);
    let (seat, journal) = suspended(&rig);
    let mut all = rig.bed().mark().pids().into_iter();
    send(all.find(|pid| supervises(*pid)).expect("it owns the run"), Signal::KILL);
    // Nobody is there to ask for a stop, or to say anything.
    let entries = || of_kind(&journal, "process.interrupted").len() + of_kind(&journal, "run.finished").len();
    assert_eq!(entries(), 0);
    seat.type_line("");
    let screen = seat.expect_code(1);
    let verdict = journal.wait_for("run.finished", |_| true)["data"].clone();
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"supervisor.killed".into(), &"released".into()));
    let interrupts = (of_kind(&journal, "process.interrupted").len(), of_kind(&journal, "stop.requested").len());
    assert_eq!((interrupts, rig.created("after"), rig.lease()), ((1, 1), 0, None), "{verdict}");
    assert!(screen.contains("was killed"), "{screen}");
    rig.assert_no_state_lock();
    rig.assert_converges();
}

#[test]
fn ctrl_z_stops_the_watching_alone_and_fg_catches_up() {
    // Longer than it is from one renewal to the next.
    let rig = Rig::new(14.0);
    let (seat, journal) = suspended(&rig);
    let renewed = || rig.lease_says("/spec/renewTime");
    let before = renewed();
    wait::fact("a renewal", || (renewed() != before).then_some(()));
    assert_eq!((of_kind(&journal, "run.finished").len(), rig.created("after")), (0, 0), "it came after the standstill");
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&0.into(), &"released".into()), "{verdict}");
    assert_eq!(of_kind(&journal, "stop.requested").len(), 0);
    let before = seat.screen();
    assert!(!before.contains("Record the phase"), "somebody watched: {before}");
    seat.type_line("");
    let screen = seat.expect_code(0);
    assert!(screen.contains("Record the phase"), "it did not catch up: {screen}");
    assert_eq!((rig.created("after"), rig.lease()), (1, None));
}

#[test]
fn a_terminal_that_is_gone_is_the_one_request_to_stop() {
    let rig = Rig::new(CREATION);
    let (seat, journal) = seated(&rig);
    let seat = seat.hang_up();
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    drop(seat);
    rig.assert_clean_stop(&journal.events());
    rig.assert_converges();
}
