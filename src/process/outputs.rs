//! The two outputs of a tool, as its driver reads them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Instant;
use crate::process::output::{Lines, Piece};
use crate::process::update::{Stream, Update};

/// One output of the tool, read twice: for its signs as soon as it is there, for its lines as they are taken.
pub(crate) struct Output {
    pub(crate) stream: Stream,
    /// Read for signs.
    pub(crate) head: Lines,
    /// Read for lines.
    pub(crate) tail: Lines,
}

impl Output {
    /// Opens its file at the beginning.
    pub(crate) fn open(stream: Stream, path: &Path) -> io::Result<Output> {
        Ok(Output { stream, head: Lines::open(path)?, tail: Lines::open(path)? })
    }

    /// The same, and nothing is said when nothing can be read.
    pub(crate) fn inherit(stream: Stream, path: &Path) -> Output {
        Output::open(stream, path).unwrap_or_else(|_| Output { stream, head: Lines::none(), tail: Lines::none() })
    }
}

/// How long they are, in bytes.
pub(crate) fn lengths(outputs: &[Output; 2]) -> [u64; 2] {
    outputs.each_ref().map(|output| output.tail.length())
}

/// What is to be expected of the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// Nothing new was there.
    None,
    /// Lines came, and more may be there.
    Came,
    /// Lines are there, and nobody takes them now.
    Waiting,
}

impl More {
    /// The other one, where this says that nothing came.
    pub(crate) fn or(self, other: More) -> More {
        if self == More::None { other } else { self }
    }
}

/// A line of the output, or a piece of one, for whoever listens.
pub(crate) fn line(stream: Stream, piece: Piece<'_>) -> Update {
    Update::Line { stream, text: piece.text.into_owned(), lossy: piece.lossy, more: piece.more }
}

/// How often it is looked whether the output files find room.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(1);

/// Whether the disk of the output files is full. The tool alone is told that by the kernel, and most heed it as little as
/// OpenTofu does.
///
/// Nothing is written to find out: that would wait where the disk does not answer. So a quota of the user's is not seen.
#[derive(Debug)]
pub(crate) struct Shortage {
    path: PathBuf,
    looked: Option<Instant>,
    since: Option<Instant>,
}

impl Shortage {
    /// Looks at the disk of this file.
    pub(crate) fn of(path: &Path) -> Shortage {
        Shortage { path: path.to_owned(), looked: None, since: None }
    }

    /// Looks the next time, however short ago that was.
    pub(crate) fn hurry(&mut self) {
        self.looked = None;
    }

    /// Looks, if that is due; what is to be said.
    pub(crate) fn look(&mut self, kept: impl FnOnce() -> [u64; 2], now: Instant) -> Option<Update> {
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK_FOR_ROOM) {
            return None;
        }
        self.looked = Some(now);
        // A disk that does not say how it is has not changed.
        let is_full = is_full(&self.path).unwrap_or(self.since.is_some());
        match (self.since, is_full) {
            (None, true) => {
                self.since = Some(now);
                Some(Update::NoRoom { kept: kept().iter().sum() })
            }
            (Some(since), false) => {
                self.since = None;
                Some(Update::RoomAgain { after: now.since(since) })
            }
            (None, false) | (Some(_), true) => None,
        }
    }
}

/// Whether the disk of a file has not one block more for this user; none when it does not say.
fn is_full(path: &Path) -> Option<bool> {
    let disk = rustix::fs::statvfs(path).ok().filter(|disk| disk.f_blocks > 0)?;
    Some(if rustix::process::geteuid().is_root() { is_full_for_root(&disk) } else { disk.f_bavail == 0 })
}

/// What root may use beyond the others is not all that is free: ext4 keeps 2 % of its clusters, at most 4,096, for itself.
fn is_full_for_root(disk: &rustix::fs::StatVfs) -> bool {
    disk.f_bavail == 0 && disk.f_bfree <= (disk.f_blocks / 50).min(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_for_root_when_what_is_left_is_what_its_file_system_keeps_for_itself() {
        let mut disk = rustix::fs::statvfs("/").expect("there is a root");
        // Blocks, free, free for everybody; the third is a full ext4 of 64 MiB as it was met.
        for (blocks, free, available, is_full) in [
            (1000, 0, 0, true),
            (1000, 1, 1, false),
            (16_381, 327, 0, true),
            (16_381, 328, 0, false),
            (10_000_000, 4096, 0, true),
            (10_000_000, 500_000, 0, false),
        ] {
            (disk.f_blocks, disk.f_bfree, disk.f_bavail) = (blocks, free, available);
            assert_eq!(is_full_for_root(&disk), is_full, "{blocks} {free} {available}");
        }
    }
}
