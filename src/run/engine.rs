//! The select loop of a run: turns what happens into inputs of the machine, and does what comes back.
//!
//! It decides nothing: [`crate::run::machine`] says what is next, [`crate::run::work`] does it, one activity at a
//! time. Updates of the activity are told before its end is, so the journal is in the order in which things happened.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::clock::Instant;
use crate::event::{self, Event, SignalEffect, StopCause, StopManner};
use crate::failure::{Code, Failure};
use crate::lock::Change;
use crate::process::{Directly, Stopper};
use crate::run::door::Door;
use crate::run::link::{Ear, Mouth};
use crate::run::machine::{Effect, Ending, Input, Lock, Machine, Remains, Strength};
use crate::run::mishap::caught;
use crate::run::translate::{self, Place, millis};
use crate::run::work::{Done, Stirred, Work};
use crate::run::{Answer, Asked, Chronicle, Word, drill};
use crate::signal::{Kind, Signals, StopSignal};
use crate::step::{Outcome, UpdatesReceiver};

/// How often a step that is still at work is said to be.
const PROGRESS: Duration = Duration::from_secs(15);

/// Everything that can make something happen.
pub(crate) struct Senses {
    /// Signals to the supervisor itself.
    pub(crate) signals: Signals,
    /// What the front says; none once it said goodbye.
    pub(crate) ear: Option<Ear>,
    /// The way to the front.
    pub(crate) mouth: Mouth,
    /// What the activity says while it works.
    pub(crate) updates: UpdatesReceiver,
    /// Where other commands ask something.
    pub(crate) door: Door,
}

/// One run at work.
pub(crate) struct Engine {
    pub(crate) work: Work,
    pub(crate) told: Chronicle,
    pub(crate) stopper: Stopper,
    machine: Machine,
    at: Option<(Place, Instant)>,
    heard: Vec<String>,
    front_broke: Option<Failure>,
    /// That the run has begun was said.
    begun: bool,
    /// By when the run is to be over; none when it may take as long as it does, or was asked to stop for that already.
    over: Option<Instant>,
}

/// What the loop was woken by.
enum Woken {
    Update(crate::step::Update),
    Work(Stirred),
    Signal(StopSignal),
    Front(Option<Word>),
    Visitor(Word),
    TimeUp,
    Tick,
}

impl Engine {
    pub(crate) fn new(work: Work, told: Chronicle, stopper: Stopper) -> (Engine, Vec<Effect>) {
        let (machine, effects) = Machine::new(work.shape());
        let over = work.spec().max_run_time.map(|most| work.spec().began + most);
        (
            Engine { work, told, stopper, machine, at: None, heard: Vec::new(), front_broke: None, begun: false, over },
            effects,
        )
    }

    /// Runs to the verdict. When the program itself breaks, what is left is to give the lock back; when that breaks,
    /// too, the front sees it.
    pub(crate) async fn run(&mut self, senses: &mut Senses, first: Vec<Effect>) {
        if let Err(why) = caught(self.work_through(senses, first)).await {
            let effects = self.broke(&why, senses);
            self.work_through(senses, effects).await;
        }
    }

    /// What was being done is given up as it is.
    fn broke(&mut self, why: &str, senses: &mut Senses) -> Vec<Effect> {
        self.work.give_up();
        while let Some(update) = senses.updates.try_recv() {
            self.tell_update(update);
        }
        let tools = self.work.tools_at_work();
        let failure = Failure::new(Code::Internal, format!("dcctl itself broke: {why}"));
        let failure = tools.iter().fold(failure, |failure, tools| {
            failure.cause(format!("nobody watches {tools} any more, which may still be at work"))
        });
        if let Some((place, began)) = self.at.take() {
            let outcome = Outcome::Failed(failure.clone());
            let finished = place.finished(&outcome, self.told.now().since(began));
            self.told.tell(Some(&place.id), finished);
        }
        let remains = if tools.is_some() { Remains::Tools } else { Remains::Nothing };
        self.machine.broke(failure, remains)
    }

    async fn work_through(&mut self, senses: &mut Senses, first: Vec<Effect>) {
        let mut ticks = progress_ticks();
        let mut effects = first;
        loop {
            for effect in std::mem::take(&mut effects) {
                if effect == Effect::Finish {
                    return;
                }
                ticks.reset();
                self.act(effect);
            }
            let woken = tokio::select! {
                biased;
                signal = senses.signals.next() => Woken::Signal(signal),
                word = hear(&mut senses.ear) => Woken::Front(word),
                word = senses.door.next() => Woken::Visitor(word),
                () = time_up(self.over, &self.told) => Woken::TimeUp,
                Some(update) = senses.updates.recv() => Woken::Update(update),
                stirred = self.work.next() => Woken::Work(stirred),
                _ = ticks.tick() => Woken::Tick,
            };
            let waits = matches!(&woken, Woken::Work(Stirred::Waits(_)));
            effects = self.heed(woken, senses).await;
            if waits || matches!(self.machine.lock(), Lock::Held | Lock::Without) {
                self.say_begun(senses).await;
            }
        }
    }

    /// The run has the lock, goes on without it, or waits for it: whoever wants to leave it may. One that is refused is
    /// left by nobody.
    async fn say_begun(&mut self, senses: &mut Senses) {
        if !std::mem::replace(&mut self.begun, true) {
            let _ = senses.mouth.say(&Answer::Began).await;
        }
    }

    /// Everything that bears on the verdict.
    pub(crate) fn ending(&self) -> Ending {
        let (begun, broke) = (self.work.has_begun(), self.front_broke.clone());
        Ending { begun, broke, ..self.machine.ending().clone() }
    }

    async fn heed(&mut self, woken: Woken, senses: &mut Senses) -> Vec<Effect> {
        match woken {
            Woken::Update(update) => {
                let reads = self.work.spec().takes_input() && is_start(&update);
                let told = self.tell_update(update);
                if reads {
                    let _ = senses.mouth.say(&Answer::Reads).await;
                }
                drill::at(self.work.spec(), told);
                Vec::new()
            }
            Woken::Work(Stirred::Done(done)) => {
                while let Some(update) = senses.updates.try_recv() {
                    self.tell_update(update);
                }
                let input = self.finish_activity(*done);
                self.machine.advance(input)
            }
            Woken::Work(Stirred::Lock(change)) => self.lock_changed(change),
            Woken::Work(Stirred::Waits(news)) => {
                Work::heed_news(news, &mut self.told);
                Vec::new()
            }
            Woken::Signal(signal) => {
                let asked = Asked { signal: signal.signal.name().to_owned(), pid: signal.pid, uid: signal.uid };
                let strength = match signal.signal {
                    Kind::Quit => Strength::Force,
                    Kind::Interrupt | Kind::Terminate | Kind::HangUp => Strength::Graceful,
                };
                self.asked(Some(&asked), StopCause::Signal, strength, Directly::Yes)
            }
            Woken::Front(Some(Word::Stop(asked))) => {
                self.asked(Some(&asked), StopCause::Signal, Strength::Graceful, Directly::No)
            }
            Woken::Front(Some(Word::Force(asked))) => {
                self.asked(Some(&asked), StopCause::Signal, Strength::Force, Directly::No)
            }
            Woken::Front(Some(Word::Orphaned)) => {
                self.asked(None, StopCause::ParentGone, Strength::Graceful, Directly::No)
            }
            Woken::Front(Some(Word::Ping)) => {
                // A front that does not listen any more is noticed when it is gone.
                let _ = senses.mouth.say(&Answer::Pong).await;
                Vec::new()
            }
            Woken::Front(Some(Word::Broke(why))) => {
                let failure = Failure::new(Code::Internal, format!("the process that shows this run broke: {why}"));
                self.told.tell(None, Event::Diagnostic((&failure).into()));
                self.front_broke = Some(failure);
                self.asked(None, StopCause::FrontBroke, Strength::Graceful, Directly::No)
            }
            Woken::Front(Some(Word::Bye)) => {
                senses.ear = None;
                Vec::new()
            }
            Woken::Front(Some(Word::Spec(_))) => Vec::new(),
            Woken::Front(None) => {
                senses.ear = None;
                self.asked(None, StopCause::FrontGone, Strength::Graceful, Directly::No)
            }
            Woken::Visitor(word) => self.visited(word, &mut senses.door).await,
            Woken::TimeUp => {
                self.over = None;
                self.asked(None, StopCause::MaxRunTime, Strength::Graceful, Directly::No)
            }
            Woken::Tick => {
                self.tell_progress();
                Vec::new()
            }
        }
    }

    fn tell_progress(&mut self) {
        self.work.tell_waiting(&mut self.told);
        if let Some((place, began)) = &self.at {
            let id = place.id.clone();
            let took = self.told.now().since(*began);
            self.told.progress(&id, took);
        }
    }

    /// Another command asks something of this run.
    async fn visited(&mut self, word: Word, door: &mut Door) -> Vec<Effect> {
        let effects = match word {
            Word::Stop(asked) => self.asked(Some(&asked), StopCause::Command, Strength::Graceful, Directly::No),
            Word::Force(asked) => self.asked(Some(&asked), StopCause::Command, Strength::Force, Directly::No),
            Word::Ping => Vec::new(),
            // The front's words, which nobody else says.
            Word::Spec(_) | Word::Broke(_) | Word::Orphaned | Word::Bye => {
                door.show_out();
                return Vec::new();
            }
        };
        door.answer(&Answer::Pong).await;
        effects
    }

    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::Prepare => self.work.prepare(),
            Effect::Fence(index) => self.work.fence(index),
            Effect::Begin(index) => {
                let place = self.work.place(index);
                self.told.tell(Some(&place.id), place.started());
                self.at = Some((place, self.told.now()));
                self.work.begin(index, &self.told);
            }
            Effect::PassOn(Strength::Graceful) => {
                self.stopper.graceful(self.told.now(), self.work.directly());
            }
            Effect::PassOn(Strength::Force) => {
                self.stopper.force(self.told.now());
            }
            Effect::Close => self.work.close(),
            Effect::Release => self.work.release(&mut self.told),
            Effect::Leave if self.machine.asked() == Some(Strength::Force) => {
                self.work.leave("the run was ended by force");
            }
            Effect::Leave => self.work.leave("dcctl itself broke, and a tool of the run may still be at work"),
            Effect::Finish => {}
        }
    }

    /// What an activity found is told before the end of its step is.
    fn finish_activity(&mut self, done: Done) -> Input {
        let finished = match (&done, self.at.take()) {
            (Done::Step(_, outcome), Some((place, began))) => {
                Some((place.finished(outcome, self.told.now().since(began)), place))
            }
            (
                Done::Prepared(_)
                | Done::Fenced(_)
                | Done::Step(..)
                | Done::Closed(_)
                | Done::Released(..)
                | Done::Left(_),
                at,
            ) => {
                self.at = at;
                None
            }
        };
        let input = self.work.finished(done, &mut self.told);
        if let Some((event, place)) = finished {
            self.told.tell(Some(&place.id), event);
        }
        input
    }

    /// Says the type of the event that it became.
    fn tell_update(&mut self, update: crate::step::Update) -> &'static str {
        if let crate::step::Update::Process { program, update } = &update {
            self.work.program_moved(program, update);
        }
        let event = translate::update(update, self.work.mode());
        let step = self.at.as_ref().map(|(place, _)| place.id.clone());
        let kind = event.type_name();
        self.told.tell(step.as_deref(), event);
        kind
    }

    fn lock_changed(&mut self, change: Change) -> Vec<Effect> {
        // The keeper breaks: who does not have the lock (yet, or any more) cannot lose it.
        if matches!(change, Change::Lost(_)) && self.machine.lock() != Lock::Held {
            return Vec::new();
        }
        let during = self.at.as_ref().map(|(place, _)| place.title.clone());
        match self.work.heed_lock(change, during.as_deref(), &mut self.told) {
            Some(failure) => {
                if self.stopper.now() == crate::process::Stop::None {
                    self.tell_stop(None, StopCause::LockLost, StopManner::Graceful);
                }
                self.machine.advance(Input::LockLost(failure))
            }
            None => Vec::new(),
        }
    }

    /// A request to stop, of any kind and strength.
    fn asked(&mut self, by: Option<&Asked>, cause: StopCause, strength: Strength, directly: Directly) -> Vec<Effect> {
        let effects_before = self.machine.asked();
        let effects = self.machine.advance(Input::Stop(strength));
        let new = self.machine.asked() != effects_before;
        if let Some(asked) = by {
            self.heard.push(asked.signal.clone());
            let effect = match (new, strength) {
                (true, Strength::Graceful) => SignalEffect::Stop,
                (true, Strength::Force) => SignalEffect::Force,
                (false, _) => SignalEffect::Nothing,
            };
            self.told.tell(
                None,
                Event::SignalReceived(event::SignalReceived {
                    signal: asked.signal.clone(),
                    sender_pid: asked.pid,
                    sender_uid: asked.uid,
                    effect,
                }),
            );
        }
        if !new && directly == Directly::Yes && strength == Strength::Graceful {
            // Whoever signals the supervisor signals the tools, too: their own report is waited for a little longer.
            self.stopper.graceful(self.told.now(), directly);
        }
        if new {
            self.work.note_stop(by.map_or(unsigned(cause), |asked| asked.signal.as_str()), strength, directly);
            let manner = if strength == Strength::Force { StopManner::Force } else { StopManner::Graceful };
            self.tell_stop(by, cause, manner);
        }
        effects
    }

    fn tell_stop(&mut self, by: Option<&Asked>, cause: StopCause, manner: StopManner) {
        let budget = self.work.stop_after();
        let event = event::StopRequested {
            cause,
            signals: self.heard.clone(),
            sender_pid: by.and_then(|asked| asked.pid),
            sender_uid: by.and_then(|asked| asked.uid),
            manner,
            budget_ms: millis(budget),
            deadline: Some(crate::clock::rfc3339(self.told.wall() + budget)),
        };
        self.told.tell(None, Event::StopRequested(event));
    }
}

/// What asked for a stop without a signal, as the last will says after "by".
fn unsigned(cause: StopCause) -> &'static str {
    match cause {
        StopCause::Signal => "a signal",
        StopCause::FrontGone => "the end of the process that showed the run",
        StopCause::FrontBroke => "a fault in the process that shows the run",
        StopCause::ParentGone => "the end of the process that had started the run",
        StopCause::Command => "another dcctl command",
        StopCause::LockLost => "the loss of the lock",
        StopCause::SupervisorGone => "the end of the process that owned the run",
        StopCause::MaxRunTime => "the limit of its time",
    }
}

fn is_start(update: &crate::step::Update) -> bool {
    matches!(update, crate::step::Update::Process { update: crate::process::Update::Started { .. }, .. })
}

async fn hear(ear: &mut Option<Ear>) -> Option<Word> {
    match ear {
        Some(ear) => ear.next().await,
        None => std::future::pending().await,
    }
}

/// Waits until this moment of the clock that counts a machine's sleep, too. The runtime's timers do not.
async fn time_up(over: Option<Instant>, told: &Chronicle) {
    let Some(over) = over else { return std::future::pending().await };
    loop {
        let left = over.since(told.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
}

fn progress_ticks() -> Interval {
    let mut ticks = interval(PROGRESS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
