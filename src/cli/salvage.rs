//! What can still be read of a wrong command line: where its failure is to be reported. (What the environment says about
//! that is read by whoever has the environment.)
//!
//! clap stops at the first mistake. A CI job that mistyped one flag still expects its JUnit file and its event file,
//! so the few options that say where reports go are looked for by themselves.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::Output;

/// Options that take no value. Every other one would take the word after it along.
const TAKE_NO_VALUE: [&str; 11] = [
    "build",
    "wait",
    "keep-output",
    "no-force-conflicts",
    "stdin",
    "propagate-exit-code",
    "help",
    "version",
    "abandon-infrastructure",
    "allow-replace",
    "allow-downgrade",
];

/// The commands that are given an instance.
const TAKE_AN_INSTANCE: [&str; 3] = ["bootstrap", "upgrade", "destroy"];

/// The parts of a wrong command line that say where to report it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// The command.
    pub verb: Option<String>,
    /// The instance, for a command that takes one.
    pub instance: Option<String>,
    /// `--output`.
    pub output: Option<Output>,
    /// `--events-file`.
    pub events_file: Option<PathBuf>,
    /// `--junit`.
    pub junit: Option<PathBuf>,
    /// `--dry-run`.
    pub dry_run: bool,
}

impl Salvaged {
    /// Looks through the words after the program's name.
    pub fn from_words(words: &[OsString]) -> Salvaged {
        let mut salvaged = Salvaged::default();
        let mut words = words.iter().skip(1).peekable();
        while let Some(word) = words.next() {
            let Some(text) = word.to_str() else { continue };
            if text == "--" {
                // What follows is another program's.
                break;
            }
            let Some(option) = text.strip_prefix("--") else {
                if salvaged.verb.is_none() {
                    salvaged.verb = Some(text.to_owned());
                } else if salvaged.instance.is_none()
                    && salvaged.verb.as_deref().is_some_and(|verb| TAKE_AN_INSTANCE.contains(&verb))
                {
                    salvaged.instance = Some(text.to_owned());
                }
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (option, None),
            };
            if name == "dry-run" {
                salvaged.dry_run = true;
            } else if matches!(name, "output" | "events-file" | "junit") {
                let value = value.or_else(|| words.next().cloned());
                salvaged.keep(name, value);
            } else if value.is_none() && words.peek().is_some_and(|next| !next.to_string_lossy().starts_with('-')) {
                // Most options take a value; without this the value would be read as the command or the instance.
                if !TAKE_NO_VALUE.contains(&name) {
                    words.next();
                }
            }
        }
        salvaged
    }

    fn keep(&mut self, name: &str, value: Option<OsString>) {
        let Some(value) = value else { return };
        match name {
            "output" => self.output = value.to_str().and_then(Output::parse),
            "events-file" => self.events_file = Some(value.into()),
            _ => self.junit = Some(value.into()),
        }
    }
}
