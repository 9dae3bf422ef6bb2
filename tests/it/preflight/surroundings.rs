//! What of a preflight has to do with this machine and the way to the cluster: tools, folders, clocks, CI systems, and
//! command lines that cannot be meant.

use std::fs;
use std::path::Path;

use dcctl::clock::{Clock, System};
use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::disk::SmallDisk;
use crate::bed::{Bed, Fault, Proxy, Rule, pretend};
use crate::preflight::{Said, preflight, text};
use crate::verbs::rig::{Demo, PASSWORD};

#[test]
fn a_cluster_that_cannot_be_reached_is_one_failure_and_the_rest_is_named() {
    let demo = Demo::on(Bed::take());
    let said = Said::by(preflight(&demo, &["install", "--kube-context", "nowhere"], "cluster").run(), 4);
    let line = said.only_failure("cluster", "surroundings.cluster_unreachable");
    assert!(text(&line["message"]).contains("https://127.0.0.1:1"), "{line:#}");
    let not_asked = said.0["not_asked"].as_array().expect("a list");
    for id in ["account", "clock", "lock", "permission", "state", "guard"] {
        assert!(not_asked.contains(&id.into()), "{not_asked:?}");
    }
    assert_eq!(said.check("tool.tofu")["level"], "ok");
    let none = demo.bed.dcctl(["preflight", "--output", "json"]).with_kubeconfig(Path::new("/nonexistent/config"));
    Said::by(none.run(), 4).only_failure("kubeconfig", "surroundings.kubeconfig");
}

#[test]
fn tools_that_are_missing_or_too_old_are_failures_of_the_verbs_that_use_them() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let old = pretend::tofu(&demo.bed.file("old"), "1.7.9");
    let with_old = |words: &[&str]| preflight(&demo, words, "one").arg("--tofu").arg(&old).run();
    let said = Said::by(with_old(&["bootstrap", "one"]), 4);
    let line = said.only_failure("tool.tofu", "surroundings.tool_unsuitable");
    assert!(text(&line["message"]).contains("is OpenTofu 1.7.9, and dcctl needs 1.8.0 or later"), "{line:#}");
    let unused = Said::by(with_old(&["exec"]), 0);
    assert_eq!(unused.check("tool.tofu")["level"], "warning");

    let without_helm = |words: &[&str], state: &str| {
        let missing = demo.bed.file("no-such-helm");
        preflight(&demo, words, state).arg("--helm").arg(missing).run()
    };
    Said::by(without_helm(&["bootstrap", "one"], "one"), 4).only_failure("tool.helm", "surroundings.tool_missing");
    let install = Said::by(without_helm(&["install"], "cluster"), 0);
    assert_eq!(
        (&install.check("tool.helm")["level"], &install.check("tool.helm")["facts"]["needed"]),
        (&json!("warning"), &json!(false))
    );
}

#[test]
fn folders_that_cannot_be_used_are_failures() {
    let demo = Demo::on(Bed::take());
    let file = demo.bed.write("a-file", "");
    let run_dir = preflight(&demo, &["install"], "cluster").arg("--run-dir").arg(file.join("below")).run();
    Said::by(run_dir, 4).only_failure("run_dir", "surroundings.run_dir");
    let state = demo.state_dir("in-the-way");
    fs::create_dir_all(state.parent().expect("it is in a folder")).expect("the test's folder can be written");
    fs::write(&state, "").expect("the test's folder can be written");
    let said = Said::by(preflight(&demo, &["install"], "in-the-way").run(), 4);
    assert_eq!(said.check("state_dir")["level"], "failure", "{:#}", said.check("state_dir"));
    let missing = preflight(&demo, &["install"], "cluster").env("TMPDIR", "/nonexistent/tmp").run();
    Said::by(missing, 4).check("tmpdir");
    let used = demo.bed.file("used");
    fs::create_dir_all(&used).expect("the test's folder can be written");
    fs::write(used.join("events.jsonl"), "").expect("the test's folder can be written");
    let said = preflight(&demo, &["install"], "cluster").arg("--run-dir").arg(&used).run();
    Said::by(said, 3).only_failure("run_dir", "config.option");
}

#[test]
fn a_disk_without_room_is_a_failure_and_one_with_little_a_warning() {
    let demo = Demo::on(Bed::take());
    let Some(full) = SmallDisk::mount(&demo.bed.file("full"), 128, "") else { return };
    let at = |folder: &Path| preflight(&demo, &["install"], "cluster").arg("--run-dir").arg(folder.join("run")).run();
    let line = Said::by(at(full.path()), 4).only_failure("run_dir", "surroundings.run_dir").clone();
    assert_eq!(fs::read_dir(full.path()).expect("it is there").count(), 0, "{line:#}");
    let Some(small) = SmallDisk::mount(&demo.bed.file("small"), 8192, "") else { return };
    let said = Said::by(at(small.path()), 0);
    assert_eq!(said.check("run_dir")["level"], "warning", "{:#}", said.check("run_dir"));
    assert_eq!(fs::read_dir(small.path()).expect("it is there").count(), 0);
    let Some(locked) = SmallDisk::mount(&demo.bed.file("locked"), 8192, ",ro") else { return };
    Said::by(at(locked.path()), 4).only_failure("run_dir", "surroundings.run_dir");
}

#[test]
fn a_clock_that_disagrees_is_a_warning_that_says_by_how_much() {
    let demo = Demo::on(Bed::take());
    let proxy = Proxy::start(&demo.bed);
    for (seconds, side) in [(7200, "behind"), (-7200, "ahead of")] {
        let theirs = System.wall() + jiff::SignedDuration::from_secs(seconds);
        let answer = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "metadata": { "creationTimestamp": theirs.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() },
            "status": { "userInfo": { "username": "admin" } } });
        proxy.clear();
        proxy.add(Rule::on("POST", "selfsubjectreviews").reply(Fault::Answer(201, answer.to_string())));
        let run = preflight(&demo, &["install"], "cluster").with_kubeconfig(&proxy.kubeconfig("admin"));
        let said = Said::by(run.run(), 0);
        let clock = said.check("clock");
        assert_eq!(clock["level"], "warning", "{clock:#}");
        assert!(text(&clock["message"]).contains(&format!("{side} the API server's")), "{clock:#}");
        let ahead = clock["facts"]["ahead_ms"].as_i64().expect("a number");
        assert!((ahead - seconds * 1000).abs() < 600_000, "{clock:#}");
    }
}

#[test]
fn the_ci_system_and_what_a_cancel_would_leave_there_are_said() {
    let demo = Demo::on(Bed::take());
    let in_ci = |variables: &[(&str, &str)], more: &[&str]| {
        let run = preflight(&demo, &["install"], "cluster").args(more);
        Said::by(variables.iter().fold(run, |run, (name, value)| run.env(name, value)).run(), 0)
    };
    let docker = in_ci(&[("CI", "true"), ("GITLAB_CI", "true"), ("CI_JOB_URL", "https://ci.example/7")], &[]);
    let facts = &docker.check("ci")["facts"];
    assert_eq!((&facts["system"], &facts["job_url"]), (&json!("gitlab"), &json!("https://ci.example/7")));
    let budget = docker.check("stop_budget");
    assert_eq!((&budget["level"], &budget["facts"]["graceful_seconds"]), (&json!("warning"), &json!(0)), "{budget:#}");
    assert!(text(&budget["message"]).contains("what is in flight is lost"), "{budget:#}");
    let hosted = [("CI", "true"), ("GITHUB_ACTIONS", "true"), ("RUNNER_ENVIRONMENT", "github-hosted")];
    let github = in_ci(&hosted, &[]);
    assert_eq!(github.check("stop_budget")["facts"]["ends"], "everything");
    assert!(text(&github.check("stop_budget")["fix"]).contains("if: always()"));
    let told = in_ci(&hosted, &["--stop-budget", "22m"]);
    assert_eq!(told.check("stop_budget")["level"], "ok", "{:#}", told.check("stop_budget"));
}

#[test]
fn local_state_of_a_job_without_a_folder_is_a_failure_as_it_is_of_the_verb() {
    let demo = Demo::on(Bed::take());
    let run =
        demo.bed.dcctl(["preflight", "install", "--output", "json", "--bundle"]).arg(demo.bundle()).env("CI", "true");
    let said = Said::by(run.env("DCCTL_VAR_DB_PASSWORD", crate::verbs::rig::PASSWORD).run(), 3);
    let line = said.only_failure("state_dir", "config.option");
    assert!(text(&line["fix"]).contains("--state-dir"), "{line:#}");
}

#[test]
fn what_is_wrong_with_the_bundle_comes_first_and_the_rest_is_looked_at_all_the_same() {
    let demo = Demo::on(Bed::take());
    let run = preflight(&demo, &["bootstrap", "one"], "one").without("DCCTL_VAR_DB_PASSWORD");
    let said = Said::by(run.run(), 3);
    said.only_failure("bundle", "config.variable");
    assert_eq!((&said.check("cluster")["level"], &said.check("lock")["level"]), (&json!("ok"), &json!("ok")));
    assert!(said.checks().iter().any(|check| check["id"] == "permission"));
    assert_eq!(said.0["not_asked"], json!(["state_dir", "state", "guard"]));
}

#[test]
fn a_command_line_that_cannot_be_meant_is_refused() {
    let demo = Demo::on(Bed::take());
    let wrong = demo.bed.dcctl(["preflight", "instal"]).run().expect_code(2);
    assert!(wrong.stderr.contains("instal") && wrong.stderr.contains("install"), "{}", wrong.stderr);
    for words in [&["preflight", "bootstrap"][..], &["preflight", "bootstrap", "one"], &["preflight", "install"]] {
        demo.bed.dcctl(words).run().expect_code(2);
    }
    let said = Said::by(preflight(&demo, &["install", "one"], "cluster").run(), 3);
    let line: &Value = said.only_failure("bundle", "config.option");
    assert!(text(&line["message"]).contains("takes no instance"), "{line:#}");
}

#[test]
fn an_archive_with_another_digest_is_a_failure_as_it_would_be_for_the_verb() {
    let demo = Demo::on(Bed::take());
    let archive = demo.bed.file("demo.tar.gz");
    let packed = command(Path::new("tar")).arg("-czf").arg(&archive).arg("-C").arg(demo.bundle()).arg(".").status();
    assert!(packed.expect("there is a tar").success());
    let bytes = fs::read(&archive).expect("it was packed");
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let own = digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"));
    let look = |digest: &str| {
        let run = demo.bed.dcctl(["preflight", "install", "--output", "json", "--kube-context", "bed", "--bundle"]);
        let run = run.arg(&archive).args(["--bundle-digest", digest, "--var", "pause=1ms"]);
        run.arg("--state-dir").arg(demo.state_dir("cluster")).env("DCCTL_VAR_DB_PASSWORD", PASSWORD).run()
    };
    Said::by(look(&own), 0);
    let other = format!("sha256:{}", "0".repeat(64));
    let said = Said::by(look(&other), 3);
    let line = said.only_failure("bundle", "config.bundle");
    assert!(text(&line["message"]).contains("digest"), "{line:#}");
    assert!(said.0["not_asked"].as_array().is_some_and(|ids| ids.contains(&json!("state_dir"))), "{:#}", said.0);
}
