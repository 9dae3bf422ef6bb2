//! The sentences, word by word, as the documents have them.

use serde_json::json;

use super::*;
use crate::lock::record::Record;

fn place(context: &str) -> Place {
    Place::Cluster(context.to_owned())
}

fn wall() -> Timestamp {
    "2026-11-30T00:10:00Z".parse().expect("a time")
}

fn seen(renewed: &str, instance: Option<&str>) -> Observation {
    let mut raw = json!({
        "metadata": { "uid": "u", "resourceVersion": "1", "annotations": {} },
        "spec": {
            "holderIdentity": "alice@build-01/48213/9f3c1a20b7e4d5c6",
            "leaseDurationSeconds": 60, "renewTime": renewed,
        },
    });
    if let Some(instance) = instance {
        raw["metadata"]["annotations"]["core.devicechain.io/instance"] = json!(instance);
    }
    Observation::new(Record::from_json(raw).expect("whole"))
}

#[test]
fn a_renewing_holder_gets_the_first_form() {
    let busy = busy(&seen("2026-11-30T00:09:56.000000Z", Some("prod")), &place("prod-cluster"), wall());
    assert_eq!(
        busy.text,
        "this cluster (working on instance \"prod\") is being worked on by alice@build-01/48213/9f3c1a20b7e4d5c6, \
         which renewed 4s ago; wait for it to finish rather than running a second apply against the same cluster"
    );
    assert_eq!((busy.stale, busy.code()), (false, Code::LockHeld));
    assert_eq!(busy.age, Some(Duration::from_secs(4)));
}

#[test]
fn a_renewal_ahead_of_our_clock_is_not_said_to_be_ago() {
    let busy = busy(&seen("2026-11-30T01:10:00.000000Z", None), &place("c"), wall());
    assert_eq!(
        busy.text,
        "this cluster is being worked on by alice@build-01/48213/9f3c1a20b7e4d5c6, whose renewal lies 1h0m ahead of this \
         machine's clock; wait for it to finish rather than running a second apply against the same cluster"
    );
    assert_eq!((busy.stale, busy.code()), (false, Code::LockHeld));
}

#[test]
fn a_silent_holder_gets_the_second_form() {
    let busy = busy(&seen("2026-11-30T00:03:48.000000Z", Some("prod")), &place("prod-cluster"), wall());
    assert_eq!(
        busy.text,
        "this cluster (working on instance \"prod\") is claimed by alice@build-01/48213/9f3c1a20b7e4d5c6, which last \
         renewed 6m12s ago — by this machine's clock that looks stale, but a clock that disagrees looks the same. If \
         that process is genuinely gone, take the claim with `dcctl instances reclaim --kube-context prod-cluster`, \
         which checks properly before it steals"
    );
    assert_eq!((busy.stale, busy.code()), (true, Code::LockHeldStale));
}

#[test]
fn without_an_instance_there_is_no_parenthesis() {
    let live = busy(&seen("2026-11-30T00:09:56.000000Z", None), &place("c"), wall());
    assert!(live.text.starts_with("this cluster is being worked on by alice@"), "{}", live.text);
    let stale = busy(&seen("2026-11-30T00:00:00.000000Z", None), &place("c"), wall());
    assert!(stale.text.starts_with("this cluster is claimed by alice@"), "{}", stale.text);
}

#[test]
fn a_run_inside_the_holder_s_is_told_that_it_would_wait_for_itself() {
    let outer = HolderId::new("alice", "build-01", 48213, 0x9f3c_1a20_b7e4_d5c6);
    let failure = inside(&outer, Some("exec"));
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (
            Code::NestedRun,
            "this command was started by the run that holds this cluster's lock, \
             alice@build-01/48213/9f3c1a20b7e4d5c6 (`dcctl exec`): it would wait for itself"
        )
    );
    assert!(outer.is_run("9f3c1a20b7e4d5c6") && !outer.is_run("9f3c1a20b7e4d5c7") && !outer.is_run(""));
}

#[test]
fn nothing_in_a_lease_reaches_a_terminal() {
    let text = busy(&seen("2026-11-30T00:09:56.000000Z", Some("a\u{1b}[2J\nb\u{202e}c")), &place("c"), wall()).text;
    assert!(text.contains("(working on instance \"a\u{fffd}[2J\u{fffd}b\u{fffd}c\")"), "{text}");
    assert_eq!(plain(&"x".repeat(400)).chars().count(), 301);
}

#[test]
fn a_lost_lock_is_said_in_the_words_of_the_documents() {
    let taken = Lost::Taken { by: "bob@laptop/9912/3a7f000000000000".to_owned() };
    assert_eq!(
        lost_before("Apply infrastructure", &taken),
        "stopping before \"Apply infrastructure\": this cluster was reclaimed by another operator: it is now held by \
         bob@laptop/9912/3a7f000000000000"
    );
    assert_eq!(
        lost_before("Apply infrastructure", &Lost::Gone),
        "stopping before \"Apply infrastructure\": this cluster's lock was reclaimed or deleted: nobody holds it now"
    );
    assert_eq!(
        lost_during("Install chart", &Lost::Gone),
        "stopping \"Install chart\": this cluster's lock was reclaimed or deleted: nobody holds it now"
    );
}

#[test]
fn a_lock_that_could_not_be_renewed_is_said_with_the_reason() {
    let why = Some(Failure::new(Code::ClusterUnreachable, "the API server cannot be reached").cause("refused"));
    let expired = Lost::Expired { age: Duration::from_secs(60), why: why.clone() };
    assert_eq!(
        lost_during("Apply infrastructure", &expired),
        "stopping \"Apply infrastructure\": this cluster's lock could not be renewed for 1m0s, at least as long as it \
         is valid, so another run may rightly hold it by now (the API server cannot be reached)"
    );
    let unsure = Lost::Unsure { age: Duration::from_secs(34), why };
    assert_eq!(
        lost_before("Verify", &unsure),
        "stopping before \"Verify\": this cluster's lock was last renewed 34s ago, and whether it is still ours cannot \
         be asked now (the API server cannot be reached)"
    );
    let failure = lost_failure(lost_before("Verify", &unsure), &unsure);
    assert_eq!((failure.code, failure.causes), (Code::LockLost, vec!["refused".to_owned()]));
}

#[test]
fn every_way_not_to_get_the_lock_has_its_code() {
    let failed = |error: &ClaimError| claim_failure(error, &place("c"), wall());
    let some = || Failure::new(Code::ClusterUnreachable, "why").cause("beneath");
    let live = seen("2026-11-30T00:09:56.000000Z", None);
    let stale = seen("2026-11-30T00:00:00.000000Z", None);
    for (error, code) in [
        (ClaimError::Busy(live.clone()), Code::LockHeld),
        (ClaimError::Busy(stale), Code::LockHeldStale),
        (ClaimError::BeingDeleted(live), Code::LockHeldStale),
        (ClaimError::NamespaceTerminating(some()), Code::ClusterUnreachable),
        (ClaimError::Forbidden(Failure::new(Code::Forbidden, "the sentence")), Code::Forbidden),
        (ClaimError::Contended, Code::LockHeld),
        (ClaimError::Unsettled { holder: "me".to_owned(), why: some() }, Code::ClusterUnreachable),
        (ClaimError::GivenUp, Code::StoppedClean),
        (ClaimError::Failed(some()), Code::ClusterUnreachable),
    ] {
        assert_eq!(failed(&error).code, code, "{error:?}");
    }
    let forbidden = ClaimError::Forbidden(Failure::new(Code::Forbidden, "the sentence"));
    assert_eq!(failed(&forbidden).message, "the sentence");
    let unsettled = failed(&ClaimError::Unsettled { holder: "alice@h/1/7".to_owned(), why: some() });
    assert!(unsettled.message.contains("(alice@h/1/7) cannot be read: why"), "{}", unsettled.message);
    assert_eq!(unsettled.causes, ["beneath"]);
}

#[test]
fn a_write_that_was_not_sent_says_why() {
    let said = may_not_write(&Lost::Gone);
    let sentence = "nothing more is written to this cluster, because this cluster's lock was reclaimed or deleted: nobody \
                    holds it now";
    assert_eq!((said.code, said.message.as_str()), (Code::LockLost, sentence));
    let bug = Failure::new(Code::Internal, "the thread that keeps the lock has panicked");
    let said = may_not_write(&Lost::Broken(bug));
    let sentence = "nothing more is written to this cluster, because this run cannot count on this cluster's lock: the \
                    thread that keeps the lock has panicked";
    assert_eq!((said.code, said.message.as_str()), (Code::Internal, sentence));
}
