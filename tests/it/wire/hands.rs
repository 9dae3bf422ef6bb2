//! The Lease under somebody's hands, while a run holds it and before one comes.

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::lock::rig::{of_kind, text};
use crate::wire::lane::{ALICE, LONG_AGO, Lane, Namespace, all_at_once};

const BOB: &str = "bob@laptop/9912/3a7f00c2d1e4b596";
const RECLAIMED: &str = "this cluster was reclaimed by another operator: it is now held by ";
const NOBODY: &str = "this cluster's lock was reclaimed or deleted: nobody holds it now";

/// What somebody does to the Lease of a run that is at work.
#[derive(Debug, Clone, Copy)]
enum Hand {
    NamesAnother,
    NamesNobody,
    TakesTheSpecAway,
    Deletes,
    DeletesAndAnotherClaims,
    DeletesWhileAFinalizerKeepsIt,
    WritesAHugeDuration,
    TakesTheRenewalAway,
    WritesTheLastTransition,
    WritesBesideIt,
    PutsAFinalizerThere,
}

const HANDS: [Hand; 11] = [
    Hand::NamesAnother,
    Hand::NamesNobody,
    Hand::TakesTheSpecAway,
    Hand::Deletes,
    Hand::DeletesAndAnotherClaims,
    Hand::DeletesWhileAFinalizerKeepsIt,
    Hand::WritesAHugeDuration,
    Hand::TakesTheRenewalAway,
    Hand::WritesTheLastTransition,
    Hand::WritesBesideIt,
    Hand::PutsAFinalizerThere,
];

#[test]
fn whatever_a_hand_does_to_the_lease_of_a_run_has_one_outcome() {
    let bed = Bed::take();
    all_at_once(&HANDS, HANDS.len(), |hand| format!("{hand:?}"), |hand| under(&bed, *hand));
}

fn under(bed: &Bed, hand: Hand) {
    let lane = Lane::new(bed, Namespace::There);
    let run = lane.at_work();
    let ours = lane.holder().expect("it is held");
    match hand {
        Hand::NamesAnother => {
            let left = lane.merge(&json!({ "spec": { "holderIdentity": BOB, "leaseTransitions": 1 } }));
            lost(&lane, run, &format!("{RECLAIMED}{BOB}"), &json!(BOB), Some(&left));
        }
        Hand::NamesNobody => {
            let left = lane.merge(&json!({ "spec": { "holderIdentity": "" } }));
            lost(&lane, run, NOBODY, &Value::Null, Some(&left));
        }
        Hand::TakesTheSpecAway => {
            let left = lane.merge(&json!({ "spec": null }));
            lost(&lane, run, NOBODY, &Value::Null, Some(&left));
        }
        Hand::Deletes => {
            bed.api().delete(&lane.lock()).expect("the bed may do everything");
            lost(&lane, run, NOBODY, &Value::Null, None);
        }
        Hand::DeletesAndAnotherClaims => {
            bed.api().delete(&lane.lock()).expect("the bed may do everything");
            let left = lane.write(BOB);
            lost(&lane, run, &format!("{RECLAIMED}{BOB}"), &json!(BOB), Some(&left));
        }
        Hand::DeletesWhileAFinalizerKeepsIt => {
            lane.merge(&json!({ "metadata": { "finalizers": ["example.com/keep"] } }));
            bed.api().delete(&lane.lock()).expect("the bed may do everything");
            // While it is there it is the run's, and nobody can claim it.
            assert_eq!(text(&lane.renewed()["spec"]["holderIdentity"]), ours);
            lane.merge(&json!({ "metadata": { "finalizers": null } }));
            lost(&lane, run, NOBODY, &Value::Null, None);
        }
        Hand::WritesAHugeDuration => {
            lane.merge(&json!({ "spec": { "leaseDurationSeconds": i32::MAX } }));
            assert_eq!(lane.renewed()["spec"]["leaseDurationSeconds"], 60);
            goes_on(&lane, run);
        }
        Hand::TakesTheRenewalAway => {
            lane.merge(&json!({ "spec": { "renewTime": null, "leaseDurationSeconds": null } }));
            let lease = lane.renewed();
            assert!(lease["spec"]["renewTime"].is_string() && lease["spec"]["leaseDurationSeconds"] == 60, "{lease}");
            goes_on(&lane, run);
        }
        Hand::WritesTheLastTransition => {
            lane.merge(&json!({ "spec": { "leaseTransitions": i32::MAX } }));
            assert_eq!(lane.renewed()["spec"]["leaseTransitions"], i32::MAX, "what is not the run's stays");
            goes_on(&lane, run);
        }
        Hand::WritesBesideIt => {
            let theirs = json!({ "labels": { "team": "blue" }, "annotations": { "example.com/note": "hello" } });
            lane.merge(&json!({ "metadata": theirs.clone() }));
            let metadata = lane.renewed()["metadata"].clone();
            assert_eq!(metadata["labels"], theirs["labels"]);
            assert_eq!(metadata["annotations"]["example.com/note"], "hello");
            goes_on(&lane, run);
        }
        Hand::PutsAFinalizerThere => {
            lane.merge(&json!({ "metadata": { "finalizers": ["example.com/keep"] } }));
            lane.renewed();
            lane.let_go();
            let done = run.finish().expect_code(12);
            assert_eq!(done.verdict()["data"]["lock"], "left");
            assert!(done.stdout.contains("finalizers keep it: example.com/keep"), "{}", done.stdout);
            assert_eq!(lane.holder(), Some(ours));
            lane.merge(&json!({ "metadata": { "finalizers": null } }));
        }
    }
}

/// The run ends by itself, says this, asks its command to stop once, and leaves the Lease as it is.
#[track_caller]
fn lost(lane: &Lane<'_>, run: crate::bed::dcctl::Running, says: &str, holder: &Value, left: Option<&Value>) {
    let ended = run.finish().expect_code(22);
    let verdict = &ended.verdict()["data"];
    assert_eq!((&verdict["lock"], &verdict["holder"]), (&json!("lost"), holder), "{verdict}");
    assert_eq!(text(&verdict["failure"]["message"]), format!("stopping \"Run the command\": {says}"));
    assert_eq!(of_kind(&ended.events(), "lock.lost").len(), 1);
    assert_eq!(lane.signals(), "TERM\n");
    assert_eq!(lane.lease().as_ref(), left, "it is left alone, and never made anew");
}

#[track_caller]
fn goes_on(lane: &Lane<'_>, run: crate::bed::dcctl::Running) {
    lane.let_go();
    let done = run.finish().expect_code(0);
    assert_eq!((&done.verdict()["data"]["lock"], lane.lease()), (&json!("released"), None));
    assert_eq!(lane.signals(), "");
}

/// Leases that a claim may find, by their specs, and what comes of it.
#[test]
fn whatever_a_claim_finds_written_in_the_lease_has_one_outcome() {
    let bed = Bed::take();
    let held = |spec: Value| {
        let mut whole = json!({ "holderIdentity": ALICE, "renewTime": LONG_AGO, "leaseDurationSeconds": 60 });
        for (key, value) in spec.as_object().expect("an object") {
            whole[key] = value.clone();
        }
        whole
    };
    let rows = [
        ("no spec", Value::Null, 0),
        ("an empty spec", json!({}), 0),
        ("the last transition", json!({ "holderIdentity": "", "leaseTransitions": i32::MAX }), 0),
        ("a holder alone", json!({ "holderIdentity": ALICE }), 21),
        ("no renewal and no claim", held(json!({ "renewTime": null })), 21),
        ("a huge duration, long over", held(json!({ "leaseDurationSeconds": i32::MAX })), 21),
        ("a renewal in a far future", held(json!({ "renewTime": "2999-01-01T00:00:00.000000Z" })), 20),
        ("a holder of another form", held(json!({ "holderIdentity": "kubectl" })), 21),
    ];
    all_at_once(
        &rows,
        rows.len(),
        |row| row.0.to_owned(),
        |(_, spec, exit)| {
            let lane = Lane::new(&bed, Namespace::There);
            let before = lane.write_spec(spec);
            let done = lane.exec("true").run().expect_code(*exit);
            if *exit == 0 {
                assert_eq!((&done.verdict()["data"]["lock"], lane.lease()), (&json!("released"), None));
            } else {
                assert_eq!(lane.lease(), Some(before), "a lock that somebody holds is not touched");
            }
        },
    );
}
