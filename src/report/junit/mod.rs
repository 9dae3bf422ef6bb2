//! The run as a JUnit report, for GitLab, Jenkins and the test reporters of GitHub.
//!
//! # Promise
//! From the first event on there is a complete, valid file that does not claim more than is known: what has not ended
//! is an *error*, "interrupted before it ran". The file is replaced as a whole after each step, so whatever kills the
//! run leaves a truthful report behind.
//!
//! # How to read it
//! [`ledger`] keeps what the events say, [`suites`] tells it as suites and cases, [`crate::report::sanitise`] makes XML
//! of them, and the file is written here.

mod ledger;
mod suites;

use std::path::{Path, PathBuf};

use crate::event::{Event, Seen};
use crate::failure::{Code, Failure};
use crate::report::file;
use crate::report::junit::ledger::Ledger;

/// A JUnit report at a path.
#[derive(Debug)]
pub struct Junit {
    path: PathBuf,
    suites: Suites,
    /// How the last attempt to write the file ended.
    written: Result<(), Failure>,
}

impl Junit {
    /// A report that is written to `path`, again after every step. Folders that are missing are made.
    pub fn new(path: &Path) -> Junit {
        Junit { path: path.to_owned(), suites: Suites::default(), written: Ok(()) }
    }

    /// Takes the next event, and writes the file when a step or the run moved on. It is a failure
    /// ([`Code::ReportUnwritten`]) when the file could not be written the last time; the next event may be taken all the
    /// same, and may mend it.
    pub fn take(&mut self, seen: &Seen) -> Result<(), Failure> {
        self.suites.take(seen);
        if moves_on(seen) {
            self.written = file::replace(&self.path, &self.suites.xml()).map_err(|error| {
                let path = self.path.display();
                Failure::new(Code::ReportUnwritten, format!("could not write the JUnit report {path}")).because(&error)
            });
        }
        self.written.clone()
    }
}

/// What a JUnit report says, without a place: of a journal that was recorded it is written once, at the end.
#[derive(Debug, Default)]
pub struct Suites {
    ledger: Option<Ledger>,
}

impl Suites {
    /// Takes the next event.
    pub fn take(&mut self, seen: &Seen) {
        self.ledger.get_or_insert_with(|| Ledger::new(seen)).take(seen);
    }

    /// The report of everything taken so far. Of nothing there is nothing to report.
    pub fn xml(&self) -> Vec<u8> {
        self.ledger.as_ref().map(suites::xml).unwrap_or_default()
    }
}

/// Whether the file is written again after this event.
fn moves_on(seen: &Seen) -> bool {
    matches!(
        seen.event,
        Some(
            Event::RunStarted(_)
                | Event::RunPlanned(_)
                | Event::StepStarted(_)
                | Event::StepFinished(_)
                | Event::StopRequested(_)
                | Event::LockBlocked(_)
                | Event::LockLost(_)
                | Event::LockLeft(_)
                | Event::RunFinished(_)
        )
    )
}

#[cfg(test)]
mod tests;
