//! A Lease as somebody who does not hold it sees it, and how old it looks by this machine's clock.
//!
//! How old it *looks* is for people. The renewal was stamped by the holder's clock and is read by ours, so no decision
//! rests on it: it chooses between two messages, and nothing else.

use std::time::Duration;

use jiff::Timestamp;

use crate::failure::Failure;
use crate::lock::record::Record;
use crate::lock::store::{LeaseStore, Trouble};

/// A Lease that was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    record: Record,
}

impl Observation {
    /// What was seen.
    pub fn new(record: Record) -> Observation {
        Observation { record }
    }

    /// The Lease itself.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Who holds it. None: the Lease is there, but nobody does.
    pub fn holder(&self) -> Option<&str> {
        self.record.holder()
    }

    /// When it was last renewed, by the holder's clock: a claim is the first renewal. None when the Lease does not say.
    pub fn last_renewal(&self) -> Option<Timestamp> {
        self.record.renewed_at().or_else(|| self.record.acquired_at())
    }

    /// How long ago that looks on this machine's clock. None when the Lease says nothing; zero when it lies ahead.
    pub fn age(&self, wall: Timestamp) -> Option<Duration> {
        let renewed = self.last_renewal()?;
        Some(Duration::try_from(wall.duration_since(renewed)).unwrap_or(Duration::ZERO))
    }

    /// How far the renewal lies ahead of this machine's clock: proof that the two clocks disagree.
    pub fn ahead(&self, wall: Timestamp) -> Option<Duration> {
        let ahead = Duration::try_from(self.last_renewal()?.duration_since(wall)).ok()?;
        (!ahead.is_zero()).then_some(ahead)
    }

    /// Whether it looks stale by this machine's clock: older than its own validity.
    pub fn looks_stale(&self, wall: Timestamp) -> bool {
        self.age(wall).is_none_or(|age| age > self.record.validity())
    }
}

/// Looks at the lock without touching it. `None`: there is no Lease.
pub async fn observe<S: LeaseStore>(store: &S) -> Result<Option<Observation>, Failure> {
    store.read().await.map(|record| record.map(Observation::new)).map_err(Trouble::into_failure)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(spec: &Value) -> Observation {
        let raw = json!({
            "metadata": { "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-11-30T00:00:00Z" },
            "spec": spec,
        });
        Observation::new(Record::from_json(raw).expect("whole"))
    }

    fn wall(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn it_is_stale_when_older_than_its_own_validity() {
        let lease = seen(&json!({ "renewTime": "2026-11-30T00:10:00.000000Z", "leaseDurationSeconds": 15 }));
        assert!(!lease.looks_stale(wall("2026-11-30T00:10:15Z")));
        assert!(lease.looks_stale(wall("2026-11-30T00:10:15.000001Z")));
        let silent = seen(&json!({ "renewTime": "2026-11-30T00:10:00.000000Z" }));
        assert!(!silent.looks_stale(wall("2026-11-30T00:11:00Z")), "60 s when it does not say");
    }

    #[test]
    fn a_renewal_ahead_of_our_clock_is_age_zero_and_said() {
        let lease = seen(&json!({ "renewTime": "2026-11-30T01:00:00.000000Z" }));
        let now = wall("2026-11-30T00:00:00Z");
        assert_eq!(lease.age(now), Some(Duration::ZERO));
        assert_eq!(lease.ahead(now), Some(Duration::from_secs(3_600)));
        assert_eq!(lease.ahead(wall("2026-11-30T01:00:00Z")), None);
    }

    #[test]
    fn without_a_renewal_the_claim_counts_and_without_a_claim_nothing() {
        let now = wall("2026-11-30T00:05:00Z");
        let claimed = seen(&json!({ "acquireTime": "2026-11-30T00:04:00.000000Z" }));
        assert_eq!(claimed.age(now), Some(Duration::from_secs(60)));
        let silent = seen(&json!({}));
        assert_eq!(silent.age(now), None);
        assert!(silent.looks_stale(now), "that it was made just now says nothing of a renewal");
    }
}
