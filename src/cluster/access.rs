//! What this account may do, asked of the API server without doing it, and who it is there.
//!
//! Both questions are objects that are posted and never stored, and every account may ask them.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cluster::client::Cluster;
use crate::cluster::request::Ask;
use crate::failure::Failure;

/// One thing that an account may do, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// `list`.
    pub verb: &'static str,
    /// The API group, empty for the oldest one.
    pub group: &'static str,
    /// `secrets`.
    pub resource: &'static str,
    /// The namespace that it is for; none for the whole cluster.
    pub namespace: Option<&'static str>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Right { verb, group, resource, namespace } = self;
        let dot = if group.is_empty() { "" } else { "." };
        write!(f, "{verb} {resource}{dot}{group}")?;
        namespace.map_or(Ok(()), |namespace| write!(f, " in {namespace}"))
    }
}

/// What the API server says about a right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Whether the account has it.
    pub allowed: bool,
    /// Why, as far as the API server says.
    pub reason: String,
    /// Whether everybody who was to be asked about it has answered. A webhook that was not reached has not.
    pub is_sure: bool,
}

/// Where a right is used, if not everywhere: a right may be given for one object alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spot<'a> {
    /// The namespace.
    pub namespace: Option<&'a str>,
    /// The name of the object.
    pub name: Option<&'a str>,
}

/// Who an account is to the API server, and what time it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub user: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// The API server's own clock, in whole seconds.
    pub time: Option<Timestamp>,
}

impl Cluster {
    /// Whether this account has a right, by a `SelfSubjectAccessReview`.
    ///
    /// # Errors
    /// What the API server says to the question.
    pub async fn may(&self, right: &Right) -> Result<Access, Failure> {
        self.may_at(right, Spot { namespace: right.namespace, name: None }).await
    }

    /// The same about one place.
    ///
    /// # Errors
    /// What the API server says to the question.
    pub async fn may_at(&self, right: &Right, spot: Spot<'_>) -> Result<Access, Failure> {
        let attributes = [
            ("verb", Some(right.verb)),
            ("group", Some(right.group)),
            ("resource", Some(right.resource)),
            ("namespace", spot.namespace),
            ("name", spot.name),
        ];
        let attributes: Map<String, Value> =
            attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
        let (status, _) =
            self.answer("authorization", "AccessReview", &json!({ "resourceAttributes": attributes })).await?;
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        let reason = ["reason", "evaluationError"].map(text).into_iter().filter(|said| !said.is_empty());
        let allowed = status["allowed"].as_bool().unwrap_or(false);
        let is_sure = status["allowed"].is_boolean() && text("evaluationError").is_empty();
        Ok(Access { allowed, reason: reason.collect::<Vec<_>>().join("; "), is_sure })
    }

    /// Who this account is, by a `SelfSubjectReview`.
    ///
    /// # Errors
    /// What the API server says to the question; one before Kubernetes 1.28 does not know it.
    pub async fn who_am_i(&self) -> Result<Identity, Failure> {
        let (status, time) = self.answer("authentication", "Review", &Value::Null).await?;
        let user = &status["userInfo"];
        let groups = user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let name = user["username"].as_str().unwrap_or_default().to_owned();
        Ok(Identity { user: name, groups: groups.collect(), time })
    }

    /// The status of the answer, and when the API server made it.
    async fn answer(&self, group: &str, kind: &str, spec: &Value) -> Result<(Value, Option<Timestamp>), Failure> {
        let api_version = format!("{group}.k8s.io/v1");
        let kind = format!("SelfSubject{kind}");
        let question = json!({ "apiVersion": api_version, "kind": kind, "spec": spec });
        let ask = Ask::question(format!("/apis/{api_version}/{}s", kind.to_lowercase()), &question);
        let mut answer: Value = self.ask(&ask, "ask the API server about this account").await?;
        let time = answer["metadata"]["creationTimestamp"].as_str().and_then(|time| time.parse().ok());
        Ok((answer["status"].take(), time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_reads_as_people_write_it() {
        let right = Right { verb: "list", group: "", resource: "secrets", namespace: Some("dc-system") };
        assert_eq!(right.to_string(), "list secrets in dc-system");
        let right = Right { verb: "get", group: "apps", resource: "deployments", namespace: None };
        assert_eq!(right.to_string(), "get deployments.apps");
    }
}
