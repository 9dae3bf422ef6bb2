//! The terminal, if there is one: the only place that opens standard output and standard error.

use std::io::{IsTerminal, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::cli::{Color as Wanted, Output};
use crate::commands::Desk;
use crate::commands::wrap::wrapped;
use crate::config::env::Color as Hint;
use crate::front::{Form, LineEnd, Ours, Showing, Streams, Terminal, Theirs};
use crate::process;
use crate::redact::Redactor;
use crate::report::human::{Again, Color, Options, Screen, ToolOutput};

/// Columns where there is no terminal to ask: what CI systems show without wrapping.
const PLAIN_WIDTH: usize = 100;

/// Standard output.
#[expect(clippy::disallowed_methods, reason = "this is the one place that opens standard output")]
pub(crate) fn stdout() -> Box<dyn Write + Send> {
    Box::new(std::io::stdout())
}

/// Standard error.
#[expect(clippy::disallowed_methods, reason = "this is the one place that opens standard error")]
pub(crate) fn stderr() -> Box<dyn Write + Send> {
    Box::new(std::io::stderr())
}

/// Standard input.
pub(crate) fn stdin() -> Box<dyn Read + Send> {
    Box::new(std::io::stdin())
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that looks at standard output")]
fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// How a run is shown, from what was asked for and where it goes.
pub(crate) fn showing(desk: &Desk, output: Option<Output>, color: Wanted) -> Showing {
    let terminal = stdout_is_terminal();
    let output = output.unwrap_or(if terminal { Output::Human } else { Output::Jsonl });
    let form = match output {
        Output::Jsonl => Form::Jsonl,
        Output::Human => Form::Human(Options {
            color: if is_coloured(color, desk.environment.color(), terminal) { Color::On } else { Color::Off },
            screen: if terminal { Screen::Live } else { Screen::Plain },
            width: width().unwrap_or(PLAIN_WIDTH),
            output: ToolOutput::OnFailure,
            again: again(),
        }),
    };
    Showing { out: stdout(), complaints: stderr(), form, clock: desk.clock.clone(), width, streams: None }
}

/// How the log of a recorded run is written, to a file or to standard output.
pub(crate) fn whole_log(desk: &Desk, color: Wanted, file: Option<&Path>) -> Options {
    let terminal = file.is_none() && stdout_is_terminal();
    Options {
        color: if is_coloured(color, desk.environment.color(), terminal) { Color::On } else { Color::Off },
        screen: Screen::Plain,
        width: width().filter(|_| terminal).unwrap_or(PLAIN_WIDTH),
        output: ToolOutput::OnFailure,
        again: Again::Nothing,
    }
}

/// How a run of one command is shown. For people its outputs are passed on as they are, and our own lines go to standard
/// error, so standard output has the command's output and nothing else. That is what a command is run with, so it is the
/// default, whatever standard output is.
pub(crate) fn showing_beside_a_command(desk: &Desk, output: Option<Output>, color: Wanted) -> Showing {
    match output.unwrap_or(Output::Human) {
        Output::Jsonl => showing(desk, Some(Output::Jsonl), color),
        Output::Human => {
            let terminal = stderr_is_terminal();
            let ended = LineEnd::default();
            let shared = if is_same_place() { ended.clone() } else { LineEnd::default() };
            let streams = Streams {
                stdout: Box::new(Theirs::new(stdout(), &shared)),
                stderr: Box::new(Theirs::new(stderr(), &ended)),
            };
            let form = Form::Human(Options {
                color: if is_coloured(color, desk.environment.color(), terminal) { Color::On } else { Color::Off },
                // A line that is drawn again and again would be drawn into what the command prints.
                screen: if terminal { Screen::Shared } else { Screen::Plain },
                width: width_of(rustix::stdio::stderr()).unwrap_or(PLAIN_WIDTH),
                output: ToolOutput::Elsewhere,
                again: again(),
            });
            let out = Box::new(Ours::new(stderr(), &ended));
            let clock = desk.clock.clone();
            Showing { out, complaints: stderr(), form, clock, width: || None, streams: Some(streams) }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that looks at standard error")]
fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether standard output and standard error are one file, pipe or terminal.
fn is_same_place() -> bool {
    let place = |descriptor| rustix::fs::fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let stdout = place(rustix::stdio::stdout());
    stdout.is_some() && stdout == place(rustix::stdio::stderr())
}

fn is_coloured(wanted: Wanted, hint: Hint, terminal: bool) -> bool {
    match (wanted, hint) {
        (Wanted::Always, _) | (Wanted::Auto, Hint::Always) => true,
        (Wanted::Never, _) | (Wanted::Auto, Hint::Never) => false,
        (Wanted::Auto, Hint::OnTerminal) => terminal,
    }
}

/// A text of ours as it is printed: wrapped where standard output is a terminal, as it is everywhere else.
pub(crate) fn fitted(text: &str) -> String {
    width().map_or_else(|| text.to_owned(), |width| wrapped(text, width))
}

/// A word of somebody else's without anything that a terminal would act on.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).collect()
}

/// The columns of the terminal that standard output is.
fn width() -> Option<usize> {
    width_of(rustix::stdio::stdout())
}

pub(crate) fn width_of(terminal: BorrowedFd<'_>) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col >= 20).then_some(usize::from(size.ws_col))
}

/// Whether a person's Ctrl+C reaches this process: standard input is a terminal whose foreground group we are in.
pub(crate) fn foreground() -> Terminal {
    let stdin = rustix::stdio::stdin();
    match rustix::termios::tcgetpgrp(stdin) {
        Ok(front) if front.as_raw_nonzero().get().unsigned_abs() == process::own_group() => Terminal::Foreground,
        Ok(_) | Err(_) => Terminal::None,
    }
}

/// What a second Ctrl+C does: only one that reaches the front from its terminal is force.
fn again() -> Again {
    if foreground() == Terminal::Foreground { Again::Forces } else { Again::Nothing }
}

/// Standard error as the writer of the program's own diagnostics: without secrets, and what cannot be written is lost
/// without a word. A line is one write.
#[expect(clippy::disallowed_methods, reason = "this is the one place that opens standard error")]
pub(crate) fn log(redactor: &Redactor) -> impl Fn() -> Lossy + Send + Sync + 'static {
    let redactor = redactor.clone();
    move || Lossy { out: std::io::stderr(), redactor: redactor.clone() }
}

/// A writer that never fails.
pub(crate) struct Lossy {
    out: std::io::Stderr,
    redactor: Redactor,
}

impl Write for Lossy {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let _ = self.out.write_all(self.redactor.text(&text).as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let _ = self.out.flush();
        Ok(())
    }
}
