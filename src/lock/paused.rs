//! The clock of tests under tokio's paused time: hours pass in milliseconds, and a machine can be suspended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Clock, Instant};

/// tokio's paused time, and the time that the machine was suspended, which tokio does not see.
#[derive(Debug)]
pub(crate) struct PausedClock {
    start: tokio::time::Instant,
    suspended: AtomicU64,
}

impl PausedClock {
    pub(crate) fn new() -> Arc<PausedClock> {
        Arc::new(PausedClock { start: tokio::time::Instant::now(), suspended: AtomicU64::new(0) })
    }

    pub(crate) fn suspend(&self, seconds: u64) {
        self.suspended.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed() + Duration::from_secs(self.suspended.load(Ordering::Relaxed))
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Instant {
        Instant::since_boot(Duration::from_secs(1_000) + self.elapsed())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_second(1_796_000_000).expect("a time") + self.elapsed()
    }
}
