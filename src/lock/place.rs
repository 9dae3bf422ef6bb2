//! Where a lock is kept, as a person names it: what they are told to look at, and what they are told to type.
//!
//! Nobody decides anything by it: it chooses words. What a message says of a lock has to be right for every place that it
//! can be kept in.

use std::path::{Path, PathBuf};

use crate::failure::shell_word;
use crate::lock::message::plain;
use crate::lock::record::{LEASE_FILE, NAME, NAMESPACE};

/// Where a lock is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the API server of the cluster that a kubeconfig has under this name.
    Cluster(String),
    /// In this folder.
    Folder(PathBuf),
}

impl Place {
    /// The options that lead a command there.
    pub fn options(&self) -> String {
        match self {
            Place::Cluster(context) => format!("--kube-context {}", shell_word(context)),
            Place::Folder(folder) => format!("--substrate direct --lock-dir {}", shell_word(&folder.to_string_lossy())),
        }
    }

    /// The command that shows the lock.
    pub fn status_command(&self) -> String {
        format!("dcctl lock status {}", self.options())
    }

    /// The command that takes a lock whose run is gone.
    pub fn reclaim_command(&self) -> String {
        format!("dcctl instances reclaim {}", self.options())
    }

    /// The command that takes the Lease away by hand, whoever holds it.
    pub(crate) fn removal_command(&self) -> String {
        match self {
            Place::Cluster(context) => {
                format!("kubectl --context {} --namespace {NAMESPACE} delete lease {NAME}", shell_word(context))
            }
            Place::Folder(folder) => format!("rm {}", shell_word(&folder.join(LEASE_FILE).to_string_lossy())),
        }
    }

    /// The Lease, in a sentence that may begin with "the".
    pub fn lease(&self) -> String {
        match self {
            Place::Cluster(_) => format!("Lease {NAME} in {NAMESPACE}"),
            Place::Folder(folder) => format!("Lease {LEASE_FILE} in {}", shown(folder)),
        }
    }

    /// The Lease as a path.
    pub fn lease_path(&self) -> String {
        match self {
            Place::Cluster(_) => format!("{NAMESPACE}/{NAME}"),
            Place::Folder(folder) => shown(&folder.join(LEASE_FILE)),
        }
    }

    /// The lock with its Lease, in a sentence.
    pub(crate) fn lock(&self) -> String {
        let of = match self {
            Place::Cluster(_) => "cluster",
            Place::Folder(_) => "folder",
        };
        format!("the lock of this {of} ({})", self.lease())
    }

    /// Who answers requests about it.
    pub(crate) fn answerer(&self) -> &'static str {
        match self {
            Place::Cluster(_) => "the API server",
            Place::Folder(_) => "the lock folder",
        }
    }
}

/// A path, whole, without anything that a terminal would act on.
fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.split_inclusive('/').map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reclaim_command_can_be_pasted_into_a_shell() {
        let context = |name: &str| Place::Cluster(name.to_owned()).reclaim_command();
        assert_eq!(
            context("arn:aws:eks:eu-1:7:cluster/x"),
            "dcctl instances reclaim --kube-context arn:aws:eks:eu-1:7:cluster/x"
        );
        assert_eq!(context("it's mine; ok"), r"dcctl instances reclaim --kube-context 'it'\''s mine; ok'");
        assert_eq!(context(""), "dcctl instances reclaim --kube-context ''");
        let folder = |path: &str| Place::Folder(PathBuf::from(path)).reclaim_command();
        assert_eq!(folder("/srv/lock"), "dcctl instances reclaim --substrate direct --lock-dir /srv/lock");
        assert_eq!(folder("/srv/my lock"), "dcctl instances reclaim --substrate direct --lock-dir '/srv/my lock'");
    }

    #[test]
    fn the_lease_is_named_by_where_it_is() {
        let (cluster, folder) = (Place::Cluster("prod".to_owned()), Place::Folder(PathBuf::from("/srv/lock")));
        assert_eq!(cluster.lease(), "Lease dcctl in dc-k8s-system");
        assert_eq!(folder.lease(), "Lease dcctl.lease.json in /srv/lock");
        assert_eq!(
            (cluster.lease_path(), folder.lease_path()),
            ("dc-k8s-system/dcctl".to_owned(), "/srv/lock/dcctl.lease.json".to_owned())
        );
    }
}
