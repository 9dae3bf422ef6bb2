//! What the end of `helm upgrade` means: done, failed, stopped. Pure.
//!
//! Its exit status is 1 for "failed" and for "stopped" alike, and it has been seen to say "context canceled" about a
//! release that it had deployed. So the release's own record decides, together with what we did to the process.

use crate::failure::{Code, Failure};
use crate::process::{Ended, Exit};
use crate::step::helm_release::Revision;
use crate::step::helm_says::Says;
use crate::step::{Outcome, Stopped};

/// What a look at the release's record showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// The look failed; why.
    Unread(String),
    /// This Helm had not begun a revision.
    Untouched,
    /// This is the revision that it began.
    At(Revision),
}

/// A Helm that has ended.
pub(crate) struct Upgraded<'a> {
    /// The release.
    pub(crate) release: &'a str,
    /// What it said.
    pub(crate) says: &'a Says,
    /// How it ended.
    pub(crate) ended: &'a Ended,
    /// What it left.
    pub(crate) left: &'a Left,
}

impl Upgraded<'_> {
    /// Helm says that all is well.
    pub(crate) fn done(&self) -> Outcome {
        let release = self.release;
        match self.left {
            Left::At(last) if last.status == "deployed" => {
                Outcome::Done(format!("release {release} is deployed (revision {})", last.revision))
            }
            Left::At(last) => {
                let sentence = format!(
                    "Helm reported no error, and release {release} is {} (revision {})",
                    last.status, last.revision
                );
                Outcome::Failed(
                    Failure::new(Code::ChartFailed, sentence).hint("see `helm history` and who else works on it"),
                )
            }
            Left::Untouched => Outcome::Done(format!("release {release}")),
            Left::Unread(why) => {
                Outcome::Done(format!("release {release}, as Helm says; its record was not read: {why}"))
            }
        }
    }

    /// It was asked to stop. Helm reports no single objects, so its record is what counts: what it had applied stays,
    /// and only a deployed release is whole.
    pub(crate) fn stopped(&self) -> Stopped {
        let release = self.release;
        let by_itself = !self.ended.killed && self.ended.exit != Exit::Unseen;
        let (whole, unfinished, note) = match self.left {
            Left::Unread(why) => (false, true, format!("what became of release {release} is not known: {why}")),
            Left::Untouched => {
                (true, false, format!("Helm was stopped before it began a revision of release {release}"))
            }
            Left::At(last) => {
                let state = format!("release {release} is {} (revision {})", last.status, last.revision);
                match last.status.as_str() {
                    "deployed" => (true, false, state),
                    _ if last.is_half_done() => (false, true, format!("{state}; the next run repairs it")),
                    _ => (
                        false,
                        false,
                        format!("{state}; what Helm had applied stays, and the next run goes on from there"),
                    ),
                }
            }
        };
        let unfinished = if unfinished || !by_itself { vec![format!("release {release}")] } else { Vec::new() };
        let note = if by_itself { note } else { format!("Helm had to be killed; {note}") };
        Stopped { clean: whole && by_itself, unfinished, note }
    }

    /// It went wrong. `unready` says what it was waiting for, as far as that is known.
    pub(crate) fn failed(&self, unready: Vec<String>) -> Failure {
        let (release, exit) = (self.release, self.ended.exit);
        let sentence = match self.left {
            Left::Untouched => format!("Helm ended with {exit} before it began a revision of release {release}"),
            Left::Unread(_) => format!("Helm ended with {exit}; what became of release {release} is not known"),
            Left::At(last) => {
                let state = format!("{} (revision {})", last.status, last.revision);
                let link = if last.status == "deployed" { ", although" } else { ";" };
                format!("Helm ended with {exit}{link} release {release} is {state}")
            }
        };
        let mut failure = Failure::new(Code::ChartFailed, sentence);
        failure = self.says.lines().fold(failure, Failure::cause);
        if let Left::Unread(why) = self.left {
            failure = failure.cause(why);
        }
        failure = unready.into_iter().fold(failure, Failure::cause);
        if self.says.is_about_time() {
            failure = failure.hint("mend what is not ready, or give the chart more time with `instance.chart.timeout`");
        }
        match self.left {
            Left::At(last) if last.is_half_done() => failure.hint("run the same command again: it repairs the release"),
            Left::At(_) | Left::Untouched | Left::Unread(_) => failure,
        }
    }
}

#[cfg(test)]
#[path = "helm_end_tests.rs"]
mod tests;
