//! The life of a step.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::{Failed, Level, StepOutcome};
use crate::event::text::span;

/// A step begins. Ends with `step.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepStarted {
    /// Its stable id.
    pub id: String,
    /// What people call it.
    pub title: String,
    /// Its place in the plan, from 1.
    pub index: u64,
    /// How many steps the plan has.
    pub total: u64,
}

impl Fact for StepStarted {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("step {}/{} begins: {}", self.index, self.total, self.title)
    }
}

/// A step ended. Steps of the plan that never began have neither `step.started` nor this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepFinished {
    /// Its stable id.
    pub id: String,
    /// What people call it.
    pub title: String,
    /// Its place in the plan, from 1.
    pub index: u64,
    /// How many steps the plan has.
    pub total: u64,
    /// How it ended.
    pub outcome: StepOutcome,
    /// What it did, why there was nothing to do, or what was witnessed of its stop, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failed>,
    /// The addresses of resources whose change was begun and not seen to complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

impl Fact for StepFinished {
    fn level(&self) -> Level {
        match self.outcome {
            StepOutcome::Done | StepOutcome::Nothing => Level::Info,
            StepOutcome::Stopped => Level::Warn,
            StepOutcome::Failed => Level::Error,
        }
    }

    fn message(&self) -> String {
        let said = match self.outcome {
            StepOutcome::Done => "is done",
            StepOutcome::Nothing => "had nothing to do",
            StepOutcome::Stopped => "was stopped",
            StepOutcome::Failed => "failed",
        };
        let why = match &self.failure {
            Some(failure) => format!(": {}", failure.message),
            None if self.note.is_empty() => String::new(),
            None => format!(": {}", self.note),
        };
        let Self { index, total, title, duration_ms, .. } = self;
        format!("step {index}/{total} {title} {said} after {}{why}", span(*duration_ms))
    }
}

/// A step is still at work: sent every 15 seconds while it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepProgressed {
    /// What is in flight, longest first; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlight>,
    /// How long the step has taken so far, in milliseconds.
    pub duration_ms: u64,
}

/// Something that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InFlight {
    /// What, in a few words: `creating module.a.demo_object.b`, `waiting for Deployment demo/api: 0 of 1 replicas`.
    pub what: String,
    /// For how long so far, in milliseconds.
    pub for_ms: u64,
}

impl Fact for StepProgressed {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        let more = match self.in_flight.len() {
            0 => return format!("still at work after {}", span(self.duration_ms)),
            1 => String::new(),
            several => format!(", and {} more", several - 1),
        };
        let first = &self.in_flight[0];
        format!("still {} ({}{more})", first.what, span(first.for_ms))
    }
}
