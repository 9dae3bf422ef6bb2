//! What has been done so far and what is in flight, kept from the events themselves, so that the verdict and the
//! progress can never say more than the journal does.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::Instant;
use crate::event::{Counts, Event, InFlight, Severity, StepOutcome, StepProgressed};
use crate::run::translate::millis;

/// Counts and what is in flight.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Counts,
    planned: u64,
    resources: BTreeMap<String, (String, Instant)>,
    waits: BTreeMap<String, (String, Instant)>,
    programs: BTreeMap<String, Instant>,
}

impl Tally {
    /// Takes one event.
    pub(crate) fn take(&mut self, event: &Event, now: Instant) {
        match event {
            Event::RunPlanned(planned) => self.planned = planned.steps.len() as u64,
            Event::StepStarted(_) => self.forget(),
            Event::StepFinished(finished) => {
                match finished.outcome {
                    StepOutcome::Done | StepOutcome::Nothing => self.counts.steps.done += 1,
                    StepOutcome::Stopped | StepOutcome::Failed => self.counts.steps.failed += 1,
                }
                self.forget();
            }
            Event::ResourceStarted(started) => {
                self.resources.insert(started.address.clone(), (started.action.clone(), now));
            }
            Event::ResourceCompleted(completed) => {
                self.resources.remove(&completed.address);
                let resources = &mut self.counts.resources;
                match completed.action.as_str() {
                    "create" | "replace" => resources.created += 1,
                    "update" => resources.changed += 1,
                    "delete" => resources.destroyed += 1,
                    _ => {}
                }
            }
            Event::ResourceFailed(failed) => {
                self.resources.remove(&failed.address);
                self.counts.resources.failed += 1;
            }
            Event::ObjectWaiting(waiting) => {
                let name =
                    crate::event::facts::cluster::object(&waiting.kind, waiting.namespace.as_deref(), &waiting.name);
                let since = self.waits.get(&name).map_or(now, |(_, since)| *since);
                self.waits.insert(name, (waiting.why.clone(), since));
            }
            Event::ObjectReady(ready) => {
                let name = crate::event::facts::cluster::object(&ready.kind, ready.namespace.as_deref(), &ready.name);
                self.waits.remove(&name);
            }
            Event::ProcessStarted(started) => drop(self.programs.insert(started.program.clone(), now)),
            Event::ProcessFinished(finished) => drop(self.programs.remove(&finished.program)),
            Event::Diagnostic(diagnostic) if diagnostic.severity == Severity::Warning => self.counts.warnings += 1,
            _ => {}
        }
    }

    fn forget(&mut self) {
        self.resources.clear();
        self.waits.clear();
        self.programs.clear();
    }

    /// The counts for the verdict.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.steps.skipped = self.planned.saturating_sub(counts.steps.done + counts.steps.failed);
        counts
    }

    /// What is in flight now, longest first: resources, else what is waited for, else programs.
    pub(crate) fn progress(&self, step_took: Duration, now: Instant) -> StepProgressed {
        let resources = self.resources.iter().map(|(address, (action, since))| (doing(action, address), *since));
        let waits = self.waits.iter().map(|(name, (why, since))| (format!("waiting for {name}: {why}"), *since));
        let programs = self.programs.iter().map(|(program, since)| (format!("running {program}"), *since));
        let mut found: Vec<(String, Instant)> = resources.collect();
        if found.is_empty() {
            found = waits.collect();
        }
        if found.is_empty() {
            found = programs.collect();
        }
        found.sort_by_key(|(_, since)| *since);
        let in_flight = found.into_iter().map(|(what, since)| InFlight { what, for_ms: millis(now.since(since)) });
        StepProgressed { in_flight: in_flight.collect(), duration_ms: millis(step_took) }
    }
}

fn doing(action: &str, address: &str) -> String {
    let word = match action {
        "create" => "creating",
        "update" => "changing",
        "delete" => "destroying",
        "replace" => "replacing",
        "read" => "reading",
        other => return format!("at work on {address} ({other})"),
    };
    format!("{word} {address}")
}
