//! Starting the program under test and reading what it says.
//!
//! A run starts with a bare environment: the bed's tools on PATH, a home and a temporary folder of the test's own,
//! OpenTofu's settings, one user's kubeconfig. It is found and ended when the test ends, however it has detached.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use dcctl::clock::{Clock, System};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::child::{Mark, command};
use crate::bed::tools::own;
use crate::bed::{Bed, events, wait};

/// A run that is not started yet.
#[derive(Debug)]
pub(crate) struct Dcctl {
    command: Command,
}

impl Dcctl {
    /// A run with these arguments, as `admin`.
    pub(crate) fn new<A: AsRef<OsStr>>(bed: &Bed, arguments: impl IntoIterator<Item = A>) -> Dcctl {
        let mut path = bed.described().programs.clone().into_os_string();
        path.push(":/usr/local/bin:/usr/bin:/bin");
        let (home, temporary) = (bed.file("home"), bed.file("tmp"));
        for folder in [&home, &temporary] {
            fs::create_dir_all(folder).expect("the test's folder can be written");
        }
        let mut command = command(&own("dcctl"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", path)
            .env("HOME", home)
            .env("TMPDIR", temporary)
            .env("LANG", "C.UTF-8")
            .env("TF_CLI_CONFIG_FILE", &bed.described().tofurc)
            .env("KUBECONFIG", bed.kubeconfig("admin"))
            .env(Mark::VARIABLE, bed.mark().value())
            .current_dir(bed.scratch())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Dcctl { command }
    }

    /// With one more argument.
    #[must_use]
    pub(crate) fn arg(mut self, argument: impl AsRef<OsStr>) -> Dcctl {
        self.command.arg(argument);
        self
    }

    /// With more arguments.
    #[must_use]
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Dcctl {
        self.command.args(arguments);
        self
    }

    /// With a variable in its environment.
    #[must_use]
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Dcctl {
        self.command.env(name, value);
        self
    }

    /// Without one of the variables that it would have.
    #[must_use]
    pub(crate) fn without(mut self, name: &str) -> Dcctl {
        self.command.env_remove(name);
        self
    }

    /// With another kubeconfig, `bed.kubeconfig("ops")` or one of a fault proxy.
    #[must_use]
    pub(crate) fn with_kubeconfig(self, kubeconfig: &Path) -> Dcctl {
        self.env("KUBECONFIG", kubeconfig)
    }

    /// The command itself, for what has no word of its own here: another folder, a group, a closed standard output.
    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Running {
        let mut process = self.command.spawn().expect("Cargo built dcctl");
        let said = Arc::new(Said::default());
        let lines = process.stdout.take().map(|stdout| follow(stdout, said.clone()));
        let stderr = process.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stderr.read_to_end(&mut bytes);
                bytes
            })
        });
        Running { process, said, lines, stderr }
    }

    /// Starts it and waits for its end.
    pub(crate) fn run(self) -> Finished {
        self.start().finish()
    }
}

/// The lines of standard output so far.
#[derive(Debug, Default)]
struct Said {
    lines: Mutex<Lines>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    ended: bool,
}

fn follow(stdout: impl Read + Send + 'static, said: Arc<Said>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            said.change(|lines| lines.lines.push(text));
            line.clear();
        }
        said.change(|lines| lines.ended = true);
    })
}

impl Said {
    fn change(&self, change: impl FnOnce(&mut Lines)) {
        change(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        self.more.notify_all();
    }

    /// The first line, from `from` on, in which `look` finds something; nothing when the end comes first.
    fn first<T>(&self, mut look: impl FnMut(&str) -> Option<T>) -> Result<T, &'static str> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = 0;
        let end = System.now() + wait::GENEROUS;
        loop {
            if let Some(found) = lines.lines[next..].iter().find_map(|line| look(line)) {
                return Ok(found);
            }
            next = lines.lines.len();
            let left = end.since(System.now());
            if lines.ended {
                return Err("standard output ended");
            } else if left.is_zero() {
                return Err("it did not come");
            }
            lines = self.more.wait_timeout(lines, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).lines.join("\n")
    }
}

/// A run that was started. Dropped, its front is killed; what it leaves goes when the [`Bed`] is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    process: process::Child,
    said: Arc<Said>,
    lines: Option<JoinHandle<()>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    /// The process id of the front.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends the front a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        // Its number is its own until `finish` has waited for it.
        rustix::process::kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    }

    /// Waits for a line of standard output that contains this.
    #[track_caller]
    pub(crate) fn wait_for_line(&self, part: &str) -> String {
        let found = self.said.first(|line| line.contains(part).then(|| line.to_owned()));
        found.unwrap_or_else(|why| panic!("no line with {part:?}: {why}; it said:\n{}", self.said.text()))
    }

    /// Waits for an event on standard output of this type, `step.started`, for which the condition holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, kind: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let event = |line: &str| serde_json::from_str::<Value>(line).ok();
        let found = self.said.first(|line| event(line).filter(|event| event["type"] == kind && condition(event)));
        found.unwrap_or_else(|why| panic!("no such {kind}: {why}; it said:\n{}", self.said.text()))
    }

    /// The journal of the run, which goes on when the front is gone.
    #[track_caller]
    pub(crate) fn journal(&self) -> Journal {
        let started = self.wait_for("run.started", |_| true);
        let folder = started["data"]["run_dir"].as_str().expect("run.started names the run directory");
        Journal(Path::new(folder).join("events.jsonl"))
    }

    /// Waits for the end of the front and gathers what it said.
    pub(crate) fn finish(mut self) -> Finished {
        let status = self.process.wait().expect("it is our child");
        if let Some(lines) = self.lines.take() {
            lines.join().expect("reading never panics");
        }
        let stderr = self.stderr.take().map(|stderr| stderr.join().expect("reading never panics"));
        let stderr = String::from_utf8_lossy(&stderr.unwrap_or_default()).into_owned();
        Finished { status, stdout: self.said.text(), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    status: ExitStatus,
    /// Standard output, without the last end of line.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl Finished {
    /// The exit status; nothing when a signal ended it.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it, if one did.
    pub(crate) fn killed_by(&self) -> Option<i32> {
        self.status.signal()
    }

    /// The events of standard output; every line has to be one.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        events::parse(&self.stdout)
    }

    /// The last event, which has to be `run.finished`; the events before it have to be whole.
    #[track_caller]
    pub(crate) fn verdict(&self) -> Value {
        let events = self.events();
        assert!(!events.is_empty(), "it said nothing; standard error:\n{}", self.stderr);
        events::check_whole(&events);
        events.into_iter().next_back().unwrap_or_default()
    }

    /// Fails the test, with everything that was said, when the exit status is another.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Finished {
        let ended = self.status;
        assert_eq!(ended.code(), Some(code), "{ended}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// The file of events in a run directory.
#[derive(Debug, Clone)]
pub(crate) struct Journal(PathBuf);

impl Journal {
    /// The journal in this file, of a run that was told its directory.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Journal {
        Journal(path.into())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The events so far. A line that is only half written is left out.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        events::parse(whole)
    }

    /// Waits for an event of this type for which the condition holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, kind: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let found = || self.events().into_iter().find(|event| event["type"] == kind && condition(event));
        wait::fact(&format!("{kind} in {}", self.0.display()), found)
    }
}
