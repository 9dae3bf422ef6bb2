//! A run as a whole: what it is, what it will do, how it ended.

use serde::{Deserialize, Serialize};

use crate::event::facts::process::ProcessSurvived;
use crate::event::kind::Fact;
use crate::event::outcome::{Failed, Level, LockEnd, RunOutcome};
use crate::event::text::{count, span};

/// The first event of every run, also of one that is refused at once. Fields are missing when the run did not get so
/// far as to know them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunStarted {
    /// The `$id` of the schema of these lines; `dcctl schema` prints it.
    pub schema: String,
    /// Its version, `major.minor`. The minor number counts additions.
    pub schema_version: String,
    /// The version of dcctl.
    pub dcctl: String,
    /// What was asked for: `install`, `bootstrap`, and so on.
    pub command: String,
    /// The instance worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The program that `exec` runs, without its folder. Its arguments are never told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// What is being installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<BundleFact>,
    /// The kubeconfig's name for the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_context: Option<String>,
    /// The URL of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The folder that keeps the lock, where no cluster does (`--substrate direct`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_dir: Option<String>,
    /// The identity under which this run claims the lock, `user@host/pid/<16 hex>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The CI system that the run was started by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<CiFact>,
    /// Where the run keeps its files, this journal among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_dir: Option<String>,
    /// How long a stop may take here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_budget: Option<StopBudget>,
    /// Nothing will be written.
    pub dry_run: bool,
}

/// A bundle, as its own file names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BundleFact {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The absolute path that it was read from.
    pub path: String,
    /// The digest of the archive that it came in, `sha256:` and 64 digits; absent for a folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The CI system around a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CiFact {
    /// Which: `github`, `gitlab`, `jenkins`, and so on.
    pub system: String,
    /// Where a person sees the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_url: Option<String>,
}

/// How long a stop may take in these surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopBudget {
    /// Seconds from the first request.
    pub seconds: u64,
    /// Where that number is from: `--stop-after`, as it was given or by default, `--stop-budget`, or the system whose
    /// preset it is.
    pub source: String,
    /// How many of them a tool has to finish what is in flight, where the surroundings leave less than `--stop-after`. Then
    /// it is interrupted again, and killed. 0 where a cancel signals every process, the tools included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_seconds: Option<u64>,
    /// What the surroundings end after a cancel, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends: Option<StopEnds>,
    /// What a cancel would do here and leave behind, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What the surroundings of a run end after a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopEnds {
    /// Every process of the run: its container, its machine, or the service with all that it started.
    Everything,
    /// What shows the run; the run outlives that.
    Front,
}

impl RunStarted {
    fn subject(&self) -> String {
        let mut subject = self.command.clone();
        if let Some(object) = self.instance.as_ref().or(self.program.as_ref()) {
            subject.push(' ');
            subject.push_str(object);
        }
        subject
    }
}

impl Fact for RunStarted {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        let from = self.bundle.as_ref().map(|bundle| format!(" from bundle {} {}", bundle.name, bundle.version));
        let on = self.kube_context.as_ref().map(|context| format!(" on {context}"));
        let on = on.or_else(|| self.lock_dir.as_ref().map(|folder| format!(" under the lock in {folder}")));
        let dry = if self.dry_run { "; this is a dry run, nothing will be written" } else { "" };
        let (from, on) = (from.unwrap_or_default(), on.unwrap_or_default());
        format!("dcctl {} starts {}{from}{on}{dry}", self.dcctl, self.subject())
    }
}

/// The steps that the run will do, in order. Sent before any work, so that a reader can tell what never ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunPlanned {
    /// The steps.
    pub steps: Vec<PlannedStep>,
}

/// A step that a run will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlannedStep {
    /// Its stable id, `apply-infrastructure`; the `step` of every event that belongs to it.
    pub id: String,
    /// What people call it, `Apply infrastructure`.
    pub title: String,
}

impl Fact for RunPlanned {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        let titles: Vec<&str> = self.steps.iter().map(|step| step.title.as_str()).collect();
        format!("{} planned: {}", count(self.steps.len() as u64, "step"), titles.join(", "))
    }
}

/// The verdict: the last event of every run, sent exactly once. A journal without it tells of a run that was cut off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFinished {
    /// What was asked for, with the instance or the program: `bootstrap demo`, `exec deploy.sh`.
    pub subject: String,
    /// How it ended.
    pub outcome: RunOutcome,
    /// The exit status of the process. With `--propagate-exit-code` it may be that of the command, and `failure` tells.
    pub exit_code: u8,
    /// Why, unless it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failed>,
    /// How the command of `exec` ended, if it was started and its end was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_end: Option<CommandEnd>,
    /// Where the lock is.
    pub lock: LockEnd,
    /// Who held it when it was last seen, unless nobody did. A run that lost its lock because it could not renew it has
    /// seen nobody but itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// How much was done.
    pub counts: Counts,
    /// The addresses of resources whose change was begun and not seen to complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<String>,
    /// Processes of the run that could not be ended: what they still do to the cluster, nobody watches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survived: Vec<ProcessSurvived>,
    /// Files that were kept for a person to look at, the most urgent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// What to do now, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// Nothing was written.
    #[serde(default)]
    pub dry_run: bool,
    /// How long the run took, in milliseconds.
    pub duration_ms: u64,
}

/// How the command of `exec` ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandEnd {
    /// Its exit status, when it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// A file that was kept for a person to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kept {
    /// What it is, in a few words.
    pub what: String,
    /// Where it is.
    pub path: String,
}

/// How much was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Counts {
    /// Steps.
    pub steps: StepCounts,
    /// Resources of OpenTofu.
    pub resources: ResourceCounts,
    /// Diagnostics that are warnings.
    pub warnings: u64,
    /// Times that the lock could not be renewed for a while, or not any more.
    #[serde(default)]
    pub renewal_gaps: u64,
}

/// Steps by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepCounts {
    /// Did their work, or had nothing to do.
    pub done: u64,
    /// Went wrong, or were stopped.
    pub failed: u64,
    /// Began, and nobody saw their end: the run was cut off in the middle of one.
    #[serde(default)]
    pub cut_off: u64,
    /// Never ran.
    pub skipped: u64,
}

/// Resources of OpenTofu by what was done to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResourceCounts {
    /// Created or replaced.
    pub created: u64,
    /// Changed in place.
    pub changed: u64,
    /// Destroyed.
    pub destroyed: u64,
    /// Failed.
    pub failed: u64,
}

impl Fact for RunFinished {
    fn level(&self) -> Level {
        match self.outcome {
            RunOutcome::Succeeded if self.exit_code == 0 => Level::Info,
            RunOutcome::Stopped if self.lock != LockEnd::Left => Level::Warn,
            RunOutcome::Succeeded
            | RunOutcome::Stopped
            | RunOutcome::Failed
            | RunOutcome::Refused
            | RunOutcome::Blocked
            | RunOutcome::Forced => Level::Error,
        }
    }

    fn message(&self) -> String {
        let code = self.failure.as_ref().map(|failure| format!(" ({})", failure.code)).unwrap_or_default();
        let dry = if self.dry_run { "dry run of " } else { "" };
        let after = if self.duration_ms < 1_000 { String::new() } else { format!(" after {}", span(self.duration_ms)) };
        format!(
            "{dry}{} {}{after}: exit code {}{code}, the lock {}",
            self.subject,
            self.outcome.said(),
            self.exit_code,
            self.lock.said()
        )
    }
}
