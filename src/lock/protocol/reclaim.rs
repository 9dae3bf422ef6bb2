//! Reclaiming: what a person does about a lock whose run is gone.
//!
//! ```text
//! Looking ─▶ Asking ─▶ Confirming ─▶ Watching ─▶ Taking ⇄ Settling ─▶ Releasing
//!    │          └─ mistyped ──┴─ changed ──┴─ changed ──────┘
//!    └─ free
//! ```
//!
//! The person types the holder back. Only then the check begins: the same object in the same version over a whole
//! window of this machine's clock, so that no renewal reached the API server in that time. No time that another machine
//! wrote is looked at. The window begins when the first answer is there and ends when the last question is sent. The
//! take names uid and version of what was watched, so that a renewal in the last instant makes it fail.
//!
//! Before the take everything can be broken off and nothing was changed. From the take on the lock may be ours, so it is
//! given back whatever happens. A take without an answer is settled by reading. It cannot land once the Lease has
//! changed, because it names a version; while the Lease is unchanged it is looked at once more, late enough.

use std::time::Duration;

use crate::clock::Instant;
use crate::failure::{Code, Failure};
use crate::lock::message::plain;
use crate::lock::observation::Observation;
use crate::lock::protocol::release::{self, Release, Released, Target};
use crate::lock::protocol::{Answer, Ask, Backoff, Book, Ledger, Now, Sent};
use crate::lock::record::{Record, Request, Wish};
use crate::lock::store::{Replaced, Trouble};
use crate::lock::timing::Timing;

/// What is added to a validity: a holder's clock may tick a little slower than ours.
const MARGIN: Duration = Duration::from_secs(5);
/// How often the Lease is looked at within the window. A renewal is noticed this much later at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long after the end of the window the last look may take to succeed.
const LAST_LOOK: Duration = Duration::from_secs(60);
/// How many takes there may be.
const MOST_TAKES: u32 = 5;
/// How many times in all one goes on after a request that is known not to have been done.
const MOST_RETRIES: u32 = 3;

/// What happens to a reclaim.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// The request that was under way has ended.
    Answer(Answer),
    /// The person typed a line.
    Typed(String),
    /// The person wants to stop, or is gone.
    Interrupted,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Send this. Nothing else is under way.
    Ask(Ask),
    /// Show the holder and ask for it to be typed.
    Show(Observation),
    /// Say how far it is.
    Tell(Progress),
    /// It is over.
    Ended(End),
}

/// How far a reclaim is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The check begins.
    Checking(Window),
    /// The Lease is unchanged so far.
    Unchanged {
        /// How much of the window is left.
        left: Duration,
    },
    /// The last look at the Lease had no answer; it is looked at again.
    Unseen {
        /// How much of the window is left.
        left: Duration,
    },
    /// The window is over. From here on the lock may be ours, and it is given back whatever happens.
    Taking,
    /// The take got no answer; what came of it is looked up.
    Unanswered,
    /// An interrupt came too late: what was begun is finished.
    Finishing,
}

/// How long the Lease has to stay unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The validity that counts: 60 s, or the Lease's own if that is longer, and at most ten minutes.
    pub validity: Duration,
    /// The validity that the Lease claims, if that is more than is believed.
    pub claimed: Option<Duration>,
}

impl Window {
    fn of(record: &Record, timing: Timing) -> Window {
        let believed = record.validity();
        Window {
            validity: believed.max(timing.validity()),
            claimed: record.written_validity().filter(|claimed| *claimed > believed),
        }
    }

    /// The validity and a margin.
    pub fn length(self) -> Duration {
        self.validity + MARGIN
    }
}

/// How a reclaim ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// Nobody holds the lock. Nothing was done.
    Free {
        /// What keeps the Lease from going away, if it is being deleted.
        kept_by: Vec<String>,
    },
    /// The Lease is being deleted, and finalizers keep it: there is nothing that taking it would help. Nothing was done.
    BeingDeleted(Observation),
    /// What was typed is not this holder. Nothing was done.
    Mistyped(String),
    /// The person stopped it. Nothing was done.
    Interrupted,
    /// The holder gave the lock back meanwhile, or somebody deleted it. Nothing was done.
    GivenBack,
    /// The Lease changed meanwhile. It was left alone.
    Refused(Changed),
    /// A request failed before the lock was taken. Nothing was changed.
    NotTaken(Failure),
    /// It cannot be told whether the Lease bears this identity.
    Unknown {
        /// The identity to look for.
        holder: String,
        /// Why it cannot be told.
        why: Failure,
    },
    /// The lock was taken, and this came of giving it back.
    Reclaimed(Released),
}

/// How the Lease changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    /// Its holder renewed it.
    Renewed(Observation),
    /// Somebody else holds it now.
    Hands(Observation),
    /// Somebody wrote to it, and it names the same holder with the same renewal.
    Edited(Observation),
}

/// One reclaim.
#[derive(Debug)]
pub(crate) struct Reclaim {
    book: Book,
    state: State,
    asking: bool,
    wake: Option<Instant>,
    retries: Backoff,
    effects: Vec<Effect>,
}

#[derive(Debug)]
enum State {
    /// Reading who holds it.
    Looking,
    /// The person is reading, and types.
    Asking(Record),
    /// Reading whether it is still what the person saw.
    Confirming(Record),
    /// The window.
    Watching(Watch),
    /// A take is under way, or waited for.
    Taking(Take),
    /// Reading what came of a take.
    Settling(Take),
    /// It is ours, and is being given back.
    Releasing(Box<Release>),
    Ended,
}

#[derive(Debug, Clone)]
struct Watch {
    seen: Record,
    /// The last look may be sent from here on.
    until: Instant,
    /// When the look under way was sent.
    sent: Instant,
    failures: Backoff,
}

#[derive(Debug, Clone)]
struct Take {
    seen: Record,
    takes: u32,
    sent: Sent,
    /// When the look under way was sent.
    looked: Instant,
    /// The last answer that was none. While there is one, a take may still land.
    doubt: Option<Failure>,
    wish: Intent,
    failures: Backoff,
}

/// Whether the person still wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intent {
    GoOn,
    Stop,
}

impl Reclaim {
    pub(crate) fn begin(request: Request, timing: Timing) -> (Reclaim, Vec<Effect>) {
        let wish = Wish::new(request, timing.validity_seconds());
        let mut reclaim = Reclaim {
            book: Book { wish, timing, ledger: Ledger::default() },
            state: State::Looking,
            asking: false,
            wake: None,
            retries: Backoff::default(),
            effects: Vec::new(),
        };
        reclaim.ask(Ask::Read);
        let effects = std::mem::take(&mut reclaim.effects);
        (reclaim, effects)
    }

    /// When the next tick is due at the latest. None: only an answer or the person makes it go on.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.wake.filter(|_| !self.asking)
    }

    /// Takes one input, and says what is to be done, in this order.
    pub(crate) fn advance(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Answer(answer) => {
                self.asking = false;
                self.answered(answer, now);
            }
            Input::Typed(line) => self.typed(&line),
            Input::Interrupted => self.interrupted(),
            Input::Tick => self.tick(now),
        }
        std::mem::take(&mut self.effects)
    }

    fn ask(&mut self, ask: Ask) {
        self.asking = true;
        self.wake = None;
        self.effects.push(Effect::Ask(ask));
    }

    fn tell(&mut self, progress: Progress) {
        self.effects.push(Effect::Tell(progress));
    }

    fn end(&mut self, end: End) {
        self.state = State::Ended;
        self.wake = None;
        self.effects.push(Effect::Ended(end));
    }

    fn typed(&mut self, line: &str) {
        let State::Asking(shown) = &self.state else { return };
        let holder = plain(shown.holder().unwrap_or_default());
        if line != holder {
            return self.end(End::Mistyped(holder));
        }
        self.state = State::Confirming(shown.clone());
        self.ask(Ask::Read);
    }

    fn interrupted(&mut self) {
        match &mut self.state {
            State::Looking | State::Asking(_) | State::Confirming(_) | State::Watching(_) => self.end(End::Interrupted),
            // Nothing is under way, and nothing of ours can land any more.
            State::Taking(take) if !self.asking && take.doubt.is_none() => self.end(End::Interrupted),
            State::Taking(take) | State::Settling(take) => {
                take.wish = Intent::Stop;
                self.tell(Progress::Finishing);
            }
            State::Releasing(_) => self.tell(Progress::Finishing),
            State::Ended => {}
        }
    }

    fn tick(&mut self, now: Now) {
        if let State::Watching(watch) = &self.state {
            let left = watch.until.since(now.boot);
            let progress = match watch.failures.failures() {
                0 => Progress::Unchanged { left },
                _ => Progress::Unseen { left },
            };
            self.tell(progress);
        }
        if self.asking || self.wake.take_if(|at| *at <= now.boot).is_none() {
            return;
        }
        match &mut self.state {
            State::Looking | State::Confirming(_) => self.ask(Ask::Read),
            State::Watching(watch) => {
                watch.sent = now.boot;
                self.ask(Ask::Read);
            }
            State::Taking(take) => {
                let take = take.clone();
                self.take(take, now);
            }
            State::Settling(take) => {
                take.looked = now.boot;
                self.ask(Ask::Read);
            }
            State::Releasing(release) => {
                let next = release.woke(&self.book, now);
                self.release_next(next);
            }
            State::Asking(_) | State::Ended => {}
        }
    }

    fn answered(&mut self, answer: Answer, now: Now) {
        match (std::mem::replace(&mut self.state, State::Ended), answer) {
            (State::Looking, Answer::Read(answer)) => self.looked(answer, now),
            (State::Confirming(shown), Answer::Read(answer)) => self.confirmed(shown, answer, now),
            (State::Watching(watch), Answer::Read(answer)) => self.watched(watch, answer, now),
            (State::Taking(take), Answer::Replaced(answer)) => self.taken(take, answer, now),
            (State::Settling(take), Answer::Read(answer)) => self.settled(take, answer, now),
            (State::Releasing(mut release), answer) => {
                let next = release.answered(answer, &mut self.book, now);
                self.state = State::Releasing(release);
                self.release_next(next);
            }
            (state, answer) => unreachable!("{answer:?} cannot come in {state:?}: nothing like that was asked"),
        }
    }

    fn looked(&mut self, answer: Result<Option<Record>, Trouble>, now: Now) {
        match answer {
            Ok(None) => self.end(End::Free { kept_by: Vec::new() }),
            Ok(Some(record)) if record.holder().is_none() => {
                let kept_by = record.deleting_since().map(|_| record.finalizers()).unwrap_or_default();
                self.end(End::Free { kept_by });
            }
            Ok(Some(record)) if record.deleting_since().is_some() => {
                self.end(End::BeingDeleted(Observation::new(record)));
            }
            Ok(Some(record)) => {
                self.effects.push(Effect::Show(Observation::new(record.clone())));
                self.state = State::Asking(record);
            }
            Err(trouble) => self.again(State::Looking, trouble, now),
        }
    }

    fn confirmed(&mut self, shown: Record, answer: Result<Option<Record>, Trouble>, now: Now) {
        match answer {
            Ok(seen) => match unchanged(&shown, seen) {
                Ok(seen) => {
                    let window = Window::of(&seen, self.book.timing);
                    let until = now.boot + window.length();
                    self.tell(Progress::Checking(window));
                    self.tell(Progress::Unchanged { left: window.length() });
                    self.wake = Some(until.min(now.boot + LOOK_EVERY));
                    self.state = State::Watching(Watch { seen, until, sent: now.boot, failures: Backoff::default() });
                }
                Err(end) => self.end(end),
            },
            Err(trouble) => self.again(State::Confirming(shown), trouble, now),
        }
    }

    /// A read that may be tried again a few times: nothing was begun.
    fn again(&mut self, state: State, trouble: Trouble, now: Now) {
        match trouble {
            Trouble::Unclear(_) | Trouble::Unsent(_) if self.retries.failures() < MOST_RETRIES => {
                self.wake = Some(now.boot + self.retries.failed(self.book.timing));
                self.state = state;
            }
            trouble => self.end(End::NotTaken(trouble.into_failure())),
        }
    }

    fn watched(&mut self, mut watch: Watch, answer: Result<Option<Record>, Trouble>, now: Now) {
        match answer {
            Ok(seen) => match unchanged(&watch.seen, seen) {
                Ok(seen) if watch.sent >= watch.until => self.begin_take(seen, now),
                Ok(_) => {
                    watch.failures = Backoff::default();
                    self.wake = Some(watch.until.min(now.boot + LOOK_EVERY));
                    self.state = State::Watching(watch);
                }
                Err(end) => self.end(end),
            },
            // A folder that is not there any more: it is looked for a few times, and then nothing is left to be taken.
            Err(Trouble::Unsent(failure))
                if failure.code == Code::LockDirUnusable && watch.failures.failures() >= MOST_RETRIES =>
            {
                self.end(End::NotTaken(failure));
            }
            Err(Trouble::Unclear(_) | Trouble::Unsent(_)) if now.boot < watch.until + LAST_LOOK => {
                self.wake = Some(now.boot + watch.failures.failed(self.book.timing));
                self.state = State::Watching(watch);
            }
            Err(trouble) => self.end(End::NotTaken(trouble.into_failure())),
        }
    }

    fn begin_take(&mut self, seen: Record, now: Now) {
        self.tell(Progress::Taking);
        let sent = self.book.ledger.sending(now);
        let (wish, failures) = (Intent::GoOn, Backoff::default());
        self.write(Take { seen, takes: 0, sent, looked: now.boot, doubt: None, wish, failures }, sent);
    }

    fn take(&mut self, take: Take, now: Now) {
        let sent = self.book.ledger.sending(now);
        self.write(take, sent);
    }

    fn write(&mut self, mut take: Take, sent: Sent) {
        take.takes += 1;
        take.sent = sent;
        let body = take.seen.claimed(&self.book.wish, sent.stamp);
        self.state = State::Taking(take);
        self.ask(Ask::Replace(body));
    }

    fn taken(&mut self, mut take: Take, answer: Result<Replaced, Trouble>, now: Now) {
        match answer {
            Ok(Replaced::Stored(record)) if self.book.is_ours(&record) => self.won(record, now),
            Ok(Replaced::Stored(_) | Replaced::Conflict) => self.settle(take, now),
            Err(Trouble::Unclear(failure)) => {
                if take.doubt.replace(failure).is_none() {
                    self.tell(Progress::Unanswered);
                }
                self.settle(take, now);
            }
            // It was not done, but one before it still may be.
            Err(_) if take.doubt.is_some() => self.settle(take, now),
            Err(_) if take.wish == Intent::Stop => self.end(End::Interrupted),
            Err(Trouble::Unsent(_)) if self.retries.failures() < MOST_RETRIES => {
                self.wake = Some(now.boot + self.retries.failed(self.book.timing));
                self.state = State::Taking(take);
            }
            Err(trouble) => self.end(End::NotTaken(trouble.into_failure())),
        }
    }

    fn settle(&mut self, mut take: Take, now: Now) {
        take.looked = now.boot;
        take.failures = Backoff::default();
        self.state = State::Settling(take);
        self.ask(Ask::Read);
    }

    /// What came of a take, by what the Lease says now.
    fn settled(&mut self, mut take: Take, answer: Result<Option<Record>, Trouble>, now: Now) {
        match answer {
            Ok(Some(record)) if self.book.is_ours(&record) => self.won(record, now),
            Ok(seen) => match unchanged(&take.seen, seen) {
                Ok(_) => self.not_landed(take, now),
                // It names a version that is no more, so it cannot land either.
                Err(end) => self.end(end),
            },
            Err(Trouble::Unclear(failure) | Trouble::Unsent(failure)) => {
                let last = take.sent.at + self.book.timing.release_budget();
                let at = now.boot + take.failures.failed(self.book.timing);
                if at > last {
                    return self.unknown(failure);
                }
                self.wake = Some(at);
                self.state = State::Settling(take);
            }
            Err(trouble) => self.unknown(trouble.into_failure()),
        }
    }

    fn unknown(&mut self, why: Failure) {
        let holder = self.book.wish.holder.to_string();
        self.end(End::Unknown { holder, why });
    }

    /// The Lease is still as it was watched. A take without an answer may land yet, so either there is one more, or it
    /// is looked at late enough to say that none came through.
    fn not_landed(&mut self, take: Take, now: Now) {
        if take.wish == Intent::GoOn && take.takes < MOST_TAKES {
            return self.take(take, now);
        }
        let look_at = take.sent.at + self.book.timing.look_again_after();
        if take.doubt.is_some() && take.looked < look_at {
            self.wake = Some(look_at);
            self.state = State::Settling(take);
        } else if take.wish == Intent::Stop {
            self.end(End::Interrupted);
        } else {
            self.end(End::NotTaken(take.doubt.unwrap_or_else(not_accepted)));
        }
    }

    fn won(&mut self, record: Record, now: Now) {
        let (release, next) = Release::begin(Target::Known(record), now.boot, &mut self.book, now);
        self.state = State::Releasing(Box::new(release));
        self.release_next(next);
    }

    fn release_next(&mut self, next: release::Next) {
        match next {
            release::Next::Ask(ask) => self.ask(ask),
            release::Next::Wait(until) | release::Next::LookAt(until) => self.wake = Some(until),
            release::Next::Ended(released) => self.end(End::Reclaimed(released)),
        }
    }
}

/// The Lease, if it is the same object in the same version. Else what happened to it.
fn unchanged(before: &Record, seen: Option<Record>) -> Result<Record, End> {
    let Some(seen) = seen.filter(|seen| seen.holder().is_some()) else { return Err(End::GivenBack) };
    if seen.uid() == before.uid() && seen.version() == before.version() {
        return Ok(seen);
    }
    let (same_holder, renewed) = (seen.holder() == before.holder(), seen.renewed_at() != before.renewed_at());
    let deleting = seen.deleting_since().is_some();
    let seen = Observation::new(seen);
    Err(match (same_holder, renewed) {
        (false, _) => End::Refused(Changed::Hands(seen)),
        (true, true) => End::Refused(Changed::Renewed(seen)),
        (true, false) if deleting => End::BeingDeleted(seen),
        (true, false) => End::Refused(Changed::Edited(seen)),
    })
}

/// It was said to be a conflict, and nothing had changed, time and again.
fn not_accepted() -> Failure {
    let message = "a change of the lock's Lease was not accepted, time and again";
    Failure::new(Code::ClusterRequestFailed, message)
}

#[cfg(test)]
mod tests;
