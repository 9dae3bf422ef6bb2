//! The keeper on its real thread, in real time, over the twin.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use super::*;
use crate::clock;
use crate::lock::twin::Twin;
use crate::lock::{HolderId, Keeper, Request};

fn timing() -> Timing {
    Timing::STANDARD.divided_by(100).expect("safe")
}

fn keeper<F>(make_store: F) -> Keeper
where
    F: FnOnce() -> Result<Twin, Failure> + Send + 'static,
{
    let holder = HolderId::new("alice", "build-01", 48213, 7);
    let request = Request { holder, instance: None, notes: BTreeMap::new() };
    Keeper::start(make_store, request, timing(), Arc::new(clock::System))
}

fn failure() -> Failure {
    Failure::new(Code::KubeconfigInvalid, "there is no such context")
}

#[tokio::test]
async fn it_claims_renews_and_gives_back() {
    let twin = Twin::new(timing().request_timeout());
    let store = twin.clone();
    let mut keeper = keeper(move || Ok(store));
    let mut changes = keeper.changes();
    keeper.claim().await.expect("free");
    assert!(matches!(changes.recv().await, Some(Change::Renewed { .. })));
    assert_eq!(keeper.fence().await, Ok(()));
    assert_eq!(keeper.release().await, Released::Deleted);
    while changes.recv().await.is_some() {}
    assert_eq!(twin.cell(|cell| cell.record()), None);
}

#[tokio::test]
async fn why_there_is_no_store_is_the_answer_to_every_claim() {
    let keeper = keeper(|| Err(failure()));
    for _ in 0..2 {
        assert_eq!(keeper.claim().await, Err(ClaimError::Failed(failure())));
    }
    assert_eq!(keeper.fence().await, Err(Lost::Broken(failure())));
    assert_eq!(keeper.release().await, Released::NeverTaken);
}

#[tokio::test]
async fn a_panic_while_the_store_is_made_is_a_failure_like_any_other() {
    let keeper = keeper(|| panic!("a bug"));
    let Err(ClaimError::Failed(failure)) = keeper.claim().await else { panic!("it cannot claim") };
    assert_eq!(failure.code, Code::Internal);
}

#[tokio::test]
async fn a_store_that_is_never_made_holds_nothing_up() {
    let (never, hangs) = mpsc::channel::<()>();
    let keeper = keeper(move || {
        let _ = hangs.recv();
        Err(failure())
    });
    let (claimed, released) = tokio::join!(keeper.claim(), keeper.release());
    assert_eq!(claimed, Err(ClaimError::GivenUp));
    assert_eq!(released, Released::NeverTaken);
    drop(keeper);
    drop(never);
}
