//! What a run directory tells of its run: which it is, and whether it goes on, ended, or was cut off.
//!
//! It is read from the journal and from the processes of this machine, never from anything that a live run would have to
//! answer. *Invariant:* a run is said to be over only when its verdict was read, or nothing of it lives.

use std::borrow::Borrow;
use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::event::{Event, LONGEST_LINE, LockEnd, RunOutcome, Seen};
use crate::lock::HolderId;
use crate::process::{self, Sight};
use crate::run::former;
use crate::run::owned::is_owned;
use crate::run::spec::JOURNAL;

/// How much of a journal's end is looked through for the verdict, in bytes. A line has at most 16,000.
const END: u64 = 64 * 1024;

/// A run, as its directory tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Its directory.
    pub folder: PathBuf,
    /// The link to it among the other runs, by which it was found, if the user has given it a directory.
    pub link: Option<PathBuf>,
    /// Its id.
    pub run: String,
    /// What it is, in words: `bootstrap one`.
    pub subject: String,
    /// Whether it changes nothing; not known of one whose journal was cut short.
    pub dry_run: Option<bool>,
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
        let (file, past) = begin(folder, None)?;
        past.with_state(&file, host, || Sight::of([&*folder.join(JOURNAL)]))
    }

    fn with_state<S: Borrow<Sight>>(mut self, file: &File, host: &str, sight: impl FnOnce() -> S) -> io::Result<Past> {
        self.state = match verdict(file, &self.run)? {
            Some(state) => state,
            None => match going_on(&self, host, sight().borrow()) {
                // It may have ended between the two looks.
                State::CutOff { tools } => verdict(file, &self.run)?.unwrap_or(State::CutOff { tools }),
                state => state,
            },
        };
        Ok(self)
    }

    /// What it is, and that it changes nothing.
    pub fn title(&self) -> String {
        if self.dry_run == Some(true) { format!("dry run of {}", self.subject) } else { self.subject.clone() }
    }

    /// The exit code of its verdict, if it has one.
    pub fn exit_code(&self) -> Option<u8> {
        match &self.state {
            State::Ended { exit_code, .. } => Some(*exit_code),
            State::Running | State::CutOff { .. } | State::Elsewhere { .. } => None,
        }
    }
}

/// A run that is looked at again and again. Its journal is held open: it still gets the verdict when its directory is
/// removed.
#[derive(Debug)]
pub struct Watched {
    file: File,
    past: Past,
}

impl Watched {
    /// Begins to watch the run of this directory.
    ///
    /// # Errors
    /// As [`Past::read`] has them.
    pub fn open(folder: &Path) -> io::Result<Watched> {
        let (file, past) = begin(folder, None)?;
        Ok(Watched { file, past })
    }

    /// Its id.
    pub fn run(&self) -> &str {
        &self.past.run
    }

    /// How far it is now.
    ///
    /// # Errors
    /// When the journal cannot be read any more.
    pub fn look(&self, host: &str) -> io::Result<Past> {
        // Where the directory is still there it knows more: its door, and a journal that was put in the place of this one.
        if let Ok(now) = Past::read(&self.past.folder, host)
            && now.run == self.past.run
            && !matches!(now.state, State::CutOff { .. })
        {
            return Ok(now);
        }
        let held = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let sight = Sight::of([&*held]);
        if sight.is_written(&held) && verdict(&self.file, &self.past.run)?.is_none() {
            return Ok(Past { state: State::Running, ..self.past.clone() });
        }
        self.past.clone().with_state(&self.file, host, || sight)
    }
}

/// What a directory tells at once, and its journal.
fn begin(folder: &Path, link: Option<PathBuf>) -> io::Result<(File, Past)> {
    let file = journal(folder)?;
    let past = first_line(&file, folder).or_else(|why| written_down(folder).ok_or(why))?;
    Ok((file, Past { link, ..past }))
}

/// Opens the journal in a folder. What is no file there may have no end, or nobody who ever writes it.
pub(crate) fn journal(folder: &Path) -> io::Result<File> {
    let path = folder.join(JOURNAL);
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its journal is no file"));
    }
    File::open(path)
}

/// What the first line of a journal says of its run.
fn first_line(file: &File, folder: &Path) -> io::Result<Past> {
    let mut first = String::new();
    BufReader::new(file.take(LONGEST_LINE as u64 + 1)).read_line(&mut first)?;
    let not_one = || io::Error::new(io::ErrorKind::InvalidData, "its journal does not begin like that of a run");
    let seen = Seen::read(&first).map_err(|_| not_one())?;
    let Some(Event::RunStarted(started)) = seen.event else { return Err(not_one()) };
    let subject = [Some(started.command.clone()), started.instance.clone().or(started.program.clone())];
    let subject: Vec<String> = subject.into_iter().flatten().collect();
    let (run, began, holder) = (seen.run, seen.time, started.holder);
    let place = started.kube_context.or(started.lock_dir);
    Ok(Past {
        folder: folder.to_owned(),
        link: None,
        run,
        subject: subject.join(" "),
        dry_run: Some(started.dry_run),
        place,
        began,
        holder,
        state: State::Running,
    })
}

/// The same of a run whose journal somebody has cut short, as long as it has not ended.
fn written_down(folder: &Path) -> Option<Past> {
    let (run, subject, began, holder) = former::named(folder)?;
    Some(Past {
        folder: folder.to_owned(),
        link: None,
        run,
        subject,
        dry_run: None,
        place: None,
        began,
        holder,
        state: State::Running,
    })
}

/// Every run in this folder of run directories and of links to others, the oldest first. What is neither is passed over.
/// The processes of this machine are looked at once for all of them.
pub fn all(runs: &Path, host: &str) -> Vec<Past> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten();
    let begun = entries.filter_map(|entry| {
        let path = entry.path();
        if path.is_symlink() {
            begin(&process::own_folder_behind(&path)?, Some(path)).ok()
        } else {
            begin(&path, None).ok()
        }
    });
    let begun: Vec<(File, Past)> = begun.collect();
    let sight = OnceCell::new();
    let look = || {
        let journals: Vec<PathBuf> = begun.iter().map(|(_, past)| past.folder.join(JOURNAL)).collect();
        Sight::of(journals.iter().map(PathBuf::as_path))
    };
    let seen = |(file, past): &(File, Past)| past.clone().with_state(file, host, || sight.get_or_init(look)).ok();
    let mut found: Vec<Past> = begun.iter().filter_map(seen).collect();
    found.sort_by(|one, other| (one.began, &one.run).cmp(&(other.began, &other.run)));
    found
}

/// The verdict of this run at the journal's end.
fn verdict(file: &File, run: &str) -> io::Result<Option<State>> {
    let mut reader = BufReader::new(file);
    let length = reader.seek(SeekFrom::End(0))?;
    reader.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut found = None;
    for line in reader.split(b'\n') {
        let Ok(seen) = Seen::read(&String::from_utf8_lossy(&line?)) else { continue };
        if seen.run != run {
            continue;
        }
        if let Some(Event::RunFinished(finished)) = seen.event {
            let (at, said) = (seen.time, seen.msg);
            let (outcome, exit_code, lock) = (finished.outcome, finished.exit_code, finished.lock);
            found = Some(State::Ended { at, outcome, exit_code, lock, said });
        }
    }
    Ok(found)
}

/// A run without a verdict.
fn going_on(past: &Past, host: &str, sight: &Sight) -> State {
    let Past { folder, run, .. } = past;
    let holder = past.holder.as_deref().and_then(HolderId::parse);
    if is_owned(folder, run, holder.as_ref().filter(|holder| holder.host() == host), sight) {
        return State::Running;
    }
    let other_host = holder.filter(|holder| holder.host() != host).map(|holder| holder.host().to_owned());
    let elsewhere = former::place(folder).is_some_and(|place| place != process::place());
    match other_host.or_else(|| elsewhere.then(|| "another machine or in another container".to_owned())) {
        Some(host) => State::Elsewhere { host },
        None => State::CutOff { tools: sight.of_run(run) },
    }
}
