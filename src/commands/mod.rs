//! One file per command: gather what it needs, call it, return its exit code.
//!
//! This is the only room that opens standard output and standard error; everything below gets writers handed down.

mod apply;
mod attempt;
mod console;
mod exec;
mod explain;
mod lock_status;
mod rbac;
mod reclaim;
mod schema;
mod supervise;
mod terminal;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use crate::cli::{self, Cli, Command, InstancesCommand, LockCommand, Reading, Salvaged};
use crate::clock::Clock;
use crate::config::Environment;
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
    let words: Vec<OsString> = std::env::args_os().collect();
    let environment = Environment::read();
    let clock = clock(&environment);
    let desk = Desk { environment, clock };
    match cli::read(&words) {
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
            Command::Exec(args) => exec::exec(self, args),
            Command::Lock(LockCommand::Status(args)) => lock_status::status(self, &args),
            Command::Instances(InstancesCommand::Reclaim(args)) => reclaim::reclaim(self, args),
            Command::Explain(args) => explain::explain(&args),
            Command::Schema => schema::print_schema(),
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
            "install" | "bootstrap" | "exec" => true,
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
        let refusal = Refusal {
            failure,
            run: attempt::new_run_id(),
            began: self.clock.now(),
            command,
            instance,
            program: None,
            kube_context: None,
            mode: if dry_run { Mode::DryRun } else { Mode::Act },
            events_file: attempt::reportable("--events-file", events_file.as_deref()),
            junit: attempt::reportable("--junit", junit.as_deref()),
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
            dry_run: salvaged.dry_run || self.environment.text("DCCTL_DRY_RUN") == Some("true"),
            ..salvaged
        }
    }
}

/// Prints to standard output; a reader that is gone is nobody's failure.
pub(crate) fn print(text: &str) -> u8 {
    let mut out = terminal::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    0
}

/// Says a failure on standard error.
pub(crate) fn complain(failure: &Failure) {
    let _ = terminal::stderr().write_all(complaint(failure).as_bytes());
}

/// A failure for people: the sentence, the causes, and what to do.
fn complaint(failure: &Failure) -> String {
    let mut said = format!("dcctl: {}\n", failure.message);
    for cause in &failure.causes {
        said.push_str(&format!("  because: {cause}\n"));
    }
    let remedy = [failure.code.row().remedy.to_owned()];
    let hints = if failure.hints.is_empty() { remedy.as_slice() } else { &failure.hints };
    for hint in hints {
        said.push_str(&format!("  {hint}\n"));
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
