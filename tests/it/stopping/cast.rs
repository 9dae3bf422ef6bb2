//! The processes of one run, by the parts that they play: what a system signals when it does not stop at the front.

use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};

use crate::bed::dcctl::{Journal, Running};
use crate::bed::wait;
use crate::stopping::rig::Rig;

/// The processes of a run whose slow thing is being created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cast {
    pub(crate) front: Pid,
    pub(crate) supervisor: Pid,
    pub(crate) tofu: Pid,
    pub(crate) plugin: Pid,
}

impl Cast {
    /// Waits until all of them are there.
    #[track_caller]
    pub(crate) fn of(rig: &Rig, run: &Running) -> Cast {
        let journal = run.journal();
        rig.wait_until_slow(&journal);
        let plugin = rig.entries().into_iter().find(|entry| entry.name == "slow").expect("it was begun").pid;
        Cast { front: pid(run.pid()), supervisor: run.supervisor(), tofu: tofu(&journal), plugin: pid(plugin) }
    }

    /// In the order of their beginnings, which is that of their numbers.
    pub(crate) fn all(self) -> [Pid; 4] {
        [self.front, self.supervisor, self.tofu, self.plugin]
    }
}

/// The process that applies.
#[track_caller]
pub(crate) fn tofu(journal: &Journal) -> Pid {
    let started = journal.wait_for("process.started", |event| event["data"]["program"] == "tofu apply");
    pid(started["data"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process id"))
}

/// A process id as the system calls take it.
pub(crate) fn pid(number: u32) -> Pid {
    i32::try_from(number).ok().and_then(Pid::from_raw).expect("a process id")
}

/// Signals each, with this long in between for those that still live. One that is gone is passed over.
pub(crate) fn signal_each(pids: &[Pid], signal: Signal, gap: Duration) {
    for pid in pids {
        let Ok(process) = rustix::process::pidfd_open(*pid, PidfdFlags::empty()) else { continue };
        let _ = rustix::process::pidfd_send_signal(&process, signal);
        if !gap.is_zero() {
            let _ = wait::until(gap, "what was signalled to end", || is_gone(*pid).then_some(()));
        }
    }
}

/// Whether a process has ended; its parent need not have noticed.
pub(crate) fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}
