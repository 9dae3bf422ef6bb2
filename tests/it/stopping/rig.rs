//! A bundle with nothing but an OpenTofu root of three things: one before, one slow, one after.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::{Finished, Journal, Running};
use crate::bed::ledger::Entry;
use crate::bed::{Bed, Dcctl, LEASE, Ledger, wait};

/// One control plane with one such bundle.
pub(crate) struct Rig {
    bed: Bed,
    instance: String,
    ledger: Ledger,
}

impl Rig {
    /// The slow thing takes this many seconds.
    pub(crate) fn new(seconds: f64) -> Rig {
        Rig::with_slow(&format!("  seconds = {seconds}\n"))
    }

    /// The same, and the slow thing's provider leaves a child that holds its standard error, for which OpenTofu waits.
    pub(crate) fn with_a_holder(seconds: f64) -> Rig {
        let held = "  behaviour = \"hold_stderr\"\n  hold_seconds = 600\n  hold_stubborn = true\n";
        Rig::with_slow(&format!("  seconds = {seconds}\n{held}"))
    }

    /// The slow thing has these settings, a line each.
    pub(crate) fn with_slow(settings: &str) -> Rig {
        let bed = Bed::take();
        let ledger = Ledger::at(bed.file("ledger.jsonl"));
        let root = bed.file("bundle/infra");
        fs::create_dir_all(&root).expect("the test's folder can be written");
        let thing = |name: &str, settings: &str| {
            format!("resource \"bed_thing\" \"{name}\" {{\n  name = \"{name}\"\n{settings}}}\n")
        };
        let text = [
            "terraform {\n  required_providers {\n    bed = { source = \"dcctl/bed\" }\n  }\n}\n".to_owned(),
            format!("provider \"bed\" {{ ledger = \"{}\" }}\n", ledger.path().display()),
            thing("before", "  seconds = 0.1\n"),
            thing("slow", &format!("{settings}  depends_on = [bed_thing.before]\n")),
            thing("after", "  depends_on = [bed_thing.slow]\n"),
        ];
        fs::write(root.join("main.tf"), text.concat()).expect("the test's folder can be written");
        let bundle = "apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: { name: stopping, version: 1.0.0 }\n\
                      instance:\n  namespace: \"dci-${instance}\"\n  infrastructure: { root: infra }\n";
        fs::write(bed.file("bundle/bundle.yaml"), bundle).expect("the test's folder can be written");
        Rig { bed, instance: Bed::instance(), ledger }
    }

    /// A bootstrap of this instance, not started.
    pub(crate) fn bootstrap(&self, instance: &str) -> Dcctl {
        let junit = self.bed.file("junit.xml");
        self.bed
            .dcctl(["bootstrap", instance, "--bundle"])
            .arg(self.bed.file("bundle"))
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg("--junit")
            .arg(junit)
            .env("DCCTL_OUTPUT", "jsonl")
    }

    /// A bootstrap of this rig's instance, not started.
    pub(crate) fn own(&self) -> Dcctl {
        self.bootstrap(&self.instance)
    }

    /// A bootstrap of this rig's instance with another kubeconfig.
    pub(crate) fn bootstrap_with(&self, kubeconfig: &Path) -> Dcctl {
        self.bootstrap(&self.instance).with_kubeconfig(kubeconfig)
    }

    /// The instance of this rig.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    pub(crate) fn bed(&self) -> &Bed {
        &self.bed
    }

    /// A named pipe in the test's folder.
    pub(crate) fn pipe(&self, name: &str) -> PathBuf {
        let path = self.bed.file(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .expect("the test's folder can be written");
        path
    }

    /// The folders of this test's runs.
    pub(crate) fn run_folders(&self) -> Vec<PathBuf> {
        let runs = self.bed.file("home/.local/state/dcctl/runs");
        let found = fs::read_dir(runs).into_iter().flatten().flatten().map(|run| run.path());
        found.filter(|path| !path.is_symlink()).collect()
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.bed.file("state")
    }

    pub(crate) fn start(&self) -> Running {
        self.bootstrap(&self.instance).start()
    }

    /// The same with one more variable.
    pub(crate) fn start_with(&self, name: &str, value: &str) -> Running {
        self.bootstrap(&self.instance).env(name, value).start()
    }

    /// Waits until the slow thing is being created: its ledger line is written and OpenTofu has said that it began.
    pub(crate) fn wait_until_in_flight(&self, run: &Running) {
        self.wait_until_slow(&run.journal());
    }

    /// The same of a run whose front cannot be heard.
    pub(crate) fn wait_until_slow(&self, journal: &Journal) {
        journal.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.slow");
        wait::fact("the creation to begin", || (self.created("slow") == 1).then_some(()));
    }

    /// Every act of the provider, in order.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.ledger.entries()
    }

    pub(crate) fn created(&self, name: &str) -> usize {
        self.ledger.created(name)
    }

    /// How many things of this name exist, by the provider's own account.
    pub(crate) fn living(&self, name: &str) -> usize {
        self.ledger.living(name).len()
    }

    /// The holder in the Lease; none when there is no Lease.
    pub(crate) fn lease(&self) -> Option<String> {
        let lease = self.bed.api().get(LEASE).expect("the API server answers")?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// What the Lease says at this JSON pointer; empty when it says nothing there.
    pub(crate) fn lease_says(&self, pointer: &str) -> String {
        let lease = self.bed.api().get(LEASE).expect("the API server answers").unwrap_or_default();
        lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// The text of the state; none when there is none.
    pub(crate) fn state(&self) -> Option<String> {
        let states = fs::read_dir(self.state_dir()).ok()?.flatten().map(|entry| entry.path());
        let mut states = states.filter(|path| path.extension().is_some_and(|extension| extension == "tfstate"));
        fs::read_to_string(states.next()?).ok()
    }

    /// The addresses in the state.
    pub(crate) fn in_state(&self) -> Vec<String> {
        let states = fs::read_dir(self.state_dir()).expect("there is a state folder").flatten();
        let state = states
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "tfstate"))
            .expect("there is a state");
        let state: Value = serde_json::from_slice(&fs::read(state).expect("readable")).expect("a state is JSON");
        let resources = state["resources"].as_array().expect("a state lists its resources");
        let tainted = |resource: &Value| resource["instances"][0]["status"] == "tainted";
        assert!(!resources.iter().any(tainted), "{state}");
        resources.iter().map(|resource| resource["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What exists, by the provider's own account, and is not in the state: the names.
    pub(crate) fn not_in_state(&self) -> Vec<String> {
        let states = fs::read_dir(self.state_dir()).into_iter().flatten().flatten().map(|entry| entry.path());
        let states = states.filter(|path| path.extension().is_some_and(|extension| extension == "tfstate"));
        let known: String = states.filter_map(|path| fs::read_to_string(path).ok()).collect();
        let mut names = Vec::new();
        for name in ["before", "slow", "after"] {
            let adrift = self.ledger.living(name).into_iter().filter(|id| !known.contains(id.as_str()));
            names.extend(adrift.map(|_| name.to_owned()));
        }
        names
    }

    /// Exactly one interrupt was sent and one reported, and everything is where it belongs.
    pub(crate) fn assert_clean_stop(&self, events: &[Value]) {
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        assert_eq!(count("process.interrupted"), 1);
        let reported: Vec<_> = events.iter().filter(|event| event["type"] == "process.interrupt_reported").collect();
        let [reported] = reported[..] else { panic!("not one report of an interrupt: {reported:?}") };
        assert_eq!((&reported["data"]["times"], &reported["data"]["sent"]), (&1.into(), &1.into()), "{reported}");
        assert_eq!(count("stop.requested"), 1);
        let ended = |event: &Value| event["type"] == "process.finished" && event["data"]["program"] == "tofu apply";
        let end = events.iter().rposition(ended).expect("its end was seen");
        let given_back = events.iter().position(|event| event["type"] == "lock.releasing").expect("it was given back");
        assert!(end < given_back, "the lock was given back while OpenTofu was at work");
        let verdict = events.last().expect("there are events");
        assert_eq!(verdict["type"], "run.finished");
        assert_eq!(verdict["data"]["lock"], "released", "{verdict}");
        assert_eq!(self.lease(), None);
        let state = self.in_state();
        assert!(state.contains(&"before".to_owned()) && state.contains(&"slow".to_owned()), "{state:?}");
        assert_eq!(self.created("after"), 0, "something began after the stop");
        self.assert_no_state_lock();
    }

    /// Of a stop at OpenTofu's birth: that nothing was applied is said of a clean one alone, and only where no resource was
    /// heard to begin; then none did. How far OpenTofu comes before the signal meets it is up to the machine.
    pub(crate) fn assert_told_what_was_heard(&self, finished: &Finished) {
        let events = finished.events();
        let heard = |kind: &str| events.iter().any(|event| event["type"] == kind);
        let began = heard("resource.started");
        let told = finished.verdict()["data"].to_string().contains("before anything was applied");
        assert_eq!(told, finished.code() == Some(10) && !began, "{}", finished.stdout);
        if told {
            assert!(heard("process.interrupt_reported"), "nothing of that was heard: {}", finished.stdout);
            for name in ["before", "slow", "after"] {
                assert_eq!(self.created(name), 0, "{name}: {}", finished.stdout);
            }
        }
        assert_eq!(self.created("after"), 0, "something began after the stop: {}", finished.stdout);
    }

    /// OpenTofu was interrupted twice, which frees its own lock, what it was making is named, and the lock was left.
    pub(crate) fn assert_forced(&self, events: &[Value]) {
        let interrupts = events.iter().filter(|event| event["type"] == "process.interrupted").count();
        assert_eq!(interrupts, 2, "OpenTofu's state lock is not given back by one alone");
        let verdict = &events.last().expect("there are events")["data"];
        assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&12.into(), &"left".into()), "{verdict}");
        assert_eq!(self.lease().as_deref(), verdict["holder"].as_str(), "{verdict}");
        assert!(verdict["unfinished"].to_string().contains("bed_thing.slow"), "{verdict}");
        let next = verdict["next"].to_string();
        assert!(next.contains("bed_thing.slow") && next.contains("made a second time"), "{verdict}");
        self.assert_no_state_lock();
    }

    /// OpenTofu gave its own lock back.
    pub(crate) fn assert_no_state_lock(&self) {
        let locks = fs::read_dir(self.state_dir()).expect("there is a state folder").flatten();
        let left: Vec<_> =
            locks.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("lock.info")).collect();
        assert!(left.is_empty(), "OpenTofu's state lock is still there: {left:?}");
    }

    /// A second bootstrap creates the rest and nothing twice.
    pub(crate) fn assert_converges(&self) {
        self.bootstrap(&self.instance).run().expect_code(0);
        for name in ["before", "slow", "after"] {
            assert_eq!(self.ledger.living(name).len(), 1, "{name}: {:?}", self.ledger.entries());
            assert_eq!(self.created(name), 1, "{name}: {:?}", self.ledger.entries());
        }
    }

    pub(crate) fn assert_junit_tells_of_a_stop(&self) {
        let text = fs::read_to_string(self.bed.file("junit.xml")).expect("there is a report");
        let document = roxmltree::Document::parse(&text).expect("it is well-formed");
        let errors = document.descendants().filter(|node| node.has_tag_name("error")).count();
        assert!(errors >= 1, "{text}");
    }

    /// Kills the process that owns the run; the holder identity names it.
    pub(crate) fn kill_supervisor(run: &Running) {
        rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    }
}
