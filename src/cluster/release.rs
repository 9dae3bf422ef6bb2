//! The records of a Helm release: secrets, of which only the metadata is ever read.
//!
//! Helm keeps one a revision. The labels say number and status; the content carries every value and manifest of the
//! release, and is not asked for.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::client::Cluster;
use crate::cluster::instances::{HELM_LABEL, INSTANCE_LABEL};
use crate::cluster::request::{Ask, Refusal, encode};
use crate::failure::{Code, Failure};

#[derive(Debug, Deserialize)]
struct Record {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    times: Times,
}

/// When an object was made and changed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Times {
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    managed_fields: Vec<Change>,
}

#[derive(Debug, Deserialize)]
struct Change {
    time: Option<Timestamp>,
}

/// One revision of a release, as its record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// From 1.
    pub revision: u64,
    /// Helm's word: `deployed`, `failed`, `pending-upgrade`…
    pub status: String,
    /// When the record was last written, by the API server's clock.
    pub written: Option<Timestamp>,
    /// Which of dcctl's own Helms made it, or the last one that did before a Helm of somebody else.
    pub mark: Option<String>,
}

/// A release whose record bears an instance's stamp.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StampedRelease {
    /// Where its record lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The instance that it names; empty when the stamp names nobody.
    pub instance: String,
    /// It is not one that was uninstalled and of which only the history was kept.
    pub is_live: bool,
}

impl StampedRelease {
    /// Whether it is a living release of this instance, and not the one of this namespace and name where one is given.
    pub fn is_another_of(&self, instance: &str, named: Option<(&str, &str)>) -> bool {
        self.is_live && self.instance == instance && named != Some((&self.namespace, &self.name))
    }
}

impl Metadata {
    fn stamped(&self) -> StampedRelease {
        let label = |name: &str| self.labels.get(name).cloned().unwrap_or_default();
        StampedRelease {
            namespace: self.namespace.clone(),
            name: label("name"),
            instance: label(INSTANCE_LABEL),
            is_live: label("status") != "uninstalled",
        }
    }

    /// None for a secret that only looks like a record.
    fn recorded(&self) -> Option<Recorded> {
        let revision = self.labels.get("version")?.parse().ok()?;
        let status = self.labels.get("status")?.clone();
        Some(Recorded { revision, status, written: self.times.last(), mark: self.labels.get(HELM_LABEL).cloned() })
    }
}

impl Times {
    fn last(&self) -> Option<Timestamp> {
        let changes = self.managed_fields.iter().filter_map(|change| change.time);
        self.creation_timestamp.into_iter().chain(changes).max()
    }
}

impl Cluster {
    /// Whether there is a secret of this name. Its values are not read.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn has_secret(&self, namespace: &str, name: &str) -> Result<bool, Failure> {
        let path = format!("/api/v1/namespaces/{}/secrets/{}", encode(namespace), encode(name));
        let doing = format!("find out whether secret {namespace}/{name} is there");
        match self.ask::<Record>(&Ask::get(path).metadata_of_one(), &doing).await {
            Ok(_) => Ok(true),
            Err(refusal) if refusal.code() == Some(404) => Ok(false),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The revisions of a release that have a record, oldest first; none when there is no such release.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn release(&self, namespace: &str, release: &str) -> Result<Vec<Recorded>, Failure> {
        let ask = Ask::get(format!("/api/v1/namespaces/{}/secrets", encode(namespace)))
            .with("labelSelector", format!("owner=helm,name={release}"))
            .metadata_only();
        let doing = format!("list the records of release {release} in {namespace}");
        let records: Vec<Record> = self.list(&ask, &doing).await?;
        let mut revisions: Vec<Recorded> = records.iter().filter_map(|record| record.metadata.recorded()).collect();
        revisions.sort_by_key(|recorded| recorded.revision);
        Ok(revisions)
    }

    /// The releases that bear an instance's stamp: of this namespace, or of all.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn stamped_releases(&self, namespace: Option<&str>) -> Result<BTreeSet<StampedRelease>, Failure> {
        let (path, place) = match namespace {
            Some(name) => (format!("/api/v1/namespaces/{}/secrets", encode(name)), name),
            None => ("/api/v1/secrets".to_owned(), "all namespaces"),
        };
        // Of each release there is one record that was not replaced, whatever became of it.
        let selector = format!("owner=helm,status!=superseded,{INSTANCE_LABEL}");
        let ask = Ask::get(path).with("labelSelector", selector).metadata_only();
        let records: Vec<Record> = self.list(&ask, &format!("list the records of Helm releases in {place}")).await?;
        Ok(records.iter().map(|record| record.metadata.stamped()).collect())
    }

    /// Whether this account may list the secrets of every namespace. Every account may ask, and nothing is stored.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn may_list_all_secrets(&self) -> Result<bool, Failure> {
        let wish = json!({ "verb": "list", "resource": "secrets" });
        let question = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": wish } });
        let ask = Ask::question("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &question);
        let answer: Value = self.ask(&ask, "ask the API server what this account may do").await?;
        Ok(answer["status"]["allowed"] == true)
    }

    /// What time it is by the API server's own clock. Every account may ask, and nothing is stored.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn time(&self) -> Result<Timestamp, Failure> {
        #[derive(Deserialize)]
        struct Answer {
            metadata: Times,
        }
        let question = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let ask = Ask::question("/apis/authentication.k8s.io/v1/selfsubjectreviews", &question);
        let answer: Result<Answer, Refusal> = self.ask(&ask, "ask the API server for the time").await;
        let silent = || Failure::new(Code::ClusterRequestFailed, "the API server did not say what time it is");
        answer?.metadata.last().ok_or_else(silent)
    }

    /// Deletes the record of one revision that was left pending. What the release had made stays. A record that is
    /// gone already is no failure; one that has changed meanwhile is.
    ///
    /// # Errors
    /// [`Code::ReleasePending`] when the record is not, or no longer, that of a pending revision; else what the API
    /// server says.
    pub async fn delete_release_record(&self, namespace: &str, release: &str, revision: u64) -> Result<(), Failure> {
        let name = format!("sh.helm.release.v1.{release}.v{revision}");
        let path = format!("/api/v1/namespaces/{}/secrets/{}", encode(namespace), encode(&name));
        let doing = format!("read the record of release {release} (secret {namespace}/{name})");
        let record: Record = match self.ask(&Ask::get(&path).metadata_of_one(), &doing).await {
            Ok(record) => record,
            Err(refusal) if refusal.code() == Some(404) => return Ok(()),
            Err(refusal) => return Err(refusal.into()),
        };
        let Metadata { uid, resource_version, labels, .. } = record.metadata;
        let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
        let is_pending = label("status").starts_with("pending-");
        if !(label("owner") == "helm" && label("name") == release && is_pending) {
            return Err(changed(&name));
        }
        let doing = format!("delete the record of release {release} (secret {namespace}/{name})");
        let deleted: Result<Value, Refusal> = self.ask(&Ask::delete(path, &uid, &resource_version), &doing).await;
        match deleted {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code() == Some(404) => Ok(()),
            Err(refusal) if refusal.code() == Some(409) => Err(changed(&name)),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

fn changed(name: &str) -> Failure {
    Failure::new(Code::ReleasePending, format!("the release's record {name} has changed: somebody else works on it"))
        .hint("see who does, then run the same command again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(labels: &Value) -> Metadata {
        serde_json::from_value(json!({
            "name": "sh.helm.release.v1.demo.v3", "uid": "u", "resourceVersion": "7", "labels": labels,
            "creationTimestamp": "2026-11-30T07:00:00Z",
            "managedFields": [{ "manager": "Helm", "time": "2026-11-30T07:00:05Z" }, { "manager": "x" }],
        }))
        .expect("it is metadata")
    }

    #[test]
    fn a_record_is_read_from_its_labels_and_dated_by_its_last_change() {
        let recorded = metadata(&json!({ "version": "3", "status": "pending-upgrade" })).recorded();
        let written = Some("2026-11-30T07:00:05Z".parse().expect("a time"));
        assert_eq!(recorded, Some(Recorded { revision: 3, status: "pending-upgrade".to_owned(), written, mark: None }));
    }

    #[test]
    fn a_secret_that_only_looks_like_a_record_is_none() {
        for labels in [json!({}), json!({ "status": "deployed" }), json!({ "version": "x", "status": "deployed" })] {
            assert_eq!(metadata(&labels).recorded(), None, "{labels}");
        }
    }
}
