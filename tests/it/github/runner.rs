//! The entry points of the action, under what GitHub's own runner does to a job that is cancelled, in its own time.
//!
//! It sends SIGINT to `main` alone, 7.5 s later SIGTERM, 2.5 s later SIGKILL; then runs `post`, with what `main` left in
//! files; and at the job's end kills whatever has the job's tracking variable.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::bed::dcctl::{Finished, Journal, Running};
use crate::bed::tools::own;
use crate::bed::{Dcctl, wait};
use crate::cancel::job::is_program;
use crate::github::workflow;
use crate::stopping::cast::{is_gone, pid, signal_each};
use crate::stopping::rig::Rig;
use crate::tree;

const UNTIL_SIGTERM: Duration = Duration::from_millis(7500);
const UNTIL_SIGKILL: Duration = Duration::from_millis(2500);

/// A step of a job: the files through which its two halves and the runner speak.
struct Step<'a> {
    rig: &'a Rig,
    inputs: Vec<(&'static str, String)>,
}

impl<'a> Step<'a> {
    fn new(rig: &'a Rig, more: &[(&'static str, &str)]) -> Step<'a> {
        let path = |name: &str| rig.bed().file(name).display().to_string();
        let mut inputs = vec![
            ("verb", "bootstrap".to_owned()),
            ("instance", rig.instance().to_owned()),
            ("bundle", path("bundle")),
            ("kube-context", "bed".to_owned()),
            ("state-dir", path("state")),
            ("dcctl", own("dcctl").display().to_string()),
            ("args", format!("--run-dir\n{}", path("run"))),
        ];
        inputs.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        for name in ["outputs", "state", "summary"] {
            rig.bed().write(&format!("step/{name}"), "");
        }
        Step { rig, inputs }
    }

    fn entry(&self, name: &str) -> Dcctl {
        let file = |name: &str| self.rig.bed().file(&format!("step/{name}"));
        let run = self.rig.bed().dcctl([tree::root().join("actions/run/dist").join(name)]);
        let mut run = run
            .by_program(&workflow::node())
            .env("CI", "true")
            .env("GITHUB_ACTIONS", "true")
            .env("RUNNER_TRACKING_ID", "github_1")
            .env("RUNNER_TEMP", self.rig.bed().file("tmp"))
            .env("GITHUB_WORKSPACE", self.rig.bed().scratch())
            .env("GITHUB_OUTPUT", file("outputs"))
            .env("GITHUB_STATE", file("state"))
            .env("GITHUB_STEP_SUMMARY", file("summary"));
        for (input, value) in &self.inputs {
            run = run.env(&format!("INPUT_{}", input.to_uppercase()), value);
        }
        run
    }

    fn main(&self) -> Running {
        self.entry("main.js").start()
    }

    fn post(&self) -> Finished {
        let mut post = self.entry("post.js");
        for (name, value) in self.written("state") {
            post = post.env(&format!("STATE_{name}"), value);
        }
        post.run().expect_code(0)
    }

    /// What was written to one of the files: `NAME<<MARK`, lines, `MARK`. The last word counts.
    fn written(&self, name: &str) -> BTreeMap<String, String> {
        let text = fs::read_to_string(self.rig.bed().file(&format!("step/{name}"))).expect("it is there");
        let mut lines = text.lines();
        let mut found = BTreeMap::new();
        while let Some((name, mark)) = lines.next().and_then(|line| line.split_once("<<")) {
            let value: Vec<_> = lines.by_ref().take_while(|line| *line != mark).collect();
            found.insert(name.to_owned(), value.join("\n"));
        }
        found
    }

    fn output(&self, name: &str) -> String {
        self.written("outputs").remove(name).unwrap_or_default()
    }

    fn summary(&self) -> String {
        fs::read_to_string(self.rig.bed().file("step/summary")).expect("it is there")
    }

    fn journal(&self) -> Journal {
        Journal::at(self.rig.bed().file("run/events.jsonl"))
    }

    /// The end of the job: SIGKILL for whatever has its tracking variable.
    fn clean_up(&self) {
        let has = |pid: &Pid| {
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|pair| pair.starts_with(b"RUNNER_TRACKING_ID="))
        };
        let tracked: Vec<Pid> = self.rig.bed().mark().pids().into_iter().filter(has).collect();
        signal_each(&tracked, Signal::KILL, Duration::ZERO);
    }
}

/// What the runner sends to the first process of a step, until it is gone. Says what it came to.
fn cancel(main: &Running) -> Signal {
    let gone = |limit: Duration| wait::until(limit, "main to end", || is_gone(pid(main.pid())).then_some(())).is_ok();
    main.signal(Signal::INT);
    if gone(UNTIL_SIGTERM) {
        return Signal::INT;
    }
    main.signal(Signal::TERM);
    if gone(UNTIL_SIGKILL) {
        return Signal::TERM;
    }
    main.signal(Signal::KILL);
    Signal::KILL
}

#[test]
fn on_the_first_signal_main_asks_for_one_stop_and_is_gone_and_post_tells_the_end() {
    let rig = Rig::new(4.0);
    let step = Step::new(&rig, &[]);
    let main = step.main();
    rig.wait_until_slow(&step.journal());
    assert_eq!(cancel(&main), Signal::INT);
    let told = main.finish().expect_code(1).stdout;
    assert!(told.contains("::group::5/9  Apply infrastructure") && told.contains("asked to stop"), "{told}");
    assert_eq!((step.output("outcome"), step.output("lock")), ("stopping".to_owned(), String::new()));
    assert_eq!(json!(step.output("run-id")), step.journal().events()[0]["run"]);
    assert_eq!(rig.created("after"), 0);
    let told = step.post().stdout;
    // `post` ended after the run had.
    rig.assert_clean_stop(&step.journal().events());
    step.clean_up();
    assert!(!told.contains("asking the run to stop") && told.contains("::notice title=dcctl::"), "{told}");
    let summary = step.summary();
    assert!(summary.contains("exit code 10 (stopped.clean), the lock was released"), "{summary}");
    assert!(PathBuf::from(step.output("events")).is_file() && PathBuf::from(step.output("junit")).is_file());
    rig.assert_converges();
}

#[test]
fn a_main_that_hears_nothing_is_killed_and_post_asks_for_the_same_one_stop() {
    let rig = Rig::new(14.0);
    let step = Step::new(&rig, &[]);
    let main = step.main();
    rig.wait_until_slow(&step.journal());
    main.signal(Signal::STOP);
    assert_eq!(cancel(&main), Signal::KILL);
    main.finish();
    let told = step.post().stdout;
    rig.assert_clean_stop(&step.journal().events());
    step.clean_up();
    assert!(told.contains("asking the run to stop"), "{told}");
    assert_eq!(step.output("outcome"), "running", "the last that main could say");
    rig.assert_converges();
}

#[test]
fn interrupts_of_the_whole_group_of_a_step_as_in_a_pod_that_is_shut_down_are_one_stop() {
    let rig = Rig::new(3.0);
    let step = Step::new(&rig, &[]);
    let mut main = step.entry("main.js");
    main.command().process_group(0);
    let main = main.start();
    rig.wait_until_slow(&step.journal());
    for _ in 0..2 {
        let _ = rustix::process::kill_process_group(pid(main.pid()), Signal::INT);
    }
    main.finish();
    // No later step is run there.
    step.journal().wait_for("run.finished", |event| event["data"]["exit_code"] == 10);
    rig.assert_clean_stop(&step.journal().events());
    rig.assert_converges();
}

#[test]
fn the_clean_up_at_the_end_of_the_job_does_not_reach_a_run_that_is_stopping() {
    let rig = Rig::new(3.0);
    let step = Step::new(&rig, &[]);
    let main = step.main();
    rig.wait_until_slow(&step.journal());
    cancel(&main);
    step.clean_up();
    main.finish();
    step.journal().wait_for("run.finished", |event| event["data"]["exit_code"] == 10);
    rig.assert_clean_stop(&step.journal().events());
    rig.assert_converges();
}

#[test]
fn a_run_that_takes_longer_than_post_may_wait_is_left_and_that_is_said() {
    let rig = Rig::new(8.0);
    let step = Step::new(&rig, &[("stop-wait", "1s")]);
    let main = step.main();
    rig.wait_until_slow(&step.journal());
    cancel(&main);
    main.finish();
    let told = step.post().stdout;
    step.clean_up();
    assert!(
        told.contains("::warning title=dcctl::The run has not ended in the time that this job had for it"),
        "{told}"
    );
    let summary = step.summary();
    assert!(summary.contains("no verdict yet") && summary.contains("held by the run, as "), "{summary}");
    step.journal().wait_for("run.finished", |event| event["data"]["exit_code"] == 10);
    rig.assert_clean_stop(&step.journal().events());
}

/// As when `always()` steps come between, or the stop was quick.
#[test]
fn what_ended_before_post_began_is_told_by_post_all_the_same() {
    let rig = Rig::new(2.0);
    let step = Step::new(&rig, &[]);
    let main = step.main();
    rig.wait_until_slow(&step.journal());
    cancel(&main);
    main.finish();
    step.journal().wait_for("run.finished", |event| event["data"]["exit_code"] == 10);
    let told = step.post().stdout;
    assert!(told.contains("::notice title=dcctl::") && told.contains("exit code 10 (stopped.clean)"), "{told}");
    assert!(!told.contains("asking the run to stop"), "{told}");
}

#[test]
fn of_a_run_that_was_cut_off_it_is_said_that_it_was_and_not_that_it_goes_on() {
    let rig = Rig::new(2.0);
    let step = Step::new(&rig, &[("stop-wait", "10m")]);
    let main = step.main();
    rig.wait_until_slow(&step.journal());
    let of_dcctl: Vec<Pid> = rig.bed().mark().pids().into_iter().filter(|pid| is_program(*pid, "dcctl")).collect();
    assert_eq!(of_dcctl.len(), 2, "front and supervisor");
    // Neither has the time to see the end of the other.
    signal_each(&of_dcctl, Signal::STOP, Duration::ZERO);
    signal_each(&of_dcctl, Signal::KILL, Duration::ZERO);
    main.finish();
    wait::fact("OpenTofu to end by itself", || rig.bed().mark().pids().is_empty().then_some(()));
    // The test would end before `post` did, if that waited for what is gone.
    let told = step.post().stdout;
    for said in ["::error title=dcctl::The run was cut off", "its processes are gone", "`dcctl lock status`"] {
        assert!(told.contains(said), "{said}: {told}");
    }
    assert!(!told.contains("goes on without this job"), "{told}");
    assert!(step.summary().contains("The run was cut off"), "{}", step.summary());
    assert!(rig.lease().is_some(), "nobody gave the lock back");
}

#[test]
fn every_verb_is_run_with_the_inputs_that_it_has() {
    let rig = Rig::new(0.0);
    for verb in ["bootstrap", "upgrade", "destroy"] {
        rig.bed().write("step/outputs", "");
        let run = format!("--run-dir\n{}", rig.bed().file(&format!("run-{verb}")).display());
        let step = Step::new(&rig, &[("verb", verb), ("on-busy", "refuse"), ("wait", "1m"), ("args", &run)]);
        let told = step.main().finish().expect_code(0).stdout;
        assert_eq!(
            (step.output("outcome"), step.output("exit-code")),
            ("succeeded".to_owned(), "0".to_owned()),
            "{told}"
        );
        assert!(told.contains(&format!("dcctl {} ", env!("CARGO_PKG_VERSION"))) && told.contains(verb), "{told}");
    }
    assert_eq!((rig.living("before"), rig.living("after")), (0, 0));
}

#[test]
fn a_program_that_ends_well_and_did_nothing_is_no_success() {
    let rig = Rig::new(0.0);
    for detach in ["false", "true"] {
        let step = Step::new(&rig, &[("args", "--help"), ("detach", detach)]);
        let told = step.main().finish().expect_code(1).stdout;
        assert!(told.contains("::error::dcctl ended with 0 and has no verdict: no run was seen"), "{told}");
        assert_eq!(step.output("outcome"), "failed");
    }
}

/// Between the two lines around a user's command the runner obeys nothing, and annotations are commands.
#[test]
fn that_a_script_could_not_be_started_is_an_annotation() {
    let rig = Rig::new(0.0);
    let step = Step::new(&rig, &[("verb", "exec"), ("run", "echo"), ("instance", ""), ("dcctl", "/no/such/dcctl")]);
    let told = step.main().finish().expect_code(1).stdout;
    let token = told.split_once("::stop-commands::").and_then(|(_, rest)| rest.lines().next()).expect("it is guarded");
    let (_, obeyed) = told.split_once(&format!("\n::{token}::\n")).expect("the guard ends");
    assert!(obeyed.contains("::error::there is no /no/such/dcctl to run"), "{told}");
}

#[test]
fn a_detached_run_is_neither_waited_for_nor_stopped() {
    let rig = Rig::new(3.0);
    let step = Step::new(&rig, &[("detach", "true")]);
    step.main().finish().expect_code(0);
    assert_is_left_to_itself(&rig, &step);
}

#[test]
fn a_run_that_is_detached_by_an_argument_is_seen_to_be_at_work_as_one_by_the_input_is() {
    let rig = Rig::new(3.0);
    let args = format!("--detach\n--run-dir\n{}", rig.bed().file("run").display());
    let step = Step::new(&rig, &[("args", &args)]);
    step.main().finish().expect_code(0);
    assert_is_left_to_itself(&rig, &step);
}

fn assert_is_left_to_itself(rig: &Rig, step: &Step<'_>) {
    assert_eq!(step.output("outcome"), "running");
    assert_eq!(json!(step.output("run-id")), step.journal().events()[0]["run"]);
    step.post();
    step.clean_up();
    assert!(step.summary().contains("The run goes on by itself."), "{}", step.summary());
    let verdict = step.journal().wait_for("run.finished", |_| true);
    assert_eq!((&verdict["data"]["exit_code"], rig.created("after")), (&json!(0), 1));
}

#[test]
fn what_is_wrong_with_the_inputs_is_said_before_anything_is_started() {
    let rig = Rig::new(0.0);
    for (input, value, said) in [
        ("verb", "reclaim", "verb is \"reclaim\"; there are install, bootstrap, upgrade, destroy, exec"),
        ("run", "echo no", "\"run\" is the script of the verb exec"),
        ("stop-wait", "soon", "\"soon\" is not a duration"),
        ("dcctl", "no-such-dcctl", "there is no no-such-dcctl to run: install it before this step"),
    ] {
        let step = Step::new(&rig, &[(input, value)]);
        let told = step.main().finish().expect_code(1).stdout;
        assert!(told.contains("::error::") && told.contains(said), "{told}");
        assert_eq!(step.output("outcome"), "failed");
        step.post();
        assert_eq!((step.summary(), rig.lease()), (String::new(), None));
    }
}
