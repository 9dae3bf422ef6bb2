//! Every object of a cluster with its version, to tell whether anything was touched.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use crate::bed::Api;

/// What changes by itself: nodes and their leases tell that they live, events that something happened.
const RESTLESS: [&str; 3] = ["/api/v1/nodes", "/api/v1/events", "/apis/events.k8s.io/v1/events"];

/// The `resourceVersion` of every object that can be listed, by where it is. What an earlier test left is on its way
/// out: namespaces that are being deleted are left out, with what is in them, and what is in those that are gone.
pub(crate) fn inventory(api: &Api) -> io::Result<BTreeMap<String, String>> {
    let namespaces = api.list("/api/v1/namespaces")?;
    let staying = namespaces.iter().filter(|namespace| namespace["metadata"]["deletionTimestamp"].is_null());
    let staying: Vec<&str> = staying.filter_map(|namespace| namespace["metadata"]["name"].as_str()).collect();
    let is_leaving = |object: &Value| {
        let metadata = &object["metadata"];
        !metadata["deletionTimestamp"].is_null()
            || metadata["namespace"].as_str().is_some_and(|namespace| !staying.contains(&namespace))
    };
    let mut found = BTreeMap::new();
    for collection in collections(api)?.iter().filter(|collection| !RESTLESS.contains(&collection.as_str())) {
        for object in api.list(collection)?.into_iter().filter(|object| !is_leaving(object)) {
            let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
            let place = format!("{collection} {}/{} {}", text("namespace"), text("name"), text("uid"));
            if text("namespace") != "kube-node-lease" {
                found.insert(place, text("resourceVersion").to_owned());
            }
        }
    }
    Ok(found)
}

/// The path of every kind that can be listed, once for each version that is served.
fn collections(api: &Api) -> io::Result<Vec<String>> {
    let groups = api.get("/apis")?.unwrap_or_default();
    let versions = groups["groups"].as_array().into_iter().flatten().filter_map(|group| {
        let version = group["preferredVersion"]["groupVersion"].as_str()?;
        Some(format!("/apis/{version}"))
    });
    let mut collections = Vec::new();
    for prefix in std::iter::once("/api/v1".to_owned()).chain(versions) {
        let served = api.get(&prefix)?.unwrap_or_default();
        let resources = served["resources"].as_array().into_iter().flatten();
        let listed = resources
            .filter(|resource| resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&Value::from("list"))));
        collections.extend(listed.filter_map(|resource| Some(format!("{prefix}/{}", resource["name"].as_str()?))));
    }
    Ok(collections)
}
