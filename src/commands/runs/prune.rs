//! `dcctl runs prune`: removes the directories of runs that are over.
//!
//! One that goes on is never touched, nor one whose tools still work, nor one with a state in it that OpenTofu could not
//! write anywhere else: that is the only record of what exists.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;

use crate::cli::RunsPruneArgs;
use crate::commands::{Desk, print, runs, told};
use crate::event::text::one_line;
use crate::failure::{Code, Failure};
use crate::run::{self, Past, State};
use crate::step;

/// Removes them, and says which.
pub(crate) fn prune(desk: &Desk, args: &RunsPruneArgs) -> u8 {
    let (mut text, mut failed) = (String::new(), None);
    let all = match runs::all(desk) {
        Ok(all) => all,
        Err(failure) => return told(&failure),
    };
    for past in all {
        let said = match fate(&past, desk.clock.wall(), args.older_than) {
            Fate::TooYoung => continue,
            Fate::Stays(why) => format!("kept {}: {why}", past.folder.display()),
            Fate::Goes if args.dry_run => format!("would {}", gone(&past, Tense::Future)),
            Fate::Goes => match remove(&past) {
                Ok(()) => gone(&past, Tense::Past),
                Err(error) => {
                    failed = Some(error);
                    format!("could not remove {}", past.folder.display())
                }
            },
        };
        // The name of a folder is anybody's.
        writeln!(text, "{}", one_line(&said)).expect("a String takes everything");
    }
    match failed {
        None => print(&text),
        Some(error) => {
            print(&text);
            told(&Failure::new(Code::RunDirUnusable, "not everything could be removed").because(&error))
        }
    }
}

/// A folder that the user has given may have more in it than the run.
fn remove(past: &Past) -> std::io::Result<()> {
    match &past.link {
        Some(link) => run::let_go(&past.folder, link),
        None => std::fs::remove_dir_all(&past.folder),
    }
}

#[derive(Clone, Copy)]
enum Tense {
    Past,
    Future,
}

fn gone(past: &Past, tense: Tense) -> String {
    let folder = past.folder.display();
    match (&past.link, tense) {
        (None, Tense::Past) => format!("removed {folder}"),
        (None, Tense::Future) => format!("remove {folder}"),
        (Some(_), Tense::Past) => format!("no longer listed: {folder}, which was given with --run-dir and stays"),
        (Some(_), Tense::Future) => format!("no longer list {folder}, which was given with --run-dir and stays"),
    }
}

enum Fate {
    TooYoung,
    Stays(String),
    Goes,
}

fn fate(past: &Past, now: Timestamp, older_than: Duration) -> Fate {
    let over = match &past.state {
        State::Running | State::Elsewhere { .. } => {
            return Fate::Stays(format!("run {} {}", past.run, runs::list::how(past)));
        }
        State::CutOff { tools } if !tools.is_empty() => {
            return Fate::Stays(format!("run {} {}", past.run, runs::list::how(past)));
        }
        // When it was cut off nobody wrote down.
        State::CutOff { .. } => past.began,
        State::Ended { at, .. } => *at,
    };
    if Duration::try_from(now.duration_since(over)).unwrap_or_default() < older_than {
        return Fate::TooYoung;
    }
    match step::unsaved(&past.folder).first() {
        Some(path) => {
            let name = path.strip_prefix(&past.folder).unwrap_or(path).display();
            Fate::Stays(format!(
                "its {name} carries a state that OpenTofu could not save; remove that file when it is dealt with"
            ))
        }
        None => Fate::Goes,
    }
}
