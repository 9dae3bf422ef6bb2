//! Lines of output that the journal does not have. A program that prints fast loses some every few milliseconds, so they are
//! told of together.

use std::time::Duration;

use crate::event::{Fact, OutputDropped};
use crate::report::human::log::marked;
use crate::report::human::row::{Row, Style};

/// How often it is told while it goes on.
const EVERY: Duration = Duration::from_secs(15);

/// What is to be told.
#[derive(Debug, Default)]
pub(super) struct Missing {
    lines: u64,
    told: Option<Duration>,
}

impl Missing {
    /// More are missing; a row when it is time for one.
    pub(super) fn take(&mut self, lines: u64, elapsed: Duration) -> Option<Row> {
        self.lines = self.lines.saturating_add(lines);
        if self.told.is_some_and(|told| elapsed.saturating_sub(told) < EVERY) {
            return None;
        }
        self.told = Some(elapsed);
        self.rest()
    }

    /// What was not told yet.
    pub(super) fn rest(&mut self) -> Option<Row> {
        let lines = std::mem::take(&mut self.lines);
        (lines > 0).then(|| marked(Style::Caution, "!", &OutputDropped { lines }.message()))
    }
}
