//! How long a stop may take here, and what a cancel would leave: for the machine of each tool, and in words for the start
//! of a run.

use std::time::Duration;

use crate::clock::human;
use crate::config::grant::{Ends, Grant, Grantor};
use crate::event;
use crate::process::Limits;
use crate::run::Spec;

impl Spec {
    /// How long each wait of a tool may be. Where everything is ended at some time, the tail is moved before that.
    pub(crate) fn limits(&self) -> Limits {
        Limits::within(self.stop_after, self.grant.everything_ends_after())
    }
}

/// The budget as the first event tells it.
pub(crate) fn stop_budget(spec: &Spec) -> event::StopBudget {
    let (grant, graceful) = (spec.grant, spec.limits().budget);
    let cut = grant.everything_ends_after().filter(|_| graceful < spec.stop_after);
    let source = match (cut, grant.by.title()) {
        (Some(_), Some(by)) => by,
        (Some(_) | None, _) => "--stop-after",
    };
    event::StopBudget {
        seconds: cut.unwrap_or(spec.stop_after).as_secs(),
        source: source.to_owned(),
        graceful_seconds: cut.map(|_| graceful.as_secs()),
        ends: ends(grant.ends),
        note: note(grant, graceful, cut),
    }
}

fn ends(ends: Ends) -> Option<event::StopEnds> {
    match ends {
        Ends::Everything => Some(event::StopEnds::Everything),
        Ends::Front => Some(event::StopEnds::Front),
        Ends::Nothing | Ends::Unknown => None,
    }
}

/// What a cancel would do here, and leave.
fn note(grant: Grant, graceful: Duration, cut: Option<Duration>) -> Option<String> {
    let after = grant.after.map(human).unwrap_or_default();
    match grant.ends {
        Ends::Everything if cut.is_some() => {
            let advice = grant.by.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
            let graceful = human(graceful);
            Some(format!(
                "a cancel would end everything after {after}, so a tool has {graceful} to finish what is in flight; then it \
                 is interrupted again, and what it was making may be missing from the state{advice}"
            ))
        }
        Ends::Everything => Some(format!("a cancel would end everything after {after}, which is time for all of it")),
        Ends::Front => {
            let by = grant.by.title().unwrap_or("a system");
            Some(format!(
                "a cancel would end only what shows the run ({by}: after {after}); the run itself goes on, finishes what is in \
                 flight and gives the lock back"
            ))
        }
        Ends::Unknown => {
            Some("what a cancel would end here, and when, is not known; --stop-budget can say it".to_owned())
        }
        Ends::Nothing => (grant.by == Grantor::Option).then(|| "a cancel would end only what shows the run".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(by: Grantor, ends: Ends, after: u64) -> String {
        let (stop_after, after) = (Duration::from_secs(1200), Duration::from_secs(after));
        let grant = Grant { by, ends, after: Some(after) };
        let graceful = Limits::within(stop_after, grant.everything_ends_after()).budget;
        let cut = grant.everything_ends_after().filter(|_| graceful < stop_after);
        note(grant, graceful, cut).unwrap_or_default()
    }

    #[test]
    fn what_a_cancel_would_leave_is_said_for_each_kind_of_end() {
        let pod = said(Grantor::Kubernetes, Ends::Everything, 30);
        assert!(pod.starts_with("a cancel would end everything after 30s, so a tool has 15s to finish"), "{pod}");
        assert!(pod.ends_with("set terminationGracePeriodSeconds: 1320 and --stop-budget 22m"), "{pod}");
        let long = said(Grantor::Option, Ends::Everything, 1320);
        assert_eq!(long, "a cancel would end everything after 22m0s, which is time for all of it");
        let front = said(Grantor::Jenkins, Ends::Front, 5);
        assert!(front.starts_with("a cancel would end only what shows the run (Jenkins: after 5s)"), "{front}");
        assert!(said(Grantor::OtherCi, Ends::Unknown, 5).contains("is not known"));
        assert_eq!(said(Grantor::Person, Ends::Nothing, 5), "");
    }
}
