//! What a step needs to be done outside a run: a kit, its updates, and a bundle written by the test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dcctl::clock;
use dcctl::cluster::kubeconfig::load;
use dcctl::cluster::{Cluster, MayWrite, Proxies, Sources};
use dcctl::config::{Bundle, Claims, Declaration, Deployment, Instance, Operator};
use dcctl::failure::Failure;
use dcctl::process::{Limits, Stopper, stop_channel};
use dcctl::redact::Redactor;
use dcctl::step::{
    Kit, Means, Mode, ObjectChange, Outcome, Update, Updates, UpdatesReceiver, find_helm, find_tofu, updates,
};
use serde_json::Value;

use crate::bed::{Bed, Tools};

/// The version of the bundle that tests write.
pub(crate) const VERSION: &str = "0.9.2";

/// A kit of one test.
pub(crate) struct Bench<'a> {
    pub(crate) bed: &'a Bed,
    pub(crate) kit: Kit,
    pub(crate) stopper: Stopper,
    receiver: UpdatesReceiver,
}

impl Bench<'_> {
    /// A kit with an empty bundle, talking to the API server as this user.
    pub(crate) async fn new<'a>(bed: &'a Bed, user: &str) -> Bench<'a> {
        let cluster = connect(bed, user).await;
        let (stopper, stop) = stop_channel();
        let (sender, receiver) = updates(Arc::default());
        let kit = kit(bed, cluster, stop, sender);
        Bench { bed, kit, stopper, receiver }
    }

    /// The operator of the bundle: manifest files by name, and the Deployment to stamp.
    pub(crate) fn operator(&mut self, files: &[(&str, &str)], deployment: Option<(&str, &str)>) {
        let paths = files.iter().map(|(name, text)| {
            let path = self.bed.file(name);
            std::fs::write(&path, text).expect("the scratch folder can be written");
            path
        });
        let manifests: Vec<PathBuf> = paths.collect();
        let deployment =
            deployment.map(|(namespace, name)| Deployment { namespace: namespace.to_owned(), name: name.to_owned() });
        self.kit.bundle.operator = Some(Operator { manifests, deployment });
    }

    /// The real programs, with an environment in which they work, a bundle folder and a run directory of their own.
    pub(crate) async fn programs(&mut self) {
        let tools = Tools::get();
        let home = self.bed.file("home");
        let path = format!("{}:/usr/bin:/bin", self.bed.described().programs.display());
        let tofurc = tools.path("tofurc").display().to_string();
        let variables = [("PATH", path), ("HOME", home.display().to_string()), ("TF_CLI_CONFIG_FILE", tofurc)];
        self.kit.environment = variables.map(|(name, value)| (name.to_owned(), value)).into();
        let kubeconfig = || self.bed.kubeconfig("admin").as_os_str().to_owned();
        self.kit.leading = vec![("KUBECONFIG", kubeconfig()), ("KUBE_CONFIG_PATH", kubeconfig())];
        self.kit.run_dir = self.bed.file("runs/this");
        self.kit.bundle.root = self.bed.file("bundle");
        for folder in [&home, &self.kit.run_dir, &self.kit.bundle.root] {
            std::fs::create_dir_all(folder).expect("the scratch folder can be written");
        }
        self.kit.tofu = Some(find_tofu(&self.kit, None).await.expect("the bed has OpenTofu"));
        self.kit.helm = Some(find_helm(&self.kit, None).await.expect("the bed has Helm"));
    }

    /// The next run: a new run directory beside the others, and nobody has asked it to stop.
    pub(crate) fn next_run(&mut self, name: &str) {
        let (stopper, stop) = stop_channel();
        self.stopper = stopper;
        self.kit.stop = stop;
        self.kit.run_dir = self.bed.file("runs").join(name);
        std::fs::create_dir_all(&self.kit.run_dir).expect("the scratch folder can be written");
    }

    /// The instance of the bundle, declared with this spec.
    pub(crate) fn instance(&mut self, name: &str, spec: Value, claims: Claims) {
        self.kit.instance = Some(name.to_owned());
        self.kit.bundle.instance = Some(Instance {
            namespace: format!("dci-{name}"),
            infrastructure: None,
            chart: None,
            readiness_timeout: Duration::from_secs(60),
            declaration: Some(Declaration { api_version: "core.devicechain.io/v1beta1".to_owned(), spec }),
            claims,
        });
    }

    /// What was said since the last time.
    pub(crate) fn said(&mut self) -> Vec<Update> {
        let mut said = Vec::new();
        while let Some(update) = self.receiver.try_recv() {
            said.push(update);
        }
        said
    }

    /// The objects that were applied since the last time, as `Kind name`, with what happened to them.
    pub(crate) fn objects(&mut self) -> Vec<(String, ObjectChange)> {
        let said = self.said().into_iter().filter_map(|update| match update {
            Update::Object { object, change, .. } => Some((format!("{} {}", object.kind, object.name), change)),
            _ => None,
        });
        said.collect()
    }
}

pub(crate) async fn connect(bed: &Bed, user: &str) -> Cluster {
    connect_with(bed, user, MayWrite::always()).await
}

pub(crate) async fn connect_with(bed: &Bed, user: &str, may_write: MayWrite) -> Cluster {
    let kubeconfig = load(&Sources::file(bed.kubeconfig(user)), None).expect("the bed writes good kubeconfigs");
    Cluster::connect(&kubeconfig, &Proxies::default(), may_write).await.expect("the API server answers")
}

fn kit(bed: &Bed, cluster: Cluster, stop: dcctl::process::StopWatch, updates: Updates) -> Kit {
    let means = Means {
        mode: Mode::Act,
        // What a tool starts is known by the run's id, so two tests at once may not have the same.
        run: bed.scratch().file_name().expect("a folder of its own").to_string_lossy().into_owned(),
        holder: "alice@build-01/48213/9f3c1a20b7e4d5c6".to_owned(),
        run_dir: bed.scratch().to_owned(),
        may_write: MayWrite::always(),
        leading: Vec::new(),
        keep_output: false,
        environment: Vec::new(),
        redactor: Redactor::default(),
        limits: Limits::default(),
        stop,
        updates,
        clock: Arc::new(clock::System),
    };
    Kit {
        means,
        cluster,
        kube_context: "bed".to_owned(),
        bundle: Bundle {
            root: bed.scratch().to_owned(),
            name: "demo".to_owned(),
            version: VERSION.to_owned(),
            build: None,
            operator: None,
            prerequisites: None,
            instance: None,
            verify: Vec::new(),
            max_connections: Some(600),
            notes: Vec::new(),
            asked: std::collections::BTreeSet::new(),
        },
        instance: None,
        tofu: None,
        helm: None,
        state_dir: bed.file("state"),
        values: Vec::new(),
        build: false,
        force_conflicts: true,
        verb: dcctl::pipeline::Verb::Bootstrap,
        choices: dcctl::step::Choices::default(),
        course: dcctl::step::Course::default(),
        outputs: dcctl::step::Outputs::default(),
    }
}

/// The note of a step that did its work.
#[track_caller]
pub(crate) fn done(outcome: Outcome) -> String {
    match outcome {
        Outcome::Done(note) => note,
        other => panic!("the step was not done: {other:?}"),
    }
}

/// Why a step failed.
#[track_caller]
pub(crate) fn failed(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("the step did not fail: {other:?}"),
    }
}

/// How many objects fared how.
pub(crate) fn tally(objects: &[(String, ObjectChange)]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (_, change) in objects {
        *counts.entry(format!("{change:?}")).or_default() += 1;
    }
    counts
}
