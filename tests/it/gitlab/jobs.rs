//! Jobs that end by themselves.

use std::fs;

use rustix::process::Signal;

use crate::bed::junit::Report;
use crate::bed::{Bed, LEASE};
use crate::gitlab::project::{Project, include};
use crate::verbs::rig::{Demo, PASSWORD};

#[test]
fn a_pipeline_of_the_four_verbs_installs_builds_moves_and_removes_an_instance() {
    let demo = Demo::on(Bed::take());
    let bundle = demo.bundle().display().to_string();
    let mut pipeline = "stages: [install, bootstrap, upgrade, destroy]\ninclude:\n".to_owned();
    for (verb, instance, args) in [
        ("install", "", "--var pause=1ms"),
        ("bootstrap", "one", "--var pause=1ms --var replicas=1"),
        ("upgrade", "one", "--var pause=1ms --var replicas=1"),
        ("destroy", "one", ""),
    ] {
        let state = demo.bed.file(if instance.is_empty() { "state/cluster" } else { "state/one" });
        pipeline.push_str(&include(&[
            ("job-name", verb),
            ("stage", verb),
            ("verb", verb),
            ("instance", instance),
            ("args", args),
            ("kube-context", "bed"),
            ("bundle", &bundle),
            ("state-dir", &state.display().to_string()),
            ("image", "none"),
        ]));
    }
    let Some(project) = Project::new(&demo.bed, &pipeline) else { return };
    let done = project.pipeline().env("DCCTL_VAR_DB_PASSWORD", PASSWORD).run().expect_code(0);
    assert!(!done.stdout.contains(PASSWORD), "a secret was said");
    for verb in ["install", "bootstrap", "upgrade", "destroy"] {
        let verdict = project.verdict(verb);
        assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&0.into(), &"released".into()), "{verb}: {verdict}");
        let report = Report::read(&project.artifact(verb, "dcctl-report/junit.xml"));
        assert!(report.with("failure").is_empty() && report.with("error").is_empty(), "{verb}");
    }
    assert!(demo.get("/apis/core.devicechain.io/v1beta1/instances/one").is_none());
}

#[test]
fn a_job_that_fails_says_so_and_keeps_its_reports_all_the_same() {
    let bed = Bed::take();
    let args = "-- sh -c 'echo at work; exit 3'";
    let job = include(&[("job-name", "failing"), ("verb", "exec"), ("args", args), ("image", "none")]);
    let Some(project) = Project::new(&bed, &format!("stages: [deploy]\ninclude:\n{job}")) else { return };
    let ended = project.pipeline().run().expect_code(1);
    assert!(ended.stdout.contains("at work") && ended.stdout.contains("Running after script"), "{}", ended.stdout);
    // The last line of the run, said again after the script.
    let verdict = ["failing > exec sh failed", "exit code 1 (exec.failed), the lock was released"];
    assert!(verdict.iter().all(|part| ended.stdout.contains(part)), "{}", ended.stdout);
    assert_eq!(project.verdict("failing")["failure"]["code"], "exec.failed");
    let report = Report::read(&project.artifact("failing", "dcctl-report/junit.xml"));
    assert_eq!(report.with("failure").len(), 1);
}

#[test]
fn a_job_that_finds_the_lock_held_ends_with_20_which_a_pipeline_may_take_as_a_warning() {
    let bed = Bed::take();
    let holder = bed.dcctl(["exec", "--events-file"]).arg(bed.file("holder.jsonl"));
    let holder = holder.args(["--kube-context", "bed", "--", "sleep", "600"]).env("DCCTL_RUN_DIR", bed.file("holder"));
    let holder = holder.start();
    crate::bed::dcctl::Journal::at(bed.file("holder/events.jsonl")).wait_for("lock.claimed", |_| true);
    let inputs = [("verb", "exec"), ("args", "-- touch began"), ("image", "none")];
    let job = |name| include(&[&[("job-name", name)], &inputs[..]].concat());
    let pipeline = format!(
        "stages: [deploy]\ninclude:\n{}{}\nlenient:\n  allow_failure:\n    exit_codes: [20]\n",
        job("strict"),
        job("lenient"),
    );
    let Some(project) = Project::new(&bed, &pipeline) else { return };
    for (name, code, mark) in [("strict", 1, "FAIL 20"), ("lenient", 0, "WARN 20")] {
        let ended = project.pipeline().arg(name).run().expect_code(code);
        assert!(ended.stderr.contains(mark), "{}{}", ended.stdout, ended.stderr);
        let verdict = project.verdict(name);
        assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&20.into(), &"never_taken".into()), "{verdict}");
    }
    assert!(!project.folder.join("began").exists());
    holder.signal(Signal::TERM);
    holder.finish().expect_code(10);
    assert!(bed.api().get(LEASE).expect("admin may read it").is_none());
    project.pipeline().arg("strict").run().expect_code(0);
    assert!(fs::exists(project.folder.join("began")).expect("the folder is ours"));
}
