//! The front's side of the beginning: starts the supervisor of a run.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::failure::{Code, Failure};
use crate::process::{self, Launch};
use crate::run::Spec;

/// The file in the run directory that gets what the supervisor says of itself.
pub const LOG: &str = "supervisor.log";

/// How often a supervisor that cannot be watched is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A supervisor that was started.
pub struct Started<F> {
    /// Its process.
    pub pid: u32,
    /// The way to it.
    pub socket: UnixStream,
    /// Ends when it has ended, however.
    pub ended: F,
    /// Where to write what the run's command is to read, if it reads what the front reads.
    pub pipe: Option<OwnedFd>,
}

/// Starts the supervisor of this run with this environment.
///
/// # Errors
/// When it could not be started; nothing was done then.
pub fn start(
    program: &Path,
    environment: Vec<(OsString, OsString)>,
    spec: &Spec,
) -> Result<Started<impl Future<Output = ()> + use<>>, Failure> {
    let (reader, writer) = match spec.takes_input().then(pipe) {
        Some(ends) => ends.map(|(reader, writer)| (Some(reader), Some(writer)))?,
        None => (None, None),
    };
    let mut env = process::scrub(environment);
    env.push((process::SUPERVISOR.into(), OsString::from(&spec.run)));
    let launch = Launch {
        program: program.to_path_buf(),
        args: vec![OsString::from(SUBCOMMAND)],
        env,
        run_dir: spec.run_dir.clone(),
        log: spec.run_dir.join(LOG),
        pipe: reader,
    };
    let detached = process::spawn(launch)?;
    let (pid, life) = (detached.pid, detached.life);
    let ended = async move {
        // Where the runtime cannot watch it, it is looked at.
        if life.ended().await.is_err() {
            while !life.is_over() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    };
    Ok(Started { pid, socket: detached.socket, ended, pipe: writer })
}

/// What ends in a container and has no parent left is a child of its first process, which nobody else lets go of. Nothing to do
/// where that is not us.
pub fn let_go_of_strays(supervisor: u32) {
    if process::is_first() {
        process::reap_orphans(&[supervisor]);
    }
}

/// A pipe whose ends no program that is started inherits by chance: the reading and the writing one.
fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| {
        let error = io::Error::from(errno);
        let code = Code::CommandFailed.unless_exhausted(&error);
        Failure::new(code, "no pipe to the command could be made").because(&error)
    })
}

/// The hidden subcommand of the supervisor.
pub(crate) const SUBCOMMAND: &str = "__supervise";
