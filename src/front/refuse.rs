//! A command that never became a run is told all the same: to standard output, to the events file, and as one error
//! case of the JUnit report, so that a CI job finds what it waits for.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::event::text::one_line;
use crate::event::{self, Envelope, Event, LockEnd};
use crate::failure::Failure;
use crate::front::STALLED;
use crate::front::show::{self, Showing};
use crate::redact::Redactor;
use crate::run::{GoingOn, Matter, Paths, Reports, Verdict};

/// How long the reports may take.
const REPORTS: Duration = Duration::from_secs(5);

/// A command that was refused, as far as it is known.
pub struct Refusal {
    /// Why.
    pub failure: Failure,
    /// The id of the run that it would have been.
    pub run: String,
    /// When the front began.
    pub began: Instant,
    /// The command, `install`.
    pub command: String,
    /// Its instance.
    pub instance: Option<String>,
    /// The program that `exec` would have run.
    pub program: Option<String>,
    /// The kubeconfig's name for the cluster, if it got so far.
    pub kube_context: Option<String>,
    /// The folder that keeps the lock, if one was given.
    pub lock_dir: Option<String>,
    /// Whether it was to be a dry run.
    pub mode: crate::run::Mode,
    /// `--events-file`.
    pub events_file: Option<PathBuf>,
    /// `--junit`.
    pub junit: Option<PathBuf>,
    /// What must never be said.
    pub redactor: Redactor,
}

/// Tells the refusal and returns its exit code.
pub fn refuse(refusal: &Refusal, mut showing: Showing) -> u8 {
    let clock = showing.clock.clone();
    let verdict = Verdict::refused(refusal.failure.clone());
    let paths = Paths { events: refusal.events_file.clone(), junit: refusal.junit.clone(), going_on: GoingOn::No };
    let mut reports = Reports::start(paths);
    let mut roll = reports.roll();
    let mut lines = Vec::new();
    let mut tell = |event: &Event, reports: &mut Reports| {
        let elapsed = clock.now().since(refusal.began);
        let seq = lines.len() as u64;
        let line = Envelope::new(seq, clock.wall(), elapsed, &refusal.run, None, event).render(&refusal.redactor);
        reports.heed(&line, Matter::Fact);
        lines.push(line);
    };
    let [started, diagnostic, finished] = events(refusal, &verdict, clock.as_ref());
    tell(&started, &mut reports);
    tell(&diagnostic, &mut reports);
    for unwritten in reports.settle_now(&mut roll, REPORTS) {
        tell(&unwritten.event(), &mut reports);
    }
    tell(&finished, &mut reports);
    // The verdict is not about the reports, so one that takes all but the verdict changes nothing in it.
    for unwritten in reports.settle_now(&mut roll, REPORTS) {
        let _ = writeln!(showing.complaints, "dcctl: {}", one_line(&unwritten.to_string()));
    }
    show::all(lines, showing, STALLED);
    verdict.exit()
}

fn events(refusal: &Refusal, verdict: &Verdict, clock: &dyn Clock) -> [Event; 3] {
    let Failure { code, hints, .. } = &refusal.failure;
    let dry_run = refusal.mode == crate::run::Mode::DryRun;
    let subject = match refusal.instance.as_ref().or(refusal.program.as_ref()) {
        Some(object) => format!("{} {object}", refusal.command),
        None => refusal.command.clone(),
    };
    [
        Event::RunStarted(event::RunStarted {
            schema: event::SCHEMA_ID.to_owned(),
            schema_version: event::SCHEMA_VERSION.to_owned(),
            dcctl: env!("CARGO_PKG_VERSION").to_owned(),
            command: refusal.command.clone(),
            instance: refusal.instance.clone(),
            program: refusal.program.clone(),
            bundle: None,
            kube_context: refusal.kube_context.clone(),
            server: None,
            lock_dir: refusal.lock_dir.clone(),
            holder: None,
            ci: None,
            run_dir: None,
            stop_budget: None,
            dry_run,
        }),
        Event::Diagnostic(event::Diagnostic::from(&refusal.failure)),
        Event::RunFinished(event::RunFinished {
            subject,
            outcome: verdict.outcome,
            exit_code: verdict.exit(),
            failure: Some(event::Failed::from(&refusal.failure)),
            command_end: None,
            lock: LockEnd::NeverTaken,
            holder: None,
            counts: event::Counts::default(),
            unfinished: Vec::new(),
            survived: Vec::new(),
            kept: Vec::new(),
            next: if hints.is_empty() { vec![code.row().remedy.to_owned()] } else { hints.clone() },
            dry_run,
            duration_ms: crate::run::millis(clock.now().since(refusal.began)),
        }),
    ]
}
