//! What happens in a new process between fork and exec, and what this one was born with: the only unsafe code of the
//! program.
//!
//! Only calls that are safe after a fork are made here (no allocation, no lock), and every number that they need is
//! taken beforehand.
//!
//! Which signals are blocked, and which are ignored, is inherited from whoever started a program. A parent that blocks
//! SIGTERM would make a request to stop go unheard, and one that ignores SIGCHLD would keep the end of every child from
//! its parent. So neither is taken over, here or by what is started.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives a tool a process group of its own, no descriptor but its three, and makes it deaf to SIGHUP, which Go
/// programs respect: a terminal or a session that goes away must not kill an apply.
pub(crate) fn shield(command: &mut Command) {
    command.process_group(0);
    let before_exec = || {
        forget_inherited();
        // SAFETY: `signal` is async-signal-safe, and ignoring a signal installs no code of ours.
        #[expect(unsafe_code, reason = "no safe call ignores a signal in a child")]
        let former = unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        if former == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        close_on_exec_from(3);
        Ok(())
    };
    // SAFETY: the closure only calls `signal`, changes the mask and marks descriptors.
    #[expect(unsafe_code, reason = "the standard library marks every hook before exec as unsafe")]
    unsafe {
        command.pre_exec(before_exec);
    }
}

/// Lets a command leave everything that could end it together with us: our session, our group, our tree and our
/// descriptors. It forks once more, so that its parent is gone before it begins, and writes its process number to
/// `announce` (four bytes, native order).
///
/// The session is left *before* exec: done after it, a signal to our group in the first milliseconds still kills it.
pub(crate) fn cast_off(command: &mut Command, announce: OwnedFd) {
    let before_exec = move || {
        forget_inherited();
        let announce = announce.as_raw_fd();
        // SAFETY: all of these are async-signal-safe system calls on numbers that this process owns. The process
        // between the two forks ends with `_exit`, so nothing of the parent's is run or flushed twice.
        #[expect(unsafe_code, reason = "no safe call forks")]
        unsafe {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            match libc::fork() {
                0 => {}
                pid if pid < 0 => return Err(io::Error::last_os_error()),
                _ => libc::_exit(0),
            }
            let pid = libc::getpid().to_ne_bytes();
            if libc::write(announce, pid.as_ptr().cast(), pid.len()) != 4 {
                return Err(io::Error::last_os_error());
            }
        }
        close_on_exec_from(3);
        Ok(())
    };
    // SAFETY: the closure only makes the system calls above.
    #[expect(unsafe_code, reason = "the standard library marks every hook before exec as unsafe")]
    unsafe {
        command.pre_exec(before_exec);
    }
}

/// Takes back what this process inherited about signals and depends on: it hears every one, and is told when a child
/// ends. Call it before there is a second thread. What else was ignored stays so here; what is started gets nothing of it.
pub fn begin_afresh() {
    unblock_all();
    // SAFETY: the default is no code of ours, and nobody else has said anything about this signal yet.
    #[expect(unsafe_code, reason = "no safe call takes back an ignored signal")]
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Gives every signal its default again, and blocks none. For a process that is about to become another program.
fn forget_inherited() {
    // The last signal of Linux. Those that nobody may change, and the C library's own, only give an error.
    const LAST: libc::c_int = 64;
    for signal in 1..=LAST {
        // SAFETY: `signal` is async-signal-safe, and the default is no code of ours.
        #[expect(unsafe_code, reason = "no safe call takes back an ignored signal")]
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    unblock_all();
}

fn unblock_all() {
    // SAFETY: both calls are async-signal-safe; the set lives here and is filled in before it is used.
    #[expect(unsafe_code, reason = "no safe call changes which signals are blocked")]
    unsafe {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Marks every descriptor from `first` on as closed by exec, those that we inherited without the mark included. They
/// are not closed here: one of them tells the parent whether exec worked.
fn close_on_exec_from(first: libc::c_uint) {
    // Where the kernel has no `close_range` (before 5.11, or forbidden by a filter), each one is marked by hand.
    const MOST: libc::c_int = 65_536;
    // SAFETY: both calls only set a flag on descriptors of this process; numbers that are not open give an error that
    // does not matter.
    #[expect(unsafe_code, reason = "no safe call marks descriptors that nobody owns")]
    unsafe {
        let flag = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
        if libc::close_range(first, libc::c_uint::MAX, flag) != 0 {
            for descriptor in first.cast_signed()..MOST {
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}
