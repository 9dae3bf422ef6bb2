//! One instance whose infrastructure is one thing, with its state on this machine, in the cluster, or on a server.

use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::child::command;
use crate::bed::dcctl::Running;
use crate::bed::state_backend::StateBackend;
use crate::bed::{LEASE, wait};
use crate::lock::rig::{INSTANCES, Rig, text};

/// The annotation with the lineage of an instance's state.
pub(crate) const LINEAGE: &str = "dcctl.devicechain.io/state-lineage";
/// The annotation with the serial that it had.
pub(crate) const SERIAL: &str = "dcctl.devicechain.io/state-serial";

/// The Lease that is the lock of the state in the cluster.
const TOFU_LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lock-tfstate-default-one";
/// The Secret that carries it.
const TOFU_SECRET: &str = "/api/v1/namespaces/default/secrets/tfstate-default-one";

/// Where the state is.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    /// On this machine.
    Local,
    /// In the cluster.
    Cluster,
    /// On a server.
    Server(StateBackend),
}

impl Store {
    /// Both that are not on this machine.
    pub(crate) fn remote() -> [Store; 2] {
        [Store::Cluster, Store::Server(StateBackend::start())]
    }

    fn block(&self) -> String {
        match self {
            Store::Local => String::new(),
            Store::Cluster => "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"one\"\n    namespace     = \"default\"\n  }\n}\n"
                .to_owned(),
            Store::Server(server) => server.block("one"),
        }
    }
}

/// The instance `one`, declared, with its thing.
pub(crate) struct Kept {
    pub(crate) rig: Rig,
    pub(crate) store: Store,
}

impl Kept {
    /// Nothing is built yet.
    pub(crate) fn in_store(store: Store) -> Kept {
        let rig = Rig::new().declared().slow_thing(0.0);
        rig.bed.write("bundle/infra/backend.tf", &store.block());
        let kept = Kept { rig, store };
        kept.thing("");
        kept
    }

    /// The thing with these settings, a line each, from the next run on.
    pub(crate) fn thing(&self, settings: &str) {
        self.things(&[("slow", settings)]);
    }

    /// These things with their settings, each after the one before it.
    pub(crate) fn things(&self, things: &[(&str, &str)]) {
        let file = self.rig.bed.file("bundle/infra/main.tf");
        let whole = fs::read_to_string(&file).expect("it is there");
        let mut text = whole[..whole.find("resource").expect("it has one")].to_owned();
        let mut before: Option<&str> = None;
        for (name, settings) in things {
            let after = before.map_or_else(String::new, |before| format!("  depends_on = [bed_thing.{before}]\n"));
            text.push_str(&format!("resource \"bed_thing\" \"{name}\" {{\n  name = \"{name}\"\n{settings}{after}}}\n"));
            before = Some(name);
        }
        fs::write(file, text).expect("the test's folder can be written");
    }

    /// Waits until the thing is worked on.
    pub(crate) fn wait_until_in_flight(run: &Running) {
        run.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.slow");
    }

    /// The id of OpenTofu's lock, if the state is locked.
    pub(crate) fn locked_by(&self) -> Option<String> {
        let id = match &self.store {
            Store::Local => None,
            Store::Cluster => {
                let lease = self.rig.bed.api().get(TOFU_LEASE).expect("the API server answers")?;
                Some(text(&lease["spec"]["holderIdentity"]))
            }
            Store::Server(server) => Some(text(&server.lock("one")?["ID"])),
        };
        id.filter(|id| !id.is_empty())
    }

    /// Locks the state in somebody's name.
    pub(crate) fn lock_as(&self, info: &Value) {
        match &self.store {
            Store::Local => unreachable!("the kernel keeps that lock"),
            Store::Cluster => {
                let id = text(&info["ID"]);
                let fields = serde_json::json!({ "metadata": { "annotations": { "app.terraform.io/lock-info": info.to_string() } },
                    "spec": { "holderIdentity": id } });
                self.rig.bed.api().merge(TOFU_LEASE, &fields).expect("the bed may do everything");
            }
            Store::Server(server) => server.lock_as("one", info),
        }
    }

    /// The lineage that the declaration names.
    pub(crate) fn recorded(&self) -> Option<String> {
        self.declared(LINEAGE)
    }

    /// What the declaration says under this name.
    pub(crate) fn declared(&self, annotation: &str) -> Option<String> {
        let declared = self.rig.bed.api().get(&format!("{INSTANCES}/one")).expect("the API server answers")?;
        declared["metadata"]["annotations"][annotation].as_str().map(str::to_owned)
    }

    /// Removes the state, as if it had never been.
    pub(crate) fn lose(&self) {
        match &self.store {
            Store::Local => fs::remove_dir_all(self.rig.state_dir("one")).expect("there is a state"),
            Store::Cluster => self.rig.bed.api().delete(TOFU_SECRET).expect("the bed may do everything"),
            Store::Server(server) => server.put("one", None),
        }
    }
}

/// Kills the OpenTofu that this run is waiting for, its last one of this name.
pub(crate) fn kill_tofu(run: &Running, program: &str) {
    kill(tofu(run, program));
}

/// The process of the OpenTofu of this name.
pub(crate) fn tofu(run: &Running, program: &str) -> Pid {
    let started = run.wait_for("process.started", |event| event["data"]["program"] == program);
    let pid = started["data"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
    pid.and_then(Pid::from_raw).expect("it has a process")
}

/// Kills a process that the test started.
pub(crate) fn kill(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
}

/// Kills front and supervisor, and does what a person does who knows that they are gone. Their tools live on.
pub(crate) fn kill_both(rig: &Rig, run: &Running) {
    let supervisor = run.supervisor();
    // The front first, so that it takes over from nobody.
    run.signal(Signal::KILL);
    kill(supervisor);
    wait::fact("the supervisor to be gone", || rustix::process::test_kill_process(supervisor).is_err().then_some(()));
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
}

/// What the hint of a refusal that has these words says to type after them.
#[track_caller]
pub(crate) fn way_on(failure: &Value, after: &str) -> String {
    let hints = failure["hints"].as_array().cloned().unwrap_or_default();
    let way = hints.iter().find_map(|hint| hint.as_str()?.split_once(after).map(|(_, way)| way.to_owned()));
    way.unwrap_or_else(|| panic!("no way on is named: {failure}"))
}

/// Types that into a shell.
#[track_caller]
pub(crate) fn take_the_way_on(failure: &Value, after: &str) {
    let status = command("sh".as_ref()).args(["-c", &way_on(failure, after)]).status();
    assert!(status.expect("there is a shell").success(), "{failure}");
}
