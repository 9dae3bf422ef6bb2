//! The files of this repository as text, for the tests that hold the tree to its laws.
//!
//! Only what the laws need: a walk that skips what git does not keep, and a view of a Rust file without its comments
//! and, where asked for, without the contents of its strings. Offsets stay the same in every view, so that a finding
//! can name its line.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the tree.
pub(crate) struct Source {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    /// As it is on disk.
    pub(crate) text: String,
}

/// What a view of a Rust file keeps of its string literals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strings {
    /// Their contents stay: a path in a serde attribute is an import too.
    Kept,
    /// Their contents are blanked.
    Blanked,
}

impl Source {
    /// What follows the last dot of its name.
    pub(crate) fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, end)| end)
    }

    /// The number of the line that holds this offset, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.text[..offset].matches('\n').count() + 1
    }

    /// The line that holds this offset.
    pub(crate) fn line_text(&self, offset: usize) -> &str {
        self.text.lines().nth(self.line(offset) - 1).unwrap_or_default()
    }

    /// `path:line`, as editors understand it.
    pub(crate) fn place(&self, offset: usize) -> String {
        format!("{}:{}", self.path, self.line(offset))
    }

    /// The text with comments blanked by spaces; every byte keeps its offset.
    pub(crate) fn code(&self, strings: Strings) -> String {
        blank(&self.text, strings)
    }

    /// Where test code begins: at the start of a file of tests, at the test module of another, else at its end.
    pub(crate) fn tests_begin(&self) -> usize {
        if self.path.starts_with("tests/") || self.path.ends_with("tests.rs") || self.path.contains("/tests/") {
            return 0;
        }
        let gate = "#[cfg(test)]";
        let module = |at: &(usize, &str)| {
            let item = self.text[at.0 + gate.len()..].trim_start();
            item.starts_with("mod ") || item.starts_with("pub(crate) mod ")
        };
        self.text.match_indices(gate).find(module).map_or(self.text.len(), |(at, _)| at)
    }
}

/// The folder that holds `Cargo.toml`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file that belongs to the repository, in the order of their paths.
pub(crate) fn texts() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(root(), &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(root()).expect("the walk starts at the root");
        Some(Source { path: path.to_str()?.to_owned(), text })
    };
    paths.into_iter().filter_map(read).collect()
}

/// The Rust files under these folders.
pub(crate) fn rust(folders: &[&str]) -> Vec<Source> {
    let wanted = |file: &Source| file.extension() == "rs" && folders.iter().any(|folder| file.path.starts_with(folder));
    let found: Vec<_> = texts().into_iter().filter(wanted).collect();
    assert!(!found.is_empty(), "there is no Rust file under {folders:?}: the walk is broken");
    found
}

/// Fails with the law and everything that offends it, each on a line of its own.
#[track_caller]
pub(crate) fn obey(law: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{law}\n  {}", offences.join("\n  "));
}

/// The offsets at which this word stands alone in the text.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
    let skipped = ["target", "node_modules", "dist"];
    for entry in fs::read_dir(folder).expect("a folder of the tree can be read") {
        let entry = entry.expect("an entry of the tree can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("an entry has a type");
        if kind.is_dir() && !skipped.contains(&name.as_str()) && (!name.starts_with('.') || name == ".ci") {
            walk(&entry.path(), into);
        } else if kind.is_file() && name != ".git" {
            into.push(entry.path());
        }
    }
}

fn blank(text: &str, strings: Strings) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, keep) = match first {
            '/' if rest.starts_with("//") => (rest.find('\n').unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => (block_comment(rest), false),
            '"' => (string(rest), strings == Strings::Kept),
            'r' if !ends_in_word(&out) && raw_string(rest).is_some() => {
                (raw_string(rest).expect("looked at just now"), strings == Strings::Kept)
            }
            '\'' => (character(rest), true),
            _ => (first.len_utf8(), true),
        };
        let (piece, after) = rest.split_at(length);
        if keep {
            out.push_str(piece);
        } else {
            out.extend(piece.chars().map(|c| if c == '\n' { "\n".to_owned() } else { " ".repeat(c.len_utf8()) }));
        }
        rest = after;
    }
    out
}

fn ends_in_word(text: &str) -> bool {
    // A `b` before the `r` is the prefix of a byte string, not a word.
    text.strip_suffix('b').unwrap_or(text).ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
        } else if let Some(c) = rest.chars().next() {
            at += c.len_utf8();
        } else {
            return at;
        }
        if depth == 0 {
            return at;
        }
    }
}

fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str) -> Option<usize> {
    let hashes = text[1..].chars().take_while(|c| *c == '#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(body.find(&end).map_or(text.len(), |at| 1 + hashes + 1 + at + end.len()))
}

/// A character literal, or the quote of a lifetime alone.
fn character(text: &str) -> usize {
    let mut inner = text.char_indices().skip(1);
    match inner.next() {
        Some((_, '\\')) => text[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 3),
        Some(_) => inner.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}

#[test]
fn a_view_of_code_has_no_comments_and_keeps_every_offset() {
    let text = "a // b \"c\"\n'\"' /* d /* e */ f */ \"g // h\" r#\"i \" // j\"# 'k' &'l m '\\'' é // é";
    let kept = blank(text, Strings::Kept);
    assert_eq!(kept.trim_end(), "a         \n'\"'                   \"g // h\" r#\"i \" // j\"# 'k' &'l m '\\'' é");
    assert_eq!(kept.len(), text.len());
    let blanked = blank(text, Strings::Blanked);
    assert!(!blanked.contains("g //") && !blanked.contains('j') && blanked.contains("&'l m"));
    assert_eq!(blanked.len(), text.len());
}
