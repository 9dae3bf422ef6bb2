//! What people are told about the lock. The sentences are those of the documents, each on one line.
//!
//! Everything that comes out of a Lease was written by somebody else: control characters in it are replaced before it
//! reaches a terminal or a log.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock;
use crate::failure::{Code, Failure};
use crate::lock::holder::HolderId;
use crate::lock::observation::Observation;
use crate::lock::place::Place;
use crate::lock::protocol::{ClaimError, Lost};
use crate::lock::record::NAMESPACE;

/// The longest piece of a Lease that is shown.
const LONGEST_PIECE: usize = 300;

/// What to say about a lock that somebody else holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The sentence.
    pub text: String,
    /// Which of the two forms it has: by this machine's clock the lock is older than its validity. That is evidence and
    /// not a verdict. It chooses the exit status, and decides nothing else.
    pub stale: bool,
    /// How long ago the lock was renewed, by this machine's clock; none if the Lease does not say.
    pub age: Option<Duration>,
}

impl Busy {
    /// The failure code of a run that is blocked by such a lock.
    pub fn code(&self) -> Code {
        if self.stale { Code::LockHeldStale } else { Code::LockHeld }
    }
}

/// The message about a held lock, in one of its two forms.
pub fn busy(seen: &Observation, place: &Place, wall: Timestamp) -> Busy {
    let age = seen.age(wall);
    let stale = seen.looks_stale(wall);
    let working = seen.record().instance().map(|id| format!(" (working on instance \"{}\")", plain(id)));
    let working = working.unwrap_or_default();
    let holder = plain(seen.holder().unwrap_or("nobody"));
    let text = if stale {
        let renewed = match age {
            Some(age) => format!(
                "last renewed {} ago — by this machine's clock that looks stale, but a clock that disagrees looks the same",
                clock::human(age)
            ),
            None => "does not say when it renewed, so nothing here tells whether it lives".to_owned(),
        };
        format!(
            "this cluster{working} is claimed by {holder}, which {renewed}. If that process is genuinely gone, take the \
             claim with `{}`, which checks properly before it steals",
            place.reclaim_command(),
        )
    } else {
        let renewed = match seen.ahead(wall) {
            Some(ahead) => format!("whose renewal lies {} ahead of this machine's clock", clock::human(ahead)),
            None => format!("which renewed {} ago", clock::human(age.unwrap_or_default())),
        };
        format!(
            "this cluster{working} is being worked on by {holder}, {renewed}; wait for it to finish rather than running \
             a second apply against the same cluster",
        )
    };
    Busy { text, stale, age }
}

/// What a run says that goes on without the lock, after why it does not have it.
pub fn going_on(why: &str) -> String {
    format!("{why}. Going on without the lock; but if that run is live, this will fight it")
}

/// What a run says that waits for the lock, before whom it waits for.
pub fn waiting(whom: &str, waited: Duration) -> String {
    if waited.as_secs() == 0 {
        format!("waiting for the lock: {whom}")
    } else {
        format!("waiting for the lock, {} so far: {whom}", clock::human(waited))
    }
}

/// The failure of a run that was started by the run which holds the lock: it would wait for itself.
pub fn inside(outer: &HolderId, verb: Option<&str>) -> Failure {
    let verb = verb.map(|verb| format!(" (`dcctl {}`)", plain(verb))).unwrap_or_default();
    let sentence = format!(
        "this command was started by the run that holds this cluster's lock, {}{verb}: it would wait for itself",
        plain(&outer.to_string()),
    );
    Failure::new(Code::NestedRun, sentence)
        .hint("What a run starts has the lock already: start the inner command without `dcctl exec`.")
        .hint("A verb such as `bootstrap` takes the lock by itself: start it beside the run, not inside it.")
}

/// What a run says that may not begin its next step.
pub fn lost_before(step: &str, lost: &Lost) -> String {
    format!("stopping before \"{step}\": {}", why(lost))
}

/// What a run says that loses its lock within a step.
pub fn lost_during(step: &str, lost: &Lost) -> String {
    format!("stopping \"{step}\": {}", why(lost))
}

/// The failure of a write that was not sent.
pub fn may_not_write(lost: &Lost) -> Failure {
    lost_failure(format!("nothing more is written to this cluster, because {}", why(lost)), lost)
}

/// Why the run may not go on.
fn why(lost: &Lost) -> String {
    let because = |why: &Option<Failure>| why.as_ref().map(|why| format!(" ({})", why.message)).unwrap_or_default();
    match lost {
        Lost::Taken { by } => {
            format!("this cluster was reclaimed by another operator: it is now held by {}", plain(by))
        }
        Lost::Gone => "this cluster's lock was reclaimed or deleted: nobody holds it now".to_owned(),
        Lost::Expired { age, why } => format!(
            "this cluster's lock could not be renewed for {}, at least as long as it is valid, so another run may \
             rightly hold it by now{}",
            clock::human(*age),
            because(why),
        ),
        Lost::Unsure { age, why } => format!(
            "this cluster's lock was last renewed {} ago, and whether it is still ours cannot be asked now{}",
            clock::human(*age),
            because(why),
        ),
        Lost::Broken(failure) => format!("this run cannot count on this cluster's lock: {}", failure.message),
    }
}

/// The failure of a run that may not go on, `message` being one of the sentences above.
pub fn lost_failure(message: String, lost: &Lost) -> Failure {
    let code = if let Lost::Broken(_) = lost { Code::Internal } else { Code::LockLost };
    let failure = Failure::new(code, message);
    match lost {
        Lost::Expired { why: Some(why), .. } | Lost::Unsure { why: Some(why), .. } | Lost::Broken(why) => {
            why.causes.iter().fold(failure, |failure, cause| failure.cause(cause.clone()))
        }
        Lost::Taken { .. } | Lost::Gone | Lost::Expired { why: None, .. } | Lost::Unsure { why: None, .. } => failure,
    }
}

/// The failure of a run that did not get the lock.
pub fn claim_failure(error: &ClaimError, place: &Place, wall: Timestamp) -> Failure {
    match error {
        ClaimError::Busy(seen) => {
            let busy = busy(seen, place, wall);
            let failure = Failure::new(busy.code(), busy.text);
            if seen.record().deleting_since().is_none() {
                return failure;
            }
            let finalizers = plain(&seen.record().finalizers().join(", "));
            failure.hint(format!("The lock is being deleted, but finalizers keep it: {finalizers}"))
        }
        ClaimError::BeingDeleted(seen) => {
            let finalizers = plain(&seen.record().finalizers().join(", "));
            let message = format!(
                "{} is free, but it is being deleted and cannot be claimed: finalizers keep it: {finalizers}",
                place.lock()
            );
            Failure::new(Code::LockHeldStale, message)
                .hint("Whoever put the finalizers on the Lease has to take them off.")
        }
        ClaimError::NamespaceTerminating(failure) => failure
            .clone()
            .hint(format!("Wait until the namespace {NAMESPACE} is gone, then run the same command again.")),
        ClaimError::Forbidden(failure) | ClaimError::Failed(failure) => failure.clone(),
        ClaimError::Contended => Failure::new(
            Code::LockHeld,
            format!(
                "{} changed hands under every attempt to claim it",
                place.lock()
            ),
        )
        .hint("Run the same command again."),
        ClaimError::Unsettled { holder, why } => why.causes.iter().fold(
            Failure::new(
                why.code,
                format!(
                    "{} gave no answer to the claim, and whether the lock bears this run's identity ({holder}) cannot be \
                     read: {}",
                    place.answerer(),
                    why.message
                ),
            ),
            |failure, cause| failure.cause(cause.clone()),
        ),
        ClaimError::GivenUp => Failure::new(Code::StoppedClean, "the claim was given up because a stop was requested"),
    }
}

/// Text out of a Lease, without anything that a terminal or a log would act on.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |c: char| if c.is_control() || is_invisible(c) { '\u{fffd}' } else { c };
    let mut plain: String = text.chars().take(LONGEST_PIECE).map(harmless).collect();
    if text.chars().nth(LONGEST_PIECE).is_some() {
        plain.push('…');
    }
    plain
}

/// Characters that change the direction of what follows, or show nothing.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
