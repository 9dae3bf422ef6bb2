//! One run in a schedule: the real machine, and what its run does with it.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Instant;
use crate::lock::fence::{Fence, Standing};
use crate::lock::observation::Observation;
use crate::lock::protocol::life::Life;
use crate::lock::protocol::{Answer, Ask, Lost, Now, Released};
use crate::lock::record::{Record, Request};
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
            | Mistake::FenceIsAFlag => Timing::STANDARD,
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
    /// A claim of it was doubled, or delayed beyond the look: then a leftover may go unsaid.
    pub(super) unlucky: bool,
    pub(super) claims_left: u32,
    timing: Timing,
    boot_offset: Duration,
    wall_offset: i64,
    /// What it takes for its right to act.
    fence: Option<Fence>,
}

impl Candidate {
    pub(super) fn new(number: u64, mistake: Mistake, boot_offset: Duration, wall_offset: i64) -> Candidate {
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
            unlucky: false,
            claims_left: 2,
            timing,
            boot_offset,
            wall_offset,
            fence: None,
        }
    }

    /// This machine's clocks.
    pub(super) fn now(&self, world: Duration) -> Now {
        let millis = i64::try_from(world.as_millis()).expect("short");
        let wall = Timestamp::from_millisecond(1_796_000_000_000 + self.wall_offset + millis).expect("a time");
        Now { boot: Instant::since_boot(world + self.boot_offset), wall }
    }

    /// When the machine wants to be woken, in the world's time.
    pub(super) fn due(&self) -> Option<Duration> {
        self.life.due().map(|due| due.since(Instant::since_boot(self.boot_offset)))
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

    /// It claimed, or renewed, by a request that was sent then.
    pub(super) fn has_until(&mut self, sent: Instant, world: Duration) {
        let from = if self.mistake == Mistake::DeadlineFromReply { self.now(world).boot } else { sent };
        let fence = self.fence.get_or_insert(Fence { epoch: 0, renewed_at: from });
        fence.extend(from);
    }

    pub(super) fn has_nothing(&mut self, why: Option<&Lost>) {
        // A candidate with one of these mistakes would not have noticed (yet).
        let ignored = matches!(
            (self.mistake, why),
            (Mistake::DeadlineFromReply, Some(Lost::Expired { .. })) | (Mistake::FenceIsAFlag, Some(_))
        );
        if !ignored {
            self.fence = None;
        }
    }

    /// Whether it bears this name.
    pub(super) fn is(&self, holder: &str) -> bool {
        self.id.is(holder)
    }

    /// What its machine is told instead of what was answered.
    pub(super) fn believes(&self, answer: Answer, world: Duration) -> Answer {
        use crate::lock::store::Trouble;
        match (self.mistake, answer) {
            (Mistake::NoAnswerIsNo, Answer::Created(Err(Trouble::Unclear(failure)))) => {
                Answer::Created(Err(Trouble::Refused(failure)))
            }
            (Mistake::StaleIsFree, Answer::Read(Ok(Some(record)))) if self.stage == Stage::Claiming => {
                let stale = Observation::new(record.clone()).looks_stale(self.now(world).wall);
                let foreign = record.holder().is_some_and(|holder| !self.is(holder));
                Answer::Read(Ok(Some(if stale && foreign { record.emptied() } else { record })))
            }
            (_, answer) => answer,
        }
    }

    /// The body of a replace, as it goes out.
    pub(super) fn writes(&self, record: &Record) -> serde_json::Value {
        let mut body = record.json().clone();
        if self.mistake == Mistake::ReplaceWithoutUid
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
