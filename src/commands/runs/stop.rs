//! `dcctl runs stop`: asks a run to stop, as one Ctrl+C in front of it would.

use std::io::{self, ErrorKind};
use std::time::Duration;

use tokio::time::sleep;

use crate::cli::RunsStopArgs;
use crate::commands::apply::files;
use crate::commands::{Desk, print, runs, runtime, told};
use crate::failure::{Code, Failure};
use crate::lock::HolderId;
use crate::run::{self, Answer, Asked, Past, State, Word};

/// How often it is tried again where nobody opened, and after how long each time. Whoever takes the place of a supervisor
/// that was killed needs a moment before it opens, too.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Asks, and says whether the run has heard.
pub(crate) fn stop(desk: &Desk, args: &RunsStopArgs) -> u8 {
    let asked = runs::find(desk, &args.run).and_then(|past| {
        if past.state != State::Running {
            return not_asked(&past);
        }
        let (word, what) = if args.force {
            (Word::Force(asked("runs stop --force")), "end at once, which leaves the lock behind if it is held")
        } else {
            (Word::Stop(asked("runs stop")), "stop")
        };
        runtime()?.block_on(ask(&past, &word, what))
    });
    match asked {
        Ok(said) => print(&said),
        Err(failure) => told(&failure),
    }
}

/// Why a run that does not go on is not asked; an error where something of it may go on.
fn not_asked(past: &Past) -> Result<String, Failure> {
    let how = runs::list::how(past);
    let unheard = |hint: &str| {
        Err(Failure::new(Code::CommandFailed, format!("run {} {how}; it cannot be asked", past.run)).hint(hint))
    };
    match &past.state {
        State::CutOff { tools } if !tools.is_empty() => {
            unheard("nobody is there who would hear it: let its programs finish, or end them by hand")
        }
        State::Elsewhere { .. } => unheard("ask it there"),
        State::CutOff { .. } | State::Ended { .. } | State::Running => {
            Ok(format!("run {} {how}; there is nothing to stop\n", past.run))
        }
    }
}

/// Who asks, as events tell it.
fn asked(by: &str) -> Asked {
    let uid = rustix::process::geteuid().as_raw();
    Asked { signal: by.to_owned(), pid: Some(std::process::id()), uid: Some(uid) }
}

async fn ask(past: &Past, word: &Word, what: &str) -> Result<String, Failure> {
    match knock(past, word).await {
        Ok(Answer::Pong) => {
            let run = &past.run;
            Ok(format!("run {run} was asked to {what}; `dcctl runs wait {run}` waits for its end\n"))
        }
        Ok(other) => {
            Err(Failure::new(Code::Internal, format!("the run answered {other:?}, which is no answer to that")))
        }
        // It may have ended just now.
        Err(error) => {
            if let Ok(now) = Past::read(&past.folder, &files::host_name())
                && now.state != State::Running
            {
                return not_asked(&now);
            }
            // The door goes with everything else that only a run at work needs.
            if error.kind() == ErrorKind::NotFound {
                return Ok(format!("run {} is at its end; there is nothing to stop\n", past.run));
            }
            if error.kind() == ErrorKind::TimedOut {
                let sentence = format!("run {} could not be asked: it does not answer", past.run);
                return Err(Failure::new(Code::CommandFailed, sentence)
                    .hint("it stands still, or its machine is busy; it does not hear this later, so ask again when it goes on"));
            }
            let holder = past.holder.as_deref().and_then(HolderId::parse);
            let pid = holder.map_or_else(|| "?".to_owned(), |holder| holder.pid().to_string());
            Err(Failure::new(Code::CommandFailed, format!("run {} could not be asked", past.run))
                .because(&error)
                .hint(format!(
                    "its supervisor was process {pid}: where it lives, SIGTERM asks it to stop, and SIGQUIT to end at once"
                ))
                .hint(
                    "where it was killed, the command that started the run takes its place and stops it by itself; one that \
                     stands still (Ctrl+Z) does that when it goes on",
                ))
        }
    }
}

/// Asks until somebody has heard, for as long as somebody owns the run.
async fn knock(past: &Past, word: &Word) -> io::Result<Answer> {
    let owned = || Past::read(&past.folder, &files::host_name()).is_ok_and(|now| now.state == State::Running);
    let mut tries = TRIES;
    loop {
        match run::knock(&past.folder, word).await {
            Err(error) if is_between_owners(&error) && tries > 0 && owned() => tries -= 1,
            answer => return answer,
        }
        sleep(PAUSE).await;
    }
}

/// The socket is there and nobody listens, or whoever did is gone.
fn is_between_owners(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
