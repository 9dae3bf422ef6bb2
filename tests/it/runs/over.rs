//! Runs that are over, or that nobody can tell anything of any more.

use std::fs;

use serde_json::Value;

use crate::bed::wait;
use crate::runs::{Rig, ended, text, told};

#[test]
fn a_run_that_was_killed_is_said_to_be_cut_off_with_what_is_still_at_work() {
    let rig = Rig::new();
    let id = rig.at_work();
    rig.kill(&id);
    let waited = rig.runs(&["wait", &id]).run().expect_code(1);
    assert!(waited.stderr.contains("was cut off without a verdict, and sh ("), "{}", waited.stderr);
    assert!(waited.stderr.contains("the lock may still bear its name"), "{}", waited.stderr);
    let stop = rig.runs(&["stop", &id]).run().expect_code(1);
    assert!(stop.stderr.contains("nobody is there who would hear it"), "{}", stop.stderr);
    let listed = rig.runs(&["list"]).run().expect_code(0);
    assert!(
        text(&listed).contains(&format!("{id}  ")) && text(&listed).contains(" still at work"),
        "{}",
        listed.stdout
    );
    // Each line that a script reads is an event. Into a file: what the test reads itself has to end with a verdict.
    let show = rig.runs(&["show", &id, "--output", "jsonl"]).by_shell("\"$@\" > \"$SHOWN\"").with_pipes();
    let shown = show.env("SHOWN", rig.bed.file("shown")).run().expect_code(0);
    let lines = fs::read_to_string(rig.bed.file("shown")).expect("the shell made it");
    let is_event = |line: &str| serde_json::from_str(line).is_ok_and(|event: Value| event["type"].is_string());
    assert!(lines.lines().count() > 1 && lines.lines().all(is_event), "{lines}");
    assert!(shown.stderr.contains(&format!("run {id} ")), "{}", shown.stderr);
    let kept = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(text(&kept).starts_with("kept "), "{}", kept.stdout);
    rig.let_go();
    wait::fact("the command to end", || {
        let said = rig.runs(&["show", &id]).run().expect_code(0).stdout;
        said.contains("its processes are gone without a verdict").then_some(())
    });
    rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert_eq!(rig.list().len(), 0);
}

#[test]
fn a_run_that_its_front_has_taken_over_is_said_to_go_on() {
    let rig = Rig::new();
    let folder = rig.bed.scratch().display().to_string();
    let script =
        format!("trap ': > {folder}/asked' TERM; : > {folder}/up; until [ -e {folder}/go ]; do sleep 0.05; done");
    let run = rig.bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--", "sh", "-c", &script]).start();
    rig.wait_for("up");
    let id = rig.ids().pop().expect("there is a run");
    rig.kill(&id);
    rig.wait_for("asked");
    assert_eq!(rig.list()[0]["state"], "running");
    rig.let_go();
    run.finish().expect_code(1);
    assert_eq!(told(&rig.list()[0]), ended("failed", 1, "released"));
}

#[test]
fn only_what_is_over_and_old_enough_is_removed_and_never_the_last_state() {
    let rig = Rig::new();
    rig.detached(&[], "exit 0").run().expect_code(0);
    rig.runs(&["wait", "latest"]).run().expect_code(0);
    let first = rig.list()[0]["directory"].as_str().expect("a path").to_owned();
    let young = rig.runs(&["prune"]).run().expect_code(0);
    assert_eq!((text(&young), rig.list().len()), ("", 1));
    let told = rig.runs(&["prune", "--older-than", "0s", "--dry-run"]).run().expect_code(0);
    assert_eq!((text(&told), rig.list().len()), (format!("would remove {first}").as_str(), 1));
    // As it is called where a state really finds no room, see `stopping::disks`.
    let state = format!("{first}/infrastructure.errored.tfstate");
    fs::write(&state, "{}").expect("ours");
    let kept = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(text(&kept).contains("infrastructure.errored.tfstate"), "{}", kept.stdout);
    fs::remove_file(state).expect("it is there");
    let gone = rig.runs(&["prune", "--older-than", "0s"]).run().expect_code(0);
    assert_eq!((text(&gone), rig.list().len()), (format!("removed {first}").as_str(), 0));
}

#[test]
fn a_run_that_is_not_there_is_named_with_where_it_was_looked_for() {
    let rig = Rig::new();
    for words in [&["show", "latest"][..], &["wait", "abc"], &["stop", "/nowhere/at/all"], &["attach", "abc"]] {
        let refused = rig.runs(words).run().expect_code(3);
        assert!(refused.stderr.contains("dcctl runs list"), "{}", refused.stderr);
    }
    assert!(text(&rig.runs(&["list"]).run().expect_code(0)).starts_with("no runs in "));
}
