//! Who may log in to a control plane of the bed, and the kubeconfig of each.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::bed::keys::random_word;

/// Gives `ops` exactly the rights that `dcctl rbac --install` prints.
pub(crate) const RBAC_OPS: &str = concat!(
    include_str!("../../src/commands/rbac/lock.yaml"),
    include_str!("../../src/commands/rbac/besides.yaml"),
    include_str!("../../src/commands/rbac/install.yaml"),
    "\n---\n",
    include_str!("rbac-ops.yaml")
);

/// The users and whether they may do everything. `bed` is the tests' own hand and `bed-…` are the parts of the
/// control plane, so that the audit log tells all of them from the run under test.
const USERS: [(&str, Power); 7] = [
    ("admin", Power::Everything),
    ("ops", Power::AsGranted),
    ("nobody", Power::AsGranted),
    ("bed", Power::Everything),
    ("bed-controller-manager", Power::Everything),
    ("bed-scheduler", Power::Everything),
    ("bed-kwok", Power::Everything),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    Everything,
    AsGranted,
}

/// One user as others need to know it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct User {
    /// The bearer token.
    pub(crate) token: String,
    /// A kubeconfig with context `bed` (current), and context `nowhere`, a cluster that cannot be reached.
    pub(crate) kubeconfig: PathBuf,
}

/// Makes the users and the API server's list of them, `FOLDER/tokens.csv`. Their kubeconfigs come later, when the
/// API server's certificate is known.
pub(crate) fn write_tokens(folder: &Path) -> io::Result<BTreeMap<String, User>> {
    let mut lines = Vec::new();
    let mut users = BTreeMap::new();
    for (name, power) in USERS {
        let token = random_word();
        let groups = if power == Power::Everything { ",\"system:masters\"" } else { "" };
        lines.push(format!("{token},{name},{name}{groups}\n"));
        users.insert(name.to_owned(), User { token, kubeconfig: folder.join(format!("{name}.kubeconfig")) });
    }
    fs::write(folder.join("tokens.csv"), lines.concat())?;
    Ok(users)
}

/// Writes the kubeconfigs of all users for a server on this port of 127.0.0.1.
pub(crate) fn write_kubeconfigs(users: &BTreeMap<String, User>, port: u16, certificates: &Path) -> io::Result<()> {
    let authority = fs::read(certificates)?;
    users.iter().try_for_each(|(name, user)| fs::write(&user.kubeconfig, kubeconfig(name, user, port, &authority)))
}

/// One user's kubeconfig for a server on this port of 127.0.0.1.
pub(crate) fn kubeconfig(name: &str, user: &User, port: u16, authority: &[u8]) -> String {
    let (token, authority) = (&user.token, STANDARD.encode(authority));
    // Nobody listens on port 1 of this machine, so `nowhere` refuses at once.
    format!(
        "apiVersion: v1
kind: Config
current-context: bed
contexts:
- name: bed
  context: {{ cluster: bed, user: {name} }}
- name: nowhere
  context: {{ cluster: nowhere, user: {name} }}
users:
- name: {name}
  user: {{ token: {token} }}
clusters:
- name: nowhere
  cluster: {{ server: \"https://127.0.0.1:1\" }}
- name: bed
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority-data: {authority}
"
    )
}
