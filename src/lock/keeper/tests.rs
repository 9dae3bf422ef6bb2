//! The keeper over the twin, under paused time: hours pass in milliseconds.

use std::time::Duration;

use super::*;
use crate::lock::paused::PausedClock;
use crate::lock::store::Trouble;
use crate::lock::twin::{Fault, Twin, Verb};
use crate::lock::{HolderId, notes};

fn request(suffix: u64) -> Request {
    let holder = HolderId::new("alice", "build-01", 48213, suffix);
    Request { holder, instance: Some("prod".to_owned()), notes: BTreeMap::new() }
}

fn twin() -> Twin {
    Twin::new(Timing::STANDARD.request_timeout())
}

fn unreachable() -> Trouble {
    Trouble::Unsent(Failure::new(Code::ClusterUnreachable, "connection refused"))
}

async fn seconds(seconds: u64) {
    // fact: the clock of these tests stands still but for this; nothing is waited for.
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Runs a keeper beside a test; both have ended when it returns.
async fn play<T>(twin: &Twin, suffix: u64, test: impl AsyncFnOnce(Keeper, Arc<PausedClock>) -> T) -> T {
    let clock = PausedClock::new();
    let shared: Arc<dyn Clock> = Arc::<PausedClock>::clone(&clock);
    let (keeper, driver, ends) = Keeper::parts(request(suffix), Timing::STANDARD, shared);
    let mut driver = driver(ends);
    let ((), result) = tokio::join!(driver.run(twin, Vec::new()), test(keeper, clock));
    result
}

#[tokio::test(start_paused = true)]
async fn a_claim_and_a_release_are_two_requests() {
    let twin = twin();
    play(&twin, 7, async |keeper, _| {
        let claimed = keeper.claim().await.expect("free");
        assert_eq!(claimed.holder, "alice@build-01/48213/0000000000000007");
        assert_eq!(twin.cell(|cell| cell.holder().map(str::to_owned)), Some(claimed.holder));
        assert_eq!(keeper.release().await, Released::Deleted);
        assert_eq!(keeper.release().await, Released::Deleted, "asked again, it says the same");
    })
    .await;
    assert_eq!(twin.log(), [Verb::Create, Verb::Delete]);
}

#[tokio::test(start_paused = true)]
async fn an_hour_is_three_hundred_and_sixty_renewals() {
    let twin = twin();
    play(&twin, 7, async |mut keeper, _| {
        let mut changes = keeper.changes();
        keeper.claim().await.expect("free");
        seconds(3_605).await;
        let renewals = twin.log().iter().filter(|verb| **verb == Verb::Replace).count();
        assert_eq!(renewals, 360);
        assert!(matches!(changes.try_recv(), Ok(Change::Renewed { .. })));
        assert_eq!(keeper.fence().await, Ok(()));
        assert_eq!(keeper.release().await, Released::Deleted);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_held_by_another_is_busy_and_stays_as_it_is() {
    let twin = twin();
    play(&twin, 7, async |first, _| {
        first.claim().await.expect("free");
        let before = twin.cell(|cell| cell.record());
        play(&twin, 8, async |second, _| {
            let Err(ClaimError::Busy(seen)) = second.claim().await else { panic!("it is held") };
            assert_eq!(seen.holder(), Some("alice@build-01/48213/0000000000000007"));
            assert_eq!(second.release().await, Released::NeverTaken);
        })
        .await;
        assert_eq!(twin.cell(|cell| cell.record()), before);
        first.release().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_a_renewal_for_sixty_seconds_the_lock_is_lost_while_a_request_hangs() {
    let twin = twin();
    play(&twin, 7, async |mut keeper, clock| {
        let mut changes = keeper.changes();
        keeper.claim().await.expect("free");
        for _ in 0..100 {
            twin.fault(Verb::Read, Fault::LoseReply);
        }
        let lost = loop {
            match changes.recv().await.expect("it ends with the loss") {
                Change::Lost(lost) => break lost,
                Change::RenewalFailed { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(matches!(lost, Lost::Expired { age, why: Some(_) } if age == Duration::from_secs(60)), "{lost:?}");
        assert_eq!(clock.elapsed(), Duration::from_secs(60), "not at the end of an attempt, but then");
        assert_eq!(keeper.fence().await, Err(lost.clone()));
        let asked = twin.log().len();
        assert_eq!(keeper.release().await, Released::Lost(lost));
        assert_eq!(twin.log().len(), asked, "the Lease is left alone");
    })
    .await;
    assert!(twin.cell(|cell| cell.holder().is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_knows_it_within_a_second() {
    let twin = twin();
    play(&twin, 7, async |mut keeper, clock| {
        let mut changes = keeper.changes();
        keeper.claim().await.expect("free");
        seconds(1).await;
        assert_eq!(keeper.right().now(), Ok(()));
        clock.suspend(300);
        assert!(
            matches!(keeper.right().now(), Err(Lost::Expired { .. })),
            "whoever is about to write is told so first"
        );
        assert!(matches!(keeper.fence().await, Err(Lost::Expired { .. })), "whoever asks at once is told so");
        let before = tokio::time::Instant::now();
        assert!(matches!(changes.recv().await, Some(Change::Lost(Lost::Expired { .. }))));
        assert!(before.elapsed() <= Duration::from_secs(1));
        keeper.release().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_short_sleep_makes_it_ask_at_once() {
    let twin = twin();
    play(&twin, 7, async |keeper, clock| {
        keeper.claim().await.expect("free");
        seconds(1).await;
        clock.suspend(20);
        seconds(2).await;
        assert_eq!(twin.log(), [Verb::Create, Verb::Read, Verb::Replace]);
        keeper.release().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_fence_falls_back_to_the_last_renewal_and_no_further() {
    let twin = twin();
    play(&twin, 7, async |keeper, _| {
        keeper.claim().await.expect("free");
        twin.down(Some(unreachable()));
        seconds(29).await;
        assert_eq!(keeper.fence().await, Ok(()));
        seconds(1).await;
        assert_eq!(keeper.right().now(), Ok(()), "what was begun goes on");
        let Err(Lost::Unsure { age, why: Some(why) }) = keeper.fence().await else { panic!("too old") };
        assert_eq!((age.as_secs(), why.message.as_str()), (30, "connection refused"));
        twin.down(None);
        assert_eq!(keeper.fence().await, Ok(()), "it renews, and may begin again");
        keeper.release().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_reclaimed_or_deleted_is_lost_at_the_next_question() {
    let twin = twin();
    play(&twin, 7, async |mut keeper, _| {
        let mut changes = keeper.changes();
        keeper.claim().await.expect("free");
        twin.cell(|cell| cell.edit(|raw| raw["spec"]["holderIdentity"] = "bob@laptop/1/00000000000000b0".into()));
        let lost = Lost::Taken { by: "bob@laptop/1/00000000000000b0".to_owned() };
        let right = keeper.right();
        assert_eq!(right.now(), Ok(()), "nobody has looked yet");
        let (seen, ()) = tokio::join!(keeper.fence(), right.changed());
        assert_eq!((seen, right.now()), (Err(lost.clone()), Err(lost.clone())));
        assert_eq!(changes.recv().await, Some(Change::Lost(lost)));
        keeper.release().await;
    })
    .await;
    assert_eq!(twin.cell(|cell| cell.holder().map(str::to_owned)).as_deref(), Some("bob@laptop/1/00000000000000b0"));

    let twin = twin;
    twin.cell(crate::lock::twin::Cell::remove);
    play(&twin, 7, async |mut keeper, _| {
        let mut changes = keeper.changes();
        keeper.claim().await.expect("free");
        twin.cell(crate::lock::twin::Cell::remove);
        assert_eq!(changes.recv().await, Some(Change::Lost(Lost::Gone)), "the renewal finds it, and makes no new one");
        keeper.release().await;
    })
    .await;
    assert_eq!(twin.cell(|cell| cell.record()), None);
}

#[tokio::test(start_paused = true)]
async fn notes_reach_the_lease_at_once() {
    let twin = twin();
    play(&twin, 7, async |mut keeper, _| {
        let mut changes = keeper.changes();
        keeper.claim().await.expect("free");
        keeper.note(BTreeMap::from([(notes::STEP.to_owned(), Some("Apply infrastructure".to_owned()))]));
        assert!(matches!(changes.recv().await, Some(Change::Renewed { .. })));
        let record = twin.cell(|cell| cell.record()).expect("it is there");
        assert_eq!(record.note(notes::STEP), Some("Apply infrastructure"));
        keeper.release().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_given_up_in_the_middle_is_looked_for_before_the_verdict() {
    let twin = twin();
    play(&twin, 7, async |keeper, clock| {
        twin.fault(Verb::Create, Fault::Late(Duration::from_secs(9)));
        let impatient = tokio::time::timeout(Duration::from_secs(1), keeper.claim()).await;
        assert!(impatient.is_err());
        assert_eq!(keeper.release().await, Released::Deleted, "it landed, and was found");
        assert_eq!(clock.elapsed(), Duration::from_secs(10));
    })
    .await;
    assert_eq!(twin.cell(|cell| cell.record()), None);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_can_settle_is_said_with_its_identity() {
    let twin = twin();
    play(&twin, 7, async |keeper, _| {
        twin.down(Some(Trouble::Unclear(Failure::new(Code::ClusterUnreachable, "time-out"))));
        let error = keeper.claim().await.expect_err("no answer");
        assert!(matches!(&error, ClaimError::Unsettled { holder, .. } if holder.ends_with("0007")), "{error:?}");
        let Released::Unknown { holder, .. } = keeper.release().await else { panic!("nobody knows") };
        assert_eq!(holder, "alice@build-01/48213/0000000000000007");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_keeps_to_its_budget() {
    let twin = twin();
    play(&twin, 7, async |keeper, clock| {
        keeper.claim().await.expect("free");
        for verb in [Verb::Delete, Verb::Read] {
            for _ in 0..100 {
                twin.fault(verb, Fault::LoseRequest);
            }
        }
        assert!(matches!(keeper.release().await, Released::Unknown { .. }));
        assert!(clock.elapsed() <= Duration::from_secs(30), "{:?}", clock.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_without_the_one_who_asked_for_it() {
    let twin = twin();
    play(&twin, 7, async |keeper, _| {
        keeper.claim().await.expect("free");
        twin.fault(Verb::Delete, Fault::Answer(unreachable()));
        let impatient = tokio::time::timeout(Duration::from_millis(1), keeper.release()).await;
        assert!(impatient.is_err());
        drop(keeper);
    })
    .await;
    assert_eq!(twin.cell(|cell| cell.record()), None, "it was given back all the same");
}

#[tokio::test(start_paused = true)]
async fn leaving_and_letting_go_leave_the_lease_as_it_is() {
    let twin = twin();
    play(&twin, 7, async |keeper, _| {
        keeper.claim().await.expect("free");
        keeper.leave();
        assert!(matches!(keeper.release().await, Released::Left(_)));
    })
    .await;
    assert!(twin.cell(|cell| cell.holder().is_some()));

    let twin = self::twin();
    play(&twin, 7, async |keeper, _| {
        keeper.claim().await.expect("free");
        drop(keeper);
    })
    .await;
    assert_eq!(twin.log(), [Verb::Create]);
}
