//! The process that a person or a CI system started: it starts the supervisor, shows the run, and passes on one
//! request to stop.
//!
//! The run does not need it. A front that is stopped with Ctrl+Z only stops watching; one that is killed was a request
//! to stop, which the supervisor sees by itself. Showing happens on a thread of its own ([`show`]), so a reader that
//! stands still delays neither a request to stop nor the end.
//!
//! What the command of `dcctl exec` prints may be passed on beside what is shown ([`relay`]), and what the front reads may
//! be copied to it ([`feed`]).
//!
//! There is one writer of the journal at a time. The front writes it before the supervisor starts ([`refuse()`]: a
//! command that never became a run) and after it is gone without a verdict ([`aftermath`]).

mod aftermath;
mod feed;
mod follow;
mod refuse;
mod relay;
mod show;

pub use refuse::{Refusal, refuse};
pub use relay::{LineEnd, Ours, Streams, Theirs};
pub use show::{Form, Showing};

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::failure::{Code, Failure};
use crate::front::feed::Feed;
use crate::front::relay::Relay;
use crate::run::{Answer, Asked, Ear, Link, Mouth, Purpose, Spec, Started, Word};
use crate::signal::{Kind, Signals, StopSignal};

/// How often the supervisor is asked whether it is there.
const PING: Duration = Duration::from_secs(5);
/// After this long without an answer that is said.
const SILENCE: Duration = Duration::from_secs(15);
/// At the end: how long showing may make no progress before the front ends without it.
const STALLED: Duration = Duration::from_secs(10);
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
    /// Whether a person's Ctrl+C reaches this process from its terminal.
    pub terminal: Terminal,
}

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
pub async fn run(spec: Spec, mut showing: Showing, surroundings: Surroundings) -> Result<u8, Broken> {
    let Surroundings { program, environment, clock, signals, complaints, input, terminal } = surroundings;
    let (relay, outputs) = relay(&spec, showing.streams.take()).map_err(Broken::NotStarted)?;
    let started = crate::run::start(&program, environment, &spec).map_err(Broken::NotStarted)?;
    let Started { socket, ended, pipe } = started;
    // A supervisor that got no spec ends by itself, with nothing done.
    let link = Link::new(OwnedFd::from(socket)).map_err(|error| {
        Broken::NotStarted(Failure::new(Code::Internal, "the socket to the supervisor cannot be used").because(&error))
    })?;
    let (ear, mouth) = link.split();
    let shown = show::start(spec.journal(), showing, relay, outputs);
    let now = clock.now();
    let feed = pipe.map(|pipe| Feed { input: input(), pipe, complaints: complaints() });
    let mut front = Front {
        spec,
        clock,
        signals,
        complaints: complaints(),
        terminal,
        mouth,
        feed,
        answered: now,
        typed: None,
        said_silent: false,
    };
    front.hand_over().await;
    front.watch(ear, ended).await;
    let code = front.verdict().map_err(Broken::NoVerdict)?;
    shown.drain(STALLED).await;
    Ok(code)
}

/// The way of the command's outputs, if it has one and they are to be passed on, and the files they are in.
fn relay(spec: &Spec, streams: Option<Streams>) -> Result<(Option<Relay>, Vec<PathBuf>), Failure> {
    let (Purpose::Command(command), Some(streams)) = (&spec.purpose, streams) else { return Ok((None, Vec::new())) };
    let relay = Relay::open(command, spec.redactor(), streams).map_err(|error| {
        let sentence = format!("the run directory {} cannot be used", spec.run_dir.display());
        Failure::new(Code::RunDirUnusable, sentence).because(&error)
    })?;
    Ok((Some(relay), vec![command.stdout.clone(), command.stderr.clone()]))
}

struct Front {
    spec: Spec,
    clock: Arc<dyn Clock>,
    signals: Signals,
    complaints: Box<dyn Write + Send>,
    terminal: Terminal,
    mouth: Mouth,
    feed: Option<Feed>,
    answered: Instant,
    typed: Option<Instant>,
    said_silent: bool,
}

impl Front {
    async fn hand_over(&mut self) {
        // A supervisor that died already is noticed by its end.
        let _ = self.mouth.say(&Word::Spec(Box::new(self.spec.clone()))).await;
    }

    /// Passes signals on until the supervisor is gone.
    async fn watch(&mut self, ear: Ear, ended: impl Future<Output = ()>) {
        let mut ear = Some(ear);
        let mut pings = tokio::time::interval(PING);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => self.pass_on(signal).await,
                () = &mut ended => return,
                answer = answer(&mut ear) => match answer {
                    Some(Answer::Hello { .. } | Answer::Pong) => self.hear(),
                    Some(Answer::Reads) => self.feed(),
                    None => ear = None,
                },
                _ = pings.tick() => self.ping().await,
            }
        }
    }

    async fn pass_on(&mut self, signal: StopSignal) {
        let now = self.clock.now();
        let asked = Asked { signal: signal.signal.name().to_owned(), pid: signal.pid, uid: signal.uid };
        let word = if self.is_force(&signal, now) { Word::Force(asked) } else { Word::Stop(asked) };
        if is_typed(&signal) {
            self.typed.get_or_insert(now);
        }
        let _ = self.mouth.say(&word).await;
    }

    /// SIGQUIT, and a second Ctrl+C of a person at the terminal, are force. Nothing else ever is.
    fn is_force(&self, signal: &StopSignal, now: Instant) -> bool {
        let again = is_typed(signal) && self.typed.is_some_and(|first| now.since(first) >= BOUNCE);
        signal.signal == Kind::Quit || (again && self.terminal == Terminal::Foreground)
    }

    /// The command runs and reads.
    fn feed(&mut self) {
        self.hear();
        if let Some(feed) = self.feed.take() {
            feed.start();
        }
    }

    fn hear(&mut self) {
        self.answered = self.clock.now();
        if std::mem::take(&mut self.said_silent) {
            self.complain("the supervisor answers again");
        }
    }

    async fn ping(&mut self) {
        let _ = self.mouth.say(&Word::Ping).await;
        let silent = self.clock.now().since(self.answered);
        if silent >= SILENCE && !self.said_silent {
            self.said_silent = true;
            let seconds = silent.as_secs();
            self.complain(&format!("the supervisor of this run has not answered for {seconds} s; the run may be stopped or its machine busy"));
        }
    }

    fn complain(&mut self, sentence: &str) {
        let _ = writeln!(self.complaints, "dcctl: {sentence}");
    }

    /// The exit code, from the journal. If the supervisor left no verdict, writes one.
    fn verdict(&mut self) -> Result<u8, Failure> {
        if let Some(code) = aftermath::verdict_of(&self.spec.journal()) {
            return Ok(code);
        }
        let (code, unwritten) = aftermath::write(&self.spec, &self.clock)?;
        for unwritten in unwritten {
            self.complain(&unwritten.to_string());
        }
        Ok(code)
    }
}

/// Whether the terminal itself sent this, because somebody typed Ctrl+C. A CI system that runs its jobs in a terminal
/// sends SIGINT from a process, and may do so more than once.
fn is_typed(signal: &StopSignal) -> bool {
    signal.signal == Kind::Interrupt && signal.pid.is_none()
}

async fn answer(ear: &mut Option<Ear>) -> Option<Answer> {
    match ear {
        Some(ear) => ear.next().await,
        None => std::future::pending().await,
    }
}
