//! What OpenTofu's end means: failed, stopped cleanly, or partially applied. Pure.
//!
//! Its exit status is 1 for "failed" and for "stopped" alike, so the account of its lines decides, together with what
//! we did to it. Nothing is claimed that was not witnessed.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::clock::{Instant, human};
use crate::failure::{Code, Failure};
use crate::process::{Ended, Exit, Fate, Stop};
use crate::step::invoke::Tail;
use crate::step::tofu_lock::{self, Held};
use crate::step::tofu_ui::{Problem, Ui};
use crate::step::{Outcome, Stopped, tofu_first};

/// An OpenTofu process that did not simply succeed.
#[derive(Clone)]
pub(crate) struct Applied<'a> {
    /// What it was to do: `apply`, `plan`, `destroy`.
    pub(crate) deed: &'a str,
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
    /// The state on this machine afterwards; none where it is kept elsewhere, or none was written.
    pub(crate) state: Option<Afterwards>,
}

/// A state on this machine, as it was found after an apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Afterwards {
    /// What is wrong with it, if there ought to be one.
    pub(crate) trouble: Option<String>,
    /// The addresses in it.
    pub(crate) recorded: BTreeSet<String>,
}

impl Applied<'_> {
    /// Whether OpenTofu was torn out of its work, so that what it had made last may be recorded nowhere.
    fn is_torn(&self) -> bool {
        let crashed = matches!(self.ended.exit, Exit::Signal(_) | Exit::Unseen | Exit::Code(PANICKED));
        crashed || self.ended.killed || self.ended.interrupts_sent.max(self.ended.interrupts_reported) > 1
    }

    /// Whether its last words were heard, or its exit status says all. A disk without room for its output takes them away,
    /// and a signal in its first milliseconds comes before them: then silence is no sign that nothing was done.
    fn is_heard_out(&self) -> bool {
        self.ended.exit.is_success() || self.ui.has_ended()
    }

    /// What its end tells of a state that it left as dcctl had begun it; none when it may have made something.
    pub(crate) fn tells_of_the_beginning(&self) -> Option<tofu_first::Known> {
        if self.unsaved.is_some() || self.is_torn() || self.has_lost_a_provider() || !self.is_heard_out() {
            return None;
        }
        let is_whole = self.ended.exit.is_success();
        Some(if is_whole { tofu_first::Known::Whole } else { tofu_first::Known::OwnBeginning })
    }

    /// Whether a provider was gone in the middle of something.
    fn has_lost_a_provider(&self) -> bool {
        self.ui.problems().iter().any(|problem| PROVIDER_LOST.contains(&problem.summary.as_str()))
    }

    /// What may exist without being in the state: all that a torn OpenTofu was making, else what was in flight when a
    /// provider was lost.
    fn adrift(&self) -> Vec<String> {
        let lost_a_provider = self.has_lost_a_provider();
        let has_no_state = self.state.as_ref().is_some_and(|state| state.trouble.is_some());
        let candidates: BTreeSet<String> = match &self.state {
            Some(_) if has_no_state || self.is_torn() => self.ui.making().clone(),
            // How far a remote state has come cannot be seen from here.
            Some(_) | None if lost_a_provider || self.is_torn() => self.ui.unfinished().into_iter().collect(),
            Some(_) | None => BTreeSet::new(),
        };
        let recorded = self.state.as_ref().map(|state| &state.recorded);
        candidates.into_iter().filter(|address| recorded.is_none_or(|recorded| !recorded.contains(address))).collect()
    }
}

/// The deed that changes nothing.
pub(crate) const PLAN: &str = "plan";

/// The exit status of an OpenTofu that panicked.
const PANICKED: i32 = 11;

/// The summaries of OpenTofu when a provider is gone in the middle of something, or was given up.
const PROVIDER_LOST: [&str; 2] = ["Plugin did not respond", "Request cancelled"];

/// What to do before the next apply about addresses that may exist without being in the state; none when there are none.
pub fn look_first(addresses: &[String]) -> Option<String> {
    let named = addresses.join(", ");
    (!addresses.is_empty()).then(|| {
        format!(
            "before the next apply, see whether these exist and are in the state: {named}. What exists outside of it \
             would be made a second time: import it, or remove it"
        )
    })
}

/// A stop that came before anything was changed.
pub(crate) fn before_anything() -> Stopped {
    Stopped { clean: true, unfinished: Vec::new(), note: "stopped before anything was applied".to_owned() }
}

/// Tells what the end means.
pub(crate) fn judge(applied: &Applied<'_>, stop: Stop, now: Instant) -> Outcome {
    let Applied { deed, name, ui, tail, ended, unsaved, .. } = applied;
    if let Some(path) = unsaved {
        let sentence = format!("OpenTofu could not save its state; it is kept in `{}`", path.display());
        let failure = ui.problems().iter().fold(Failure::new(Code::InfrastructureFailed, sentence), with_problem);
        return Outcome::Failed(failure.hint(
            "bring that state where it belongs before anything is applied again; until then every apply is refused",
        ));
    }
    if let Some(trouble) = applied.state.as_ref().and_then(|state| state.trouble.as_ref())
        && !applied.is_torn()
    {
        return Outcome::Failed(state_gone(applied, trouble));
    }
    let interrupted = ended.interrupts_sent.max(ended.interrupts_reported) > 0 || ended.killed;
    match stop {
        Stop::Graceful { since, .. } | Stop::Force { since } if interrupted => {
            Outcome::Stopped(stopped(applied, now.since(since)))
        }
        Stop::None | Stop::Graceful { .. } | Stop::Force { .. } => {
            let is_partial = applied.is_torn() && (ui.started() > 0 || !ui.has_spoken());
            let torn = if is_partial && *deed != PLAN { "; the infrastructure is PARTIALLY APPLIED" } else { "" };
            let sentence = if ended.interrupts_reported > 0 {
                format!("OpenTofu was interrupted in `{name}` by somebody else than dcctl")
            } else if let (Exit::Signal(signal), false) = (ended.exit, ended.killed) {
                format!(
                    "OpenTofu was ended by signal {signal} while it worked on `{name}`; dcctl had not sent it{torn}"
                )
            } else {
                format!("OpenTofu could not {deed} `{name}`")
            };
            let failure = name_adrift(applied, name_unfinished(ui, explain(sentence, ui, tail, ended)));
            let lost = failure.code == Code::InfrastructureFailed && applied.has_lost_a_provider();
            let failure = if lost { Failure { code: Code::ProviderLost, ..failure } } else { failure };
            Outcome::Failed(if ended.exit == Exit::Signal(SIGKILL) && !ended.killed {
                failure.cause(
                    "the kernel sends signal 9 when memory runs out: see the limit of the container or the service, and the \
                     log of the machine",
                )
            } else {
                failure
            })
        }
    }
}

/// What the kernel sends to whom it takes its memory.
const SIGKILL: i32 = 9;

/// OpenTofu ended by itself, and the state that it should have written is not there.
fn state_gone(applied: &Applied<'_>, trouble: &str) -> Failure {
    let Applied { name, ui, ended, .. } = applied;
    let sentence = format!("OpenTofu has ended, and the state of `{name}` is gone: {trouble}");
    let failure = Failure::new(Code::InfrastructureFailed, sentence).cause(format!("it ended with {}", ended.exit));
    let failure = name_unfinished(ui, ui.problems().iter().fold(failure, with_problem));
    let adrift = applied.adrift();
    let failure = if adrift.is_empty() {
        failure
    } else {
        failure.cause(format!("made by this run, and in no state: {}", adrift.join(", ")))
    };
    let failure = failure.hint("bring the state back from a backup before anything is applied again, if there is one");
    look_first(&adrift).into_iter().fold(failure, Failure::hint)
}

fn name_unfinished(ui: &Ui, failure: Failure) -> Failure {
    let unfinished = ui.unfinished();
    if unfinished.is_empty() { failure } else { failure.cause(format!("not complete: {}", unfinished.join(", "))) }
}

/// Says what may exist without being in the state, and what to do about it before anything else.
fn name_adrift(applied: &Applied<'_>, failure: Failure) -> Failure {
    let trouble = applied.state.as_ref().and_then(|state| state.trouble.clone());
    let failure = trouble.into_iter().fold(failure, Failure::cause);
    let adrift = applied.adrift();
    let Some(look) = look_first(&adrift) else { return failure };
    let remedy = failure.code.row().remedy;
    failure.cause(format!("may exist without being in the state: {}", adrift.join(", "))).hint(look).hint(remedy)
}

/// Whether OpenTofu came to the end of what it had to say: its summary, or what it failed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// It did.
    Ended,
    /// It did not: whatever ended it, it was torn out of its work.
    BrokenOff,
}

/// What the end of an OpenTofu means whose exit status nobody could learn, because the process that had started it was
/// gone by then: its own last words decide. One of which no word is there, or whose end was not seen, is not said to have
/// done anything, nor to have done nothing. `waited` is how long ago it was asked to stop.
pub(crate) fn seen_out(applied: &Applied<'_>, account: Account, waited: Duration) -> Stopped {
    let Applied { ui, ended, unsaved, .. } = applied;
    let torn = account == Account::BrokenOff;
    let known = if torn { Exit::Unseen } else { ended.exit };
    // As for one that was torn: what it was making may be in no state.
    let as_torn = Ended { exit: known, ..(*ended).clone() };
    let adrift = Applied { ended: &as_torn, ..applied.clone() }.adrift();
    let unfinished: BTreeSet<String> = ui.unfinished().into_iter().chain(adrift).collect();
    let trouble = applied.state.as_ref().and_then(|state| state.trouble.clone());
    let outlived = ended.exit == Exit::Unseen || ended.left_behind.iter().any(|left| left.fate == Fate::Alive);
    let unsettled = unsaved.is_some() || trouble.is_some() || ui.problems().iter().any(is_about_saving);
    let whole = unfinished.is_empty() && ui.problems().is_empty();
    let clean = !torn && !outlived && !unsettled && whole && ended.is_clean();
    let about_state = match (unsaved, trouble) {
        (Some(path), _) => Some(format!("OpenTofu could not save its state; it is kept in `{}`", path.display())),
        (None, Some(trouble)) if outlived => Some(format!("the state cannot be read: {trouble}")),
        (None, Some(trouble)) => Some(format!("OpenTofu has ended, and its state is gone: {trouble}")),
        (None, None) => None,
    };
    let note = match (about_state, outlived) {
        (Some(about_state), true) => format!("{about_state}. {}", gave_up(ended, &human(waited))),
        (Some(about_state), false) => about_state,
        (None, true) => gave_up(ended, &human(waited)),
        (None, false) if torn => without_a_last_word(ui).to_owned(),
        (None, false) => in_its_words(ui, ended, clean, unsettled),
    };
    Stopped { clean, unfinished: Vec::from_iter(unfinished), note }
}

/// What is said of an OpenTofu that was not heard to the end. Where its output cannot be read, or had no room, it may have
/// done anything.
fn without_a_last_word(ui: &Ui) -> &'static str {
    if ui.has_spoken() {
        "OpenTofu ended without a last word; the infrastructure is PARTIALLY APPLIED"
    } else {
        "OpenTofu ended, and no word of it was found; nothing shows whether anything was applied, so treat the \
         infrastructure as PARTIALLY APPLIED"
    }
}

/// What is said of one that came to its last word.
fn in_its_words(ui: &Ui, ended: &Ended, clean: bool, unsettled: bool) -> String {
    match (ui.summary(), ui.problems().first()) {
        (Some(summary), None) if clean => format!("OpenTofu had come to its end: {summary}"),
        (_, _) if clean && ui.started() == 0 => "OpenTofu ended before anything was applied".to_owned(),
        (_, Some(problem)) => format!("OpenTofu failed: {}", problem.summary),
        (_, None) if clean => "OpenTofu finished what was in flight and wrote its state".to_owned(),
        (_, None) => partial(ended, unsettled),
    }
}

fn stopped(applied: &Applied<'_>, waited: Duration) -> Stopped {
    let Applied { ui, ended, .. } = applied;
    let unfinished: BTreeSet<String> = ui.unfinished().into_iter().chain(applied.adrift()).collect();
    let unfinished = Vec::from_iter(unfinished);
    let alive: Vec<_> = ended.left_behind.iter().filter(|left| left.fate == Fate::Alive).collect();
    if ended.exit == Exit::Unseen || !alive.is_empty() {
        return Stopped { clean: false, unfinished, note: gave_up(ended, &human(waited)) };
    }
    let unsaved = ui.problems().iter().any(is_about_saving);
    if !applied.is_heard_out() {
        if applied.deed == PLAN {
            return before_anything();
        }
        let as_torn = Ended { exit: Exit::Unseen, ..(*ended).clone() };
        let adrift = Applied { ended: &as_torn, ..applied.clone() }.adrift();
        let unfinished: BTreeSet<String> = unfinished.into_iter().chain(adrift).collect();
        let ours = ended.killed || ended.interrupts_sent.max(ended.interrupts_reported) > 1;
        let note = if ours { partial(ended, unsaved) } else { without_a_last_word(ui).to_owned() };
        return Stopped { clean: false, unfinished: Vec::from_iter(unfinished), note };
    }
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

/// What is said when dcctl stops waiting for a tool. It begins and ends as people know it; in between is what was seen.
fn gave_up(ended: &Ended, waited: &str) -> String {
    let alive: Vec<String> = ended
        .left_behind
        .iter()
        .filter(|left| left.fate == Fate::Alive)
        .map(|left| format!("process {} ({}, state {})", left.pid, left.name, left.state))
        .collect();
    let alive = if alive.is_empty() { "nothing that can be seen".to_owned() } else { alive.join(", ") };
    let witnessed = if ended.exit == Exit::Unseen {
        format!("Nobody saw process {} end; still there: {alive}", ended.pid)
    } else {
        format!("OpenTofu itself has gone, but something it started outlived it: {alive}")
    };
    format!(
        "dcctl stopped waiting for the interrupted OpenTofu command. {witnessed}. Nothing here witnessed that the state \
         was written: treat this instance's infrastructure as PARTIALLY APPLIED rather than untouched. What exists and is \
         in no state would be made a second time, so look for that before you run the same command again. Assuming nothing \
         happened is the one reading that is not safe (dcctl waited {waited} after the interrupt)"
    )
}

/// A failure with what OpenTofu said about it.
pub(crate) fn explain(sentence: String, ui: &Ui, tail: &Tail, ended: &Ended) -> Failure {
    let failure = Failure::new(Code::InfrastructureFailed, sentence);
    // Some of its commands speak to people alone.
    let in_a_box = boxed(tail).filter(|problem| problem.summary == tofu_lock::NOT_LOCKED);
    let problems = if ui.problems().is_empty() { in_a_box.as_slice() } else { ui.problems() };
    if !problems.is_empty() {
        let failure = problems.iter().fold(failure, with_problem);
        return match problems.iter().find_map(Held::of) {
            Some(held) => {
                let failure = Failure { code: Code::StateLocked, ..failure };
                failure.hint("wait until the process that has it has ended").hint(held.unlock())
            }
            None => failure,
        };
    }
    let failure = tail.last(5).fold(failure, Failure::cause);
    if failure.causes.is_empty() { failure.cause(format!("it ended with {}", ended.exit)) } else { failure }
}

/// The last error that OpenTofu put into a box for people.
fn boxed(tail: &Tail) -> Option<Problem> {
    let lines: Vec<&str> = tail.last(Tail::MOST).filter_map(|line| line.strip_prefix('│')).map(str::trim).collect();
    let first = lines.iter().rposition(|line| line.starts_with("Error: "))?;
    let summary = lines[first].trim_start_matches("Error: ").to_owned();
    Some(Problem { summary, detail: lines[first + 1..].join("\n"), address: None, since: None })
}

fn with_problem(failure: Failure, problem: &Problem) -> Failure {
    let about = problem.address.as_ref().map_or_else(String::new, |address| format!("{address}: "));
    let reason = tofu_lock::reason(problem).map_or_else(String::new, |reason| format!(": {reason}"));
    failure.cause(format!("{about}{}{reason}", problem.summary))
}

fn is_about_saving(problem: &Problem) -> bool {
    let summary = problem.summary.to_lowercase();
    summary.contains("state") && ["save", "saving", "persist"].iter().any(|word| summary.contains(word))
}

#[cfg(test)]
#[path = "tofu_end_tests.rs"]
mod tests;
