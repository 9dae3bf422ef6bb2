//! The history of a Helm release, and what to do about one that a dead run left half done. Pure, but for the look at
//! this machine's run directories.
//!
//! Helm has no lease: it refuses a release that is `pending-*`, whoever left it so, and a repair beside a live Helm
//! leaves two deployed revisions. The cluster's lock keeps other runs of dcctl away; whether a Helm that a dead run
//! started still lives, only the machine it ran on can tell. Elsewhere, time does: a Helm waits no longer than its
//! timeout, and a stop no longer than its budget.
//!
//! A Helm that was seen to end wrote nothing after that. A record that is younger than its end is somebody else's doing,
//! whatever mark it bears.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster::release::Recorded as Record;
use crate::process::{self, Recorded};
use crate::step::invoke::{ABOUT, RECORDS, about_path};

/// How much younger than the end of its Helm a record may be: the API server writes down whole seconds, both clocks are
/// compared by an answer that took its time, and a request of a Helm that was killed may still be at work.
const TOLERANCE: SignedDuration = SignedDuration::from_secs(5);

/// One revision, as `helm history -o json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(clippy::struct_field_names, reason = "the words are Helm's")]
pub(crate) struct Revision {
    /// From 1.
    pub(crate) revision: u64,
    /// When its record was last written.
    #[serde(default)]
    pub(crate) updated: Option<Timestamp>,
    /// `deployed`, `failed`, `pending-upgrade`…
    pub(crate) status: String,
    /// What Helm says about it.
    #[serde(default)]
    pub(crate) description: String,
    /// Which of dcctl's own Helms made it. A Helm of somebody else hands the mark of the revision before on.
    #[serde(skip)]
    pub(crate) mark: Option<String>,
}

impl From<Record> for Revision {
    fn from(record: Record) -> Revision {
        let Record { revision, status, written, mark } = record;
        Revision { revision, updated: written, status, description: String::new(), mark }
    }
}

impl Revision {
    /// Whether it was left in the middle of something.
    pub(crate) fn is_half_done(&self) -> bool {
        self.status.starts_with("pending-") || self.status == "uninstalling"
    }
}

/// What has to be done before a chart can be installed or upgraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Nothing.
    None,
    /// Delete the record of this revision. What it had made stays and is adopted; an uninstall would take the
    /// chart's volumes along.
    Forget(u64),
    /// Roll back to this revision.
    RollBack(u64),
    /// Finish the uninstall.
    Uninstall,
    /// Nothing yet: another Helm may be at work.
    Wait {
        /// In words, why.
        why: String,
        /// From when on it cannot be, if that is known.
        until: Option<Timestamp>,
    },
}

/// Decides the repair. `patience` is the chart's timeout and the stop budget together.
pub(crate) fn decide(history: &[Revision], proof: &Proof, now: Timestamp, patience: Duration) -> Repair {
    let Some(last) = history.last().filter(|last| last.is_half_done()) else { return Repair::None };
    let free_from = last.updated.and_then(|updated| updated.checked_add(patience).ok());
    match proof {
        Proof::Ended => {}
        Proof::Lives { name, pid } => {
            let why = format!("`{name}` of an earlier run is still at work on it (process {pid})");
            return Repair::Wait { why, until: None };
        }
        Proof::None if free_from.is_some_and(|from| now >= from) => {}
        Proof::None => {
            let why = "no run of this machine shows that the Helm which left it has ended".to_owned();
            return Repair::Wait { why, until: free_from };
        }
    }
    let deployed = history.iter().rev().find(|revision| revision.status == "deployed").map(|found| found.revision);
    match (last.status.as_str(), deployed) {
        ("uninstalling", _) => Repair::Uninstall,
        ("pending-upgrade" | "pending-rollback", Some(deployed)) => Repair::RollBack(deployed),
        (_, _) => Repair::Forget(last.revision),
    }
}

/// What a Helm process was started for. It is written beside the process's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// The API server.
    pub(crate) server: String,
    /// Where the release's record lives.
    pub(crate) namespace: String,
    /// The release.
    pub(crate) release: String,
    /// The last revision before.
    pub(crate) before: u64,
    /// What it does to it.
    pub(crate) act: Act,
    /// What it writes on the revision that it makes; none where Helm can write nothing.
    #[serde(default)]
    pub(crate) mark: Option<String>,
}

/// What a Helm process does to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// It makes the next revision.
    Advance,
    /// It takes the release away.
    Uninstall,
}

impl About {
    /// Whether it left this revision as it is: an uninstall works on the last one, all else makes the next.
    ///
    /// The number alone proves nothing: a Helm that ended before it began a revision leaves that number to whoever comes
    /// next. So an upgrade marks what it makes. A rollback cannot, and nothing else makes a `pending-rollback`; one that
    /// was seen to end without it is forgotten.
    fn left(&self, wanted: &About, left: &Revision) -> bool {
        let same =
            (&self.server, &self.namespace, &self.release) == (&wanted.server, &wanted.namespace, &wanted.release);
        let at = match self.act {
            Act::Advance => self.before + 1,
            Act::Uninstall => self.before,
        };
        let as_it_would = match (self.act, &self.mark) {
            (Act::Uninstall, _) => left.status == "uninstalling",
            (Act::Advance, None) => left.status == "pending-rollback",
            (Act::Advance, Some(mark)) => left.status != "uninstalling" && left.mark.as_ref() == Some(mark),
        };
        same && at == left.revision && as_it_would
    }
}

/// What this machine knows about the Helm that left a release half done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It has ended.
    Ended,
    /// It lives.
    Lives {
        /// What it was called.
        name: String,
        /// Its process.
        pid: u32,
    },
    /// Nothing.
    None,
}

/// Looks through the run directories beside this run's for the Helm that left this revision. `ahead` is how far the API
/// server's clock is ahead of this machine's.
pub(crate) fn look_for_proof(run_dir: &Path, wanted: &About, left: &Revision, ahead: SignedDuration) -> Proof {
    let mut proof = Proof::None;
    let runs = run_dir.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    // What somebody else can have written proves nothing.
    let records = runs.filter_map(|run| Some(process::own_folder_behind(&run.path())?.join(RECORDS)));
    for records in records.filter_map(|records| process::own_folder_behind(&records)) {
        let records = fs::read_dir(records).into_iter().flatten().flatten();
        for entry in records {
            let path = entry.path();
            let Some(base) = path.to_str().and_then(|path| path.strip_suffix(ABOUT)) else { continue };
            let about = process::read_own(&about_path(Path::new(base))).ok();
            let about = about.and_then(|text| serde_json::from_slice::<About>(&text).ok());
            if !about.is_some_and(|about| about.left(wanted, left)) {
                continue;
            }
            match seen(Path::new(base)) {
                Proof::Ended if is_younger(left, Path::new(base), ahead) => {}
                Proof::Ended => proof = Proof::Ended,
                Proof::None => return Proof::None,
                lives @ Proof::Lives { .. } => return lives,
            }
        }
    }
    proof
}

/// Whether this revision was written after the Helm of this record had been seen to end. Where nobody saw its end, nothing
/// tells.
fn is_younger(left: &Revision, record: &Path, ahead: SignedDuration) -> bool {
    let ended = process::seen_to_end(record).and_then(|time| Timestamp::try_from(time).ok());
    let latest = ended.and_then(|ended| ended.checked_add(ahead.saturating_add(TOLERANCE)).ok());
    latest.zip(left.updated).is_some_and(|(latest, updated)| updated > latest)
}

/// What one record tells. One that was never made, or cannot be read, tells nothing.
pub(crate) fn seen(record: &Path) -> Proof {
    match Recorded::read(record) {
        Ok(Some((_, crate::process::Intent::Ended))) => Proof::Ended,
        Ok(Some((recorded, _))) if recorded.is_over() => Proof::Ended,
        Ok(Some((recorded, _))) if recorded.is_here() => Proof::Lives { name: recorded.name, pid: recorded.pid },
        Ok(_) | Err(_) => Proof::None,
    }
}

#[cfg(test)]
#[path = "helm_release_tests.rs"]
mod tests;
