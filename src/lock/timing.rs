//! How long everything about the lock takes, and why these numbers fit together.
//!
//! A [`Timing`] can only be made by [`Timing::new`], which refuses numbers that would break the promise: a holder must
//! stop counting on its lock before anyone may rightly take it from there, and must have had several chances to renew
//! before that. The standard numbers are [`Timing::STANDARD`]; tests scale them.

use std::time::Duration;

/// The numbers, before they are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// How long a Lease counts after its last renewal, as written into it. Whole seconds; a part is rounded up.
    pub validity: Duration,
    /// From one renewal to the next.
    pub renew_every: Duration,
    /// The longest that one request to the API server may take.
    pub request_timeout: Duration,
    /// After the first, second and any later failure within one renewal period: how long until the next attempt.
    pub retry_after: [Duration; 3],
    /// From this long after the last good renewal on, no new step starts.
    pub no_new_step_after: Duration,
    /// This long after the last good renewal the lock counts as lost.
    pub lost_after: Duration,
    /// The longest that giving the lock back may take, the last renewal's answer included.
    pub release_budget: Duration,
    /// How long after a claim without a definite answer one looks whether it landed late.
    pub look_again_after: Duration,
    /// How often the suspend-aware clock is read while nothing else happens.
    pub poll_clock_every: Duration,
    /// The longest that making the client may take (credential plugins run then).
    pub prepare_timeout: Duration,
}

/// Checked [`Numbers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing(Numbers);

/// Numbers that do not fit together, and which rule they break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this timing of the lock is not safe: {0}")]
pub struct Unsafe(&'static str);

impl Numbers {
    /// The numbers of the documents: 60 s validity, renewed every 10 s.
    pub const STANDARD: Numbers = Numbers {
        validity: Duration::from_secs(60),
        renew_every: Duration::from_secs(10),
        request_timeout: Duration::from_secs(5),
        retry_after: [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)],
        no_new_step_after: Duration::from_secs(30),
        lost_after: Duration::from_secs(60),
        release_budget: Duration::from_secs(30),
        look_again_after: Duration::from_secs(10),
        poll_clock_every: Duration::from_millis(500),
        prepare_timeout: Duration::from_secs(30),
    };

    /// Which rule these numbers break, if any.
    fn broken_rule(&self) -> Option<&'static str> {
        let rules = [
            (self.retry_after.iter().all(|wait| !wait.is_zero()), "a retry must wait"),
            (!self.poll_clock_every.is_zero(), "the clock cannot be read without a pause"),
            (!self.request_timeout.is_zero(), "a request needs time"),
            (self.lost_after <= self.validity, "a holder may not count on its lock longer than the Lease is valid"),
            (self.no_new_step_after < self.lost_after, "steps must stop starting before the lock is lost"),
            (
                self.renew_every + 2 * self.request_timeout < self.no_new_step_after,
                "one slow renewal (two requests) must not stop a run",
            ),
            (
                self.look_again_after >= self.request_timeout,
                "a look must come after the request that it is about has ended",
            ),
            (
                self.look_again_after + 3 * self.request_timeout <= self.release_budget,
                "a release must have time for the last renewal, the look, and a delete",
            ),
        ];
        rules.iter().find(|(kept, _)| !kept).map(|(_, rule)| *rule)
    }
}

impl Timing {
    /// The timing of the documents.
    pub const STANDARD: Timing = Timing(Numbers::STANDARD);

    /// Checks numbers. Fails with the rule that they break.
    pub fn new(numbers: Numbers) -> Result<Timing, Unsafe> {
        match numbers.broken_rule() {
            Some(rule) => Err(Unsafe(rule)),
            None => Ok(Timing(numbers)),
        }
    }

    /// Everything this many times faster, for tests. The Lease's own validity stays whole seconds, rounded up.
    pub fn divided_by(self, factor: u32) -> Result<Timing, Unsafe> {
        let n = self.0;
        Timing::new(Numbers {
            validity: n.validity / factor,
            renew_every: n.renew_every / factor,
            request_timeout: n.request_timeout / factor,
            retry_after: n.retry_after.map(|wait| wait / factor),
            no_new_step_after: n.no_new_step_after / factor,
            lost_after: n.lost_after / factor,
            release_budget: n.release_budget / factor,
            look_again_after: n.look_again_after / factor,
            poll_clock_every: n.poll_clock_every / factor,
            prepare_timeout: n.prepare_timeout,
        })
    }

    /// What is written into the Lease, in whole seconds.
    pub fn validity_seconds(self) -> i32 {
        let seconds = self.0.validity.as_secs() + u64::from(self.0.validity.subsec_nanos() > 0);
        i32::try_from(seconds.max(1)).unwrap_or(i32::MAX)
    }

    /// How long a Lease counts after its last renewal.
    pub fn validity(self) -> Duration {
        self.0.validity
    }

    /// From one renewal to the next.
    pub fn renew_every(self) -> Duration {
        self.0.renew_every
    }

    /// The longest that one request may take.
    pub const fn request_timeout(self) -> Duration {
        self.0.request_timeout
    }

    /// How long to wait after this many failures in a row (counted from 1).
    pub fn retry_after(self, failures: u32) -> Duration {
        let last = self.0.retry_after.len() - 1;
        let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(last);
        self.0.retry_after[index.min(last)]
    }

    /// From this long after the last good renewal on, no new step starts.
    pub fn no_new_step_after(self) -> Duration {
        self.0.no_new_step_after
    }

    /// This long after the last good renewal the lock counts as lost.
    pub fn lost_after(self) -> Duration {
        self.0.lost_after
    }

    /// The longest that giving the lock back may take.
    pub fn release_budget(self) -> Duration {
        self.0.release_budget
    }

    /// How long after a claim without a definite answer one looks again.
    pub fn look_again_after(self) -> Duration {
        self.0.look_again_after
    }

    /// How often the suspend-aware clock is read.
    pub fn poll_clock_every(self) -> Duration {
        self.0.poll_clock_every
    }

    /// The longest that making the client may take.
    pub fn prepare_timeout(self) -> Duration {
        self.0.prepare_timeout
    }

    /// Skips the check: the planted mistakes of the schedules need a timing that is wrong.
    #[cfg(test)]
    pub(crate) fn unchecked(numbers: Numbers) -> Timing {
        Timing(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn the_standard_numbers_are_those_of_the_documents_and_are_safe() {
        assert_eq!(Timing::new(Numbers::STANDARD), Ok(Timing::STANDARD));
        assert_eq!(Timing::STANDARD.validity_seconds(), 60);
        assert_eq!(Timing::STANDARD.renew_every(), 10 * S);
        assert_eq!([1, 2, 3, 4, 9].map(|n| Timing::STANDARD.retry_after(n)), [S, 2 * S, 4 * S, 4 * S, 4 * S]);
    }

    #[test]
    fn each_unsafe_number_is_refused_with_its_rule() {
        let ok = Numbers::STANDARD;
        let wrong = [
            Numbers { lost_after: 61 * S, ..ok },
            Numbers { no_new_step_after: 60 * S, ..ok },
            Numbers { renew_every: 20 * S, ..ok },
            Numbers { request_timeout: 11 * S, renew_every: 5 * S, ..ok },
            Numbers { release_budget: 24 * S, ..ok },
            Numbers { retry_after: [S, Duration::ZERO, S], ..ok },
            Numbers { poll_clock_every: Duration::ZERO, ..ok },
            Numbers { request_timeout: Duration::ZERO, ..ok },
        ];
        let rules: std::collections::BTreeSet<_> =
            wrong.iter().map(|numbers| Timing::new(*numbers).expect_err("unsafe").to_string()).collect();
        assert_eq!(rules.len(), wrong.len(), "each breaks a rule of its own: {rules:#?}");
    }

    #[test]
    fn a_scaled_timing_stays_safe_and_writes_whole_seconds() {
        let fast = Timing::STANDARD.divided_by(100).expect("safe");
        assert_eq!(fast.validity_seconds(), 1);
        assert_eq!(fast.renew_every(), Duration::from_millis(100));
    }
}
