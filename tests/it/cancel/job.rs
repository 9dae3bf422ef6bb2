//! A run as the job of some system: the process that the system has started, everything that belongs to it, and the ways in
//! which systems find and end it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::child::command;
use crate::bed::dcctl::{Journal, Running};
use crate::bed::terminal::Seat;
use crate::bed::{Bed, Dcctl, untested, wait};
use crate::github::workflow;
use crate::stopping::cast::{is_gone, pid, signal_each};

/// How a system starts what it is told to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The run is the process that the system has started.
    Itself,
    /// A shell is, and the run is its child.
    Shell(&'static str),
    /// The run is the first process of a PID namespace, whose end ends all of it.
    Namespace,
    /// The same with a shell as the first process, and the run as its child: a container with a script, a machine with a
    /// runner, a unit with its main process.
    Contained(&'static str),
    /// GitHub's runner as act is one: the run is a step that uses the action.
    Act,
    /// A person's shell at a terminal is. It takes the run to the front again, for every line that is typed, when the run was
    /// stopped.
    Terminal,
}

/// What a job was started as.
enum Entry {
    Running(Running),
    Seated(Seat),
}

/// A job that was started.
pub(crate) struct Job<'a> {
    bed: &'a Bed,
    entry: Entry,
    contained: bool,
    pub(crate) journal: Journal,
}

impl<'a> Job<'a> {
    /// Starts this run as a job.
    pub(crate) fn start(bed: &'a Bed, run: Dcctl, shape: Shape) -> Job<'a> {
        Job::start_with(bed, run, shape, &[])
    }

    /// The same with these words at the end of its command line.
    pub(crate) fn start_with(bed: &'a Bed, run: Dcctl, shape: Shape, words: &[&str]) -> Job<'a> {
        let run_dir: PathBuf = bed.file("run");
        let run = run.arg("--run-dir").arg(&run_dir).args(words);
        let mut run = match shape {
            Shape::Itself => run.by_shell("SYSTEMD_EXEC_PID=$$ exec \"$@\""),
            Shape::Shell(script) => run.by_shell(&separated(script)),
            Shape::Namespace => run.by_shell(&format!("exec {NAMESPACE} \"$@\"")),
            Shape::Contained(script) => run.by_shell(&separated(&format!("{NAMESPACE} {script}"))),
            Shape::Act => workflow::of(bed, run),
            Shape::Terminal => run.env("DCCTL_OUTPUT", "human").by_shell(JOB_CONTROL),
        };
        let contained = matches!(shape, Shape::Namespace | Shape::Contained(_));
        let entry = if shape == Shape::Terminal {
            Entry::Seated(Seat::take(run))
        } else {
            run.command().process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Entry::Running(run.start())
        };
        Job { bed, entry, contained, journal: Journal::at(run_dir.join("events.jsonl")) }
    }

    /// The process that the system has started.
    pub(crate) fn entry(&self) -> Pid {
        match &self.entry {
            Entry::Running(running) => pid(running.pid()),
            Entry::Seated(seat) => seat.pid(),
        }
    }

    /// Whoever sits at its terminal; nobody where it has none.
    pub(crate) fn seat(&self) -> Option<&Seat> {
        if let Entry::Seated(seat) = &self.entry { Some(seat) } else { None }
    }

    /// The first process of its namespace, whose end ends all of it; none when it is gone.
    pub(crate) fn init(&self) -> Option<Pid> {
        self.contained.then(|| children_of(self.entry()).pop()).flatten()
    }

    /// What a system that looks into the namespace finds there beside its first process, in the order of the process ids.
    pub(crate) fn inside(&self) -> Vec<Pid> {
        let init = self.init();
        self.members().into_iter().filter(|pid| *pid != self.entry() && Some(*pid) != init).collect()
    }

    /// Ends the namespace and all that is in it.
    pub(crate) fn destroy(&self) {
        if let Some(init) = self.init() {
            send(init, Signal::KILL);
        }
    }

    /// Whoever shows the run; none when it is gone.
    pub(crate) fn front(&self) -> Option<Pid> {
        self.members().into_iter().find(|pid| is_program(*pid, "dcctl") && !supervises(*pid))
    }

    /// Whoever owns the run; none when it is gone.
    pub(crate) fn supervisor(&self) -> Option<Pid> {
        self.members().into_iter().find(|pid| supervises(*pid))
    }

    /// Everything that belongs to the job, however it has detached, in the order of the process ids.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let mut pids: Vec<Pid> = self.bed.mark().pids().into_iter().filter(|pid| !is_gone(*pid)).collect();
        pids.sort_by_key(|pid| pid.as_raw_nonzero());
        pids
    }

    /// Those of them whose environment has this variable.
    pub(crate) fn with_variable(&self, variable: &str) -> Vec<Pid> {
        let begins = [variable.as_bytes(), b"="].concat();
        let has = |pid: &Pid| {
            let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|pair| pair.starts_with(&begins))
        };
        self.members().into_iter().filter(has).collect()
    }

    /// The entry process and its descendants, children before their parents.
    pub(crate) fn tree(&self) -> Vec<Pid> {
        let parents: BTreeMap<i32, i32> = self.members().into_iter().filter_map(parent_of).collect();
        let entry = self.entry().as_raw_nonzero().get();
        let descends = |pid: i32| {
            std::iter::successors(Some(pid), |pid| parents.get(pid).copied()).take(64).any(|pid| pid == entry)
        };
        parents.keys().rev().filter(|pid| descends(**pid)).filter_map(|pid| Pid::from_raw(*pid)).collect()
    }

    /// What the first process of its namespace has started itself, in the order of the process ids. The supervisor, an
    /// orphan, is its child by then, too.
    pub(crate) fn step(&self) -> Option<Pid> {
        children_of(self.init()?).into_iter().find(|pid| !supervises(*pid))
    }

    /// Those in the process group of that one, but for the first process.
    pub(crate) fn group_inside(&self) -> Vec<Pid> {
        let group = |pid: &Pid| rustix::process::getpgid(Some(*pid)).ok();
        let wanted = self.step().as_ref().and_then(group);
        self.inside().into_iter().filter(|pid| wanted.is_some() && group(pid) == wanted).collect()
    }

    /// The verdict, once it is there.
    pub(crate) fn verdict(&self) -> Option<Value> {
        let last = self.journal.events().pop()?;
        (last["type"] == "run.finished").then(|| last["data"].clone())
    }

    /// Signals the group of the entry process.
    pub(crate) fn send_group(&self, signal: Signal) {
        let _ = rustix::process::kill_process_group(self.entry(), signal);
    }

    /// Waits for the end of the entry process, and gives its exit code; none when a signal ended it.
    pub(crate) fn end(self) -> Option<i32> {
        match self.entry {
            Entry::Running(running) => running.finish().code(),
            Entry::Seated(seat) => seat.end().0,
        }
    }

    /// Waits until the entry process has ended, at most so long.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        wait::until(limit, "the entry process to end", || is_gone(self.entry()).then_some(())).is_ok()
    }
}

/// Whether a process runs the program of this name.
pub(crate) fn is_program(pid: Pid, name: &str) -> bool {
    let program = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).unwrap_or_default();
    program.file_name().is_some_and(|found| found == name)
}

/// Signals one.
pub(crate) fn send(pid: Pid, signal: Signal) {
    signal_each(&[pid], signal, Duration::ZERO);
}

/// Signals all, as fast as it goes.
pub(crate) fn send_all(pids: &[Pid], signal: Signal) {
    signal_each(pids, signal, Duration::ZERO);
}

/// Waits until all of these have ended, at most so long.
pub(crate) fn all_end_within(pids: &[Pid], limit: Duration) -> bool {
    let over = || pids.iter().all(|pid| is_gone(*pid)).then_some(());
    wait::until(limit, "what was signalled to end", over).is_ok()
}

/// Whether this account may make a [`NAMESPACE`]; that it may not is said.
pub(crate) fn can_be_contained(what: &str) -> bool {
    let made = command(Path::new("/bin/sh")).args(["-c", &format!("{NAMESPACE} true")]).status();
    let made = made.is_ok_and(|status| status.success());
    if !made {
        untested::say(what, "this account may not make a PID namespace");
    }
    made
}

/// A namespace of its own for whoever may make one.
pub(crate) const NAMESPACE: &str = "unshare --user --map-root-user --pid --fork --mount-proc --kill-child";

/// A shell that controls jobs. The status of one that was stopped is that of a signal that stops.
const JOB_CONTROL: &str = "set -m; \"$@\"; while [ $? -ge 147 ] && [ $? -le 150 ]; do read go; fg; done";

/// A script for another shell than the one that starts it.
fn separated(script: &str) -> String {
    format!("exec {script} \"$@\"")
}

/// Whether a process is the supervisor of a run.
pub(crate) fn supervises(pid: Pid) -> bool {
    let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    words.split(|byte| *byte == 0).any(|word| word == b"__supervise")
}

/// The children of a process, in the order of the process ids.
fn children_of(parent: Pid) -> Vec<Pid> {
    let number = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap_or_default();
    let mut children: Vec<i32> = children.split_whitespace().filter_map(|child| child.parse().ok()).collect();
    children.sort_unstable();
    children.into_iter().filter_map(Pid::from_raw).collect()
}

fn parent_of(pid: Pid) -> Option<(i32, i32)> {
    let number = pid.as_raw_nonzero().get();
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    Some((number, parent))
}
