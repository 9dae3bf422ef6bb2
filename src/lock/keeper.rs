//! The keeper: a run's end of its lock.
//!
//! The work is done on a thread of its own, with a runtime and a client of its own, so that a full pipe, a slow disk, a
//! hung look-up or a busy step cannot cost the lease. This side only sends commands and waits for answers; none of its
//! calls blocks a thread.
//!
//! # In which order to call it
//! Arm the signal handlers, write down the identity, then [`Keeper::claim`]. Before each step [`Keeper::fence`].
//! Whatever came of the claim, at the end [`Keeper::release`]: after every program of the run is proved dead, and after
//! the intent was written down. Only a forced end calls [`Keeper::leave`] instead.
//!
//! Dropping a keeper never blocks and never gives the lock back: something of the run may still be at work.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::failure::{Code, Failure};
use crate::lock::change::Change;
use crate::lock::driver::{Command, Driver, Ends, Known, Left};
use crate::lock::fence::Standing;
use crate::lock::protocol::life::{Estate, Stake};
use crate::lock::protocol::{ClaimError, Claimed, Lost, Released};
use crate::lock::record::Request;
use crate::lock::right::Right;
use crate::lock::store::LeaseStore;
use crate::lock::thread;
use crate::lock::timing::Timing;

/// A run's end of its lock.
#[derive(Debug)]
pub struct Keeper {
    commands: UnboundedSender<Command>,
    changes: Option<UnboundedReceiver<Change>>,
    known: watch::Receiver<Known>,
    holder: String,
    timing: Timing,
    clock: Arc<dyn Clock>,
}

impl Keeper {
    /// Starts a keeper on its own thread. `make_store` is called there, inside the thread's runtime: a client made in it
    /// belongs to that runtime. Whatever goes wrong is the answer to [`Keeper::claim`].
    pub fn start<S, F>(make_store: F, request: Request, timing: Timing, clock: Arc<dyn Clock>) -> Keeper
    where
        S: LeaseStore,
        F: FnOnce() -> Result<S, Failure> + Send + 'static,
    {
        let (keeper, driver, ends) = Keeper::parts(request, timing, clock);
        thread::start(make_store, driver, ends, timing);
        keeper
    }

    /// The same for a lock that another process of this run has left when it ended. It is renewed from here on, or there
    /// is only [`Keeper::release`] to call.
    pub fn inherit<S, F>(
        make_store: F,
        request: Request,
        estate: Estate,
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> Keeper
    where
        S: LeaseStore,
        F: FnOnce() -> Result<S, Failure> + Send + 'static,
    {
        let (keeper, ends) = Keeper::ends(&request, timing, &clock);
        let holder = keeper.holder.clone();
        let driver = move |ends| Driver::inherit(&estate, request, timing, clock, ends);
        thread::go_on(make_store, driver, ends, (timing, holder));
        keeper
    }

    /// Both ends of a keeper, and nothing that runs yet.
    pub(crate) fn parts(
        request: Request,
        timing: Timing,
        clock: Arc<dyn Clock>,
    ) -> (Keeper, impl FnOnce(Ends) -> Driver + Send + 'static, Ends) {
        let (keeper, ends) = Keeper::ends(&request, timing, &clock);
        let driver = move |ends| Driver::new(request, timing, clock, ends);
        (keeper, driver, ends)
    }

    fn ends(request: &Request, timing: Timing, clock: &Arc<dyn Clock>) -> (Keeper, Ends) {
        let (commands, their_commands) = unbounded_channel();
        let (their_changes, changes) = unbounded_channel();
        let (their_known, known) = watch::channel(Known::default());
        let keeper = Keeper {
            commands,
            changes: Some(changes),
            known,
            holder: request.holder.to_string(),
            timing,
            clock: Arc::clone(clock),
        };
        (keeper, Ends { commands: their_commands, changes: their_changes, known: their_known })
    }

    /// Claims the lock. It may be called again after an error, and given up by dropping it; the claim then goes on
    /// until [`Keeper::release`] settles it.
    pub async fn claim(&self) -> Result<Claimed, ClaimError> {
        let (ours, answer) = oneshot::channel();
        // A keeper that has ended drops the sender, which is an answer too.
        drop(self.commands.send(Command::Claim(ours)));
        answer.await.unwrap_or_else(|_| Err(ClaimError::Failed(broken())))
    }

    /// Whether a new step may begin: the API server is asked. When it cannot answer, what the last renewal proved counts
    /// for as long as it may. Call it at every step boundary, and start nothing on an error.
    pub async fn fence(&self) -> Result<(), Lost> {
        let (ours, answer) = oneshot::channel();
        drop(self.commands.send(Command::Check(ours)));
        if let Ok(Ok(answer)) = tokio::time::timeout(self.timing.no_new_step_after(), answer).await {
            answer?;
        }
        self.by_the_clock()
    }

    /// What is known without asking. It was known when the answer was given; this says whether it still counts.
    fn by_the_clock(&self) -> Result<(), Lost> {
        let right = self.right();
        match right.standing()? {
            (Standing::Firm, _) => Ok(()),
            (Standing::Weak, age) => Err(Lost::Unsure { age, why: None }),
            (Standing::Fallen, age) => Err(Lost::Expired { age, why: None }),
        }
    }

    /// The right to act, as it is known at any moment from now on.
    pub fn right(&self) -> Right {
        Right::new(self.known.clone(), self.timing, Arc::clone(&self.clock))
    }

    /// How the last renewal that has ended went. Waits for the first one.
    pub async fn renewal(&self) -> Result<(), Failure> {
        let mut known = self.known.clone();
        let ended = |known: &Known| known.renewal.is_some() || known.no_right.is_some();
        match known.wait_for(ended).await {
            Ok(known) => known.renewal.clone().unwrap_or(Ok(())),
            Err(_) => Err(broken()),
        }
    }

    /// Whether [`Keeper::release`] would have anything to do, as far as is known.
    pub fn has_a_stake(&self) -> bool {
        self.known.borrow().stake == Stake::Something
    }

    /// Writes notes beside the holder's name, by the keys of [`crate::lock::notes`]; `None` takes a note away. It renews
    /// at once, in the background.
    pub fn note(&self, notes: BTreeMap<String, Option<String>>) {
        drop(self.commands.send(Command::Note(notes)));
    }

    /// What happens to the lock from now on. It ends when the keeper has ended.
    ///
    /// # Panics
    /// When it is called a second time: there is one listener.
    pub fn changes(&mut self) -> UnboundedReceiver<Change> {
        self.changes.take().expect("the changes of a keeper have one listener")
    }

    /// Gives the lock back, and settles what came of a claim without an answer. It takes at most the release budget, goes
    /// on when this future is dropped, and answers the same when it is called again.
    ///
    /// The caller has proved that nothing of the run is alive, and has written down that it releases now.
    pub async fn release(&self) -> Released {
        drop(self.commands.send(Command::Release));
        let mut known = self.known.clone();
        let limit = self.timing.release_budget() + self.timing.request_timeout();
        let ended = tokio::time::timeout(limit, known.wait_for(|known| known.released.is_some())).await;
        if let Ok(Ok(known)) = ended
            && let Some(released) = &known.released
        {
            return released.clone();
        }
        match self.known.borrow().left {
            Left::OnRequest => Released::Left(Failure::new(Code::StoppedForced, "the lock was left, as asked")),
            Left::No => Released::Unknown { holder: self.holder.clone(), why: broken() },
        }
    }

    /// Stops renewing and leaves the Lease as it is: for a forced end. A release that goes on is cut off.
    pub fn leave(&self) {
        drop(self.commands.send(Command::Leave));
    }
}

pub(crate) fn broken() -> Failure {
    Failure::new(Code::Internal, "the thread that keeps the lock does not answer")
}

#[cfg(test)]
mod tests;
