//! Holding the lock: when to renew, what the fence rests on, and which checks wait for an answer.

use crate::clock::Instant;
use crate::failure::Failure;
use crate::lock::change::Change;
use crate::lock::fence::{Fence, Standing};
use crate::lock::protocol::claim::Won;
use crate::lock::protocol::release::Target;
use crate::lock::protocol::renewal::{Held, Lost, Next, Purpose, Renewal};
use crate::lock::protocol::{Answer, Ask, Backoff, Book, Now, Sent};
use crate::lock::record::Record;
use crate::lock::timing::Timing;

/// What is known while the lock is ours.
#[derive(Debug)]
pub(crate) struct Holding {
    /// The Lease as last seen.
    record: Record,
    pub(crate) fence: Fence,
    attempt: Option<Attempt>,
    /// When the next renewal begins.
    due: Instant,
    /// Renew before that: there is something to write that no replace carries yet, or reason to ask.
    urgent: bool,
    /// When the renewal period began: failures within it are tried again sooner than the next period.
    period: Instant,
    failures: Backoff,
    /// A replace whose answer is not known, until a read settles it.
    in_doubt: Option<Sent>,
    /// What the last attempt failed with.
    trouble: Option<Failure>,
    /// How many attempts have failed since the last good renewal.
    tries: u32,
    /// Whether `record` is more than a uid that somebody else wrote down.
    sight: Sight,
}

/// Whether this process has read the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Not yet.
    None,
    /// It has.
    Seen,
}

#[derive(Debug)]
struct Attempt {
    renewal: Renewal,
    began: Instant,
    /// How many checks it answers: those that were asked for before it began.
    checks: usize,
}

/// What one answer led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The attempt goes on.
    Ask(Ask),
    /// The attempt has ended. So many checks are answered.
    Ended { checks: usize, answer: Result<(), Lost> },
    /// The lock is lost. So many checks are answered by that.
    Lost { checks: usize, lost: Lost },
}

impl Holding {
    pub(crate) fn begin(won: Won, timing: Timing) -> Holding {
        Holding {
            fence: Fence { epoch: won.record.transitions(), renewed_at: won.sent },
            record: won.record,
            attempt: None,
            due: won.sent + timing.renew_every(),
            urgent: false,
            period: won.sent,
            failures: Backoff::default(),
            in_doubt: None,
            trouble: None,
            tries: 0,
            sight: Sight::Seen,
        }
    }

    /// Goes on where another process of the same run was when it ended: it held the Lease of this uid, and sent the last
    /// renewal that is known to have succeeded then. It is renewed at once.
    pub(crate) fn inherit(uid: &str, renewed_at: Instant, timing: Timing) -> Holding {
        let record = Record::named(uid);
        Holding {
            fence: Fence { epoch: record.transitions(), renewed_at },
            record,
            attempt: None,
            due: renewed_at + timing.renew_every(),
            urgent: true,
            period: renewed_at,
            failures: Backoff::default(),
            in_doubt: None,
            trouble: None,
            tries: 0,
            sight: Sight::None,
        }
    }

    pub(crate) fn uid(&self) -> &str {
        self.record.uid()
    }

    /// Renew as soon as nothing is under way.
    pub(crate) fn renew_at_once(&mut self) {
        self.urgent = true;
    }

    /// When something is due: the next renewal unless an attempt goes on, and always the end of the fence.
    pub(crate) fn due(&self, timing: Timing) -> Instant {
        let deadline = self.fence.deadline(timing);
        if self.attempt.is_some() { deadline } else { deadline.min(self.due) }
    }

    /// Whether the fence has fallen, and with what.
    pub(crate) fn fallen(&self, timing: Timing, now: Now) -> Option<Lost> {
        let fallen = self.fence.standing(timing, now.boot) == Standing::Fallen;
        fallen.then(|| Lost::Expired { age: self.fence.age(now.boot), why: self.trouble.clone() })
    }

    /// Begins an attempt, if a renewal is due or a check waits.
    pub(crate) fn attempt(&mut self, checks: &mut usize, timing: Timing, now: Now) -> Option<Ask> {
        let purpose = if self.urgent || self.due <= now.boot { Purpose::Renew } else { Purpose::Check };
        if self.attempt.is_some() || (purpose == Purpose::Check && *checks == 0) {
            return None;
        }
        if purpose == Purpose::Renew && now.boot >= self.period + timing.renew_every() {
            self.period = now.boot;
            self.failures = Backoff::default();
        }
        let (renewal, ask) = Renewal::begin(purpose);
        self.attempt = Some(Attempt { renewal, began: now.boot, checks: std::mem::take(checks) });
        Some(ask)
    }

    /// Takes the answer to the attempt's request.
    pub(crate) fn answered(
        &mut self,
        answer: Answer,
        book: &mut Book,
        now: Now,
        tell: &mut impl FnMut(Change),
    ) -> Outcome {
        let mut attempt = self.attempt.take().expect("an answer comes to an attempt");
        if let Answer::Read(Ok(Some(record))) = &answer {
            self.saw(record, book, tell);
        }
        let held = Held { uid: self.record.uid(), age: self.fence.age(now.boot) };
        match attempt.renewal.answered(answer, &held, book, now) {
            Next::Ask(ask) => {
                // A replace carries all notes there are.
                self.urgent &= !matches!(ask, Ask::Replace(_));
                self.attempt = Some(attempt);
                return Outcome::Ask(ask);
            }
            Next::Lost(lost) => return Outcome::Lost { checks: attempt.checks, lost },
            Next::Renewed(record, sent) => {
                self.renewed(record, sent, tell);
                self.period = attempt.began;
                self.due = attempt.began + book.timing.renew_every();
                self.failures = Backoff::default();
            }
            Next::Checked(record) => self.record = record,
            Next::Failed(failure) => self.failed(&attempt, failure, book.timing, now, tell),
        }
        Outcome::Ended { checks: attempt.checks, answer: self.may_begin(book.timing, now) }
    }

    /// Gives up an attempt between two of its requests; the checks that it was to answer.
    pub(crate) fn drop_attempt(&mut self) -> usize {
        self.attempt.take().map_or(0, |attempt| attempt.checks)
    }

    /// What there is to give back.
    pub(crate) fn target(&self) -> Target {
        match (self.in_doubt, self.sight) {
            (Some(_), _) | (None, Sight::None) => Target::Stale(self.record.clone()),
            (None, Sight::Seen) => Target::Known(self.record.clone()),
        }
    }

    /// A read settles a replace that got no answer: it is what the Lease shows, or it is not there (yet).
    fn saw(&mut self, record: &Record, book: &Book, tell: &mut impl FnMut(Change)) {
        if record.uid() != self.record.uid() || !book.is_ours(record) {
            return;
        }
        self.record = record.clone();
        self.sight = Sight::Seen;
        if let Some(sent) = self.in_doubt.take()
            && sent.made(record)
        {
            self.renewed(record.clone(), sent, tell);
        }
    }

    fn renewed(&mut self, record: Record, sent: Sent, tell: &mut impl FnMut(Change)) {
        self.record = record;
        let before = self.fence.renewed_at;
        self.fence.extend(sent.at);
        self.in_doubt = None;
        self.trouble = None;
        let gap = (std::mem::take(&mut self.tries) > 0).then(|| self.fence.renewed_at.since(before));
        tell(Change::Renewed { uid: self.record.uid().to_owned(), sent_at: self.fence.renewed_at, gap });
    }

    fn failed(&mut self, attempt: &Attempt, failure: Failure, timing: Timing, now: Now, tell: &mut impl FnMut(Change)) {
        self.in_doubt = attempt.renewal.write.or(self.in_doubt);
        self.trouble = Some(failure.clone());
        self.urgent = false;
        if attempt.renewal.purpose == Purpose::Renew {
            let next_period = (self.period + timing.renew_every()).max(now.boot);
            self.due = next_period.min(now.boot + self.failures.failed(timing));
        }
        self.tries = self.tries.saturating_add(1);
        let in_doubt = self.in_doubt.map(|write| write.at);
        tell(Change::RenewalFailed { failure, age: self.fence.age(now.boot), tries: self.tries, in_doubt });
    }

    /// Whether a new step may begin, by what is known.
    fn may_begin(&self, timing: Timing, now: Now) -> Result<(), Lost> {
        match self.fence.standing(timing, now.boot) {
            Standing::Firm => Ok(()),
            Standing::Weak | Standing::Fallen => {
                Err(Lost::Unsure { age: self.fence.age(now.boot), why: self.trouble.clone() })
            }
        }
    }
}
