//! Whether workloads are ready, and if not, why: in words, because "timed out" helps nobody.
//!
//! One look at a time: whoever waits decides how often and how long, and can stop between two looks. Polled, not
//! watched: it needs no further permission, and a watch that went silent looks like a cluster in which nothing
//! happens.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::client::Cluster;
use crate::cluster::document::Document;
use crate::cluster::request::{Ask, Refusal, encode};
use crate::cluster::workload::{DaemonSet, Deployment, Pod, StatefulSet};
use crate::failure::{Code, Failure};

/// How a workload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is ready.
    Ready,
    /// It takes its time, as workloads do; what is still missing.
    Starting(String),
    /// It will not become ready by itself; why.
    Trouble(String),
}

/// A workload, or a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// `Deployment`, `Pod`, …
    pub kind: &'static str,
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: State,
}

/// A workload that has to be there, as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// What it is.
    pub kind: Kind,
    /// Where it lives.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A kind of workload that says by itself whether it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A `Deployment`.
    Deployment,
    /// A `StatefulSet`.
    StatefulSet,
    /// A `DaemonSet`.
    DaemonSet,
}

impl Kind {
    /// The kind of this object; none for all others.
    pub fn of(document: &Document) -> Option<Kind> {
        let kinds = [Kind::Deployment, Kind::StatefulSet, Kind::DaemonSet];
        kinds.into_iter().find(|kind| document.group() == "apps" && document.kind == kind.word())
    }

    fn word(self) -> &'static str {
        match self {
            Kind::Deployment => "Deployment",
            Kind::StatefulSet => "StatefulSet",
            Kind::DaemonSet => "DaemonSet",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Kind::Deployment => "deployments",
            Kind::StatefulSet => "statefulsets",
            Kind::DaemonSet => "daemonsets",
        }
    }
}

/// What one look showed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// The workloads and pods that there are.
    pub workloads: Vec<Workload>,
    /// What could not be looked at: the API server's sentences.
    pub unseen: Vec<String>,
}

impl Look {
    /// Whether everything is ready.
    pub fn is_ready(&self) -> bool {
        self.workloads.iter().all(|workload| workload.state == State::Ready)
    }
}

/// The answer to a look.
#[derive(Debug)]
pub enum Seen {
    /// This is what there is.
    Look(Look),
    /// The API server did not answer just now; looking again may help.
    NoAnswer(Failure),
}

impl Cluster {
    /// A Deployment, whole; none when it is not there.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn deployment(&self, namespace: &str, name: &str) -> Result<Option<Value>, Failure> {
        let path = format!("{}/{}", collection("apps/v1", namespace, "deployments"), encode(name));
        Ok(self.find(&path, &format!("read Deployment {namespace}/{name}")).await?)
    }

    /// Looks at one Deployment: whether its latest generation is rolled out and available. While it is not, its pods
    /// are looked at too, because they tell why.
    pub async fn look_at_deployment(&self, namespace: &str, name: &str) -> Result<Seen, Failure> {
        let named = Named { kind: Kind::Deployment, namespace: namespace.to_owned(), name: name.to_owned() };
        let deployment: Deployment = match self.one(&named).await {
            Ok(Some(deployment)) => deployment,
            Ok(None) => return Ok(Seen::Look(Look { workloads: vec![missing(&named)], unseen: Vec::new() })),
            Err(refusal) => return no_answer(refusal),
        };
        let mut look = Look { workloads: vec![of_deployment(&deployment)], unseen: Vec::new() };
        if look.is_ready() {
            return Ok(Seen::Look(look));
        }
        let selector = deployment.spec.as_ref().map(|spec| selector(&spec.selector)).unwrap_or_default();
        let ask = Ask::get(collection("v1", namespace, "pods")).with("labelSelector", selector);
        match self.list::<Pod>(&ask, &format!("list the pods in {namespace}")).await {
            Ok(pods) => look.workloads.extend(pods.iter().filter_map(of_pod)),
            Err(refusal) if refusal.failure.code == Code::Forbidden => look.unseen.push(refusal.failure.message),
            Err(refusal) => return no_answer(refusal),
        }
        Ok(Seen::Look(look))
    }

    /// Looks at every workload and pod of a namespace. Pods of Jobs are left out: what a Job is for, only its maker
    /// knows.
    ///
    /// An account that may list Deployments and pods, but not the other kinds, sees those through their pods.
    pub async fn look_at_namespace(&self, namespace: &str) -> Result<Seen, Failure> {
        let mut look = Look::default();
        match self.all::<Deployment>("apps/v1", namespace, "deployments").await {
            Ok(found) => look.workloads.extend(found.iter().map(of_deployment)),
            Err(refusal) => return no_answer(refusal),
        }
        match self.all::<StatefulSet>("apps/v1", namespace, "statefulsets").await {
            Ok(found) => look.workloads.extend(found.iter().map(of_stateful_set)),
            Err(refusal) if refusal.failure.code == Code::Forbidden => look.unseen.push(refusal.failure.message),
            Err(refusal) => return no_answer(refusal),
        }
        match self.all::<DaemonSet>("apps/v1", namespace, "daemonsets").await {
            Ok(found) => look.workloads.extend(found.iter().map(of_daemon_set)),
            Err(refusal) if refusal.failure.code == Code::Forbidden => look.unseen.push(refusal.failure.message),
            Err(refusal) => return no_answer(refusal),
        }
        match self.all::<Pod>("v1", namespace, "pods").await {
            Ok(pods) => look.workloads.extend(pods.iter().filter_map(of_pod)),
            Err(refusal) => return no_answer(refusal),
        }
        Ok(Seen::Look(look))
    }

    /// The same, and beside it everything of `named`, wherever it is: what a manifest names and the cluster does not have
    /// is in trouble.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn look_at_named(&self, namespace: &str, named: &[Named]) -> Result<Seen, Failure> {
        let mut look = match self.look_at_namespace(namespace).await? {
            Seen::Look(look) => look,
            no_answer @ Seen::NoAnswer(_) => return Ok(no_answer),
        };
        for named in named {
            let is_it = |seen: &Workload| {
                (seen.kind, &seen.namespace, &seen.name) == (named.kind.word(), &named.namespace, &named.name)
            };
            if look.workloads.iter().any(is_it) {
                continue;
            }
            let found = match named.kind {
                Kind::Deployment => self.one(named).await.map(|found| found.as_ref().map(of_deployment)),
                Kind::StatefulSet => self.one(named).await.map(|found| found.as_ref().map(of_stateful_set)),
                Kind::DaemonSet => self.one(named).await.map(|found| found.as_ref().map(of_daemon_set)),
            };
            match found {
                Ok(found) => look.workloads.push(found.unwrap_or_else(|| missing(named))),
                Err(refusal) if refusal.failure.code == Code::Forbidden => look.unseen.push(refusal.failure.message),
                Err(refusal) => return no_answer(refusal),
            }
        }
        Ok(Seen::Look(look))
    }

    /// None when it is not there.
    async fn one<T: DeserializeOwned>(&self, named: &Named) -> Result<Option<T>, Refusal> {
        let Named { kind, namespace, name } = named;
        let path = format!("{}/{}", collection("apps/v1", namespace, kind.plural()), encode(name));
        match self.ask(&Ask::get(path), &format!("read {} {namespace}/{name}", kind.word())).await {
            Ok(found) => Ok(Some(found)),
            Err(refusal) if refusal.code() == Some(404) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    async fn all<T: DeserializeOwned>(&self, version: &str, namespace: &str, plural: &str) -> Result<Vec<T>, Refusal> {
        let ask = Ask::get(collection(version, namespace, plural));
        self.list(&ask, &format!("list the {plural} in {namespace}")).await
    }
}

fn no_answer(refusal: Refusal) -> Result<Seen, Failure> {
    if refusal.is_transient { Ok(Seen::NoAnswer(refusal.failure)) } else { Err(refusal.failure) }
}

fn collection(version: &str, namespace: &str, plural: &str) -> String {
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/namespaces/{}/{plural}", encode(namespace))
}

/// A selector as the API server takes it in a list.
fn selector(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let expressions = selector.match_expressions.iter().flatten().map(|rule| {
        let values = rule.values.iter().flatten().cloned().collect::<Vec<_>>().join(",");
        match rule.operator.as_str() {
            "In" => format!("{} in ({values})", rule.key),
            "NotIn" => format!("{} notin ({values})", rule.key),
            "DoesNotExist" => format!("!{}", rule.key),
            _ => rule.key.clone(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

fn workload(kind: &'static str, metadata: &ObjectMeta, state: State) -> Workload {
    let namespace = metadata.namespace.clone().unwrap_or_default();
    Workload { kind, namespace, name: metadata.name.clone().unwrap_or_default(), state }
}

fn missing(named: &Named) -> Workload {
    let Named { kind, namespace, name } = named.clone();
    Workload { kind: kind.word(), namespace, name, state: State::Trouble("it is not there".to_owned()) }
}

fn starting(text: impl Into<String>) -> State {
    State::Starting(text.into())
}

/// Whether the controller has looked at the latest change.
fn is_behind(metadata: &ObjectMeta, observed: Option<i64>) -> bool {
    observed.unwrap_or(0) < metadata.generation.unwrap_or(0)
}

const NOT_SEEN: &str = "its latest change was not looked at yet";

fn of_deployment(deployment: &Deployment) -> Workload {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let condition = |name: &str| status.conditions.iter().flatten().find(|condition| condition.type_ == name);
    let says = |name: &str, value: &str| {
        let found = condition(name).filter(|condition| condition.status == value)?;
        Some(found.message.clone().unwrap_or_default())
    };
    let (updated, available) = (status.updated_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0));
    let state = if is_behind(&deployment.metadata, status.observed_generation) {
        starting(NOT_SEEN)
    } else if let Some(message) = says("ReplicaFailure", "True") {
        State::Trouble(format!("its pods cannot be made: {message}"))
    } else if let Some(message) = says("Progressing", "False") {
        State::Trouble(format!("it makes no progress: {message}"))
    } else if updated < wanted {
        starting(format!("{updated} of {wanted} pods are of the latest release"))
    } else if available < wanted {
        starting(format!("{available} of {wanted} pods are available"))
    } else if condition("Available").is_none_or(|condition| condition.status != "True") {
        starting("it is not available")
    } else {
        State::Ready
    };
    workload("Deployment", &deployment.metadata, state)
}

fn of_stateful_set(set: &StatefulSet) -> Workload {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = set.status.clone().unwrap_or_default();
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let by_hand = strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete"));
    let partition = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition).unwrap_or(0);
    let (updated, ready) = (status.updated_replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
    let state = if is_behind(&set.metadata, status.observed_generation) {
        starting(NOT_SEEN)
    } else if ready < wanted {
        starting(format!("{ready} of {wanted} pods are ready"))
    } else if !by_hand && updated < wanted - partition {
        starting(format!("{updated} of {wanted} pods are of the latest release"))
    } else {
        State::Ready
    };
    workload("StatefulSet", &set.metadata, state)
}

fn of_daemon_set(set: &DaemonSet) -> Workload {
    let status = set.status.clone().unwrap_or_default();
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    let by_hand = strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("OnDelete"));
    let wanted = status.desired_number_scheduled;
    let (updated, available) = (status.updated_number_scheduled.unwrap_or(0), status.number_available.unwrap_or(0));
    let state = if is_behind(&set.metadata, status.observed_generation) {
        starting(NOT_SEEN)
    } else if !by_hand && updated < wanted {
        starting(format!("{updated} of {wanted} pods are of the latest release"))
    } else if available < wanted {
        starting(format!("{available} of {wanted} pods are available"))
    } else {
        State::Ready
    };
    workload("DaemonSet", &set.metadata, state)
}

/// A pod that counts. One that goes away, is done, or belongs to a Job is nobody's concern; nor is a failed one that
/// its controller has replaced.
fn of_pod(pod: &Pod) -> Option<Workload> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.kind.as_str());
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some()
        || controller == Some("Job")
        || phase == "Succeeded"
        || phase == "Failed" && controller.is_some()
    {
        return None;
    }
    let state = if has(&status, "Ready", "True").is_some() { State::Ready } else { pod_state(&status, phase) };
    Some(workload("Pod", &pod.metadata, state))
}

/// The message of a condition that has this value.
fn has<'a>(status: &'a PodStatus, name: &str, value: &str) -> Option<&'a str> {
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == name)?;
    (condition.status == value).then(|| condition.message.as_deref().unwrap_or_default())
}

fn pod_state(status: &PodStatus, phase: &str) -> State {
    if phase == "Failed" {
        let said = [status.reason.as_deref(), status.message.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        let said = if said.is_empty() { String::new() } else { format!(": {}", said.join(": ")) };
        return State::Trouble(format!("it failed{said}"));
    }
    if let Some(message) = has(status, "PodScheduled", "False") {
        return State::Trouble(format!("no node takes it: {message}"));
    }
    let mut containers =
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    if let Some(why) = containers.find_map(container_trouble) {
        return State::Trouble(why);
    }
    match has(status, "ContainersReady", "False") {
        _ if phase != "Running" => starting("it is being started"),
        Some(message) if !message.is_empty() => starting(format!("it runs, and is not ready: {message}")),
        _ => starting("it runs, and is not ready"),
    }
}

/// Why a container is not running, if it says.
fn container_trouble(container: &ContainerStatus) -> Option<String> {
    let (name, image) = (&container.name, &container.image);
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let message = waiting.message.as_deref().unwrap_or_default();
        let detail = |text: String| if message.is_empty() { text } else { format!("{text}: {message}") };
        return match waiting.reason.as_deref().unwrap_or_default() {
            "ImagePullBackOff"
            | "ErrImagePull"
            | "ErrImageNeverPull"
            | "InvalidImageName"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "SignatureValidationFailed" => {
                Some(detail(format!("the image {image} of container {name} cannot be pulled")))
            }
            "CrashLoopBackOff" => Some(format!("container {name} crashes again and again{}", last_end(container))),
            "PodInitializing" | "ContainerCreating" | "" => None,
            reason => Some(detail(format!("container {name} cannot be started ({reason})"))),
        };
    }
    let ended = state.terminated.as_ref()?;
    (ended.exit_code != 0)
        .then(|| format!("container {name} ended with {}{}", ended.exit_code, reason(ended.reason.as_deref())))
}

fn last_end(container: &ContainerStatus) -> String {
    let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = ended.map(|ended| format!(", last with {}{}", ended.exit_code, reason(ended.reason.as_deref())));
    format!(" ({} restarts{})", container.restart_count, last.unwrap_or_default())
}

fn reason(reason: Option<&str>) -> String {
    match reason {
        Some("Error") | None => String::new(),
        Some(reason) => format!(" ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": status })).expect("a pod")
    }

    fn state(status: &Value) -> Option<State> {
        of_pod(&pod(status)).map(|pod| pod.state)
    }

    fn trouble(text: &str) -> State {
        State::Trouble(text.to_owned())
    }

    #[test]
    fn a_pod_says_why_it_is_not_ready() {
        let waiting = |reason: &str, message: &str| {
            json!({ "phase": "Pending", "containerStatuses": [{ "name": "c", "image": "i:1", "imageID": "", "ready": false,
                "restartCount": 3, "state": { "waiting": { "reason": reason, "message": message } },
                "lastState": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } }] })
        };
        let cases = [
            (
                json!({ "phase": "Pending", "conditions": [
                    { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" }] }),
                Some(trouble("no node takes it: 0/1 nodes are available")),
            ),
            (
                waiting("ErrImagePull", "not found"),
                Some(trouble("the image i:1 of container c cannot be pulled: not found")),
            ),
            (
                waiting("CrashLoopBackOff", "back-off 40s"),
                Some(trouble("container c crashes again and again (3 restarts, last with 137 (OOMKilled))")),
            ),
            (
                waiting("CreateContainerConfigError", "secret \"s\" not found"),
                Some(trouble("container c cannot be started (CreateContainerConfigError): secret \"s\" not found")),
            ),
            (waiting("ContainerCreating", ""), Some(starting("it is being started"))),
            (json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] }), Some(State::Ready)),
            (json!({ "phase": "Succeeded" }), None),
            (json!({ "phase": "Failed", "reason": "Evicted" }), Some(trouble("it failed: Evicted"))),
            (
                json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" },
                    { "type": "ContainersReady", "status": "False", "message": "containers with unready status: [c]" }] }),
                Some(starting("it runs, and is not ready: containers with unready status: [c]")),
            ),
        ];
        for (status, expected) in cases {
            assert_eq!(state(&status), expected);
        }
    }

    #[test]
    fn pods_that_do_not_count_are_left_out() {
        let owned = |kind: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({ "metadata": { "name": "p", "ownerReferences": [
                { "apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": true }] },
                "status": { "phase": phase } }))
            .expect("a pod")
        };
        assert_eq!(of_pod(&owned("Job", "Pending")), None);
        assert_eq!(of_pod(&owned("ReplicaSet", "Failed")), None);
        assert!(of_pod(&owned("ReplicaSet", "Pending")).is_some());
    }

    #[test]
    fn a_deployment_is_ready_when_its_latest_generation_is_available() {
        let deployment = |generation: i64, status: Value| -> State {
            let deployment: Deployment = serde_json::from_value(json!({
                "metadata": { "name": "d", "generation": generation },
                "spec": { "replicas": 2, "selector": {}, "template": {} }, "status": status,
            }))
            .expect("a deployment");
            of_deployment(&deployment).state
        };
        let available = json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            "conditions": [{ "type": "Available", "status": "True" }] });
        assert_eq!(deployment(2, available.clone()), State::Ready);
        assert_eq!(deployment(3, available.clone()), starting(NOT_SEEN));
        let mut half = available.clone();
        half["updatedReplicas"] = json!(1);
        assert_eq!(deployment(2, half.clone()), starting("1 of 2 pods are of the latest release"));
        half["conditions"] = json!([{ "type": "ReplicaFailure", "status": "True", "message": "exceeded quota" }]);
        assert_eq!(deployment(2, half), State::Trouble("its pods cannot be made: exceeded quota".to_owned()));
        assert_eq!(deployment(1, json!({})), starting(NOT_SEEN));
    }

    #[test]
    fn a_selector_becomes_the_text_of_a_list() {
        let given: LabelSelector = serde_json::from_value(json!({ "matchLabels": { "app": "a" }, "matchExpressions": [
            { "key": "tier", "operator": "In", "values": ["x", "y"] }, { "key": "old", "operator": "DoesNotExist" }] }))
        .expect("a selector");
        assert_eq!(selector(&given), "app=a,tier in (x,y),!old");
    }
}
