//! What the end of a run comes to, in the words that every report uses.

use std::time::Duration;

use crate::event::text::span;
use crate::event::{LockEnd, ProcessSurvived, RunFinished, RunOutcome, RunStarted};
use crate::failure::shell_word;
use crate::report::account::{Account, LockFate, Step, ThingState};

/// How many of several things a verdict names.
const NAMED: usize = 10;

/// How the end of a run is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It went well.
    Good,
    /// It stopped when it was asked to, and everything is in order.
    Calm,
    /// A person has to do something.
    Bad,
    /// The journal does not say.
    Unknown,
}

/// The end of a run, or of its journal.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) mood: Mood,
    /// `bootstrap demo failed`.
    pub(crate) heading: String,
    /// The stable code of the failure.
    pub(crate) code: Option<String>,
    pub(crate) exit_code: Option<u8>,
    /// How long the run took, as far as it was seen.
    pub(crate) took: Duration,
    /// One sentence, and what lies beneath.
    pub(crate) why: Option<String>,
    pub(crate) causes: Vec<String>,
    /// Where the lock is.
    pub(crate) lock: String,
    /// What to do now, in order.
    pub(crate) to_do: Vec<String>,
    /// What else there is to know, each with its name.
    pub(crate) lists: Vec<(&'static str, Vec<String>)>,
}

impl Verdict {
    /// What the run came to, as far as its journal says.
    pub(crate) fn of(account: &Account) -> Verdict {
        match &account.verdict {
            Some(finished) => witnessed(account, finished),
            None => unseen(account),
        }
    }
}

fn witnessed(account: &Account, finished: &RunFinished) -> Verdict {
    let dry = if finished.dry_run { "Dry run of " } else { "" };
    let failure = finished.failure.as_ref();
    let options = account.started.as_ref().and_then(lock_options);
    let ours = account.started.as_ref().and_then(|started| started.holder.as_deref());
    let more = lock_told(finished, options.as_deref(), ours).map(|more| format!(": {more}")).unwrap_or_default();
    let mut lists = Vec::new();
    let mut list = |name, lines: Vec<String>| {
        if !lines.is_empty() {
            lists.push((name, shortened(lines)));
        }
    };
    list("Begun, and not seen to complete", finished.unfinished.clone());
    list("Processes that are still there", finished.survived.iter().map(ProcessSurvived::named).collect());
    // After a success nobody has to look at the folder that is named anyway.
    let run_dir = account.started.as_ref().and_then(|started| started.run_dir.as_deref());
    let is_news = |path: &str| finished.exit_code != 0 || run_dir != Some(path);
    let kept = finished.kept.iter().filter(|kept| is_news(&kept.path));
    list("Look at", kept.map(|kept| format!("{} ({})", kept.path, kept.what)).collect());
    Verdict {
        mood: match finished.outcome {
            RunOutcome::Succeeded if finished.exit_code == 0 => Mood::Good,
            RunOutcome::Stopped if finished.exit_code == 10 => Mood::Calm,
            RunOutcome::Succeeded
            | RunOutcome::Stopped
            | RunOutcome::Failed
            | RunOutcome::Refused
            | RunOutcome::Blocked
            | RunOutcome::Forced => Mood::Bad,
        },
        heading: format!("{dry}{} {}", finished.subject, finished.outcome.said()),
        code: failure.map(|failure| failure.code.clone()),
        exit_code: Some(finished.exit_code),
        took: Duration::from_millis(finished.duration_ms),
        why: failure.map(|failure| failure.message.clone()),
        causes: failure.map(|failure| failure.causes.clone()).unwrap_or_default(),
        lock: format!("the lock {}{more}", finished.lock.said()),
        to_do: to_do(finished).into_iter().cloned().collect(),
        lists,
    }
}

/// A journal without a verdict: what was last seen, and nothing beyond.
fn unseen(account: &Account) -> Verdict {
    let mut lists = Vec::new();
    let mut list = |name, lines: Vec<String>| {
        if !lines.is_empty() {
            lists.push((name, shortened(lines)));
        }
    };
    let at_work = |step: &&Step| step.begun.is_some() && step.ended.is_none();
    list("Last seen", account.last.iter().map(|last| last.msg.clone()).collect());
    list("At work", account.steps.iter().filter(at_work).map(|step| step.title.clone()).collect());
    let programs = account.steps.iter().flat_map(|step| &step.programs).filter(|program| program.ended.is_none());
    let named = |pid: Option<u32>| pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    list("Programs whose end was not seen", programs.map(|one| format!("{}{}", one.name, named(one.pid))).collect());
    let begun = account.things().into_iter().filter(|(_, thing)| thing.state == ThingState::Started);
    list("Begun, and not seen to complete", begun.map(|(_, thing)| thing.name.clone()).collect());
    let options = account.started.as_ref().and_then(lock_options).map(|text| format!(" {text}")).unwrap_or_default();
    let run = account.last.as_ref().map(|last| last.run.clone()).unwrap_or_default();
    Verdict {
        mood: Mood::Unknown,
        heading: format!("{}: the journal ends without a verdict", account.subject()),
        code: None,
        exit_code: None,
        took: account.length(),
        why: Some(
            "The run was cut off, or it goes on: how it ends was not seen, and this page does not know.".to_owned(),
        ),
        causes: Vec::new(),
        lock: match (account.lock.claimed, account.lock.ended) {
            (_, Some((_, LockFate::Released))) => "the lock was seen to be released".to_owned(),
            (_, Some((_, LockFate::Left))) => "the lock was seen to be left behind".to_owned(),
            (_, Some((_, LockFate::Lost))) => "the lock was seen to be lost".to_owned(),
            (Some(_), None) => {
                let holder = account.lock.holder.as_deref().unwrap_or("this run");
                format!("the lock was held by {holder} when the journal ends, and was not seen to be given back")
            }
            (None, None) => "the lock was not seen to be taken".to_owned(),
        },
        to_do: vec![
            format!("`dcctl runs show {run}`, on the machine of the run, says whether it goes on"),
            format!("`dcctl lock status{options}` says who holds the lock now"),
        ],
        lists,
    }
}

fn shortened(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(NAMED);
    if more > 0 {
        lines.truncate(NAMED);
        lines.push(format!("and {more} more"));
    }
    lines
}

/// The options that lead a command to the lock of the run.
pub(crate) fn lock_options(started: &RunStarted) -> Option<String> {
    let of_cluster = started.kube_context.as_ref().map(|context| format!("--kube-context {}", shell_word(context)));
    let of_folder =
        started.lock_dir.as_ref().map(|folder| format!("--substrate direct --lock-dir {}", shell_word(folder)));
    of_folder.or(of_cluster)
}

/// What to do now, each once.
pub(crate) fn to_do(finished: &RunFinished) -> Vec<&String> {
    let hints = finished.failure.iter().flat_map(|failure| &failure.hints);
    let mut all: Vec<&String> = Vec::new();
    for next in finished.next.iter().chain(hints) {
        if !all.contains(&next) {
            all.push(next);
        }
    }
    all
}

/// Where the lock is, when that is worth more than the word of the verdict; `ours` is the identity of the run.
pub(crate) fn lock_told(finished: &RunFinished, options: Option<&str>, ours: Option<&str>) -> Option<String> {
    let holder = finished.holder.as_deref();
    let said = |holder: &&str| finished.failure.as_ref().is_some_and(|failure| failure.message.contains(holder));
    let by = holder.filter(|holder| !said(holder)).map(|holder| format!("held by {holder}"));
    match finished.lock {
        LockEnd::Released => None,
        LockEnd::Lost if holder.is_some() && holder == ours => {
            Some(format!("it still named this run, {}, when it was last seen", holder?))
        }
        LockEnd::NeverTaken | LockEnd::NotHeld | LockEnd::Lost => by,
        LockEnd::Unknown => Some(format!("not known; if it is held, then by {}", holder.unwrap_or("this run"))),
        LockEnd::Left => {
            let by = holder.map_or_else(|| "held by this run".to_owned(), |holder| format!("held by {holder}"));
            let reclaim = options.map(|options| format!(" {options}")).unwrap_or_default();
            Some(format!("{by}; when nothing of this run lives any more, `dcctl instances reclaim{reclaim}`"))
        }
    }
}

/// A time as pages show it: precise while it is short.
pub(crate) fn took(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => span(u64::try_from(ms).unwrap_or(u64::MAX)),
    }
}
