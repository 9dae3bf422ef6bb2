//! The journal's file, as whoever comes after the supervisor finds it: its last line, its torn end, its missing rest.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::event::{self, Event, Seen};
use crate::run::link::Finished;
use crate::run::spec::Spec;

/// The exit code in the last line of the journal of this run, if that is its verdict.
pub fn verdict_of(journal: &File, run: &str) -> Option<u8> {
    exit_code(&Seen::read(&last_line(journal)?).ok().filter(|seen| seen.run == run)?)
}

fn exit_code(seen: &Seen) -> Option<u8> {
    if let Some(Event::RunFinished(finished)) = &seen.event { Some(finished.exit_code) } else { None }
}

/// The last line of a file, if it is whole. Reads the end only.
fn last_line(file: &File) -> Option<String> {
    let longest = event::LONGEST_LINE as u64 + 1;
    let end = read_from(file, file.metadata().ok()?.len().saturating_sub(longest)).ok()?;
    let line = end.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()?;
    String::from_utf8(line.to_owned()).ok()
}

/// The verdict that the events file has and the journal has not: the supervisor was killed between the two. It had said
/// it, so it stands. What went into a pipe cannot be read again.
pub(super) fn said_elsewhere(spec: &Spec, next_seq: u64) -> Option<Finished> {
    let path = spec.events_file.as_deref().filter(|path| path.is_file())?;
    let line = last_line(&File::open(path).ok()?)?;
    let seen = Seen::read(&line).ok().filter(|seen| seen.run == spec.run && seen.seq == next_seq)?;
    Some(Finished { exit_code: exit_code(&seen)?, lines: Some(line + "\n") })
}

/// The file from here on, whoever else reads it.
pub(super) fn read_from(file: &File, from: u64) -> io::Result<Vec<u8>> {
    const BLOCK: usize = 64 * 1024;
    let mut bytes = Vec::new();
    loop {
        let have = bytes.len();
        bytes.resize(have + BLOCK, 0);
        let count = file.read_at(&mut bytes[have..], from + have as u64)?;
        bytes.truncate(have + count);
        if count == 0 {
            return Ok(bytes);
        }
    }
}

/// Appends to the journal the last lines of a run, the first of which may be in it in part or whole. Gives back how many
/// events before them are missing. Where the disk has no room for them, output at the journal's end makes way: a verdict
/// without the output says more than the output without a verdict. The journal is open for reading and appending.
///
/// # Errors
/// When it still does not take them. Then it ends with a whole line all the same.
pub fn complete(journal: &File, lines: &str) -> io::Result<u64> {
    let length = journal.metadata()?.len();
    // Its last whole line, and a torn one after that.
    let end = read_from(journal, length.saturating_sub(2 * (event::LONGEST_LINE as u64 + 1)))?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    journal.set_len(length - (end.len() - whole) as u64)?;
    let before = String::from_utf8_lossy(&end[..whole]);
    let next = before.lines().next_back().and_then(seq).map_or(0, |seq| seq.saturating_add(1));
    let lines: String =
        lines.split_inclusive('\n').skip_while(|line| seq(line).is_some_and(|seq| seq < next)).collect();
    let missing = lines.lines().next().and_then(seq).map_or(0, |first| first.saturating_sub(next));
    match append(journal, &lines) {
        Ok(()) => Ok(missing),
        Err(error) => Ok(missing + make_way(journal, &lines).map_err(|_| error)?),
    }
}

/// The number of an event.
fn seq(line: &str) -> Option<u64> {
    Seen::read(line).ok().map(|seen| seen.seq)
}

/// Appends whole lines, or none that is torn.
fn append(mut journal: &File, lines: &str) -> io::Result<()> {
    let written = journal.write_all(lines.as_bytes());
    if written.is_err() {
        let length = journal.metadata()?.len();
        let last = read_from(journal, length.saturating_sub(event::LONGEST_LINE as u64 + 1))?;
        let torn = last.len() - last.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        journal.set_len(length - torn as u64)?;
    }
    written
}

/// How much of a journal's end is looked through for output that may make way, in bytes: at first, and at most.
const WAY: std::ops::RangeInclusive<u64> = 16 * 1024..=512 * 1024;

/// Takes output out of the journal's end and out of these lines, and appends the facts among both. Gives back how many lines
/// of output that cost.
fn make_way(journal: &File, lines: &str) -> io::Result<u64> {
    let length = journal.metadata()?.len();
    let mut way = *WAY.start();
    loop {
        let end = read_from(journal, length.saturating_sub(way))?;
        let begins =
            if length > way { end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1) } else { 0 };
        let there = String::from_utf8_lossy(&end[begins..]);
        let is_output = |line: &&str| event::spoken(line).is_some();
        let facts: String = there.split_inclusive('\n').filter(|line| !is_output(line)).collect();
        // What was appended in vain is there already, the first of it perhaps before the part that is looked at.
        let newest = there.lines().next_back().and_then(seq);
        let (outputs, last): (Vec<&str>, Vec<&str>) =
            lines.split_inclusive('\n').skip_while(|line| seq(line) <= newest).partition(is_output);
        let cost = there.lines().filter(is_output).count() + outputs.len();
        let kept = facts + &last.concat();
        let freed = (end.len() - begins) as u64;
        if cost > 0 && kept.len() as u64 <= freed {
            journal.set_len(length - freed)?;
            return append(journal, &kept).map(|()| cost as u64);
        }
        if way >= *WAY.end() || way >= length {
            return Err(io::ErrorKind::StorageFull.into());
        }
        way *= 2;
    }
}

/// A line that was cut off in the middle is ended, so that readers skip it alone.
pub(super) fn end_torn_line(mut file: &File, text: &str) -> io::Result<()> {
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { file.write_all(b"\n") }
}

#[cfg(test)]
#[path = "paper_tests.rs"]
mod tests;
