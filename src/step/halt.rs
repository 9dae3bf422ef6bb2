//! How steps that talk to the API server stop.
//!
//! A graceful stop lets the request in flight end, because its answer says what happened; it ends the step between
//! two requests, and every wait at once. Force drops the request too.

use std::future::Future;

use crate::failure::Failure;
use crate::process::Stop;
use crate::step::{Kit, Outcome, Stopped};

/// What a wait came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::step) enum Or<T> {
    /// It ended by itself.
    Ended(T),
    /// A stop was asked for first.
    Stopped,
}

/// Runs a step's work and makes an outcome of how it ends. On force the work is dropped where it is.
pub(in crate::step) async fn drive(kit: &Kit, work: impl Future<Output = Result<Outcome, Failure>>) -> Outcome {
    tokio::select! {
        biased;
        ended = work => ended.unwrap_or_else(Outcome::Failed),
        () = forced(kit) => Outcome::Stopped(Stopped {
            clean: false,
            unfinished: Vec::new(),
            note: "a request to the API server was given up; it may still take effect".to_owned(),
        }),
    }
}

/// Waits for something that can be given up at any point, but no longer than until a stop is asked for.
pub(in crate::step) async fn unless_stopped<T>(kit: &Kit, wait: impl Future<Output = T>) -> Or<T> {
    let mut stop = kit.stop.clone();
    tokio::select! {
        biased;
        _ = stop.asked() => Or::Stopped,
        ended = wait => Or::Ended(ended),
    }
}

/// A stop between two requests: everything that was asked for has been answered.
pub(in crate::step) fn stopped(note: impl Into<String>) -> Outcome {
    Outcome::Stopped(Stopped { clean: true, unfinished: Vec::new(), note: note.into() })
}

async fn forced(kit: &Kit) {
    let mut stop = kit.stop.clone();
    loop {
        if let Stop::Force { .. } = stop.now() {
            return;
        }
        stop.changed().await;
    }
}
