//! `dcctl report`: a recorded journal as something to look at.
//!
//! How the run ended changes nothing of how this command ends: whoever makes a report of a failed run wants the report.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};

use crate::cli::{ReportArgs, ReportCommand};
use crate::commands::apply::reports::{Reads, is_same, stays_clear};
use crate::commands::{Desk, print, runs, terminal, told};
use crate::event::text::one_line;
use crate::failure::{Code, Failure};
use crate::report::human::Human;
use crate::report::junit::Suites;
use crate::report::recorded::{self, NoJournal, Reporter};
use crate::report::{file, html, summary};
use crate::run::JOURNAL;

/// Makes the report that was asked for.
pub(crate) fn dispatch(desk: &Desk, command: ReportCommand) -> u8 {
    let made = match command {
        ReportCommand::Junit(args) => make(desk, &args, || Box::new(Suites::default())),
        ReportCommand::Summary(args) => make(desk, &args, || Box::new(summary::Summary::default())),
        ReportCommand::Html(args) => make(desk, &args, || Box::new(html::Page::default())),
        ReportCommand::Human(args) => {
            let options = terminal::whole_log(desk, args.color, args.report.output_file.as_deref());
            make(desk, &args.report, || Box::new(Human::new(Vec::new(), options)))
        }
    };
    made.unwrap_or_else(|failure| told(&failure))
}

fn make(desk: &Desk, args: &ReportArgs, begin: impl Fn() -> Box<dyn Reporter>) -> Result<u8, Failure> {
    let Source { input, path, name } = source(desk, &args.events)?;
    let place = args.output_file.as_deref().map(|given| place(given, path.as_deref())).transpose()?;
    let (report, ending) =
        recorded::report(input, args.run.as_deref(), begin).map_err(|why| no_journal(&name, &why))?;
    for remark in ending.remarks() {
        let _ = writeln!(terminal::stderr(), "dcctl: {}", one_line(&remark));
    }
    let Some(place) = place else { return Ok(print(&report)) };
    file::replace(&place, report.as_bytes()).map_err(|error| {
        let sentence = format!("could not write the report {}", place.display());
        Failure::new(Code::ReportUnwritten, sentence).because(&error)
    })?;
    Ok(0)
}

/// Where the events come from.
struct Source {
    input: Box<dyn BufRead>,
    /// The file, when it is one.
    path: Option<PathBuf>,
    /// What people call it.
    name: String,
}

/// Finds the events: standard input, a file, a directory of a run, a run of this machine.
fn source(desk: &Desk, given: &Path) -> Result<Source, Failure> {
    if given == Path::new("-") {
        let input = Box::new(BufReader::new(terminal::stdin()));
        return Ok(Source { input, path: None, name: "standard input".to_owned() });
    }
    let path = match fs::metadata(given) {
        Ok(found) if found.is_dir() => given.join(JOURNAL),
        // A word that names no file may name a run.
        Err(_) if given.components().count() == 1 => runs::find(desk, given).map_err(neither)?.folder.join(JOURNAL),
        Ok(_) | Err(_) => given.to_owned(),
    };
    let name = path.display().to_string();
    let opened = File::open(&path);
    let file = opened.map_err(|error| no_journal(&name, &NoJournal::Unread(error)))?;
    Ok(Source { input: Box::new(BufReader::with_capacity(1 << 16, file)), path: Some(path), name })
}

/// Who named a file and mistyped it is not told of runs alone.
fn neither(failure: Failure) -> Failure {
    Failure { message: format!("there is no such file here, and {}", failure.message), ..failure }
}

fn no_journal(name: &str, why: &NoJournal) -> Failure {
    Failure::new(Code::JournalUnreadable, format!("no report can be made of {name}")).because(why)
}

/// Where the report goes: the file behind a link, and never the one that it is made from.
fn place(given: &Path, events: Option<&Path>) -> Result<PathBuf, Failure> {
    let place = fs::canonicalize(given).unwrap_or_else(|_| given.to_owned());
    if events.is_some_and(|events| is_same(events, &place)) {
        let sentence = format!("--output-file {} is what the report is made from", given.display());
        return Err(Failure::new(Code::OptionInvalid, sentence).hint("name another file"));
    }
    stays_clear("--output-file", &place, None, &Reads::default())?;
    Ok(place)
}
