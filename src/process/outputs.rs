//! The two outputs of a tool, as its driver reads them.

use std::io;
use std::path::Path;

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
