//! How long a stop may take here, and what a cancel would leave: for the machine of each tool, and in words for the start
//! of a run.

use std::time::Duration;

use crate::clock::human;
use crate::config::grant::{Ends, Grant, Grantor, Hits};
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
    budget(spec.grant, spec.stop_after)
}

/// The budget of a stop that may take this long, where that is granted.
pub(crate) fn budget(grant: Grant, stop_after: Duration) -> event::StopBudget {
    let graceful = Limits::within(stop_after, grant.everything_ends_after()).budget;
    let cut = grant.everything_ends_after().filter(|_| graceful < stop_after);
    let source = match (cut, grant.by.title()) {
        (Some(_), Some(by)) => by,
        (Some(_) | None, _) => "--stop-after",
    };
    event::StopBudget {
        seconds: cut.unwrap_or(stop_after).as_secs(),
        source: source.to_owned(),
        graceful_seconds: graceful_seconds(grant.hits, cut.map(|_| graceful)),
        ends: ends(grant.ends),
        note: note(grant, graceful, cut),
    }
}

/// How long a tool has, where that is less than it could have and can be told.
fn graceful_seconds(hits: Hits, cut_to: Option<Duration>) -> Option<u64> {
    match hits {
        Hits::Front => cut_to.map(|graceful| graceful.as_secs()),
        Hits::Everything => Some(0),
        Hits::EverythingByDefault => None,
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
    let advice = grant.by.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
    if let Some(unless) = tools_signalled_unless(grant.hits) {
        let everything = grant.ends == Ends::Everything;
        let end = if everything { format!(", and end everything after {after}") } else { String::new() };
        return Some(format!(
            "a cancel would signal every process, the tools and their plugins too{unless}{end}: what is in flight is lost, \
             and named{advice}"
        ));
    }
    match grant.ends {
        Ends::Everything if cut.is_some() => {
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

/// That a cancel signals the tools, with what may spare them; none where it does not.
fn tools_signalled_unless(hits: Hits) -> Option<&'static str> {
    match hits {
        Hits::Front => None,
        Hits::Everything => Some(""),
        Hits::EverythingByDefault => Some(", unless it is set to spare them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(by: Grantor, ends: Ends, after: u64) -> String {
        said_where_it_hits(Hits::Front, by, ends, after)
    }

    fn said_where_it_hits(hits: Hits, by: Grantor, ends: Ends, after: u64) -> String {
        let (stop_after, after) = (Duration::from_secs(1200), Duration::from_secs(after));
        let grant = Grant { by, ends, after: Some(after), hits };
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

    #[test]
    fn where_a_cancel_signals_the_tools_no_time_is_promised_to_them() {
        let docker = said_where_it_hits(Hits::Everything, Grantor::GitlabDocker, Ends::Everything, 15);
        assert!(
            docker.starts_with("a cancel would signal every process, the tools and their plugins too, and end"),
            "{docker}"
        );
        assert!(docker.contains("what is in flight is lost, and named; no setting makes it longer"), "{docker}");
        let told = said_where_it_hits(Hits::Everything, Grantor::Option, Ends::Everything, 1320);
        assert!(told.ends_with("end everything after 22m0s: what is in flight is lost, and named"), "{told}");
        let service = said_where_it_hits(Hits::EverythingByDefault, Grantor::Systemd, Ends::Everything, 90);
        assert!(service.contains("unless it is set to spare them, and end everything after 1m30s: what"), "{service}");
        assert!(service.ends_with("; set KillMode=mixed, TimeoutStopSec=22min and --stop-budget 22m"), "{service}");
        for said in [docker, told, service] {
            assert!(!said.contains("to finish"), "{said}");
        }
        let second = Some(Duration::from_secs(1));
        let seconds =
            [Hits::Front, Hits::Everything, Hits::EverythingByDefault].map(|hits| graceful_seconds(hits, second));
        assert_eq!(seconds, [Some(1), Some(0), None]);
    }
}
