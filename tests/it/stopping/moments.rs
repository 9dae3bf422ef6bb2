//! One SIGTERM at every moment of a run that is not an apply: what is in flight is finished or given up, nothing further
//! is begun, the lock is given back, and nothing is left running.

use rustix::process::Signal;
use serde_json::json;

use crate::bed::{Dcctl, Fault, Gate, Proxy, Rule, pretend, wait};
use crate::lock::rig::Rig;

/// The instance of every run here.
const INSTANCE: &str = "one";

/// A moment, and what has to come of a stop in it.
struct Moment {
    name: &'static str,
    /// What the bundle does.
    rig: fn() -> Rig,
    /// What the run is given beside that.
    given: fn(&Rig, Dcctl) -> Dcctl,
    at: At,
    code: i32,
    lock: &'static str,
    phase: Option<&'static str>,
}

/// How a moment is held until the stop was heard.
enum At {
    /// The first request of this method and path waits.
    Request(&'static str, &'static str),
    /// A program of this name runs, and ends only when it is asked to.
    Program(&'static str),
    /// The run waits for an object.
    Waiting,
    /// A program has made this file, and ends only when it is asked to.
    File(&'static str),
}

impl Moment {
    fn play(&self) {
        let rig = (self.rig)();
        let proxy = Proxy::start(&rig.bed);
        let gate = Gate::new();
        if let At::Request(method, path) = self.at {
            proxy.add(Rule::on(method, path).nth(1).request(Fault::Hold(gate.clone())));
        }
        let run = rig.bootstrap(INSTANCE).with_junit().with_kubeconfig(&proxy.kubeconfig("admin"));
        let run = (self.given)(&rig, run).start();
        match self.at {
            At::Request(..) => gate.wait_for(1),
            At::Program(name) => drop(run.wait_for("process.started", |event| event["data"]["program"] == name)),
            At::Waiting => drop(run.wait_for("object.waiting", |_| true)),
            At::File(name) => wait::fact("the program to begin", || rig.bed.file(name).exists().then_some(())),
        }
        run.signal(Signal::TERM);
        run.wait_for("stop.requested", |_| true);
        gate.open();
        let finished = run.finish();
        let context = format!("in the moment \"{}\":\n{}\n{}", self.name, finished.stdout, finished.stderr);
        assert_eq!(finished.code(), Some(self.code), "{context}");
        let verdict = &finished.verdict()["data"];
        assert_eq!(verdict["lock"], self.lock, "{context}");
        assert_eq!(rig.holder(), None, "{context}");
        assert_eq!(rig.phase(INSTANCE).as_deref(), self.phase, "{context}");
        assert_eq!(finished.junit().with("error").is_empty(), self.code != 10, "{context}");
        wait::fact("nothing of the run to be left", || rig.bed.mark().pids().is_empty().then_some(()));
    }
}

fn as_it_is(_: &Rig, run: Dcctl) -> Dcctl {
    run
}

fn declared() -> Rig {
    Rig::new().declared()
}

fn with_infrastructure() -> Rig {
    Rig::new().slow_thing(0.0).declared()
}

/// An OpenTofu that does this, once it has said its version, and then waits for what never comes.
fn with_tofu(rig: &Rig, run: Dcctl, acts: &[&str]) -> Dcctl {
    let never = format!("until={}", rig.bed.file("never").display());
    let tofu = pretend::tool(&rig.bed.file("pretend"), "tofu", &[acts, &[&never]].concat());
    run.arg("--tofu").arg(tofu)
}

fn with_a_tofu_that_is_slow_to_say_its_version(rig: &Rig, run: Dcctl) -> Dcctl {
    let mark = format!("file={}", rig.bed.file("asked").display());
    with_tofu(rig, run, &[&mark])
}

fn with_a_tofu_that_does_not_end_its_init(rig: &Rig, run: Dcctl) -> Dcctl {
    with_tofu(rig, run, &["when=version", "{", "print=OpenTofu v1.12.6", "exit=0", "}"])
}

/// In the namespace of the instance is a workload whose pods never become ready.
fn with_a_workload_that_never_is_ready(rig: &Rig, run: Dcctl) -> Dcctl {
    let (api, namespace) = (rig.bed.api(), format!("dci-{INSTANCE}"));
    let labels = json!({ "app.kubernetes.io/managed-by": "dcctl", "core.devicechain.io/instance": INSTANCE });
    api.create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace, "labels": labels } }))
        .expect("the bed may do everything");
    let labels = json!({ "app": "web", "bed.dcctl/never-ready": "true" });
    let pod = json!({ "containers": [{ "name": "main", "image": "busybox:1.37" }] });
    let workload = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": labels }, "spec": pod },
        },
    });
    api.create(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &workload).expect("the bed may");
    run
}

/// The image build of the bundle opens a pipe that nobody ever writes to.
fn with_an_image_build(rig: &Rig, run: Dcctl) -> Dcctl {
    rig.gate("build");
    run.arg("--build")
}

#[test]
fn a_stop_before_the_lock_is_asked_for_takes_none() {
    let moments = [
        Moment {
            name: "the API server is asked for its version",
            rig: declared,
            given: as_it_is,
            at: At::Request("GET", "/version"),
            code: 10,
            lock: "never_taken",
            phase: None,
        },
        Moment {
            name: "OpenTofu is asked for its version",
            rig: with_infrastructure,
            given: with_a_tofu_that_is_slow_to_say_its_version,
            at: At::File("asked"),
            code: 10,
            lock: "never_taken",
            phase: None,
        },
        Moment {
            name: "images are built",
            rig: || Rig::new().building("cat ../build.gate").declared(),
            given: with_an_image_build,
            at: At::Program("build images"),
            code: 10,
            lock: "never_taken",
            phase: None,
        },
    ];
    moments.iter().for_each(Moment::play);
}

#[test]
fn a_stop_while_the_lock_is_held_and_nothing_is_applied_gives_it_back() {
    let moments = [
        Moment {
            name: "the cluster is checked",
            rig: declared,
            given: as_it_is,
            at: At::Request("GET", "/instances"),
            code: 10,
            lock: "released",
            phase: None,
        },
        Moment {
            name: "the instance is declared",
            rig: declared,
            given: as_it_is,
            at: At::Request("POST", "/instances"),
            code: 10,
            lock: "released",
            phase: Some("Bootstrapping"),
        },
        Moment {
            name: "OpenTofu initialises",
            rig: with_infrastructure,
            given: with_a_tofu_that_does_not_end_its_init,
            at: At::Program("tofu init"),
            code: 10,
            lock: "released",
            phase: Some("Bootstrapping"),
        },
        Moment {
            name: "workloads are waited for",
            rig: declared,
            given: with_a_workload_that_never_is_ready,
            at: At::Waiting,
            code: 10,
            lock: "released",
            phase: Some("Bootstrapping"),
        },
    ];
    moments.iter().for_each(Moment::play);
}

#[test]
fn a_stop_after_the_work_is_done_changes_neither_the_phase_nor_the_verdict() {
    let moments = [
        Moment {
            name: "Ready is recorded",
            rig: declared,
            given: as_it_is,
            at: At::Request("PATCH", "/instances/"),
            code: 0,
            lock: "released",
            phase: Some("Ready"),
        },
        Moment {
            name: "Failed is recorded",
            rig: || Rig::new().declared().checked("exit 3"),
            given: as_it_is,
            at: At::Request("PATCH", "/instances/"),
            code: 1,
            lock: "released",
            phase: Some("Failed"),
        },
        Moment {
            name: "the lock is given back",
            rig: declared,
            given: as_it_is,
            at: At::Request("DELETE", "/leases/dcctl"),
            code: 0,
            lock: "released",
            phase: Some("Ready"),
        },
    ];
    moments.iter().for_each(Moment::play);
}
