//! The supervisor's whole life: takes its end of the socket, arms the signals, runs, and says the verdict.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, System};
use crate::event::{self, Event, LockEnd};
use crate::failure::{Code, Failure};
use crate::lock;
use crate::process;
use crate::redact::Redactor;
use crate::run::chronicle::Chronicle;
use crate::run::engine::{Engine, Senses};
use crate::run::exec;
use crate::run::journal::{Journal, Voice};
use crate::run::link::{Answer, Ear, Link, Mouth, Word};
use crate::run::machine::Ending;
use crate::run::reports::{GoingOn, Paths, Reports, Unwritten};
use crate::run::spec::{Mode, Purpose, Spec};
use crate::run::translate::{self, millis};
use crate::run::verdict::{self, Verdict};
use crate::run::work::Work;
use crate::signal;
use crate::step::updates;

/// How long the reports may take at the end.
const REPORTS: Duration = Duration::from_secs(5);
/// How long the journal may take at the end.
const JOURNAL: Duration = Duration::from_secs(10);

/// Runs a run. Returns when the verdict is written. The redactor learns the secrets of the run as soon as these are
/// known.
///
/// # Errors
/// Only what happens before there is a journal: the front sees the supervisor's end and says it.
pub async fn supervise(redactor: Redactor) -> Result<u8, Failure> {
    let internal = |what: &'static str| move |error: std::io::Error| Failure::new(Code::Internal, what).because(&error);
    let socket = process::inherit()?;
    let signals = signal::install().map_err(internal("the signal handlers could not be installed"))?;
    process::adopt().map_err(internal("the supervisor cannot adopt orphans"))?;
    let link = Link::new(OwnedFd::from(socket)).map_err(internal("the socket to the front cannot be used"))?;
    let (mut ear, mut mouth) = link.split();
    let Some(Word::Spec(spec)) = ear.next().await else {
        return Err(Failure::new(Code::Internal, "the front was gone before it had said what to do"));
    };
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    // A front that is gone already is noticed by the engine.
    let _ = mouth.say(&Answer::Hello { pid }).await;
    spec.teach(&redactor);
    tracing::debug!(pid, run = spec.run, "this process owns the run");
    let pipe = if spec.takes_input() { Some(process::inherit_pipe()?) } else { None };
    let supervisor = Supervisor::new(*spec, pid, redactor)?;
    Ok(supervisor.run(pipe, signals, ear, mouth).await)
}

struct Supervisor {
    spec: Spec,
    pid: u32,
    clock: Arc<dyn Clock>,
    told: Chronicle,
}

impl Supervisor {
    fn new(spec: Spec, pid: u32, redactor: Redactor) -> Result<Supervisor, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(System);
        let reports = Reports::start(Paths {
            events: spec.events_file.clone(),
            junit: spec.junit.clone(),
            going_on: GoingOn::No,
        });
        let voice = Voice { run: spec.run.clone(), began: spec.began, clock: clock.clone(), redactor, seq: 0 };
        let path = spec.journal();
        let journal = Journal::open(&path, voice, reports).map_err(|error| {
            let sentence = format!("the journal {} cannot be written", path.display());
            Failure::new(Code::RunDirUnusable, sentence).because(&error)
        })?;
        let told = Chronicle::new(journal, clock.clone());
        Ok(Supervisor { spec, pid, clock, told })
    }

    async fn run(mut self, pipe: Option<OwnedFd>, signals: signal::Signals, ear: Ear, mouth: Mouth) -> u8 {
        let (stopper, watch) = process::stop_channel();
        let (send, receive) = updates();
        let mut work = Work::new(self.spec.clone(), self.pid, self.clock.clone(), watch, send);
        if let Some(pipe) = pipe {
            work.give_pipe(pipe);
        }
        self.open(&work);
        let (mut engine, first) = Engine::new(work, self.told, stopper);
        let mut senses = Senses { signals, ear: Some(ear), mouth, updates: receive };
        engine.run(&mut senses, first).await;
        close(engine, &self.spec).await
    }

    /// The first events.
    fn open(&mut self, work: &Work) {
        self.told.tell(None, translate::run_started(&self.spec, &work.holder()));
        self.told.tell(None, translate::run_planned(&self.spec.plan));
        if !self.spec.dropped.is_empty() {
            let names = self.spec.dropped.clone();
            self.told.tell(None, Event::EnvironmentDropped(event::EnvironmentDropped { names }));
        }
        let of_bundle: &[String] = match &self.spec.purpose {
            Purpose::Bundle(with) => &with.bundle.notes,
            Purpose::Command(_) => &[],
        };
        for note in self.spec.notes.iter().chain(of_bundle) {
            self.told.tell(None, Event::NoteMade(event::NoteMade { text: note.clone() }));
        }
    }
}

/// The last events, and the exit code.
async fn close(mut engine: Engine, spec: &Spec) -> u8 {
    for left in crate::run::tidy::tidy(&spec.run_dir, &spec.kubeconfig) {
        engine.told.tell(None, Event::NoteMade(event::NoteMade { text: left }));
    }
    let lock = engine.work.lock_end();
    let ending = Ending { begun: engine.work.has_begun(), ..engine.machine().ending().clone() };
    let mut unwritten = engine.told.settle_reports(REPORTS).await;
    let mut failure = None;
    // A report that takes all but the verdict itself changes the verdict. Each is told of once, so this ends.
    loop {
        for unwritten in &unwritten {
            engine.told.tell(None, unwritten.event());
        }
        failure = failure.or_else(|| unwritten.first().map(Unwritten::failure));
        let reports = if failure.is_none() { exec::Reports::Written } else { exec::Reports::Missing };
        let verdict = verdict::decide(&ending, lock, failure.clone());
        let finished = run_finished(&engine, spec, verdict, reports, ending.unfinished.clone());
        let exit = finished.exit_code;
        unwritten = engine.told.conclude(Event::RunFinished(finished), REPORTS).await;
        if unwritten.is_empty() {
            engine.told.flush(JOURNAL).await;
            return exit;
        }
    }
}

fn run_finished(
    engine: &Engine,
    spec: &Spec,
    verdict: Verdict,
    reports: exec::Reports,
    unfinished: Vec<String>,
) -> event::RunFinished {
    let (lock, life) = (engine.work.lock_end(), engine.work.command());
    let (verdict, exit_code, command_end) = match &spec.purpose {
        Purpose::Bundle(_) => {
            let exit = verdict.exit();
            (verdict, exit, None)
        }
        Purpose::Command(command) => {
            let exit = exec::exit(&verdict, command, life, lock, reports);
            (exec::reworded(verdict, command, life), exit, life.told())
        }
    };
    event::RunFinished {
        subject: spec.subject(),
        outcome: verdict.outcome,
        exit_code,
        failure: verdict.failure.as_ref().map(event::Failed::from),
        command_end,
        lock,
        holder: engine.work.holder_at_end(),
        counts: engine.told.counts(),
        unfinished,
        kept: engine.work.kept(),
        next: next(spec, &verdict, &engine.work),
        dry_run: spec.mode == Mode::DryRun,
        duration_ms: millis(engine.told.elapsed()),
    }
}

/// What to do now: the failure's own hints first, else the table's remedy, and what the lock needs.
fn next(spec: &Spec, verdict: &Verdict, work: &Work) -> Vec<String> {
    let mut next = match &verdict.failure {
        None => Vec::new(),
        Some(failure) if failure.hints.is_empty() => vec![failure.code.row().remedy.to_owned()],
        Some(failure) => failure.hints.clone(),
    };
    let look = format!("dcctl lock status --kube-context {}", spec.kube_context);
    match work.lock_end() {
        LockEnd::Left | LockEnd::Unknown => next.push(format!("look at the lock: {look}")),
        // Nobody else was seen in it: it may still bear our name, and then nobody gives it back but a person.
        LockEnd::Lost if work.holder_at_end().is_some_and(|holder| holder == work.holder()) => {
            let reclaim = lock::message::reclaim_command(&spec.kube_context);
            next.push(format!(
                "the Lease still named this run when it was last seen: {look}; if it still does, and nothing of this run \
                 lives any more, {reclaim}"
            ));
        }
        LockEnd::Released | LockEnd::NeverTaken | LockEnd::NotHeld | LockEnd::Lost => {}
    }
    next
}
