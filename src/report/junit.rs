//! The run as a JUnit report. To be written.

use std::path::{Path, PathBuf};

use crate::event::Seen;
use crate::failure::Failure;

/// A JUnit report at a path.
#[derive(Debug)]
pub struct Junit {
    path: PathBuf,
}

impl Junit {
    /// A report that is written to `path`, again after every step.
    pub fn new(path: &Path) -> Junit {
        Junit { path: path.to_owned() }
    }

    /// Takes the next event, and writes the file when it should be.
    pub fn take(&mut self, _seen: &Seen) -> Result<(), Failure> {
        let _ = &self.path;
        Ok(())
    }
}
