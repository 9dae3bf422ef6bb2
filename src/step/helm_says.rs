//! Reads what Helm says: warnings, its one error, and that it was cancelled.

use crate::process::Sign;
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

/// The most of them that become causes of a failure.
const MOST_CAUSES: usize = 10;

/// What a line becomes.
pub(crate) enum Heard {
    /// It is to be handed on as it is.
    Text,
    /// It was understood.
    Said(Option<Update>),
}

impl Says {
    /// Takes one line of standard error.
    pub(crate) fn take(&mut self, text: &str) -> Heard {
        if let Some(error) = text.strip_prefix("Error: ") {
            self.error = vec![error.to_owned()];
            return Heard::Said(None);
        }
        match warning(text) {
            Some(Logged::Warning(update)) => return Heard::Said(Some(update)),
            Some(Logged::Failed) => return Heard::Said(None),
            None => {}
        }
        if !self.error.is_empty() {
            if self.error.len() < MOST {
                self.error.push(text.to_owned());
            }
            return Heard::Said(None);
        }
        Heard::Text
    }

    /// The error's first line, without the words that say which command it was.
    pub(crate) fn summary(&self) -> Option<&str> {
        let first = self.error.first()?;
        let prefixes =
            ["UPGRADE FAILED: ", "INSTALLATION FAILED: ", "uninstallation completed with 1 or more errors: "];
        Some(prefixes.iter().find_map(|prefix| first.strip_prefix(prefix)).unwrap_or(first))
    }

    /// The error as a diagnostic. After a stop it is no error: it says that it stopped.
    pub(crate) fn diagnostic(&self, severity: Severity) -> Option<Update> {
        let summary = self.summary()?.to_owned();
        let detail = self.error[1..].join("\n").trim().to_owned();
        Some(diagnostic(severity, summary, detail))
    }

    /// The error's lines as causes, the summary first; none when there was no error.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        let rest = self.error.iter().skip(1).map(|line| line.trim()).filter(|line| !line.is_empty());
        self.summary().into_iter().chain(rest).take(MOST_CAUSES)
    }

    /// Whether it waited in vain.
    pub(crate) fn is_about_time(&self) -> bool {
        self.error.iter().any(|line| line.contains("deadline exceeded") || line.contains("timed out"))
    }

    /// Whether it misses a kind or a namespace that the cluster may have by the time of a real run.
    pub(crate) fn is_about_order(&self) -> bool {
        self.error.iter().any(|line| {
            line.contains("no matches for kind")
                || line.contains("ensure CRDs are installed first")
                || line.contains("namespaces \"") && line.contains("not found")
        })
    }

    /// Whether it read the chart, and then could not do with the values what the chart asks for.
    pub(crate) fn is_about_values(&self) -> bool {
        const SIGNS: [&str; 5] = [
            "executing \"",
            "execution error at",
            "values don't meet the specifications",
            "error converting YAML to JSON",
            "unable to build kubernetes objects",
        ];
        self.error.iter().any(|line| SIGNS.iter().any(|sign| line.contains(sign)))
    }
}

fn diagnostic(severity: Severity, summary: String, detail: String) -> Update {
    Update::Diagnostic { severity, origin: "Helm".to_owned(), summary, detail, address: None, source: None }
}

/// What a line of a log is.
enum Logged {
    /// A warning.
    Warning(Update),
    /// That the work failed: the error says it again.
    Failed,
}

/// Reads a warning in one of Helm 3's forms (`WARNING: …`, `W1130 …] …`) or Helm 4's (`level=WARN msg=…`).
fn warning(line: &str) -> Option<Logged> {
    let told = |summary: String, detail: &str| {
        Some(Logged::Warning(diagnostic(Severity::Warning, summary, detail.trim().to_owned())))
    };
    if let Some(text) = line.strip_prefix("WARNING: ").or_else(|| logged_by_helm_3(line)) {
        return told(text.to_owned(), "");
    }
    let rest = line.split_once("level=WARN msg=")?.1;
    let (message, rest) = logged(rest);
    if ["upgrade failed", "install failed", "uninstall failed", "rollback failed"].contains(&message.as_str()) {
        return Some(Logged::Failed);
    }
    told(message, rest)
}

/// What follows `W1130 07:53:49.000000 42 warnings.go:70] ` (the API server's warnings) or `coalesce.go:286: warning: `.
fn logged_by_helm_3(line: &str) -> Option<&str> {
    if let Some((place, text)) = line.split_once(": warning: ") {
        return place.contains(".go:").then_some(text);
    }
    let (head, text) = line.split_once("] ")?;
    let date = head.strip_prefix('W')?.get(..4)?;
    (date.bytes().all(|byte| byte.is_ascii_digit()) && head.contains(".go:")).then_some(text)
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
        match says.take(text) {
            Heard::Said(said) => said,
            Heard::Text => Some(Update::Note("text".to_owned())),
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
        let klog = "W1130 07:53:49.000000    6078 warnings.go:70] would violate PodSecurity";
        assert_eq!(hear(&mut says, klog), warned("would violate PodSecurity", ""));
        let merged = "coalesce.go:286: warning: cannot overwrite table with non table";
        assert_eq!(hear(&mut says, merged), warned("cannot overwrite table with non table", ""));
        assert_eq!(hear(&mut says, "W113 x.go:1] no"), Some(Update::Note("text".to_owned())));
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
        assert_eq!(says.diagnostic(Severity::Error), Some(expected));
        assert_eq!(says.lines().count(), 2);
        assert!(says.is_about_time() && !says.is_about_order());
    }

    #[test]
    fn a_cancelled_release_is_a_sign() {
        assert_eq!(signs("Release dc-demo has been cancelled."), Some(Sign::Interrupted));
        assert_eq!(signs("Release \"dc-demo\" has been upgraded. Happy Helming!"), None);
    }
}
