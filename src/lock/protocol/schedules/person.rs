//! The person who reclaims: the real machine, somebody at the keyboard, and a clock of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::lock::HolderId;
use crate::lock::protocol::reclaim::{Effect, End, Input, Reclaim};
use crate::lock::protocol::schedules::candidate::{Clocks, Mistake};
use crate::lock::protocol::{Answer, Ask, Now, Released};
use crate::lock::record::{Record, Request};
use crate::lock::store::{Deleted, Replaced};
use crate::lock::timing::Timing;
use crate::lock::twin::Cell;

/// A person. One reclaim at a time, each with an identity of its own.
#[derive(Debug)]
pub(super) struct Person {
    reclaim: Option<Reclaim>,
    /// The identity of the reclaim that goes on, or was the last.
    pub(super) id: HolderId,
    /// Which reclaim it is; nothing that belongs to an earlier one counts.
    pub(super) number: u64,
    /// The number of the request whose answer it waits for.
    pub(super) waits_for: Option<u64>,
    /// That request.
    pub(super) asked: Option<Ask>,
    /// How the last one ended.
    pub(super) ended: Option<End>,
    asleep_until: Duration,
    mistake: Mistake,
    clocks: Clocks,
    first_seen: Option<Record>,
}

impl Person {
    pub(super) fn new(mistake: Mistake, clocks: Clocks) -> Person {
        Person {
            reclaim: None,
            id: name(0),
            number: 0,
            waits_for: None,
            asked: None,
            ended: None,
            asleep_until: Duration::ZERO,
            mistake,
            clocks,
            first_seen: None,
        }
    }

    fn now(&self, world: Duration) -> Now {
        self.clocks.now(world)
    }

    /// When the machine wants to be woken, in the world's time.
    pub(super) fn due(&self) -> Option<Duration> {
        self.reclaim.as_ref()?.due().map(|due| self.clocks.world(due))
    }

    /// Begins a reclaim, unless one goes on.
    pub(super) fn begins(&mut self) -> Vec<Effect> {
        if self.reclaim.is_some() {
            return Vec::new();
        }
        self.number += 1;
        self.id = name(self.number);
        let request = Request { holder: self.id.clone(), instance: None, notes: BTreeMap::new() };
        let (reclaim, effects) = Reclaim::begin(request, Timing::STANDARD);
        self.reclaim = Some(reclaim);
        (self.waits_for, self.ended, self.first_seen) = (None, None, None);
        effects
    }

    pub(super) fn advance(&mut self, input: Input, world: Duration) -> Vec<Effect> {
        let (now, input) = (self.now(world), self.misreads(input));
        self.reclaim.as_mut().map_or_else(Vec::new, |reclaim| reclaim.advance(input, now))
    }

    pub(super) fn ends(&mut self, end: End) {
        (self.reclaim, self.ended) = (None, Some(end));
    }

    /// The process of this reclaim is killed. Somebody else may come.
    pub(super) fn dies(&mut self, number: u64) {
        if self.number == number {
            (self.reclaim, self.waits_for, self.asleep_until) = (None, None, Duration::ZERO);
        }
    }

    /// The machine of this reclaim sleeps until then.
    pub(super) fn sleeps(&mut self, number: u64, until: Duration) {
        if self.number == number && self.reclaim.is_some() {
            self.asleep_until = until;
        }
    }

    /// Until when it sleeps, if it does.
    pub(super) fn sleeps_until(&self, world: Duration) -> Option<Duration> {
        Some(self.asleep_until).filter(|until| *until > world)
    }

    /// Whether a reclaim goes on.
    pub(super) fn is_at_it(&self) -> bool {
        self.reclaim.is_some()
    }

    /// With the mistake, everything that is read looks as it did at first.
    fn misreads(&mut self, input: Input) -> Input {
        let (Mistake::TakeWithoutRecheck, Input::Answer(Answer::Read(Ok(Some(record))))) = (self.mistake, &input)
        else {
            return input;
        };
        if self.id.is(record.holder().unwrap_or_default()) {
            return input;
        }
        let first = self.first_seen.get_or_insert_with(|| record.clone());
        Input::Answer(Answer::Read(Ok(Some(first.clone()))))
    }

    /// The API server does a request.
    pub(super) fn served(&self, cell: &mut Cell, ask: &Ask) -> Answer {
        match ask {
            Ask::Read => Answer::Read(cell.read()),
            Ask::Replace(record) => {
                let mut body = record.json().clone();
                if self.mistake == Mistake::TakeWithoutRecheck
                    && let Some(there) = cell.record()
                {
                    body["metadata"]["uid"] = there.uid().into();
                    body["metadata"]["resourceVersion"] = there.version().into();
                }
                Answer::Replaced(cell.replace(&body))
            }
            Ask::Delete { uid, version } => Answer::Deleted(cell.delete(uid, version)),
            Ask::Create(_) | Ask::CreateNamespace => unreachable!("a reclaim makes no Lease"),
        }
    }

    /// Whether the answer means that the lock is a person's now.
    pub(super) fn has_taken(answer: &Answer) -> bool {
        matches!(answer, Answer::Replaced(Ok(Replaced::Stored(record))) if record.holder().is_some())
    }

    /// Whether the answer means that a Lease is gone.
    pub(super) fn has_deleted(answer: &Answer) -> bool {
        matches!(answer, Answer::Deleted(Ok(Deleted::Gone)))
    }

    /// What they were told about a lock that may still bear the name of their last reclaim.
    pub(super) fn was_told(&self) -> bool {
        match &self.ended {
            None | Some(End::Unknown { .. }) => true,
            Some(End::Reclaimed(released)) => {
                matches!(released, Released::Lost(_) | Released::Left(_) | Released::Unknown { .. })
            }
            Some(
                End::Free { .. }
                | End::BeingDeleted(_)
                | End::Mistyped
                | End::Interrupted
                | End::GivenBack
                | End::Refused(_)
                | End::NotTaken(_),
            ) => false,
        }
    }
}

/// The identity of the reclaim of this number.
pub(super) fn name(number: u64) -> HolderId {
    HolderId::new("bob", "laptop", 1, 0xb000 + number)
}
