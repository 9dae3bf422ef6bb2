//! Claiming: one create, and what its answers mean.
//!
//! Whoever creates the Lease has the lock; the API server decides. A Lease that is there is busy if it names a holder,
//! however old it looks, and free if it names none. A free one is taken by a replace that names its uid and version. A
//! Lease that is being deleted is never claimed: it can vanish at any moment, and with it the lock.

use crate::clock::Instant;
use crate::failure::Failure;
use crate::lock::observation::Observation;
use crate::lock::protocol::{Answer, Ask, Backoff, Book, Now, Sent};
use crate::lock::record::Record;
use crate::lock::store::{Created, Replaced, Trouble};

/// How many creates and takes a claim may need before it counts as contended.
const MOST_WRITES: u32 = 5;
/// How many times in all a claim goes on after a request that is known not to have been done.
const MOST_RETRIES: u32 = 3;

/// The lock was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The identity in the Lease.
    pub holder: String,
    /// The Lease's uid.
    pub uid: String,
    /// How many times the lock had changed hands.
    pub epoch: i32,
    /// When the claim that won was sent.
    pub sent_at: Instant,
    /// Whether the lock's namespace was missing and was created first.
    pub namespace: Namespace,
}

/// What a claim had to do about the lock's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// It was there.
    Found,
    /// It was missing and was created.
    Created,
}

/// Why there is no lock.
///
/// Whatever it is, call [`Keeper::release`](crate::lock::Keeper::release) before the verdict: a claim that got no
/// definite answer may still land.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else holds it.
    #[error("the cluster is locked by another run")]
    Busy(Observation),
    /// The Lease is free, but it is being deleted and a finalizer keeps it.
    #[error("the lock is being deleted")]
    BeingDeleted(Observation),
    /// The lock's namespace is being deleted.
    #[error("the lock's namespace is being deleted")]
    NamespaceTerminating(Failure),
    /// This account may not; the message is the API server's own sentence.
    #[error("the API server forbids it")]
    Forbidden(Failure),
    /// The Lease came and went under five creates.
    #[error("the lock changed hands under every attempt")]
    Contended,
    /// A claim got no definite answer, and what came of it could not be read: the Lease may bear this identity.
    #[error("it cannot be told whether the lock was claimed")]
    Unsettled {
        /// The identity to look for in the Lease.
        holder: String,
        /// Why it could not be read.
        why: Failure,
    },
    /// The run asked for the release before the claim had come to an end.
    #[error("the claim was given up")]
    GivenUp,
    /// Anything else.
    #[error("the lock could not be claimed")]
    Failed(Failure),
}

/// What a claim does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Ask(Ask),
    Wait(Instant),
    Won(Won),
    Ended(ClaimError),
}

/// A claim that came through.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Won {
    pub(crate) record: Record,
    /// When the claim was sent that is known to have made the record ours.
    pub(crate) sent: Instant,
    pub(crate) namespace: Namespace,
}

/// What a claim does when its wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    Create,
    CreateNamespace,
    Read,
}

/// One claim.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Every write that could have made the Lease ours, in order.
    writes: Vec<Sent>,
    retry: Retry,
    retries: Backoff,
    reads: Backoff,
    /// Why the last create did not come through, unless it was that a Lease was there.
    last: Option<Failure>,
    namespace: Namespace,
}

impl Claim {
    pub(crate) fn begin(book: &mut Book, now: Now) -> (Claim, Next) {
        let mut claim = Claim {
            writes: Vec::new(),
            retry: Retry::Create,
            retries: Backoff::default(),
            reads: Backoff::default(),
            last: None,
            namespace: Namespace::Found,
        };
        let next = claim.create(book, now);
        (claim, next)
    }

    /// The wait is over.
    pub(crate) fn woke(&mut self, book: &mut Book, now: Now) -> Next {
        match self.retry {
            Retry::Create => self.create(book, now),
            Retry::CreateNamespace => Next::Ask(Ask::CreateNamespace),
            Retry::Read => Next::Ask(Ask::Read),
        }
    }

    pub(crate) fn answered(&mut self, answer: Answer, book: &mut Book, now: Now) -> Next {
        match answer {
            Answer::Created(answer) => self.created(answer, book, now),
            Answer::NamespaceCreated(answer) => self.namespace_created(answer, book, now),
            Answer::Read(answer) => self.read(answer, book, now),
            Answer::Replaced(answer) => self.replaced(answer, book, now),
            Answer::Deleted(_) => unreachable!("a claim never deletes"),
        }
    }

    fn create(&mut self, book: &mut Book, now: Now) -> Next {
        match self.write(book, now) {
            Some(sent) => Next::Ask(Ask::Create(book.wish.draft(sent.stamp))),
            None => self.too_often(),
        }
    }

    /// Notes one more write, if there may be one more.
    fn write(&mut self, book: &mut Book, now: Now) -> Option<Sent> {
        let room = self.writes.len() < MOST_WRITES as usize;
        room.then(|| {
            let sent = book.ledger.sending(now);
            self.writes.push(sent);
            sent
        })
    }

    fn too_often(&mut self) -> Next {
        Next::Ended(match self.last.take() {
            Some(failure) => ClaimError::Failed(failure),
            None => ClaimError::Contended,
        })
    }

    fn last_write(&self) -> Sent {
        *self.writes.last().expect("an answer to a write comes after the write")
    }

    fn created(&mut self, answer: Result<Created, Trouble>, book: &mut Book, now: Now) -> Next {
        match answer {
            Ok(Created::Stored(record)) => self.ours(record, book, now),
            Ok(Created::Exists) => {
                self.last = None;
                Next::Ask(Ask::Read)
            }
            Ok(Created::NoNamespace(failure)) => {
                self.last = Some(failure);
                Next::Ask(Ask::CreateNamespace)
            }
            Err(Trouble::Unclear(failure)) => {
                book.ledger.doubt(self.last_write());
                self.last = Some(failure);
                Next::Ask(Ask::Read)
            }
            Err(trouble) => self.not_done(trouble, Retry::Create, book, now),
        }
    }

    fn namespace_created(&mut self, answer: Result<(), Trouble>, book: &mut Book, now: Now) -> Next {
        match answer {
            Ok(()) => {
                self.namespace = Namespace::Created;
                self.create(book, now)
            }
            // The next create tells whether it is there.
            Err(Trouble::Unclear(failure)) => {
                self.last = Some(failure);
                self.create(book, now)
            }
            Err(trouble) => self.not_done(trouble, Retry::CreateNamespace, book, now),
        }
    }

    fn read(&mut self, answer: Result<Option<Record>, Trouble>, book: &mut Book, now: Now) -> Next {
        if answer.is_ok() {
            book.ledger.landed = None;
        }
        match answer {
            Ok(None) => self.create(book, now),
            Ok(Some(record)) if book.is_ours(&record) => self.ours(record, book, now),
            Ok(Some(record)) if record.holder().is_some() => Next::Ended(ClaimError::Busy(Observation::new(record))),
            Ok(Some(record)) if record.deleting_since().is_some() => {
                Next::Ended(ClaimError::BeingDeleted(Observation::new(record)))
            }
            Ok(Some(free)) => match self.write(book, now) {
                Some(sent) => Next::Ask(Ask::Replace(free.claimed(&book.wish, sent.stamp))),
                None => self.too_often(),
            },
            Err(Trouble::Unclear(failure) | Trouble::Unsent(failure)) => self.unread(failure, book, now),
            Err(trouble) => self.not_done(trouble, Retry::Read, book, now),
        }
    }

    /// The record is ours. The fence counts from the write that made it so, which may be one of an earlier claim of this
    /// run. If that is not known, or was so long ago that the fence would be weak from the start, it is written once
    /// more: nothing was done yet.
    fn ours(&mut self, record: Record, book: &mut Book, now: Now) -> Next {
        let made = self.writes.iter().find(|sent| sent.made(&record)).copied().or(book.ledger.doubtful(&record));
        book.ledger.landed(&record);
        if record.deleting_since().is_some() {
            return Next::Ended(ClaimError::BeingDeleted(Observation::new(record)));
        }
        match made {
            Some(sent) if now.boot.since(sent.at) < book.timing.no_new_step_after() => {
                Next::Won(Won { record, sent: sent.at, namespace: self.namespace })
            }
            Some(_) | None => match self.write(book, now) {
                Some(again) => Next::Ask(Ask::Replace(record.renewed(&book.wish, again.stamp))),
                None => self.too_often(),
            },
        }
    }

    fn replaced(&mut self, answer: Result<Replaced, Trouble>, book: &mut Book, now: Now) -> Next {
        match answer {
            Ok(Replaced::Stored(record)) => self.ours(record, book, now),
            Ok(Replaced::Conflict) => {
                self.last = None;
                Next::Ask(Ask::Read)
            }
            Err(Trouble::Unclear(failure)) => {
                book.ledger.doubt(self.last_write());
                self.last = Some(failure);
                Next::Ask(Ask::Read)
            }
            Err(trouble) => self.not_done(trouble, Retry::Read, book, now),
        }
    }

    /// The Lease cannot be read now. While a claim is in doubt there is a moment at which the last look is due.
    fn unread(&mut self, why: Failure, book: &mut Book, now: Now) -> Next {
        let Some(look_at) = book.ledger.look_at(book.timing) else {
            return self.not_done(Trouble::Unsent(why), Retry::Read, book, now);
        };
        if now.boot >= look_at {
            return Next::Ended(ClaimError::Unsettled { holder: book.wish.holder.to_string(), why });
        }
        self.retry = Retry::Read;
        Next::Wait((now.boot + self.reads.failed(book.timing)).min(look_at))
    }

    /// The request is known not to have been done.
    fn not_done(&mut self, trouble: Trouble, retry: Retry, book: &mut Book, now: Now) -> Next {
        let failure = match trouble {
            Trouble::Forbidden(failure) => return Next::Ended(ClaimError::Forbidden(failure)),
            Trouble::NamespaceTerminating(failure) => {
                return Next::Ended(ClaimError::NamespaceTerminating(failure));
            }
            Trouble::Refused(failure) => return Next::Ended(ClaimError::Failed(failure)),
            Trouble::Unsent(failure) | Trouble::Unclear(failure) => failure,
        };
        if self.retries.failures() >= MOST_RETRIES {
            return Next::Ended(ClaimError::Failed(failure));
        }
        self.retry = retry;
        self.last = Some(failure);
        Next::Wait(now.boot + self.retries.failed(book.timing))
    }
}

#[cfg(test)]
mod tests;
