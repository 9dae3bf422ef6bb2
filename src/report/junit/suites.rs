//! The ledger told as suites and cases.
//!
//! Suites are the phases of a run in order: `dcctl.lock`, `dcctl.steps` for the steps that report on nothing but
//! themselves, then one for each step that reports on resources. A case is known by its class,
//! `dcctl.<command>.<step>`, and its name, which are the same from run to run, so that readers can tell its history.
//!
//! A *failure* means that the run did its work and something said no. An *error* means that the run could not do its
//! work: blocked, interrupted, the cluster out of reach.

use std::time::Duration;

use crate::event::{
    BusyManner, Diagnostic, Failed, LockEnd, Severity, StepFinished, StepOutcome, StopManner, StopRequested,
};
use crate::failure::Code;
use crate::report::junit::ledger::{CLAIM, Ledger, Step, Thing, ThingState};
use crate::report::sanitise::{self, Case, CaseResult, Suite, Why};

/// The most bytes of a file; readers and artifact stores take more, people do not.
const LARGEST_FILE: usize = 1024 * 1024;

/// How much is left out to keep the file small, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Thrift {
    /// Nothing.
    Nothing,
    /// What tools printed.
    Output,
    /// And the cases of single resources that went well or never ran.
    Quiet,
    /// And all cases of single resources but the first of each step.
    Most,
}

/// The report of what is known, at most [`LARGEST_FILE`] bytes.
pub(super) fn xml(ledger: &Ledger) -> Vec<u8> {
    let mut bytes = Vec::new();
    for thrift in [Thrift::Nothing, Thrift::Output, Thrift::Quiet, Thrift::Most] {
        bytes = sanitise::xml(&suites(ledger, thrift));
        if bytes.len() <= LARGEST_FILE {
            break;
        }
    }
    bytes
}

fn suites(ledger: &Ledger, thrift: Thrift) -> Vec<Suite> {
    let suite =
        |name: String, cases| Suite { name, host: ledger.host.clone(), started: ledger.started, cases, output: None };
    let mut suites = Vec::new();
    let mut steps = Vec::new();
    let mut detailed = Vec::new();
    for step in &ledger.steps {
        if step.id == CLAIM {
            suites.push(suite("dcctl.lock".to_owned(), vec![acquire(ledger, step), release(ledger, step)]));
        } else if step.things.is_empty() {
            steps.push(step_case(ledger, step, thrift));
        } else {
            let mut cases = vec![step_case(ledger, step, thrift)];
            let left_out = things(ledger, step, thrift, &mut cases);
            let mut suite = suite(format!("dcctl.{}", step.id), cases);
            suite.output = (left_out > 0)
                .then(|| format!("{left_out} cases are left out to keep this file small; the journal has them all.\n"));
            detailed.push(suite);
        }
    }
    steps.extend(whole_run(ledger, suites.iter().chain(&detailed).flat_map(|suite| &suite.cases).chain(&steps)));
    let mut rest = suite("dcctl.steps".to_owned(), steps);
    rest.output = Some(whereabouts(ledger));
    suites.push(rest);
    suites.extend(detailed);
    suites
}

fn whereabouts(ledger: &Ledger) -> String {
    match &ledger.run_dir {
        Some(folder) => format!("Run {}. Every event is in {folder}/events.jsonl\n", ledger.run),
        None => format!("Run {}.\n", ledger.run),
    }
}

fn class(ledger: &Ledger, step: &str) -> String {
    format!("dcctl.{}.{step}", ledger.command)
}

/// A case for the run as a whole: there is one when the run did not get as far as a plan, or when it did not end well
/// and no other case says so.
fn whole_run<'a>(ledger: &Ledger, others: impl IntoIterator<Item = &'a Case>) -> Option<Case> {
    let is_told = others.into_iter().any(Case::is_bad);
    let result = match &ledger.verdict {
        None if ledger.steps.is_empty() => {
            CaseResult::Errored(Why::new("Interrupted", "interrupted before anything was planned"))
        }
        None if is_told => return None,
        None => CaseResult::Errored(Why::new("Interrupted", "the journal ends without a verdict")),
        Some(verdict) if verdict.exit_code == 0 => return None,
        Some(_) if is_told => return None,
        Some(verdict) => {
            let message = format!("the run ended with exit code {}", verdict.exit_code);
            let explained = |failure| judged(failure, ledger.stop.as_ref(), details(failure, &ledger.diagnostics));
            let unexplained = || CaseResult::Errored(Why::new("Unexplained", message));
            verdict.failure.as_ref().map_or_else(unexplained, explained)
        }
    };
    let time = ledger.verdict.as_ref().map_or(Duration::ZERO, |verdict| Duration::from_millis(verdict.duration_ms));
    Some(Case { class: class(ledger, "run"), name: "run".to_owned(), time, result, output: None })
}

fn acquire(ledger: &Ledger, step: &Step) -> Case {
    let lock = &ledger.lock;
    let mut time = Duration::ZERO;
    let failed = step.ended.as_ref().is_some_and(|ended| ended.outcome == StepOutcome::Failed);
    let result = if let Some(waited) = lock.claimed.filter(|_| !failed) {
        time = waited;
        CaseResult::Passed
    } else if let Some(blocked) = &lock.blocked {
        match blocked.manner {
            BusyManner::Refuses => CaseResult::Errored(Why::new("LockBlocked", &blocked.text)),
            BusyManner::Continues => {
                CaseResult::Skipped(Why::new("LockNotHeld", format!("went on without the lock: {}", blocked.text)))
            }
            BusyManner::Waits => unfinished(ledger, step),
        }
    } else if let Some(observed) = &lock.observed {
        let held = observed.text.as_deref().unwrap_or("nobody holds it");
        CaseResult::Skipped(Why::new("DryRun", format!("a dry run takes no lock; {held}")))
    } else {
        step_result(ledger, step)
    };
    Case { class: class(ledger, CLAIM), name: "acquire".to_owned(), time, result, output: None }
}

fn release(ledger: &Ledger, claim: &Step) -> Case {
    let lock = &ledger.lock;
    let mut time = Duration::ZERO;
    let result = if let Some(took) = lock.released {
        time = took;
        CaseResult::Passed
    } else if let Some(left) = &lock.left {
        CaseResult::Errored(Why::new(
            "LockLeft",
            format!("the lock was left behind, held by {}: {}", left.holder, left.why),
        ))
    } else if let Some(lost) = &lock.lost {
        CaseResult::Errored(Why::new("LockLost", &lost.text))
    } else {
        match ledger.lock_end() {
            Some(LockEnd::NeverTaken | LockEnd::NotHeld) => {
                CaseResult::Skipped(Why::new("NotRun", "this run never held the lock"))
            }
            Some(LockEnd::Released) => CaseResult::Passed,
            Some(end @ (LockEnd::Left | LockEnd::Lost | LockEnd::Unknown)) => {
                CaseResult::Errored(Why::new("LockUnknown", format!("the lock {}", end.said())))
            }
            None if lock.claimed.is_some() => {
                CaseResult::Errored(Why::new("Interrupted", "interrupted before the lock was given back"))
            }
            None => unfinished(ledger, claim),
        }
    };
    Case { class: class(ledger, CLAIM), name: "release".to_owned(), time, result, output: None }
}

fn step_case(ledger: &Ledger, step: &Step, thrift: Thrift) -> Case {
    let mut case = Case {
        class: class(ledger, &step.id),
        name: "step".to_owned(),
        time: step.ended.as_ref().map_or(Duration::ZERO, |ended| Duration::from_millis(ended.duration_ms)),
        result: step_result(ledger, step),
        output: None,
    };
    if case.is_bad() && thrift < Thrift::Output && !step.output.is_empty() {
        case.output = Some(step.output.text());
    }
    case
}

fn step_result(ledger: &Ledger, step: &Step) -> CaseResult {
    let Some(ended) = &step.ended else { return unfinished(ledger, step) };
    match (ended.outcome, &ended.failure) {
        (StepOutcome::Done | StepOutcome::Nothing, _) => CaseResult::Passed,
        (StepOutcome::Failed, Some(failure)) => {
            let details = details(failure, &step.diagnostics) + &unseen(&ended.unfinished);
            judged(failure, ledger.stop.as_ref(), details)
        }
        (StepOutcome::Failed, None) => CaseResult::Failed(Why::new("StepFailed", format!("{} failed", step.title))),
        (StepOutcome::Stopped, _) => stopped(ledger, step, ended),
    }
}

/// A step that was asked to stop and did.
fn stopped(ledger: &Ledger, step: &Step, ended: &StepFinished) -> CaseResult {
    let mut why = match (&ledger.lock.lost, &ledger.stop) {
        (Some(lost), _) => Why::new("LockLost", &lost.text),
        (None, Some(request)) => Why::new("Interrupted", format!("{} was stopped: {}", step.title, asked(request))),
        (None, None) => Why::new("Interrupted", format!("{} was stopped", step.title)),
    };
    why.details = format!("{}\n{}", ended.note, unseen(&ended.unfinished));
    CaseResult::Errored(why)
}

/// A step that has not ended: an error as long as the run may be killed at any moment, a skip once the verdict is in.
fn unfinished(ledger: &Ledger, step: &Step) -> CaseResult {
    match (&ledger.verdict, step.begun) {
        (None, None) => CaseResult::Errored(Why::new("Interrupted", "interrupted before it ran")),
        (None, Some(_)) => CaseResult::Errored(Why::new("Interrupted", "interrupted while it ran")),
        (Some(_), Some(_)) => CaseResult::Errored(Why::new("Interrupted", "nobody saw its end")),
        (Some(verdict), None) => {
            let reason = match (&ledger.lock.blocked, &verdict.failure) {
                (Some(blocked), _) if blocked.manner == BusyManner::Refuses => {
                    format!("lock held by {}", blocked.holder)
                }
                (_, Some(failure)) => failure.message.clone(),
                (_, None) => "the run ended before it".to_owned(),
            };
            CaseResult::Skipped(Why::new("NotRun", format!("not run: {reason}")))
        }
    }
}

/// Adds the cases of single resources, and says how many were left out.
fn things(ledger: &Ledger, step: &Step, thrift: Thrift, cases: &mut Vec<Case>) -> usize {
    const MOST: usize = 200;
    let mut left_out = 0;
    for thing in &step.things {
        let (time, result) = thing_result(ledger, step, thing);
        let quiet = matches!(result, CaseResult::Passed | CaseResult::Skipped(_));
        if quiet && thrift >= Thrift::Quiet || thrift >= Thrift::Most && cases.len() > MOST {
            left_out += 1;
            continue;
        }
        cases.push(Case { class: class(ledger, &step.id), name: thing.name.clone(), time, result, output: None });
    }
    left_out
}

fn thing_result(ledger: &Ledger, step: &Step, thing: &Thing) -> (Duration, CaseResult) {
    let outcome = step.ended.as_ref().map(|ended| ended.outcome);
    let result = match &thing.state {
        ThingState::Done { took } => return (*took, CaseResult::Passed),
        ThingState::Failed { action, took } => return (*took, CaseResult::Failed(refusal(step, thing, action))),
        ThingState::Would { change } => CaseResult::Skipped(Why::new("DryRun", change.would())),
        ThingState::Planned { action } if ledger.dry_run => {
            CaseResult::Skipped(Why::new("DryRun", format!("would {action}")))
        }
        ThingState::Planned { action } => match outcome {
            None => CaseResult::Errored(Why::new("Interrupted", format!("interrupted before its {action} began"))),
            Some(_) => CaseResult::Skipped(Why::new("NotRun", format!("planned to {action}; it was not begun"))),
        },
        ThingState::Started { action } => {
            let message = match outcome {
                None => format!("interrupted during its {action}"),
                Some(_) => format!("its {action} began, and nobody saw its end"),
            };
            CaseResult::Errored(Why::new("Interrupted", message))
        }
        ThingState::Waiting { why } => match outcome {
            None => CaseResult::Errored(Why::new("Interrupted", format!("interrupted while it was not ready: {why}"))),
            Some(StepOutcome::Stopped) => {
                CaseResult::Errored(Why::new("Interrupted", format!("stopped while it was not ready: {why}")))
            }
            Some(StepOutcome::Failed | StepOutcome::Done | StepOutcome::Nothing) => {
                CaseResult::Failed(Why::new("NotReady", format!("not ready: {why}")))
            }
        },
    };
    (Duration::ZERO, result)
}

/// Why a resource failed: what the tool said about it, if it said something.
fn refusal(step: &Step, thing: &Thing, action: &str) -> Why {
    let about: Vec<&Diagnostic> =
        step.diagnostics.iter().filter(|said| said.address.as_deref() == Some(thing.name.as_str())).collect();
    let message = match about.first() {
        Some(first) => first.summary.clone(),
        None => format!("{action} failed"),
    };
    Why { kind: "ResourceFailed".to_owned(), message, details: told(about.into_iter()) }
}

/// Failure or error, and of which kind, by the stable code.
fn judged(failure: &Failed, stop: Option<&StopRequested>, details: String) -> CaseResult {
    let code = Code::parse(&failure.code);
    let (kind, is_error) = match code {
        Some(Code::LockHeld | Code::LockHeldStale) => ("LockBlocked".to_owned(), true),
        Some(Code::LockLost) => ("LockLost".to_owned(), true),
        Some(Code::StoppedClean | Code::StoppedPartial | Code::StoppedForced) => ("Interrupted".to_owned(), true),
        Some(Code::CommandFailed | Code::ClusterRequestFailed | Code::SupervisorKilled) | None => {
            (camel(&failure.code), true)
        }
        // What the bundle does (1) and what a guard refuses (6) is a "no"; everything else kept the run from working.
        Some(code) => (camel(&failure.code), !matches!(code.exit(), 1 | 6)),
    };
    let mut why = Why { kind, message: failure.message.clone(), details };
    if let (true, Some(stop)) = (why.kind == "Interrupted", stop) {
        why.details.insert_str(0, &format!("{}\n", asked(stop)));
    }
    if is_error { CaseResult::Errored(why) } else { CaseResult::Failed(why) }
}

fn asked(stop: &StopRequested) -> String {
    let manner = match stop.manner {
        StopManner::Graceful => "asked to stop",
        StopManner::Force => "ended by force, asked",
    };
    format!("{manner} {}", stop.by_whom())
}

/// What there is to say beyond the message of a failure.
fn details(failure: &Failed, diagnostics: &[Diagnostic]) -> String {
    let mut lines: Vec<String> = failure.causes.iter().map(|cause| format!("because: {cause}")).collect();
    lines.extend(failure.hints.iter().map(|hint| format!("what to do: {hint}")));
    lines.push(format!("code: {}\n", failure.code));
    // The diagnostic of a refusal is the failure itself.
    let others = diagnostics.iter().filter(|said| said.summary != failure.message);
    let (errors, warnings): (Vec<_>, Vec<_>) = others.partition(|said| said.severity == Severity::Error);
    lines.join("\n") + &told(errors.into_iter().chain(warnings))
}

/// Diagnostics in full.
fn told<'a>(diagnostics: impl Iterator<Item = &'a Diagnostic>) -> String {
    let mut lines = Vec::new();
    for said in diagnostics {
        let word = match said.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        lines.push(format!("\n{} {word}: {}", said.origin, said.summary));
        lines.extend([&said.address, &said.source].into_iter().flatten().map(|about| format!("  {about}")));
        if !said.detail.is_empty() {
            lines.push(said.detail.trim_end().to_owned());
        }
    }
    if lines.is_empty() { String::new() } else { lines.join("\n") + "\n" }
}

fn unseen(addresses: &[String]) -> String {
    if addresses.is_empty() {
        String::new()
    } else {
        format!("Begun, and not seen to complete:\n  {}\n", addresses.join("\n  "))
    }
}

/// `infrastructure.failed` as `InfrastructureFailed`.
fn camel(code: &str) -> String {
    let mut name = String::new();
    for word in code.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        name.push_str(&word[..1].to_ascii_uppercase());
        name.push_str(&word[1..]);
    }
    name
}
