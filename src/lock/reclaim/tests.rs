//! Reclaiming over the twin, under paused time, with a person who does what the test says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;
use crate::lock::HolderId;
use crate::lock::paused::PausedClock;
use crate::lock::protocol::Released;
use crate::lock::twin::{Fault, Twin, Verb};

const HOLDER: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// What the person did, and what they saw.
struct Puppet {
    acts: UnboundedReceiver<Act>,
    seen: UnboundedSender<Seen>,
}

#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Holder(String),
    Progress(Progress),
}

impl Person for Puppet {
    async fn next(&mut self) -> Act {
        match self.acts.recv().await {
            Some(act) => act,
            None => std::future::pending().await,
        }
    }

    fn show(&mut self, seen: &Observation) {
        let _ = self.seen.send(Seen::Holder(seen.holder().unwrap_or_default().to_owned()));
    }

    fn tell(&mut self, progress: &Progress) {
        let _ = self.seen.send(Seen::Progress(progress.clone()));
    }
}

/// The test's end of the puppet.
struct Strings {
    acts: UnboundedSender<Act>,
    seen: UnboundedReceiver<Seen>,
    clock: Arc<PausedClock>,
}

impl Strings {
    fn act(&self, act: Act) {
        self.acts.send(act).expect("the reclaim goes on");
    }

    /// Waits until they see that.
    async fn sees(&mut self, wanted: impl Fn(&Seen) -> bool) {
        while let Some(seen) = self.seen.recv().await {
            if wanted(&seen) {
                return;
            }
        }
        panic!("it has ended");
    }

    /// Types the holder once it is shown, and waits until the check goes on.
    async fn begins_the_check(&mut self) {
        self.sees(|seen| *seen == Seen::Holder(HOLDER.to_owned())).await;
        self.act(Act::Typed(HOLDER.to_owned()));
        self.sees(|seen| matches!(seen, Seen::Progress(Progress::Checking(_)))).await;
    }
}

fn held() -> Twin {
    let twin = Twin::new(Timing::STANDARD.request_timeout());
    let spec = json!({ "holderIdentity": HOLDER, "leaseDurationSeconds": 60, "leaseTransitions": 2 });
    twin.cell(|cell| drop(cell.put(json!({ "spec": spec }))));
    twin
}

/// One reclaim beside a test. Answers the end, and how long it took.
async fn play(twin: &Twin, test: impl AsyncFnOnce(Strings)) -> (End, Duration) {
    let ((acts, their_acts), (their_seen, seen)) = (unbounded_channel(), unbounded_channel());
    let clock = PausedClock::new();
    let strings = Strings { acts, seen, clock: Arc::<PausedClock>::clone(&clock) };
    let mut puppet = Puppet { acts: their_acts, seen: their_seen };
    let holder = HolderId::new("bob", "laptop", 9912, 0x3a7f);
    let request = Request { holder, instance: None, notes: BTreeMap::new() };
    let reclaiming = reclaim(twin, request, Timing::STANDARD, &*clock, &mut puppet);
    let (end, ()) = tokio::join!(reclaiming, test(strings));
    (end, clock.elapsed())
}

fn holder(twin: &Twin) -> Option<String> {
    twin.cell(|cell| cell.holder().map(str::to_owned))
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_run_is_gone_is_free_after_one_window() {
    let twin = held();
    let (end, took) = play(&twin, async |mut strings| {
        strings.begins_the_check().await;
        strings.sees(|seen| *seen == Seen::Progress(Progress::Taking)).await;
    })
    .await;
    assert_eq!((end, holder(&twin)), (End::Reclaimed(Released::Deleted), None));
    assert!((65..67).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_in_the_window_is_noticed_within_seconds() {
    let twin = held();
    let (end, took) = play(&twin, async |mut strings| {
        strings.begins_the_check().await;
        twin.cell(|cell| cell.edit(|raw| raw["spec"]["renewTime"] = json!("2026-11-30T00:59:00.000000Z")));
    })
    .await;
    assert!(matches!(end, End::Refused(Changed::Renewed(_))), "{end:?}");
    assert_eq!(holder(&twin).as_deref(), Some(HOLDER));
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_machine_was_suspended_counts() {
    let twin = held();
    let (end, took) = play(&twin, async |mut strings| {
        strings.begins_the_check().await;
        strings.clock.suspend(3_600);
    })
    .await;
    assert_eq!(end, End::Reclaimed(Released::Deleted));
    assert!(took < Duration::from_secs(3_603), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_the_waiting_at_once_and_changes_nothing() {
    let twin = held();
    let (end, took) = play(&twin, async |mut strings| {
        strings.begins_the_check().await;
        strings.act(Act::Interrupted);
    })
    .await;
    assert_eq!((end, took), (End::Interrupted, Duration::ZERO));
    assert!(twin.log().iter().all(|verb| *verb == Verb::Read), "{:?}", twin.log());
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_during_the_take_waits_until_the_lock_is_given_back() {
    let twin = held();
    twin.fault(Verb::Replace, Fault::SlowReply(Duration::from_secs(3)));
    let (end, _) = play(&twin, async |mut strings| {
        strings.begins_the_check().await;
        strings.sees(|seen| *seen == Seen::Progress(Progress::Taking)).await;
        strings.act(Act::Interrupted);
        strings.sees(|seen| *seen == Seen::Progress(Progress::Finishing)).await;
    })
    .await;
    assert_eq!((end, holder(&twin)), (End::Reclaimed(Released::Deleted), None));
}

#[tokio::test(start_paused = true)]
async fn a_take_whose_answer_is_lost_is_found_to_be_ours() {
    let twin = held();
    twin.fault(Verb::Replace, Fault::LoseReply);
    let (end, _) = play(&twin, async |mut strings| {
        strings.begins_the_check().await;
        strings.sees(|seen| *seen == Seen::Progress(Progress::Unanswered)).await;
    })
    .await;
    assert_eq!((end, holder(&twin)), (End::Reclaimed(Released::Deleted), None));
    assert_eq!(twin.log().iter().filter(|verb| **verb == Verb::Replace).count(), 1);
}
