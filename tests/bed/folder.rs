//! The temporary folder of a control plane, and the removal of those whose owner was killed.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::bed::child::{Mark, lock_file};

const PREFIX: &str = "dcctl-bed-";
const LOCK: &str = "lock";

/// A folder that is removed when it is dropped. While it lives its lock file is locked, which tells it from one whose
/// owner was killed and could not remove it.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    _lock: File,
}

impl Folder {
    /// Makes a new one in the system's temporary folder.
    pub(crate) fn new() -> io::Result<Folder> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
        let lock = lock_file(&folder.path().join(LOCK))?.ok_or_else(|| io::Error::other("a new folder is locked"))?;
        Ok(Folder { folder, _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders that killed beds left behind, and ends what still runs on their behalf.
pub(crate) fn remove_abandoned() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let lock = entry.path().join(LOCK);
        // A folder that is younger may be one whose owner is about to lock it.
        let old = entry
            .metadata()
            .and_then(|data| data.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > Duration::from_secs(60)));
        if old && lock.exists() && matches!(lock_file(&lock), Ok(Some(_))) {
            Mark::of(&entry.path()).sweep();
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
