//! Passes on what the command of `dcctl exec` prints: standard output to standard output, standard error to standard
//! error, byte for byte but for secrets.
//!
//! The command writes to files of the run directory, which are followed here. They are made and opened before the run
//! begins, so the supervisor may remove them at the command's end: what is open can be read on.
//!
//! # Promise
//! No border between two reads divides a secret: what may be the beginning of one waits for what follows.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::redact::Redactor;
use crate::run::ForCommand;

/// How much is read at a time, in bytes.
const BLOCK: usize = 64 * 1024;

/// How many bytes before the present place are looked at again, to notice that the file is not the one that it was.
const RECENT: usize = 64;

/// How much may wait for what follows, in bytes. Only a text of which every byte may belong to one secret gets there.
const MOST_HELD: usize = 1 << 20;

/// Where the command's two outputs go.
pub struct Streams {
    /// Its standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Its standard error.
    pub stderr: Box<dyn Write + Send>,
}

/// The two outputs on their way.
pub(crate) struct Relay {
    passages: [Passage; 2],
    redactor: Redactor,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The command was not started.
    Waiting,
    /// It runs.
    Open,
    /// All was passed on.
    Closed,
}

/// One output on its way.
struct Passage {
    name: &'static str,
    file: File,
    out: Box<dyn Write + Send>,
    /// Read, and not passed on yet.
    held: Vec<u8>,
    read: u64,
    /// Where in the file the next block is. Behind `read` once the file was emptied.
    at: u64,
    /// The last bytes that were read. When they do not stand there any more, the file was emptied and written anew.
    recent: Vec<u8>,
    gone: bool,
}

impl Relay {
    /// Makes the command's output files, readable by this user alone, and opens them.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(crate) fn open(command: &ForCommand, redactor: Redactor, streams: Streams) -> io::Result<Relay> {
        let stdout = Passage::open("standard output", &command.stdout, streams.stdout)?;
        let stderr = Passage::open("standard error", &command.stderr, streams.stderr)?;
        Ok(Relay { passages: [stdout, stderr], redactor, state: State::Waiting })
    }

    /// The command runs: from here on its output is passed on, and not before what was said until then was shown.
    pub(crate) fn begin(&mut self) {
        if self.state == State::Waiting {
            self.state = State::Open;
        }
    }

    /// Passes on what is there, one block of each. Returns how many bytes were read.
    pub(crate) fn pass_on(&mut self, complaints: &mut dyn Write) -> u64 {
        if self.state != State::Open {
            return 0;
        }
        let mut bytes = 0;
        for passage in &mut self.passages {
            let before = passage.read;
            passage.step(&self.redactor, complaints);
            bytes += passage.read - before;
        }
        bytes
    }

    /// Passes on all that is there now, and closes. `progress` is told of each step: a reader may stand still.
    pub(crate) fn finish(&mut self, complaints: &mut dyn Write, progress: impl Fn(u64)) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        for passage in &mut self.passages {
            // What outlives the command may write on and on.
            let end = passage.file.metadata().map_or(0, |file| file.len());
            while passage.at < end {
                let before = passage.read;
                passage.step(&self.redactor, complaints);
                if passage.read == before {
                    break;
                }
                progress(passage.read - before);
            }
            passage.let_go(&self.redactor, complaints);
            progress(1);
        }
    }
}

impl Passage {
    fn open(name: &'static str, path: &Path, out: Box<dyn Write + Send>) -> io::Result<Passage> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        File::options().append(true).create(true).mode(0o600).open(path)?;
        Ok(Passage {
            name,
            file: File::open(path)?,
            out,
            held: Vec::new(),
            read: 0,
            at: 0,
            recent: Vec::new(),
            gone: false,
        })
    }

    /// Reads one block and passes on as much as can be.
    fn step(&mut self, redactor: &Redactor, complaints: &mut dyn Write) {
        if self.was_emptied() {
            self.let_go(redactor, complaints);
            (self.at, self.recent) = (0, Vec::new());
            let _ = writeln!(
                complaints,
                "dcctl: the command's {} was emptied by something that opened it for writing anew, as `> /dev/stdout` \
                 does; what was printed before may be missing",
                self.name
            );
        }
        let before = self.held.len();
        self.held.resize(before + BLOCK, 0);
        let count = loop {
            match self.file.read_at(&mut self.held[before..], self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.unwrap_or(0),
            }
        };
        self.held.truncate(before + count);
        self.read += count as u64;
        self.at += count as u64;
        if count == 0 {
            return;
        }
        let fresh = &self.held[before..];
        self.recent = fresh[fresh.len().saturating_sub(RECENT)..].to_vec();
        let end = match redactor.safe_cut(&self.held, self.held.len()) {
            0 if self.held.len() > MOST_HELD => self.held.len(),
            end => end,
        };
        self.write(end, redactor, complaints);
    }

    /// Whether what was read last does not stand there any more.
    fn was_emptied(&self) -> bool {
        let length = self.file.metadata().map_or(self.at, |file| file.len());
        if length <= self.at {
            return length < self.at;
        }
        let mut there = vec![0; self.recent.len()];
        let before = self.at - there.len() as u64;
        self.file.read_exact_at(&mut there, before).is_err() || there != self.recent
    }

    /// Passes on what waited for more: there is no more.
    fn let_go(&mut self, redactor: &Redactor, complaints: &mut dyn Write) {
        self.write(self.held.len(), redactor, complaints);
    }

    fn write(&mut self, end: usize, redactor: &Redactor, complaints: &mut dyn Write) {
        if end > 0 && !self.gone {
            let clean = redactor.bytes(&self.held[..end]);
            if let Err(error) = self.out.write_all(&clean).and_then(|()| self.out.flush()) {
                self.gone = true;
                let _ = writeln!(complaints, "dcctl: {} is gone ({error}); the command goes on", self.name);
            }
        }
        self.held.drain(..end);
    }
}

/// Whether what was written last, to a place that several write to, ended its line.
#[derive(Debug, Clone)]
pub struct LineEnd(Arc<AtomicBool>);

impl Default for LineEnd {
    fn default() -> LineEnd {
        LineEnd(Arc::new(AtomicBool::new(true)))
    }
}

/// What the command prints, on a place where our own lines go, too.
pub struct Theirs<W> {
    out: W,
    ended: LineEnd,
}

/// Our own lines, on a place where the command prints, too: each begins a line.
pub struct Ours<W> {
    out: W,
    ended: LineEnd,
}

impl<W> Theirs<W> {
    /// The command's bytes, which go to `out` as they are.
    pub fn new(out: W, ended: &LineEnd) -> Theirs<W> {
        Theirs { out, ended: ended.clone() }
    }
}

impl<W> Ours<W> {
    /// Our lines, which go to `out`.
    pub fn new(out: W, ended: &LineEnd) -> Ours<W> {
        Ours { out, ended: ended.clone() }
    }
}

impl<W: Write> Write for Theirs<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        if let Some(last) = bytes[..count].last() {
            self.ended.0.store(*last == b'\n', Ordering::Relaxed);
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Write for Ours<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !bytes.is_empty() && !self.ended.0.swap(true, Ordering::Relaxed) {
            self.out.write_all(b"\n")?;
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::Mutex;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Kept {
        fn bytes(&self) -> Vec<u8> {
            self.0.lock().expect("nobody panicked").clone()
        }
    }

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        relay: Relay,
        stdout: Kept,
        file: File,
        folder: tempfile::TempDir,
    }

    fn bench() -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let command = ForCommand {
            substrate: crate::run::Substrate::Direct(PathBuf::new()),
            program: "sh".into(),
            args: Vec::new(),
            folder: PathBuf::new(),
            stdout: folder.path().join("output/command.stdout"),
            stderr: folder.path().join("output/command.stderr"),
            stdin: false,
            propagate: false,
        };
        let redactor = Redactor::default();
        redactor.add("token", "zebra-crossing");
        let stdout = Kept::default();
        let streams = Streams { stdout: Box::new(stdout.clone()), stderr: Box::new(io::sink()) };
        let relay = Relay::open(&command, redactor, streams).expect("made");
        let file = File::options().append(true).open(&command.stdout).expect("it was made");
        Bench { relay, stdout, file, folder }
    }

    #[test]
    fn bytes_pass_as_they_are_and_not_before_the_command_runs() {
        let mut bench = bench();
        bench.file.write_all(b"\x00\xff\r\x1b[31m no end").expect("room");
        assert_eq!(bench.relay.pass_on(&mut io::sink()), 0);
        bench.relay.begin();
        assert_eq!(bench.relay.pass_on(&mut io::sink()), 15);
        assert_eq!(bench.stdout.bytes(), b"\x00\xff\r\x1b[31m no end");
        bench.relay.finish(&mut io::sink(), |_| {});
        assert_eq!(bench.stdout.bytes().len(), 15);
    }

    #[test]
    fn a_secret_is_hidden_wherever_the_reads_divide_it() {
        let text = b"it is zebra-crossing here, and zebra-cross is none";
        for border in 0..text.len() {
            let mut bench = bench();
            bench.relay.begin();
            for part in [&text[..border], &text[border..]] {
                bench.file.write_all(part).expect("room");
                bench.relay.pass_on(&mut io::sink());
                let shown = bench.stdout.bytes();
                let half = b"it is zebra";
                assert!(!shown.starts_with(half), "half a secret was passed on: {}", String::from_utf8_lossy(&shown));
            }
            bench.relay.finish(&mut io::sink(), |_| {});
            let shown = String::from_utf8(bench.stdout.bytes()).expect("text");
            assert_eq!(shown, "it is [redacted] here, and zebra-cross is none", "cut at {border}");
        }
    }

    #[test]
    fn what_is_removed_is_passed_on_to_its_end() {
        let mut bench = bench();
        let text = vec![b'x'; 3 * BLOCK + 7];
        bench.file.write_all(&text).expect("room");
        std::fs::remove_dir_all(bench.folder.path().join("output")).expect("ours");
        bench.relay.finish(&mut io::sink(), |_| {});
        assert_eq!(bench.stdout.bytes(), text);
    }

    #[test]
    fn our_own_line_begins_a_line() {
        let (place, ended) = (Kept::default(), LineEnd::default());
        let (mut theirs, mut ours) = (Theirs::new(place.clone(), &ended), Ours::new(place.clone(), &ended));
        ours.write_all(b"first\n").expect("kept");
        theirs.write_all(b"50 %").expect("kept");
        ours.write_all(b"renewed\n").expect("kept");
        theirs.write_all(b"done\n").expect("kept");
        ours.write_all(b"over\n").expect("kept");
        assert_eq!(place.bytes(), b"first\n50 %\nrenewed\ndone\nover\n");
    }
}
