//! Whether a pod is still there, for a person who wonders whether what ran in it lives.

use serde::Deserialize;

use crate::cluster::client::Cluster;
use crate::cluster::request::{Ask, encode};
use crate::failure::Failure;

/// A pod that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Which pod of that name it is.
    pub uid: String,
    /// `Running`, `Pending`, `Succeeded`, …
    pub phase: String,
}

#[derive(Deserialize)]
struct Seen {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

#[derive(Deserialize, Default)]
struct Status {
    #[serde(default)]
    phase: String,
}

impl Cluster {
    /// Looks for a pod, once. `None`: the API server says that there is none of that name.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Pod>, Failure> {
        let ask = Ask::get_once(format!("/api/v1/namespaces/{}/pods/{}", encode(namespace), encode(name)));
        match self.ask::<Seen>(&ask, &format!("look for the pod {namespace}/{name}")).await {
            Ok(seen) => Ok(Some(Pod { uid: seen.metadata.uid, phase: seen.status.phase })),
            Err(refusal) => {
                let names_it =
                    |status: &kube::core::Status| status.details.as_ref().is_some_and(|details| details.name == name);
                let absent = refusal.code() == Some(404) && refusal.status.as_deref().is_some_and(names_it);
                if absent { Ok(None) } else { Err(refusal.into()) }
            }
        }
    }
}
