//! Reads `/proc`: who lives, who started whom, who carries our tag, who has which file or pipe open.
//!
//! Everything here is a look at a moving target: a process may end between two reads, and then it is simply not there.
//! What belongs to another user cannot be read and counts as not ours.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Instant;
use crate::failure::{Code, Failure};

/// The name of the variable that marks everything a tool starts.
pub(crate) const TAG: &str = "DCCTL_RUN";

/// The name of the variable that a supervisor has, and with it what it starts by itself: the credential plugins of a
/// kubeconfig. Tools get an environment of their own.
pub const SUPERVISOR: &str = "DCCTL_SUPERVISOR";

/// Ticks a second of the times in `/proc`. The kernel's interface fixes it at 100 on every platform that Rust builds
/// this program for.
const TICKS: u64 = 100;

/// One process, as `/proc/PID/stat` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Its number.
    pub(crate) pid: u32,
    /// Its short name, at most 15 bytes.
    pub(crate) name: String,
    /// Its state: `R`, `S`, `D`, `T`, `Z`…
    pub(crate) state: char,
    /// Its parent.
    pub(crate) parent: u32,
    /// Its process group; 0 when the group's leader is outside our process namespace.
    pub(crate) group: u32,
    /// Its session; 0 when the session's leader is outside our process namespace.
    pub(crate) session: u32,
    /// When it was started, in ticks since the machine started. With the number it names one process for good.
    pub(crate) started: u64,
}

impl Stat {
    /// Reads one process; none when it is gone.
    pub(crate) fn of(pid: u32) -> Option<Stat> {
        let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Stat::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Reads the line. The name stands in parentheses and may itself contain some.
    fn parse(line: &str) -> Option<Stat> {
        let (number, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        // The start is field 22 of the line, the session was field 6.
        let started = fields.nth(15)?.parse().ok()?;
        Some(Stat { pid: number.parse().ok()?, name: name.to_owned(), state, parent, group, session, started })
    }

    /// Whether it has ended and only waits for its parent to notice.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// For how long it has been running.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.since(at(self.started))
    }
}

/// The moment of this many ticks since the machine started.
pub(crate) fn at(ticks: u64) -> Instant {
    Instant::since_boot(Duration::from_millis(ticks * 1000 / TICKS))
}

/// Refuses to work where `/proc` does not show this very process under its own number: whoever is found there could be somebody
/// else, who must neither be waited for nor be signalled.
///
/// # Errors
/// [`Code::ProcUnusable`].
pub fn sees_itself() -> Result<(), Failure> {
    let own = std::process::id();
    let sentence = match fs::read_link("/proc/self") {
        Ok(shown) if shown.to_str() == Some(&own.to_string()) => return Ok(()),
        Ok(shown) => format!("/proc shows this process as {}, and its number here is {own}", shown.display()),
        Err(error) => return Err(Failure::new(Code::ProcUnusable, "/proc cannot be read").because(&error)),
    };
    Err(Failure::new(Code::ProcUnusable, sentence).cause("it is that of another PID namespace"))
}

/// Every process that can be seen now.
pub(crate) fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Stat::of).collect()
}

/// Whether a process was started with this variable, `NAME=VALUE`, in its environment.
pub(crate) fn has_variable(pid: u32, assignment: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|entry| entry == assignment.as_bytes())
}

/// Every living process that was started with exactly this tag.
pub(crate) fn tagged(tag: &str) -> Vec<Stat> {
    let assignment = format!("{TAG}={tag}");
    let mut all = all();
    all.retain(|stat| !stat.is_over() && has_variable(stat.pid, &assignment));
    all
}

/// Every living process whose tag begins like this, with the rest of its tag.
pub(crate) fn tagged_beginning(beginning: &str) -> Vec<(Stat, String)> {
    let beginning = format!("{TAG}={beginning}");
    let rest = |stat: &Stat| {
        let environment = fs::read(format!("/proc/{}/environ", stat.pid)).ok()?;
        let mut entries = environment.split(|byte| *byte == 0);
        let rest = entries.find_map(|entry| entry.strip_prefix(beginning.as_bytes()))?;
        Some(String::from_utf8_lossy(rest).into_owned())
    };
    let living = all().into_iter().filter(|stat| !stat.is_over());
    living.filter_map(|stat| rest(&stat).map(|rest| (stat, rest))).collect()
}

/// Something that descriptors can refer to, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    device: u64,
    inode: u64,
}

impl Opened {
    /// The file at a path; none when there is none.
    pub(crate) fn file(path: &Path) -> Option<Opened> {
        let metadata = fs::metadata(path).ok()?;
        Some(Opened { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// Which way a descriptor is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It can be read from.
    Read,
    /// It can be written to.
    Write,
}

/// Whether a process has one of these open in this way.
pub(crate) fn holds(pid: u32, wanted: &[Opened], way: Way) -> bool {
    descriptors(pid).any(|(number, opened)| wanted.contains(&opened) && is_open(pid, &number, way))
}

/// Those of the files that a process has open for writing; none when it may not be looked at. One that is gone has none
/// open.
pub(crate) fn written(pid: u32, wanted: &[Opened]) -> Option<Vec<Opened>> {
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
        Ok(_) | Err(_) => {}
    }
    let found = descriptors(pid).filter(|(_, opened)| wanted.contains(opened));
    Some(found.filter(|(number, _)| is_open(pid, number, Way::Write)).map(|(_, opened)| opened).collect())
}

/// The runs whose mark a process carries: the one that it is a tool of, and the one whose supervisor started it.
pub(crate) fn runs_of(pid: u32) -> Vec<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mark = |entry: &[u8]| {
        let value = |name: &str| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
        let tag = value(TAG).and_then(|tag| tag.split(|byte| *byte == b'/').next());
        tag.or_else(|| value(SUPERVISOR)).map(|run| String::from_utf8_lossy(run).into_owned())
    };
    environment.split(|byte| *byte == 0).filter_map(mark).collect()
}

/// The folder that a process works in, where that may be seen.
pub fn folder_of(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// The pipes that a process has open in this way.
pub(crate) fn pipes(pid: u32, way: Way) -> Vec<Opened> {
    let is_pipe = |number: &str| {
        fs::read_link(format!("/proc/{pid}/fd/{number}")).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:["))
    };
    descriptors(pid)
        .filter(|(number, _)| is_pipe(number) && is_open(pid, number, way))
        .map(|(_, opened)| opened)
        .collect()
}

fn descriptors(pid: u32) -> impl Iterator<Item = (String, Opened)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let opened = Opened::file(&entry.path())?;
        Some((entry.file_name().to_str()?.to_owned(), opened))
    })
}

/// The last octal digit of `flags:` is the access mode: 0 reads, 1 writes, 2 does both.
fn is_open(pid: u32, number: &str, way: Way) -> bool {
    let Ok(info) = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")) else { return false };
    let mode = info.lines().find_map(|line| line.strip_prefix("flags:")?.trim().chars().last()?.to_digit(8));
    match (mode.map(|mode| mode & 3), way) {
        (Some(2), _) | (Some(0), Way::Read) | (Some(1), Way::Write) => true,
        (Some(_) | None, _) => false,
    }
}

/// Names one start of this machine, so that a process number from before a restart is never mistaken for a new one.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// From where processes are seen: the machine's name and the number space of its processes. Two containers that share
/// a disk do not see one another's.
pub fn place() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{}", name.trim(), space.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read() {
        let line = "42 (a) b (c) S 7 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 1 2 3";
        let stat = Stat::parse(line).expect("a process");
        let name = "a) b (c".to_owned();
        let expected = Stat { pid: 42, name, state: 'S', parent: 7, group: 42, session: 40, started: 123_456 };
        assert_eq!(stat, expected);
        assert_eq!(stat.age(Instant::since_boot(Duration::from_secs(1300))), Duration::from_millis(65_440));
    }

    #[test]
    fn this_process_is_among_all_of_them() {
        let me = std::process::id();
        let mine = all().into_iter().find(|stat| stat.pid == me).expect("this process");
        assert!(!mine.is_over());
        assert!(all().iter().any(|stat| stat.pid == mine.parent) || mine.parent == 0);
    }

    #[test]
    fn a_pipe_is_seen_from_both_ends() {
        let (_reader, _writer) = std::io::pipe().expect("a pipe");
        let me = std::process::id();
        let read = pipes(me, Way::Read);
        assert!(pipes(me, Way::Write).iter().any(|end| read.contains(end)));
        assert!(holds(me, &read, Way::Write));
    }

    #[test]
    fn a_file_open_for_reading_only_has_no_writer() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let opened = Opened::file(file.path()).expect("it is there");
        let me = std::process::id();
        assert!(holds(me, &[opened], Way::Write));
        let path = file.into_temp_path();
        let _reader = std::fs::File::open(&path).expect("it opens");
        assert!(!holds(me, &[opened], Way::Write));
        assert!(holds(me, &[opened], Way::Read));
    }
}
