//! The process that a person or a CI system started: it starts the supervisor, shows the run, and passes on one
//! request to stop.
//!
//! The run does not need it. A front that is stopped with Ctrl+Z only stops watching; one that is killed was a request
//! to stop, which the supervisor sees by itself. Showing happens on a thread of its own ([`show`]), so a reader that
//! stands still delays neither a request to stop nor the end.
//!
//! What the command of `dcctl exec` prints may be passed on beside what is shown ([`mod@relay`]), and what the front reads may
//! be copied to it ([`feed`]).
//!
//! There is one writer of the journal at a time. The front writes it before the supervisor starts ([`refuse()`]: a
//! command that never became a run) and after it is gone without a verdict: then it takes the run over
//! ([`take_over`]).

mod feed;
mod follow;
mod refuse;
mod relay;
mod show;
mod view;

pub use refuse::{Refusal, refuse};
pub use relay::{LineEnd, Ours, Streams, Theirs};
pub use show::{Form, Showing};
pub use view::{From, View};

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;

use crate::clock::{Clock, Instant};
use crate::event::text::one_line;
use crate::failure::{Code, Failure};
use crate::front::feed::Feed;
use crate::front::follow::Follower;
use crate::front::relay::Relay;
use crate::front::show::Shown;
use crate::run::machine::Strength;
use crate::run::{
    Answer, Asked, Ear, Finished, Gone, Link, Mouth, Purpose, Spec, Started, Unwritten, Word, caught, complete, drill,
    let_go_of_strays, take_over, verdict_of,
};
use crate::signal::{Kind, Signals, StopSignal};

/// How often the supervisor is asked whether it is there.
const PING: Duration = Duration::from_secs(5);
/// A signal that was passed on this long ago, without any answer since, is said to be unheard.
const UNHEARD: Duration = Duration::from_secs(5);
/// After this long without an answer that is said.
const SILENCE: Duration = Duration::from_secs(15);
/// At the end: how long showing may make no progress before the front ends without it.
const STALLED: Duration = Duration::from_secs(10);
/// How long the last words of a supervisor that has ended may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Two of Ctrl+C closer together than this are one: a key that bounces, or a terminal that signals twice.
const BOUNCE: Duration = Duration::from_millis(300);

/// What the front needs beside the run itself.
pub struct Surroundings {
    /// Our own program.
    pub program: PathBuf,
    /// The environment for the supervisor, without secrets of the run.
    pub environment: Vec<(OsString, OsString)>,
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The signals; armed before anything else was done.
    pub signals: Signals,
    /// Where complaints of the front itself go.
    pub complaints: fn() -> Box<dyn Write + Send>,
    /// Standard input, for a command that is to read it. Nothing else reads it.
    pub input: fn() -> Box<dyn Read + Send>,
    /// Whether a person's Ctrl+C reaches this process from its terminal. Asked when it matters: a job of a shell comes to
    /// the foreground and leaves it.
    pub terminal: fn() -> Terminal,
    /// Ends when the process that started this one is gone and that is a request to stop.
    pub orphaned: Orphaned,
    /// How long it stays.
    pub stay: Stay,
}

/// How long the front stays with its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Until the verdict.
    ToTheEnd,
    /// Until the run has the lock, or waits for it; then it says goodbye, which is no request to stop.
    UntilItBegan,
}

/// See [`Surroundings::orphaned`].
pub type Orphaned = Pin<Box<dyn Future<Output = ()>>>;

/// Whether a person's Ctrl+C reaches the front from its terminal. Then a second one means force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Standard input is a terminal and we are in its foreground.
    Foreground,
    /// Anything else.
    None,
}

/// Why there is no exit code of a run.
#[derive(Debug)]
pub enum Broken {
    /// The supervisor could not be started; nothing was done.
    NotStarted(Failure),
    /// The run was started and ended without a verdict, and none could be written.
    NoVerdict(Failure),
}

/// Starts the run, shows it, and returns its exit code.
///
/// # Errors
/// When there is none. Whether anything was done is told apart.
pub async fn run(spec: Spec, showing: Showing, surroundings: Surroundings) -> Result<u8, Broken> {
    let journal = spec.journal();
    let begun = caught(async { begin(spec, showing, surroundings) }).await;
    let ended = match begun.unwrap_or_else(|why| Err(broke(&why))) {
        Ok((front, shown, supervisor)) => {
            let watched = caught(front.follow_through(shown, supervisor)).await;
            watched.unwrap_or_else(|why| Err(Broken::NoVerdict(broke(&why))))
        }
        Err(failure) => Err(Broken::NotStarted(failure)),
    };
    if let Err(Broken::NotStarted(_)) = &ended {
        forget(&journal);
    }
    ended
}

fn broke(why: &str) -> Failure {
    Failure::new(Code::Internal, format!("dcctl itself broke: {why}"))
}

/// A journal in which nothing was written would make the next run of this folder believe that there was one before.
fn forget(journal: &Path) {
    if journal.metadata().is_ok_and(|found| found.len() == 0) {
        let _ = std::fs::remove_file(journal);
    }
}

/// Why the front watches no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// The supervisor is gone.
    ToTheEnd,
    /// The run goes on, and is left.
    Left,
}

/// The supervisor's process, and its end.
struct Supervisor<F> {
    pid: u32,
    ended: F,
}

/// Starts the supervisor and the showing. Without the spec it does nothing, so whatever goes wrong here, nothing is done.
fn begin(
    spec: Spec,
    mut showing: Showing,
    surroundings: Surroundings,
) -> Result<(Front, Shown, Supervisor<impl Future<Output = ()>>), Failure> {
    drill::at(&spec, "front.start");
    let Surroundings { program, environment, clock, signals, complaints, input, terminal, orphaned, stay } =
        surroundings;
    // Held from now on: whatever becomes of the folder, what was written can be read.
    let (journal, follower) = open(&spec.journal())?;
    let relay = relay(&spec, showing.streams.take(), &follower)?;
    let Started { pid, socket, ended, pipe } = crate::run::start(&program, environment, &spec)?;
    let link = Link::new(OwnedFd::from(socket)).map_err(|error| {
        let code = Code::Internal.unless_exhausted(&error);
        Failure::new(code, "the socket to the supervisor cannot be used").because(&error)
    })?;
    let (ear, mouth) = link.split();
    let shown = show::start(follower, showing, relay);
    let feed = pipe.map(|pipe| Feed { input: input(), pipe, complaints: complaints() });
    let answered = clock.now();
    let front = Front {
        spec,
        clock,
        signals,
        complaints: complaints(),
        terminal,
        orphaned,
        stay,
        feed,
        journal,
        supervisor: pid,
        ear: Some(ear),
        mouth,
        heard: Heard::default(),
        answered,
        typed: None,
        said_silent: false,
        unheard: None,
        rest: None,
    };
    Ok((front, shown, Supervisor { pid, ended }))
}

/// Makes the journal, to be read by us and written by one process at a time.
fn open(path: &Path) -> Result<(File, Follower), Failure> {
    let open = || {
        let file = File::options().create(true).append(true).read(true).open(path)?;
        Ok((file.try_clone()?, Follower::of(file, path)))
    };
    open().map_err(|error: std::io::Error| crate::run::unwritable(path, &error))
}

/// The way of the command's outputs, if it has one and they are to be passed on. `follower` is woken when they grow.
fn relay(spec: &Spec, streams: Option<Streams>, follower: &Follower) -> Result<Option<Relay>, Failure> {
    let (Purpose::Command(command), Some(streams)) = (&spec.purpose, streams) else { return Ok(None) };
    let relay = Relay::open(command, spec.redactor(), streams).map_err(|error| {
        let code = Code::RunDirUnusable.unless_exhausted(&error);
        let sentence = format!("the run directory {} cannot be used", spec.run_dir.display());
        Failure::new(code, sentence).because(&error)
    })?;
    follower.watch(&[&command.stdout, &command.stderr]);
    Ok(Some(relay))
}

struct Front {
    spec: Spec,
    clock: Arc<dyn Clock>,
    signals: Signals,
    complaints: Box<dyn Write + Send>,
    terminal: fn() -> Terminal,
    orphaned: Orphaned,
    /// A request to stop makes it stay to the end.
    stay: Stay,
    feed: Option<Feed>,
    journal: File,
    supervisor: u32,
    ear: Option<Ear>,
    mouth: Mouth,
    heard: Heard,
    answered: Instant,
    typed: Option<Instant>,
    said_silent: bool,
    /// The first signal that was passed on since the last answer, and when.
    unheard: Option<(Instant, String)>,
    /// What the supervisor could not write into the journal.
    rest: Option<String>,
}

/// What the supervisor said, beside what is in the journal.
#[derive(Debug, Default)]
struct Heard {
    hello: bool,
    began: bool,
    not_begun: Option<Failure>,
    finished: Option<Finished>,
}

impl Front {
    async fn follow_through(
        mut self,
        shown: Shown,
        supervisor: Supervisor<impl Future<Output = ()>>,
    ) -> Result<u8, Broken> {
        self.hand_over().await;
        if self.see_it_through(supervisor.ended).await == Watched::Left {
            shown.end_with(String::new());
            shown.drain(STALLED).await;
            self.say_goodbye();
            return Ok(0);
        }
        let verdict = self.verdict(supervisor.pid, &shown).await;
        shown.drain(STALLED).await;
        self.complete_journal();
        verdict
    }

    /// What the journal's disk did not take may find room now: the outputs of the run's command are gone.
    fn complete_journal(&mut self) {
        let Some(lines) = self.rest.take() else { return };
        let why = match complete(&self.journal, &lines) {
            Ok(0) => return,
            Ok(missing) => format!("{missing} events are missing in it"),
            Err(error) => format!("its last lines are missing ({error})"),
        };
        let path = self.spec.journal();
        self.complain(&format!("the journal {} is not complete: {why}", path.display()));
    }

    async fn hand_over(&mut self) {
        // A supervisor that died already is noticed by its end.
        let _ = self.mouth.say(&Word::Spec(Box::new(self.spec.clone()))).await;
    }

    /// Watches until the supervisor is gone. When the front itself breaks, the run is asked to stop; when it does so
    /// again, the end alone is waited for.
    async fn see_it_through(&mut self, ended: impl Future<Output = ()>) -> Watched {
        tokio::pin!(ended);
        match caught(self.watch(ended.as_mut())).await {
            Ok(Watched::Left) => return Watched::Left,
            Ok(Watched::ToTheEnd) => {}
            Err(why) => {
                self.stay = Stay::ToTheEnd;
                self.complain(&format!("dcctl itself broke: {why}"));
                let _ = self.mouth.say(&Word::Broke(why)).await;
                if caught(self.watch(ended.as_mut())).await.is_err() {
                    ended.await;
                }
            }
        }
        // What it said before its end may not have been heard yet.
        while let Some(mut ear) = self.ear.take() {
            if let Ok(Some(answer)) = tokio::time::timeout(LAST_WORDS, ear.next()).await {
                self.hear(answer);
                self.ear = Some(ear);
            }
        }
        Watched::ToTheEnd
    }

    /// Passes signals on until the supervisor is gone, or the run may be left.
    async fn watch(&mut self, mut ended: Pin<&mut impl Future<Output = ()>>) -> Watched {
        let mut pings = tokio::time::interval(PING);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.pass_on(signal).await,
                () = &mut ended => return Watched::ToTheEnd,
                answer = answer(&mut self.ear) => match answer {
                    Some(answer) => self.hear(answer),
                    None => self.ear = None,
                },
                () = &mut self.orphaned => self.is_orphaned().await,
                _ = pings.tick() => self.ping().await,
            }
            if self.heard.began && self.stay == Stay::UntilItBegan && self.mouth.say(&Word::Bye).await.is_ok() {
                return Watched::Left;
            }
        }
    }

    async fn pass_on(&mut self, signal: StopSignal) {
        let (asked, strength) = self.weigh(&signal);
        self.unheard.get_or_insert((self.clock.now(), asked.signal.clone()));
        if self.said_silent {
            self.say_unheard(&asked.signal);
        }
        let word = match strength {
            Strength::Force => Word::Force(asked),
            Strength::Graceful => Word::Stop(asked),
        };
        let _ = self.mouth.say(&word).await;
    }

    /// What a signal asks for.
    fn weigh(&mut self, signal: &StopSignal) -> (Asked, Strength) {
        let now = self.clock.now();
        self.stay = Stay::ToTheEnd;
        let strength = if self.is_force(signal, now) { Strength::Force } else { Strength::Graceful };
        if is_typed(signal) {
            self.typed.get_or_insert(now);
        }
        (Asked { signal: signal.signal.name().to_owned(), pid: signal.pid, uid: signal.uid }, strength)
    }

    /// Once and never again.
    async fn is_orphaned(&mut self) {
        self.orphaned = Box::pin(std::future::pending());
        let _ = self.mouth.say(&Word::Orphaned).await;
    }

    /// SIGQUIT, and a second Ctrl+C of a person at the terminal, are force. Nothing else ever is.
    fn is_force(&self, signal: &StopSignal, now: Instant) -> bool {
        let again = is_typed(signal) && self.typed.is_some_and(|first| now.since(first) >= BOUNCE);
        signal.signal == Kind::Quit || (again && (self.terminal)() == Terminal::Foreground)
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Hello { .. } => {
                self.heard.hello = true;
                drill::at(&self.spec, "front.hello");
            }
            Answer::Pong => {}
            Answer::Began => self.heard.began = true,
            Answer::Reads => {
                if let Some(feed) = self.feed.take() {
                    feed.start();
                }
            }
            Answer::NotBegun(failure) => self.heard.not_begun = Some(failure),
            Answer::Finished(finished) => self.heard.finished = Some(finished),
        }
        self.answered = self.clock.now();
        self.unheard = None;
        if std::mem::take(&mut self.said_silent) {
            self.complain("the supervisor answers again");
        }
    }

    async fn ping(&mut self) {
        let_go_of_strays(self.supervisor);
        let _ = self.mouth.say(&Word::Ping).await;
        let now = self.clock.now();
        let silent = now.since(self.answered);
        if silent >= SILENCE && !self.said_silent {
            self.said_silent = true;
            let (seconds, pid) = (silent.as_secs(), self.supervisor);
            self.complain(&format!(
                "the supervisor of this run (process {pid}) has not answered for {seconds} s; it may be stopped (`kill \
                 -CONT {pid}` lets it go on) or its machine busy"
            ));
        }
        if let Some((since, signal)) = self.unheard.clone()
            && now.since(since) >= UNHEARD
            && !self.said_silent
        {
            self.said_silent = true;
            self.say_unheard(&signal);
        }
    }

    /// Somebody waits for an effect, and there is none yet.
    fn say_unheard(&mut self, signal: &str) {
        let pid = self.supervisor;
        self.complain(&format!(
            "{signal} was passed on to the supervisor (process {pid}), which does not answer now and heeds it as soon as it \
             does; where it was stopped, `kill -CONT {pid}` lets it go on"
        ));
    }

    fn say_goodbye(&mut self) {
        let (run, folder) = (&self.spec.run, self.spec.run_dir.display().to_string());
        let folder = one_line(&folder);
        let _ = writeln!(
            self.complaints,
            "dcctl: run {run} goes on without this command, in {folder}\n\
             dcctl: `dcctl runs attach {run}` shows it, `dcctl runs wait {run}` waits for its end, and `dcctl runs stop \
             {run}` stops it"
        );
    }

    fn complain(&mut self, sentence: &str) {
        let _ = writeln!(self.complaints, "dcctl: {}", one_line(sentence));
    }

    /// Owns the run in the place of a supervisor that has ended. Signals are heard meanwhile.
    async fn own(&mut self, gone: Gone) -> Result<(Finished, Vec<Unwritten>), Failure> {
        let (ask, requests) = unbounded_channel();
        let (spec, clock) = (self.spec.clone(), self.clock.clone());
        let journal = self.journal.try_clone().map_err(|error| crate::run::unwritable(&spec.journal(), &error))?;
        self.complain("the process that owned this run is gone; this one goes on in its place");
        let owning = take_over(&spec, &clock, &journal, gone, requests);
        tokio::pin!(owning);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    let request = self.weigh(&signal);
                    // Once the verdict is being written, nobody listens.
                    let _ = ask.send(request);
                }
                done = &mut owning => return done,
            }
        }
    }

    /// The exit code: from the journal; where that has no verdict, from the supervisor's last word; and if it left
    /// none either, from a verdict of our own, after the run was seen to its end.
    async fn verdict(&mut self, pid: u32, shown: &Shown) -> Result<u8, Broken> {
        if let Some(code) = verdict_of(&self.journal, &self.spec.run) {
            return Ok(code);
        }
        let Heard { hello, not_begun, finished, .. } = std::mem::take(&mut self.heard);
        if let Some(failure) = not_begun {
            shown.end_with(String::new());
            return Err(Broken::NotStarted(failure));
        }
        let ended = match finished {
            Some(finished) => Ok((finished, Vec::new())),
            None => self.own(Gone { pid, hello }).await,
        };
        let (Finished { exit_code, lines }, unwritten) = ended.map_err(|failure| {
            shown.end_with(String::new());
            Broken::NoVerdict(failure)
        })?;
        for unwritten in unwritten {
            self.complain(&unwritten.to_string());
        }
        // What was written by us is in the journal as well, if that took it.
        if verdict_of(&self.journal, &self.spec.run).is_none() {
            if lines.is_none() {
                self.complain(&format!("the run ended with exit code {exit_code}; its last line could not be had"));
            }
            self.rest.clone_from(&lines);
            shown.end_with(lines.unwrap_or_default());
        }
        Ok(exit_code)
    }
}

/// Whether the terminal itself sent this, because somebody typed Ctrl+C. A CI system that runs its jobs in a terminal
/// sends SIGINT from a process, and may do so more than once. One from outside of our container has a user, and no number.
fn is_typed(signal: &StopSignal) -> bool {
    signal.signal == Kind::Interrupt && signal.uid.is_none()
}

async fn answer(ear: &mut Option<Ear>) -> Option<Answer> {
    match ear {
        Some(ear) => ear.next().await,
        None => std::future::pending().await,
    }
}
