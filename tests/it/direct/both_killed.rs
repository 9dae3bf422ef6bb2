//! What the next run says and clears of runs whose two processes were killed, wherever their directories are, and that it
//! takes nothing from the living.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::wait;
use crate::direct::users::User;
use crate::direct::{LEASE, Rig};

/// Kills both processes of a run in this folder; its command has ended then, and a person has given the lock back.
fn killed(rig: &Rig, folder: &Path) {
    let run = rig.sh(&["--run-dir", &folder.display().to_string()], ": > @/up; until [ -e @/go ]; do sleep 0.05; done");
    let run = run.start();
    rig.wait_for("up");
    let supervisor = run.supervisor();
    // The front has no time to see that the supervisor is gone.
    run.signal(Signal::STOP);
    rustix::process::kill_process(supervisor, Signal::KILL).expect("it runs");
    run.signal(Signal::KILL);
    assert_eq!(run.finish().killed_by(), Some(9));
    rig.mark("go");
    wait::fact("nothing of the run to be left", || rig.mark_of_all().pids().is_empty().then_some(()));
    for name in ["up", "go"] {
        fs::remove_file(rig.file(name)).expect("it is there");
    }
    fs::remove_file(rig.lock_dir().join(LEASE)).expect("it was left");
}

/// What the run says of killed ones.
fn said(finished: &Finished) -> Vec<String> {
    let notes = finished.events().into_iter().filter_map(|event| Some(event["data"]["text"].as_str()?.to_owned()));
    notes.filter(|note| note.contains("killed with both") || note.contains("killed like that")).collect()
}

fn list(rig: &Rig) -> Vec<Value> {
    let said = rig.bare(&["runs", "list", "--output", "json"]).run().expect_code(0).stdout;
    said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn runs(rig: &Rig) -> PathBuf {
    rig.file("home/.local/state/dcctl/runs")
}

#[test]
fn a_killed_run_whose_directory_is_elsewhere_is_listed_told_of_and_cleared_all_the_same() {
    let rig = Rig::new();
    let folder = rig.file("workspace/run");
    killed(&rig, &folder);
    let listed = list(&rig);
    let told = |run: &Value| (run["state"].clone(), run["directory"].clone());
    assert_eq!(told(&listed[0]), (json!("cut_off"), json!(folder.display().to_string())));
    // Another user of the machine, a pipe that nobody writes to and a file without an end are nothing to go by.
    for name in ["pipe", "endless", "planted"] {
        fs::create_dir(runs(&rig).join(name)).expect("the test's folder can be written");
        fs::set_permissions(runs(&rig).join(name), Permissions::from_mode(0o700)).expect("it is ours");
    }
    let pipe = runs(&rig).join("pipe/run.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("the folder is the test's");
    symlink("/dev/zero", runs(&rig).join("endless/run.json")).expect("the folder is the test's");
    let about = fs::read_to_string(folder.join("run.json")).expect("it was left");
    let mut about: Value = serde_json::from_str(&about).expect("JSON");
    about["run"] = json!("0123456789abcdef");
    about["kubeconfig"] = json!(rig.file("precious"));
    fs::write(rig.file("precious"), "").expect("the test's folder can be written");
    let planted = runs(&rig).join("planted");
    fs::copy(folder.join("events.jsonl"), planted.join("events.jsonl")).expect("it is there");
    fs::write(planted.join("run.json"), about.to_string()).expect("the folder is the test's");
    fs::set_permissions(planted.join("run.json"), Permissions::from_mode(0o666)).expect("it is ours");

    let next = rig.sh(&[], "true").run().expect_code(0);
    let [note] = &said(&next)[..] else { panic!("{:?}", said(&next)) };
    assert!(note.contains(&folder.display().to_string()), "{note}");
    assert!(!folder.join("run.json").exists() && rig.file("precious").exists());
    assert_eq!(said(&rig.sh(&[], "true").run().expect_code(0)), Vec::<String>::new(), "it is said once");
    // The folder is the user's: it stays, and is not listed any more.
    let pruned = rig.bare(&["runs", "prune", "--older-than", "0s"]).run().expect_code(0).stdout;
    assert!(pruned.contains("no longer listed: ") && folder.join("events.jsonl").exists(), "{pruned}");
    assert_eq!(list(&rig).iter().filter(|run| run["directory"] == folder.display().to_string()).count(), 0);
}

#[test]
fn of_many_killed_runs_the_newest_are_named_and_all_are_cleared() {
    let rig = Rig::new();
    let first = rig.file("workspace/run");
    killed(&rig, &first);
    let about: Value =
        serde_json::from_str(&fs::read_to_string(first.join("run.json")).expect("it was left")).expect("JSON");
    let id = about["run"].as_str().expect("an id").to_owned();
    for number in 1..8 {
        let folder = rig.file(&format!("workspace/run-{number}"));
        fs::create_dir(&folder).expect("the test's folder can be written");
        for name in ["run.json", "events.jsonl"] {
            let text = fs::read_to_string(first.join(name)).expect("it is there");
            fs::write(folder.join(name), text.replace(&id, &format!("{number:016x}"))).expect("it is ours");
        }
    }
    let last = rig.file("workspace/last").display().to_string();
    let said = said(&rig.sh(&["--run-dir", &last], "true").run().expect_code(0));
    assert_eq!(said.len(), 6, "{said:?}");
    assert!(said[5].starts_with("3 more runs were killed like that before"), "{said:?}");
    let left = fs::read_dir(rig.file("workspace")).expect("it is there").flatten();
    assert_eq!(left.filter(|entry| entry.path().join("run.json").exists()).count(), 0);
}

/// A program whose file cannot be read hides its processes from their own user.
#[test]
fn a_run_that_nobody_may_look_at_is_not_taken_for_dead() {
    let rig = Rig::new();
    let Some(user) = User::other(&rig, 40_003) else { return };
    let lock = rig.lock_dir();
    std::os::unix::fs::chown(&lock, Some(40_003), Some(40_003)).expect("root may");
    fs::set_permissions(rig.file("dcctl"), Permissions::from_mode(0o711)).expect("it is ours");
    let holds = user.sh(&rig, &lock, ": > up; until [ -e go ]; do sleep 0.05; done").start();
    wait::fact("the command to begin", || user.home.join("up").exists().then_some(()));
    let next = user.sh(&rig, &lock, "true").run().expect_code(20);
    assert_eq!(said(&next), Vec::<String>::new(), "it lives");
    let listed = user.bare(&rig, &["runs", "list", "--output", "json"]).run().expect_code(0).stdout;
    let first: Value = serde_json::from_str(listed.lines().next().expect("it is listed")).expect("JSON");
    assert_eq!(first["state"], "running", "{listed}");
    let folder = PathBuf::from(first["directory"].as_str().expect("a path"));
    assert!(folder.join("run.json").exists() && folder.join("door").exists(), "it was cleared");
    fs::write(user.home.join("go"), "").expect("root may");
    holds.finish().expect_code(0);
}

#[test]
fn a_signal_that_a_supervisor_does_not_hear_now_is_said_to_have_been_passed_on() {
    let rig = Rig::new();
    let run = rig.hold();
    let supervisor = run.supervisor();
    rustix::process::kill_process(supervisor, Signal::STOP).expect("it runs");
    run.signal(Signal::TERM);
    let (until, clock) = (std::time::Duration::from_secs(12), dcctl::clock::System);
    let end = dcctl::clock::Clock::now(&clock) + until;
    wait::fact("some seconds to pass", || (dcctl::clock::Clock::now(&clock) >= end).then_some(()));
    rustix::process::kill_process(supervisor, Signal::CONT).expect("it runs");
    let finished = run.finish().expect_code(10);
    let pid = supervisor.as_raw_nonzero();
    assert!(finished.stderr.contains("SIGTERM was passed on to the supervisor"), "{}", finished.stderr);
    assert!(finished.stderr.contains(&format!("`kill -CONT {pid}`")), "{}", finished.stderr);
}
