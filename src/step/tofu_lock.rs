//! OpenTofu's own lock on a state: who has it, and whether that was an OpenTofu of ours which is gone.
//!
//! A lock beside a remote state is neither renewed nor does it expire: killed, an OpenTofu leaves it for ever. It is taken
//! off on proof alone. Beside the record of each OpenTofu that works on a state it is written which state that is, when
//! the process was started, and the time of its first line that only who has the lock can say. Two cannot have it at once:
//! so a lock which is there now, and was taken between those two times, is that very process's. When that has ended, with
//! all that it had started, nobody has it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::clock::rfc3339;
use crate::failure::{Code, Failure, shell_word};
use crate::process::{self, Manner};
use crate::step::helm_release::{Proof, seen};
use crate::step::invoke::{ABOUT, Done, RECORDS, Tail, words};
use crate::step::tofu::{Work, joined};
use crate::step::tofu_ui::{Problem, Ui};
use crate::step::{Kit, Update};

/// The summary of OpenTofu when it did not get the lock of its state: because another one has it, or for any other reason.
pub(crate) const NOT_LOCKED: &str = "Error acquiring the state lock";

/// What stands between the reason and what is told about the holder.
const INFO: &str = "Lock Info:";

/// The reasons that say that another one has it.
const IS_HELD: [&str; 3] = ["already locked", "temporarily unavailable", "state locked"];

/// Whether this is what OpenTofu says about a lock that another one has.
pub(crate) fn is_about_a_holder(update: &Update, ui: &Ui) -> bool {
    let is_about_the_lock = matches!(update, Update::Diagnostic { summary, .. } if summary == NOT_LOCKED);
    is_about_the_lock && ui.problems().last().is_some_and(|problem| Held::of(problem).is_some())
}

/// Why OpenTofu did not get the lock, without what it says each time.
pub(crate) fn reason(problem: &Problem) -> Option<String> {
    let told = problem.detail.split("\n\nOpenTofu acquires a state lock").next().unwrap_or_default();
    let told = told.split(INFO).next().unwrap_or_default();
    let told = told.trim().trim_start_matches("Error message:");
    // It breaks its lines for people.
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    (problem.summary == NOT_LOCKED && !told.is_empty()).then_some(told)
}

/// How long OpenTofu waits for a state that another one has locked.
const PATIENCE: &str = "30s";

/// Before it is asked whose the lock is, it does not wait.
const NO_PATIENCE: &str = "0s";

/// Who has the lock, as OpenTofu tells it. What it does not tell is empty, and that may be all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Held {
    id: String,
    who: String,
    operation: String,
    created: Option<Timestamp>,
    with: String,
}

impl Held {
    /// Reads what OpenTofu said about a lock that it did not get; none when nothing shows that another one has it: it may
    /// have got none because the disk is full, or the backend is down.
    pub(crate) fn of(problem: &Problem) -> Option<Held> {
        let reason = reason(problem).or_else(|| (problem.summary == NOT_LOCKED).then(String::new))?;
        let info = problem.detail.split_once(INFO).map_or("", |(_, info)| info);
        let value = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name).map(str::trim));
        let text = |name: &str| value(name).unwrap_or_default().to_owned();
        let created = value("Created:").and_then(time);
        let told =
            Held { id: text("ID:"), who: text("Who:"), operation: text("Operation:"), created, with: text("Version:") };
        // Old ones put their own attempt into the lines, and the holder's id into the reason.
        let id = reason.split_once("already locked: ID=").and_then(|(_, rest)| rest.split_whitespace().next());
        let told = match id {
            Some(id) if id != told.id => Held { id: id.to_owned(), ..Held::default() },
            // A backend that does not know the holder puts this very attempt into the lines.
            None if told.is_of(problem) => Held::default(),
            Some(_) | None => told,
        };
        // The file beside a state on this machine outlives its lock: what is in it shows nothing.
        let is_here = text("Path:").starts_with('/');
        let shown = IS_HELD.iter().any(|words| reason.to_lowercase().contains(words));
        (shown || (!told.id.is_empty() && !is_here)).then_some(told)
    }

    /// Whether this may be the attempt of the OpenTofu that said it: from this machine, and no older than that.
    fn is_of(&self, problem: &Problem) -> bool {
        let is_older = self.created.zip(problem.since).is_some_and(|(created, since)| created < since);
        !is_older && self.is_from(&rustix::system::uname().nodename().to_string_lossy())
    }

    fn is_from(&self, host: &str) -> bool {
        self.who.rsplit_once('@').is_some_and(|(_, from)| from == host)
    }

    /// The lock that kept an OpenTofu from its work.
    fn that_kept(ui: &Ui) -> Option<Held> {
        ui.problems().iter().find_map(Held::of)
    }

    /// The holder in words.
    fn shown(&self) -> String {
        if self.id.is_empty() {
            return "who has the lock is not told".to_owned();
        }
        let mut facts = vec![format!("lock {}", self.id)];
        facts.extend((!self.who.is_empty()).then(|| format!("taken by {}", self.who)));
        facts.extend((!self.operation.is_empty()).then(|| format!("for {}", self.operation)));
        facts.extend(self.created.map(|at| format!("at {}", rfc3339(at))));
        facts.extend((!self.with.is_empty()).then(|| format!("with OpenTofu {}", self.with)));
        facts.join(" ")
    }

    /// What a person does about a lock that is beside a remote state.
    pub(crate) fn unlock(&self) -> String {
        if self.id.is_empty() {
            return "if it does not go: ask whoever runs the backend who has it".to_owned();
        }
        format!(
            "if that process is gone for good: `tofu force-unlock {}`, in an initialised copy of the root",
            shell_word(&self.id)
        )
    }

    /// The holder of a state on this machine, while it lives: the kernel keeps that lock for it. The file beside the state
    /// says who it is, and outlives it.
    pub(crate) fn on_this_machine(state: &Path) -> Option<Held> {
        if !is_locked(state) {
            return None;
        }
        let name = state.file_name().unwrap_or_default().to_string_lossy();
        let told = fs::read(state.with_file_name(format!(".{name}.lock.info"))).ok();
        let told: Told = told.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let created = told.created.parse().ok();
        Some(Held { id: told.id, who: told.who, operation: told.operation, created, with: told.version })
    }

    /// Says that a state on this machine is worked on.
    pub(crate) fn at_work_here(&self, root: &str) -> Failure {
        self.refusal(root, "an OpenTofu on this machine is at work on it", Place::Here)
    }

    fn refusal(&self, root: &str, why: &str, where_it_is: Place) -> Failure {
        let sentence = format!("the OpenTofu state of `{root}` is locked: {}", self.shown());
        let failure = Failure::new(Code::StateLocked, sentence)
            .cause(why)
            .hint("wait until the process that has it has ended, then run the same command again");
        match where_it_is {
            Place::Elsewhere => failure.hint(self.unlock()),
            // The kernel keeps that one, and frees it with the process.
            Place::Here => failure,
        }
    }
}

/// What OpenTofu writes beside a state that it has locked.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Told {
    #[serde(rename = "ID")]
    id: String,
    operation: String,
    who: String,
    version: String,
    created: String,
}

/// Whether a living process has locked this file as OpenTofu does.
fn is_locked(state: &Path) -> bool {
    let Ok(file) = fs::File::open(state) else { return false };
    // One's own is given back with the file, at once.
    let tried = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockShared);
    matches!(tried, Err(Errno::AGAIN | Errno::ACCESS))
}

/// Where a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// On this machine.
    Here,
    /// In a remote backend.
    Elsewhere,
}

/// A time as Go writes it: `2026-11-30 20:53:26.700577895 +0000 UTC`.
fn time(text: &str) -> Option<Timestamp> {
    let mut words = text.split_whitespace();
    let (date, time, offset) = (words.next()?, words.next()?, words.next()?);
    let (hours, minutes) = offset.split_at_checked(3)?;
    format!("{date}T{time}{hours}:{minutes}").parse().ok()
}

/// Which state an OpenTofu works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Which {
    /// The API server of the run.
    server: String,
    /// The instance; none for what all instances share.
    instance: Option<String>,
    /// Which root.
    part: String,
    /// Its backend, as declared.
    backend: String,
}

/// What an OpenTofu process is about. It is written beside the process's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// The run that started it.
    run: String,
    /// The state it works on.
    state: Which,
    /// As its lock calls what it does.
    operation: String,
    /// When it was about to be started.
    began: Timestamp,
    /// When its own lines first showed that it had the lock.
    had_lock: Option<Timestamp>,
}

impl Use {
    /// What stands beside the record.
    pub(crate) fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it can be written as JSON")
    }

    /// Its lines show that it has the lock.
    pub(crate) fn has_the_lock(&self, since: Timestamp) -> Option<Use> {
        self.had_lock.is_none().then(|| Use { had_lock: Some(since), ..self.clone() })
    }

    /// Whether this lock is the one that it took.
    fn took(&self, held: &Held, state: &Which, host: &str) -> bool {
        let (Some(created), Some(had_lock)) = (held.created, self.had_lock) else { return false };
        let in_time = self.began <= created && created <= had_lock;
        self.state == *state && self.operation == held.operation && held.is_from(host) && in_time
    }
}

/// Whose a lock is.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// That of an OpenTofu of this run, which has ended with all that it had started.
    Ended(String),
    /// That of one that is at work, or of which something is: in words.
    Alive(String),
    /// Nothing here tells.
    Unknown,
}

impl Whose {
    fn why(&self) -> String {
        match self {
            Whose::Ended(run) => format!("it is that of run {run}, which has ended, and it could not be taken off"),
            Whose::Alive(who) => who.clone(),
            Whose::Unknown => "no run directory here shows that the process which took it has ended".to_owned(),
        }
    }
}

/// Looks through the run directories, this run's and those beside it, for the OpenTofu that took this lock.
fn whose(run_dir: &Path, held: &Held, state: &Which, host: &str) -> Whose {
    let runs = run_dir.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    for run in runs {
        for entry in fs::read_dir(run.path().join(RECORDS)).into_iter().flatten().flatten() {
            let path = entry.path();
            let Some(record) = path.to_str().and_then(|path| path.strip_suffix(ABOUT)) else { continue };
            let text = fs::read(&path).ok();
            let Some(used) = text.and_then(|text| serde_json::from_slice::<Use>(&text).ok()) else { continue };
            if !used.took(held, state, host) {
                continue;
            }
            let run = used.run;
            let alive = process::of_run(&run);
            return match (seen(Path::new(record)), alive.first()) {
                (Proof::Lives { name, pid }, _) => {
                    Whose::Alive(format!("`{name}` of run {run} is still at work (process {pid})"))
                }
                (Proof::Ended, Some((pid, name))) => Whose::Alive(format!(
                    "the OpenTofu of run {run} has ended, and something that it had started has not: {name} (process {pid})"
                )),
                (Proof::Ended, None) => Whose::Ended(run),
                (Proof::None, _) => Whose::Unknown,
            };
        }
    }
    Whose::Unknown
}

impl Work<'_> {
    /// Runs an OpenTofu that needs its state's lock. One that a dead run left is taken off, and said; one that anybody
    /// else may have is waited for, and then refused with all that is known of its holder.
    pub(in crate::step) async fn run_locked(
        &self,
        verb: &str,
        args: Vec<OsString>,
        cwd: &Path,
    ) -> Result<(Ui, Tail, Done), Failure> {
        if !self.has_local_state() {
            let first = self.attempt(verb, &args, cwd, NO_PATIENCE).await?;
            let Some(held) = Held::that_kept(&first.0) else { return Ok(first) };
            if self.kit.stop.is_asked() {
                return Err(Failure::new(Code::StoppedClean, "stopped before anything was applied"));
            }
            if let Whose::Ended(run) = self.whose(&held) {
                self.take_off(&held, &run, cwd).await?;
            }
        }
        let done = self.attempt(verb, &args, cwd, PATIENCE).await?;
        match Held::that_kept(&done.0).filter(|_| !self.kit.stop.is_asked()) {
            None => Ok(done),
            Some(held) => {
                let place = if self.has_local_state() { Place::Here } else { Place::Elsewhere };
                Err(held.refusal(&self.name(), &self.whose(&held).why(), place))
            }
        }
    }

    async fn attempt(
        &self,
        verb: &str,
        args: &[OsString],
        cwd: &Path,
        patience: &str,
    ) -> Result<(Ui, Tail, Done), Failure> {
        let mut args = args.to_vec();
        args.insert(1, format!("-lock-timeout={patience}").into());
        let operation = if verb == "plan" { "OperationTypePlan" } else { "OperationTypeApply" };
        let used = Use {
            run: self.kit.run.clone(),
            state: self.which(),
            operation: operation.to_owned(),
            began: self.kit.clock.wall(),
            had_lock: None,
        };
        self.run_about(self.call(verb, args, cwd, Manner::OpenTofu), Some(used)).await
    }

    fn which(&self) -> Which {
        let Kit { cluster, instance, .. } = self.kit;
        Which {
            server: cluster.server().to_owned(),
            instance: instance.clone(),
            part: self.part.word().to_owned(),
            backend: format!("{:?}", self.backend),
        }
    }

    fn whose(&self, held: &Held) -> Whose {
        let host = rustix::system::uname();
        whose(&self.kit.run_dir, held, &self.which(), &host.nodename().to_string_lossy())
    }

    /// Takes a lock off that nobody has any more. It is named by its id, so no other one can be hit.
    async fn take_off(&self, held: &Held, run: &str, cwd: &Path) -> Result<(), Failure> {
        self.kit.may_write.now()?;
        let mut args = words(&["force-unlock", "-force", "-no-color"]);
        args.push(joined("-var-file=", &self.variables()));
        args.push("--".into());
        args.push(held.id.clone().into());
        let (_, _, done) = self.run("force-unlock", args, cwd, Manner::Query).await?;
        let shown = held.shown();
        self.kit.updates.send(Update::Note(if done.ended.exit.is_success() {
            format!("the OpenTofu of run {run} has ended and left its state locked; that lock was taken off: {shown}")
        } else {
            format!("the lock that run {run} left on its state could not be taken off: {shown}")
        }));
        Ok(())
    }
}

#[cfg(test)]
#[path = "tofu_lock_tests.rs"]
mod tests;
