//! What has been done so far and what is in flight, kept from the events themselves, so that the verdict and the
//! progress can never say more than the journal does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Instant;
use crate::event::{Counts, Event, InFlight, ObjectWaiting, ProcessSurvived, Severity, StepOutcome, StepProgressed};
use crate::run::translate::millis;

/// Counts and what is in flight.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Counts,
    planned: u64,
    /// A step has begun and not ended.
    in_a_step: bool,
    resources: BTreeMap<String, (String, Instant)>,
    waits: BTreeMap<String, (String, Instant)>,
    programs: BTreeMap<String, Instant>,
    /// The addresses whose change was begun and not yet seen to end, whatever became of the step.
    open: BTreeSet<String>,
    /// The processes that could not be ended.
    survived: Vec<ProcessSurvived>,
}

impl Tally {
    /// Takes one event.
    pub fn take(&mut self, event: &Event, now: Instant) {
        match event {
            Event::RunPlanned(planned) => self.planned = planned.steps.len() as u64,
            Event::StepStarted(_) => {
                self.in_a_step = true;
                self.forget();
            }
            Event::StepFinished(finished) => {
                self.in_a_step = false;
                match finished.outcome {
                    StepOutcome::Done | StepOutcome::Nothing => self.counts.steps.done += 1,
                    StepOutcome::Stopped | StepOutcome::Failed => self.counts.steps.failed += 1,
                }
                self.forget();
            }
            Event::ResourceStarted(started) => {
                // What is only read is not changed.
                if started.action != "read" {
                    self.open.insert(started.address.clone());
                }
                self.resources.insert(started.address.clone(), (started.action.clone(), now));
            }
            Event::ResourceCompleted(completed) => {
                self.end(&completed.address);
                self.count(&completed.action);
            }
            Event::ResourceFailed(failed) => {
                self.end(&failed.address);
                self.counts.resources.failed += 1;
            }
            Event::ObjectWaiting(waiting) => self.wait(waiting, now),
            Event::ObjectReady(ready) => {
                let name = crate::event::facts::cluster::object(&ready.kind, ready.namespace.as_deref(), &ready.name);
                self.waits.remove(&name);
            }
            Event::ProcessStarted(started) => drop(self.programs.insert(started.program.clone(), now)),
            Event::ProcessFinished(finished) => drop(self.programs.remove(&finished.program)),
            Event::Diagnostic(diagnostic) if diagnostic.severity == Severity::Warning => self.counts.warnings += 1,
            Event::ProcessSurvived(survived) => self.survive(survived),
            Event::LockRenewalFailed(failed) if failed.tries == 1 => self.counts.renewal_gaps += 1,
            Event::Diagnostic(_)
            | Event::RunStarted(_)
            | Event::RunFinished(_)
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
            | Event::ProcessInterrupted(_)
            | Event::ProcessInterruptReported(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessOutput(_)
            | Event::OutputDropped(_)
            | Event::ObjectApplied(_)
            | Event::ResourcePlanned(_)
            | Event::ResourceProgressed(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::StopRequested(_)
            | Event::SignalReceived(_)
            | Event::NoteMade(_)
            | Event::ReportFailed(_) => {}
        }
    }

    fn end(&mut self, address: &str) {
        self.open.remove(address);
        self.resources.remove(address);
    }

    fn survive(&mut self, survived: &ProcessSurvived) {
        self.counts.warnings += 1;
        self.survived.push(survived.clone());
    }

    fn wait(&mut self, waiting: &ObjectWaiting, now: Instant) {
        let name = crate::event::facts::cluster::object(&waiting.kind, waiting.namespace.as_deref(), &waiting.name);
        let since = self.waits.get(&name).map_or(now, |(_, since)| *since);
        self.waits.insert(name, (waiting.why.clone(), since));
    }

    fn count(&mut self, action: &str) {
        let resources = &mut self.counts.resources;
        match action {
            "create" | "replace" => resources.created += 1,
            "update" => resources.changed += 1,
            "delete" => resources.destroyed += 1,
            _ => {}
        }
    }

    fn forget(&mut self) {
        self.resources.clear();
        self.waits.clear();
        self.programs.clear();
    }

    /// The counts for the verdict.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.steps.cut_off = u64::from(self.in_a_step);
        let begun = counts.steps.done + counts.steps.failed + counts.steps.cut_off;
        counts.steps.skipped = self.planned.saturating_sub(begun);
        counts
    }

    /// The addresses whose change was begun and whose end nobody saw, well or badly.
    pub fn unfinished(&self) -> &BTreeSet<String> {
        &self.open
    }

    /// The processes that could not be ended.
    pub fn survived(&self) -> &[ProcessSurvived] {
        &self.survived
    }

    /// What is in flight now, longest first: resources, else what is waited for, else programs.
    pub fn progress(&self, step_took: Duration, now: Instant) -> StepProgressed {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{PlannedStep, ProcessStarted, ResourceCompleted, ResourceStarted, RunPlanned, StepStarted};

    fn at(seconds: u64) -> Instant {
        Instant::since_boot(Duration::from_secs(seconds))
    }

    fn begun(address: &str) -> Event {
        Event::ResourceStarted(ResourceStarted { address: address.to_owned(), action: "create".to_owned() })
    }

    #[test]
    fn what_began_first_is_said_first_and_what_ended_is_not_said() {
        let mut tally = Tally::default();
        tally.take(&begun("bed_thing.late"), at(20));
        tally.take(&begun("bed_thing.done"), at(5));
        tally.take(&begun("bed_thing.early"), at(10));
        let completed =
            ResourceCompleted { address: "bed_thing.done".to_owned(), action: "create".to_owned(), elapsed_ms: 1 };
        tally.take(&Event::ResourceCompleted(completed), at(21));
        let said: Vec<String> =
            tally.progress(Duration::ZERO, at(30)).in_flight.into_iter().map(|flight| flight.what).collect();
        assert_eq!(said, ["creating bed_thing.early", "creating bed_thing.late"]);
        assert_eq!(tally.counts().resources.created, 1);
    }

    #[test]
    fn waits_come_before_programs_and_keep_their_beginning() {
        let mut tally = Tally::default();
        tally.take(&Event::ProcessStarted(ProcessStarted { program: "helm upgrade".to_owned(), pid: 7 }), at(1));
        assert_eq!(tally.progress(Duration::ZERO, at(3)).in_flight[0].what, "running helm upgrade");
        for (second, why) in [(4, "no pods"), (9, "0 of 1 ready")] {
            let waiting = ObjectWaiting {
                kind: "Deployment".to_owned(),
                namespace: Some("dci-a".to_owned()),
                name: "api".to_owned(),
                why: why.to_owned(),
            };
            tally.take(&Event::ObjectWaiting(waiting), at(second));
        }
        let flight = tally.progress(Duration::ZERO, at(10)).in_flight;
        assert_eq!(flight[0].what, "waiting for Deployment dci-a/api: 0 of 1 ready");
        assert_eq!(flight[0].for_ms, 6000);
    }

    #[test]
    fn a_step_whose_end_nobody_saw_is_not_one_that_never_began() {
        let mut tally = Tally::default();
        let step = |id: &str| PlannedStep { id: id.to_owned(), title: id.to_owned() };
        tally.take(&Event::RunPlanned(RunPlanned { steps: vec![step("verify"), step("record-the-phase")] }), at(0));
        let started = StepStarted { id: "verify".to_owned(), title: "Verify".to_owned(), index: 1, total: 2 };
        tally.take(&Event::StepStarted(started), at(1));
        let steps = tally.counts().steps;
        assert_eq!((steps.done, steps.failed, steps.cut_off, steps.skipped), (0, 0, 1, 1));
    }

    #[test]
    fn a_new_step_begins_with_nothing_in_flight() {
        let mut tally = Tally::default();
        tally.take(&begun("bed_thing.a"), at(1));
        let started = StepStarted { id: "verify".to_owned(), title: "Verify".to_owned(), index: 8, total: 9 };
        tally.take(&Event::StepStarted(started), at(2));
        assert!(tally.progress(Duration::ZERO, at(3)).in_flight.is_empty());
    }
}
