//! Where a run's reports go, and what they may not take the place of: each other, files of the run, and what the run
//! reads. A report is written whatever becomes of the run, so this holds for refusals, too.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::ReportOptions;
use crate::commands::apply::files::{self, OWN};
use crate::failure::{Code, Failure};
use crate::run::JOURNAL;

const EVENTS: &str = "--events-file";
const JUNIT: &str = "--junit";

/// Where a run's reports go, absolute.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// `--events-file`.
    pub(crate) events: Option<PathBuf>,
    /// `--junit`.
    pub(crate) junit: Option<PathBuf>,
}

/// What a command line lets a run read, as far as its options say.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    /// Files, each by itself.
    pub(crate) files: Vec<PathBuf>,
    /// The bundle: a folder or a file.
    pub(crate) bundle: Option<PathBuf>,
    /// The folder that keeps the lock.
    pub(crate) lock_dir: Option<PathBuf>,
}

/// Finds the reports' places.
///
/// # Errors
/// `config.option` when one cannot be a report, or would take the place of something else.
pub(crate) fn find(options: &ReportOptions, run_dir: &Path, reads: &Reads) -> Result<Reports, Failure> {
    let events = files::report_path(EVENTS, options.events_file.as_deref())?;
    let junit = files::report_path(JUNIT, options.junit.as_deref())?;
    for (option, path) in [(EVENTS, &events), (JUNIT, &junit)] {
        if let Some(path) = path {
            stays_clear(option, path, Some(run_dir), reads)?;
        }
    }
    match (&events, &junit) {
        (Some(events), Some(junit)) if is_same(events, junit) => Err(Failure::new(
            Code::OptionInvalid,
            format!("{EVENTS} {} and {JUNIT} {} are the same file", events.display(), junit.display()),
        )
        .hint("give each report a file of its own")),
        _ => Ok(Reports { events, junit }),
    }
}

/// The places where a refusal may be told: of two reports in one place, neither.
pub(crate) fn writable(options: &ReportOptions, reads: &Reads) -> Reports {
    let place = |option: &str, given: &Option<PathBuf>| {
        let path = files::report_path(option, given.as_deref()).ok().flatten()?;
        stays_clear(option, &path, options.run_dir.as_deref(), reads).is_ok().then_some(path)
    };
    let reports = Reports { events: place(EVENTS, &options.events_file), junit: place(JUNIT, &options.junit) };
    match (&reports.events, &reports.junit) {
        (Some(events), Some(junit)) if is_same(events, junit) => Reports::default(),
        _ => reports,
    }
}

/// Whether a report may be written here.
///
/// # Errors
/// `config.option` when it would take the place of something else.
pub(crate) fn stays_clear(option: &str, path: &Path, run_dir: Option<&Path>, reads: &Reads) -> Result<(), Failure> {
    let refuse = |what: &str, hint: &str| {
        Err(Failure::new(Code::OptionInvalid, format!("{option} {} {what}", path.display())).hint(hint))
    };
    let other = "name another file";
    if let Some(stream) = own_stream(path) {
        return refuse(&format!("is the file that is this command's {stream}"), other);
    }
    match run_dir.and_then(|folder| own_name(path, folder)) {
        Some(JOURNAL) if option == EVENTS => {
            return refuse("is the journal of the run", "the journal has every event without this option");
        }
        Some(_) => return refuse("is where the run keeps files of its own", other),
        None => {}
    }
    if reads.files.iter().chain(&reads.bundle).any(|read| is_same(path, read)) {
        return refuse("is a file that the run reads", other);
    }
    if reads.bundle.as_deref().is_some_and(|bundle| is_within(path, bundle)) && has_other_content(path) {
        return refuse("is a file of the bundle", other);
    }
    if reads.lock_dir.as_deref().is_some_and(|folder| is_within(path, folder)) {
        return refuse("lies in the folder that keeps the lock", "name a file elsewhere");
    }
    if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".tfstate")) {
        return refuse("has the name of an OpenTofu state", other);
    }
    Ok(())
}

/// The name in the run's folder under which the run itself keeps what would be at this path.
fn own_name(path: &Path, run_dir: &Path) -> Option<&'static str> {
    let own = |name: &&str| {
        let own = run_dir.join(name);
        is_same(path, &own) || is_within(path, &own)
    };
    OWN.iter().map(|(name, _)| *name).find(own)
}

/// The standard stream of this process that is this very file: what is read from there, or written there by others.
fn own_stream(path: &Path) -> Option<&'static str> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let same = |stream: BorrowedFd<'_>| {
        let stream = rustix::fs::fstat(stream).ok();
        stream.is_some_and(|stream| (stream.st_dev, stream.st_ino) == (found.dev(), found.ino()))
    };
    let [input, output, error] = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()].map(same);
    let named = [(input, "standard input"), (output, "standard output"), (error, "standard error")];
    named.into_iter().find_map(|(is_it, name)| is_it.then_some(name))
}

/// Refuses a run directory in the folder that keeps the lock: whatever lies there is the lock's.
///
/// # Errors
/// `config.option`.
pub(crate) fn apart_from_the_lock(run_dir: Option<&Path>, reads: &Reads) -> Result<(), Failure> {
    match (run_dir, reads.lock_dir.as_deref()) {
        (Some(run_dir), Some(lock_dir)) if is_within(run_dir, lock_dir) => {
            let sentence = format!("--run-dir {} lies in the folder that keeps the lock", run_dir.display());
            Err(Failure::new(Code::OptionInvalid, sentence).hint("name a folder elsewhere"))
        }
        (_, _) => Ok(()),
    }
}

/// Refuses a folder for OpenTofu's state that lies where it does not stay, or where nothing is to be written: in the run's own
/// directory, or in the bundle.
///
/// # Errors
/// `config.option`.
pub(crate) fn state_stays(
    state_dir: Option<&Path>,
    run_dir: Option<&Path>,
    bundle: Option<&Path>,
) -> Result<(), Failure> {
    let Some(state_dir) = state_dir else { return Ok(()) };
    let is_in = |folder: Option<&Path>| folder.is_some_and(|folder| is_within(state_dir, folder));
    let why = if is_in(run_dir) {
        "lies in the directory of the run, of which parts go when the run ends"
    } else if is_in(bundle) {
        "lies in the bundle, which is only read"
    } else {
        return Ok(());
    };
    let sentence = format!("--state-dir {} {why}", state_dir.display());
    Err(Failure::new(Code::OptionInvalid, sentence)
        .hint("name a folder elsewhere, that is kept as long as the instance"))
}

/// Whether both lead to one file, which need not be there yet.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    place(one) == place(other) || file(one).is_some_and(|one| file(other) == Some(one))
}

fn is_within(path: &Path, folder: &Path) -> bool {
    place(path).starts_with(place(folder))
}

/// Where a path leads, without links as far as it is there.
fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let last = files::hops(&path).pop();
    files::without_dots(&last.unwrap_or(path))
}

/// Whether a file has something in it that is no report of an earlier run: a checkout may be a bundle, and reports may
/// lie in it.
fn has_other_content(path: &Path) -> bool {
    let mut head = String::new();
    let read = File::open(path).map(|file| file.take(256).read_to_string(&mut head));
    let is_report = head.starts_with("{\"v\":") || (head.starts_with("<?xml") && head.contains("<testsuites"));
    // A head that is no text is no report's either.
    read.is_ok_and(|read| read.is_err() || !(head.is_empty() || is_report))
}
