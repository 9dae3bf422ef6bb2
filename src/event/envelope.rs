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
use crate::event::text::{beginning, one_line, shortened};

/// The `$id` of the schema; `run.started` names it. It is a name, not an address.
pub const SCHEMA_ID: &str = "urn:dcctl:events:1";

/// The version of the schema. The minor number counts additions.
pub const SCHEMA_VERSION: &str = "1.0";

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
        // Never reached: a fact has few fields, and one entry per list with its shortest strings fits. If one day a
        // fact is of another kind, a line that is too long is better than a run that ends here.
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
        quote(line, beginning(run, LONGEST_ID));
        write!(line, ",\"elapsed_ms\":{elapsed}").expect(INFALLIBLE);
        if let Some(step) = self.step {
            line.push_str(",\"step\":");
            quote(line, beginning(step, LONGEST_ID));
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

/// Ids of runs and steps are ours and short; this only keeps the promise of [`LONGEST_LINE`] whatever they are.
const LONGEST_ID: usize = 200;

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
        let line = one_line(&cleaned.text);
        let (text, redacted) = (shortened(&line, LONGEST_MESSAGE), cleaned.redacted);
        if let (Cow::Borrowed(_), Cow::Borrowed(_), Cow::Borrowed(_)) = (&text, &line, &cleaned.text) {
            return Message { text: said, redacted };
        }
        Message { text: text.into_owned(), redacted }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::event::facts::process::{ProcessOutput, Stream};
    use crate::event::facts::run::{PlannedStep, RunPlanned};
    use crate::event::facts::stop::{StopCause, StopManner, StopRequested};
    use crate::event::seen::{Seen, Unreadable};

    /// Hides one word.
    struct Word(&'static str);

    impl Hide for Word {
        fn value<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.contains(self.0) { Cow::Owned(text.replace(self.0, "[redacted]")) } else { Cow::Borrowed(text) }
        }

        fn key(&self, key: &str) -> bool {
            key == "password"
        }
    }

    fn render(event: &Event, hide: &dyn Hide) -> String {
        let time = Timestamp::from_second(1_796_000_000).expect("a valid time");
        Envelope::new(7, time, Duration::from_millis(1234), "r1", Some("verify"), event).render(hide)
    }

    fn output(text: &str) -> Event {
        let program = "helm upgrade".to_owned();
        ProcessOutput { program, stream: Stream::Stdout, text: text.to_owned(), lossy: false, more: false }.into()
    }

    fn data(line: &str) -> Value {
        serde_json::from_str::<Value>(line).expect("JSON")["data"].take()
    }

    #[test]
    fn the_keys_are_in_order() {
        let line = render(&output("hunter2"), &Word("hunter2"));
        assert_eq!(
            line,
            "{\"v\":1,\"seq\":7,\"time\":\"2026-11-30T00:53:20.000000Z\",\"type\":\"process.output\",\"level\":\"debug\",\
             \"msg\":\"helm upgrade: [redacted]\",\"run\":\"r1\",\"elapsed_ms\":1234,\"step\":\"verify\",\"data\":{\
             \"program\":\"helm upgrade\",\"stream\":\"stdout\",\"text\":\"[redacted]\"},\
             \"redacted\":[\"/msg\",\"/data/text\"]}\n"
        );
    }

    #[test]
    fn a_line_is_one_line_without_escape_sequences_and_commands() {
        let line = render(&output("a\u{1b}[31m##[error]b\nc\u{0}"), &Open);
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.is_ascii() || !line.contains('\u{1b}'));
        assert!(!line.contains("##") && !line.contains("\\u001b"), "{line}");
        assert_eq!(data(&line)["text"], "a##[error]b\nc\u{fffd}");
        assert!(line.contains("\"msg\":\"helm upgrade: a#\\u0023[error]b c\u{fffd}\""), "{line}");
    }

    #[test]
    fn a_secret_is_found_before_the_message_is_cut_and_after_colour_is_gone() {
        let edge = format!("{}hunter2", "x".repeat(LONGEST_MESSAGE - 20));
        for text in [edge.as_str(), "hun\u{1b}[1mter2"] {
            let line = render(&output(text), &Word("hunter2"));
            assert!(!line.contains("hun"), "{line}");
            assert!(Seen::read(&line).expect("a line").redacted.contains(&"/data/text".to_owned()));
        }
    }

    #[test]
    fn words_of_our_own_stay_whatever_is_secret() {
        let event = StopRequested {
            cause: StopCause::Signal,
            signals: vec!["signal".into()],
            sender_pid: None,
            sender_uid: None,
            manner: StopManner::Graceful,
            budget_ms: 1,
            deadline: None,
        };
        let line = render(&event.into(), &Word("signal"));
        assert_eq!(
            data(&line),
            json!({"cause": "signal", "signals": ["[redacted]"], "manner": "graceful", "budget_ms": 1})
        );
    }

    #[test]
    fn a_long_string_is_cut_to_what_fits_and_no_further() {
        for letter in ["x", "ü", "\"", "#", "\u{1f600}"] {
            let text = letter.repeat(40_000);
            let line = render(&output(&text), &Open);
            assert!(line.len() <= LONGEST_LINE && line.len() > LONGEST_LINE - 12, "{letter}: {}", line.len());
            let seen = Seen::read(&line).expect("a line");
            assert_eq!(seen.truncated["/data/text"], text.len() as u64);
            assert!(text.starts_with(data(&line)["text"].as_str().expect("a string")));
        }
    }

    #[test]
    fn a_long_list_is_cut_when_shorter_strings_are_not_enough() {
        let step = |index: u32| PlannedStep { id: format!("step-{index}"), title: "t".repeat(900) };
        for steps in [20, 400, 20_000] {
            let line = render(&RunPlanned { steps: (0..steps).map(step).collect() }.into(), &Open);
            assert!(line.len() <= LONGEST_LINE, "{}", line.len());
            let seen = Seen::read(&line).expect("a line");
            assert!(seen.event.is_some());
            let kept = data(&line)["steps"].as_array().expect("a list").len();
            assert_eq!(kept < usize::try_from(steps).expect("small"), seen.truncated.contains_key("/data/steps"));
        }
    }

    #[test]
    fn what_a_newer_dcctl_says_is_read_as_far_as_it_is_known() {
        let line = render(&output("x"), &Open);
        let mut value: Value = serde_json::from_str(&line).expect("JSON");
        value["new"] = json!(1);
        value["data"]["new"] = json!(1);
        assert!(Seen::read(&value.to_string()).expect("a line").event.is_some());
        value["data"]["stream"] = json!("side channel");
        value["level"] = json!("whisper");
        let seen = Seen::read(&value.to_string()).expect("a line");
        assert_eq!((seen.event, seen.msg.as_str()), (None, "helm upgrade: x"));
        value["type"] = json!("moon.landed");
        assert_eq!(Seen::read(&value.to_string()).expect("a line").type_name, "moon.landed");
        value["v"] = json!(2);
        assert!(matches!(Seen::read(&value.to_string()), Err(Unreadable::Version(2))));
        assert!(matches!(Seen::read("{\"v\":3}"), Err(Unreadable::Version(3))));
        assert!(matches!(Seen::read(&line[..60]), Err(Unreadable::NotAnEvent(_))));
    }
}
