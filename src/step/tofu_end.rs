//! What OpenTofu's end means: failed, stopped cleanly, or partially applied. Pure.
//!
//! Its exit status is 1 for "failed" and for "stopped" alike, so the account of its lines decides, together with what
//! we did to it. Nothing is claimed that was not witnessed.

use std::path::Path;

use crate::clock::{Instant, human};
use crate::failure::{Code, Failure};
use crate::process::{Ended, Exit, Fate, Stop};
use crate::step::invoke::Tail;
use crate::step::tofu_ui::{Problem, Ui};
use crate::step::{Outcome, Stopped};

/// The summary of OpenTofu when another one has the state.
const LOCKED: &str = "Error acquiring the state lock";

/// An OpenTofu process that did not simply succeed.
pub(crate) struct Applied<'a> {
    /// How people call the root.
    pub(crate) name: &'a str,
    /// What it said.
    pub(crate) ui: &'a Ui,
    /// Its last lines that were no JSON.
    pub(crate) tail: &'a Tail,
    /// How it ended.
    pub(crate) ended: &'a Ended,
    /// Where the state is that it could not save.
    pub(crate) unsaved: Option<&'a Path>,
}

/// A stop that came before anything was changed.
pub(crate) fn before_anything() -> Stopped {
    Stopped { clean: true, unfinished: Vec::new(), note: "stopped before anything was applied".to_owned() }
}

/// Tells what the end means.
pub(crate) fn judge(applied: &Applied<'_>, stop: Stop, now: Instant) -> Outcome {
    let Applied { name, ui, tail, ended, unsaved } = applied;
    if let Some(path) = unsaved {
        let sentence = format!("OpenTofu could not save its state; it is kept in `{}`", path.display());
        let failure = ui.problems().iter().fold(Failure::new(Code::InfrastructureFailed, sentence), with_problem);
        return Outcome::Failed(failure.hint(
            "bring that state where it belongs before anything is applied again; until then every apply is refused",
        ));
    }
    let interrupted = ended.interrupts_sent.max(ended.interrupts_reported) > 0 || ended.killed;
    match stop {
        Stop::Graceful { since, .. } | Stop::Force { since } if interrupted => {
            Outcome::Stopped(stopped(applied, now.since(since)))
        }
        Stop::None | Stop::Graceful { .. } | Stop::Force { .. } => {
            let sentence = if ended.interrupts_reported > 0 {
                format!("OpenTofu was interrupted in `{name}` by somebody else than dcctl")
            } else {
                format!("OpenTofu could not apply `{name}`")
            };
            let failure = explain(sentence, ui, tail, ended);
            let unfinished = ui.unfinished();
            Outcome::Failed(if unfinished.is_empty() {
                failure
            } else {
                failure.cause(format!("not complete: {}", unfinished.join(", ")))
            })
        }
    }
}

fn stopped(applied: &Applied<'_>, waited: std::time::Duration) -> Stopped {
    let Applied { ui, ended, .. } = applied;
    let unfinished = ui.unfinished();
    let alive: Vec<_> = ended.left_behind.iter().filter(|left| left.fate == Fate::Alive).collect();
    if ended.exit == Exit::Unseen || !alive.is_empty() {
        return Stopped { clean: false, unfinished, note: gave_up(ended, &human(waited)) };
    }
    // A signal in the first milliseconds ends it before it has a handler.
    if matches!(ended.exit, Exit::Signal(_)) && !ui.has_spoken() && !ended.killed {
        return before_anything();
    }
    let unsaved = ui.problems().iter().any(is_about_saving);
    let whole = unfinished.is_empty() && !unsaved && (ui.started() == 0 || ui.problems().is_empty());
    let clean = ended.is_clean() && whole;
    let note = if clean && ui.started() == 0 {
        "stopped before anything was applied".to_owned()
    } else if clean {
        "OpenTofu finished what was in flight and wrote its state".to_owned()
    } else {
        partial(ended, unsaved)
    };
    Stopped { clean, unfinished, note }
}

/// Why a stop is not called clean, in what was witnessed.
fn partial(ended: &Ended, unsaved: bool) -> String {
    let mut facts = Vec::new();
    if ended.interrupts_sent.max(ended.interrupts_reported) > 1 {
        facts.push(if ended.interrupts_reported > ended.interrupts_sent {
            "OpenTofu was interrupted twice, not by dcctl alone, and gave up what was in flight"
        } else {
            "OpenTofu was interrupted twice and gave up what was in flight"
        });
    }
    if ended.killed {
        facts.push("OpenTofu had to be killed, so its state may lack what it had made last");
    }
    if unsaved {
        facts.push("OpenTofu says that it could not save all of its state");
    }
    if facts.is_empty() {
        facts.push("OpenTofu stopped before everything that it had begun was complete");
    }
    format!("{}; the infrastructure is PARTIALLY APPLIED", facts.join("; "))
}

/// What is said when dcctl stops waiting for a tool that was asked to stop.
fn gave_up(ended: &Ended, waited: &str) -> String {
    let alive: Vec<String> = ended
        .left_behind
        .iter()
        .filter(|left| left.fate == Fate::Alive)
        .map(|left| format!("process {} ({}, state {})", left.pid, left.name, left.state))
        .collect();
    let witnessed = if ended.exit == Exit::Unseen {
        format!("Nobody saw process {} end; still there: {}", ended.pid, alive.join(", "))
    } else {
        format!("OpenTofu itself has gone, but something it started outlived it: {}", alive.join(", "))
    };
    format!(
        "dcctl stopped waiting for the interrupted OpenTofu command. {witnessed}. Nothing here witnessed that the state \
         was written: treat this instance's infrastructure as PARTIALLY APPLIED rather than untouched. Re-run the same \
         command — the apply is idempotent and reconciles whatever was left half done. Assuming nothing happened is the \
         one reading that is not safe (dcctl waited {waited} after the interrupt)"
    )
}

/// A failure with what OpenTofu said about it.
pub(crate) fn explain(sentence: String, ui: &Ui, tail: &Tail, ended: &Ended) -> Failure {
    let failure = Failure::new(Code::InfrastructureFailed, sentence);
    let problems = ui.problems();
    if !problems.is_empty() {
        let failure = problems.iter().fold(failure, with_problem);
        return match problems.iter().find(|problem| problem.summary == LOCKED) {
            Some(problem) => locked(failure, problem),
            None => failure,
        };
    }
    let failure = tail.last(5).fold(failure, Failure::cause);
    if failure.causes.is_empty() { failure.cause(format!("it ended with {}", ended.exit)) } else { failure }
}

fn with_problem(failure: Failure, problem: &Problem) -> Failure {
    let about = problem.address.as_ref().map_or_else(String::new, |address| format!("{address}: "));
    failure.cause(format!("{about}{}", problem.summary))
}

/// Another one has the state: who, and the lock's id. The id stands in two places, and only one is that of the holder.
fn locked(failure: Failure, problem: &Problem) -> Failure {
    let value = |name: &str| problem.detail.lines().find_map(|line| line.trim().strip_prefix(name).map(str::trim));
    let held = problem.detail.split_once("already locked: ID=").map(|(_, rest)| rest);
    let held = held.and_then(|rest| rest.split_whitespace().next());
    let id = held.or_else(|| value("ID:"));
    let who = value("Who:").map_or_else(String::new, |who| format!(" by {who}"));
    match id {
        Some(id) => failure.hint(format!(
            "the state is locked{who}; if that process is gone for good, run `tofu force-unlock {id}` in an initialised \
             copy of the root"
        )),
        None => failure.hint(format!("the state is locked{who}; wait until that process has ended")),
    }
}

fn is_about_saving(problem: &Problem) -> bool {
    let summary = problem.summary.to_lowercase();
    summary.contains("state") && ["save", "saving", "persist"].iter().any(|word| summary.contains(word))
}

#[cfg(test)]
#[path = "tofu_end_tests.rs"]
mod tests;
