//! The loop that carries out what the protocol decides: one request at a time, and a clock that is read once a second.
//!
//! No decision is made here. A timer of tokio's stands still while the machine is suspended, so none of them is longer
//! than [`Timing::poll_clock_every`]: after a suspend the fence falls within that time.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::failure::{Code, Failure};
use crate::lock::change::Change;
use crate::lock::fence::Fence;
use crate::lock::protocol::life::{Effect, Estate, Input, Life, Stake};
use crate::lock::protocol::release::Target;
use crate::lock::protocol::{Answer, Ask, ClaimError, Claimed, Lost, Now, Released};
use crate::lock::record::Request;
use crate::lock::store::LeaseStore;
use crate::lock::timing::Timing;

/// What a run asks of its keeper.
#[derive(Debug)]
pub(crate) enum Command {
    Claim(oneshot::Sender<Result<Claimed, ClaimError>>),
    Check(oneshot::Sender<Result<(), Lost>>),
    Note(BTreeMap<String, Option<String>>),
    Release,
    Leave,
}

/// What is known of the lock at any moment, without asking anybody.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Known {
    /// While the lock is ours.
    pub(crate) fence: Option<Fence>,
    /// While it is not: why nothing may be done. None until there was anything to know.
    pub(crate) no_right: Option<Lost>,
    /// How the last renewal that has ended went.
    pub(crate) renewal: Option<Result<(), Failure>>,
    /// Whether a release has anything to do.
    pub(crate) stake: Stake,
    /// Once the release has ended.
    pub(crate) released: Option<Released>,
    /// Once the lock was left on request.
    pub(crate) left: Left,
}

/// Whether the keeper was told to leave the Lease as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Left {
    /// It was not.
    #[default]
    No,
    /// It was.
    OnRequest,
}

/// The keeper's ends of its channels. They are dropped in this order: who sees that no more changes come knows that
/// nothing is known any more.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) known: watch::Sender<Known>,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) changes: mpsc::UnboundedSender<Change>,
}

/// Drives one [`Life`].
#[derive(Debug)]
pub(crate) struct Driver {
    request: Request,
    life: Life,
    timing: Timing,
    clock: Arc<dyn Clock>,
    ends: Ends,
    claim: Option<oneshot::Sender<Result<Claimed, ClaimError>>>,
    checks: VecDeque<oneshot::Sender<Result<(), Lost>>>,
    releasing: Releasing,
    /// What there would be to give back after a panic.
    leaves: Target,
}

/// What woke the driver.
enum Woke {
    By(Input),
    /// Told to leave, or nobody is there any more.
    Leave,
    /// The run has let go of its keeper while it gives the lock back.
    Alone,
}

/// A request under way.
type Asking<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

impl Driver {
    pub(crate) fn new(request: Request, timing: Timing, clock: Arc<dyn Clock>, ends: Ends) -> Driver {
        let life = Life::new(request.clone(), timing);
        Driver::living(life, (request, timing, clock, ends))
    }

    /// A driver of what another process of the same run has left.
    pub(crate) fn inherit(
        estate: &Estate,
        request: Request,
        timing: Timing,
        clock: Arc<dyn Clock>,
        ends: Ends,
    ) -> Driver {
        let life = Life::inherit(request.clone(), timing, estate, Now::read(&*clock));
        let mut driver = Driver::living(life, (request, timing, clock, ends));
        driver.publish();
        driver
    }

    fn living(life: Life, (request, timing, clock, ends): (Request, Timing, Arc<dyn Clock>, Ends)) -> Driver {
        Driver {
            life,
            request,
            timing,
            clock,
            ends,
            claim: None,
            checks: VecDeque::new(),
            releasing: Releasing::No,
            leaves: Target::Nothing,
        }
    }

    /// After a panic in [`Driver::run`]: whoever waits is told, and what there may be in the Lease can still be given
    /// back. Of what was known only the identity counts, and whether the lock was ours. Gives back what is still asked
    /// of it.
    pub(crate) fn wreck(&mut self, bug: &Failure) -> Vec<Command> {
        let wreck = (bug.clone(), self.leaves.clone());
        self.life = Life::wrecked(self.request.clone(), self.timing, wreck, Now::read(&*self.clock));
        self.publish();
        let lost = Lost::Broken(bug.clone());
        if let Some(claim) = self.claim.take() {
            // Whoever asked may have stopped waiting.
            drop(claim.send(Err(ClaimError::Failed(bug.clone()))));
        }
        self.answer_checks(self.checks.len(), &Err(lost.clone()));
        self.tell(Change::Lost(lost));
        match self.releasing {
            Releasing::No => Vec::new(),
            Releasing::Asked | Releasing::Alone => vec![Command::Release],
        }
    }

    /// Works until the lock is given back, or left.
    pub(crate) async fn run(&mut self, store: &impl LeaseStore, waiting: Vec<Command>) {
        let mut waiting = VecDeque::from(waiting);
        let mut request: Option<Asking<'_>> = None;
        loop {
            let woke = match waiting.pop_front() {
                Some(command) => self.command(Some(command)),
                None => self.next(&mut request).await,
            };
            let input = match woke {
                Woke::By(input) => input,
                Woke::Alone => continue,
                Woke::Leave => {
                    self.left();
                    return;
                }
            };
            let effects = self.life.advance(input, Now::read(&*self.clock));
            self.publish();
            for effect in effects {
                match effect {
                    Effect::Ask(ask) => request = Some(Box::pin(perform(store, ask))),
                    Effect::Claimed(answer) => drop(self.claim.take().map(|claim| claim.send(answer))),
                    Effect::Checked(many, answer) => self.answer_checks(many, &answer),
                    Effect::Tell(change) => self.tell(change),
                    Effect::Released(released) => {
                        self.ends.known.send_modify(|known| known.released = Some(released));
                        return;
                    }
                }
            }
        }
    }

    /// Waits for the request under way, for a command, or for time to pass.
    async fn next(&mut self, request: &mut Option<Asking<'_>>) -> Woke {
        let pause = self.pause();
        tokio::select! {
            biased;
            answer = async { request.as_mut().expect("it is there").await }, if request.is_some() => {
                *request = None;
                Woke::By(Input::Answer(answer))
            }
            command = self.ends.commands.recv(), if self.releasing != Releasing::Alone => self.command(command),
            () = tokio::time::sleep(pause) => Woke::By(Input::Tick),
        }
    }

    fn publish(&mut self) {
        let (fence, no_right, stake) = (self.life.fence(), self.life.no_right(), self.life.stake());
        match &no_right {
            None => self.leaves = Target::Unseen,
            Some(Lost::Taken { .. } | Lost::Gone | Lost::Expired { .. } | Lost::Unsure { .. }) => {
                self.leaves = Target::Nothing;
            }
            // It is being claimed, or given back.
            Some(Lost::Broken(_)) => {}
        }
        self.ends.known.send_modify(|known| {
            known.fence = fence;
            known.no_right = no_right;
            known.stake = stake;
        });
    }

    /// Nobody renews any more.
    fn left(&self) {
        let message = "the lock was left as it is";
        self.ends.known.send_modify(|known| {
            known.left = Left::OnRequest;
            known.fence = None;
            known.no_right = Some(Lost::Broken(Failure::new(Code::Internal, message)));
        });
    }

    fn tell(&self, change: Change) {
        let renewal = match &change {
            Change::Renewed { .. } => Some(Ok(())),
            Change::RenewalFailed { failure, .. } => Some(Err(failure.clone())),
            Change::Waiting { .. } | Change::Lost(_) | Change::Releasing { .. } => None,
        };
        if renewal.is_some() {
            self.ends.known.send_modify(|known| known.renewal = renewal);
        }
        // Nobody may be listening any more; that changes nothing.
        drop(self.ends.changes.send(change));
    }

    /// Until the next thing is due, and never longer than the clock may go unread.
    fn pause(&self) -> Duration {
        let longest = self.timing.poll_clock_every();
        self.life.due().map_or(longest, |due| due.since(self.clock.now()).min(longest))
    }

    fn command(&mut self, command: Option<Command>) -> Woke {
        match command {
            Some(Command::Claim(answer)) => {
                self.claim = Some(answer);
                Woke::By(Input::Claim)
            }
            Some(Command::Check(answer)) => {
                self.checks.push_back(answer);
                Woke::By(Input::Check)
            }
            Some(Command::Note(notes)) => Woke::By(Input::Note(notes)),
            Some(Command::Release) => {
                self.releasing = Releasing::Asked;
                Woke::By(Input::Release)
            }
            Some(Command::Leave) => Woke::Leave,
            // A release goes on without the one who asked for it; nothing else does.
            None if self.releasing == Releasing::No => Woke::Leave,
            None => {
                self.releasing = Releasing::Alone;
                Woke::Alone
            }
        }
    }

    fn answer_checks(&mut self, many: usize, answer: &Result<(), Lost>) {
        for check in self.checks.drain(..many.min(self.checks.len())) {
            // Whoever asked may have stopped waiting.
            drop(check.send(answer.clone()));
        }
    }
}

/// How far a release has come, as far as the driver cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Releasing {
    No,
    Asked,
    /// And the run does not listen any more.
    Alone,
}

/// Sends one request.
pub(crate) async fn perform(store: &impl LeaseStore, ask: Ask) -> Answer {
    match ask {
        Ask::Create(draft) => Answer::Created(store.create(&draft).await),
        Ask::CreateNamespace => Answer::NamespaceCreated(store.create_namespace().await),
        Ask::Read => Answer::Read(store.read().await),
        Ask::Replace(record) => Answer::Replaced(store.replace(&record).await),
        Ask::Delete { uid, version } => Answer::Deleted(store.delete(&uid, &version).await),
    }
}
