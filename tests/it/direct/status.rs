//! `dcctl lock status` of a lock in a folder.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::direct::{ALICE, LONG_AGO, Rig, lease_of, now};

fn status(rig: &Rig, options: &[&str]) -> crate::bed::Dcctl {
    rig.dcctl(&["lock", "status"]).args(options)
}

#[test]
fn it_says_who_holds_it_and_what_to_do_next_in_words_of_the_folder() {
    let rig = Rig::new();
    let head = format!("the lock of this cluster (Lease dcctl.lease.json in {})", rig.lock_dir().display());
    let free = status(&rig, &["--exit-code"]).run().expect_code(0);
    assert_eq!(free.stdout, format!("{head} is free\n  next:       nothing: the next run can claim it"));
    rig.other_holds(LONG_AGO);
    let stale = status(&rig, &["--exit-code"]).run().expect_code(21).stdout;
    assert!(stale.starts_with(&format!("{head} is held\n  held by:    {ALICE}\n")), "{stale}");
    assert!(stale.contains(&format!("only if it is gone: `dcctl instances reclaim {}`", rig.options())), "{stale}");
    rig.other_holds(&now());
    status(&rig, &["--exit-code"]).run().expect_code(20);
    status(&rig, &[]).run().expect_code(0);
    let seen = status(&rig, &["--output", "json", "--exit-code"]).run().expect_code(20).stdout;
    let seen: Value = serde_json::from_str(&seen).expect("one object");
    assert_eq!((&seen["state"], &seen["holder"]["identity"]), (&json!("held"), &json!(ALICE)));
    assert_eq!(rig.names(), ["dcctl.lease.json"], "looking makes nothing");
}

/// Waits for a line of JSON with these members.
#[track_caller]
fn wait_for(run: &Running, state: &str, looks: &Value) -> Value {
    let part = format!("{{\"state\":\"{state}\",");
    let line = run.wait_for_last_line(&part, |line| line["looks"] == *looks);
    serde_json::from_str(&line).expect("it is an object")
}

#[test]
fn a_watch_tells_every_change_as_it_comes() {
    let rig = Rig::new();
    let run = status(&rig, &["--watch", "--output", "json", "--exit-code"]).start();
    wait_for(&run, "free", &Value::Null);
    rig.other_holds(LONG_AGO);
    let held = wait_for(&run, "held", &json!("stale"));
    assert_eq!(held["work"]["instance"], "prod");
    // As a holder changes it: by a new file under the old name.
    fs::write(rig.file("next"), lease_of(ALICE, &now()).to_string()).expect("the test's folder can be written");
    fs::rename(rig.file("next"), rig.lease_path()).expect("the lock folder can be written");
    wait_for(&run, "held", &json!("live"));
    fs::remove_file(rig.lease_path()).expect("the lock folder can be written");
    wait_for(&run, "free", &Value::Null);
    rig.other_holds(LONG_AGO);
    wait_for(&run, "held", &json!("stale"));
    run.signal(Signal::INT);
    let ended = run.finish().expect_code(21);
    assert!(ended.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_watch_survives_a_folder_that_is_away_and_ends_at_a_file_that_is_no_lease() {
    let rig = Rig::new();
    let run = status(&rig, &["--watch", "--output", "json"]).start();
    wait_for(&run, "free", &Value::Null);
    fs::rename(rig.lock_dir(), rig.file("away")).expect("the test's folder can be written");
    let other = rig.file("away").join("dcctl.lease.json");
    fs::write(other, lease_of(ALICE, LONG_AGO).to_string()).expect("the test's folder can be written");
    fs::rename(rig.file("away"), rig.lock_dir()).expect("the test's folder can be written");
    wait_for(&run, "held", &json!("stale"));
    fs::write(rig.lease_path(), "").expect("the lock folder can be written");
    let ended = run.finish().expect_code(4);
    assert!(ended.stderr.contains("it is empty"), "{}", ended.stderr);
}

#[test]
fn who_may_only_read_may_look() {
    let rig = Rig::new();
    rig.other_holds(LONG_AGO);
    let open = |path: &std::path::Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    open(&rig.lock_dir(), 0o755);
    let Some(reader) = crate::direct::users::User::other(&rig, 40_003) else { return };
    reader.dcctl(&rig, &["lock", "status", "--exit-code"]).run().expect_code(21);
    let run = reader.dcctl(&rig, &["exec", "--output", "jsonl"]).args(["--", "true"]).run().expect_code(4);
    assert!(run.verdict().to_string().contains("cannot write to the lock folder"), "{}", run.stdout);
}
