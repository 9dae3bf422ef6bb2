//! What a real provider starts under a real apply and leaves behind, whatever it did to get away: it holds nobody up, it is
//! named, it is ended where that can be had, and where not the verdict says so before the lock is given back.

use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::freezer::Freezer;
use crate::bed::{untested, wait};
use crate::stopping::cast::{is_gone, pid};
use crate::stopping::rig::Rig;

/// What shortens the wait for something that cannot be ended, in a build for tests.
const HURRY: (&str, &str) = ("DCCTL_TEST_BREAK", "watchdog:3");

/// The slow thing's creation starts such a child, which lives for ten minutes, and takes so long itself.
fn with_a_child(kind: &str, seconds: f64) -> Rig {
    Rig::with_slow(&format!("  seconds = {seconds}\n  hold_seconds = 600\n  child = \"{kind}\"\n"))
}

/// The child that the provider says it has started.
#[track_caller]
fn child(rig: &Rig) -> Pid {
    let spawned = || rig.entries().into_iter().find(|entry| entry.act == "spawned");
    pid(wait::fact("the provider to start its child", spawned).pid)
}

fn number(pid: Pid) -> Value {
    json!(pid.as_raw_nonzero().get())
}

/// The event of this kind about this process, and its place in the journal.
#[track_caller]
fn told(events: &[Value], kind: &str, pid: Pid) -> (usize, Value) {
    let is_it = |event: &Value| event["type"] == kind && event["data"]["pid"] == number(pid);
    let place = events.iter().position(is_it).unwrap_or_else(|| panic!("no {kind} of {pid:?}: {events:?}"));
    (place, events[place]["data"].clone())
}

fn place(events: &[Value], kind: &str) -> usize {
    events.iter().position(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}: {events:?}"))
}

/// It was named with all that is to be known of it, after OpenTofu's end, which did not wait for it.
#[track_caller]
fn assert_named(events: &[Value], pid: Pid, name: &str, relations: &[&str]) {
    let (named, left) = told(events, "process.left_behind", pid);
    assert!(left["name"].as_str().is_some_and(|said| said.starts_with(name)), "{left}");
    assert!(left["age_ms"].as_u64().is_some_and(|age| age >= 900), "it lived through the creation: {left}");
    for relation in relations {
        assert!(left["relations"].as_array().is_some_and(|all| all.contains(&json!(relation))), "{relation}: {left}");
    }
    assert!(named < place(events, "lock.releasing"), "{left}");
    let ended = |event: &Value| event["type"] == "process.finished" && event["data"]["program"] == "tofu apply";
    let ended = events.iter().find(|event| ended(event)).expect("its end was seen");
    assert_eq!(ended["data"]["exit_code"], 0, "{ended}");
    assert!(
        ended["data"]["duration_ms"].as_u64().is_some_and(|took| took < 60_000),
        "it waited for the child: {ended}"
    );
}

#[track_caller]
fn assert_released(rig: &Rig, finished: &Finished) {
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
    assert_eq!(rig.created("after"), 1);
}

#[test]
fn whatever_a_child_of_a_provider_did_to_get_away_it_is_named_and_ended_before_the_lock_is_given_back() {
    let rows = [
        // (what it did, its name, how it is known)
        ("plain", "terraform-provi", &["group", "mark", "orphan"][..]),
        ("left_session", "terraform-provi", &["orphan"]),
        ("ignores_sigterm", "terraform-provi", &["group", "mark", "orphan"]),
    ];
    for (kind, name, relations) in rows {
        let rig = with_a_child(kind, 1.0);
        let finished = rig.own().run().expect_code(0);
        let (events, child) = (finished.events(), child(&rig));
        assert_named(&events, child, name, relations);
        assert!(is_gone(child), "{kind}: it lives");
        if kind == "ignores_sigterm" {
            // It had its second to heed SIGTERM in, and SIGKILL came after that.
            let at = |place: usize| events[place]["elapsed_ms"].as_u64().expect("a number");
            let took = at(place(&events, "lock.releasing")) - at(told(&events, "process.left_behind", child).0);
            assert!(took >= 1_000, "it was ended within {took} ms");
        }
        assert_eq!(finished.verdict()["data"].get("survived"), None, "{kind}");
        assert_released(&rig, &finished);
    }
}

/// Nobody can say of whom it consists, so that is what is said.
#[test]
fn a_child_of_a_provider_that_never_stops_forking_is_ended_with_its_group_and_that_is_said() {
    let rig = with_a_child("keeps_forking", 1.0);
    let finished = rig.own().run().expect_code(0);
    let generations = || fs::metadata(rig.bed().file("ledger.jsonl.generations")).map_or(0, |file| file.len());
    let then = generations();
    assert!(then > 100, "it forked {then} times");
    let events = finished.events();
    let left = events.iter().filter(|event| event["type"] == "process.left_behind").count();
    assert!(left <= 100, "{left} were named");
    let said =
        "tofu apply left more processes behind than could be looked at: SIGKILL was sent to their whole process group";
    let note = |event: &Value| event["data"]["text"].as_str().is_some_and(|text| text.starts_with(said));
    let note = events.iter().position(note).unwrap_or_else(|| panic!("it is not said: {}", finished.stdout));
    assert!(note < place(&events, "lock.releasing"));
    assert_released(&rig, &finished);
    assert!(rig.bed().mark().pids().is_empty(), "somebody of it lives");
    assert_eq!(generations(), then, "it goes on after the lock was given back");
}

/// Whose supervisor is root ends it; whose is not, or may not signal others', says it in the verdict.
#[test]
fn a_child_of_a_provider_that_is_of_another_user_is_named_and_ended_or_said_in_the_verdict() {
    if !rustix::process::geteuid().is_root() {
        untested::say("a child of another user under OpenTofu", "starting one takes root");
        return;
    }
    for may_end_it in [true, false] {
        let rig = with_a_child("other_user", 1.0);
        let run = rig.own().env(HURRY.0, HURRY.1);
        let run = if may_end_it {
            run
        } else {
            run.by_shell("exec setpriv --bounding-set=-kill --inh-caps=-kill \"$@\"").with_pipes()
        };
        let finished = run.run().expect_code(0);
        let (events, child) = (finished.events(), child(&rig));
        assert_named(&events, child, "sleep", &["group", "mark", "orphan"]);
        assert_eq!(is_gone(child), may_end_it);
        if may_end_it {
            assert_eq!(finished.verdict()["data"].get("survived"), None);
        } else {
            assert_survived(&events, child);
            rustix::process::kill_process(child, Signal::KILL).expect("it lives");
        }
        assert_released(&rig, &finished);
    }
}

#[test]
fn a_child_of_a_provider_that_not_even_sigkill_ends_is_said_in_the_verdict() {
    let rig = with_a_child("plain", 3.0);
    let Some(freezer) = Freezer::new() else { return };
    let run = rig.own().env(HURRY.0, HURRY.1).start();
    let child = child(&rig);
    freezer.freeze(child.as_raw_nonzero().get().unsigned_abs());
    let finished = run.finish().expect_code(0);
    let events = finished.events();
    assert_named(&events, child, "terraform-provi", &["group", "mark", "orphan"]);
    assert_survived(&events, child);
    assert!(!is_gone(child), "it stands still");
    assert_released(&rig, &finished);
}

/// The verdict names it, and it was said before the lock was given back.
#[track_caller]
fn assert_survived(events: &[Value], child: Pid) {
    let (at, survived) = told(events, "process.survived", child);
    assert!(at < place(events, "lock.releasing"));
    let verdict = &events.last().expect("there are events")["data"];
    assert_eq!(verdict["survived"][0], survived, "{verdict}");
}
