//! Starts the supervisor so that nothing which ends the front can end it, and shows the front whether it lives.
//!
//! A CI system ends what it started by group, by session, by tree, or by a variable in the environment. The supervisor
//! is in none of them: it is started by a double fork with `setsid` before exec, its working folder is the run
//! directory, it holds none of the front's descriptors but one end of a socket pair (and, for a command that reads what
//! the front reads, one end of a pipe), and its environment has none of the tracking variables.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Code, Failure};
use crate::process::child;
use crate::process::group::{self, Life};
use crate::process::ours::own_file;

/// The supervisor to start.
#[derive(Debug)]
pub struct Launch {
    /// The program: our own.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its complete environment; [`scrub`] it first.
    pub env: Vec<(OsString, OsString)>,
    /// The run directory, which becomes its working folder.
    pub run_dir: PathBuf,
    /// The file that gets its standard error: what it says when it panics. Made with mode 0600.
    pub log: PathBuf,
    /// The reading end of a pipe that a command of the run is to read from. It is the supervisor's descriptor 1 until it
    /// calls [`inherit_pipe`].
    pub pipe: Option<OwnedFd>,
}

/// The front's side of a supervisor.
#[derive(Debug)]
pub struct Detached {
    /// The supervisor's process.
    pub pid: u32,
    /// Our end of the socket pair. The other end is the supervisor's descriptor 0 until it calls [`inherit`].
    pub socket: UnixStream,
    /// Whether it lives.
    pub life: Life,
}

impl Detached {
    /// Waits until the supervisor's process has ended, however. Safe to drop at any point. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    pub async fn ended(&self) -> io::Result<()> {
        self.life.ended().await
    }
}

/// Starts the supervisor.
///
/// # Errors
/// [`Code::CommandFailed`] when it could not be started, or was gone at once; the causes say what is known.
#[expect(clippy::disallowed_methods, reason = "process/ is the place that starts programs")]
pub fn spawn(launch: Launch) -> Result<Detached, Failure> {
    let Launch { program, args, env, run_dir, log, pipe } = launch;
    let failed = |error: &io::Error| {
        let code = Code::CommandFailed.unless_exhausted(error);
        let sentence = format!("the supervisor `{}` could not be started", program.display());
        Failure::new(code, sentence).because(error)
    };
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(&error))?;
    let (heard, announce) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| failed(&io::Error::from(errno)))?;
    let log = own_file().append(true).create(true).open(&log).map_err(|error| {
        let code = Code::RunDirUnusable.unless_exhausted(&error);
        Failure::new(code, format!("`{}` cannot be written", log.display())).because(&error)
    })?;
    let mut command = Command::new(&program);
    command.args(args).env_clear().envs(env).current_dir(run_dir);
    let stdout = pipe.map_or_else(Stdio::null, Stdio::from);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(stdout).stderr(Stdio::from(log));
    child::cast_off(&mut command, announce);
    let mut between = command.spawn().map_err(|error| failed(&error))?;
    // The command holds our copies of its descriptors; without them the pipe below ends when the child is gone.
    drop(command);
    let session = between.id();
    between.wait().map_err(|error| failed(&error))?;
    let mut number = [0; 4];
    File::from(heard).read_exact(&mut number).map_err(|error| failed(&error))?;
    let pid = u32::from_ne_bytes(number);
    let life = Life::of(pid).map_err(|error| failed(&error))?;
    // A number that the kernel gave away again would be in another session.
    if !life.is_over() && group::session_of(pid) != Some(session) {
        return Err(failed(&io::Error::other("it ended at once")));
    }
    Ok(Detached { pid, socket: ours, life })
}

/// The supervisor's first act: takes its end of the socket pair from descriptor 0, and puts `/dev/null` there.
///
/// # Errors
/// [`Code::Internal`] when descriptor 0 is not a socket: the hidden subcommand was called by hand.
pub fn inherit() -> Result<UnixStream, Failure> {
    let failed = |error: &io::Error| {
        let code = Code::Internal.unless_exhausted(error);
        Failure::new(code, "the supervisor was not started by a front of dcctl").because(error)
    };
    let stdin = io::stdin();
    let descriptor = stdin.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
    if rustix::net::sockopt::socket_type(&descriptor).is_err() {
        return Err(failed(&io::Error::other("descriptor 0 is not a socket")));
    }
    let null = File::open("/dev/null").map_err(|error| failed(&error))?;
    rustix::stdio::dup2_stdin(&null).map_err(|errno| failed(&io::Error::from(errno)))?;
    Ok(UnixStream::from(descriptor))
}

/// Takes the pipe that the front handed over from descriptor 1, and puts `/dev/null` there. Call it only when the front
/// said that it did.
///
/// # Errors
/// [`Code::Internal`] when it cannot be taken.
pub fn inherit_pipe() -> Result<OwnedFd, Failure> {
    let failed =
        |error: &io::Error| Failure::new(Code::Internal, "the pipe from the front cannot be taken").because(error);
    let pipe = rustix::stdio::stdout().try_clone_to_owned().map_err(|error| failed(&error))?;
    let null = File::options().write(true).open("/dev/null").map_err(|error| failed(&error))?;
    rustix::stdio::dup2_stdout(&null).map_err(|errno| failed(&io::Error::from(errno)))?;
    Ok(pipe)
}

/// Whether a CI system finds and ends processes by this environment variable: GitHub's runner, Jenkins and its
/// predecessor. None of them reaches a process without it.
pub fn is_tracking(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let cookie = name.ends_with("COOKIE") && (name.starts_with("JENKINS_") || name.starts_with("HUDSON_"));
    cookie || name == "RUNNER_TRACKING_ID" || name == "BUILD_ID"
}

/// An environment without the variables by which CI systems end processes.
pub fn scrub(env: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<(OsString, OsString)> {
    env.into_iter().filter(|(name, _)| !is_tracking(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracking_variables_are_recognised_and_others_stay() {
        let dropped =
            ["RUNNER_TRACKING_ID", "JENKINS_NODE_COOKIE", "JENKINS_SERVER_COOKIE", "HUDSON_COOKIE", "BUILD_ID"];
        let kept = ["BUILD_URL", "RUNNER_NAME", "JENKINS_URL", "COOKIE", "PATH"];
        assert!(dropped.iter().all(|name| is_tracking(OsStr::new(name))));
        assert!(kept.iter().all(|name| !is_tracking(OsStr::new(name))));
    }
}
