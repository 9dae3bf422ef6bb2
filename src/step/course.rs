//! What the steps of an upgrade or a destroy tell those after them: which plan was saved, which copy of a root is ready, and
//! whether anything was changed. Clones share it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::wait::Named;
use crate::step::tofu_state::Lineage;

/// The course of one run so far.
#[derive(Debug, Clone, Default)]
pub struct Course {
    so_far: Arc<Mutex<SoFar>>,
}

#[derive(Debug, Default)]
struct SoFar {
    plan: Planned,
    root: Option<PathBuf>,
    begun: Option<Lineage>,
    named: Option<Vec<Named>>,
    is_settled: bool,
    has_changed: bool,
}

/// What was planned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::step) enum Planned {
    /// Nothing was planned: there is no root, or this run only says what it would do.
    #[default]
    Not,
    /// There is nothing to change.
    NoChanges,
    /// This is to be applied, and nothing else.
    Changes {
        /// The root's copy, initialised.
        root: PathBuf,
        /// The saved plan.
        file: PathBuf,
    },
}

impl Course {
    fn with<T>(&self, act: impl FnOnce(&mut SoFar) -> T) -> T {
        act(&mut self.so_far.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the copy of a root that is initialised.
    pub(in crate::step) fn keep_root(&self, cwd: PathBuf) {
        self.with(|so_far| so_far.root = Some(cwd));
    }

    /// The copy of a root that an earlier step initialised, for the one step that needs it.
    pub(in crate::step) fn take_root(&self) -> Option<PathBuf> {
        self.with(|so_far| so_far.root.take())
    }

    /// Keeps which state in a backend this run has begun.
    pub(in crate::step) fn keep_begun(&self, state: Lineage) {
        self.with(|so_far| so_far.begun = Some(state));
    }

    /// The state in a backend that this run has begun.
    pub(in crate::step) fn begun(&self) -> Option<Lineage> {
        self.with(|so_far| so_far.begun.clone())
    }

    /// Keeps what the release's manifest names.
    pub(in crate::step) fn keep_named(&self, named: Vec<Named>) {
        self.with(|so_far| so_far.named = Some(named));
    }

    /// The workloads that the release's manifest names; none when it was not read.
    pub(in crate::step) fn take_named(&self) -> Option<Vec<Named>> {
        self.with(|so_far| so_far.named.take())
    }

    /// Keeps what was planned.
    pub(in crate::step) fn keep(&self, plan: Planned) {
        self.with(|so_far| so_far.plan = plan);
    }

    /// What was planned.
    pub(in crate::step) fn planned(&self) -> Planned {
        self.with(|so_far| so_far.plan.clone())
    }

    /// The instance was found ready, and of this release.
    pub(in crate::step) fn settle(&self) {
        self.with(|so_far| so_far.is_settled = true);
    }

    /// Something of the instance was changed, or was about to be; in a dry run, would be.
    pub(in crate::step) fn change(&self) {
        self.with(|so_far| so_far.has_changed = true);
    }

    /// Whether anything of the instance was changed; in a dry run, would be.
    pub(in crate::step) fn has_changed(&self) -> bool {
        self.with(|so_far| so_far.has_changed)
    }

    /// Whether the instance is as it was found: ready, of this release, and nothing of it was changed.
    pub(in crate::step) fn is_as_it_was(&self) -> bool {
        self.with(|so_far| so_far.is_settled && !so_far.has_changed)
    }
}
