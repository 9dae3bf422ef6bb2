//! Reads what Helm says: warnings, its one error, and that it was cancelled.

use crate::process::{self, Sign, Stream};
use crate::step::{Severity, Update};

/// What one line tells about Helm.
pub(crate) fn signs(line: &str) -> Option<Sign> {
    (line.starts_with("Release ") && line.ends_with(" has been cancelled.")).then_some(Sign::Interrupted)
}

/// Keeps the account of what one Helm process says on standard error.
#[derive(Debug, Default)]
pub(crate) struct Says {
    /// The error, from its first line on.
    error: Vec<String>,
}

/// The most lines of an error that are kept.
const MOST: usize = 50;

/// What a line becomes.
pub(crate) enum Heard {
    /// It is to be handed on as it is.
    Text(process::Update),
    /// It was understood.
    Said(Option<Update>),
}

impl Says {
    /// Takes one update of the process.
    pub(crate) fn take(&mut self, update: process::Update) -> Heard {
        let process::Update::Line { stream: Stream::Stderr, text, .. } = &update else { return Heard::Text(update) };
        if let Some(error) = text.strip_prefix("Error: ") {
            self.error = vec![error.to_owned()];
            return Heard::Said(None);
        }
        match warning(text) {
            Warning::Said(update) => return Heard::Said(Some(update)),
            Warning::SaidByTheError => return Heard::Said(None),
            Warning::None => {}
        }
        if !self.error.is_empty() {
            if self.error.len() < MOST {
                self.error.push(text.clone());
            }
            return Heard::Said(None);
        }
        Heard::Text(update)
    }

    /// The error's first line, without the words that say which command it was.
    pub(crate) fn summary(&self) -> Option<&str> {
        let first = self.error.first()?;
        let prefixes =
            ["UPGRADE FAILED: ", "INSTALLATION FAILED: ", "uninstallation completed with 1 or more errors: "];
        Some(prefixes.iter().find_map(|prefix| first.strip_prefix(prefix)).unwrap_or(first))
    }

    /// The error as a diagnostic.
    pub(crate) fn diagnostic(&self) -> Option<Update> {
        let summary = self.summary()?.to_owned();
        let detail = self.error[1..].join("\n").trim().to_owned();
        Some(diagnostic(Severity::Error, summary, detail))
    }
}

fn diagnostic(severity: Severity, summary: String, detail: String) -> Update {
    Update::Diagnostic { severity, origin: "Helm".to_owned(), summary, detail, address: None, source: None }
}

/// What a line says as a warning.
enum Warning {
    /// It is one.
    Said(Update),
    /// The error that follows says the same.
    SaidByTheError,
    /// It is none.
    None,
}

/// A warning in Helm 3's form (`WARNING: …`) or Helm 4's (`level=WARN msg=…`).
fn warning(line: &str) -> Warning {
    if let Some(text) = line.strip_prefix("WARNING: ") {
        return Warning::Said(diagnostic(Severity::Warning, text.to_owned(), String::new()));
    }
    let Some((_, rest)) = line.split_once("level=WARN msg=") else { return Warning::None };
    let (message, rest) = logged(rest);
    if ["upgrade failed", "install failed", "uninstall failed", "rollback failed"].contains(&message.as_str()) {
        return Warning::SaidByTheError;
    }
    Warning::Said(diagnostic(Severity::Warning, message, rest.trim().to_owned()))
}

/// The value at the beginning of a `key=value` text, quoted or not, and what follows it.
fn logged(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_once(' ').unwrap_or((text, ""));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push(' '),
                Some((_, escaped)) => value.push(escaped),
                None => {}
            },
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(says: &mut Says, text: &str) -> Option<Update> {
        let line = process::Update::Line { stream: Stream::Stderr, text: text.to_owned(), lossy: false, more: false };
        match says.take(line) {
            Heard::Said(said) => said,
            Heard::Text(_) => Some(Update::Note("text".to_owned())),
        }
    }

    #[test]
    fn a_warning_is_a_diagnostic_in_both_forms() {
        let mut says = Says::default();
        let warned =
            |summary: &str, detail: &str| Some(diagnostic(Severity::Warning, summary.to_owned(), detail.to_owned()));
        assert_eq!(hear(&mut says, "WARNING: old"), warned("old", ""));
        assert_eq!(hear(&mut says, "level=WARN msg=\"a \\\"b\\\" c\" name=r1"), warned("a \"b\" c", "name=r1"));
        assert_eq!(hear(&mut says, "time=x level=WARN msg=plain key=1"), warned("plain", "key=1"));
        assert_eq!(hear(&mut says, "level=WARN msg=\"upgrade failed\" name=r1 error=\"x\""), None);
        assert_eq!(hear(&mut says, "I1130 some log"), Some(Update::Note("text".to_owned())));
        assert_eq!(says.summary(), None);
    }

    #[test]
    fn an_error_is_its_first_line_and_the_rest() {
        let mut says = Says::default();
        assert_eq!(hear(&mut says, "Error: UPGRADE FAILED: resource Deployment/demo/app not ready"), None);
        assert_eq!(hear(&mut says, "context deadline exceeded"), None);
        let expected = diagnostic(
            Severity::Error,
            "resource Deployment/demo/app not ready".to_owned(),
            "context deadline exceeded".to_owned(),
        );
        assert_eq!(says.diagnostic(), Some(expected));
    }

    #[test]
    fn a_cancelled_release_is_a_sign() {
        assert_eq!(signs("Release dc-demo has been cancelled."), Some(Sign::Interrupted));
        assert_eq!(signs("Release \"dc-demo\" has been upgraded. Happy Helming!"), None);
    }
}
