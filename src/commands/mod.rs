//! One file per command: gather what it needs, call it, return its exit code.
//!
//! This is the only room that opens standard output and standard error; everything below gets writers handed down.

mod apply;
mod attempt;
mod console;
mod exec;
mod explain;
mod instances;
mod lock_status;
mod preflight;
mod rbac;
mod reclaim;
mod release;
mod report;
mod runs;
mod schema;
mod substrate;
mod supervise;
mod terminal;
mod wrap;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::{self, Cli, Command, InstancesCommand, LockCommand, Reading, ReportOptions, Salvaged};
use crate::clock::Clock;
use crate::commands::apply::reports::Reads;
use crate::config::Environment;
use crate::event::text::plain;
use crate::failure::{Code, Failure};
use crate::front::{Refusal, refuse};
use crate::redact::Redactor;
use crate::run::Mode;

/// How many files a runtime opens, and some more.
const FILES_OF_A_RUNTIME: usize = 12;

/// What every command may use.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) environment: Environment,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The whole program: returns the exit status.
pub fn main() -> u8 {
    // Before anything else: a second thread would keep what the first one had.
    crate::process::begin_afresh();
    // Without it such a write ends the process, which is no worse than not to begin.
    let _ = crate::signal::survive_full_files();
    let words: Vec<OsString> = std::env::args_os().collect();
    let environment = Environment::read();
    let clock = clock(&environment);
    let desk = Desk { environment, clock };
    match cli::read(&words, |variable| desk.environment.is_empty(variable)) {
        Reading::Command(cli) => desk.dispatch(*cli),
        Reading::Text(text) => print(&text),
        Reading::Wrong(failure, salvaged) => desk.wrong(failure, salvaged),
    }
}

#[cfg(not(feature = "test-tools"))]
fn clock(_: &Environment) -> Arc<dyn Clock> {
    Arc::new(crate::clock::System)
}

/// What tests start can be told that the machine was suspended. A release has nothing of this. The variable does not begin
/// like dcctl's own, which are kept from the supervisor.
#[cfg(feature = "test-tools")]
fn clock(environment: &Environment) -> Arc<dyn Clock> {
    match environment.path("BED_SUSPENDED") {
        Some(file) => Arc::new(crate::clock::Suspended::by(file)),
        None => Arc::new(crate::clock::System),
    }
}

impl Desk {
    fn dispatch(&self, cli: Cli) -> u8 {
        match cli.command {
            Command::Install(args) => apply::install(self, args),
            Command::Bootstrap(args) => apply::bootstrap(self, args),
            Command::Upgrade(args) => apply::upgrade(self, args),
            Command::Destroy(args) => apply::destroy(self, args),
            Command::Exec(args) => exec::exec(self, args),
            Command::Lock(LockCommand::Status(args)) => lock_status::status(self, &args),
            Command::Instances(InstancesCommand::Reclaim(args)) => reclaim::reclaim(self, args),
            Command::Instances(InstancesCommand::List(args)) => instances::list(self, &args),
            Command::Instances(InstancesCommand::Release(args)) => release::release(self, &args),
            Command::Preflight(args) => preflight::preflight(self, &args),
            Command::Runs(command) => runs::dispatch(self, command),
            Command::Report(command) => report::dispatch(self, command),
            Command::Explain(args) => explain::explain(&args),
            Command::Schema(args) => schema::print_schema(args.of),
            Command::Rbac(args) => rbac::print_rights(&args),
            Command::Supervise => supervise::supervise(self),
        }
    }

    /// A command line that cannot be read. For a command that would have been a run it is told like any refusal, and so
    /// it is when the command itself is misspelt but says where reports go.
    fn wrong(&self, failure: Failure, salvaged: Salvaged) -> u8 {
        let Salvaged { verb, instance, output, events_file, junit, dry_run } = self.completed(salvaged);
        let exit = failure.code.exit();
        let wants_reports = output.is_some() || events_file.is_some() || junit.is_some();
        let runs = |verb: &String| match verb.as_str() {
            "install" | "bootstrap" | "upgrade" | "destroy" | "exec" => true,
            known => wants_reports && cli::command().find_subcommand(known).is_none(),
        };
        let Some(command) = verb.filter(runs) else {
            complain(&failure);
            return exit;
        };
        let showing = match command.as_str() {
            "exec" => terminal::showing_beside_a_command(self, output, cli::Color::Auto),
            _ => terminal::showing(self, output, cli::Color::Auto),
        };
        // What it would have read is not known, so whatever has a content is left alone, if that is no report.
        let everything = Reads { bundle: Some(PathBuf::from("/")), ..Reads::default() };
        let given = ReportOptions { output, events_file, junit, run_dir: None, color: cli::Color::Auto };
        let reports = apply::reports::writable(&given, &everything);
        let refusal = Refusal {
            failure,
            run: attempt::new_run_id(),
            began: self.clock.now(),
            command,
            instance,
            program: None,
            kube_context: None,
            lock_dir: None,
            mode: if dry_run { Mode::DryRun } else { Mode::Act },
            events_file: reports.events,
            junit: reports.junit,
            redactor: Redactor::default(),
        };
        refuse(&refusal, showing)
    }

    /// What is not on the command line may be in the environment.
    fn completed(&self, salvaged: Salvaged) -> Salvaged {
        let path = |given: Option<PathBuf>, name: &str| given.or_else(|| self.environment.path(name));
        let output = || self.environment.text("DCCTL_OUTPUT").and_then(cli::Output::parse);
        Salvaged {
            output: salvaged.output.or_else(output),
            events_file: path(salvaged.events_file, "DCCTL_EVENTS_FILE"),
            junit: path(salvaged.junit, "DCCTL_JUNIT"),
            dry_run: salvaged.dry_run || self.environment.text("DCCTL_DRY_RUN").is_some_and(cli::is_yes),
            ..salvaged
        }
    }
}

/// Prints to standard output what the command is for. A reader that is gone is nobody's failure.
pub(crate) fn print(text: &str) -> u8 {
    say(text).map_or_else(|failure| told(&failure), |_| 0)
}

/// Whether somebody reads standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// As far as can be told.
    There,
    /// Not any more.
    Gone,
}

/// Writes to standard output.
///
/// # Errors
/// `report.unwritten` when it cannot be written for another reason than that nobody reads it.
pub(crate) fn say(text: &str) -> Result<Reader, Failure> {
    let mut out = terminal::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Failure::new(Code::ReportUnwritten, "standard output could not be written")
            .because(&error)
            .hint("send it to a place that has room")),
    }
}

/// Says a failure on standard error, and gives back its exit status.
pub(crate) fn told(failure: &Failure) -> u8 {
    complain(failure);
    failure.code.exit()
}

/// Says a failure on standard error.
pub(crate) fn complain(failure: &Failure) {
    let _ = terminal::stderr().write_all(complaint(failure).as_bytes());
}

/// A failure for people: the sentence, the causes, and what to do. What it repeats may come from anywhere, so nothing in
/// it acts on a terminal, or looks like a line of its own.
fn complaint(failure: &Failure) -> String {
    let shown = |text: &str| plain(text).replace('\n', "\n    ");
    let mut said = format!("dcctl: {}\n", shown(&failure.message));
    for cause in &failure.causes {
        said.push_str(&format!("  because: {}\n", shown(cause)));
    }
    let remedy = [failure.code.row().remedy.to_owned()];
    let hints = if failure.hints.is_empty() { remedy.as_slice() } else { &failure.hints };
    for hint in hints {
        said.push_str(&format!("  {}\n", shown(hint)));
    }
    said.push_str(&format!("  ({}, exit code {})\n", failure.code.name(), failure.code.exit()));
    said
}

/// The runtime of a process that does one thing: everything on the thread that asks.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    // Where it finds none left, it panics instead of saying so.
    let enough_files = (0..FILES_OF_A_RUNTIME).map(|_| File::open("/dev/null")).collect::<io::Result<Vec<_>>>();
    let started = enough_files.and_then(|files| {
        drop(files);
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    });
    started.map_err(|error| {
        let code = Code::Internal.unless_exhausted(&error);
        Failure::new(code, "the asynchronous runtime could not be started").because(&error)
    })
}
