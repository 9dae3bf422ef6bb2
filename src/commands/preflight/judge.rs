//! Turns what was found into lines. Nothing is asked here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::clock::human;
use crate::cluster::access::{Access, Identity};
use crate::cluster::namespace::Namespace;
use crate::commands::preflight::check::{Check, Level};
use crate::config::Job;
use crate::event::StopBudget;
use crate::failure::{Code, Failure};
use crate::lock::status::{Looks, State, Status};
use crate::pipeline::Verb;
use crate::step::rights::{Need, When, how_to_grant};
use crate::step::{Outcome, StateFile, StateSeen, Tool};

/// Below this much room a run is not begun, and it is said below that.
const NO_ROOM: u64 = 1 << 20;
const LITTLE_ROOM: u64 = 64 << 20;

/// How far two clocks may be apart without being worth a word.
const CLOCKS_AGREE: Duration = Duration::from_secs(5);

/// Whether something is so, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// Nobody could say.
    Unknown,
}

impl Known {
    /// From an answer, if there was one.
    pub(crate) fn of(answer: Option<bool>) -> Known {
        match answer {
            Some(true) => Known::Yes,
            Some(false) => Known::No,
            None => Known::Unknown,
        }
    }

    fn not(self) -> Known {
        match self {
            Known::Yes => Known::No,
            Known::No => Known::Yes,
            Known::Unknown => Known::Unknown,
        }
    }
}

/// What decides whether a right is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// The run waits for a lock that is held.
    pub(crate) waits: Known,
    /// The bundle declares its instances.
    pub(crate) declares: Known,
    /// The instance is declared.
    pub(crate) declared: Known,
    /// A namespace that dcctl makes is missing.
    pub(crate) namespace_missing: Known,
    /// The namespace of the instance is there.
    pub(crate) namespace_there: Known,
    /// The bundle names the operator's deployment.
    pub(crate) operator_named: Known,
    /// The operator's manifests have definitions.
    pub(crate) definitions: Known,
    /// The cluster has an install record.
    pub(crate) installed: Known,
}

impl Case {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Case = Case {
        waits: Known::Unknown,
        declares: Known::Unknown,
        declared: Known::Unknown,
        namespace_missing: Known::Unknown,
        namespace_there: Known::Unknown,
        operator_named: Known::Unknown,
        definitions: Known::Unknown,
        installed: Known::Unknown,
    };

    fn uses(self, when: When) -> Known {
        match when {
            When::Always => Known::Yes,
            When::Waiting => self.waits,
            When::Declares => self.declares,
            When::Declared | When::Undeclared if self.declares == Known::No => Known::No,
            When::Declared => self.declared,
            When::Undeclared => self.declared.not(),
            When::NamespaceMissing => self.namespace_missing,
            When::NamespaceThere => self.namespace_there,
            When::OperatorNamed => self.operator_named,
            When::Definitions => self.definitions,
            When::NotInstalled => self.installed.not(),
        }
    }
}

/// A right of the verb, as the API server answered.
pub(crate) fn permission(need: &Need, case: Case, who: Option<&Identity>, answer: &Result<Access, Failure>) -> Check {
    let right = need.right;
    let name = who.map_or("this account", |who| who.user.as_str());
    let line = |check: Check| {
        check
            .about(right.to_string())
            .with("verb", right.verb)
            .with("group", right.group)
            .with("resource", right.resource)
            .with("namespace", right.namespace.map_or(Value::Null, Value::from))
            .with("user", who.map_or(Value::Null, |who| who.user.as_str().into()))
    };
    let access = match answer {
        Ok(access) => access,
        Err(failure) => return line(Check::failure(PERMISSION, failure).with("allowed", Value::Null)),
    };
    let check = if access.allowed {
        Check::ok(PERMISSION, format!("{name} may {right}"))
    } else {
        denied(need, case, who, access)
    };
    line(check.with("allowed", access.allowed))
}

fn denied(need: &Need, case: Case, who: Option<&Identity>, access: &Access) -> Check {
    let user = who.map(|who| who.user.as_str());
    let (right, grant, name) = (need.right, how_to_grant(user, [need.right]), user.unwrap_or("this account"));
    let said = format!("{name} may not {right}");
    let only = need.when.words().map(|words| format!("it is used only when {words}")).unwrap_or_default();
    match (case.uses(need.when), need.without) {
        (Known::No, _) => Check::ok(PERMISSION, format!("{said}, and need not: {only}")),
        (Known::Unknown, _) => Check::warning(PERMISSION, format!("{said}; {only}"), grant),
        (Known::Yes, Some(without)) => Check::warning(PERMISSION, format!("{said}: {without}"), grant),
        (Known::Yes, None) => {
            Check::failure(PERMISSION, &Failure::new(Code::Forbidden, said).cause(access.reason.clone()).hint(grant))
        }
    }
}

/// The id of every line about a right.
pub(crate) const PERMISSION: &str = "permission";

/// A program.
pub(crate) fn tool(id: &'static str, name: &str, is_needed: bool, found: &Result<Tool, Failure>) -> Check {
    let check = match found {
        Ok(Tool { path, version }) => {
            let path = path.display().to_string();
            let check = Check::ok(id, format!("{name} {version} ({path})")).with("version", version.as_str());
            return check.with("path", path).with("needed", is_needed);
        }
        Err(failure) => Check::failure(id, failure),
    };
    let check = check.with("version", Value::Null).with("path", Value::Null).with("needed", is_needed);
    if is_needed { check } else { check.only_warned() }
}

/// A folder, and the room in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// The folder that is meant.
    pub(crate) folder: PathBuf,
    /// The one that is there already: the same, or one above it.
    pub(crate) there: PathBuf,
    /// How many bytes are free for this account.
    pub(crate) bytes: u64,
    /// How many files can still be made, where the file system counts them.
    pub(crate) files: Option<u64>,
}

/// A folder that is written to.
pub(crate) fn room(id: &'static str, code: Code, looked: &Result<Room, Failure>) -> Check {
    let room = match looked {
        Ok(room) => room,
        Err(failure) => return Check::failure(id, failure),
    };
    let folder = room.folder.display().to_string();
    let free = megabytes(room.bytes);
    let fix = format!("make room on the file system of {}", room.there.display());
    let check = if room.bytes < NO_ROOM || room.files == Some(0) {
        let why =
            if room.files == Some(0) { "no more files can be made".to_owned() } else { format!("{free} is free") };
        Check::failure(id, &Failure::new(code, format!("{folder} has no room: {why}")).hint(fix))
    } else if room.bytes < LITTLE_ROOM {
        Check::warning(id, format!("{folder} has little room: {free} is free"), fix)
    } else if room.there == room.folder {
        Check::ok(id, format!("{folder} can be written to, {free} free"))
    } else {
        Check::ok(id, format!("{folder} can be made in {}, {free} free", room.there.display()))
    };
    check.with("path", folder).with("free_bytes", room.bytes)
}

fn megabytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mebibytes @ 1..10_240 => format!("{mebibytes} MiB"),
        mebibytes => format!("{} GiB", mebibytes >> 10),
    }
}

/// Which CI system this is.
pub(crate) fn ci(job: &Job) -> Check {
    let message = match (job.system, &job.pod) {
        (Some(system), _) => format!("{} was found", system.title()),
        (None, Some(_)) => "a pod, and no CI system".to_owned(),
        (None, None) => "no CI system: a person, or what a person has set up".to_owned(),
    };
    let system = serde_json::to_value(job.system).unwrap_or_default();
    let job_url = job.url.as_deref().map_or(Value::Null, Value::from);
    Check::ok("ci", message).with("system", system).with("ci", job.ci).with("job_url", job_url)
}

/// How long a stop may take here, and what a cancel would leave.
pub(crate) fn stop_budget(budget: &StopBudget, advice: Option<&str>) -> Check {
    let seconds = human(Duration::from_secs(budget.seconds));
    let note = budget.note.as_deref().map(|note| format!("; {note}")).unwrap_or_default();
    let message = format!("a stop may take {seconds} ({}){note}", budget.source);
    let is_known = budget.note.is_none() || budget.ends.is_some();
    let check = if budget.graceful_seconds.is_none() && is_known {
        Check::ok("stop_budget", message)
    } else {
        Check::warning("stop_budget", message, advice.unwrap_or("say how long it may take with --stop-budget"))
    };
    let ends = serde_json::to_value(budget.ends).unwrap_or_default();
    let graceful = budget.graceful_seconds.map_or(Value::Null, Value::from);
    check
        .with("seconds", budget.seconds)
        .with("source", budget.source.as_str())
        .with("graceful_seconds", graceful)
        .with("ends", ends)
}

/// The API server.
pub(crate) fn cluster(server: &str, version: &str) -> Check {
    let check = Check::ok("cluster", format!("Kubernetes {} answers at {server}", version.trim_start_matches('v')));
    check.with("server", server).with("version", version)
}

/// Who this account is.
pub(crate) fn account(answer: &Result<Identity, Failure>) -> Check {
    match answer {
        Ok(who) => {
            let check = Check::ok("account", format!("the API server knows this account as {}", who.user));
            check.with("user", who.user.as_str()).with("groups", who.groups.clone())
        }
        Err(failure) => Check::failure("account", failure).only_warned(),
    }
}

/// How far this machine's clock is from the API server's; positive where that is ahead. It can be told no better than
/// `within`.
pub(crate) fn clock(ahead_ms: i64, within: Duration) -> Check {
    let apart = Duration::from_millis(ahead_ms.unsigned_abs());
    let check = if apart.saturating_sub(within) <= CLOCKS_AGREE {
        Check::ok("clock", "this machine's clock agrees with the API server's")
    } else {
        let side = if ahead_ms > 0 { "behind" } else { "ahead of" };
        let message = format!(
            "this machine's clock is {} {side} the API server's: what it says of the age of a lock is off by that",
            human(apart)
        );
        Check::warning("clock", message, "set the clock (NTP); no lock is ever decided by it")
    };
    check.with("ahead_ms", ahead_ms).with("within_ms", u64::try_from(within.as_millis()).unwrap_or(u64::MAX))
}

/// The namespace of the lock.
pub(crate) fn lock_namespace(name: &str, looked: &Result<Namespace, Failure>, may_make: Known) -> Check {
    const ID: &str = "lock_namespace";
    let with = |check: Check, state: &str| check.with("namespace", name).with("state", state);
    match (looked, may_make) {
        (Ok(Namespace::There { .. }), _) => with(Check::ok(ID, format!("namespace {name} is there")), "there"),
        (Ok(Namespace::Missing), Known::Yes | Known::Unknown) => {
            with(Check::ok(ID, format!("namespace {name} is not there yet; the first run makes it")), "missing")
        }
        (Ok(Namespace::Missing), Known::No) => {
            let sentence = format!("namespace {name} is not there, and this account may not make it");
            let failure = Failure::new(Code::Forbidden, sentence).hint(format!("kubectl create namespace {name}"));
            with(Check::failure(ID, &failure), "missing")
        }
        (Ok(Namespace::Terminating { why }), _) => {
            let sentence = format!("namespace {name} is being deleted, so nobody can take the lock");
            let failure = Failure::new(Code::ClusterRequestFailed, sentence).cause(why.clone());
            with(Check::failure(ID, &failure.hint("wait until it is gone")), "terminating")
        }
        (Err(failure), Known::Yes) if failure.code == Code::Forbidden => with(
            Check::ok(ID, format!("whether {name} is there this account may not see, but it may make it")),
            "unknown",
        ),
        (Err(failure), _) => with(Check::failure(ID, failure).only_warned(), "unknown"),
    }
}

/// The holder of the lock. Who holds it today is a run's business, so it is never more than a warning.
pub(crate) fn lock(looked: &Result<Status, Failure>) -> Check {
    let status = match looked {
        Ok(status) => status,
        Err(failure) => return Check::failure("lock", failure),
    };
    let holder = status.holder.as_ref().map_or("somebody", |holder| holder.identity.as_str());
    let renewed = status.renewed_ms_ago.map(|ago| format!(", renewed {} ago", human(Duration::from_millis(ago))));
    let renewed = renewed.unwrap_or_default();
    let check = match (status.state, status.looks) {
        (State::Free, _) => Check::ok("lock", "nobody holds the lock"),
        (State::BeingDeleted, _) => {
            Check::warning("lock", "nobody holds the lock, and nobody can: it is being deleted", status.next.as_str())
        }
        (State::Held, Some(Looks::Stale)) => {
            let message = format!("{holder} holds the lock, and by this machine's clock it looks stale{renewed}");
            Check::warning("lock", message, status.next.as_str())
        }
        (State::Held, Some(Looks::Live) | None) => {
            Check::warning("lock", format!("{holder} holds the lock{renewed}"), status.next.as_str())
        }
    };
    check.with("status", serde_json::to_value(status).unwrap_or_default())
}

/// The OpenTofu state that a run would work from.
pub(crate) fn state(verb: Verb, seen: Option<&StateSeen>, refused: Option<&Failure>) -> Check {
    const ID: &str = "state";
    let check = match (refused, seen) {
        (Some(failure), _) => Check::failure(ID, failure),
        (None, None) => Check::ok(ID, "the bundle has no OpenTofu root for this verb, so there is no state"),
        (None, Some(StateSeen::Remote { backend })) => {
            Check::ok(ID, format!("the state is kept in a remote backend ({backend}), which OpenTofu asks itself"))
        }
        (None, Some(StateSeen::Local { path, file })) => local_state(verb, path, file),
    };
    match seen {
        None => check.with("kind", Value::Null),
        Some(StateSeen::Remote { backend }) => check.with("kind", "remote").with("backend", backend.as_str()),
        Some(StateSeen::Local { path, file }) => {
            let check = check.with("kind", "local").with("path", path.display().to_string());
            let (name, serial) = match file {
                StateFile::State(lineage) => (lineage.lineage.as_str().into(), lineage.serial.into()),
                StateFile::Missing | StateFile::Empty | StateFile::Unreadable => (Value::Null, Value::Null),
            };
            check.with("lineage", name).with("serial", serial)
        }
    }
}

fn local_state(verb: Verb, path: &Path, file: &StateFile) -> Check {
    const ID: &str = "state";
    let shown = path.display();
    match (file, verb) {
        (StateFile::State(state), _) => Check::ok(ID, format!("`{shown}` is there, serial {}", state.serial)),
        (StateFile::Missing, Verb::Install | Verb::Bootstrap | Verb::Exec) => {
            Check::ok(ID, format!("there is no `{shown}`, and nothing says that there should be"))
        }
        (StateFile::Missing, Verb::Upgrade | Verb::Destroy) => Check::warning(
            ID,
            format!("there is no `{shown}`, and no declaration names a state"),
            "if the instance has infrastructure, run where its state is, or name its folder with --state-dir",
        ),
        (StateFile::Empty | StateFile::Unreadable, _) => {
            let trouble = file.trouble(path).unwrap_or_default();
            Check::warning(ID, trouble, "bring back a backup if the instance has infrastructure, else move it away")
        }
    }
}

/// What a guard of the verb says, that only looks.
pub(crate) fn guard(id: &'static str, outcome: &Outcome) -> Check {
    match outcome {
        Outcome::Done(note) | Outcome::Nothing(note) => Check::ok(id, note.clone()),
        Outcome::Stopped(stopped) => Check::warning(id, stopped.note.clone(), "run it again"),
        // The line about the right says the same, and what to do.
        Outcome::Failed(failure) if failure.code == Code::Forbidden => Check::failure(id, failure).only_warned(),
        Outcome::Failed(failure) => Check::failure(id, failure),
    }
}

/// Lines that only say that all is well, and others.
pub(crate) fn counts(checks: &[Check]) -> [usize; 3] {
    [Level::Ok, Level::Warning, Level::Failure].map(|level| checks.iter().filter(|check| check.level == level).count())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
