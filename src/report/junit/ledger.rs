//! What the events of a run have said so far, kept by step.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::event::{
    Diagnostic, Event, LockBlocked, LockEnd, LockLeft, LockLost, LockObserved, ObjectChange, ProcessFinished,
    RunFinished, RunPlanned, Seen, StepFinished, StopRequested,
};
use crate::report::output::{PieceEnd, Tail};
use crate::report::sanitise::LONGEST_OUTPUT;

/// The step that claims the cluster's lock.
pub(super) const CLAIM: &str = "claim-the-cluster";

/// What the format wants where the host is not known: whoever reads a journal may be on another one.
const UNKNOWN_HOST: &str = "localhost";

/// Programs with such a name are checks of their own.
const VERIFY: &str = "verify: ";

/// Everything that a report is made from.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) command: String,
    pub(super) run: String,
    pub(super) run_dir: Option<String>,
    pub(super) host: String,
    pub(super) started: Timestamp,
    pub(super) dry_run: bool,
    pub(super) steps: Vec<Step>,
    pub(super) lock: Lock,
    pub(super) stop: Option<StopRequested>,
    /// Diagnostics that belong to no step.
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) verdict: Option<RunFinished>,
    at_work: Option<usize>,
}

/// What is known of the lock.
#[derive(Debug, Default)]
pub(super) struct Lock {
    pub(super) claimed: Option<Duration>,
    pub(super) blocked: Option<LockBlocked>,
    pub(super) observed: Option<LockObserved>,
    pub(super) released: Option<Duration>,
    pub(super) lost: Option<LockLost>,
    pub(super) left: Option<LockLeft>,
}

/// What is known of a step.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) begun: Option<Duration>,
    pub(super) ended: Option<StepFinished>,
    pub(super) things: Vec<Thing>,
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) output: Tail,
    /// Where each thing is in `things`, by name.
    places: HashMap<String, usize>,
}

/// A resource, an object or a check that a step reports on.
#[derive(Debug, Clone)]
pub(super) struct Thing {
    /// An address of OpenTofu, `Kind/namespace/name`, or the name of a check.
    pub(super) name: String,
    /// The address that diagnostics use for it.
    pub(super) state: ThingState,
}

/// Where in its life a thing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ThingState {
    /// It is in the plan.
    Planned { action: String },
    /// Its change has begun, and nobody has seen its end.
    Started { action: String },
    /// It is as it should be.
    Done { took: Duration },
    /// It would be changed: this is a dry run.
    Would { change: ObjectChange },
    /// It went wrong.
    Failed { action: String, took: Duration },
    /// It is not ready.
    Waiting { why: String },
}

impl Ledger {
    /// Begins with the first event, whatever it is.
    pub(super) fn new(first: &Seen) -> Ledger {
        Ledger {
            command: "run".to_owned(),
            run: first.run.clone(),
            run_dir: None,
            host: UNKNOWN_HOST.to_owned(),
            started: first.time,
            dry_run: false,
            steps: Vec::new(),
            lock: Lock::default(),
            stop: None,
            diagnostics: Vec::new(),
            verdict: None,
            at_work: None,
        }
    }

    /// Takes the next event.
    pub(super) fn take(&mut self, seen: &Seen) {
        let Some(event) = &seen.event else { return };
        match event {
            Event::RunStarted(started) => {
                self.command.clone_from(&started.command);
                self.run_dir.clone_from(&started.run_dir);
                self.dry_run = started.dry_run;
                if let Some(host) = started.holder.as_deref().and_then(host_of) {
                    host.clone_into(&mut self.host);
                }
            }
            Event::RunPlanned(planned) => self.plan(planned),
            Event::RunFinished(finished) => self.verdict = Some(finished.clone()),
            Event::StepStarted(started) => {
                let place = self.place(&started.id, &started.title);
                self.steps[place].begun = Some(seen.elapsed);
                self.at_work = Some(place);
            }
            Event::StepFinished(finished) => {
                let place = self.place(&finished.id, &finished.title);
                self.steps[place].ended = Some(finished.clone());
                self.at_work = None;
            }
            Event::LockClaimed(claimed) => self.lock.claimed = Some(Duration::from_millis(claimed.waited_ms)),
            Event::LockBlocked(blocked) => self.lock.blocked = Some(blocked.clone()),
            Event::LockObserved(observed) => self.lock.observed = Some(observed.clone()),
            Event::LockReleased(released) => self.lock.released = Some(Duration::from_millis(released.took_ms)),
            Event::LockLost(lost) => self.lock.lost = Some(lost.clone()),
            Event::LockLeft(left) => self.lock.left = Some(left.clone()),
            Event::StopRequested(stop) => self.stop = Some(stop.clone()),
            Event::Diagnostic(diagnostic) => match self.step_of(seen) {
                Some(step) => step.diagnostics.push(diagnostic.clone()),
                None => self.diagnostics.push(diagnostic.clone()),
            },
            Event::LockRenewed(_)
            | Event::LockRenewalFailed(_)
            | Event::LockWaiting(_)
            | Event::LockReleasing(_)
            | Event::StepProgressed(_)
            | Event::OutputDropped(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::SignalReceived(_)
            | Event::NoteMade(_)
            | Event::ReportFailed(_) => {}
            Event::ProcessStarted(_)
            | Event::ProcessFinished(_)
            | Event::ProcessInterrupted(_)
            | Event::ProcessInterruptReported(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::ProcessOutput(_)
            | Event::ObjectApplied(_)
            | Event::ObjectWaiting(_)
            | Event::ObjectReady(_)
            | Event::ResourcePlanned(_)
            | Event::ResourceStarted(_)
            | Event::ResourceProgressed(_)
            | Event::ResourceCompleted(_)
            | Event::ResourceFailed(_) => {
                if let Some(step) = self.step_of(seen) {
                    step.take(event);
                }
            }
        }
    }

    /// Where the lock is, as far as the verdict says.
    pub(super) fn lock_end(&self) -> Option<LockEnd> {
        self.verdict.as_ref().map(|verdict| verdict.lock)
    }

    fn plan(&mut self, planned: &RunPlanned) {
        for step in &planned.steps {
            self.place(&step.id, &step.title);
        }
    }

    /// Where the step is in the list; a step that was never planned is put at the end.
    fn place(&mut self, id: &str, title: &str) -> usize {
        self.steps.iter().position(|step| step.id == id).unwrap_or_else(|| {
            self.steps.push(Step::new(id, title));
            self.steps.len() - 1
        })
    }

    fn step_of(&mut self, seen: &Seen) -> Option<&mut Step> {
        let named = seen.step.as_ref().and_then(|id| self.steps.iter().position(|step| step.id == *id));
        self.steps.get_mut(named.or(self.at_work)?)
    }
}

impl Step {
    fn new(id: &str, title: &str) -> Step {
        Step {
            id: id.to_owned(),
            title: title.to_owned(),
            begun: None,
            ended: None,
            things: Vec::new(),
            diagnostics: Vec::new(),
            output: Tail::new(LONGEST_OUTPUT - 100),
            places: HashMap::new(),
        }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::ProcessStarted(started) if started.program.starts_with(VERIFY) => {
                self.set(&started.program, ThingState::Started { action: "verify".to_owned() });
            }
            Event::ProcessFinished(finished) => self.finish(finished),
            Event::ProcessOutput(output) => self.output.push(&output.text, PieceEnd::of(output)),
            Event::ObjectApplied(applied) => {
                let state = if applied.dry_run {
                    ThingState::Would { change: applied.action }
                } else {
                    ThingState::Done { took: Duration::ZERO }
                };
                self.set(&object(&applied.kind, applied.namespace.as_deref(), &applied.name), state);
            }
            Event::ObjectWaiting(waiting) => {
                let name = object(&waiting.kind, waiting.namespace.as_deref(), &waiting.name);
                self.set(&name, ThingState::Waiting { why: waiting.why.clone() });
            }
            Event::ObjectReady(ready) => {
                let name = object(&ready.kind, ready.namespace.as_deref(), &ready.name);
                self.set(&name, ThingState::Done { took: Duration::ZERO });
            }
            Event::ResourcePlanned(planned) => {
                self.set(&planned.address, ThingState::Planned { action: planned.action.clone() });
            }
            Event::ResourceStarted(started) => {
                self.set(&started.address, ThingState::Started { action: started.action.clone() });
            }
            Event::ResourceCompleted(completed) => {
                let took = Duration::from_millis(completed.elapsed_ms);
                self.set(&completed.address, ThingState::Done { took });
            }
            Event::ResourceFailed(failed) => {
                let took = Duration::from_millis(failed.elapsed_ms);
                self.set(&failed.address, ThingState::Failed { action: failed.action.clone(), took });
            }
            Event::RunStarted(_)
            | Event::RunPlanned(_)
            | Event::RunFinished(_)
            | Event::StepStarted(_)
            | Event::StepFinished(_)
            | Event::StepProgressed(_)
            | Event::LockWaiting(_)
            | Event::LockClaimed(_)
            | Event::LockRenewed(_)
            | Event::LockRenewalFailed(_)
            | Event::LockBlocked(_)
            | Event::LockLost(_)
            | Event::LockReleasing(_)
            | Event::LockReleased(_)
            | Event::LockLeft(_)
            | Event::LockObserved(_)
            | Event::ProcessStarted(_)
            | Event::ProcessInterrupted(_)
            | Event::ProcessInterruptReported(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::OutputDropped(_)
            | Event::ResourceProgressed(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::StopRequested(_)
            | Event::SignalReceived(_)
            | Event::Diagnostic(_)
            | Event::NoteMade(_)
            | Event::ReportFailed(_) => {}
        }
    }

    fn finish(&mut self, finished: &ProcessFinished) {
        if finished.program.starts_with(VERIFY) {
            let took = Duration::from_millis(finished.duration_ms);
            let state = if finished.exit_code == Some(0) {
                ThingState::Done { took }
            } else {
                ThingState::Failed { action: "verify".to_owned(), took }
            };
            self.set(&finished.program, state);
        }
    }

    fn set(&mut self, name: &str, state: ThingState) {
        match self.places.get(name) {
            // A read that comes after a plan, or a second apply, never makes a failure undone.
            Some(&place) if matches!(self.things[place].state, ThingState::Failed { .. }) => {}
            Some(&place) => self.things[place].state = state,
            None => {
                self.places.insert(name.to_owned(), self.things.len());
                self.things.push(Thing { name: name.to_owned(), state });
            }
        }
    }
}

/// The host in a holder's identity, `user@host/pid/suffix`.
fn host_of(holder: &str) -> Option<&str> {
    let host = holder.split_once('@')?.1.split('/').next()?;
    (!host.is_empty()).then_some(host)
}

/// The stable name of an object: `Deployment/dci-demo/api`.
fn object(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind}/{namespace}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
