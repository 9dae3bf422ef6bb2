//! What front and supervisor say to each other: one JSON value a line over a socket pair.
//!
//! The journal is not here: the front reads it from its file, so that no slow reader can hold up the supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::failure::Failure;
use crate::run::Spec;

/// What the front says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The first word: the run.
    Spec(Box<Spec>),
    /// A signal that asks to stop.
    Stop(Asked),
    /// End at once.
    Force(Asked),
    /// The process that had started the front is gone: a request to stop.
    Orphaned,
    /// The front itself broke, and why: a request to stop.
    Broke(String),
    /// The front goes on purpose; this is no request to stop.
    Bye,
    /// Are you there?
    Ping,
}

/// Which signal reached the front, and from whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// `SIGTERM`.
    pub signal: String,
    /// The sender's process.
    pub pid: Option<u32>,
    /// The sender's user.
    pub uid: Option<u32>,
}

/// What the supervisor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The first word: which process it is. It has the spec and its handlers are armed.
    Hello {
        /// The supervisor's process.
        pid: u32,
    },
    /// I am here, or have heard what you said.
    Pong,
    /// The run has the lock, goes on without it, or waits for it: whoever wants to go may go.
    Began,
    /// The command runs, and reads what the front copies for it.
    Reads,
    /// The run did not begin: nothing was done, and nothing is in the journal.
    NotBegun(Failure),
    /// The last word of a run.
    Finished(Finished),
}

/// How a run ended, for a front that cannot read it in the journal: the disk is full, or the file is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The exit code of the verdict.
    pub exit_code: u8,
    /// The lines that the journal's file did not take, or at least the verdict; none when they could not be had.
    pub lines: Option<String>,
}

/// One end of the socket.
#[derive(Debug)]
pub struct Link {
    hear: Ear,
    say: Mouth,
}

/// The end that hears.
#[derive(Debug)]
pub struct Ear {
    reader: BufReader<OwnedReadHalf>,
    line: Vec<u8>,
}

/// The end that speaks.
#[derive(Debug)]
pub struct Mouth {
    writer: OwnedWriteHalf,
}

impl Link {
    /// Takes one end of a socket pair. Call it inside the runtime.
    ///
    /// # Errors
    /// When the descriptor is not a socket.
    pub fn new(socket: OwnedFd) -> io::Result<Link> {
        let stream = StdStream::from(socket);
        stream.set_nonblocking(true)?;
        Ok(Link::of(UnixStream::from_std(stream)?))
    }

    /// Takes a connection.
    pub(crate) fn of(stream: UnixStream) -> Link {
        let (reader, writer) = stream.into_split();
        let hear = Ear { reader: BufReader::new(reader), line: Vec::new() };
        Link { hear, say: Mouth { writer } }
    }

    /// Takes the two directions apart.
    pub fn split(self) -> (Ear, Mouth) {
        (self.hear, self.say)
    }
}

impl Ear {
    /// The next word; `None` when the other side is gone, however it went. Safe to drop at any point: what was read
    /// of an unfinished line is kept.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            match self.reader.read_until(b'\n', &mut self.line).await {
                Ok(_) if self.line.last() == Some(&b'\n') => {
                    let word = serde_json::from_slice(&self.line);
                    self.line.clear();
                    match word {
                        Ok(word) => return Some(word),
                        // Both sides are the same program, so this is a word of a version that we are not.
                        Err(error) => tracing::warn!(%error, "a word on the link was not understood"),
                    }
                }
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Whether the other side is gone already, whatever it had said before.
    pub(crate) fn is_alone(&self) -> bool {
        let stream: &UnixStream = self.reader.get_ref().as_ref();
        let mut asked = [PollFd::new(stream, PollFlags::HUP | PollFlags::RDHUP)];
        poll(&mut asked, Some(&Timespec::default())).is_ok_and(|gone| gone > 0)
    }
}

impl Mouth {
    /// Says one word.
    ///
    /// # Errors
    /// When the other side is gone.
    pub async fn say<T: Serialize>(&mut self, word: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        self.writer.write_all(&line).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_arrive_in_order_and_the_end_is_seen() {
        let (ours, theirs) = StdStream::pair().expect("a socket pair");
        let (mut ear, _mouth) = Link::new(OwnedFd::from(ours)).expect("a socket").split();
        let (_, mut mouth) = Link::new(OwnedFd::from(theirs)).expect("a socket").split();
        for pid in [1, 2] {
            mouth.say(&Answer::Hello { pid }).await.expect("the other side is there");
        }
        assert_eq!(ear.next().await, Some(Answer::Hello { pid: 1 }));
        assert_eq!(ear.next().await, Some(Answer::Hello { pid: 2 }));
        drop(mouth);
        assert_eq!(ear.next::<Answer>().await, None);
    }
}

#[cfg(any(test, fuzzing))]
#[path = "link_attack.rs"]
pub(super) mod attack;
