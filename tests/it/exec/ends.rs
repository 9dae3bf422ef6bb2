//! How a run of a command ends: by itself, refused, blocked, or as a dry run.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::exec::{Rig, of_kind};

#[test]
fn the_exit_status_is_the_table_s_and_the_command_s_own_is_told_or_passed_on() {
    let rig = Rig::new();
    let rows = [
        ("exit 0", None, 0, json!({ "exit_code": 0 })),
        ("exit 7", None, 1, json!({ "exit_code": 7 })),
        ("kill -9 $$", None, 1, json!({ "signal": 9 })),
        ("exit 0", Some("--propagate-exit-code"), 0, json!({ "exit_code": 0 })),
        ("exit 7", Some("--propagate-exit-code"), 7, json!({ "exit_code": 7 })),
        ("exit 20", Some("--propagate-exit-code"), 20, json!({ "exit_code": 20 })),
        ("kill -9 $$", Some("--propagate-exit-code"), 137, json!({ "signal": 9 })),
    ];
    for (script, option, code, end) in rows {
        let options: Vec<&str> = ["--output", "jsonl"].into_iter().chain(option).collect();
        let finished = rig.sh(&options, script).run().expect_code(code);
        let verdict = &finished.verdict()["data"];
        assert_eq!(verdict["command_end"], end, "{script}: {verdict}");
        assert_eq!((&verdict["subject"], &verdict["lock"]), (&json!("exec sh"), &json!("released")), "{verdict}");
        if script != "exit 0" {
            assert_eq!(verdict["failure"]["code"], "exec.failed", "{verdict}");
            let said = verdict["failure"]["message"].as_str().expect("a sentence");
            assert!(
                ["`sh` ended with exit status", "`sh` was ended by signal 9"].iter().any(|part| said.starts_with(part))
            );
        }
        assert_eq!(rig.lease(), None);
    }
}

#[test]
fn a_report_that_cannot_be_written_keeps_the_table_s_status() {
    let rig = Rig::new();
    let report = rig.bed.file("report.xml").display().to_string();
    let options = ["--output", "jsonl", "--propagate-exit-code", "--junit", &report];
    // While the command runs a folder comes to stand where the report is written again and again.
    let script = format!("until mkdir {report} 2> /dev/null; do rm -f {report}; done; exit 7");
    let finished = rig.sh(&options, &script).run().expect_code(1);
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["failure"]["code"], &verdict["command_end"]["exit_code"]), (&json!("exec.failed"), &json!(7)));
    assert_eq!(of_kind(&finished.events(), "report.failed").len(), 1);
}

#[test]
fn a_command_that_is_not_there_is_named_with_what_to_do_before_the_lock_is_asked_for() {
    let rig = Rig::new();
    let plain = rig.bed.write("plain", "#!/bin/sh\n");
    let strange = rig.bed.write("strange", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&strange, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let here = rig.bed.write("here", "#!/bin/sh\n");
    std::fs::set_permissions(&here, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let plain = plain.display().to_string();
    let rows: [(&str, &str, &str); 6] = [
        ("no-such-program", "there is no program `no-such-program` on PATH", "install `no-such-program`"),
        ("a && b", "there is no program `a && b` on PATH", "sh -c"),
        ("here", "there is no program `here` on PATH", "write `./here`"),
        ("./missing", "there is no file", "write the path of a program"),
        (&plain, "may not be executed", "chmod +x"),
        ("/tmp/", "is a folder", "name a program in it"),
    ];
    for (word, message, hint) in rows {
        let finished = rig.exec(&["--output", "jsonl"], &[word]).run().expect_code(4);
        let verdict = &finished.verdict()["data"];
        assert_eq!(verdict["failure"]["code"], "surroundings.tool_missing", "{verdict}");
        assert!(verdict["failure"]["message"].as_str().is_some_and(|said| said.contains(message)), "{verdict}");
        assert!(verdict["next"][0].as_str().is_some_and(|said| said.contains(hint)), "{verdict}");
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&json!("refused"), &json!("never_taken")), "{verdict}");
        assert_eq!(finished.junit().only_bad().kind, "dcctl.SurroundingsToolMissing");
        // For people the same is said, on standard error.
        let human = rig.exec(&[], &[word]).run().expect_code(4);
        assert_eq!(human.stdout, "");
        let last = human.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("exit code 4 (surroundings.tool_missing)"), "{}", human.stderr);
    }
    let about_locks =
        |event: &&Value| event["objectRef"]["resource"] == "leases" && event["user"]["username"] == "admin";
    assert_eq!(rig.bed.audit().iter().filter(about_locks).count(), 0, "the lock was asked for");

    // The system finds out about this one only when it is started.
    let finished = rig.exec(&["--output", "jsonl"], &["./strange"]).run().expect_code(4);
    assert_eq!(finished.verdict()["data"]["lock"], "released");
}

#[test]
fn the_lock_s_own_permissions_are_enough_and_without_them_the_command_is_not_started() {
    let rig = Rig::new();
    let ops = rig.bed.kubeconfig("ops").to_owned();
    rig.sh(&[], "echo allowed").with_kubeconfig(&ops).run().expect_code(0);
    let nobody = rig.bed.kubeconfig("nobody").to_owned();
    let finished = rig.sh(&["--output", "jsonl"], ": > @/started").with_kubeconfig(&nobody).run().expect_code(5);
    let verdict = &finished.verdict()["data"];
    let said = verdict["failure"].to_string();
    assert!(said.contains("leases.coordination.k8s.io") && said.contains("nobody"), "{verdict}");
    assert_eq!((&verdict["outcome"], rig.read("started")), (&json!("refused"), None));
}

#[test]
fn a_cluster_that_is_held_blocks_it_and_the_command_is_not_started() {
    let rig = Rig::new();
    let first = rig.sh(&["--output", "jsonl"], ": > @/up; until [ -e @/go ]; do sleep 0.05; done").start();
    rig.wait_for("up");
    let holder = first.wait_for("lock.claimed", |_| true)["data"]["holder"].as_str().expect("a holder").to_owned();
    let begins = format!("this cluster is being worked on by {holder}, which renewed ");
    let ends = "s ago; wait for it to finish rather than running a second apply against the same cluster";

    let second = rig.sh(&["--output", "jsonl", "--propagate-exit-code"], ": > @/started").run().expect_code(20);
    let verdict = &second.verdict()["data"];
    let said = verdict["failure"]["message"].as_str().expect("a sentence");
    assert!(said.starts_with(&begins) && said.ends_with(ends), "{said}");
    assert!(verdict.get("command_end").is_none(), "{verdict}");
    let human = rig.sh(&[], ": > @/started").run().expect_code(20);
    assert_eq!(human.stdout, "");
    assert!(human.stderr.contains("is blocked: exit code 20 (lock.held)"), "{}", human.stderr);

    // A dry run takes nothing, and says whom it would have met.
    let dry = rig.sh(&["--output", "jsonl", "--dry-run"], ": > @/started").run().expect_code(0);
    let seen = dry.events();
    assert_eq!(of_kind(&seen, "lock.observed")[0]["data"]["holder"], holder);
    let ran = of_kind(&seen, "step.finished")[2]["data"].clone();
    let note = ran["note"].as_str().expect("a note");
    let sh =
        ["/usr/local/bin/sh", "/usr/bin/sh", "/bin/sh"].into_iter().find(|path| std::path::Path::new(path).exists());
    let wanted = format!("would run `{}` with 2 arguments in `", sh.expect("there is a shell"));
    assert!(ran["outcome"] == "nothing" && note.starts_with(&wanted), "{ran}");
    assert_eq!(rig.read("started"), None, "a command was started without the lock");

    rig.mark("go");
    first.finish().expect_code(0);
    assert_eq!(rig.lease(), None);
    let dry = rig.exec(&["--dry-run"], &["no-such-program"]).run().expect_code(4);
    assert!(dry.stderr.contains("no-such-program"), "{}", dry.stderr);
}

#[test]
fn a_command_waits_for_its_turn_or_goes_on_without_the_lock_when_it_is_told_to() {
    let rig = Rig::new();
    let first = rig.sh(&["--output", "jsonl"], ": > @/up; until [ -e @/go ]; do sleep 0.05; done").start();
    rig.wait_for("up");
    let holder = rig.lease().expect("it is held")["spec"]["holderIdentity"].clone();
    let options = ["--output", "jsonl", "--on-busy", "warn", "--propagate-exit-code"];
    let without = rig.sh(&options, ": > @/without; exit 7").run().expect_code(7);
    let verdict = &without.verdict()["data"];
    assert_eq!(
        (&verdict["lock"], &verdict["failure"]["code"]),
        (&json!("not_held"), &json!("exec.failed")),
        "{verdict}"
    );
    assert!(rig.read("without").is_some());
    assert_eq!(rig.lease().expect("it is still held")["spec"]["holderIdentity"], holder);

    let second = rig.sh(&["--output", "jsonl", "--wait"], "[ -e @/go ]").start();
    second.wait_for("lock.blocked", |event| event["data"]["manner"] == "waits");
    rig.mark("go");
    first.finish().expect_code(0);
    second.finish().expect_code(0);
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_command_line_without_a_command_is_refused_like_any_run() {
    let rig = Rig::new();
    let report = rig.bed.file("report.xml").display().to_string();
    let rows: [&[&str]; 4] = [
        &["exec", "--output", "jsonl", "--junit", &report],
        &["exec", "--output", "jsonl", "--junit", &report, "--"],
        &["exec", "--output", "jsonl", "--junit", &report, "true"],
        &["exec", "--bogus", "--output", "jsonl", "--junit", &report, "--", "tool", "--output", "human"],
    ];
    for words in rows {
        let finished = rig.bed.dcctl(words).run().expect_code(2);
        assert_eq!(finished.verdict()["data"]["failure"]["code"], "usage.invalid", "{words:?}");
        assert_eq!(finished.junit().only_bad().kind, "dcctl.UsageInvalid", "{words:?}");
        std::fs::remove_file(&report).expect("the report was written");
    }
    // For people it is on standard error, like all of our own lines.
    let finished = rig.bed.dcctl(["exec", "true"]).run().expect_code(2);
    assert_eq!(finished.stdout, "");
    assert!(finished.stderr.contains("'true'") && finished.stderr.contains("exec was refused"), "{}", finished.stderr);
}
