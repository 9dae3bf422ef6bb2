//! A recorded journal, read to make a report of it afterwards: whole, cut off, mixed with other lines, or no journal.
//!
//! # What it promises
//! A report is of one run. Of a file with several it is the one that begins last, unless another is named. What is not an
//! event is left out and counted; a line that was said already is not heard twice. A journal of a version that is not
//! known is refused as a whole, because half of it may mean something else. Whether the journal has a verdict, whether its
//! last line is torn and whether lines are missing is told to the reporter ([`Ending`]), which may not claim more.

use std::io::{self, BufRead};

use crate::event::{Event, LONGEST_LINE, Seen, Unreadable};
use crate::report::human::Human;
use crate::report::junit::Suites;

/// What is longer is no line of a journal; so much of it is kept, and the rest is passed over.
const LONGEST: usize = 4 * LONGEST_LINE;

/// What makes a report of one run.
pub trait Reporter {
    /// Takes the next event, and the line that it was read from.
    fn take(&mut self, seen: &Seen, line: &str);

    /// The report, now that there is no more.
    fn end(self: Box<Self>, ending: &Ending) -> String;
}

/// How the journal of the run ended, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// The id of the run.
    pub run: String,
    /// The verdict was read.
    pub is_over: bool,
    /// How many bytes the last line has, when it was cut off in the middle.
    pub torn: Option<usize>,
    /// Lines between the first and the last that are no events.
    pub strange: u64,
    /// Events whose numbers are missing.
    pub missing: u64,
    /// The other runs of the file, in the order in which they begin.
    pub others: Vec<String>,
}

impl Ending {
    /// What a reader of the report should know of the journal, in sentences.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.others.is_empty() {
            let (run, others) = (&self.run, self.others.join(", "));
            remarks.push(format!("the file has several runs; this is {run}, and --run names another: {others}"));
        }
        if let Some(bytes) = self.torn {
            remarks.push(format!("the last line is torn after {bytes} bytes, and left out"));
        }
        match self.strange {
            0 => {}
            1 => remarks.push("1 line of the file is no event, and left out".to_owned()),
            count => remarks.push(format!("{count} lines of the file are no events, and left out")),
        }
        match self.missing {
            0 => {}
            1 => remarks.push("1 line of this run is missing from the file".to_owned()),
            count => remarks.push(format!("{count} lines of this run are missing from the file")),
        }
        remarks
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum NoJournal {
    /// The file could not be read.
    #[error("it cannot be read")]
    Unread(#[source] io::Error),
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// Not one of its lines is an event.
    #[error("none of its lines is an event of dcctl")]
    Strange,
    /// Somebody else's way to say things.
    #[error(transparent)]
    Version(Unreadable),
    /// The run that is asked for is not in it, or the beginning of several is.
    #[error("`{wanted}` is not the id of one run in it, nor the beginning of one alone; it has {}", .runs.join(", "))]
    OtherRuns {
        /// What was asked for.
        wanted: String,
        /// What there is.
        runs: Vec<String>,
    },
}

/// Reads a journal and makes the report of one run in it: of `wanted`, an id or the beginning of one, or of the last.
///
/// # Errors
/// When it is no journal, or has no such run.
pub fn report(
    mut input: impl BufRead,
    wanted: Option<&str>,
    begin: impl Fn() -> Box<dyn Reporter>,
) -> Result<(String, Ending), NoJournal> {
    let mut reading = Reading { wanted, runs: Vec::new(), now: None, strange: 0 };
    let mut torn = None;
    let mut lines = 0_u64;
    let mut line = Vec::new();
    loop {
        let end = next(&mut input, &mut line).map_err(NoJournal::Unread)?;
        if end == End::Nothing {
            break;
        }
        lines += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        match Seen::read(&text) {
            Ok(seen) => reading.take(&seen, &text, &begin),
            Err(version @ Unreadable::Version(_)) => return Err(NoJournal::Version(version)),
            Err(Unreadable::NotAnEvent(_)) if end == End::OfFile => torn = Some(line.len()),
            Err(Unreadable::NotAnEvent(_)) => reading.strange += 1,
        }
    }
    reading.end(lines, torn)
}

/// One pass over a file.
struct Reading<'a> {
    wanted: Option<&'a str>,
    /// Every run that was met, in the order in which they begin.
    runs: Vec<String>,
    now: Option<Now>,
    strange: u64,
}

/// The run that is being reported on.
struct Now {
    run: String,
    reporter: Box<dyn Reporter>,
    next: u64,
    missing: u64,
    is_over: bool,
}

impl Reading<'_> {
    fn take(&mut self, seen: &Seen, line: &str, begin: &impl Fn() -> Box<dyn Reporter>) {
        if !self.runs.contains(&seen.run) {
            self.runs.push(seen.run.clone());
            if self.wanted.is_none_or(|wanted| seen.run.starts_with(wanted)) {
                let (run, reporter) = (seen.run.clone(), begin());
                self.now = Some(Now { run, reporter, next: 0, missing: 0, is_over: false });
            }
        }
        let Some(now) = self.now.as_mut().filter(|now| now.run == seen.run && seen.seq >= now.next) else { return };
        now.missing = now.missing.saturating_add(seen.seq - now.next);
        // No run has so many events; a line that says so is the last one that can come.
        now.next = seen.seq.saturating_add(1);
        now.is_over |= matches!(seen.event, Some(Event::RunFinished(_)));
        now.reporter.take(seen, line);
    }

    fn end(self, lines: u64, torn: Option<usize>) -> Result<(String, Ending), NoJournal> {
        let meant = |wanted: &str| self.runs.iter().filter(|run| run.starts_with(wanted)).count();
        let is_one = self.wanted.is_none_or(|wanted| meant(wanted) == 1);
        match self.now {
            None if self.runs.is_empty() && lines == 0 => Err(NoJournal::Empty),
            None if self.runs.is_empty() => Err(NoJournal::Strange),
            Some(now) if is_one => {
                let others = self.runs.into_iter().filter(|run| *run != now.run).collect();
                let Now { run, reporter, missing, is_over, .. } = now;
                let ending = Ending { run, is_over, torn, strange: self.strange, missing, others };
                Ok((reporter.end(&ending), ending))
            }
            Some(_) | None => {
                Err(NoJournal::OtherRuns { wanted: self.wanted.unwrap_or_default().to_owned(), runs: self.runs })
            }
        }
    }
}

/// How a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With its line feed.
    OfLine,
    /// With the file.
    OfFile,
    /// There is no more.
    Nothing,
}

/// Reads the next line without its line feed, at most [`LONGEST`] bytes of it: a file that is no journal may have no
/// lines at all.
fn next(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<End> {
    line.clear();
    let mut any = false;
    loop {
        let block = match input.fill_buf() {
            Ok(block) => block,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if block.is_empty() {
            return Ok(if any { End::OfFile } else { End::Nothing });
        }
        any = true;
        let end = block.iter().position(|byte| *byte == b'\n');
        let piece = &block[..end.unwrap_or(block.len())];
        line.extend_from_slice(&piece[..piece.len().min(LONGEST - line.len())]);
        let used = end.map_or(block.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(End::OfLine);
        }
    }
}

impl Reporter for Suites {
    fn take(&mut self, seen: &Seen, _: &str) {
        Suites::take(self, seen);
    }

    fn end(self: Box<Self>, _: &Ending) -> String {
        // What is written as XML is UTF-8.
        String::from_utf8_lossy(&self.xml()).into_owned()
    }
}

impl Reporter for Human<Vec<u8>> {
    fn take(&mut self, seen: &Seen, _: &str) {
        Human::take(self, seen).expect("a vector takes every write");
    }

    fn end(mut self: Box<Self>, _: &Ending) -> String {
        self.cut_off().expect("a vector takes every write");
        String::from_utf8_lossy(&self.into_writer()).into_owned()
    }
}

#[cfg(test)]
mod tests;
