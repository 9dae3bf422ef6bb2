//! Releases, answer by answer: each row is what was answered, and what the release then did.

use super::*;
use crate::lock::protocol::script::{Step, at, book, lease, play, seconds};

/// What a release does with these answers. `doubt`: so many seconds before the start a claim got no answer.
fn release(target: &Target, doubt: Option<u64>, script: &str) -> String {
    const ASKED: u64 = 100;
    let (mut book, mut machine) = (book(), None);
    if let Some(before) = doubt {
        let sent = book.ledger.sending(at(ASKED - before));
        book.ledger.doubt(sent);
    }
    play(script, |answer, clock| {
        let now = at(ASKED + clock);
        let next = match (&mut machine, answer) {
            (None, _) => {
                let (release, next) = Release::begin(target.clone(), now.boot, &mut book, now);
                machine = Some(release);
                next
            }
            (Some(release), Some(answer)) => release.answered(answer, &mut book, now),
            (Some(release), None) => release.woke(&book, now),
        };
        match next {
            Next::Ask(ask) => Step::Ask(ask),
            Next::Wait(until) | Next::LookAt(until) => Step::Wait(seconds(until) - ASKED),
            Next::Ended(released) => Step::End(match released {
                Released::NeverTaken => "never taken".to_owned(),
                Released::Deleted => "deleted".to_owned(),
                Released::Emptied(why) => format!("emptied: {}", why.message),
                Released::AlreadyGone => "already gone".to_owned(),
                Released::NotOurs { holder } => format!("not ours: {}", holder.as_deref().unwrap_or("nobody")),
                Released::Lost(_) => "lost".to_owned(),
                Released::Left(why) => format!("left: {}", why.message),
                Released::Unknown { why, .. } => format!("unknown: {}", why.message),
            }),
        }
    })
}

fn table(target: &Target, doubt: Option<u64>, rows: &[(&str, &str)]) {
    for (script, expected) in rows {
        assert_eq!(release(target, doubt, script), *expected, "after: {script}");
    }
}

fn held() -> Target {
    Target::Known(lease("ours"))
}

const BOB: &str = "not ours: bob@laptop/9912/3a7f000000000000";
const KEPT: &str = "left: the Lease dcctl in dc-k8s-system is being deleted, but finalizers keep it: example.com/keep";

#[test]
fn every_answer_to_the_delete_has_one_consequence() {
    table(
        &held(),
        None,
        &[
            ("gone", "delete deleted"),
            ("absent", "delete already gone"),
            ("kept", &format!("delete {KEPT}")),
            ("conflict", "delete read"),
            ("unclear", "delete read"),
            ("unsent", "delete +1 delete"),
            ("forbidden", "delete empty"),
            ("refused", "delete left: refused"),
            ("terminating", "delete left: terminating"),
        ],
    );
}

#[test]
fn a_conflict_is_read_and_if_it_is_ours_deleted_once_more() {
    table(
        &held(),
        None,
        &[
            ("conflict none", "delete read already gone"),
            ("conflict other", &format!("delete read {BOB}")),
            ("conflict other-elsewhere", &format!("delete read {BOB}")),
            ("conflict free", "delete read not ours: nobody"),
            ("conflict ours gone", "delete read delete deleted"),
            // A claim of ours that landed late, in a Lease of its own.
            ("conflict ours-elsewhere gone", "delete read delete:uid-2 deleted"),
            ("conflict ours-deleting", &format!("delete read {KEPT}")),
            (
                "conflict ours conflict ours",
                "delete read delete read left: the lock's Lease could not be deleted: somebody else keeps \
                 writing to it",
            ),
            ("conflict ours conflict none", "delete read delete read already gone"),
            ("conflict unclear none", "delete read +1 read already gone"),
            ("conflict refused", "delete read left: refused"),
            ("conflict forbidden", "delete read left: forbidden"),
        ],
    );
}

#[test]
fn a_delete_without_an_answer_is_settled_by_reading() {
    table(
        &held(),
        None,
        &[
            ("unclear none", "delete read deleted"),
            ("unclear ours gone", "delete read delete deleted"),
            ("unclear ours absent", "delete read delete deleted"),
            ("unclear other-elsewhere", "delete read deleted"),
            ("unclear other", &format!("delete read {BOB}")),
            ("unclear forbidden", "delete read unknown: forbidden"),
            ("unclear unclear none", "delete read +1 read deleted"),
        ],
    );
}

#[test]
fn what_cannot_be_settled_within_the_budget_is_said() {
    let waits = "read +1 read +2 read +4 read +4 read";
    table(
        &held(),
        None,
        &[
            ("unclear unclear unclear unclear unclear unclear", &format!("delete {waits} +4 read")),
            (
                "unclear unclear unclear unclear unclear unclear unclear",
                &format!("delete {waits} +4 read unknown: unclear"),
            ),
            (
                // No delete was ever sent, so the Lease is there as it was.
                "unsent unsent unsent unsent unsent unsent gone",
                "delete +1 delete +2 delete +4 delete +4 delete +4 delete +4 delete deleted",
            ),
            (
                "unsent unsent unsent unsent unsent unsent unsent",
                "delete +1 delete +2 delete +4 delete +4 delete +4 delete +4 delete left: unsent",
            ),
        ],
    );
}

#[test]
fn without_the_right_to_delete_the_holder_is_emptied() {
    table(
        &held(),
        None,
        &[
            ("forbidden stored", "delete empty emptied: forbidden"),
            ("forbidden conflict", "delete empty read"),
            ("forbidden conflict ours stored", "delete empty read empty emptied: forbidden"),
            ("forbidden conflict other", &format!("delete empty read {BOB}")),
            ("forbidden conflict none", "delete empty read already gone"),
            ("forbidden conflict free", "delete empty read emptied: forbidden"),
            ("forbidden unclear free", "delete empty read emptied: forbidden"),
            ("forbidden unclear ours stored", "delete empty read empty emptied: forbidden"),
            ("forbidden unclear none", "delete empty read already gone"),
            ("forbidden unclear other", &format!("delete empty read {BOB}")),
            ("forbidden unsent stored", "delete empty +1 empty emptied: forbidden"),
            ("forbidden forbidden", "delete empty left: forbidden"),
            ("forbidden refused", "delete empty left: forbidden"),
        ],
    );
}

#[test]
fn after_a_renewal_in_doubt_the_lease_is_read_first() {
    let target = Target::Stale(lease("ours"));
    table(
        &target,
        None,
        &[
            ("ours gone", "read delete deleted"),
            ("none", "read already gone"),
            ("other", &format!("read {BOB}")),
            ("unclear ours gone", "read +1 read delete deleted"),
        ],
    );
}

#[test]
fn without_a_doubt_there_is_nothing_to_look_for() {
    table(&Target::Nothing, None, &[("", "never taken")]);
    let lost = Target::Lost { lost: Lost::Gone, uid: "uid-1".to_owned() };
    table(&lost, None, &[("", "lost")]);
}

#[test]
fn a_claim_without_an_answer_is_looked_for_ten_seconds_after_it_was_sent() {
    table(
        &Target::Nothing,
        Some(4),
        &[
            ("none", "+6 read never taken"),
            ("other", "+6 read never taken"),
            ("free", "+6 read never taken"),
            ("ours gone", "+6 read delete deleted"),
            ("ours conflict none", "+6 read delete read never taken"),
            ("ours conflict ours gone", "+6 read delete read delete deleted"),
            ("ours absent none", "+6 read delete read never taken"),
            ("ours kept", &format!("+6 read delete {KEPT}")),
            ("ours unclear none", "+6 read delete +1 read never taken"),
            ("ours forbidden stored free", "+6 read delete empty read emptied: forbidden"),
            ("ours forbidden forbidden", "+6 read delete empty left: forbidden"),
            ("ours forbidden unclear free free", "+6 read delete empty read read emptied: forbidden"),
            ("forbidden", "+6 read unknown: forbidden"),
            ("unclear none", "+6 read +1 read never taken"),
            ("unclear unclear unclear unclear unclear", "+6 read +1 read +2 read +4 read +4 read unknown: unclear"),
        ],
    );
    table(&Target::Nothing, Some(60), &[("none", "read never taken")]);
}

#[test]
fn the_look_comes_after_the_delete_too() {
    table(
        &held(),
        Some(60),
        &[
            ("gone none", "delete read deleted"),
            ("gone other", "delete read deleted"),
            ("gone ours-elsewhere gone", "delete read delete:uid-2 deleted"),
            ("gone unclear none", "delete read +1 read deleted"),
            ("absent none", "delete read already gone"),
        ],
    );
    table(&held(), Some(3), &[("gone none", "delete +6 read deleted")]);
}

#[test]
fn a_lost_lease_is_never_touched_and_a_late_claim_still_is() {
    let lost = Target::Lost { lost: Lost::Gone, uid: "uid-1".to_owned() };
    table(
        &lost,
        Some(60),
        &[
            ("none", "read lost"),
            ("ours", "read lost"),
            ("other", "read lost"),
            ("ours-elsewhere gone", "read delete:uid-2 lost"),
            ("ours-elsewhere forbidden stored free", "read delete:uid-2 empty read lost"),
        ],
    );
}

#[test]
fn a_lease_of_which_nothing_is_known_any_more_is_given_back_if_it_is_ours() {
    table(
        &Target::Unseen,
        None,
        &[
            ("none", "read already gone"),
            ("other", &format!("read {BOB}")),
            ("ours gone", "read delete deleted"),
            ("ours conflict ours gone", "read delete read delete deleted"),
            ("ours unclear none", "read delete read deleted"),
            ("unsent ours gone", "read +1 read delete deleted"),
        ],
    );
}
