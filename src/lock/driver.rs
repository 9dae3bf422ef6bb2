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
use crate::lock::change::Change;
use crate::lock::fence::Fence;
use crate::lock::protocol::life::{Effect, Input, Life};
use crate::lock::protocol::{Answer, Ask, ClaimError, Claimed, Lost, Now, Released};
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
    /// Once it was lost.
    pub(crate) lost: Option<Lost>,
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

/// The keeper's ends of its channels.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) changes: mpsc::UnboundedSender<Change>,
    pub(crate) known: watch::Sender<Known>,
}

/// Drives one [`Life`].
#[derive(Debug)]
pub(crate) struct Driver {
    life: Life,
    timing: Timing,
    clock: Arc<dyn Clock>,
    ends: Ends,
    claim: Option<oneshot::Sender<Result<Claimed, ClaimError>>>,
    checks: VecDeque<oneshot::Sender<Result<(), Lost>>>,
}

/// What woke the driver.
enum Woke {
    By(Input),
    /// Told to leave, or nobody is there any more.
    Leave,
    /// The run has let go of its keeper while it gives the lock back.
    Alone,
}

type Request<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

impl Driver {
    pub(crate) fn new(life: Life, timing: Timing, clock: Arc<dyn Clock>, ends: Ends) -> Driver {
        Driver { life, timing, clock, ends, claim: None, checks: VecDeque::new() }
    }

    /// Works until the lock is given back, or left.
    pub(crate) async fn run(mut self, store: &impl LeaseStore, waiting: Vec<Command>) {
        let mut waiting = VecDeque::from(waiting);
        let mut request: Option<Request<'_>> = None;
        let mut releasing = Releasing::No;
        loop {
            let woke = match waiting.pop_front() {
                Some(command) => self.command(Some(command), &mut releasing),
                None => self.next(&mut request, &mut releasing).await,
            };
            let input = match woke {
                Woke::By(input) => input,
                Woke::Alone => continue,
                Woke::Leave => {
                    self.ends.known.send_modify(|known| known.left = Left::OnRequest);
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
                    // Nobody may be listening any more; that changes nothing.
                    Effect::Tell(change) => drop(self.ends.changes.send(change)),
                    Effect::Released(released) => {
                        self.ends.known.send_modify(|known| known.released = Some(released));
                        return;
                    }
                }
            }
        }
    }

    /// Waits for the request under way, for a command, or for time to pass.
    async fn next(&mut self, request: &mut Option<Request<'_>>, releasing: &mut Releasing) -> Woke {
        let pause = self.pause();
        tokio::select! {
            biased;
            answer = async { request.as_mut().expect("it is there").await }, if request.is_some() => {
                *request = None;
                Woke::By(Input::Answer(answer))
            }
            command = self.ends.commands.recv(), if *releasing != Releasing::Alone => self.command(command, releasing),
            () = tokio::time::sleep(pause) => Woke::By(Input::Tick),
        }
    }

    fn publish(&self) {
        let (fence, lost) = (self.life.fence(), self.life.lost());
        self.ends.known.send_modify(|known| {
            known.fence = fence;
            known.lost = lost;
        });
    }

    /// Until the next thing is due, and never longer than the clock may go unread.
    fn pause(&self) -> Duration {
        let longest = self.timing.poll_clock_every();
        self.life.due().map_or(longest, |due| due.since(self.clock.now()).min(longest))
    }

    fn command(&mut self, command: Option<Command>, releasing: &mut Releasing) -> Woke {
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
                *releasing = Releasing::Asked;
                Woke::By(Input::Release)
            }
            Some(Command::Leave) => Woke::Leave,
            // A release goes on without the one who asked for it; nothing else does.
            None if *releasing == Releasing::No => Woke::Leave,
            None => {
                *releasing = Releasing::Alone;
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
