//! What the person who reclaims is told: the sentences of the documents, and those that the documents leave open.

use std::time::Duration;

use crate::clock;
use crate::failure::{Code, Failure};
use crate::lock::message::plain;
use crate::lock::observation::Observation;
use crate::lock::place::Place;
use crate::lock::protocol::Released;
use crate::lock::reclaim::{Changed, End, Progress, Window};

/// The lock is nobody's.
pub const NOT_CLAIMED: &str = "this cluster is not claimed; there is nothing to reclaim";
/// It was taken and given back.
pub const FREE: &str = "the cluster lock is now free";

/// How a progress is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// A line of its own.
    Line(String),
    /// A line that the next one of its kind takes the place of.
    Fleeting(String),
}

/// What to show of a progress.
pub fn progress(progress: &Progress, place: &Place) -> Shown {
    match progress {
        Progress::Checking(window) => Shown::Line(checking(*window)),
        Progress::Unchanged { left } => {
            Shown::Fleeting(format!("  no renewal so far; {} to go (Ctrl+C leaves the lock alone)", to_go(*left)))
        }
        Progress::Unseen { left } => Shown::Fleeting(format!(
            "  {} does not answer now; {} to go (Ctrl+C leaves the lock alone)",
            place.answerer(),
            to_go(*left)
        )),
        Progress::Taking => Shown::Line("no renewal in all that time; taking the lock and giving it back".to_owned()),
        Progress::Unanswered => {
            Shown::Line(format!("{} did not answer to that; looking what came of it", place.answerer()))
        }
        Progress::Finishing => {
            Shown::Line("too late to stop: the lock may be yours by now, so it is given back first".to_owned())
        }
    }
}

/// Whole seconds, rounded up: nothing is to go only when nothing is.
fn to_go(left: Duration) -> String {
    clock::human(Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0)))
}

fn checking(window: Window) -> String {
    let about = clock::human(window.validity);
    let mut said = format!("checking whether the holder is still renewing (this takes about {about})...");
    if let Some(claimed) = window.claimed {
        let claimed = clock::human(claimed);
        said.push_str(&format!("\nthe Lease claims to be valid for {claimed}; more than {about} is not believed"));
    }
    said
}

/// The end, in a sentence or as a failure.
///
/// # Errors
/// The failure that the command ends with.
pub fn end(end: &End, place: &Place) -> Result<String, Failure> {
    match end {
        End::Free { kept_by } if kept_by.is_empty() => Ok(NOT_CLAIMED.to_owned()),
        End::Free { kept_by } => {
            let finalizers = plain(&kept_by.join(", "));
            Ok(format!("{NOT_CLAIMED}\nits Lease is being deleted, but finalizers keep it: {finalizers}"))
        }
        End::GivenBack => Ok(format!("the lock was given back meanwhile\n{NOT_CLAIMED}")),
        End::BeingDeleted(seen) => Err(being_deleted(seen, place)),
        End::Mistyped => {
            let said = "that is not the holder identity; nothing was changed";
            Err(Failure::new(Code::StoppedClean, said).hint("Run the same command again to type it once more."))
        }
        End::Interrupted => Err(interrupted()),
        End::Refused(changed) => Err(Failure::new(Code::ReclaimRefused, refused(changed, place))),
        End::NotTaken(why) => {
            let said = format!("the lock was not taken, and nothing was changed: {}", why.message);
            Err(with_details(Failure::new(why.code, said), why))
        }
        End::Unknown { holder, why } => {
            Err(unknown("it cannot be told whether the lock was taken", holder, why, place))
        }
        End::Reclaimed(released) => reclaimed(released, place),
    }
}

/// They stopped before the take.
pub fn interrupted() -> Failure {
    Failure::new(Code::StoppedClean, "stopped; nothing was changed")
        .hint("Run the same command again when you want to go on.")
}

fn refused(changed: &Changed, place: &Place) -> String {
    let holder = |seen: &Observation| plain(seen.holder().unwrap_or("nobody"));
    match changed {
        Changed::Renewed(seen) => {
            format!(
                "the holder is alive: {} renewed the lock while it was being checked; it was left alone",
                holder(seen)
            )
        }
        Changed::Hands(seen) => {
            format!(
                "the lock changed hands while it was being checked: {} holds it now; it was left alone",
                holder(seen)
            )
        }
        Changed::Edited(seen) => format!(
            "somebody wrote to the {} while it was being checked, and {} still holds it; it was left alone",
            place.lease(),
            holder(seen)
        ),
    }
}

fn being_deleted(seen: &Observation, place: &Place) -> Failure {
    let finalizers = plain(&seen.record().finalizers().join(", "));
    let said = format!(
        "the {} is being deleted, but finalizers keep it: {finalizers}. Taking the lock would free nothing, so it was \
         left alone",
        place.lease()
    );
    Failure::new(Code::LockHeldStale, said)
        .hint("Whoever put the finalizers on the Lease has to take them off; then it goes away, and the lock is free.")
}

fn unknown(what: &str, holder: &str, why: &Failure, place: &Place) -> Failure {
    let said = format!("{what}: the Lease may bear {holder}. {}", why.message);
    let failure = Failure::new(Code::StoppedForced, said);
    with_details(failure, why)
        .hint(format!("Look with `{}`; if it names that holder, reclaim it once more.", place.status_command()))
}

fn reclaimed(released: &Released, place: &Place) -> Result<String, Failure> {
    match released {
        Released::Deleted | Released::AlreadyGone | Released::NotOurs { holder: None } | Released::NeverTaken => {
            Ok(FREE.to_owned())
        }
        Released::Emptied(why) => {
            Ok(format!("{FREE}\nits Lease stays, with nobody in it, because it may not be deleted: {}", why.message))
        }
        Released::NotOurs { holder: Some(holder) } => {
            let said = format!("the lock was taken, but {} has it now", plain(holder));
            Err(Failure::new(Code::LockLost, said))
        }
        Released::Lost(_) => unreachable!("a reclaim does not renew, so it never counts itself lost"),
        Released::Left(why) => {
            let said = format!("the lock was taken, and could not be given back: {}", why.message);
            Err(with_details(Failure::new(Code::StoppedForced, said), why))
        }
        Released::Unknown { holder, why } => {
            let what = "the lock was taken, and it cannot be told whether it was given back";
            Err(unknown(what, holder, why, place))
        }
    }
}

fn with_details(mut failure: Failure, why: &Failure) -> Failure {
    failure.causes.extend(why.causes.iter().cloned());
    failure.hints.extend(why.hints.iter().cloned());
    failure
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::lock::record::Record;

    fn seen() -> Observation {
        let raw = json!({
            "metadata": { "uid": "u", "resourceVersion": "1", "finalizers": ["example.com/keep"] },
            "spec": { "holderIdentity": "alice@build-01/48213/9f3c1a20b7e4d5c6" },
        });
        Observation::new(Record::from_json(raw).expect("whole"))
    }

    fn progress(told: &Progress) -> Shown {
        super::progress(told, &place())
    }

    fn end(ended: &End) -> Result<String, Failure> {
        super::end(ended, &place())
    }

    fn place() -> Place {
        Place::Cluster("prod-cluster".to_owned())
    }

    fn why() -> Failure {
        Failure::new(Code::ClusterUnreachable, "no answer").cause("a cause").hint("a hint")
    }

    #[test]
    fn the_sentences_of_the_documents_stand_word_by_word() {
        let window = Window { validity: Duration::from_secs(60), claimed: None };
        assert_eq!(
            progress(&Progress::Checking(window)),
            Shown::Line("checking whether the holder is still renewing (this takes about 1m0s)...".to_owned())
        );
        let done = |released: Released| end(&End::Reclaimed(released)).expect("it is free");
        assert_eq!(done(Released::Deleted), "the cluster lock is now free");
        assert_eq!(done(Released::AlreadyGone), "the cluster lock is now free");
        assert!(done(Released::Emptied(why())).starts_with("the cluster lock is now free\n"));
        let free = End::Free { kept_by: Vec::new() };
        assert_eq!(end(&free), Ok("this cluster is not claimed; there is nothing to reclaim".to_owned()));
    }

    #[test]
    fn a_validity_that_is_not_believed_is_said() {
        let window = Window { validity: Duration::from_secs(600), claimed: Some(Duration::from_secs(86_400)) };
        let Shown::Line(said) = progress(&Progress::Checking(window)) else { panic!("it is a line") };
        assert!(said.contains("about 10m0s") && said.contains("claims to be valid for 24h0m"), "{said}");
    }

    #[test]
    fn the_time_that_is_left_is_never_said_to_be_less() {
        let left = |millis| match progress(&Progress::Unchanged { left: Duration::from_millis(millis) }) {
            Shown::Fleeting(said) => said,
            Shown::Line(said) => panic!("{said}"),
        };
        assert!(left(64_001).contains("; 1m5s to go"), "{}", left(64_001));
        assert!(left(0).contains("; 0s to go"));
    }

    #[test]
    fn each_end_has_its_exit_code() {
        let code = |ended: End| end(&ended).map_or_else(|failure| failure.code.exit(), |_| 0);
        let holder = || "bob@laptop/9912/3a7f000000000000".to_owned();
        let rows = [
            (End::Free { kept_by: vec!["example.com/keep".to_owned()] }, 0),
            (End::GivenBack, 0),
            (End::BeingDeleted(seen()), 21),
            (End::Mistyped, 10),
            (End::Interrupted, 10),
            (End::Refused(Changed::Renewed(seen())), 24),
            (End::Refused(Changed::Hands(seen())), 24),
            (End::Refused(Changed::Edited(seen())), 24),
            (End::NotTaken(why()), 4),
            (End::NotTaken(Failure::new(Code::Forbidden, "no")), 5),
            (End::Unknown { holder: holder(), why: why() }, 12),
            (End::Reclaimed(Released::Emptied(why())), 0),
            (End::Reclaimed(Released::NotOurs { holder: None }), 0),
            (End::Reclaimed(Released::NotOurs { holder: Some(holder()) }), 22),
            (End::Reclaimed(Released::Left(why())), 12),
            (End::Reclaimed(Released::Unknown { holder: holder(), why: why() }), 12),
        ];
        for (ended, exit) in rows {
            assert_eq!(code(ended.clone()), exit, "{ended:?}");
        }
    }

    #[test]
    fn what_went_wrong_keeps_its_causes_and_what_cannot_be_told_names_the_identity() {
        let failure = end(&End::NotTaken(why())).expect_err("it is a failure");
        assert_eq!(failure.message, "the lock was not taken, and nothing was changed: no answer");
        assert_eq!((failure.causes, failure.hints), (vec!["a cause".to_owned()], vec!["a hint".to_owned()]));
        let unknown = End::Unknown { holder: "bob@laptop/9912/3a7f000000000000".to_owned(), why: why() };
        let said = |ended: &End| end(ended).expect_err("it is a failure").message;
        assert!(said(&unknown).starts_with("it cannot be told whether the lock was taken: the Lease may bear bob@lap"));
        // Once it was taken, that is not what is in doubt.
        let unknown = Released::Unknown { holder: "bob@laptop/9912/3a7f000000000000".to_owned(), why: why() };
        let begins = "the lock was taken, and it cannot be told whether it was given back: the Lease may bear bob@lap";
        assert!(said(&End::Reclaimed(unknown)).starts_with(begins));
    }
}
