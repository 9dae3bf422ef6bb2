//! What can happen to one request or to its answer.

use std::time::Duration;

use serde_json::json;

use crate::bed::{Fault, Rule};

/// Longer than dcctl waits for an answer about the lock (5 s), shorter than it waits for a claim to land late (10 s).
const TOO_LATE: Duration = Duration::from_secs(8);

/// One way to go wrong. `Before`: the API server never hears of the request. `After`: it has done what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    DroppedBefore,
    DroppedAfter,
    ResetBefore,
    ResetAfter,
    HalfOpenBefore,
    HalfOpenAfter,
    /// The request reaches the API server after dcctl has given up on it.
    LateRequest,
    /// The answer is there after dcctl has given up on it.
    LateAnswer,
    Truncated,
    /// Something else answers, and calls it a success.
    Garbage,
    /// The API server does it twice, and the second answer is the one that arrives.
    Doubled,
    Unauthorized,
    Forbidden,
    Conflict,
    TooManyRequests,
    ServerErrorBefore,
    ServerErrorAfter,
    HtmlBefore,
    HtmlAfter,
    /// A gateway that looks at answers, and lets nobody see this one.
    WithheldAnswer,
    RedirectBefore,
    RedirectAfter,
}

impl Mishap {
    /// All of them. The match in [`Mishap::answer`] is what the compiler checks.
    pub(super) const ALL: [Mishap; 22] = [
        Mishap::DroppedBefore,
        Mishap::DroppedAfter,
        Mishap::ResetBefore,
        Mishap::ResetAfter,
        Mishap::HalfOpenBefore,
        Mishap::HalfOpenAfter,
        Mishap::LateRequest,
        Mishap::LateAnswer,
        Mishap::Truncated,
        Mishap::Garbage,
        Mishap::Doubled,
        Mishap::Unauthorized,
        Mishap::Forbidden,
        Mishap::Conflict,
        Mishap::TooManyRequests,
        Mishap::ServerErrorBefore,
        Mishap::ServerErrorAfter,
        Mishap::HtmlBefore,
        Mishap::HtmlAfter,
        Mishap::WithheldAnswer,
        Mishap::RedirectBefore,
        Mishap::RedirectAfter,
    ];

    /// What it means for whoever asked.
    pub(super) fn answer(self) -> Answer {
        match self {
            Mishap::Unauthorized => Answer::Unauthorized,
            Mishap::Forbidden => Answer::Forbidden,
            Mishap::Conflict => Answer::Conflict,
            Mishap::DroppedBefore
            | Mishap::ResetBefore
            | Mishap::HalfOpenBefore
            | Mishap::LateRequest
            | Mishap::TooManyRequests
            | Mishap::ServerErrorBefore
            | Mishap::HtmlBefore
            | Mishap::RedirectBefore => Answer::None(Done::NotYet),
            Mishap::DroppedAfter
            | Mishap::ResetAfter
            | Mishap::HalfOpenAfter
            | Mishap::LateAnswer
            | Mishap::Truncated
            | Mishap::Garbage
            | Mishap::Doubled
            | Mishap::ServerErrorAfter
            | Mishap::HtmlAfter
            | Mishap::WithheldAnswer
            | Mishap::RedirectAfter => Answer::None(Done::Yes),
        }
    }

    /// The rule that makes it happen to these requests. `elsewhere` is where a redirect points.
    pub(super) fn happens_to(self, requests: Rule, elsewhere: &str) -> Rule {
        let server = || Fault::Answer(500, status(500, "InternalError", "etcdserver: request timed out"));
        let html = || {
            let head = "Content-Type: text/html\r\nRetry-After: 1\r\n".to_owned();
            Fault::AnswerWith(503, head, "<html><body>no server is available</body></html>".to_owned())
        };
        let redirect = || Fault::AnswerWith(307, format!("Location: {elsewhere}\r\n"), String::new());
        match self {
            Mishap::DroppedBefore => requests.request(Fault::Drop),
            Mishap::DroppedAfter => requests.reply(Fault::Drop),
            Mishap::ResetBefore => requests.request(Fault::Reset),
            Mishap::ResetAfter => requests.reply(Fault::Reset),
            Mishap::HalfOpenBefore => requests.request(Fault::HalfOpen),
            Mishap::HalfOpenAfter => requests.reply(Fault::HalfOpen),
            Mishap::LateRequest => requests.request(Fault::Delay(TOO_LATE)),
            Mishap::LateAnswer => requests.reply(Fault::Delay(TOO_LATE)),
            Mishap::Truncated => requests.reply(Fault::Truncate(20)),
            Mishap::Garbage => requests.reply(Fault::Answer(200, "<html>hello</html>".to_owned())),
            Mishap::Doubled => requests.request(Fault::Twice),
            Mishap::Unauthorized => requests.request(Fault::Answer(401, status(401, "Unauthorized", "Unauthorized"))),
            Mishap::Forbidden => requests.request(Fault::Answer(403, status(403, "Forbidden", FORBIDDEN))),
            Mishap::Conflict => requests.request(Fault::Answer(409, status(409, "Conflict", "it has been modified"))),
            Mishap::TooManyRequests => {
                let head = "Content-Type: text/plain\r\nRetry-After: 1\r\n".to_owned();
                requests.request(Fault::AnswerWith(429, head, "Too many requests, please try again later.".to_owned()))
            }
            Mishap::ServerErrorBefore => requests.request(server()),
            Mishap::ServerErrorAfter => requests.reply(server()),
            Mishap::HtmlBefore => requests.request(html()),
            Mishap::HtmlAfter => requests.reply(html()),
            Mishap::WithheldAnswer => {
                let head = "Content-Type: text/html\r\n".to_owned();
                requests.reply(Fault::AnswerWith(403, head, "<html><body>blocked by policy</body></html>".to_owned()))
            }
            Mishap::RedirectBefore => requests.request(redirect()),
            Mishap::RedirectAfter => requests.reply(redirect()),
        }
    }
}

/// The API server's own sentence, as far as these tests care.
pub(super) const FORBIDDEN: &str = "leases.coordination.k8s.io \"dcctl\" is forbidden: User \"admin\" cannot do this in the namespace \"dc-k8s-system\"";

/// What dcctl can make of a mishap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing that it could rely on.
    None(Done),
    /// It was not done: who asks is not known.
    Unauthorized,
    /// It was not done: who asks may not.
    Forbidden,
    /// It was not done: something else is there.
    Conflict,
}

/// Whether the API server has done what it was asked when dcctl hears of it, or gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Yes,
    NotYet,
}

/// A refusal in the API server's own form.
pub(super) fn status(code: u16, reason: &str, message: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message,
        "details": { "name": "dcctl", "kind": "leases", "group": "coordination.k8s.io" } })
    .to_string()
}
