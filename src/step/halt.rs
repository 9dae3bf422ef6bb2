//! How steps stop.
//!
//! A graceful stop lets the request to the API server that is in flight end, because its answer says what happened; it
//! ends the step between two requests, and every wait at once. Force drops the request too. A program is stopped by
//! `process`; here its end is told from one that it came to by itself.

use std::future::Future;

use crate::failure::Failure;
use crate::process::{Ended, Exit, Stop, Why};
use crate::step::{Means, Outcome, Stopped};

/// What a wait came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::step) enum Or<T> {
    /// It ended by itself.
    Ended(T),
    /// A stop was asked for first.
    Stopped,
}

/// Runs a step's work and makes an outcome of how it ends. On force the work is dropped where it is.
pub(in crate::step) async fn drive(means: &Means, work: impl Future<Output = Result<Outcome, Failure>>) -> Outcome {
    tokio::select! {
        biased;
        ended = work => ended.unwrap_or_else(Outcome::Failed),
        () = forced(means) => Outcome::Stopped(Stopped {
            clean: false,
            unfinished: Vec::new(),
            note: "a request to the API server was given up; it may still take effect".to_owned(),
        }),
    }
}

/// Waits for something that can be given up at any point, but no longer than until a stop is asked for.
pub(in crate::step) async fn unless_stopped<T>(means: &Means, wait: impl Future<Output = T>) -> Or<T> {
    let mut stop = means.stop.clone();
    tokio::select! {
        biased;
        _ = stop.asked() => Or::Stopped,
        ended = wait => Or::Ended(ended),
    }
}

/// Waits for something that a graceful stop lets end, but no longer than until force is asked for.
pub(in crate::step) async fn unless_forced<T>(means: &Means, wait: impl Future<Output = T>) -> Or<T> {
    tokio::select! {
        biased;
        ended = wait => Or::Ended(ended),
        () = forced(means) => Or::Stopped,
    }
}

/// A stop between two requests: everything that was asked for has been answered.
pub(in crate::step) fn stopped(note: impl Into<String>) -> Outcome {
    Outcome::Stopped(Stopped { clean: true, unfinished: Vec::new(), note: note.into() })
}

/// Whether a program that did not succeed ended because of a stop. `asked` says whether one was asked of the run.
pub(in crate::step) fn was_stopped(ended: &Ended, asked: Asked) -> bool {
    let signalled = ended.why.is_some_and(|why| why != Why::TimedOut) || ended.interrupts_reported > 0;
    // A system that signals every process may have reached it before it could say so.
    let ended_so = matches!(ended.exit, Exit::Signal(_) | Exit::Unseen);
    asked == Asked::Yes && !ended.exit.is_success() && (signalled || ended_so)
}

/// Whether a stop was asked of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::step) enum Asked {
    /// It was.
    Yes,
    /// It was not.
    No,
}

impl Asked {
    /// What holds now.
    pub(in crate::step) fn of(means: &Means) -> Asked {
        if means.stop.is_asked() { Asked::Yes } else { Asked::No }
    }
}

async fn forced(means: &Means) {
    let mut stop = means.stop.clone();
    loop {
        if let Stop::Force { .. } = stop.now() {
            return;
        }
        stop.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ended(exit: Exit, why: Option<Why>) -> Ended {
        Ended {
            pid: 7,
            exit,
            interrupts_sent: u32::from(why.is_some()),
            interrupts_reported: 0,
            why,
            killed: false,
            left_behind: Vec::new(),
            took: Duration::from_secs(1),
        }
    }

    #[test]
    fn only_a_program_that_was_signalled_was_stopped() {
        let requested = Some(Why::StopRequested);
        let reported = Ended { interrupts_reported: 1, ..ended(Exit::Code(1), None) };
        let rows = [
            (ended(Exit::Code(1), requested), Asked::Yes, true),
            (ended(Exit::Signal(2), None), Asked::Yes, true),
            (reported, Asked::Yes, true),
            (ended(Exit::Unseen, Some(Why::BudgetEnded)), Asked::Yes, true),
            // It failed by itself in the moment before our signal.
            (ended(Exit::Code(1), None), Asked::Yes, false),
            (ended(Exit::Code(1), Some(Why::TimedOut)), Asked::Yes, false),
            (ended(Exit::Code(0), requested), Asked::Yes, false),
            (ended(Exit::Signal(9), None), Asked::No, false),
        ];
        for (ended, asked, expected) in rows {
            assert_eq!(was_stopped(&ended, asked), expected, "{ended:?}");
        }
    }
}
