//! Which lock a command line means: that of a cluster, or one in a folder.
//!
//! The two have no option in common, so whoever names both has made a mistake, and which of them was meant is not guessed.
//! Such a mistake is `config.option`, exit code 3: each option can be read, and the combination cannot be used.

use std::path::PathBuf;

use crate::cli::{Substrate, SubstrateOptions, TargetOptions};
use crate::cluster::{Cluster, MayWrite};
use crate::commands::Desk;
use crate::commands::apply::{absolute, find_kubeconfig, proxies};
use crate::failure::{Code, Failure};
use crate::lock::direct::Intent;
use crate::lock::{LockFolder, Place, Store, Timing};
use crate::run;

/// What keeps the lock that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meant {
    /// The cluster that the other options name.
    Kubernetes,
    /// This folder, absolute.
    Direct(PathBuf),
}

/// Which it is.
///
/// # Errors
/// When the options do not go together.
pub(crate) fn meant(substrate: &SubstrateOptions, target: &TargetOptions) -> Result<Meant, Failure> {
    let wrong = |message: &str| Failure::new(Code::OptionInvalid, message);
    match (substrate.substrate, &substrate.lock_dir) {
        (Substrate::Kubernetes, None) => Ok(Meant::Kubernetes),
        (Substrate::Kubernetes, Some(_)) => Err(wrong(
            "--lock-dir (or DCCTL_LOCK_DIR) names a lock folder, and the substrate is `kubernetes`, whose lock is \
                       in the cluster",
        )
        .hint("For the lock in the folder add `--substrate direct`; for that of the cluster leave --lock-dir out.")),
        (Substrate::Direct, None) => Err(wrong("the substrate `direct` needs the folder that keeps the lock")
            .hint("Name it with --lock-dir DIR (or DCCTL_LOCK_DIR).")),
        (Substrate::Direct, Some(_)) if target.kube_context.is_some() || target.kubeconfig.is_some() => {
            let option = if target.kube_context.is_some() {
                "--kube-context (or DCCTL_KUBE_CONTEXT)"
            } else {
                "--kubeconfig (or DCCTL_KUBECONFIG)"
            };
            Err(wrong(&format!("{option} names a cluster, and the substrate `direct` has nothing to do with any"))
                .hint(
                    "For the lock in the folder leave it out; for that of the cluster leave out `--substrate direct`.",
                ))
        }
        (Substrate::Direct, Some(folder)) => {
            let folder = absolute("--lock-dir", folder)?;
            // One folder has one name, whatever stands behind it.
            Ok(Meant::Direct(folder.components().collect()))
        }
    }
}

/// Refuses everything but a cluster, for a verb that changes one.
///
/// # Errors
/// When a folder is named.
pub(crate) fn only_kubernetes(verb: &str, substrate: &SubstrateOptions) -> Result<(), Failure> {
    if substrate.substrate == Substrate::Kubernetes && substrate.lock_dir.is_none() {
        return Ok(());
    }
    let message = format!(
        "`dcctl {verb}` changes a cluster, and the lock of a cluster is in its API server: it takes no lock from a folder \
         (--substrate direct, --lock-dir, or DCCTL_SUBSTRATE, DCCTL_LOCK_DIR)"
    );
    Err(Failure::new(Code::OptionInvalid, message)
        .hint("Leave them out; `exec`, `lock status` and `instances reclaim` know a lock in a folder."))
}

/// A lock that was reached, for a command that only looks, or takes it away.
pub(crate) struct Reached {
    /// What keeps it.
    pub(crate) store: Store,
    /// Where that is.
    pub(crate) place: Place,
    /// The cluster, if it has one.
    pub(crate) cluster: Option<Cluster>,
}

/// Reaches the lock that is meant.
///
/// # Errors
/// Why it cannot be.
pub(crate) async fn reach(
    desk: &Desk,
    meant: Meant,
    target: &TargetOptions,
    intent: Intent,
) -> Result<Reached, Failure> {
    match meant {
        Meant::Kubernetes => {
            let kubeconfig = find_kubeconfig(desk, target)?;
            let cluster = Cluster::connect(&kubeconfig, &proxies(desk), MayWrite::never()).await?;
            Ok(Reached {
                store: run::lease_store(&cluster),
                place: Place::Cluster(kubeconfig.context().to_owned()),
                cluster: Some(cluster),
            })
        }
        Meant::Direct(path) => {
            let folder = LockFolder::new(path.clone(), Timing::STANDARD);
            folder.check(intent).await?;
            Ok(Reached { store: Store::Direct(folder), place: Place::Folder(path), cluster: None })
        }
    }
}
