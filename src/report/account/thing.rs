//! Resources, objects and checks, each with what became of it.

use std::collections::HashMap;
use std::time::Duration;

use crate::event::facts::cluster::object;
use crate::event::{Event, ObjectApplied};

/// Programs with such a name are checks of their own.
const VERIFY: &str = "verify: ";

/// A resource of OpenTofu, an object, or a check.
#[derive(Debug, Clone)]
pub(crate) struct Thing {
    /// An address, `Kind namespace/name`, or the name of the check.
    pub(crate) name: String,
    /// What is done to it: `create`, `configured`, `verify`.
    pub(crate) action: String,
    pub(crate) state: ThingState,
    pub(crate) took: Option<Duration>,
}

/// Where in its life a thing is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThingState {
    /// Its change went wrong.
    Failed,
    /// Its change has begun, and nobody has seen its end.
    Started,
    /// It is not ready, for this reason.
    Waiting(String),
    /// It is in the plan.
    Planned,
    /// It would be changed: this is a dry run.
    Would,
    /// It is as it should be.
    Done,
}

impl ThingState {
    /// What needs a look comes first.
    pub(crate) fn rank(&self) -> u8 {
        match self {
            ThingState::Failed => 0,
            ThingState::Started => 1,
            ThingState::Waiting(_) => 2,
            ThingState::Planned => 3,
            ThingState::Would => 4,
            ThingState::Done => 5,
        }
    }

    /// In words.
    pub(crate) fn said(&self) -> String {
        match self {
            ThingState::Failed => "failed".to_owned(),
            ThingState::Started => "begun, its end not seen".to_owned(),
            ThingState::Waiting(why) => format!("not ready: {why}"),
            ThingState::Planned => "planned, not begun".to_owned(),
            ThingState::Would => "dry run".to_owned(),
            ThingState::Done => "done".to_owned(),
        }
    }
}

/// The things of a step, in the order in which they were first named.
#[derive(Debug, Default)]
pub(crate) struct Things {
    list: Vec<Thing>,
    places: HashMap<String, usize>,
}

impl Things {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Thing> {
        self.list.iter()
    }

    /// A check of the bundle began.
    pub(crate) fn begin_check(&mut self, program: &str) {
        if program.starts_with(VERIFY) {
            self.set(program, "verify", ThingState::Started, None);
        }
    }

    /// A check of the bundle ended.
    pub(crate) fn end_check(&mut self, program: &str, exit_code: Option<i32>, took: Duration) {
        if program.starts_with(VERIFY) {
            let state = if exit_code == Some(0) { ThingState::Done } else { ThingState::Failed };
            self.set(program, "verify", state, Some(took));
        }
    }

    /// Takes what an event says of a thing. A type that says nothing of one is named here, so that a new one is thought of.
    pub(crate) fn take(&mut self, event: &Event) {
        let took = |ms: u64| Some(Duration::from_millis(ms));
        match event {
            Event::ObjectApplied(applied) => self.apply(applied),
            Event::ObjectWaiting(waiting) => {
                let name = object(&waiting.kind, waiting.namespace.as_deref(), &waiting.name);
                self.set(&name, "wait", ThingState::Waiting(waiting.why.clone()), None);
            }
            Event::ObjectReady(ready) => {
                let name = object(&ready.kind, ready.namespace.as_deref(), &ready.name);
                self.set(&name, "wait", ThingState::Done, None);
            }
            Event::ResourcePlanned(planned) => {
                self.set(&planned.address, &planned.action, ThingState::Planned, None);
            }
            Event::ResourceStarted(started) => {
                self.set(&started.address, &started.action, ThingState::Started, None);
            }
            Event::ResourceCompleted(done) => {
                self.set(&done.address, &done.action, ThingState::Done, took(done.elapsed_ms));
            }
            Event::ResourceFailed(failed) => {
                self.set(&failed.address, &failed.action, ThingState::Failed, took(failed.elapsed_ms));
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
            | Event::ProcessFinished(_)
            | Event::ProcessInterrupted(_)
            | Event::ProcessInterruptReported(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::ProcessOutput(_)
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

    fn apply(&mut self, applied: &ObjectApplied) {
        let name = object(&applied.kind, applied.namespace.as_deref(), &applied.name);
        let (action, state) = if applied.dry_run {
            (applied.action.would(), ThingState::Would)
        } else {
            (applied.action.word(), ThingState::Done)
        };
        self.set(&name, action, state, None);
    }

    fn set(&mut self, name: &str, action: &str, state: ThingState, took: Option<Duration>) {
        let place = *self.places.entry(name.to_owned()).or_insert(self.list.len());
        let (name, action) = (name.to_owned(), action.to_owned());
        match self.list.get_mut(place) {
            // A read that comes after a plan, or a second apply, never makes a failure undone.
            Some(known) if known.state == ThingState::Failed => {}
            Some(known) => *known = Thing { name, action, state, took },
            None => self.list.push(Thing { name, action, state, took }),
        }
    }
}
