//! The only file that talks to the kernel about processes: watching one, signalling one, adopting orphans.
//!
//! Signals go through a descriptor of the process, never through a number that the kernel may have given away again.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::process::proc;

/// What we send to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

impl Signal {
    fn raw(self) -> rustix::process::Signal {
        match self {
            Signal::Interrupt => rustix::process::Signal::INT,
            Signal::Terminate => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        }
    }
}

/// A hold on one process: whether it lives, and a sure way to signal it and no other.
#[derive(Debug)]
pub struct Life {
    pid: u32,
    descriptor: OwnedFd,
}

impl Life {
    /// Takes hold of a process. It need not be a child of ours.
    ///
    /// # Errors
    /// When there is no such process, or the kernel has no such descriptors (Linux before 5.3).
    pub fn of(pid: u32) -> io::Result<Life> {
        let descriptor = rustix::process::pidfd_open(number(pid)?, PidfdFlags::empty())?;
        Ok(Life { pid, descriptor })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has ended, noticed by its parent or not.
    pub fn is_over(&self) -> bool {
        let mut descriptors = [rustix::event::PollFd::new(&self.descriptor, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut descriptors, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until it has ended. Safe to drop at any point.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    #[expect(
        deprecated,
        reason = "the call that replaces it is unsafe, and a descriptor that we own keeps its promise"
    )]
    pub async fn ended(&self) -> io::Result<()> {
        let watched = AsyncFd::with_interest(self.descriptor.as_fd(), Interest::READABLE)?;
        watched.readable().await.map(|_| ())
    }

    /// Lets go of it if it is a child of ours that has ended. Anybody else's child is left alone.
    pub(crate) fn reap(&self) {
        let wanted = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if let Err(errno) = rustix::process::waitid(WaitId::PidFd(self.descriptor.as_fd()), wanted) {
            tracing::trace!(pid = self.pid, %errno, "not ours to reap");
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended, or we may not.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.descriptor, signal.raw())?)
    }
}

/// Whether this is the first process of a container (or of the machine): with its end the kernel ends all the others there.
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Takes hold of the process that started this one.
///
/// # Errors
/// When there is none in this namespace, it has ended, or the kernel has no such descriptors.
pub fn parent() -> io::Result<Life> {
    let parent = || rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    let life = Life::of(parent())?;
    // One that ended meanwhile may have left its number to somebody else.
    if life.pid() == parent() { Ok(life) } else { Err(io::Error::other("the process that started this one has ended")) }
}

/// Signals a process group by the number of its leader.
///
/// The caller knows that the leader was not reaped yet, or that there was somebody in its group ever since: so long the
/// kernel gives its number to nobody else.
///
/// # Errors
/// When there is nobody in it, or we may not.
pub(crate) fn signal_group(leader: u32, signal: Signal) -> io::Result<()> {
    Ok(rustix::process::kill_process_group(number(leader)?, signal.raw())?)
}

/// The same for a leader that is no child of ours and may be reaped at any moment: each member is signalled through a
/// hold of its own, taken while the leader kept the group's number from being given away.
///
/// # Errors
/// When the leader has ended, or we may not.
pub(crate) fn signal_members(leader: &Life, signal: Signal) -> io::Result<()> {
    let mut signalled = Vec::new();
    // Twice: a member that starts another one while it is looked for could hide it.
    for _ in 0..2 {
        let members = proc::all().into_iter().filter(|stat| stat.group == leader.pid && !stat.is_over());
        let holds: Vec<Life> = members.filter_map(|stat| Life::of(stat.pid).ok()).collect();
        if leader.is_over() {
            break;
        }
        for life in holds.into_iter().filter(|life| !signalled.contains(&life.pid)).collect::<Vec<_>>() {
            signalled.push(life.pid);
            // One that ended just now needs no signal.
            let _ = life.signal(signal);
        }
    }
    if signalled.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
}

/// Whether there is anybody in the process group of this leader, in one look: it cannot miss one that forks and ends
/// while processes are looked for one after the other.
pub(crate) fn is_populated(leader: u32) -> bool {
    // What may not be signalled is there.
    number(leader).is_ok_and(|leader| rustix::process::test_kill_process_group(leader) != Err(rustix::io::Errno::SRCH))
}

/// Becomes the parent of every orphan among our descendants, so that nothing which a tool started can hide behind a
/// second fork.
///
/// # Errors
/// When the kernel refuses.
pub fn adopt() -> io::Result<()> {
    // Any number but zero turns it on.
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Whether orphans among our descendants become our children: after [`adopt`].
pub(crate) fn is_adopting() -> bool {
    rustix::process::child_subreaper().is_ok_and(|on| on.is_some())
}

/// This process stands still until somebody lets it go on, or ends it. For tests.
#[cfg(feature = "test-tools")]
pub fn stand_still() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

/// Our own process group. It is 0 in a container whose first process was put into it from outside: the system calls
/// say so too, but rustix 1 holds their answer to be a positive number.
pub fn own_group() -> u32 {
    proc::Stat::of(std::process::id()).map_or(0, |stat| stat.group)
}

/// Lets go of orphans that became our children and have ended, so that they do not pile up. Programs that we started
/// ourselves are left alone: those in our own group, and those named by `except`.
pub fn reap_orphans(except: &[u32]) {
    let (me, own) = (std::process::id(), own_group());
    let is_orphan = |stat: &proc::Stat| stat.parent == me && stat.group != own && !except.contains(&stat.pid);
    for stat in proc::all() {
        if stat.is_over()
            && is_orphan(&stat)
            && let Ok(life) = Life::of(stat.pid)
        {
            life.reap();
        }
    }
}

/// The session of a process; none when it is gone.
pub(crate) fn session_of(pid: u32) -> Option<u32> {
    proc::Stat::of(pid).map(|stat| stat.session)
}

fn number(pid: u32) -> io::Result<Pid> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| io::Error::other(format!("{pid} is not a process number")))
}
