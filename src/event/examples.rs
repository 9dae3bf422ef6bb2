//! One example per event. The tests read them back, the schema is tried on them, and the reference page shows them, so
//! they tell one story: a bootstrap of `demo`, and the things that may happen to one.

use std::time::Duration;

use jiff::Timestamp;

use crate::event::envelope::{Envelope, Open, SCHEMA_ID, SCHEMA_VERSION};
use crate::event::facts::cluster::{Former, ObjectApplied, ObjectReady, ObjectWaiting};
use crate::event::facts::lock::{
    BusyManner, LockAct, LockBlocked, LockClaimed, LockLeft, LockLost, LockObserved, LockReleased, LockReleasing,
    LockRenewalFailed, LockRenewed, LockWaiting, ReleaseManner,
};
use crate::event::facts::process::{
    OutputDropped, ProcessFinished, ProcessInterruptReported, ProcessInterrupted, ProcessKilled, ProcessLeftBehind,
    ProcessOutput, ProcessStarted, ProcessSurvived, Relation, Stream,
};
use crate::event::facts::remark::{Diagnostic, EnvironmentDropped, NoteMade, ReportFailed, ToolChecked};
use crate::event::facts::resource::{
    ResourceCompleted, ResourceFailed, ResourcePlanned, ResourceProgressed, ResourceStarted,
};
use crate::event::facts::run::{
    BundleFact, CiFact, Counts, Kept, PlannedStep, ResourceCounts, RunFinished, RunPlanned, RunStarted, StepCounts,
    StopBudget,
};
use crate::event::facts::step::{InFlight, StepFinished, StepProgressed, StepStarted};
use crate::event::facts::stop::{SignalEffect, SignalReceived, StopCause, StopManner, StopRequested};
use crate::event::kind::Event;
use crate::event::outcome::{Failed, LockEnd, ObjectChange, RunOutcome, Severity, StepOutcome};

const HOLDER: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const OTHER: &str = "bob@laptop/9912/3a7f00c1d2e4b596";
const ADDRESS: &str = "module.broker.demo_object.primary";

/// One example of every type, in the order of [`Event::TYPES`].
pub fn examples() -> Vec<Event> {
    let mut all = of_runs();
    all.extend(of_the_lock());
    all.extend(of_processes());
    all.extend(of_objects());
    all.extend(of_resources());
    all.extend(of_the_rest());
    all
}

/// The line that an example makes, without its line feed.
pub(crate) fn line(seq: u64, event: &Event) -> String {
    let elapsed = Duration::from_millis(seq * 1_250);
    let time = Timestamp::from_microsecond(1_796_012_115_123_456).expect("a valid time") + elapsed;
    let belongs = !matches!(
        event,
        Event::RunStarted(_)
            | Event::RunPlanned(_)
            | Event::RunFinished(_)
            | Event::ReportFailed(_)
            | Event::EnvironmentDropped(_)
    );
    let step = belongs.then_some("apply-infrastructure");
    let envelope = Envelope::new(seq, time, elapsed, "01je2x4q7cv8t0r9", step, event);
    envelope.render(&Open).trim_end().to_owned()
}

fn of_runs() -> Vec<Event> {
    vec![run_started().into(), run_planned().into(), run_finished().into()].into_iter().chain(of_steps()).collect()
}

fn run_started() -> RunStarted {
    RunStarted {
        schema: SCHEMA_ID.into(),
        schema_version: SCHEMA_VERSION.into(),
        dcctl: "0.1.0".into(),
        command: "bootstrap".into(),
        instance: Some("demo".into()),
        program: None,
        bundle: Some(BundleFact {
            name: "devicechain".into(),
            version: "0.9.2".into(),
            path: "/home/alice/demo".into(),
            digest: None,
        }),
        kube_context: Some("demo-cluster".into()),
        server: Some("https://127.0.0.1:6443".into()),
        lock_dir: None,
        holder: Some(HOLDER.into()),
        ci: Some(CiFact { system: "github".into(), job_url: Some("https://ci.example.com/job/7".into()) }),
        run_dir: Some("/home/alice/.local/state/dcctl/runs/01je2x4q7cv8t0r9".into()),
        stop_budget: Some(StopBudget {
            seconds: 1200,
            source: "--stop-after".into(),
            graceful_seconds: None,
            ends: None,
            note: None,
        }),
        dry_run: false,
    }
}

fn run_planned() -> RunPlanned {
    let step = |id: &str, title: &str| PlannedStep { id: id.into(), title: title.into() };
    RunPlanned {
        steps: vec![
            step("claim-the-cluster", "Claim the cluster"),
            step("apply-infrastructure", "Apply infrastructure"),
            step("install-chart", "Install chart"),
        ],
    }
}

fn run_finished() -> RunFinished {
    RunFinished {
        subject: "bootstrap demo".into(),
        outcome: RunOutcome::Failed,
        exit_code: 1,
        failure: Some(failed()),
        command_end: None,
        lock: LockEnd::Released,
        holder: None,
        counts: Counts {
            steps: StepCounts { done: 1, failed: 1, cut_off: 0, skipped: 1 },
            resources: ResourceCounts { created: 3, changed: 0, destroyed: 0, failed: 1 },
            warnings: 1,
            renewal_gaps: 0,
        },
        unfinished: vec![ADDRESS.into()],
        survived: vec![survived()],
        kept: vec![Kept {
            what: "the state that OpenTofu could not save".into(),
            path: "/home/alice/.devicechain/instances/demo/errored.tfstate".into(),
        }],
        next: vec!["Read its diagnostics above, mend the cause and run the same command again.".into()],
        dry_run: false,
        duration_ms: 81_900,
    }
}

fn failed() -> Failed {
    Failed {
        code: "infrastructure.failed".into(),
        message: "OpenTofu could not apply infra/instance".into(),
        causes: vec![format!("{ADDRESS}: the quota is exceeded")],
        hints: vec!["Ask for a larger quota, or make replicas smaller.".into()],
    }
}

fn of_steps() -> Vec<Event> {
    let (id, title) = ("apply-infrastructure".to_owned(), "Apply infrastructure".to_owned());
    vec![
        StepStarted { id: id.clone(), title: title.clone(), index: 5, total: 9 }.into(),
        StepFinished {
            id,
            title,
            index: 5,
            total: 9,
            outcome: StepOutcome::Failed,
            note: String::new(),
            failure: Some(failed()),
            unfinished: vec![ADDRESS.into()],
            duration_ms: 63_400,
        }
        .into(),
        StepProgressed {
            in_flight: vec![InFlight { what: format!("creating {ADDRESS}"), for_ms: 14_000 }],
            duration_ms: 15_000,
        }
        .into(),
    ]
}

fn of_the_lock() -> Vec<Event> {
    vec![
        LockWaiting {
            act: LockAct::Claim,
            why: "the API server gave no answer about the lock within 5s".into(),
            waited_ms: 5_000,
        }
        .into(),
        LockClaimed {
            holder: HOLDER.into(),
            lease: "dc-k8s-system/dcctl".into(),
            uid: "7d9e6c0a".into(),
            waited_ms: 12,
        }
        .into(),
        LockRenewed { took_ms: 7, gap_ms: None }.into(),
        LockRenewalFailed { why: "the API server did not answer within 5s".into(), valid_for_ms: 45_000, tries: 1 }
            .into(),
        LockBlocked {
            holder: OTHER.into(),
            instance: Some("prod".into()),
            age_ms: Some(4_000),
            stale: false,
            text: format!(
                "this cluster (working on instance \"prod\") is being worked on by {OTHER}, which renewed 4s ago; wait \
                 for it to finish rather than running a second apply against the same cluster"
            ),
            job_url: None,
            manner: BusyManner::Refuses,
            waited_ms: None,
        }
        .into(),
        LockLost {
            holder: Some(OTHER.into()),
            text: format!(
                "stopping before \"Install chart\": this cluster was reclaimed by another operator: it is now held by \
                 {OTHER}"
            ),
        }
        .into(),
        LockReleasing { holder: HOLDER.into() }.into(),
        LockReleased { manner: ReleaseManner::Deleted, why: None, took_ms: 9 }.into(),
        LockLeft { holder: HOLDER.into(), why: "the run was ended by force".into() }.into(),
        LockObserved { holder: None, instance: None, age_ms: None, stale: false, text: None }.into(),
    ]
}

fn survived() -> ProcessSurvived {
    ProcessSurvived {
        program: "tofu apply".into(),
        pid: 48_340,
        name: "terraform-provi".into(),
        age_ms: 58_000,
        relations: vec![Relation::Orphan, Relation::Group, Relation::Mark],
        state: "D".into(),
    }
}

fn of_processes() -> Vec<Event> {
    let program = || "tofu apply".to_owned();
    let pid = 48_301;
    vec![
        ProcessStarted { program: program(), pid }.into(),
        ProcessFinished { program: program(), pid: Some(pid), exit_code: Some(1), signal: None, duration_ms: 61_000 }
            .into(),
        ProcessInterrupted { program: program(), pid, signal: "SIGINT".into(), why: "a stop was requested".into() }
            .into(),
        ProcessInterruptReported { program: program(), times: 1, sent: 1 }.into(),
        ProcessKilled { program: program(), pid, why: "the stop budget is used up".into() }.into(),
        ProcessLeftBehind {
            program: program(),
            pid: 48_340,
            name: "terraform-provi".into(),
            age_ms: 58_000,
            relations: vec![Relation::Orphan, Relation::Group, Relation::Mark],
        }
        .into(),
        survived().into(),
        ProcessOutput {
            program: "helm upgrade".into(),
            stream: Stream::Stderr,
            text: "Error: 1 error occurred: deployments.apps \"api\" is forbidden".into(),
            lossy: false,
            more: false,
        }
        .into(),
        OutputDropped { lines: 1_340 }.into(),
    ]
}

fn of_objects() -> Vec<Event> {
    let (kind, namespace, name) = ("Deployment".to_owned(), Some("dc-k8s-system".to_owned()), "manager".to_owned());
    vec![
        ObjectApplied {
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            action: ObjectChange::Configured,
            dry_run: false,
            taken_over: vec![Former { manager: "kubectl".into(), fields: vec![".spec.replicas".into()] }],
        }
        .into(),
        ObjectWaiting {
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            why: "0 of 1 replicas are available".into(),
        }
        .into(),
        ObjectReady { kind, namespace, name }.into(),
    ]
}

fn of_resources() -> Vec<Event> {
    let (address, action) = (ADDRESS.to_owned(), "create".to_owned());
    vec![
        ResourcePlanned { address: address.clone(), action: action.clone() }.into(),
        ResourceStarted { address: address.clone(), action: action.clone() }.into(),
        ResourceProgressed { address: address.clone(), action: action.clone(), elapsed_ms: 10_000 }.into(),
        ResourceCompleted { address: address.clone(), action: action.clone(), elapsed_ms: 12_000 }.into(),
        ResourceFailed { address, action, elapsed_ms: 12_000 }.into(),
    ]
}

fn of_the_rest() -> Vec<Event> {
    vec![
        ToolChecked { tool: "OpenTofu".into(), version: "1.11.4".into(), path: "/usr/local/bin/tofu".into() }.into(),
        EnvironmentDropped { names: vec!["TF_CLI_ARGS".into(), "HELM_KUBECONTEXT".into()] }.into(),
        StopRequested {
            cause: StopCause::Signal,
            signals: vec!["SIGTERM".into()],
            sender_pid: Some(812),
            sender_uid: Some(1000),
            manner: StopManner::Graceful,
            budget_ms: 1_200_000,
            deadline: Some("2026-11-30T04:35:15Z".into()),
        }
        .into(),
        SignalReceived {
            signal: "SIGTERM".into(),
            sender_pid: Some(812),
            sender_uid: Some(1000),
            effect: SignalEffect::Stop,
        }
        .into(),
        Diagnostic {
            severity: Severity::Error,
            code: None,
            origin: "OpenTofu".into(),
            summary: "The quota is exceeded".into(),
            detail: "The server allows 3 objects and has 3.".into(),
            address: Some(ADDRESS.into()),
            source: Some("main.tf line 12".into()),
        }
        .into(),
        NoteMade { text: "the provider versions that were chosen are kept beside the state".into() }.into(),
        ReportFailed {
            report: "junit".into(),
            path: Some("/reports/dcctl.xml".into()),
            why: "permission denied".into(),
        }
        .into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::seen::Seen;

    #[test]
    fn there_is_one_example_of_every_type_in_order() {
        let types: Vec<_> = examples().iter().map(Event::type_name).collect();
        assert_eq!(types, Event::TYPES);
    }

    #[test]
    fn every_example_reads_back_as_it_was() {
        for (seq, event) in (0..).zip(examples()) {
            let seen = Seen::read(&line(seq, &event)).expect("a line");
            assert_eq!((seen.seq, seen.level, seen.type_name.as_str()), (seq, event.level(), event.type_name()));
            assert_eq!(seen.event, Some(event));
        }
    }

    #[test]
    fn every_example_says_one_sentence() {
        for event in examples() {
            let said = event.message();
            assert!(!said.is_empty() && said.len() <= 300 && !said.contains('\n'), "{said}");
            assert!(!said.ends_with('.') || matches!(event, Event::NoteMade(_)), "{said}");
        }
    }
}
