//! The tools that a run starts: their lives, what they print, and what is done to them.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::Level;
use crate::event::text::{count, span};

/// A program was started. Ends with `process.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessStarted {
    /// What people call it: `tofu apply`, `helm upgrade`, `verify: API answers`.
    pub program: String,
    /// Its process id.
    pub pid: u32,
}

impl Fact for ProcessStarted {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{} was started as process {}", self.program, self.pid)
    }
}

/// A program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessFinished {
    /// What people call it.
    pub program: String,
    /// Its process id, unless it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its exit status, when it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

impl Fact for ProcessFinished {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        let took = span(self.duration_ms);
        let program = &self.program;
        match (self.exit_code, self.signal) {
            (Some(code), _) => format!("{program} ended with {code} after {took}"),
            (None, Some(signal)) => format!("{program} was ended by signal {signal} after {took}"),
            (None, None) => format!("{program} ended after {took}; its exit status is not known"),
        }
    }
}

/// We sent a program a signal that asks it to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessInterrupted {
    /// What people call it.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// The signal, `SIGINT`.
    pub signal: String,
    /// Why.
    pub why: String,
}

impl Fact for ProcessInterrupted {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        format!("{} (process {}) was sent {}: {}", self.program, self.pid, self.signal, self.why)
    }
}

/// A program says itself that it was interrupted, by us or by somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessInterruptReported {
    /// What people call it.
    pub program: String,
    /// How often it has said so by now. More than `sent`: somebody else interrupted it, too.
    #[serde(default)]
    pub times: u32,
    /// How many interrupts dcctl had sent it by then.
    #[serde(default)]
    pub sent: u32,
}

impl Fact for ProcessInterruptReported {
    fn level(&self) -> Level {
        if self.is_surprising() { Level::Warn } else { Level::Info }
    }

    fn message(&self) -> String {
        let Self { program, times, sent } = self;
        match (times, sent) {
            (0, _) | (1, 1..) => format!("{program} says that it was interrupted and is stopping"),
            (1, 0) => format!("{program} says that it was interrupted, not by dcctl, and is stopping"),
            (2.., _) if !self.is_surprising() => {
                format!("{program} says that it was interrupted again and ends at once")
            }
            (2.., _) => {
                let sent = count(u64::from(*sent), "interrupt");
                format!("{program} says that it was interrupted for the {} time; dcctl had sent {sent}", nth(*times))
            }
        }
    }
}

impl ProcessInterruptReported {
    /// Whether somebody else has interrupted it again, which costs OpenTofu what is in flight.
    pub(crate) fn is_surprising(&self) -> bool {
        self.times > self.sent.max(1)
    }
}

/// `2nd`, `3rd`, `11th`.
fn nth(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        (_, _) => "th",
    };
    format!("{number}{ending}")
}

/// We sent a program SIGKILL: it does not end by itself. Whether it ended then is another event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessKilled {
    /// What people call it.
    pub program: String,
    /// Its process id.
    pub pid: u32,
    /// Why.
    pub why: String,
}

impl Fact for ProcessKilled {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        format!("{} (process {}) was sent SIGKILL: {}", self.program, self.pid, self.why)
    }
}

/// How a process belongs to a program, as it was seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// It is the program itself.
    Itself,
    /// The program had started it and is its parent still.
    Child,
    /// Another process of the program is its parent.
    Descendant,
    /// Its parent has ended.
    Orphan,
    /// It is in the program's process group.
    Group,
    /// The program's mark is in its environment.
    Mark,
    /// It has the program's output open.
    Output,
    /// It keeps a pipe open whose end the program waits for.
    Pipe,
}

impl Relation {
    fn said(self) -> &'static str {
        match self {
            Relation::Itself => "the program itself",
            Relation::Child => "a child of it",
            Relation::Descendant => "a child of one of its processes",
            Relation::Orphan => "an orphan",
            Relation::Group => "in its process group",
            Relation::Mark => "with its mark in the environment",
            Relation::Output => "with its output open",
            Relation::Pipe => "with a pipe open whose end it waits for",
        }
    }
}

fn said(relations: &[Relation]) -> String {
    let said: Vec<&str> = relations.iter().map(|relation| relation.said()).collect();
    if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) }
}

/// Something that a program had started outlived it, or holds up its end. It is ended before the run goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessLeftBehind {
    /// The program that it belongs to.
    pub program: String,
    /// Its own process id.
    pub pid: u32,
    /// Its own name.
    pub name: String,
    /// How long it has been alive, in milliseconds.
    pub age_ms: u64,
    /// How it belongs to the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<Relation>,
}

impl Fact for ProcessLeftBehind {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        let Self { program, pid, name, age_ms, relations } = self;
        format!("{program} left process {pid} ({name}) behind, {} old{}", span(*age_ms), said(relations))
    }
}

/// A process of a program could not be ended, and is waited for no longer. The verdict names it, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessSurvived {
    /// The program that it belongs to.
    pub program: String,
    /// Its own process id.
    pub pid: u32,
    /// Its own name.
    pub name: String,
    /// How long it had been alive when it was found, in milliseconds.
    pub age_ms: u64,
    /// How it belongs to the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relations: Vec<Relation>,
    /// Its state when it was last seen, in the kernel's letter: `S` sleeping, `D` not to be interrupted, `T` stopped.
    pub state: String,
}

impl ProcessSurvived {
    /// The process in a few words.
    pub fn named(&self) -> String {
        let Self { program, pid, name, age_ms, relations, state } = self;
        format!("process {pid} ({name}) of {program}, {} old, state {state}{}", span(*age_ms), said(relations))
    }
}

impl Fact for ProcessSurvived {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        let Self { program, pid, name, state, .. } = self;
        format!(
            "process {pid} ({name}) of {program} could not be ended and is still there, state {state}; what it still does \
             to the cluster, nobody watches"
        )
    }
}

/// A piece of what a program printed. Level `debug`. A line longer than one event is several, all but the last with
/// `more`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessOutput {
    /// What people call it.
    pub program: String,
    /// Where it printed this.
    pub stream: Stream,
    /// The line, without its end and without escape sequences.
    pub text: String,
    /// Bytes that are not UTF-8 were replaced.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lossy: bool,
    /// The line goes on in the next event of this program and stream.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// One of the two streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Fact for ProcessOutput {
    fn level(&self) -> Level {
        Level::Debug
    }

    fn message(&self) -> String {
        format!("{}: {}", self.program, self.text)
    }
}

/// What a program printed came faster than it could be written, or the disk was full, and some of it is not in this
/// journal. Facts are never dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputDropped {
    /// How many `process.output` events are missing at this place.
    pub lines: u64,
}

impl Fact for OutputDropped {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        format!("{} of output not in this journal: they could not be written in time", count(self.lines, "line"))
    }
}
