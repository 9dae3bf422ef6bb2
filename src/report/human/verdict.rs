//! The end of a run in one screen: why, what to do now, where the lock is, and in the last line all that matters.

use std::time::Duration;

use crate::clock::human;
use crate::event::text::span;
use crate::event::{
    Counts, Diagnostic, Event, LockBlocked, ProcessSurvived, RunFinished, RunOutcome, RunStarted, StepFinished,
    StepOutcome,
};
use crate::report::account::words;
use crate::report::human::log::labelled;
use crate::report::human::row::{Row, Style};

/// How many diagnostics and addresses are repeated.
const REPEATED: usize = 5;

/// How many steps are named as the slowest.
const SLOWEST: usize = 3;

/// What the verdict tells beyond its own event.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The options that lead a command to the lock.
    lock_options: Option<String>,
    run_dir: Option<String>,
    /// The identity of the run itself.
    ours: Option<String>,
    /// Title and milliseconds of the steps that ran.
    steps: Vec<(String, u64)>,
    /// The place and the title of the step that failed or was stopped.
    broken: Option<String>,
    /// Where a person sees the job that holds the lock.
    their_job: Option<String>,
    errors: Vec<String>,
}

impl Gathered {
    pub(super) fn start(&mut self, started: &RunStarted) {
        self.lock_options = words::lock_options(started);
        self.ours.clone_from(&started.holder);
        self.run_dir.clone_from(&started.run_dir);
    }

    pub(super) fn step(&mut self, finished: &StepFinished) {
        self.steps.push((finished.title.clone(), finished.duration_ms));
        match finished.outcome {
            StepOutcome::Done | StepOutcome::Nothing => {}
            StepOutcome::Stopped | StepOutcome::Failed => {
                self.broken = Some(format!("step {}/{}, {}", finished.index, finished.total, finished.title));
            }
        }
    }

    pub(super) fn block(&mut self, blocked: &LockBlocked) {
        self.their_job.clone_from(&blocked.job_url);
    }

    pub(super) fn diagnose(&mut self, diagnostic: &Diagnostic) {
        self.errors.push(match &diagnostic.address {
            Some(address) => format!("{address}: {}", diagnostic.summary),
            None => diagnostic.summary.clone(),
        });
    }
}

/// The lines of the verdict; the last one says it all.
pub(super) fn verdict(finished: &RunFinished, gathered: &Gathered) -> Vec<Row> {
    let mut rows = vec![Row::new()];
    rows.extend(why(finished, gathered));
    rows.extend(what_to_do(finished));
    rows.extend(lock(finished, gathered));
    rows.extend(list("unfinished", &finished.unfinished));
    rows.extend(list("still there", &finished.survived.iter().map(ProcessSurvived::named).collect::<Vec<_>>()));
    // After a success nobody has to look at the folder that the heading names.
    let is_news = |path: &str| finished.exit_code != 0 || gathered.run_dir.as_deref() != Some(path);
    let kept = finished.kept.iter().filter(|kept| is_news(&kept.path));
    let kept: Vec<String> = kept.map(|kept| format!("{} ({})", kept.path, kept.what)).collect();
    rows.extend(list("look at", &kept));
    rows.extend(counted(&finished.counts, finished.outcome));
    rows.extend(times(finished, gathered));
    if rows.len() > 1 {
        rows.push(Row::new());
    }
    rows.push(style(finished).row(0, &Event::from(finished.clone()).message()).unbroken());
    rows
}

fn style(finished: &RunFinished) -> Style {
    match finished.outcome {
        RunOutcome::Succeeded if finished.exit_code == 0 => Style::Triumph,
        RunOutcome::Stopped if finished.exit_code == 10 => Style::Alert,
        RunOutcome::Succeeded
        | RunOutcome::Stopped
        | RunOutcome::Failed
        | RunOutcome::Refused
        | RunOutcome::Blocked
        | RunOutcome::Forced => Style::Alarm,
    }
}

fn why(finished: &RunFinished, gathered: &Gathered) -> Vec<Row> {
    let Some(failure) = &finished.failure else { return Vec::new() };
    let mut rows = vec![labelled(2, "why", &failure.message)];
    let mut reasons: Vec<&String> = failure.causes.iter().collect();
    // A tool's diagnostic is a cause already when it is what ended the step.
    let known = |error: &&String| **error == failure.message || failure.causes.contains(error);
    reasons.extend(gathered.errors.iter().filter(|error| !known(error)));
    reasons.dedup();
    // What stands above is not repeated at length; what refused the run before its first step stands here alone.
    let most = if gathered.broken.is_some() { REPEATED } else { failure.causes.len().max(REPEATED) };
    let left_out = reasons.len().saturating_sub(most);
    rows.extend(reasons.into_iter().take(most).map(|reason| labelled(2, "", reason)));
    if left_out > 0 {
        rows.push(labelled(2, "", &format!("and {left_out} more above")));
    }
    rows.extend(gathered.broken.as_ref().map(|step| labelled(2, "where", step)));
    rows.extend(gathered.their_job.as_ref().map(|url| labelled(2, "their job", url)));
    rows
}

fn what_to_do(finished: &RunFinished) -> Vec<Row> {
    let all = words::to_do(finished);
    let [only] = all.as_slice() else { return numbered("do now", &all) };
    vec![labelled(2, "do now", only)]
}

/// A label before the first of several things to do, each of which is wrapped beside its number.
fn numbered(label: &str, lines: &[&String]) -> Vec<Row> {
    let row = |(line, number): (&&String, usize)| {
        let label = if number == 1 { label } else { "" };
        labelled(2, label, &format!("{number}. ")).hang_here().say(Style::Plain, line)
    };
    lines.iter().zip(1..).map(row).collect()
}

fn lock(finished: &RunFinished, gathered: &Gathered) -> Option<Row> {
    let text = words::lock_told(finished, gathered.lock_options.as_deref(), gathered.ours.as_deref())?;
    Some(labelled(2, "lock", &text))
}

/// A label before the first of several lines.
fn list(label: &str, lines: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if index == REPEATED * 2 {
            rows.push(labelled(2, "", &format!("and {} more", lines.len() - index)));
            break;
        }
        rows.push(labelled(2, if index == 0 { label } else { "" }, line));
    }
    rows
}

fn counted(counts: &Counts, outcome: RunOutcome) -> Vec<Row> {
    let told = |parts: &[(u64, &str)]| {
        let parts: Vec<String> =
            parts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
        parts.join(", ")
    };
    let (steps, resources) = (counts.steps, counts.resources);
    let mut rows = Vec::new();
    let resources = told(&[
        (resources.created, "created"),
        (resources.changed, "changed"),
        (resources.destroyed, "destroyed"),
        (resources.failed, "failed"),
    ]);
    if !resources.is_empty() {
        rows.push(labelled(2, "resources", &resources));
    }
    if steps.failed + steps.cut_off + steps.skipped > 0 {
        let broken = match outcome {
            RunOutcome::Blocked => "blocked",
            RunOutcome::Stopped | RunOutcome::Forced => "stopped",
            RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::Refused => "failed",
        };
        let cut_off = (steps.cut_off, "begun and cut off");
        let steps = told(&[(steps.done, "done"), (steps.failed, broken), cut_off, (steps.skipped, "not begun")]);
        rows.push(labelled(2, "steps", &steps));
    }
    if counts.warnings > 0 {
        rows.push(labelled(2, "warnings", &format!("{}, see above", counts.warnings)));
    }
    rows
}

/// The slowest steps, when there is something to tell.
fn times(finished: &RunFinished, gathered: &Gathered) -> Option<Row> {
    let mut steps: Vec<&(String, u64)> = gathered.steps.iter().filter(|(_, ms)| *ms >= 1_000).collect();
    if steps.len() < 2 {
        return None;
    }
    steps.sort_by_key(|(_, ms)| std::cmp::Reverse(*ms));
    let slowest: Vec<String> = steps.iter().take(SLOWEST).map(|(title, ms)| format!("{title} {}", span(*ms))).collect();
    let whole = human(Duration::from_millis(finished.duration_ms));
    Some(labelled(2, "time", &format!("{whole}, most of it: {}", slowest.join(", "))))
}
