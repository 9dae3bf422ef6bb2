//! The bundle's own commands: what they are told, and what is said of their end.

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::Finished;
use crate::chart::rig::{Rig, reasons};

/// A bundle without a chart, with these sections.
fn bare(sections: &str) -> Rig {
    let rig = Rig::new();
    let text = format!(
        "apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: {{ name: bare, version: 1.2.3 }}\n\
         instance: {{ namespace: \"dci-${{instance}}\" }}\n{sections}"
    );
    std::fs::write(rig.bundle().join("bundle.yaml"), text).expect("the test's folder can be written");
    rig
}

fn verify(commands: &[(&str, &str)]) -> Rig {
    let commands: Vec<String> = commands
        .iter()
        .map(|(name, script)| {
            let run = serde_json::json!(["sh", "-c", script]);
            format!("  - {{ name: {name}, run: {run}, timeout: 3s }}\n")
        })
        .collect();
    bare(&format!("verify:\n{}", commands.concat()))
}

fn output(finished: &Finished) -> Vec<String> {
    let said = finished.events().into_iter().filter(|event| event["type"] == "process.output");
    said.map(|event| event["data"]["text"].as_str().unwrap_or_default().to_owned()).collect()
}

fn step(finished: &Finished, id: &str) -> Value {
    let ended = |event: &Value| event["type"] == "step.finished" && event["data"]["id"] == id;
    finished.events().into_iter().find(ended).expect("every step ends")["data"].clone()
}

#[test]
fn a_verify_command_is_told_what_to_look_at_and_runs_in_the_bundle() {
    let script = "echo \"$DCCTL_INSTANCE $DCCTL_NAMESPACE $DCCTL_KUBE_CONTEXT $DCCTL_VERSION\"; \
                  test -f bundle.yaml && kubectl get namespace \"$DCCTL_NAMESPACE\" -o name; \
                  env | grep -c DCCTL_VAR_ || true";
    let rig = verify(&[("it answers", script)]);
    let finished = rig.bootstrap().run().expect_code(0);
    let said = output(&finished);
    assert_eq!(said[0], format!("{0} dci-{0} bed 1.2.3", rig.instance));
    assert_eq!(said[1], format!("namespace/{}", rig.namespace()));
    assert_eq!(said[2], "0", "no variable of the bundle reaches it");
}

#[test]
fn the_first_failing_verify_command_ends_the_run_with_its_last_lines() {
    let rig = verify(&[
        ("good", "echo fine"),
        ("bad", "for n in 1 2 3 4 5 6 7 8 9; do echo line $n; done; echo why >&2; exit 3"),
        ("never", "echo not reached"),
    ]);
    let finished = rig.bootstrap().run().expect_code(1);
    let verdict = rig.assert_failed(&finished, "verify.failed");
    let message = verdict["failure"]["message"].to_string();
    assert!(message.contains("bad") && message.contains("exit status 3"), "{verdict}");
    let said = reasons(&verdict);
    assert!(said.contains("why") && said.contains("line 9") && !said.contains("line 1\""), "{said}");
    assert!(!output(&finished).contains(&"not reached".to_owned()));
}

#[test]
fn a_verify_command_has_its_time() {
    let rig = verify(&[("slow", "echo begun; sleep 600")]);
    let finished = rig.bootstrap().run().expect_code(1);
    let verdict = rig.assert_failed(&finished, "verify.failed");
    let message = verdict["failure"]["message"].to_string();
    assert!(message.contains("slow") && message.contains("3s"), "{verdict}");
}

#[test]
fn a_verify_command_that_is_not_there_fails_the_step() {
    let rig = bare("verify: [ { name: gone, run: [no-such-program], timeout: 3s } ]\n");
    let finished = rig.bootstrap().run().expect_code(1);
    let verdict = rig.assert_failed(&finished, "verify.failed");
    assert!(verdict["failure"].to_string().contains("no-such-program"), "{verdict}");
}

#[test]
fn a_stop_ends_a_verify_command_cleanly() {
    let rig = verify(&[("slow", "echo begun; exec sleep 2"), ("never", "echo not reached")]);
    let run = rig.bootstrap().start();
    run.wait_for("process.output", |event| event["data"]["text"] == "begun");
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    assert!(!output(&finished).contains(&"not reached".to_owned()));
    assert_eq!(rig.lease(), None);
}

#[test]
fn images_are_built_before_the_lock_and_only_when_asked_for() {
    let rig = bare("images: { build: [sh, -c, \"echo built $DCCTL_VERSION\"] }\n");
    let finished = rig.bootstrap().run().expect_code(0);
    assert_eq!(step(&finished, "build-images")["outcome"], "nothing");
    assert!(output(&finished).is_empty());

    let finished = rig.bootstrap().arg("--build").run().expect_code(0);
    assert_eq!(output(&finished), ["built 1.2.3"]);
    let events = finished.events();
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).expect("it is there");
    assert!(at("process.finished") < at("lock.claimed"));
}

#[test]
fn a_failing_build_takes_no_lock() {
    let rig = bare("images: { build: [sh, -c, \"echo no compiler >&2; exit 2\"] }\n");
    let finished = rig.bootstrap().arg("--build").run().expect_code(1);
    let verdict = finished.verdict()["data"].clone();
    assert_eq!(verdict["failure"]["code"], "build.failed");
    assert_eq!(verdict["lock"], "never_taken", "{verdict}");
    assert!(reasons(&verdict).contains("no compiler"), "{verdict}");
}

#[test]
fn a_dry_run_says_the_commands_and_runs_none() {
    let rig = bare(
        "images: { build: [sh, -c, \"echo built\"] }\nverify: [ { name: it answers, run: [sh, -c, \"echo ran\"], timeout: 3s } ]\n",
    );
    let finished = rig.bootstrap().args(["--build", "--dry-run"]).run().expect_code(0);
    assert!(output(&finished).is_empty());
    assert!(step(&finished, "build-images")["note"].to_string().contains("would run"));
    assert!(step(&finished, "verify")["note"].to_string().contains("it answers"));
}
