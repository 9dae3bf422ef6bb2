//! `dcctl report` from outside: of files, directories, runs and standard input.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bed::Dcctl;
use crate::bed::child::Mark;

struct Rig {
    scratch: TempDir,
}

impl Rig {
    fn new() -> Rig {
        Rig { scratch: tempfile::tempdir().expect("the temporary folder can be written") }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn dcctl(&self, words: &[&str]) -> Dcctl {
        Dcctl::without_cluster(self.scratch.path(), &Mark::of(self.scratch.path()), words)
    }

    /// A run of a script under a lock in a folder, recorded in these files.
    fn recorded(&self, script: &str) -> Dcctl {
        fs::create_dir_all(self.file("lock")).expect("ours");
        let lock = ["exec", "--substrate", "direct", "--lock-dir", "lock", "--output", "human"];
        let run = self.dcctl(&lock).args(["--events-file", "events.jsonl", "--junit", "junit.xml"]);
        run.args(["--run-dir", "run", "--", "sh", "-c", script])
    }

    /// A run that has ended, recorded.
    fn with_a_run(self) -> Rig {
        self.recorded("exit 0").run().expect_code(0);
        self
    }
}

#[test]
fn what_a_run_has_written_is_what_its_recorded_events_give() {
    let rig = Rig::new();
    for (script, code) in [("exit 0", 0), ("exit 7", 1)] {
        let shown = rig.recorded(script).run().expect_code(code).stderr;
        let human = rig.dcctl(&["report", "human", "events.jsonl"]).run().expect_code(0);
        assert_eq!(human.stdout.trim(), shown.trim());
        assert_eq!(human.stderr, "");
        let live = fs::read(rig.file("junit.xml")).expect("the run wrote it");
        // Of a file, of the directory, and of standard input it is the same.
        for from in ["events.jsonl", "run", "-"] {
            let made = rig.dcctl(&["report", "junit", from, "-o", "made/again.xml"]);
            made.by_shell("exec \"$@\" < events.jsonl").with_pipes().run().expect_code(0);
            assert!(fs::read(rig.file("made/again.xml")).expect("it was made") == live, "{from}");
        }
        fs::remove_dir_all(rig.file("run")).expect("ours");
    }
    // A refusal has no directory and no lock.
    let refused = ["bootstrap", "demo", "--bundle", "missing", "--kube-context", "x", "--output", "human"];
    let refused = rig.dcctl(&refused).args(["--events-file", "events.jsonl", "--junit", "junit.xml"]);
    let shown = refused.run().expect_code(3).stdout;
    assert_eq!(rig.dcctl(&["report", "human", "events.jsonl"]).run().expect_code(0).stdout, shown);
    rig.dcctl(&["report", "junit", "events.jsonl", "-o", "again.xml"]).run().expect_code(0);
    let read = |name: &str| fs::read_to_string(rig.file(name)).expect("it was written");
    assert_eq!(read("again.xml"), read("junit.xml"));
}

#[test]
fn a_page_and_a_summary_are_made_of_a_run_by_its_name() {
    let rig = Rig::new();
    fs::create_dir_all(rig.file("lock")).expect("ours");
    let run = ["exec", "--substrate", "direct", "--lock-dir", "lock", "--output", "human", "--", "sh", "-c", "exit 7"];
    rig.dcctl(&run).run().expect_code(1);
    let page = rig.dcctl(&["report", "html", "latest"]).run().expect_code(0).stdout;
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>"));
    assert!(page.contains("<h1>exec sh failed</h1>") && page.contains("exit code 1"));
    let summary = rig.dcctl(&["report", "summary", "latest"]).run().expect_code(0).stdout;
    assert!(summary.starts_with("## ❌ exec sh failed") && summary.contains("What to do now"), "{summary}");
    let missing = rig.dcctl(&["report", "html", "nonsuch"]).run().expect_code(3);
    let says = "there is no such file here, and there is no run `nonsuch`";
    assert!(missing.stderr.contains(says), "{}", missing.stderr);
}

#[test]
fn a_file_of_a_report_is_replaced_as_a_whole_and_readable_for_everybody() {
    let rig = Rig::new().with_a_run();
    fs::write(rig.file("page.html"), "x".repeat(1 << 20)).expect("ours");
    rig.dcctl(&["report", "html", "events.jsonl", "--output-file", "page.html"]).run().expect_code(0);
    let found = fs::metadata(rig.file("page.html")).expect("it is there");
    assert_eq!(found.permissions().mode() & 0o777, 0o644);
    assert!(fs::read_to_string(rig.file("page.html")).expect("text").ends_with("</html>\n"));
    let left = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(".dcctl-report");
    assert!(!fs::read_dir(rig.scratch.path()).expect("ours").flatten().any(|entry| left(&entry)));
}

#[test]
fn a_report_never_takes_the_place_of_the_events() {
    let rig = Rig::new().with_a_run();
    let events = fs::read(rig.file("events.jsonl")).expect("it was written");
    std::os::unix::fs::symlink("events.jsonl", rig.file("link")).expect("ours");
    for to in ["events.jsonl", "./events.jsonl", "link"] {
        let refused = rig.dcctl(&["report", "html", "events.jsonl", "-o", to]).run().expect_code(3);
        assert!(refused.stderr.contains("is what the report is made from"), "{}", refused.stderr);
        let piped = rig.dcctl(&["report", "html", "-", "-o", to]).by_shell("exec \"$@\" < events.jsonl").with_pipes();
        assert!(piped.run().expect_code(3).stderr.contains("standard input"));
    }
    assert!(fs::read(rig.file("events.jsonl")).expect("it is there") == events);
}

#[test]
fn a_report_that_cannot_be_written_is_40() {
    let rig = Rig::new().with_a_run();
    fs::create_dir(rig.file("folder")).expect("ours");
    for to in ["folder", "events.jsonl/report.html", "/dev/full"] {
        let failed = rig.dcctl(&["report", "html", "events.jsonl", "-o", to]).run().expect_code(40);
        assert!(failed.stderr.contains("could not write the report"), "{}", failed.stderr);
    }
    let full = rig.dcctl(&["report", "html", "events.jsonl"]).by_shell("exec \"$@\" > /dev/full").with_pipes();
    full.run().expect_code(40);
    // A reader that has seen enough is nobody's failure.
    rig.dcctl(&["report", "html", "events.jsonl"]).by_shell("\"$@\" | head -c 10").with_pipes().run().expect_code(0);
}

#[test]
fn what_is_no_journal_makes_no_report_and_is_3() {
    let rig = Rig::new().with_a_run();
    let events = fs::read_to_string(rig.file("events.jsonl")).expect("it was written");
    fs::write(rig.file("empty"), "").expect("ours");
    fs::write(rig.file("garbage"), [0, 159, 146, 150, 10, 0xff]).expect("ours");
    fs::write(rig.file("newer"), events.replace("{\"v\":1,", "{\"v\":2,")).expect("ours");
    fs::write(rig.file("torn"), &events[..40]).expect("ours");
    for (name, why) in [
        ("empty", "it is empty"),
        ("garbage", "none of its lines is an event of dcctl"),
        ("torn", "none of its lines is an event of dcctl"),
        ("newer", "events of version 2 are not known to this dcctl, which knows version 1"),
        ("/nowhere/events.jsonl", "No such file or directory"),
        ("lock", "No such file or directory"),
    ] {
        for kind in ["junit", "summary", "human", "html"] {
            let refused = rig.dcctl(&["report", kind, name, "-o", "report"]).run().expect_code(3);
            let said = &refused.stderr;
            assert!(said.contains(why) && said.contains("(report.no_journal, exit code 3)"), "{name}: {said}");
            assert_eq!(refused.stdout, "");
        }
    }
    assert!(!rig.file("report").exists());
    rig.dcctl(&["report", "html"]).run().expect_code(2);
    rig.dcctl(&["report", "pdf", "events.jsonl"]).run().expect_code(2);
}

#[test]
fn a_journal_that_was_cut_off_is_reported_on_as_far_as_it_goes() {
    let rig = Rig::new().with_a_run();
    let events = fs::read_to_string(rig.file("events.jsonl")).expect("it was written");
    fs::write(rig.file("cut"), &events[..events.len() - 20]).expect("ours");
    for kind in ["junit", "summary", "human", "html"] {
        let made = rig.dcctl(&["report", kind, "cut"]).run().expect_code(0);
        assert!(made.stderr.contains("the last line is torn after"), "{}", made.stderr);
        assert!(made.stdout.contains("ends without a verdict") || made.stdout.contains("ends here without a verdict"));
        assert!(!made.stdout.contains("exit code 0"), "{kind}");
    }
    let twice = format!("{events}{}", events.replace("\"run\":\"", "\"run\":\"other-"));
    fs::write(rig.file("twice"), twice).expect("ours");
    let made = rig.dcctl(&["report", "summary", "twice"]).run().expect_code(0);
    assert!(made.stderr.contains("the file has several runs; this is other-"), "{}", made.stderr);
    let named = rig.dcctl(&["report", "summary", "twice", "--run", "other-"]).run().expect_code(0);
    assert_eq!(named.stdout, made.stdout);
    rig.dcctl(&["report", "summary", "twice", "--run", "nonsuch"]).run().expect_code(3);
}

/// Every number in it is the largest one.
fn enlarge(value: &mut Value) {
    match value {
        Value::Number(_) => *value = u64::MAX.into(),
        Value::Array(items) => items.iter_mut().for_each(enlarge),
        Value::Object(fields) => {
            fields.iter_mut().filter(|(name, _)| *name != "v").for_each(|(_, value)| enlarge(value));
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn a_journal_with_numbers_beyond_all_measure_is_reported_on_all_the_same() {
    let rig = Rig::new().with_a_run();
    let journal = fs::read_to_string(rig.file("events.jsonl")).expect("the run wrote it");
    let lines: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let dropped = json!({ "type": "output.dropped", "level": "warn", "msg": "", "data": { "lines": 1 } });
    for only_the_number in [true, false] {
        let mut text = String::new();
        for line in &lines {
            let mut line = line.clone();
            if only_the_number {
                line["seq"] = u64::MAX.into();
            } else {
                enlarge(&mut line);
            }
            let mut more = line.clone();
            more.as_object_mut().expect("one").extend(dropped.as_object().expect("one").clone());
            enlarge(&mut more);
            text.push_str(&format!("{line}\n{more}\n{more}\n"));
        }
        fs::write(rig.file("large.jsonl"), text).expect("ours");
        for form in ["human", "junit", "summary", "html"] {
            let made = rig.dcctl(&["report", form, "large.jsonl"]).run().expect_code(0);
            assert!(!made.stdout.is_empty() && !made.stderr.contains("panicked"), "{form}: {}", made.stderr);
        }
    }
}
