//! Which resource a kind is, as the API server says; remembered until something may have changed it.
//!
//! Only a 404 proves that a kind is not there. Any other failure of the question is a failure of the step.

use std::collections::HashMap;
use std::sync::Mutex;

use serde::Deserialize;

use crate::cluster::client::Cluster;
use crate::cluster::request::{Ask, encode};
use crate::failure::Failure;

/// A resource of the API server: what a kind is called in paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `apps/v1`, or `v1`.
    pub api_version: String,
    /// `deployments`.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

/// Where objects of a resource live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In a namespace.
    Namespaced,
    /// In the cluster itself.
    Cluster,
}

impl Resource {
    /// The path of the collection; of the whole cluster's when no namespace is given.
    pub(in crate::cluster) fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        match (self.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                format!("/{root}/{}/namespaces/{}/{}", self.api_version, encode(namespace), self.plural)
            }
            (Scope::Namespaced, None) | (Scope::Cluster, _) => format!("/{root}/{}/{}", self.api_version, self.plural),
        }
    }

    /// The path of one object.
    pub(in crate::cluster) fn path(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), encode(name))
    }
}

/// What was learnt so far: the kinds of each group and version that was asked for.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Discovery {
    known: Mutex<HashMap<String, HashMap<String, Resource>>>,
}

impl Discovery {
    fn recall(&self, api_version: &str, kind: &str) -> Option<Resource> {
        let known = self.known.lock().expect("nobody panics while holding it");
        known.get(api_version)?.get(kind).cloned()
    }

    fn learn(&self, api_version: &str, kinds: HashMap<String, Resource>) {
        self.known.lock().expect("nobody panics while holding it").insert(api_version.to_owned(), kinds);
    }
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    preferred_version: Preferred,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Preferred {
    group_version: String,
}

/// Every resource whose objects live in namespaces and can be listed and deleted, with its kind: of each group in the
/// version that is preferred. Beside them the versions that do not answer.
pub(in crate::cluster) async fn listable(cluster: &Cluster) -> Result<(Vec<(Resource, String)>, Vec<String>), Failure> {
    let groups: Groups = cluster.ask(&Ask::get("/apis"), "find out what this cluster serves").await?;
    let versions = groups.groups.into_iter().map(|group| group.preferred_version.group_version);
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for api_version in std::iter::once("v1".to_owned()).chain(versions) {
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let doing = format!("find out what {api_version} has");
        let listed: ResourceList = match cluster.ask(&Ask::get(format!("/{root}/{api_version}")), &doing).await {
            Ok(listed) => listed,
            Err(refusal) if refusal.code() == Some(404) => continue,
            Err(refusal) if refusal.code().is_some() => {
                silent.push(api_version);
                continue;
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let may = |listed: &Listed, verb: &str| listed.verbs.iter().any(|known| known == verb);
        let resources = listed.resources.into_iter().filter(|listed| listed.namespaced && !listed.name.contains('/'));
        found.extend(resources.filter(|listed| may(listed, "list") && may(listed, "delete")).map(|listed| {
            (Resource { api_version: api_version.clone(), plural: listed.name, scope: Scope::Namespaced }, listed.kind)
        }));
    }
    Ok((found, silent))
}

impl Cluster {
    /// The resource of a kind; none when the API server proves that it does not serve one.
    ///
    /// A kind that was found is remembered. One that was not is asked for again: a definition may have been added.
    pub async fn resource(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, Failure> {
        if let Some(resource) = self.discovery.recall(api_version, kind) {
            return Ok(Some(resource));
        }
        let root = if api_version.contains('/') { "apis" } else { "api" };
        // The slash between group and version stays one.
        let path: Vec<String> = api_version.split('/').map(encode).collect();
        let ask = Ask::get(format!("/{root}/{}", path.join("/")));
        let listed: ResourceList = match self.ask(&ask, &format!("find out what {api_version} {kind} is")).await {
            Ok(listed) => listed,
            Err(refusal) if refusal.code() == Some(404) => return Ok(None),
            Err(refusal) => return Err(refusal.into()),
        };
        let kinds: HashMap<String, Resource> = listed
            .resources
            .into_iter()
            // A name with a slash is a part of a resource, such as its status.
            .filter(|listed| !listed.name.contains('/'))
            .map(|listed| {
                let scope = if listed.namespaced { Scope::Namespaced } else { Scope::Cluster };
                (listed.kind, Resource { api_version: api_version.to_owned(), plural: listed.name, scope })
            })
            .collect();
        let found = kinds.get(kind).cloned();
        self.discovery.learn(api_version, kinds);
        Ok(found)
    }
}
