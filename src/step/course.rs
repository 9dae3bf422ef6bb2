//! What the steps of an upgrade tell those after them: which plan was saved, and whether anything was changed. Clones share
//! it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The course of one upgrade so far.
#[derive(Debug, Clone, Default)]
pub struct Course {
    so_far: Arc<Mutex<SoFar>>,
}

#[derive(Debug, Default)]
struct SoFar {
    plan: Planned,
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

    /// Something of the instance was changed, or was about to be.
    pub(in crate::step) fn change(&self) {
        self.with(|so_far| so_far.has_changed = true);
    }

    /// Whether the instance is as it was found: ready, of this release, and nothing of it was changed.
    pub(in crate::step) fn is_as_it_was(&self) -> bool {
        self.with(|so_far| so_far.is_settled && !so_far.has_changed)
    }
}
