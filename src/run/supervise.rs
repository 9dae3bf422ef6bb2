//! The supervisor's whole life: takes its end of the socket, arms the signals, runs, and says the verdict.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, System};
use crate::event::{self, Event, LockEnd};
use crate::failure::{Code, Failure};
use crate::process;
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

/// Runs a run. Returns when the verdict is written.
///
/// # Errors
/// Only what happens before there is a journal: the front sees the supervisor's end and says it.
pub async fn supervise() -> Result<u8, Failure> {
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
    let pipe = if spec.takes_input() { Some(process::inherit_pipe()?) } else { None };
    let supervisor = Supervisor::new(*spec, pid)?;
    Ok(supervisor.run(pipe, signals, ear, mouth).await)
}

struct Supervisor {
    spec: Spec,
    pid: u32,
    clock: Arc<dyn Clock>,
    told: Chronicle,
}

impl Supervisor {
    fn new(spec: Spec, pid: u32) -> Result<Supervisor, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(System);
        let reports = Reports::start(Paths {
            events: spec.events_file.clone(),
            junit: spec.junit.clone(),
            going_on: GoingOn::No,
        });
        let voice =
            Voice { run: spec.run.clone(), began: spec.began, clock: clock.clone(), redactor: spec.redactor(), seq: 0 };
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
    let unwritten = engine.told.settle_reports(REPORTS).await;
    for unwritten in &unwritten {
        engine.told.tell(None, unwritten.event());
    }
    let lock = engine.work.lock_end();
    let ending = Ending { begun: engine.work.has_begun(), ..engine.machine().ending().clone() };
    let verdict = verdict::decide(&ending, lock, unwritten.first().map(Unwritten::failure));
    let finished = run_finished(&engine, spec, &unwritten, verdict, ending.unfinished);
    let exit = finished.exit_code;
    engine.told.tell(None, Event::RunFinished(finished));
    engine.told.settle_reports(REPORTS).await;
    engine.told.flush(JOURNAL).await;
    exit
}

fn run_finished(
    engine: &Engine,
    spec: &Spec,
    unwritten: &[Unwritten],
    verdict: Verdict,
    unfinished: Vec<String>,
) -> event::RunFinished {
    let (lock, life) = (engine.work.lock_end(), engine.work.command());
    let reports = if unwritten.is_empty() { exec::Reports::Written } else { exec::Reports::Missing };
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
        next: next(spec, &verdict, lock),
        dry_run: spec.mode == Mode::DryRun,
        duration_ms: millis(engine.told.elapsed()),
    }
}

/// What to do now: the failure's own hints first, else the table's remedy, and what the lock needs.
fn next(spec: &Spec, verdict: &Verdict, lock: LockEnd) -> Vec<String> {
    let mut next = match &verdict.failure {
        None => Vec::new(),
        Some(failure) if failure.hints.is_empty() => vec![failure.code.row().remedy.to_owned()],
        Some(failure) => failure.hints.clone(),
    };
    if matches!(lock, LockEnd::Left | LockEnd::Unknown) {
        next.push(format!("look at the lock: dcctl lock status --kube-context {}", spec.kube_context));
    }
    next
}
