//! The run as a JUnit report, for GitLab, Jenkins and the test reporters of GitHub.
//!
//! # Promise
//! From the first event on there is a complete, valid file that does not claim more than is known: what has not ended
//! is an *error*, "interrupted before it ran". The file is replaced as a whole after each step, so whatever kills the
//! run leaves a truthful report behind.
//!
//! # How to read it
//! [`ledger`] keeps what the events say, [`suites`] tells it as suites and cases, [`crate::report::sanitise`] makes XML
//! of them, and the file is written here.

mod ledger;
mod suites;

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::event::{Event, Seen};
use crate::failure::{Code, Failure};
use crate::report::junit::ledger::Ledger;

/// Whoever uploads the report may be another user.
const READABLE_BY_ALL: u32 = 0o644;

/// A JUnit report at a path.
#[derive(Debug)]
pub struct Junit {
    path: PathBuf,
    ledger: Option<Ledger>,
    /// How the last attempt to write the file ended.
    written: Result<(), Failure>,
}

impl Junit {
    /// A report that is written to `path`, again after every step. Folders that are missing are made.
    pub fn new(path: &Path) -> Junit {
        Junit { path: path.to_owned(), ledger: None, written: Ok(()) }
    }

    /// Takes the next event, and writes the file when a step or the run moved on. It is a failure
    /// ([`Code::ReportUnwritten`]) when the file could not be written the last time; the next event may be taken all the
    /// same, and may mend it.
    pub fn take(&mut self, seen: &Seen) -> Result<(), Failure> {
        let ledger = self.ledger.get_or_insert_with(|| Ledger::new(seen));
        ledger.take(seen);
        if moves_on(seen) {
            self.written = write(&self.path, &suites::xml(ledger)).map_err(|error| {
                let path = self.path.display();
                Failure::new(Code::ReportUnwritten, format!("could not write the JUnit report {path}")).because(&error)
            });
        }
        self.written.clone()
    }
}

/// Whether the file is written again after this event.
fn moves_on(seen: &Seen) -> bool {
    matches!(
        seen.event,
        Some(
            Event::RunStarted(_)
                | Event::RunPlanned(_)
                | Event::StepStarted(_)
                | Event::StepFinished(_)
                | Event::StopRequested(_)
                | Event::LockBlocked(_)
                | Event::LockLost(_)
                | Event::LockLeft(_)
                | Event::RunFinished(_)
        )
    )
}

/// Replaces the file as a whole. The temporary file is in the same folder (a rename cannot cross file systems) and has
/// a name that no `*.xml` finds, in case it is left behind.
fn write(path: &Path, xml: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::other("something that is not a file stands in its place"));
    }
    let mut file = tempfile::Builder::new().prefix(".dcctl-junit-").suffix(".tmp").tempfile_in(folder)?;
    file.write_all(xml)?;
    // Set on the open file: the mode given at its creation is cut by the umask.
    file.as_file().set_permissions(Permissions::from_mode(READABLE_BY_ALL))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests;
