//! Secrets come in by every door and are said by every tool: after whatever end of whatever verb, none is in what dcctl
//! says, writes or leaves.
//!
//! What a redactor can hide is shown elsewhere; this is about all the places that it might not stand before.

mod rig;

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::bed::dcctl::Running;
use crate::canaries::rig::{Login, Rig};

/// Nothing happens to a run meanwhile.
fn nothing(_: &Running) {}

#[test]
fn no_canary_is_anywhere_after_runs_that_go_well() {
    let rig = Rig::new(Login::Plugin);
    let runs = [
        rig.install(),
        rig.bootstrap(),
        rig.upgrade(&[]),
        rig.exec("exit 0"),
        rig.list(),
        rig.destroy(),
        rig.bootstrap(),
        rig.release(),
    ];
    for run in runs {
        let done = rig.search(run, nothing).expect_code(0);
        let says = done.stdout.contains("[redacted]") || !done.stdout.contains("process.line");
        assert!(says, "no tool said a secret:\n{}", done.stdout);
    }
}

#[test]
fn no_canary_is_anywhere_after_runs_that_fail() {
    let rig = Rig::new(Login::Token);
    rig.breaks("shared", true);
    rig.search(rig.install(), nothing).expect_code(1);
    rig.breaks("shared", false);
    rig.search(rig.install(), nothing).expect_code(0);
    rig.breaks("verify", true);
    rig.search(rig.bootstrap(), nothing).expect_code(1);
    rig.breaks("verify", false);
    rig.search(rig.bootstrap(), nothing).expect_code(0);
    rig.search(rig.upgrade(&["--var", "broken=true"]), nothing).expect_code(1);
    rig.search(rig.exec("exit 3"), nothing).expect_code(1);
    rig.breaks("own", true);
    rig.search(rig.destroy(), nothing).expect_code(1);
}

/// What is done to each verb while one of its tools is at work; it ends with one of these codes.
fn disturbed(disturb: impl Fn(&Rig, &Running), codes: &[i32]) {
    let rig = Rig::new(Login::Token);
    let at = |program: &'static str| {
        let (rig, disturb) = (&rig, &disturb);
        move |run: &Running| {
            run.wait_for("process.started", |event| event["data"]["program"] == program);
            disturb(rig, run);
        }
    };
    let ends = |code: Option<i32>| code.is_some_and(|code| codes.contains(&code));
    let ended = rig.search(rig.install(), at("tofu apply"));
    assert!(ends(ended.code()), "{}", ended.stdout);
    rig.search(rig.install(), nothing).expect_code(0);
    let ended = rig.search(rig.bootstrap(), at("helm upgrade"));
    assert!(ends(ended.code()), "{}", ended.stdout);
    rig.search(rig.bootstrap(), nothing).expect_code(0);
    let ended = rig.search(rig.upgrade(&[]), at("verify: The instance answers"));
    assert!(ends(ended.code()), "{}", ended.stdout);
    let ended = rig.search(rig.destroy(), at("tofu destroy"));
    assert!(ends(ended.code()), "{}", ended.stdout);
    let script = "trap 'exit 0' TERM; echo at work >&2; while :; do sleep 0.1; done";
    let ended = rig.search(rig.exec(script), |run| {
        run.wait_for_line("token");
        disturb(&rig, run);
    });
    assert!(ends(ended.code()), "{}", ended.stdout);
}

#[test]
fn no_canary_is_anywhere_after_runs_that_are_stopped() {
    disturbed(|_, run| run.signal(Signal::TERM), &[0, 10, 11]);
}

#[test]
fn no_canary_is_anywhere_after_runs_whose_supervisor_was_killed() {
    let kill = |rig: &Rig, _: &Running| {
        rustix::process::kill_process(rig.supervisor(), Signal::KILL).expect("it runs");
    };
    disturbed(kill, &[1]);
}

/// Whoever asks for the raw output gets it, and is told what it is.
#[test]
fn raw_output_that_is_kept_is_named_with_what_is_in_it() {
    let rig = Rig::new(Login::Token);
    rig.install().run().expect_code(0);
    let done = rig.bootstrap().env("DCCTL_KEEP_OUTPUT", "true").run().expect_code(0);
    let verdict = done.verdict()["data"].clone();
    let kept = verdict["kept"].as_array().expect("something is kept");
    let named = |part: &str| kept.iter().find(|file| file["what"].as_str().is_some_and(|what| what.contains(part)));
    let output = named("whatever secrets").expect("the output is named");
    let folder = Path::new(output["path"].as_str().expect("a path"));
    let raw: String = fs::read_dir(folder)
        .expect("it is there")
        .flatten()
        .map(|file| fs::read_to_string(file.path()).unwrap_or_default())
        .collect();
    assert!(raw.contains("zanzibar4711quay"), "it is as the tools printed it");
    assert!(!folder.with_file_name("private").exists() && !folder.with_file_name("kubeconfig").exists());
    let not_kept = rig.upgrade(&[]).run().expect_code(0).verdict();
    assert!(!not_kept["data"]["kept"].to_string().contains("whatever secrets"), "{not_kept}");
}
