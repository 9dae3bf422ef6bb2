//! A lock folder while one request is done in it: opened once by its path, and from then on by its descriptor.
//!
//! Whoever may write to the folder may use the lock, so what is made in it may be read and written by exactly those: it
//! gets the folder's group and the folder's bits. Two users who share a folder are meant to do so.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::failure::{Code, Failure, shell_word};
use crate::lock::direct::Tried;
use crate::lock::direct::file::{LEASE, TEMPORARY};
use crate::lock::direct::mount::{Mount, Reach, judge};
use crate::lock::store::Trouble;

/// What `flock` is about. It is made once and stays for ever: who has an open file that is not there any more has a lock
/// that nobody else knows.
pub(super) const FLOCK: &str = "dcctl.flock";

/// A file that may be read or written by everybody who may do that to the folder.
const SHARED_BITS: u32 = 0o066;
/// The bit of a folder in which nobody may replace what is another's.
const STICKY: u32 = 0o1000;
/// The bits that let others than its owner write to a folder.
const OTHERS_WRITE: u32 = 0o022;

/// The path that is a lock's name, and whether a folder was found there.
#[derive(Debug)]
pub(in crate::lock::direct) struct Spot {
    path: PathBuf,
    found: AtomicBool,
}

impl Spot {
    /// The path, ending with the folder's name: with a slash behind it, or `/.`, the system follows a link before it looks.
    pub(super) fn new(path: &Path) -> Spot {
        Spot { path: path.components().collect(), found: AtomicBool::new(false) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// An opened lock folder.
pub(super) struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    stat: Stat,
}

/// Why there is no open file to lock.
enum NotOpened {
    Missing,
    Trouble(Trouble),
}

/// The file lock, until it is dropped.
struct Flock(OwnedFd);

impl Drop for Flock {
    fn drop(&mut self) {
        // Said outright: a child that is being started just now has a copy of the descriptor for a moment.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Folder {
    /// Opens it. The last part of the path may not be a link: whoever may change that would move the lock from under
    /// everybody who has it.
    pub(super) fn open(spot: &Spot) -> Result<Folder, Trouble> {
        let path = &spot.path;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let opened = opened.and_then(|descriptor| Ok((rustix::fs::fstat(&descriptor)?, descriptor)));
        match opened {
            Ok((stat, descriptor)) => {
                spot.found.store(true, Ordering::Relaxed);
                Ok(Folder { descriptor, path: path.to_owned(), stat })
            }
            Err(error) => Err(not_opened(spot, error)),
        }
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// How far its file locks reach.
    pub(super) fn reach(&self) -> Result<Reach, Trouble> {
        let system = rustix::fs::fstatfs(&self.descriptor).map_err(|error| self.trouble("look at", error))?;
        #[expect(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "the number is 32 bits in any word"
        )]
        let magic = u64::from(system.f_type as u32);
        judge(magic, self.mount().as_ref()).map_err(|why| {
            let message = format!("the lock folder {} {why}", self.path.display());
            let hint = "Use a folder on a disk of this machine, on NFS with locks of the server, or the substrate \
                        `kubernetes`, which is made for several machines.";
            Trouble::Refused(Failure::new(Code::LockDirUnusable, message).hint(hint))
        })
    }

    /// How its file system is mounted: the number of the mount is with the descriptor, the rest in the list of them.
    fn mount(&self) -> Option<Mount> {
        let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.descriptor.as_raw_fd())).ok()?;
        let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok())?;
        Mount::find(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, id)
    }

    /// Whether this account may claim and reclaim in it. Nothing is made.
    pub(super) fn check_writable(&self) -> Result<(), Trouble> {
        let access = rustix::fs::accessat(&self.descriptor, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
        access.map_err(|error| self.trouble("write to", error))?;
        for name in [FLOCK, LEASE] {
            match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => self.refuse_another_s(&stat)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.trouble_with(name, "look at", error)),
            }
        }
        match rustix::fs::statat(&self.descriptor, TEMPORARY, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_dir() => {
                return Err(self.trouble_with(TEMPORARY, "remove", Errno::ISDIR));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(self.trouble_with(TEMPORARY, "look at", error)),
        }
        match self.open_flock() {
            Ok(_) | Err(NotOpened::Missing) => Ok(()),
            Err(NotOpened::Trouble(trouble)) => Err(trouble),
        }
    }

    /// In a sticky folder that others may write to, nobody can take away the Lease of another user.
    fn refuse_another_s(&self, stat: &Stat) -> Result<(), Trouble> {
        let mode = self.stat.st_mode;
        let ours = rustix::process::geteuid().as_raw();
        if mode & STICKY == 0 || mode & OTHERS_WRITE == 0 || stat.st_uid == ours {
            return Ok(());
        }
        let path = self.path.display();
        let typed = shell_word(&self.path.to_string_lossy());
        let message = format!(
            "the lock folder {path} is sticky and is used by another user (uid {}; this is uid {ours}): neither could take \
             away what the other left behind",
            stat.st_uid
        );
        Err(Trouble::Refused(
            Failure::new(Code::LockDirUnusable, message)
                .hint("Give these users a folder of their own: `install -d -m 2770 -g GROUP DIR`.")
                .hint(format!("If the folder is for this alone, take the bit off: `chmod -t {typed}`.")),
        ))
    }

    /// Does something while nobody else does, unless somebody does just now.
    pub(super) fn under_flock<T>(self, act: impl FnOnce(&Folder) -> Result<T, Trouble>) -> Result<Tried<T>, Trouble> {
        let Some(_flock) = self.take_flock()? else { return Ok(Tried::InUse) };
        act(&self).map(Tried::Done)
    }

    fn take_flock(&self) -> Result<Option<Flock>, Trouble> {
        let file = match self.open_flock() {
            Err(NotOpened::Missing) => {
                self.make_flock()?;
                self.open_flock()
            }
            opened => opened,
        };
        let file = match file {
            Ok(file) => file,
            // Somebody has removed it by hand in this moment.
            Err(NotOpened::Missing) => return Ok(None),
            Err(NotOpened::Trouble(trouble)) => return Err(trouble),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(error) => return Err(self.trouble_with(FLOCK, "lock", error)),
        }
        let flock = Flock(file);
        let locked = rustix::fs::fstat(&flock.0).map_err(|error| self.trouble_with(FLOCK, "look at", error))?;
        self.refuse_another_s(&locked)?;
        match rustix::fs::statat(&self.descriptor, FLOCK, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if (there.st_dev, there.st_ino) == (locked.st_dev, locked.st_ino) => Ok(Some(flock)),
            // Somebody has removed it by hand. The one that is there now is asked the next time.
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.trouble_with(FLOCK, "look at", error)),
        }
    }

    /// NFS wants a file that is locked alone to be open for writing.
    fn open_flock(&self) -> Result<OwnedFd, NotOpened> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let trouble = |doing: &str, error: Errno| NotOpened::Trouble(self.trouble_with(FLOCK, doing, error));
        let file = match rustix::fs::openat(&self.descriptor, FLOCK, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Err(NotOpened::Missing),
            Err(error) => return Err(trouble("open", error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| trouble("look at", error))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            Ok(file)
        } else {
            Err(NotOpened::Trouble(self.in_the_way(FLOCK, "it is no file")))
        }
    }

    /// It appears with all its bits at once, so nobody meets one that is not theirs to open yet.
    fn make_flock(&self) -> Result<(), Trouble> {
        let number = getrandom::u64().map_err(|_| self.trouble_with(FLOCK, "name", Errno::IO))?;
        let name = format!(".{FLOCK}.{number:016x}");
        let made = self.make(&name).and_then(|_| {
            match rustix::fs::linkat(&self.descriptor, name.as_str(), &self.descriptor, FLOCK, AtFlags::empty()) {
                // Another process was faster.
                Err(Errno::EXIST) => Ok(()),
                linked => linked,
            }
        });
        let _ = rustix::fs::unlinkat(&self.descriptor, name.as_str(), AtFlags::empty());
        made.map_err(|error| self.trouble_with(FLOCK, "make", error))
    }

    /// Makes a file that everybody may use who may use the folder.
    pub(super) fn make(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.descriptor, name, flags, Mode::RUSR | Mode::WUSR)?;
        let made = rustix::fs::fstat(&file)?;
        // Root makes it for the folder's owner. Who may not give it away keeps it.
        let owner = (made.st_uid == 0 && self.stat.st_uid != 0).then(|| Uid::from_raw(self.stat.st_uid));
        let group = (made.st_gid != self.stat.st_gid).then(|| Gid::from_raw(self.stat.st_gid));
        if owner.is_some() || group.is_some() {
            let _ = rustix::fs::fchown(&file, owner, group);
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600 | (self.stat.st_mode & SHARED_BITS)))?;
        Ok(file)
    }

    /// What the system says about the folder, as an answer to a request that has done nothing yet.
    pub(super) fn trouble(&self, doing: &str, error: Errno) -> Trouble {
        trouble(format!("cannot {doing} the lock folder {}", self.path.display()), &self.path, error)
    }

    /// The same about a file in it.
    pub(super) fn trouble_with(&self, name: &str, doing: &str, error: Errno) -> Trouble {
        match error {
            Errno::LOOP => self.in_the_way(name, "it is a symbolic link"),
            Errno::ISDIR => self.in_the_way(name, "it is a folder"),
            Errno::NXIO => self.in_the_way(name, "it is no file"),
            _ => trouble(format!("cannot {doing} {}", self.file(name).display()), &self.path, error),
        }
    }

    /// Something that is no file lies where one of the lock's own is to be. It goes only by somebody's hand.
    fn in_the_way(&self, name: &str, why: &str) -> Trouble {
        let path = self.file(name);
        let (typed, away) = (path.to_string_lossy(), format!("{}.away", path.display()));
        let message = format!("{} is in the way of the lock: {why}", path.display());
        let hint = format!("Move it out of the way: `mv {} {}`.", shell_word(&typed), shell_word(&away));
        Trouble::Refused(Failure::new(Code::LockDirUnusable, message).hint(hint))
    }

    /// The path of a file in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn not_opened(spot: &Spot, error: Errno) -> Trouble {
    let path = spot.path();
    let is_link = || rustix::fs::lstat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink());
    let shown = path.display();
    if matches!(error, Errno::LOOP | Errno::NOTDIR) && is_link() {
        let to = std::fs::canonicalize(path).map(|to| format!(" ({})", to.display())).unwrap_or_default();
        let message =
            format!("the lock folder {shown} is a symbolic link, and may be made to lead elsewhere at any time");
        return Trouble::Refused(
            Failure::new(Code::LockDirUnusable, message).hint(format!("Name the folder that it leads to{to}.")),
        );
    }
    let message = format!("the lock folder {shown} cannot be opened");
    let hint = match error {
        // It may come back: a disk is mounted again, a folder is renamed back.
        Errno::NOENT if spot.found.load(Ordering::Relaxed) => {
            "It was there before: find out who moved or removed it, or whether its disk is still mounted.".to_owned()
        }
        Errno::NOENT => {
            let typed = shell_word(&path.to_string_lossy());
            format!("Make it, so that all who share the lock can write to it: `install -d -m 2770 {typed}`.")
        }
        Errno::NOTDIR => "Name a folder; the lock's files are made in it.".to_owned(),
        Errno::LOOP => "A symbolic link in this path leads back to itself: mend it, or name another path.".to_owned(),
        _ => return trouble(message, path, error),
    };
    let failure = Failure::new(Code::LockDirUnusable, message).because(&std::io::Error::from(error)).hint(hint);
    match error {
        Errno::LOOP => Trouble::Refused(failure),
        _ => Trouble::Unsent(failure),
    }
}

/// An error of the system. Permissions do not change by trying again; a full disk or a server that is away may.
fn trouble(message: String, folder: &Path, error: Errno) -> Trouble {
    let error = std::io::Error::from(error);
    let failure = Failure::new(Code::LockDirUnusable.unless_exhausted(&error), message).because(&error);
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            let typed = shell_word(&folder.to_string_lossy());
            Trouble::Refused(failure.hint(format!(
                "Everybody who shares the lock has to be able to write to the folder and to the files in it: one group, \
                 and `chmod g+rws {typed}`."
            )))
        }
        std::io::ErrorKind::ReadOnlyFilesystem => Trouble::Refused(
            failure.hint("Its file system is read-only: mount it for writing, or name a folder on another one."),
        ),
        std::io::ErrorKind::InvalidFilename => {
            Trouble::Refused(failure.hint("No file system takes such a name: name another folder."))
        }
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            Trouble::Unsent(failure.hint("Make room on its disk, or name a folder on another one."))
        }
        _ => Trouble::Unsent(failure),
    }
}
