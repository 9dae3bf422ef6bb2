//! What a journal without a verdict tells of its run: what was at work, what had been said of it, and how far the lock
//! had come. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Instant;
use crate::event::{self, BusyManner, Event, LockEnd, Seen, StepOutcome, StopManner};
use crate::lock::Estate;
use crate::pipeline::Action;
use crate::process;
use crate::run::spec::{Mode, Spec};
use crate::run::tally::Tally;
use crate::step::Update;

/// The longest time between the request that won the lock and the first word of it.
const CLAIMING: Duration = Duration::from_secs(10);

/// What is known of a supervisor that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    /// Its process.
    pub pid: u32,
    /// Whether it had said that it has the spec. Before that it asks nobody for anything.
    pub hello: bool,
}

/// How far the lock had come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lock {
    /// It was never asked for, or somebody else had it.
    Never,
    /// The run went on without it. A claim of its own may still be on its way when this says so.
    Without { claim_in_doubt: bool },
    /// It was asked for.
    Asked,
    /// It was held; the last renewal that came through was sent then.
    Held { uid: String, renewed_at: Instant },
    /// Nothing was left to do but to give it back, and that may have been done.
    Returning,
    /// It was given back.
    Released,
    /// It was lost, and this is whom the Lease named then.
    Lost { holder: Option<String> },
    /// It was left on purpose.
    Left,
}

/// A supervisor that was killed while it asked for the lock, or while it gave it back, left no word of the answer.
impl Lock {
    fn claimed(claimed: event::LockClaimed, at: Instant) -> Lock {
        let before = Duration::from_millis(claimed.waited_ms).min(CLAIMING);
        Lock::Held { uid: claimed.uid, renewed_at: at - before }
    }

    fn renew(&mut self, renewed: &event::LockRenewed, at: Instant) {
        if let Lock::Held { renewed_at, .. } = self {
            let took = Duration::from_millis(renewed.took_ms.saturating_add(1));
            *renewed_at = at - took;
        }
    }

    fn blocked(manner: BusyManner) -> Lock {
        match manner {
            BusyManner::Refuses => Lock::Never,
            BusyManner::Continues => Lock::Without { claim_in_doubt: false },
            // It claims as soon as it may.
            BusyManner::Waits => Lock::Asked,
        }
    }

    /// Where the lock is, as far as is told, and whom the Lease names.
    pub(super) fn end(&self, ours: &str) -> (LockEnd, Option<String>) {
        match self {
            Lock::Never => (LockEnd::NeverTaken, None),
            Lock::Without { .. } => (LockEnd::NotHeld, None),
            Lock::Asked | Lock::Returning => (LockEnd::Unknown, Some(ours.to_owned())),
            Lock::Held { .. } | Lock::Left => (LockEnd::Left, Some(ours.to_owned())),
            Lock::Released => (LockEnd::Released, None),
            Lock::Lost { holder } => (LockEnd::Lost, holder.clone()),
        }
    }

    /// What there is to go on with; none when there is nothing.
    pub(super) fn estate(&self) -> Option<Estate> {
        match self {
            Lock::Asked | Lock::Without { claim_in_doubt: true } => Some(Estate::Asked),
            Lock::Held { uid, renewed_at } => Some(Estate::Held { uid: uid.clone(), renewed_at: *renewed_at }),
            Lock::Returning => Some(Estate::Returning),
            Lock::Never | Lock::Without { claim_in_doubt: false } | Lock::Released | Lock::Lost { .. } | Lock::Left => {
                None
            }
        }
    }
}

/// How much of what a program did was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Lines of its two outputs.
    lines: [u64; 2],
    /// Lines that were dropped: of which output, nobody said.
    dropped: u64,
    resources: u64,
    diagnostics: u64,
    notes: u64,
    reported: u64,
    pub(super) interrupted: u32,
    pub(super) ended: bool,
}

impl Told {
    /// Whether this was told already. What a program did is gone through again from its beginning, in the same order.
    pub(super) fn has(&mut self, update: &Update) -> bool {
        let count = match update {
            Update::Process { update: process::Update::Line { stream, .. }, .. } => {
                let lines = &mut self.lines[usize::from(*stream == process::Stream::Stderr)];
                if *lines > 0 { lines } else { &mut self.dropped }
            }
            Update::Process { update: process::Update::InterruptReported { .. }, .. } => &mut self.reported,
            Update::Process { update: process::Update::Finished { .. }, .. } => return self.ended,
            Update::Resource { .. } => &mut self.resources,
            Update::Diagnostic { .. } => &mut self.diagnostics,
            Update::Note(_) => &mut self.notes,
            Update::Process { .. } | Update::Object { .. } | Update::Waiting { .. } | Update::Ready { .. } => {
                return false;
            }
        };
        let told = *count > 0;
        *count = count.saturating_sub(1);
        told
    }
}

/// A step that has begun and not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AtWork {
    /// Its place in the plan, from 0.
    pub(super) index: usize,
    /// Its id.
    pub(super) id: String,
    /// When it began.
    pub(super) since: Instant,
}

/// How the run had been asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopping {
    /// When that was asked first.
    pub(super) since: Instant,
    /// The strongest manner.
    pub(super) manner: StopManner,
}

/// What a journal without a verdict tells.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) next_seq: u64,
    pub(super) holder: Option<String>,
    pub(super) lock: Lock,
    /// The programs that were started and whose end nobody told, with their processes.
    pub(super) programs: BTreeMap<String, u32>,
    /// How much was told of each program, the last one of its name.
    pub(super) told: BTreeMap<String, Told>,
    pub(super) step: Option<AtWork>,
    pub(super) stopping: Option<Stopping>,
    pub(super) tally: Tally,
    speaks: Option<String>,
    /// The last step of the plan was begun: that of a command, where the run is for one.
    last_begun: bool,
    /// Lines of it are missing: somebody cut the journal short, or its disk did not take them.
    is_torn: bool,
}

impl Remains {
    /// A journal without a word is that of a supervisor that may have got as far as to ask for the lock before the disk
    /// took its first line.
    pub(super) fn of_nothing(spec: &Spec, gone: Gone) -> Remains {
        let remains = Remains::of("", spec.began);
        match (spec.mode, gone.hello) {
            (Mode::Act, true) => {
                Remains { lock: Lock::Asked, holder: Some(spec.holder(gone.pid).to_string()), ..remains }
            }
            (Mode::Act, false) | (Mode::DryRun, _) => remains,
        }
    }

    /// Reads all that is there. `began` is when the run did.
    pub(super) fn of(text: &str, began: Instant) -> Remains {
        let mut remains = Remains {
            next_seq: 0,
            holder: None,
            lock: Lock::Never,
            programs: BTreeMap::new(),
            told: BTreeMap::new(),
            step: None,
            stopping: None,
            tally: Tally::default(),
            speaks: None,
            last_begun: false,
            is_torn: false,
        };
        for line in text.lines() {
            if let Some(output) = event::spoken(line) {
                remains.count(output.seq);
                remains.spoke(&output.program, output.stream);
                continue;
            }
            let Ok(seen) = Seen::read(line) else { continue };
            remains.count(seen.seq);
            if let Some(event) = seen.event {
                let at = began + seen.elapsed;
                remains.tally.take(&event, at);
                remains.take(event, at);
            }
        }
        remains
    }

    /// The next line of the journal has this number.
    fn count(&mut self, seq: u64) {
        self.is_torn |= seq != self.next_seq;
        self.next_seq = seq.saturating_add(1);
    }

    /// Of a journal whose lines are missing it cannot be told that the lock was never asked for.
    pub(super) fn doubt(&mut self, mode: Mode) {
        if self.is_torn && mode == Mode::Act && self.lock == Lock::Never {
            self.lock = Lock::Asked;
        }
    }

    /// Whether the command of a run may have been started. Call it once all that was found of it is known.
    pub(super) fn command_begun(&self) -> bool {
        self.is_torn || self.last_begun || !self.told.is_empty() || !self.programs.is_empty()
    }

    /// A program printed a line.
    fn spoke(&mut self, program: &str, stream: event::Stream) {
        let line = usize::from(stream == event::Stream::Stderr);
        match self.told.get_mut(program) {
            Some(told) => told.lines[line] += 1,
            None => self.told.entry(program.to_owned()).or_default().lines[line] += 1,
        }
    }

    /// What was told of the program that spoke last.
    fn of_speaker(&mut self) -> Option<&mut Told> {
        self.told.get_mut(self.speaks.as_ref()?)
    }

    fn take(&mut self, event: Event, at: Instant) {
        match event {
            Event::RunStarted(started) => self.holder = started.holder,
            Event::StepStarted(started) => self.step_started(&started, at),
            Event::StepFinished(finished) => self.step_finished(&finished),
            Event::LockClaimed(claimed) => self.lock = Lock::claimed(claimed, at),
            Event::LockRenewed(renewed) => self.lock.renew(&renewed, at),
            Event::LockBlocked(blocked) => self.lock = Lock::blocked(blocked.manner),
            Event::LockReleasing(_) => self.lock = Lock::Returning,
            Event::LockReleased(_) => self.lock = Lock::Released,
            Event::LockLost(lost) => self.lock = Lock::Lost { holder: lost.holder },
            Event::LockLeft(_) => self.lock = Lock::Left,
            // Who only looks at the lock claims none.
            Event::LockObserved(_) => self.lock = Lock::Never,
            Event::ProcessStarted(started) => {
                self.told.insert(started.program.clone(), Told::default());
                self.speaks = Some(started.program.clone());
                self.programs.insert(started.program, started.pid);
            }
            Event::ProcessFinished(finished) => {
                self.programs.remove(&finished.program);
                self.told.entry(finished.program).or_default().ended = true;
            }
            Event::ProcessOutput(output) => self.spoke(&output.program, output.stream),
            Event::OutputDropped(dropped) => {
                self.of_speaker().into_iter().for_each(|told| told.dropped += dropped.lines);
            }
            Event::ProcessInterrupted(sent) => self.told.entry(sent.program).or_default().interrupted += 1,
            Event::ProcessInterruptReported(reported) => {
                self.told.entry(reported.program).or_default().reported += 1;
            }
            Event::ResourcePlanned(_)
            | Event::ResourceStarted(_)
            | Event::ResourceProgressed(_)
            | Event::ResourceCompleted(_)
            | Event::ResourceFailed(_) => self.of_speaker().into_iter().for_each(|told| told.resources += 1),
            Event::Diagnostic(_) => self.of_speaker().into_iter().for_each(|told| told.diagnostics += 1),
            Event::NoteMade(_) => self.of_speaker().into_iter().for_each(|told| told.notes += 1),
            Event::StopRequested(asked) => {
                let since = self.stopping.map_or(at, |before| before.since);
                self.stopping = Some(Stopping { since, manner: asked.manner });
            }
            Event::RunPlanned(_)
            | Event::RunFinished(_)
            | Event::StepProgressed(_)
            | Event::LockWaiting(_)
            | Event::LockRenewalFailed(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::ObjectApplied(_)
            | Event::ObjectWaiting(_)
            | Event::ObjectReady(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::SignalReceived(_)
            | Event::ReportFailed(_) => {}
        }
    }

    fn step_started(&mut self, started: &event::StepStarted, at: Instant) {
        let index = usize::try_from(started.index.saturating_sub(1)).unwrap_or_default();
        self.last_begun = started.index >= started.total;
        self.step = Some(AtWork { index, id: started.id.clone(), since: at });
        self.speaks = None;
        if started.id == Action::ClaimCluster.id() {
            self.lock = Lock::Asked;
        }
    }

    /// After the last step, and after one that did not end well, what is left is the release. Its intent is written
    /// down first, but no disk holds it up for long.
    fn step_finished(&mut self, finished: &event::StepFinished) {
        self.step = None;
        self.speaks = None;
        let well = matches!(finished.outcome, StepOutcome::Done | StepOutcome::Nothing);
        let over = !well || finished.index == finished.total;
        self.lock = match std::mem::replace(&mut self.lock, Lock::Never) {
            Lock::Held { .. } if over => Lock::Returning,
            // It could not be had, and the run goes on without it.
            Lock::Asked if well => Lock::Without { claim_in_doubt: true },
            lock => lock,
        };
    }

    /// What is known of the tools, for finding them.
    pub(super) fn heard(&self) -> process::Heard {
        let interrupted = self.told.iter().filter(|(_, told)| told.interrupted > 0);
        process::Heard {
            at_work: self.programs.values().copied().collect(),
            interrupted: interrupted.map(|(program, told)| (program.clone(), told.interrupted)).collect(),
        }
    }
}

#[cfg(test)]
#[path = "remains_tests.rs"]
mod tests;
