//! The signals of the operating system, as a stream: the only place that installs handlers.
//!
//! Handlers are installed once, early, and never taken away. Supervisor and front both use this; what a signal means
//! is decided by those who listen. SIGTSTP and SIGCONT keep their defaults (Ctrl+Z stops only the watching), and
//! SIGPIPE stays ignored, as Rust has it. SIGXFSZ, which a write beyond the limit on the size of files raises, is only
//! survived ([`survive_full_files`]): the write itself fails, and whoever wrote says so.
//!
//! # A burst
//! Signals of one kind that come faster than they are read are merged by the kernel and by the handler: twenty
//! SIGTERMs in a row arrive as at least one and at most a handful. Who needs a count must not count these. Signals of
//! different kinds may arrive in another order than they were sent.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::StreamExt;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Origin;
use signal_hook_tokio::SignalsInfo;

/// A kind of signal that asks us to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SIGINT: Ctrl+C, and the first word of GitHub's runner.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
    /// SIGQUIT: force.
    Quit,
}

impl Kind {
    /// `SIGINT`, `SIGTERM`…
    pub fn name(self) -> &'static str {
        match self {
            Kind::Interrupt => "SIGINT",
            Kind::Terminate => "SIGTERM",
            Kind::HangUp => "SIGHUP",
            Kind::Quit => "SIGQUIT",
        }
    }

    fn of(number: i32) -> Option<Kind> {
        match number {
            SIGINT => Some(Kind::Interrupt),
            SIGTERM => Some(Kind::Terminate),
            SIGHUP => Some(Kind::HangUp),
            SIGQUIT => Some(Kind::Quit),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A signal that reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSignal {
    /// Which.
    pub signal: Kind,
    /// The process that sent it; none when the kernel or the terminal did, or a process that cannot be seen from here.
    pub pid: Option<u32>,
    /// The user of that process; none when the kernel or the terminal sent it.
    pub uid: Option<u32>,
}

impl StopSignal {
    fn of(origin: &Origin) -> Option<StopSignal> {
        let signal = Kind::of(origin.signal)?;
        // A sender in another PID namespace is shown as process 0: nobody that a person could look for.
        let pid = origin.process.and_then(|process| u32::try_from(process.pid).ok()).filter(|pid| *pid > 0);
        Some(StopSignal { signal, pid, uid: origin.process.map(|process| process.uid) })
    }
}

/// The stream of signals.
pub struct Signals {
    stream: SignalsInfo<WithOrigin>,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signals")
    }
}

/// Installs the handlers for SIGINT, SIGTERM, SIGHUP and SIGQUIT. Call it once, inside the runtime, before anything
/// that a signal should not simply kill.
///
/// # Errors
/// When the system refuses.
pub fn install() -> io::Result<Signals> {
    Ok(Signals { stream: SignalsInfo::with_exfiltrator([SIGINT, SIGTERM, SIGHUP, SIGQUIT], WithOrigin::default())? })
}

/// Lets this process outlive a write that is larger than the limit on the size of files (`ulimit -f`) allows. A handler
/// and not an ignored signal: exec gives what we start the default again. Call it before anything is written.
///
/// # Errors
/// When the system refuses.
pub fn survive_full_files() -> io::Result<()> {
    // Nobody reads the flag: that the write fails says it all.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map(drop)
}

impl Signals {
    /// Waits for the next signal. Safe to drop at any point: a signal that was not returned stays in the stream.
    pub async fn next(&mut self) -> StopSignal {
        loop {
            match self.stream.next().await {
                Some(origin) => {
                    if let Some(signal) = StopSignal::of(&origin) {
                        return signal;
                    }
                }
                // Nobody closes the stream; if it were closed, no signal would ever come.
                None => std::future::pending().await,
            }
        }
    }
}
