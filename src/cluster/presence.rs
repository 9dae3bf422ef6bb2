//! Whether an object that a manifest names is on the cluster at all.
//!
//! Of what is there only the metadata is asked for: a release has secrets, and their content is nobody's business here.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::cluster::client::Cluster;
use crate::cluster::discovery::Scope;
use crate::cluster::document::Document;
use crate::cluster::request::Ask;
use crate::failure::{Code, Failure};

/// The answer to that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// It is there.
    There,
    /// It is not, or is on its way out, or its kind is not served.
    Missing,
    /// This account may not look; the API server's sentence.
    Unseen(String),
}

/// What is read of it.
#[derive(Deserialize)]
struct Found {
    metadata: ObjectMeta,
}

impl Cluster {
    /// Whether this object is there. One that says no namespace, and lives in one, is looked for in `namespace`.
    ///
    /// # Errors
    /// What the API server says, when that proves neither.
    pub async fn presence(&self, document: &Document, namespace: &str) -> Result<Presence, Failure> {
        let Some(resource) = self.resource(&document.api_version, &document.kind).await? else {
            return Ok(Presence::Missing);
        };
        let place = match resource.scope {
            Scope::Namespaced => Some(document.namespace.as_deref().unwrap_or(namespace)),
            Scope::Cluster => None,
        };
        let ask = Ask::get(resource.path(place, &document.name)).metadata_of_one();
        match self.ask::<Found>(&ask, &format!("find out whether {} is there", document.title())).await {
            Ok(found) if found.metadata.deletion_timestamp.is_some() => Ok(Presence::Missing),
            Ok(_) => Ok(Presence::There),
            Err(refusal) if refusal.code() == Some(404) => Ok(Presence::Missing),
            Err(refusal) if refusal.failure.code == Code::Forbidden => Ok(Presence::Unseen(refusal.failure.message)),
            Err(refusal) => Err(refusal.into()),
        }
    }
}
