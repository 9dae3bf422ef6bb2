//! The controlling terminal, for the commands that need a person: read from and written to whatever standard output is.
//!
//! Nothing here waits for a terminal that stands still. What is to be said is kept until it can be written, and is
//! written while something is waited for anyway; a terminal that is gone swallows it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::termios::QueueSelector;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{Interest, Ready};

use crate::commands::terminal::width_of;
use crate::commands::wrap::wrapped;
use crate::failure::{Code, Failure};

/// The longest line that is read. A terminal gives no longer one.
const LONGEST_LINE: usize = 4096;

/// A terminal that was found and opened.
#[derive(Debug)]
pub(crate) struct Opened(OwnedFd);

impl Opened {
    /// Opens the controlling terminal of this process, if standard input is a terminal too.
    ///
    /// # Errors
    /// `reclaim.needs_person`, with what is missing.
    pub(crate) fn open() -> Result<Opened, Failure> {
        let missing =
            |what: &str| Failure::new(Code::PersonMissing, format!("this takes a person at a terminal: {what}"));
        if !rustix::termios::isatty(rustix::stdio::stdin()) {
            return Err(missing("standard input is no terminal"));
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open("/dev/tty", flags, Mode::empty()) {
            Ok(terminal) => Ok(Opened(terminal)),
            Err(error) => Err(missing("this process has no controlling terminal").because(&error)),
        }
    }
}

/// The terminal of a person.
#[derive(Debug)]
pub(crate) struct Console {
    terminal: AsyncFd<OwnedFd>,
    typed: Vec<u8>,
    unsaid: Vec<u8>,
    /// How many columns the line has that the next one of its kind takes the place of.
    fleeting: Option<usize>,
    input: Input,
    output: Output,
    /// What is to be asked once the terminal has taken everything that was said before.
    question: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Open,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Open,
    Gone,
}

impl Console {
    /// Call it inside the runtime.
    ///
    /// # Errors
    /// When the system refuses to watch the terminal.
    #[expect(
        deprecated,
        reason = "the call that replaces it is unsafe, and a descriptor that we own keeps its promise"
    )]
    pub(crate) fn new(opened: Opened) -> Result<Console, Failure> {
        let terminal = AsyncFd::with_interest(opened.0, Interest::READABLE | Interest::WRITABLE).map_err(|error| {
            Failure::new(Code::PersonMissing, "the controlling terminal cannot be used").because(&error)
        })?;
        let (typed, unsaid) = (Vec::new(), Vec::new());
        Ok(Console {
            terminal,
            typed,
            unsaid,
            fleeting: None,
            input: Input::Open,
            output: Output::Open,
            question: None,
        })
    }

    /// Says a text, on lines of its own.
    pub(crate) fn say(&mut self, text: &str) {
        if self.fleeting.take().is_some() {
            self.unsaid.push(b'\n');
        }
        let fitted = width_of(self.terminal.as_fd()).map_or_else(|| text.to_owned(), |width| wrapped(text, width));
        self.unsaid.extend_from_slice(fitted.as_bytes());
        self.unsaid.push(b'\n');
    }

    /// Asks a question: the cursor stays behind it. What is typed before the terminal has taken everything that was said
    /// until now is not an answer and is thrown away.
    pub(crate) fn ask(&mut self, question: &str) {
        self.question = Some(question.to_owned());
        self.pose();
    }

    /// Poses the question that waits, if nothing is left to be said before it.
    fn pose(&mut self) {
        if !self.unsaid.is_empty() {
            return;
        }
        if let Some(question) = self.question.take() {
            // Before it is written: whoever sees it may answer at once.
            self.forget_typed();
            self.unsaid.extend_from_slice(question.as_bytes());
        }
    }

    fn forget_typed(&mut self) {
        // A terminal that is gone has nothing to be thrown away.
        let _ = rustix::termios::tcflush(&self.terminal, QueueSelector::IFlush);
        self.typed.clear();
    }

    /// Says a line that takes the place of the one before it, if that was said in this way too.
    pub(crate) fn say_fleetingly(&mut self, line: &str) {
        let columns = line.chars().count();
        let blank = self.fleeting.map_or(0, |before| before.saturating_sub(columns));
        if self.fleeting.is_some() {
            self.unsaid.push(b'\r');
        }
        self.unsaid.extend_from_slice(line.as_bytes());
        self.unsaid.extend(std::iter::repeat_n(b' ', blank));
        self.fleeting = Some(columns);
    }

    /// Waits for the next line, without its end, and writes what is to be said meanwhile. The end of all input is what
    /// was typed so far, once; after that it waits for ever. Safe to drop at any point.
    pub(crate) async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.typed.iter().position(|byte| *byte == b'\n') {
                let rest = self.typed.split_off(end + 1);
                let line = std::mem::replace(&mut self.typed, rest);
                return String::from_utf8_lossy(&line[..end]).into_owned();
            }
            if self.input == Input::Ended && self.output == Output::Gone {
                std::future::pending::<()>().await;
            }
            if self.turn().await == Input::Ended {
                return String::from_utf8_lossy(&std::mem::take(&mut self.typed)).into_owned();
            }
        }
    }

    /// Writes what is to be said, for as long as that may take.
    pub(crate) async fn drain(&mut self, limit: Duration) {
        let writing = async {
            while !self.unsaid.is_empty() && self.output == Output::Open {
                let Ok(mut guard) = self.terminal.ready(Interest::WRITABLE).await else { return };
                self.output = write(&mut guard, &mut self.unsaid);
            }
        };
        let _ = tokio::time::timeout(limit, writing).await;
    }

    /// Reads and writes what can be read and written once something can. Answers whether the input ended just now.
    async fn turn(&mut self) -> Input {
        let writes = self.output == Output::Open && !self.unsaid.is_empty();
        let interest = match (self.input, writes) {
            (Input::Open, true) => Interest::READABLE | Interest::WRITABLE,
            (Input::Open, false) => Interest::READABLE,
            (Input::Ended, true) => Interest::WRITABLE,
            (Input::Ended, false) => std::future::pending().await,
        };
        let Ok(mut guard) = self.terminal.ready(interest).await else {
            (self.input, self.output) = (Input::Ended, Output::Gone);
            return Input::Ended;
        };
        if guard.ready().is_writable() {
            self.output = write(&mut guard, &mut self.unsaid);
        }
        let mut ended = Input::Open;
        if self.input == Input::Open && guard.ready().is_readable() {
            self.input = read(&mut guard, &mut self.typed);
            ended = self.input;
        }
        drop(guard);
        if self.question.is_some() {
            self.typed.clear();
            self.pose();
        }
        ended
    }
}

fn write(guard: &mut AsyncFdReadyGuard<'_, OwnedFd>, unsaid: &mut Vec<u8>) -> Output {
    match rustix::io::write(guard.get_inner(), unsaid) {
        Ok(written) => {
            unsaid.drain(..written);
            Output::Open
        }
        Err(Errno::AGAIN) => {
            guard.clear_ready_matching(Ready::WRITABLE);
            Output::Open
        }
        Err(Errno::INTR) => Output::Open,
        Err(_) => {
            unsaid.clear();
            Output::Gone
        }
    }
}

fn read(guard: &mut AsyncFdReadyGuard<'_, OwnedFd>, typed: &mut Vec<u8>) -> Input {
    let mut bytes = [0; 1024];
    match rustix::io::read(guard.get_inner(), &mut bytes) {
        Ok(0) => Input::Ended,
        Ok(many) => {
            typed.extend_from_slice(&bytes[..many]);
            // More than a line can have is nothing that a person typed.
            if typed.len() > LONGEST_LINE && !typed.contains(&b'\n') {
                typed.push(b'\n');
            }
            Input::Open
        }
        Err(Errno::AGAIN) => {
            guard.clear_ready_matching(Ready::READABLE);
            Input::Open
        }
        Err(Errno::INTR) => Input::Open,
        Err(_) => Input::Ended,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use rustix::pty::OpenptFlags;

    use super::*;

    fn terminal() -> (File, Opened) {
        let keys = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal can be had");
        rustix::pty::grantpt(&keys).and_then(|()| rustix::pty::unlockpt(&keys)).expect("it is ours");
        let path = rustix::pty::ptsname(&keys, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty()).expect("it can be opened");
        (File::from(keys), Opened(opened))
    }

    /// Reads until the question has come.
    fn read_to_the_question(mut screen: &File) {
        let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
        while !seen.ends_with(b"well? ") {
            let count = screen.read(&mut bytes).expect("it can be read");
            seen.extend_from_slice(&bytes[..count]);
        }
    }

    /// The terminal takes no more, because nobody reads it: the question is not on it yet.
    #[tokio::test]
    async fn what_is_typed_before_the_question_can_be_read_is_no_answer() {
        const MOMENT: Duration = Duration::from_millis(200);
        let (mut keys, opened) = terminal();
        let mut console = Console::new(opened).expect("inside a runtime");
        console.say(&"evidence ".repeat(40_000));
        console.ask("well? ");
        assert!(tokio::time::timeout(MOMENT, console.line()).await.is_err());
        assert!(!console.unsaid.is_empty(), "it had room for everything");
        keys.write_all(b"too early\n").expect("it can be typed");
        assert!(tokio::time::timeout(MOMENT, console.line()).await.is_err());
        let screen = keys.try_clone().expect("a descriptor");
        tokio::select! {
            line = console.line() => panic!("{line} was taken for an answer"),
            read = tokio::task::spawn_blocking(move || read_to_the_question(&screen)) => read.expect("it came"),
        }
        keys.write_all(b"an answer\n").expect("it can be typed");
        assert_eq!(console.line().await, "an answer");
    }
}
