//! The ledger of the bed's own provider: what was done to which thing, one line an act.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One act.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Entry {
    /// `created` (when a creation begins), `updated`, `deleted` (when a destruction has ended), `read`, or
    /// `spawned` (a child that is left behind).
    pub(crate) act: String,
    /// The thing's own id, new with every creation.
    pub(crate) id: String,
    /// What its configuration calls it.
    pub(crate) name: String,
    /// When, RFC 3339, UTC.
    pub(crate) time: String,
    /// The provider process; of `spawned`, the child.
    pub(crate) pid: u32,
}

/// A ledger file; empty while there is none.
#[derive(Debug, Clone)]
pub(crate) struct Ledger(PathBuf);

impl Ledger {
    /// The ledger in this file.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Ledger {
        Ledger(path.into())
    }

    /// Where it is, for the provider's setting `ledger`.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Every act, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("the provider writes whole lines")).collect()
    }

    /// How often a thing of this name was created.
    pub(crate) fn created(&self, name: &str) -> usize {
        self.entries().iter().filter(|entry| entry.act == "created" && entry.name == name).count()
    }

    /// The ids of the things of this name that exist now. More than one is a duplicate: something was created again
    /// because its first creation was lost from the state.
    pub(crate) fn living(&self, name: &str) -> Vec<String> {
        let entries = self.entries();
        let deleted = |id: &str| entries.iter().any(|entry| entry.act == "deleted" && entry.id == id);
        let created = entries.iter().filter(|entry| entry.act == "created" && entry.name == name);
        created.filter(|entry| !deleted(&entry.id)).map(|entry| entry.id.clone()).collect()
    }
}
