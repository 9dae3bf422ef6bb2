//! The CronJob and its rights, as a real API server sees them.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::{Bed, wait};
use crate::tree;

const CRON_JOB: &str = "/apis/batch/v1/namespaces/dcctl/cronjobs/dcctl-upgrade-demo";

/// `kubectl` by a person who may do everything, in the folder `cron`.
pub(super) fn kubectl(bed: &Bed, words: &[&str]) -> String {
    let done = command(&bed.described().programs.join("kubectl"))
        .args(words)
        .current_dir(tree::root().join("cron"))
        .env_clear()
        .env("HOME", bed.scratch())
        .env("KUBECONFIG", bed.kubeconfig("bed"))
        .stdin(Stdio::null())
        .output()
        .expect("the bed has kubectl");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    // What the API server has to say against it without refusing it.
    assert!(!said.contains("Warning"), "{said}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn the_cron_job_and_the_pod_of_its_job_are_admitted_by_a_real_api_server() {
    // One that has none of these roles yet.
    let bed = Bed::fresh();
    kubectl(&bed, &["apply", "--server-side", "--validate=strict", "-f", "rbac.yaml", "-f", "cronjob.yaml"]);
    let there = bed.api().get(CRON_JOB).expect("the API server answers").expect("it was applied");
    let spec = &there["spec"];
    let job = &spec["jobTemplate"]["spec"];
    assert_eq!((&spec["concurrencyPolicy"], &job["backoffLimit"]), (&json!("Forbid"), &json!(0)), "{spec}");

    kubectl(&bed, &["create", "job", "--namespace", "dcctl", "--from", "cronjob/dcctl-upgrade-demo", "tonight"]);
    let pods = "/api/v1/namespaces/dcctl/pods";
    let pod = wait::fact("the pod of the job", || bed.api().list(pods).expect("it may be read").into_iter().next());
    let spec = &pod["spec"];
    assert_eq!(spec["terminationGracePeriodSeconds"], 1320, "{spec}");
    assert_eq!((&spec["restartPolicy"], &spec["serviceAccountName"]), (&json!("Never"), &json!("dcctl")), "{spec}");
    let annotation = &pod["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"];
    assert_eq!(annotation, "false");
    let container = &spec["containers"][0];
    assert!(container["command"].is_null() && container["lifecycle"].is_null(), "a shell or a hook: {container}");
    let budget = |variable: &&Value| variable["name"] == "DCCTL_STOP_BUDGET" && variable["value"] == "22m";
    assert!(container["env"].as_array().is_some_and(|env| env.iter().any(|variable| budget(&variable))));
    assert!(container["resources"]["requests"]["memory"].is_string(), "{container}");
    let security = &container["securityContext"];
    let confined = (&security["readOnlyRootFilesystem"], &security["capabilities"]["drop"]);
    assert_eq!(confined, (&json!(true), &json!(["ALL"])), "{security}");
    // `restricted` is asked for by the namespace, and was checked when the pod came.
    let namespace = bed.api().get("/api/v1/namespaces/dcctl").expect("it may be read").expect("it was applied");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that may rewrite its expectation is asked to by its environment")]
fn the_rights_of_the_cron_job_are_those_that_dcctl_rbac_prints() {
    let scratch = tempfile::tempdir().expect("the temporary folder can be written");
    let mark = crate::bed::child::Mark::of(scratch.path());
    let words = ["rbac", "--serviceaccount", "dcctl:dcctl"];
    let printed = crate::bed::Dcctl::without_cluster(scratch.path(), &mark, words).run().expect_code(0).stdout + "\n";
    let path = tree::root().join("cron/rbac.yaml");
    if std::env::var_os("DCCTL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &printed).expect("the file can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(there, printed, "cron/rbac.yaml is not what `dcctl rbac` prints; DCCTL_BLESS=1 writes it");
}

/// The words of the program's command line in each file of `cron`.
pub(super) fn command_lines() -> Vec<(&'static str, Vec<String>)> {
    let read = |name: &str| std::fs::read_to_string(tree::root().join("cron").join(name)).expect("it is there");
    let words = |line: &str| line.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect::<Vec<_>>();
    let after = |text: String, mark: &str| {
        let line = text.lines().find_map(|line| Some(line.split_once(mark)?.1.to_owned()));
        words(&line.unwrap_or_else(|| panic!("no {mark:?}")))
    };
    let args = after(read("cronjob.yaml"), "args: [").into_iter();
    vec![
        ("cronjob.yaml", args.map(|word| word.trim_end_matches([',', ']']).to_owned()).collect()),
        ("dcctl-upgrade.service", after(read("dcctl-upgrade.service"), "ExecStart=/usr/local/bin/dcctl ")),
        ("crontab", after(read("crontab"), "*  dcctl ")),
    ]
}

#[test]
fn what_is_scheduled_can_be_typed_and_asks_for_a_refusal_of_a_held_lock() {
    let scratch = tempfile::tempdir().expect("the temporary folder can be written");
    let mark = crate::bed::child::Mark::of(scratch.path());
    for (file, words) in command_lines() {
        let on_busy = words.iter().any(|word| word == "--on-busy=refuse");
        assert!(on_busy && words[..2] == ["upgrade", "demo"], "{file}: {words:?}");
        let run = crate::bed::Dcctl::without_cluster(scratch.path(), &mark, &words);
        let run = run.env("DCCTL_BUNDLE", Path::new("/nowhere/bundle")).env("DCCTL_STATE_DIR", scratch.path());
        // It is understood, and only its bundle is not there.
        let code = run.run().code();
        assert_eq!(code, Some(3), "{file}: {words:?}");
    }
}
