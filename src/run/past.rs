//! What a run directory tells of its run: which it is, and whether it goes on, ended, or was cut off.
//!
//! It is read from the journal and from the processes of this machine, never from anything that a live run would have to
//! answer. *Invariant:* a run is said to be over only when its verdict was read, or nothing of it lives.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::event::{Event, LockEnd, RunOutcome, Seen};
use crate::lock::HolderId;
use crate::process;
use crate::run::former;
use crate::run::spec::JOURNAL;

/// How much of a journal's end is looked through for the verdict, in bytes. A line has at most 16,000.
const END: u64 = 64 * 1024;

/// A run, as its directory tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Its directory.
    pub folder: PathBuf,
    /// Its id.
    pub run: String,
    /// What it is, in words: `bootstrap one`.
    pub subject: String,
    /// The cluster's context or the lock folder, where it says so.
    pub place: Option<String>,
    /// When it began.
    pub began: Timestamp,
    /// Its supervisor, as `user@host/pid/…`.
    pub holder: Option<String>,
    /// How far it is.
    pub state: State,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It goes on.
    Running,
    /// It ended with this verdict.
    Ended {
        /// When.
        at: Timestamp,
        /// How, in a word.
        outcome: RunOutcome,
        /// Its exit code.
        exit_code: u8,
        /// Where the lock was then.
        lock: LockEnd,
        /// Its last sentence.
        said: String,
    },
    /// Its processes are gone without a verdict. Tools of it that are still at work are named.
    CutOff {
        /// Each with its process and its short name.
        tools: Vec<(u32, String)>,
    },
    /// It was begun on another machine, and has no verdict: nothing can be said of it here.
    Elsewhere {
        /// Which machine.
        host: String,
    },
}

impl Past {
    /// Reads what this directory tells; `host` is this machine's name as holders say it.
    ///
    /// # Errors
    /// When there is no journal, or its first line is not that of a run.
    pub fn read(folder: &Path, host: &str) -> io::Result<Past> {
        let file = File::open(folder.join(JOURNAL))?;
        let mut first = String::new();
        BufReader::new(&file).read_line(&mut first)?;
        let not_one = || io::Error::new(io::ErrorKind::InvalidData, "its journal does not begin like that of a run");
        let seen = Seen::read(&first).map_err(|_| not_one())?;
        let Some(Event::RunStarted(started)) = seen.event else { return Err(not_one()) };
        let subject = [Some(started.command.clone()), started.instance.clone().or(started.program.clone())];
        let subject: Vec<String> = subject.into_iter().flatten().collect();
        let holder = started.holder.clone();
        let state = match verdict(&file)? {
            Some(state) => state,
            None => match going_on(folder, &seen.run, holder.as_deref(), host) {
                // It may have ended between the two looks.
                State::CutOff { tools } => verdict(&file)?.unwrap_or(State::CutOff { tools }),
                state => state,
            },
        };
        Ok(Past {
            folder: folder.to_owned(),
            run: seen.run,
            subject: subject.join(" "),
            place: started.kube_context.or(started.lock_dir),
            began: seen.time,
            holder,
            state,
        })
    }

    /// The exit code of its verdict, if it has one.
    pub fn exit_code(&self) -> Option<u8> {
        match &self.state {
            State::Ended { exit_code, .. } => Some(*exit_code),
            State::Running | State::CutOff { .. } | State::Elsewhere { .. } => None,
        }
    }
}

/// Every run in this folder of run directories, the oldest first. What is not a run directory is passed over.
pub fn all(runs: &Path, host: &str) -> Vec<Past> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let mut found: Vec<Past> = entries.filter_map(|entry| Past::read(&entry.path(), host).ok()).collect();
    found.sort_by(|one, other| (one.began, &one.run).cmp(&(other.began, &other.run)));
    found
}

/// The verdict at the journal's end.
fn verdict(file: &File) -> io::Result<Option<State>> {
    let mut reader = BufReader::new(file);
    let length = reader.seek(SeekFrom::End(0))?;
    reader.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut found = None;
    for line in reader.split(b'\n') {
        let Ok(seen) = Seen::read(&String::from_utf8_lossy(&line?)) else { continue };
        if let Some(Event::RunFinished(finished)) = seen.event {
            let (at, said) = (seen.time, seen.msg);
            let (outcome, exit_code, lock) = (finished.outcome, finished.exit_code, finished.lock);
            found = Some(State::Ended { at, outcome, exit_code, lock, said });
        }
    }
    Ok(found)
}

/// A run without a verdict.
fn going_on(folder: &Path, run: &str, holder: Option<&str>, host: &str) -> State {
    // Whoever owns a run has its journal open for writing: its supervisor, or the front that took its place.
    if process::is_written(&folder.join(JOURNAL)) {
        return State::Running;
    }
    let holder = holder.and_then(HolderId::parse);
    let other_host = holder.filter(|holder| holder.host() != host).map(|holder| holder.host().to_owned());
    let elsewhere = former::place(folder).is_some_and(|place| place != process::place());
    match other_host.or_else(|| elsewhere.then(|| "another machine or in another container".to_owned())) {
        Some(host) => State::Elsewhere { host },
        None => State::CutOff { tools: process::of_run(run) },
    }
}
