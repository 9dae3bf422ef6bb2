//! What a reply of the API server means. Pure: a number and a body in, an answer of the protocol out.
//!
//! The number decides first, because a proxy, a load balancer or the API server's own queue answers with any body. Then
//! only what the API server itself says counts as a definite no: a 404 that is not its `Status` is no proof that there
//! is no Lease. "Cannot tell" is never "nothing there".

use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::lock::message::plain;
use crate::lock::record::{NAME, NAMESPACE, Record};
use crate::lock::store::{Created, Deleted, Replaced, Trouble};

/// The cause that a 403 has when it is not about permissions.
const TERMINATING: &str = "NamespaceTerminating";

/// One reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    /// The HTTP status.
    pub(crate) code: u16,
    /// The body, if it is JSON.
    pub(crate) json: Option<Value>,
    /// The beginning of a body that is not.
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn new(code: u16, body: &[u8]) -> Reply {
        let json = serde_json::from_slice(body).ok();
        let text = if json.is_some() { String::new() } else { String::from_utf8_lossy(body).into_owned() };
        Reply { code, json, text }
    }

    pub(crate) fn created(self) -> Result<Created, Trouble> {
        let what = "claim the lock";
        match self.code {
            200..300 => self.stored(what).map(Created::Stored),
            // Whoever answers this, the next thing is to read the Lease.
            409 => Ok(Created::Exists),
            404 if self.detail("kind") == Some("namespaces") => Ok(Created::NoNamespace(self.failure(what))),
            _ => Err(self.trouble(what)),
        }
    }

    pub(crate) fn namespace_created(self) -> Result<(), Trouble> {
        let what = "create the lock's namespace";
        match self.code {
            200..300 => Ok(()),
            409 if self.is_status() => Ok(()),
            _ => Err(self.trouble(what)),
        }
    }

    pub(crate) fn read(self) -> Result<Option<Record>, Trouble> {
        let what = "read the lock";
        match self.code {
            200..300 => self.stored(what).map(Some),
            404 if self.no_such_lease() => Ok(None),
            _ => Err(self.trouble(what)),
        }
    }

    pub(crate) fn replaced(self) -> Result<Replaced, Trouble> {
        let what = "renew the lock";
        match self.code {
            200..300 => self.stored(what).map(Replaced::Stored),
            409 => Ok(Replaced::Conflict),
            404 if self.no_such_lease() => Ok(Replaced::Conflict),
            _ => Err(self.trouble(what)),
        }
    }

    pub(crate) fn deleted(self) -> Result<Deleted, Trouble> {
        let what = "release the lock";
        match self.code {
            200..300 if self.is_status() => Ok(Deleted::Gone),
            // Answered with the object instead: it is not gone.
            200..300 => match self.stored(what)? {
                record if record.deleting_since().is_some() => Ok(Deleted::Kept(record)),
                _ => Err(unreadable(what)),
            },
            409 => Ok(Deleted::Conflict),
            404 if self.no_such_lease() => Ok(Deleted::Absent),
            _ => Err(self.trouble(what)),
        }
    }

    /// Why, if the API server does not know who asked: then it has done nothing.
    pub(crate) fn credentials_refused(&self) -> Option<Failure> {
        (self.code == 401).then(|| self.failure("ask about the lock"))
    }

    /// The Lease in a reply that reports success.
    fn stored(self, what: &str) -> Result<Record, Trouble> {
        let lease = self.json.filter(|json| json["kind"] == "Lease" && json["metadata"]["name"] == NAME);
        lease.and_then(Record::from_json).ok_or_else(|| unreadable(what))
    }

    fn trouble(self, what: &str) -> Trouble {
        let failure = self.failure(what);
        match self.code {
            403 if self.is_status() && self.has_cause(TERMINATING) => Trouble::NamespaceTerminating(failure),
            403 if self.is_status() => Trouble::Forbidden(failure),
            401 => Trouble::Refused(failure),
            // A gateway may forbid an answer just as well as a request.
            403 | 408 | 429 => Trouble::Unclear(failure),
            400..500 if self.is_status() => Trouble::Refused(failure),
            _ => Trouble::Unclear(failure),
        }
    }

    fn failure(&self, what: &str) -> Failure {
        let said = self.json.as_ref().and_then(|json| json["message"].as_str()).filter(|_| self.is_status());
        let code = match self.code {
            401 => Code::CredentialsRefused,
            403 if self.is_status() && !self.has_cause(TERMINATING) => Code::Forbidden,
            _ => Code::ClusterRequestFailed,
        };
        if let (403, Some(said)) = (self.code, said) {
            return Failure::new(code, plain(said));
        }
        if self.code == 401 {
            let message = "the API server does not accept the credentials of this kubeconfig";
            return Failure::new(code, message).cause(plain(said.unwrap_or_default()));
        }
        let message = format!("could not {what} (Lease {NAME} in {NAMESPACE}): the API server answered {}", self.code);
        let first_line = self.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        Failure::new(code, message).cause(plain(said.unwrap_or(first_line)))
    }

    /// Whether the API server itself speaks.
    fn is_status(&self) -> bool {
        self.json.as_ref().is_some_and(|json| json["kind"] == "Status" && json["apiVersion"] == "v1")
    }

    fn detail(&self, name: &str) -> Option<&str> {
        self.json.as_ref().filter(|_| self.is_status())?["details"][name].as_str()
    }

    /// A 404 that is about our Lease. One about a resource that is not served has no name.
    fn no_such_lease(&self) -> bool {
        self.detail("name") == Some(NAME)
    }

    fn has_cause(&self, reason: &str) -> bool {
        let causes = self.json.as_ref().and_then(|json| json["details"]["causes"].as_array());
        causes.into_iter().flatten().any(|cause| cause["reason"] == reason)
    }
}

/// A success whose body does not say what it should.
fn unreadable(what: &str) -> Trouble {
    let message = format!("could not {what} (Lease {NAME} in {NAMESPACE}): the answer could not be read");
    Trouble::Unclear(Failure::new(Code::ClusterRequestFailed, message))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(code: u16, body: &Value) -> Reply {
        Reply::new(code, body.to_string().as_bytes())
    }

    fn status(code: u16, reason: &str, details: &Value) -> Reply {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": "the API server's own sentence", "details": details,
        });
        reply(code, &body)
    }

    fn lease() -> Value {
        json!({ "kind": "Lease", "metadata": { "name": NAME, "uid": "u", "resourceVersion": "7" }, "spec": {} })
    }

    /// The answers, in one word each, of the five requests to the same reply.
    fn words(reply: &Reply) -> [&'static str; 5] {
        let trouble = |trouble: &Trouble| match trouble {
            Trouble::Unsent(_) => "unsent",
            Trouble::Unclear(_) => "unclear",
            Trouble::Forbidden(_) => "forbidden",
            Trouble::NamespaceTerminating(_) => "terminating",
            Trouble::Refused(_) => "refused",
        };
        [
            match reply.clone().created() {
                Ok(Created::Stored(_)) => "stored",
                Ok(Created::Exists) => "exists",
                Ok(Created::NoNamespace(_)) => "no namespace",
                Err(why) => trouble(&why),
            },
            match reply.clone().namespace_created() {
                Ok(()) => "there",
                Err(why) => trouble(&why),
            },
            match reply.clone().read() {
                Ok(Some(_)) => "found",
                Ok(None) => "none",
                Err(why) => trouble(&why),
            },
            match reply.clone().replaced() {
                Ok(Replaced::Stored(_)) => "stored",
                Ok(Replaced::Conflict) => "conflict",
                Err(why) => trouble(&why),
            },
            match reply.clone().deleted() {
                Ok(Deleted::Gone) => "gone",
                Ok(Deleted::Kept(_)) => "kept",
                Ok(Deleted::Absent) => "absent",
                Ok(Deleted::Conflict) => "conflict",
                Err(why) => trouble(&why),
            },
        ]
    }

    #[test]
    fn every_reply_means_one_thing_for_each_request() {
        let name = json!({ "name": NAME, "kind": "leases", "group": "coordination.k8s.io" });
        let mut kept = lease();
        kept["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
        let done = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
        let terminating = json!({ "causes": [{ "reason": "NamespaceTerminating" }] });
        let rows: [(Reply, [&str; 5]); 21] = [
            // A success.
            (reply(201, &lease()), ["stored", "there", "found", "stored", "unclear"]),
            (reply(200, &kept), ["stored", "there", "found", "stored", "kept"]),
            (reply(200, &done), ["unclear", "there", "unclear", "unclear", "gone"]),
            (reply(200, &json!({})), ["unclear", "there", "unclear", "unclear", "unclear"]),
            (Reply::new(200, b"<html>login</html>"), ["unclear", "there", "unclear", "unclear", "unclear"]),
            (Reply::new(200, b"{\"kind\":\"Lea"), ["unclear", "there", "unclear", "unclear", "unclear"]),
            // A definite no.
            (status(404, "NotFound", &name), ["refused", "refused", "none", "conflict", "absent"]),
            (
                status(404, "NotFound", &json!({ "kind": "namespaces", "name": NAMESPACE })),
                ["no namespace", "refused", "refused", "refused", "refused"],
            ),
            (status(404, "NotFound", &json!({})), ["refused"; 5]),
            (status(409, "AlreadyExists", &name), ["exists", "there", "refused", "conflict", "conflict"]),
            (status(409, "Conflict", &name), ["exists", "there", "refused", "conflict", "conflict"]),
            (status(403, "Forbidden", &name), ["forbidden"; 5]),
            (status(403, "Forbidden", &terminating), ["terminating"; 5]),
            (status(401, "Unauthorized", &json!({})), ["refused"; 5]),
            (status(400, "BadRequest", &json!({})), ["refused"; 5]),
            (status(422, "Invalid", &name), ["refused"; 5]),
            // No answer.
            (Reply::new(404, b"404 page not found"), ["unclear"; 5]),
            (Reply::new(403, b"<html>go away</html>"), ["unclear"; 5]),
            (Reply::new(429, b"Too many requests, please try again later."), ["unclear"; 5]),
            (status(500, "InternalError", &name), ["unclear"; 5]),
            (status(504, "Timeout", &name), ["unclear"; 5]),
        ];
        for (reply, expected) in rows {
            assert_eq!(words(&reply), expected, "{reply:?}");
        }
    }

    #[test]
    fn the_number_counts_whatever_number_the_body_says() {
        let mut lying = status(503, "NotFound", &json!({ "name": NAME }));
        lying.json.as_mut().expect("json")["code"] = json!(404);
        assert_eq!(words(&lying), ["unclear"; 5]);
    }

    #[test]
    fn a_forbidden_request_shows_the_api_servers_own_sentence_and_nothing_else() {
        let failure = status(403, "Forbidden", &json!({})).read().expect_err("forbidden").into_failure();
        assert_eq!(failure, Failure::new(Code::Forbidden, "the API server's own sentence"));
    }

    #[test]
    fn a_namespace_that_goes_away_is_no_matter_of_permissions() {
        let reply = status(403, "Forbidden", &json!({ "causes": [{ "reason": TERMINATING }] }));
        let failure = reply.created().expect_err("terminating").into_failure();
        assert_eq!(failure, Failure::new(Code::ClusterRequestFailed, "the API server's own sentence"));
    }

    #[test]
    fn refused_credentials_are_named() {
        let failure = status(401, "Unauthorized", &json!({})).created().expect_err("refused").into_failure();
        assert_eq!(failure.code, Code::CredentialsRefused);
        assert_eq!(failure.message, "the API server does not accept the credentials of this kubeconfig");
    }

    #[test]
    fn what_a_gateway_forbids_is_no_matter_of_permissions() {
        let failure = Reply::new(403, b"<html>blocked by policy</html>").read().expect_err("unclear").into_failure();
        assert_eq!(failure.code, Code::ClusterRequestFailed);
        assert_eq!(failure.causes, ["<html>blocked by policy</html>"]);
    }

    #[test]
    fn other_failures_say_what_could_not_be_done_and_what_was_answered() {
        let failure = Reply::new(502, b"\n<html>\n<b>bad gateway</b>").deleted().expect_err("unclear").into_failure();
        let said = "could not release the lock (Lease dcctl in dc-k8s-system): the API server answered 502";
        assert_eq!((failure.message.as_str(), failure.causes), (said, vec!["<html>".to_owned()]));
        let failure = status(422, "Invalid", &json!({})).replaced().expect_err("refused").into_failure();
        assert_eq!(failure.causes, ["the API server's own sentence"]);
    }
}
