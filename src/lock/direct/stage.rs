//! How far a request has come, known to the thread that does it and to whoever waits for it.
//!
//! Who gives up has to know whether the change may still be made. So both sides agree on one moment: a request that was
//! given up before it never makes its change, and one that has passed it may have made it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Looking,
    InUse,
    Committing,
    GivenUp,
}

/// How far it had come when it was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// It had changed nothing, and never will.
    Looking,
    /// The same, because somebody else had the file lock.
    InUse,
    /// It may have made its change, or may yet.
    Committing,
}

/// The side of who waits. Dropped, the request is given up.
#[derive(Debug)]
pub(super) struct Stage(Arc<Mutex<At>>);

/// The side of the thread that does it.
#[derive(Debug, Clone)]
pub(in crate::lock::direct) struct Commit(Arc<Mutex<At>>);

/// Nobody waits for this request any more, so it may not make its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lock::direct) struct TooLate;

impl Stage {
    pub(super) fn begin() -> Stage {
        Stage(Arc::new(Mutex::new(At::Looking)))
    }

    /// For the thread.
    pub(super) fn commit(&self) -> Commit {
        Commit(self.0.clone())
    }

    /// A try found the file lock taken.
    pub(super) fn in_use(&self) {
        *locked(&self.0) = At::InUse;
    }

    /// Stops waiting, and says how far it had come.
    pub(super) fn give_up(&self) -> Reached {
        let mut at = locked(&self.0);
        let reached = match *at {
            At::Looking | At::GivenUp => Reached::Looking,
            At::InUse => Reached::InUse,
            At::Committing => Reached::Committing,
        };
        *at = At::GivenUp;
        reached
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        *locked(&self.0) = At::GivenUp;
    }
}

impl Commit {
    /// Asked right before the change.
    ///
    /// # Errors
    /// When nobody waits for it any more.
    pub(in crate::lock::direct) fn begin(&self) -> Result<(), TooLate> {
        let mut at = locked(&self.0);
        match *at {
            At::GivenUp => Err(TooLate),
            At::Looking | At::InUse | At::Committing => {
                *at = At::Committing;
                Ok(())
            }
        }
    }
}

/// Nothing is done while it is locked that could panic.
fn locked(at: &Mutex<At>) -> MutexGuard<'_, At> {
    at.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_first_decides_and_both_sides_know_it() {
        let stage = Stage::begin();
        assert_eq!((stage.give_up(), stage.commit().begin()), (Reached::Looking, Err(TooLate)));
        let stage = Stage::begin();
        stage.in_use();
        assert_eq!((stage.give_up(), stage.commit().begin()), (Reached::InUse, Err(TooLate)));
        let stage = Stage::begin();
        assert_eq!((stage.commit().begin(), stage.give_up()), (Ok(()), Reached::Committing));
        let stage = Stage::begin();
        let commit = stage.commit();
        drop(stage);
        assert_eq!(commit.begin(), Err(TooLate));
    }
}
