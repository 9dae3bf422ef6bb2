//! A command under the lock of a folder: held while it runs, given back, and whatever else `exec` promises.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::direct::{ALICE, LONG_AGO, Rig, now, of_kind, text};

/// Writes down each SIGTERM, and ends when the test says so.
const STUBBORN: &str = "trap 'echo TERM >> @/signals' TERM; : > @/up; until [ -e @/go ]; do sleep 0.05; done; exit 4";

#[test]
fn the_lease_is_in_the_folder_while_the_command_runs_and_gone_afterwards() {
    let rig = Rig::new();
    let run = rig.hold();
    let lease = rig.settled();
    let (metadata, spec) = (&lease["metadata"], &lease["spec"]);
    assert_eq!((&lease["kind"], &metadata["name"]), (&json!("Lease"), &json!("dcctl")));
    assert_eq!(text(&metadata["uid"]).len(), 36, "{lease}");
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(60), &json!(0)));
    let version = |lease: &Value| text(&lease["metadata"]["resourceVersion"]).parse::<u64>().expect("a number");
    assert!(version(&lease) > 1, "it was claimed and renewed: {lease}");
    rig.mark("go");
    let finished = run.finish().expect_code(0);
    assert_eq!(rig.lease(), None);
    assert_eq!(rig.names(), ["dcctl.flock"], "nothing but the file for the file lock stays");
    let events = finished.events();
    let started = &events[0]["data"];
    assert_eq!(started["lock_dir"], json!(rig.lock_dir()));
    assert!(started.get("kube_context").is_none() && started.get("server").is_none(), "{started}");
    let claimed = &of_kind(&events, "lock.claimed")[0]["data"];
    assert_eq!((&claimed["holder"], &claimed["lease"]), (&spec["holderIdentity"], &json!(rig.lease_path())));
    assert_eq!(finished.verdict()["data"]["lock"], "released");
}

#[test]
fn the_command_gets_the_caller_s_surroundings_and_no_kubeconfig_of_ours() {
    let rig = Rig::new();
    let run = rig
        .sh(&[], "env > @/env")
        .env("MINE", "stays")
        .env("KUBE_HOST", "stays")
        .env("TF_CLI_ARGS_apply", "stays")
        .env("DCCTL_VAR_PASSWORD", "goes")
        .env("DCCTL_STOP_AFTER", "5m");
    run.run().expect_code(0);
    let env = rig.read("env").expect("it was written");
    let variable = |name: &str| env.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    for name in ["MINE", "KUBE_HOST", "TF_CLI_ARGS_apply"] {
        assert_eq!(variable(name), Some("stays"), "{name}");
    }
    for name in ["KUBE_CONFIG_PATH", "DCCTL_KUBE_CONTEXT", "DCCTL_VAR_PASSWORD", "DCCTL_STOP_AFTER"] {
        assert_eq!(variable(name), None, "{name}");
    }
    // What the caller has is the caller's; it was never opened, or this would not have ended.
    assert_eq!(variable("KUBECONFIG"), Some(rig.file("kubeconfig").display().to_string().as_str()));
    let run = rig.sh(&[], "env > @/env").without("KUBECONFIG");
    run.run().expect_code(0);
    assert!(!rig.read("env").expect("it was written").contains("KUBECONFIG"), "it was given one");
}

#[test]
fn a_second_one_is_told_who_is_at_work_and_is_not_started() {
    let rig = Rig::new();
    let first = rig.hold();
    let holder = text(&rig.lease().expect("it is held")["spec"]["holderIdentity"]);
    let second = rig.sh(&[], ": > @/second").run().expect_code(20);
    let failure = &second.verdict()["data"]["failure"];
    let begins = format!("this cluster is being worked on by {holder}, which renewed ");
    assert!(text(&failure["message"]).starts_with(&begins), "{failure}");
    assert_eq!((&failure["code"], rig.read("second")), (&json!("lock.held"), None));
    // Going on without it is said, and leaves the other's alone.
    let third = rig.sh(&["--on-busy", "warn"], ": > @/third").run().expect_code(0);
    assert_eq!((&third.verdict()["data"]["lock"], rig.read("third")), (&json!("not_held"), Some(String::new())));
    rig.mark("go");
    first.finish().expect_code(0);
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_stale_one_is_never_taken_and_the_command_that_takes_it_names_the_folder() {
    let rig = Rig::new();
    let before = rig.other_holds(LONG_AGO);
    let run = rig.sh(&[], ": > @/started").run().expect_code(21);
    let failure = &run.verdict()["data"]["failure"];
    let reclaim = format!("take the claim with `dcctl instances reclaim {}`, which checks properly", rig.options());
    assert!(text(&failure["message"]).contains(&reclaim), "{failure}");
    assert_eq!((rig.lease(), rig.read("started")), (Some(before), None));
    // Neither is one that names nobody and is there all the same taken without the count of hands.
    let mut free = crate::direct::lease_of("", LONG_AGO);
    free["spec"]["leaseTransitions"] = json!(3);
    fs::write(rig.lease_path(), free.to_string()).expect("the lock folder can be written");
    let run = rig.sh(&[], "cp @/lock/dcctl.lease.json @/while").run().expect_code(0);
    let held: Value = serde_json::from_str(&rig.read("while").expect("it was copied")).expect("a whole Lease");
    assert_eq!((&held["spec"]["leaseTransitions"], &held["metadata"]["uid"]), (&json!(4), &free["metadata"]["uid"]));
    assert_eq!((run.verdict()["data"]["lock"].clone(), rig.lease()), (json!("released"), None));
}

#[test]
fn a_dry_run_and_a_live_holder_of_another_machine() {
    let rig = Rig::new();
    rig.sh(&["--dry-run"], ": > @/started").run().expect_code(0);
    assert_eq!((rig.read("started"), rig.names()), (None, Vec::new()));
    rig.other_holds(&now());
    let seen = rig.sh(&["--dry-run"], ": > @/started").run().expect_code(0);
    let events = seen.events();
    assert_eq!(of_kind(&events, "lock.observed")[0]["data"]["holder"], ALICE);
    rig.sh(&[], "true").run().expect_code(20);
}

#[test]
fn one_sigterm_reaches_the_command_and_the_lock_is_given_back() {
    let rig = Rig::new();
    let run = rig.sh(&["--propagate-exit-code"], STUBBORN).start();
    rig.wait_for("up");
    run.signal(Signal::INT);
    rig.wait_for("signals");
    run.signal(Signal::TERM);
    run.wait_for("signal.received", |event| event["data"]["effect"] == "nothing");
    rig.mark("go");
    let finished = run.finish().expect_code(10);
    assert_eq!(rig.read("signals").as_deref(), Some("TERM\n"));
    assert_eq!((&finished.verdict()["data"]["lock"], rig.lease()), (&json!("released"), None));
}

#[test]
fn a_killed_front_stops_the_command_and_the_lock_is_given_back() {
    let rig = Rig::new();
    let run = rig.sh(&[], STUBBORN).start();
    rig.wait_for("up");
    let journal = run.journal();
    run.signal(Signal::KILL);
    rig.wait_for("signals");
    rig.mark("go");
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!((&verdict["data"]["exit_code"], &verdict["data"]["lock"]), (&json!(10), &json!("released")));
    assert_eq!(rig.lease(), None);
}

#[test]
fn the_lock_of_a_killed_supervisor_is_kept_and_given_back_by_the_front() {
    let rig = Rig::new();
    let run = rig.sh(&[], STUBBORN).start();
    rig.wait_for("up");
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    rig.wait_for("signals");
    let holder = rig.lease().expect("the command lives")["spec"]["holderIdentity"].clone();
    rig.mark("go");
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&json!("supervisor.killed"), &json!("released")));
    assert_eq!(rig.read("signals").expect("it was made"), "TERM\n");
    assert_eq!(finished.events()[0]["data"]["holder"], holder);
    assert_eq!(rig.lease(), None);
    rig.sh(&[], "true").run().expect_code(0);
}

#[test]
fn a_forced_end_leaves_the_lock_and_every_hint_names_the_folder() {
    let rig = Rig::new();
    let run = rig.dcctl(&["exec", "--output", "human"]);
    let script = format!("trap '' TERM; : > {}; while :; do sleep 0.05; done", rig.file("up").display());
    let run = run.args(["--", "sh", "-c", &script]).start();
    rig.wait_for("up");
    run.signal(Signal::QUIT);
    let finished = run.finish().expect_code(12);
    let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        format!("`dcctl instances reclaim {}`", rig.options()),
        format!("look at the lock: dcctl lock status {}", rig.options()),
        format!("lock in the folder {}", rig.lock_dir().display()),
    ] {
        assert!(said.contains(&part), "{part} is not in\n{}", finished.stderr);
    }
    assert!(rig.lease().is_some());
}

#[test]
fn dcctl_inside_dcctl_says_so_and_another_folder_is_another_lock() {
    let rig = Rig::new();
    let dcctl = crate::bed::tools::own("dcctl").display().to_string();
    let inner = |folder: &str| {
        format!(
            "{dcctl} exec --output jsonl --substrate direct --lock-dir @/{folder} -- touch @/started > @/inner; echo $? > @/code"
        )
    };
    rig.sh(&[], &inner("lock")).run().expect_code(0);
    assert_eq!((rig.read("code").as_deref(), rig.read("started")), (Some("3\n"), None));
    assert!(rig.read("inner").expect("it spoke").contains("config.nested"));
    fs::create_dir(rig.file("other")).expect("the test's folder can be written");
    rig.sh(&[], &inner("other")).run().expect_code(0);
    assert_eq!((rig.read("code").as_deref(), rig.read("started")), (Some("0\n"), Some(String::new())));
}

#[test]
fn a_command_that_cannot_be_started_is_told_with_what_would_help() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    let write = |name: &str, text: &str| {
        std::fs::write(rig.file(name), text).expect("the test's folder can be written");
        std::fs::set_permissions(rig.file(name), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    };
    write("script", "#! /no/such/python3 -u\nprint(1)\n");
    write("dos", "#!/bin/sh\r\ntrue\r\n");
    let pipe = rig.file("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    for (name, says) in [
        ("script", &["the interpreter `/no/such/python3`, which is not there", "install `/no/such/python3`"][..]),
        ("dos", &[r"`/bin/sh\\r`"]),
        ("pipe", &["it is no file", "name a file that can be run"]),
    ] {
        let run = rig.dcctl(&["exec", "--output", "jsonl"]).args(["--", &format!("./{name}")]);
        let verdict = run.run().expect_code(4).verdict();
        let told = format!("{} {}", verdict["data"]["failure"], verdict["data"]["next"]);
        for part in says {
            assert!(told.contains(part), "{name}: {part} is not in {told}");
        }
        assert!(!told.contains("--tofu") && !told.contains("chmod"), "{name}: {told}");
    }
}
