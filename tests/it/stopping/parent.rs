//! Who had started the run is gone. In a job of a CI system that is a cancel: some end only the shell of a step, and what the
//! shell had started hears nothing. Anywhere else whoever starts something and goes means it to go on.

use std::process::Stdio;

use rustix::process::Signal;

use crate::bed::dcctl::{Journal, Running};
use crate::bed::{Dcctl, wait};
use crate::stopping::CREATION;
use crate::stopping::rig::Rig;

/// Starts it in a shell that runs this script. What it says is in its journal.
fn in_shell(run: Dcctl, script: &str, stdin: Stdio) -> Running {
    let mut shell = run.by_shell(script);
    shell.command().stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
    shell.start()
}

#[test]
fn in_a_job_the_loss_of_the_shell_that_had_started_the_run_is_the_one_request_to_stop() {
    let rig = Rig::new(CREATION);
    let run_dir = rig.bed().file("run");
    // The shell of a step: it does not become the run, and nobody tells the run when it is killed.
    let run = rig.own().env("CI", "true").arg("--run-dir").arg(&run_dir);
    let shell = in_shell(run, "\"$@\"; true", Stdio::null());
    let journal = Journal::at(run_dir.join("events.jsonl"));
    rig.wait_until_slow(&journal);
    shell.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    let asked = journal.wait_for("stop.requested", |_| true);
    assert_eq!(asked["data"]["cause"], "parent_gone", "{asked}");
    rig.assert_clean_stop(&journal.events());
    rig.assert_converges();
}

#[test]
fn outside_of_a_job_a_run_goes_on_when_the_shell_that_had_started_it_is_gone() {
    let rig = Rig::new(CREATION);
    let run_dir = rig.bed().file("run");
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let run = rig.own().arg("--run-dir").arg(&run_dir);
    let shell = in_shell(run, "nohup \"$@\" > said 2>&1 & read never", reader.into());
    let journal = Journal::at(run_dir.join("events.jsonl"));
    rig.wait_until_slow(&journal);
    shell.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&0.into(), &"released".into()), "{verdict}");
    let interrupts = journal.events().into_iter().filter(|event| event["type"] == "process.interrupted").count();
    assert_eq!((interrupts, rig.created("after")), (0, 1));
    wait::fact("the lock to be gone", || rig.lease().is_none().then_some(()));
}

#[test]
fn in_a_job_a_run_that_was_left_goes_on_when_the_shell_that_had_started_it_is_gone() {
    let rig = Rig::new(CREATION);
    let run_dir = rig.bed().file("run");
    let (reader, _writer) = std::io::pipe().expect("a pipe");
    let run = rig.own().env("CI", "true").arg("--detach").arg("--run-dir").arg(&run_dir);
    let shell = in_shell(run, "\"$@\"; read never", reader.into());
    let journal = Journal::at(run_dir.join("events.jsonl"));
    rig.wait_until_slow(&journal);
    shell.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&0.into(), &"released".into()), "{verdict}");
    let asked = journal.events().into_iter().find(|event| event["type"] == "stop.requested");
    assert_eq!((asked, rig.created("after")), (None, 1));
    wait::fact("the lock to be gone", || rig.lease().is_none().then_some(()));
}

#[test]
fn in_a_job_the_loss_of_the_shell_before_the_run_begins_leaves_nothing() {
    let rig = Rig::new(CREATION);
    // A kubeconfig that nobody ever finishes writing.
    let kubeconfig = rig.pipe("kubeconfig");
    let shell = in_shell(rig.bootstrap_with(&kubeconfig).env("CI", "true"), "\"$@\"; true", Stdio::null());
    let folder = wait::fact("the run's folder", || rig.run_folders().pop());
    shell.signal(Signal::KILL);
    wait::fact("the run's folder to be gone", || (!folder.exists()).then_some(()));
    wait::fact("nothing of the run to be left", || rig.bed().mark().pids().is_empty().then_some(()));
    assert_eq!(rig.lease(), None);
}
