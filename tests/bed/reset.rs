//! Bringing a used control plane back to its first state, in a fraction of the time that a new one takes.
//!
//! [`Pristine::look`] remembers which objects there are before any test; [`Pristine::restore`] deletes all others,
//! whoever made them and whatever finalizers they have. It does not undo *changes* to objects that were there before:
//! a test that makes such changes takes a fresh control plane.

use std::collections::BTreeSet;
use std::io;

use serde_json::{Value, json};

use crate::bed::{Api, wait};

/// What is looked at, in the order of deletion: first what could forbid it, last what contains others.
const COLLECTIONS: [(&str, &str); 28] = [
    ("/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    ("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings"),
    ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
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
    ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings"),
    ("/apis/rbac.authorization.k8s.io/v1", "clusterroles"),
    ("/apis/networking.k8s.io/v1", "ingressclasses"),
    ("/apis/storage.k8s.io/v1", "storageclasses"),
    ("/api/v1", "persistentvolumes"),
    ("/apis/apiextensions.k8s.io/v1", CRDS),
    ("/api/v1", "namespaces"),
];
const CRDS: &str = "customresourcedefinitions";

/// Parts of the paths of what Kubernetes makes for itself, perhaps only after the first look.
const KUBERNETES_OWN: [&str; 3] = ["/namespaces/kube-", "/configmaps/kube-root-ca.crt", "/serviceaccounts/default"];

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
        Ok(Pristine(none.others(api)?.into_iter().map(|found| found.path).collect()))
    }

    /// Deletes everything else and waits until it is gone. What has an owner may follow a moment later.
    pub(crate) fn restore(&self, api: &Api) -> io::Result<()> {
        wait::until(wait::GENEROUS, "what a test left behind to be gone", || match self.sweep(api) {
            Ok(0) => Some(Ok(())),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })?
    }

    /// Deletes what it finds and says how much that was.
    fn sweep(&self, api: &Api) -> io::Result<usize> {
        let others = self.others(api)?;
        for found in &others {
            delete(api, found)?;
        }
        Ok(others.len())
    }

    /// Everything that was not there first and has no owner to go with; not what Kubernetes makes for itself.
    fn others(&self, api: &Api) -> io::Result<Vec<Found>> {
        let mut others = Vec::new();
        for (group, plural) in COLLECTIONS {
            let objects = api.list(&format!("{group}/{plural}"))?;
            others.extend(objects.into_iter().map(|object| Found::new(group, plural, object)));
        }
        others.retain(|found| {
            let own = KUBERNETES_OWN.iter().any(|part| found.path.contains(part));
            let owned = !found.object["metadata"]["ownerReferences"].is_null();
            !own && !owned && !self.0.contains(&found.path)
        });
        Ok(others)
    }
}

impl Found {
    fn new(group: &str, plural: &str, object: Value) -> Found {
        let name = object["metadata"]["name"].as_str().unwrap_or("");
        let path = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}/{name}"),
            None => format!("{group}/{plural}/{name}"),
        };
        Found { path, object }
    }
}

fn delete(api: &Api, found: &Found) -> io::Result<()> {
    if is_leaving(&found.object) && !has_finalizers(&found.object) {
        return Ok(());
    }
    if found.path.contains(CRDS) {
        free_custom_objects(api, &found.object)?;
    } else if has_finalizers(&found.object) {
        free(api, &found.path)?;
    }
    // Without the policy a Job would leave its pods behind; without the grace a pod would wait for a kubelet.
    api.delete(&format!("{}?propagationPolicy=Background&gracePeriodSeconds=0", found.path))?;
    if found.object["spec"]["finalizers"] == json!(["kubernetes"]) { let_go(api, &found.path) } else { Ok(()) }
}

/// The controller looks at a deleted namespace only after five seconds. What lay in it is deleted by now, so its work
/// is done.
fn let_go(api: &Api, namespace: &str) -> io::Result<()> {
    let name = namespace.rsplit('/').next();
    let done = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name }, "spec": {} });
    let path = format!("{namespace}/finalize");
    let answer = api.send("PUT", &path, Some(("application/json", done.to_string().as_bytes())))?;
    match answer.status {
        200..300 | 404 | 409 => Ok(()),
        status => Err(io::Error::other(format!("PUT {path}: {status}"))),
    }
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
