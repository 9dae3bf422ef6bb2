//! The only maker of envelopes: numbers the events, stamps them, hides what is secret, and hands them on.
//!
//! Rendering and writing happen on a thread of their own, so a blocked disk delays neither a signal nor a renewal.
//! Facts are never dropped. What tools print is, when the disk takes no more of it: it is counted, and the count is an
//! event. So what waits for the disk stays within a bound. Who reads the tools' files sees how much waits
//! ([`Journal::backlog`]) and leaves the rest in them.
//!
//! The directory holds some ballast; at the first "disk full" it is deleted, so that the verdict still finds room.

use std::borrow::Cow;
use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use crate::clock::{Clock, Instant};
use crate::event::{Envelope, Event, Hide, OutputDropped};
use crate::process;
use crate::redact::{Redactor, is_secret_key};
use crate::run::drill::Halt;
use crate::run::reports::{Answers, Kind, Matter, Reports, Roll, Unwritten};
use crate::step::Backlog;

/// The ballast's name in the run directory.
pub const BALLAST: &str = "ballast";
/// Its size in bytes: enough for the last events of any run.
const BALLAST_SIZE: usize = 256 * 1024;
/// How many bytes of output may wait to be made into lines before more of it is dropped. Who reads the tools' files stops far
/// below it.
const BACKLOG: usize = 16 << 20;
/// How many bytes of lines may wait for a disk that takes none before output is dropped.
const UNWRITTEN: usize = 1 << 20;
/// How many bytes of output are written at once, when there are so many.
const BATCH: usize = 64 * 1024;
/// What events of output are called.
const OUTPUT: &str = "process.output";
/// The most of what the disk did not take that is handed on at the end, in bytes: output that waits, and facts.
const LONGEST_REST: usize = 2 * UNWRITTEN;

/// Makes the run's ballast. A run directory without room for it has none for a run.
///
/// # Errors
/// When the directory cannot be written, or the disk is full.
pub fn make_ballast(run_dir: &Path) -> io::Result<()> {
    let mut file = process::own_file().write(true).create(true).truncate(true).open(run_dir.join(BALLAST))?;
    file.write_all(&vec![b'.'; BALLAST_SIZE])?;
    file.sync_all()
}

impl Hide for Redactor {
    fn value<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.text(text)
    }

    fn key(&self, key: &str) -> bool {
        is_secret_key(key)
    }
}

/// What a journal speaks with.
#[derive(Debug)]
pub struct Voice {
    /// The run's id.
    pub run: String,
    /// When the run began.
    pub began: Instant,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// What must never be said.
    pub redactor: Redactor,
    /// The number of the next event.
    pub seq: u64,
    /// Where a test may have asked the process to stand still.
    pub halt: Halt,
}

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    began: Instant,
    clock: Arc<dyn Clock>,
    seq: u64,
    dropped: u64,
    dropped_in_all: u64,
    waiting: Arc<Waiting>,
    desk: mpsc::Sender<Order>,
    roll: Roll,
}

/// What waits for the disk.
#[derive(Debug, Default)]
struct Waiting {
    /// Output of which no line was made yet.
    output: Arc<Backlog>,
    /// Bytes of lines that the disk did not take.
    bytes: AtomicUsize,
    /// Whether it had no room at some time.
    was_full: AtomicBool,
}

impl Waiting {
    /// Whether more output of tools would be too much.
    fn is_full(&self) -> bool {
        self.output.bytes() > BACKLOG || self.bytes.load(Ordering::Relaxed) > UNWRITTEN
    }
}

/// What came of a journal at its end, see [`Journal::settle_now`].
#[derive(Debug, Default)]
pub struct Settled {
    /// The reports that could not be written.
    pub unwritten: Vec<Unwritten>,
    /// As [`Journal::flush`] gives them back.
    pub lines: Option<String>,
}

enum Order {
    Tell(Arc<Told>),
    Offer(Arc<Told>, Kind, Answers),
    Keep(Arc<Told>),
    Flush(oneshot::Sender<String>),
    Written(oneshot::Sender<()>),
    Reports(Answers),
    SettleNow(mpsc::Sender<Settled>, Roll, Duration),
}

/// The last event of a run, when the reports have it and the journal does not.
#[derive(Debug)]
#[must_use]
pub struct Last(Arc<Told>);

/// An event with its place in the journal.
#[derive(Debug)]
struct Told {
    seq: u64,
    time: Timestamp,
    elapsed: Duration,
    step: Option<String>,
    event: Event,
}

impl Journal {
    /// Opens the journal at the end of its file, going on with the voice's number.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot be started.
    pub fn open(path: &Path, voice: Voice, reports: Reports) -> io::Result<Journal> {
        Journal::over(File::options().create(true).append(true).open(path)?, path, voice, reports)
    }

    /// A journal in a file that is open for appending. The path is only for finding the ballast.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn over(file: File, path: &Path, voice: Voice, reports: Reports) -> io::Result<Journal> {
        Journal::on(file, path.with_file_name(BALLAST), voice, reports)
    }

    fn on(paper: impl Paper, ballast: PathBuf, voice: Voice, reports: Reports) -> io::Result<Journal> {
        let waiting = Arc::new(Waiting::default());
        let (desk, orders) = mpsc::channel();
        let Voice { run, began, clock, redactor, seq, halt } = voice;
        let roll = reports.roll();
        let (unwritten, counter) = (Vec::new(), waiting.clone());
        let (written, batch) = (0, String::new());
        let writer = Desk { run, redactor, paper, ballast, unwritten, written, batch, waiting: counter, reports, halt };
        thread::Builder::new().name("journal".to_owned()).spawn(move || writer.work(&orders))?;
        Ok(Journal { began, clock, seq, dropped: 0, dropped_in_all: 0, waiting, desk, roll })
    }

    /// Tells one fact. Never blocks and never fails.
    pub fn tell(&mut self, step: Option<&str>, event: Event) {
        if let Some(bytes) = output_length(&event) {
            if self.waiting.is_full() {
                self.dropped += 1;
                self.dropped_in_all += 1;
                return;
            }
            self.waiting.output.add(bytes);
        }
        if self.dropped > 0 {
            let lines = std::mem::take(&mut self.dropped);
            self.hand_over(step, Event::OutputDropped(OutputDropped { lines }));
        }
        self.hand_over(step, event);
    }

    /// Offers the last event of the run to the reports. It says how they are, so they take it first, the JUnit report
    /// before the events file, because that can be written anew. Waits at most this long for each.
    ///
    /// # Errors
    /// When one of them could not take it: what is wrong. Then the event is not true any more.
    pub async fn offer_last(&mut self, event: Event, limit: Duration) -> Result<Last, Vec<Unwritten>> {
        let told = Arc::new(self.told(None, event));
        for kind in [Kind::Junit, Kind::Events] {
            let (answers, seen) = tokio::sync::mpsc::unbounded_channel();
            if self.desk.send(Order::Offer(told.clone(), kind, answers)).is_ok() {
                let unwritten = self.roll.call(seen, limit).await;
                if !unwritten.is_empty() {
                    return Err(unwritten);
                }
            }
        }
        Ok(Last(told))
    }

    /// Tells the last event, which the reports have.
    pub fn conclude(&mut self, last: Last) {
        self.seq += 1;
        let _ = self.desk.send(Order::Keep(last.0));
    }

    fn hand_over(&mut self, step: Option<&str>, event: Event) {
        let told = self.told(step, event);
        self.seq += 1;
        // The thread ends only with the process; an event that it cannot take has nowhere else to go.
        let _ = self.desk.send(Order::Tell(Arc::new(told)));
    }

    /// What would be the next event.
    fn told(&self, step: Option<&str>, event: Event) -> Told {
        let elapsed = self.clock.now().since(self.began);
        Told { seq: self.seq, time: self.clock.wall(), elapsed, step: step.map(str::to_owned), event }
    }

    /// How much output waits here.
    pub fn backlog(&self) -> Arc<Backlog> {
        self.waiting.output.clone()
    }

    /// What a disk without room has cost, in words; none when it had room all the time. Only what was read of a tool can be
    /// counted: how much the tool could not write, it alone knows.
    pub fn lost(&self) -> Option<String> {
        let counted = match self.dropped_in_all {
            0 => String::new(),
            lines => format!("{lines} lines of output that were read were dropped, and "),
        };
        let uncounted = "what a tool printed then may be missing, which nobody can count";
        let was_full = self.waiting.was_full.load(Ordering::Relaxed);
        was_full.then(|| format!("the run directory was out of room for a time: {counted}{uncounted}"))
    }

    /// Since when the run is at work.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// Brings the reports up to date and says which could not be written. Waits at most this long, and for a report that
    /// was too slow not a second time.
    pub async fn settle_reports(&mut self, limit: Duration) -> Vec<Unwritten> {
        let (answers, seen) = tokio::sync::mpsc::unbounded_channel();
        if self.desk.send(Order::Reports(answers)).is_err() {
            return Vec::new();
        }
        self.roll.call(seen, limit).await
    }

    /// [`Journal::settle_reports`] and [`Journal::flush`] without a runtime.
    pub fn settle_now(&mut self, limit: Duration) -> Settled {
        let (done, seen) = mpsc::channel();
        match self.desk.send(Order::SettleNow(done, self.roll.clone(), limit)) {
            Ok(()) => seen.recv_timeout(limit + limit).unwrap_or_default(),
            Err(_) => Settled::default(),
        }
    }

    /// Waits until everything told so far was handed to the operating system, at most this long: then it outlives this
    /// process, and whoever takes over reads it.
    pub fn written(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let (done, seen) = oneshot::channel();
        let sent = self.desk.send(Order::Written(done));
        async move {
            if sent.is_ok() {
                let _ = tokio::time::timeout(limit, seen).await;
            }
        }
    }

    /// Waits until everything told so far is on the disk, at most this long. Gives back the lines that the file did not
    /// take, or at least the last one, which it gives back in any case; none when the disk does not answer in time.
    pub async fn flush(&mut self, limit: Duration) -> Option<String> {
        let (done, seen) = oneshot::channel();
        self.desk.send(Order::Flush(done)).ok()?;
        tokio::time::timeout(limit, seen).await.ok()?.ok()
    }
}

/// The bytes of what a tool printed; none of a fact.
fn output_length(event: &Event) -> Option<usize> {
    if let Event::ProcessOutput(output) = event { Some(output.text.len()) } else { None }
}

/// The disk, the user's quota or the size of a file is at its end.
fn is_out_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What a journal is written on.
trait Paper: Write + Send + 'static {
    /// Waits until all of it is on the disk.
    fn settle(&mut self) -> io::Result<()>;
}

impl Paper for File {
    fn settle(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The writing thread's own.
struct Desk<P> {
    run: String,
    redactor: Redactor,
    paper: P,
    ballast: PathBuf,
    /// Whole lines, the first of which may be in the file in part.
    unwritten: Vec<u8>,
    /// How much of it is.
    written: usize,
    /// Lines of output that neither the file nor the reports have. A report gets nothing before the file: who takes over
    /// goes by the file's numbers.
    batch: String,
    waiting: Arc<Waiting>,
    reports: Reports,
    halt: Halt,
}

impl<P: Paper> Desk<P> {
    fn work(mut self, orders: &mpsc::Receiver<Order>) {
        let mut line = String::new();
        while let Some(order) = self.next(orders) {
            match order {
                Order::Tell(told) => {
                    self.render(&told, &mut line);
                    self.take(&told.event, &line);
                }
                Order::Offer(told, kind, answers) => {
                    self.render(&told, &mut line);
                    self.reports.heed_by(kind, &line, Matter::Fact);
                    self.reports.settle(move |said| drop(answers.send(said)));
                }
                Order::Keep(told) => {
                    self.render(&told, &mut line);
                    self.keep(&line);
                    self.halt.after(told.event.type_name());
                }
                Order::Reports(answers) => self.reports.settle(move |said| drop(answers.send(said))),
                Order::SettleNow(done, mut roll, limit) => {
                    self.flush();
                    let unwritten = self.reports.settle_now(&mut roll, limit);
                    let _ = done.send(Settled { unwritten, lines: Some(self.rest(&line)) });
                }
                Order::Written(done) => {
                    self.write();
                    let _ = done.send(());
                }
                Order::Flush(done) => {
                    self.flush();
                    let _ = done.send(self.rest(&line));
                }
            }
        }
    }

    /// The next order. Output is passed on before anything else is done, and before it is waited.
    fn next(&mut self, orders: &mpsc::Receiver<Order>) -> Option<Order> {
        let order = orders.try_recv().ok();
        if !matches!(&order, Some(Order::Tell(told)) if output_length(&told.event).is_some()) {
            self.pass_on();
        }
        order.or_else(|| orders.recv().ok())
    }

    /// Takes an event and its line.
    fn take(&mut self, event: &Event, line: &str) {
        let Some(bytes) = output_length(event) else {
            self.keep(line);
            self.reports.heed(line, Matter::Fact);
            return self.halt.after(event.type_name());
        };
        self.batch.push_str(line);
        self.waiting.output.take_off(bytes);
        if self.batch.len() >= BATCH {
            self.pass_on();
        }
    }

    /// Writes the output that stands ready.
    fn pass_on(&mut self) {
        if !self.batch.is_empty() {
            let lines = std::mem::take(&mut self.batch);
            self.keep(&lines);
            self.reports.heed(&lines, Matter::Output);
            self.halt.after(OUTPUT);
            self.batch = lines;
            self.batch.clear();
        }
    }

    fn render(&self, told: &Told, line: &mut String) {
        let Told { seq, time, elapsed, step, event } = told;
        Envelope::new(*seq, *time, *elapsed, &self.run, step.as_deref(), event).render_into(&self.redactor, line);
    }

    fn keep(&mut self, lines: &str) {
        self.unwritten.extend_from_slice(lines.as_bytes());
        self.write();
        self.waiting.bytes.store(self.unwritten.len(), Ordering::Relaxed);
    }

    fn flush(&mut self) {
        self.write();
        let _ = self.paper.settle();
    }

    /// Writes what it can. The rest stays and is tried again with the next line, so the file has whole lines in order.
    fn write(&mut self) {
        while self.written < self.unwritten.len() {
            match self.paper.write(&self.unwritten[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let full = is_out_of_room(&error);
                    self.waiting.was_full.fetch_or(full, Ordering::Relaxed);
                    if !full || !self.drop_ballast() {
                        break;
                    }
                }
            }
        }
        let whole = self.unwritten[..self.written].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.unwritten.drain(..whole);
        self.written -= whole;
    }

    /// What the file did not take, from the beginning of a line; at least the last line.
    fn rest(&self, last: &str) -> String {
        let rest = if (1..=LONGEST_REST).contains(&self.unwritten.len()) { &self.unwritten } else { last.as_bytes() };
        String::from_utf8_lossy(rest).into_owned()
    }

    fn drop_ballast(&self) -> bool {
        std::fs::remove_file(&self.ballast).is_ok()
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
