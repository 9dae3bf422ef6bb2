//! Renewing: read, check that it is ours, replace. And checking alone, which is the first half.
//!
//! The replace names the uid and the version that were read. Without the uid, a replace that meets no Lease would make
//! a new one, and a run that had long lost its lock would hold it again behind everybody's back.

use std::time::Duration;

use crate::failure::Failure;
use crate::lock::protocol::{Answer, Ask, Book, Now, Sent};
use crate::lock::record::Record;
use crate::lock::store::{Replaced, Trouble};

/// How many conflicts with writers that do not take the lock one attempt puts up with.
const MOST_CONFLICTS: u32 = 3;

/// Why this run may not act, or may not begin anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// The Lease names another holder.
    Taken {
        /// Who holds it now, as written in the Lease.
        by: String,
    },
    /// The Lease is gone, or is another one, or names nobody.
    Gone,
    /// There was no good renewal for a whole validity, so others may rightly count this run as gone.
    Expired {
        /// How long ago the last good renewal was sent.
        age: Duration,
        /// What the last attempt failed with.
        why: Option<Failure>,
    },
    /// Not lost yet, but no new step may start: there was no good renewal for too long.
    Unsure {
        /// How long ago the last good renewal was sent.
        age: Duration,
        /// What the last attempt failed with.
        why: Option<Failure>,
    },
    /// The lock was never claimed, or the keeper itself broke.
    Broken(Failure),
}

/// What an attempt is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To renew.
    Renew,
    /// To ask whether the lock is still ours. It renews only when that alone keeps the fence firm.
    Check,
}

/// What an attempt does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    Ask(Ask),
    /// The record is ours, and was written by the request sent then.
    Renewed(Record, Sent),
    /// The record is ours.
    Checked(Record),
    Lost(Lost),
    Failed(Failure),
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub(crate) purpose: Purpose,
    conflicts: u32,
    /// The replace that is under way, or that the attempt ended with.
    pub(crate) write: Option<Sent>,
}

impl Renewal {
    pub(crate) fn begin(purpose: Purpose) -> (Renewal, Ask) {
        (Renewal { purpose, conflicts: 0, write: None }, Ask::Read)
    }

    pub(crate) fn answered(&mut self, answer: Answer, held: &Held<'_>, book: &mut Book, now: Now) -> Next {
        match answer {
            Answer::Read(answer) => self.read(answer, held, book, now),
            Answer::Replaced(answer) => self.replaced(answer, held),
            Answer::Created(_) | Answer::NamespaceCreated(_) | Answer::Deleted(_) => {
                unreachable!("a renewal only reads and replaces")
            }
        }
    }

    fn read(&mut self, answer: Result<Option<Record>, Trouble>, held: &Held<'_>, book: &mut Book, now: Now) -> Next {
        self.write = None;
        let record = match answer {
            Err(trouble) => return Next::Failed(trouble.into_failure()),
            Ok(seen) => match whose(seen, held.uid, book) {
                Err(lost) => return Next::Lost(lost),
                Ok(record) => record,
            },
        };
        if self.purpose == Purpose::Check && held.age < book.timing.no_new_step_after() {
            return Next::Checked(record);
        }
        let sent = book.ledger.sending(now);
        self.write = Some(sent);
        Next::Ask(Ask::Replace(record.renewed(&book.wish, sent.stamp)))
    }

    fn replaced(&mut self, answer: Result<Replaced, Trouble>, held: &Held<'_>) -> Next {
        match answer {
            Ok(Replaced::Stored(record)) if record.uid() != held.uid => Next::Lost(Lost::Gone),
            Ok(Replaced::Stored(record)) => {
                let sent = self.write.expect("an answer to a replace comes after the replace");
                Next::Renewed(record, sent)
            }
            // Somebody wrote between our two requests. Only a read tells whether the lock is still ours.
            Ok(Replaced::Conflict) => {
                self.conflicts += 1;
                self.write = None;
                if self.conflicts > MOST_CONFLICTS { Next::Failed(conflicts()) } else { Next::Ask(Ask::Read) }
            }
            Err(trouble) => {
                // Only an unclear answer leaves the write in doubt; the next attempt's read settles it.
                if !matches!(trouble, Trouble::Unclear(_)) {
                    self.write = None;
                }
                Next::Failed(trouble.into_failure())
            }
        }
    }
}

/// What a holder knows of the lock while an attempt goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<'a> {
    /// The Lease that was claimed.
    pub(crate) uid: &'a str,
    /// How long ago the last good renewal was sent.
    pub(crate) age: Duration,
}

/// Whether what was read is still the Lease that we claimed.
fn whose(seen: Option<Record>, uid: &str, book: &Book) -> Result<Record, Lost> {
    let Some(record) = seen else { return Err(Lost::Gone) };
    match record.holder() {
        None => Err(Lost::Gone),
        Some(by) if !book.wish.holder.is(by) => Err(Lost::Taken { by: by.to_owned() }),
        // Our own name on another Lease: a claim that landed late, after ours was deleted. It gives no right to act.
        Some(_) if record.uid() != uid => Err(Lost::Gone),
        Some(_) => Ok(record),
    }
}

fn conflicts() -> Failure {
    let message = "the lock could not be renewed: somebody else keeps writing to the Lease at the same time";
    Failure::new(crate::failure::Code::ClusterRequestFailed, message)
}

#[cfg(test)]
mod tests;
