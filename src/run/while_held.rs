//! What the lock has to do with writing: a run writes to its cluster while it holds the lock, or after it was told to go
//! on without it, and at no other time.
//!
//! The lock does not know the cluster, nor the cluster the lock; this is where the one answers the other. The answer is
//! the keeper's own knowledge at the moment of the question, whatever the run has heard of it by then.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use crate::cluster::Permission;
use crate::failure::{Code, Failure};
use crate::lock::{Right, message};

/// Permission to write while the lock is held, or once the run was told to do without it. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct WhileHeld {
    right: Arc<OnceLock<Right>>,
    without: Arc<OnceLock<()>>,
}

impl WhileHeld {
    /// The lock is being claimed: from here on its right decides.
    ///
    /// # Panics
    /// When it is called a second time: a run claims once.
    pub(crate) fn follow(&self, right: Right) {
        self.right.set(right).expect("a run claims its lock once");
    }

    /// The lock was not got, and the run goes on all the same, as its caller allowed.
    pub(crate) fn go_without(&self) {
        // A run is told so at most once; a second time changes nothing.
        let _ = self.without.set(());
    }
}

impl Permission for WhileHeld {
    fn now(&self) -> Result<(), Failure> {
        match (self.without.get(), self.right.get()) {
            (Some(()), _) => Ok(()),
            (None, Some(right)) => right.now().map_err(|lost| message::may_not_write(&lost)),
            (None, None) => {
                Err(Failure::new(Code::Internal, "this run has not claimed the lock, so it writes nothing"))
            }
        }
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            match (self.without.get(), self.right.get()) {
                (None, Some(right)) => right.changed().await,
                (Some(()), _) | (None, None) => std::future::pending().await,
            }
        })
    }
}
