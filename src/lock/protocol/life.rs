//! The whole life of one run's lock: claim it, hold it, give it back.
//!
//! [`Life`] joins the machines of this folder. It is given commands, answers and ticks, and says what is to be sent and
//! what is to be told. It notices when the fence falls: that is an instant in its state, due like everything else that
//! it waits for, not a check between two attempts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Instant;
use crate::failure::{Code, Failure};
use crate::lock::change::{Act, Change, Waits};
use crate::lock::fence::Fence;
use crate::lock::protocol::claim::{self, Claim, ClaimError, Claimed, Won};
use crate::lock::protocol::holding::{Holding, Outcome};
use crate::lock::protocol::release::{self, Release, Released, Target};
use crate::lock::protocol::renewal::Lost;
use crate::lock::protocol::{Answer, Ask, Book, Ledger, Now};
use crate::lock::record::{Request, Wish};
use crate::lock::timing::Timing;

/// This much difference between how far the two clocks went means that the machine stood still, or that a clock was
/// set: then the API server is asked at once.
const CLOCKS_DISAGREE: Duration = Duration::from_secs(5);

/// What happens to a run's lock.
#[derive(Debug)]
pub(crate) enum Input {
    /// Claim it.
    Claim,
    /// Say whether it is still ours: a step is about to begin.
    Check,
    /// Write these notes, soon.
    Note(BTreeMap<String, Option<String>>),
    /// Give it back, and settle what is in doubt.
    Release,
    /// The request that was under way has ended.
    Answer(Answer),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Send this. Nothing else is under way.
    Ask(Ask),
    /// Answer the claim.
    Claimed(Result<Claimed, ClaimError>),
    /// Answer that many checks, the oldest first.
    Checked(usize, Result<(), Lost>),
    /// Tell this to whoever listens.
    Tell(Change),
    /// The release has ended, and with it everything.
    Released(Released),
}

/// Whether a release has anything to do, as far as is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stake {
    /// There is no lock and no claim of ours.
    #[default]
    Nothing,
    /// The lock is ours, or a claim of ours is in doubt.
    Something,
}

/// What a process of a run leaves to another one of the same run that goes on in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Estate {
    /// It held the lock: the Lease of this uid. The last renewal that is known to have succeeded was sent then.
    Held {
        /// The Lease.
        uid: String,
        /// When.
        renewed_at: Instant,
    },
    /// It had asked for the lock, and nothing tells what came of that: the claim may still land.
    Asked,
    /// It was giving the lock back. A Lease that is not there any more was given back.
    Returning,
}

/// One run's lock.
#[derive(Debug)]
pub(crate) struct Life {
    book: Book,
    state: State,
    /// A request is under way.
    asking: bool,
    /// Checks that no attempt answers yet.
    checks: usize,
    release_asked: Option<Instant>,
    last_seen: Option<Now>,
    effects: Vec<Effect>,
}

#[derive(Debug)]
enum State {
    /// Nothing is held, nothing is wanted.
    Idle,
    /// A claim goes on; it waits until then, unless a request is under way.
    Claiming(Box<Claim>, Option<Instant>),
    /// The lock is ours.
    Holding(Box<Holding>),
    /// It was ours, in the Lease of this uid.
    Lost(Lost, String),
    /// The keeper broke, and what it knew is not to be trusted. This is what there may be to give back.
    Wrecked(Failure, Target),
    /// It is being given back; the release waits until then, unless a request is under way.
    Releasing(Box<Release>, Option<Instant>),
    /// It is over.
    Ended,
}

impl Life {
    pub(crate) fn new(request: Request, timing: Timing) -> Life {
        let wish = Wish::new(request, timing.validity_seconds());
        Life {
            book: Book { wish, timing, ledger: Ledger::default() },
            state: State::Idle,
            asking: false,
            checks: 0,
            release_asked: None,
            last_seen: None,
            effects: Vec::new(),
        }
    }

    /// What is left of a lock whose keeper broke at this moment: nothing may be done with it, but to give it back. Any
    /// request may have been under way.
    pub(crate) fn wrecked(request: Request, timing: Timing, (bug, target): (Failure, Target), now: Now) -> Life {
        let mut life = Life::new(request, timing);
        let sent = life.book.ledger.sending(now);
        life.book.ledger.doubt(sent);
        life.state = State::Wrecked(bug, target);
        life
    }

    /// Goes on where another process of the same run has ended.
    pub(crate) fn inherit(request: Request, timing: Timing, estate: &Estate, now: Now) -> Life {
        let mut life = Life::new(request, timing);
        life.state = match estate {
            Estate::Held { uid, renewed_at } => State::Holding(Box::new(Holding::inherit(uid, *renewed_at, timing))),
            Estate::Asked => {
                // Its last request may have been sent right before it ended, so the look for it counts from now.
                let sent = life.book.ledger.sending(now);
                life.book.ledger.doubt(sent);
                State::Wrecked(ended_before(), Target::Nothing)
            }
            Estate::Returning => State::Wrecked(ended_before(), Target::Returning),
        };
        life
    }

    /// The fence, while the lock is ours.
    pub(crate) fn fence(&self) -> Option<Fence> {
        match &self.state {
            State::Holding(holding) => Some(holding.fence),
            State::Idle
            | State::Claiming(..)
            | State::Lost(..)
            | State::Wrecked(..)
            | State::Releasing(..)
            | State::Ended => None,
        }
    }

    /// Whether a release has anything to do.
    pub(crate) fn stake(&self) -> Stake {
        let ledger = &self.book.ledger;
        let claims = ledger.landed.is_some() || ledger.look_at(self.book.timing).is_some();
        match &self.state {
            State::Claiming(..) | State::Holding(_) | State::Wrecked(..) => Stake::Something,
            State::Idle | State::Lost(..) | State::Releasing(..) if claims => Stake::Something,
            State::Idle | State::Lost(..) | State::Releasing(..) | State::Ended => Stake::Nothing,
        }
    }

    /// When the next tick is due at the latest. None: nothing is waited for.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Claiming(_, wake) | State::Releasing(_, wake) => wake.filter(|_| !self.asking),
            State::Holding(holding) => Some(holding.due(self.book.timing)),
            State::Idle | State::Lost(..) | State::Wrecked(..) | State::Ended => None,
        }
    }

    /// Takes one input, and says what is to be done, in this order.
    pub(crate) fn advance(&mut self, input: Input, now: Now) -> Vec<Effect> {
        self.watch_clocks(now);
        self.watch_fence(now);
        match input {
            Input::Claim => self.claim(now),
            Input::Check => self.checks += 1,
            Input::Note(notes) => self.note(notes),
            Input::Release => self.release_asked = self.release_asked.or(Some(now.boot)),
            Input::Answer(answer) => {
                self.asking = false;
                self.tell_silence(&answer);
                self.answered(answer, now);
            }
            Input::Tick => {}
        }
        self.go_on(now);
        std::mem::take(&mut self.effects)
    }

    /// A jump of one clock against the other: ask at once whether the lock is still ours.
    fn watch_clocks(&mut self, now: Now) {
        let Some(before) = self.last_seen.replace(now) else { return };
        let boot = now.boot.since(before.boot);
        let wall = now.wall.duration_since(before.wall).unsigned_abs();
        if let State::Holding(holding) = &mut self.state
            && boot.abs_diff(wall) > CLOCKS_DISAGREE
        {
            holding.renew_at_once();
        }
    }

    /// The fence falls at its deadline, whatever is under way.
    fn watch_fence(&mut self, now: Now) {
        if let State::Holding(holding) = &mut self.state
            && let Some(lost) = holding.fallen(self.book.timing, now)
        {
            let checks = holding.drop_attempt();
            self.lose(lost, checks);
        }
    }

    fn lose(&mut self, lost: Lost, checks: usize) {
        let State::Holding(holding) = &self.state else { unreachable!("only a holder can lose the lock") };
        let uid = holding.uid().to_owned();
        self.answer_checks(checks, Err(lost.clone()));
        self.effects.push(Effect::Tell(Change::Lost(lost.clone())));
        self.state = State::Lost(lost, uid);
    }

    fn answer_checks(&mut self, checks: usize, answer: Result<(), Lost>) {
        if checks > 0 {
            self.effects.push(Effect::Checked(checks, answer));
        }
    }

    fn claim(&mut self, now: Now) {
        let refusal = match &self.state {
            State::Idle if self.release_asked.is_none() => {
                let (claim, next) = Claim::begin(&mut self.book, now);
                self.state = State::Claiming(Box::new(claim), None);
                self.claim_next(next);
                return;
            }
            State::Idle | State::Releasing(..) | State::Ended => ClaimError::GivenUp,
            State::Wrecked(bug, _) => ClaimError::Failed(bug.clone()),
            State::Claiming(..) | State::Holding(_) | State::Lost(..) => {
                ClaimError::Failed(Failure::new(Code::Internal, "the same run claimed the lock twice"))
            }
        };
        self.effects.push(Effect::Claimed(Err(refusal)));
    }

    fn note(&mut self, notes: BTreeMap<String, Option<String>>) {
        self.book.wish.note(notes);
        if let State::Holding(holding) = &mut self.state {
            holding.renew_at_once();
        }
    }

    /// What a claim or a release has to wait for is told at once. A renewal tells it in its own way.
    fn tell_silence(&mut self, answer: &Answer) {
        let act = match &self.state {
            State::Claiming(..) => Act::Claim,
            State::Releasing(..) => Act::Release,
            State::Idle | State::Holding(_) | State::Lost(..) | State::Wrecked(..) | State::Ended => return,
        };
        if let Some(failure) = answer.silence() {
            let why = Waits::NoAnswer(failure.clone());
            self.effects.push(Effect::Tell(Change::Waiting { act, why }));
        }
    }

    fn answered(&mut self, answer: Answer, now: Now) {
        match &mut self.state {
            State::Claiming(claim, _) => {
                let next = claim.answered(answer, &mut self.book, now);
                self.claim_next(next);
            }
            State::Holding(holding) => {
                let effects = &mut self.effects;
                let outcome =
                    holding.answered(answer, &mut self.book, now, &mut |change| effects.push(Effect::Tell(change)));
                self.attempt_next(outcome);
            }
            State::Releasing(release, _) => {
                let next = release.answered(answer, &mut self.book, now);
                self.release_next(next);
            }
            // The last words of a holder that is none any more.
            State::Lost(..) => {}
            State::Idle | State::Wrecked(..) | State::Ended => unreachable!("nothing is under way"),
        }
    }

    fn ask(&mut self, ask: Ask) {
        self.asking = true;
        self.effects.push(Effect::Ask(ask));
    }

    fn claim_next(&mut self, next: claim::Next) {
        let ended = match next {
            claim::Next::Won(won) => return self.won(won),
            claim::Next::Ended(error) => error,
            claim::Next::Ask(_) | claim::Next::Wait(_) if self.release_asked.is_some() => ClaimError::GivenUp,
            claim::Next::Ask(ask) => return self.ask(ask),
            claim::Next::Wait(until) => {
                let State::Claiming(_, wake) = &mut self.state else { unreachable!("only a claim waits for one") };
                *wake = Some(until);
                return;
            }
        };
        self.state = State::Idle;
        self.effects.push(Effect::Claimed(Err(ended)));
    }

    fn won(&mut self, won: Won) {
        self.book.ledger.landed = None;
        self.effects.push(Effect::Claimed(Ok(Claimed {
            holder: self.book.wish.holder.to_string(),
            uid: won.record.uid().to_owned(),
            epoch: won.record.transitions(),
            sent_at: won.sent,
            namespace: won.namespace,
        })));
        self.state = State::Holding(Box::new(Holding::begin(won, self.book.timing)));
    }

    fn attempt_next(&mut self, outcome: Outcome) {
        match outcome {
            // A release waits for the last request, and does not let the attempt make another.
            Outcome::Ask(_) if self.release_asked.is_some() => {}
            Outcome::Ask(ask) => self.ask(ask),
            Outcome::Ended { checks, answer } => self.answer_checks(checks, answer),
            Outcome::Lost { checks, lost } => self.lose(lost, checks),
        }
    }

    fn release_next(&mut self, next: release::Next) {
        match next {
            release::Next::Ask(ask) => self.ask(ask),
            release::Next::Wait(until) => self.release_waits(until),
            release::Next::LookAt(look_at) => {
                self.release_waits(look_at);
                let why = Waits::LateClaim { look_at };
                self.effects.push(Effect::Tell(Change::Waiting { act: Act::Release, why }));
            }
            release::Next::Ended(released) => {
                self.state = State::Ended;
                self.effects.push(Effect::Released(released));
            }
        }
    }

    fn release_waits(&mut self, until: Instant) {
        let State::Releasing(_, wake) = &mut self.state else { unreachable!("only a release waits for it") };
        *wake = Some(until);
    }

    /// Begins what is due, when nothing is under way.
    fn go_on(&mut self, now: Now) {
        if !self.asking {
            if let Some(asked) = self.release_asked {
                self.begin_release(asked, now);
            }
            self.wake(now);
        }
        if let Some(why) = self.no_right() {
            let checks = std::mem::take(&mut self.checks);
            self.answer_checks(checks, Err(why));
        }
    }

    fn wake(&mut self, now: Now) {
        if self.asking {
            return;
        }
        let due = |wake: &mut Option<Instant>| wake.take_if(|at| *at <= now.boot).is_some();
        match &mut self.state {
            State::Claiming(claim, wake) => {
                if due(wake) {
                    let next = claim.woke(&mut self.book, now);
                    self.claim_next(next);
                }
            }
            State::Releasing(release, wake) => {
                if due(wake) {
                    let next = release.woke(&self.book, now);
                    self.release_next(next);
                }
            }
            State::Holding(holding) => {
                if let Some(ask) = holding.attempt(&mut self.checks, self.book.timing, now) {
                    self.ask(ask);
                }
            }
            State::Idle | State::Lost(..) | State::Wrecked(..) | State::Ended => {}
        }
    }

    fn begin_release(&mut self, asked: Instant, now: Now) {
        let target = match &mut self.state {
            State::Idle => self.leftover(),
            State::Claiming(..) => {
                self.effects.push(Effect::Claimed(Err(ClaimError::GivenUp)));
                self.leftover()
            }
            State::Holding(holding) => {
                self.checks += holding.drop_attempt();
                self.effects.push(Effect::Tell(Change::Releasing { uid: holding.uid().to_owned() }));
                holding.target()
            }
            State::Lost(lost, uid) => Target::Lost { lost: lost.clone(), uid: uid.clone() },
            State::Wrecked(_, target) => target.clone(),
            State::Releasing(..) | State::Ended => return,
        };
        let (release, next) = Release::begin(target, asked, &mut self.book, now);
        self.state = State::Releasing(Box::new(release), None);
        self.release_next(next);
    }

    /// What a claim that did not come through has left in the Lease.
    fn leftover(&mut self) -> Target {
        self.book.ledger.landed.take().map_or(Target::Nothing, Target::Stale)
    }

    /// Why nothing may begin in a state in which the API server need not be asked.
    pub(crate) fn no_right(&self) -> Option<Lost> {
        let message = match &self.state {
            State::Holding(_) => return None,
            State::Lost(lost, _) => return Some(lost.clone()),
            State::Wrecked(bug, _) => return Some(Lost::Broken(bug.clone())),
            State::Idle | State::Claiming(..) => "the lock was not claimed yet",
            State::Releasing(..) | State::Ended => "the lock was given back already",
        };
        Some(Lost::Broken(Failure::new(Code::Internal, message)))
    }
}

/// Why nothing may be done with a lock that a process which has ended was asking for, or giving back.
fn ended_before() -> Failure {
    Failure::new(Code::SupervisorKilled, "the process that owned this run has ended")
}

#[cfg(test)]
mod tests;
