//! What is worth saying beside the course of a run: diagnostics, notes, and what was found in the surroundings.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::{Level, Severity};
use crate::failure::Failure;

/// A tool, the API server or dcctl says what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnostic {
    /// How much it weighs.
    pub severity: Severity,
    /// The stable failure code, when dcctl itself says this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Who says this: `OpenTofu`, `Helm`, `Kubernetes`, `dcctl`.
    pub origin: String,
    /// One sentence.
    pub summary: String,
    /// The rest of it; may have several lines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The resource that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The file and line that it is about, as the tool wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl From<&Failure> for Diagnostic {
    /// What dcctl itself says about a failure that no step tells.
    fn from(failure: &Failure) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code: Some(failure.code.name().to_owned()),
            origin: "dcctl".to_owned(),
            summary: failure.message.clone(),
            detail: failure.causes.join("\n"),
            address: None,
            source: None,
        }
    }
}

impl Fact for Diagnostic {
    fn level(&self) -> Level {
        match self.severity {
            Severity::Warning => Level::Warn,
            Severity::Error => Level::Error,
        }
    }

    fn message(&self) -> String {
        match &self.address {
            Some(address) => format!("{}: {address}: {}", self.origin, self.summary),
            None => format!("{}: {}", self.origin, self.summary),
        }
    }
}

/// A fact worth saying that has no type of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NoteMade {
    /// The fact, in one sentence.
    pub text: String,
}

impl Fact for NoteMade {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        self.text.clone()
    }
}

/// A program that the run needs was found and is new enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolChecked {
    /// Which: `OpenTofu`, `Helm`.
    pub tool: String,
    /// Its version, as it says itself.
    pub version: String,
    /// Where it was found.
    pub path: String,
}

impl Fact for ToolChecked {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{} {} is {}", self.tool, self.version, self.path)
    }
}

/// Environment variables that would have changed what tools do were not passed on to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnvironmentDropped {
    /// Their names; values are never said.
    pub names: Vec<String>,
}

impl Fact for EnvironmentDropped {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("not passed on to tools: {}", self.names.join(", "))
    }
}

/// A report could not be written. The run goes on; a run that goes well ends with 40.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReportFailed {
    /// Which: `junit`, `events-file`, `stdout`.
    pub report: String,
    /// The file, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Why.
    pub why: String,
}

impl Fact for ReportFailed {
    fn level(&self) -> Level {
        Level::Warn
    }

    fn message(&self) -> String {
        let what = match self.report.as_str() {
            "junit" => "JUnit report",
            "events-file" => "events file",
            other => other,
        };
        match &self.path {
            Some(path) => format!("the {what} {path} could not be written: {}", self.why),
            None => format!("the {what} could not be written: {}", self.why),
        }
    }
}
