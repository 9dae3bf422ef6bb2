//! The cluster's lock: claimed, renewed, found busy, lost, given back.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::Level;
use crate::event::text::span;

/// The lock is this run's. It is renewed until `lock.released`, `lock.left` or `lock.lost`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockClaimed {
    /// Our identity in the Lease.
    pub holder: String,
    /// The Lease, `namespace/name`.
    pub lease: String,
    /// The uid of that Lease.
    #[serde(default)]
    pub uid: String,
    /// How long asking for it took, in milliseconds.
    pub waited_ms: u64,
}

impl Fact for LockClaimed {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("the lock of this cluster (Lease {}) is held by this run, {}", self.lease, self.holder)
    }
}

/// A claim, or giving the lock back, has to wait for a definite answer. Told at once and every 15 seconds; what it comes
/// to is told by the events of the lock and, where nothing settles it, by the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockWaiting {
    /// Which of the two.
    pub act: LockAct,
    /// What it waits for.
    pub why: String,
    /// How long it has taken so far, in milliseconds.
    pub waited_ms: u64,
}

/// What a run may have to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockAct {
    /// To have the lock.
    Claim,
    /// To give it back, and to make sure that nothing of this run is in the Lease.
    Release,
}

impl Fact for LockWaiting {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        let what = match self.act {
            LockAct::Claim => "the claim of the lock is not settled yet",
            LockAct::Release => "where the lock is cannot be said yet",
        };
        format!("{what}, after {}: {}", span(self.waited_ms), self.why)
    }
}

/// The lock was renewed. Level `debug`: it happens every ten seconds. Level `info` when it could not be for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockRenewed {
    /// How long that took, in milliseconds.
    pub took_ms: u64,
    /// How long after the renewal before it that was, in milliseconds, if tries in between had failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<u64>,
}

impl Fact for LockRenewed {
    fn level(&self) -> Level {
        if self.gap_ms.is_some() { Level::Info } else { Level::Debug }
    }

    fn message(&self) -> String {
        match self.gap_ms {
            None => format!("the lock was renewed in {}", span(self.took_ms)),
            Some(gap) => format!("the lock is renewed again, after {} without a renewal", span(gap)),
        }
    }
}

/// One try to renew the lock failed. The next one follows soon; if none succeeds in time, `lock.lost`. Level `warn` for
/// the first of them, `debug` for those after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockRenewalFailed {
    /// Why.
    pub why: String,
    /// For how long the lock is still surely ours, in milliseconds.
    pub valid_for_ms: u64,
    /// How many tries have failed since the last renewal, this one included.
    #[serde(default = "one")]
    pub tries: u64,
}

/// The tries of a line that was written before they were counted.
fn one() -> u64 {
    1
}

impl Fact for LockRenewalFailed {
    fn level(&self) -> Level {
        if self.tries > 1 { Level::Debug } else { Level::Warn }
    }

    fn message(&self) -> String {
        format!("the lock could not be renewed ({}); it is ours for another {}", self.why, span(self.valid_for_ms))
    }
}

/// Another run holds the lock. A run that waits for it tells this at once, every minute, and when the holder changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockBlocked {
    /// Who holds it.
    pub holder: String,
    /// The instance that the holder works on, if it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// How long ago it was renewed, by this machine's clock against the holder's, in milliseconds; missing when the Lease
    /// does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// By this machine's clock it looks stale.
    pub stale: bool,
    /// The whole message, with what to do.
    pub text: String,
    /// Where a person sees the holder's job, if it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_url: Option<String>,
    /// What this run does about it.
    pub manner: BusyManner,
    /// How long this run has waited for it so far, in milliseconds, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
}

/// What a run does about a busy lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BusyManner {
    /// It ends.
    Refuses,
    /// It goes on without the lock, as the command allows.
    Continues,
    /// It waits for the lock.
    Waits,
}

impl Fact for LockBlocked {
    fn level(&self) -> Level {
        match self.manner {
            BusyManner::Refuses => Level::Error,
            BusyManner::Continues | BusyManner::Waits => Level::Warn,
        }
    }

    fn message(&self) -> String {
        self.text.clone()
    }
}

/// The lock is no longer this run's. The step at work is asked to stop at once, gracefully, and no other begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockLost {
    /// Who held it when it was last seen; missing when nobody did. It is this run itself when the lock was lost because
    /// nothing could be renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The whole message: what is being stopped, and why.
    pub text: String,
}

impl Fact for LockLost {
    fn level(&self) -> Level {
        Level::Error
    }

    fn message(&self) -> String {
        self.text.clone()
    }
}

/// The lock is about to be given back, and what a claim without an answer may have left with it: from here on, a Lease
/// that is not there was given back by this run. Level `debug`: it is told so that it is in the journal before it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockReleasing {
    /// Our identity in the Lease.
    pub holder: String,
}

impl Fact for LockReleasing {
    fn level(&self) -> Level {
        Level::Debug
    }

    fn message(&self) -> String {
        format!("the lock of {} is being given back", self.holder)
    }
}

/// The lock was given back. The next run finds the cluster free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockReleased {
    /// How.
    pub manner: ReleaseManner,
    /// Why not in the usual way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

/// How a lock was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReleaseManner {
    /// The Lease was deleted.
    Deleted,
    /// The Lease stays, with an empty holder.
    Emptied,
    /// The Lease was gone when we came to delete it.
    AlreadyGone,
}

impl Fact for LockReleased {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        let said = match self.manner {
            ReleaseManner::Deleted => "the lock was released",
            ReleaseManner::Emptied => "the lock was released by emptying its holder",
            ReleaseManner::AlreadyGone => "the lock was gone already",
        };
        self.why.as_ref().map_or_else(|| said.to_owned(), |why| format!("{said}: {why}"))
    }
}

/// The lock stays behind. A person has to reclaim it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockLeft {
    /// The identity that it bears.
    pub holder: String,
    /// Why it was not released.
    pub why: String,
}

impl Fact for LockLeft {
    fn level(&self) -> Level {
        Level::Error
    }

    fn message(&self) -> String {
        format!("the lock was left behind, held by {}: {}", self.holder, self.why)
    }
}

/// What a dry run saw: who holds the lock, or nobody. A dry run takes no lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LockObserved {
    /// Who holds it; missing when nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The instance that the holder works on, if it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// How long ago it was renewed, by this machine's clock against the holder's, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// By this machine's clock it looks stale.
    pub stale: bool,
    /// The whole message that a real run would have met; missing when nobody holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Fact for LockObserved {
    fn level(&self) -> Level {
        if self.holder.is_some() { Level::Warn } else { Level::Info }
    }

    fn message(&self) -> String {
        match (&self.text, &self.holder) {
            (Some(text), _) => text.clone(),
            (None, Some(holder)) => format!("the lock of this cluster is held by {holder}"),
            (None, None) => "nobody holds the lock of this cluster".to_owned(),
        }
    }
}
