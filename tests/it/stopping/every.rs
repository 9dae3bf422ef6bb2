//! Signals that do not stop at the front: a system signals every process of the run, in whatever order and pace, or the
//! group of the front in the moment of its birth. Nothing is added to what it sent, and what may be lost is named.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::Finished;
use crate::bed::wait;
use crate::lock::rig::soak;
use crate::stopping::CREATION;
use crate::stopping::cast::{Cast, is_gone, pid, signal_each, tofu};
use crate::stopping::rig::Rig;

/// Between two of its signals a system waits so long.
const GAP: Duration = Duration::from_millis(400);

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// The lock was given back and everything that can be lost was named.
#[track_caller]
fn assert_torn_and_named(rig: &Rig, finished: &Finished, context: &str) {
    let verdict = finished.verdict()["data"].clone();
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{context}: {verdict}");
    let next = verdict["next"].to_string();
    assert!(next.contains("bed_thing.slow") && next.contains("made a second time"), "{context}: {verdict}");
}

/// A run that OpenTofu ended before anybody asked it to stop has failed; after that it has stopped, with this code.
#[track_caller]
fn assert_code_by_the_order(finished: &Finished, stopped: i32, context: &str) {
    let events = finished.events();
    let ended = |event: &Value| event["type"] == "process.finished" && event["data"]["program"] == "tofu apply";
    let ended = events.iter().position(ended).expect("its end was seen");
    let asked = events.iter().position(|event| event["type"] == "stop.requested");
    let expected = if asked.is_some_and(|asked| asked < ended) { stopped } else { 1 };
    assert_eq!(finished.code(), Some(expected), "{context}: {}", finished.stdout);
}

#[test]
fn a_sigterm_to_every_process_at_once_is_answered_with_no_interrupt_of_ours() {
    for youngest_first in [false, true] {
        let rig = Rig::new(CREATION);
        let run = rig.start();
        let mut pids = Cast::of(&rig, &run).all();
        if youngest_first {
            pids.reverse();
        }
        signal_each(&pids, Signal::TERM, Duration::ZERO);
        let finished = run.finish();
        assert_torn_and_named(&rig, &finished, "");
        assert_code_by_the_order(&finished, 11, "");
        assert_eq!(count(&finished.events(), "process.interrupted"), 0, "{youngest_first}: {}", finished.stdout);
        rig.assert_no_state_lock();
    }
}

/// Whatever the order and the pauses: what was in flight is named, the lock is given back, and at most one interrupt is
/// ours. One of the system's that comes after it is said to be none of ours.
#[test]
fn a_sigterm_to_every_process_in_any_order_and_at_any_pace_is_told_as_it_was() {
    let rounds = if soak() { 40 } else { 4 };
    for seed in seeds(rounds) {
        let mut dice = fastrand::Rng::with_seed(seed);
        let rig = Rig::new(CREATION);
        let run = rig.start();
        let mut pids = Cast::of(&rig, &run).all();
        dice.shuffle(&mut pids);
        let pauses: Vec<u64> = pids.iter().map(|_| [0, 20, 120, 400][dice.usize(..4)]).collect();
        let context = format!("DCCTL_SEED={seed} {pids:?} {pauses:?}");
        for (pid, pause) in pids.iter().zip(&pauses) {
            signal_each(&[*pid], Signal::TERM, Duration::from_millis(*pause));
        }
        let finished = run.finish();
        assert_torn_and_named(&rig, &finished, &context);
        assert_code_by_the_order(&finished, 11, &context);
        let events = finished.events();
        let sent = count(&events, "process.interrupted");
        assert!(sent <= 1, "{context}: {}", finished.stdout);
        let reported = events.iter().rfind(|event| event["type"] == "process.interrupt_reported");
        // That it gives up what is in flight, and who is to thank for that.
        if let Some(reported) = reported.filter(|event| event["data"]["times"] == 2) {
            assert_eq!((&reported["level"], &reported["data"]["sent"]), (&"warn".into(), &sent.into()), "{reported}");
        }
        rig.assert_no_state_lock();
    }
}

/// The seeds of a test; `DCCTL_SEED=N` plays that one alone.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn seeds(rounds: u64) -> Vec<u64> {
    match std::env::var("DCCTL_SEED") {
        Ok(seed) => vec![seed.parse().expect("DCCTL_SEED is a number")],
        Err(_) => (0..rounds).collect(),
    }
}

/// OpenTofu reads, and has begun nothing yet: nothing can be lost, so the stop is a clean one.
#[test]
fn a_sigterm_to_every_process_while_nothing_is_in_flight_is_a_clean_stop() {
    for youngest_first in [false, true] {
        let rig = Rig::new(CREATION);
        rig.bed().write(
            "bundle/infra/reading.tf",
            "data \"bed_reading\" \"long\" {\n  name = \"long\"\n  seconds = 20\n}\n",
        );
        let run = rig.start();
        let tofu = tofu(&run.journal());
        let reader = wait::fact("the reading to begin", || rig.entries().pop());
        let mut pids = [pid(run.pid()), run.supervisor(), tofu, pid(reader.pid)];
        if youngest_first {
            pids.reverse();
        }
        signal_each(&pids, Signal::TERM, Duration::ZERO);
        let finished = run.finish();
        // Where its provider was gone before it had heard of its own signal, all that it says is that it failed.
        let has_heard = count(&finished.events(), "process.interrupt_reported") > 0;
        assert_code_by_the_order(&finished, if has_heard { 10 } else { 11 }, "");
        let verdict = &finished.verdict()["data"];
        assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
        assert!(!verdict["next"].to_string().contains("made a second time"), "{verdict}");
        assert_eq!(count(&finished.events(), "process.interrupted"), 0, "{youngest_first}: {}", finished.stdout);
        assert_eq!(rig.created("before"), 0);
    }
}

#[test]
fn a_sigterm_to_one_process_after_the_other_youngest_first_is_answered_with_no_interrupt_of_ours() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    let mut pids = Cast::of(&rig, &run).all();
    pids.reverse();
    signal_each(&pids, Signal::TERM, GAP);
    let finished = run.finish();
    assert_torn_and_named(&rig, &finished, "");
    // OpenTofu ends of its plugin's death, before anybody asked the run to stop or after.
    assert_code_by_the_order(&finished, 11, "");
    assert_eq!(count(&finished.events(), "process.interrupted"), 0, "{}", finished.stdout);
    rig.assert_no_state_lock();
}

#[test]
fn a_second_interrupt_that_the_system_sends_after_ours_is_said_to_be_its_own() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    signal_each(&Cast::of(&rig, &run).all(), Signal::TERM, GAP);
    let finished = run.finish().expect_code(11);
    assert_torn_and_named(&rig, &finished, "");
    let events = finished.events();
    assert_eq!(count(&events, "process.interrupted"), 1);
    let step = events.iter().find(|event| event["type"] == "step.finished" && event["data"]["outcome"] == "stopped");
    let note = step.expect("it was stopped")["data"]["note"].to_string();
    assert!(note.contains("OpenTofu was interrupted twice, not by dcctl alone"), "{note}");
    let last =
        events.iter().rev().find(|event| event["type"] == "process.interrupt_reported").expect("it was reported");
    assert_eq!((&last["data"]["times"], &last["data"]["sent"]), (&2.into(), &1.into()), "{last}");
    let said = "tofu apply says that it was interrupted for the 2nd time; dcctl had sent 1 interrupt";
    assert_eq!((&last["msg"], &last["level"]), (&said.into(), &"warn".into()));
    rig.assert_no_state_lock();
}

#[test]
fn signals_of_three_kinds_together_are_one_request() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        run.signal(signal);
    }
    let finished = run.finish().expect_code(10);
    rig.assert_clean_stop(&finished.events());
    rig.assert_converges();
}

#[test]
fn a_system_that_signals_opentofu_at_its_start_is_not_told_that_nothing_was_applied_unless_it_shows() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    // Told by standard output at once, within what OpenTofu needs until it heeds signals.
    let started = run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply");
    let number = started["data"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process id");
    signal_each(&[pid(number), pid(run.pid())], Signal::TERM, Duration::ZERO);
    let finished = run.finish();
    let events = finished.events();
    let verdict = &finished.verdict()["data"];
    let ended =
        events.iter().find(|event| event["type"] == "process.finished" && event["data"]["program"] == "tofu apply");
    let ended = &ended.expect("its end was seen")["data"];
    // It heeds the signal already, or dies of it.
    let expected: &[i32] = if ended["signal"].is_null() { &[10, 11] } else { &[1, 11] };
    assert!(expected.contains(&finished.code().unwrap_or(0)), "{ended} {verdict}");
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
    rig.assert_told_what_was_heard(&finished);
    rig.assert_converges();
}

#[test]
fn an_interrupt_of_the_group_while_the_front_is_being_born_leaves_nothing() {
    let (rounds, mut dice) = (if soak() { 240 } else { 72 }, fastrand::Rng::with_seed(6));
    let rig = Rig::new(0.0);
    let mut heard = 0;
    for round in 0..rounds {
        // Sixty of seventy-two within the first six milliseconds, the others until a supervisor would be up.
        let delay = Duration::from_micros(if round % 6 < 5 { dice.u64(..6_000) } else { dice.u64(6_000..150_000) });
        let before = rig.run_folders().len();
        let mut run = rig.own();
        run.command().process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
        let run = run.start();
        let end = System.now() + delay;
        while System.now() < end {
            std::hint::spin_loop();
        }
        rustix::process::kill_process_group(pid(run.pid()), Signal::INT).expect("it was not waited for");
        let finished = run.finish();
        wait::fact("nothing of the run to be left", || rig.bed().mark().pids().is_empty().then_some(()));
        assert_eq!(rig.lease(), None, "round {round}, {delay:?}");
        if finished.killed_by() == Some(Signal::INT.as_raw()) {
            // Before its handlers are there the kernel ends it: then there is nothing to tell, and no folder to tell it in.
            assert_eq!(rig.run_folders().len(), before, "round {round}, {delay:?}");
            continue;
        }
        assert_eq!(finished.code(), Some(10), "round {round}, {delay:?}");
        heard += 1;
    }
    assert!(heard > 0, "no signal met a handler");
    assert_eq!(rig.created("after"), 0);
}

#[test]
fn a_person_who_interrupts_opentofu_itself_is_told_that_it_was_not_dcctl() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let tofu: Pid = tofu(&run.journal());
    rustix::process::kill_process(tofu, Signal::INT).expect("it is the test's own");
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    let message = verdict["failure"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("was interrupted in `infra` by somebody else than dcctl"), "{verdict}");
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
    assert_eq!(count(&finished.events(), "process.interrupted"), 0);
    rig.assert_converges();
}

#[test]
fn what_github_sends_in_its_own_time_is_one_interrupt_however_long_the_creation_takes() {
    let rig = Rig::new(20.0);
    let run = rig.own().env("CI", "true").env("GITHUB_ACTIONS", "true").start();
    let journal = run.journal();
    let front = pid(run.pid());
    rig.wait_until_in_flight(&run);
    run.signal(Signal::INT);
    for (after, next) in [(7_500, Signal::TERM), (2_500, Signal::KILL)] {
        let ended = wait::until(Duration::from_millis(after), "the front to end", || is_gone(front).then_some(()));
        assert!(ended.is_err(), "it ended before the creation did");
        run.signal(next);
    }
    let progress = journal.wait_for("step.progressed", |_| true);
    assert_eq!(progress["data"]["in_flight"][0]["what"], "creating bed_thing.slow", "{progress}");
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    rig.assert_clean_stop(&journal.events());
    rig.assert_junit_tells_of_a_stop();
    rig.assert_converges();
}
