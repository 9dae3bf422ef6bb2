//! How each kind of step is done.
//!
//! A step gets a [`Kit`], or the one step of `dcctl exec` its [`CommandKit`]: everything it may use, and a stop token;
//! never the lock. That nothing is written without the lock is not for a step to remember: the kit's cluster asks before
//! each write. A step says what happens as [`Update`]s, which `run` turns into events, and ends with an [`Outcome`]. A
//! dry run goes through the same functions with [`Mode::DryRun`], in which nothing may be written.

// The steps that talk to the API server.
mod claims;
pub mod declaration;
pub mod destroying;
mod elsewhere;
pub mod guard;
mod halt;
pub mod operator;
pub mod manifests;
pub mod readiness;
pub mod record;

// The steps that run programs.
mod choices;
mod command;
mod course;
mod exec;
mod helm;
mod helm_uninstall;
mod helm_upgrade;
mod helm_deployed;
mod helm_end;
mod helm_plan;
mod helm_release;
mod helm_says;
mod helm_values;
mod origin;
mod tofu;
mod tofu_destroy;
mod tofu_end;
mod tofu_first;
mod tofu_lock;
mod tofu_outputs;
mod tofu_plan;
mod tofu_remote;
mod tofu_root;
mod tofu_state;
mod tofu_upgrade;
mod tofu_ui;

// What both kinds share.
pub mod rights;
mod invoke;
mod perform;
mod temporary;
mod tools;
mod updates;
mod witness;

use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Cluster, MayWrite};
use crate::config::Bundle;
use crate::failure::Failure;
use crate::pipeline::Verb;
use crate::process;
use crate::redact::Redactor;

pub use choices::{Backwards, Choices, Fate, OnChartFailure, Replace};
pub use command::{build_images, verify};
pub use course::Course;
pub use exec::{find_command, run_command};
pub use helm::install as install_chart;
pub use helm_uninstall::uninstall as uninstall_chart;
pub use helm_upgrade::upgrade as upgrade_chart;
pub use invoke::{OUTPUT, PRIVATE, RECORDS};
pub use manifests::check_manifests;
pub use origin::{StateSeen, look_at_state, refuse_lost_state, refuse_unsaved_state};
pub use perform::{perform, refuse_local_state_in_ci};
pub use record::{record_failure, refuse_foreign};
pub use temporary::check_temporary_folder;
pub use tofu::{apply as apply_root, refuse_local_state};
pub use tofu_destroy::destroy as destroy_root;
pub use tofu_end::look_first;
pub use tofu_outputs::Outputs;
pub use tofu_state::{Lineage, Part, StateFile, kept, lineage, unsaved};
#[cfg(fuzzing)]
pub use tofu_ui::attack::check as attack_ui;
pub use tofu_upgrade::{apply_planned, plan as plan_root};
pub use tools::{find_helm, find_tofu, needs_helm, needs_tofu};
pub use updates::{Backlog, Updates, UpdatesReceiver, updates};
pub use witness::{Root, Witness, guess, last_words, learn, rescue};

/// Whether a step may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Do it.
    Act,
    /// Say what would be done, and write nothing.
    DryRun,
}

/// A program that was found and whose version was checked.
#[derive(Debug, Clone)]
pub struct Tool {
    /// The absolute path.
    pub path: PathBuf,
    /// As it says itself, without a leading `v`.
    pub version: String,
}

/// What every step may use, whatever the run is for.
#[derive(Debug, Clone)]
pub struct Means {
    /// Whether to act or only to say.
    pub mode: Mode,
    /// The run's id.
    pub run: String,
    /// Who runs it, as in the lock.
    pub holder: String,
    /// The run's directory; every file that a step makes for its own use is in it.
    pub run_dir: PathBuf,
    /// Whether anything may be changed at this moment.
    pub may_write: MayWrite,
    /// The variables that lead a tool to the locked cluster, and to no other; none where no cluster is.
    pub leading: Vec<(&'static str, OsString)>,
    /// Keep the raw output of tools.
    pub keep_output: bool,
    /// The environment that tools start from, already cleaned.
    pub environment: Vec<(String, String)>,
    /// What must never be said.
    pub redactor: Redactor,
    /// How long a stop and each wait in it may take.
    pub limits: process::Limits,
    /// The stop token.
    pub stop: process::StopWatch,
    /// Where updates go.
    pub updates: Updates,
    /// The clocks.
    pub clock: Arc<dyn crate::clock::Clock>,
}

/// What the steps of a bundle may use. It is the [`Means`] with more beside them, and reads as one thing.
#[derive(Debug, Clone)]
pub struct Kit {
    /// What every step may use.
    pub means: Means,
    /// The API server.
    pub cluster: Cluster,
    /// The kubeconfig's name for it.
    pub kube_context: String,
    /// The bundle, with every placeholder expanded.
    pub bundle: Bundle,
    /// The instance worked on; none for `install`.
    pub instance: Option<String>,
    /// OpenTofu, once it was found. A bundle without a root needs none.
    pub tofu: Option<Tool>,
    /// Helm, once it was found. A bundle without a chart needs none.
    pub helm: Option<Tool>,
    /// Where local OpenTofu state lives.
    pub state_dir: PathBuf,
    /// Values files from the command line, given after the bundle's.
    pub values: Vec<PathBuf>,
    /// Build the bundle's images first.
    pub build: bool,
    /// Take over fields that another manager owns.
    pub force_conflicts: bool,
    /// What the run is for.
    pub verb: Verb,
    /// What the caller chose.
    pub choices: Choices,
    /// What the steps of an upgrade tell those after them.
    pub course: Course,
    /// What the OpenTofu roots of this run gave, for the chart.
    pub outputs: Outputs,
}

impl Deref for Kit {
    type Target = Means;

    fn deref(&self) -> &Means {
        &self.means
    }
}

impl DerefMut for Kit {
    fn deref_mut(&mut self) -> &mut Means {
        &mut self.means
    }
}

/// What the one command of `dcctl exec` is run with.
#[derive(Debug, Clone)]
pub struct CommandKit {
    /// What every step may use.
    pub means: Means,
    /// What people call it: the program's name, as it was typed, without its folder. Its arguments are never said: they
    /// may be secret.
    pub name: String,
    /// The program, absolute, as it was found.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its working folder: the caller's.
    pub folder: PathBuf,
    /// The file that gets its standard output.
    pub stdout: PathBuf,
    /// The file that gets its standard error.
    pub stderr: PathBuf,
}

/// What the steps of a run may use, by what the run is for.
#[derive(Debug, Clone)]
pub enum Equipment {
    /// A bundle.
    Bundle(Box<Kit>),
    /// One command.
    Command(Box<CommandKit>),
}

impl Equipment {
    /// What every step may use.
    pub fn means(&self) -> &Means {
        match self {
            Equipment::Bundle(kit) => &kit.means,
            Equipment::Command(kit) => &kit.means,
        }
    }
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It did its work; the note says what, in a few words.
    Done(String),
    /// There was nothing to do, and why.
    Nothing(String),
    /// It was asked to stop and did.
    Stopped(Stopped),
    /// It went wrong.
    Failed(Failure),
}

/// What is known after a stop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stopped {
    /// Every tool ended by itself after at most one interrupt, its state is written, and every resource whose start
    /// was reported reported its end.
    pub clean: bool,
    /// The addresses whose change was begun and not seen to complete: it failed, or nobody saw its end.
    pub unfinished: Vec<String>,
    /// In words, what was witnessed.
    pub note: String,
}

/// How much a diagnostic weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The work goes on.
    Warning,
    /// It does not.
    Error,
}

/// What happened to an object that dcctl applied itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A Kubernetes object, as people name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName {
    /// For example `Deployment`.
    pub kind: String,
    /// None for a cluster-scoped object.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Fields that another manager owned, and that dcctl owns now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// The former owner.
    pub manager: String,
    /// The fields, as the API server writes them.
    pub fields: Vec<String>,
}

/// Where in its life a resource of OpenTofu is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceState {
    /// The plan will change it.
    Planned,
    /// Its change has begun.
    Started,
    /// Its change is still going on.
    Progressed,
    /// Its change is complete.
    Completed,
    /// Its change failed.
    Failed,
}

/// What a step says while it works.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// A program was started, said something, was interrupted or ended.
    Process {
        /// What people call it: `tofu apply`, `helm upgrade`, `verify: API answers`.
        program: String,
        /// What happened.
        update: process::Update,
    },
    /// An object was applied; in a dry run, would be.
    Object {
        /// Which.
        object: ObjectName,
        /// What happened to it.
        change: ObjectChange,
        /// Whose fields were taken over.
        taken_over: Vec<TakenOver>,
    },
    /// A resource of OpenTofu moved on.
    Resource {
        /// Its address, `module.a.time_sleep.b`.
        address: String,
        /// `create`, `update`, `delete`, `replace`, `read`.
        action: String,
        /// Where in its life it is.
        state: ResourceState,
        /// How long its change has taken so far, as OpenTofu says.
        elapsed: Option<Duration>,
    },
    /// A tool or the API server said what is wrong.
    Diagnostic {
        /// How much it weighs.
        severity: Severity,
        /// Who said it: `OpenTofu`, `Helm`, `Kubernetes`, `dcctl`.
        origin: String,
        /// One sentence.
        summary: String,
        /// The rest of it; may be empty and may have several lines.
        detail: String,
        /// The resource it is about.
        address: Option<String>,
        /// File and line it is about, as the tool wrote them.
        source: Option<String>,
    },
    /// A fact worth saying, in one sentence.
    Note(String),
    /// Still waiting for something, and why it is not there yet.
    Waiting {
        /// What for.
        object: ObjectName,
        /// Why it is not ready.
        why: String,
    },
    /// What was waited for is there.
    Ready {
        /// What.
        object: ObjectName,
    },
}
