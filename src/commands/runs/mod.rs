//! `dcctl runs`: looks after the runs of this machine and this user, by their directories and their doors.
//!
//! Nothing here owns a run. What it shows is read from the journal; what it asks goes through the socket in the run
//! directory, and only the run itself acts on it.

mod list;
mod prune;
mod stop;
mod watch;

use std::path::{Path, PathBuf};

use crate::cli::RunsCommand;
use crate::commands::Desk;
use crate::commands::apply::files;
use crate::failure::{Code, Failure};
use crate::run::{self, Past};

/// Does what was asked.
pub(crate) fn dispatch(desk: &Desk, command: RunsCommand) -> u8 {
    match command {
        RunsCommand::List(args) => list::list(desk, args.output),
        RunsCommand::Show(args) => watch::show(desk, &args),
        RunsCommand::Attach(args) => watch::attach(desk, &args),
        RunsCommand::Wait(args) => watch::wait(desk, &args),
        RunsCommand::Stop(args) => stop::stop(desk, &args),
        RunsCommand::Prune(args) => prune::prune(desk, &args),
    }
}

/// Where runs have their directories unless they are given another one.
fn home(desk: &Desk) -> PathBuf {
    files::runs(&desk.environment)
}

/// Every run of the folder. One that may not be looked into is not the same as one in which there are none.
fn all(desk: &Desk) -> Result<Vec<Past>, Failure> {
    let home = home(desk);
    match std::fs::read_dir(&home) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let said = format!("the folder of runs {} cannot be looked into", home.display());
            Err(Failure::new(Code::OptionInvalid, said).because(&error).hint("each user has runs of their own"))
        }
        Ok(_) | Err(_) => Ok(run::all(&home, &files::host_name())),
    }
}

/// Whether the folder is the one that was made for this run: its name ends with the id, or that of the link to it.
fn is_its_own(past: &Past) -> bool {
    past.link
        .as_ref()
        .unwrap_or(&past.folder)
        .file_name()
        .is_some_and(|name| name.to_string_lossy().ends_with(&past.run))
}

/// The run that is meant: `latest`, the beginning of an id, or a directory.
pub(crate) fn find(desk: &Desk, named: &Path) -> Result<Past, Failure> {
    let wrong = |sentence: String| {
        Err(Failure::new(Code::OptionInvalid, sentence).hint(
            "`dcctl runs list` shows the runs of this user on this machine; another directory is given by its path",
        ))
    };
    let is_path = named.is_absolute() || named.components().count() > 1 || named.join(run::JOURNAL).is_file();
    if is_path {
        return Past::read(named, &files::host_name())
            .or_else(|error| wrong(format!("{} is not the directory of a run: {error}", named.display())));
    }
    let word = named.to_string_lossy();
    let mut found = all(desk)?;
    if word == "latest" {
        let home = home(desk);
        return found.pop().map_or_else(|| wrong(format!("there is no run in {}", home.display())), Ok);
    }
    found.retain(|past| past.run.starts_with(&*word));
    // A copy of a run's folder beside it has its id, too.
    if let Some(own) = found.iter().position(|past| past.run == *word && is_its_own(past)) {
        return Ok(found.swap_remove(own));
    }
    match (found.pop(), found.len()) {
        (Some(past), 0) => Ok(past),
        (Some(_), others) => wrong(format!("`{word}` is the beginning of {} runs", others + 1)),
        (None, _) => wrong(format!("there is no run `{word}` in {}", home(desk).display())),
    }
}
