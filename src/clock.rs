//! The only reader of the clocks.
//!
//! Two clocks, for two purposes. [`Clock::now`] is for decisions: it is monotonic and **counts the time that the
//! machine was suspended** (`CLOCK_BOOTTIME`), so a holder that slept knows that its lease has run out. Rust's own
//! `Instant` and tokio's timers stand still in suspend. [`Clock::wall`] is for people: it goes into events and into
//! the Lease, and no decision of the lock ever compares it with another machine's.

use std::fmt::Debug;
use std::ops::{Add, Sub};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A moment on the suspend-aware monotonic clock of this machine, the same for every process on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Instant(Duration);

impl Instant {
    /// The moment at which this much time had passed since the machine started.
    pub const fn since_boot(elapsed: Duration) -> Instant {
        Instant(elapsed)
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, later: Duration) -> Instant {
        Instant(self.0.saturating_add(later))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, earlier: Duration) -> Instant {
        Instant(self.0.saturating_sub(earlier))
    }
}

/// Tells the time. [`System`] in the program, a clock that a test moves by hand in tests.
pub trait Clock: Debug + Send + Sync {
    /// Now, for decisions.
    fn now(&self) -> Instant;
    /// Now, for people.
    fn wall(&self) -> Timestamp;
}

/// The clocks of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Clock for System {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
    fn now(&self) -> Instant {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Instant(Duration::new(seconds, nanos))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The clocks of a machine that is said to have been suspended: the one for decisions is ahead by as many seconds as a
/// file says, none while there is no such file. For tests of the program, and in no release.
#[cfg(feature = "test-tools")]
#[derive(Debug)]
pub struct Suspended {
    file: std::path::PathBuf,
}

#[cfg(feature = "test-tools")]
impl Suspended {
    /// The machine was suspended for as long as this file says.
    pub fn by(file: std::path::PathBuf) -> Suspended {
        Suspended { file }
    }
}

#[cfg(feature = "test-tools")]
impl Clock for Suspended {
    fn now(&self) -> Instant {
        let said = std::fs::read_to_string(&self.file).ok();
        System.now() + Duration::from_secs(said.and_then(|said| said.trim().parse().ok()).unwrap_or(0))
    }

    fn wall(&self) -> Timestamp {
        System.wall()
    }
}

/// A time as events and the Lease carry it: RFC 3339, UTC, exactly six fractional digits.
pub fn rfc3339(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// A duration as people read it: `4s`, `6m12s`, `1h2m`.
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_like_speech() {
        let said = [4, 60, 372, 3720].map(|seconds| human(Duration::from_secs(seconds)));
        assert_eq!(said, ["4s", "1m0s", "6m12s", "1h2m"]);
    }

    #[test]
    fn times_have_six_digits() {
        let time = Timestamp::from_microsecond(1_796_000_000_100_000).expect("a valid time");
        assert_eq!(rfc3339(time), "2026-11-30T00:53:20.100000Z");
    }
}
