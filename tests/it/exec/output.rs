//! What the command prints: byte for byte for people and pipes, as events for machines, and never a secret.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::bed::wait;
use crate::exec::{Rig, of_kind};

/// Some megabytes.
const MEGABYTES: u32 = 1 << 20;
/// So few that the step is over before we say that it is still at work: that line would stand among them.
const SHORT: u32 = 1 << 16;

/// Everything a byte can be, four times as many bytes as this, and no end of line at the end.
fn bytes(words: u32) -> Vec<u8> {
    let mut dice = fastrand::Rng::with_seed(1);
    let mut bytes: Vec<u8> = (0..words).flat_map(|_| dice.u32(..).to_le_bytes()).collect();
    bytes.extend(b"\r\x1b[2J\x00 the end has no line feed");
    bytes
}

#[test]
fn an_output_that_the_command_empties_goes_on_and_that_is_said() {
    let rig = Rig::new();
    let script = "printf 'first\\n'; : > @/up; until [ -e @/go ]; do sleep 0.05; done; \
                  echo second > /dev/stdout; printf 'third and longer than all before\\n'";
    let (_, journal) = rig.run_dir("run");
    let mut run = rig.sh(&["--run-dir", rig.bed.file("run").to_str().expect("UTF-8")], script);
    run.command().stdout(rig.output("out"));
    let run = run.start();
    let first = |event: &Value| event["data"]["text"] == "first";
    journal.wait_for("process.output", first);
    wait::fact("the first line to be passed on", || rig.read("out").filter(|out| out == b"first\n"));
    rig.mark("go");
    let finished = run.finish().expect_code(0);
    let out = rig.read("out").map(|out| String::from_utf8_lossy(&out).into_owned());
    assert_eq!(out.as_deref(), Some("first\nsecond\nthird and longer than all before\n"));
    let said = "the command's standard output was emptied by something that opened it for writing anew";
    assert!(finished.stderr.contains(said), "{}", finished.stderr);
    let events = journal.events();
    let lines: Vec<&Value> = of_kind(&events, "process.output").iter().map(|event| &event["data"]["text"]).collect();
    assert_eq!(lines, ["first", "second", "third and longer than all before"]);
    let notes = of_kind(&events, "note.made");
    assert!(notes.iter().any(|note| note["msg"].to_string().contains("was emptied")), "{notes:?}");
}

#[test]
fn standard_output_has_the_command_s_bytes_and_nothing_else() {
    let rig = Rig::new();
    fs::write(rig.bed.file("bytes"), bytes(MEGABYTES)).expect("the test's folder can be written");
    // Neither option says so: it is the default, also where standard output is no terminal.
    let mut run = rig.sh(&[], "cat @/bytes; printf 'on the other' >&2");
    run.command().stdout(rig.output("out"));
    let finished = run.run().expect_code(0);
    assert!(rig.read("out") == Some(bytes(MEGABYTES)), "it is not what the command printed");

    // Our own lines are on standard error; each begins a line, and the last one is the verdict.
    let said = &finished.stderr;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.contains(&"on the other"), "{said}");
    assert!(lines.iter().any(|line| line.contains("held as ")), "{said}");
    let verdict = lines.last().expect("there are lines");
    assert!(
        verdict.starts_with("exec sh succeeded") && verdict.ends_with("exit code 0, the lock was released"),
        "{said}"
    );
    let place = |part: &str| said.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{said}"));
    assert!(place("Run the command") < place("on the other") && place("on the other") < place("exec sh succeeded"));
}

#[test]
fn standard_error_has_the_command_s_bytes_among_our_lines() {
    let rig = Rig::new();
    fs::write(rig.bed.file("bytes"), bytes(SHORT)).expect("the test's folder can be written");
    let mut run = rig.sh(&["--output", "human"], "cat @/bytes >&2");
    run.command().stdout(rig.output("out")).stderr(rig.output("err"));
    run.run().expect_code(0);
    let (said, wanted) = (rig.read("err").expect("it was made"), bytes(SHORT));
    let from = said.windows(64).position(|part| part == &wanted[..64]).expect("the command's output is there");
    assert!(said[from..].starts_with(&wanted), "it is not what the command printed");
    assert_eq!(said[from + wanted.len()], b'\n', "our next line begins a line");
    assert_eq!(rig.read("out"), Some(Vec::new()));
}

#[test]
fn many_short_outputs_come_through_to_the_last() {
    let rig = Rig::new();
    for round in 0..10 {
        let finished = rig.exec(&[], &["printf", "%s", &format!("round {round}")]).run().expect_code(0);
        assert_eq!(finished.stdout, format!("round {round}"));
    }
}

#[test]
fn for_machines_there_are_events_alone() {
    let rig = Rig::new();
    let options = ["--output", "jsonl", "--events-file", &rig.bed.file("events.jsonl").display().to_string()];
    let script = "echo one; echo two >&2; printf 'no end'; printf '\\377\\n' >&2; exit 3";
    let finished = rig.sh(&options, script).run().expect_code(1);
    assert_eq!(finished.stderr, "");
    let events = finished.events();
    let said = |stream: &str| -> Vec<String> {
        let lines = of_kind(&events, "process.output").into_iter().filter(|event| event["data"]["stream"] == stream);
        lines.map(|event| event["data"]["text"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(
        (said("stdout"), said("stderr")),
        (vec!["one".into(), "no end".into()], vec!["two".into(), "\u{fffd}".into()])
    );
    let titles: Vec<&Value> = of_kind(&events, "step.started").iter().map(|event| &event["data"]["title"]).collect();
    assert_eq!(titles, ["Check the surroundings", "Claim the cluster", "Run the command"]);
    let started = &events[0]["data"];
    assert_eq!((&started["command"], &started["program"]), (&"exec".into(), &"sh".into()));
    assert!(started.get("instance").is_none() && started.get("bundle").is_none(), "{started}");
    assert_eq!(rig.read("events.jsonl"), Some((finished.stdout.clone() + "\n").into_bytes()));

    let report = finished.junit();
    let bad = report.only_bad();
    assert_eq!((&*bad.class, &*bad.result, &*bad.kind), ("dcctl.exec.run-the-command", "failure", "dcctl.ExecFailed"));
    assert!(bad.output.contains("one") && bad.output.contains("two"), "{}", report.text);
    assert_eq!(report.case("claim-the-cluster", "acquire").result, "passed");
    assert_eq!(report.case("claim-the-cluster", "release").result, "passed");
}

/// Arguments may be secret, and only the person who typed them knows.
#[test]
fn no_argument_is_ever_said() {
    let rig = Rig::new();
    for (form, code) in [("jsonl", 1), ("human", 1)] {
        let finished = rig.exec(&["--output", form], &["sh", "-c", "exit 9", "hunter2-argument"]).run();
        let finished = finished.expect_code(code);
        let report = finished.junit().text;
        let journal = fs::read_to_string(finished.journal().expect("it was a run").path()).expect("it is there");
        for said in [&finished.stdout, &finished.stderr, &report, &journal] {
            assert!(!said.contains("hunter2") && !said.contains("exit 9"), "{said}");
        }
    }
}

#[test]
fn a_credential_of_the_kubeconfig_is_hidden_wherever_the_command_prints_it() {
    let rig = Rig::new();
    let token = rig.bed.described().user("admin").token.clone();
    // As it is, encoded, and again and again so that the border of every block of output falls somewhere into one.
    let script = format!(
        "cat \"$KUBECONFIG\"; printf %s {token} | base64 -w0; echo; \
         for i in 1 2 3 4 5 6 7 8; do head -c 65500 /dev/zero | tr '\\0' x; printf 'a{token}b'; done; \
         printf '%s' {token} >&2; exit 1"
    );
    for form in ["human", "jsonl"] {
        let keeping = ["--output", form, "--events-file", &rig.bed.file("events.jsonl").display().to_string()];
        let finished = rig.sh(&keeping, &script).run().expect_code(1);
        let report = finished.junit().text;
        let journal = fs::read_to_string(finished.journal().expect("it was a run").path()).expect("it is there");
        let events = fs::read_to_string(rig.bed.file("events.jsonl")).expect("it was asked for");
        for said in [&finished.stdout, &finished.stderr, &report, &journal, &events] {
            assert!(!said.contains(&token) && !said.contains(&STANDARD.encode(&token)), "a secret was said");
            // Half of it would give it away as well.
            assert!(!said.contains(&token[..token.len() / 2]), "half a secret was said");
            assert!(!said.contains(&token[token.len() / 2..]), "half a secret was said");
        }
        if form == "human" {
            assert_eq!(finished.stdout.matches("xa[redacted]b").count(), 8);
            assert!(finished.stderr.contains("[redacted]"), "{}", finished.stderr);
        }
    }
}

#[test]
fn a_reader_that_leaves_ends_neither_the_command_nor_the_run() {
    let rig = Rig::new();
    let (reader, writer) = std::io::pipe().expect("there are descriptors left");
    drop(reader);
    let mut run = rig.sh(&[], "head -c 1000000 /dev/zero; echo done > @/done");
    run.command().stdout(writer);
    let finished = run.run().expect_code(0);
    assert!(finished.stderr.contains("standard output is gone"), "{}", finished.stderr);
    assert!(finished.stderr.contains("exec sh succeeded"), "{}", finished.stderr);
    assert_eq!(rig.read("done"), Some(b"done\n".to_vec()));
    assert_eq!(rig.lease(), None);
}

#[test]
fn the_raw_output_is_removed_unless_it_is_to_be_kept() {
    let rig = Rig::new();
    for (option, kept) in [(None, false), (Some("--keep-output"), true)] {
        let (folder, _) = rig.run_dir(if kept { "kept" } else { "removed" });
        let at = folder.display().to_string();
        let options: Vec<&str> = ["--run-dir", &at].into_iter().chain(option).collect();
        rig.sh(&options, "echo raw").run().expect_code(0);
        let outputs = ["stdout", "stderr"].map(|stream| folder.join(format!("output/command.{stream}")));
        assert_eq!(outputs.each_ref().map(|path| path.exists()), [kept, kept]);
        if kept {
            assert_eq!(fs::read(&outputs[0]).expect("it was kept"), b"raw\n");
            assert_eq!(outputs[0].metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
        }
    }
}
