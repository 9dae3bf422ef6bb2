//! The demo bundle's two commands, made quick, and what they leave behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dcctl::clock::{Clock, System};
use serde_json::Value;

use crate::bed::{Api, Bed, Dcctl, wait};

/// The secret that the demo asks for.
pub(crate) const PASSWORD: &str = "hunter2-but-longer";

/// The demo bundle on one control plane.
pub(crate) struct Demo {
    pub(crate) bed: Bed,
    bundle: PathBuf,
}

impl Demo {
    /// The bundle as it is in the repository.
    pub(crate) fn on(bed: Bed) -> Demo {
        Demo { bed, bundle: Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo") }
    }

    /// A copy of the bundle in the test's folder, which the test may change.
    pub(crate) fn copied(bed: Bed) -> Demo {
        let bundle = bed.file("bundle");
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo"), &bundle);
        Demo { bed, bundle }
    }

    /// Where the bundle is.
    pub(crate) fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// Changes a file of the copy.
    #[track_caller]
    pub(crate) fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.bundle.join(file);
        let text = fs::read_to_string(&path).expect("the bundle has it");
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replace(from, to)).expect("the test's folder can be written");
    }

    fn command(&self, words: &[&str], state: &str) -> Dcctl {
        self.bed
            .dcctl(words)
            .args(["--output", "jsonl", "--kube-context", "bed", "--bundle"])
            .arg(&self.bundle)
            .arg("--state-dir")
            .arg(self.state_dir(state))
            .env("DCCTL_VAR_DB_PASSWORD", PASSWORD)
    }

    /// An install, not started yet.
    pub(crate) fn install(&self) -> Dcctl {
        self.command(&["install", "--var", "pause=1ms"], "cluster")
    }

    /// A bootstrap of this instance with this port, not started yet.
    pub(crate) fn bootstrap(&self, instance: &str, port: u16) -> Dcctl {
        let port = format!("mqtt_port={port}");
        let words = ["bootstrap", instance, "--var", "pause=1ms", "--var", "replicas=1", "--var", &port];
        self.command(&words, instance)
    }

    /// An upgrade of this instance, built with this port and this many replicas, not started yet.
    pub(crate) fn upgrade(&self, instance: &str, port: u16, replicas: u32) -> Dcctl {
        let (port, replicas) = (format!("mqtt_port={port}"), format!("replicas={replicas}"));
        let words = ["upgrade", instance, "--var", "pause=1ms", "--var", &replicas, "--var", &port];
        self.command(&words, instance)
    }

    /// A destroy of this instance, not started yet.
    pub(crate) fn destroy(&self, instance: &str) -> Dcctl {
        self.command(&["destroy", instance], instance)
    }

    /// The folder of the state of an instance, or of `cluster`.
    pub(crate) fn state_dir(&self, of: &str) -> PathBuf {
        self.bed.file(&format!("state/{of}"))
    }

    /// An OpenTofu that writes down the arguments of each call.
    pub(crate) fn recording_tofu(&self, calls: &Path) -> PathBuf {
        let (program, real) = (self.bed.file("recording-tofu"), self.bed.described().programs.join("tofu"));
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\nexec {} \"$@\"\n", calls.display(), real.display());
        fs::write(&program, script).expect("the test's folder can be written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
        program
    }

    /// The install record, read.
    pub(crate) fn record(&self) -> Option<Value> {
        let found = self.get("/api/v1/namespaces/dc-system/configmaps/dc-install")?;
        Some(serde_json::from_str(found["data"]["install.json"].as_str()?).expect("it is JSON"))
    }

    /// An object, if it is there.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.bed.api().get(path).expect("the API server answers")
    }

    /// The phase on a declaration.
    pub(crate) fn phase(&self, instance: &str) -> Option<String> {
        let declared = self.get(&format!("/apis/core.devicechain.io/v1beta1/instances/{instance}"))?;
        declared["metadata"]["annotations"]["core.devicechain.io/phase"].as_str().map(str::to_owned)
    }

    /// What this user had written to the cluster: everything that is neither a read nor a server-side dry run.
    pub(crate) fn writes_of(&self, user: &str) -> Vec<String> {
        let audit = self.bed.audit();
        let text =
            |event: &Value, pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
        let writes = audit.iter().filter(|event| {
            let reads = ["get", "list", "watch"].contains(&text(event, "/verb").as_str());
            let reviews = text(event, "/requestURI").contains("selfsubject");
            !reads && !reviews && !text(event, "/requestURI").contains("dryRun=All")
        });
        let own = writes.filter(|event| text(event, "/user/username") == user);
        own.map(|event| format!("{} {}", text(event, "/verb"), text(event, "/requestURI"))).collect()
    }
}

/// The object of an event `object.applied`, as `Kind name`, and what happened to it.
pub(crate) fn applied(events: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let said = |event: &&Value| event["type"] == "object.applied";
    let named = |event: &Value| {
        let data = &event["data"];
        (format!("{} {}", text(&data["kind"]), text(&data["name"])), text(&data["action"]))
    };
    events.iter().filter(said).map(named).collect()
}

/// Every object of the whole cluster with its version, but for what Kubernetes itself writes without being asked: its
/// own heartbeats, and what it tells about objects.
pub(crate) fn everything(api: &Api) -> BTreeMap<String, String> {
    let get = |path: &str| api.get(path).expect("the API server answers").unwrap_or_default();
    let mut groups = vec!["/api/v1".to_owned()];
    for group in get("/apis")["groups"].as_array().into_iter().flatten() {
        let version = group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default();
        groups.push(format!("/apis/{version}"));
    }
    let mut objects = BTreeMap::new();
    for group in groups {
        for resource in get(&group)["resources"].as_array().into_iter().flatten() {
            let name = resource["name"].as_str().unwrap_or_default();
            let lists = resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            if !lists || ["events", "nodes", "componentstatuses"].contains(&name) {
                continue;
            }
            for object in api.list(&format!("{group}/{name}")).expect("the API server answers") {
                let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_owned();
                let (space, id) = (text("/metadata/namespace"), text("/metadata/name"));
                if name == "leases" && space.starts_with("kube-") {
                    continue;
                }
                objects.insert(format!("{group}/{name} {space}/{id}"), text("/metadata/resourceVersion"));
            }
        }
    }
    objects
}

/// The same, once nothing has changed for a second: what controllers do about a run outlives it by a moment.
pub(crate) fn quiet(api: &Api) -> BTreeMap<String, String> {
    let (mut since, mut seen) = (System.now(), everything(api));
    wait::fact("the cluster to be quiet", || {
        let now = everything(api);
        if now != seen {
            (since, seen) = (System.now(), now);
        }
        (System.now().since(since) >= Duration::from_secs(1)).then(|| seen.clone())
    })
}

/// Every file below a folder, with its content and when it was last changed.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().expect("a file has a kind"));
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let changed = entry.metadata().and_then(|data| data.modified()).expect("a file was changed once");
                found.insert(path.clone(), (fs::read(&path).expect("it can be read"), changed));
            }
        }
    }
    found
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the test's folder can be written");
    for entry in fs::read_dir(from).expect("it is a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("the test's folder can be written");
        }
    }
}
