//! A command that may become a run: a refusal until everything about it is known, a run from then on.
//!
//! Whatever is wrong before is told like a run that ended at once, and nothing was started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::{
    self, BusyOptions, DetachOptions, ReportOptions, StopBudget, StopOptions, SubstrateOptions, TargetOptions,
};
use crate::clock::Instant;
use crate::commands::apply::files;
use crate::commands::apply::reports::{self, Reads};
use crate::commands::{Desk, complain, runtime, terminal};
use crate::config::Job;
use crate::config::grant::{Grant, Seat, Told};
use crate::failure::{Code, Failure};
use crate::front::{self, Broken, Orphaned, Refusal, Showing, Stay, Surroundings, Terminal};
use crate::pipeline::Verb;
use crate::process;
use crate::redact::Redactor;
use crate::run::{self, Mode, OnBusy, Spec, Wait};
use crate::signal::Signals;

/// A command line that asks for a run.
pub(crate) trait Asked: Send + Sync + 'static {
    /// The verb.
    fn verb(&self) -> Verb;

    /// The instance that it names, if it takes one.
    fn instance(&self) -> Option<&str> {
        None
    }

    /// The program that it names, if it takes one.
    fn program(&self) -> Option<String> {
        None
    }

    /// Which cluster.
    fn target(&self) -> &TargetOptions;

    /// What keeps the lock.
    fn substrate(&self) -> &SubstrateOptions;

    /// Where it is said what happens.
    fn report(&self) -> &ReportOptions;

    /// Whether to act.
    fn mode(&self) -> Mode;

    /// What the run reads, as far as the options say.
    fn reads(&self, desk: &Desk) -> Reads;

    /// Whether the run is left once it has begun.
    fn detach(&self) -> &DetachOptions;

    /// The option that needs the process that was started here, as long as the run goes on.
    fn needs_front(&self) -> Option<&'static str> {
        None
    }

    /// How the run is shown.
    fn showing(&self, desk: &Desk) -> Showing;

    /// Everything about the run, read and checked.
    ///
    /// # Errors
    /// What is wrong with it.
    fn gather(&self, begun: &Begun, run_dir: PathBuf) -> Result<Spec, Failure>;
}

/// What is decided when the command begins.
#[derive(Clone)]
pub(crate) struct Begun {
    /// What every command may use.
    pub(crate) desk: Desk,
    /// The run's id.
    pub(crate) run: String,
    /// When the front began.
    pub(crate) began: Instant,
}

/// Makes a run of a command line, and returns its exit status.
pub(crate) fn make(desk: &Desk, asked: impl Asked) -> u8 {
    let begun = Begun { desk: desk.clone(), run: new_run_id(), began: desk.clock.now() };
    let attempt = Attempt { begun, asked: Arc::new(asked) };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(failure) => return attempt.refused(failure),
    };
    let code = runtime.block_on(async {
        let made = run::caught(attempt.make()).await;
        made.unwrap_or_else(|why| attempt.refused(Failure::new(Code::Internal, format!("dcctl itself broke: {why}"))))
    });
    runtime.shutdown_background();
    code
}

/// A new run's id: 16 hexadecimal digits from the system's source of randomness.
pub(crate) fn new_run_id() -> String {
    let number = getrandom::u64().expect("the system has a source of randomness");
    format!("{number:016x}")
}

struct Attempt<A> {
    begun: Begun,
    asked: Arc<A>,
}

impl<A: Asked> Attempt<A> {
    async fn make(&self) -> u8 {
        // Armed before anything else: from here on a signal is a request to stop and never an end.
        let mut signals = match crate::signal::install() {
            Ok(signals) => signals,
            Err(error) => {
                let (code, sentence) = (Code::Internal, "the signal handlers could not be installed");
                return self.refused(Failure::new(code.unless_exhausted(&error), sentence).because(&error));
            }
        };
        let mut orphaned = orphaned(&self.begun.desk, self.stay());
        let Desk { environment, clock } = &self.begun.desk;
        if let Err(failure) = process::sees_itself() {
            return self.refused(failure);
        }
        let given = self.asked.report().run_dir.as_deref();
        let apart = reports::apart_from_the_lock(given, &self.asked.reads(&self.begun.desk));
        let made = apart.and_then(|()| files::RunFolder::make(given, environment, clock.wall(), &self.begun.run));
        let mut folder = match made {
            Ok(folder) => folder,
            Err(failure) => return self.refused(failure),
        };
        if let Some(failure) = self.cannot_be_left() {
            return self.refused(failure);
        }
        let spec = match self.gather(&mut signals, &mut orphaned, folder.path()).await {
            Ok(spec) => spec,
            Err(failure) => return self.refused(failure),
        };
        folder.keep();
        match start(&self.begun.desk, spec, (signals, orphaned), self.showing(), self.stay()).await {
            Ok(code) => code,
            Err(Broken::NotStarted(failure)) => {
                folder.give_up();
                self.refused(failure)
            }
            Err(Broken::NoVerdict(failure)) => {
                complain(&failure);
                failure.code.exit()
            }
        }
    }

    /// Files are read on a thread of their own: one of them may be a pipe that nobody writes, or lie on a drive that
    /// hangs, and a request to stop is heeded all the same.
    async fn gather(&self, signals: &mut Signals, orphaned: &mut Orphaned, run_dir: &Path) -> Result<Spec, Failure> {
        let (asked, begun, run_dir) = (self.asked.clone(), self.begun.clone(), run_dir.to_path_buf());
        let reading = tokio::task::spawn_blocking(move || asked.gather(&begun, run_dir));
        let stopped = || Err(Failure::new(Code::StoppedClean, "stopped on request before the run began"));
        tokio::select! {
            biased;
            _ = signals.next() => stopped(),
            () = orphaned => stopped(),
            read = reading => read.unwrap_or_else(|error| {
                Err(Failure::new(Code::Internal, "reading what the run needs broke off").because(&error))
            }),
        }
    }

    /// A run that is left shows no outputs of its command: nobody would follow them to their end.
    fn showing(&self) -> Showing {
        let showing = self.asked.showing(&self.begun.desk);
        match self.stay() {
            Stay::ToTheEnd => showing,
            Stay::UntilItBegan => Showing { streams: None, ..showing },
        }
    }

    /// What speaks against leaving the run, if it is to be left.
    fn cannot_be_left(&self) -> Option<Failure> {
        if self.stay() == Stay::ToTheEnd {
            return None;
        }
        if process::is_first() {
            let sentence = "--detach does not go with dcctl as the first process of a container: with its end everything in there is ended";
            let hint = "leave --detach out: the container is the run then, and whoever started it may go";
            return Some(Failure::new(Code::OptionInvalid, sentence).hint(hint));
        }
        let option = match (self.asked.mode(), self.asked.needs_front()) {
            (Mode::DryRun, _) => "--dry-run",
            (Mode::Act, Some(option)) => option,
            (Mode::Act, None) => return None,
        };
        let sentence = match option {
            "--dry-run" => "--detach and --dry-run do not go together: a dry run is over at once".to_owned(),
            option => format!("--detach and {option} do not go together: {option} needs this command to stay"),
        };
        Some(Failure::new(Code::OptionInvalid, sentence).hint("leave one of them out"))
    }

    fn stay(&self) -> Stay {
        if self.asked.detach().detach { Stay::UntilItBegan } else { Stay::ToTheEnd }
    }

    fn refused(&self, failure: Failure) -> u8 {
        let asked = &self.asked;
        let reports = reports::writable(asked.report(), &asked.reads(&self.begun.desk));
        let refusal = Refusal {
            failure,
            run: self.begun.run.clone(),
            began: self.begun.began,
            command: asked.verb().word().to_owned(),
            instance: asked.instance().map(str::to_owned),
            program: asked.program(),
            kube_context: asked.target().kube_context.clone(),
            lock_dir: asked.substrate().lock_dir.as_ref().map(|folder| folder.display().to_string()),
            mode: asked.mode(),
            events_file: reports.events,
            junit: reports.junit,
            redactor: Redactor::default(),
        };
        front::refuse(&refusal, self.showing())
    }
}

/// How long a run that nobody watches may take, unless it is said.
const MOST_DETACHED: Duration = Duration::from_secs(24 * 60 * 60);

/// After how long the run is asked to stop by itself.
pub(crate) fn max_run_time(options: &DetachOptions) -> Option<Duration> {
    options.max_run_time.or_else(|| options.detach.then_some(MOST_DETACHED))
}

/// How long to wait for the lock.
pub(crate) fn wait(options: &BusyOptions) -> Wait {
    options.wait.map_or(Wait::No, |wait| match wait {
        cli::Wait::AtMost(limit) => Wait::AtMost(limit),
        cli::Wait::Forever => Wait::Forever,
    })
}

/// What to do without the lock.
pub(crate) fn on_busy(options: &BusyOptions, verb: Verb) -> OnBusy {
    options.on_busy.map_or(OnBusy::preset(verb), |on_busy| match on_busy {
        cli::OnBusy::Refuse => OnBusy::Refuse,
        cli::OnBusy::Warn => OnBusy::Warn,
    })
}

/// What the surroundings grant a stop.
pub(crate) fn grant(options: &StopOptions, desk: &Desk, job: &Job) -> Grant {
    let told = options.stop_budget.map(|budget| match budget {
        StopBudget::AtMost(after) => Told::Everything(after),
        StopBudget::Unlimited => Told::Nothing,
    });
    let seat = match terminal::foreground() {
        Terminal::Foreground => Seat::Taken,
        Terminal::None => Seat::Empty,
    };
    Grant::find(told, job, &desk.environment, seat)
}

/// Ends when the process that started this one is gone, in a job of a CI system: its shell was killed, and nothing tells us
/// so. Elsewhere whoever starts something and goes means it to go on, and so does whoever leaves a run.
fn orphaned(desk: &Desk, stay: Stay) -> Orphaned {
    let counts = stay == Stay::ToTheEnd && desk.environment.says_yes("CI");
    let parent = counts.then(process::parent).and_then(Result::ok);
    Box::pin(async move {
        match parent {
            // One that cannot be watched is like one that stays.
            Some(parent) if parent.ended().await.is_ok() => {}
            Some(_) | None => std::future::pending().await,
        }
    })
}

async fn start(
    desk: &Desk,
    spec: Spec,
    (signals, orphaned): (Signals, Orphaned),
    showing: Showing,
    stay: Stay,
) -> Result<u8, Broken> {
    let program = std::env::current_exe().map_err(|error| {
        let code = Code::CommandFailed.unless_exhausted(&error);
        Broken::NotStarted(Failure::new(code, "this program cannot tell where it is").because(&error))
    })?;
    let surroundings = Surroundings {
        program,
        environment: desk.environment.for_supervisor(),
        clock: desk.clock.clone(),
        signals,
        complaints: terminal::stderr,
        input: terminal::stdin,
        terminal: terminal::foreground,
        orphaned,
        stay,
    };
    front::run(spec, showing, surroundings).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_nobody_watches_has_a_limit_also_where_none_is_given() {
        let ours = Duration::from_secs(5);
        for (detach, max_run_time, limit) in [
            (false, None, None),
            (true, None, Some(MOST_DETACHED)),
            (false, Some(ours), Some(ours)),
            (true, Some(ours), Some(ours)),
        ] {
            let options = DetachOptions { detach, max_run_time };
            assert_eq!(super::max_run_time(&options), limit, "{options:?}");
        }
        assert_eq!(MOST_DETACHED, Duration::from_secs(86_400), "it is documented so");
    }
}
