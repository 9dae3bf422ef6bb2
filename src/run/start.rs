//! The front's side of the beginning: starts the supervisor of a run.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::failure::Failure;
use crate::process::{self, Launch};
use crate::run::Spec;

/// A supervisor that was started.
pub struct Started<F> {
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
    let life = detached.life;
    let ended = async move {
        // Where it cannot be watched its end is still seen: the socket closes and the journal stops.
        if life.ended().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Ok(Started { socket: detached.socket, ended })
}

/// The hidden subcommand of the supervisor.
pub(crate) const SUBCOMMAND: &str = "__supervise";
