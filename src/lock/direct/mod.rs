//! The lock in a folder, for what has no Kubernetes: the substrate `direct`.
//!
//! The Lease is one file, written as the API server would give it, and [`LockFolder`] is a [`LeaseStore`] over it. So the
//! protocol, the messages and the codes are those of any other lock; only who decides is another: where the API server
//! compares uid and version, here it is done under `flock`.
//!
//! | file | what it is |
//! |---|---|
//! | `dcctl.lease.json` | the Lease; not there when nobody has claimed it. It only ever comes by `link`, changes by `rename` and goes by a `rename` out of the way, so a reader sees a whole one or none |
//! | `dcctl.lease.tmp` | the next one while it is being written; one that is found was left by a process that was killed |
//! | `dcctl.flock` | what `flock` is about; never renamed nor removed |
//!
//! `flock` is held for the few milliseconds of one change, never for the holding of the lock: a killed holder would give
//! it back without anybody having looked. A process that was stopped in these milliseconds holds up all the others, which
//! then say so.
//!
//! # What a request may do, and when
//! Every request is done on a thread of the blocking pool, one at a time, because a file system may hang. One that was
//! given up before it came to its change never makes it: that is known to have done nothing. One that was given up in the
//! middle of its change has no definite answer, like a request to the API server whose reply was lost.
//!
//! The folder is opened anew by its path each time: the path is the lock's name, and whoever puts another folder there
//! has taken the lock away.

mod file;
mod folder;
mod mount;
mod stage;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::failure::{Code, Failure};
use crate::lock::direct::file::Precondition;
use crate::lock::direct::folder::{Folder, Spot};
use crate::lock::direct::stage::{Commit, Stage};
use crate::lock::lease_watch::Changes;
use crate::lock::protocol::follow::NotWatched;
use crate::lock::record::Record;
use crate::lock::store::{Created, Deleted, LeaseStore, Replaced, Trouble};
use crate::lock::timing::Timing;

pub use crate::lock::direct::mount::Reach;

/// How long to wait before `flock` is asked for again.
const TRY_AGAIN: Duration = Duration::from_millis(4);

/// What somebody wants to do with a lock folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Look at the lock.
    Look,
    /// Claim it, or take it away.
    Change,
}

/// The one lock of a folder. Clones share their turn: of all of them one request is under way at a time.
#[derive(Debug, Clone)]
pub struct LockFolder {
    spot: Arc<Spot>,
    limit: Duration,
    look_every: Duration,
    turn: Arc<Semaphore>,
}

/// What came of one try.
pub(in crate::lock::direct) enum Tried<T> {
    /// It was done, or is known not to be.
    Done(T),
    /// Somebody else changes the Lease just now.
    InUse,
}

impl LockFolder {
    /// The lock in this folder. Nothing is looked at yet.
    pub fn new(path: impl AsRef<Path>, timing: Timing) -> LockFolder {
        LockFolder {
            spot: Arc::new(Spot::new(path.as_ref())),
            limit: timing.request_timeout(),
            look_every: timing.poll_clock_every(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The same lock for another thread, which does not wait for this one's requests.
    #[must_use]
    pub fn apart(&self) -> LockFolder {
        LockFolder { turn: Arc::new(Semaphore::new(1)), ..self.clone() }
    }

    /// Checks that the folder can be used for this, and says how far its locks reach.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do about it.
    pub async fn check(&self, intent: Intent) -> Result<Reach, Failure> {
        let checking = self.request("look at the lock folder", move |spot, _| check(spot, intent).map(Tried::Done));
        checking.await.map_err(Trouble::into_failure)
    }

    /// The same on this thread, for who may wait for a file system that hangs.
    ///
    /// # Errors
    /// As above.
    pub fn check_now(&self, intent: Intent) -> Result<Reach, Failure> {
        check(&self.spot, intent).map_err(Trouble::into_failure)
    }

    /// Tells what the Lease is now, and then each time that it is another, by reading it every second.
    ///
    /// inotify would tell sooner, and would tell nothing of what another machine does in a shared folder: one that waits
    /// would wait for ever. A second is short beside what a run takes, and reading a small file costs next to nothing.
    pub(crate) fn watch(&self) -> Changes {
        let begin = (self.clone(), Known::Nothing);
        Box::pin(stream::unfold(begin, async |(folder, known)| {
            if let Known::Ended = known {
                return None;
            }
            let first = matches!(known, Known::Nothing);
            let mut pause = if first { Duration::ZERO } else { folder.look_every };
            loop {
                sleep(pause).await;
                pause = folder.look_every;
                match folder.read().await {
                    Err(trouble) => return Some((Err(NotWatched::Trouble(trouble)), (folder, Known::Ended))),
                    Ok(now) if known.is(now.as_ref()) => {}
                    Ok(now) => return Some((Ok(now.clone()), (folder, Known::Lease(now)))),
                }
            }
        }))
    }

    /// Does one request, within its time. Trying goes on while somebody else has the file lock.
    async fn request<T, A>(&self, what: &'static str, act: A) -> Result<T, Trouble>
    where
        T: Send + 'static,
        A: Fn(&Spot, &Commit) -> Result<Tried<T>, Trouble> + Send + Sync + 'static,
    {
        let (act, stage) = (Arc::new(act), Stage::begin());
        let tries = async {
            let mut turn = self.turn.clone().acquire_owned().await.expect("it is never closed");
            loop {
                let (answer, returned) = self.attempt(turn, act.clone(), stage.commit()).await?;
                match answer? {
                    Tried::Done(done) => return Ok(done),
                    Tried::InUse => turn = returned,
                }
                stage.in_use();
                sleep(TRY_AGAIN).await;
            }
        };
        match timeout(self.limit, tries).await {
            Ok(answer) => answer,
            Err(_) => Err(self.out_of_time(what, stage.give_up())),
        }
    }

    /// One try, on a thread that may hang. The turn is given back by that thread, however long it takes.
    async fn attempt<T, A>(
        &self,
        turn: OwnedSemaphorePermit,
        act: Arc<A>,
        commit: Commit,
    ) -> Result<(Result<Tried<T>, Trouble>, OwnedSemaphorePermit), Trouble>
    where
        T: Send + 'static,
        A: Fn(&Spot, &Commit) -> Result<Tried<T>, Trouble> + Send + Sync + 'static,
    {
        let spot = self.spot.clone();
        let tried = tokio::task::spawn_blocking(move || (act(&spot, &commit), turn));
        tried.await.map_err(|error| {
            Trouble::Unclear(Failure::new(Code::Internal, "a request about the lock broke off").because(&error))
        })
    }

    fn out_of_time(&self, what: &str, reached: stage::Reached) -> Trouble {
        let limit = clock::human(self.limit);
        let said = |why: String| {
            let message = format!("could not {what}: {why}");
            Failure::new(Code::LockDirUnanswered, message)
        };
        match reached {
            stage::Reached::InUse => Trouble::Unsent(said(format!(
                "another process has had the file lock on {} for {limit}",
                self.spot.path().join(folder::FLOCK).display()
            ))),
            stage::Reached::Looking => {
                Trouble::Unsent(said(format!("the file system of {} does not answer", self.spot.path().display())))
            }
            stage::Reached::Committing => Trouble::Unclear(said(format!(
                "the file system of {} did not finish the change within {limit}",
                self.spot.path().display()
            ))),
        }
    }
}

/// What a watch has told.
enum Known {
    Nothing,
    Lease(Option<Record>),
    Ended,
}

impl Known {
    fn is(&self, now: Option<&Record>) -> bool {
        match self {
            Known::Lease(known) => known.as_ref() == now,
            Known::Nothing | Known::Ended => false,
        }
    }
}

fn check(spot: &Spot, intent: Intent) -> Result<Reach, Trouble> {
    let folder = Folder::open(spot)?;
    let reach = folder.reach()?;
    match intent {
        Intent::Look => {}
        Intent::Change => folder.check_writable()?,
    }
    Ok(reach)
}

impl LeaseStore for LockFolder {
    async fn create(&self, draft: &Value) -> Result<Created, Trouble> {
        let draft = draft.clone();
        self.request("claim the lock", move |spot, commit| {
            Folder::open(spot)?.under_flock(|folder| file::create(folder, &draft, commit))
        })
        .await
    }

    /// There is none, and nobody is told that one is missing.
    async fn create_namespace(&self) -> Result<(), Trouble> {
        Ok(())
    }

    async fn read(&self) -> Result<Option<Record>, Trouble> {
        self.request("read the lock", |spot, _| file::read(&Folder::open(spot)?).map(Tried::Done)).await
    }

    async fn replace(&self, record: &Record) -> Result<Replaced, Trouble> {
        let record = record.clone();
        self.request("renew the lock", move |spot, commit| {
            Folder::open(spot)?.under_flock(|folder| file::replace(folder, &record, commit))
        })
        .await
    }

    async fn delete(&self, uid: &str, version: &str) -> Result<Deleted, Trouble> {
        let precondition = Precondition { uid: uid.to_owned(), version: version.to_owned() };
        self.request("release the lock", move |spot, commit| {
            Folder::open(spot)?.under_flock(|folder| file::delete(folder, &precondition, commit))
        })
        .await
    }
}
