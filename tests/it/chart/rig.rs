//! A bundle with nothing but a chart: that of the demo, with the one change that a test needs.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dcctl::clock::{Clock, System};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::child::{Mark, command};
use crate::bed::dcctl::{Finished, Running};
use crate::bed::{Bed, Dcctl, LEASE, wait};

/// The secret that the chart needs.
pub(crate) const PASSWORD: &str = "correct-horse-battery";

const DEFINITIONS: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
/// The section that declares the instance.
pub(crate) const DECLARATION: &str = "  declaration:\n    apiVersion: core.devicechain.io/v1beta1\n    \
                           spec: { provider: existing, managed: false }\n";

/// One control plane with one such bundle.
pub(crate) struct Rig {
    pub(crate) bed: Bed,
    pub(crate) instance: String,
}

impl Rig {
    /// A bundle that declares nothing, so that the same instance can be bootstrapped again and again.
    pub(crate) fn new() -> Rig {
        let rig = Rig { bed: Bed::take(), instance: Bed::instance() };
        copy(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/demo/chart")), &rig.bundle().join("chart"));
        rig.write("");
        rig
    }

    /// The same with a declaration, on a cluster that knows instances.
    pub(crate) fn declared() -> Rig {
        let rig = Rig::new();
        rig.bed.api().apply(DEFINITIONS).expect("the bed may do everything");
        let served = || rig.bed.api().get("/apis/core.devicechain.io/v1beta1/instances").ok().flatten();
        wait::fact("instances to be served", served);
        rig.write(DECLARATION);
        rig
    }

    /// The bundle's folder.
    pub(crate) fn bundle(&self) -> PathBuf {
        self.bed.file("bundle")
    }

    /// Writes `bundle.yaml`, with more of the section `instance`, or sections after it.
    pub(crate) fn write(&self, more: &str) {
        let text = format!(
            "apiVersion: dcctl.devicechain.io/v1
kind: Bundle
metadata: {{ name: chart, version: 1.0.0 }}
vars: {{ replicas: 2, never_ready: \"false\", timeout: 2m }}
instance:
  namespace: \"dci-${{instance}}\"
  readiness: {{ timeout: 1m }}
  chart:
    path: chart/
    release: \"dc-${{instance}}\"
    timeout: \"${{var.timeout}}\"
    set:
      instance.id: \"${{instance}}\"
      instance.host: \"${{instance}}.example.com\"
      replicas: \"${{var.replicas}}\"
      podLabels.bed\\.dcctl/never-ready: \"${{var.never_ready}}\"
    secrets: {{ database.password: db_password }}
{more}"
        );
        fs::write(self.bundle().join("bundle.yaml"), text).expect("the test's folder can be written");
    }

    /// Replaces a text in a file of the chart.
    #[track_caller]
    pub(crate) fn change(&self, file: &str, from: &str, to: &str) {
        let path = self.bundle().join("chart").join(file);
        let text = fs::read_to_string(&path).expect("the chart has this file");
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(path, text.replace(from, to)).expect("the test's folder can be written");
    }

    /// A bootstrap of the instance, not started.
    pub(crate) fn bootstrap(&self) -> Dcctl {
        self.bed
            .dcctl(["bootstrap", &self.instance, "--output", "jsonl", "--bundle"])
            .arg(self.bundle())
            .arg("--junit")
            .arg(self.junit())
            .env("DCCTL_VAR_DB_PASSWORD", PASSWORD)
    }

    /// The same with pods that never become ready.
    pub(crate) fn bootstrap_in_vain(&self, timeout: &str) -> Dcctl {
        self.bootstrap().args(["--var", "never_ready=true", "--var"]).arg(format!("timeout={timeout}"))
    }

    /// An upgrade of the instance, not started.
    pub(crate) fn upgrade(&self) -> Dcctl {
        self.bed
            .dcctl(["upgrade", &self.instance, "--output", "jsonl", "--bundle"])
            .arg(self.bundle())
            .env("DCCTL_VAR_DB_PASSWORD", PASSWORD)
    }

    /// The same with pods that never become ready.
    pub(crate) fn upgrade_in_vain(&self, timeout: &str) -> Dcctl {
        self.upgrade().args(["--var", "never_ready=true", "--var"]).arg(format!("timeout={timeout}"))
    }

    /// A destroy of the instance, not started.
    pub(crate) fn destroy(&self) -> Dcctl {
        self.bed
            .dcctl(["destroy", &self.instance, "--output", "jsonl", "--bundle"])
            .arg(self.bundle())
            .env("DCCTL_VAR_DB_PASSWORD", PASSWORD)
    }

    /// Where the JUnit report goes.
    pub(crate) fn junit(&self) -> PathBuf {
        self.bed.file("junit.xml")
    }

    /// Starts a bootstrap that waits in vain, and waits until Helm has applied the chart. Gives Helm's process too.
    pub(crate) fn start_in_vain(&self) -> (Running, Pid) {
        let run = self.bootstrap_in_vain("5m").start();
        let started = run.wait_for("process.started", |event| event["data"]["program"] == "helm upgrade");
        let pid = started["data"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        // Helm makes the Deployment after everything that it needs, so the rest is there too.
        self.wait_until_pending();
        (run, pid.expect("a process id"))
    }

    /// Starts a Helm of a person's own, which waits in vain, and kills it when its release is pending.
    pub(crate) fn kill_a_helm(&self) {
        let mut helm = self.start_a_helm();
        helm.kill().expect("it is our child");
        helm.wait().expect("it is our child");
    }

    /// Starts a Helm of a person's own, which waits in vain; its release is pending.
    pub(crate) fn start_a_helm(&self) -> process::Child {
        let values = json!({
            "instance": { "id": "x", "host": "x" }, "podLabels": { "bed.dcctl/never-ready": "true" },
        });
        let file = self.bed.file("person.json");
        fs::write(&file, values.to_string()).expect("the test's folder can be written");
        let mut helm = self.helm(&["upgrade", "--install", &self.release(), "--wait"]);
        helm.arg("--values").arg(file).arg(self.bundle().join("chart"));
        let helm = helm.spawn().expect("the bed has Helm");
        self.wait_until_pending();
        helm
    }

    /// Waits until a Helm has begun its revision and waits for pods that never become ready.
    pub(crate) fn wait_until_pending(&self) {
        let unready = |pod: &Value| pod["metadata"]["labels"]["bed.dcctl/never-ready"] == "true";
        wait::fact("Helm to wait for the pods", || {
            let pending = self.history().pop().is_some_and(|status| status.starts_with("pending-"));
            (pending && self.pods().iter().any(unready)).then_some(())
        });
    }

    /// Bootstraps with a short patience until the release, left half done, is old enough to be repaired.
    #[track_caller]
    pub(crate) fn bootstrap_when_old(&self) -> Finished {
        self.when_old(|| self.bootstrap())
    }

    /// The same for this run.
    #[track_caller]
    pub(crate) fn when_old(&self, command: impl Fn() -> Dcctl) -> Finished {
        let run = || command().args(["--stop-after", "1s", "--var", "timeout=15s"]).run();
        let finished = run();
        if finished.code() == Some(0) {
            return finished;
        }
        let verdict = self.assert_failed(&finished, "guard.release_pending");
        let named = |word: &str| word.trim_matches('"').parse::<Timestamp>().ok();
        let until = reasons(&verdict).split_whitespace().filter_map(named).next_back().expect("the time is named");
        wait::fact("the record to be old", || (System.wall() > until).then_some(()));
        run().expect_code(0)
    }

    /// A Helm of a person's own.
    pub(crate) fn helm(&self, arguments: &[&str]) -> process::Command {
        let mut helm = command(&self.bed.described().programs.join("helm"));
        helm.args(arguments)
            .args(["--namespace", &self.namespace()])
            .env_clear()
            .env("HOME", self.bed.scratch())
            .env("KUBECONFIG", self.bed.kubeconfig("bed"))
            .env(Mark::VARIABLE, self.bed.mark().value())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        helm
    }

    /// The instance's namespace.
    pub(crate) fn namespace(&self) -> String {
        format!("dci-{}", self.instance)
    }

    /// Makes that namespace as dcctl would.
    pub(crate) fn make_namespace(&self) {
        let labels = json!({ "core.devicechain.io/instance": self.instance, "app.kubernetes.io/managed-by": "dcctl" });
        let namespace = json!({ "metadata": { "name": self.namespace(), "labels": labels } });
        self.bed.api().create("/api/v1/namespaces", &namespace).expect("the bed may do everything");
    }

    /// The release's name.
    pub(crate) fn release(&self) -> String {
        format!("dc-{}", self.instance)
    }

    fn path(&self, plural: &str) -> String {
        let root = match plural {
            "deployments" => "/apis/apps/v1",
            "jobs" => "/apis/batch/v1",
            _ => "/api/v1",
        };
        format!("{root}/namespaces/{}/{plural}", self.namespace())
    }

    /// An object in the instance's namespace.
    pub(crate) fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.bed.api().get(&format!("{}/{name}", self.path(plural))).expect("the API server answers")
    }

    /// The pods of the instance.
    pub(crate) fn pods(&self) -> Vec<Value> {
        self.bed.api().list(&self.path("pods")).expect("the API server answers")
    }

    /// The records of the release, oldest first.
    fn records(&self) -> Vec<Value> {
        let secrets = self.bed.api().list(&self.path("secrets")).expect("the API server answers");
        let number = |secret: &Value| {
            let label = secret["metadata"]["labels"]["version"].as_str();
            label.and_then(|label| label.parse::<u64>().ok()).unwrap_or(0)
        };
        let mut records: Vec<Value> =
            secrets.into_iter().filter(|secret| secret["type"] == "helm.sh/release.v1").collect();
        records.sort_by_key(number);
        records
    }

    /// What Helm says of each revision, oldest first.
    pub(crate) fn history(&self) -> Vec<String> {
        let status = |record: &Value| record["metadata"]["labels"]["status"].as_str().unwrap_or_default().to_owned();
        self.records().iter().map(status).collect()
    }

    /// Rewrites the status in the newest record, as if a Helm had died at that point.
    pub(crate) fn rewrite(&self, status: &str) {
        let record = self.records().pop().expect("there is a release");
        let mut content = unpack(record["data"]["release"].as_str().expect("a record has a release"));
        content["info"]["status"] = json!(status);
        let path = format!("{}/{}", self.path("secrets"), record["metadata"]["name"].as_str().expect("it has a name"));
        let change = json!({ "metadata": { "labels": { "status": status } }, "data": { "release": pack(&content) } });
        self.bed.api().merge(&path, &change).expect("the bed may do everything");
    }

    /// The phase on the declaration.
    pub(crate) fn phase(&self) -> Option<String> {
        let path = format!("/apis/core.devicechain.io/v1beta1/instances/{}", self.instance);
        let declaration = self.bed.api().get(&path).expect("the API server answers")?;
        declaration["metadata"]["annotations"]["core.devicechain.io/phase"].as_str().map(str::to_owned)
    }

    /// The holder in the Lease; none when there is no Lease.
    pub(crate) fn lease(&self) -> Option<String> {
        let lease = self.bed.api().get(LEASE).expect("the API server answers")?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// What a person does who knows that the holder is gone.
    pub(crate) fn reclaim(&self) {
        self.bed.api().delete(LEASE).expect("the bed may do everything");
    }

    /// The verdict of a run that failed with this code, gave the lock back, and said nothing secret.
    #[track_caller]
    pub(crate) fn assert_failed(&self, finished: &Finished, code: &str) -> Value {
        let verdict = finished.verdict()["data"].clone();
        assert_eq!(verdict["failure"]["code"], code, "{verdict}");
        assert_eq!(verdict["lock"], "released", "{verdict}");
        assert_eq!(self.lease(), None);
        self.assert_silent(finished);
        verdict
    }

    /// Nothing that a run leaves says a secret.
    #[track_caller]
    pub(crate) fn assert_silent(&self, finished: &Finished) {
        let events = finished.events();
        let folder = Path::new(events[0]["data"]["run_dir"].as_str().expect("a run says where its directory is"));
        let mut texts = vec![finished.stdout.clone(), finished.stderr.clone()];
        texts.extend(fs::read_to_string(self.junit()));
        read_all(folder, &mut texts);
        let encoded = STANDARD.encode(PASSWORD);
        for text in texts {
            assert!(!text.contains(PASSWORD) && !text.contains(&encoded), "it says a secret:\n{text}");
        }
    }
}

/// Sends a process a signal.
pub(crate) fn signal(pid: Pid, signal: Signal) {
    rustix::process::kill_process(pid, signal).expect("it runs");
}

/// The failure's causes and hints as one text.
pub(crate) fn reasons(verdict: &Value) -> String {
    format!("{}\n{}", verdict["failure"]["causes"], verdict["failure"]["hints"])
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the test's folder can be written");
    for entry in fs::read_dir(from).expect("the fixture is there").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the test's folder can be written");
        }
    }
}

fn read_all(folder: &Path, texts: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            read_all(&entry.path(), texts);
        } else if let Ok(bytes) = fs::read(entry.path()) {
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

/// A release as Helm keeps it: JSON, packed, as base64, which Kubernetes writes as base64 once more.
fn unpack(data: &str) -> Value {
    let packed = STANDARD.decode(data).and_then(|inner| STANDARD.decode(inner)).expect("it is base64 twice");
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("it is packed");
    serde_json::from_str(&text).expect("it is JSON")
}

fn pack(content: &Value) -> String {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(content.to_string().as_bytes()).expect("memory takes everything");
    STANDARD.encode(STANDARD.encode(packer.finish().expect("memory takes everything")))
}
