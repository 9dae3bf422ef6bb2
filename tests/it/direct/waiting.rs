//! Runs that wait for the lock of a folder: they say whom they wait for, and all of them get their turn.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::direct::{ALICE, LONG_AGO, Rig, of_kind, soak, text};

#[test]
fn a_run_that_waits_says_whom_it_waits_for_and_claims_when_the_lock_is_free() {
    let rig = Rig::new();
    rig.other_holds(LONG_AGO);
    let run = rig.sh(&["--wait"], ": > @/started").start();
    let said = run.wait_for("lock.blocked", |_| true);
    assert_eq!((&said["data"]["manner"], &said["data"]["holder"]), (&json!("waits"), &json!(ALICE)));
    let reclaim = format!("`dcctl instances reclaim {}`", rig.options());
    assert!(text(&said["data"]["text"]).contains(&reclaim), "{said}");
    // Another holder is said, too.
    let lease = crate::direct::lease_of("bob@laptop/9912/3a7f00c1d2e4b596", LONG_AGO).to_string();
    fs::write(rig.file("next"), lease).expect("the test's folder can be written");
    fs::rename(rig.file("next"), rig.lease_path()).expect("the lock folder can be written");
    run.wait_for("lock.blocked", |event| text(&event["data"]["holder"]).starts_with("bob@"));
    assert_eq!(rig.read("started"), None, "waiting never takes a lock");
    fs::remove_file(rig.lease_path()).expect("the lock folder can be written");
    let finished = run.finish().expect_code(0);
    assert_eq!((&finished.verdict()["data"]["lock"], rig.read("started")), (&json!("released"), Some(String::new())));
}

#[test]
fn the_time_to_wait_ends_and_one_signal_ends_it_sooner() {
    let rig = Rig::new();
    let before = rig.other_holds(LONG_AGO);
    let verdict = rig.sh(&["--wait=1s"], "true").run().expect_code(21).verdict();
    assert_eq!(verdict["data"]["failure"]["code"], "lock.held_stale");
    let run = rig.sh(&["--wait"], "true").start();
    run.wait_for("lock.blocked", |_| true);
    run.signal(Signal::TERM);
    let ended = run.finish().expect_code(10);
    assert_eq!((&ended.verdict()["data"]["lock"], rig.lease()), (&json!("never_taken"), Some(before)));
}

/// The witness is a file to which each command appends a line when it begins and one when it ends.
#[test]
fn of_several_that_wait_all_get_their_turn_and_no_two_at_once() {
    let rig = Rig::new();
    let waiters = if soak() { 20 } else { 8 };
    rig.other_holds(LONG_AGO);
    let runs: Vec<_> = (0..waiters)
        .map(|number| {
            let script = format!("echo begin {number} >> @/witness; sleep 0.1; echo end {number} >> @/witness");
            rig.sh(&["--wait=10m"], &script).start()
        })
        .collect();
    for run in &runs {
        run.wait_for("lock.blocked", |_| true);
    }
    fs::remove_file(rig.lease_path()).expect("the lock folder can be written");
    let claims: Vec<Value> =
        runs.into_iter().map(|run| of_kind(&run.finish().expect_code(0).events(), "lock.claimed")[0].clone()).collect();
    assert_eq!(claims.len(), waiters);
    let witness = rig.read("witness").expect("they wrote it");
    crate::direct::together::assert_one_at_a_time(&witness, waiters);
    assert_eq!(rig.names(), ["dcctl.flock"]);
}

/// Who held the lock of a folder that is gone is not known to hold anything.
#[test]
fn a_run_that_waited_for_the_lock_of_a_folder_that_is_gone_ends_with_that() {
    let rig = Rig::new();
    rig.other_holds(&crate::direct::now());
    let run = rig.sh(&["--wait=12s"], "true").start();
    run.wait_for("lock.blocked", |_| true);
    fs::rename(rig.lock_dir(), rig.file("gone")).expect("the test's folder can be written");
    let verdict = run.finish().expect_code(4).verdict();
    let failure = &verdict["data"]["failure"];
    assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&json!("surroundings.lock_dir"), &json!("never_taken")));
    assert!(text(&failure["message"]).contains("cannot be opened"), "{failure}");
    assert!(failure["causes"].to_string().contains("the run waited for it for"), "{failure}");
    let hints = failure["hints"].to_string();
    assert!(hints.contains("It was there before") && !hints.contains("install -d"), "{hints}");
}
