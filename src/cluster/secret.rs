//! Secrets that tools keep their records in, of which only the metadata is ever read: Helm's releases, OpenTofu's state.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cluster::client::Cluster;
use crate::cluster::request::{Ask, Refusal, encode};
use crate::failure::{Code, Failure};

#[derive(Debug, Deserialize)]
struct Record {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
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
        let Metadata { uid, resource_version, labels } = record.metadata;
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
