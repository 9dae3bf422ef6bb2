//! Bringing a used control plane back to its first state, in a fraction of the time that a new one takes.
//!
//! [`Pristine::look`] remembers which objects there are before any test; [`Pristine::restore`] deletes all others,
//! whoever made them and whatever finalizers they have. It does not undo *changes* to objects that were there before:
//! a test that makes such changes takes a fresh control plane.

use std::collections::BTreeSet;
use std::io;

use serde_json::{Value, json};

use crate::bed::{Api, wait};

/// What is cluster-wide, in the order of deletion: first what could forbid it, last what contains others.
const CLUSTER_WIDE: [&str; 11] = [
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/api/v1/persistentvolumes",
    CRDS,
    NAMESPACES,
];
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const NAMESPACES: &str = "/api/v1/namespaces";

/// What lies in namespaces, and is looked for in those that stay.
const NAMESPACED: [(&str, &str); 17] = [
    ("/apis/apps/v1", "deployments"),
    ("/apis/apps/v1", "statefulsets"),
    ("/apis/apps/v1", "daemonsets"),
    ("/apis/batch/v1", "cronjobs"),
    ("/apis/batch/v1", "jobs"),
    ("/api/v1", "pods"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/api/v1", "services"),
    ("/api/v1", "secrets"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "serviceaccounts"),
    ("/apis/networking.k8s.io/v1", "ingresses"),
    ("/apis/networking.k8s.io/v1", "networkpolicies"),
    ("/apis/policy/v1", "poddisruptionbudgets"),
    ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    ("/apis/coordination.k8s.io/v1", "leases"),
];

/// The objects that Kubernetes itself makes in any namespace, perhaps only after the first look.
const KUBERNETES_OWN: [&str; 2] = ["/configmaps/kube-root-ca.crt", "/serviceaccounts/default"];

/// The paths of the objects that were there first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pristine(BTreeSet<String>);

struct Found {
    path: String,
    object: Value,
}

impl Pristine {
    /// Remembers what is there now.
    pub(crate) fn look(api: &Api) -> io::Result<Pristine> {
        let none = Pristine(BTreeSet::new());
        let everywhere = |namespace: &Found| !namespace.path.starts_with("/api/v1/namespaces/kube-");
        let mut paths = BTreeSet::new();
        for collection in CLUSTER_WIDE {
            let found = none.others(api, collection)?;
            if collection == NAMESPACES {
                for namespace in found.iter().filter(|found| everywhere(found)) {
                    paths.extend(none.others_in(api, &namespace.path)?.into_iter().map(|found| found.path));
                }
            }
            paths.extend(found.into_iter().map(|found| found.path));
        }
        Ok(Pristine(paths))
    }

    /// Deletes everything else and waits until it is gone. Only the namespaces of instances (`dci-…`) may still be
    /// on their way out: their names are not used twice.
    pub(crate) fn restore(&self, api: &Api) -> io::Result<()> {
        wait::until(wait::GENEROUS, "what a test left behind to be gone", || match self.sweep(api) {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })?
    }

    /// Deletes what it finds and says how much that was.
    fn sweep(&self, api: &Api) -> io::Result<usize> {
        let mut others = Vec::new();
        for namespace in self.0.iter().filter(|path| is_namespace(path) && !path.contains("/kube-")) {
            others.extend(self.others_in(api, namespace)?);
        }
        for collection in CLUSTER_WIDE {
            others.extend(self.others(api, collection)?);
        }
        others.retain(|found| !(found.path.contains("/namespaces/dci-") && is_leaving(&found.object)));
        for found in &others {
            delete(api, found)?;
        }
        Ok(others.len())
    }

    fn others_in(&self, api: &Api, namespace: &str) -> io::Result<Vec<Found>> {
        let name = namespace.rsplit('/').next().unwrap_or("");
        let mut others = Vec::new();
        for (group, plural) in NAMESPACED {
            others.extend(self.others(api, &format!("{group}/namespaces/{name}/{plural}"))?);
        }
        // What has an owner goes with it.
        others.retain(|found| found.object["metadata"]["ownerReferences"].is_null());
        Ok(others)
    }

    fn others(&self, api: &Api, collection: &str) -> io::Result<Vec<Found>> {
        let found = api.list(collection)?.into_iter().map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap_or("");
            Found { path: format!("{collection}/{name}"), object }
        });
        let known = |path: &str| self.0.contains(path) || KUBERNETES_OWN.iter().any(|own| path.ends_with(own));
        Ok(found.filter(|found| !known(&found.path)).collect())
    }
}

fn delete(api: &Api, found: &Found) -> io::Result<()> {
    if is_leaving(&found.object) && !has_finalizers(&found.object) {
        return Ok(());
    }
    if found.path.starts_with(CRDS) {
        free_custom_objects(api, &found.object)?;
    } else if has_finalizers(&found.object) {
        free(api, &found.path)?;
    }
    // Without the policy a Job would leave its pods behind; without the grace a pod would wait for a kubelet.
    api.delete(&format!("{}?propagationPolicy=Background&gracePeriodSeconds=0", found.path))
}

/// A definition takes its objects along, but waits for their finalizers. Its own finalizer does that work and stays.
fn free_custom_objects(api: &Api, definition: &Value) -> io::Result<()> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let versions = definition["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(version) = versions.iter().find(|version| version["served"] == true) else { return Ok(()) };
    let prefix = format!("/apis/{group}/{}", version["name"].as_str().unwrap_or(""));
    for object in api.list(&format!("{prefix}/{plural}"))?.iter().filter(|object| has_finalizers(object)) {
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        let namespace = object["metadata"]["namespace"].as_str();
        let within = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
        free(api, &format!("{prefix}{within}/{plural}/{name}"))?;
    }
    Ok(())
}

/// Takes the finalizers off an object. Gone meanwhile is fine, too.
fn free(api: &Api, path: &str) -> io::Result<()> {
    let fields = json!({ "metadata": { "finalizers": null } }).to_string();
    let answer = api.send("PATCH", path, Some(("application/merge-patch+json", fields.as_bytes())))?;
    match answer.status {
        200..300 | 404 => Ok(()),
        status => Err(io::Error::other(format!("PATCH {path}: {status}"))),
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_namespace(path: &str) -> bool {
    path.strip_prefix(NAMESPACES).is_some_and(|name| name.matches('/').count() == 1)
}
