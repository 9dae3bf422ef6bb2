//! Claims, answer by answer: each row is what was answered, and what the claim then did.

use super::*;
use crate::lock::protocol::script::{Step, at, book, play, seconds};

/// What a claim does with these answers.
fn claim(script: &str) -> String {
    let (mut book, mut machine) = (book(), None);
    play(script, |answer, clock| {
        let next = match (&mut machine, answer) {
            (None, _) => {
                let (claim, next) = Claim::begin(&mut book, at(clock));
                machine = Some(claim);
                next
            }
            (Some(claim), Some(answer)) => claim.answered(answer, &mut book, at(clock)),
            (Some(claim), None) => claim.woke(&mut book, at(clock)),
        };
        match next {
            Next::Ask(ask) => Step::Ask(ask),
            Next::Wait(until) => Step::Wait(seconds(until)),
            Next::Won(won) => Step::End(format!("won@{}", seconds(won.sent))),
            Next::Ended(error) => Step::End(
                match error {
                    ClaimError::Busy(_) => "busy",
                    ClaimError::BeingDeleted(_) => "deleting",
                    ClaimError::NamespaceTerminating(_) => "terminating",
                    ClaimError::Forbidden(_) => "forbidden",
                    ClaimError::Contended => "contended",
                    ClaimError::Unsettled { .. } => "unsettled",
                    ClaimError::GivenUp => "given up",
                    ClaimError::Failed(_) => "failed",
                }
                .to_owned(),
            ),
        }
    })
}

fn table(rows: &[(&str, &str)]) {
    for (script, expected) in rows {
        assert_eq!(claim(script), *expected, "after: {script}");
    }
}

#[test]
fn every_answer_to_the_create_has_one_consequence() {
    table(&[
        ("stored", "create won@0"),
        ("exists", "create read"),
        ("homeless", "create namespace"),
        ("unclear", "create read"),
        ("unsent", "create +1 create"),
        ("forbidden", "create forbidden"),
        ("terminating", "create terminating"),
        ("refused", "create failed"),
    ]);
}

#[test]
fn every_answer_to_the_read_after_exists_has_one_consequence() {
    table(&[
        ("exists none", "create read create"),
        ("exists other", "create read busy"),
        ("exists other-deleting", "create read busy"),
        ("exists free", "create read take"),
        ("exists free-deleting", "create read deleting"),
        // A create that was sent twice on the way. When it was made is not known, so the fence comes from a new write.
        ("exists ours", "create read renew"),
        ("exists ours stored", "create read renew won@2"),
        ("exists ours-deleting", "create read deleting"),
        ("exists unclear", "create read +1 read"),
        ("exists unsent", "create read +1 read"),
        ("exists forbidden", "create read forbidden"),
        ("exists refused", "create read failed"),
        ("exists unclear unclear unclear unclear", "create read +1 read +2 read +4 read failed"),
        ("exists unclear other", "create read +1 read busy"),
    ]);
}

#[test]
fn a_create_without_an_answer_is_settled_by_reading() {
    table(&[
        // Nothing there (yet): once more. Whichever lands, it bears our identity.
        ("unclear none", "create read create"),
        ("unclear none stored", "create read create won@2"),
        ("unclear none exists ours stored", "create read create read renew won@4"),
        ("unclear other", "create read busy"),
        ("unclear ours-deleting", "create read deleting"),
        ("unclear forbidden", "create read forbidden"),
        ("unclear refused", "create read failed"),
        // The last look is due ten seconds after the create was sent, and then it is said.
        ("unclear unclear", "create read +1 read"),
        ("unclear unclear unsent unclear unclear", "create read +1 read +2 read +3 read unsettled"),
        ("unclear unclear unsent unclear other", "create read +1 read +2 read +3 read busy"),
    ]);
}

#[test]
fn a_create_that_landed_although_nobody_said_so_is_ours_from_when_it_was_sent() {
    let (mut book, now) = (book(), at(0));
    let (mut claim, next) = Claim::begin(&mut book, now);
    let Next::Ask(Ask::Create(draft)) = next else { panic!("{next:?}") };
    let mut raw = draft;
    raw["metadata"]["uid"] = "uid-9".into();
    raw["metadata"]["resourceVersion"] = "1".into();
    let landed = Record::from_json(raw).expect("whole");
    let unclear = Trouble::Unclear(crate::lock::protocol::script::failure("time-out"));
    claim.answered(Answer::Created(Err(unclear)), &mut book, at(5));
    assert!(book.ledger.look_at(book.timing).is_some());
    let next = claim.answered(Answer::Read(Ok(Some(landed))), &mut book, at(6));
    let Next::Won(won) = next else { panic!("{next:?}") };
    assert_eq!((seconds(won.sent), won.record.uid()), (0, "uid-9"));
    assert_eq!(book.ledger.look_at(book.timing), None, "nothing is in doubt any more");
}

#[test]
fn a_missing_namespace_is_created_and_then_the_create_comes_again() {
    table(&[
        ("homeless made stored", "create namespace create won@2"),
        ("homeless forbidden", "create namespace forbidden"),
        ("homeless refused", "create namespace failed"),
        // The next create tells.
        ("homeless unclear stored", "create namespace create won@2"),
        ("homeless unsent made exists other", "create namespace +1 namespace create read busy"),
        (
            "homeless made homeless made homeless made homeless made homeless made",
            "create namespace create namespace create namespace create namespace create namespace failed",
        ),
    ]);
}

#[test]
fn a_free_lease_is_taken_by_a_replace_and_every_answer_to_that_has_one_consequence() {
    table(&[
        ("exists free stored", "create read take won@2"),
        ("exists free conflict", "create read take read"),
        ("exists free conflict other", "create read take read busy"),
        ("exists free unclear", "create read take read"),
        ("exists free unclear free", "create read take read take"),
        ("exists free unclear other", "create read take read busy"),
        ("exists free unsent", "create read take +1 read"),
        ("exists free forbidden", "create read take forbidden"),
        ("exists free refused", "create read take failed"),
        ("exists free terminating", "create read take terminating"),
    ]);
}

#[test]
fn five_writes_are_enough() {
    table(&[
        (
            "exists none exists none exists none exists none exists none",
            "create read create read create read create read create read contended",
        ),
        (
            "exists free conflict free conflict free conflict free conflict free",
            "create read take read take read take read take read contended",
        ),
        ("unsent unsent unsent unsent", "create +1 create +2 create +4 create failed"),
    ]);
}

#[test]
fn a_claim_that_took_too_long_is_written_once_more_before_it_counts() {
    let mut book = book();
    let (mut claim, next) = Claim::begin(&mut book, at(0));
    let Next::Ask(ask) = next else { panic!("{next:?}") };
    // The machine slept between the create and its answer.
    let stored = crate::lock::protocol::script::answer(&ask, "stored");
    let next = claim.answered(stored, &mut book, at(30));
    let Next::Ask(Ask::Replace(again)) = next else { panic!("{next:?}") };
    assert!(book.ledger.landed.is_some(), "given up now, it would have to be given back");
    let next = claim.answered(Answer::Replaced(Ok(Replaced::Stored(again))), &mut book, at(31));
    assert!(matches!(next, Next::Won(won) if seconds(won.sent) == 30));
}

#[test]
fn a_claim_says_whether_it_made_the_namespace() {
    let mut book = book();
    let (mut claim, first) = Claim::begin(&mut book, at(0));
    let mut next = first;
    for word in ["homeless", "made", "stored"] {
        let Next::Ask(ask) = &next else { panic!("{next:?}") };
        next = claim.answered(crate::lock::protocol::script::answer(ask, word), &mut book, at(1));
    }
    assert!(matches!(next, Next::Won(Won { namespace: Namespace::Created, .. })), "{next:?}");
}
