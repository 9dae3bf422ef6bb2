//! A line of a journal, as a reader gets it back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::event::envelope::VERSION;
use crate::event::facts::process::Stream;
use crate::event::kind::Event;
use crate::event::outcome::Level;

/// A line that was read. Whatever a newer dcctl added to it is left out; a type or a value that this one does not know
/// leaves `event` empty, and `msg` still says what happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its place in the journal, from 0.
    pub seq: u64,
    /// The wall clock, for people.
    pub time: Timestamp,
    /// The name of its type.
    pub type_name: String,
    /// How grave it is.
    pub level: Level,
    /// It in one sentence.
    pub msg: String,
    /// The id of the run.
    pub run: String,
    /// Since the run began; the only time to reckon with.
    pub elapsed: Duration,
    /// The id of the step that it belongs to.
    pub step: Option<String>,
    /// The fact, if this version knows it.
    pub event: Option<Event>,
    /// JSON Pointers of what was redacted.
    pub redacted: Vec<String>,
    /// JSON Pointers of what was shortened, with the length before.
    pub truncated: BTreeMap<String, u64>,
}

/// Whose output a line of the journal is, when it is some: a journal is mostly output, and whoever only counts that need
/// not read all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken<'a> {
    /// The line's place in the journal.
    pub seq: u64,
    /// What people call the program.
    pub program: Cow<'a, str>,
    /// Where it printed.
    pub stream: Stream,
}

/// Reads of a line whose output it is; none when it is another event, or no event of this version.
pub fn spoken(line: &str) -> Option<Spoken<'_>> {
    #[derive(Deserialize)]
    struct Brief<'a> {
        v: u64,
        seq: u64,
        #[serde(borrow)]
        data: BriefData<'a>,
    }
    #[derive(Deserialize)]
    struct BriefData<'a> {
        #[serde(borrow)]
        program: Cow<'a, str>,
        stream: Stream,
    }
    // Its type is among the first fields that an envelope writes.
    const HEADER: usize = 120;
    let header = &line.as_bytes()[..line.len().min(HEADER)];
    let marked = header.windows(OUTPUT.len()).any(|part| part == OUTPUT);
    let Brief { v, seq, data } = marked.then(|| serde_json::from_str(line).ok()).flatten()?;
    (v == VERSION).then_some(Spoken { seq, program: data.program, stream: data.stream })
}

/// How an envelope says that it is output.
const OUTPUT: &[u8] = br#""type":"process.output""#;

/// Why a line is not an event.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Not JSON, or without the fields that every line has. A torn last line is one.
    #[error("not an event")]
    NotAnEvent(#[source] serde_json::Error),
    /// Written by a dcctl that says things in another way.
    #[error("events of version {0} are not known to this dcctl, which knows version {VERSION}")]
    Version(u64),
}

#[derive(Deserialize)]
struct Raw {
    v: u64,
    seq: u64,
    time: Timestamp,
    r#type: String,
    level: Value,
    msg: String,
    run: String,
    elapsed_ms: u64,
    #[serde(default)]
    step: Option<String>,
    data: Value,
    #[serde(default)]
    redacted: Vec<String>,
    #[serde(default)]
    truncated: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Versioned {
    v: u64,
}

impl Seen {
    /// Reads a line, with or without its line feed.
    pub fn read(line: &str) -> Result<Seen, Unreadable> {
        let raw: Raw = match serde_json::from_str(line) {
            Ok(raw) => raw,
            Err(error) => {
                return Err(match serde_json::from_str::<Versioned>(line) {
                    Ok(Versioned { v }) if v != VERSION => Unreadable::Version(v),
                    Ok(_) | Err(_) => Unreadable::NotAnEvent(error),
                });
            }
        };
        if raw.v != VERSION {
            return Err(Unreadable::Version(raw.v));
        }
        Ok(Seen {
            seq: raw.seq,
            time: raw.time,
            level: serde_json::from_value(raw.level).unwrap_or(Level::Info),
            msg: raw.msg,
            run: raw.run,
            elapsed: Duration::from_millis(raw.elapsed_ms),
            step: raw.step,
            event: Event::read(&raw.r#type, raw.data).and_then(Result::ok),
            type_name: raw.r#type,
            redacted: raw.redacted,
            truncated: raw.truncated,
        })
    }
}
