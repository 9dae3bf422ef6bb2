//! Starting the program under test and reading what it says.
//!
//! A run starts with a bare environment: the bed's tools on PATH, a home and a temporary folder of the test's own,
//! OpenTofu's settings, one user's kubeconfig. It is found and ended when the test ends, however it has detached.
//!
//! Whatever a test is about, every line and every report that its runs make is held against what they have to be, as
//! soon as a run is finished or its journal is read ([`stream`], [`junit`](crate::bed::junit)).

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use dcctl::clock::{Clock, System};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::child::{Mark, command};
use crate::bed::junit::Report;
use crate::bed::tools::own;
use crate::bed::{Bed, stream, wait};

/// Where the programs of the system are.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A run that is not started yet.
#[derive(Debug)]
pub(crate) struct Dcctl {
    command: Command,
}

impl Dcctl {
    /// A run with these arguments, as `admin`.
    pub(crate) fn new<A: AsRef<OsStr>>(bed: &Bed, arguments: impl IntoIterator<Item = A>) -> Dcctl {
        let mut path = bed.described().programs.clone().into_os_string();
        path.push(":");
        path.push(SYSTEM_PATH);
        Dcctl::without_cluster(bed.scratch(), &bed.mark(), arguments)
            .env("PATH", path)
            .env("TF_CLI_CONFIG_FILE", &bed.described().tofurc)
            .env("KUBECONFIG", bed.kubeconfig("admin"))
    }

    /// A run with these arguments in this folder, with the system's own programs alone, and without any cluster.
    pub(crate) fn without_cluster<A: AsRef<OsStr>>(
        scratch: &Path,
        mark: &Mark,
        arguments: impl IntoIterator<Item = A>,
    ) -> Dcctl {
        let (home, temporary) = (scratch.join("home"), scratch.join("tmp"));
        for folder in [&home, &temporary] {
            fs::create_dir_all(folder).expect("the test's folder can be written");
        }
        let mut command = command(&own("dcctl"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", SYSTEM_PATH)
            .env("HOME", home)
            .env("TMPDIR", temporary)
            .env("LANG", "C.UTF-8")
            .env(Mark::VARIABLE, mark.value())
            .current_dir(scratch)
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

    /// With a limit of this many open files, for it and all that it starts.
    #[must_use]
    pub(crate) fn with_open_files(self, most: u32) -> Dcctl {
        let known = self.command;
        let mut command = command(Path::new("/bin/sh"));
        command.arg("-c").arg(format!("ulimit -n {most} && exec \"$0\" \"$@\"")).arg(known.get_program());
        command.args(known.get_args()).env_clear().current_dir(known.get_current_dir().expect("it was given one"));
        command.envs(known.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Dcctl { command }
    }

    /// With a JUnit report, which [`Finished::junit`] reads.
    #[must_use]
    pub(crate) fn with_junit(self) -> Dcctl {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("junit-{}.xml", NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = self.command.get_current_dir().expect("it was given one").to_owned();
        self.arg("--junit").arg(folder.join(name))
    }

    /// The same by another copy of the program.
    #[must_use]
    pub(crate) fn by_program(mut self, program: &Path) -> Dcctl {
        let mut other = command(program);
        other.args(self.command.get_args()).env_clear();
        other.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        other.current_dir(self.command.get_current_dir().expect("it was given one"));
        other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command = other;
        self
    }

    /// Started by a shell that runs this script, in which `"$@"` is the run.
    #[must_use]
    pub(crate) fn by_shell(self, script: &str) -> Dcctl {
        let mut shell = command(Path::new("/bin/sh"));
        shell.args(["-c", script, "sh"]).arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                shell.env(name, value);
            }
        }
        shell.current_dir(self.command.get_current_dir().expect("it was given one"));
        Dcctl { command: shell }
    }

    /// With nothing on its standard input, and both outputs read, also when a shell starts it.
    #[must_use]
    pub(crate) fn with_pipes(mut self) -> Dcctl {
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self
    }

    /// The command itself, for what has no word of its own here: another folder, a group, a closed standard output.
    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Running {
        let traces = Traces::of(&self.command);
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
        Running { process, said, lines, stderr, traces }
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
    traces: Traces,
}

impl Running {
    /// The process id of the front.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The process that owns the run: its identity names it. Waits for the event that says it.
    #[track_caller]
    pub(crate) fn supervisor(&self) -> Pid {
        let started = self.wait_for("run.started", |_| true);
        let holder = started["data"]["holder"].as_str().expect("a run has an identity");
        holder.split('/').nth(1).and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).expect("a process id")
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

    /// Waits until the last line of standard output begins like this and, read as JSON, is what the condition wants.
    #[track_caller]
    pub(crate) fn wait_for_last_line(&self, begins: &str, condition: impl Fn(&Value) -> bool) -> String {
        let wanted = |line: &&String| {
            line.starts_with(begins) && serde_json::from_str(line).is_ok_and(|line: Value| condition(&line))
        };
        let last =
            || self.said.lines.lock().unwrap_or_else(PoisonError::into_inner).lines.last().filter(wanted).cloned();
        let found = wait::until(wait::GENEROUS, begins, last);
        found.unwrap_or_else(|why| panic!("no last line with {begins:?}: {why}; it said:\n{}", self.said.text()))
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
        Journal::at(Path::new(folder).join("events.jsonl"))
    }

    /// Waits for the end of the front and gathers what it said.
    pub(crate) fn finish(mut self) -> Finished {
        let status = self.process.wait().expect("it is our child");
        let whole = self.lines.is_some();
        if let Some(lines) = self.lines.take() {
            lines.join().expect("reading never panics");
        }
        let stderr = self.stderr.take().map(|stderr| stderr.join().expect("reading never panics"));
        let stderr = String::from_utf8_lossy(&stderr.unwrap_or_default()).into_owned();
        let finished = Finished { status, stdout: self.said.text(), stderr, traces: self.traces.clone() };
        finished.hold_against_the_rules(whole);
        finished
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
    traces: Traces,
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
        stream::read(&self.stdout, 0)
    }

    /// The last event, which has to be `run.finished`; the events before it have to be whole.
    #[track_caller]
    pub(crate) fn verdict(&self) -> Value {
        let events = self.events();
        assert!(!events.is_empty(), "it said nothing; standard error:\n{}", self.stderr);
        stream::assert_complete(&events);
        events.into_iter().next_back().unwrap_or_default()
    }

    /// The JUnit report that the run was told to write. Fails the test when there is none.
    #[track_caller]
    pub(crate) fn junit(&self) -> Report {
        Report::read(self.traces.junit.as_deref().expect("the run was told to write a report"))
    }

    /// The journal, when the run got as far as to have one.
    pub(crate) fn journal(&self) -> Option<Journal> {
        self.traces.journals().pop()
    }

    /// Every line and every file that the run made is what it has to be. `whole` says that all of standard output was
    /// read.
    #[track_caller]
    fn hold_against_the_rules(&self, whole: bool) {
        let ended = self.code().filter(|_| whole);
        let shown = if self.stdout.starts_with("{\"v\":") { self.shown(ended.is_some()) } else { Vec::new() };
        if let (Some(code), Some(_)) = (ended, shown.first()) {
            stream::assert_complete(&shown);
            let verdict = stream::verdict(&shown).expect("it is complete");
            assert_eq!(verdict["data"]["exit_code"], code, "the verdict names another exit code: {verdict}");
        }
        for journal in self.traces.journals() {
            let events = journal.events();
            if stream::verdict(&events).is_some() {
                stream::assert_complete(&events);
                let same_run = shown.first().is_some_and(|first| first["run"] == events[0]["run"]);
                assert!(
                    ended.is_none() || !same_run || events == shown || stream::has_made_way(&events, &shown),
                    "the journal says something else:\n{events:?}"
                );
            }
        }
        if let Some(report) = self.traces.junit.as_deref().filter(|path| self.traces.made(path)) {
            Report::read(report);
        }
        self.hold_the_events_file_against(&shown, ended);
    }

    /// The events of standard output; the last line of a front that was killed may be torn.
    #[track_caller]
    fn shown(&self, whole: bool) -> Vec<Value> {
        let torn = !whole && !self.stdout.ends_with('}');
        let end = if torn { self.stdout.rfind('\n').unwrap_or(0) } else { self.stdout.len() };
        stream::read(&self.stdout[..end], 0)
    }

    #[track_caller]
    fn hold_the_events_file_against(&self, shown: &[Value], ended: Option<i32>) {
        let Some(path) = self.traces.events_file.as_deref().filter(|path| self.traces.made(path)) else { return };
        let events = Journal::at(path.to_owned()).events();
        if ended.is_some_and(|code| code != 40) {
            stream::assert_complete(&events);
            assert!(shown.is_empty() || events == shown, "{} says something else", path.display());
        }
    }

    /// Fails the test, with everything that was said, when the exit status is another.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Finished {
        let ended = self.status;
        assert_eq!(ended.code(), Some(code), "{ended}\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// Where a run leaves what it says, besides its outputs.
#[derive(Debug, Clone)]
struct Traces {
    /// The folder that it works in, which is the test's own.
    folder: PathBuf,
    junit: Option<PathBuf>,
    events_file: Option<PathBuf>,
    run_dir: Option<PathBuf>,
    state: Option<PathBuf>,
}

impl Traces {
    fn of(command: &Command) -> Traces {
        let option = |name: &str| option(command, name);
        let state =
            variable(command, "XDG_STATE_HOME").or_else(|| Some(variable(command, "HOME")?.join(".local/state")));
        let folder = command.get_current_dir().expect("it was given one").to_owned();
        Traces { folder, junit: option("junit"), events_file: option("events-file"), run_dir: option("run-dir"), state }
    }

    /// Whether this file of the test is there. A device that a run refused to write to may be a file to us, too: that of
    /// our own output.
    fn made(&self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_default();
        path.is_file() && self.folder.canonicalize().is_ok_and(|folder| real.starts_with(folder))
    }

    /// Every journal of the test's runs, in the order of their beginnings.
    fn journals(&self) -> Vec<Journal> {
        let runs = self.state.iter().filter_map(|state| fs::read_dir(state.join("dcctl/runs")).ok());
        // What lies elsewhere was given, and is read below.
        let folders = runs.flatten().flatten().map(|entry| entry.path()).filter(|path| !path.is_symlink());
        let mut folders: Vec<PathBuf> = folders.collect();
        folders.sort();
        folders.extend(self.run_dir.clone());
        let journals = folders.into_iter().map(|folder| Journal::at(folder.join("events.jsonl")));
        journals.filter(|journal| journal.path().is_file()).collect()
    }
}

/// The path that an option has, by its flag in one of its two forms or by its variable.
fn option(command: &Command, name: &str) -> Option<PathBuf> {
    let flag = format!("--{name}");
    let mut words = command.get_args();
    let mut path = None;
    while let Some(word) = words.next() {
        if word == OsStr::new(&flag) {
            path = words.next().map(PathBuf::from);
        } else if let Some(value) = word.to_str().and_then(|word| word.strip_prefix(&flag)?.strip_prefix('=')) {
            path = Some(PathBuf::from(value));
        }
    }
    let path = path.or_else(|| variable(command, &format!("DCCTL_{}", name.to_uppercase().replace('-', "_"))))?;
    Some(command.get_current_dir().expect("it was given one").join(path))
}

fn variable(command: &Command, name: &str) -> Option<PathBuf> {
    let mut variables = command.get_envs();
    variables.find_map(|(known, value)| value.filter(|_| known == OsStr::new(name)).map(PathBuf::from))
}

/// The file of events in a run directory.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    path: PathBuf,
    /// How many lines were held against the rules before.
    known: Arc<AtomicUsize>,
}

impl Journal {
    /// The journal in this file, of a run that was told its directory; it need not be there yet.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Journal {
        Journal { path: path.into(), known: Arc::default() }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The events so far. A line that is only half written is left out.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = stream::read(whole, self.known.load(Ordering::Relaxed));
        self.known.store(whole.lines().count(), Ordering::Relaxed);
        events
    }

    /// Waits for an event of this type for which the condition holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, kind: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let found = || self.events().into_iter().find(|event| event["type"] == kind && condition(event));
        wait::fact(&format!("{kind} in {}", self.path.display()), found)
    }
}
