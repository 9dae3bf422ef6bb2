//! What the process room says outwards: updates while a tool lives, and how it ended.

use std::fmt;
use std::time::Duration;

/// Which of a tool's two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A signal that we sent to a tool to make it stop by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolSignal {
    /// SIGINT, to the tool's process.
    Interrupt,
    /// SIGTERM, to the tool's process group.
    Terminate,
}

impl ToolSignal {
    /// `SIGINT` or `SIGTERM`.
    pub fn name(self) -> &'static str {
        match self {
            ToolSignal::Interrupt => "SIGINT",
            ToolSignal::Terminate => "SIGTERM",
        }
    }
}

/// Why we signalled a tool. A later one is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// A stop was asked for.
    StopRequested,
    /// It took longer than it may.
    TimedOut,
    /// The stop took longer than its budget.
    BudgetEnded,
    /// Force was asked for.
    Forced,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::StopRequested => "a stop was requested",
            Why::TimedOut => "its time was up",
            Why::BudgetEnded => "the stop budget was used up",
            Why::Forced => "force was requested",
        })
    }
}

/// What happened to a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// It runs.
    Started {
        /// Its process.
        pid: u32,
    },
    /// It said something.
    Line {
        /// Where.
        stream: Stream,
        /// One line without its end, or one piece of it; without control sequences.
        text: String,
        /// The line was not UTF-8; what could not be read is shown as U+FFFD.
        lossy: bool,
        /// The line was longer than a piece; the next update of this stream goes on with it.
        more: bool,
    },
    /// We asked it to stop.
    Interrupted {
        /// Its process; for SIGTERM also the number of its group.
        pid: u32,
        /// With what.
        signal: ToolSignal,
        /// Why.
        why: Why,
    },
    /// It says that it was interrupted.
    InterruptReported {
        /// How often it has said so by now. More than we sent: somebody else interrupted it too.
        times: u32,
        /// How many interrupts we had sent by then.
        sent: u32,
    },
    /// We sent SIGKILL.
    Killed {
        /// To which process.
        pid: u32,
        /// Why.
        why: Why,
    },
    /// Something that it started outlived it, or holds the output that it waits for. It is being ended.
    LeftBehind {
        /// The process.
        pid: u32,
        /// Its short name, as the kernel has it. Never its arguments: they may be secret.
        name: String,
        /// How long it has been running.
        age: Duration,
        /// How it belongs to the tool.
        ties: Vec<Tie>,
    },
    /// Something of the tool, or the tool itself, could not be ended, and is waited for no longer.
    Survived(Left),
    /// It left more behind than was named one by one.
    Unnamed(Crowd),
    /// Its output files find no room: so many bytes are in them. What it prints now is lost, and nobody can tell how much
    /// that is.
    NoRoom {
        /// What is there by now.
        kept: u64,
    },
    /// They find some again.
    RoomAgain {
        /// How long there was none.
        after: Duration,
    },
    /// Something of what it printed was not handed on.
    Unread {
        /// Where.
        stream: Stream,
        /// Why not.
        why: Unread,
    },
    /// Its process has ended. What it left behind is ended after this.
    Finished {
        /// How.
        exit: Exit,
        /// How long it ran.
        took: Duration,
    },
}

/// What a tool left behind that came and went too fast to be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowd {
    /// So many were found.
    Counted(usize),
    /// There was always somebody in its process group, and nobody who was looked at lived any more by then. They were ended
    /// as a group.
    Unseen,
}

/// Why something that a tool printed was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// Its output file was emptied, as opening `/dev/stdout` for writing does. Nobody can tell how much was lost.
    Emptied,
    /// It was more than could be read before the stop had to go on: so many bytes.
    GivenUp(u64),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It has ended, and only its parent could have learned how.
    Unknown,
    /// Nobody saw it end: dcctl stopped waiting.
    Unseen,
}

impl Exit {
    /// Whether it ended by itself and said that all went well.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exit status {code}"),
            Exit::Signal(signal) => write!(f, "signal {signal}"),
            Exit::Unknown => f.write_str("an exit status that nobody could read"),
            Exit::Unseen => f.write_str("an end that nobody saw"),
        }
    }
}

/// How a process belongs to a tool, as it was seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// It is the tool itself.
    Itself,
    /// The tool had started it, and is its parent still.
    Child,
    /// Another process of the tool is its parent.
    Descendant,
    /// Its parent has ended.
    Orphan,
    /// It is in the tool's process group.
    Group,
    /// The tool's mark is in its environment.
    Mark,
    /// It has the tool's output open.
    Output,
    /// It keeps a pipe open whose end the tool waits for.
    Pipe,
}

/// What became of something left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is gone.
    Ended,
    /// It was still there when dcctl stopped waiting for it.
    Alive,
}

/// A process that outlived the tool which started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The process.
    pub pid: u32,
    /// Its short name, as the kernel has it.
    pub name: String,
    /// How long it had been running when it was found.
    pub age: Duration,
    /// How it belongs to the tool.
    pub ties: Vec<Tie>,
    /// Its state when it was last seen, as the kernel writes it: `S`, `D`, `T`…
    pub state: char,
    /// What became of it.
    pub fate: Fate,
}

/// How a tool ended, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its process.
    pub pid: u32,
    /// How its process ended.
    pub exit: Exit,
    /// How often we interrupted it.
    pub interrupts_sent: u32,
    /// How often it said that it was interrupted.
    pub interrupts_reported: u32,
    /// Why we signalled it, the strongest reason; none when it ended by itself.
    pub why: Option<Why>,
    /// We sent it SIGKILL.
    pub killed: bool,
    /// What it left behind.
    pub left_behind: Vec<Left>,
    /// How long its process ran.
    pub took: Duration,
}

impl Ended {
    /// Whether it ended by itself after at most one interrupt, and nothing of it is left: what a clean stop needs.
    pub fn is_clean(&self) -> bool {
        let by_itself = matches!(self.exit, Exit::Code(_) | Exit::Unknown) && !self.killed;
        by_itself
            && self.interrupts_sent <= 1
            && self.interrupts_reported <= 1
            && self.left_behind.iter().all(|left| left.fate == Fate::Ended)
    }
}

/// Whether more lines can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Yes.
    Some,
    /// Not now. The output stays in its file until it is asked again.
    None,
}

/// Who takes a tool's updates. Any `FnMut(Update)` is one.
///
/// Facts are handed over whenever they happen. Lines are handed over only while there is [`Room::Some`]: the file is
/// the buffer, so a slow reader costs time and never memory.
pub trait Sink {
    /// Takes one update.
    fn take(&mut self, update: Update);

    /// Whether more lines can be taken; asked before each block of them.
    fn room(&self) -> Room {
        Room::Some
    }

    /// Where a line that is too long for one piece may be cut, at this place or before it: nothing that must stay
    /// whole to be known for a secret is divided. 0 when it may not be cut there at all.
    fn cut(&self, _line: &[u8], at: usize) -> usize {
        at
    }
}

impl<F: FnMut(Update)> Sink for F {
    fn take(&mut self, update: Update) {
        self(update);
    }
}
