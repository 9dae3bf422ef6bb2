//! What to run and how it may be treated.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How a tool may be asked to stop. The rules are those of the tools themselves: what each does with a signal was
/// measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// `tofu apply`, `tofu destroy`, `tofu plan`: exactly one SIGINT, to its process and never to its group (its
    /// plugins die of a SIGTERM), and none if its output says that it was already interrupted. A second interrupt
    /// makes it abandon the operation in flight, so that comes only at the budget's end.
    OpenTofu,
    /// `helm install`, `helm upgrade`: one SIGINT; it swallows all later ones.
    Helm,
    /// `helm uninstall`, `helm rollback`: never signalled before the budget's end, because they die of any signal and
    /// leave the release half way.
    Unsignalled,
    /// What only reads or prepares (`tofu init`, `tofu output`, `helm history`): SIGINT, and SIGKILL if that is not
    /// heeded soon. Nothing is lost.
    Query,
    /// Commands of the bundle, and the one of `dcctl exec`: one SIGTERM to their process group.
    Group,
}

/// What a line of output tells about the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The tool says that it was interrupted.
    Interrupted,
    /// The tool has said its last word: a final summary, or the diagnostics that it halted with.
    Concluded,
    /// A change of one resource has begun.
    Opened,
    /// A change of one resource is over.
    Closed,
}

/// What a tool reads. Whatever it is, it is never a terminal: nothing can prompt.
#[derive(Debug, Default)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// The reading end of a pipe. We keep no copy of it once the tool runs, so that its writer sees when nobody reads
    /// any more.
    Pipe(OwnedFd),
}

/// One tool to run.
#[derive(Debug)]
pub struct Spec {
    /// What people call it: `tofu apply`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments; nothing secret is ever among them.
    pub args: Vec<OsString>,
    /// Its complete environment, but for the tag.
    pub env: Vec<(OsString, OsString)>,
    /// Its working folder.
    pub cwd: PathBuf,
    /// What it reads; taken from here when it is started.
    pub stdin: Stdin,
    /// The append-only file that gets its standard output; made with mode 0600.
    pub stdout: PathBuf,
    /// The append-only file that gets its standard error; made with mode 0600.
    pub stderr: PathBuf,
    /// The value of `DCCTL_RUN` in its environment, `<run>/<step>`: how a process that escaped everything else is
    /// still recognised.
    pub tag: String,
    /// How it may be asked to stop.
    pub manner: Manner,
    /// What a line of its output tells.
    pub signs: fn(&str) -> Option<Sign>,
    /// The file that records which process this is. It is renamed before a signal is sent.
    pub record: PathBuf,
    /// How long it may take when nobody asks it to stop. Then it is treated as if force had been asked for.
    pub timeout: Option<Duration>,
}

/// How long each wait may be. The values of [`Limits::default`] are those of the documents; tests use shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the first stop request to the second interrupt.
    pub budget: Duration,
    /// From the budget's end to the moment at which dcctl stops waiting, whatever is still there.
    pub watchdog: Duration,
    /// From the stop request to our interrupt, so that one which the system sent by itself is seen first.
    pub hold: Duration,
    /// The same when the supervisor itself was signalled.
    pub hold_directly: Duration,
    /// From the last interrupt to SIGKILL, at the budget's end and when forced.
    pub last_grace: Duration,
    /// When forced: from the first interrupt to the second, for a tool that had none before. It leaves time for the
    /// tool's own way to end after a second interrupt (5 s) within `last_grace`.
    pub second_interrupt: Duration,
    /// From the interrupt of a [`Manner::Query`] to its SIGKILL.
    pub query_grace: Duration,
    /// From SIGTERM to SIGKILL for what a tool left behind.
    pub sweep_grace: Duration,
    /// Silence, after the tool said its last word or while it stops, before whoever holds its output is ended.
    pub concluded_silence: Duration,
    /// Silence, after everything begun is over, before whoever holds its output is ended.
    pub idle_silence: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            budget: Duration::from_secs(20 * 60),
            watchdog: Duration::from_secs(60),
            hold: Duration::from_millis(250),
            hold_directly: Duration::from_secs(2),
            last_grace: Duration::from_secs(8),
            second_interrupt: Duration::from_millis(2500),
            query_grace: Duration::from_secs(10),
            sweep_grace: Duration::from_secs(5),
            concluded_silence: Duration::from_secs(10),
            idle_silence: Duration::from_secs(60),
        }
    }
}
