//! Does one activity at a time: preparing, a fence, a step, the closing act, the release.
//!
//! Each is a future that ends with one [`Done`]; the engine polls it beside everything else. Nothing here decides what
//! comes next.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::clock::{Clock, Instant, rfc3339};
use crate::cluster::MayWrite;
use crate::event::{self, Event, Kept, LockEnd};
use crate::failure::{Code, Failure};
use crate::lock::{Change, HolderId, Keeper, Lost, Released, notes};
use crate::pipeline::{Action, Verb};
use crate::process::{self, Directly, Stdin, StopWatch};
use crate::redact::Redactor;
use crate::run::bearing::{only_looks, step_end};
use crate::run::chronicle::Chronicle;
use crate::run::machine::{Input, OnFailure, Shape, StepEnd, Strength};
use crate::run::spec::{Mode, Spec};
use crate::run::surroundings::Found;
use crate::run::translate::Place;
use crate::run::waiting::{Candidate, Waits};
use crate::run::while_held::WhileHeld;
use crate::run::{drill, exec, keeping, surroundings, tidy};
use crate::step::{self, Equipment, Outcome, Updates};

/// How an activity ended.
pub(crate) enum Done {
    /// The surroundings were looked at, before the first step.
    Prepared(Box<Result<Option<Found>, Failure>>),
    /// The lock was asked about.
    Fenced(Result<(), Lost>),
    /// A step ended.
    Step(Ended, Outcome),
    /// The closing act ended; it says why it could not be done.
    Closed(Option<Failure>),
    /// The lock was given back, or not.
    Released(Released, Duration),
    /// The lock was left, and why.
    Left(&'static str),
}

/// What stirs while the engine waits.
pub(crate) enum Stirred {
    /// The activity ended.
    Done(Box<Done>),
    /// Something happened to the lock.
    Lock(Change),
    /// The run waits for the lock, and this is to be told.
    Waits(Waits),
}

/// What a step leaves for the run, beside its outcome.
pub(crate) enum Ended {
    /// Nothing.
    Plain(Action),
    /// What it found in the surroundings.
    Surroundings(Box<Found>),
    /// The claim: what it got.
    Claim(keeping::Claim),
}

/// The one at work, and what all of them share.
pub(crate) struct Work {
    spec: Rc<Spec>,
    holder: HolderId,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    stop: StopWatch,
    send: Updates,
    found: Option<Found>,
    pipe: Option<OwnedFd>,
    command: exec::Life,
    keeper: Option<Rc<Keeper>>,
    changes: Option<keeping::Changes>,
    /// What a claim that waits has to say.
    waits: Option<UnboundedReceiver<Waits>>,
    may_write: WhileHeld,
    /// Since when the lock is being claimed, or given back, and what that waits for.
    since: Instant,
    waiting: Option<keeping::Waiting>,
    activity: Option<Pin<Box<dyn Future<Output = Done>>>>,
    children: BTreeMap<String, u32>,
    end: keeping::End,
    /// The end of the stop's budget, once a stop was asked for.
    deadline: Option<Timestamp>,
    directly: Directly,
    begun: bool,
}

impl Work {
    pub(crate) fn new(
        spec: Spec,
        pid: u32,
        clock: Arc<dyn Clock>,
        redactor: Redactor,
        stop: StopWatch,
        send: Updates,
    ) -> Work {
        let (holder, since) = (spec.holder(pid), clock.now());
        Work {
            spec: Rc::new(spec),
            holder,
            clock,
            redactor,
            stop,
            send,
            found: None,
            pipe: None,
            command: exec::Life::default(),
            keeper: None,
            changes: None,
            waits: None,
            may_write: WhileHeld::default(),
            since,
            waiting: None,
            activity: None,
            children: BTreeMap::new(),
            end: keeping::End::default(),
            deadline: None,
            directly: Directly::No,
            begun: false,
        }
    }

    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Hands over what the run's command is to read.
    pub(crate) fn give_pipe(&mut self, pipe: OwnedFd) {
        self.pipe = Some(pipe);
    }

    /// Where in its life the command of `exec` is.
    pub(crate) fn command(&self) -> exec::Life {
        self.command
    }

    /// What the machine needs of it. A failure is written down on the declaration, once there is one.
    pub(crate) fn shape(&self) -> Shape {
        let actions = &self.spec.plan.actions;
        let claims = actions.iter().position(|action| *action == Action::ClaimCluster);
        let failure = match self.spec.plan.verb {
            Verb::Bootstrap | Verb::Upgrade => OnFailure::WriteDown,
            // What was being removed stays marked so.
            Verb::Install | Verb::Destroy | Verb::Exec => OnFailure::JustEnd,
        };
        match self.spec.mode {
            Mode::Act => Shape { steps: actions.len(), claims, failure },
            Mode::DryRun => Shape { steps: actions.len(), claims: None, failure: OnFailure::JustEnd },
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.spec.mode
    }

    pub(crate) fn holder(&self) -> String {
        self.holder.to_string()
    }

    pub(crate) fn place(&self, index: usize) -> Place {
        Place::of(&self.spec.plan, index)
    }

    pub(crate) fn stop_after(&self) -> Duration {
        self.spec.limits().budget
    }

    pub(crate) fn directly(&self) -> Directly {
        self.directly
    }

    /// Where the lock is, as far as this run can say.
    pub(crate) fn end(&self) -> &keeping::End {
        &self.end
    }

    /// Whether a step that changes something had begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Files for a person to look at.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        tidy::stays(&self.spec, &[])
    }

    /// Waits for the activity's end or the next change of the lock. Safe to drop at any point.
    pub(crate) async fn next(&mut self) -> Stirred {
        let Work { activity, changes, waits, .. } = self;
        let stirred = tokio::select! {
            biased;
            Some(change) = next_change(changes) => Stirred::Lock(change),
            Some(news) = next_news(waits) => Stirred::Waits(news),
            done = ended(activity) => Stirred::Done(Box::new(done)),
        };
        if matches!(stirred, Stirred::Done(_)) {
            self.activity = None;
            self.waiting = None;
        }
        stirred
    }

    pub(crate) fn prepare(&mut self) {
        let own_step = self.spec.plan.actions.contains(&Action::CheckSurroundings);
        let looking = self.look_around();
        self.activity = Some(Box::pin(async move {
            Done::Prepared(Box::new(if own_step { Ok(None) } else { looking.await.map(Some) }))
        }));
    }

    fn look_around(&self) -> impl Future<Output = Result<Found, Failure>> + use<> {
        let (spec, clock, stop) = (self.spec.clone(), self.clock.clone(), self.stop.clone());
        let (redactor, send) = (self.redactor.clone(), self.send.clone());
        surroundings::look(spec, clock, redactor, stop, send, MayWrite::as_says(self.may_write.clone()))
    }

    pub(crate) fn fence(&mut self, index: usize) {
        self.end.next_step = Some(self.place(index).title);
        let keeper = self.keeper.clone().expect("a fence is asked for only while the lock is held");
        let stop = self.stop.clone();
        self.activity = Some(Box::pin(async move { Done::Fenced(keeping::fence(&keeper, &stop).await) }));
    }

    pub(crate) fn begin(&mut self, index: usize, told: &Chronicle) {
        let action = self.spec.plan.actions[index];
        self.begun |= self.spec.mode == Mode::Act && !only_looks(action);
        self.note([(notes::STEP, Some(action.title().to_owned()))]);
        self.activity = Some(match action {
            Action::CheckSurroundings => {
                let looking = self.look_around();
                Box::pin(async move {
                    match looking.await {
                        Ok(found) => {
                            let note = surroundings::said(&found);
                            Done::Step(Ended::Surroundings(Box::new(found)), Outcome::Done(note))
                        }
                        Err(failure) => Done::Step(Ended::Plain(action), Outcome::Failed(failure)),
                    }
                })
            }
            // The identity is in the journal before the lock is asked for: whoever takes over looks for it.
            Action::ClaimCluster => self.claim(told.written(keeping::INTENT)),
            action => self.perform(action),
        });
    }

    fn perform(&mut self, action: Action) -> Pin<Box<dyn Future<Output = Done>>> {
        let (pipe, spec) = (self.pipe.take(), self.spec.clone());
        match self.surroundings().kit {
            Equipment::Bundle(kit) => Box::pin(async move {
                drill::at(&spec, &action.id());
                Done::Step(Ended::Plain(action), step::perform(&kit, action).await)
            }),
            Equipment::Command(kit) => Box::pin(async move {
                let stdin = pipe.map_or(Stdin::Null, Stdin::Pipe);
                drill::at(&spec, &action.id());
                Done::Step(Ended::Plain(action), step::run_command(&kit, stdin).await)
            }),
        }
    }

    fn claim(&mut self, recorded: impl Future<Output = ()> + 'static) -> Pin<Box<dyn Future<Output = Done>>> {
        let lock = self.surroundings().lock;
        let (store, place, clock) = (lock.store(), self.spec.place(), self.clock.clone());
        if self.spec.mode == Mode::DryRun {
            return Box::pin(async move {
                let (claim, outcome) = keeping::observe(&store, &place, &*clock).await;
                Done::Step(Ended::Claim(claim), outcome)
            });
        }
        let request = keeping::request(&self.spec, &self.holder);
        let (keeper, changes) = keeping::start(lock, request, clock.clone());
        self.may_write.follow(keeper.right());
        drill::witness(&self.spec, &self.may_write);
        let keeper = Rc::new(keeper);
        self.keeper = Some(keeper.clone());
        self.changes = Some(changes);
        self.since = self.clock.now();
        let (say, waits) = unbounded_channel();
        self.waits = Some(waits);
        let candidate = Candidate {
            keeper,
            ours: self.holder.clone(),
            store,
            wait: self.spec.wait,
            on_busy: self.spec.on_busy,
            stop: self.stop.clone(),
            clock,
            place,
            say,
        };
        Box::pin(async move {
            recorded.await;
            let (claim, outcome) = candidate.claim().await;
            Done::Step(Ended::Claim(claim), outcome)
        })
    }

    pub(crate) fn close(&mut self) {
        self.end.next_step = Some(Action::RecordPhase.title().to_owned());
        let kit = self.surroundings().kit;
        let keeper = self.keeper.clone().filter(|_| self.end.lock != LockEnd::NotHeld);
        let stop = self.stop.clone();
        self.activity = Some(Box::pin(async move {
            if let Some(keeper) = keeper
                && let Err(lost) = keeping::fence(&keeper, &stop).await
            {
                return Done::Closed(Some(keeping::lost_before(Action::RecordPhase.title(), &lost)));
            }
            match kit {
                Equipment::Bundle(kit) => Done::Closed(step::record_failure(&kit).await.err()),
                Equipment::Command(_) => Done::Closed(None),
            }
        }));
    }

    /// That the lock is given back is in the journal before it is done, so that whoever takes over knows why a Lease is not
    /// there. A disk that does not take it holds nothing up for long.
    pub(crate) fn release(&mut self, told: &mut Chronicle) {
        let keeper = self.keeper.clone().expect("only a run that asked for the lock gives it back");
        let clock = self.clock.clone();
        self.since = clock.now();
        let recorded = keeper.has_a_stake().then(|| {
            told.tell(None, Event::LockReleasing(event::LockReleasing { holder: self.holder() }));
            told.written(keeping::INTENT)
        });
        self.activity = Some(Box::pin(async move {
            if let Some(recorded) = recorded {
                recorded.await;
            }
            let began = clock.now();
            let released = keeper.release().await;
            Done::Released(released, clock.now().since(began))
        }));
    }

    /// Drops the activity where it is.
    pub(crate) fn give_up(&mut self) {
        self.activity = None;
        self.waiting = None;
    }

    /// The tools that were started and whose end nobody saw, in words; none when there is none.
    pub(crate) fn tools_at_work(&self) -> Option<String> {
        let tools: Vec<String> =
            self.children.iter().map(|(program, pid)| format!("{program} (process {pid})")).collect();
        (!tools.is_empty()).then(|| tools.join(", "))
    }

    /// Leaves the lock where it is, with the last will on it.
    pub(crate) fn leave(&mut self, why: &'static str) {
        let keeper = self.keeper.clone();
        self.activity = Some(Box::pin(async move {
            if let Some(keeper) = keeper {
                keeping::leave(&keeper).await;
            }
            Done::Left(why)
        }));
    }

    /// Tells what an activity's end means, and says it to the machine.
    pub(crate) fn finished(&mut self, done: Done, told: &mut Chronicle) -> Input {
        match done {
            Done::Prepared(looked) => Input::Prepared(match *looked {
                Ok(found) => {
                    if let Some(found) = found {
                        self.equip(found, told);
                    }
                    Ok(())
                }
                Err(failure) => {
                    // No step has begun whose end would tell it; a stop is told as such.
                    if failure.code != Code::StoppedClean {
                        told.tell(None, Event::Diagnostic((&failure).into()));
                    }
                    Err(failure)
                }
            }),
            Done::Fenced(Ok(())) => Input::FenceHeld,
            Done::Fenced(Err(lost)) => {
                let next = self.end.next_title();
                let failure = keeping::lost_before(&next, &lost);
                self.lose(&lost, &failure, told);
                Input::FenceLost(failure)
            }
            Done::Step(Ended::Surroundings(found), outcome) => {
                self.equip(*found, told);
                Input::StepEnded(step_end(Action::CheckSurroundings, outcome))
            }
            Done::Step(Ended::Plain(action), outcome) => Input::StepEnded(step_end(action, outcome)),
            Done::Step(Ended::Claim(claim), outcome) => {
                let held = claim.is_held() && matches!(outcome, Outcome::Done(_));
                let without = claim.goes_on_without();
                self.tell_news(told);
                self.waits = None;
                self.end.take_claim(&claim, &self.holder);
                claim.tell(&self.spec.place(), told);
                if let Some(changes) = &mut self.changes {
                    changes.claim_is_told();
                }
                if without {
                    self.may_write.go_without();
                    return Input::StepEnded(StepEnd::Without);
                }
                if held {
                    return Input::StepEnded(StepEnd::Claimed);
                }
                Input::StepEnded(step_end(Action::ClaimCluster, outcome))
            }
            Done::Closed(failure) => {
                if let Some(failure) = failure {
                    told.note(format!("that the run failed could not be recorded: {}", failure.message));
                }
                Input::Closed
            }
            Done::Released(released, took) => {
                self.end.take_release(&released, &self.holder);
                keeping::tell_release(&released, &self.holder(), took, told);
                Input::Released
            }
            Done::Left(why) => {
                self.end.leave(&self.holder, why, told);
                Input::Released
            }
        }
    }

    fn equip(&mut self, found: Found, told: &mut Chronicle) {
        surroundings::tell(&found.kit, told);
        self.found = Some(found);
    }

    fn surroundings(&self) -> Found {
        self.found.clone().expect("the surroundings were looked at before the first step that needs them")
    }

    /// Takes a change of the lock; a failure means that it is lost.
    pub(crate) fn heed_lock(&mut self, change: Change, during: Option<&str>, told: &mut Chronicle) -> Option<Failure> {
        match change {
            Change::Lost(lost) => {
                let failure = match during {
                    Some(step) => keeping::lost_during(step, &lost),
                    None => keeping::lost_before(&self.end.next_title(), &lost),
                };
                self.lose(&lost, &failure, told);
                Some(failure)
            }
            Change::Waiting { act, why } => {
                let anew = self.waiting.as_ref().is_none_or(|waiting| waiting.act != act);
                self.waiting = Some(keeping::Waiting { act, why });
                if anew {
                    self.tell_waiting(told);
                }
                None
            }
            Change::Renewed { .. } | Change::RenewalFailed { .. } | Change::Releasing { .. } => {
                self.end.take_change(&change, told);
                None
            }
        }
    }

    /// Says whom a claim waits for.
    pub(crate) fn heed_news(news: Waits, told: &mut Chronicle) {
        news.tell(&Action::ClaimCluster.id(), told);
    }

    /// The same for what was not heard yet.
    fn tell_news(&mut self, told: &mut Chronicle) {
        while let Some(news) = self.waits.as_mut().and_then(|waits| waits.try_recv().ok()) {
            Work::heed_news(news, told);
        }
    }

    /// Says what a claim or a release waits for, if it does.
    pub(crate) fn tell_waiting(&self, told: &mut Chronicle) {
        if let Some(waiting) = &self.waiting {
            waiting.tell(self.since, told);
        }
    }

    fn lose(&mut self, lost: &Lost, failure: &Failure, told: &mut Chronicle) {
        if self.end.lock != LockEnd::Lost {
            self.end.lose(lost, &self.holder);
            keeping::tell_loss(lost, &self.holder, failure, told);
        }
    }

    /// Programs that start and end are part of the last will.
    pub(crate) fn program_moved(&mut self, program: &str, update: &process::Update) {
        self.command.take(update);
        let moved = match update {
            process::Update::Started { pid } => self.children.insert(program.to_owned(), *pid).is_none(),
            process::Update::Finished { .. } => self.children.remove(program).is_some(),
            process::Update::Line { .. }
            | process::Update::Interrupted { .. }
            | process::Update::InterruptReported { .. }
            | process::Update::Killed { .. }
            | process::Update::Unnamed(_)
            | process::Update::NoRoom { .. }
            | process::Update::RoomAgain { .. }
            | process::Update::Unread { .. }
            | process::Update::LeftBehind { .. }
            | process::Update::Survived(_) => false,
        };
        if moved {
            self.note([(notes::CHILDREN, self.tools_at_work())]);
        }
    }

    /// The stop request is part of the last will: what asked first, and when it is over at the latest. Force comes after a
    /// request or alone, and only ever makes it sooner.
    pub(crate) fn note_stop(&mut self, by: &str, strength: Strength, directly: Directly) {
        self.directly = directly;
        let now = self.clock.wall();
        let limits = process::Limits::default();
        let over = now
            + match strength {
                Strength::Graceful => self.stop_after(),
                Strength::Force => limits.last_grace + limits.sweep_grace,
            };
        if self.deadline.is_none() {
            self.note([(notes::STOP_REQUESTED, Some(rfc3339(now))), (notes::STOP_SIGNAL, Some(by.to_owned()))]);
        }
        let deadline = self.deadline.map_or(over, |before| before.min(over));
        self.deadline = Some(deadline);
        self.note([(notes::STOP_DEADLINE, Some(rfc3339(deadline)))]);
    }

    fn note<const N: usize>(&self, notes: [(&str, Option<String>); N]) {
        if let Some(keeper) = &self.keeper
            && self.end.lock == LockEnd::Left
        {
            keeper.note(notes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
        }
    }
}

async fn next_change(changes: &mut Option<keeping::Changes>) -> Option<Change> {
    match changes {
        Some(changes) => changes.next().await,
        None => None,
    }
}

async fn next_news(waits: &mut Option<UnboundedReceiver<Waits>>) -> Option<Waits> {
    match waits {
        Some(waits) => waits.recv().await,
        None => None,
    }
}

async fn ended(activity: &mut Option<Pin<Box<dyn Future<Output = Done>>>>) -> Done {
    match activity {
        Some(activity) => activity.await,
        None => std::future::pending().await,
    }
}
