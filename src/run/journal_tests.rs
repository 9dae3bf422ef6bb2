//! A disk that takes nothing for a while, and reports that fail at the very end.

use std::sync::Mutex;

use super::*;
use crate::clock::System;
use crate::event::{NoteMade, OutputDropped, ProcessOutput, Seen, Stream};
use crate::run::{GoingOn, Paths};

const LIMIT: Duration = Duration::from_secs(20);

/// A disk that is full until it is made larger.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Platter>>);

#[derive(Debug, Default)]
struct Platter {
    room: usize,
    bytes: Vec<u8>,
    /// How many times something was written.
    writes: u64,
}

impl Disk {
    fn grow(&self, room: usize) {
        self.0.lock().expect("nobody panics with it").room += room;
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panics with it").bytes.clone()).expect("lines are text")
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut platter = self.0.lock().expect("nobody panics with it");
        let length = bytes.len().min(platter.room);
        if length == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        platter.room -= length;
        platter.writes += 1;
        platter.bytes.extend_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper for Disk {
    fn settle(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn voice() -> Voice {
    let clock: Arc<dyn Clock> = Arc::new(System);
    Voice {
        run: "r1".to_owned(),
        began: clock.now(),
        clock,
        redactor: Redactor::default(),
        seq: 0,
        halt: Halt::default(),
    }
}

fn journal_on(disk: &Disk, paths: Paths) -> Journal {
    let nowhere = PathBuf::from("/nonexistent/ballast");
    Journal::on(disk.clone(), nowhere, voice(), Reports::start(paths)).expect("a thread can be started")
}

fn note(text: &str) -> Event {
    Event::NoteMade(NoteMade { text: text.to_owned() })
}

fn output(text: &str) -> Event {
    let (program, text) = ("tool".to_owned(), text.to_owned());
    Event::ProcessOutput(ProcessOutput { program, stream: Stream::Stdout, text, lossy: false, more: false })
}

fn seen(text: &str) -> Vec<Seen> {
    text.lines().map(|line| Seen::read(line).expect("whole lines")).collect()
}

#[tokio::test]
async fn a_full_disk_costs_output_and_never_a_fact_nor_memory_without_end() {
    const PIECES: u64 = 20_000;
    let disk = Disk::default();
    let mut journal = journal_on(&disk, Paths::default());
    let piece = output(&"x".repeat(1000));
    for number in 0..PIECES {
        journal.tell(None, piece.clone());
        if number % 1000 == 0 {
            journal.tell(None, note(&number.to_string()));
            // What was told so far is with the disk, which took none of it.
            journal.flush(LIMIT).await;
        }
    }
    let held = journal.waiting.bytes.load(Ordering::Relaxed);
    assert!(held < 2 * UNWRITTEN + BACKLOG, "{held} bytes wait for the disk");
    disk.grow(usize::MAX);
    let lost = journal.lost().expect("it had no room");
    journal.tell(None, note("the end"));
    journal.flush(LIMIT).await;
    let events = seen(&disk.text());
    assert!(events.iter().enumerate().all(|(place, seen)| seen.seq == place as u64), "there are gaps");
    let (mut notes, mut outputs, mut dropped) = (0, 0, 0);
    for seen in events {
        match seen.event {
            Some(Event::NoteMade(_)) => notes += 1,
            Some(Event::ProcessOutput(_)) => outputs += 1,
            Some(Event::OutputDropped(OutputDropped { lines })) => dropped += lines,
            other => panic!("nobody told {other:?}"),
        }
    }
    assert_eq!((notes, outputs + dropped), (21, PIECES));
    assert!(dropped > PIECES / 2, "only {dropped} were dropped");
    assert!(lost.contains(&format!(": {dropped} lines of output that were read were dropped")), "{lost}");
    assert_eq!(journal.waiting.bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn much_output_is_written_together_and_keeps_its_place_among_the_facts() {
    const LINES: u64 = 3_000;
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events.jsonl");
    let disk = Disk::default();
    let mut journal = journal_on(&disk, Paths { events: Some(events.clone()), ..Paths::default() });
    // The file takes nothing yet, so the thread stands behind and all of it waits.
    for number in 0..LINES {
        journal.tell(None, if number % 1_000 == 0 { note(&number.to_string()) } else { output(&number.to_string()) });
        disk.grow(if number + 1 == LINES { usize::MAX } else { 0 });
    }
    assert_eq!(journal.settle_reports(LIMIT).await, []);
    journal.flush(LIMIT).await;
    let text = disk.text();
    let told = seen(&text).into_iter().map(|seen| match seen.event {
        Some(Event::NoteMade(note)) => note.text,
        Some(Event::ProcessOutput(output)) => output.text,
        other => panic!("nobody told {other:?}"),
    });
    assert!(told.eq((0..LINES).map(|number| number.to_string())), "something is not in its place");
    assert_eq!(std::fs::read_to_string(&events).expect("it is there"), text);
    let writes = disk.0.lock().expect("nobody panics with it").writes;
    assert!(writes < LINES / 10, "{writes} writes");
}

#[tokio::test]
async fn an_events_file_that_takes_all_but_the_last_line_is_told_before_that_line_is_in_the_journal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pipe, junit) = (folder.path().join("pipe"), folder.path().join("junit.xml"));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).expect("a pipe");
    let reader = File::options().read(true).write(true).open(&pipe).expect("it opens");
    let disk = Disk::default();
    disk.grow(usize::MAX);
    let paths = Paths { events: Some(pipe), junit: Some(junit), going_on: GoingOn::No };
    let mut journal = journal_on(&disk, paths);
    journal.tell(None, note("begin"));
    assert_eq!(journal.settle_reports(LIMIT).await, []);
    drop(reader);
    let unwritten = journal.offer_last(note("all is well"), LIMIT).await.expect_err("a report cannot take it");
    assert_eq!(unwritten.len(), 1, "{unwritten:?}");
    assert!(unwritten[0].to_string().starts_with("the events file "), "{}", unwritten[0]);
    journal.tell(None, unwritten[0].event());
    let last = journal.offer_last(note("all but a report is well"), LIMIT).await.expect("it is said of once");
    journal.conclude(last);
    journal.flush(LIMIT).await;
    let said: Vec<String> = seen(&disk.text()).into_iter().map(|seen| seen.msg).collect();
    assert_eq!((said.len(), said[0].as_str(), said[2].as_str()), (3, "begin", "all but a report is well"), "{said:?}");
}

#[tokio::test]
async fn a_junit_report_that_fails_at_the_last_line_is_told_before_the_events_file_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let events = folder.path().join("events.jsonl");
    let junit = folder.path().join("reports/junit.xml");
    let disk = Disk::default();
    disk.grow(usize::MAX);
    let paths = Paths { events: Some(events.clone()), junit: Some(junit.clone()), going_on: GoingOn::No };
    let mut journal = journal_on(&disk, paths);
    let mut examples = crate::event::examples().into_iter();
    let first = examples.next().expect("the beginning of a run");
    let last = examples.find(|event| matches!(event, Event::RunFinished(_))).expect("the end of a run");
    journal.tell(None, first);
    assert_eq!(journal.settle_reports(LIMIT).await, []);
    std::fs::remove_dir_all(folder.path().join("reports")).expect("it was made");
    std::fs::write(folder.path().join("reports"), "in its place").expect("a file");
    let unwritten = journal.offer_last(last.clone(), LIMIT).await.expect_err("a report cannot take it");
    assert_eq!(unwritten.len(), 1, "{unwritten:?}");
    assert!(unwritten[0].to_string().starts_with("the JUnit report "), "{}", unwritten[0]);
    journal.tell(None, unwritten[0].event());
    let last = journal.offer_last(last, LIMIT).await.expect("it is said of once");
    journal.conclude(last);
    journal.flush(LIMIT).await;
    assert_eq!(std::fs::read_to_string(events).expect("it was written"), disk.text());
}
