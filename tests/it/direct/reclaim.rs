//! `dcctl instances reclaim` of a lock in a folder, at a real terminal.
//!
//! Its window is 65 s long; the program is told that the machine was suspended meanwhile, which the clock that it uses
//! counts.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::Dcctl;
use crate::bed::terminal::{CTRL_C, Seat};
use crate::direct::{ALICE, LONG_AGO, Rig, lease_of, now};

const QUESTION: &str = "Type the holder identity above to take the lock, or anything else to abort:\n> ";
const CHECKING: &str = "checking whether the holder is still renewing (this takes about 1m0s)...";
const UNCHANGED: &str = "no renewal so far; ";

fn command(rig: &Rig) -> Dcctl {
    rig.dcctl(&["instances", "reclaim"]).env("BED_SUSPENDED", rig.file("suspended")).env("TERM", "xterm")
}

/// The machine was suspended for this long.
fn suspend(rig: &Rig, seconds: u64) {
    fs::write(rig.file("suspended.next"), seconds.to_string()).expect("the test's folder can be written");
    fs::rename(rig.file("suspended.next"), rig.file("suspended")).expect("the test's folder can be written");
}

fn asked(rig: &Rig) -> Seat {
    let seat = Seat::take(command(rig));
    seat.wait_for(QUESTION);
    seat
}

fn checking(rig: &Rig) -> Seat {
    let seat = asked(rig);
    seat.type_line(ALICE);
    seat.wait_for(CHECKING);
    seat.wait_for(UNCHANGED);
    seat
}

/// By a new file under the old name, as every change is made.
fn put(rig: &Rig, lease: &Value) {
    fs::write(rig.file("next"), lease.to_string()).expect("the test's folder can be written");
    fs::rename(rig.file("next"), rig.lease_path()).expect("the lock folder can be written");
}

#[test]
fn a_lock_that_was_left_is_shown_taken_and_given_back() {
    let rig = Rig::new();
    rig.other_holds(LONG_AGO);
    let seat = checking(&rig);
    let screen = seat.screen();
    let folder = rig.lease_path().display().to_string();
    assert!(screen.contains(&format!("  held by:   {ALICE}\n  instance:  prod\n  renewed:   ")), "{screen}");
    assert!(screen.contains(&format!("  lock:      {folder}\n")), "{screen}");
    suspend(&rig, 66);
    let screen = seat.expect_code(0);
    assert!(screen.ends_with("the lock of this folder is now free\n"), "{screen}");
    assert_eq!((rig.lease(), rig.names()), (None, vec!["dcctl.flock".to_owned()]));
    let again = Seat::take(command(&rig)).expect_code(0);
    assert_eq!(again, "the lock of this folder is not claimed; there is nothing to reclaim\n");
    rig.sh(&[], "true").run().expect_code(0);
}

#[test]
fn the_lock_of_a_run_that_was_killed_whole_is_reclaimed() {
    let rig = Rig::new();
    let run = rig.hold();
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    run.signal(Signal::KILL);
    run.finish();
    rig.mark("go");
    let holder = rig.lease().expect("it was left")["spec"]["holderIdentity"].as_str().expect("a name").to_owned();
    let seat = asked(&rig);
    assert!(seat.screen().contains("  command:   exec"), "{}", seat.screen());
    seat.type_line(&holder);
    seat.wait_for(UNCHANGED);
    suspend(&rig, 66);
    seat.expect_code(0);
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_holder_that_renews_meanwhile_is_left_alone() {
    let rig = Rig::new();
    rig.other_holds(LONG_AGO);
    let seat = checking(&rig);
    let mut renewed = lease_of(ALICE, &now());
    renewed["metadata"]["resourceVersion"] = json!("8");
    put(&rig, &renewed);
    suspend(&rig, 66);
    let screen = seat.expect_code(24);
    assert!(screen.contains("the holder is alive"), "{screen}");
    assert_eq!(rig.lease(), Some(renewed));
    // So is one that somebody edits, and the sentence names the file.
    rig.other_holds(LONG_AGO);
    fs::remove_file(rig.file("suspended")).expect("it is the test's own");
    let seat = checking(&rig);
    let mut edited = lease_of(ALICE, LONG_AGO);
    edited["metadata"]["resourceVersion"] = json!("8");
    put(&rig, &edited);
    suspend(&rig, 66);
    let screen = seat.expect_code(24);
    let said = format!("somebody wrote to the Lease dcctl.lease.json in {}", rig.lock_dir().display());
    assert!(screen.contains(&said), "{screen}");
}

#[test]
fn before_the_take_every_way_to_stop_changes_nothing() {
    let rig = Rig::new();
    let before = rig.other_holds(LONG_AGO);
    let seat = asked(&rig);
    seat.press(CTRL_C);
    seat.expect_code(10);
    let seat = asked(&rig);
    seat.type_line("yes");
    assert!(seat.expect_code(10).contains("that is not the holder identity; nothing was changed"));
    let seat = checking(&rig);
    seat.signal(Signal::TERM);
    assert!(seat.expect_code(10).contains("stopped; nothing was changed"));
    assert_eq!(rig.lease(), Some(before));
    // Without a terminal, and in a job, nobody is asked.
    assert!(command(&rig).run().expect_code(23).stderr.contains("this takes a person at a terminal"));
    assert!(Seat::take(command(&rig).env("CI", "true")).expect_code(23).contains("`CI` is set"));
}

#[test]
fn a_pod_that_the_holder_names_is_asked_of_no_cluster() {
    let rig = Rig::new();
    let mut lease = lease_of(ALICE, LONG_AGO);
    lease["metadata"]["annotations"] = json!({
        "dcctl.devicechain.io/pod-name": "runner-1", "dcctl.devicechain.io/pod-namespace": "ci",
    });
    put(&rig, &lease);
    let seat = asked(&rig);
    let screen = seat.screen();
    assert!(screen.contains("whether ci/runner-1 is still there cannot be told: the lock is in a folder"), "{screen}");
    assert!(screen.contains("  instance:  none\n"), "{screen}");
    seat.press(CTRL_C);
    seat.expect_code(10);
}

#[test]
fn a_folder_that_goes_away_while_it_is_watched_ends_it_and_is_not_told_to_be_made() {
    let rig = Rig::new();
    rig.other_holds(LONG_AGO);
    let seat = checking(&rig);
    fs::rename(rig.lock_dir(), rig.file("gone")).expect("the test's folder can be written");
    seat.wait_for("the lock folder does not answer now; ");
    // Long before the window is over: nobody says that the machine was suspended.
    let screen = seat.expect_code(4);
    assert!(screen.contains("the lock was not taken, and nothing was changed"), "{screen}");
    assert!(screen.contains("It was there before") && !screen.contains("install -d"), "{screen}");
    assert!(!screen.contains(" 0s to go"), "{screen}");
}

#[test]
fn a_holder_that_nobody_can_type_is_told_how_to_be_taken_away() {
    let rig = Rig::new();
    put(&rig, &lease_of(&"x".repeat(5_000), LONG_AGO));
    let seat = asked(&rig);
    seat.type_line("xxx");
    let screen = seat.expect_code(10);
    assert!(screen.contains("too long to be typed"), "{screen}");
    assert!(
        screen.split_whitespace().collect::<String>().contains(&format!("`rm{}`", rig.lease_path().display())),
        "{screen}"
    );
}
