//! Whose a lock is, and when that is proved.

use std::path::PathBuf;

use super::*;
use crate::process::{Care, Recorded};

fn problem(detail: &str) -> Problem {
    Problem { summary: NOT_LOCKED.to_owned(), detail: detail.to_owned(), address: None, since: None }
}

const TOLD: &str = "Error message: HTTP remote state already locked: ID=held-id\nLock Info:\n  ID:        held-id\n  \
                    Path:      \n  Operation: OperationTypeApply\n  Who:       bob@laptop\n  Version:   1.12.6\n  \
                    Created:   2026-11-30 20:53:26.700577895 +0000 UTC\n  Info:      \n\n\nOpenTofu acquires a state lock.";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn state() -> Which {
    let text = |text: &str| text.to_owned();
    Which {
        server: text("https://127.0.0.1:6443"),
        instance: Some(text("one")),
        part: text("infrastructure"),
        backend: text("http"),
    }
}

fn used(run: &str) -> Use {
    Use {
        run: run.to_owned(),
        state: state(),
        operation: "OperationTypeApply".to_owned(),
        began: at("2026-11-30T20:53:26Z"),
        had_lock: Some(at("2026-11-30T20:53:27Z")),
    }
}

#[test]
fn the_holder_is_read_from_what_opentofu_says() {
    let held = Held::of(&problem(TOLD)).expect("it is told");
    let shown =
        "lock held-id taken by bob@laptop for OperationTypeApply at 2026-11-30T20:53:26.700577Z with OpenTofu 1.12.6";
    assert_eq!(held.shown(), shown);
    assert!(held.unlock().contains("`tofu force-unlock held-id`"));
    let in_the_cluster = TOLD.replace("HTTP remote state already locked: ID=held-id", "by another client");
    assert_eq!(Held::of(&problem(&in_the_cluster)), Some(held), "the lines are enough");
    let old = TOLD.replace("ID:        held-id", "ID:        own-id");
    let id = Held::of(&problem(&old)).expect("it is told").shown();
    assert_eq!(id, "lock held-id", "the lines of an old one are about its own attempt");
    let other = Problem { summary: "Failed".to_owned(), ..problem(TOLD) };
    assert_eq!(Held::of(&other), None);
}

#[test]
fn an_attempt_of_ones_own_is_not_shown_as_the_holder() {
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = TOLD.replace("already locked: ID=held-id", "already locked, failed to unmarshal body");
    let own = own.replace("laptop", &here);
    let since = |detail: &str, text: &str| Held::of(&Problem { since: Some(at(text)), ..problem(detail) });
    let nobody = since(&own, "2026-11-30T20:53:26.1Z").expect("it is locked, says the server");
    assert_eq!(
        (nobody.shown().as_str(), nobody.unlock().contains("force-unlock")),
        ("who has the lock is not told", false)
    );
    let earlier = since(&own, "2026-11-30T20:53:27Z").expect("it is locked");
    assert!(earlier.shown().starts_with("lock held-id taken by bob@"), "it is older than who asks");
    let lost = own.replace("HTTP remote state already locked, failed to unmarshal body", "pq: the connection is gone");
    assert_eq!(since(&lost, "2026-11-30T20:53:26.1Z"), None);
}

#[test]
fn a_lock_that_was_not_got_for_another_reason_is_held_by_nobody() {
    let stale = TOLD.replace("Path:      \n", "Path:      /state/infrastructure.tfstate\n");
    let stale = |reason: &str| stale.replace("HTTP remote state already locked: ID=held-id", reason);
    let rows = [
        "",
        "ID:",
        "Error message: Unexpected HTTP response code 500",
        "open a: permission denied",
        &stale("no locks available"),
    ];
    for told in rows {
        assert_eq!(Held::of(&problem(told)), None, "{told}");
    }
    for held in ["resource temporarily unavailable", "already locked: ID=", &stale("resource temporarily unavailable")]
    {
        assert!(Held::of(&problem(held)).is_some(), "{held}");
    }
    let full =
        problem("Error message: write /s: no space left on device\n\nOpenTofu acquires a state lock to protect.");
    assert_eq!(reason(&full).as_deref(), Some("write /s: no space left on device"));
}

#[test]
fn times_are_read_as_go_writes_them() {
    assert_eq!(time("2026-11-30 20:53:26.7 +0000 UTC"), Some(at("2026-11-30T20:53:26.7Z")));
    assert_eq!(time("2026-11-30 22:53:26 +0200 CEST m=+0.1"), Some(at("2026-11-30T20:53:26Z")));
    for wrong in ["", "2026-11-30", "2026-11-30 20:53:26", "yesterday at noon", "2026-11-30 20:53:26 é00 UTC"] {
        assert_eq!(time(wrong), None, "{wrong}");
    }
}

#[test]
fn a_lock_is_that_of_a_process_only_if_that_was_seen_to_have_it_no_earlier_than_it_was_taken() {
    let held = Held::of(&problem(TOLD)).expect("it is told");
    let took = |used: &Use, held: &Held| used.took(held, &state(), "laptop");
    assert!(took(&used("r"), &held));
    let rows = [
        Use { had_lock: None, ..used("r") },
        Use { had_lock: Some(at("2026-11-30T20:53:26.5Z")), ..used("r") },
        Use { began: at("2026-11-30T20:53:26.8Z"), ..used("r") },
        Use { operation: "OperationTypePlan".to_owned(), ..used("r") },
        Use { state: Which { instance: None, ..state() }, ..used("r") },
        Use { state: Which { server: "https://127.0.0.1:7443".to_owned(), ..state() }, ..used("r") },
        Use { state: Which { backend: "pg".to_owned(), ..state() }, ..used("r") },
    ];
    for other in rows {
        assert!(!took(&other, &held), "{other:?}");
    }
    assert!(!took(&used("r"), &Held { created: None, ..held.clone() }));
    for who in ["bob@elsewhere", "laptop", ""] {
        assert!(!took(&used("r"), &Held { who: who.to_owned(), ..held.clone() }), "{who}");
    }
}

#[test]
fn only_a_run_directory_here_with_an_ended_process_shows_that_nobody_has_the_lock() {
    let folder = tempfile::tempdir().expect("a folder");
    let held = Held::of(&problem(TOLD)).expect("it is told");
    let ask = || whose(&folder.path().join("this"), &held, &state(), "laptop");
    assert_eq!(ask(), Whose::Unknown);
    let records = folder.path().join("earlier").join(RECORDS);
    fs::create_dir_all(&records).expect("made");
    fs::write(records.join(format!("tofu-apply{ABOUT}")), used("gone-7").text()).expect("written");
    assert_eq!(ask(), Whose::Unknown, "there is no record of the process");
    let care = Care { manner: Manner::OpenTofu, stdout: PathBuf::new(), stderr: PathBuf::new() };
    let me = Recorded::before("tofu apply", "gone-7/tofu-apply", care).started_as(std::process::id());
    let write = |recorded: &Recorded| {
        fs::write(records.join("tofu-apply"), serde_json::to_vec(recorded).expect("JSON")).expect("written");
    };
    write(&me);
    assert!(matches!(ask(), Whose::Alive(said) if said.contains("`tofu apply` of run gone-7 is still at work")));
    write(&Recorded { started: me.started + 1, ..me.clone() });
    assert_eq!(ask(), Whose::Ended("gone-7".to_owned()));
    write(&Recorded { place: "another".to_owned(), started: me.started + 1, ..me });
    assert_eq!(ask(), Whose::Unknown, "from another machine nothing can be shown");
}
