//! The supervisor's whole life: takes its end of the socket, arms the signals, runs, and says the verdict.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, rfc3339};
use crate::event::{self, Event, LockEnd};
use crate::failure::{Code, Failure};
use crate::process;
use crate::redact::Redactor;
use crate::run::chronicle::Chronicle;
use crate::run::door::Door;
use crate::run::engine::{Engine, Senses};
use crate::run::journal::{Journal, Voice};
use crate::run::link::{Answer, Ear, Finished, Link, Mouth, Word};
use crate::run::reports::{GoingOn, Paths, Reports, Unwritten};
use crate::run::spec::{Mode, Purpose, Spec};
use crate::run::takeover::complete;
use crate::run::translate::{self, millis};
use crate::run::verdict::{self, Verdict};
use crate::run::work::Work;
use crate::run::{drill, exec, former};
use crate::signal;
use crate::step::updates;

/// How long the reports may take at the end.
const REPORTS: Duration = Duration::from_secs(5);
/// How long a front that stands still holds up a word to it.
const LAST_WORD: Duration = Duration::from_secs(5);
/// How long the journal may take at the end.
const JOURNAL: Duration = Duration::from_secs(10);

/// Runs a run. Returns when the verdict is written and said. The redactor learns the secrets of the run as soon as these
/// are known.
///
/// # Errors
/// Only what happens before there is a journal: nothing was done then, and the front is told.
pub async fn supervise(clock: Arc<dyn Clock>, redactor: Redactor) -> Result<u8, Failure> {
    let socket = process::inherit()?;
    let link = Link::new(OwnedFd::from(socket)).map_err(internal("the socket to the front cannot be used"))?;
    let (mut ear, mut mouth) = link.split();
    match begin(&mut ear, &mut mouth, clock, redactor).await {
        Ok((supervisor, signals)) => Ok(supervisor.run(signals, ear, mouth).await),
        Err(failure) => {
            let _ = say(&mut mouth, &Answer::NotBegun(failure.clone())).await;
            Err(failure)
        }
    }
}

async fn begin(
    ear: &mut Ear,
    mouth: &mut Mouth,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
) -> Result<(Supervisor, signal::Signals), Failure> {
    let signals = signal::install().map_err(internal("the signal handlers could not be installed"))?;
    process::adopt().map_err(internal("the supervisor cannot adopt orphans"))?;
    let Some(Word::Spec(spec)) = ear.next().await else {
        return Err(Failure::new(Code::Internal, "the front was gone before it had said what to do"));
    };
    let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    // A front that is gone already is noticed by the engine.
    let _ = say(mouth, &Answer::Hello { pid }).await;
    spec.teach(&redactor);
    tracing::debug!(pid, run = spec.run, "this process owns the run");
    drill::stand_at(&spec, "first-word");
    let pipe = if spec.takes_input() { Some(process::inherit_pipe()?) } else { None };
    Ok((Supervisor::new(*spec, pid, clock, redactor)?.reading(pipe), signals))
}

fn internal(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new(Code::Internal.unless_exhausted(&error), what).because(&error)
}

/// The failure of a run whose journal cannot be made.
pub fn unwritable(journal: &Path, error: &io::Error) -> Failure {
    let code = Code::RunDirUnusable.unless_exhausted(error);
    Failure::new(code, format!("the journal {} cannot be written", journal.display())).because(error)
}

/// Says a word to a front that may be gone, or stand still; whether it took it.
async fn say(mouth: &mut Mouth, answer: &Answer) -> bool {
    tokio::time::timeout(LAST_WORD, mouth.say(answer)).await.is_ok_and(|said| said.is_ok())
}

/// What the journal's disk did not take finds room now, or is given some: there is no front that would see to it.
fn complete_journal(journal: io::Result<File>, finished: &Finished) {
    let Some(lines) = &finished.lines else { return };
    match journal.and_then(|journal| complete(&journal, lines)) {
        Ok(0) => {}
        Ok(missing) => tracing::warn!(missing, "the journal is not complete"),
        Err(error) => tracing::warn!(%error, "the journal has no verdict"),
    }
}

struct Supervisor {
    spec: Spec,
    pid: u32,
    clock: Arc<dyn Clock>,
    /// What every line goes through, and what a step teaches the secrets that it learns.
    redactor: Redactor,
    told: Chronicle,
    /// What the run's command is to read.
    pipe: Option<OwnedFd>,
}

impl Supervisor {
    fn new(spec: Spec, pid: u32, clock: Arc<dyn Clock>, redactor: Redactor) -> Result<Supervisor, Failure> {
        let reports = Reports::start(Paths {
            events: spec.events_file.clone(),
            junit: spec.junit.clone(),
            going_on: GoingOn::No,
        });
        let voice = Voice {
            run: spec.run.clone(),
            began: spec.began,
            clock: clock.clone(),
            redactor: redactor.clone(),
            seq: 0,
            halt: drill::Halt::of(&spec),
        };
        drill::of_tools(&spec);
        let path = spec.journal();
        let journal = Journal::open(&path, voice, reports).map_err(|error| unwritable(&path, &error))?;
        let told = Chronicle::new(journal, clock.clone());
        Ok(Supervisor { spec, pid, clock, redactor, told, pipe: None })
    }

    /// The command of the run reads this, if it is to read something.
    fn reading(self, pipe: Option<OwnedFd>) -> Supervisor {
        Supervisor { pipe, ..self }
    }

    async fn run(mut self, signals: signal::Signals, ear: Ear, mouth: Mouth) -> u8 {
        let (stopper, watch) = process::stop_channel();
        let (send, receive) = updates(self.told.backlog());
        let mut work = Work::new(self.spec.clone(), self.pid, self.clock.clone(), self.redactor.clone(), watch, send);
        if let Some(pipe) = self.pipe.take() {
            work.give_pipe(pipe);
        }
        let door = Door::open(&self.spec.run_dir);
        self.open(&work);
        let (mut engine, first) = Engine::new(work, self.told, stopper);
        let mut senses = Senses { signals, ear: Some(ear), mouth, updates: receive, door };
        engine.run(&mut senses, first).await;
        // Held open to the end: a run whose journal nobody writes any more is over.
        let journal = File::options().read(true).append(true).open(self.spec.journal());
        let finished = close(engine, &self.spec).await;
        let exit = finished.exit_code;
        let answer = Answer::Finished(finished);
        if !say(&mut senses.mouth, &answer).await
            && let Answer::Finished(finished) = &answer
        {
            complete_journal(journal, finished);
        }
        exit
    }

    /// The first events.
    fn open(&mut self, work: &Work) {
        for event in translate::opening(&self.spec, &work.holder()) {
            self.told.tell(None, event);
        }
        former::write_down(&self.spec, &work.holder());
        for killed in former::look(&self.spec) {
            self.told.note(killed);
        }
        if !self.spec.dropped.is_empty() {
            let names = self.spec.dropped.clone();
            self.told.tell(None, Event::EnvironmentDropped(event::EnvironmentDropped { names }));
        }
        for name in self.spec.unhidden() {
            let text = format!("the value of {name} has fewer than four characters: it is not hidden where it is said");
            self.told.note(text);
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

/// The last events, and how it ended.
async fn close(mut engine: Engine, spec: &Spec) -> Finished {
    for left in crate::run::tidy::tidy(spec) {
        engine.told.note(left);
    }
    // Nothing of the run asks the API server any more.
    for (pid, name) in process::end_plugins().await {
        engine.told.note(plugin_ended(pid, &name));
    }
    let lock = engine.work.end().lock;
    let ending = engine.ending();
    let unfinished: BTreeSet<String> = engine.told.unfinished().into_iter().chain(ending.unfinished.clone()).collect();
    let mut unwritten = engine.told.settle_reports(REPORTS).await;
    engine.told.written(REPORTS).await;
    engine.told.note_loss();
    let mut failure = None;
    // A report that takes all but the verdict itself changes the verdict. Each is told of once, so this ends.
    loop {
        for unwritten in &unwritten {
            engine.told.tell(None, unwritten.event());
        }
        failure = failure.or_else(|| unwritten.first().map(Unwritten::failure));
        let reports = if failure.is_none() { exec::Reports::Written } else { exec::Reports::Missing };
        let verdict = verdict::decide(&ending, lock, failure.clone()).explained(engine.work.end().why.as_ref());
        let finished = run_finished(&engine, spec, verdict, reports, &unfinished);
        let exit_code = finished.exit_code;
        match engine.told.offer_last(Event::RunFinished(finished), REPORTS).await {
            Ok(last) => {
                drill::at(spec, "verdict");
                engine.told.conclude(last);
                let lines = engine.told.flush(JOURNAL).await;
                return Finished { exit_code, lines };
            }
            Err(more) => unwritten = more,
        }
    }
}

/// What is said of a credential plugin that hung.
pub(crate) fn plugin_ended(pid: u32, name: &str) -> String {
    format!("process {pid} ({name}), a credential plugin of the kubeconfig, was still there and was ended")
}

fn run_finished(
    engine: &Engine,
    spec: &Spec,
    verdict: Verdict,
    reports: exec::Reports,
    unfinished: &BTreeSet<String>,
) -> event::RunFinished {
    let (lock, life) = (engine.work.end().lock, engine.work.command());
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
        holder: engine.work.end().holder.clone(),
        counts: engine.told.counts(),
        unfinished: unfinished.iter().cloned().collect(),
        survived: engine.told.survived(),
        kept: engine.work.kept(),
        next: next(spec, &verdict, &engine.work, &engine.told),
        dry_run: spec.mode == Mode::DryRun,
        duration_ms: millis(engine.told.elapsed()),
    }
}

/// What to do now: the failure's own hints first, else the table's remedy, and what the lock needs.
fn next(spec: &Spec, verdict: &Verdict, work: &Work, told: &Chronicle) -> Vec<String> {
    let mut next = match &verdict.failure {
        None => Vec::new(),
        Some(failure) if failure.hints.is_empty() => vec![failure.code.row().remedy.to_owned()],
        Some(failure) => failure.hints.clone(),
    };
    let place = spec.place();
    let (look, reclaim) = (place.status_command(), place.reclaim_command());
    let end = work.end();
    match (end.lock, &end.why) {
        // What keeps the Lease is known, and reclaiming it would not help.
        (LockEnd::Left, Some(why)) if !why.hints.is_empty() => {
            let more = why.hints.iter().filter(|hint| !next.contains(hint)).cloned().collect::<Vec<_>>();
            next.extend(more);
            next.push(format!("look at the lock: {look}"));
        }
        (LockEnd::Left | LockEnd::Unknown, _) => next.push(match end.looks_stale_from(told) {
            Some(time) => {
                let time = rfc3339(time);
                format!("look at the lock: {look}; where it is left it looks stale from {time} on: {reclaim}")
            }
            None => format!("look at the lock: {look}"),
        }),
        // Nobody else was seen in it: it may still bear our name, and then nobody gives it back but a person.
        (LockEnd::Lost, _) if end.holder.as_ref().is_some_and(|holder| *holder == work.holder()) => {
            next.push(format!(
                "the Lease still named this run when it was last seen: {look}; if it still does, and nothing of this run \
                 lives any more, {reclaim}"
            ));
        }
        (LockEnd::Released | LockEnd::NeverTaken | LockEnd::NotHeld | LockEnd::Lost, _) => {}
    }
    next
}
