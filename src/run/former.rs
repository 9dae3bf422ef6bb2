//! Runs of this machine whose two processes were both killed. Nobody saw how they ended, so the next run does: it reads
//! what their directories tell, says it, and removes the credentials that nobody needs any more.
//!
//! Each run writes down at its beginning what that takes ([`About`]), without a secret in it. Every other end of a run
//! takes that file away, so only what is looked for has it.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process;
use crate::run::spec::{JOURNAL, Mode, Purpose, Spec};
use crate::run::{takeover, tidy};
use crate::step::{self, OUTPUT, RECORDS};

/// The file's name in the run directory.
pub(crate) const ABOUT: &str = "run.json";

/// The most runs that are told of, the newest first.
const MOST: usize = 5;

/// What a run is, for whoever finds its directory later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    run: String,
    subject: String,
    began: String,
    /// The identity under which it claims the lock; none for a dry run.
    holder: Option<String>,
    /// What keeps the lock.
    lock: String,
    /// Where local OpenTofu state lives.
    state_dir: Option<PathBuf>,
    /// The run's own kubeconfig.
    kubeconfig: Option<PathBuf>,
    keep_output: bool,
    /// From where its processes can be seen.
    place: String,
}

/// Writes down what this run is. A disk that does not take it loses no more than what the next run would say.
pub(crate) fn write_down(spec: &Spec, holder: &str) {
    let about = About {
        run: spec.run.clone(),
        subject: spec.subject(),
        began: crate::clock::rfc3339(spec.began_at),
        holder: (spec.mode == Mode::Act).then(|| holder.to_owned()),
        lock: spec.place().options(),
        state_dir: match &spec.purpose {
            Purpose::Bundle(with) => Some(with.state_dir.clone()),
            Purpose::Command(_) => None,
        },
        kubeconfig: spec.cluster().map(|cluster| cluster.kubeconfig.clone()),
        keep_output: spec.keep_output,
        place: process::place(),
    };
    let write = || {
        let path = spec.run_dir.join(ABOUT);
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(&serde_json::to_vec(&about).expect("it can be written as JSON"))
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "what this run is could not be written down");
    }
}

/// From where the processes of the run in this folder can be seen, if it says so.
pub(crate) fn place(folder: &Path) -> Option<String> {
    about(folder).map(|about| about.place)
}

/// What the run in this folder wrote down of itself.
fn about(folder: &Path) -> Option<About> {
    serde_json::from_slice(&fs::read(folder.join(ABOUT)).ok()?).ok()
}

/// What there is to say of runs beside this one that were killed whole, a sentence each. What nobody needs any more is
/// removed, unless this is a dry run.
pub(crate) fn look(spec: &Spec) -> Vec<String> {
    let beside = spec.run_dir.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
    let mut found: Vec<(PathBuf, About)> =
        beside.map(|entry| entry.path()).filter(|path| *path != spec.run_dir).filter_map(killed).collect();
    found.sort_by(|one, other| other.1.began.cmp(&one.1.began));
    found.into_iter().take(MOST).map(|(folder, about)| tell(&folder, &about, spec.mode)).collect()
}

/// The run of this directory, if it can be shown that it was killed whole.
fn killed(folder: PathBuf) -> Option<(PathBuf, About)> {
    let about = about(&folder)?;
    let journal = folder.join(JOURNAL);
    let is_ours = about.place == process::place();
    // Whoever owns a run has its journal open, front or supervisor.
    let over = is_ours && !process::is_written(&journal) && takeover::verdict_of(&File::open(&journal).ok()?).is_none();
    over.then_some((folder, about))
}

fn tell(folder: &Path, about: &About, mode: Mode) -> String {
    let alive = process::of_run(&about.run);
    let mut facts = Vec::new();
    for tool in process::recorded(&folder.join(RECORDS)) {
        let (name, pid) = (&tool.name, tool.pid);
        let lives = alive.iter().any(|(living, _)| *living == pid);
        if lives {
            facts.push(format!("{name} (process {pid}) is still at work"));
        } else if !tool.end_was_seen {
            let words = tool.care.as_ref().and_then(|care| step::last_words(name, care));
            let words = words.map_or_else(String::new, |words| format!(": {words}"));
            facts.push(format!("{name} (process {pid}) has ended by itself{words}"));
        }
    }
    if facts.is_empty() {
        facts.push("none of its tools was at work".to_owned());
    }
    let others = alive.iter().filter(|(pid, _)| !facts.iter().any(|fact| fact.contains(&format!("process {pid})"))));
    let others: Vec<String> = others.map(|(pid, name)| format!("process {pid} ({name}) of it still lives")).collect();
    facts.extend(others);
    let mut sentence = format!(
        "an earlier run here was killed with both of its processes: {} (run {}, begun at {}). {}",
        about.subject,
        about.run,
        about.began,
        facts.join("; ")
    );
    if let Some(holder) = &about.holder {
        sentence.push_str(&format!(
            ". It held the lock, or was to ask for it, as {holder}: look with `dcctl lock status {}`",
            about.lock
        ));
    }
    if let Some(state_dir) = &about.state_dir {
        sentence.push_str(&format!(". Its local OpenTofu state is in {}", state_dir.display()));
    }
    sentence.push_str(&format!(". What it said is in {}", folder.display()));
    if alive.is_empty() && mode == Mode::Act {
        clear(folder, about);
    }
    sentence
}

/// Removes what only a living run needs. A state that could not be saved stays.
fn clear(folder: &Path, about: &About) {
    if let Some(state_dir) = &about.state_dir {
        step::rescue(folder, state_dir);
    }
    if !about.keep_output {
        let _ = fs::remove_dir_all(folder.join(OUTPUT));
    }
    for left in tidy::folder(folder, about.kubeconfig.as_deref()) {
        tracing::warn!(left, "of a run that was killed");
    }
}
