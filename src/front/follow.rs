//! Follows a growing file line by line, without asking the clock: the kernel says when it has grown.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// How much is read at a time.
const BLOCK: usize = 64 * 1024;

/// A file that grows.
#[derive(Debug)]
pub(crate) struct Follower {
    file: File,
    /// How far it is read. Kept here: whoever appends through the same open file moves the file's own place.
    at: u64,
    watch: Option<OwnedFd>,
    unread: Vec<u8>,
    cut: Cut,
}

/// Whether somebody else took away what was in a file that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nobody did.
    No,
    /// It became shorter.
    Yes,
}

impl Follower {
    /// Follows this open file from its beginning. The path is only for the kernel's watch.
    pub(crate) fn of(file: File, path: &Path) -> Follower {
        // Where the kernel offers no watch (or no more of them) the wait below is bounded and the file is looked at.
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .and_then(|watch| inotify::add_watch(&watch, path, WatchFlags::MODIFY).map(|_| watch))
            .ok();
        Follower { file, at: 0, watch, unread: Vec::new(), cut: Cut::No }
    }

    /// What comes before this place is passed over.
    pub(crate) fn after(self, at: u64) -> Follower {
        Follower { at, ..self }
    }

    /// Wakes [`Follower::wait`] when one of these grows, too.
    pub(crate) fn watch(&self, paths: &[&Path]) {
        for path in paths {
            if let Some(watch) = &self.watch {
                // Without it the wait is bounded, as above.
                let _ = inotify::add_watch(watch, *path, WatchFlags::MODIFY);
            }
        }
    }

    /// The whole lines that are there now, each with its line feed. A torn last line waits for its rest.
    pub(crate) fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut block = vec![0; BLOCK];
        let mut count = self.file.read_at(&mut block, self.at)?;
        if count == 0 && self.file.metadata()?.len() < self.at {
            // What comes next is written from the new end on, so that is where the reading goes on.
            (self.at, self.cut) = (0, Cut::Yes);
            self.unread.clear();
            count = self.file.read_at(&mut block, 0)?;
        }
        self.at += count as u64;
        self.unread.extend_from_slice(&block[..count]);
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else { return Ok(Vec::new()) };
        let rest = self.unread.split_off(end + 1);
        let whole = std::mem::replace(&mut self.unread, rest);
        let text = String::from_utf8_lossy(&whole);
        Ok(text.split_inclusive('\n').map(str::to_owned).collect())
    }

    /// Whether the file was cut short since this was asked the last time.
    pub(crate) fn cut(&mut self) -> Cut {
        std::mem::replace(&mut self.cut, Cut::No)
    }

    /// All whole lines that are there, of a file that does not grow any more. A torn last line is forgotten: whoever
    /// goes on after it begins that line anew.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while let Ok(lines) = self.lines() {
            if lines.is_empty() {
                break;
            }
            rest.extend(lines);
        }
        self.unread.clear();
        rest
    }

    /// Waits until the file has grown, at most this long.
    pub(crate) fn wait(&self, limit: Duration) {
        let limit = Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        match &self.watch {
            Some(watch) => {
                let mut descriptors = [PollFd::new(watch, PollFlags::IN)];
                let _ = rustix::event::poll(&mut descriptors, Some(&limit));
                let mut noted = [0; 4096];
                while rustix::io::read(watch, &mut noted).is_ok_and(|count| count > 0) {}
            }
            None => drop(rustix::event::poll(&mut [], Some(&limit))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_torn_line_waits_for_its_rest() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("events.jsonl");
        let mut writer = File::options().create(true).append(true).open(&path).expect("a file");
        let mut follower = Follower::of(File::open(&path).expect("it is there"), &path);
        writer.write_all(b"one\ntw").expect("room");
        assert_eq!(follower.lines().expect("readable"), ["one\n"]);
        assert!(follower.lines().expect("readable").is_empty());
        writer.write_all(b"o\n").expect("room");
        follower.wait(Duration::from_secs(10));
        assert_eq!(follower.lines().expect("readable"), ["two\n"]);
    }

    #[test]
    fn a_file_that_was_cut_short_is_read_from_its_new_beginning() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("events.jsonl");
        let mut writer = File::options().create(true).append(true).open(&path).expect("a file");
        let mut follower = Follower::of(File::open(&path).expect("it is there"), &path);
        writer.write_all(b"one\ntwo\nth").expect("room");
        assert_eq!(follower.lines().expect("readable"), ["one\n", "two\n"]);
        writer.set_len(0).expect("it is ours");
        writer.write_all(b"four\n").expect("room");
        assert_eq!(follower.cut(), Cut::No);
        assert_eq!(follower.lines().expect("readable"), ["four\n"]);
        assert_eq!((follower.cut(), follower.cut()), (Cut::Yes, Cut::No));
    }
}
