//! Starting programs so that none of them outlives the bed, and finding those that did.
//!
//! Three nets, each for what the one before it cannot catch. A [`Child`] is killed when it is dropped. The kernel
//! kills it when the bed itself is killed: it is started through `bed child`, which asks for that before it becomes
//! the program (asking between fork and exec would need unsafe code). And whatever a test starts carries a [`Mark`]
//! in its environment, by which [`Mark::sweep`] finds it, however often it has forked and detached since.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::bed::wait;

/// The verb of `bed` that starts a program which ends with its parent.
pub(crate) const VERB: &str = "child";

/// The verb of `bed` that starts a program at the terminal that its standard input is.
pub(crate) const SEATED: &str = "seated";

/// A shell that starts the tests in the background has them ignore the keys of its terminal, and so would all that they start,
/// until it has handlers of its own. A signal that is handled here is not ignored there; it ends the tests as it always does.
static HEEDS_KEYS: LazyLock<()> = LazyLock::new(|| {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGQUIT] {
        signal_hook::flag::register_conditional_default(signal, Arc::new(AtomicBool::new(true)))
            .expect("it can be handled");
    }
});

/// A command to be started: the one place of the bed that makes one.
#[expect(clippy::disallowed_methods, reason = "the bed starts real programs; dcctl's own process/ is what it tests")]
pub(crate) fn command(program: &Path) -> Command {
    LazyLock::force(&HEEDS_KEYS);
    Command::new(program)
}

/// A program that runs until it is dropped, or until the process that started it is gone.
#[derive(Debug)]
pub(crate) struct Child {
    name: &'static str,
    process: process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts a program with a bare environment, its output in `FOLDER/NAME.log`. The kernel ties its life to the
    /// *thread* that starts it, so call this from one that lives as long as the process: the main thread.
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
        folder: &Path,
    ) -> io::Result<Child> {
        let log = folder.join(format!("{name}.log"));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let process = command(&std::env::current_exe()?)
            .arg(VERB)
            .arg(process::id().to_string())
            .arg(program)
            .args(arguments)
            .env_clear()
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A group of its own: Ctrl+C at a terminal is for the run on show, not for the cluster under it.
            .process_group(0)
            .spawn()?;
        Ok(Child { name, process, log })
    }

    /// Its process id, which stays its own until the child is dropped.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// An error with the last words of a program that has ended although nobody ended it.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let Some(status) = self.process.try_wait()? else { return Ok(()) };
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let skipped = log.lines().count().saturating_sub(8);
        let tail: Vec<_> = log.lines().skip(skipped).collect();
        Err(io::Error::other(format!("{} ended ({status}); its last words:\n{}", self.name, tail.join("\n"))))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error means that it is gone already, which is what was wanted.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `bed child PARENT PROGRAM ARG…`: becomes the program, which from now on is killed when its parent is.
/// Returns only when that failed.
pub(crate) fn become_program(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> io::Error {
    let parent = arguments.next().and_then(|parent| parent.to_str()?.parse::<i32>().ok());
    let (Some(parent), Some(program)) = (parent, arguments.next()) else {
        return io::Error::other("bed child: give the parent's process id and a program");
    };
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // A parent that ended before the line above is not noticed by the kernel any more.
    if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return io::Error::other("bed child: the parent is gone");
    }
    command(Path::new(&program)).args(arguments).exec()
}

/// `bed seated PROGRAM ARG…`: becomes the program, in a session of its own whose controlling terminal is its standard
/// input. Returns only when that failed.
pub(crate) fn sit_down(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> io::Error {
    let Some(program) = arguments.next() else { return io::Error::other("bed seated: give a program") };
    let seated = rustix::process::setsid().and_then(|_| rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()));
    match seated {
        Ok(()) => command(Path::new(&program)).args(arguments).exec(),
        Err(error) => error.into(),
    }
}

/// A word in the environment of everything that was started on behalf of one bed, or of one test on it.
#[derive(Debug, Clone)]
pub(crate) struct Mark(PathBuf);

impl Mark {
    /// The name of the variable. It does not begin like dcctl's own, which dcctl keeps from its tools.
    pub(crate) const VARIABLE: &'static str = "BED_OF";

    /// The mark of the bed that lives in this folder, and of every test on it.
    pub(crate) fn of(folder: &Path) -> Mark {
        Mark(folder.to_owned())
    }

    /// The mark of one test on that bed.
    pub(crate) fn of_test(&self, test: &OsStr) -> Mark {
        Mark(self.0.join(test))
    }

    /// The variable's value.
    pub(crate) fn value(&self) -> &OsStr {
        self.0.as_os_str()
    }

    /// Kills every process that carries this mark, until there is none.
    pub(crate) fn sweep(&self) {
        // A process can fork while the list is read, so the last look has to find nothing. One that cannot die (it is
        // frozen) is left to whoever froze it.
        let gone = || {
            let carriers = self.carriers();
            for (_, process) in &carriers {
                let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
            }
            carriers.is_empty().then_some(())
        };
        let _ = wait::until(Duration::from_secs(10), "what carries the mark to be gone", gone);
    }

    /// The process ids of everything alive that carries this mark.
    pub(crate) fn pids(&self) -> Vec<Pid> {
        self.carriers().into_iter().map(|(pid, _)| pid).collect()
    }

    fn carriers(&self) -> Vec<(Pid, OwnedFd)> {
        let name = [Mark::VARIABLE.as_bytes(), b"="].concat();
        let carries = |pair: &[u8]| {
            pair.strip_prefix(name.as_slice())
                .is_some_and(|value| Path::new(OsStr::from_bytes(value)).starts_with(&self.0))
        };
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = processes.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?));
        let carriers = pids.filter_map(|pid| {
            // The descriptor first: then what is read afterwards is about the process that would be killed.
            let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
            environment.split(|byte| *byte == 0).any(carries).then_some((pid, process))
        });
        carriers.filter(|(pid, _)| *pid != rustix::process::getpid()).collect()
    }
}

/// Locks a file for as long as the returned handle lives; nothing when somebody else has it.
pub(crate) fn lock_file(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
