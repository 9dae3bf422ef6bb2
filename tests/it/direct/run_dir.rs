//! The run directory of a command under the lock of a folder: one run has it, and it lies apart from the lock.

use std::fs;

use serde_json::json;

use crate::direct::{Rig, text};

/// Who comes second is told so, however close behind, and takes nothing away from the first.
#[test]
fn of_runs_that_begin_at_once_in_one_run_directory_one_is_let_in() {
    let rig = Rig::new();
    for round in 0..if crate::direct::soak() { 25 } else { 4 } {
        let folder = rig.file(&format!("run-{round}"));
        let there = round % 2 == 1;
        if there {
            fs::create_dir(&folder).expect("the test's folder can be written");
        }
        let given = folder.display().to_string();
        let runs: Vec<_> = (0..6)
            .map(|number| (number, rig.sh(&["--run-dir", &given, "--wait"], &format!("exit {number}")).start()))
            .collect();
        let mut let_in = Vec::new();
        for (number, run) in runs {
            let finished = run.finish();
            let verdict = finished.verdict();
            match finished.code() {
                Some(3) if number != 3 || verdict["data"]["failure"]["code"] == "config.option" => {
                    assert_eq!(verdict["data"]["failure"]["code"], "config.option", "{verdict}");
                    let said = text(&verdict["data"]["failure"]["message"]);
                    assert!(said.contains("already holds the journal of another run"), "{said}");
                }
                Some(0 | 1) => let_in.push((number, finished.stdout.clone())),
                other => panic!("{other:?}: {}", finished.stdout),
            }
        }
        let [(_, shown)] = let_in.as_slice() else { panic!("{} were let in", let_in.len()) };
        // Its journal is its own, whole.
        let journal = fs::read_to_string(folder.join("events.jsonl")).expect("the run was let in");
        assert_eq!(journal.trim_end(), shown.trim_end());
    }
}

#[test]
fn a_refused_command_leaves_nothing_in_a_folder_that_was_there_and_no_folder_that_was_not() {
    let rig = Rig::new();
    let there = rig.file("there");
    fs::create_dir(&there).expect("the test's folder can be written");
    fs::write(there.join("mine"), "").expect("the test's folder can be written");
    for name in ["there", "new"] {
        let given = rig.file(name).display().to_string();
        let run = rig.bare(&["exec", "--substrate", "direct", "--lock-dir", "missing", "--run-dir", &given]);
        run.args(["--", "true"]).run().expect_code(4);
    }
    assert!(!rig.file("new").exists());
    let left: Vec<_> = fs::read_dir(&there).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["mine"]);
    // So it can be used.
    let given = there.display().to_string();
    rig.sh(&["--run-dir", &given], "true").run().expect_code(0);
}

#[test]
fn a_run_directory_in_the_lock_folder_is_refused() {
    let rig = Rig::new();
    std::os::unix::fs::symlink(rig.lock_dir(), rig.file("link")).expect("the test's folder can be written");
    for name in ["lock", "lock/", "lock/run", "link/a/b", "missing/../lock/run"] {
        let verdict = rig.sh(&["--run-dir", name], "true").run().expect_code(3).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(failure["code"], "config.option", "{name}: {failure}");
        assert!(text(&failure["message"]).contains("lies in the folder that keeps the lock"), "{name}: {failure}");
    }
    assert_eq!(rig.names(), Vec::<String>::new());
}

/// Room helps a disk that is full, and nothing else.
#[test]
fn a_run_directory_that_cannot_be_used_is_told_with_what_would_help() {
    let rig = Rig::new();
    fs::write(rig.file("file"), "").expect("the test's folder can be written");
    for (given, says) in
        [("file", "is a file"), ("file/run", "is a file"), ("/proc/run", "No folder can be made there")]
    {
        let verdict = rig.sh(&["--run-dir", given], "true").run().expect_code(4).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(failure["code"], json!("surroundings.run_dir"));
        let told = format!("{failure} {}", verdict["data"]["next"]);
        assert!(told.contains(says) && !told.contains("Make room"), "{given}: {told}");
    }
    // Limits of the shell that starts it; standard output is none of the files that are limited.
    let run = rig.sh(&["--run-dir", "small"], "true").by_shell("ulimit -f 8; exec \"$@\"").with_pipes();
    let verdict = run.run().expect_code(4).verdict();
    assert!(verdict.to_string().contains("ulimit -f"), "{verdict}");
}
