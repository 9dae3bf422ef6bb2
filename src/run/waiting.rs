//! Claiming the lock, however long that takes, and what a run does that does not get it.
//!
//! A run that may wait follows the Lease: it is told of each change and asks nobody again and again. When the lock can
//! be claimed it claims it like everybody else; whoever comes second waits on. A holder that looks stale is said to look
//! so and is never taken. When the time is over the run does what it was told to do about a busy cluster.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::clock::{self, Clock, Instant};
use crate::event::{self, BusyManner, Event};
use crate::failure::{Code, Failure};
use crate::lock::{ClaimError, Follower, HolderId, Keeper, Observation, Place, Sight, Store, Timing, message, notes};
use crate::process::StopWatch;
use crate::run::chronicle::Chronicle;
use crate::run::keeping::{self, Claim};
use crate::run::spec::{OnBusy, Wait};
use crate::run::translate::millis;
use crate::step::{Outcome, Stopped};

/// How often it is said whom a run waits for.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// A run that wants the lock.
pub(crate) struct Candidate {
    pub(crate) keeper: Rc<Keeper>,
    pub(crate) ours: HolderId,
    /// Reads the Lease, without the keeper.
    pub(crate) store: Store,
    pub(crate) wait: Wait,
    pub(crate) on_busy: OnBusy,
    pub(crate) stop: StopWatch,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where the lock is, for what a person is told to type.
    pub(crate) place: Place,
    pub(crate) say: UnboundedSender<Waits>,
}

/// What a run waits for, to be told while it waits.
#[derive(Debug)]
pub(crate) struct Waits {
    what: What,
    waited: Duration,
}

#[derive(Debug)]
enum What {
    /// Somebody holds the lock.
    Holder(Box<Observation>, message::Busy),
    /// Anything else.
    Else(String),
}

/// What is done about a lock that was not got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// Wait until it can be claimed.
    Wait,
    /// End.
    Refuse,
    /// Go on without it.
    GoOn,
}

/// How waiting ended.
enum Waited {
    /// It may be claimed.
    Claimable,
    /// The time is over; this is what stood in the way last.
    Over(ClaimError),
    /// The run is to stop.
    Stopped,
    /// The Lease may not be watched.
    Failed(Failure),
}

/// Whether a lock that was not got may be got later, by somebody else's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is held, or about to go, or fought for.
    Busy,
    /// There was no answer. That is waited for only by who waits anyway.
    Unanswered,
    /// Waiting changes nothing.
    Final,
}

fn kind(error: &ClaimError) -> Kind {
    match error {
        ClaimError::Busy(_) | ClaimError::BeingDeleted(_) | ClaimError::Contended => Kind::Busy,
        ClaimError::Unsettled { .. } => Kind::Unanswered,
        ClaimError::Failed(failure) => match failure.code {
            Code::ClusterUnreachable | Code::ClusterRequestFailed | Code::LockDirUnanswered => Kind::Unanswered,
            _ => Kind::Final,
        },
        ClaimError::NamespaceTerminating(_) | ClaimError::Forbidden(_) | ClaimError::GivenUp => Kind::Final,
    }
}

/// What to do after so long a time, of which `began` says whether the run has waited already.
fn answer(error: &ClaimError, wait: Wait, on_busy: OnBusy, waited: Duration, began: Began) -> Answer {
    let time_left = match wait {
        Wait::No => false,
        Wait::Forever => true,
        Wait::AtMost(limit) => waited < limit,
    };
    match (kind(error), on_busy) {
        (Kind::Busy, _) if time_left => Answer::Wait,
        (Kind::Unanswered, _) if time_left && began == Began::Before => Answer::Wait,
        (Kind::Busy, OnBusy::Warn) => Answer::GoOn,
        (Kind::Busy, OnBusy::Refuse) | (Kind::Unanswered | Kind::Final, _) => Answer::Refuse,
    }
}

/// Whether a run has begun to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Began {
    Now,
    Before,
}

impl Candidate {
    /// Claims the lock, waits for it as long as it may, or does what it was told to do without it.
    pub(crate) async fn claim(mut self) -> (Claim, Outcome) {
        let since = self.clock.now();
        let mut began = Began::Now;
        loop {
            let asked = tokio::select! {
                biased;
                asked = self.keeper.claim() => asked,
                _ = self.stop.asked() => return (Claim::Unsettled, stopped("stopped while the lock was being claimed")),
            };
            let error = match asked {
                Ok(claimed) => return keeping::claimed(&self.keeper, claimed, self.waited(since), self.stop).await,
                Err(error) => error,
            };
            match answer(&error, self.wait, self.on_busy, self.waited(since), began) {
                Answer::Wait => {}
                Answer::Refuse | Answer::GoOn => return self.give_up(error, since),
            }
            began = Began::Before;
            match self.until_claimable(error, since).await {
                Waited::Claimable => {}
                Waited::Over(error) => return self.give_up(error, since),
                Waited::Stopped => return (Claim::None, stopped("stopped while waiting for the lock")),
                Waited::Failed(failure) => return (Claim::None, Outcome::Failed(failure)),
            }
        }
    }

    fn waited(&self, since: Instant) -> Duration {
        self.clock.now().since(since)
    }

    /// Does what it was told to do about a lock that it did not get.
    fn give_up(&self, error: ClaimError, since: Instant) -> (Claim, Outcome) {
        let waited = self.waited(since);
        // No time is left, whatever was left when the error came.
        match answer(&error, Wait::No, self.on_busy, waited, Began::Before) {
            Answer::GoOn => keeping::without(error, &self.place, &*self.clock),
            Answer::Wait | Answer::Refuse => {
                let (claim, outcome) = keeping::refused(error, &self.place, &*self.clock);
                let failure = match outcome {
                    Outcome::Failed(failure) if self.wait != Wait::No => {
                        Outcome::Failed(after_waiting(failure, waited))
                    }
                    outcome => outcome,
                };
                (claim, failure)
            }
        }
    }

    /// Follows the Lease until it may be claimed, says whom it waits for, at once and then every minute, and whenever that
    /// changes.
    async fn until_claimable(&mut self, mut error: ClaimError, since: Instant) -> Waited {
        let mut follower = Follower::new(self.store.clone(), Timing::STANDARD);
        let mut said: Option<(Instant, Option<String>)> = None;
        let mut unseen: Option<Failure> = None;
        loop {
            let now = self.clock.now();
            if answer(&error, self.wait, self.on_busy, now.since(since), Began::Before) != Answer::Wait {
                return match unseen {
                    // What stood in the way when it could be seen last need not do so now.
                    Some(why) if kind(&error) == Kind::Busy => Waited::Failed(after_waiting(why, now.since(since))),
                    Some(_) | None => Waited::Over(error),
                };
            }
            let holder = holder(&error);
            if said.as_ref().is_none_or(|(at, whom)| now.since(*at) >= SAY_EVERY || *whom != holder) {
                said = Some((now, holder));
                self.say_what(&error, now.since(since));
            }
            let sight = tokio::select! {
                biased;
                _ = self.stop.asked() => return Waited::Stopped,
                sight = follower.next() => sight,
                () = tokio::time::sleep(Timing::STANDARD.poll_clock_every()) => continue,
            };
            match sight {
                Sight::Lease(seen) => match self.in_the_way(seen) {
                    Some(what) => (error, unseen) = (what, None),
                    None => return Waited::Claimable,
                },
                Sight::Blind(failure) => {
                    self.tell(What::Else(failure.message.clone()), now.since(since));
                    unseen = Some(failure);
                }
                Sight::Refused(failure) => return Waited::Failed(failure),
            }
        }
    }

    /// Why the lock cannot be claimed. None: it can. Our own name in it is a claim of ours that landed late.
    fn in_the_way(&self, seen: Option<Observation>) -> Option<ClaimError> {
        let seen = seen?;
        match seen.holder() {
            Some(holder) if self.ours.is(holder) && seen.record().deleting_since().is_none() => None,
            Some(_) => Some(ClaimError::Busy(seen)),
            None if seen.record().deleting_since().is_some() => Some(ClaimError::BeingDeleted(seen)),
            None => None,
        }
    }

    fn say_what(&self, error: &ClaimError, waited: Duration) {
        let wall = self.clock.wall();
        self.tell(
            match error {
                ClaimError::Busy(seen) => What::Holder(Box::new(seen.clone()), message::busy(seen, &self.place, wall)),
                error => What::Else(message::claim_failure(error, &self.place, wall).message),
            },
            waited,
        );
    }

    fn tell(&self, what: What, waited: Duration) {
        // Nobody listens any more when the run has ended.
        let _ = self.say.send(Waits { what, waited });
    }
}

/// Whom is waited for, if anybody.
fn holder(error: &ClaimError) -> Option<String> {
    match error {
        ClaimError::Busy(seen) => seen.holder().map(str::to_owned),
        ClaimError::BeingDeleted(_)
        | ClaimError::NamespaceTerminating(_)
        | ClaimError::Forbidden(_)
        | ClaimError::Contended
        | ClaimError::Unsettled { .. }
        | ClaimError::GivenUp
        | ClaimError::Failed(_) => None,
    }
}

fn after_waiting(failure: Failure, waited: Duration) -> Failure {
    failure.cause(format!("the run waited for it for {}", clock::human(waited)))
}

fn stopped(note: &str) -> Outcome {
    Outcome::Stopped(Stopped { clean: true, unfinished: Vec::new(), note: note.to_owned() })
}

impl Waits {
    /// `lock.blocked`, or a note.
    pub(crate) fn tell(self, step: &str, told: &mut Chronicle) {
        let waited = clock::human(self.waited);
        let event = match self.what {
            What::Holder(seen, busy) => blocked(&seen, busy, BusyManner::Waits, Some(self.waited)),
            What::Else(why) => {
                Event::NoteMade(event::NoteMade { text: format!("waiting for the lock, {waited} so far: {why}") })
            }
        };
        told.tell(Some(step), event);
    }
}

/// `lock.blocked`.
pub(crate) fn blocked(seen: &Observation, busy: message::Busy, manner: BusyManner, waited: Option<Duration>) -> Event {
    let text = match manner {
        BusyManner::Refuses => busy.text,
        BusyManner::Continues => message::going_on(&busy.text),
        BusyManner::Waits => message::waiting(&busy.text, waited.unwrap_or_default()),
    };
    Event::LockBlocked(event::LockBlocked {
        holder: message::plain(seen.holder().unwrap_or_default()),
        instance: seen.record().instance().map(message::plain),
        age_ms: busy.age.map(millis),
        stale: busy.stale,
        text,
        job_url: seen.record().note(notes::JOB_URL).map(message::plain),
        manner,
        waited_ms: waited.map(millis),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_wait_waits_and_else_does_as_it_was_told() {
        let minute = Duration::from_secs(60);
        let failed = |code| ClaimError::Failed(Failure::new(code, "it failed"));
        let unanswered = || failed(Code::ClusterUnreachable);
        let forbidden = || ClaimError::Forbidden(Failure::new(Code::Forbidden, "no"));
        let (warn, refuse) = (OnBusy::Warn, OnBusy::Refuse);
        let (now, before) = (Began::Now, Began::Before);
        use Answer::{GoOn, Refuse, Wait as Waits};
        for (error, wait, on_busy, waited, began, expected) in [
            (ClaimError::Contended, Wait::No, refuse, 0, now, Refuse),
            (ClaimError::Contended, Wait::No, warn, 0, now, GoOn),
            (ClaimError::Contended, Wait::Forever, refuse, 86_400, before, Waits),
            (ClaimError::Contended, Wait::Forever, warn, 0, now, Waits),
            (ClaimError::Contended, Wait::AtMost(minute), refuse, 59, before, Waits),
            (ClaimError::Contended, Wait::AtMost(minute), refuse, 60, before, Refuse),
            (ClaimError::Contended, Wait::AtMost(minute), warn, 60, before, GoOn),
            // An API server that is away is no holder: only who waits already goes on waiting.
            (unanswered(), Wait::Forever, warn, 0, now, Refuse),
            (unanswered(), Wait::Forever, warn, 600, before, Waits),
            (unanswered(), Wait::AtMost(minute), warn, 60, before, Refuse),
            (unanswered(), Wait::No, warn, 0, now, Refuse),
            (failed(Code::CredentialsRefused), Wait::Forever, warn, 600, before, Refuse),
            (forbidden(), Wait::Forever, warn, 0, now, Refuse),
            (forbidden(), Wait::Forever, warn, 600, before, Refuse),
        ] {
            let done = answer(&error, wait, on_busy, Duration::from_secs(waited), began);
            assert_eq!(done, expected, "{error:?} {wait:?} {on_busy:?} after {waited} s, {began:?}");
        }
    }
}
