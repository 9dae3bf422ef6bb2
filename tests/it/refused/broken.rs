//! The codes of what nobody can ask for by a wrong input: the API server says what it never says, a program cannot be
//! started although it is there, dcctl itself breaks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::bed::dcctl::Journal;
use crate::bed::{Bed, Dcctl, Fault, Proxy, Rule};
use crate::lock::rig::{Rig, of_kind};
use crate::refused::{install, small_bundle, told};

/// Asks a program that was built for tests to break at a place.
const BREAK: &str = "DCCTL_TEST_BREAK";

/// A bootstrap whose form of output is open.
fn bootstrap(rig: &Rig) -> Dcctl {
    let run = rig.bed.dcctl(["bootstrap", "one", "--bundle"]).arg(rig.bed.file("bundle"));
    run.arg("--state-dir").arg(rig.state_dir("one"))
}

#[test]
fn an_answer_of_the_api_server_that_has_no_code_of_its_own_is_told_in_its_words() {
    let rig = Rig::new().declared();
    let proxy = Proxy::start(&rig.bed);
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "MethodNotAllowed", "code": 405,
        "message": "the tide is out",
    });
    proxy.add(Rule::on("GET", "/instances").request(Fault::Answer(405, status.to_string())));
    let kubeconfig = proxy.kubeconfig("admin");
    let run = || bootstrap(&rig).with_kubeconfig(&kubeconfig);
    let said =
        told(&rig.bed, run, 1, "cluster.request_failed").says(&["could not list the instances", "the tide is out"]);
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"failed".into(), &"released".into()), "{verdict}");
}

#[test]
fn a_program_that_cannot_be_started_any_more_is_told_with_what_the_system_said() {
    let rig = Rig::new().slow_thing(0.0);
    let real = rig.bed.described().programs.join("tofu");
    let run = || {
        // It can be run once, to say its version.
        let text = format!("#!/bin/sh\nchmod 600 \"$0\"\nexec {} \"$@\"\n", real.display());
        let tofu = rig.bed.write("once/tofu", &text);
        fs::set_permissions(&tofu, fs::Permissions::from_mode(0o700)).expect("it is the test's own");
        bootstrap(&rig).arg("--tofu").arg(tofu)
    };
    let said =
        told(&rig.bed, run, 1, "command.failed").says(&["`tofu init`", "could not be started", "Permission denied"]);
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"failed".into(), &"released".into()), "{verdict}");
}

#[test]
fn a_supervisor_that_breaks_in_a_step_gives_the_lock_back_and_says_its_verdict() {
    let rig = Rig::new().declared();
    for step in ["check-the-cluster", "record-the-phase"] {
        let said = told(&rig.bed, || bootstrap(&rig).env(BREAK, step), 70, "internal");
        let said = said.says(&[&format!("dcctl itself broke: a test asked for it at {step}"), "Report it"]);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"failed".into(), &"released".into()), "{verdict}");
        let ended = of_kind(&said.events, "step.finished").into_iter().last().expect("steps ended");
        assert_eq!((&ended["step"], &ended["data"]["outcome"]), (&step.into(), &"failed".into()), "{ended}");
    }
}

#[test]
fn a_supervisor_that_breaks_while_a_tool_works_leaves_the_lock_and_names_the_tool() {
    let rig = Rig::new().slow_thing(600.0);
    let run = rig.bootstrap("one").env(BREAK, "resource.started").with_junit();
    let finished = run.run().expect_code(70);
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"internal".into(), &"left".into()), "{verdict}");
    let causes = verdict["failure"]["causes"].to_string();
    assert!(causes.contains("nobody watches tofu apply"), "{verdict}");
    assert_eq!(rig.holder().as_deref(), verdict["holder"].as_str());
    assert!(!finished.junit().with("error").is_empty());
}

#[test]
fn a_front_that_breaks_stops_the_run_which_says_so_and_gives_the_lock_back() {
    let rig = Rig::new().slow_thing(600.0);
    let said = told(&rig.bed, || bootstrap(&rig).env(BREAK, "front.hello"), 70, "internal");
    let said = said.says(&["the process that shows this run broke: a test asked for it at front.hello"]);
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!(verdict["outcome"], "failed", "{verdict}");
    let asked = of_kind(&said.events, "stop.requested");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["data"]["cause"], "front_broke");
}

#[test]
fn a_front_that_breaks_before_it_starts_anything_refuses() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    told(&bed, || install(&bed, &bundle).env(BREAK, "front.start"), 70, "internal")
        .says(&["dcctl itself broke: a test asked for it at front.start"]);
    let runs = bed.file("home/.local/state/dcctl/runs");
    assert_eq!(fs::read_dir(runs).map_or(0, Iterator::count), 0, "a run that did not begin left its folder");
}

#[test]
fn a_verdict_that_only_the_reports_have_stands_when_the_supervisor_breaks_before_the_journal_has_it() {
    let rig = Rig::new();
    let events_file = rig.bed.file("events.jsonl");
    let run = rig.bootstrap("one").env(BREAK, "verdict").with_junit().arg("--events-file").arg(&events_file);
    let finished = run.run().expect_code(0);
    let said = Journal::at(&events_file).events();
    assert_eq!(said, finished.events(), "what was shown is not what the events file has");
    assert_eq!(said, finished.journal().expect("it is kept").events());
    assert_eq!(of_kind(&said, "run.finished").len(), 1, "{said:?}");
    assert_eq!(finished.verdict()["data"]["lock"], "released");
    assert!(finished.junit().with("error").is_empty());
}
