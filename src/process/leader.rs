//! A tool's own process, and how its end is learned: of a child of ours with its status, of anybody else's without.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use tokio::process::Child;

use crate::process::group::Life;
use crate::process::update::Exit;

/// The tool's own process.
pub(crate) enum Leader {
    /// A child of ours.
    Child(Child),
    /// Somebody else's, who is the only one that could learn how it ended.
    Inherited,
}

impl Leader {
    /// Waits for its end. Safe to drop at any point.
    pub(crate) async fn ended(&mut self, life: Option<&Life>) -> io::Result<Exit> {
        match (self, life) {
            (Leader::Child(child), _) => {
                let status: ExitStatus = child.wait().await?;
                Ok(status.code().map(Exit::Code).or(status.signal().map(Exit::Signal)).unwrap_or(Exit::Unseen))
            }
            (Leader::Inherited, Some(life)) => life.ended().await.map(|()| Exit::Unknown),
            (Leader::Inherited, None) => Ok(Exit::Unknown),
        }
    }
}
