//! Reads a JUnit report back, with two readers that are not its writer, and holds it against what its readers need.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use roxmltree::{Document, Node};
use serde_json::Value;

use crate::bed::child::command;
use crate::bed::untested;

/// Values of an attribute `type` that make some readers turn the text into something else, or refuse the file.
const MISREAD: [&str; 9] =
    ["file", "yaml", "symbol", "integer", "float", "decimal", "date", "dateTime", "base64Binary"];

/// The most bytes of a report, of what explains a case, and of what a case printed.
const LARGEST: (usize, usize, usize) = (1024 * 1024, 32 * 1024, 64 * 1024);

/// A report that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Report {
    /// Every case, in order.
    pub(crate) cases: Vec<Case>,
    /// The file as it is.
    pub(crate) text: String,
}

/// One case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Case {
    /// The suite that it is in.
    pub(crate) suite: String,
    /// Its class, `dcctl.<command>.<step>`.
    pub(crate) class: String,
    /// Its name within the class.
    pub(crate) name: String,
    /// `passed`, `failure`, `error` or `skipped`.
    pub(crate) result: String,
    /// The type of what is wrong, `dcctl.LockBlocked`; empty when it passed.
    pub(crate) kind: String,
    /// What is wrong in one line.
    pub(crate) message: String,
    /// What is wrong in full.
    pub(crate) body: String,
    /// What the tools of the case printed.
    pub(crate) output: String,
}

impl Report {
    /// Reads a report. Fails the test when it is not one that every reader of the field takes.
    #[track_caller]
    pub(crate) fn read(path: &Path) -> Report {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("no report at {}: {error}", path.display()));
        let mode = fs::metadata(path).expect("it was just read").permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "others cannot read {}", path.display());
        assert!(bytes.len() <= LARGEST.0, "a report of {} bytes", bytes.len());
        let text = String::from_utf8(bytes).expect("a report is UTF-8");
        let document = Document::parse(&text).unwrap_or_else(|error| panic!("not well-formed: {error}\n{text}"));
        let root = document.root_element();
        assert_eq!(root.tag_name().name(), "testsuites", "{text}");
        let suites = root.children().filter(Node::is_element);
        let cases: Vec<Case> = suites.flat_map(|suite| read_suite(suite, &text)).collect();
        let known: BTreeSet<_> = cases.iter().map(|case| (&case.class, &case.name)).collect();
        assert_eq!(known.len(), cases.len(), "two cases have one name: {text}");
        let report = Report { cases, text };
        report.assert_expat_agrees(path);
        report
    }

    /// The cases with this result.
    pub(crate) fn with(&self, result: &str) -> Vec<&Case> {
        self.cases.iter().filter(|case| case.result == result).collect()
    }

    /// The one case that is not well. Fails the test when there are none or more.
    #[track_caller]
    pub(crate) fn only_bad(&self) -> &Case {
        let bad: Vec<&Case> = [self.with("error"), self.with("failure")].concat();
        assert_eq!(bad.len(), 1, "{}", self.text);
        bad[0]
    }

    /// The case of a step, or of one thing in it.
    #[track_caller]
    pub(crate) fn case(&self, step: &str, name: &str) -> &Case {
        let found = self.cases.iter().find(|case| case.class.ends_with(&format!(".{step}")) && case.name == name);
        found.unwrap_or_else(|| panic!("no case {step} {name}: {}", self.text))
    }

    /// Asks another parser, expat through Python, what it reads.
    fn assert_expat_agrees(&self, path: &Path) {
        let Some(python) = python() else { return };
        let output =
            command(python).args(["-c", READER]).arg(path).stdin(Stdio::null()).output().expect("python3 runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "expat does not read {}: {said}\n{}", path.display(), self.text);
        let read: Value = serde_json::from_slice(&output.stdout).expect("the reader prints JSON");
        let own: Vec<Value> = self
            .cases
            .iter()
            .map(|case| {
                [&case.suite, &case.class, &case.name, &case.result, &case.message, &case.body]
                    .into_iter()
                    .cloned()
                    .collect()
            })
            .collect();
        assert_eq!(read, Value::from(own), "two readers read two things");
    }
}

/// Prints suite, class, name, result, message and body of every case.
const READER: &str = "
import json, sys, xml.etree.ElementTree as tree
cases = []
for suite in tree.parse(sys.argv[1]).getroot().findall('testsuite'):
    for case in suite.findall('testcase'):
        result = [child for child in case if child.tag in ('failure', 'error', 'skipped')]
        tag = result[0].tag if result else 'passed'
        message = result[0].get('message', '') if result else ''
        body = (result[0].text or '') if result else ''
        cases.append([suite.get('name'), case.get('classname'), case.get('name'), tag, message, body])
json.dump(cases, sys.stdout)
";

/// The Python on PATH. Where everything is required, as in CI, it has to be there.
pub(crate) fn python() -> Option<&'static Path> {
    static PYTHON: std::sync::OnceLock<Option<&'static Path>> = std::sync::OnceLock::new();
    *PYTHON.get_or_init(|| {
        let python = Path::new("python3");
        let there = command(python).args(["-c", "import xml.etree.ElementTree"]).output();
        if there.is_ok_and(|output| output.status.success()) {
            return Some(python);
        }
        untested::say("what Python makes of our reports and encodings", "python3 is not on PATH");
        None
    })
}

fn read_suite(suite: Node, text: &str) -> Vec<Case> {
    assert_eq!(suite.tag_name().name(), "testsuite", "{text}");
    let attribute = |name: &str| suite.attribute(name).unwrap_or_else(|| panic!("a suite without {name}: {text}"));
    let name = attribute("name");
    assert!(!name.trim().is_empty() && attribute("package").is_empty(), "{text}");
    assert!(attribute("timestamp").ends_with('Z') && !attribute("hostname").is_empty(), "{text}");
    let cases: Vec<Case> =
        suite.children().filter(|node| node.has_tag_name("testcase")).map(|case| read_case(name, case, text)).collect();
    let count = |result: &str| cases.iter().filter(|case| case.result == result).count().to_string();
    assert_eq!(attribute("tests"), cases.len().to_string(), "{text}");
    assert_eq!((attribute("errors"), attribute("failures")), (&*count("error"), &*count("failure")), "{text}");
    cases
}

fn read_case(suite: &str, case: Node, text: &str) -> Case {
    let attribute =
        |name: &str| case.attribute(name).unwrap_or_else(|| panic!("a case without {name}: {text}")).to_owned();
    let is_result = |node: &Node| matches!(node.tag_name().name(), "failure" | "error" | "skipped");
    let results: Vec<Node> = case.children().filter(is_result).collect();
    assert!(results.len() <= 1, "a case with two results: {text}");
    assert!(attribute("time").parse::<f64>().is_ok_and(|seconds| seconds >= 0.0), "{text}");
    let (class, name) = (attribute("classname"), attribute("name"));
    assert!(class.starts_with("dcctl.") && class.split('.').count() == 3 && !name.is_empty(), "{text}");
    let child = |tag: &str| case.children().find(|node| node.has_tag_name(tag)).and_then(|node| node.text());
    let output = child("system-out").unwrap_or_default().to_owned();
    assert!(output.len() <= LARGEST.2, "{} bytes of output", output.len());
    let (mut result, mut kind, mut message, mut body) =
        ("passed".to_owned(), String::new(), String::new(), String::new());
    if let [node] = results.as_slice() {
        node.tag_name().name().clone_into(&mut result);
        node.attribute("type").unwrap_or_default().clone_into(&mut kind);
        node.attribute("message").unwrap_or_default().clone_into(&mut message);
        node.text().unwrap_or_default().clone_into(&mut body);
        assert!(kind.starts_with("dcctl.") && !MISREAD.contains(&kind.as_str()), "{text}");
        assert!(!message.is_empty() && message.len() <= 300 && !message.contains('\n'), "{text}");
        // Some readers show the message only, some the body only.
        assert!(body.starts_with(message.trim_end_matches('…')) && body.len() <= LARGEST.1, "{text}");
    }
    Case { suite: suite.to_owned(), class, name, result, kind, message, body, output }
}
