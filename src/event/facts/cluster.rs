//! Kubernetes objects that dcctl itself applies or waits for.

use serde::{Deserialize, Serialize};

use crate::event::kind::Fact;
use crate::event::outcome::{Level, ObjectChange};

/// An object was applied or deleted; in a dry run, would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObjectApplied {
    /// Its kind, `Deployment`.
    pub kind: String,
    /// Its namespace; missing for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// What happened to it.
    pub action: ObjectChange,
    /// Nothing was written: this is what would happen.
    pub dry_run: bool,
    /// Fields that another manager owned and that dcctl owns now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken_over: Vec<Former>,
}

/// A former owner of fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Former {
    /// The field manager.
    pub manager: String,
    /// The fields, as the API server writes them.
    pub fields: Vec<String>,
}

impl Fact for ObjectApplied {
    fn level(&self) -> Level {
        match self.action {
            _ if !self.taken_over.is_empty() => Level::Warn,
            ObjectChange::Unchanged => Level::Debug,
            ObjectChange::Created | ObjectChange::Configured | ObjectChange::Deleted => Level::Info,
        }
    }

    fn message(&self) -> String {
        let object = object(&self.kind, self.namespace.as_deref(), &self.name);
        let change = match (self.dry_run, self.action) {
            (true, change) => change.would(),
            (false, ObjectChange::Unchanged) => "is as it should be",
            (false, change) => return format!("{object} was {}{}", change.word(), self.former_owners()),
        };
        format!("{object} {change}{}", self.former_owners())
    }
}

impl ObjectApplied {
    fn former_owners(&self) -> String {
        if self.taken_over.is_empty() {
            return String::new();
        }
        let former: Vec<String> =
            self.taken_over.iter().map(|from| format!("{} from {}", from.fields.join(", "), from.manager)).collect();
        format!("; taken over: {}", former.join("; "))
    }
}

/// Something that is waited for is not there yet. Sent when it is first looked at and whenever the reason changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObjectWaiting {
    /// Its kind.
    pub kind: String,
    /// Its namespace; missing for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Why it is not ready.
    pub why: String,
}

impl Fact for ObjectWaiting {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{} is not ready: {}", object(&self.kind, self.namespace.as_deref(), &self.name), self.why)
    }
}

/// What was waited for is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObjectReady {
    /// Its kind.
    pub kind: String,
    /// Its namespace; missing for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Fact for ObjectReady {
    fn level(&self) -> Level {
        Level::Info
    }

    fn message(&self) -> String {
        format!("{} is ready", object(&self.kind, self.namespace.as_deref(), &self.name))
    }
}

/// An object as people name it: `Deployment dci-demo/api`.
pub fn object(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}
