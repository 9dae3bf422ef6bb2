//! Resources as OpenTofu changes them. `address` is OpenTofu's own: `module.a.demo_object.b["c"]`.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::Level;
use crate::event::text::span;

/// The plan will change this resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourcePlanned {
    /// Its address.
    pub address: String,
    /// What will be done: `create`, `update`, `delete`, `replace`, `read`.
    pub action: String,
}

impl Fact for ResourcePlanned {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{}: planned to {}", self.address, self.action)
    }
}

/// The change of this resource has begun. Ends with `resource.completed` or `resource.failed`; one that is not seen to
/// complete is named in `unfinished` of `step.finished` and `run.finished`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceStarted {
    /// Its address.
    pub address: String,
    /// What is done.
    pub action: String,
}

impl Fact for ResourceStarted {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{}: {} has begun", self.address, self.action)
    }
}

/// The change of this resource is still going on. OpenTofu says so every ten seconds. Level `debug`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceProgressed {
    /// Its address.
    pub address: String,
    /// What is done.
    pub action: String,
    /// For how long so far, as OpenTofu says, in milliseconds.
    pub elapsed_ms: u64,
}

impl Fact for ResourceProgressed {
    fn level(&self) -> Level {
        Level::Debug
    }

    fn message(&self) -> String {
        format!("{}: {} is still going on after {}", self.address, self.action, span(self.elapsed_ms))
    }
}

/// The change of this resource is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceCompleted {
    /// Its address.
    pub address: String,
    /// What was done.
    pub action: String,
    /// How long it took, as OpenTofu says, in milliseconds.
    pub elapsed_ms: u64,
}

impl Fact for ResourceCompleted {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{}: {} is complete after {}", self.address, self.action, span(self.elapsed_ms))
    }
}

/// The change of this resource failed. A `diagnostic` with the same address says why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceFailed {
    /// Its address.
    pub address: String,
    /// What was tried.
    pub action: String,
    /// How long it took, as OpenTofu says, in milliseconds.
    pub elapsed_ms: u64,
}

impl Fact for ResourceFailed {
    fn level(&self) -> Level {
        Level::Error
    }

    fn message(&self) -> String {
        format!("{}: {} failed after {}", self.address, self.action, span(self.elapsed_ms))
    }
}
