//! The keeper on its real thread, in real time, over the twin.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use serde_json::Value;

use super::*;
use crate::clock;
use crate::lock::store::{Created, Deleted, Replaced, Trouble};
use crate::lock::twin::Twin;
use crate::lock::{HolderId, Keeper, Record, Request};

fn timing() -> Timing {
    Timing::STANDARD.divided_by(100).expect("safe")
}

fn keeper<S, F>(make_store: F) -> Keeper
where
    S: LeaseStore,
    F: FnOnce() -> Result<S, Failure> + Send + 'static,
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
    let keeper = keeper(|| Err::<Twin, _>(failure()));
    for _ in 0..2 {
        assert_eq!(keeper.claim().await, Err(ClaimError::Failed(failure())));
    }
    assert_eq!(keeper.fence().await, Err(Lost::Broken(failure())));
    assert_eq!(keeper.release().await, Released::NeverTaken);
}

#[tokio::test]
async fn a_panic_while_the_store_is_made_is_a_failure_like_any_other() {
    let keeper = keeper(|| -> Result<Twin, Failure> { panic!("a bug") });
    let Err(ClaimError::Failed(failure)) = keeper.claim().await else { panic!("it cannot claim") };
    assert_eq!(failure.code, Code::Internal);
}

#[tokio::test]
async fn a_store_that_is_never_made_holds_nothing_up() {
    let (never, hangs) = mpsc::channel::<()>();
    let keeper = keeper(move || {
        let _ = hangs.recv();
        Err::<Twin, _>(failure())
    });
    let (claimed, released) = tokio::join!(keeper.claim(), keeper.release());
    assert_eq!(claimed, Err(ClaimError::GivenUp));
    assert_eq!(released, Released::NeverTaken);
    drop(keeper);
    drop(never);
}

/// A store with a bug.
struct Buggy;

impl LeaseStore for Buggy {
    async fn create(&self, _: &Value) -> Result<Created, Trouble> {
        panic!("a bug")
    }

    async fn create_namespace(&self) -> Result<(), Trouble> {
        panic!("a bug")
    }

    async fn read(&self) -> Result<Option<Record>, Trouble> {
        panic!("a bug")
    }

    async fn replace(&self, _: &Record) -> Result<Replaced, Trouble> {
        panic!("a bug")
    }

    async fn delete(&self, _: &str, _: &str) -> Result<Deleted, Trouble> {
        panic!("a bug")
    }
}

#[tokio::test]
async fn a_panic_of_the_keeper_is_told_as_a_loss() {
    let mut keeper = keeper(|| Ok(Buggy));
    let mut changes = keeper.changes();
    let Err(ClaimError::Failed(failure)) = keeper.claim().await else { panic!("it cannot claim") };
    assert_eq!(failure.code, Code::Internal);
    assert!(matches!(changes.recv().await, Some(Change::Lost(Lost::Broken(_)))));
    assert!(matches!(keeper.fence().await, Err(Lost::Broken(_))));
    assert!(matches!(keeper.release().await, Released::Unknown { .. }));
}
