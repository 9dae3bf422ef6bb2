//! The only way from our strings to JUnit XML.
//!
//! `junit-report` writes what it is given. Escape sequences, control characters and `U+FFFE` make its output ill-formed,
//! and `]]>` in the output of a tool would end the section that it stands in and let the tool write markup of its own.
//! GitLab and Jenkins reject a whole file for any of these. So this file alone knows that crate: a report is described
//! with the plain structs here, and [`xml`] makes every string fit, whoever wrote it.
//!
//! It also keeps the limits of the readers: `message` is one line of at most 300 bytes, a body has at most 32 KiB with
//! its head and its tail kept, output has at most 64 KiB, no two cases have the same class and name, and no `type` is
//! one that GitLab's parser gives a meaning to: ours all begin with `dcctl.`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use junit_report::{OffsetDateTime, ReportBuilder, TestCase, TestResult, TestSuite};

use crate::event::text::{beginning, ending, one_line, plain, shortened};

/// The most bytes of a `message`.
pub(crate) const LONGEST_MESSAGE: usize = 300;
/// The most bytes of the body of a failure, an error or a skip.
pub(crate) const LONGEST_BODY: usize = 32 * 1024;
/// The most bytes of `system-out`.
pub(crate) const LONGEST_OUTPUT: usize = 64 * 1024;
/// The most bytes of the name of a case.
const LONGEST_NAME: usize = 500;

/// A group of cases.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) started: Timestamp,
    pub(crate) cases: Vec<Case>,
    pub(crate) output: Option<String>,
}

/// One thing that went well or did not.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) class: String,
    pub(crate) name: String,
    pub(crate) time: Duration,
    pub(crate) result: CaseResult,
    pub(crate) output: Option<String>,
}

impl Case {
    /// It did not go well.
    pub(crate) fn is_bad(&self) -> bool {
        match self.result {
            CaseResult::Passed | CaseResult::Skipped(_) => false,
            CaseResult::Failed(_) | CaseResult::Errored(_) => true,
        }
    }
}

/// How a case went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaseResult {
    /// It went well.
    Passed,
    /// It never ran.
    Skipped(Why),
    /// The run did its work, and something said no.
    Failed(Why),
    /// The run could not do its work.
    Errored(Why),
}

/// Why a case did not go well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    /// In one word, without the `dcctl.` that is put before it.
    pub(crate) kind: String,
    /// In one sentence.
    pub(crate) message: String,
    /// What there is to say beyond that.
    pub(crate) details: String,
}

impl Why {
    pub(crate) fn new(kind: &str, message: impl Into<String>) -> Why {
        Why { kind: kind.to_owned(), message: message.into(), details: String::new() }
    }
}

/// The report as XML.
pub(crate) fn xml(suites: &[Suite]) -> Vec<u8> {
    let mut identities = HashSet::new();
    let mut report = ReportBuilder::new();
    for suite in suites {
        report.add_testsuite(test_suite(suite, &mut identities));
    }
    let mut bytes = Vec::new();
    report.build().write_xml(&mut bytes).expect("a vector takes every write");
    on_lines(&bytes)
}

/// The same with each element on a line of its own, for whoever reads or compares the file as text. Within a CDATA section
/// nothing is touched; everywhere else a `<` begins a tag, because attributes have it escaped.
fn on_lines(xml: &[u8]) -> Vec<u8> {
    const OPEN: &[u8] = b"<![CDATA[";
    const CLOSE: &[u8] = b"]]>";
    let mut lines = Vec::with_capacity(xml.len() + xml.len() / 16);
    let mut rest = xml;
    while !rest.is_empty() {
        if rest.starts_with(OPEN) {
            let end = rest.windows(CLOSE.len()).position(|bytes| bytes == CLOSE);
            let (section, after) = rest.split_at(end.map_or(rest.len(), |end| end + CLOSE.len()));
            lines.extend_from_slice(section);
            rest = after;
            // The tag that ends the element, or the rest of a section that was split.
            let tag = rest.iter().position(|byte| *byte == b'>').filter(|_| !rest.starts_with(OPEN));
            let (tag, after) = rest.split_at(tag.map_or(0, |end| end + 1));
            lines.extend_from_slice(tag);
            rest = after;
            continue;
        }
        if rest[0] == b'<' && lines.last() == Some(&b'>') {
            lines.push(b'\n');
        }
        lines.push(rest[0]);
        rest = &rest[1..];
    }
    lines.push(b'\n');
    lines
}

fn test_suite(suite: &Suite, identities: &mut HashSet<(String, String)>) -> TestSuite {
    let nanoseconds = suite.started.as_nanosecond();
    TestSuite {
        name: attribute(&suite.name, LONGEST_NAME),
        // Jenkins shows the name of the package before the name of the suite.
        package: String::new(),
        timestamp: OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).unwrap_or(OffsetDateTime::UNIX_EPOCH),
        hostname: attribute(&suite.host, LONGEST_NAME),
        testcases: suite.cases.iter().map(|case| test_case(case, identities)).collect(),
        system_out: suite.output.as_deref().map(output),
        system_err: None,
    }
}

fn test_case(case: &Case, identities: &mut HashSet<(String, String)>) -> TestCase {
    let class = attribute(&case.class, LONGEST_NAME);
    let wanted = attribute(&case.name, LONGEST_NAME);
    let mut name = wanted.clone();
    let mut copy = 1;
    while !identities.insert((class.clone(), name.clone())) {
        copy += 1;
        name = format!("{wanted} ({copy})");
    }
    TestCase {
        name,
        time: junit_report::Duration::try_from(case.time).unwrap_or(junit_report::Duration::ZERO),
        result: test_result(&case.result),
        classname: Some(class),
        filepath: None,
        system_out: case.output.as_deref().map(output),
        system_err: None,
    }
}

fn test_result(result: &CaseResult) -> TestResult {
    match result {
        CaseResult::Passed => TestResult::Success,
        CaseResult::Skipped(why) => {
            let (type_, message, cause) = parts(why);
            TestResult::SkippedWithCause { type_, message, cause }
        }
        CaseResult::Failed(why) => {
            let (type_, message, cause) = parts(why);
            TestResult::Failure { type_, message, cause }
        }
        CaseResult::Errored(why) => {
            let (type_, message, cause) = parts(why);
            TestResult::Error { type_, message, cause }
        }
    }
}

/// Type, message and body. GitLab shows the body alone as soon as there is one, so the body begins with the message.
fn parts(why: &Why) -> (String, String, Option<String>) {
    let message = attribute(&why.message, LONGEST_MESSAGE);
    let whole = if why.details.is_empty() {
        why.message.clone()
    } else {
        format!("{}\n\n{}", why.message.trim_end(), why.details)
    };
    (attribute(&format!("dcctl.{}", why.kind), LONGEST_NAME), message, Some(section(&whole, LONGEST_BODY)))
}

fn output(text: &str) -> String {
    section(text, LONGEST_OUTPUT)
}

/// Text that stands in an attribute: one line, never empty.
fn attribute(text: &str, most: usize) -> String {
    let line = characters(&one_line(text)).trim().to_owned();
    if line.is_empty() { "(empty)".to_owned() } else { shortened(&line, most).into_owned() }
}

/// Text that stands in a CDATA section: several lines, the middle left out when there is too much of it.
fn section(text: &str, most: usize) -> String {
    const SPLIT: &str = "]]]]><![CDATA[>";
    let text = characters(&plain(text)).into_owned();
    let text = text.replace("]]>", SPLIT);
    if text.len() <= most {
        return text;
    }
    // Measured after `]]>` was split, so that the file keeps its limit; cut so that no split is cut in two.
    let head = beginning(&text, most / 4).trim_end_matches(|letter: char| SPLIT.contains(letter));
    let tail = ending(&text, most - most / 4 - 100).trim_start_matches(|letter: char| SPLIT.contains(letter));
    let between = text.len() - head.len() - tail.len();
    format!("{head}\n[{between} bytes are left out here]\n{tail}")
}

/// Replaces what [`plain`] leaves and XML 1.0 does not allow.
fn characters(text: &str) -> Cow<'_, str> {
    let forbidden = |letter: char| matches!(letter, '\u{fffe}' | '\u{ffff}');
    if text.contains(forbidden) { Cow::Owned(text.replace(forbidden, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> String {
        let why = || Why { kind: text.to_owned(), message: text.to_owned(), details: text.to_owned() };
        let case = |result| Case {
            class: text.to_owned(),
            name: text.to_owned(),
            time: Duration::from_millis(1500),
            result,
            output: Some(text.to_owned()),
        };
        let results =
            [CaseResult::Passed, CaseResult::Skipped(why()), CaseResult::Failed(why()), CaseResult::Errored(why())];
        let suite = Suite {
            name: text.to_owned(),
            host: text.to_owned(),
            started: Timestamp::UNIX_EPOCH,
            cases: results.into_iter().map(case).collect(),
            output: Some(text.to_owned()),
        };
        String::from_utf8(xml(&[suite])).expect("UTF-8")
    }

    /// What every reader needs of a report, whatever went into it.
    fn check(xml: &str) {
        let document = roxmltree::Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml:?}"));
        let mut identities = HashSet::new();
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            if let Some(kind) = node.attribute("type") {
                assert!(kind.starts_with("dcctl."), "{kind}");
            }
            if node.has_tag_name("testcase") {
                let identity = (node.attribute("classname").expect("a class"), node.attribute("name").expect("a name"));
                assert!(!identity.1.trim().is_empty() && identities.insert(identity), "{identity:?} twice");
            }
            if let Some(message) = node.attribute("message") {
                assert!(message.len() <= LONGEST_MESSAGE && !message.contains('\n'));
            }
            let text: String = node.children().filter_map(|child| child.text()).collect();
            assert!(text.len() <= LONGEST_OUTPUT);
        }
        let known = ["testsuites", "testsuite", "testcase", "skipped", "failure", "error", "system-out"];
        let elements = document.descendants().filter(roxmltree::Node::is_element);
        assert!(elements.into_iter().all(|node| known.contains(&node.tag_name().name())));
        assert_eq!(document.descendants().filter(|node| node.has_tag_name("testcase")).count(), 4);
    }

    #[test]
    fn each_element_has_a_line_and_sections_stay_as_they_are() {
        let section = "<![CDATA[<a><b>]]]]><![CDATA[>\n<c>]]>";
        let xml = format!("<?xml?><s><t m=\"x\"><f>{section}</f></t><t /></s>");
        let expected = format!("<?xml?>\n<s>\n<t m=\"x\">\n<f>{section}</f>\n</t>\n<t />\n</s>\n");
        assert_eq!(String::from_utf8(on_lines(xml.as_bytes())), Ok(expected));
        assert_eq!(on_lines(b"<a><![CDATA[]]></a>"), b"<a><![CDATA[]]></a>\n");
    }

    #[test]
    fn nasty_strings_make_a_well_formed_report() {
        let long = "]]>".repeat(40_000);
        for text in [
            "",
            "plain",
            "\u{1b}[31mred\u{1b}[0m\u{7}\u{8}\u{b}\u{c}\0",
            "]]>",
            "]]]]>>]]",
            "</system-out><testcase name=\"x\"/>]]><failure/>",
            "\u{fffe}\u{ffff}\u{85}\u{9b}\u{200f}",
            "line\r\nline\rline",
            "file",
            "\"<>&'",
            &long,
        ] {
            check(&report(text));
        }
    }

    #[test]
    fn text_reads_back_as_it_was() {
        let xml = report("a ]]> b <c> & \"d\"");
        let document = roxmltree::Document::parse(&xml).expect("well formed");
        let output = document.descendants().find(|node| node.has_tag_name("system-out")).expect("output");
        let text: String = output.children().filter_map(|child| child.text()).collect();
        assert_eq!(text, "a ]]> b <c> & \"d\"");
    }

    #[test]
    fn random_bytes_make_a_well_formed_report() {
        let pieces =
            ["]]>", "]", ">", "\u{1b}[", "m", "&", "<", "\"", "\0", "\u{fffe}", "\r", "\n", "ü", "x", "\u{9b}"];
        let mut dice = fastrand::Rng::with_seed(11);
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..dice.usize(..64)).map(|_| dice.u8(..)).collect();
            check(&report(&String::from_utf8_lossy(&bytes)));
            let text: String = (0..dice.usize(..64)).map(|_| pieces[dice.usize(..pieces.len())]).collect();
            check(&report(&text));
        }
    }

    #[test]
    fn a_long_body_keeps_its_head_and_its_tail() {
        let text = format!("first{}last", "x".repeat(LONGEST_BODY));
        let cut = section(&text, LONGEST_BODY);
        assert!(cut.starts_with("first") && cut.ends_with("last") && cut.len() <= LONGEST_BODY);
        assert!(cut.contains("bytes are left out here"));
    }
}
