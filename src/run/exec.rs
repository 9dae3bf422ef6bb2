//! What is particular about a run of one command: its end is part of the verdict, which claims nothing about what the
//! command did.

use crate::event::{self, LockEnd};
use crate::failure::{Code, Failure};
use crate::process::{Exit, Update};
use crate::run::spec::ForCommand;
use crate::run::verdict::Verdict;

/// What a shell adds to the number of a signal to make an exit status of it.
const BY_SIGNAL: i32 = 128;

/// Where in its life the command is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Life {
    /// It was not started.
    #[default]
    NotStarted,
    /// It runs, as far as is known.
    Running,
    /// It has ended, or nobody waits for that any more.
    Ended(Exit),
}

impl Life {
    /// Takes what happened to it.
    pub(crate) fn take(&mut self, update: &Update) {
        match update {
            Update::Started { .. } => *self = Life::Running,
            Update::Finished { exit, .. } => *self = Life::Ended(*exit),
            Update::Line { .. }
            | Update::Interrupted { .. }
            | Update::InterruptReported { .. }
            | Update::Killed { .. }
            | Update::Unnamed(_)
            | Update::NoRoom { .. }
            | Update::RoomAgain { .. }
            | Update::Unread { .. }
            | Update::LeftBehind { .. }
            | Update::Survived(_) => {}
        }
    }

    /// How it ended, for the last event; none when nobody saw that.
    pub(crate) fn told(self) -> Option<event::CommandEnd> {
        match self {
            Life::Ended(Exit::Code(code)) => Some(event::CommandEnd { exit_code: Some(code), signal: None }),
            Life::Ended(Exit::Signal(signal)) => Some(event::CommandEnd { exit_code: None, signal: Some(signal) }),
            Life::Ended(Exit::Unseen | Exit::Unknown) | Life::NotStarted | Life::Running => None,
        }
    }

    /// As the end of a sentence about it.
    fn said(self, name: &str) -> String {
        match self {
            Life::NotStarted => format!("`{name}` was not started"),
            Life::Ended(exit @ Exit::Code(_)) => format!("`{name}` ended with {exit}"),
            Life::Ended(exit @ Exit::Signal(_)) => format!("`{name}` was ended by {exit}"),
            Life::Ended(Exit::Unknown) => format!("`{name}` has ended, and nobody knows how"),
            Life::Running | Life::Ended(Exit::Unseen) => format!("nobody saw the end of `{name}`"),
        }
    }
}

/// The verdict in words that are true of any command. A stop says how it ended, and nothing about infrastructure.
pub(crate) fn reworded(verdict: Verdict, command: &ForCommand, life: Life) -> Verdict {
    let name = command.name();
    let failure = verdict.failure.map(|failure| match failure.code {
        Code::StoppedClean => Failure { message: format!("stopped on request: {}", life.said(&name)), ..failure },
        Code::StoppedPartial => {
            let message = format!("stopped on request: {}; what it was doing may be HALF DONE", life.said(&name));
            Failure { message, ..failure }
                .hint(format!("look at what `{name}` had done by then before you run it again"))
        }
        _ => failure,
    });
    Verdict { failure, ..verdict }
}

/// The run's exit status: the command's own, if that was asked for and its failure is all there is to tell.
pub(crate) fn exit(verdict: &Verdict, command: &ForCommand, life: Life, lock: LockEnd, reports: Reports) -> u8 {
    let only = verdict.failure.as_ref().is_some_and(|failure| failure.code == Code::ExecFailed)
        && matches!(lock, LockEnd::Released | LockEnd::NotHeld)
        && reports == Reports::Written;
    let own = match life {
        Life::Ended(Exit::Code(code)) => Some(code),
        Life::Ended(Exit::Signal(signal)) => Some(BY_SIGNAL + signal),
        Life::Ended(Exit::Unseen | Exit::Unknown) | Life::NotStarted | Life::Running => None,
    };
    match own.and_then(|code| u8::try_from(code).ok()) {
        Some(code) if only && command.propagate => code,
        Some(_) | None => verdict.exit(),
    }
}

/// Whether everything that was to be written was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reports {
    /// It was.
    Written,
    /// Some were not.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunOutcome;
    use crate::run::spec::Substrate;
    use std::path::PathBuf;

    fn command(propagate: bool) -> ForCommand {
        ForCommand {
            substrate: Substrate::Direct(PathBuf::new()),
            program: "./deploy.sh".into(),
            args: Vec::new(),
            folder: PathBuf::new(),
            stdout: PathBuf::new(),
            stderr: PathBuf::new(),
            stdin: false,
            propagate,
        }
    }

    fn verdict(code: Code) -> Verdict {
        Verdict { outcome: RunOutcome::Failed, failure: Some(Failure::new(code, "why")) }
    }

    #[test]
    fn the_command_s_status_is_passed_on_only_when_it_is_all_there_is_to_tell() {
        let seven = Life::Ended(Exit::Code(7));
        let (released, written) = (LockEnd::Released, Reports::Written);
        let rows = [
            (verdict(Code::ExecFailed), true, seven, released, written, 7),
            (verdict(Code::ExecFailed), true, Life::Ended(Exit::Signal(9)), released, written, 137),
            (verdict(Code::ExecFailed), false, seven, released, written, 1),
            (verdict(Code::ExecFailed), true, Life::Ended(Exit::Unseen), released, written, 1),
            (verdict(Code::ExecFailed), true, seven, LockEnd::NotHeld, written, 7),
            (verdict(Code::ExecFailed), true, seven, LockEnd::Left, written, 1),
            (verdict(Code::ExecFailed), true, seven, LockEnd::Unknown, written, 1),
            (verdict(Code::ExecFailed), true, seven, released, Reports::Missing, 1),
            (verdict(Code::LockLost), true, seven, LockEnd::Lost, written, 22),
            (verdict(Code::StoppedClean), true, seven, released, written, 10),
            (verdict(Code::LockHeld), true, Life::NotStarted, LockEnd::NeverTaken, written, 20),
            (
                Verdict { outcome: RunOutcome::Succeeded, failure: None },
                true,
                Life::Ended(Exit::Code(0)),
                released,
                written,
                0,
            ),
        ];
        for (verdict, propagate, life, lock, reports, status) in rows {
            assert_eq!(
                exit(&verdict, &command(propagate), life, lock, reports),
                status,
                "{verdict:?} {life:?} {lock:?}"
            );
        }
    }

    #[test]
    fn a_stop_claims_nothing_about_what_the_command_did() {
        let said = |code, life| reworded(verdict(code), &command(false), life).failure.expect("a failure").message;
        assert_eq!(said(Code::StoppedClean, Life::NotStarted), "stopped on request: `deploy.sh` was not started");
        let ended = said(Code::StoppedClean, Life::Ended(Exit::Code(143)));
        assert_eq!(ended, "stopped on request: `deploy.sh` ended with exit status 143");
        let killed = said(Code::StoppedPartial, Life::Ended(Exit::Signal(9)));
        assert_eq!(killed, "stopped on request: `deploy.sh` was ended by signal 9; what it was doing may be HALF DONE");
        assert_eq!(said(Code::ExecFailed, Life::Ended(Exit::Code(1))), "why");
    }
}
