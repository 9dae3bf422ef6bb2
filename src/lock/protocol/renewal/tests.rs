//! Renewals and checks, answer by answer.

use super::*;
use crate::lock::protocol::script::{Step, at, book, play, seconds};

/// What an attempt does with these answers, the last good renewal being so many seconds old.
fn attempt(purpose: Purpose, age: u64, script: &str) -> String {
    let (mut book, mut machine) = (book(), None);
    play(script, |answer, clock| {
        let next = if let (Some(renewal), Some(answer)) = (&mut machine, answer) {
            let held = Held { uid: "uid-1", age: Duration::from_secs(age) };
            Renewal::answered(renewal, answer, &held, &mut book, at(clock))
        } else {
            let (renewal, ask) = Renewal::begin(purpose);
            machine = Some(renewal);
            Next::Ask(ask)
        };
        match next {
            Next::Ask(ask) => Step::Ask(ask),
            Next::Renewed(_, sent) => Step::End(format!("renewed@{}", seconds(sent.at))),
            Next::Checked(_) => Step::End("checked".to_owned()),
            Next::Lost(Lost::Taken { by }) => Step::End(format!("taken by {by}")),
            Next::Lost(Lost::Gone) => Step::End("gone".to_owned()),
            Next::Lost(lost) => panic!("an answer never means {lost:?}"),
            Next::Failed(failure) => Step::End(format!(
                "failed: {}{}",
                failure.message.split(':').next().unwrap_or_default(),
                if machine.as_ref().is_some_and(|renewal| renewal.write.is_some()) { ", in doubt" } else { "" }
            )),
        }
    })
}

#[test]
fn every_answer_to_the_read_has_one_consequence() {
    for (script, renew, check) in [
        ("ours", "read renew", "read checked"),
        ("ours-deleting", "read renew", "read checked"),
        ("none", "read gone", "read gone"),
        ("free", "read gone", "read gone"),
        ("ours-elsewhere", "read gone", "read gone"),
        ("free-elsewhere", "read gone", "read gone"),
        ("other", "read taken by bob@laptop/9912/3a7f000000000000", "read taken by bob@laptop/9912/3a7f000000000000"),
        (
            "other-elsewhere",
            "read taken by bob@laptop/9912/3a7f000000000000",
            "read taken by bob@laptop/9912/3a7f000000000000",
        ),
        ("unsent", "read failed: unsent", "read failed: unsent"),
        ("unclear", "read failed: unclear", "read failed: unclear"),
        ("forbidden", "read failed: forbidden", "read failed: forbidden"),
        ("refused", "read failed: refused", "read failed: refused"),
    ] {
        assert_eq!(attempt(Purpose::Renew, 10, script), renew, "renew, after: {script}");
        assert_eq!(attempt(Purpose::Check, 10, script), check, "check, after: {script}");
    }
}

#[test]
fn every_answer_to_the_replace_has_one_consequence() {
    for (script, expected) in [
        ("ours stored", "read renew renewed@1"),
        ("ours stored-elsewhere", "read renew gone"),
        ("ours conflict", "read renew read"),
        ("ours unclear", "read renew failed: unclear, in doubt"),
        ("ours unsent", "read renew failed: unsent"),
        ("ours forbidden", "read renew failed: forbidden"),
        ("ours refused", "read renew failed: refused"),
        ("ours terminating", "read renew failed: terminating"),
    ] {
        assert_eq!(attempt(Purpose::Renew, 10, script), expected, "after: {script}");
    }
}

#[test]
fn a_conflict_is_a_loss_only_if_a_read_confirms_it() {
    for (script, expected) in [
        ("ours conflict none", "read renew read gone"),
        ("ours conflict other", "read renew read taken by bob@laptop/9912/3a7f000000000000"),
        ("ours conflict ours stored", "read renew read renew renewed@3"),
        ("ours conflict unclear", "read renew read failed: unclear"),
        (
            "ours conflict ours conflict ours conflict ours conflict",
            "read renew read renew read renew read renew failed: the lock could not be renewed",
        ),
    ] {
        assert_eq!(attempt(Purpose::Renew, 10, script), expected, "after: {script}");
    }
}

#[test]
fn a_check_writes_only_when_the_last_renewal_is_too_old_to_begin_a_step() {
    assert_eq!(attempt(Purpose::Check, 29, "ours"), "read checked");
    assert_eq!(attempt(Purpose::Check, 30, "ours stored"), "read renew renewed@1");
    assert_eq!(attempt(Purpose::Check, 30, "ours refused"), "read renew failed: refused");
}
