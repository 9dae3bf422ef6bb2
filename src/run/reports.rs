//! The reports that are made from the journal while it is written: the events file and the JUnit file.
//!
//! Each is written on a thread of its own: a named pipe that nobody reads, or a slow network drive, holds up neither
//! the journal nor the run nor the other report. At the end they get a limited time, and what could not be written is
//! said. What waits for one of them stays within a bound, too: the events file is given up beyond it, because a line
//! may not be missing from it; the JUnit report goes without what tools print until it has caught up.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::event::{Event, ReportFailed, Seen};
use crate::failure::{Code, Failure};
use crate::report::junit::Junit;

/// Where the reports go.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Every event, one JSON object a line.
    pub events: Option<PathBuf>,
    /// The JUnit report.
    pub junit: Option<PathBuf>,
    /// Whether the events file goes on where an earlier writer of the same run left it.
    pub going_on: GoingOn,
}

/// Whether a report file was begun by an earlier writer of the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GoingOn {
    /// No: it is begun anew.
    #[default]
    No,
    /// Yes: it is continued.
    Yes,
}

/// A report: which it is, and its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    kind: Kind,
    path: PathBuf,
}

/// Which report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The events file.
    Events,
    /// The JUnit report.
    Junit,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            Kind::Events => "events file",
            Kind::Junit => "JUnit report",
        };
        write!(f, "the {what} {}", self.path.display())
    }
}

/// A report that is not what it should be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritten {
    /// Which.
    pub report: Report,
    /// Why, in words.
    pub why: String,
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could not be written: {}", self.report, self.why)
    }
}

impl Unwritten {
    /// The failure of a run in which nothing else went wrong.
    pub fn failure(&self) -> Failure {
        Failure::new(Code::ReportUnwritten, format!("{} could not be written", self.report)).cause(self.why.clone())
    }

    /// `report.failed`.
    pub fn event(&self) -> Event {
        let report = match self.report.kind {
            Kind::Events => "events-file",
            Kind::Junit => "junit",
        };
        let path = Some(self.report.path.display().to_string());
        Event::ReportFailed(ReportFailed { report: report.to_owned(), path, why: self.why.clone() })
    }
}

/// What a report answers when it is asked whether all is written: nothing, or why it is not.
type Answer = (Report, Option<String>);

/// The other end of the answers to [`Reports::settle`], for who waits in a runtime.
pub(crate) type Answers = UnboundedSender<Answer>;

enum Order {
    /// New lines.
    Heed(Arc<str>),
    /// A line of an earlier writer, which may have been killed before its report had it.
    Recall(Arc<str>),
    Settle(Box<dyn FnOnce(Answer) + Send>),
}

/// How many bytes of lines may wait for a report.
const MOST_BEHIND: usize = 64 << 20;

/// What a line is to a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matter {
    /// A fact.
    Fact,
    /// What a tool printed.
    Output,
}

/// The reports of one run.
#[derive(Debug)]
pub struct Reports {
    pens: Vec<Pen>,
}

/// The way to the thread of one report.
#[derive(Debug)]
struct Pen {
    report: Report,
    orders: mpsc::Sender<Order>,
    /// How many bytes wait for it.
    behind: Arc<AtomicUsize>,
    /// It fell too far behind, and gets nothing more.
    given_up: bool,
}

impl Pen {
    /// Hands on lines, if there is room for them.
    fn heed(&mut self, lines: &Arc<str>, matter: Matter) {
        if self.given_up || self.behind.load(Ordering::Relaxed) > MOST_BEHIND {
            match (self.report.kind, matter) {
                (Kind::Events, _) => return self.given_up = true,
                (Kind::Junit, Matter::Output) => return,
                (Kind::Junit, Matter::Fact) => {}
            }
        }
        self.behind.fetch_add(lines.len(), Ordering::Relaxed);
        let _ = self.orders.send(Order::Heed(lines.clone()));
    }

    /// Answers once everything heeded so far is written, or at once when that will not be.
    fn settle(&self, answer: impl FnOnce(Answer) + Clone + Send + 'static) {
        let wrong = if self.given_up {
            Some(format!(
                "more than {} MiB wait for it: nobody reads the pipe, or its drive is slow",
                MOST_BEHIND >> 20
            ))
        } else {
            let asked = self.orders.send(Order::Settle(Box::new(answer.clone())));
            asked.is_err().then(|| "the thread that writes it could not be started".to_owned())
        };
        if let Some(why) = wrong {
            answer((self.report.clone(), Some(why)));
        }
    }
}

impl Reports {
    /// Starts a thread for each.
    pub fn start(paths: Paths) -> Reports {
        let Paths { events, junit, going_on } = paths;
        let events = events.map(|path| Report { kind: Kind::Events, path });
        let junit = junit.map(|path| Report { kind: Kind::Junit, path });
        let reports = events.into_iter().chain(junit);
        Reports { pens: reports.map(|report| start(report, going_on)).collect() }
    }

    /// Which reports there are.
    pub fn roll(&self) -> Roll {
        Roll { awaited: self.pens.iter().map(|pen| pen.report.clone()).collect() }
    }

    /// Takes rendered lines, each with its line feed.
    pub fn heed(&mut self, lines: &str, matter: Matter) {
        if self.pens.is_empty() {
            return;
        }
        let lines: Arc<str> = lines.into();
        for pen in &mut self.pens {
            pen.heed(&lines, matter);
        }
    }

    /// Takes a line, with its line feed, that an earlier writer of the same run put into the journal: the JUnit report is
    /// made anew, and the events file gets what it lacks.
    pub fn recall(&mut self, line: &str) {
        if self.pens.is_empty() {
            return;
        }
        let line: Arc<str> = line.into();
        for pen in &self.pens {
            let _ = pen.orders.send(Order::Recall(line.clone()));
        }
    }

    /// Takes a line for one report alone.
    pub(crate) fn heed_by(&mut self, kind: Kind, line: &str, matter: Matter) {
        let line: Arc<str> = line.into();
        for pen in self.pens.iter_mut().filter(|pen| pen.report.kind == kind) {
            pen.heed(&line, matter);
        }
    }

    /// Each report answers once everything heeded so far is written.
    pub fn settle(&mut self, answer: impl Fn(Answer) + Clone + Send + 'static) {
        for pen in &self.pens {
            pen.settle(answer.clone());
        }
    }

    /// Waits, without a runtime, until everything heeded so far is written, and says what could not be. Each report is
    /// told of once, and then not waited for any more.
    pub fn settle_now(&mut self, roll: &mut Roll, limit: Duration) -> Vec<Unwritten> {
        let (answer, answers) = mpsc::channel();
        self.settle(move |said| drop(answer.send(said)));
        let mut answered = Vec::new();
        while !roll.is_complete(&answered) {
            match answers.recv_timeout(limit) {
                Ok(said) => answered.push(said),
                Err(_) => break,
            }
        }
        roll.close(&answered, limit)
    }
}

/// The reports that are waited for. One that failed or was too slow is told of once and not waited for again.
#[derive(Debug, Clone)]
pub struct Roll {
    awaited: Vec<Report>,
}

impl Roll {
    /// Waits until each report has answered, at most this long, and says what could not be written.
    pub(crate) async fn call(&mut self, mut answers: UnboundedReceiver<Answer>, limit: Duration) -> Vec<Unwritten> {
        let mut answered = Vec::new();
        let all = async {
            while !self.is_complete(&answered) {
                match answers.recv().await {
                    Some(said) => answered.push(said),
                    None => break,
                }
            }
        };
        // What is missing then is found by looking.
        let _ = tokio::time::timeout(limit, all).await;
        self.close(&answered, limit)
    }

    fn is_complete(&self, answered: &[Answer]) -> bool {
        self.awaited.iter().all(|awaited| answered.iter().any(|(report, _)| report == awaited))
    }

    fn close(&mut self, answered: &[Answer], limit: Duration) -> Vec<Unwritten> {
        let seconds = limit.as_secs();
        let silent = || format!("it was not written within {seconds}s: nobody reads the pipe, or its drive is slow");
        let mut unwritten = Vec::new();
        self.awaited.retain(|report| {
            let answer = answered.iter().find(|(known, _)| known == report).map(|(_, why)| why.clone());
            let why = answer.unwrap_or_else(|| Some(silent()));
            let written = why.is_none();
            unwritten.extend(why.map(|why| Unwritten { report: report.clone(), why }));
            written
        });
        unwritten
    }
}

/// Starts the thread of one report. Without a thread nobody holds the other end, which `settle` sees.
fn start(report: Report, going_on: GoingOn) -> Pen {
    let (send, orders) = mpsc::channel();
    let behind = Arc::new(AtomicUsize::new(0));
    let pen = Pen { report: report.clone(), orders: send, behind: behind.clone(), given_up: false };
    let body = move || Desk::new(report, going_on).work(&orders, &behind);
    drop(thread::Builder::new().name("report".to_owned()).spawn(body));
    pen
}

/// The writing thread's own.
struct Desk {
    report: Report,
    sheet: Sheet,
    /// The number of the last line that an earlier writer put there.
    known: Option<u64>,
    why: Option<String>,
}

enum Sheet {
    Events(File),
    Junit(Box<Junit>),
    Torn,
}

impl Desk {
    fn new(report: Report, going_on: GoingOn) -> Desk {
        match report.kind {
            Kind::Junit => {
                let junit = Junit::new(&report.path);
                Desk { report, sheet: Sheet::Junit(Box::new(junit)), known: None, why: None }
            }
            Kind::Events => match open(&report.path, going_on) {
                Ok((file, known)) => Desk { report, sheet: Sheet::Events(file), known, why: None },
                Err(error) => Desk { report, sheet: Sheet::Torn, known: None, why: Some(error.to_string()) },
            },
        }
    }

    fn work(mut self, orders: &mpsc::Receiver<Order>, behind: &AtomicUsize) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Heed(line) => {
                    self.heed(&line);
                    behind.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Order::Recall(line) if self.lacks(&line) => self.heed(&line),
                Order::Recall(_) => {}
                Order::Settle(answer) => answer((self.report.clone(), self.why.clone())),
            }
        }
    }

    /// Whether the report is without this line of an earlier writer. Half a line is none.
    fn lacks(&self, line: &str) -> bool {
        let is_new = |number: u64| self.known.is_none_or(|known| number > known);
        match &self.sheet {
            Sheet::Junit(_) => true,
            Sheet::Events(_) => line.ends_with('\n') && number(line).is_some_and(is_new),
            Sheet::Torn => false,
        }
    }

    fn heed(&mut self, lines: &str) {
        match &mut self.sheet {
            Sheet::Events(file) => {
                if let Err(error) = file.write_all(lines.as_bytes()) {
                    // Half a line may be there: what comes after it would be read as its rest.
                    (self.sheet, self.why) = (Sheet::Torn, Some(error.to_string()));
                }
            }
            // The file is replaced as a whole, so only the last time counts.
            Sheet::Junit(junit) => {
                for seen in lines.lines().filter_map(|line| Seen::read(line).ok()) {
                    let why = |failure: Failure| failure.causes.into_iter().next().unwrap_or(failure.message);
                    self.why = junit.take(&seen).err().map(why);
                }
            }
            Sheet::Torn => {}
        }
    }
}

/// The file, and the number of the last line that is in it.
fn open(path: &Path, going_on: GoingOn) -> std::io::Result<(File, Option<u64>)> {
    let mut options = File::options();
    match going_on {
        GoingOn::No => {
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let file = options.write(true).create(true).truncate(true).open(path)?;
            Ok((file, None))
        }
        GoingOn::Yes => {
            let file = options.append(true).create(true).open(path)?;
            // What went into a pipe cannot be looked at.
            let known = if file.metadata()?.is_file() { last_line(path, &file)? } else { Some(u64::MAX) };
            Ok((file, known))
        }
    }
}

/// The number of the last line that is whole; half a line behind it is cut off.
fn last_line(path: &Path, file: &File) -> std::io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    let mut end = Vec::new();
    let mut reader = File::open(path)?;
    reader.seek(SeekFrom::Start(length.saturating_sub(ENOUGH)))?;
    reader.read_to_end(&mut end)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = end.len() - whole;
    if torn > 0 {
        file.set_len(length - torn as u64)?;
    }
    let last = end[..whole].trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(number(&String::from_utf8_lossy(last)))
}

/// More than the longest line.
const ENOUGH: u64 = 64 << 10;

/// The number of an event's line.
fn number(line: &str) -> Option<u64> {
    let rest = line.split_once("\"seq\":")?.1;
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_file_that_lags_behind_the_journal_gets_what_it_lacks() {
        let folder = tempfile::tempdir().expect("a folder");
        let events = folder.path().join("events.jsonl");
        let line = |seq: u32| format!("{{\"v\":1,\"seq\":{seq},\"type\":\"x\"}}\n");
        for there in [
            "",
            "{\"v\":1,",
            &line(0),
            &format!("{}{}{{\"v\":1,\"se", line(0), line(1)),
            &(0..4).map(line).collect::<String>(),
        ] {
            std::fs::write(&events, there).expect("it can be written");
            let paths = Paths { events: Some(events.clone()), going_on: GoingOn::Yes, ..Paths::default() };
            let mut reports = Reports::start(paths);
            (0..4).for_each(|seq| reports.recall(&line(seq)));
            reports.recall("{\"v\":1,\"seq\":4");
            reports.heed(&line(4), Matter::Fact);
            let mut roll = reports.roll();
            assert_eq!(reports.settle_now(&mut roll, Duration::from_secs(20)), []);
            let whole: String = (0..5).map(line).collect();
            assert_eq!(std::fs::read_to_string(&events).expect("it is there"), whole, "from {there:?}");
        }
    }

    #[test]
    fn what_waits_for_a_pipe_that_nobody_reads_has_a_bound() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .expect("a pipe");
        let reader = File::options().read(true).write(true).open(&pipe).expect("it opens");
        let mut reports = Reports::start(Paths { events: Some(pipe), ..Paths::default() });
        let line = "x".repeat(1 << 20);
        for _ in 0..200 {
            reports.heed(&line, Matter::Output);
        }
        assert!(reports.pens[0].behind.load(Ordering::Relaxed) <= MOST_BEHIND + line.len());
        let mut roll = reports.roll();
        let unwritten = reports.settle_now(&mut roll, Duration::from_secs(20));
        assert_eq!(unwritten.len(), 1);
        assert!(unwritten[0].why.starts_with("more than 64 MiB wait for it"), "{}", unwritten[0]);
        drop(reader);
    }
}
