//! What a run does next: pure.
//!
//! `(state, input) → effects`. The engine turns what happens into an [`Input`] and does what comes back; it decides
//! nothing. One activity is at work at a time (preparing, a fence, a step, a closing act, the release), and every
//! activity ends with exactly one input.
//!
//! ```text
//! Preparing ─▶ Fencing(n) ─▶ Working(n) ─▶ Fencing(n+1) … ─▶ Closing ─▶ Releasing ─▶ Finished
//!                  └────────────┴── stop, failure, loss ───────┘
//! ```
//!
//! Invariants, each a test: a step begins only after its fence held (once the lock was claimed); no step and no closing
//! act begins after the lock was lost; every way out but force settles where the lock is; there is one end.

use crate::failure::Failure;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Looking at the surroundings.
    Preparing,
    /// Asking whether the lock is still ours, before this step.
    Fencing(usize),
    /// A step is at work.
    Working(usize),
    /// The closing act after a failure: writing down that it failed.
    Closing,
    /// Giving the lock back.
    Releasing,
    /// Everything is over.
    Finished,
}

/// Whether this run has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// It has not asked for it.
    NotTaken,
    /// It asks, or did not get it. Whatever it was told in the end, a claim without a definite answer may land late: the
    /// release has to look, and asks nobody when nothing is in doubt.
    Unsettled,
    /// It did not get it and goes on without it. A late claim is looked for at the end.
    Without,
    /// It holds it.
    Held,
    /// It had it.
    Lost,
}

/// How strongly a stop was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Finish the operation in flight.
    Graceful,
    /// End at once and leave the lock.
    Force,
}

/// How a step ended, as far as the machine needs it.
#[derive(Debug, Clone, PartialEq)]
pub enum StepEnd {
    /// Done, or nothing to do.
    Done,
    /// Done, and the lock is ours from now on.
    Claimed,
    /// The lock was not got, and the run goes on without it.
    Without,
    /// It stopped because it was asked to.
    Stopped {
        /// Every tool ended by itself and every resource that was begun is complete.
        clean: bool,
        /// The addresses whose change was begun and not seen to complete.
        unfinished: Vec<String>,
    },
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
        /// The failure came from work on the cluster, so that a stop which was asked for meanwhile leaves it half done.
        changing: bool,
    },
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The surroundings were looked at.
    Prepared(Result<(), Failure>),
    /// The lock is still ours.
    FenceHeld,
    /// The lock is not ours any more.
    FenceLost(Failure),
    /// The step ended.
    StepEnded(StepEnd),
    /// A stop was asked for.
    Stop(Strength),
    /// The lock was lost while something was at work.
    LockLost(Failure),
    /// The closing act is over.
    Closed,
    /// The lock was given back, or not.
    Released,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Look at the surroundings.
    Prepare,
    /// Ask whether the lock is ours before this step.
    Fence(usize),
    /// Begin this step.
    Begin(usize),
    /// Pass the stop on to whatever is at work.
    PassOn(Strength),
    /// Write down that the run failed.
    Close,
    /// Give the lock back.
    Release,
    /// Stop renewing and leave the lock where it is.
    Leave,
    /// Say the verdict.
    Finish,
}

/// What is left when the program itself breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// Nothing of the run is known to live.
    Nothing,
    /// A tool of the run may live, and nobody watches it any more.
    Tools,
}

/// Everything that bears on the verdict.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ending {
    /// Why the run did not go on.
    pub failure: Option<Failure>,
    /// Why the lock was lost.
    pub lost: Option<Failure>,
    /// The strongest stop that kept the run from finishing.
    pub stop: Option<Strength>,
    /// The stop was not clean.
    pub partial: bool,
    /// The addresses whose change was begun and not seen to complete.
    pub unfinished: Vec<String>,
    /// A step that changes something had begun.
    pub begun: bool,
    /// The front broke, and the run was stopped for that.
    pub broke: Option<Failure>,
}

/// What a run is made of, as far as the machine needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How many steps it has.
    pub steps: usize,
    /// Which of them claims the lock; none in a dry run.
    pub claims: Option<usize>,
    /// What a failure is worth.
    pub failure: OnFailure,
}

/// What is done about a failure, once the lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// It is written down on the cluster.
    WriteDown,
    /// Nothing.
    JustEnd,
}

/// The machine of one run.
#[derive(Debug, Clone)]
pub struct Machine {
    shape: Shape,
    state: State,
    lock: Lock,
    asked: Option<Strength>,
    ending: Ending,
}

impl Machine {
    /// A run of this shape, and what it does first.
    pub fn new(shape: Shape) -> (Machine, Vec<Effect>) {
        let machine =
            Machine { shape, state: State::Preparing, lock: Lock::NotTaken, asked: None, ending: Ending::default() };
        (machine, vec![Effect::Prepare])
    }

    /// Where the run is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether the run has the lock.
    pub fn lock(&self) -> Lock {
        self.lock
    }

    /// The strongest stop that was asked for.
    pub fn asked(&self) -> Option<Strength> {
        self.asked
    }

    /// What is known about the end so far.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Takes one input and says what to do.
    pub fn advance(&mut self, input: Input) -> Vec<Effect> {
        match (self.state, input) {
            (_, Input::Stop(strength)) => self.stop(strength),
            (_, Input::LockLost(failure)) => self.lose(failure),
            (State::Preparing, Input::Prepared(Ok(()))) => self.next(0),
            // What was being looked at when a stop came fails for that reason; it says nothing about the surroundings.
            (State::Preparing, Input::Prepared(Err(_))) if self.asked.is_some() => self.next(0),
            (State::Preparing, Input::Prepared(Err(failure))) => self.fail(failure),
            (State::Fencing(step), Input::FenceHeld) => self.begin(step),
            (State::Fencing(_), Input::FenceLost(failure)) => {
                let _ = self.lose(failure);
                self.give_back()
            }
            (State::Working(step), Input::StepEnded(end)) => self.ended(step, end),
            (State::Closing, Input::Closed) => self.give_back(),
            (State::Releasing, Input::Released) => self.finish(),
            (state, input) => unreachable!("{input:?} cannot come in {state:?}: one activity is at work at a time"),
        }
    }

    /// The program itself broke in the middle of an activity. Nothing is done any more but to give the lock back, if
    /// nothing of the run lives. A claim that was under way is looked for like any other.
    pub fn broke(&mut self, failure: Failure, remains: Remains) -> Vec<Effect> {
        self.ending.failure = Some(failure);
        match (self.state, self.lock, remains) {
            // It broke in giving the lock back, which is not tried again.
            (State::Releasing | State::Finished, ..)
            | (_, Lock::NotTaken, _)
            | (_, Lock::Without | Lock::Lost, Remains::Tools) => self.finish(),
            (_, Lock::Held | Lock::Without | Lock::Unsettled | Lock::Lost, Remains::Nothing) => {
                self.state = State::Releasing;
                vec![Effect::Release]
            }
            (_, Lock::Held | Lock::Unsettled, Remains::Tools) => {
                self.state = State::Releasing;
                vec![Effect::Leave]
            }
        }
    }

    fn next(&mut self, step: usize) -> Vec<Effect> {
        // A stop that comes after the last step has ended changes nothing: there is nothing left to stop.
        if step == self.shape.steps || self.ending.lost.is_some() {
            return self.give_back();
        }
        if let Some(strength) = self.asked {
            self.ending.stop = Some(strength);
            return self.give_back();
        }
        if self.lock == Lock::Held {
            self.state = State::Fencing(step);
            vec![Effect::Fence(step)]
        } else {
            self.begin(step)
        }
    }

    fn begin(&mut self, step: usize) -> Vec<Effect> {
        if self.asked.is_some() || self.ending.lost.is_some() {
            return self.next(step);
        }
        if self.shape.claims == Some(step) {
            self.lock = Lock::Unsettled;
        }
        self.state = State::Working(step);
        vec![Effect::Begin(step)]
    }

    fn ended(&mut self, step: usize, end: StepEnd) -> Vec<Effect> {
        match end {
            StepEnd::Done => self.next(step + 1),
            StepEnd::Claimed => {
                self.lock = Lock::Held;
                self.next(step + 1)
            }
            StepEnd::Without => {
                self.lock = Lock::Without;
                self.next(step + 1)
            }
            StepEnd::Stopped { clean, unfinished } => {
                self.ending.stop = self.asked.or(self.ending.stop);
                self.ending.partial |= !clean;
                self.ending.unfinished.extend(unfinished);
                self.give_back()
            }
            StepEnd::Failed { failure, changing } => {
                if self.asked == Some(Strength::Force) || (self.asked.is_some() && changing) {
                    self.ending.stop = self.asked;
                    self.ending.partial |= changing;
                }
                self.fail(failure)
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Vec<Effect> {
        self.ending.failure = Some(failure);
        let closes = self.shape.failure == OnFailure::WriteDown && matches!(self.lock, Lock::Held | Lock::Without);
        if closes && self.ending.stop.is_none() && self.asked != Some(Strength::Force) {
            self.state = State::Closing;
            return vec![Effect::Close];
        }
        self.give_back()
    }

    /// Every way out goes through here: the lock is given back unless it was never asked for, or force was. A lock that was
    /// lost is left alone, but for an earlier claim that had no answer and lands late.
    fn give_back(&mut self) -> Vec<Effect> {
        match self.lock {
            Lock::NotTaken => self.finish(),
            Lock::Held if self.ending.stop == Some(Strength::Force) => {
                self.state = State::Releasing;
                vec![Effect::Leave]
            }
            Lock::Held | Lock::Without | Lock::Unsettled | Lock::Lost => {
                self.state = State::Releasing;
                vec![Effect::Release]
            }
        }
    }

    fn finish(&mut self) -> Vec<Effect> {
        self.state = State::Finished;
        vec![Effect::Finish]
    }

    fn stop(&mut self, strength: Strength) -> Vec<Effect> {
        if self.asked >= Some(strength) {
            return Vec::new();
        }
        self.asked = Some(strength);
        match self.state {
            State::Working(_) | State::Preparing | State::Fencing(_) => vec![Effect::PassOn(strength)],
            // A closing act and a release are one or two requests with limits of their own, and are finished: a
            // release that was cut off would leave nobody knowing where the lock is.
            State::Closing | State::Releasing | State::Finished => Vec::new(),
        }
    }

    fn lose(&mut self, failure: Failure) -> Vec<Effect> {
        if self.lock != Lock::Held {
            return Vec::new();
        }
        self.lock = Lock::Lost;
        self.ending.lost = Some(failure);
        match self.state {
            State::Working(_) if self.asked.is_none() => vec![Effect::PassOn(Strength::Graceful)],
            State::Working(_)
            | State::Preparing
            | State::Fencing(_)
            | State::Closing
            | State::Releasing
            | State::Finished => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
