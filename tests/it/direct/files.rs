//! A file that is not a whole Lease of ours is named, and neither overwritten nor deleted.

use std::fs;
use std::os::unix::fs::symlink;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::terminal::Seat;
use crate::direct::{LEASE, LONG_AGO, Rig, lease_of, text};

/// Everything that may lie there and is no Lease, each with what is said of it.
fn broken() -> Vec<(Vec<u8>, &'static str)> {
    let whole = format!("{:#}\n", lease_of("alice@build-01/48213/9f3c1a20b7e4d5c6", LONG_AGO)).into_bytes();
    let changed = |pointer: &str, value: Value| {
        let mut lease = lease_of("alice@build-01/48213/9f3c1a20b7e4d5c6", LONG_AGO);
        *lease.pointer_mut(pointer).expect("it is there") = value;
        lease.to_string().into_bytes()
    };
    vec![
        (Vec::new(), "it is empty"),
        (whole[..whole.len() / 2].to_vec(), "it is torn, or no JSON at all"),
        (vec![0; 4096], "it is torn, or no JSON at all"),
        (b"{}".to_vec(), "it is no Lease of dcctl"),
        (changed("/metadata/name", json!("another")), "it is no Lease of dcctl"),
        (changed("/metadata/uid", json!("")), "it is no Lease of dcctl"),
        (changed("/metadata/resourceVersion", json!("seven")), "its version is no number"),
        // A change of it would have the same one, and a renewal could not be told.
        (changed("/metadata/resourceVersion", json!(u64::MAX.to_string())), "no version can come after its own"),
    ]
}

#[test]
fn a_file_that_is_torn_empty_or_foreign_is_named_and_left_as_it_is() {
    let rig = Rig::new();
    let path = rig.lease_path().display().to_string();
    for (bytes, says) in broken() {
        fs::write(rig.lease_path(), &bytes).expect("the lock folder can be written");
        let run = rig.sh(&["--wait"], ": > @/started").run().expect_code(4);
        let failure = &run.verdict()["data"]["failure"];
        assert_eq!(failure["code"], "surroundings.lock_record");
        assert_eq!(text(&failure["message"]), format!("the lock's file {path} cannot be used: {says}"));
        assert!(failure["hints"].to_string().contains(&format!("`mv {path} {path}.broken`")), "{failure}");
        let status = rig.dcctl(&["lock", "status"]).run().expect_code(4);
        assert!(status.stderr.contains(&path) && status.stderr.contains(says), "{}", status.stderr);
        let screen = Seat::take(rig.dcctl(&["instances", "reclaim"])).expect_code(4);
        assert!(screen.contains(says), "{screen}");
        assert_eq!(fs::read(rig.lease_path()).expect("it is still there"), bytes, "{says}");
        assert_eq!(rig.read("started"), None);
    }
}

#[test]
fn a_link_or_a_folder_in_its_place_is_no_lease() {
    let rig = Rig::new();
    fs::write(rig.file("elsewhere"), lease_of("", LONG_AGO).to_string()).expect("the test's folder can be written");
    symlink(rig.file("elsewhere"), rig.lease_path()).expect("the lock folder can be written");
    let run = rig.sh(&[], "true").run().expect_code(4);
    assert!(text(&run.verdict()["data"]["failure"]["message"]).ends_with("it is a symbolic link"));
    fs::remove_file(rig.lease_path()).and_then(|()| fs::create_dir(rig.lease_path())).expect("the folder is ours");
    let run = rig.sh(&[], "true").run().expect_code(4);
    assert!(text(&run.verdict()["data"]["failure"]["message"]).ends_with("it is no file"));
    assert!(rig.lease_path().is_dir() && rig.file("elsewhere").is_file());
    // Nor is a link followed where the file lock is to be.
    fs::remove_dir(rig.lease_path()).and_then(|()| fs::remove_file(rig.lock_dir().join("dcctl.flock"))).expect("ours");
    symlink(rig.file("elsewhere"), rig.lock_dir().join("dcctl.flock")).expect("the lock folder can be written");
    let run = rig.sh(&[], "true").run().expect_code(4);
    assert!(text(&run.verdict()["data"]["failure"]["message"]).contains("dcctl.flock"));
}

#[test]
fn what_a_killed_process_was_writing_is_in_nobody_s_way() {
    let rig = Rig::new();
    fs::write(rig.lock_dir().join("dcctl.lease.tmp"), "{ \"half").expect("the lock folder can be written");
    rig.sh(&[], "true").run().expect_code(0);
    assert_eq!(rig.names(), ["dcctl.flock"]);
}

#[test]
fn a_lease_that_breaks_while_it_is_held_is_not_deleted_and_the_lock_is_said_to_be_left() {
    let rig = Rig::new();
    let run = rig.hold();
    rig.settled();
    let held = fs::read(rig.lease_path()).expect("it is held");
    let half = &held[..held.len() / 2];
    fs::write(rig.lease_path(), half).expect("the lock folder can be written");
    rig.mark("go");
    let finished = run.finish().expect_code(12);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["lock"], "left");
    assert_eq!(fs::read(rig.lease_path()).expect("it is still there"), half);
    assert!(verdict["next"].to_string().contains(&format!("dcctl lock status {}", rig.options())), "{verdict}");
}

#[test]
fn a_lease_that_is_taken_away_stops_the_command() {
    let takes = [
        // Another holder by hand.
        (
            "another",
            "this cluster was reclaimed by another operator: it is now held by bob@laptop/9912/3a7f00c1d2e4b596",
        ),
        ("nobody", "this cluster's lock was reclaimed or deleted: nobody holds it now"),
        // Another folder under the same path: whoever does that has taken the lock away.
        ("folder", "this cluster's lock was reclaimed or deleted: nobody holds it now"),
    ];
    for (what, says) in takes {
        let rig = Rig::new();
        let script = "trap 'echo TERM >> @/signals; exit 5' TERM; : > @/up; while :; do sleep 0.05; done";
        let run = rig.sh(&[], script).start();
        rig.wait_for("up");
        rig.settled();
        match what {
            "another" => {
                let lease = lease_of("bob@laptop/9912/3a7f00c1d2e4b596", &crate::direct::now()).to_string();
                fs::write(rig.file("next"), lease).and_then(|()| fs::rename(rig.file("next"), rig.lease_path()))
            }
            "nobody" => fs::remove_file(rig.lease_path()),
            _ => fs::rename(rig.lock_dir(), rig.file("old")).and_then(|()| fs::create_dir(rig.lock_dir())),
        }
        .expect("the lock folder can be written");
        let finished = run.finish().expect_code(22);
        let verdict = &finished.verdict()["data"];
        assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&json!("lock.lost"), &json!("lost")), "{what}");
        assert_eq!(text(&verdict["failure"]["message"]), format!("stopping \"Run the command\": {says}"));
        assert_eq!(rig.read("signals").as_deref(), Some("TERM\n"));
        assert_eq!(rig.lease().is_some(), what == "another");
    }
}

/// The path is the lock's name: while nothing is there, nothing can be said, and the run goes on for as long as it may.
#[test]
fn a_folder_that_is_away_for_a_moment_costs_nothing() {
    let rig = Rig::new();
    let run = rig.hold();
    fs::rename(rig.lock_dir(), rig.file("away")).expect("the test's folder can be written");
    let failed = run.wait_for("lock.renewal_failed", |_| true);
    assert!(text(&failed["data"]["why"]).contains(&rig.lock_dir().display().to_string()), "{failed}");
    fs::rename(rig.file("away"), rig.lock_dir()).expect("the test's folder can be written");
    run.wait_for("lock.renewed", |_| true);
    rig.mark("go");
    let finished = run.finish().expect_code(0);
    assert_eq!((&finished.verdict()["data"]["lock"], rig.lease()), (&json!("released"), None));
}

/// Somebody who was stopped in the middle of a change holds up all the others, and they say what they wait for.
#[test]
fn a_file_lock_that_somebody_keeps_is_named_and_nothing_is_done_late() {
    let rig = Rig::new();
    rig.sh(&[], "true").run().expect_code(0);
    let path = rig.lock_dir().join("dcctl.flock");
    let keeper = crate::bed::child::lock_file(&path).expect("it can be opened").expect("nobody has it");
    let run = rig.sh(&[], ": > @/started").run().expect_code(4);
    let failure = &run.verdict()["data"]["failure"];
    assert_eq!(failure["code"], "surroundings.lock_dir_unanswered");
    let said = format!("another process has had the file lock on {} for 5s", path.display());
    assert!(text(&failure["message"]).ends_with(&said), "{failure}");
    drop(keeper);
    assert_eq!((rig.read("started"), rig.lease()), (None, None), "nothing came of it afterwards");
    // Looking needs no file lock.
    let keeper = crate::bed::child::lock_file(&path).expect("it can be opened").expect("nobody has it");
    rig.dcctl(&["lock", "status"]).run().expect_code(0);
    // One signal ends the wait for it.
    let run = rig.sh(&[], "true").start();
    run.wait_for("step.started", |event| event["data"]["id"] == "claim-the-cluster");
    run.signal(Signal::TERM);
    run.finish().expect_code(10);
    drop(keeper);
    assert_eq!(fs::read_dir(rig.lock_dir()).map(Iterator::count).ok(), Some(1), "{LEASE} was made");
}

#[test]
fn what_is_told_to_be_typed_is_what_a_shell_reads() {
    let rig = Rig::new();
    let folder = rig.file("it's a lock");
    let at = |words: &[&str]| rig.bare(words).args(["--substrate", "direct", "--lock-dir"]).arg(&folder);
    let typed = |name: &str| {
        let path = if name.is_empty() { folder.clone() } else { folder.join(name) };
        format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
    };
    let said = at(&["lock", "status"]).run().expect_code(4).stderr;
    assert!(said.contains(&format!("`install -d -m 2770 {}`", typed(""))), "{said}");
    fs::create_dir(&folder).expect("the test's folder can be written");
    fs::write(folder.join(LEASE), "").expect("the folder is ours");
    let said = at(&["lock", "status"]).run().expect_code(4).stderr;
    assert!(said.contains(&format!("`mv {} {}`", typed(LEASE), typed(&format!("{LEASE}.broken")))), "{said}");
    fs::write(folder.join(LEASE), lease_of(crate::direct::ALICE, LONG_AGO).to_string()).expect("the folder is ours");
    let reclaim = format!("`dcctl instances reclaim --substrate direct --lock-dir {}`", typed(""));
    let said = at(&["lock", "status"]).run().expect_code(0).stdout;
    assert!(said.contains(&reclaim), "{said}");
    let verdict = at(&["exec", "--output", "jsonl"]).args(["--", "true"]).run().expect_code(21).verdict();
    assert!(text(&verdict["data"]["failure"]["message"]).contains(&reclaim), "{verdict}");
}
