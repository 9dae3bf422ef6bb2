//! Workloads and pods as far as their readiness can be told from them.
//!
//! The whole types of the API are a quarter of a megabyte of program for fields that nobody here reads: volumes,
//! affinities, probes. Of what is read the types of `k8s-openapi` are used.

use k8s_openapi::api::apps::v1::{DaemonSetStatus, DeploymentStatus, StatefulSetStatus};
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// An object with a spec and a status.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::cluster) struct Object<Spec, Status> {
    /// Its name, its generation, who owns it.
    #[serde(default)]
    pub(in crate::cluster) metadata: ObjectMeta,
    /// What is wanted.
    pub(in crate::cluster) spec: Option<Spec>,
    /// What there is.
    pub(in crate::cluster) status: Option<Status>,
}

/// A Deployment.
pub(in crate::cluster) type Deployment = Object<DeploymentSpec, DeploymentStatus>;
/// A StatefulSet.
pub(in crate::cluster) type StatefulSet = Object<SetSpec, StatefulSetStatus>;
/// A DaemonSet.
pub(in crate::cluster) type DaemonSet = Object<SetSpec, DaemonSetStatus>;
/// A pod.
pub(in crate::cluster) type Pod = Object<IgnoredAny, PodStatus>;

/// What is wanted of a Deployment.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::cluster) struct DeploymentSpec {
    /// How many pods; one when it is not said.
    pub(in crate::cluster) replicas: Option<i32>,
    /// Which pods are its own.
    #[serde(default)]
    pub(in crate::cluster) selector: LabelSelector,
}

/// What is wanted of a StatefulSet or a DaemonSet.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cluster) struct SetSpec {
    /// How many pods; one when it is not said. A DaemonSet has none.
    pub(in crate::cluster) replicas: Option<i32>,
    /// How its pods become those of the latest release.
    pub(in crate::cluster) update_strategy: Option<Strategy>,
}

/// How pods become those of the latest release.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cluster) struct Strategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type")]
    pub(in crate::cluster) type_: Option<String>,
    /// Which of them do.
    pub(in crate::cluster) rolling_update: Option<Rolling>,
}

/// Which pods a rolling update is for.
#[derive(Debug, Clone, Deserialize)]
pub(in crate::cluster) struct Rolling {
    /// Those from this number on.
    pub(in crate::cluster) partition: Option<i32>,
}
