//! Decides what is done to a tool, and when: pure, from what was seen and what time it is.
//!
//! # The life of a tool
//! `Running` until a stop is asked for. Then `Holding`: our signal waits a moment, because a system that signals every
//! process has already interrupted the tool, and a second interrupt costs the state. Then `Stopping`: it was
//! interrupted, by us or by the system, and has until the budget's end. Then `Ending`: the last interrupt was sent.
//! Then `Killing`. Whenever its process ends, what it left behind is listed and ended (`Sweeping`), and only then is
//! it `Done`.
//!
//! Nothing here knows of signals, files or timers: the driver turns them into an [`Input`], carries out each
//! [`Effect`], and comes back no later than [`Machine::due`].

use std::time::Duration;

use crate::clock::Instant;
use crate::process::spec::{Limits, Manner, Sign};
use crate::process::stop::{Directly, Stop};
use crate::process::update::{ToolSignal, Why};

/// From SIGKILL of the tool to SIGKILL of its tree, when its end was not seen yet.
const TREE_AFTER: Duration = Duration::from_secs(1);

/// What the machine is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// The tool said something; what that tells.
    Heard(Option<Sign>),
    /// This is what was asked of the run.
    Asked(Stop),
    /// Time has passed.
    Tick,
    /// The tool's process has ended.
    LeaderEnded,
    /// What it left behind was counted.
    Left {
        /// How many processes live.
        alive: usize,
        /// How many of them were seen for the first time.
        fresh: usize,
    },
}

/// Where the holder of a tool's pipe is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only among processes that are no descendants of the tool any more: orphans.
    Outside,
    /// Among these first; if there are none, among the descendants of its plugins.
    Anywhere,
}

/// How hard a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Force {
    /// SIGTERM.
    Ask,
    /// SIGKILL.
    Kill,
}

/// What the machine wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Record the intent, then signal the tool.
    Interrupt(ToolSignal, Why),
    /// Say that the tool reports an interrupt.
    SayReported,
    /// Record the intent, then SIGKILL the tool.
    Kill(Why),
    /// SIGKILL everything that the tool started.
    KillTree,
    /// End the process that holds the output which the tool waits for: SIGTERM, and SIGKILL if it was asked before.
    Unblock(Reach),
    /// Count what is left behind, and come back with [`Input::Left`] at once and then whenever it may have changed.
    List,
    /// End what is left behind.
    Sweep(Force),
    /// All is over, or is waited for no longer.
    Finish,
}

/// Where in its life the tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nobody asked it to stop.
    Running,
    /// It will be signalled, unless it reports an interrupt before.
    Holding { until: Instant },
    /// It was interrupted and ends by itself, or is not to be signalled.
    Stopping { until: Instant },
    /// Its time is over. `again` is when it gets a second interrupt.
    Ending { again: Option<Instant>, kill_at: Instant },
    /// It was killed, and its end was not seen yet.
    Killing { tree_at: Option<Instant> },
    /// It has ended; what it left behind is being counted.
    Listing,
    /// What it left behind is being ended. `kill_at` is none once it was killed.
    Sweeping { kill_at: Option<Instant> },
    /// Nothing more to do.
    Done,
}

/// The machine of one tool.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    manner: Manner,
    limits: Limits,
    phase: Phase,
    /// When it may no longer run although nobody asked it to stop.
    time_is_up: Option<Instant>,
    /// When dcctl stops waiting; none before a stop or a kill.
    give_up: Option<Instant>,
    /// When the budget is over.
    budget_ends: Option<Instant>,
    sent: u32,
    reported: u32,
    killed: bool,
    why: Option<Why>,
    concluded: bool,
    opened: u32,
    closed: u32,
    heard: Instant,
    /// How often the holder of its output was ended since it was last heard.
    unblocked: u32,
    /// What was done to it before this machine was made.
    before: Before,
}

/// What another process of the run, which has ended, did to a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing.
    Nothing,
    /// It was about to interrupt it: nobody can say whether it did. The tool's own report is waited for, as after a
    /// signal that the system may have sent.
    Intended,
    /// It interrupted it.
    Sent,
    /// It interrupted it for the second time, or was about to: the budget was over.
    SentAgain,
    /// It killed it, or was about to.
    Killed,
}

impl Machine {
    /// A tool that was just started.
    pub(crate) fn new(manner: Manner, limits: Limits, timeout: Option<Duration>, now: Instant) -> Machine {
        Machine {
            manner,
            limits,
            phase: Phase::Running,
            time_is_up: timeout.map(|timeout| now + timeout),
            give_up: None,
            budget_ends: None,
            sent: 0,
            reported: 0,
            killed: false,
            why: None,
            concluded: false,
            opened: 0,
            closed: 0,
            heard: now,
            unblocked: 0,
            before: Before::Nothing,
        }
    }

    /// A tool that another process has looked after until now, and signalled as `before` says.
    pub(crate) fn inherit(manner: Manner, limits: Limits, before: Before, now: Instant) -> (Machine, Vec<Effect>) {
        let mut machine = Machine { before, ..Machine::new(manner, limits, None, now) };
        let effects = match before {
            Before::Nothing | Before::Intended => Vec::new(),
            Before::Sent => {
                machine.sent = 1;
                machine.why = Some(Why::StopRequested);
                Vec::new()
            }
            Before::SentAgain => {
                machine.sent = 2;
                machine.why = Some(Why::BudgetEnded);
                machine.phase = Phase::Ending { again: None, kill_at: now + limits.last_grace };
                Vec::new()
            }
            Before::Killed => machine.kill(Why::BudgetEnded, now),
        };
        (machine, effects)
    }

    /// How often the tool was interrupted by us.
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// How often it said that it was interrupted.
    pub(crate) fn reported(&self) -> u32 {
        self.reported
    }

    /// Whether it was killed.
    pub(crate) fn killed(&self) -> bool {
        self.killed
    }

    /// The strongest reason why it was signalled.
    pub(crate) fn why(&self) -> Option<Why> {
        self.why
    }

    /// Takes one input; says what to do, in this order.
    pub(crate) fn take(&mut self, input: Input, now: Instant) -> Vec<Effect> {
        match input {
            Input::Heard(sign) => self.hear(sign, now),
            Input::Asked(stop) => self.asked(stop, now),
            Input::Tick => self.tick(now),
            Input::LeaderEnded => self.leader_ended(),
            Input::Left { alive, fresh } => self.count(alive, fresh, now),
        }
    }

    /// When [`Input::Tick`] is wanted next; none when only other inputs can change anything.
    pub(crate) fn due(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running => self.time_is_up,
            Phase::Holding { until } | Phase::Stopping { until } => Some(until),
            Phase::Ending { again, kill_at } => Some(again.map_or(kill_at, |again| again.min(kill_at))),
            Phase::Killing { tree_at } => tree_at,
            Phase::Sweeping { kill_at } => kill_at,
            Phase::Listing => None,
            Phase::Done => return None,
        };
        [phase, self.give_up, self.unblock_due()].into_iter().flatten().min()
    }

    fn hear(&mut self, sign: Option<Sign>, now: Instant) -> Vec<Effect> {
        self.heard = now;
        self.unblocked = 0;
        match sign {
            None => {}
            Some(Sign::Concluded) => self.concluded = true,
            Some(Sign::Opened) => self.opened += 1,
            Some(Sign::Closed) => self.closed += 1,
            Some(Sign::Interrupted) => {
                self.reported += 1;
                if self.before == Before::Intended && self.sent == 0 {
                    // What was recorded was done.
                    self.sent = 1;
                    self.why = self.why.max(Some(Why::StopRequested));
                }
                if let (Phase::Holding { .. }, Some(until)) = (self.phase, self.budget_ends) {
                    self.phase = Phase::Stopping { until };
                }
                return vec![Effect::SayReported];
            }
        }
        Vec::new()
    }

    fn asked(&mut self, stop: Stop, now: Instant) -> Vec<Effect> {
        match stop {
            Stop::None => Vec::new(),
            Stop::Graceful { since, directly } => self.stop(since, directly, now),
            Stop::Force { .. } => self.force(now),
        }
    }

    fn stop(&mut self, since: Instant, directly: Directly, now: Instant) -> Vec<Effect> {
        if self.budget_ends.is_some() || self.phase == Phase::Done {
            return Vec::new();
        }
        let ends = since + self.limits.budget;
        self.budget_ends = Some(ends);
        self.give_up_by(ends + self.limits.watchdog);
        if self.phase != Phase::Running {
            return Vec::new();
        }
        let hold = match (self.manner, directly, self.before) {
            (Manner::OpenTofu, Directly::Yes, _) | (_, _, Before::Intended) => self.limits.hold_directly,
            (Manner::OpenTofu | Manner::Helm | Manner::Unsignalled | Manner::Query | Manner::Group, _, _) => {
                self.limits.hold
            }
        };
        // Its time may have begun before this machine did.
        let begins = if self.before == Before::Intended { now } else { since };
        self.phase = match self.manner {
            Manner::Query if self.sent > 0 => Phase::Stopping { until: ends.min(now + self.limits.query_grace) },
            Manner::OpenTofu | Manner::Helm | Manner::Group if self.sent > 0 => Phase::Stopping { until: ends },
            Manner::Unsignalled => Phase::Stopping { until: ends },
            Manner::OpenTofu | Manner::Helm if self.reported > 0 => Phase::Stopping { until: ends },
            Manner::OpenTofu | Manner::Helm | Manner::Query | Manner::Group => Phase::Holding { until: begins + hold },
        };
        self.tick(now)
    }

    fn force(&mut self, now: Instant) -> Vec<Effect> {
        let limits = self.limits;
        match self.phase {
            Phase::Running | Phase::Holding { .. } | Phase::Stopping { .. } => self.end(Why::Forced, now),
            Phase::Ending { again, kill_at } => {
                self.because(Why::Forced);
                let kill_at = kill_at.min(now + limits.last_grace);
                self.phase = Phase::Ending { again, kill_at };
                self.give_up_by(kill_at + limits.sweep_grace);
                Vec::new()
            }
            Phase::Killing { .. } | Phase::Listing => {
                self.because(Why::Forced);
                self.give_up_by(now + limits.sweep_grace);
                Vec::new()
            }
            Phase::Sweeping { kill_at } => {
                self.because(Why::Forced);
                self.give_up_by(now + limits.sweep_grace);
                self.phase = Phase::Sweeping { kill_at: None };
                if kill_at.is_some() { vec![Effect::Sweep(Force::Kill)] } else { Vec::new() }
            }
            Phase::Done => Vec::new(),
        }
    }

    /// Its time is over: the last signal that it can heed, and then SIGKILL.
    fn end(&mut self, why: Why, now: Instant) -> Vec<Effect> {
        let limits = self.limits;
        let was_interrupted = self.sent.max(self.reported) > 0;
        if why == Why::BudgetEnded && matches!(self.manner, Manner::Helm | Manner::Group | Manner::Query) {
            // They had their one signal, and none of them heeds a second.
            return self.kill(why, now);
        }
        let kill_at = now + limits.last_grace;
        // OpenTofu ends within 5 s of its second interrupt and frees its state lock, which SIGKILL does not.
        let again = (self.manner == Manner::OpenTofu && !was_interrupted).then(|| now + limits.second_interrupt);
        self.phase = Phase::Ending { again, kill_at };
        if why == Why::Forced {
            self.give_up_by(kill_at + limits.sweep_grace);
        }
        vec![self.signal(why)]
    }

    fn signal(&mut self, why: Why) -> Effect {
        self.because(why);
        self.sent += 1;
        match self.manner {
            Manner::OpenTofu | Manner::Helm | Manner::Unsignalled | Manner::Query => {
                Effect::Interrupt(ToolSignal::Interrupt, why)
            }
            Manner::Group => Effect::Interrupt(ToolSignal::Terminate, why),
        }
    }

    fn kill(&mut self, why: Why, now: Instant) -> Vec<Effect> {
        self.because(why);
        self.killed = true;
        self.phase = Phase::Killing { tree_at: Some(now + TREE_AFTER) };
        self.give_up_by(now + self.limits.watchdog);
        vec![Effect::Kill(why)]
    }

    fn tick(&mut self, now: Instant) -> Vec<Effect> {
        if self.phase != Phase::Done && self.give_up.is_some_and(|at| now >= at) {
            self.phase = Phase::Done;
            return vec![Effect::Finish];
        }
        match self.phase {
            Phase::Running if self.time_is_up.is_some_and(|at| now >= at) => self.end(Why::TimedOut, now),
            Phase::Holding { until } if now >= until => {
                let effect = self.signal(Why::StopRequested);
                let query = now + self.limits.query_grace;
                let ends = self.budget_ends.unwrap_or(query);
                let until = if self.manner == Manner::Query { ends.min(query) } else { ends };
                self.phase = Phase::Stopping { until };
                vec![effect]
            }
            Phase::Stopping { until } if now >= until => {
                let budget_is_over = self.budget_ends.is_some_and(|ends| now >= ends);
                if budget_is_over { self.end(Why::BudgetEnded, now) } else { self.kill(Why::StopRequested, now) }
            }
            Phase::Ending { kill_at, .. } if now >= kill_at => {
                let why = self.why.unwrap_or(Why::BudgetEnded);
                self.kill(why, now)
            }
            Phase::Ending { again: Some(again), kill_at } if now >= again => {
                self.phase = Phase::Ending { again: None, kill_at };
                let why = self.why.unwrap_or(Why::BudgetEnded);
                vec![self.signal(why)]
            }
            Phase::Killing { tree_at: Some(at) } if now >= at => {
                self.phase = Phase::Killing { tree_at: None };
                vec![Effect::KillTree]
            }
            Phase::Sweeping { kill_at: Some(at) } if now >= at => {
                self.phase = Phase::Sweeping { kill_at: None };
                self.give_up_by(now + self.limits.watchdog);
                vec![Effect::Sweep(Force::Kill)]
            }
            Phase::Running | Phase::Holding { .. } | Phase::Stopping { .. } => self.unblock(now),
            Phase::Ending { .. } | Phase::Killing { .. } | Phase::Listing | Phase::Sweeping { .. } | Phase::Done => {
                Vec::new()
            }
        }
    }

    fn unblock(&mut self, now: Instant) -> Vec<Effect> {
        if self.unblock_due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.unblocked += 1;
        let idle = self.all_closed() && now.since(self.heard) >= self.limits.idle_silence;
        vec![Effect::Unblock(if self.concluded || idle { Reach::Anywhere } else { Reach::Outside })]
    }

    /// When the holder of the tool's output is to be ended, if the tool stays silent until then.
    fn unblock_due(&self) -> Option<Instant> {
        let waits = matches!(self.phase, Phase::Running | Phase::Holding { .. } | Phase::Stopping { .. });
        if self.manner != Manner::OpenTofu || !waits {
            return None;
        }
        let silence = if self.concluded || matches!(self.phase, Phase::Stopping { .. }) {
            self.limits.concluded_silence
        } else if self.all_closed() {
            self.limits.idle_silence
        } else {
            return None;
        };
        Some(self.heard + silence + self.limits.sweep_grace * self.unblocked)
    }

    /// Whether every change that has begun is over.
    fn all_closed(&self) -> bool {
        self.opened > 0 && self.closed >= self.opened
    }

    fn leader_ended(&mut self) -> Vec<Effect> {
        match self.phase {
            Phase::Running
            | Phase::Holding { .. }
            | Phase::Stopping { .. }
            | Phase::Ending { .. }
            | Phase::Killing { .. } => {
                self.phase = Phase::Listing;
                vec![Effect::List]
            }
            Phase::Listing | Phase::Sweeping { .. } | Phase::Done => Vec::new(),
        }
    }

    fn count(&mut self, alive: usize, fresh: usize, now: Instant) -> Vec<Effect> {
        match self.phase {
            Phase::Listing | Phase::Sweeping { .. } if alive == 0 => {
                self.phase = Phase::Done;
                vec![Effect::Finish]
            }
            Phase::Listing => {
                let at_once = self.why.is_some_and(|why| why >= Why::TimedOut);
                self.give_up_by(now + self.limits.sweep_grace + self.limits.watchdog);
                self.phase = Phase::Sweeping { kill_at: (!at_once).then(|| now + self.limits.sweep_grace) };
                vec![Effect::Sweep(if at_once { Force::Kill } else { Force::Ask })]
            }
            Phase::Sweeping { kill_at } if fresh > 0 => {
                vec![Effect::Sweep(if kill_at.is_none() { Force::Kill } else { Force::Ask })]
            }
            Phase::Running
            | Phase::Holding { .. }
            | Phase::Stopping { .. }
            | Phase::Ending { .. }
            | Phase::Killing { .. }
            | Phase::Sweeping { .. }
            | Phase::Done => Vec::new(),
        }
    }

    fn because(&mut self, why: Why) {
        self.why = self.why.max(Some(why));
    }

    fn give_up_by(&mut self, at: Instant) {
        self.give_up = Some(self.give_up.map_or(at, |before| before.min(at)));
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
