//! Starts a tool: its output files, its environment, its process.

use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::failure::{Code, Failure};
use crate::process::child;
use crate::process::group::Life;
use crate::process::ours::own_file;
use crate::process::proc::TAG;
use crate::process::spec::{Spec, Stdin};

/// Starts the tool that was [prepared](prepare), and takes hold of it.
///
/// # Errors
/// [`Code::ToolMissing`] when there is no such program, [`Code::MachineExhausted`] when the system has no room for one
/// more, else [`Code::CommandFailed`]. Then nothing of it runs.
pub(crate) fn start(spec: &Spec, mut command: Command) -> Result<(Child, Life), Failure> {
    let failed = |error: &io::Error| {
        let code = if error.kind() == io::ErrorKind::NotFound { Code::ToolMissing } else { Code::CommandFailed };
        let code = code.unless_exhausted(error);
        Failure::new(code, format!("`{}` ({}) could not be started", spec.name, spec.program.display())).because(error)
    };
    // Asked before anything runs: without such a hold there would be no sure way to signal the tool.
    Life::of(std::process::id()).map_err(|error| failed(&error))?;
    if !spec.cwd.is_dir() {
        // The system would say "not found" and leave open what it means.
        let error = io::Error::other(format!("its working folder `{}` is not there", spec.cwd.display()));
        return Err(failed(&error));
    }
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let pid = child.id().expect("a child that nobody waited for has a number");
    match Life::of(pid) {
        Ok(life) => Ok((child, life)),
        Err(error) => {
            // What cannot be watched may not run.
            if let Err(error) = child.start_kill() {
                tracing::warn!(pid, %error, "a tool that cannot be watched could not be ended");
            }
            Err(failed(&error))
        }
    }
}

/// Makes the tool's output files and everything else that its start needs.
///
/// # Errors
/// [`Code::RunDirUnusable`] when its output files cannot be made.
#[expect(clippy::disallowed_methods, reason = "process/ is the place that starts programs")]
pub(crate) fn prepare(spec: &mut Spec) -> Result<Command, Failure> {
    let mut command = std::process::Command::new(&spec.program);
    command.args(&spec.args).current_dir(&spec.cwd);
    command.env_clear().envs(spec.env.iter().map(|(name, value)| (name, value))).env(TAG, &spec.tag);
    let stdin = match std::mem::take(&mut spec.stdin) {
        Stdin::Null => Stdio::null(),
        Stdin::Pipe(reader) => Stdio::from(reader),
    };
    command.stdin(stdin).stdout(append(&spec.stdout)?).stderr(append(&spec.stderr)?);
    child::shield(&mut command);
    Ok(Command::from(command))
}

fn append(path: &Path) -> Result<std::fs::File, Failure> {
    own_file().append(true).create(true).open(path).map_err(|error| {
        let code = Code::RunDirUnusable.unless_exhausted(&error);
        Failure::new(code, format!("`{}` cannot be written", path.display())).because(&error)
    })
}
