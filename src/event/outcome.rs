//! The closed vocabularies of events: how grave a fact is, and how things ended.
//!
//! These words are dcctl's own. They are never redacted, and a later version may add one, so a reader treats a word it
//! does not know as it treats an unknown type: it goes on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// How grave an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For a close look only.
    Debug,
    /// The run goes on as it should.
    Info,
    /// A person should know.
    Warn,
    /// Something went wrong.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        })
    }
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// It did its work.
    Done,
    /// There was nothing to do.
    Nothing,
    /// It was asked to stop and did.
    Stopped,
    /// It went wrong.
    Failed,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Everything was done, or there was nothing to do.
    Succeeded,
    /// Something went wrong.
    Failed,
    /// It was not begun: the command line, the bundle, the surroundings or a guard is against it.
    Refused,
    /// Another run holds the lock.
    Blocked,
    /// It was asked to stop and did.
    Stopped,
    /// It was ended by force.
    Forced,
}

impl RunOutcome {
    /// As the end of a sentence: `the run …`.
    pub fn said(self) -> &'static str {
        match self {
            RunOutcome::Succeeded => "succeeded",
            RunOutcome::Failed => "failed",
            RunOutcome::Refused => "was refused",
            RunOutcome::Blocked => "is blocked",
            RunOutcome::Stopped => "was stopped",
            RunOutcome::Forced => "was ended by force",
        }
    }
}

/// Where the cluster's lock is at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LockEnd {
    /// The run held it and gave it back.
    Released,
    /// The run never asked for it, or never got it.
    NeverTaken,
    /// The run went on without it, because the command allows that.
    NotHeld,
    /// The run held it and left it behind: a person has to reclaim it.
    Left,
    /// It was taken from the run or deleted under it.
    Lost,
    /// No answer settled whether it is held; `holder` is the identity that it would bear.
    Unknown,
}

impl LockEnd {
    /// As the end of a sentence: `the lock …`.
    pub fn said(self) -> &'static str {
        match self {
            LockEnd::Released => "was released",
            LockEnd::NeverTaken => "was never taken",
            LockEnd::NotHeld => "was not held by this run",
            LockEnd::Left => "WAS LEFT BEHIND",
            LockEnd::Lost => "was lost",
            LockEnd::Unknown => "is in an unknown state",
        }
    }
}

/// How much a diagnostic weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The work goes on.
    Warning,
    /// It does not.
    Error,
}

/// What happened to an object that dcctl applied itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ObjectChange {
    /// It was not there.
    Created,
    /// It was there and is different now.
    Configured,
    /// It was as it should be.
    Unchanged,
    /// It was removed.
    Deleted,
}

impl ObjectChange {
    /// The word, `created`.
    pub fn word(self) -> &'static str {
        match self {
            ObjectChange::Created => "created",
            ObjectChange::Configured => "configured",
            ObjectChange::Unchanged => "unchanged",
            ObjectChange::Deleted => "deleted",
        }
    }

    /// What a dry run says: `would be created`.
    pub fn would(self) -> &'static str {
        match self {
            ObjectChange::Created => "would be created",
            ObjectChange::Configured => "would be configured",
            ObjectChange::Unchanged => "would stay as it is",
            ObjectChange::Deleted => "would be deleted",
        }
    }
}

/// What went wrong, with its stable code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failed {
    /// The stable code, `area.what`; `dcctl explain CODE` tells more.
    pub code: String,
    /// One sentence: what went wrong, and where.
    pub message: String,
    /// What lies beneath, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// What to do now, most helpful first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed {
            code: failure.code.name().to_owned(),
            message: failure.message,
            causes: failure.causes,
            hints: failure.hints,
        }
    }
}

impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Failed {
        Failed::from(failure.clone())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
