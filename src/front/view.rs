//! A viewer of a run that somebody else started: it shows the journal, and the run knows nothing of it.

use std::fs::File;
use std::path::Path;

use crate::failure::{Code, Failure};
use crate::front::STALLED;
use crate::front::follow::Follower;
use crate::front::show::{self, Showing, Shown};
use crate::run::JOURNAL;

/// From where on the journal is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// All of it.
    TheStart,
    /// What is said from now on.
    Now,
}

/// A journal that is being shown.
pub struct View(Shown);

impl View {
    /// Begins to show the journal of the run in this folder.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn open(folder: &Path, showing: Showing, from: From) -> Result<View, Failure> {
        let path = folder.join(JOURNAL);
        let unreadable = |error: std::io::Error| {
            Failure::new(Code::CommandFailed, format!("the journal {} cannot be read", path.display())).because(&error)
        };
        let file = File::open(&path).map_err(unreadable)?;
        let follower = match from {
            From::TheStart => Follower::of(file, &path),
            From::Now => {
                let end = file.metadata().map_err(unreadable)?.len();
                Follower::of(file, &path).after(end)
            }
        };
        Ok(View(show::start(follower, showing, None)))
    }

    /// Nothing more is to be shown than what is there now.
    pub async fn end(self) {
        self.0.end_with(String::new());
        self.0.drain(STALLED).await;
    }
}
