//! The reports that are made from the journal while it is written: the events file and the JUnit file.
//!
//! They are written on a thread of their own: a named pipe that nobody reads, or a slow network drive, holds up
//! neither the journal nor the run. At the end they get a limited time, and what could not be written is said.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::event::Seen;
use crate::failure::{Code, Failure};
use crate::report::junit::Junit;

/// The reports of one run.
#[derive(Debug)]
pub struct Reports {
    pen: Option<mpsc::Sender<Order>>,
}

enum Order {
    Heed(String),
    Settle(oneshot::Sender<Option<Failure>>),
    SettleNow(mpsc::Sender<Option<Failure>>),
}

/// Where the reports go.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Every event, one JSON object a line.
    pub events: Option<PathBuf>,
    /// The JUnit report.
    pub junit: Option<PathBuf>,
    /// Whether an earlier writer of the same run began them.
    pub begun: Begun,
}

/// Whether the reports were begun by an earlier writer of the same run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Begun {
    /// No: there is nothing yet.
    #[default]
    No,
    /// Yes, and it may have been cut off anywhere: they are made again from the journal's lines so far, and go on.
    With(String),
}

impl Reports {
    /// Starts the thread, if there is anything to write.
    pub fn start(paths: Paths) -> Reports {
        if paths.events.is_none() && paths.junit.is_none() {
            return Reports { pen: None };
        }
        let (pen, orders) = mpsc::channel();
        let started = thread::Builder::new().name("reports".to_owned()).spawn(move || Desk::new(&paths).work(&orders));
        Reports { pen: started.ok().map(|_| pen) }
    }

    /// Takes one rendered line, with its line feed.
    pub fn heed(&mut self, line: &str) {
        if let Some(pen) = &self.pen {
            let _ = pen.send(Order::Heed(line.to_owned()));
        }
    }

    /// Answers once everything heeded so far is written, with the first thing that went wrong.
    pub fn settle(&mut self, done: oneshot::Sender<Option<Failure>>) {
        match &self.pen {
            Some(pen) => drop(pen.send(Order::Settle(done))),
            None => drop(done.send(None)),
        }
    }
}

impl Reports {
    /// Waits, without a runtime, until everything heeded so far is written; at most this long.
    pub fn settle_now(&mut self, limit: Duration) -> Option<Failure> {
        let pen = self.pen.as_ref()?;
        let (done, seen) = mpsc::channel();
        pen.send(Order::SettleNow(done)).ok()?;
        seen.recv_timeout(limit).unwrap_or_else(|_| Some(too_slow(limit)))
    }
}

/// What is said when the reports are not done in time.
pub(crate) fn too_slow(limit: Duration) -> Failure {
    let sentence = format!("the reports were not written within {}s", limit.as_secs());
    Failure::new(Code::ReportUnwritten, sentence).hint("see whether anybody reads the pipe, or the drive is slow")
}

struct Desk {
    events: Option<(PathBuf, File)>,
    junit: Option<Junit>,
    failure: Option<Failure>,
}

impl Desk {
    fn new(paths: &Paths) -> Desk {
        let mut desk = Desk { events: None, junit: None, failure: None };
        if let Some(path) = &paths.events {
            match File::create(path) {
                Ok(file) => desk.events = Some((path.clone(), file)),
                Err(error) => desk.note("events file", path, &error),
            }
        }
        desk.junit = paths.junit.as_deref().map(Junit::new);
        if let Begun::With(lines) = &paths.begun {
            lines.split_inclusive('\n').for_each(|line| desk.heed(line));
        }
        desk
    }

    fn work(mut self, orders: &mpsc::Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Heed(line) => self.heed(&line),
                Order::Settle(done) => drop(done.send(self.failure.clone())),
                Order::SettleNow(done) => drop(done.send(self.failure.clone())),
            }
        }
    }

    fn heed(&mut self, line: &str) {
        if let Some((path, file)) = &mut self.events
            && let Err(error) = file.write_all(line.as_bytes())
        {
            let path = path.clone();
            self.events = None;
            self.note("events file", &path, &error);
        }
        if let Some(junit) = &mut self.junit
            && let Ok(seen) = Seen::read(line)
            && let Err(failure) = junit.take(&seen)
        {
            self.failure.get_or_insert(failure);
        }
    }

    fn note(&mut self, what: &str, path: &Path, error: &std::io::Error) {
        let sentence = format!("the {what} {} could not be written", path.display());
        self.failure.get_or_insert_with(|| Failure::new(Code::ReportUnwritten, sentence).because(error));
    }
}
