//! The right to act, and when it ends.
//!
//! A [`Fence`] comes from a claim or a renewal that is known to have succeeded. Its deadline counts from **before that
//! request was sent**, on a clock that counts the time a machine was suspended. The reply may be late: counted from
//! the reply, a fence could outlive the lease that a person has, rightly, already reclaimed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Instant;
use crate::lock::timing::Timing;

/// The right to act on the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// How many times the lock had changed hands when we got it.
    pub epoch: i32,
    /// When the last request that is known to have renewed it was sent.
    pub renewed_at: Instant,
}

/// How firm a fence stands at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Act.
    Firm,
    /// Finish what goes on; start nothing new.
    Weak,
    /// The lock counts as lost, whatever the API server may say later.
    Fallen,
}

impl Fence {
    /// Extends the fence by a renewal that was sent then. A reply that comes late never shortens it.
    pub(crate) fn extend(&mut self, sent: Instant) {
        self.renewed_at = self.renewed_at.max(sent);
    }

    /// How long ago the last good renewal was sent.
    pub fn age(&self, now: Instant) -> Duration {
        now.since(self.renewed_at)
    }

    /// How firm it stands now.
    pub fn standing(&self, timing: Timing, now: Instant) -> Standing {
        let age = self.age(now);
        if age >= timing.lost_after() {
            Standing::Fallen
        } else if age >= timing.no_new_step_after() {
            Standing::Weak
        } else {
            Standing::Firm
        }
    }

    /// When it falls unless it is renewed.
    pub fn deadline(&self, timing: Timing) -> Instant {
        self.renewed_at + timing.lost_after()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::since_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn a_fence_is_firm_then_weak_then_fallen() {
        use Standing::{Fallen, Firm, Weak};
        let fence = Fence { epoch: 0, renewed_at: at(100) };
        let said = [100, 129, 130, 159, 160, 9_999].map(|now| fence.standing(Timing::STANDARD, at(now)));
        assert_eq!(said, [Firm, Firm, Weak, Weak, Fallen, Fallen]);
        assert_eq!(fence.deadline(Timing::STANDARD), at(160));
    }

    #[test]
    fn a_late_reply_never_shortens_a_fence() {
        let mut fence = Fence { epoch: 0, renewed_at: at(100) };
        fence.extend(at(90));
        assert_eq!(fence.renewed_at, at(100));
        fence.extend(at(110));
        assert_eq!(fence.renewed_at, at(110));
    }
}
