//! What the journal writes around an event: who says it, when, and what was done to it so that it may be said.
//!
//! The journal of a run is the only maker of envelopes, and all that it can do with one is to render it. Redaction
//! happens there, once, before anything is escaped or shortened; everything that reads events reads rendered lines
//! ([`crate::event::Seen`]), so nothing can show what was never redacted.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::event::kind::Event;
use crate::event::line::{Limits, Writer, clean, quote};
use crate::event::text::{one_line, shortened};

/// The major version of a line. Readers refuse one that they do not know.
pub const VERSION: u64 = 1;

/// The most bytes that a line has, its line feed included. Collectors cut longer ones, which breaks the JSON.
pub const LONGEST_LINE: usize = 16_000;

/// The most bytes that `msg` has.
pub const LONGEST_MESSAGE: usize = 300;

/// What the redactor has to be able to do for an envelope.
pub trait Hide {
    /// The text without secrets: borrowed if and only if there was none in it.
    fn value<'a>(&self, text: &'a str) -> Cow<'a, str>;

    /// Whether the value under this key is secret whatever it is.
    fn key(&self, key: &str) -> bool;
}

/// Hides nothing: for texts that are known to hold no secret, such as the examples.
#[derive(Debug, Clone, Copy)]
pub struct Open;

impl Hide for Open {
    fn value<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }

    fn key(&self, _: &str) -> bool {
        false
    }
}

/// An event with its place in the journal, about to be written.
#[derive(Debug, Clone)]
pub struct Envelope<'a> {
    seq: u64,
    time: Timestamp,
    elapsed: Duration,
    run: &'a str,
    step: Option<&'a str>,
    event: &'a Event,
}

impl<'a> Envelope<'a> {
    /// An envelope. `elapsed` is the time since the run began, on a clock that counts suspended time; `time` is the
    /// wall clock, for people. `step` is the id of the step that the event belongs to, if it belongs to one.
    pub fn new(
        seq: u64,
        time: Timestamp,
        elapsed: Duration,
        run: &'a str,
        step: Option<&'a str>,
        event: &'a Event,
    ) -> Envelope<'a> {
        Envelope { seq, time, elapsed, run, step, event }
    }

    /// The line, with its line feed, redacted, at most [`LONGEST_LINE`] bytes long.
    pub fn render(&self, hide: &dyn Hide) -> String {
        let mut line = String::new();
        self.render_into(hide, &mut line);
        line
    }

    /// [`Envelope::render`] into a buffer that is emptied first, so that one buffer serves a whole journal.
    pub fn render_into(&self, hide: &dyn Hide, line: &mut String) {
        let message = Message::of(self.event, hide);
        let whole = Limits { string: LONGEST_LINE, list: usize::MAX };
        if self.fits(hide, &message, whole, line) {
            return;
        }
        // Too long, which is rare: find the longest strings that fit; if none do, take ever shorter lists.
        for list in [usize::MAX, 256, 64, 16, 4, 1] {
            let (mut good, mut bad) = (SHORTEST_STRING, LONGEST_LINE);
            if !self.fits(hide, &message, Limits { string: good, list }, line) {
                continue;
            }
            while bad - good > 1 {
                let middle = good.midpoint(bad);
                let limits = Limits { string: middle, list };
                if self.fits(hide, &message, limits, line) { good = middle } else { bad = middle }
            }
            self.fits(hide, &message, Limits { string: good, list }, line);
            return;
        }
        unreachable!(
            "a fact has few fields, and with one entry per list and {SHORTEST_STRING} bytes per string it fits"
        );
    }

    /// Writes the line within these limits and says whether it is short enough.
    fn fits(&self, hide: &dyn Hide, message: &Message, limits: Limits, line: &mut String) -> bool {
        line.clear();
        let Self { seq, time, run, event, .. } = self;
        let elapsed = self.elapsed.as_millis();
        let (name, level) = (event.type_name(), event.level());
        write!(
            line,
            "{{\"v\":{VERSION},\"seq\":{seq},\"time\":\"{time:.6}\",\"type\":\"{name}\",\"level\":\"{level}\""
        )
        .expect(INFALLIBLE);
        line.push_str(",\"msg\":");
        quote(line, &message.text);
        line.push_str(",\"run\":");
        quote(line, run);
        write!(line, ",\"elapsed_ms\":{elapsed}").expect(INFALLIBLE);
        if let Some(step) = self.step {
            line.push_str(",\"step\":");
            quote(line, step);
        }
        line.push_str(",\"data\":");
        let mut data = Writer::new(line, hide, limits, "/data");
        event.write_data(&mut data).expect("a fact is made of structs, lists, maps, strings and whole numbers");
        let (mut redacted, truncated) = (data.redacted, data.truncated);
        if message.redacted {
            redacted.insert(0, "/msg".to_owned());
        }
        write_redacted(line, &redacted);
        write_truncated(line, &truncated);
        line.push_str("}\n");
        line.len() <= LONGEST_LINE
    }
}

const INFALLIBLE: &str = "a String takes every write";

/// However long a line is, at least so many bytes of each string are kept.
const SHORTEST_STRING: usize = 32;

/// The sentence of an event, fit to be said.
struct Message {
    text: String,
    redacted: bool,
}

impl Message {
    fn of(event: &Event, hide: &dyn Hide) -> Message {
        let said = event.message();
        let cleaned = clean(&said, hide);
        let text = shortened(&one_line(&cleaned.text), LONGEST_MESSAGE).into_owned();
        Message { text, redacted: cleaned.redacted }
    }
}

fn write_redacted(line: &mut String, pointers: &[String]) {
    if pointers.is_empty() {
        return;
    }
    line.push_str(",\"redacted\":[");
    for (index, pointer) in pointers.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        quote(line, pointer);
    }
    line.push(']');
}

fn write_truncated(line: &mut String, lengths: &[(String, usize)]) {
    if lengths.is_empty() {
        return;
    }
    line.push_str(",\"truncated\":{");
    for (index, (pointer, length)) in lengths.iter().enumerate() {
        if index > 0 {
            line.push(',');
        }
        quote(line, pointer);
        write!(line, ":{length}").expect(INFALLIBLE);
    }
    line.push('}');
}
