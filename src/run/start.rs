//! The front's side of the beginning: starts the supervisor of a run.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use crate::process::{self, Launch};
use crate::run::Spec;

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
    let launch = Launch {
        program: program.to_path_buf(),
        args: vec![OsString::from(SUBCOMMAND)],
        env: process::scrub(environment),
        run_dir: spec.run_dir.clone(),
        log: spec.run_dir.join("supervisor.log"),
    };
    let detached = process::spawn(&launch)?;
    let (pid, life) = (detached.pid, detached.life);
    let ended = async move {
        // Where the runtime cannot watch it, it is looked at.
        if life.ended().await.is_err() {
            while !life.is_over() {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    };
    Ok(Started { pid, socket: detached.socket, ended })
}

/// The hidden subcommand of the supervisor.
pub(crate) const SUBCOMMAND: &str = "__supervise";
