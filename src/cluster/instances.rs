//! The instances of a cluster: their declarations, and the secrets that bear their name.
//!
//! A declaration is the cluster-scoped object `Instance`. dcctl alone writes its spec, annotations and finalizer; the
//! operator alone writes its status; annotations of others survive. Nothing secret and no path of a machine goes
//! into it.
//!
//! *Invariant:* "cannot tell" is never "nothing there". A list that answers 404 proves that the collection is not
//! served *in that version*, so the other versions are asked for before anybody concludes that there are none.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::client::Cluster;
use crate::cluster::request::{Ask, Refusal, Store, encode};
use crate::failure::{Code, Failure};

/// The API group of the declaration.
pub const GROUP: &str = "core.devicechain.io";

/// The version that is asked for when the bundle names none.
pub const VERSION: &str = "core.devicechain.io/v1beta1";

/// What declarations are called on a command line.
pub const RESOURCE: &str = "instances.core.devicechain.io";

/// The annotation that says what the last run was trying to do.
pub const PHASE: &str = "core.devicechain.io/phase";

/// The annotation with the version of the dcctl that wrote the declaration last.
pub const LAST_APPLIED_BY: &str = "core.devicechain.io/last-applied-by";

/// The annotation with the time of that, RFC 3339 in UTC.
pub const LAST_APPLIED_AT: &str = "core.devicechain.io/last-applied-at";

/// The annotation with the identity, as in the lock, of the run that wrote the declaration last.
pub const LAST_APPLIED_AS: &str = "dcctl.devicechain.io/last-applied-as";

/// The annotation with what the instance takes from what all share, as JSON.
pub const CLAIMS: &str = "dcctl.devicechain.io/claims";

/// The annotation with the lineage of the instance's OpenTofu state.
pub const LINEAGE: &str = "dcctl.devicechain.io/state-lineage";

/// The annotation with the serial that this state had when a run on it ended last.
pub const SERIAL: &str = "dcctl.devicechain.io/state-serial";

/// The annotation with the release of the bundle that the instance is of. The operator's Deployment has it, too.
pub const RELEASE: &str = "dcctl.devicechain.io/release";

/// The finalizer that keeps a declaration readable until the instance is destroyed.
pub const FINALIZER: &str = "core.devicechain.io/instance";

/// The label that says whose something is.
pub const INSTANCE_LABEL: &str = "core.devicechain.io/instance";

/// The label on a revision of a Helm release: which Helm of which run made it.
pub const HELM_LABEL: &str = "dcctl.devicechain.io/helm";

/// The namespace with what all instances share.
pub const SHARED_NAMESPACE: &str = "dc-system";

/// What the last run on an instance was trying to do, or has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// A bootstrap began.
    Bootstrapping,
    /// A bootstrap or an upgrade is complete.
    Ready,
    /// A run failed.
    Failed,
    /// An upgrade began.
    Upgrading,
    /// A destroy began.
    Destroying,
}

impl Phase {
    /// The word in the annotation.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Bootstrapping => "Bootstrapping",
            Phase::Ready => "Ready",
            Phase::Failed => "Failed",
            Phase::Upgrading => "Upgrading",
            Phase::Destroying => "Destroying",
        }
    }

    /// Reads the word in the annotation; none when it is not one of ours.
    pub fn parse(word: &str) -> Option<Phase> {
        [Phase::Bootstrapping, Phase::Ready, Phase::Failed, Phase::Upgrading, Phase::Destroying]
            .into_iter()
            .find(|phase| phase.word() == word)
    }
}

/// What an instance takes from what all share, as the annotation has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claimed {
    /// The host name of its ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_host: Option<String>,
    /// The MQTT port on the cluster's own machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_mqtt_port: Option<u16>,
    /// Database connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
}

/// What is known of the claims of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claims {
    /// Its annotation says them.
    Written(Claimed),
    /// It has no such annotation, but a host in its spec.
    HostOnly(String),
    /// It has an annotation that cannot be read; why.
    Unreadable(String),
    /// It has neither.
    Unknown,
}

/// An instance of the cluster: what a list keeps of its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: String,
    /// The phase annotation, as it is written.
    pub phase: Option<String>,
    /// What it takes.
    pub claims: Claims,
    /// The recorded lineage of its OpenTofu state.
    pub lineage: Option<String>,
    /// The recorded serial of that state: how old it was when a run on it ended last.
    pub serial: Option<u64>,
    /// The release of the bundle that it is of.
    pub release: Option<String>,
    /// The dcctl that applied it last, and when.
    pub applied: Applied,
    /// When it was declared.
    pub created_at: Option<String>,
    /// When somebody deleted the declaration; the finalizer keeps it.
    pub deleted_at: Option<String>,
}

/// Who applied an instance last, as its annotations say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// The version of dcctl.
    pub by: Option<String>,
    /// The identity of the run: whose it was, and where.
    pub holder: Option<String>,
    /// When, RFC 3339 in UTC.
    pub at: Option<String>,
}

/// The answer to the question for one declaration.
#[derive(Debug, Clone, PartialEq)]
pub enum Declared {
    /// Here it is.
    There(Value),
    /// The API server serves such objects and has none of this name.
    Missing,
    /// The API server does not serve such objects in this version.
    NoDefinition,
}

/// A secret of the shared namespace that bears an instance's stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped {
    /// The secret's name.
    pub name: String,
    /// The instance that it names; none when the stamp names nobody.
    pub instance: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    annotations: Option<Annotations>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    creation_timestamp: Option<String>,
}

/// The annotations that are kept; those of others can be as large as they like.
#[derive(Deserialize, Default)]
struct Annotations {
    #[serde(rename = "core.devicechain.io/phase")]
    phase: Option<String>,
    #[serde(rename = "dcctl.devicechain.io/claims")]
    claims: Option<String>,
    #[serde(rename = "dcctl.devicechain.io/state-lineage")]
    lineage: Option<String>,
    #[serde(rename = "dcctl.devicechain.io/state-serial")]
    serial: Option<String>,
    #[serde(rename = "dcctl.devicechain.io/release")]
    release: Option<String>,
    #[serde(rename = "core.devicechain.io/last-applied-by")]
    applied_by: Option<String>,
    #[serde(rename = "dcctl.devicechain.io/last-applied-as")]
    applied_as: Option<String>,
    #[serde(rename = "core.devicechain.io/last-applied-at")]
    applied_at: Option<String>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    host: Option<Value>,
}

impl From<Listed> for Instance {
    fn from(listed: Listed) -> Instance {
        let Annotations { phase, claims, lineage, serial, release, applied_by, applied_as, applied_at } =
            listed.metadata.annotations.unwrap_or_default();
        let host = listed.spec.and_then(|spec| spec.host).and_then(|host| host.as_str().map(str::to_owned));
        let claims = match (claims, host.filter(|host| !host.is_empty())) {
            (Some(text), _) => match serde_json::from_str(&text) {
                Ok(claimed) => Claims::Written(claimed),
                Err(error) => Claims::Unreadable(error.to_string()),
            },
            (None, Some(host)) => Claims::HostOnly(host),
            (None, None) => Claims::Unknown,
        };
        Instance {
            name: listed.metadata.name,
            phase,
            claims,
            lineage,
            serial: serial.and_then(|serial| serial.parse().ok()),
            release,
            applied: Applied { by: applied_by, holder: applied_as, at: applied_at },
            created_at: listed.metadata.creation_timestamp,
            deleted_at: listed.metadata.deletion_timestamp,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    preferred_version: GroupVersion,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
struct SecretListed {
    metadata: SecretMetadata,
}

/// What is kept of a secret's metadata. Its annotations are not read: `last-applied-configuration` has the values.
#[derive(Deserialize)]
struct SecretMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: Option<SecretLabels>,
}

#[derive(Deserialize, Default)]
struct SecretLabels {
    #[serde(rename = "core.devicechain.io/instance")]
    instance: Option<String>,
}

impl Cluster {
    /// Every instance of the cluster; none only when the API server proves that it serves no such objects at all.
    pub async fn instances(&self) -> Result<Vec<Instance>, Failure> {
        let doing = "list the instances of this cluster";
        let refusal = match self.listed(VERSION, doing).await {
            Ok(instances) => return Ok(instances),
            Err(refusal) if refusal.code() == Some(404) => refusal,
            Err(refusal) => return Err(refusal.into()),
        };
        // Not in this version. Perhaps in another?
        match self.preferred_version(doing).await? {
            None => Ok(Vec::new()),
            Some(version) if version == VERSION => Err(refusal.into()),
            Some(version) => Ok(self.listed(&version, doing).await?),
        }
    }

    /// The version in which Instances are served; none when the API server proves that it serves none.
    async fn preferred_version(&self, doing: &str) -> Result<Option<String>, Failure> {
        let group: Group = match self.ask(&Ask::get(format!("/apis/{GROUP}")), doing).await {
            Ok(group) => group,
            Err(refusal) if refusal.code() == Some(404) => return Ok(None),
            Err(refusal) => return Err(refusal.into()),
        };
        let version = group.preferred_version.group_version;
        Ok(self.resource(&version, "Instance").await?.map(|_| version))
    }

    /// A declaration, and the version in which it is served; none when there is none in any version.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn any_declaration(&self, name: &str) -> Result<Option<(String, Value)>, Failure> {
        let mut version = VERSION.to_owned();
        loop {
            match self.declaration(&version, name).await? {
                Declared::There(found) => return Ok(Some((version, found))),
                Declared::Missing => return Ok(None),
                Declared::NoDefinition => {
                    match self.preferred_version(&format!("look for the declaration of {name}")).await? {
                        Some(other) if other != version => version = other,
                        Some(_) | None => return Ok(None),
                    }
                }
            }
        }
    }

    async fn listed(&self, version: &str, doing: &str) -> Result<Vec<Instance>, Refusal> {
        let listed = self.list::<Listed>(&Ask::get(collection(version)), doing).await?;
        Ok(listed.into_iter().map(Instance::from).collect())
    }

    /// Reads one declaration.
    ///
    /// Both a missing object and a missing kind are a 404; only the former names the object.
    pub async fn declaration(&self, api_version: &str, name: &str) -> Result<Declared, Failure> {
        match self.ask(&Ask::get(path(api_version, name)), &format!("read the declaration of {name}")).await {
            Ok(object) => Ok(Declared::There(object)),
            Err(refusal) if refusal.code() == Some(404) => Ok(absence(&refusal)),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Writes a declaration: makes it, or replaces it when it carries a `resourceVersion`. Strictly validated.
    ///
    /// The answer is what the API server stored. A conflict, or an answer that got lost, is [`Written::Again`]: read
    /// again and decide again.
    pub async fn write_declaration(&self, object: &Value, store: Store) -> Result<Written, Failure> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let api_version = text("/apiVersion").unwrap_or(VERSION);
        let name = text("/metadata/name").unwrap_or_default();
        let ask = match text("/metadata/resourceVersion") {
            Some(_) => Ask::replace(path(api_version, name), object, store),
            None => Ask::create(collection(api_version), object, store),
        };
        match self.ask(&ask, &format!("write the declaration of {name}")).await {
            Ok(stored) => Ok(Written::Stored(stored)),
            Err(refusal) if refusal.code() == Some(409) || refusal.is_transient => Ok(Written::Again(refusal.failure)),
            Err(refusal) => match refusal.code() {
                Some(404) => Ok(Written::NoDefinition),
                Some(400 | 422) => Err(Failure { code: Code::BundleInvalid, ..refusal.failure }),
                Some(_) | None => Err(refusal.failure),
            },
        }
    }

    /// Sets annotations of a declaration, or takes those without a value away, and only of the very object with this uid.
    ///
    /// Fails with `guard.cannot_tell` when it is gone or another.
    pub async fn annotate_declaration(
        &self,
        api_version: &str,
        (name, uid): (&str, &str),
        annotations: &[(&str, Option<&str>)],
    ) -> Result<(), Failure> {
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let patch = json!({ "metadata": { "uid": uid, "annotations": annotations } });
        let doing = format!("write down on the declaration of {name} how far it is");
        let ask = Ask::merge(path(api_version, name), &patch);
        let Err(refusal) = self.ask::<Value>(&ask, &doing).await else { return Ok(()) };
        if !matches!(refusal.code(), Some(404 | 409 | 422)) {
            return Err(refusal.into());
        }
        match self.declaration(api_version, name).await? {
            Declared::There(object) if object["metadata"]["uid"] == uid => Err(refusal.into()),
            Declared::There(_) | Declared::Missing | Declared::NoDefinition => {
                let message = format!("the declaration of \"{name}\" is not the one that this run wrote");
                Err(Failure::new(Code::CannotTell, message).cause("it was deleted, or deleted and made anew"))
            }
        }
    }

    /// The secrets of the shared namespace that bear an instance's stamp, asked for as metadata only.
    pub async fn stamped_secrets(&self) -> Result<Vec<Stamped>, Failure> {
        let mut found = Vec::new();
        let nameless = format!("app.kubernetes.io/managed-by=dcctl,!{INSTANCE_LABEL}");
        for selector in [INSTANCE_LABEL, &nameless] {
            let ask = Ask::get(format!("/api/v1/namespaces/{SHARED_NAMESPACE}/secrets")).metadata_only();
            let ask = ask.with("labelSelector", selector);
            let doing = format!("list the secrets in {SHARED_NAMESPACE}");
            for SecretListed { metadata } in self.list::<SecretListed>(&ask, &doing).await? {
                let instance = metadata.labels.and_then(|labels| labels.instance).filter(|name| !name.is_empty());
                found.push(Stamped { name: metadata.name, instance });
            }
        }
        Ok(found)
    }
}

/// What became of a declaration that was written.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// The API server stored this.
    Stored(Value),
    /// Somebody else wrote at the same time, or the answer got lost.
    Again(Failure),
    /// The API server does not serve such objects.
    NoDefinition,
}

fn collection(api_version: &str) -> String {
    format!("/apis/{api_version}/instances")
}

/// The path of one declaration.
pub(in crate::cluster) fn path(api_version: &str, name: &str) -> String {
    format!("{}/{}", collection(api_version), encode(name))
}

/// What a 404 proves: only one that names the object says that the object alone is missing.
fn absence(refusal: &Refusal) -> Declared {
    let details = refusal.status.as_ref().and_then(|status| status.details.as_ref());
    let names_it = details.is_some_and(|details| !details.name.is_empty() && !details.group.is_empty());
    if names_it { Declared::Missing } else { Declared::NoDefinition }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: Value) -> Instance {
        serde_json::from_value::<Listed>(object).expect("an instance").into()
    }

    #[test]
    fn claims_come_from_the_annotation_and_then_from_the_host() {
        let with = |annotation: Option<&str>, spec: Value| {
            let annotations = annotation.map(|text| json!({ CLAIMS: text, "other": "kept by nobody" }));
            read(json!({ "metadata": { "name": "a", "annotations": annotations }, "spec": spec })).claims
        };
        let written =
            Claimed { ingress_host: Some("a.test".to_owned()), local_mqtt_port: Some(1883), connections: Some(60) };
        let text = serde_json::to_string(&written).expect("plain fields");
        assert_eq!(text, r#"{"ingressHost":"a.test","localMqttPort":1883,"connections":60}"#);
        assert_eq!(with(Some(&text), json!({ "host": "b.test" })), Claims::Written(written));
        assert_eq!(with(Some("{}"), json!({ "host": "b.test" })), Claims::Written(Claimed::default()));
        assert_eq!(with(None, json!({ "host": "b.test" })), Claims::HostOnly("b.test".to_owned()));
        assert_eq!(with(None, json!({ "host": "" })), Claims::Unknown);
        assert_eq!(with(None, json!({})), Claims::Unknown);
        assert!(matches!(with(Some("{"), json!({})), Claims::Unreadable(_)));
        assert!(matches!(with(Some(r#"{"localMqttPort":"x"}"#), json!({})), Claims::Unreadable(_)));
    }
}
