//! A bundle that does as little as a test of the lock needs, and the Lease as everybody can see it.
//!
//! What a step waits for is in the hands of the test: a thing of the bed's own provider takes as long as it is told, a
//! check of the bundle waits at a [`Gate`].

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::{Bed, Dcctl, Ledger, wait};
pub(crate) use crate::bed::{LEASE, LEASES};

/// The declarations.
pub(crate) const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");

/// One control plane with one bundle, which is empty until a test gives it something to do.
pub(crate) struct Rig {
    pub(crate) bed: Bed,
    pub(crate) ledger: Ledger,
    operator: String,
    instance: String,
    verify: String,
    build: String,
}

impl Rig {
    /// A bundle without anything, on a clean control plane that others had before.
    pub(crate) fn new() -> Rig {
        Rig::on(Bed::take())
    }

    /// The same on this control plane.
    pub(crate) fn on(bed: Bed) -> Rig {
        let ledger = Ledger::at(bed.file("ledger.jsonl"));
        fs::create_dir_all(bed.file("bundle")).expect("the test's folder can be written");
        let (operator, instance, verify, build) = Default::default();
        Rig { bed, ledger, operator, instance, verify, build }.write()
    }

    /// With infrastructure: one thing, `slow`, whose creation takes so many seconds unless it is stopped.
    pub(crate) fn slow_thing(self, seconds: f64) -> Rig {
        self.thing(seconds, "honour")
    }

    /// The same, whose creation takes so many seconds also when it is stopped.
    pub(crate) fn stubborn_thing(self, seconds: f64) -> Rig {
        self.thing(seconds, "ignore")
    }

    fn thing(mut self, seconds: f64, on_stop: &str) -> Rig {
        let root = self.bed.file("bundle/infra");
        fs::create_dir_all(&root).expect("the test's folder can be written");
        let text = format!(
            "terraform {{\n  required_providers {{\n    bed = {{ source = \"dcctl/bed\" }}\n  }}\n}}\n\
             provider \"bed\" {{ ledger = \"{}\" }}\n\
             resource \"bed_thing\" \"slow\" {{\n  name = \"slow\"\n  seconds = {seconds}\n  on_stop = \"{on_stop}\"\n}}\n",
            self.ledger.path().display()
        );
        fs::write(root.join("main.tf"), text).expect("the test's folder can be written");
        self.instance.push_str("  infrastructure: { root: infra }\n");
        self.write()
    }

    /// With an operator, which is one ConfigMap `one` with this colour.
    pub(crate) fn operator(mut self, color: &str) -> Rig {
        self.bed.write("bundle/operator/one.yaml", &config_map(color));
        self.operator.push_str("operator: { manifests: operator/ }\n");
        self.write()
    }

    /// With a declaration, on a cluster that knows Instances.
    pub(crate) fn declared(mut self) -> Rig {
        self.bed.api().apply(DEFINITION).expect("the bed may do everything");
        wait::fact("Instances to be served", || self.bed.api().get(INSTANCES).ok().flatten());
        let spec = "{ provider: existing, managed: false, host: \"${instance}.test\" }";
        self.instance
            .push_str(&format!("  declaration: {{ apiVersion: core.devicechain.io/v1beta1, spec: {spec} }}\n"));
        self.write()
    }

    /// With a check that waits until the test opens the gate of its instance.
    pub(crate) fn gated(self) -> Rig {
        let gates = self.bed.scratch().display().to_string();
        self.checked(&format!("read status < {gates}/$DCCTL_INSTANCE.gate && exit $status"))
    }

    /// With a check that runs this in a shell.
    pub(crate) fn checked(mut self, script: &str) -> Rig {
        let script = serde_json::to_string(script).expect("text");
        self.verify = format!("verify: [ {{ name: It works, run: [sh, -c, {script}], timeout: 5m }} ]\n");
        self.write()
    }

    /// With an image build that runs this in a shell.
    pub(crate) fn building(mut self, script: &str) -> Rig {
        let script = serde_json::to_string(script).expect("text");
        self.build = format!("images: {{ build: [sh, -c, {script}] }}\n");
        self.write()
    }

    fn write(self) -> Rig {
        let text = format!(
            "apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: {{ name: lock, version: 1.0.0 }}\n\
             {}instance:\n  namespace: \"dci-${{instance}}\"\n{}{}{}",
            self.operator, self.instance, self.verify, self.build
        );
        fs::write(self.bed.file("bundle/bundle.yaml"), text).expect("the test's folder can be written");
        self
    }

    /// A bootstrap of this instance, as `admin`, not started yet.
    pub(crate) fn bootstrap(&self, instance: &str) -> Dcctl {
        self.verb("bootstrap", instance)
    }

    /// An upgrade of this instance, as `admin`, not started yet.
    pub(crate) fn upgrade(&self, instance: &str) -> Dcctl {
        self.verb("upgrade", instance)
    }

    /// A destroy of this instance, as `admin`, not started yet.
    pub(crate) fn destroy(&self, instance: &str) -> Dcctl {
        self.verb("destroy", instance)
    }

    fn verb(&self, verb: &str, instance: &str) -> Dcctl {
        let run = self.bed.dcctl([verb, instance, "--output", "jsonl", "--bundle"]).arg(self.bed.file("bundle"));
        run.arg("--state-dir").arg(self.state_dir(instance))
    }

    /// An install, as `admin`, not started yet.
    pub(crate) fn install(&self) -> Dcctl {
        self.bed.dcctl(["install", "--output", "jsonl", "--bundle"]).arg(self.bed.file("bundle"))
    }

    /// Where the state of an instance is.
    pub(crate) fn state_dir(&self, instance: &str) -> PathBuf {
        self.bed.file(&format!("state/{instance}"))
    }

    /// The gate of an instance's check. Make it before the run comes to it.
    pub(crate) fn gate(&self, instance: &str) -> Gate {
        let path = self.bed.file(&format!("{instance}.gate"));
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
        Gate(path)
    }

    /// `dcctl lock status` in this form, as `admin`.
    pub(crate) fn lock_status(&self, form: &str) -> Dcctl {
        self.bed.dcctl(["lock", "status", "--output", form])
    }

    /// The file that says for how long the machine was suspended; see [`Rig::suspend`].
    pub(crate) fn suspended(&self) -> PathBuf {
        self.bed.file("suspended")
    }

    /// The machine was suspended for this long, in all. For what was started with `BED_SUSPENDED` naming the file:
    /// only the clock that counts the time asleep goes on.
    pub(crate) fn suspend(&self, seconds: u64) {
        let next = self.bed.write("suspended.next", &seconds.to_string());
        fs::rename(next, self.suspended()).expect("the test's folder can be written");
    }

    /// The Lease, if there is one.
    pub(crate) fn lease(&self) -> Option<Value> {
        self.bed.api().get(LEASE).expect("the API server answers")
    }

    /// The holder in the Lease; none when there is no Lease.
    pub(crate) fn holder(&self) -> Option<String> {
        self.lease().map(|lease| text(&lease["spec"]["holderIdentity"]))
    }

    /// Waits until the Lease was renewed once more than now.
    pub(crate) fn wait_for_renewal(&self) -> Value {
        let renewed = |lease: &Value| lease["spec"]["renewTime"].clone();
        let before = renewed(&self.lease().expect("somebody holds the lock"));
        wait::fact("the lock to be renewed", || self.lease().filter(|lease| renewed(lease) != before))
    }

    /// Writes a Lease of another run in the test's own name.
    pub(crate) fn other_holds(&self, holder: &str, renewed_at: &str) -> Value {
        let lease = json!({
            "metadata": { "name": "dcctl", "annotations": { "core.devicechain.io/instance": "prod" } },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 60, "leaseTransitions": 0,
                "acquireTime": renewed_at, "renewTime": renewed_at },
        });
        self.bed.api().create(LEASES, &lease).expect("the bed may do everything")
    }

    /// Does to the lock under a run what a reclaim does: another holder, one transition more. What it looks like then.
    pub(crate) fn take_away(&self, holder: &str) -> Value {
        let fields = json!({ "spec": { "holderIdentity": holder, "leaseTransitions": 1 } });
        self.bed.api().merge(LEASE, &fields).expect("the bed may do everything")
    }

    /// Waits until the slow thing is being created: its ledger line is written and OpenTofu has said that it began.
    pub(crate) fn wait_until_in_flight(&self, run: &Running) {
        run.journal().wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.slow");
        wait::fact("the creation to begin", || (self.ledger.created("slow") == 1).then_some(()));
    }

    /// The phase on a declaration.
    pub(crate) fn phase(&self, instance: &str) -> Option<String> {
        let declaration = self.bed.api().get(&format!("{INSTANCES}/{instance}")).expect("the API server answers")?;
        Some(text(&declaration["metadata"]["annotations"]["core.devicechain.io/phase"]))
    }

    /// What was written to the API server in this user's name by requests that came after the test's own last write,
    /// as `verb /path`.
    pub(crate) fn writes_since_ours(&self, user: &str) -> Vec<String> {
        let audit = self.bed.audit();
        let by = |event: &&Value, name: &str| event["user"]["username"] == name && is_write(event);
        let ours = audit.iter().rfind(|event| by(event, "bed")).expect("the test wrote something");
        let after = |event: &&Value| text(&event["requestReceivedTimestamp"]) > text(&ours["stageTimestamp"]);
        let said = |event: &Value| format!("{} {}", text(&event["verb"]), text(&event["requestURI"]));
        audit.iter().filter(|event| by(event, user)).filter(after).map(said).collect()
    }

    /// Everything that this user asked to have written, as `verb status resource`, in the order of the answers.
    pub(crate) fn writes_of(&self, user: &str) -> Vec<String> {
        let own = |event: &&Value| event["user"]["username"] == user && is_write(event);
        let said = |event: &Value| {
            let (verb, resource) = (text(&event["verb"]), text(&event["objectRef"]["resource"]));
            format!("{verb} {} {resource}", event["responseStatus"]["code"])
        };
        self.bed.audit().iter().filter(own).map(said).collect()
    }

    /// All requests about the lock in this user's name, as `verb status`.
    pub(crate) fn lock_requests(&self, user: &str) -> Vec<String> {
        let about = |event: &&Value| event["objectRef"]["resource"] == "leases" && event["user"]["username"] == user;
        let said = |event: &Value| format!("{} {}", text(&event["verb"]), event["responseStatus"]["code"]);
        self.bed.audit().iter().filter(about).map(said).collect()
    }
}

/// A ConfigMap `one` of this colour.
pub(crate) fn config_map(color: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: one, namespace: default }}\ndata: {{ color: {color} }}\n"
    )
}

fn is_write(event: &Value) -> bool {
    let reads = ["get", "list", "watch"];
    // What an account may do is asked by a request that is made and kept nowhere.
    let asks = |path: &str| path.contains("dryRun=All") || path.contains("/selfsubject");
    let checks = event["requestURI"].as_str().is_some_and(asks);
    !checks && !reads.contains(&event["verb"].as_str().unwrap_or_default())
}

/// Whether the tests were asked to take their time.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
pub(crate) fn soak() -> bool {
    std::env::var_os("DCCTL_SOAK").is_some()
}

/// Text of an object, empty when there is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Where a check waits until the test has said how it is to end.
pub(crate) struct Gate(PathBuf);

impl Gate {
    /// The gate that this named pipe is.
    pub(crate) fn at(path: PathBuf) -> Gate {
        Gate(path)
    }

    /// The named pipe.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Lets the check end with this status. Waits until it is there.
    pub(crate) fn open(&self, status: u8) {
        // Without a reader this fails at once, where a plain open would wait for ever.
        let open = || rustix::fs::open(&self.0, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok();
        let mut pipe = fs::File::from(wait::fact("a check at the gate", open));
        writeln!(pipe, "{status}").expect("the check reads one line");
    }
}

/// The events of one type.
pub(crate) fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// Splits `user@host/pid/suffix`.
#[track_caller]
pub(crate) fn holder_parts(holder: &str) -> (String, u32, String) {
    let parts: Vec<&str> = holder.split('/').collect();
    let [who, pid, suffix] = parts[..] else { panic!("{holder} is not user@host/pid/suffix") };
    (who.to_owned(), pid.parse().expect("a process id"), suffix.to_owned())
}

/// Whether this is the documented message about a lock that is held and renewed, with any small age.
pub(crate) fn is_live_message(said: &str, instance: &str, holder: &str) -> bool {
    let before =
        format!("this cluster (working on instance \"{instance}\") is being worked on by {holder}, which renewed ");
    let after = " ago; wait for it to finish rather than running a second apply against the same cluster";
    let age = said.strip_prefix(&before).and_then(|rest| rest.strip_suffix(after));
    age.and_then(|age| age.strip_suffix('s')).is_some_and(|seconds| seconds.parse::<u32>().is_ok_and(|age| age < 60))
}
