//! The one stop request, as everything that works can see it.
//!
//! Signals, the front's word and the front's death all become one request: the first starts the clock, more of them
//! change nothing, and only force is stronger. The channel remembers the request, so a tool that starts a moment
//! later still sees it.

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock::Instant;

/// Whether the supervisor itself was signalled. Then the tools may have been signalled by the same hand, so their
/// own report of it is waited for a little longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directly {
    /// A signal reached the supervisor itself.
    Yes,
    /// The front, or a person through the run's socket, passed the request on.
    No,
}

/// What was asked of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nothing: go on.
    None,
    /// Stop gracefully.
    Graceful {
        /// When the first request came. The budget counts from here.
        since: Instant,
        /// How it came.
        directly: Directly,
    },
    /// End at once.
    Force {
        /// When force was asked for.
        since: Instant,
    },
}

/// Makes the channel of one run: the end that asks and the end that sees.
pub fn stop_channel() -> (Stopper, StopWatch) {
    let (sender, receiver) = watch::channel(Stop::None);
    (Stopper { sender }, StopWatch { receiver })
}

/// The end that asks.
#[derive(Debug)]
pub struct Stopper {
    sender: watch::Sender<Stop>,
}

impl Stopper {
    /// Asks for a graceful stop. Only the first request starts the clock; a later one that reached the supervisor itself
    /// is remembered as that. Says whether anything changed.
    pub fn graceful(&self, since: Instant, directly: Directly) -> bool {
        self.sender.send_if_modified(|stop| match stop {
            Stop::None => {
                *stop = Stop::Graceful { since, directly };
                true
            }
            Stop::Graceful { directly: known @ Directly::No, .. } if directly == Directly::Yes => {
                *known = directly;
                true
            }
            Stop::Graceful { .. } | Stop::Force { .. } => false,
        })
    }

    /// Asks to end at once. Says whether that is new.
    pub fn force(&self, since: Instant) -> bool {
        self.sender.send_if_modified(|stop| match stop {
            Stop::None | Stop::Graceful { .. } => {
                *stop = Stop::Force { since };
                true
            }
            Stop::Force { .. } => false,
        })
    }

    /// What has been asked so far.
    pub fn now(&self) -> Stop {
        *self.sender.borrow()
    }
}

/// The end that sees: a step's stop token.
#[derive(Debug, Clone)]
pub struct StopWatch {
    receiver: watch::Receiver<Stop>,
}

impl StopWatch {
    /// What has been asked so far.
    pub fn now(&self) -> Stop {
        *self.receiver.borrow()
    }

    /// Whether a stop of any kind was asked for.
    pub fn is_asked(&self) -> bool {
        self.now() != Stop::None
    }

    /// Waits for the next change. Never ends when nobody can ask any more. Safe to drop at any point.
    pub async fn changed(&mut self) -> Stop {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.receiver.borrow_and_update()
    }

    /// Waits until a stop of any kind is asked for.
    pub async fn asked(&mut self) -> Stop {
        loop {
            let stop = *self.receiver.borrow_and_update();
            if stop != Stop::None {
                return stop;
            }
            self.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Instant {
        Instant::since_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn only_the_first_request_starts_the_clock() {
        let (stopper, watch) = stop_channel();
        assert!(!watch.is_asked());
        assert!(stopper.graceful(at(1), Directly::No));
        for second in 2..22 {
            assert!(!stopper.graceful(at(second), Directly::No));
        }
        assert_eq!(watch.now(), Stop::Graceful { since: at(1), directly: Directly::No });
        assert!(stopper.graceful(at(30), Directly::Yes));
        assert!(!stopper.graceful(at(31), Directly::Yes));
        assert_eq!(watch.now(), Stop::Graceful { since: at(1), directly: Directly::Yes });
    }

    #[test]
    fn force_is_stronger_and_final() {
        let (stopper, watch) = stop_channel();
        assert!(stopper.graceful(at(1), Directly::No));
        assert!(stopper.force(at(2)));
        assert!(!stopper.force(at(3)));
        assert!(!stopper.graceful(at(4), Directly::No));
        assert_eq!(watch.now(), Stop::Force { since: at(2) });
    }

    #[tokio::test]
    async fn a_request_made_before_anybody_looked_is_seen() {
        let (stopper, mut watch) = stop_channel();
        stopper.force(at(1));
        assert_eq!(watch.asked().await, Stop::Force { since: at(1) });
    }
}
