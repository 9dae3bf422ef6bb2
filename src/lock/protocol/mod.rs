//! What to do next, given what was seen and when. Nothing here waits, sends, or reads a clock.
//!
//! | machine | asks | ends as |
//! |---|---|---|
//! | [`claim`] | create; on an existing Lease read; a free one is taken by replace | won, or a [`ClaimError`] |
//! | [`renewal`] | read, check that it is ours, replace; a check alone only reads | renewed, lost, or failed |
//! | [`release`] | delete; settle what is in doubt; look whether a claim landed late | [`Released`] |
//! | [`reclaim`] | read, watch unchanged, replace, give back: what a person does | [`End`](reclaim::End) |
//! | [`follow`] | read, then watch from there | [`Sight`](follow::Sight), one after the other |
//! | [`holding`] | renewals and checks at their time | lost, or a release |
//! | [`life`] | all of them in their order, with the deadline of the fence | |
//!
//! Each machine is asked what to do first, is then given one [`Answer`] for each [`Ask`], and says what to do next. At
//! most one request is under way at any time.
//!
//! # Answers that are not answers
//! A request that timed out, or was answered by nothing that the API server itself says, may have been done or not.
//! Only a read tells. A claim has no precondition and can land long after its sender gave up, so the [`Ledger`] keeps
//! every claim in doubt until a look that came late enough found nothing of ours.

pub mod claim;
pub mod follow;
pub(crate) mod holding;
pub(crate) mod life;
pub mod reclaim;
pub mod release;
pub(crate) mod renewal;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod script;

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::clock::{Clock, Instant};
use crate::failure::Failure;
use crate::lock::record::{Record, Wish};
use crate::lock::store::{Created, Deleted, Replaced, Trouble};
use crate::lock::timing::Timing;

pub use claim::{ClaimError, Claimed};
pub use release::Released;
pub use renewal::Lost;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// For decisions.
    pub(crate) boot: Instant,
    /// For what is written into the Lease.
    pub(crate) wall: Timestamp,
}

impl Now {
    pub(crate) fn read(clock: &dyn Clock) -> Now {
        Now { boot: clock.now(), wall: clock.wall() }
    }
}

/// One request to the store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ask {
    Create(Value),
    CreateNamespace,
    Read,
    Replace(Record),
    Delete { uid: String, version: String },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Created(Result<Created, Trouble>),
    NamespaceCreated(Result<(), Trouble>),
    Read(Result<Option<Record>, Trouble>),
    Replaced(Result<Replaced, Trouble>),
    Deleted(Result<Deleted, Trouble>),
}

impl Answer {
    /// Why it is no definite answer, if it is none.
    pub(crate) fn silence(&self) -> Option<&Failure> {
        let trouble = match self {
            Answer::Created(answer) => answer.as_ref().err(),
            Answer::NamespaceCreated(answer) => answer.as_ref().err(),
            Answer::Read(answer) => answer.as_ref().err(),
            Answer::Replaced(answer) => answer.as_ref().err(),
            Answer::Deleted(answer) => answer.as_ref().err(),
        };
        match trouble? {
            Trouble::Unsent(failure) | Trouble::Unclear(failure) => Some(failure),
            Trouble::Forbidden(_) | Trouble::NamespaceTerminating(_) | Trouble::Refused(_) => None,
        }
    }
}

/// A write of ours that carries our identity: its stamp, which is the `renewTime` in it and no other write's, and when
/// it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) stamp: Timestamp,
    pub(crate) at: Instant,
}

impl Sent {
    /// Whether this is the write that made the record what it is.
    pub(crate) fn made(&self, record: &Record) -> bool {
        record.renewed_at() == Some(self.stamp)
    }
}

/// What this run has sent that it must not forget.
#[derive(Debug, Default, Clone)]
pub(crate) struct Ledger {
    last_stamp: Option<Timestamp>,
    in_doubt: Vec<Sent>,
    /// A Lease that bears our identity, though no claim has come through (yet). It has to be given back like any other.
    pub(crate) landed: Option<Record>,
}

impl Ledger {
    /// A stamp for a write that is sent now. No two are the same, even when the wall clock stands still or goes back.
    pub(crate) fn sending(&mut self, now: Now) -> Sent {
        let micros = now.wall.as_microsecond();
        let after_the_last = self.last_stamp.map_or(micros, |last| micros.max(last.as_microsecond() + 1));
        let stamp = Timestamp::from_microsecond(after_the_last).unwrap_or(now.wall);
        self.last_stamp = Some(stamp);
        Sent { stamp, at: now.boot }
    }

    /// A claim got no definite answer.
    pub(crate) fn doubt(&mut self, sent: Sent) {
        self.in_doubt.push(sent);
    }

    /// The claim in doubt that made the record what it is.
    pub(crate) fn doubtful(&self, record: &Record) -> Option<Sent> {
        self.in_doubt.iter().find(|sent| sent.made(record)).copied()
    }

    /// The record is ours. The claim that it shows is not in doubt any more.
    pub(crate) fn landed(&mut self, record: &Record) {
        self.in_doubt.retain(|sent| !sent.made(record));
        self.landed = Some(record.clone());
    }

    /// A look that came late enough found what there was to find.
    pub(crate) fn settle(&mut self) {
        self.in_doubt.clear();
    }

    /// When to look again. None: nothing is in doubt.
    pub(crate) fn look_at(&self, timing: Timing) -> Option<Instant> {
        self.in_doubt.iter().map(|sent| sent.at + timing.look_again_after()).max()
    }
}

/// What all machines of one run share.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) wish: Wish,
    pub(crate) timing: Timing,
    pub(crate) ledger: Ledger,
}

impl Book {
    /// Whether the record bears this run's identity.
    pub(crate) fn is_ours(&self, record: &Record) -> bool {
        record.holder().is_some_and(|holder| self.wish.holder.is(holder))
    }
}

/// Waits of 1, 2, 4, 4 … s between attempts of one kind.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// One more failure: how long to wait now.
    pub(crate) fn failed(&mut self, timing: Timing) -> Duration {
        self.failures = self.failures.saturating_add(1);
        timing.retry_after(self.failures)
    }

    /// How many failures there were.
    pub(crate) fn failures(self) -> u32 {
        self.failures
    }
}
