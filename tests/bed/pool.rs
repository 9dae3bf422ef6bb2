//! Hands control planes to tests, one at a time each.
//!
//! The name of dcctl's lock is fixed, so two tests on one control plane would meet. A [`Bed`] is therefore exclusive
//! until it is dropped, by a panic too. At most `DCCTL_BED_CONTROL_PLANES` (2) are started; each is brought back to
//! its first state before the next test gets it. A start takes seconds, that takes a fraction of one.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, ChildStdout, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::bed::child::command;
use crate::bed::control_plane::Start;
use crate::bed::described::Described;
use crate::bed::reset::Pristine;
use crate::bed::tools::own;
use crate::bed::{Tools, wait};

/// The control planes of this test process.
static POOL: Pool = Pool { planes: Mutex::new(Planes { idle: Vec::new(), started: 0 }), returned: Condvar::new() };

struct Pool {
    planes: Mutex<Planes>,
    returned: Condvar,
}

struct Planes {
    idle: Vec<Plane>,
    started: usize,
}

/// A `bed serve` process and what it described. Dropped, its standard input closes, and it ends everything.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) described: Described,
    pristine: Pristine,
    server: process::Child,
    input: Option<ChildStdin>,
    _output: BufReader<ChildStdout>,
}

/// A clean control plane that nobody else has: one that was used before, or a new one, or the next that is returned.
pub(crate) fn take() -> Plane {
    loop {
        let Some(mut plane) = idle_or_free() else { return started() };
        // One that cannot be cleaned, or whose programs a test has killed, is replaced.
        if plane.is_whole() && plane.clean().is_ok() {
            return plane;
        }
        drop(plane);
        planes().started -= 1;
        POOL.returned.notify_one();
    }
}

/// Gives a control plane to whoever waits for one.
pub(crate) fn give_back(plane: Plane) {
    planes().idle.push(plane);
    POOL.returned.notify_one();
}

/// An idle control plane, or nothing when the caller may start one; waits while neither is so.
fn idle_or_free() -> Option<Plane> {
    let mut planes = planes();
    loop {
        if let Some(plane) = planes.idle.pop() {
            return Some(plane);
        }
        if planes.started < most() {
            planes.started += 1;
            return None;
        }
        planes = POOL.returned.wait(planes).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Starts one for the pool. A failed start frees its place again, for the next test to try.
fn started() -> Plane {
    Plane::start(Start::Granted).unwrap_or_else(|error| {
        planes().started -= 1;
        POOL.returned.notify_one();
        panic!("no control plane: {error}")
    })
}

fn planes() -> MutexGuard<'static, Planes> {
    POOL.planes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "the bed's own setting, read where it is used")]
fn most() -> usize {
    let given = std::env::var("DCCTL_BED_CONTROL_PLANES").ok();
    given.and_then(|number| number.parse().ok()).filter(|number| *number > 0).unwrap_or(2)
}

impl Plane {
    /// Starts `bed serve` and waits for its description.
    pub(crate) fn start(start: Start) -> io::Result<Plane> {
        let flags: &[&str] = if start == Start::Pristine { &["--pristine"] } else { &[] };
        let mut server = command(&own("bed"))
            .arg("serve")
            .args(flags)
            .envs(Tools::get().variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A Ctrl+C at the terminal ends the tests, and their end ends this.
            .process_group(0)
            .spawn()?;
        let input = server.stdin.take();
        let mut output = BufReader::new(server.stdout.take().expect("it was asked for a pipe"));
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.is_empty() {
            let status = server.wait()?;
            return Err(io::Error::other(format!("bed serve ended ({status}); what it said is above")));
        }
        let described: Described = serde_json::from_str(&line)?;
        let pristine = Pristine::look(&described.api("bed")?)?;
        Ok(Plane { described, pristine, server, input, _output: output })
    }

    /// The process id of `bed serve`.
    pub(crate) fn server_pid(&self) -> u32 {
        self.server.id()
    }

    fn clean(&self) -> io::Result<()> {
        self.pristine.restore(&self.described.api("bed")?)
    }

    fn is_whole(&mut self) -> bool {
        let serves = matches!(self.server.try_wait(), Ok(None));
        // A program that was killed is a zombie of `bed serve`: its status says so, signal 0 would not.
        let lives = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            status.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']) && !rest.is_empty())
        };
        serves && self.described.pids.values().all(lives)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        drop(self.input.take());
        // It needs milliseconds; if it hangs, the tests say so instead of hanging with it.
        let gone = wait::until(wait::GENEROUS, "bed serve to end", || self.server.try_wait().transpose());
        if gone.is_err() {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }
}
