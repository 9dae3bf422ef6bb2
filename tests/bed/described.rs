//! The one line with which `bed serve` tells everything about the control plane it started.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::bed::http::Api;
use crate::bed::users::User;

/// A running control plane, as its users need to know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Described {
    /// `https://127.0.0.1:PORT`.
    pub(crate) server: String,
    /// The port alone.
    pub(crate) port: u16,
    /// The users by name: `admin`, `ops`, `nobody`, and those of the bed itself.
    pub(crate) users: BTreeMap<String, User>,
    /// The process ids by program: `etcd`, `kube-apiserver`, …
    pub(crate) pids: BTreeMap<String, u32>,
    /// Where all of it lives; removed at the end.
    pub(crate) folder: PathBuf,
    /// The API server's certificate and its authority.
    pub(crate) certificates: PathBuf,
    /// The key of that certificate, for the fault proxy.
    pub(crate) certificate_key: PathBuf,
    /// One JSON line for every request, those on Leases with their bodies.
    pub(crate) audit_log: PathBuf,
    /// `tofu`, `helm` and `kubectl`, to be put on PATH.
    pub(crate) programs: PathBuf,
    /// OpenTofu's settings: providers from a folder, never from the network.
    pub(crate) tofurc: PathBuf,
    /// How long the start took, in milliseconds.
    pub(crate) start_ms: u64,
}

impl Described {
    /// The API server as this user sees it.
    pub(crate) fn api(&self, user: &str) -> io::Result<Api> {
        Api::new(self.port, &self.certificates, &self.user(user).token)
    }

    /// What is known of a user.
    pub(crate) fn user(&self, name: &str) -> &User {
        self.users.get(name).unwrap_or_else(|| panic!("the bed has no user {name}"))
    }
}
