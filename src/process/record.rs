//! The record of a tool: which process it is, and what was about to be done to it.
//!
//! It is a small file, made before the tool starts, completed in place with its process, and renamed before each signal.
//! A rename needs no room on the disk and happens at once or not at all, so whoever takes over from a killed supervisor
//! knows whether an interrupt may already be on its way. A rename that fails delays no signal.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::process::ours::{own_file, own_folder_behind, read_own};
use crate::process::proc::{self, Stat};
use crate::process::spec::Manner;

/// The number of a process that is not known yet.
pub(crate) const NOT_YET: u32 = 0;

/// The end of the names of files that lie beside records and are none.
const BESIDE: &str = ".json";

/// How much longer a record may get when its process is written down, in bytes.
const NUMBERS: usize = 32;

/// How far things have gone with a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// It was started, and no signal was meant for it.
    Running,
    /// The first interrupt was sent or was about to be.
    Interrupt,
    /// The second interrupt was sent or was about to be.
    InterruptAgain,
    /// SIGKILL was sent or was about to be.
    Kill,
    /// Its end was seen.
    Ended,
}

impl Intent {
    const ALL: [Intent; 5] = [Intent::Ended, Intent::Kill, Intent::InterruptAgain, Intent::Interrupt, Intent::Running];

    fn suffix(self) -> &'static str {
        match self {
            Intent::Running => "",
            Intent::Interrupt => ".interrupted",
            Intent::InterruptAgain => ".interrupted-again",
            Intent::Kill => ".killed",
            Intent::Ended => ".ended",
        }
    }

    fn path(self, base: &Path) -> PathBuf {
        let mut path = base.as_os_str().to_owned();
        path.push(self.suffix());
        PathBuf::from(path)
    }

    /// The record that a file in the folder of records is; none for what lies beside one.
    fn base(path: &Path) -> Option<PathBuf> {
        let text = path.to_str()?;
        let suffix = Intent::ALL.into_iter().map(Intent::suffix).find(|suffix| text.ends_with(suffix))?;
        let base = text.strip_suffix(suffix)?;
        (!base.ends_with(BESIDE)).then(|| PathBuf::from(base))
    }
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// What people call the tool.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// When that process was started, in the kernel's ticks since the machine started.
    pub started: u64,
    /// Which start of the machine that was.
    pub boot: String,
    /// Where the process can be seen from: the machine's name and the number space of its processes.
    pub place: String,
    /// The value of `DCCTL_RUN` in its environment.
    pub tag: String,
    /// How it is looked after, for who takes over.
    #[serde(default)]
    pub care: Option<Care>,
}

/// How a tool is looked after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Care {
    /// How it may be asked to stop.
    pub manner: Manner,
    /// The file that gets its standard output.
    pub stdout: PathBuf,
    /// The file that gets its standard error.
    pub stderr: PathBuf,
}

impl Recorded {
    /// A record of a tool that is about to be started: nobody knows its process yet.
    pub(crate) fn before(name: &str, tag: &str, care: Care) -> Recorded {
        Recorded {
            name: name.to_owned(),
            pid: NOT_YET,
            started: 0,
            boot: proc::boot_id(),
            place: proc::place(),
            tag: tag.to_owned(),
            care: Some(care),
        }
    }

    /// The same, now that its process is known.
    pub(crate) fn started_as(self, pid: u32) -> Recorded {
        let started = Stat::of(pid).map_or(0, |stat| stat.started);
        Recorded { pid, started, ..self }
    }

    /// A record of a process that runs now.
    #[cfg(test)]
    pub(crate) fn of(pid: u32, name: &str, tag: &str) -> Recorded {
        let care = Care { manner: Manner::Query, stdout: PathBuf::new(), stderr: PathBuf::new() };
        Recorded::before(name, tag, care).started_as(pid)
    }

    /// Every record of this folder, with the path that [`Recorded::read`] takes. Others name processes to be ended as they
    /// like, so a folder that they can write to has none.
    pub(crate) fn all(folder: &Path) -> Vec<(PathBuf, Recorded, Intent)> {
        if own_folder_behind(folder).is_none() {
            return Vec::new();
        }
        let mut bases: Vec<PathBuf> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Intent::base(&entry.path()))
            .collect();
        bases.sort();
        bases.dedup();
        let read = |base: PathBuf| Recorded::read(&base).ok().flatten().map(|(recorded, how)| (base, recorded, how));
        bases.into_iter().filter_map(read).collect()
    }

    /// Reads the record at `base`, whatever it was renamed to; none when there is none.
    ///
    /// # Errors
    /// When it cannot be read, is not this account's alone, or is not a record.
    pub fn read(base: &Path) -> io::Result<Option<(Recorded, Intent)>> {
        for intent in Intent::ALL {
            match read_own(&intent.path(base)) {
                Ok(bytes) => return Ok(Some((serde_json::from_slice(&bytes)?, intent))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Whether the process can be shown not to run any more. From another machine or another container, where it could
    /// not be seen, nothing can be shown.
    pub fn is_over(&self) -> bool {
        if !self.is_here() {
            return false;
        }
        let same_boot = proc::boot_id() == self.boot;
        if self.pid == NOT_YET {
            // Whoever was to write down the process was killed before: only its tag tells.
            return !same_boot || proc::tagged(&self.tag).is_empty();
        }
        let lives = Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && !stat.is_over());
        !(same_boot && lives)
    }

    /// Whether the process could be seen from here, if it lives.
    pub fn is_here(&self) -> bool {
        self.place == proc::place()
    }
}

/// A tool of a run that is over, as far as its record tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Former {
    /// What people call it.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Whether the run saw its end.
    pub end_was_seen: bool,
    /// How it was looked after.
    pub care: Option<Care>,
}

/// The tools that are recorded in this folder and were started.
pub fn recorded(folder: &Path) -> Vec<Former> {
    let started = Recorded::all(folder).into_iter().filter(|(_, recorded, _)| recorded.pid != NOT_YET);
    let former = |(_, recorded, intent): (PathBuf, Recorded, Intent)| Former {
        name: recorded.name,
        pid: recorded.pid,
        end_was_seen: intent == Intent::Ended,
        care: recorded.care,
    };
    started.map(former).collect()
}

/// When the end of the tool of this record was seen; none when nobody saw it. A record is renamed at that moment, and not
/// touched again; whoever touches it makes the answer later.
pub fn seen_to_end(base: &Path) -> Option<SystemTime> {
    let changed = fs::symlink_metadata(Intent::Ended.path(base)).ok()?;
    let (seconds, nanos) = (u64::try_from(changed.ctime()).ok()?, u32::try_from(changed.ctime_nsec()).ok()?);
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// The writing side.
#[derive(Debug)]
pub(crate) struct Record {
    base: PathBuf,
    intent: Intent,
}

impl Record {
    /// Makes the file.
    pub(crate) fn create(base: &Path, recorded: &Recorded) -> (Record, io::Result<()>) {
        let write = || {
            let mut file = own_file().write(true).create(true).truncate(true).open(base)?;
            let mut text = serde_json::to_vec(recorded)?;
            // Room for two long numbers, so that the process can be written down on a disk that is full by then.
            text.resize(text.len() + NUMBERS, b' ');
            file.write_all(&text)
        };
        let written = write();
        (Record { base: base.to_owned(), intent: Intent::Running }, written)
    }

    /// Writes down the process, over what was written before: one write, which needs no room.
    pub(crate) fn complete(&self, recorded: &Recorded) -> io::Result<()> {
        let file = own_file().write(true).open(&self.base)?;
        file.write_all_at(&serde_json::to_vec(recorded)?, 0)
    }

    /// The tool was not started after all.
    pub(crate) fn forget(&self) {
        // One that cannot be removed names no process.
        let _ = fs::remove_file(&self.base);
    }

    /// The record of a tool that another process has begun to look after.
    pub(crate) fn inherit(base: &Path, intent: Intent) -> Record {
        Record { base: base.to_owned(), intent }
    }

    /// Records what is about to be done. A weaker intent than the one that stands changes nothing.
    pub(crate) fn intend(&mut self, intent: Intent) -> io::Result<()> {
        if intent <= self.intent {
            return Ok(());
        }
        fs::rename(self.intent.path(&self.base), intent.path(&self.base))?;
        self.intent = intent;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded() -> Recorded {
        let file = |name: &str| PathBuf::from(name);
        let care = Care { manner: Manner::OpenTofu, stdout: file("stdout"), stderr: file("stderr") };
        Recorded::before("tofu apply", "run/step", care)
    }

    #[test]
    fn a_record_is_found_under_every_name_it_had() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("tofu-apply");
        assert_eq!(Recorded::read(&base).expect("readable"), None);
        let (mut record, written) = Record::create(&base, &recorded());
        written.expect("a record");
        assert_eq!(Recorded::read(&base).expect("readable"), Some((recorded(), Intent::Running)));
        let recorded = recorded().started_as(std::process::id());
        record.complete(&recorded).expect("there is room for it");
        let steps = [Intent::Running, Intent::Interrupt, Intent::InterruptAgain, Intent::Kill, Intent::Ended];
        for intent in steps {
            record.intend(intent).expect("a rename");
            assert_eq!(Recorded::read(&base).expect("readable"), Some((recorded.clone(), intent)));
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
            assert_eq!(Recorded::all(folder.path()), [(base.clone(), recorded.clone(), intent)]);
        }
        record.intend(Intent::Interrupt).expect("nothing to do");
        assert_eq!(Recorded::read(&base).expect("readable").map(|(_, intent)| intent), Some(Intent::Ended));
    }

    #[test]
    fn a_process_with_the_same_number_is_not_the_recorded_one() {
        let mine = recorded().started_as(std::process::id());
        assert!(!mine.is_over());
        assert!(Recorded { started: mine.started + 1, ..mine.clone() }.is_over());
        assert!(Recorded { boot: "another".to_owned(), ..mine.clone() }.is_over());
        assert!(recorded().is_over(), "nothing carries its tag");
        let elsewhere = Recorded { boot: "another".to_owned(), place: "another".to_owned(), ..mine };
        assert!(!elsewhere.is_over());
    }
}
