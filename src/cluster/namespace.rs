//! Namespaces: whose they are, and making those that dcctl owns.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::client::Cluster;
use crate::cluster::instances::INSTANCE_LABEL;
use crate::cluster::request::{Ask, Store, encode};
use crate::failure::{Code, Failure};

/// The label of everything that dcctl made.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A namespace, as far as dcctl cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespace {
    /// It is not there.
    Missing,
    /// It is there; the instance that its label names, if it has one.
    There {
        /// The value of the label `core.devicechain.io/instance`.
        instance: Option<String>,
        /// Who made it.
        maker: Maker,
    },
    /// It is being deleted; what its conditions say, which may be nothing yet.
    Terminating {
        /// What keeps it.
        why: String,
    },
}

/// A namespace that bears an instance's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNamespace {
    /// Its name.
    pub name: String,
    /// Who made it.
    pub maker: Maker,
    /// Somebody has deleted it, and it is not gone yet.
    pub is_deleted: bool,
}

/// Who made a namespace, as its label says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maker {
    /// dcctl, for an instance.
    Dcctl,
    /// Somebody else: a person, a chart, an OpenTofu root.
    Other,
}

/// Whether a namespace was made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was not there.
    Now,
    /// It was there already.
    Before,
}

#[derive(Deserialize)]
struct Seen {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

impl Metadata {
    fn maker(&self) -> Maker {
        match self.labels.get(MANAGED_BY) {
            Some(maker) if maker == "dcctl" => Maker::Dcctl,
            Some(_) | None => Maker::Other,
        }
    }
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    status: String,
    #[serde(default)]
    message: String,
}

impl Cluster {
    /// Looks at a namespace.
    pub async fn namespace(&self, name: &str) -> Result<Namespace, Failure> {
        let doing = format!("read namespace {name}");
        let seen: Seen = match self.ask(&Ask::get(path(name)), &doing).await {
            Ok(seen) => seen,
            Err(refusal) if refusal.code() == Some(404) => return Ok(Namespace::Missing),
            Err(refusal) => return Err(refusal.into()),
        };
        if seen.metadata.deletion_timestamp.is_some() {
            let conditions = seen.status.conditions.into_iter().filter(|condition| condition.status == "True");
            let why: Vec<String> = conditions.map(|condition| condition.message).collect();
            return Ok(Namespace::Terminating { why: why.join("; ") });
        }
        let maker = seen.metadata.maker();
        Ok(Namespace::There { instance: seen.metadata.labels.get(INSTANCE_LABEL).cloned(), maker })
    }

    /// The namespaces that bear the label of this instance, whatever their names, by name.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn namespaces_of(&self, instance: &str) -> Result<Vec<OwnNamespace>, Failure> {
        let selector = format!("{INSTANCE_LABEL}={instance}");
        let ask = Ask::get("/api/v1/namespaces").with("labelSelector", selector).metadata_only();
        let found: Vec<Seen> = self.list(&ask, &format!("list the namespaces of the instance {instance}")).await?;
        let own = found.into_iter().map(|Seen { metadata, .. }| {
            let (maker, is_deleted) = (metadata.maker(), metadata.deletion_timestamp.is_some());
            OwnNamespace { name: metadata.name, maker, is_deleted }
        });
        let mut own: Vec<OwnNamespace> = own.collect();
        own.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(own)
    }

    /// Makes a namespace that belongs to dcctl, and to this instance if one is given. One that is there already is
    /// left as it is.
    pub async fn make_namespace(&self, name: &str, instance: Option<&str>, store: Store) -> Result<Made, Failure> {
        let mut labels = BTreeMap::from([(MANAGED_BY, "dcctl")]);
        labels.extend(instance.map(|instance| (INSTANCE_LABEL, instance)));
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
        let doing = format!("create namespace {name}");
        let ask = Ask::create("/api/v1/namespaces", &object, store);
        let Err(refusal) = self.ask::<Value>(&ask, &doing).await else { return Ok(Made::Now) };
        if refusal.code() == Some(409) {
            return Ok(Made::Before);
        }
        // The answer got lost: whether it was made, only a look can tell.
        if refusal.is_transient && self.namespace(name).await? != Namespace::Missing {
            return Ok(Made::Now);
        }
        Err(refusal.into())
    }

    /// The identity of the cluster: the uid of its namespace `kube-system`, which lives as long as the cluster.
    pub async fn uid(&self) -> Result<String, Failure> {
        let doing = "find out which cluster this is (read namespace kube-system)";
        let found: Value = self.ask(&Ask::get(path("kube-system")), doing).await?;
        let uid = found.pointer("/metadata/uid").and_then(Value::as_str).filter(|uid| !uid.is_empty());
        uid.map(str::to_owned).ok_or_else(|| {
            Failure::new(Code::CannotTell, "namespace kube-system has no uid, so this cluster has no identity")
        })
    }
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/{}", encode(name))
}
