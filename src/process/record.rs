//! The record of a tool: which process it is, and what was about to be done to it.
//!
//! It is a small file, made when the tool starts and renamed before each signal. A rename needs no room on the disk
//! and happens at once or not at all, so whoever takes over from a killed supervisor knows whether an interrupt may
//! already be on its way. A rename that fails delays no signal.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::process::proc::{self, Stat};

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

    fn path(self, base: &Path) -> PathBuf {
        let suffix = match self {
            Intent::Running => return base.to_owned(),
            Intent::Interrupt => ".interrupted",
            Intent::InterruptAgain => ".interrupted-again",
            Intent::Kill => ".killed",
            Intent::Ended => ".ended",
        };
        let mut path = base.as_os_str().to_owned();
        path.push(suffix);
        PathBuf::from(path)
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
}

impl Recorded {
    /// A record of a process that runs now.
    pub(crate) fn of(pid: u32, name: &str, tag: &str) -> Recorded {
        let started = Stat::of(pid).map_or(0, |stat| stat.started);
        Recorded {
            name: name.to_owned(),
            pid,
            started,
            boot: proc::boot_id(),
            place: proc::place(),
            tag: tag.to_owned(),
        }
    }

    /// Reads the record at `base`, whatever it was renamed to; none when there is none.
    ///
    /// # Errors
    /// When it cannot be read or is not a record.
    pub fn read(base: &Path) -> io::Result<Option<(Recorded, Intent)>> {
        for intent in Intent::ALL {
            match fs::read(intent.path(base)) {
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
        let lives = Stat::of(self.pid).is_some_and(|stat| stat.started == self.started && !stat.is_over());
        !(same_boot && lives)
    }

    /// Whether the process could be seen from here, if it lives.
    pub fn is_here(&self) -> bool {
        self.place == proc::place()
    }
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
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(base)?;
            file.write_all(&serde_json::to_vec(recorded)?)
        };
        let written = write();
        (Record { base: base.to_owned(), intent: Intent::Running }, written)
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

    #[test]
    fn a_record_is_found_under_every_name_it_had() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = folder.path().join("tofu-apply");
        assert_eq!(Recorded::read(&base).expect("readable"), None);
        let recorded = Recorded::of(std::process::id(), "tofu apply", "run/step");
        let (mut record, written) = Record::create(&base, &recorded);
        written.expect("a record");
        let steps = [Intent::Running, Intent::Interrupt, Intent::InterruptAgain, Intent::Kill, Intent::Ended];
        for intent in steps {
            record.intend(intent).expect("a rename");
            assert_eq!(Recorded::read(&base).expect("readable"), Some((recorded.clone(), intent)));
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        }
        record.intend(Intent::Interrupt).expect("nothing to do");
        assert_eq!(Recorded::read(&base).expect("readable").map(|(_, intent)| intent), Some(Intent::Ended));
    }

    #[test]
    fn a_process_with_the_same_number_is_not_the_recorded_one() {
        let mine = Recorded::of(std::process::id(), "me", "run/step");
        assert!(!mine.is_over());
        assert!(Recorded { started: mine.started + 1, ..mine.clone() }.is_over());
        assert!(Recorded { boot: "another".to_owned(), ..mine.clone() }.is_over());
        let elsewhere = Recorded { boot: "another".to_owned(), place: "another".to_owned(), ..mine };
        assert!(!elsewhere.is_over());
    }
}
