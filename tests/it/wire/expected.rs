//! What has to come of each mishap to each request, and why.

use crate::wire::mishap::{Answer, Done, Mishap};
use crate::wire::request::Request;

/// How a row ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) exit: i32,
    /// What the verdict says of the lock. A person who reclaims has no verdict, and is told in words.
    pub(super) lock: &'static str,
    pub(super) lease: Lease,
    /// Why it has to be so.
    pub(super) why: &'static str,
}

/// The Lease in the API server at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lease {
    /// There is none: the lock is free.
    Gone,
    /// It names nobody: the lock is free.
    Emptied,
    /// It is what it was before the run, to the byte.
    AsBefore,
    /// It bears the run's own name, and that is said.
    Ours,
}

const fn ends(exit: i32, lock: &'static str, lease: Lease, why: &'static str) -> Expected {
    Expected { exit, lock, lease, why }
}

/// The run does all it was for, and leaves nothing.
const fn works(why: &'static str) -> Expected {
    ends(0, "released", Lease::Gone, why)
}

/// What has to come of it.
pub(super) fn expected(request: Request, mishap: Mishap) -> Expected {
    let answer = mishap.answer();
    match request {
        Request::Claim | Request::BusyRead | Request::Take | Request::NamespaceCreate => claim(request, answer),
        Request::SettlingRead => settling(answer),
        Request::LateRead | Request::LateDelete | Request::LateEmpty => late(request, answer),
        Request::FirstRead | Request::FirstWrite => first_renewal(answer),
        Request::LaterRead | Request::LaterWrite => works(
            "whatever one renewal meets, the next one follows in time; only a minute without any costs the lock, and a \
             403 may be a mistake that is mended in that minute",
        ),
        Request::Release | Request::ReleaseRead | Request::ReleaseEmpty | Request::ReleaseEmptyRead => {
            release(request, answer)
        }
        Request::PersonLooks | Request::PersonConfirms | Request::PersonWatches | Request::PersonTakes => {
            before_the_take(request, answer)
        }
        Request::PersonSettles => person_settles(answer),
        Request::PersonReleases | Request::PersonReleaseRead | Request::PersonEmpties => {
            person_releases(request, answer)
        }
    }
}

/// Nothing of the run can be in the Lease after a definite no.
fn claim(request: Request, answer: Answer) -> Expected {
    let untouched = match request {
        Request::BusyRead | Request::Take => Lease::AsBefore,
        _ => Lease::Gone,
    };
    match answer {
        Answer::None(_) => works("it is read whether the claim came through, and claimed again where it did not"),
        Answer::Conflict if request == Request::BusyRead => {
            ends(1, "never_taken", untouched, "no API server says that to a read; it is a refusal that nobody knows")
        }
        Answer::Conflict => works("somebody was there for a moment; it is read who, and claimed when nobody is"),
        Answer::Unauthorized => {
            ends(4, "never_taken", untouched, "whom the API server does not know it does nothing for")
        }
        Answer::Forbidden => ends(5, "never_taken", untouched, "who may not is told so, and nothing was done"),
    }
}

/// The claim came through, and its answer did not.
fn settling(answer: Answer) -> Expected {
    let swept = "the claim could not be settled then, so it is looked for once more before the verdict, and given back";
    match answer {
        Answer::None(_) => works("it is read again until there is an answer, and that says that it is ours"),
        Answer::Unauthorized => ends(4, "released", Lease::Gone, swept),
        Answer::Forbidden => ends(5, "released", Lease::Gone, swept),
        Answer::Conflict => ends(1, "released", Lease::Gone, swept),
    }
}

/// A claim that got no answer lands after the run was told (by a 403) that it may not claim.
fn late(request: Request, answer: Answer) -> Expected {
    let unknown = "whether the late claim landed cannot be told any more: the identity to look for is said";
    match (request, answer) {
        (Request::LateRead, Answer::None(_)) => {
            ends(5, "released", Lease::Gone, "it is looked for again, found, and given back")
        }
        (Request::LateRead, _) => ends(5, "unknown", Lease::Ours, unknown),
        (Request::LateEmpty, Answer::None(_) | Answer::Conflict) => {
            ends(5, "released", Lease::Emptied, "it is read what came of it, and emptied again where nothing did")
        }
        (Request::LateEmpty, Answer::Unauthorized | Answer::Forbidden) => {
            ends(5, "left", Lease::Ours, "it may be neither deleted nor emptied, and that is said")
        }
        (_, Answer::None(Done::Yes)) => {
            ends(5, "never_taken", Lease::Gone, "the look after the delete finds nothing of this run")
        }
        (_, Answer::None(Done::NotYet) | Answer::Conflict) => {
            ends(5, "released", Lease::Gone, "the look after the delete finds it, and it is deleted again")
        }
        (_, Answer::Unauthorized) => {
            ends(5, "left", Lease::Ours, "it may not be given back any more, and that is said")
        }
        (_, Answer::Forbidden) => ends(5, "released", Lease::Emptied, "who may not delete empties it"),
    }
}

/// Nothing was begun yet.
fn first_renewal(answer: Answer) -> Expected {
    match answer {
        Answer::Forbidden => ends(5, "released", Lease::Gone, "who may not renew is told so before anything is begun"),
        Answer::None(_) | Answer::Unauthorized | Answer::Conflict => {
            works("the claim is seconds old, so there is time for the next renewal")
        }
    }
}

fn release(request: Request, answer: Answer) -> Expected {
    let free = match request {
        Request::ReleaseEmpty | Request::ReleaseEmptyRead => Lease::Emptied,
        _ => Lease::Gone,
    };
    match (request, answer) {
        (_, Answer::None(_)) => {
            ends(0, "released", free, "it is read what came of it, and done again where nothing did")
        }
        (Request::ReleaseRead, _) => {
            ends(12, "unknown", Lease::Gone, "the delete got no answer, and what came of it may not be read")
        }
        (Request::ReleaseEmptyRead, _) => {
            ends(12, "unknown", free, "the put got no answer, and what came of it may not be read")
        }
        (_, Answer::Conflict) => ends(0, "released", free, "somebody wrote to it; it is still ours, so once more"),
        (Request::Release, Answer::Forbidden) => {
            ends(0, "released", Lease::Emptied, "who may not delete empties it, which is free too")
        }
        (_, Answer::Unauthorized | Answer::Forbidden) => {
            ends(12, "left", Lease::Ours, "it may not be given back any more, and that is said")
        }
    }
}

fn before_the_take(request: Request, answer: Answer) -> Expected {
    let none = "a refusal before the take changes nothing";
    match answer {
        Answer::None(_) => works("it is asked again; a take without an answer is settled by reading"),
        Answer::Conflict if request == Request::PersonTakes => {
            works("it is read what changed, and where nothing did it is taken again")
        }
        Answer::Unauthorized => ends(4, "not taken", Lease::AsBefore, none),
        Answer::Forbidden => ends(5, "not taken", Lease::AsBefore, none),
        Answer::Conflict => ends(1, "not taken", Lease::AsBefore, none),
    }
}

/// The take came through, and its answer did not.
fn person_settles(answer: Answer) -> Expected {
    match answer {
        Answer::None(_) => works("it is read again until there is an answer, and that says that it is ours"),
        Answer::Unauthorized | Answer::Forbidden | Answer::Conflict => {
            ends(12, "unknown", Lease::Ours, "the take got no answer, and what came of it may not be read")
        }
    }
}

fn person_releases(request: Request, answer: Answer) -> Expected {
    let free = if request == Request::PersonEmpties { Lease::Emptied } else { Lease::Gone };
    match (request, answer) {
        (_, Answer::None(_)) => {
            ends(0, "released", free, "it is read what came of it, and given back again where nothing did")
        }
        (Request::PersonReleaseRead, _) => {
            ends(12, "unsettled", free, "the delete got no answer, and what came of it may not be read")
        }
        (_, Answer::Conflict) => ends(0, "released", free, "somebody wrote to it; it is still ours, so once more"),
        (Request::PersonReleases, Answer::Forbidden) => {
            ends(0, "released", Lease::Emptied, "who may not delete empties it, which is free too")
        }
        (_, Answer::Unauthorized | Answer::Forbidden) => {
            ends(12, "left", Lease::Ours, "it was taken and cannot be given back, which is said")
        }
    }
}
