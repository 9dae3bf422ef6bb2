//! The run as people read it: in a terminal while it happens, in the log of a CI job, or afterwards from its journal.
//!
//! # What it promises
//! The last line is the verdict: outcome, exit code, where the lock is. Above it stands, in one screen, why and what to
//! do now. Nothing that a tool printed can draw on the terminal or command a CI system. Without a terminal there is not
//! one control character.
//!
//! # How to read it
//! [`log`] decides what is worth a line and keeps what is going on, [`verdict`] tells the end, [`row`] wraps and paints
//! a line, and this file writes. On a terminal the last line is live: it says what is happening now, and is replaced
//! by whatever is worth keeping.

mod log;
mod missing;
mod resources;
pub(super) mod row;
mod verdict;

use std::io::{self, Write};
use std::time::Duration;

use crate::clock::Instant;
use crate::event::Seen;
use crate::report::human::log::Log;
use crate::report::human::row::{Row, Style};

/// Erases the line that the cursor is in and goes to its beginning.
const ERASE: &str = "\r\u{1b}[2K";

/// Lines are never wrapped to less.
const NARROWEST: usize = 40;

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
    /// A terminal that somebody else writes to as well: only whole lines. A person may be there all the same.
    Shared,
    /// A file or a pipe: only whole lines, and without colour not one control character.
    Plain,
}

/// Which output of tools is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutput {
    /// The end of it, when a step fails and its tool gave no diagnostic.
    OnFailure,
    /// All of it.
    Always,
    /// None: it is passed on beside this log.
    Elsewhere,
}

/// What a second Ctrl+C of whoever looks at the log does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// It ends the run at once.
    Forces,
    /// It does not: who looks only watches, or no key reaches the run.
    Nothing,
}

/// How the log looks.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Colour.
    pub color: Color,
    /// Terminal or not.
    pub screen: Screen,
    /// Columns; lines are wrapped to them. 100 when there is no terminal to ask.
    pub width: usize,
    /// Output of tools.
    pub output: ToolOutput,
    /// Whether a second Ctrl+C is spoken of.
    pub again: Again,
}

/// The log, written as events come. Every event is at most one write.
#[derive(Debug)]
pub struct Human<W: Write> {
    out: W,
    color: Color,
    screen: Screen,
    width: usize,
    log: Log,
    /// The live line as it is on the screen; empty when there is none.
    live: String,
    /// What the clock showed when the run was this old, to go on reckoning between events.
    anchor: Option<(Instant, Duration)>,
}

impl<W: Write> Human<W> {
    /// A log that goes to `out`.
    pub fn new(out: W, options: Options) -> Human<W> {
        let Options { color, screen, width, output, again } = options;
        Human {
            out,
            color,
            screen,
            width: width.max(NARROWEST),
            log: Log::new(output, screen, again),
            live: String::new(),
            anchor: None,
        }
    }

    /// Shows an event.
    pub fn take(&mut self, seen: &Seen) -> io::Result<()> {
        let rows = self.log.take(seen, self.width);
        self.anchor = None;
        let status = self.log.status(seen.elapsed);
        self.show(&rows, status)
    }

    /// Redraws the live line; call it about once a second. Does nothing when not on a terminal.
    pub fn tick(&mut self, now: Instant) -> io::Result<()> {
        let (then, elapsed) = *self.anchor.get_or_insert((now, self.log.elapsed()));
        let status = self.log.status(elapsed + now.since(then));
        self.show(&[], status)
    }

    /// Lines are wrapped to this width from now on.
    pub fn set_width(&mut self, width: usize) {
        self.width = width.max(NARROWEST);
    }

    /// Says something of the caller's own: that the run goes on without this viewer, or that its owner is silent.
    pub fn remark(&mut self, text: &str) -> io::Result<()> {
        let status = self.log.status(self.log.elapsed());
        self.show(&[Row::new().say(Style::Caution, "! ").hang_here().say(Style::Plain, text)], status)
    }

    /// Says that the journal ends without a verdict. For recorded journals; does nothing after a verdict.
    pub fn cut_off(&mut self) -> io::Result<()> {
        if self.log.is_over() {
            return Ok(());
        }
        let text = "the journal ends here without a verdict: the run was cut off or goes on; its end was not seen";
        self.show(&[Row::new(), Row::new().say(Style::Alarm, text)], None)
    }

    /// Takes the live line off the screen, so that something else can be printed, and flushes. Not needed after the
    /// verdict.
    pub fn finish(&mut self) -> io::Result<()> {
        self.show(&[], None)?;
        self.out.flush()
    }

    /// What the log was written to.
    pub fn into_writer(self) -> W {
        self.out
    }

    /// Writes whole lines and, on a terminal, the live line below them.
    fn show(&mut self, rows: &[Row], status: Option<Row>) -> io::Result<()> {
        let mut live = String::new();
        if let (Screen::Live, Some(status)) = (self.screen, status) {
            status.render_live(self.width - 1, self.color, &mut live);
        }
        if rows.is_empty() && live == self.live {
            // Most events of a busy tool change nothing that is shown.
            return Ok(());
        }
        let mut text = String::new();
        if !self.live.is_empty() {
            text.push_str(ERASE);
        }
        for row in rows {
            row.render(self.width, self.color, &mut text);
        }
        text.push_str(&live);
        self.live = live;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

#[cfg(test)]
mod reading_tests;
#[cfg(test)]
mod tests;
