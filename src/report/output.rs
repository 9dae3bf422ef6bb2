//! What a tool printed, as reports keep it: the end of it, readable.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde::Deserialize;

use crate::event::ProcessOutput;
use crate::event::text::plain;

/// The end of what tools printed in one step, within a number of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    bytes: usize,
    most_bytes: usize,
    /// How many lines came before those that are kept.
    left_out: u64,
    /// How the last piece ended.
    last: PieceEnd,
}

/// How a piece of output ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceEnd {
    /// With its line.
    Line,
    /// In the middle of a line, which goes on in the next piece.
    Middle,
}

impl PieceEnd {
    /// The end of what an event carries.
    pub(crate) fn of(output: &ProcessOutput) -> PieceEnd {
        if output.more { PieceEnd::Middle } else { PieceEnd::Line }
    }
}

impl Tail {
    pub(crate) fn new(most_bytes: usize) -> Tail {
        Tail { lines: VecDeque::new(), bytes: 0, most_bytes, left_out: 0, last: PieceEnd::Line }
    }

    /// Takes one piece of output.
    pub(crate) fn push(&mut self, text: &str, end: PieceEnd) {
        let text = readable(text);
        match self.lines.back_mut() {
            Some(last) if self.last == PieceEnd::Middle => {
                // One endless line is kept to its first pieces: it is no use to a reader beyond them.
                if last.len() + text.len() <= self.most_bytes / 2 {
                    last.push_str(&text);
                    self.bytes += text.len();
                }
            }
            Some(_) | None => {
                self.bytes += text.len() + 1;
                self.lines.push_back(text.into_owned());
            }
        }
        self.last = end;
        while self.bytes > self.most_bytes && self.lines.len() > 1 {
            let line = self.lines.pop_front().expect("more than one line");
            self.bytes -= line.len() + 1;
            self.left_out += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The last `most` lines, oldest first, and how many were before them.
    pub(crate) fn last(&self, most: usize) -> (u64, impl Iterator<Item = &str>) {
        let skipped = self.lines.len().saturating_sub(most);
        (self.left_out + skipped as u64, self.lines.iter().skip(skipped).map(String::as_str))
    }

    /// Everything that is kept.
    pub(crate) fn text(&self) -> String {
        let (left_out, lines) = self.last(usize::MAX);
        let mut text = String::new();
        if left_out > 0 {
            text = format!("[{left_out} earlier lines are left out]\n");
        }
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        text
    }
}

/// A line as a person wants to see it: of OpenTofu's machine-readable lines the message.
pub(crate) fn readable(text: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Machine {
        #[serde(rename = "@message")]
        message: String,
    }
    if text.starts_with("{\"@")
        && let Ok(Machine { message }) = serde_json::from_str(text)
    {
        return Cow::Owned(plain(&message).into_owned());
    }
    plain(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_what_is_missing_is_counted() {
        let mut tail = Tail::new(12);
        for line in ["one", "two", "three", "four"] {
            tail.push(line, PieceEnd::Line);
        }
        assert_eq!(tail.text(), "[2 earlier lines are left out]\nthree\nfour\n");
        let (before, lines) = tail.last(1);
        assert_eq!((before, lines.collect::<Vec<_>>()), (3, vec!["four"]));
    }

    #[test]
    fn pieces_of_a_line_are_joined_and_an_endless_line_is_not_kept_whole() {
        let mut tail = Tail::new(40);
        tail.push("a", PieceEnd::Middle);
        tail.push("b", PieceEnd::Line);
        tail.push("c", PieceEnd::Line);
        assert_eq!(tail.text(), "ab\nc\n");
        for _ in 0..100 {
            tail.push("0123456789", PieceEnd::Middle);
        }
        assert!(tail.text().len() < 40, "{}", tail.text());
    }

    #[test]
    fn of_machine_readable_lines_the_message_is_shown() {
        assert_eq!(readable(r#"{"@level":"info","@message":"a: Creating...","type":"x"}"#), "a: Creating...");
        assert_eq!(readable("{\"@level\" torn"), "{\"@level\" torn");
        assert_eq!(readable("\u{1b}[1mbold"), "bold");
    }
}
