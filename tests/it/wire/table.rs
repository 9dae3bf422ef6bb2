//! The table: every request about the lock meets every mishap, against the real API server.

use serde_json::json;

use crate::bed::{Bed, wait};
use crate::lock::rig::text;
use crate::wire::expected::{Expected, Lease, expected};
use crate::wire::lane::{Lane, all_at_once};
use crate::wire::mishap::{FORBIDDEN, Mishap};
use crate::wire::request::{Ended, Request};

/// How many rows are under way at once. Most of their time is waiting.
const LANES: usize = 32;

#[test]
fn whatever_one_request_about_the_lock_meets_the_lease_the_exit_code_and_the_verdict_are_as_promised() {
    let rows: Vec<(Request, Mishap)> =
        Request::ALL.iter().flat_map(|request| Mishap::ALL.map(|mishap| (*request, mishap))).collect();
    let bed = Bed::take();
    let name = |(request, mishap): &(Request, Mishap)| format!("{request:?} × {mishap:?}");
    all_at_once(&rows, LANES, name, |(request, mishap)| row(&bed, *request, *mishap));
}

fn row(bed: &Bed, request: Request, mishap: Mishap) {
    let lane = Lane::new(bed, request.namespace());
    let ended = request.meets(mishap, &lane);
    let wanted = expected(request, mishap);
    assert!(lane.suffered() > 0, "it did not happen: {:#?}", lane.proxy.seen());
    assert_eq!(ended.exit, Some(wanted.exit), "{}:\n{}", wanted.why, ended.said);
    // What is still on its way arrives before the Lease is looked at.
    wait::fact("a late request to arrive", || {
        let due = |seen: &crate::bed::proxy::Seen| seen.fault == Some("delayed") && seen.status.is_none();
        (!lane.proxy.seen().iter().any(due)).then_some(())
    });
    the_lease_is(&lane, &ended, wanted);
    the_verdict_says(&lane, &ended, wanted);
    if wanted.exit == 5 {
        assert!(
            ended.said.contains("is forbidden: User \\\"admin\\\"") || ended.said.contains(FORBIDDEN),
            "{}",
            ended.said
        );
    }
    let elsewhere: Vec<_> = lane.proxy.seen().into_iter().filter(|seen| seen.path.contains("elsewhere")).collect();
    assert!(elsewhere.is_empty(), "it let itself be sent elsewhere: {elsewhere:?}");
}

fn the_lease_is(lane: &Lane<'_>, ended: &Ended, wanted: Expected) {
    let lease = lane.lease();
    let holder = lease.as_ref().map(|lease| text(&lease["spec"]["holderIdentity"]));
    let why = || format!("{}: {lease:?}\n{}", wanted.why, ended.said);
    match wanted.lease {
        Lease::Gone => assert_eq!(holder, None, "{}", why()),
        Lease::Emptied => assert_eq!(holder.as_deref(), Some(""), "{}", why()),
        Lease::AsBefore => assert_eq!(lease, ended.before, "{}", why()),
        Lease::Ours => {
            let holder = holder.expect("it is there");
            let before = ended.before.as_ref().map(|before| text(&before["spec"]["holderIdentity"]));
            assert!(!holder.is_empty() && Some(&holder) != before.as_ref(), "{}", why());
        }
    }
}

fn the_verdict_says(lane: &Lane<'_>, ended: &Ended, wanted: Expected) {
    let Some(verdict) = &ended.verdict else {
        let said = match wanted.lock {
            "released" => "the cluster lock is now free",
            "not taken" => "the lock was not taken, and nothing was changed: ",
            "unknown" => "it cannot be told whether the lock was taken: the Lease may bear ",
            "unsettled" => "the lock was taken, and it cannot be told whether it was given back: the Lease may bear ",
            "left" => "the lock was taken, and could not be given back: ",
            other => panic!("{other} is nothing that a person is told"),
        };
        assert!(ended.said.contains(said), "{}: {}", wanted.why, ended.said);
        // Nothing else is said of it, and whoever may be in the Lease is named.
        let all = ["is now free", "the lock was not taken", "whether the lock was taken:", "the lock was taken, and"];
        let told = all.iter().filter(|part| ended.said.contains(**part)).count();
        assert_eq!(told, 1, "{}", ended.said);
        let named = lane.holder().filter(|_| wanted.lock == "unknown").unwrap_or_default();
        return assert!(ended.said.contains(&named), "{named}: {}", ended.said);
    };
    assert_eq!(verdict["data"]["lock"], wanted.lock, "{}: {verdict}", wanted.why);
    // Whoever may be in the Lease is named, and nobody else.
    let named = match wanted.lock {
        "left" => json!(lane.holder()),
        "unknown" => verdict["data"]["holder"].clone(),
        _ => json!(null),
    };
    assert_eq!(verdict["data"]["holder"], named, "{}: {verdict}", wanted.why);
    assert!(wanted.lock != "unknown" || !named.is_null(), "the identity to look for is named: {verdict}");
}
