//! A whole run for reports that are made afterwards: what its events say, by step, with the times.
//!
//! It keeps what can be counted on few pages. What tools print is not kept here: a report that shows it takes it as it
//! comes by.

mod thing;
pub(crate) mod words;

use std::time::Duration;

use jiff::Timestamp;

use crate::event::{
    Diagnostic, Event, ProcessFinished, RunFinished, RunStarted, Seen, SignalReceived, StepFinished, StopRequested,
};

pub(crate) use crate::report::account::thing::{Thing, ThingState, Things};
pub(crate) use crate::report::account::words::{Mood, Verdict};

/// What is known of a run.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) started: Option<RunStarted>,
    pub(crate) steps: Vec<Step>,
    pub(crate) lock: Lock,
    pub(crate) stops: Vec<(Duration, StopRequested)>,
    pub(crate) signals: Vec<(Duration, SignalReceived)>,
    pub(crate) diagnostics: Vec<Said>,
    pub(crate) verdict: Option<RunFinished>,
    pub(crate) last: Option<Last>,
    at_work: Option<usize>,
}

/// The last event that was seen.
#[derive(Debug, Clone)]
pub(crate) struct Last {
    pub(crate) at: Duration,
    pub(crate) time: Timestamp,
    pub(crate) msg: String,
    pub(crate) run: String,
}

/// The life of the lock.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    pub(crate) claimed: Option<Duration>,
    pub(crate) holder: Option<String>,
    pub(crate) renewed: Vec<Duration>,
    pub(crate) failed: Vec<Duration>,
    pub(crate) blocked: Option<Duration>,
    pub(crate) ended: Option<(Duration, LockFate)>,
}

/// How the lock left this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockFate {
    Released,
    Left,
    Lost,
}

/// What a diagnostic said, and where.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) seq: u64,
    pub(crate) at: Duration,
    pub(crate) step: Option<usize>,
    pub(crate) diagnostic: Diagnostic,
}

/// What is known of a step.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) begun: Option<Duration>,
    pub(crate) ended: Option<(Duration, StepFinished)>,
    pub(crate) things: Things,
    pub(crate) programs: Vec<Program>,
}

/// A program that a step ran.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) pid: Option<u32>,
    pub(crate) begun: Duration,
    pub(crate) ended: Option<(Duration, ProcessFinished)>,
    pub(crate) marks: Vec<(Duration, Mark, String)>,
}

/// What was done to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Interrupted,
    Killed,
}

impl Account {
    /// Takes the next event.
    pub(crate) fn take(&mut self, seen: &Seen) {
        let Some(event) = &seen.event else { return self.note_last(seen) };
        self.note_last(seen);
        match event {
            Event::RunStarted(started) => self.started = Some(started.clone()),
            Event::RunPlanned(planned) => {
                for step in &planned.steps {
                    self.place(&step.id, &step.title);
                }
            }
            Event::RunFinished(finished) => self.verdict = Some(finished.clone()),
            Event::StepStarted(started) => {
                let place = self.place(&started.id, &started.title);
                self.steps[place].begun = Some(seen.elapsed);
                self.at_work = Some(place);
            }
            Event::StepFinished(finished) => {
                let place = self.place(&finished.id, &finished.title);
                self.steps[place].ended = Some((seen.elapsed, finished.clone()));
                self.at_work = None;
            }
            Event::StopRequested(stop) => self.stops.push((seen.elapsed, stop.clone())),
            Event::SignalReceived(signal) => self.signals.push((seen.elapsed, signal.clone())),
            Event::Diagnostic(diagnostic) => {
                let (step, diagnostic) = (self.step_of(seen), diagnostic.clone());
                self.diagnostics.push(Said { seq: seen.seq, at: seen.elapsed, step, diagnostic });
            }
            _ if self.lock.take(seen.elapsed, event) => {}
            _ => {
                if let Some(place) = self.step_of(seen) {
                    self.steps[place].take(seen.elapsed, event);
                }
            }
        }
    }

    /// How long the run was seen to take.
    pub(crate) fn length(&self) -> Duration {
        self.last.as_ref().map_or(Duration::ZERO, |last| last.at)
    }

    /// When the run began, by the wall clock of its machine.
    pub(crate) fn began(&self) -> Option<Timestamp> {
        self.last.as_ref().and_then(|last| last.time.checked_sub(jiff::SignedDuration::try_from(last.at).ok()?).ok())
    }

    /// `bootstrap demo`.
    pub(crate) fn subject(&self) -> String {
        if let Some(verdict) = &self.verdict {
            return verdict.subject.clone();
        }
        let Some(started) = &self.started else { return "a run".to_owned() };
        let of = started.instance.as_ref().or(started.program.as_ref());
        of.map_or_else(|| started.command.clone(), |of| format!("{} {of}", started.command))
    }

    /// Every thing with its step, those that need a look first.
    pub(crate) fn things(&self) -> Vec<(&Step, &Thing)> {
        let mut all: Vec<(&Step, &Thing)> =
            self.steps.iter().flat_map(|step| step.things.iter().map(move |thing| (step, thing))).collect();
        all.sort_by_key(|(_, thing)| thing.state.rank());
        all
    }

    fn note_last(&mut self, seen: &Seen) {
        let at = self.length().max(seen.elapsed);
        self.last = Some(Last { at, time: seen.time, msg: seen.msg.clone(), run: seen.run.clone() });
    }

    /// Where the step is in the list; a step that was never planned is put at the end.
    fn place(&mut self, id: &str, title: &str) -> usize {
        self.steps.iter().position(|step| step.id == id).unwrap_or_else(|| {
            self.steps.push(Step {
                id: id.to_owned(),
                title: title.to_owned(),
                begun: None,
                ended: None,
                things: Things::default(),
                programs: Vec::new(),
            });
            self.steps.len() - 1
        })
    }

    fn step_of(&self, seen: &Seen) -> Option<usize> {
        let named = seen.step.as_ref().and_then(|id| self.steps.iter().position(|step| step.id == *id));
        named.or(self.at_work)
    }
}

impl Lock {
    /// Takes an event about the lock; says whether it was one.
    fn take(&mut self, at: Duration, event: &Event) -> bool {
        match event {
            Event::LockClaimed(claimed) => {
                self.claimed = Some(at);
                self.holder = Some(claimed.holder.clone());
            }
            Event::LockRenewed(_) => self.renewed.push(at),
            Event::LockRenewalFailed(_) => self.failed.push(at),
            Event::LockBlocked(_) => self.blocked = self.blocked.or(Some(at)),
            Event::LockReleased(_) => self.ended = Some((at, LockFate::Released)),
            Event::LockLeft(_) => self.ended = Some((at, LockFate::Left)),
            Event::LockLost(_) => self.ended = Some((at, LockFate::Lost)),
            Event::LockWaiting(_) | Event::LockReleasing(_) | Event::LockObserved(_) => {}
            _ => return false,
        }
        true
    }
}

impl Step {
    fn take(&mut self, at: Duration, event: &Event) {
        match event {
            Event::ProcessStarted(started) => {
                let (name, pid) = (started.program.clone(), Some(started.pid));
                self.things.begin_check(&name);
                self.programs.push(Program { name, pid, begun: at, ended: None, marks: Vec::new() });
            }
            Event::ProcessFinished(finished) => {
                let took = Duration::from_millis(finished.duration_ms);
                self.things.end_check(&finished.program, finished.exit_code, took);
                let begun = at.saturating_sub(took);
                let program = self.program(&finished.program, finished.pid, begun);
                program.ended = Some((at, finished.clone()));
            }
            Event::ProcessInterrupted(interrupted) => {
                let said = format!("{}: {}", interrupted.signal, interrupted.why);
                self.program(&interrupted.program, Some(interrupted.pid), at).marks.push((at, Mark::Interrupted, said));
            }
            Event::ProcessKilled(killed) => {
                let said = format!("killed: {}", killed.why);
                self.program(&killed.program, Some(killed.pid), at).marks.push((at, Mark::Killed, said));
            }
            other => self.things.take(other),
        }
    }

    /// The program that goes on; one whose start was not seen begins here.
    fn program(&mut self, name: &str, pid: Option<u32>, begun: Duration) -> &mut Program {
        let known = |program: &Program| program.ended.is_none() && program.name == name;
        let place = self.programs.iter().rposition(known).unwrap_or_else(|| {
            self.programs.push(Program { name: name.to_owned(), pid, begun, ended: None, marks: Vec::new() });
            self.programs.len() - 1
        });
        &mut self.programs[place]
    }
}
