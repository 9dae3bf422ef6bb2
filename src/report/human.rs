//! The run as people read it. To be written.

use std::io::{self, Write};

use crate::clock::Instant;
use crate::event::Seen;

/// Whether colour is used. The caller knows about `NO_COLOR` and terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// Escape sequences for colour.
    On,
    /// None.
    Off,
}

/// What the log is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// A terminal: one live line at its end is rewritten in place.
    Live,
    /// A file or a pipe: only lines, without a control character.
    Plain,
}

/// Which output of tools is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutput {
    /// The end of it, when a step fails.
    OnFailure,
    /// All of it.
    Always,
}

/// How the log looks.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Colour.
    pub color: Color,
    /// Terminal or not.
    pub screen: Screen,
    /// Columns; lines are wrapped to them.
    pub width: usize,
    /// Output of tools.
    pub output: ToolOutput,
}

/// The log, written as events come.
#[derive(Debug)]
pub struct Human<W: Write> {
    out: W,
}

impl<W: Write> Human<W> {
    /// A log that goes to `out`.
    pub fn new(out: W, _options: Options) -> Human<W> {
        Human { out }
    }

    /// Shows an event.
    pub fn take(&mut self, seen: &Seen) -> io::Result<()> {
        writeln!(self.out, "{}", seen.msg)
    }

    /// Redraws the live line; call it about once a second. Does nothing when not on a terminal.
    pub fn tick(&mut self, _now: Instant) -> io::Result<()> {
        Ok(())
    }

    /// Lines are wrapped to this width from now on.
    pub fn set_width(&mut self, _width: usize) {}

    /// Removes the live line, so that something else can be printed. Called by itself after the verdict.
    pub fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
