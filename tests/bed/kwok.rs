//! The bed's one node: it exists in the API only, and kwok plays its kubelet.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::bed::http::Api;

/// How the node and its pods live; see the file.
pub(crate) const STAGES: &str = include_str!("kwok/stages.yaml");

/// What the node is called.
pub(crate) const NODE: &str = "bed-node";

/// kwok's arguments. The pods' addresses come from a range that is reserved for documentation: nobody has them.
pub(crate) fn arguments(kubeconfig: &Path, stages: &Path) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", stages.display()),
        "--manage-all-nodes=true".into(),
        "--node-lease-duration-seconds=40".into(),
        "--server-address=127.0.0.1:0".into(),
        "--node-ip=127.0.0.1".into(),
        "--cidr=192.0.2.0/24".into(),
    ]
}

/// Makes the node; kwok makes it ready.
pub(crate) fn create_node(api: &Api) -> io::Result<()> {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE } });
    api.create("/api/v1/nodes", &node).map(drop)
}

/// Whether pods can be made and will become ready: the node is, and the default namespace has its service account.
pub(crate) fn ready(api: &Api) -> io::Result<bool> {
    let Some(node) = api.get(&format!("/api/v1/nodes/{NODE}"))? else { return Ok(false) };
    let conditions = node["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    let untainted = node["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    let account = api.get("/api/v1/namespaces/default/serviceaccounts/default")?;
    Ok(conditions.iter().any(ready) && untainted && account.is_some())
}
