//! A bundle as meant: every placeholder expanded, every path absolute, every value of its type.
//!
//! This is what steps work from, and what the front hands to the supervisor over their socket. Secrets are in it:
//! it is written to no file, and its `Debug` form does not show them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::variables::environment_name;
use crate::redact::{Secret, exposed_map};

/// A bundle, for one run.
///
/// What the run does not touch is not resolved: `prerequisites` is absent for a run on an instance, `build`,
/// `instance` and `verify` are for a run that is on none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bundle {
    /// The bundle's folder: absolute, without links. A `.tar.gz` was unpacked there.
    pub root: PathBuf,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.version`: what `${version}` stands for.
    pub version: String,
    /// The command that builds the images. Its program is absolute when it lies in the bundle, else it is looked up
    /// on `PATH`.
    pub build: Option<Vec<String>>,
    /// The operator that every instance needs.
    pub operator: Option<Operator>,
    /// The OpenTofu root that all instances share.
    pub prerequisites: Option<Root>,
    /// The instance.
    pub instance: Option<Instance>,
    /// What shows that the instance works, in order.
    pub verify: Vec<Command>,
    /// How many connections the cluster's instances may claim together.
    pub max_connections: Option<u32>,
    /// Facts about the configuration that are worth saying, a sentence each.
    pub notes: Vec<String>,
    /// The names of the variables and secrets that the bundle asks for.
    pub asked: BTreeSet<String>,
}

impl Bundle {
    /// Whether an environment variable of this name gives the bundle something that it asks for.
    pub fn is_given_by(&self, environment: &str) -> bool {
        let is_for = |name: &str| environment_name(name) == environment;
        self.asked.iter().any(|name| is_for(name) || is_for(&name.to_uppercase()))
    }

    /// Every secret of this run, with the name of what it is for.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Secret)> {
        let infrastructure = self.instance.iter().filter_map(|instance| instance.infrastructure.as_ref());
        let chart = self.instance.iter().filter_map(|instance| instance.chart.as_ref());
        self.prerequisites
            .iter()
            .chain(infrastructure)
            .map(|root| &root.secrets)
            .chain(chart.map(|chart| &chart.secrets))
            .flatten()
            .map(|(name, secret)| (name.as_str(), secret))
    }
}

/// The operator and its definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operator {
    /// The manifests' files, absolute, in the order of their paths.
    pub manifests: Vec<PathBuf>,
    /// The operator's own Deployment: what is stamped with the release and waited for.
    pub deployment: Option<Deployment>,
}

/// The name of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// An OpenTofu root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Root {
    /// Its folder, absolute, in the bundle. It may use modules elsewhere in the bundle.
    pub dir: PathBuf,
    /// Its variables, with their types.
    pub vars: Map<String, Value>,
    /// Its secret variables.
    #[serde(with = "exposed_map")]
    pub secrets: BTreeMap<String, Secret>,
}

/// An instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Instance {
    /// Its namespace, which dcctl makes and deletes.
    pub namespace: String,
    /// Its OpenTofu root.
    pub infrastructure: Option<Root>,
    /// Its Helm chart.
    pub chart: Option<Chart>,
    /// How long its workloads may take to become ready.
    pub readiness_timeout: Duration,
    /// What is declared of it on the cluster.
    pub declaration: Option<Declaration>,
    /// What it takes, so that no other instance may.
    pub claims: Claims,
}

/// A Helm chart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chart {
    /// The chart's folder, or its `.tgz`; absolute.
    pub path: PathBuf,
    /// The release's name.
    pub release: String,
    /// Where the release's record lives.
    pub namespace: String,
    /// Values files of the bundle, absolute, in order.
    pub values: Vec<PathBuf>,
    /// Values by their dotted key.
    pub set: Map<String, Value>,
    /// The OpenTofu output that a dotted key gets its value from.
    pub outputs: BTreeMap<String, String>,
    /// Secret values by their dotted key.
    #[serde(with = "exposed_map")]
    pub secrets: BTreeMap<String, Secret>,
    /// How long Helm may wait.
    pub timeout: Duration,
}

/// The `Instance` object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Declaration {
    /// For example `core.devicechain.io/v1beta1`.
    pub api_version: String,
    /// Its `spec`, a map; dcctl invents nothing in it.
    pub spec: Value,
}

/// What an instance takes from what all instances share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The host name of its ingress.
    pub ingress_host: Option<String>,
    /// The MQTT port on the cluster's own machine.
    pub local_mqtt_port: Option<u16>,
    /// Database connections.
    pub connections: Option<u32>,
}

/// A command of the bundle. It runs in the bundle's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// What people call it.
    pub name: String,
    /// Program and arguments; never empty. The program is absolute when it lies in the bundle, else it is looked up
    /// on `PATH`.
    pub run: Vec<String>,
    /// How long it may take.
    pub timeout: Duration,
}
