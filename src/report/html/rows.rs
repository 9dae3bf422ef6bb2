//! Every event as data for the log of the page: an array each, small, because there may be a hundred thousand.
//!
//! A row is `[elapsed, kind, text]` or `[elapsed, kind, text, data]`. Kinds are listed once: type, level, step, and of
//! output the program and the stream. Where numbers are missing in the journal, `jumps` says so. The data stands in an
//! element whose content a browser does not read as HTML, but whose end it looks for; so no `<` is ever in it.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::clock::rfc3339;
use crate::event::{Event, Seen, Stream};
use crate::report::account::Account;
use crate::report::visible::visible;

/// What many rows have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    name: String,
    level: u8,
    step: Option<String>,
    program: Option<String>,
    errors: bool,
}

/// The rows so far.
#[derive(Debug, Default)]
pub(super) struct Rows {
    written: String,
    count: u64,
    next: u64,
    jumps: Vec<(u64, u64)>,
    kinds: Vec<Kind>,
    places: HashMap<Kind, usize>,
}

impl Rows {
    /// Takes an event and the line that it was read from.
    pub(super) fn take(&mut self, seen: &Seen, line: &str) {
        if seen.seq != self.next || self.count == 0 {
            self.jumps.push((self.count, seen.seq));
        }
        (self.next, self.count) = (seen.seq.saturating_add(1), self.count + 1);
        let (program, errors, text) = match &seen.event {
            Some(Event::ProcessOutput(output)) => {
                (Some(output.program.clone()), output.stream == Stream::Stderr, output.text.clone())
            }
            // `msg` is cut for people who read it in a log; here is room.
            Some(event) => (None, false, event.message()),
            None => (None, false, seen.msg.clone()),
        };
        let (name, level, step) = (seen.type_name.clone(), seen.level as u8, seen.step.clone());
        let kind = self.kind(Kind { name, level, step, program, errors });
        let separator = if self.written.is_empty() { "" } else { ",\n" };
        write!(self.written, "{separator}[{},{kind},", seen.elapsed.as_millis()).expect("a String takes everything");
        quote(&mut self.written, &visible(&text));
        if let Some(data) = data(seen, line) {
            self.written.push(',');
            unmarked(&mut self.written, &data);
        }
        self.written.push(']');
    }

    /// All of it, as JSON.
    pub(super) fn data(self, account: &Account) -> String {
        let mut json = String::with_capacity(self.written.len() + 4096);
        json.push_str("{\"began\":");
        quote(&mut json, &account.began().map(rfc3339).unwrap_or_default());
        json.push_str(",\"steps\":[");
        for (index, step) in account.steps.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            quote(&mut json, &visible(&step.title));
        }
        json.push_str("],\"kinds\":[");
        for (index, kind) in self.kinds.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push('[');
            quote(&mut json, &visible(&kind.name));
            let step = kind.step.as_ref().and_then(|id| account.steps.iter().position(|step| step.id == *id));
            let step = step.map_or_else(|| "null".to_owned(), |place| place.to_string());
            write!(json, ",{},{step},", kind.level).expect("a String takes everything");
            quote(&mut json, &visible(kind.program.as_deref().unwrap_or_default()));
            write!(json, ",{}]", u8::from(kind.errors)).expect("a String takes everything");
        }
        write!(
            json,
            "],\"jumps\":{:?},\"rows\":[",
            self.jumps.iter().map(|(row, seq)| [*row, *seq]).collect::<Vec<_>>()
        )
        .expect("a String takes everything");
        json.push('\n');
        json.push_str(&self.written);
        json.push_str("\n]}");
        json
    }

    fn kind(&mut self, kind: Kind) -> usize {
        if let Some(place) = self.places.get(&kind) {
            return *place;
        }
        self.kinds.push(kind.clone());
        self.places.insert(kind, self.kinds.len() - 1);
        self.kinds.len() - 1
    }
}

/// What an event has beyond its sentence. Of what comes in great numbers the sentence says everything.
fn data(seen: &Seen, line: &str) -> Option<String> {
    let is_told = matches!(
        seen.event,
        Some(
            Event::ProcessOutput(_)
                | Event::LockRenewed(_)
                | Event::StepProgressed(_)
                | Event::ResourcePlanned(_)
                | Event::ResourceStarted(_)
                | Event::ResourceProgressed(_)
                | Event::ResourceCompleted(_)
                | Event::ResourceFailed(_)
                | Event::NoteMade(_)
        )
    );
    if is_told {
        return None;
    }
    let whole: Value = serde_json::from_str(line).ok()?;
    Some(whole.get("data")?.to_string())
}

/// A string of JSON.
fn quote(json: &mut String, text: &str) {
    let quoted = Value::from(text).to_string();
    unmarked(json, &quoted);
}

/// JSON in which nothing is markup and every character is harmless: those that are not can only stand in strings, where
/// an escape means the same.
fn unmarked(json: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '<'
            | '>'
            | '&'
            | '#'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                write!(json, "\\u{:04x}", u32::from(letter)).expect("a String takes everything");
            }
            other => json.push(other),
        }
    }
}
