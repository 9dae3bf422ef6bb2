//! What a preflight says: one line for each thing that was looked at, and the exit code of all of them.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure::{Code, Failure};
use crate::redact::Redactor;

/// How grave a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// A run would go on, and whoever starts it should know.
    Warning,
    /// A run would end here.
    Failure,
}

impl Level {
    /// The word in front of a line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failure => "failure",
        }
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Check {
    /// What was looked at: a name that does not change.
    pub(crate) id: &'static str,
    /// Which of them, where there are several of this name.
    pub(crate) about: Option<String>,
    /// How grave it is.
    pub(crate) level: Level,
    /// What was found, in one sentence.
    pub(crate) message: String,
    /// What lies beneath, outermost first.
    pub(crate) causes: Vec<String>,
    /// What to do; none where there is nothing to do.
    pub(crate) fix: Option<String>,
    /// The failure code that a run would end with.
    pub(crate) code: Option<Code>,
    /// The same for machines; which fields there are depends on the name.
    pub(crate) facts: Map<String, Value>,
}

impl Check {
    /// One that is as it should be.
    pub(crate) fn ok(id: &'static str, message: impl Into<String>) -> Check {
        let (about, causes, fix, code) = (None, Vec::new(), None, None);
        Check { id, about, level: Level::Ok, message: message.into(), causes, fix, code, facts: Map::new() }
    }

    /// One that whoever starts a run should know of.
    pub(crate) fn warning(id: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Check {
        Check { level: Level::Warning, fix: Some(fix.into()), ..Check::ok(id, message) }
    }

    /// One that a run would end at.
    pub(crate) fn failure(id: &'static str, failure: &Failure) -> Check {
        let hints =
            if failure.hints.is_empty() { failure.code.row().remedy.to_owned() } else { failure.hints.join("; ") };
        Check {
            level: Level::Failure,
            causes: failure.causes.clone(),
            fix: Some(hints),
            code: Some(failure.code),
            ..Check::ok(id, failure.message.clone())
        }
    }

    /// The same, where a run would go on all the same.
    #[must_use]
    pub(crate) fn only_warned(mut self) -> Check {
        self.level = self.level.min(Level::Warning);
        self.code = None;
        self
    }

    /// About one of several.
    #[must_use]
    pub(crate) fn about(mut self, about: impl Into<String>) -> Check {
        self.about = Some(about.into());
        self
    }

    /// With a fact for machines.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Check {
        self.facts.insert(name.to_owned(), value.into());
        self
    }

    /// The same without anything that must never be said.
    #[must_use]
    pub(crate) fn without_secrets(self, redactor: &Redactor) -> Check {
        let clean = |text: String| redactor.text(&text).into_owned();
        let facts = self.facts.into_iter().map(|(name, value)| (name, clean_value(value, redactor))).collect();
        Check {
            about: self.about.map(clean),
            message: clean(self.message),
            causes: self.causes.into_iter().map(clean).collect(),
            fix: self.fix.map(clean),
            facts,
            ..self
        }
    }

    /// Nothing of it twice: a later check that failed for the reason of an earlier one is left out.
    pub(crate) fn repeats(&self, earlier: &[Check]) -> bool {
        self.level == Level::Failure
            && earlier.iter().any(|known| known.code == self.code && known.message == self.message)
    }

    /// The exit status that it asks for. What a run could end with besides these has to do with where it runs.
    fn exit(&self) -> u8 {
        match (self.level, self.code.map_or(4, Code::exit)) {
            (Level::Ok | Level::Warning, _) => 0,
            (Level::Failure, known @ (3 | 5 | 6)) => known,
            (Level::Failure, _) => 4,
        }
    }
}

fn clean_value(value: Value, redactor: &Redactor) -> Value {
    match value {
        Value::String(text) => Value::String(redactor.text(&text).into_owned()),
        Value::Array(values) => values.into_iter().map(|value| clean_value(value, redactor)).collect(),
        Value::Object(values) => values.into_iter().map(|(name, value)| (name, clean_value(value, redactor))).collect(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}

/// The exit status of them all: of the failures the one that has to be mended first. What is wrong with the configuration
/// comes before the surroundings, these before what is forbidden, and that before what a guard refuses.
pub(crate) fn exit_code(checks: &[Check]) -> u8 {
    checks.iter().map(Check::exit).filter(|exit| *exit != 0).min().unwrap_or(0)
}

/// The gravest of them.
pub(crate) fn gravest(checks: &[Check]) -> Level {
    checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: Code) -> Check {
        Check::failure("any", &Failure::new(code, "it went wrong"))
    }

    #[test]
    fn every_failure_code_has_one_of_the_five_exit_codes() {
        for row in crate::failure::TABLE {
            let expected = if [3, 5, 6].contains(&row.exit) { row.exit } else { 4 };
            assert_eq!(exit_code(&[failed(row.code)]), expected, "{}", row.name);
        }
        assert_eq!(exit_code(&[]), 0);
    }

    #[test]
    fn the_exit_code_is_that_of_what_has_to_be_mended_first() {
        let (three, four) = (failed(Code::BundleInvalid), failed(Code::ToolMissing));
        let (five, six) = (failed(Code::Forbidden), failed(Code::StateMissing));
        let ok = Check::ok("any", "fine");
        let warned = failed(Code::StateMissing).only_warned();
        let rows: [(&[&Check], u8, Level); 8] = [
            (&[&ok], 0, Level::Ok),
            (&[&ok, &warned], 0, Level::Warning),
            (&[&six, &warned, &ok], 6, Level::Failure),
            (&[&six, &five], 5, Level::Failure),
            (&[&five, &four, &six], 4, Level::Failure),
            (&[&six, &three, &four], 3, Level::Failure),
            (&[&warned, &five], 5, Level::Failure),
            (&[&four, &four], 4, Level::Failure),
        ];
        for (checks, exit, level) in rows {
            let checks: Vec<Check> = checks.iter().copied().cloned().collect();
            assert_eq!((exit_code(&checks), gravest(&checks)), (exit, level), "{checks:?}");
        }
    }

    #[test]
    fn a_failure_says_what_to_do_even_where_nobody_thought_of_it() {
        let plain = failed(Code::ToolMissing);
        assert_eq!(plain.fix.as_deref(), Some(Code::ToolMissing.row().remedy));
        let hinted = Check::failure("any", &Failure::new(Code::ToolMissing, "gone").hint("do this").hint("or that"));
        assert_eq!(hinted.fix.as_deref(), Some("do this; or that"));
        let warned = hinted.only_warned();
        assert_eq!(
            (warned.level, warned.code, warned.fix.as_deref()),
            (Level::Warning, None, Some("do this; or that"))
        );
        assert_eq!(Check::ok("any", "fine").only_warned().level, Level::Ok);
    }

    #[test]
    fn the_same_failure_is_said_once() {
        let said = [failed(Code::StateMissing)];
        assert!(failed(Code::StateMissing).repeats(&said));
        assert!(!failed(Code::StateErrored).repeats(&said));
        assert!(!Check::ok("any", "it went wrong").repeats(&said));
    }
}
