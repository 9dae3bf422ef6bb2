//! What the page about the lock quotes is what the program says, in English and in the translations: the program speaks
//! English alone.
//!
//! Each message is built from the library, for the same runs and times in all of them. A quotation (`> `) is one message,
//! broken into lines as the page likes; a block of several lines is quoted as it stands.

use std::collections::BTreeSet;
use std::time::Duration;

use dcctl::cluster::error::classify;
use dcctl::failure::{Code, Failure};
use dcctl::lock::reclaim::{Changed, End, Progress, Window, evidence, words};
use dcctl::lock::{Lost, Observation, Place, Record, Released, message};
use jiff::Timestamp;
use kube::core::Status;
use serde_json::json;

use crate::docs::read;
use crate::tree;

/// The page, and its translations.
const PAGES: [&str; 3] = ["docs/concepts/lock.md", "docs/concepts/lock.zh.md", "docs/concepts/lock.es.md"];

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const BOB: &str = "bob@laptop/9912/3a7f9c1a20b7e4d5";
const STEP: &str = "Apply infrastructure";
const CONTEXT: &str = "prod-cluster";

fn place() -> Place {
    Place::Cluster(CONTEXT.to_owned())
}

fn now() -> Timestamp {
    "2026-11-30T00:10:00Z".parse().expect("a time")
}

/// Alice's lock as somebody sees it who looks so many seconds after it was renewed.
fn seen(seconds_ago: i64) -> Observation {
    let renewed = now() - jiff::SignedDuration::from_secs(seconds_ago);
    let raw = json!({
        "metadata": { "uid": "u", "resourceVersion": "1", "annotations": {
            "core.devicechain.io/instance": "prod", "dcctl.devicechain.io/verb": "bootstrap",
            "dcctl.devicechain.io/step": STEP, "dcctl.devicechain.io/children": "tofu apply (process 48301)" } },
        "spec": { "holderIdentity": ALICE, "leaseDurationSeconds": 60, "renewTime": format!("{renewed:.6}") },
    });
    Observation::new(Record::from_json(raw).expect("whole"))
}

fn live() -> String {
    message::busy(&seen(4), &place(), now()).text
}

fn line(shown: words::Shown) -> String {
    match shown {
        words::Shown::Line(text) | words::Shown::Fleeting(text) => text.trim().to_owned(),
    }
}

/// What the API server says to Alice, who may not do this.
fn not_allowed(verb: &str, resource: &str, group: &str, place: &str) -> String {
    format!(
        "{resource}.{group} is forbidden: User \"alice\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}"
    )
}

/// The failure of a request of dcctl's that was answered like that.
fn refused(said: &str, doing: &str) -> String {
    let mut status = Status::failure(said, "Forbidden");
    status.code = 403;
    classify(&kube::Error::Api(Box::new(status)), doing, "https://prod.example").message
}

/// Every message that is quoted: each page has all of them.
fn quoted() -> Vec<String> {
    let taken = Lost::Taken { by: BOB.to_owned() };
    let unreachable = Failure::new(Code::ClusterUnreachable, "the API server cannot be reached");
    let expired = Lost::Expired { age: Duration::from_secs(60), why: Some(unreachable) };
    let window = Window { validity: Duration::from_secs(60), claimed: None };
    let list = not_allowed("list", "instances", "core.devicechain.io", "at the cluster scope");
    let said = |end: End| words::end(&end, &place()).unwrap_or_else(|failure| failure.message);
    vec![
        live(),
        message::busy(&seen(372), &place(), now()).text,
        message::waiting(&live(), Duration::from_secs(250)),
        message::going_on(&live()),
        message::lost_before(STEP, &taken),
        message::lost_before(STEP, &Lost::Gone),
        message::lost_before(STEP, &expired),
        message::lost_during(STEP, &taken),
        line(words::progress(&Progress::Checking(window), &place())),
        line(words::progress(&Progress::Unchanged { left: Duration::from_secs(65) }, &place())),
        said(End::Refused(Changed::Renewed(seen(4)))),
        said(End::Reclaimed(Released::Deleted)),
        said(End::Free { kept_by: Vec::new() }),
        not_allowed("create", "leases", "coordination.k8s.io", "in the namespace \"dc-k8s-system\""),
        refused(&list, "list the instances of this cluster"),
    ]
}

/// What is quoted with its lines.
fn blocks() -> Vec<String> {
    let shown = evidence::evidence(&seen(372), None, &place(), now());
    let status = dcctl::lock::status::status(Some(&seen(372)), &place(), now()).text(&place());
    vec![format!("{shown}\n{}", evidence::QUESTION.trim_end()), status]
}

/// The quotations of a page, each on one line.
fn quotations(page: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        let quotes = line.strip_prefix("> ").map(str::trim);
        match (quotes, inside) {
            (Some(text), true) => {
                let last = found.last_mut().expect("one has begun");
                last.push(' ');
                last.push_str(text);
            }
            (Some(text), false) => found.push(text.to_owned()),
            (None, _) => {}
        }
        inside = quotes.is_some();
    }
    found
}

#[test]
fn what_the_pages_about_the_lock_quote_is_what_the_program_says() {
    let mut offences = Vec::new();
    for page in PAGES {
        let text = read(page);
        let found = quotations(&text);
        for said in quoted() {
            if !found.contains(&said) {
                offences.push(format!("{page} does not quote: {said}"));
            }
        }
        for said in blocks() {
            if !text.contains(&said) {
                offences.push(format!("{page} does not have this block:\n{said}"));
            }
        }
        for invented in found.iter().filter(|text| !quoted().contains(text)) {
            offences.push(format!("{page} quotes what this test does not build from the program: {invented}"));
        }
    }
    tree::obey("quotations and messages differ:", &offences);
}

/// How much of each kind a page has.
fn parts(text: &str) -> [(&'static str, usize); 5] {
    let count = |begins: &str| text.lines().filter(|line| line.starts_with(begins)).count();
    let kinds =
        [("headings", "#"), ("rows of tables", "|"), ("blocks", "```"), ("items", "- "), ("third steps", "3. ")];
    kinds.map(|(what, begins)| (what, count(begins)))
}

/// What stands in code spans: commands, options, names, which no translation changes.
fn spans(text: &str) -> BTreeSet<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_translations_have_every_part_of_the_page() {
    let page = read(PAGES[0]);
    for name in &PAGES[1..] {
        let translated = read(name);
        assert_eq!(parts(&translated), parts(&page), "{name} has not as much of each as {}", PAGES[0]);
        let translated = spans(&translated);
        let missing: Vec<_> = spans(&page).into_iter().filter(|span| !translated.contains(span)).collect();
        assert!(missing.is_empty(), "{name} does not speak of {missing:?}");
    }
}

#[test]
fn each_of_the_pages_about_the_lock_links_to_the_others() {
    for page in PAGES {
        for other in PAGES.iter().filter(|other| **other != page) {
            let name = other.rsplit('/').next().unwrap_or_default();
            assert!(read(page).contains(&format!("]({name})")), "{page} has no link to {name}");
        }
    }
    let readme = read("README.md");
    for page in PAGES {
        assert!(readme.contains(&format!("]({page})")), "the README has no link to {page}");
    }
}
