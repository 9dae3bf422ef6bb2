//! The options of `dcctl preflight`: those of the verbs, as far as they change what a run would need.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::options::{BusyOptions, GivenOptions, StatusOutput, StopOptions, TargetOptions, ToolOptions};

/// `dcctl preflight`
#[derive(Debug, Args)]
pub struct PreflightArgs {
    /// The verb to look for; without one, what every verb needs
    #[arg(value_enum)]
    pub verb: Option<PreflightVerb>,

    /// The instance's name, for `bootstrap`, `upgrade` and `destroy`
    #[arg(required_if_eq_any = [("verb", "bootstrap"), ("verb", "upgrade"), ("verb", "destroy")])]
    pub instance: Option<String>,

    /// The bundle, for every verb but `exec`
    #[arg(long, env = "DCCTL_BUNDLE", value_name = "DIR|FILE", required_if_eq_any =
        [("verb", "install"), ("verb", "bootstrap"), ("verb", "upgrade"), ("verb", "destroy")])]
    pub bundle: Option<PathBuf>,

    /// The digest that the `.tar.gz` must have, `sha256:` and 64 digits
    #[arg(long, env = "DCCTL_BUNDLE_DIGEST", value_name = "DIGEST")]
    pub bundle_digest: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub target: TargetOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub given: GivenOptions,

    /// Where local OpenTofu state lives [default: as that of the verb]
    #[arg(long, env = "DCCTL_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub tools: ToolOptions,

    /// For a destroy that goes on although the OpenTofu state is lost
    #[arg(long, env = "DCCTL_ABANDON_INFRASTRUCTURE")]
    pub abandon_infrastructure: bool,

    /// For an install that puts an older release in the place of a newer one
    #[arg(long, env = "DCCTL_ALLOW_DOWNGRADE")]
    pub allow_downgrade: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub busy: BusyOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub stop: StopOptions,

    /// The run's own directory [default: a new one under the user's state folder]
    #[arg(long, env = "DCCTL_RUN_DIR", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

    /// What standard output carries
    // Without a variable, as that of `lock status`.
    #[arg(long, value_enum, value_name = "FORM", default_value = "human")]
    pub output: StatusOutput,
}

/// A verb that can be looked ahead for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PreflightVerb {
    /// Prepare a cluster once
    Install,
    /// Build an instance
    Bootstrap,
    /// Move a live instance to the bundle's release
    Upgrade,
    /// Remove an instance
    Destroy,
    /// Run any command under the lock
    Exec,
}
