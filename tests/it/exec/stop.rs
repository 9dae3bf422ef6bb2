//! Stopping a command: one SIGTERM, whatever comes, and SIGKILL only at the end of the budget.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::{Finished, Running};
use crate::exec::{Rig, of_kind};

/// Writes down each SIGTERM, and ends when the test says so.
const STUBBORN: &str = "trap 'echo TERM >> @/signals' TERM; : > @/up; until [ -e @/go ]; do sleep 0.05; done; exit 4";

#[test]
fn however_many_signals_come_the_command_gets_one_sigterm() {
    let rig = Rig::new();
    let run = rig.sh(&["--output", "jsonl", "--propagate-exit-code"], STUBBORN).start();
    rig.wait_for("up");
    run.signal(Signal::INT);
    rig.wait_for("signals");
    for _ in 0..20 {
        run.signal(Signal::TERM);
    }
    run.signal(Signal::HUP);
    for signal in ["SIGTERM", "SIGHUP"] {
        run.wait_for("signal.received", |event| {
            event["data"]["signal"] == signal && event["data"]["effect"] == "nothing"
        });
    }
    rig.mark("go");
    let finished = run.finish().expect_code(10);
    assert_eq!(rig.read("signals"), Some(b"TERM\n".to_vec()));
    let events = finished.events();
    let interrupted = of_kind(&events, "process.interrupted");
    assert_eq!(interrupted.len(), 1);
    assert_eq!(interrupted[0]["data"]["signal"], "SIGTERM");
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&json!("stopped"), &json!("released")));
    assert_eq!(verdict["failure"]["message"], "stopped on request: `sh` ended with exit status 4");
    assert_eq!(verdict["command_end"], json!({ "exit_code": 4 }));
    assert_eq!(finished.junit().only_bad().kind, "dcctl.Interrupted");
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_stop_is_heard_while_more_output_is_there_than_can_be_read() {
    let rig = Rig::new();
    // Two terabytes without the end of a line, which cost nobody any room.
    let script = "truncate -s 2T /proc/self/fd/1; : > @/up; while :; do sleep 0.05; done";
    let run = rig.sh(&["--output", "jsonl"], script).start();
    rig.wait_for("up");
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    assert_eq!(finished.verdict()["data"]["lock"], "released");
    let events = finished.events();
    let unread =
        of_kind(&events, "note.made").into_iter().find(|note| note["msg"].to_string().contains(" were not read"));
    assert!(unread.is_some(), "what was not read is not said");
}

#[test]
fn the_sigterm_reaches_what_the_command_started() {
    let rig = Rig::new();
    let script = "(trap 'echo child >> @/signals; exit 0' TERM; : > @/up; while :; do sleep 0.05; done) & \
                  trap 'wait; echo parent >> @/signals; exit 0' TERM; wait";
    let run = rig.sh(&[], script).start();
    rig.wait_for("up");
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    assert_eq!(rig.read("signals"), Some(b"child\nparent\n".to_vec()));
    assert!(finished.stderr.contains("stopped on request: `sh` ended with exit status 0"), "{}", finished.stderr);
}

#[test]
fn a_command_that_does_not_end_is_killed_at_the_end_of_the_budget() {
    let rig = Rig::new();
    let script = "trap '' TERM; : > @/up; while :; do sleep 0.05; done";
    let run = rig.sh(&["--output", "jsonl", "--stop-after", "1s", "--propagate-exit-code"], script).start();
    rig.wait_for("up");
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    assert_eq!(of_kind(&events, "process.interrupted").len(), 1);
    assert_eq!(of_kind(&events, "process.killed").len(), 1);
    let verdict = &finished.verdict()["data"];
    assert_eq!(
        verdict["failure"]["message"],
        "stopped on request: `sh` was ended by signal 9; what it was doing may be HALF DONE"
    );
    assert!(
        verdict["next"][0].as_str().is_some_and(|next| next.starts_with("look at what `sh` had done")),
        "{verdict}"
    );
    assert_eq!((&verdict["lock"], rig.lease()), (&json!("released"), None));
}

#[test]
fn a_killed_front_is_the_one_request_to_stop() {
    let rig = Rig::new();
    let (folder, journal) = rig.run_dir("run");
    let options =
        ["--run-dir", &folder.display().to_string(), "--junit", &rig.bed.file("junit.xml").display().to_string()];
    let run = rig.sh(&options, STUBBORN).start();
    rig.wait_for("up");
    run.signal(Signal::KILL);
    rig.wait_for("signals");
    rig.mark("go");
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(
        (&verdict["data"]["exit_code"], &verdict["data"]["lock"]),
        (&json!(10), &json!("released")),
        "{verdict}"
    );
    assert_eq!(journal.wait_for("stop.requested", |_| true)["data"]["cause"], "front_gone");
    assert_eq!(rig.read("signals"), Some(b"TERM\n".to_vec()));
    assert_eq!(rig.lease(), None);
    for stream in ["stdout", "stderr"] {
        assert!(!folder.join(format!("output/command.{stream}")).exists(), "what it printed is left");
    }
}

#[test]
fn a_stop_before_the_command_is_started_starts_none() {
    use crate::bed::{Fault, Gate, Proxy, Rule};
    let rig = Rig::new();
    let (proxy, gate) = (Proxy::start(&rig.bed), Gate::new());
    proxy.add(Rule::on("GET", "/leases/dcctl").request(Fault::Hold(gate.clone())));
    let kubeconfig = proxy.kubeconfig("admin");
    let run = rig.sh(&["--output", "jsonl"], ": > @/started").with_kubeconfig(&kubeconfig).start();
    gate.wait_for(1);
    run.signal(Signal::TERM);
    run.wait_for("stop.requested", |_| true);
    gate.open();
    let finished = run.finish().expect_code(10);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["failure"]["message"], "stopped on request: `sh` was not started");
    assert_eq!(rig.read("started"), None);
}

#[test]
fn force_ends_the_command_and_leaves_the_lock() {
    let rig = Rig::new();
    let run = rig.sh(&["--output", "jsonl"], "trap '' TERM; : > @/up; while :; do sleep 0.05; done").start();
    rig.wait_for("up");
    run.signal(Signal::QUIT);
    let finished = run.finish().expect_code(12);
    let verdict: &Value = &finished.verdict()["data"];
    assert_eq!(verdict["lock"], "left");
    let holder = rig.lease().expect("it was left")["spec"]["holderIdentity"].clone();
    assert_eq!(verdict["holder"], holder);
    // For a minute it looks live. Whoever asks is told that it was stopped, and what to do when it is not back by then.
    let status = rig.bed.dcctl(["lock", "status", "--kube-context", "bed", "--output", "json"]).run().expect_code(0);
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    let next = status["next"].as_str().expect("a sentence");
    assert!(next.starts_with("it was asked to stop: wait until ") && next.contains("instances reclaim"), "{next}");
}

#[test]
fn the_command_of_a_killed_supervisor_gets_one_sigterm_and_the_lock_is_given_back() {
    let rig = Rig::new();
    let script = "trap 'echo TERM >> @/signals' TERM; echo before; : > @/up; until [ -e @/go ]; do sleep 0.05; done";
    let run = rig.sh(&["--output", "jsonl"], script).start();
    rig.wait_for("up");
    let pid = run.supervisor();
    run.wait_for("process.output", |_| true);
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    run.wait_for("process.interrupted", |event| event["data"]["signal"] == "SIGTERM");
    for _ in 0..5 {
        run.signal(Signal::TERM);
    }
    rig.wait_for("signals");
    assert!(rig.lease().is_some(), "the command lives");
    rig.mark("go");
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&json!("supervisor.killed"), &json!("released")));
    assert!(verdict["failure"]["causes"].to_string().contains("`sh` ended when it was asked to stop"), "{verdict}");
    assert!(verdict["next"].to_string().contains("look at what `sh` had done"), "{verdict}");
    assert_eq!(rig.read("signals").expect("it was made"), b"TERM\n");
    assert_eq!(rig.lease(), None);
    let events = finished.events();
    let before = events.iter().filter(|event| event["data"]["text"] == "before").count();
    assert_eq!(before, 1, "what it had said was told twice");
}

/// A run whose credential plugin hangs, and has started something that does, too.
fn with_a_plugin_that_hangs(rig: &Rig) -> Running {
    let text = std::fs::read_to_string(rig.bed.kubeconfig("admin")).expect("it is the bed's file");
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let script = "sleep 1000 & echo $! > @/child; echo $$ > @/plugin; : > @/up; wait"
        .replace('@', &rig.bed.scratch().display().to_string());
    kubeconfig["users"][0]["user"] = json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "IfAvailable", "command": "sh", "args": ["-c", script] } });
    let kubeconfig = rig.bed.write("kubeconfig", &kubeconfig.to_string());
    let run = rig.sh(&["--output", "jsonl"], "true").with_kubeconfig(&kubeconfig).start();
    rig.wait_for("up");
    run
}

/// Neither of them lives, and each is named.
#[track_caller]
fn was_ended_and_named(rig: &Rig, finished: &Finished) {
    let pid = |name| -> u32 {
        let text = String::from_utf8(rig.read(name).expect("it was written")).expect("it is text");
        text.trim().parse().expect("it is a number")
    };
    for (name, program) in [("plugin", "sh"), ("child", "sleep")] {
        let pid = pid(name);
        assert_eq!(dcctl::process::look_up(pid), None, "the {name} was left running");
        let said = format!("process {pid} ({program}), a credential plugin of the kubeconfig, was still there");
        assert!(finished.stdout.contains(&said), "nobody says {said:?}: {}", finished.stdout);
    }
}

#[test]
fn a_credential_plugin_that_hangs_is_ended_with_the_run_and_named() {
    let rig = Rig::new();
    let run = with_a_plugin_that_hangs(&rig);
    run.signal(Signal::TERM);
    was_ended_and_named(&rig, &run.finish().expect_code(10));
}

#[test]
fn a_credential_plugin_that_hangs_is_ended_and_named_also_when_the_supervisor_was_killed() {
    let rig = Rig::new();
    let run = with_a_plugin_that_hangs(&rig);
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it lives");
    let finished = run.finish().expect_code(1);
    was_ended_and_named(&rig, &finished);
    let next = &finished.verdict()["data"]["next"];
    assert!(next.to_string().contains("`sh` was not started") && !next.to_string().contains("look at what"), "{next}");
}
