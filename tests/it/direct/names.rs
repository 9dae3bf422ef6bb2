//! Paths that are not UTF-8, and paths that a shell would read as more than one word.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::direct::{Rig, text};

fn bad(name: &str) -> OsString {
    let mut bad = OsString::from(name);
    bad.push(OsStr::from_bytes(b"\xff"));
    bad
}

#[test]
fn a_path_that_is_not_text_is_a_mistake_of_its_option() {
    let rig = Rig::new();
    for option in ["--run-dir", "--events-file", "--junit"] {
        let run = rig.dcctl(&["exec", "--output", "jsonl"]).arg(option).arg(bad("x")).args(["--", "touch", "started"]);
        let verdict = run.run().expect_code(3).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(failure["code"], "config.option", "{failure}");
        let said = text(&failure["message"]);
        assert!(said.contains(option) && said.contains("x\u{fffd} is not UTF-8 text"), "{said}");
    }
    for words in [&["exec", "--output", "jsonl"][..], &["lock", "status"]] {
        let run = rig.bare(words).args(["--substrate", "direct", "--lock-dir"]).arg(bad("l"));
        let run = if words[0] == "exec" { run.args(["--", "touch", "started"]) } else { run };
        let finished = run.run().expect_code(3);
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains("--lock-dir") && said.contains("l\u{fffd} is not UTF-8 text"), "{said}");
    }
    assert_eq!(rig.read("started"), None);
}

/// What is given as it is needs no name to be text but its own.
#[test]
fn a_command_runs_in_a_folder_whose_name_is_not_text() {
    let rig = Rig::new();
    let folder = rig.scratch.path().join(bad("here"));
    fs::create_dir(&folder).expect("the test's folder can be written");
    let mut run = rig.sh(&[], ": > started");
    run.command().current_dir(&folder);
    run.run().expect_code(0);
    assert!(folder.join("started").exists());
    // A relative path of such a folder is not text.
    let mut run = rig.sh(&["--junit", "report.xml"], "true");
    run.command().current_dir(&folder);
    let verdict = run.run().expect_code(3).verdict();
    assert!(verdict.to_string().contains("report.xml is not UTF-8 text"), "{verdict}");
    // Nor is a home there a place for the run directory.
    let verdict = rig.sh(&[], "true").env("HOME", &folder).run().expect_code(3).verdict();
    assert!(verdict.to_string().contains("--run-dir"), "{verdict}");
}
