//! What is known of the right to act, for whoever is about to write: nobody is asked, and nothing is waited for.
//!
//! It is the keeper's own knowledge, not what a run has made of it since: from the moment at which the keeper's thread
//! knows that the lock is lost, or at which the clock says so, no [`Right`] says otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::lock::driver::Known;
use crate::lock::fence::Standing;
use crate::lock::keeper::broken;
use crate::lock::protocol::Lost;
use crate::lock::timing::Timing;

/// The right to act of one run, at any moment. Clones are the same right.
#[derive(Debug, Clone)]
pub struct Right {
    known: watch::Receiver<Known>,
    timing: Timing,
    clock: Arc<dyn Clock>,
}

impl Right {
    pub(crate) fn new(known: watch::Receiver<Known>, timing: Timing, clock: Arc<dyn Clock>) -> Right {
        Right { known, timing, clock }
    }

    /// Whether what was begun may go on. A fence that is only weak is enough for that; a new step asks the
    /// [`Keeper`](crate::lock::Keeper).
    ///
    /// # Errors
    /// How the right was lost, or why there is none.
    pub fn now(&self) -> Result<(), Lost> {
        match self.standing()? {
            (Standing::Firm | Standing::Weak, _) => Ok(()),
            (Standing::Fallen, age) => Err(Lost::Expired { age, why: None }),
        }
    }

    /// Ends when [`Right::now`] may say something else than when this was polled first. That the time is up is said by
    /// `now` alone, at once, and here within the second in which the keeper notices. Safe to drop at any point.
    pub async fn changed(&self) {
        let mut known = self.known.clone();
        known.mark_unchanged();
        if known.changed().await.is_err() {
            // The keeper has ended, and no news will come: only `now` has something to say.
            std::future::pending::<()>().await;
        }
    }

    /// How firm the fence stands, and how long ago the last good renewal was sent.
    pub(crate) fn standing(&self) -> Result<(Standing, Duration), Lost> {
        // Nobody renews any more, and nobody would notice a loss.
        let ended = self.known.has_changed().is_err();
        let Known { fence, no_right, .. } = self.known.borrow().clone();
        match fence.filter(|_| !ended) {
            Some(fence) => {
                let now = self.clock.now();
                Ok((fence.standing(self.timing, now), fence.age(now)))
            }
            None => Err(no_right.unwrap_or_else(|| Lost::Broken(broken()))),
        }
    }
}
