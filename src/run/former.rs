//! Runs of this machine whose two processes were both killed. Nobody saw how they ended, so the next run does: it reads
//! what their directories tell, says it, and removes the credentials that nobody needs any more.
//!
//! Each run writes down at its beginning what that takes ([`About`]), without a secret in it. Every other end of a run
//! takes that file away, so only what is looked for has it.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::lock::HolderId;
use crate::process::{self, Sight};
use crate::run::owned::is_owned;
use crate::run::spec::{JOURNAL, Mode, Purpose, Spec};
use crate::run::{past, takeover, tidy};
use crate::step::{self, OUTPUT, RECORDS};

/// The file's name in the run directory.
pub const ABOUT: &str = "run.json";

/// The most runs that are told of, the newest first.
const MOST: usize = 5;

/// The most that are looked at when a run begins, the newest first.
const LOOKED: usize = 500;

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
        let mut file = process::own_file().write(true).create(true).truncate(true).open(path)?;
        file.write_all(&serde_json::to_vec(&about).expect("it can be written as JSON"))
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "what this run is could not be written down");
    }
    if let Err(error) = register(spec) {
        tracing::warn!(%error, "this run is not listed among the others");
    }
}

/// A run whose directory lies elsewhere is found among the others by a link.
fn register(spec: &Spec) -> io::Result<()> {
    if spec.run_dir.parent() == Some(&spec.runs) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&spec.runs)?;
    if process::own_folder_behind(&spec.runs).is_none() {
        return Err(io::Error::other(format!("others can write to {}", spec.runs.display())));
    }
    symlink(&spec.run_dir, spec.runs.join(folder_name(spec.began_at, &spec.run)))
}

/// What the directory of a run is called among the others.
pub fn folder_name(began: Timestamp, run: &str) -> String {
    format!("{}-{run}", began.strftime("%Y%m%dT%H%M%SZ"))
}

/// Lets go of a run that is over and whose directory the user has given: what only a living run needs is removed, and the
/// rest of the folder is the user's.
///
/// # Errors
/// When the link to it cannot be removed.
pub fn let_go(folder: &Path, link: &Path) -> io::Result<()> {
    if let Some(about) = about(folder) {
        clear(folder, &about);
    }
    fs::remove_file(link)
}

/// The id of a run, what it is, when it began, and the identity under which it claims the lock.
pub(crate) type Named = (String, String, Timestamp, Option<String>);

/// What the run in this folder is, as it wrote down at its beginning; gone with its end.
pub(crate) fn named(folder: &Path) -> Option<Named> {
    let About { run, subject, began, holder, .. } = about(folder)?;
    Some((run, subject, began.parse().ok()?, holder))
}

/// From where the processes of the run in this folder can be seen, if it says so.
pub(crate) fn place(folder: &Path) -> Option<String> {
    about(folder).map(|about| about.place)
}

/// What the run in this folder wrote down of itself. Others do not say what is to be removed.
fn about(folder: &Path) -> Option<About> {
    let folder = process::own_folder_behind(folder)?;
    serde_json::from_slice(&process::read_own(&folder.join(ABOUT)).ok()?).ok()
}

/// A run that was killed whole.
struct Killed {
    folder: PathBuf,
    about: About,
}

/// What there is to say of runs of this machine that were killed whole, a sentence each for the newest ones. What nobody
/// needs any more is removed, unless this is a dry run.
pub(crate) fn look(spec: &Spec) -> Vec<String> {
    let mut found = without_verdict(spec);
    found.sort_by(|one, other| other.about.began.cmp(&one.about.began));
    found.truncate(LOOKED);
    if found.is_empty() {
        return Vec::new();
    }
    let journals: Vec<PathBuf> = found.iter().map(|killed| killed.folder.join(JOURNAL)).collect();
    let sight = Sight::of(journals.iter().map(PathBuf::as_path));
    let holder = |about: &About| about.holder.as_deref().and_then(HolderId::parse);
    found.retain(|Killed { folder, about }| !is_owned(folder, &about.run, holder(about).as_ref(), &sight));
    let (mut said, mut more) = (Vec::new(), 0);
    for killed in &found {
        let told = tell(killed, &sight, spec.mode);
        if said.len() < MOST || told.is_grave { said.push(told.sentence) } else { more += 1 }
    }
    if more > 0 {
        said.push(format!("{more} more runs were killed like that before, and nothing of them is at work"));
    }
    said
}

/// The other runs of this machine, beside this one or known to this user, that have no verdict.
fn without_verdict(spec: &Spec) -> Vec<Killed> {
    let beside = spec.run_dir.parent().filter(|beside| *beside != spec.runs);
    let folders = beside.into_iter().chain([&*spec.runs]);
    let entries = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let mut known = BTreeSet::from([spec.run.clone()]);
    let mut found = Vec::new();
    for entry in entries.map(|entry| entry.path()) {
        let Some(folder) = process::own_folder_behind(&entry) else {
            forget(spec, &entry);
            continue;
        };
        let Some(about) = about(&folder).filter(|about| about.place == process::place()) else { continue };
        let verdict = past::journal(&folder).map(|journal| takeover::verdict_of(&journal, &about.run));
        if matches!(verdict, Ok(None)) && known.insert(about.run.clone()) {
            found.push(Killed { folder, about });
        }
    }
    found
}

/// A link to a run whose folder is gone leads nowhere.
fn forget(spec: &Spec, entry: &Path) {
    let is_listed = entry.parent() == Some(&spec.runs);
    if spec.mode == Mode::Act && is_listed && entry.is_symlink() && !entry.exists() {
        // The next run tries it again.
        let _ = fs::remove_file(entry);
    }
}

/// What is said of a run that was killed whole.
struct Told {
    sentence: String,
    /// Something of it is at work, or has to be brought into its place.
    is_grave: bool,
}

fn tell(killed: &Killed, sight: &Sight, mode: Mode) -> Told {
    let Killed { folder, about } = killed;
    let alive = sight.of_run(&about.run);
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
    let unsaved = if alive.is_empty() && mode == Mode::Act { clear(folder, about) } else { None };
    let is_grave = !alive.is_empty() || unsaved.is_some();
    if let Some(kept) = unsaved {
        sentence.push_str(&format!(
            ". Its OpenTofu could not save its state, which is kept in {}: bring it where it belongs before anything is \
             applied again",
            kept.display()
        ));
    }
    Told { sentence, is_grave }
}

/// Removes what only a living run needs. A state that could not be saved is brought where it stays, which is returned.
fn clear(folder: &Path, about: &About) -> Option<PathBuf> {
    let unsaved = about.state_dir.as_ref().and_then(|state_dir| step::rescue(folder, state_dir));
    if !about.keep_output {
        let _ = fs::remove_dir_all(folder.join(OUTPUT));
    }
    for left in tidy::folder(folder, about.kubeconfig.as_deref()) {
        tracing::warn!(left, "of a run that was killed");
    }
    unsaved
}
