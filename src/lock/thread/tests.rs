//! The keeper on its real thread, in real time, over the twin.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use serde_json::Value;

use super::*;
use crate::clock;
use crate::lock::Change;
use crate::lock::store::{Created, Deleted, Replaced, Trouble};
use crate::lock::twin::{Twin, Verb};
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
    assert_eq!(keeper.right().now(), Ok(()));
    assert_eq!(keeper.release().await, Released::Deleted);
    while changes.recv().await.is_some() {}
    assert!(matches!(keeper.right().now(), Err(Lost::Broken(_))));
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

/// A store that does what it is asked and then panics, once: in this request.
struct Once(Twin, Verb, AtomicBool);

impl Once {
    fn after(&self, verb: Verb) {
        assert!(verb != self.1 || self.2.swap(true, Ordering::SeqCst), "a bug");
    }
}

impl LeaseStore for Once {
    async fn create(&self, draft: &Value) -> Result<Created, Trouble> {
        let created = self.0.create(draft).await;
        self.after(Verb::Create);
        created
    }

    async fn create_namespace(&self) -> Result<(), Trouble> {
        self.0.create_namespace().await
    }

    async fn read(&self) -> Result<Option<Record>, Trouble> {
        self.0.read().await
    }

    async fn replace(&self, record: &Record) -> Result<Replaced, Trouble> {
        let replaced = self.0.replace(record).await;
        self.after(Verb::Replace);
        replaced
    }

    async fn delete(&self, uid: &str, version: &str) -> Result<Deleted, Trouble> {
        let deleted = self.0.delete(uid, version).await;
        self.after(Verb::Delete);
        deleted
    }
}

fn once(twin: &Twin, verb: Verb) -> Keeper {
    let store = Once(twin.clone(), verb, AtomicBool::new(false));
    keeper(move || Ok(store))
}

#[tokio::test]
async fn a_claim_in_which_the_keeper_panicked_is_looked_for_before_the_verdict() {
    let twin = Twin::new(timing().request_timeout());
    let keeper = once(&twin, Verb::Create);
    let Err(ClaimError::Failed(failure)) = keeper.claim().await else { panic!("it cannot say that it has it") };
    assert_eq!(failure.code, Code::Internal);
    assert!(matches!(keeper.right().now(), Err(Lost::Broken(_))));
    assert!(keeper.has_a_stake());
    assert!(twin.cell(|cell| cell.record()).is_some(), "it was done");
    assert_eq!(keeper.release().await, Released::Deleted);
    assert_eq!(twin.cell(|cell| cell.record()), None);
}

#[tokio::test]
async fn a_lock_whose_keeper_panicked_is_lost_and_still_given_back() {
    let twin = Twin::new(timing().request_timeout());
    let mut keeper = once(&twin, Verb::Replace);
    let mut changes = keeper.changes();
    let right = keeper.right();
    keeper.claim().await.expect("free");
    assert_eq!(right.now(), Ok(()));
    assert!(matches!(changes.recv().await, Some(Change::Lost(Lost::Broken(_)))), "the first renewal");
    assert!(matches!(right.now(), Err(Lost::Broken(_))));
    assert!(matches!(keeper.fence().await, Err(Lost::Broken(_))));
    assert_eq!(keeper.release().await, Released::Deleted);
    assert_eq!(twin.cell(|cell| cell.record()), None);
}

#[tokio::test]
async fn a_release_in_which_the_keeper_panicked_goes_on() {
    let twin = Twin::new(timing().request_timeout());
    let keeper = once(&twin, Verb::Delete);
    keeper.claim().await.expect("free");
    assert_eq!(keeper.release().await, Released::AlreadyGone, "by what can still be seen");
    assert_eq!(twin.cell(|cell| cell.record()), None);
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

#[tokio::test]
async fn nobody_has_the_right_to_act_when_the_keeper_has_let_go() {
    let twin = Twin::new(timing().request_timeout());
    let store = twin.clone();
    let mut keeper = keeper(move || Ok(store));
    let mut changes = keeper.changes();
    keeper.claim().await.expect("free");
    keeper.leave();
    while changes.recv().await.is_some() {}
    assert!(matches!(keeper.right().now(), Err(Lost::Broken(_))));
}

fn inherited<S, F>(make_store: F, uid: &str) -> Keeper
where
    S: LeaseStore,
    F: FnOnce() -> Result<S, Failure> + Send + 'static,
{
    use crate::clock::Clock;
    let holder = HolderId::new("alice", "build-01", 48213, 7);
    let request = Request { holder, instance: None, notes: BTreeMap::new() };
    let estate = crate::lock::Estate::Held { uid: uid.to_owned(), renewed_at: clock::System.now() };
    Keeper::inherit(make_store, request, estate, timing(), Arc::new(clock::System))
}

#[tokio::test]
async fn what_another_process_of_the_run_held_is_renewed_and_given_back() {
    let twin = Twin::new(timing().request_timeout());
    let store = twin.clone();
    let before = keeper(move || Ok(store));
    let uid = before.claim().await.expect("free").uid;
    before.leave();
    let store = twin.clone();
    let mut after = inherited(move || Ok(store), &uid);
    let mut changes = after.changes();
    assert!(matches!(changes.recv().await, Some(Change::Renewed { .. })));
    assert_eq!(after.release().await, Released::Deleted);
    assert_eq!(twin.cell(|cell| cell.record()), None);
}

#[tokio::test]
async fn what_is_inherited_without_a_store_is_lost_and_nobody_knows_where_it_is() {
    let mut after = inherited(|| Err::<Twin, _>(failure()), "uid");
    let mut changes = after.changes();
    assert_eq!(changes.recv().await, Some(Change::Lost(Lost::Broken(failure()))));
    assert!(matches!(after.release().await, Released::Unknown { .. }));
}
