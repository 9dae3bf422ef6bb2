//! The end of a journal, as it was left, and how it is completed.

use std::io::Read;

use jiff::Timestamp;

use super::*;
use crate::event::{Envelope, NoteMade, ProcessOutput, Stream};
use crate::redact::Redactor;

fn line(seq: u64, event: &Event) -> String {
    let mut line = String::new();
    let time = Timestamp::UNIX_EPOCH;
    Envelope::new(seq, time, std::time::Duration::ZERO, "r", None, event).render_into(&Redactor::default(), &mut line);
    line
}

fn note(seq: u64) -> String {
    line(seq, &Event::NoteMade(NoteMade { text: seq.to_string() }))
}

fn output(seq: u64) -> String {
    let (program, text) = ("tool".to_owned(), "x".repeat(500));
    line(seq, &Event::ProcessOutput(ProcessOutput { program, stream: Stream::Stdout, text, lossy: false, more: false }))
}

/// A journal with this in it, the rest of it, and what `complete` says.
fn completed(there: &str, rest: &str) -> (io::Result<u64>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    std::fs::write(&path, there).expect("it can be written");
    let file = File::options().read(true).append(true).open(&path).expect("it opens");
    let said = complete(&file, rest);
    let mut text = String::new();
    File::open(&path).and_then(|mut file| file.read_to_string(&mut text)).expect("it can be read");
    (said, text)
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let (there, rest) = (note(0) + &note(1), note(1) + &note(2));
    let (said, text) = completed(&there, &rest);
    assert_eq!((said.ok(), text), (Some(0), note(0) + &note(1) + &note(2)));
    let (said, text) = completed(&there, &note(1));
    assert_eq!((said.ok(), text), (Some(0), there));
}

#[test]
fn a_torn_line_goes_and_what_is_missing_is_counted() {
    let there = note(0) + &note(1)[..20];
    let (said, text) = completed(&there, &note(1));
    assert_eq!((said.ok(), text), (Some(0), note(0) + &note(1)));
    let (said, text) = completed(&there, &note(5));
    assert_eq!((said.ok(), text), (Some(4), note(0) + &note(5)));
}

#[test]
fn output_makes_way_for_facts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let there = note(0) + &output(1) + &note(2) + &output(3);
    std::fs::write(&path, &there).expect("it can be written");
    let file = File::options().read(true).append(true).open(&path).expect("it opens");
    assert_eq!(make_way(&file, &(note(2) + &output(4) + &note(5))).ok(), Some(3));
    assert_eq!(std::fs::read_to_string(&path).expect("it can be read"), note(0) + &note(2) + &note(5));
    assert!(make_way(&file, &note(6)).is_err(), "there is no output any more");
}

#[test]
fn what_was_appended_in_vain_is_not_told_a_second_time_however_far_back_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    // More than is looked at first.
    let outputs: String = (2..80).map(output).collect();
    std::fs::write(&path, note(0) + &note(1) + &outputs).expect("it can be written");
    let file = File::options().read(true).append(true).open(&path).expect("it opens");
    assert!(make_way(&file, &(note(1) + &outputs + &note(80))).is_ok());
    let text = std::fs::read_to_string(&path).expect("it can be read");
    let numbers: Vec<u64> = text.lines().filter_map(seq).collect();
    assert!(numbers.is_sorted() && numbers.last() == Some(&80), "{numbers:?}");
    assert_eq!(numbers.iter().filter(|number| **number == 1).count(), 1, "{numbers:?}");
}
