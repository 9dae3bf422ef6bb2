//! What the keeper tells while a run goes on.

use std::time::Duration;

use crate::clock::Instant;
use crate::failure::Failure;
use crate::lock::protocol::Lost;

/// Something happened to the lock. [`Change::Lost`] comes at most once, and then nothing but the release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A claim or a release has to wait for a definite answer. It is told each time that it begins to wait anew.
    Waiting {
        /// Which of them.
        act: Act,
        /// What for.
        why: Waits,
    },
    /// A renewal is known to have succeeded.
    Renewed {
        /// The Lease that it renewed.
        uid: String,
        /// When it was sent. The lock counts as lost one validity after that.
        sent_at: Instant,
        /// How long after the one before it that was, if tries in between had failed.
        gap: Option<Duration>,
    },
    /// An attempt to renew, or to ask whether the lock is still ours, failed. It is tried again.
    RenewalFailed {
        /// Why.
        failure: Failure,
        /// How long ago the last good renewal was sent.
        age: Duration,
        /// How many tries have failed since then, this one included.
        tries: u32,
        /// When the latest write was sent that got no answer, and may have renewed for all that.
        in_doubt: Option<Instant>,
    },
    /// The lock is lost: stop at once, gracefully, and write nothing more.
    Lost(Lost),
    /// The last renewal has ended, and the Lease is being given back now.
    Releasing {
        /// The Lease. From here on, a Lease that is not there was released.
        uid: String,
    },
}

/// What a run asks of its lock, and may have to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// To have it.
    Claim,
    /// To give it back, and to settle what is in doubt.
    Release,
}

/// What a claim or a release waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// A request had no definite answer. The API server is asked again.
    NoAnswer(Failure),
    /// A claim that had no answer may still arrive. It is looked for then, once.
    LateClaim {
        /// When.
        look_at: Instant,
    },
}
