//! A person at a terminal: a pseudo-terminal, the keys that they press, and all that they see.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;

use crate::bed::child::{SEATED, command};
use crate::bed::tools::own;
use crate::bed::{Dcctl, wait};

/// Ctrl+C.
pub(crate) const CTRL_C: &[u8] = b"\x03";
/// Ctrl+Z.
pub(crate) const CTRL_Z: &[u8] = b"\x1a";
/// Ctrl+D.
pub(crate) const CTRL_D: &[u8] = b"\x04";

/// A program with a terminal as its controlling one. Dropped, it is killed and the terminal closed.
#[derive(Debug)]
pub(crate) struct Seat {
    process: Child,
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    closed: Arc<AtomicBool>,
}

impl Seat {
    /// Starts it at a new terminal, with standard input, output and error there.
    pub(crate) fn take(dcctl: Dcctl) -> Seat {
        let (keys, terminal) = pair();
        let clone = || Stdio::from(terminal.try_clone().expect("a descriptor can be had twice"));
        let (stdout, stderr) = (clone(), clone());
        Seat::start(dcctl, keys, terminal, stdout, stderr)
    }

    /// The same with standard output and standard error in these files.
    pub(crate) fn take_redirected(dcctl: Dcctl, stdout: File, stderr: File) -> Seat {
        let (keys, terminal) = pair();
        Seat::start(dcctl, keys, terminal, stdout.into(), stderr.into())
    }

    /// The same in a container of its own, as `docker run -t` makes one: these words, with which a PID namespace begins, go
    /// before the command.
    pub(crate) fn take_contained(mut dcctl: Dcctl, namespace: &str) -> Seat {
        let (keys, terminal) = pair();
        let clone = || Stdio::from(terminal.try_clone().expect("a descriptor can be had twice"));
        let (stdout, stderr) = (clone(), clone());
        let inside = seated(dcctl.command());
        let words: Vec<&str> = namespace.split(' ').collect();
        let mut outside = command(Path::new(words[0]));
        outside.args(&words[1..]).arg(inside.get_program()).args(inside.get_args()).env_clear();
        outside.envs(inside.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outside.current_dir(inside.get_current_dir().expect("it was given one"));
        Seat::spawn(outside, keys, terminal, stdout, stderr)
    }

    fn start(mut dcctl: Dcctl, keys: File, terminal: OwnedFd, stdout: Stdio, stderr: Stdio) -> Seat {
        Seat::spawn(seated(dcctl.command()), keys, terminal, stdout, stderr)
    }

    fn spawn(mut seated: Command, keys: File, terminal: OwnedFd, stdout: Stdio, stderr: Stdio) -> Seat {
        let process = seated.stdin(Stdio::from(terminal)).stdout(stdout).stderr(stderr).spawn();
        let process = process.expect("Cargo built the bed");
        // Our copies of the terminal's end go with the command, so that its end is the end of what there is to see.
        drop(seated);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let screen = keys.try_clone().expect("a descriptor can be had twice");
        let closed = Arc::new(AtomicBool::new(false));
        let reader = Some(watch(screen, seen.clone(), closed.clone()));
        Seat { process, keys, seen, reader, closed }
    }

    /// Everything that was on the screen so far, in order, without carriage returns before line ends.
    pub(crate) fn screen(&self) -> String {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&seen).replace("\r\n", "\n")
    }

    /// Waits until this can be read on the screen.
    #[track_caller]
    pub(crate) fn wait_for(&self, part: &str) {
        let found = wait::until(wait::GENEROUS, part, || self.screen().contains(part).then_some(()));
        found.unwrap_or_else(|error| panic!("{error}; the screen says:\n{}", self.screen()));
    }

    /// Presses these keys.
    pub(crate) fn press(&self, keys: &[u8]) {
        (&self.keys).write_all(keys).expect("the terminal takes what is typed");
    }

    /// Types a line.
    pub(crate) fn type_line(&self, line: &str) {
        self.press(format!("{line}\r").as_bytes());
    }

    /// Closes the terminal, as a lost connection does, and gives back what was started there.
    #[must_use]
    pub(crate) fn hang_up(mut self) -> Seat {
        self.closed.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading never panics");
        }
        // The last descriptor of the terminal's end makes room for something else.
        self.keys = File::open("/dev/null").expect("it is there");
        self
    }

    /// The program's process id. It is its own until the end was waited for.
    pub(crate) fn pid(&self) -> Pid {
        i32::try_from(self.process.id()).ok().and_then(Pid::from_raw).expect("a process id")
    }

    /// Sends the program a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("a child that was not waited for can be signalled");
    }

    /// Waits for the program's end. Fails the test, with all that was to be seen, when its exit status is another.
    /// Answers the screen.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> String {
        let (ended, screen) = self.end();
        assert_eq!(ended, Some(code), "the screen says:\n{screen}");
        screen
    }

    /// Waits for the program's end. Its exit status, unless a signal ended it, and the screen.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = self.process.wait().expect("it is our child");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("reading never panics");
        }
        (status.code(), self.screen())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Both ends of a new pseudo-terminal: the one that a person sits at, and the one that the program has.
fn pair() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let keys = rustix::pty::openpt(flags).expect("the system has pseudo-terminals");
    rustix::pty::grantpt(&keys).and_then(|()| rustix::pty::unlockpt(&keys)).expect("it is ours");
    let name = rustix::pty::ptsname(&keys, Vec::new()).expect("it has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).expect("it can be opened");
    (File::from(keys), terminal)
}

/// The same command, started by `bed seated`.
fn seated(dcctl: &Command) -> Command {
    let mut seated = command(&own("bed"));
    seated.arg(SEATED).arg(dcctl.get_program()).args(dcctl.get_args()).env_clear();
    for (name, value) in dcctl.get_envs() {
        if let Some(value) = value {
            seated.env(name, value);
        }
    }
    seated.current_dir(dcctl.get_current_dir().expect("it was given one"));
    seated
}

/// Reads until the last program has closed the terminal, which a pseudo-terminal tells as an error, or we have.
fn watch(mut screen: File, seen: Arc<Mutex<Vec<u8>>>, closed: Arc<AtomicBool>) -> JoinHandle<()> {
    let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while !closed.load(Ordering::Relaxed) {
            let mut waits = [PollFd::new(&screen, PollFlags::IN)];
            if rustix::event::poll(&mut waits, Some(&pause)) == Ok(0) {
                continue;
            }
            let Ok(many) = screen.read(&mut bytes) else { return };
            if many == 0 {
                return;
            }
            seen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&bytes[..many]);
        }
    })
}
