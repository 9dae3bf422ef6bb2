//! The install record: what was installed on this cluster, by whom and when.
//!
//! The ConfigMap `dc-install` in `dc-system` has one key, `install.json`. Phase `applying` is written before anything
//! is applied and `installed` only after everything succeeded, so a half-applied re-install never reads as done.
//!
//! Never overwritten: a ConfigMap of that name that dcctl did not write, a record of a newer schema, a record
//! that was carried in from another cluster (a restored etcd, a copied namespace), and that of another bundle: what a
//! cluster shares has one state, and applied from another bundle it would lose what the first one had made.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cluster::client::Cluster;
use crate::cluster::instances::SHARED_NAMESPACE;
use crate::cluster::namespace::MANAGED_BY;
use crate::cluster::request::{Ask, Refusal, Store};
use crate::failure::{Code, Failure};

/// The name of the ConfigMap.
pub const NAME: &str = "dc-install";

/// Its one key.
pub const KEY: &str = "install.json";

/// The schema of the record that this dcctl writes.
pub const SCHEMA: u64 = 1;

/// The annotation by which older tools mark what is dcctl's.
const STAMP: &str = "core.devicechain.io/managed-by";

/// The setting that names the bundle.
pub const BUNDLE: &str = "bundle";

/// How often a write is tried that met another writer, or whose answer got lost.
const TRIES: u32 = 4;

/// How far an install has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// It has begun.
    Applying,
    /// It is complete.
    Installed,
}

/// The record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u64,
    /// How far it has come.
    pub phase: Progress,
    /// The cluster that it is about.
    pub cluster_uid: String,
    /// The version of the dcctl that wrote it.
    pub dcctl_version: String,
    /// When it was written, RFC 3339 in UTC.
    pub time: String,
    /// What was installed: the bundle's name and version, and the like. No secrets.
    pub settings: Map<String, Value>,
    /// What came of it, for whoever needs it. No secrets.
    pub outputs: Map<String, Value>,
    /// The OpenTofu state of what all instances share, once it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateVersion>,
}

/// Which OpenTofu state, and how old.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateVersion {
    /// Its name: OpenTofu gives it once, when the state begins.
    pub lineage: String,
    /// Counts its versions.
    pub serial: u64,
}

impl Cluster {
    /// Reads the install record of the cluster with this uid, and refuses one that is not for this bundle to rewrite
    /// (`guard.record`, `guard.other_bundle`). None when there is none yet.
    pub async fn install_record(&self, uid: &str, bundle: &str) -> Result<Option<Record>, Failure> {
        let found = self.record_object().await?;
        found.as_ref().map_or(Ok(None), |object| judge(object, uid, Some(bundle)))
    }

    /// Writes the install record over what is there, unless that is not ours to rewrite. Makes the namespace when it
    /// is missing.
    ///
    /// Fails with `guard.record` and `guard.other_bundle`.
    pub async fn write_install_record(&self, record: &Record) -> Result<(), Failure> {
        let doing = format!("write the install record (ConfigMap {SHARED_NAMESPACE}/{NAME})");
        let mut tries = 1;
        loop {
            let found = self.record_object().await?;
            if let Some(found) = &found {
                judge(found, &record.cluster_uid, record.settings.get(BUNDLE).and_then(Value::as_str))?;
            }
            let ask = match &found {
                Some(_) => Ask::replace(path(), &rendered(record, found.clone()), Store::Yes),
                None => Ask::create(collection(), &rendered(record, None), Store::Yes),
            };
            let Err(refusal) = self.ask::<Value>(&ask, &doing).await else { return Ok(()) };
            let again = refusal.code() == Some(409) || refusal.is_transient;
            if refusal.code() == Some(404) && tries == 1 {
                self.make_namespace(SHARED_NAMESPACE, None, Store::Yes).await?;
            } else if !again || tries >= TRIES {
                return Err(refusal.into());
            }
            tries += 1;
        }
    }

    async fn record_object(&self) -> Result<Option<Value>, Refusal> {
        self.find(&path(), &format!("read the install record (ConfigMap {SHARED_NAMESPACE}/{NAME})")).await
    }
}

fn collection() -> String {
    format!("/api/v1/namespaces/{SHARED_NAMESPACE}/configmaps")
}

fn path() -> String {
    format!("{}/{NAME}", collection())
}

/// The object to write: what is there with our key, or a new one.
fn rendered(record: &Record, found: Option<Value>) -> Value {
    let text = serde_json::to_string_pretty(record).expect("a record has string keys only");
    let mut object = found.unwrap_or_else(|| {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": NAME, "namespace": SHARED_NAMESPACE, "labels": { MANAGED_BY: "dcctl" } } })
    });
    if !object["data"].is_object() {
        object["data"] = json!({});
    }
    object["data"][KEY] = Value::String(text);
    object
}

/// Whether what is there is ours to rewrite, and what it says.
fn judge(object: &Value, uid: &str, bundle: Option<&str>) -> Result<Option<Record>, Failure> {
    let name = format!("ConfigMap {SHARED_NAMESPACE}/{NAME}");
    let refused = |message: String| Failure::new(Code::RecordForeign, message);
    let metadata = &object["metadata"];
    if metadata["labels"][MANAGED_BY] != "dcctl" && metadata["annotations"][STAMP] != "dcctl" {
        return Err(refused(format!("{name} was not written by dcctl")));
    }
    let Some(text) = object["data"][KEY].as_str() else { return Ok(None) };
    let value: Value = serde_json::from_str(text)
        .map_err(|error| refused(format!("{name} has an {KEY} that cannot be read")).because(&error))?;
    let schema = value["schema"].as_u64();
    if schema.is_none_or(|schema| schema > SCHEMA) {
        let found = schema.map_or("none".to_owned(), |schema| schema.to_string());
        return Err(refused(format!("{name} has schema {found}, and this dcctl writes schema {SCHEMA}"))
            .hint("use the dcctl that wrote it, or a newer one"));
    }
    let recorded = value["clusterUid"].as_str().or(value["clusterUID"].as_str()).unwrap_or("none");
    if recorded != uid {
        return Err(refused(format!(
            "{name} is the record of another cluster: it names {recorded}, and this one is {uid}"
        ))
        .hint("it was carried in with a restored or copied namespace; delete it when that is so"));
    }
    // A record without a name is of a time when none was written.
    match (value["settings"][BUNDLE].as_str(), bundle) {
        (Some(theirs), Some(ours)) if theirs != ours => Err(other_bundle(theirs, ours, &name)),
        _ => Ok(serde_json::from_value(value).ok()),
    }
}

fn other_bundle(theirs: &str, ours: &str, record: &str) -> Failure {
    let sentence = format!("this cluster was installed from the bundle \"{theirs}\", and this is \"{ours}\"");
    Failure::new(Code::OtherBundle, sentence)
        .cause(format!("{record} names it; what the one shares on this cluster would be removed for the other's"))
        .hint(format!("give \"{ours}\" a cluster of its own, or install a release of \"{theirs}\""))
        .hint(format!(
            "if it is the same bundle under a new name: delete {record}, then run the same command again. What it \
             shares is kept then, as far as the new one has it too"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str) -> Record {
        Record {
            schema: SCHEMA,
            phase: Progress::Applying,
            cluster_uid: uid.to_owned(),
            dcctl_version: "0.1.0".to_owned(),
            time: "2026-11-30T00:00:00.000000Z".to_owned(),
            settings: Map::new(),
            outputs: Map::new(),
            state: None,
        }
    }

    #[test]
    fn our_own_record_reads_back() {
        let object = rendered(&record("u"), None);
        assert_eq!(judge(&object, "u", Some("demo")), Ok(Some(record("u"))));
    }

    #[test]
    fn other_keys_of_the_object_survive() {
        let mut found = rendered(&record("u"), None);
        found["data"]["other"] = json!("x");
        found["metadata"]["resourceVersion"] = json!("7");
        let object = rendered(&record("u"), Some(found));
        assert_eq!((&object["data"]["other"], &object["metadata"]["resourceVersion"]), (&json!("x"), &json!("7")));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let ours = || rendered(&record("u"), None);
        let mut foreign = ours();
        foreign["metadata"]["labels"] = json!({});
        let mut newer = ours();
        newer["data"][KEY] = json!(r#"{"schema":2,"clusterUid":"u"}"#);
        let mut broken = ours();
        broken["data"][KEY] = json!("{");
        let elsewhere = rendered(&record("other"), None);
        for (object, says) in [
            (foreign, "was not written by dcctl"),
            (newer, "has schema 2"),
            (broken, "cannot be read"),
            (elsewhere, "record of another cluster"),
        ] {
            let failure = judge(&object, "u", None).expect_err(says);
            assert_eq!(failure.code, Code::RecordForeign);
            assert!(failure.message.contains(says), "{}", failure.message);
        }
    }

    #[test]
    fn a_stamp_of_an_older_tool_counts_as_ours() {
        let mut object = rendered(&record("u"), None);
        object["metadata"] = json!({ "annotations": { STAMP: "dcctl" } });
        assert!(judge(&object, "u", None).is_ok());
    }

    #[test]
    fn a_record_is_for_one_bundle_and_one_without_a_name_for_any() {
        let mut named = record("u");
        let code =
            |record: &Record, bundle| judge(&rendered(record, None), "u", bundle).map_err(|failure| failure.code);
        assert_eq!(code(&named, Some("two")), Ok(Some(named.clone())));
        named.settings.insert(BUNDLE.to_owned(), json!("one"));
        for bundle in [Some("one"), None] {
            assert_eq!(code(&named, bundle), Ok(Some(named.clone())));
        }
        assert_eq!(code(&named, Some("two")), Err(Code::OtherBundle));
    }
}
