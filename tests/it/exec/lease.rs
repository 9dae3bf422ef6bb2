//! The lock while a command runs, and what the command is given.

use std::fs;

use serde_json::{Value, json};

use crate::bed::wait;
use crate::exec::{Rig, of_kind};

#[test]
fn the_job_and_the_pod_that_hold_the_lock_are_shown_to_whoever_asks() {
    let rig = Rig::new();
    let run = rig.sh(&["--output", "jsonl"], ": > @/up; until [ -e @/go ]; do sleep 0.05; done");
    let surroundings = [
        ("CI", "true"),
        ("GITLAB_CI", "true"),
        ("CI_JOB_URL", "https://ci.example.com/jobs/7"),
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", "1"),
        ("POD_NAMESPACE", "ci"),
        ("POD_NAME", "runner-7"),
    ];
    let run = surroundings.iter().fold(run, |run, (name, value)| run.env(name, value)).start();
    rig.wait_for("up");
    let status = rig.bed.dcctl(["lock", "status", "--kube-context", "bed"]).run().expect_code(0).stdout;
    for line in ["  CI:         GitLab", "  job:        https://ci.example.com/jobs/7", "  pod:        ci/runner-7"] {
        assert!(status.lines().any(|said| said.starts_with(line)), "{line} is not in\n{status}");
    }
    rig.mark("go");
    run.finish().expect_code(0);
}

#[test]
fn the_lease_is_held_while_the_command_runs_and_gone_afterwards() {
    let rig = Rig::new();
    let run = rig.sh(&["--output", "jsonl"], ": > @/up; until [ -e @/go ]; do sleep 0.05; done").start();
    rig.wait_for("up");
    // What is noted rides on a renewal.
    let children = |lease: &Value| lease["metadata"]["annotations"].get("dcctl.devicechain.io/children").is_some();
    let lease = wait::fact("the command to be noted", || rig.lease().filter(children));
    let annotations = &lease["metadata"]["annotations"];
    let note = |key: &str| &annotations[format!("dcctl.devicechain.io/{key}")];
    assert_eq!((note("verb"), note("step")), (&json!("exec"), &json!("Run the command")));
    assert!(annotations.get("core.devicechain.io/instance").is_none(), "{annotations}");
    let status = rig.bed.dcctl(["lock", "status", "--kube-context", "bed"]).run().expect_code(0).stdout;
    for part in ["  command:    exec", "  step:       Run the command", "sh (process "] {
        assert!(status.contains(part), "{part} is not in\n{status}");
    }
    rig.mark("go");
    let finished = run.finish().expect_code(0);
    assert_eq!(rig.lease(), None);
    let events = finished.events();
    let claimed = events.iter().position(|event| event["type"] == "lock.claimed").expect("it was claimed");
    let started = events.iter().position(|event| event["type"] == "process.started").expect("it was started");
    assert!(claimed < started, "the command was started before the lock was held");
}

#[test]
fn what_a_command_leaves_behind_is_ended_before_the_lock_is_given_back() {
    let rig = Rig::new();
    // It leaves session, group and parent, and is deaf to SIGTERM.
    let script = "setsid sh -c 'trap \"\" TERM; echo $$ > @/left; while :; do sleep 1; done' > /dev/null 2>&1 & \
                  until [ -s @/left ]; do sleep 0.05; done";
    let run = rig.sh(&["--output", "jsonl"], script).start();
    // It has five seconds to heed a SIGTERM, and heeds none.
    let named = run.wait_for("process.left_behind", |_| true);
    let left = String::from_utf8(rig.read("left").expect("it was started")).expect("a number");
    let lives = || std::path::Path::new(&format!("/proc/{}", left.trim())).exists();
    assert!(rig.lease().is_some() && lives(), "it is asked to end, and the lock is held: {named}");
    wait::fact("the lock to be given back", || rig.lease().is_none().then_some(()));
    assert!(!lives(), "the lock was given back while it lived");
    let events = run.finish().expect_code(0).events();
    let named = of_kind(&events, "process.left_behind");
    let is_it = |event: &&Value| event["data"]["pid"].as_u64() == left.trim().parse().ok();
    assert!(named.into_iter().any(|event| is_it(&event)), "{left} is not named");
}

#[test]
fn the_command_has_the_caller_s_surroundings_and_can_reach_the_locked_cluster_alone() {
    let rig = Rig::new();
    let script = "env > @/env; pwd > @/pwd; cat \"$KUBECONFIG\" > @/config";
    let run = rig
        .sh(&["--output", "jsonl"], script)
        .env("MINE", "stays")
        .env("TF_VAR_mine", "stays")
        .env("KUBE_NAMESPACE", "stays")
        .env("DCCTL_VAR_PASSWORD", "goes")
        .env("DCCTL_STOP_AFTER", "5m")
        .env("HELM_KUBECONTEXT", "goes")
        .env("KUBE_HOST", "goes")
        .env("TF_CLI_ARGS_apply", "goes")
        .env("BUILD_ID", "goes");
    let finished = run.run().expect_code(0);
    let text = String::from_utf8(rig.read("env").expect("it was written")).expect("text");
    let variable = |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    for name in ["MINE", "TF_VAR_mine", "KUBE_NAMESPACE"] {
        assert_eq!(variable(name), Some("stays"), "{name}");
    }
    for name in
        ["DCCTL_VAR_PASSWORD", "DCCTL_STOP_AFTER", "HELM_KUBECONTEXT", "KUBE_HOST", "TF_CLI_ARGS_apply", "BUILD_ID"]
    {
        assert_eq!(variable(name), None, "{name}");
    }
    assert_eq!(variable("DCCTL_KUBE_CONTEXT"), Some("bed"));
    let events = finished.events();
    let run_id = events[0]["run"].as_str().expect("an id");
    assert_eq!(variable("DCCTL_RUN"), Some(format!("{run_id}/command").as_str()));
    let dropped = &of_kind(&events, "environment.dropped")[0]["data"]["names"];
    assert_eq!(dropped, &json!(["DCCTL_VAR_PASSWORD", "HELM_KUBECONTEXT", "KUBE_HOST", "TF_CLI_ARGS_apply"]));

    let folder = String::from_utf8(rig.read("pwd").expect("it was written")).expect("text");
    assert_eq!(folder.trim_end(), rig.bed.scratch().canonicalize().expect("a folder").display().to_string());
    let config = String::from_utf8(rig.read("config").expect("it was written")).expect("text");
    // The bed's own has a second context, for another cluster.
    assert!(config.contains("bed") && !config.contains("nowhere"), "{config}");
    let own = variable("KUBECONFIG").expect("it is set");
    assert!(fs::metadata(own).is_err(), "the run's kubeconfig is removed with its credentials");
}

#[test]
fn a_lock_that_is_taken_away_stops_the_command_and_keeps_its_own_status() {
    let rig = Rig::new();
    let script = "trap 'echo TERM >> @/signals; exit 5' TERM; : > @/up; while :; do sleep 0.05; done";
    let run = rig.sh(&["--output", "jsonl", "--propagate-exit-code"], script).start();
    rig.wait_for("up");
    let other = "bob@laptop/9912/3a7f9c1a20b7e4d5";
    let fields = json!({ "spec": { "holderIdentity": other, "leaseTransitions": 1 } });
    rig.bed.api().merge(crate::bed::LEASE, &fields).expect("the bed may do everything");
    let finished = run.finish().expect_code(22);
    let verdict: &Value = &finished.verdict()["data"];
    let said = format!(
        "stopping \"Run the command\": this cluster was reclaimed by another operator: it is now held by {other}"
    );
    assert_eq!((&verdict["failure"]["message"], &verdict["lock"]), (&json!(said), &json!("lost")), "{verdict}");
    assert_eq!(verdict["command_end"], json!({ "exit_code": 5 }));
    assert_eq!(rig.read("signals"), Some(b"TERM\n".to_vec()));
    assert_eq!(rig.lease().expect("it is another's")["spec"]["holderIdentity"], other);
}
