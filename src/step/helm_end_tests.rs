//! What is said of each end.

use std::time::Duration;

use super::*;
use crate::process::Why;

fn ended(exit: Exit, why: Option<Why>) -> Ended {
    Ended {
        pid: 7,
        exit,
        interrupts_sent: u32::from(why.is_some()),
        interrupts_reported: 0,
        why,
        killed: exit == Exit::Signal(9),
        left_behind: Vec::new(),
        took: Duration::from_secs(1),
    }
}

fn at(status: &str) -> Left {
    Left::At(Revision { revision: 3, updated: None, status: status.to_owned(), description: String::new(), mark: None })
}

fn unread() -> Left {
    Left::Unread("no answer".to_owned())
}

fn said(lines: &[&str]) -> Says {
    let mut says = Says::default();
    for line in lines {
        says.take(line);
    }
    says
}

fn upgraded<'a>(ended: &'a Ended, left: &'a Left, says: &'a Says) -> Upgraded<'a> {
    Upgraded { release: "dc-demo", says, ended, left }
}

#[test]
fn after_a_stop_only_a_whole_release_is_clean() {
    let polite = ended(Exit::Code(1), Some(Why::StopRequested));
    let killed = ended(Exit::Signal(9), Some(Why::Forced));
    let rows = [
        (&polite, at("deployed"), true, false, "release dc-demo is deployed (revision 3)"),
        (&polite, Left::Untouched, true, false, "Helm was stopped before it began a revision of release dc-demo"),
        (
            &polite,
            at("failed"),
            false,
            false,
            "release dc-demo is failed (revision 3); what Helm had applied stays, and the next run goes on from there",
        ),
        (
            &polite,
            at("pending-upgrade"),
            false,
            true,
            "release dc-demo is pending-upgrade (revision 3); the next run repairs it",
        ),
        (&polite, unread(), false, true, "what became of release dc-demo is not known: no answer"),
        (&killed, at("deployed"), false, true, "Helm had to be killed; release dc-demo is deployed (revision 3)"),
    ];
    for (ended, left, clean, unfinished, note) in rows {
        let stopped = upgraded(ended, &left, &Says::default()).stopped();
        assert_eq!((stopped.clean, stopped.note.as_str()), (clean, note));
        assert_eq!(!stopped.unfinished.is_empty(), unfinished, "{note}");
    }
}

#[test]
fn a_failure_says_what_became_of_the_release_and_why() {
    let says = said(&["Error: UPGRADE FAILED: resource not ready", "context deadline exceeded"]);
    let exit = ended(Exit::Code(1), None);
    let rows = [
        (at("failed"), "Helm ended with exit status 1; release dc-demo is failed (revision 3)"),
        (at("deployed"), "Helm ended with exit status 1, although release dc-demo is deployed (revision 3)"),
        (Left::Untouched, "Helm ended with exit status 1 before it began a revision of release dc-demo"),
        (unread(), "Helm ended with exit status 1; what became of release dc-demo is not known"),
    ];
    for (left, message) in rows {
        let failure = upgraded(&exit, &left, &says).failed(vec!["Pod web: no image".to_owned()]);
        assert_eq!((failure.code, failure.message.as_str()), (Code::ChartFailed, message));
        assert_eq!(failure.causes[..2], ["resource not ready", "context deadline exceeded"]);
        assert_eq!(failure.causes.last().map(String::as_str), Some("Pod web: no image"));
        assert!(failure.hints[0].contains("instance.chart.timeout"));
    }
    let killed = ended(Exit::Signal(9), None);
    let failure = upgraded(&killed, &at("pending-install"), &Says::default()).failed(Vec::new());
    assert_eq!(failure.message, "Helm ended with signal 9; release dc-demo is pending-install (revision 3)");
    assert_eq!(failure.hints, ["run the same command again: it repairs the release"]);
}

#[test]
fn a_helm_that_is_content_is_believed_unless_its_record_says_otherwise() {
    let exit = ended(Exit::Code(0), None);
    let done = |left: &Left| upgraded(&exit, left, &Says::default()).done();
    assert_eq!(done(&at("deployed")), Outcome::Done("release dc-demo is deployed (revision 3)".to_owned()));
    assert!(matches!(done(&unread()), Outcome::Done(note) if note.contains("no answer")));
    assert!(matches!(done(&at("failed")), Outcome::Failed(failure) if failure.message.contains("is failed")));
}
