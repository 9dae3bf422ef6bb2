//! The supervisor is killed in the middle of an apply, and the front goes on in its place: OpenTofu is interrupted exactly
//! once and writes its state, the lock is renewed all the while and given back, and running the same again converges.

use std::fs;
use std::io::Write;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::{Finished, Running};
use crate::bed::{LEASE, wait};
use crate::lock;
use crate::stopping::rig::Rig;

/// Asks a program that was built for tests to stand still.
const BREAK: &str = "DCCTL_TEST_BREAK";
/// Long enough that whatever a test does comes while the creation is in flight.
const CREATION: f64 = 6.0;

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// Whether a process was stopped.
fn stands_still(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn kill(pid: Pid, signal: Signal) {
    rustix::process::kill_process(pid, signal).expect("it is the test's own");
}

/// What everybody sees of a run that was taken over and whose tool ended by itself.
#[track_caller]
fn assert_taken_over(rig: &Rig, finished: &Finished) -> Value {
    let events = finished.events();
    let verdict = finished.verdict()["data"].clone();
    assert_eq!(verdict["failure"]["code"], "supervisor.killed", "{verdict}");
    assert_eq!(verdict["lock"], "released", "{verdict}");
    assert_eq!(rig.lease(), None);
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "a number is missing, or is there twice: {numbers:?}");
    for (begun, ended) in [("step.started", "step.finished"), ("process.started", "process.finished")] {
        assert_eq!(count(&events, begun), count(&events, ended), "{begun}: {events:#?}");
    }
    for kind in ["resource.started", "resource.completed", "process.interrupt_reported"] {
        let mut told: Vec<String> =
            events.iter().filter(|event| event["type"] == kind).map(|event| event["data"].to_string()).collect();
        let before = told.len();
        told.dedup();
        assert_eq!(told.len(), before, "{kind} was told twice");
    }
    assert_eq!(count(&events, "run.finished"), 1);
    verdict
}

/// OpenTofu said that it was interrupted once, and what was in flight is in the state.
#[track_caller]
fn assert_one_interrupt(rig: &Rig, finished: &Finished) {
    let events = finished.events();
    let reported: Vec<&Value> = events.iter().filter(|event| event["type"] == "process.interrupt_reported").collect();
    let [reported] = reported[..] else { panic!("not one report of an interrupt: {reported:?}") };
    assert_eq!(reported["data"]["times"], 1, "{reported}");
    let state = rig.in_state();
    assert!(state.contains(&"before".to_owned()) && state.contains(&"slow".to_owned()), "{state:?}");
    assert_eq!(rig.created("after"), 0, "something began after the stop");
}

#[test]
fn a_killed_supervisor_is_replaced_and_opentofu_is_interrupted_once() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    Rig::kill_supervisor(&run);
    let finished = run.finish().expect_code(1);
    let verdict = assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    assert_eq!(count(&finished.events(), "process.interrupted"), 1);
    assert_eq!(verdict["unfinished"], Value::Null, "{verdict}");
    let causes = verdict["failure"]["causes"].to_string();
    assert!(causes.contains("OpenTofu finished what was in flight and wrote its state"), "{verdict}");
    rig.assert_converges();
}

#[test]
fn the_lock_is_renewed_beyond_its_validity_by_the_one_who_took_over() {
    const VALIDITY: u64 = 60_000;
    let rig = Rig::new(80.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    Rig::kill_supervisor(&run);
    let asked = run.wait_for("stop.requested", |_| true);
    let at = |event: &Value| event["elapsed_ms"].as_u64().expect("every event has it");
    assert_eq!(asked["data"]["cause"], "supervisor_gone", "{asked}");
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    let events = finished.events();
    let renewed: Vec<u64> = events.iter().filter(|event| event["type"] == "lock.renewed").map(at).collect();
    let after: Vec<u64> = renewed.iter().copied().filter(|moment| *moment > at(&asked)).collect();
    assert!(after.last().is_some_and(|last| last - at(&asked) > VALIDITY), "{after:?}");
    assert!(renewed.windows(2).all(|pair| pair[1] - pair[0] < VALIDITY / 2), "{renewed:?}");
    rig.assert_converges();
}

#[test]
fn a_front_that_stood_still_when_its_supervisor_was_killed_takes_over_when_it_goes_on() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let (front, supervisor) = (run.pid(), run.supervisor());
    let front = i32::try_from(front).ok().and_then(Pid::from_raw).expect("a process id");
    run.signal(Signal::STOP);
    wait::fact("the front to stand still", || stands_still(front).then_some(()));
    kill(supervisor, Signal::KILL);
    wait::fact("the supervisor to be gone", || rustix::process::test_kill_process(supervisor).is_err().then_some(()));
    assert!(rig.lease().is_some(), "nobody gave it back");
    run.signal(Signal::CONT);
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    rig.assert_converges();
}

/// A run whose supervisor stands still at this moment.
fn until(rig: &Rig, moment: &str) -> Running {
    rig.start_with(BREAK, &format!("tool:{moment}:tofu apply"))
}

/// Waits until it does, and kills it.
fn kill_standing(supervisor: Pid) {
    wait::fact("the supervisor to stand still", || stands_still(supervisor).then_some(()));
    kill(supervisor, Signal::KILL);
}

/// The supervisor is killed at this moment of a stop. How often the one who takes over interrupts OpenTofu, and how often it
/// says that the run was asked to stop.
#[track_caller]
fn interrupts_of_the_heir(moment: &str) -> (usize, usize) {
    let rig = Rig::new(CREATION);
    let run = until(&rig, moment);
    rig.wait_until_in_flight(&run);
    let supervisor = run.supervisor();
    run.signal(Signal::TERM);
    kill_standing(supervisor);
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    rig.assert_converges();
    let events = finished.events();
    (count(&events, "process.interrupted"), count(&events, "stop.requested"))
}

#[test]
fn an_interrupt_that_was_recorded_and_not_sent_is_sent_once() {
    assert_eq!(interrupts_of_the_heir("intended"), (1, 1));
}

#[test]
fn an_interrupt_that_was_sent_and_not_told_is_not_sent_again() {
    assert_eq!(interrupts_of_the_heir("sent"), (0, 1), "it was interrupted by the supervisor");
}

#[test]
fn a_tool_whose_process_was_not_written_down_is_found_by_its_tag() {
    let rig = Rig::new(CREATION);
    let run = until(&rig, "started");
    let supervisor = run.supervisor();
    wait::fact("the creation to begin", || (rig.created("slow") == 1).then_some(()));
    kill_standing(supervisor);
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    let events = finished.events();
    let apply = |event: &&Value| event["type"] == "process.started" && event["data"]["program"] == "tofu apply";
    assert_eq!(events.iter().filter(apply).count(), 1, "its start was not told");
    rig.assert_converges();
}

#[test]
fn an_orphan_that_holds_the_output_opentofu_waits_for_is_ended_by_the_one_who_took_over() {
    let rig = Rig::with_a_holder(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    Rig::kill_supervisor(&run);
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    assert!(count(&finished.events(), "process.left_behind") >= 1, "the holder was not named");
    assert_eq!(count(&finished.events(), "process.killed"), 0, "OpenTofu ended by itself");
    rig.assert_no_state_lock();
    rig.assert_converges();
}

#[test]
fn more_requests_to_stop_change_nothing_for_the_one_who_took_over() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    Rig::kill_supervisor(&run);
    run.wait_for("stop.requested", |_| true);
    for signal in [Signal::TERM, Signal::INT, Signal::TERM, Signal::HUP, Signal::INT] {
        run.signal(signal);
    }
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    assert_one_interrupt(&rig, &finished);
    let events = finished.events();
    assert_eq!((count(&events, "process.interrupted"), count(&events, "stop.requested")), (1, 1));
    let heard = events.iter().filter(|event| event["type"] == "signal.received");
    assert!(heard.clone().count() >= 1 && heard.clone().all(|event| event["data"]["effect"] == "nothing"));
}

#[test]
fn force_works_while_the_front_owns_the_run_and_leaves_the_lock() {
    let rig = Rig::new(60.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    Rig::kill_supervisor(&run);
    run.wait_for("process.interrupted", |_| true);
    run.signal(Signal::QUIT);
    let finished = run.finish().expect_code(12);
    let verdict = finished.verdict()["data"].clone();
    assert_eq!(verdict["lock"], "left", "{verdict}");
    assert_eq!(rig.lease().as_deref(), verdict["holder"].as_str(), "{verdict}");
    assert!(verdict["failure"]["message"].to_string().contains("was killed"), "{verdict}");
    assert!(verdict["unfinished"].to_string().contains("bed_thing.slow"), "{verdict}");
}

#[test]
fn a_lock_that_is_lost_while_the_front_owns_the_run_is_said_and_not_touched() {
    let rig = Rig::new(25.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    Rig::kill_supervisor(&run);
    run.wait_for("process.interrupted", |_| true);
    rig.bed().api().delete(LEASE).expect("the bed may do everything");
    run.wait_for("lock.lost", |_| true);
    let finished = run.finish().expect_code(1);
    let verdict = finished.verdict()["data"].clone();
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"supervisor.killed".into(), &"lost".into()));
    assert!(verdict["failure"]["causes"].to_string().contains("nobody holds it now"), "{verdict}");
    assert_one_interrupt(&rig, &finished);
    assert_eq!(rig.lease(), None, "it was made anew");
}

#[test]
fn a_supervisor_that_stands_still_for_half_a_minute_goes_on_as_if_nothing_had_been() {
    const LONG: Duration = Duration::from_secs(30);
    let rig = Rig::new(40.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let supervisor = run.supervisor();
    let holder = rig.lease();
    kill(supervisor, Signal::STOP);
    let until = System.now() + LONG;
    wait::fact("half a minute to be over", || (System.now() >= until).then_some(()));
    assert_eq!((rig.lease(), count(&run.journal().events(), "stop.requested")), (holder, 0));
    kill(supervisor, Signal::CONT);
    let finished = run.finish().expect_code(0);
    let events = finished.events();
    assert_eq!((count(&events, "process.interrupted"), count(&events, "lock.lost")), (0, 0));
    assert_eq!(finished.verdict()["data"]["lock"], "released");
    assert!(finished.stderr.contains("has not answered for"), "{}", finished.stderr);
    assert!(finished.stderr.contains("the supervisor answers again"), "{}", finished.stderr);
}

#[test]
fn a_front_that_goes_on_after_the_locks_validity_says_that_it_is_lost_and_leaves_it() {
    let rig = lock::rig::Rig::new().slow_thing(600.0);
    let run = rig.bootstrap("one").env("BED_SUSPENDED", rig.suspended()).start();
    rig.wait_until_in_flight(&run);
    let supervisor = run.supervisor();
    run.signal(Signal::STOP);
    kill(supervisor, Signal::KILL);
    let holder = rig.holder().expect("nobody gave it back");
    rig.suspend(70);
    run.signal(Signal::CONT);
    let finished = run.finish().expect_code(1);
    let verdict = finished.verdict()["data"].clone();
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"supervisor.killed".into(), &"lost".into()));
    assert_eq!((verdict["holder"].as_str(), rig.holder()), (Some(holder.as_str()), Some(holder.clone())));
    assert!(verdict["next"].to_string().contains("whether the lock still names"), "{verdict}");
    assert_eq!(count(&finished.events(), "process.interrupted"), 1, "the tool is stopped all the same");
    assert!(rig.bed.mark().pids().is_empty(), "something of the run lives");
}

#[test]
fn a_line_that_the_supervisor_had_begun_is_ended_and_the_numbers_go_on() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let supervisor = run.supervisor();
    kill(supervisor, Signal::STOP);
    wait::fact("the supervisor to stand still", || stands_still(supervisor).then_some(()));
    let journal = run.journal().path().to_owned();
    let mut file = fs::File::options().append(true).open(&journal).expect("it is there");
    file.write_all(b"{\"v\":1,\"seq\":4").expect("there is room");
    drop(file);
    kill(supervisor, Signal::KILL);
    let finished = run.finish().expect_code(1);
    assert_taken_over(&rig, &finished);
    let text = fs::read_to_string(journal).expect("it is there");
    let broken = text.lines().filter(|line| serde_json::from_str::<Value>(line).is_err()).count();
    assert!(broken == 1 && text.ends_with('\n'), "{broken} lines are broken");
}
