//! The options of `dcctl instances`: what looks after instances and their lock, without a bundle.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::options::{StatusOutput, SubstrateOptions, TargetOptions};

/// `dcctl instances …`
#[derive(Debug, Subcommand)]
pub enum InstancesCommand {
    /// Take the lock of a run that is gone, after a check, and give it back; for a person at a terminal
    Reclaim(ReclaimArgs),
    /// List the instances of the cluster: phase, release, claims, and whether its state is where this machine keeps states
    List(InstancesListArgs),
    /// Let the declaration of an instance go, and destroy nothing
    Release(ReleaseArgs),
}

/// `dcctl instances list`
#[derive(Debug, Args)]
pub struct InstancesListArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub target: TargetOptions,

    /// What standard output carries
    // Without a variable, as that of `lock status`.
    #[arg(long, value_enum, value_name = "FORM", default_value = "human")]
    pub output: StatusOutput,
}

/// `dcctl instances release`
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The instance's name
    pub instance: String,

    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's own account]
    #[arg(long, env = "DCCTL_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context in it
    #[arg(long, env = "DCCTL_KUBE_CONTEXT", value_name = "NAME")]
    pub kube_context: Option<String>,

    /// Do not ask for the name to be typed
    // Without a variable: it is said anew for each instance.
    #[arg(long)]
    pub yes: bool,
}

/// `dcctl instances reclaim`
///
/// It has neither `--yes` nor `--output`: it speaks with a person, on the controlling terminal alone.
#[derive(Debug, Args)]
pub struct ReclaimArgs {
    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's own account]
    #[arg(long, env = "DCCTL_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context in it; a lock is never taken from a cluster that was not named (required, unless the lock is in a folder)
    #[arg(long, env = "DCCTL_KUBE_CONTEXT", value_name = "NAME")]
    pub kube_context: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub substrate: SubstrateOptions,
}
