//! What of a preflight is found on this machine: folders and the room in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use tempfile::TempDir;

use crate::commands::Desk;
use crate::commands::apply::{absolute, files};
use crate::commands::attempt::new_run_id;
use crate::commands::preflight::judge::Room;
use crate::failure::{Code, Failure};
use crate::run::{JOURNAL, make_ballast};

/// The folder for temporary files where `TMPDIR` names none.
const USUAL: &str = "/tmp";

/// Looks whether a folder can be made and written to, and how much room it has.
pub(crate) fn room(folder: &Path, code: Code) -> Result<Room, Failure> {
    let unusable = |error: &io::Error| {
        let sentence = format!("{} cannot be written to", folder.display());
        Failure::new(code.unless_exhausted(error), sentence).because(error)
    };
    let there = nearest(folder).map_err(|error| unusable(&error))?;
    accessat(CWD, &there, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
        .map_err(|error| unusable(&error.into()).hint(format!("let this account write to {}", there.display())))?;
    let system = statvfs(&there).map_err(|error| unusable(&error.into()))?;
    // Some file systems count no files.
    let files = (system.f_files > 0).then_some(system.f_favail);
    let bytes = system.f_bavail.saturating_mul(system.f_frsize);
    Ok(Room { folder: folder.to_owned(), there, bytes, files })
}

/// The folder itself, or the lowest one above it that is there.
fn nearest(folder: &Path) -> io::Result<PathBuf> {
    for there in folder.ancestors() {
        match fs::metadata(there) {
            Ok(found) if found.is_dir() => return Ok(there.to_owned()),
            Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::NotFound))
}

/// The folder for temporary files.
pub(crate) fn temporary(desk: &Desk) -> PathBuf {
    desk.environment.path("TMPDIR").unwrap_or_else(|| PathBuf::from(USUAL))
}

/// Where a run would have its directory.
pub(crate) fn run_dir(desk: &Desk, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(given) = given else {
        return files::default_folder(&desk.environment, desk.clock.wall(), &new_run_id());
    };
    let path = absolute("--run-dir", given)?;
    if path.join(JOURNAL).exists() {
        let sentence = format!("--run-dir {} already holds the journal of another run", path.display());
        return Err(Failure::new(Code::OptionInvalid, sentence).hint("give each run a folder of its own"));
    }
    Ok(path)
}

/// A folder for this preflight alone, beside where the run would have its own, with as much in it as a run begins with. It
/// goes with the value.
pub(crate) fn work_folder(room: &Room) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix("dcctl-preflight-").tempdir_in(&room.there);
    made.and_then(|folder| make_ballast(folder.path()).map(|()| folder)).map_err(|error| {
        let sentence = format!("the run directory {} cannot be used", room.folder.display());
        Failure::new(Code::RunDirUnusable.unless_exhausted(&error), sentence).because(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_judged_by_the_one_above_it() {
        let above = tempfile::tempdir().expect("a folder");
        let folder = above.path().join("a/b");
        let looked = room(&folder, Code::RunDirUnusable).expect("it can be made");
        assert_eq!((looked.folder.as_path(), looked.there.as_path()), (folder.as_path(), above.path()));
        assert!(looked.bytes > 0);
        fs::write(above.path().join("a"), "").expect("a file");
        let refused = room(&folder, Code::RunDirUnusable).expect_err("a file is in the way");
        assert_eq!(refused.code, Code::RunDirUnusable);
        let made = work_folder(&Room { there: above.path().to_owned(), ..looked }).expect("it can be made");
        let path = made.path().to_owned();
        drop(made);
        assert!(!path.exists());
    }
}
