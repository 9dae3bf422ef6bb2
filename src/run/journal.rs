//! The only maker of envelopes: numbers the events, stamps them, hides what is secret, and hands them on.
//!
//! Writing happens on a thread of its own, so a blocked disk delays neither a signal nor a renewal. Facts are never
//! dropped. What tools print is, when the disk cannot keep up: it is counted, and the count is an event.
//!
//! The directory holds some ballast; at the first "disk full" it is deleted, so that the verdict still finds room.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::{Clock, Instant};
use crate::event::{Envelope, Event, OutputDropped};
use crate::redact::Redactor;
use crate::run::reports::Reports;

/// The ballast's name in the run directory.
const BALLAST: &str = "ballast";
/// Its size in bytes: enough for the last events of any run.
const BALLAST_SIZE: usize = 256 * 1024;
/// How many bytes may wait for the disk before child output is dropped.
const BACKLOG: usize = 8 * 1024 * 1024;

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    run: String,
    began: Instant,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    seq: u64,
    dropped: u64,
    backlog: Arc<AtomicUsize>,
    writer: mpsc::Sender<Order>,
    reports: Reports,
}

enum Order {
    Write(Vec<u8>),
    Flush(oneshot::Sender<()>),
}

/// Makes the run's ballast. A run directory without room for it has none for a run.
///
/// # Errors
/// When the directory cannot be written, or the disk is full.
pub fn make_ballast(run_dir: &Path) -> io::Result<()> {
    let mut file = File::create(run_dir.join(BALLAST))?;
    file.write_all(&vec![b'.'; BALLAST_SIZE])?;
    file.sync_all()
}

impl Journal {
    /// Opens the journal at the end of its file, going on with `seq`.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread cannot be started.
    pub fn open(path: &Path, run: &str, began: Instant, voice: Voice, reports: Reports) -> io::Result<Journal> {
        let file = File::options().create(true).append(true).open(path)?;
        let backlog = Arc::new(AtomicUsize::new(0));
        let (writer, orders) = mpsc::channel();
        let mut desk = Desk { file, ballast: path.with_file_name(BALLAST), unwritten: Vec::new(), backlog: backlog.clone() };
        thread::Builder::new().name("journal".to_owned()).spawn(move || desk.work(&orders))?;
        let Voice { clock, redactor, seq } = voice;
        Ok(Journal { run: run.to_owned(), began, clock, redactor, seq, dropped: 0, backlog, writer, reports })
    }

    /// Tells one fact. Never blocks and never fails.
    pub fn tell(&mut self, step: Option<&str>, event: impl Into<Event>) {
        let event = event.into();
        if matches!(event, Event::ProcessOutput(_)) && self.backlog.load(Ordering::Relaxed) > BACKLOG {
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            let lines = std::mem::take(&mut self.dropped);
            self.write(step, OutputDropped { lines }.into());
        }
        self.write(step, event);
    }

    fn write(&mut self, step: Option<&str>, event: Event) {
        let elapsed = self.clock.now().since(self.began);
        let envelope = Envelope::new(self.seq, self.clock.wall(), elapsed, &self.run, step, event);
        self.seq += 1;
        self.reports.heed(&envelope, &self.redactor);
        let line = envelope.render(&self.redactor).into_bytes();
        self.reports.copy(&line);
        self.backlog.fetch_add(line.len(), Ordering::Relaxed);
        // The thread ends only with the process; a line that it cannot take has nowhere else to go.
        let _ = self.writer.send(Order::Write(line));
    }

    /// The moment, for durations.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The reports that are made from this journal.
    pub fn reports(&mut self) -> &mut Reports {
        &mut self.reports
    }

    /// Waits until everything told so far is in the file, at most this long.
    pub async fn flush(&mut self, limit: Duration) {
        let (done, seen) = oneshot::channel();
        if self.writer.send(Order::Flush(done)).is_ok() {
            let _ = tokio::time::timeout(limit, seen).await;
        }
    }
}

/// What a journal speaks with.
#[derive(Debug)]
pub struct Voice {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// What must never be said.
    pub redactor: Redactor,
    /// The number of the next event.
    pub seq: u64,
}

/// The writing thread's own.
struct Desk {
    file: File,
    ballast: PathBuf,
    unwritten: Vec<u8>,
    backlog: Arc<AtomicUsize>,
}

impl Desk {
    fn work(&mut self, orders: &mpsc::Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(line) => {
                    self.unwritten.extend_from_slice(&line);
                    self.write();
                }
                Order::Flush(done) => {
                    self.write();
                    let _ = self.file.sync_data();
                    let _ = done.send(());
                }
            }
        }
    }

    /// Writes what it can. The rest stays and is tried again with the next line, so the file has whole lines in order.
    fn write(&mut self) {
        while !self.unwritten.is_empty() {
            match self.file.write(&self.unwritten) {
                Ok(written) => {
                    self.unwritten.drain(..written);
                    self.backlog.fetch_sub(written, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull && self.drop_ballast() => {}
                Err(_) => return,
            }
        }
    }

    fn drop_ballast(&self) -> bool {
        std::fs::remove_file(&self.ballast).is_ok()
    }
}
