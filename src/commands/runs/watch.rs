//! `dcctl runs show`, `attach` and `wait`: a run as its journal tells it, now or to its end.
//!
//! A viewer is nobody to the run: it neither asks anything nor is waited for, and its end stops nothing.

use std::io::Write as _;
use std::time::Duration;

use crate::cli::{Output, RunsAttachArgs, RunsShowArgs, RunsWaitArgs};
use crate::clock::Instant;
use crate::commands::apply::files;
use crate::commands::{Desk, print, runs, runtime, terminal, told};
use crate::failure::{Code, Failure};
use crate::front::{Form, From, Showing, View};
use crate::report::human::{Again, ToolOutput};
use crate::run::{Past, State, Watched};
use crate::signal;

/// How often it is looked whether the run has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Shows what there is. Ends with 0: how the run ended is shown.
pub(crate) fn show(desk: &Desk, args: &RunsShowArgs) -> u8 {
    let shown = runs::find(desk, &args.run).and_then(|past| {
        let view = View::open(&past.folder, showing(desk, args), From::TheStart)?;
        runtime()?.block_on(view.end());
        Ok(past)
    });
    match shown {
        Ok(Past { state: State::Ended { .. }, .. }) => 0,
        Ok(past) => {
            let how = format!("run {} {}\n", past.run, runs::list::how(&past));
            match args.output {
                Output::Human => print(&how),
                // Standard output has one event on each line, and nothing else.
                Output::Jsonl => {
                    let _ = terminal::stderr().write_all(how.as_bytes());
                    0
                }
            }
        }
        Err(failure) => told(&failure),
    }
}

/// Shows the run to its end, and ends with its exit code.
pub(crate) fn attach(desk: &Desk, args: &RunsAttachArgs) -> u8 {
    let from = if args.from_now { From::Now } else { From::TheStart };
    let ended = runs::find(desk, &args.show.run).and_then(|past| {
        runtime()?.block_on(async {
            let signals = hear()?;
            let watched = watch(&past)?;
            let view = View::open(&past.folder, showing(desk, &args.show), from)?;
            let ended = follow(desk, &watched, None, signals).await;
            view.end().await;
            ended
        })
    });
    ended.unwrap_or_else(|failure| told(&failure))
}

/// Waits for the end of the run, and ends with its exit code.
pub(crate) fn wait(desk: &Desk, args: &RunsWaitArgs) -> u8 {
    let until = args.timeout.map(|timeout| desk.clock.now() + timeout);
    let ended = runs::find(desk, &args.run)
        .and_then(|past| runtime()?.block_on(async { follow(desk, &watch(&past)?, until, hear()?).await }));
    ended.unwrap_or_else(|failure| told(&failure))
}

fn showing(desk: &Desk, args: &RunsShowArgs) -> Showing {
    let mut showing = terminal::showing(desk, Some(args.output), args.color);
    if let Form::Human(options) = &mut showing.form {
        // What the run's programs print is not passed on beside this log.
        options.output = ToolOutput::Always;
        // A key ends the watching alone.
        options.again = Again::Nothing;
    }
    showing
}

/// From here on a signal ends the watching, and says that the run goes on.
fn hear() -> Result<signal::Signals, Failure> {
    signal::install()
        .map_err(|error| Failure::new(Code::Internal, "the signal handlers could not be installed").because(&error))
}

/// Holds on to the run, whatever becomes of its directory.
fn watch(past: &Past) -> Result<Watched, Failure> {
    Watched::open(&past.folder).map_err(|error| unseen(&past.run, &error))
}

/// Nothing is known of the run, which goes on all the same.
fn unseen(run: &str, error: &std::io::Error) -> Failure {
    Failure::new(Code::OptionInvalid, format!("the directory of run {run} is gone or unreadable"))
        .because(error)
        .hint("`dcctl lock status` says whether the run still has the lock")
}

/// The exit code of the run's verdict, once it is there.
async fn follow(
    desk: &Desk,
    watched: &Watched,
    until: Option<Instant>,
    mut signals: signal::Signals,
) -> Result<u8, Failure> {
    loop {
        let now = watched.look(&files::host_name()).map_err(|error| unseen(watched.run(), &error))?;
        match &now.state {
            State::Ended { exit_code, .. } => return Ok(*exit_code),
            State::Running => {}
            State::CutOff { .. } => {
                let sentence = format!("run {} {}", now.run, runs::list::how(&now));
                return Err(Failure::new(Code::SupervisorKilled, sentence)
                    .hint(format!("`dcctl runs show {}` shows what it had said", now.run))
                    .hint("the lock may still bear its name: `dcctl lock status` says so, and how to reclaim it"));
            }
            State::Elsewhere { .. } => {
                let sentence = format!("run {} {}", now.run, runs::list::how(&now));
                return Err(Failure::new(Code::CommandFailed, sentence).hint("ask there"));
            }
        }
        let left = until.map(|until| until.since(desk.clock.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Failure::new(
                Code::RunGoesOn,
                format!("run {} goes on, and the time to wait is over", now.run),
            ));
        }
        tokio::select! {
            biased;
            _ = signals.next() => {
                let said = format!("no longer watching; run {} goes on", now.run);
                return Err(Failure::new(Code::RunGoesOn, said).hint(format!("`dcctl runs stop {}` stops it", now.run)));
            }
            () = tokio::time::sleep(left.unwrap_or(LOOK).min(LOOK)) => {}
        }
    }
}
