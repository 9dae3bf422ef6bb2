//! Giving the lock back, and making sure that nothing of ours is left behind.
//!
//! A release deletes exactly the Lease that we hold, in exactly the state that we know. Then, if a claim of this run
//! never got a definite answer, it looks once more, late enough, and deletes what bears our identity. What cannot be
//! settled within the budget is said: [`Released::Unknown`].

use crate::clock::Instant;
use crate::failure::{Code, Failure};
use crate::lock::message::plain;
use crate::lock::protocol::renewal::Lost;
use crate::lock::protocol::{Answer, Ask, Backoff, Book, Now};
use crate::lock::record::{NAME, NAMESPACE, Record};
use crate::lock::store::{Deleted, Replaced, Trouble};

/// Where the lock is after a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Released {
    /// This run never held it, and nothing of it is in the Lease.
    NeverTaken,
    /// The Lease was deleted: the lock is free.
    Deleted,
    /// The lock is free, but the Lease is still there with an empty holder: this account may not delete it.
    Emptied(Failure),
    /// The Lease was gone already.
    AlreadyGone,
    /// The Lease was not ours any more, and was left alone.
    NotOurs {
        /// Who holds it now; nobody if none.
        holder: Option<String>,
    },
    /// It was lost before, so nothing was written.
    Lost(Lost),
    /// The Lease still bears our identity.
    Left(Failure),
    /// It cannot be told whether the Lease bears our identity.
    Unknown {
        /// The identity to look for in the Lease.
        holder: String,
        /// Why it cannot be told.
        why: Failure,
    },
}

/// What there is to give back.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Target {
    /// Nothing was held.
    Nothing,
    /// The Lease, as it was last seen.
    Known(Record),
    /// The Lease, but what became of our last write to it is not known.
    Stale(Record),
    /// The Lease, of which nothing is known any more.
    Unseen,
    /// The same, and another process of this run was giving it back: if it is not there, that was done.
    Returning,
    /// It was lost. That Lease is not touched any more.
    Lost { lost: Lost, uid: String },
}

/// What a release does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Ask(Ask),
    Wait(Instant),
    /// The same, for a claim that may still land.
    LookAt(Instant),
    Ended(Released),
}

/// What the request that is under way, or waited for, is for.
#[derive(Debug, Clone, PartialEq)]
enum Doing {
    /// Deleting the Lease that we hold.
    Deleting,
    /// Reading what became of it.
    Settling,
    /// Emptying it, because deleting is forbidden.
    Emptying { why: Failure },
    /// Reading what became of that.
    SettlingEmpty { why: Failure },
    /// Looking for a claim that landed late. The release itself has ended like this.
    Looking(Released),
    /// Deleting such a claim.
    Sweeping(Released),
}

/// One release.
#[derive(Debug)]
pub(crate) struct Release {
    /// No request is begun after this.
    last_start: Instant,
    /// The Lease to give back, as it was last seen.
    held: Option<Record>,
    /// The uid of a Lease that was lost and is not touched.
    spared: Option<String>,
    /// How the release itself has ended, while a claim that landed late is emptied.
    so_far: Option<Released>,
    doing: Doing,
    backoff: Backoff,
    conflicts: u32,
    /// The last write whose answer is not known.
    unclear: Option<Write>,
    /// The last request that came to nothing.
    trouble: Option<Failure>,
}

/// A write that gives the lock back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Delete,
    Empty,
}

impl Release {
    /// Begins a release that was asked for at `asked`: its budget counts from there.
    pub(crate) fn begin(target: Target, asked: Instant, book: &mut Book, now: Now) -> (Release, Next) {
        let mut release = Release {
            last_start: asked + book.timing.release_budget().saturating_sub(book.timing.request_timeout()),
            held: None,
            spared: None,
            so_far: None,
            doing: Doing::Deleting,
            backoff: Backoff::default(),
            conflicts: 0,
            unclear: None,
            trouble: None,
        };
        let next = match target {
            Target::Nothing => release.conclude(Released::NeverTaken, book, now),
            Target::Known(record) => {
                release.held = Some(record);
                release.delete(book, now)
            }
            Target::Stale(record) => {
                release.held = Some(record);
                release.doing = Doing::Settling;
                release.ask(Ask::Read, book, now)
            }
            Target::Returning => {
                release.unclear = Some(Write::Delete);
                release.doing = Doing::Settling;
                release.ask(Ask::Read, book, now)
            }
            Target::Unseen => {
                release.doing = Doing::Settling;
                release.ask(Ask::Read, book, now)
            }
            Target::Lost { lost, uid } => {
                release.spared = Some(uid);
                release.conclude(Released::Lost(lost), book, now)
            }
        };
        (release, next)
    }

    /// The wait is over.
    pub(crate) fn woke(&mut self, book: &Book, now: Now) -> Next {
        match self.doing.clone() {
            Doing::Deleting => self.delete(book, now),
            Doing::Emptying { why } => self.empty(why, book, now),
            Doing::Settling | Doing::SettlingEmpty { .. } | Doing::Looking(_) => self.ask(Ask::Read, book, now),
            Doing::Sweeping(_) => unreachable!("after a sweep without an answer it is looked again first"),
        }
    }

    pub(crate) fn answered(&mut self, answer: Answer, book: &mut Book, now: Now) -> Next {
        match answer {
            Answer::Deleted(answer) => match self.doing.clone() {
                Doing::Sweeping(so_far) => self.swept(answer, so_far, book, now),
                Doing::Deleting
                | Doing::Settling
                | Doing::Emptying { .. }
                | Doing::SettlingEmpty { .. }
                | Doing::Looking(_) => self.deleted(answer, book, now),
            },
            Answer::Read(answer) => match self.doing.clone() {
                Doing::Looking(so_far) => self.looked(answer, so_far, book, now),
                Doing::Deleting
                | Doing::Settling
                | Doing::Emptying { .. }
                | Doing::SettlingEmpty { .. }
                | Doing::Sweeping(_) => self.settled(answer, book, now),
            },
            Answer::Replaced(answer) => self.emptied(answer, book, now),
            Answer::Created(_) | Answer::NamespaceCreated(_) => unreachable!("a release never creates"),
        }
    }

    fn record(&self) -> &Record {
        self.held.as_ref().expect("only what is held is deleted or emptied")
    }

    fn delete(&mut self, book: &Book, now: Now) -> Next {
        self.doing = Doing::Deleting;
        self.ask(delete(self.record()), book, now)
    }

    fn empty(&mut self, why: Failure, book: &Book, now: Now) -> Next {
        self.doing = Doing::Emptying { why };
        self.ask(Ask::Replace(self.record().emptied()), book, now)
    }

    fn deleted(&mut self, answer: Result<Deleted, Trouble>, book: &mut Book, now: Now) -> Next {
        match answer {
            Ok(Deleted::Gone) => self.conclude(Released::Deleted, book, now),
            Ok(Deleted::Absent) => self.absent(book, now),
            Ok(Deleted::Kept(record)) => Next::Ended(Released::Left(kept(&record))),
            Ok(Deleted::Conflict) => {
                self.conflicts += 1;
                self.doing = Doing::Settling;
                self.ask(Ask::Read, book, now)
            }
            Err(Trouble::Forbidden(why)) => self.empty(why, book, now),
            Err(Trouble::Unclear(failure)) => {
                self.unclear = Some(Write::Delete);
                self.trouble = Some(failure);
                self.doing = Doing::Settling;
                self.ask(Ask::Read, book, now)
            }
            Err(Trouble::Unsent(failure)) => self.later(failure, book, now),
            Err(Trouble::Refused(failure) | Trouble::NamespaceTerminating(failure)) => {
                Next::Ended(Released::Left(failure))
            }
        }
    }

    fn emptied(&mut self, answer: Result<Replaced, Trouble>, book: &mut Book, now: Now) -> Next {
        let Doing::Emptying { why } = self.doing.clone() else { unreachable!("a release replaces only to empty") };
        match answer {
            Ok(Replaced::Stored(_)) => self.conclude(Released::Emptied(why), book, now),
            Ok(Replaced::Conflict) => {
                self.conflicts += 1;
                self.doing = Doing::SettlingEmpty { why };
                self.ask(Ask::Read, book, now)
            }
            Err(Trouble::Unclear(failure)) => {
                self.unclear = Some(Write::Empty);
                self.trouble = Some(failure);
                self.doing = Doing::SettlingEmpty { why };
                self.ask(Ask::Read, book, now)
            }
            Err(Trouble::Unsent(failure)) => self.later(failure, book, now),
            Err(trouble) => Next::Ended(Released::Left(why.cause(trouble.into_failure().message))),
        }
    }

    /// What became of the Lease that we hold, or held.
    fn settled(&mut self, answer: Result<Option<Record>, Trouble>, book: &mut Book, now: Now) -> Next {
        let record = match answer {
            Ok(None) => return self.absent(book, now),
            Ok(Some(record)) => record,
            Err(Trouble::Unclear(failure) | Trouble::Unsent(failure)) => return self.later(failure, book, now),
            Err(trouble) => return self.undecided(Some(trouble.into_failure()), book),
        };
        if !book.is_ours(&record) {
            return self.not_ours(&record, book, now);
        }
        if record.deleting_since().is_some() {
            return Next::Ended(Released::Left(kept(&record)));
        }
        if self.conflicts > 1 {
            return Next::Ended(Released::Left(conflicts()));
        }
        self.held = Some(record);
        match self.doing.clone() {
            Doing::SettlingEmpty { why } => self.empty(why, book, now),
            Doing::Deleting | Doing::Settling | Doing::Emptying { .. } | Doing::Looking(_) | Doing::Sweeping(_) => {
                self.delete(book, now)
            }
        }
    }

    fn not_ours(&mut self, record: &Record, book: &mut Book, now: Now) -> Next {
        let same = self.held.as_ref().is_some_and(|held| held.uid() == record.uid());
        let released = match self.doing.clone() {
            // By us, though another answer came of it, or by somebody else: it is free, and still there.
            Doing::SettlingEmpty { why } if same && record.holder().is_none() => Released::Emptied(why),
            // Another Lease: the delete that got no answer was done, and somebody claimed since.
            Doing::Settling if !same && self.unclear == Some(Write::Delete) => Released::Deleted,
            Doing::Deleting
            | Doing::Settling
            | Doing::Emptying { .. }
            | Doing::SettlingEmpty { .. }
            | Doing::Looking(_)
            | Doing::Sweeping(_) => Released::NotOurs { holder: record.holder().map(str::to_owned) },
        };
        self.conclude(released, book, now)
    }

    fn absent(&mut self, book: &mut Book, now: Now) -> Next {
        let released = if self.unclear == Some(Write::Delete) { Released::Deleted } else { Released::AlreadyGone };
        self.conclude(released, book, now)
    }

    /// The release has ended, but a claim of ours that got no answer may still land.
    fn conclude(&mut self, released: Released, book: &mut Book, now: Now) -> Next {
        // A late claim changes nothing of what came of the lock itself, unless there was none.
        let released = self.so_far.take().filter(|so_far| *so_far != Released::NeverTaken).unwrap_or(released);
        let Some(look_at) = book.ledger.look_at(book.timing) else { return Next::Ended(released) };
        self.doing = Doing::Looking(released);
        self.backoff = Backoff::default();
        if look_at <= now.boot { self.ask(Ask::Read, book, now) } else { Next::LookAt(look_at) }
    }

    fn looked(&mut self, answer: Result<Option<Record>, Trouble>, so_far: Released, book: &mut Book, now: Now) -> Next {
        match answer {
            Ok(Some(record)) if book.is_ours(&record) && self.spared.as_deref() != Some(record.uid()) => {
                self.doing = Doing::Sweeping(so_far);
                let ask = delete(&record);
                self.held = Some(record);
                self.ask(ask, book, now)
            }
            Ok(_) => {
                book.ledger.settle();
                Next::Ended(so_far)
            }
            Err(Trouble::Unclear(failure) | Trouble::Unsent(failure)) => self.later(failure, book, now),
            Err(trouble) => self.undecided(Some(trouble.into_failure()), book),
        }
    }

    fn swept(&mut self, answer: Result<Deleted, Trouble>, so_far: Released, book: &mut Book, now: Now) -> Next {
        match answer {
            Ok(Deleted::Gone) => {
                book.ledger.settle();
                Next::Ended(if so_far == Released::NeverTaken { Released::Deleted } else { so_far })
            }
            Ok(Deleted::Absent | Deleted::Conflict) => {
                self.doing = Doing::Looking(so_far);
                self.ask(Ask::Read, book, now)
            }
            Ok(Deleted::Kept(record)) => Next::Ended(Released::Left(kept(&record))),
            Err(Trouble::Forbidden(why)) => {
                self.so_far = Some(so_far);
                self.empty(why, book, now)
            }
            Err(Trouble::Unclear(failure) | Trouble::Unsent(failure)) => {
                self.doing = Doing::Looking(so_far);
                self.later(failure, book, now)
            }
            Err(trouble) => Next::Ended(Released::Left(trouble.into_failure())),
        }
    }

    /// Asks, while the budget lasts.
    fn ask(&mut self, ask: Ask, book: &Book, now: Now) -> Next {
        if now.boot > self.last_start { self.undecided(None, book) } else { Next::Ask(ask) }
    }

    /// Tries again after a pause, while the budget lasts.
    fn later(&mut self, why: Failure, book: &Book, now: Now) -> Next {
        let at = now.boot + self.backoff.failed(book.timing);
        if at > self.last_start { self.undecided(Some(why), book) } else { Next::Wait(at) }
    }

    /// No answer can be had any more.
    fn undecided(&mut self, why: Option<Failure>, book: &Book) -> Next {
        let why = why.or(self.trouble.take()).unwrap_or_else(out_of_time);
        let looking = matches!(self.doing, Doing::Looking(_) | Doing::Sweeping(_));
        Next::Ended(if looking || self.unclear.is_some() {
            Released::Unknown { holder: book.wish.holder.to_string(), why }
        } else {
            Released::Left(why)
        })
    }
}

fn delete(record: &Record) -> Ask {
    Ask::Delete { uid: record.uid().to_owned(), version: record.version().to_owned() }
}

/// A Lease that was asked to go, and stays.
fn kept(record: &Record) -> Failure {
    let finalizers = plain(&record.finalizers().join(", "));
    let message = format!("the Lease {NAME} in {NAMESPACE} is being deleted, but finalizers keep it: {finalizers}");
    Failure::new(Code::StoppedForced, message)
        .hint("Whoever put the finalizers there has to take them off; nobody can claim the lock until then.")
}

fn conflicts() -> Failure {
    let message = "the lock's Lease could not be deleted: somebody else keeps writing to it";
    Failure::new(Code::StoppedForced, message)
}

fn out_of_time() -> Failure {
    Failure::new(Code::ClusterUnreachable, "there was no answer within the time for giving the lock back")
}

#[cfg(test)]
mod tests;
