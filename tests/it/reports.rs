//! Reports as other programs read them: JUnit files through a second XML reader, whatever is in the journal.

use std::path::Path;
use std::process::Output;

use dcctl::event::Seen;
use dcctl::report::junit::Junit;
use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::junit;

/// Strings that break naive writers of XML. They stand in a journal as JSON escapes, as a foreign journal may have them.
const NASTY: &[&str] = &[
    "",
    "\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}",
    "\0\u{1}\u{8}\u{b}\u{c}\u{1f}\u{7f}\u{85}\u{9b}",
    "\u{fffe}\u{ffff}\u{feff}",
    "]]>",
    "]]]]>><![CDATA[",
    "</testcase></testsuite></testsuites><testsuites>",
    "\"<>&'&#0;&nbsp;",
    "a\rb\r\nc\u{2028}d",
];

/// A line of a journal, made by hand: not cleaned by dcctl.
fn line(seq: u64, name: &str, step: Option<&str>, data: &Value) -> Seen {
    let mut line = json!({
        "v": 1, "seq": seq, "time": "2026-11-30T04:15:15.123456Z", "type": name, "level": "info", "msg": "",
        "run": "r1", "elapsed_ms": seq, "data": data,
    });
    if let Some(step) = step {
        line["step"] = json!(step);
    }
    Seen::read(&line.to_string()).expect("a line")
}

/// A failing run in which every string that can come from outside is this one.
fn journal(text: &str) -> Vec<Seen> {
    let step = Some("apply");
    let failure = json!({"code": "infrastructure.failed", "message": text, "causes": [text], "hints": [text]});
    let resource = json!({"address": text, "action": text, "elapsed_ms": 1});
    vec![
        line(
            0,
            "run.started",
            None,
            &json!({
                "schema": "s", "schema_version": "1.0", "dcctl": "0", "command": text, "holder": format!("a@{text}/1/2"),
                "run_dir": text, "dry_run": false,
            }),
        ),
        line(1, "run.planned", None, &json!({"steps": [{"id": "apply", "title": text}, {"id": text, "title": text}]})),
        line(2, "step.started", step, &json!({"id": "apply", "title": text, "index": 1, "total": 2})),
        line(3, "resource.failed", step, &resource),
        line(4, "object.waiting", step, &json!({"kind": text, "name": text, "why": text})),
        line(
            5,
            "diagnostic",
            step,
            &json!({
                "severity": "error", "origin": text, "summary": text, "detail": text, "address": text, "source": text,
            }),
        ),
        line(6, "process.output", step, &json!({"program": text, "stream": "stdout", "text": text})),
        line(
            7,
            "step.finished",
            step,
            &json!({
                "id": "apply", "title": text, "index": 1, "total": 2, "outcome": "failed", "failure": failure,
                "unfinished": [text], "duration_ms": 1,
            }),
        ),
    ]
}

#[test]
fn expat_reads_every_junit_report_whatever_is_in_the_journal() {
    let Some(python) = junit::python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let texts: Vec<String> = NASTY.iter().map(|text| (*text).to_owned()).chain(random_texts()).collect();
    for (index, text) in texts.iter().enumerate() {
        let mut junit = Junit::new(&folder.path().join(format!("{index}.xml")));
        for seen in journal(text) {
            junit.take(&seen).expect("written");
        }
    }
    let output = expat(python, folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{} files", texts.len()));
}

/// Bytes as a tool may print them, the same in every run of the test.
fn random_texts() -> impl Iterator<Item = String> {
    let mut dice = fastrand::Rng::with_seed(3);
    (0..200).map(move |_| {
        let bytes: Vec<u8> = (0..dice.u8(..)).map(|_| dice.u8(..)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Parses every file of a folder with Python's expat, which is strict, and counts them.
fn expat(python: &Path, folder: &Path) -> Output {
    const PROGRAM: &str = "
import pathlib, sys, xml.parsers.expat
files = sorted(pathlib.Path(sys.argv[1]).glob('*.xml'))
for file in files:
    xml.parsers.expat.ParserCreate().Parse(file.read_bytes(), True)
print(len(files), 'files')
";
    command(python).args(["-c", PROGRAM]).arg(folder).output().expect("it was there before")
}
