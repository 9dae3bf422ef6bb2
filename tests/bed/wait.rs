//! Waiting for facts.
//!
//! A test waits for something to be so, never for a duration to pass. What cannot be waited for by an event (a file,
//! another process, the API server) is looked at again and again; this is the one place that pauses in between.

use std::io;
use std::thread;
use std::time::Duration;

use dcctl::clock::{Clock, System};

/// Long enough for anything that is going to happen on a loaded machine; reached only when it never will.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(20);

/// Looks until there is an answer, for at most `limit`. The error names `what` was waited for.
pub(crate) fn until<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
    let end = System.now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if System.now() >= end {
            let text = format!("waited {} s in vain for {what}", limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(PAUSE);
    }
}

/// Looks until there is an answer, generously long, and fails the test when there is none.
#[track_caller]
pub(crate) fn fact<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until(GENEROUS, what, look).unwrap_or_else(|error| panic!("{error}"))
}
