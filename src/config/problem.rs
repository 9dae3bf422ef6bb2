//! What is wrong with a configuration: collected, sorted, and said at once.

use std::collections::BTreeSet;

use crate::config::tree::Position;
use crate::failure::{Code, Failure};

/// More than this many are not read anyway; the rest is counted, and nobody searches for what might have been meant.
pub(crate) const MOST: usize = 20;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) place: Place,
    /// What is wrong and what to write instead, without a full stop.
    pub(crate) what: String,
    /// What the caller does about it.
    pub(crate) mend: Mend,
}

/// What a caller does about a mistake, where the remedy of its code would be too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mend {
    /// What the code's own remedy says.
    AsCoded,
    /// A variable is missing.
    GiveVariable,
    /// A secret is missing, or was given where everybody sees it.
    GiveSecret,
    /// Nobody asks for it.
    Rename,
    /// It has another type.
    Retype,
}

impl Mend {
    fn hint(self) -> Option<&'static str> {
        match self {
            Mend::AsCoded => None,
            Mend::GiveVariable => Some("Give the variable with --var, --var-file or DCCTL_VAR_NAME."),
            Mend::GiveSecret => Some("Give the secret with --var-file or DCCTL_VAR_NAME; --var is not for secrets."),
            Mend::Rename => Some("Correct the name of the variable, or leave it out."),
            Mend::Retype => Some("Give the variable a value of the type that the message names."),
        }
    }
}

/// Where a mistake is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In a file that has positions, at a field.
    File { file: String, at: Option<Position>, field: String },
    /// Somewhere else, by the name that people know it by: `--var replicas`.
    Elsewhere(String),
}

/// The mistakes found so far, each once. The bundle's own come first, because whoever gives a variable cannot mend them;
/// then the order is that of the file.
#[derive(Debug, Default)]
pub(crate) struct Problems(BTreeSet<Problem>);

impl Problem {
    pub(crate) fn elsewhere(place: impl Into<String>, what: impl Into<String>) -> Problem {
        Problem::new(Code::VariableInvalid, Place::Elsewhere(place.into()), what)
    }

    pub(crate) fn new(code: Code, place: Place, what: impl Into<String>) -> Problem {
        Problem { code, place, what: what.into(), mend: Mend::AsCoded }
    }

    /// With what the caller does about it.
    pub(crate) fn mended_by(self, mend: Mend) -> Problem {
        Problem { mend, ..self }
    }

    fn sentence(&self) -> String {
        self.place.sentence(&self.what)
    }
}

impl Place {
    /// The place, and what is to be said about it.
    pub(crate) fn sentence(&self, what: &str) -> String {
        match self {
            Place::Elsewhere(place) => format!("{place}: {what}"),
            Place::File { file, at, field } => {
                let at = at.map_or_else(String::new, |at| format!(":{}:{}", at.line, at.column));
                let field = if field.is_empty() { String::new() } else { format!(" {field}:") };
                format!("{file}{at}:{field} {what}")
            }
        }
    }
}

impl Problems {
    pub(crate) fn add(&mut self, problem: Problem) {
        self.0.insert(problem);
    }

    /// All of them as one failure, or none.
    pub(crate) fn into_failure(self) -> Option<Failure> {
        let first = self.0.first()?;
        let mut failure = match self.0.len() {
            1 => Failure::new(first.code, first.sentence()),
            all => Failure::new(first.code, format!("{} (the first of {all} mistakes)", first.sentence())),
        };
        for problem in self.0.iter().take(MOST).skip(1) {
            failure = failure.cause(problem.sentence());
        }
        if self.0.len() > MOST {
            failure = failure.cause(format!("and {} more", self.0.len() - MOST));
        }
        // Who has mistakes of the bundle to mend is not told about variables yet.
        let mends: BTreeSet<Mend> =
            self.0.iter().filter(|problem| problem.code == first.code).map(|problem| problem.mend).collect();
        let first_hint = mends.contains(&Mend::AsCoded).then(|| first.code.row().remedy);
        let hints: Vec<&str> = mends.iter().filter_map(|mend| mend.hint()).collect();
        if hints.is_empty() {
            return Some(failure);
        }
        Some(hints.into_iter().chain(first_hint).fold(failure, Failure::hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u64, code: Code, what: &str) -> Problem {
        let at = Some(Position { line, column: 3 });
        Problem::new(code, Place::File { file: "b.yaml".to_owned(), at, field: "verify[0]".to_owned() }, what)
    }

    #[test]
    fn what_to_do_is_about_what_is_wrong() {
        let hints = |mends: &[Mend]| {
            let mut problems = Problems::default();
            for mend in mends {
                problems.add(Problem::elsewhere("--var x", format!("{mend:?}")).mended_by(*mend));
            }
            problems.into_failure().expect("a failure").hints
        };
        assert_eq!(hints(&[Mend::AsCoded]), Vec::<String>::new());
        for (mend, says) in [
            (Mend::GiveVariable, "--var, --var-file or DCCTL_VAR_NAME"),
            (Mend::GiveSecret, "--var is not for secrets"),
            (Mend::Rename, "Correct the name"),
            (Mend::Retype, "of the type"),
        ] {
            assert!(matches!(hints(&[mend]).as_slice(), [only] if only.contains(says)), "{mend:?}");
        }
        assert_eq!(hints(&[Mend::Retype, Mend::Rename, Mend::Rename]).len(), 2);
        assert_eq!(hints(&[Mend::AsCoded, Mend::Rename]).last(), Some(&Code::VariableInvalid.row().remedy.to_owned()));
    }

    #[test]
    fn the_bundles_own_mistakes_come_first_and_then_the_order_of_the_file() {
        let mut problems = Problems::default();
        problems.add(at(2, Code::VariableInvalid, "not given"));
        problems.add(at(9, Code::BundleInvalid, "unknown key"));
        problems.add(at(4, Code::BundleInvalid, "wrong"));
        problems.add(at(4, Code::BundleInvalid, "wrong"));
        let failure = problems.into_failure().expect("a failure");
        assert_eq!(failure.code, Code::BundleInvalid);
        assert_eq!(failure.message, "b.yaml:4:3: verify[0]: wrong (the first of 3 mistakes)");
        assert_eq!(failure.causes, ["b.yaml:9:3: verify[0]: unknown key", "b.yaml:2:3: verify[0]: not given"]);
    }

    #[test]
    fn what_nobody_reads_is_counted() {
        let mut problems = Problems::default();
        for line in 1..=25 {
            problems.add(at(line, Code::BundleInvalid, "wrong"));
        }
        let failure = problems.into_failure().expect("a failure");
        assert_eq!(failure.causes.len(), 20);
        assert_eq!(failure.causes.last().map(String::as_str), Some("and 5 more"));
        assert_eq!(Problems::default().into_failure(), None);
    }
}
