//! Whole workflows, run by act.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Journal;
use crate::bed::{Bed, Dcctl, LEASE, wait};
use crate::github::workflow;
use crate::stopping::rig::Rig;

/// A workflow that bootstraps an instance of this rig's bundle.
fn bootstrap(rig: &Rig) -> Dcctl {
    let (state, run) = (rig.state_dir().display().to_string(), format!("--run-dir\n{}", run_dir(rig.bed())));
    let inputs = [
        ("verb", "bootstrap"),
        ("instance", rig.instance()),
        ("bundle", "bundle"),
        ("kube-context", "bed"),
        ("state-dir", &state),
        ("args", &run),
    ];
    workflow::job(rig.bed(), &inputs)
}

fn run_dir(bed: &Bed) -> String {
    bed.file("run").display().to_string()
}

fn journal(bed: &Bed) -> Journal {
    Journal::at(bed.file("run/events.jsonl"))
}

/// The step as later steps of its job see it.
fn step(bed: &Bed) -> Value {
    let text = fs::read_to_string(workflow::seen(bed)).expect("the last step wrote it");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn a_workflow_that_succeeds_has_its_steps_in_groups_its_outputs_and_a_summary() {
    let rig = Rig::new(0.1);
    let told = bootstrap(&rig).run().expect_code(0).stdout;
    let step = step(rig.bed());
    let outputs = &step["outputs"];
    assert_eq!((&step["outcome"], &outputs["outcome"]), (&json!("success"), &json!("succeeded")), "{told}");
    assert_eq!((&outputs["exit-code"], &outputs["lock"]), (&json!("0"), &json!("released")));
    assert_eq!(outputs["run-id"], journal(rig.bed()).events()[0]["run"]);
    assert!(told.contains("::group::5/9  Apply infrastructure") && told.contains("::endgroup::"), "{told}");
    let summary = told.split("Summary - ").nth(1).expect("there is a summary");
    // How long it took is said of a run that took a second.
    assert!(summary.contains(" succeeded") && summary.contains("Resources changed: 3"), "{told}");
}

#[test]
fn a_workflow_whose_apply_fails_names_the_line_and_how_to_go_on() {
    let rig = Rig::with_slow("  seconds = 0.1\n  behaviour = \"fail_half_way\"\n");
    let told = bootstrap(&rig).run().expect_code(1).stdout;
    let step = step(rig.bed());
    let outputs = &step["outputs"];
    assert_eq!((&step["outcome"], &outputs["outcome"]), (&json!("failure"), &json!("failed")), "{told}");
    assert_eq!((&outputs["exit-code"], &outputs["failure-code"]), (&json!("1"), &json!("infrastructure.failed")));
    assert_eq!(outputs["lock"], "released");
    let text = fs::read_to_string(rig.bed().file("bundle/infra/main.tf")).expect("the bundle is there");
    let line = 1 + text.lines().position(|line| line.contains("\"bed_thing\" \"slow\"")).expect("it is in the root");
    let place =
        format!("::error title=OpenTofu,file=bundle/infra/main.tf,line={line}::bed_thing.slow: the thing slow failed");
    assert!(told.contains(&place), "no {place} in {told}");
    let summary = told.split("Summary - ").nth(1).expect("there is a summary");
    assert!(summary.contains("<strong>Why:</strong>") && summary.contains("What to do now"), "{told}");
}

#[test]
fn a_workflow_that_finds_the_cluster_held_says_by_whom_and_changes_nothing() {
    let rig = Rig::new(0.1);
    let script = "echo here; until [ -e done ]; do sleep 0.1; done";
    let other = rig.bed().dcctl(["exec", "--kube-context", "bed", "--", "sh", "-c", script]).start();
    other.wait_for_line("here");
    let told = bootstrap(&rig).run().expect_code(1).stdout;
    let step = step(rig.bed());
    let outputs = &step["outputs"];
    assert_eq!((&outputs["outcome"], &outputs["exit-code"]), (&json!("blocked"), &json!("20")), "{told}");
    assert_eq!((&outputs["failure-code"], &outputs["lock"]), (&json!("lock.held"), &json!("never_taken")));
    assert_eq!(outputs["holder"].as_str(), rig.lease().as_deref());
    assert_eq!(rig.created("before"), 0);
    rig.bed().write("done", "");
    other.finish().expect_code(0);
}

#[test]
fn a_cancelled_workflow_interrupts_opentofu_once_and_its_last_step_sees_the_run_to_its_end() {
    let rig = Rig::new(4.0);
    let job = bootstrap(&rig).start();
    rig.wait_until_slow(&journal(rig.bed()));
    job.signal(Signal::INT);
    let told = job.finish().stdout;
    // Nobody waits here: act ended after the run had.
    rig.assert_clean_stop(&journal(rig.bed()).events());
    assert_eq!(step(rig.bed())["outputs"]["outcome"], "running", "act kills the step without a word: {told}");
    assert!(told.contains("asking the run to stop") && told.contains("was stopped after"), "{told}");
    let summary = told.split("Summary - ").nth(1).expect("there is a summary");
    assert!(summary.contains("exit code 10 (stopped.clean), the lock was released"), "{told}");
    rig.assert_converges();
}

#[test]
fn a_cancelled_workflow_sends_a_command_one_sigterm_and_waits_for_it() {
    let rig = Rig::new(0.0);
    let script = "echo it is open-sesame\ntrap 'echo TERM >> \"$SEEN.signals\"' TERM\n: > \"$SEEN.up\"\n\
                  until [ -e \"$SEEN.signals\" ]; do sleep 0.1 || true; done\nsleep 2\necho finished >> \"$SEEN.signals\"";
    let args = format!("--run-dir\n{}", run_dir(rig.bed()));
    let inputs = [("verb", "exec"), ("kube-context", "bed"), ("run", script), ("args", &args)];
    let job = workflow::job(rig.bed(), &inputs).env("DCCTL_VAR_TOKEN", "open-sesame").start();
    job.wait_for_line("it is ***");
    wait::fact("the command to begin", || rig.bed().file("seen.json.up").exists().then_some(()));
    job.signal(Signal::INT);
    let told = job.finish().stdout;
    let verdict = journal(rig.bed()).events().pop().expect("there are events");
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&json!(10), &json!("released")), "{told}");
    assert!(!told.contains("open-sesame"), "{told}");
    let signals = fs::read_to_string(rig.bed().file("seen.json.signals")).expect("it was told");
    assert_eq!(signals, "TERM\nfinished\n");
    assert!(rig.bed().api().get(LEASE).expect("the API server answers").is_none());
}

#[test]
fn a_runner_that_is_killed_leaves_a_run_that_stops_cleanly_by_itself() {
    let rig = Rig::new(3.0);
    let job = bootstrap(&rig).start();
    let journal = journal(rig.bed());
    rig.wait_until_slow(&journal);
    job.signal(Signal::KILL);
    journal.wait_for("run.finished", |event| event["data"]["exit_code"] == 10);
    rig.assert_clean_stop(&journal.events());
    rig.assert_converges();
}
