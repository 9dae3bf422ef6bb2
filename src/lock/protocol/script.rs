//! Scripts for the tables of tests: what was asked and what was answered, in one word each.
//!
//! `exists other` against a claim reads `create read busy`: the create met a Lease, the read found another holder in it.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use crate::clock::Instant;
use crate::failure::{Code, Failure};
use crate::lock::protocol::{Answer, Ask, Book, Ledger, Now};
use crate::lock::record::{Record, Request, Wish};
use crate::lock::store::{Created, Deleted, Replaced, Trouble};
use crate::lock::{HolderId, Timing};

/// The boot clock at the beginning of every script, in seconds.
pub(super) const START: u64 = 1_000;

pub(super) fn me() -> HolderId {
    HolderId::new("alice", "build-01", 48213, 0xa11ce)
}

pub(super) fn request() -> Request {
    Request { holder: me(), instance: Some("prod".to_owned()), notes: BTreeMap::new() }
}

pub(super) fn book() -> Book {
    Book { wish: Wish::new(request(), 60), timing: Timing::STANDARD, ledger: Ledger::default() }
}

/// So many seconds after the start of the script.
pub(super) fn at(seconds: u64) -> Now {
    let wall = Timestamp::from_second(1_796_000_000 + i64::try_from(seconds).expect("small")).expect("a time");
    Now { boot: Instant::since_boot(Duration::from_secs(START + seconds)), wall }
}

/// How many seconds after the start of the script that is.
pub(super) fn seconds(instant: Instant) -> u64 {
    instant.since(Instant::since_boot(Duration::from_secs(START))).as_secs()
}

/// A Lease in a word: who holds it (`ours`, `other`, `free`), `-deleting`, `-elsewhere` for another uid.
pub(super) fn lease(word: &str) -> Record {
    let holder = match word.split('-').next() {
        Some("ours") => me().to_string(),
        Some("other") => "bob@laptop/9912/3a7f000000000000".to_owned(),
        _ => String::new(),
    };
    let uid = if word.contains("elsewhere") { "uid-2" } else { "uid-1" };
    let mut raw = json!({
        "kind": "Lease", "metadata": { "name": "dcctl", "uid": uid, "resourceVersion": "7" },
        "spec": { "holderIdentity": holder },
    });
    if word.contains("deleting") {
        raw["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
        raw["metadata"]["finalizers"] = json!(["example.com/keep"]);
    }
    Record::from_json(raw).expect("whole")
}

pub(super) fn failure(message: &str) -> Failure {
    Failure::new(Code::ClusterRequestFailed, message)
}

fn trouble(word: &str) -> Trouble {
    match word {
        "unsent" => Trouble::Unsent(failure("unsent")),
        "unclear" => Trouble::Unclear(failure("unclear")),
        "forbidden" => Trouble::Forbidden(failure("forbidden")),
        "terminating" => Trouble::NamespaceTerminating(failure("terminating")),
        "refused" => Trouble::Refused(failure("refused")),
        word => panic!("no such answer: {word}"),
    }
}

/// The answer that a word means to this request. `stored` stores what was sent.
pub(super) fn answer(ask: &Ask, word: &str) -> Answer {
    match ask {
        Ask::Create(draft) => Answer::Created(match word {
            "stored" => {
                let mut raw = draft.clone();
                raw["metadata"]["uid"] = json!("uid-1");
                raw["metadata"]["resourceVersion"] = json!("7");
                Ok(Created::Stored(Record::from_json(raw).expect("whole")))
            }
            "exists" => Ok(Created::Exists),
            "homeless" => Ok(Created::NoNamespace(failure("homeless"))),
            word => Err(trouble(word)),
        }),
        Ask::CreateNamespace => Answer::NamespaceCreated(match word {
            "made" => Ok(()),
            word => Err(trouble(word)),
        }),
        Ask::Read => Answer::Read(match word {
            "none" => Ok(None),
            "unsent" | "unclear" | "forbidden" | "terminating" | "refused" => Err(trouble(word)),
            word => Ok(Some(lease(word))),
        }),
        Ask::Replace(record) => Answer::Replaced(match word {
            "stored" => Ok(Replaced::Stored(record.clone())),
            "stored-elsewhere" => Ok(Replaced::Stored(lease("ours-elsewhere"))),
            "conflict" => Ok(Replaced::Conflict),
            word => Err(trouble(word)),
        }),
        Ask::Delete { .. } => Answer::Deleted(match word {
            "gone" => Ok(Deleted::Gone),
            "kept" => Ok(Deleted::Kept(lease("ours-deleting"))),
            "absent" => Ok(Deleted::Absent),
            "conflict" => Ok(Deleted::Conflict),
            word => Err(trouble(word)),
        }),
    }
}

/// A request in a word. A replace is `take` when it claims, `empty` when it gives up, and else `renew`.
pub(super) fn word(ask: &Ask) -> String {
    match ask {
        Ask::Create(_) => "create".to_owned(),
        Ask::CreateNamespace => "namespace".to_owned(),
        Ask::Read => "read".to_owned(),
        Ask::Replace(record) => {
            assert!(!record.uid().is_empty() && !record.version().is_empty(), "a replace names uid and version");
            match record.holder() {
                None => "empty",
                Some(_) if record.acquired_at().is_some() && record.acquired_at() == record.renewed_at() => "take",
                Some(_) => "renew",
            }
            .to_owned()
        }
        Ask::Delete { uid, version } => {
            assert!(!version.is_empty(), "a delete names the version");
            if uid == "uid-1" { "delete".to_owned() } else { format!("delete:{uid}") }
        }
    }
}

/// Plays a script: `next` says in a word what the machine does and, if it asks or waits, how; it is answered in turn.
/// Every answer takes one second, every wait as long as it says.
pub(super) fn play(script: &str, mut next: impl FnMut(Option<Answer>, u64) -> Step) -> String {
    let mut said = Vec::new();
    let mut answers = script.split_whitespace();
    let mut clock = 0;
    let mut given = None;
    loop {
        match next(given.take(), clock) {
            Step::Ask(ask) => {
                said.push(word(&ask));
                let Some(word) = answers.next() else { break };
                clock += 1;
                given = Some(answer(&ask, word));
            }
            Step::Wait(until) => {
                said.push(format!("+{}", until.saturating_sub(clock)));
                clock = clock.max(until);
            }
            Step::End(end) => {
                said.push(end);
                assert_eq!(answers.next(), None, "the script goes on after the end: {said:?}");
                break;
            }
        }
    }
    said.join(" ")
}

/// What a machine under test does next.
#[derive(Debug)]
pub(super) enum Step {
    Ask(Ask),
    Wait(u64),
    End(String),
}
