//! Follows a tool's output file and turns it into lines.
//!
//! The file is the buffer: nothing here grows with the output. A block is read, its lines are handed on, and what is
//! not asked for stays in the file. A line longer than a piece is handed on in pieces, which are cut where the reader's
//! caller allows it: half of a secret would not be known for one. Nothing waits for end-of-file;
//! when the tool has ended, [`Lines::rest`] gives the line that it did not finish.
//!
//! What a terminal would have done is done to the text: a carriage return starts the line again, and control
//! sequences are taken out, so that nothing a tool prints can act on the terminal of a person who reads it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::redact::without_noise;

/// The longest piece of a line, in bytes.
pub(crate) const PIECE: usize = 8 * 1024;

/// How far a piece may grow whose every byte may belong to one secret.
const LONGEST: usize = 1 << 20;

/// How much is read at a time, in bytes.
const BLOCK: usize = 64 * 1024;

/// How near to the end of a piece a control sequence may begin, to be left for the next piece.
const ESCAPE_TAIL: usize = 64;

/// How many bytes before the present place are looked at again, to notice that the file is not the one that it was.
const RECENT: usize = 64;

/// One line, or a part of a long one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// The text, without control characters other than tabs.
    pub(crate) text: Cow<'a, str>,
    /// It was not UTF-8.
    pub(crate) lossy: bool,
    /// It begins its line.
    pub(crate) first: bool,
    /// The next piece goes on with this line.
    pub(crate) more: bool,
}

/// A reader of one output file.
#[derive(Debug)]
pub(crate) struct Lines {
    /// None of an output that is not there.
    file: Option<File>,
    block: Box<[u8]>,
    /// The beginning of a line whose end was not read yet; shorter than a piece.
    carry: Vec<u8>,
    /// Pieces of the line in `carry` were handed on already.
    continued: bool,
    /// How many bytes were read.
    offset: u64,
    /// The last bytes of them. When they do not stand there any more, the file was emptied and written anew.
    recent: Vec<u8>,
    emptied: Emptied,
}

/// Whether the file was emptied since that was asked the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emptied {
    /// It only grew.
    No,
    /// Somebody opened it for writing anew. It is read from its new beginning.
    Yes,
}

impl Lines {
    /// Opens the file at its beginning.
    pub(crate) fn open(path: &Path) -> io::Result<Lines> {
        Ok(Lines { file: Some(File::open(path)?), block: vec![0; BLOCK].into(), ..Lines::none() })
    }

    /// Nothing to read.
    pub(crate) fn none() -> Lines {
        Lines {
            file: None,
            block: Box::default(),
            carry: Vec::new(),
            continued: false,
            offset: 0,
            recent: Vec::with_capacity(RECENT),
            emptied: Emptied::No,
        }
    }

    /// How long the file is now, in bytes.
    pub(crate) fn length(&self) -> u64 {
        let metadata = self.file.as_ref().and_then(|file| file.metadata().ok());
        metadata.map_or(self.offset, |metadata| metadata.len())
    }

    /// How many bytes were read so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads one block and hands on its lines. Returns how many bytes it was; zero when nothing more is there now.
    ///
    /// `cut` says where a line that is too long may be cut, at a place or before it; 0 for not there.
    pub(crate) fn read(
        &mut self,
        cut: impl Fn(&[u8], usize) -> usize,
        mut visit: impl FnMut(Piece<'_>),
    ) -> io::Result<usize> {
        if self.was_emptied()? {
            (self.offset, self.continued, self.emptied) = (0, false, Emptied::Yes);
            self.carry.clear();
            self.recent.clear();
        }
        let Some(file) = &self.file else { return Ok(0) };
        let length = loop {
            match file.read_at(&mut self.block, self.offset) {
                Ok(length) => break length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        self.offset += length as u64;
        let kept = self.recent.len().min(RECENT.saturating_sub(length));
        self.recent.drain(..self.recent.len() - kept);
        self.recent.extend_from_slice(&self.block[length.saturating_sub(RECENT)..length]);
        let mut block = &self.block[..length];
        while let Some(end) = block.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&block[..end], &block[end + 1..]);
            block = rest;
            if self.carry.is_empty() && line.len() <= PIECE {
                visit(piece(line, !self.continued, false));
            } else {
                fill(&mut self.carry, &mut self.continued, line, &cut, &mut visit);
                visit(piece(&self.carry, !self.continued, false));
                self.carry.clear();
            }
            self.continued = false;
        }
        fill(&mut self.carry, &mut self.continued, block, &cut, &mut visit);
        Ok(length)
    }

    /// Whether the file was emptied since this was asked the last time.
    pub(crate) fn emptied(&mut self) -> Emptied {
        std::mem::replace(&mut self.emptied, Emptied::No)
    }

    fn was_emptied(&self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        let length = file.metadata()?.len();
        if length <= self.offset {
            return Ok(length < self.offset);
        }
        let mut there = [0; RECENT];
        let there = &mut there[..self.recent.len()];
        let same = file.read_exact_at(there, self.offset - there.len() as u64).is_ok();
        Ok(!(same && *there == *self.recent))
    }

    /// Hands on what is left of a line that was never finished. For when nobody writes any more.
    pub(crate) fn rest(&mut self, mut visit: impl FnMut(Piece<'_>)) {
        if !self.carry.is_empty() {
            visit(piece(&self.carry, !self.continued, false));
            self.carry.clear();
        }
        self.continued = false;
    }
}

/// Where a line may be cut when nothing in it is secret: anywhere.
pub(crate) fn anywhere(_: &[u8], at: usize) -> usize {
    at
}

/// Adds bytes to an unfinished line and hands on every full piece of it. What remains is at most one piece, or what may
/// not be cut.
fn fill(
    carry: &mut Vec<u8>,
    continued: &mut bool,
    mut bytes: &[u8],
    cut: &impl Fn(&[u8], usize) -> usize,
    visit: &mut impl FnMut(Piece<'_>),
) {
    let mut full = PIECE;
    while carry.len() + bytes.len() > full {
        let (fits, rest) = bytes.split_at(full.saturating_sub(carry.len()).min(bytes.len()));
        carry.extend_from_slice(fits);
        bytes = rest;
        let whole = piece_end(carry);
        let end = match cut(carry, whole) {
            0 if full < LONGEST => {
                full *= 2;
                continue;
            }
            0 => whole,
            end => end,
        };
        visit(piece(&carry[..end], !*continued, true));
        *continued = true;
        carry.drain(..end);
        full = PIECE;
    }
    carry.extend_from_slice(bytes);
}

/// Where to cut a piece: not inside a character, nor inside a control sequence that begins near its end.
fn piece_end(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(ESCAPE_TAIL).max(1);
    if let Some(escape) = bytes[tail..].iter().rposition(|byte| *byte == 0x1b) {
        return tail + escape;
    }
    let mut end = bytes.len();
    // A character has at most three bytes after its first.
    for back in 1..=3.min(bytes.len() - 1) {
        let byte = bytes[bytes.len() - back];
        if byte & 0b1100_0000 == 0b1100_0000 {
            let wanted = byte.leading_ones() as usize;
            if wanted > back {
                end = bytes.len() - back;
            }
            break;
        }
        if byte & 0b1100_0000 != 0b1000_0000 {
            break;
        }
    }
    end
}

fn piece(bytes: &[u8], first: bool, more: bool) -> Piece<'_> {
    let bytes = last_overwrite(bytes);
    let (text, lossy) = match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), false),
        Err(_) => (Cow::Owned(String::from_utf8_lossy(bytes).into_owned()), true),
    };
    let text = match text {
        Cow::Borrowed(text) => without_noise(text),
        Cow::Owned(text) => Cow::Owned(without_noise(&text).into_owned()),
    };
    Piece { text, lossy, first, more }
}

/// What a terminal would show of a line with carriage returns in it: the text after the last one that is followed by
/// any.
fn last_overwrite(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != b'\r').map_or(0, |last| last + 1);
    let shown = &bytes[..end];
    shown.iter().rposition(|byte| *byte == b'\r').map_or(shown, |at| &shown[at + 1..])
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;

#[cfg(any(test, fuzzing))]
#[path = "output_attack.rs"]
pub(super) mod attack;
