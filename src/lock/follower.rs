//! Follows the Lease and says what is new: reads, watches, and reads again when a watch cannot be trusted.
//!
//! No decision is made here; they are in [`protocol::follow`](crate::lock::protocol::follow). Everything that is under way
//! is kept in the follower, so that waiting for the next sight can be given up at any point and nothing is lost.

use std::pin::Pin;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::{Sleep, sleep};

use crate::lock::lease_watch::Changes;
use crate::lock::protocol::follow::{Follow, Heard, Next, NotWatched, Sight};
use crate::lock::record::Record;
use crate::lock::store::{LeaseStore, Trouble};
use crate::lock::substrate::Store;
use crate::lock::timing::Timing;

/// After so many renewals that did not come the connection may be dead.
const MISSED_RENEWALS: u32 = 3;

type Pending<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One who follows the lock.
pub struct Follower {
    store: Store,
    machine: Follow,
    doing: Doing,
    patience: Duration,
}

enum Doing {
    Reading(Pending<Result<Option<Record>, Trouble>>),
    Opening(Pending<Result<Changes, NotWatched>>),
    /// Until the sleep is over without a word.
    Listening(Changes, Pin<Box<Sleep>>),
    Resting(Pin<Box<Sleep>>),
    Ended,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Follower {
    /// Begins to follow.
    pub fn new(store: Store, timing: Timing) -> Follower {
        let (machine, _) = Follow::begin(timing);
        let doing = reading(&store);
        Follower { store, machine, doing, patience: timing.renew_every() * MISSED_RENEWALS }
    }

    /// Waits for the next thing to be seen; the first is what is there now. Safe to drop at any point. After
    /// [`Sight::Refused`] it waits for ever.
    pub async fn next(&mut self) -> Sight {
        loop {
            let (heard, opened) = self.doing.next().await;
            let (sight, next) = self.machine.heard(heard);
            let patience = self.patience;
            match next {
                Next::Read => self.doing = reading(&self.store),
                Next::Watch(from) => {
                    let store = self.store.clone();
                    self.doing = Doing::Opening(Box::pin(async move { store.watch(from.as_deref()).await }));
                }
                Next::Listen => match (&mut self.doing, opened) {
                    (_, Some(changes)) => self.doing = Doing::Listening(changes, Box::pin(sleep(patience))),
                    (Doing::Listening(_, silence), None) => *silence = Box::pin(sleep(patience)),
                    (_, None) => unreachable!("only an open watch is listened to"),
                },
                Next::Rest(pause) => self.doing = Doing::Resting(Box::pin(sleep(pause))),
                Next::End => self.doing = Doing::Ended,
            }
            if let Some(sight) = sight {
                return sight;
            }
        }
    }
}

fn reading(store: &Store) -> Doing {
    let store = store.clone();
    Doing::Reading(Box::pin(async move { store.read().await }))
}

impl Doing {
    /// What is heard next, and the watch that was opened, if one was.
    async fn next(&mut self) -> (Heard, Option<Changes>) {
        match self {
            Doing::Reading(read) => (Heard::Read(read.await), None),
            Doing::Opening(opening) => match opening.await {
                Ok(changes) => (Heard::Opened(Ok(())), Some(changes)),
                Err(why) => (Heard::Opened(Err(why)), None),
            },
            Doing::Listening(changes, silence) => {
                let heard = tokio::select! {
                    biased;
                    change = changes.next() => change.map_or(Heard::Ended(NotWatched::Closed), heard),
                    () = silence => Heard::Silence,
                };
                (heard, None)
            }
            Doing::Resting(rest) => {
                rest.await;
                (Heard::Rested, None)
            }
            Doing::Ended => std::future::pending().await,
        }
    }
}

fn heard(change: Result<Option<Record>, NotWatched>) -> Heard {
    match change {
        Ok(record) => Heard::Changed(record),
        Err(why) => Heard::Ended(why),
    }
}
