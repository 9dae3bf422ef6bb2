//! One run in a schedule: the real machine, and what its run does with it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Instant;
use crate::lock::fence::{Fence, Standing};
use crate::lock::observation::Observation;
use crate::lock::protocol::life::Life;
use crate::lock::protocol::{Answer, Ask, Lost, Now, Released};
use crate::lock::record::{Record, Request};
use crate::lock::store::{Created, Replaced, Trouble};
use crate::lock::timing::{Numbers, Timing};
use crate::lock::{ClaimError, HolderId};

/// What is wrong with the candidates of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    None,
    DeadlineFromReply,
    DeadlineLongerThanLease,
    ReplaceWithoutUid,
    DeleteWithoutPreconditions,
    StaleIsFree,
    NoAnswerIsNo,
    NoSecondLook,
    FenceIsAFlag,
    /// A renewal that finds no Lease makes it anew.
    RecreateOnMissing,
    /// A Lease that did not change for its validity, on the claimer's own clock, is taken for free.
    ClaimByExpiry,
    /// The reclaiming person takes the Lease as it is then, and not as it was watched.
    TakeWithoutRecheck,
    /// A step begins whatever is said to the question before it.
    BeginsUnasked,
}

/// How a machine's clocks differ from the world's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clocks {
    /// When it was started.
    pub(super) boot: Duration,
    /// How wrong its calendar is, in milliseconds.
    pub(super) wall: i64,
    /// How fast it goes, in thousandths of the right speed.
    pub(super) pace: u32,
}

impl Clocks {
    /// Right ones.
    pub(super) const RIGHT: Clocks = Clocks { boot: Duration::ZERO, wall: 0, pace: 1_000 };

    /// What they show.
    pub(super) fn now(self, world: Duration) -> Now {
        let own = world * self.pace / 1_000;
        let millis = i64::try_from(own.as_millis()).expect("short");
        let wall = Timestamp::from_millisecond(1_796_000_000_000 + self.wall + millis).expect("a time");
        Now { boot: Instant::since_boot(own + self.boot), wall }
    }

    /// When they show this, in the world's time.
    pub(super) fn world(self, own: Instant) -> Duration {
        let since = own.since(Instant::since_boot(self.boot));
        // Up, so that it is never shown too early.
        (since * 1_000 / self.pace) + Duration::from_nanos(u64::from(self.pace != 1_000) * 1_000)
    }
}

impl Mistake {
    fn timing(self) -> Timing {
        match self {
            Mistake::DeadlineLongerThanLease => {
                Timing::unchecked(Numbers { lost_after: Duration::from_secs(75), ..Numbers::STANDARD })
            }
            Mistake::NoSecondLook => {
                Timing::unchecked(Numbers { look_again_after: Duration::ZERO, ..Numbers::STANDARD })
            }
            Mistake::None
            | Mistake::DeadlineFromReply
            | Mistake::ReplaceWithoutUid
            | Mistake::DeleteWithoutPreconditions
            | Mistake::StaleIsFree
            | Mistake::NoAnswerIsNo
            | Mistake::FenceIsAFlag
            | Mistake::RecreateOnMissing
            | Mistake::ClaimByExpiry
            | Mistake::TakeWithoutRecheck
            | Mistake::BeginsUnasked => Timing::STANDARD,
        }
    }
}

/// Where a run is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Stage {
    /// It has not claimed, or may claim again.
    Before,
    Claiming,
    /// It holds the lock, as far as it knows.
    Working,
    Releasing,
    /// It ended, and said this.
    Over(Released),
    /// It was killed.
    Dead,
}

/// A claim that reached the API server otherwise than once and in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stray {
    pub(super) request: u64,
    /// So long after it was sent that the sender's last look may have been before.
    pub(super) late: bool,
}

/// One run.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) id: HolderId,
    pub(super) life: Life,
    pub(super) stage: Stage,
    pub(super) mistake: Mistake,
    /// The number of the request whose answer it waits for.
    pub(super) waits_for: Option<u64>,
    /// That request.
    pub(super) asked: Option<Ask>,
    pub(super) suspended_until: Duration,
    pub(super) cut_off: bool,
    /// The claim that was stored last, if none of its answers or looks has shown it that: then it may go unsaid.
    pub(super) unseen: Option<Stray>,
    /// The claims that got an answer, whatever it was.
    pub(super) answered: BTreeSet<u64>,
    pub(super) claims_left: u32,
    timing: Timing,
    clocks: Clocks,
    /// The Lease that it last read or wrote, and when it first saw it like that.
    last: Option<(Record, Duration)>,
    /// What it takes for its right to act.
    fence: Option<Fence>,
}

impl Candidate {
    pub(super) fn new(number: u64, mistake: Mistake, clocks: Clocks) -> Candidate {
        let id = HolderId::new("user", "host", 1, number);
        let request = Request { holder: id.clone(), instance: None, notes: std::collections::BTreeMap::new() };
        let timing = mistake.timing();
        Candidate {
            id,
            life: Life::new(request, timing),
            stage: Stage::Before,
            mistake,
            waits_for: None,
            asked: None,
            suspended_until: Duration::ZERO,
            cut_off: false,
            unseen: None,
            answered: BTreeSet::new(),
            claims_left: 2,
            timing,
            clocks,
            last: None,
            fence: None,
        }
    }

    /// This machine's clocks.
    pub(super) fn now(&self, world: Duration) -> Now {
        self.clocks.now(world)
    }

    /// When the machine wants to be woken, in the world's time.
    pub(super) fn due(&self) -> Option<Duration> {
        self.life.due().map(|due| self.clocks.world(due))
    }

    /// Whether it takes itself to have the right to act.
    pub(super) fn may_act(&self, world: Duration) -> bool {
        if matches!(self.stage, Stage::Dead | Stage::Over(_)) {
            return false;
        }
        match (self.mistake, self.fence) {
            (_, None) => false,
            (Mistake::FenceIsAFlag, Some(_)) => true,
            (_, Some(fence)) => fence.standing(self.timing, self.now(world).boot) != Standing::Fallen,
        }
    }

    /// Whether a step of it may begin.
    pub(super) fn may_begin(&self, world: Duration) -> bool {
        let firm = |fence: Fence| fence.standing(self.timing, self.now(world).boot) == Standing::Firm;
        self.may_act(world) && self.fence.is_some_and(firm)
    }

    /// Whether what the machine says of its fence, which is what the program acts by, is what was told of it.
    pub(super) fn fences_agree(&self) -> bool {
        let (own, told) = (self.life.fence().map(|fence| fence.renewed_at), self.fence.map(|fence| fence.renewed_at));
        // A release waits for a request that is under way, and until then the lock is still held.
        let gives_up = matches!(self.stage, Stage::Releasing | Stage::Dead) && told.is_none();
        self.mistake != Mistake::None || own == told || gives_up
    }

    /// Whether it cannot know of the claim that it left behind: one that came after its last look, or a copy of one
    /// that it got an answer to, so that there was nothing to look for.
    pub(super) fn is_unlucky(&self) -> bool {
        self.unseen.is_some_and(|stray| stray.late || self.answered.contains(&stray.request))
    }

    /// It claimed, or renewed, by a request that was sent then.
    pub(super) fn has_until(&mut self, sent: Instant, world: Duration) {
        let from = if self.mistake == Mistake::DeadlineFromReply { self.now(world).boot } else { sent };
        let fence = self.fence.get_or_insert(Fence { epoch: 0, renewed_at: from });
        fence.extend(from);
    }

    pub(super) fn has_nothing(&mut self) {
        self.fence = None;
    }

    /// Whether a candidate with its mistake would not have noticed this, or not yet.
    pub(super) fn misses(&self, lost: &Lost) -> bool {
        match self.mistake {
            Mistake::DeadlineFromReply => matches!(lost, Lost::Expired { .. }),
            Mistake::FenceIsAFlag => true,
            Mistake::None
            | Mistake::DeadlineLongerThanLease
            | Mistake::ReplaceWithoutUid
            | Mistake::DeleteWithoutPreconditions
            | Mistake::StaleIsFree
            | Mistake::NoAnswerIsNo
            | Mistake::NoSecondLook
            | Mistake::RecreateOnMissing
            | Mistake::ClaimByExpiry
            | Mistake::TakeWithoutRecheck
            | Mistake::BeginsUnasked => false,
        }
    }

    /// Whether it bears this name.
    pub(super) fn is(&self, holder: &str) -> bool {
        self.id.is(holder)
    }

    /// What its machine is told instead of what was answered.
    pub(super) fn believes(&mut self, answer: Answer, world: Duration) -> Answer {
        let answer = self.misreads(answer, world);
        let seen = match &answer {
            Answer::Read(Ok(Some(record)))
            | Answer::Created(Ok(Created::Stored(record)))
            | Answer::Replaced(Ok(Replaced::Stored(record))) => Some(record),
            _ => None,
        };
        if seen.is_some_and(|record| record.holder().is_some_and(|holder| self.is(holder))) {
            self.unseen = None;
        }
        if let Some(record) = seen
            && self.last.as_ref().is_none_or(|(last, _)| last != record)
        {
            self.last = Some((record.clone(), world));
        }
        answer
    }

    fn misreads(&self, answer: Answer, world: Duration) -> Answer {
        match (self.mistake, answer) {
            (Mistake::NoAnswerIsNo, Answer::Created(Err(Trouble::Unclear(failure)))) => {
                Answer::Created(Err(Trouble::Refused(failure)))
            }
            (Mistake::StaleIsFree, Answer::Read(Ok(Some(record)))) if self.stage == Stage::Claiming => {
                let stale = Observation::new(record.clone()).looks_stale(self.now(world).wall);
                let foreign = record.holder().is_some_and(|holder| !self.is(holder));
                Answer::Read(Ok(Some(if stale && foreign { record.emptied() } else { record })))
            }
            (Mistake::ClaimByExpiry, Answer::Read(Ok(Some(record)))) if self.stage == Stage::Claiming => {
                let since = self.last.as_ref().filter(|(last, _)| *last == record).map(|(_, since)| *since);
                let expired = since.is_some_and(|since| world.saturating_sub(since) >= record.validity());
                Answer::Read(Ok(Some(if expired { record.emptied() } else { record })))
            }
            (Mistake::RecreateOnMissing, Answer::Read(Ok(None))) if self.stage == Stage::Working => {
                Answer::Read(Ok(self.last.as_ref().map(|(last, _)| last.clone())))
            }
            (_, answer) => answer,
        }
    }

    /// The body of a replace, as it goes out.
    pub(super) fn writes(&self, record: &Record) -> serde_json::Value {
        let mut body = record.json().clone();
        if matches!(self.mistake, Mistake::ReplaceWithoutUid | Mistake::RecreateOnMissing)
            && let Some(metadata) = body["metadata"].as_object_mut()
        {
            metadata.remove("uid");
        }
        body
    }

    /// What it has said about a lock that may still bear its name.
    pub(super) fn has_said_so(&self) -> bool {
        match &self.stage {
            Stage::Over(released) => {
                matches!(released, Released::Lost(_) | Released::Left(_) | Released::Unknown { .. })
            }
            Stage::Before | Stage::Claiming | Stage::Working | Stage::Releasing | Stage::Dead => true,
        }
    }

    /// Whether it may try again after this.
    pub(super) fn tries_again(&mut self, error: &ClaimError) -> bool {
        let again = self.claims_left > 0 && !matches!(error, ClaimError::GivenUp);
        self.claims_left = self.claims_left.saturating_sub(1);
        again
    }
}
