//! What a command leaves behind, whatever it did to get away: it is named and ended before the lock is given back, and
//! where it cannot be ended the verdict says so.

use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::freezer::Freezer;
use crate::bed::{untested, wait};
use crate::exec::{Rig, of_kind};

/// What shortens the wait for something that cannot be ended, in a build for tests.
const HURRY: (&str, &str) = ("DCCTL_TEST_BREAK", "watchdog:3");

/// A mark of a process that was left: its number.
#[track_caller]
fn number(rig: &Rig, name: &str) -> i32 {
    // The shell makes the file a moment before it writes the number.
    let written = || String::from_utf8_lossy(&rig.read(name)?).strip_suffix('\n')?.parse().ok();
    wait::fact("a number in the file", written)
}

fn lives(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !['Z', 'X'].contains(&state))
}

/// The event that names this process.
#[track_caller]
fn named(events: &[Value], kind: &str, pid: i32) -> Value {
    let all = of_kind(events, kind);
    let found = all.iter().find(|event| event["data"]["pid"] == pid);
    (*found.unwrap_or_else(|| panic!("process {pid} is not among {all:?}"))).clone()
}

/// Whether one comes before the other in the journal.
fn is_before(events: &[Value], first: &str, second: &str) -> bool {
    let place = |kind: &str| events.iter().position(|event| event["type"] == kind);
    place(first).zip(place(second)).is_some_and(|(first, second)| first < second)
}

fn is_related(event: &Value, relation: &str) -> bool {
    event["data"]["relations"].as_array().is_some_and(|all| all.contains(&json!(relation)))
}

#[test]
fn whatever_it_did_to_get_away_what_a_command_leaves_is_named_and_ended_before_the_lock_is_given_back() {
    let rig = Rig::new();
    let rows = [
        // (what it is, the script, how it is known)
        ("holds the output", "sleep 600 & echo $! > @/pid; echo last", "output"),
        ("left the session", "setsid sh -c 'echo $$ > @/pid; exec sleep 600' & until [ -s @/pid ]; do :; done", "mark"),
        (
            "left it all but its parents",
            "env -i setsid sh -c 'echo $$ > @/pid; exec sleep 600' < /dev/null > /dev/null 2>&1 & \
             until [ -s @/pid ]; do :; done",
            "orphan",
        ),
        (
            "ignores SIGTERM",
            "sh -c 'trap \"\" TERM HUP INT; echo $$ > @/pid; while :; do sleep 1; done' & until [ -s @/pid ]; do :; done",
            "group",
        ),
    ];
    for (what, script, relation) in rows {
        let _ = fs::remove_file(rig.bed.file("pid"));
        let finished = rig.sh(&["--output", "jsonl"], script).run().expect_code(0);
        let (events, pid) = (finished.events(), number(&rig, "pid"));
        let left = named(&events, "process.left_behind", pid);
        assert!(is_related(&left, relation), "{what}: {left}");
        assert!(left["data"]["age_ms"].is_u64() && left["data"]["name"].is_string(), "{what}: {left}");
        assert!(is_before(&events, "process.left_behind", "lock.releasing"), "{what}");
        assert!(!lives(pid), "{what}: it lives");
        let verdict = &finished.verdict()["data"];
        assert_eq!((&verdict["lock"], verdict.get("survived")), (&json!("released"), None), "{what}: {verdict}");
        assert_eq!(rig.lease(), None);
    }
}

/// Each generation lives for less than it takes to look through all processes, and none heeds SIGTERM.
#[test]
fn one_that_never_stops_forking_is_ended_and_not_named_without_end() {
    let rig = Rig::new();
    // A shell's functions call themselves a thousand times and no more, so it begins anew before that.
    let script = "trap '' TERM; s=$1; n=0; f() { echo x >> @/generations; n=$((n+1)); \
                  if [ $n -lt 900 ]; then f & else sh -c \"$s\" sh \"$s\" & fi; }; f";
    let script = script.replace('@', &rig.bed.scratch().display().to_string());
    let finished = rig.exec(&["--output", "jsonl"], &["sh", "-c", &script, "sh", &script]).run().expect_code(0);
    let generations = || rig.read("generations").map_or(0, |text| text.len());
    let (then, events) = (generations(), finished.events());
    assert!(then > 100, "it forked {then} times");
    let left = of_kind(&events, "process.left_behind").len();
    // None at all where each was over before it could be looked at: their group was ended as a whole.
    assert!(left <= 100, "{left} were named");
    let said = "sh left more processes behind than could be looked at: SIGKILL was sent to their whole process group";
    let note = |event: &Value| event["data"]["text"].as_str().is_some_and(|text| text.starts_with(said));
    assert!(events.iter().any(note), "it is not said: {}", finished.stdout);
    let still: Vec<Pid> = rig.bed.mark().pids();
    assert_eq!(generations(), then, "it goes on after the lock was given back: {still:?}");
    assert_eq!(rig.lease(), None);
}

/// It is nobody's, in both senses: the run may not signal other users' processes, and each is over before it is looked at.
#[test]
fn a_crowd_of_another_user_that_never_stops_forking_is_said_in_the_verdict() {
    if !rustix::process::geteuid().is_root() {
        untested::say("a crowd of another user", "starting one takes root");
        return;
    }
    let rig = Rig::new();
    let script = "s=$1; n=0; f() { echo x >&9; n=$((n+1)); \
                  if [ $n -lt 900 ]; then f & else sh -c \"$s\" sh \"$s\" & fi; }; f";
    let start = "exec 9>>@/generations; exec setpriv --reuid=65534 --clear-groups sh -c \"$1\" sh \"$1\"";
    let start = start.replace('@', &rig.bed.scratch().display().to_string());
    let run = rig.exec(&["--output", "jsonl"], &["sh", "-c", &start, "sh", script]).env(HURRY.0, HURRY.1);
    let run = run.by_shell("exec setpriv --bounding-set=-kill --inh-caps=-kill \"$@\"").with_pipes();
    let finished = run.run().expect_code(0);
    let events = finished.events();
    let group = of_kind(&events, "process.started")[0]["data"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    let group = group.and_then(Pid::from_raw).expect("a process id");
    // To the whole group at once, so that nobody of it has another child.
    rustix::process::kill_process_group(group, Signal::KILL).expect("it goes on after the lock was given back");
    let verdict = &finished.verdict()["data"];
    let survived = verdict["survived"].as_array().unwrap_or_else(|| panic!("nobody is named: {verdict}"));
    assert!(!survived.is_empty() && is_before(&events, "process.survived", "lock.releasing"), "{verdict}");
    assert_eq!((&verdict["lock"], rig.lease()), (&json!("released"), None));
}

#[test]
fn one_that_not_even_sigkill_ends_is_said_in_the_verdict() {
    let rig = Rig::new();
    let Some(freezer) = Freezer::new() else { return };
    let script = "sleep 600 & echo $! > @/pid; until [ -e @/go ]; do sleep 0.05; done";
    let run = rig.sh(&["--output", "jsonl"], script).env(HURRY.0, HURRY.1).start();
    rig.wait_for("pid");
    let pid = number(&rig, "pid");
    freezer.freeze(pid.unsigned_abs());
    rig.mark("go");
    let finished = run.finish().expect_code(0);
    let events = finished.events();
    assert!(is_related(&named(&events, "process.left_behind", pid), "group"));
    assert_survived(&events, pid);
    assert!(lives(pid), "it stands still");
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_command_that_cannot_be_killed_is_waited_for_no_longer_than_the_watchdog() {
    let rig = Rig::new();
    let Some(freezer) = Freezer::new() else { return };
    let options = ["--output", "jsonl", "--stop-after", "1s"];
    let run = rig.sh(&options, "echo $$ > @/pid; exec sleep 600").env(HURRY.0, HURRY.1).start();
    rig.wait_for("pid");
    let started = run.wait_for("process.started", |_| true)["data"]["pid"].clone();
    let pid = i32::try_from(started.as_i64().expect("a number")).expect("a number");
    freezer.freeze(pid.unsigned_abs());
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let verdict = &finished.verdict()["data"];
    assert!(
        verdict["failure"]["message"].as_str().is_some_and(|said| said.contains("nobody saw the end of `sh`")),
        "{verdict}"
    );
    assert_eq!(
        (&verdict["survived"][0]["pid"], &verdict["survived"][0]["relations"]),
        (&json!(pid), &json!(["itself"]))
    );
    assert_eq!((&verdict["lock"], rig.lease()), (&json!("released"), None));
}

/// The verdict names it, and the lock is given back all the same, which is said, too.
#[track_caller]
fn assert_survived(events: &[Value], pid: i32) {
    let survived = named(events, "process.survived", pid);
    let verdict = &events.last().expect("there are events")["data"];
    assert_eq!((&verdict["survived"][0]["pid"], &verdict["lock"]), (&json!(pid), &json!("released")), "{verdict}");
    assert_eq!(verdict["survived"][0], survived["data"]);
    assert!(is_before(events, "process.survived", "lock.releasing"));
}
