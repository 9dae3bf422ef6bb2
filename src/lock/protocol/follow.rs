//! Following the Lease: read it, then watch it from there, and read it again whenever the watch cannot be trusted.
//!
//! | after | what is done |
//! |---|---|
//! | a read | watch from the version that was read; from now on, where there is no Lease |
//! | the watch is closed, or its version is too old (410) | read; after a pause when it had said nothing |
//! | the connection is lost, or the API server cannot answer | read, after 1, 2, 4, 4 … s |
//! | silence for longer than a holder is silent | read: the connection may be dead without a word |
//! | a 403, or a 401 | the end |
//!
//! What is the same as before is not said again, except after it could not be seen for a while.

use std::time::Duration;

use crate::failure::Failure;
use crate::lock::observation::Observation;
use crate::lock::protocol::Backoff;
use crate::lock::record::Record;
use crate::lock::store::Trouble;
use crate::lock::timing::Timing;

/// So many questions in a row without an answer are worth saying. A single one is lost with any connection that is cut.
const WORTH_SAYING: u32 = 2;

/// What was heard of the Lease.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A read was answered.
    Read(Result<Option<Record>, Trouble>),
    /// A watch was opened, or not.
    Opened(Result<(), NotWatched>),
    /// The watch says what the Lease is now.
    Changed(Option<Record>),
    /// The watch said nothing for too long.
    Silence,
    /// The watch has ended.
    Ended(NotWatched),
    /// The pause is over.
    Rested,
}

/// Why there is no watch, or none any more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NotWatched {
    /// The API server has closed it, as it does from time to time.
    Closed,
    /// The version to watch from is too old.
    Expired,
    /// Something went wrong.
    Trouble(Trouble),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read the Lease.
    Read,
    /// Open a watch from this version on; from now on without one.
    Watch(Option<String>),
    /// Listen to the watch.
    Listen,
    /// Rest.
    Rest(Duration),
    /// There is nothing more to be seen.
    End,
}

/// What somebody who follows the lock sees.
#[derive(Debug, Clone, PartialEq)]
pub enum Sight {
    /// The Lease; none when there is no Lease.
    Lease(Option<Observation>),
    /// It cannot be seen for the moment. It is said once until it can.
    Blind(Failure),
    /// It may not be seen. Nothing comes after it.
    Refused(Failure),
}

/// What is known by following.
#[derive(Debug)]
pub(crate) struct Follow {
    timing: Timing,
    failures: Backoff,
    /// How many questions in a row had no answer.
    unanswered: u32,
    said: Option<Sight>,
    /// The watch has said something since it was opened.
    talkative: Talk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Talk {
    Nothing,
    Something,
}

impl Follow {
    pub(crate) fn begin(timing: Timing) -> (Follow, Next) {
        let follow =
            Follow { timing, failures: Backoff::default(), unanswered: 0, said: None, talkative: Talk::Nothing };
        (follow, Next::Read)
    }

    /// Takes what was heard. Answers what is new, and what to do next.
    pub(crate) fn heard(&mut self, heard: Heard) -> (Option<Sight>, Next) {
        match heard {
            Heard::Read(Ok(record)) => {
                let next = Next::Watch(record.as_ref().map(|record| record.version().to_owned()));
                (self.saw(record), next)
            }
            Heard::Read(Err(trouble)) => self.trouble(trouble),
            Heard::Opened(Ok(())) => {
                self.talkative = Talk::Nothing;
                (None, Next::Listen)
            }
            Heard::Changed(record) => {
                self.talkative = Talk::Something;
                self.failures = Backoff::default();
                (self.saw(record), Next::Listen)
            }
            Heard::Silence | Heard::Rested => (None, Next::Read),
            Heard::Ended(NotWatched::Closed | NotWatched::Expired) if self.talkative == Talk::Something => {
                (None, Next::Read)
            }
            // A connection that was lost may be had again; only what cannot be read is said.
            Heard::Opened(Err(NotWatched::Closed | NotWatched::Expired))
            | Heard::Ended(
                NotWatched::Closed
                | NotWatched::Expired
                | NotWatched::Trouble(Trouble::Unclear(_) | Trouble::Unsent(_)),
            ) => (None, self.rest()),
            Heard::Opened(Err(NotWatched::Trouble(trouble))) | Heard::Ended(NotWatched::Trouble(trouble)) => {
                self.trouble(trouble)
            }
        }
    }

    fn saw(&mut self, record: Option<Record>) -> Option<Sight> {
        self.unanswered = 0;
        let sight = Sight::Lease(record.map(Observation::new));
        let new = self.said.as_ref() != Some(&sight);
        new.then(|| self.said.insert(sight).clone())
    }

    fn trouble(&mut self, trouble: Trouble) -> (Option<Sight>, Next) {
        match trouble {
            Trouble::Unclear(failure) | Trouble::Unsent(failure) => {
                self.unanswered += 1;
                let known = matches!(self.said, Some(Sight::Blind(_)));
                let worth_saying = self.unanswered >= WORTH_SAYING && !known;
                let sight = worth_saying.then(|| self.said.insert(Sight::Blind(failure)).clone());
                (sight, self.rest())
            }
            trouble => (Some(Sight::Refused(trouble.into_failure())), Next::End),
        }
    }

    fn rest(&mut self) -> Next {
        Next::Rest(self.failures.failed(self.timing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::protocol::script;

    fn trouble() -> Trouble {
        Trouble::Unclear(script::failure("unclear"))
    }

    fn lease(word: &str) -> Option<Record> {
        (word != "none").then(|| script::lease(word))
    }

    /// Plays what is heard, a word each, and says what is seen (in brackets) and done.
    fn follow(words: &str) -> String {
        let (mut follow, _) = Follow::begin(Timing::STANDARD);
        let play = |word: &str| {
            let heard = match word.split_once(':').unwrap_or((word, "")) {
                ("read", "unclear") => Heard::Read(Err(trouble())),
                ("read", "forbidden") => Heard::Read(Err(Trouble::Forbidden(script::failure("no")))),
                ("read", name) => Heard::Read(Ok(lease(name))),
                ("opened", _) => Heard::Opened(Ok(())),
                ("unopened", "unclear") => Heard::Opened(Err(NotWatched::Trouble(trouble()))),
                ("unopened", "forbidden") => {
                    Heard::Opened(Err(NotWatched::Trouble(Trouble::Forbidden(script::failure("no")))))
                }
                ("unopened", _) => Heard::Opened(Err(NotWatched::Expired)),
                ("changed", name) => Heard::Changed(lease(name)),
                ("closed", _) => Heard::Ended(NotWatched::Closed),
                ("expired", _) => Heard::Ended(NotWatched::Expired),
                ("lost", _) => Heard::Ended(NotWatched::Trouble(trouble())),
                ("silence", _) => Heard::Silence,
                (_, _) => Heard::Rested,
            };
            let (sight, next) = follow.heard(heard);
            let sight = match sight {
                Some(Sight::Lease(seen)) => {
                    let holder = seen.as_ref().and_then(Observation::holder).unwrap_or("nobody").to_owned();
                    format!("[{}] ", holder.split('@').next().unwrap_or_default())
                }
                Some(Sight::Blind(_)) => "[blind] ".to_owned(),
                Some(Sight::Refused(_)) => "[refused] ".to_owned(),
                None => String::new(),
            };
            let next = match next {
                Next::Read => "read".to_owned(),
                Next::Watch(from) => format!("watch {}", from.as_deref().unwrap_or("now")),
                Next::Listen => "listen".to_owned(),
                Next::Rest(pause) => format!("+{}", pause.as_secs()),
                Next::End => "end".to_owned(),
            };
            format!("{sight}{next}")
        };
        words.split_whitespace().map(play).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn everything_that_is_heard_has_one_consequence() {
        for (words, expected) in [
            ("read:other opened", "[bob] watch 7, listen"),
            ("read:none opened", "[nobody] watch now, listen"),
            ("read:other opened changed:ours changed:none", "[bob] watch 7, listen, [alice] listen, [nobody] listen"),
            // The same again is nothing new.
            ("read:other opened changed:other", "[bob] watch 7, listen, listen"),
            ("read:other opened changed:ours closed", "[bob] watch 7, listen, [alice] listen, read"),
            (
                "read:other opened changed:ours expired read:ours",
                "[bob] watch 7, listen, [alice] listen, read, watch 7",
            ),
            // A watch that ends before it says anything must not be opened again and again without a pause.
            (
                "read:other opened closed rested read:other opened closed",
                "[bob] watch 7, listen, +1, read, watch 7, listen, +2",
            ),
            ("read:other unopened rested", "[bob] watch 7, +1, read"),
            ("read:other opened silence read:none", "[bob] watch 7, listen, read, [nobody] watch now"),
            // A connection that is lost and had again costs nothing but a look.
            ("read:other opened lost rested read:other", "[bob] watch 7, listen, +1, read, watch 7"),
            (
                "read:other opened lost rested read:unclear rested read:unclear rested read:other",
                "[bob] watch 7, listen, +1, read, +2, read, [blind] +4, read, [bob] watch 7",
            ),
            ("read:unclear rested read:none", "+1, read, [nobody] watch now"),
            ("read:unclear rested read:unclear rested read:unclear", "+1, read, [blind] +2, read, +4"),
            ("read:other unopened:unclear rested read:unclear", "[bob] watch 7, +1, read, [blind] +2"),
            ("read:forbidden", "[refused] end"),
            ("read:other unopened:forbidden", "[bob] watch 7, [refused] end"),
            // What was heard ends the row of failures.
            (
                "read:other opened lost rested read:other opened changed:ours lost",
                "[bob] watch 7, listen, +1, read, watch 7, listen, [alice] listen, +1",
            ),
        ] {
            assert_eq!(follow(words), expected, "after: {words}");
        }
    }
}
