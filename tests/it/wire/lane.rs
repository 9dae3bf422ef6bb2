//! One run with a lock of its own on a cluster that many share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::terminal::Seat;
use crate::bed::{Bed, Dcctl, Proxy, wait};
use crate::lock::rig::{Gate, text};

/// Whose lock it is before a person reclaims it.
pub(super) const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
/// A time that looks stale.
pub(super) const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";

/// A proxy that misbehaves for one run alone, and the Lease that this run takes for the one lock of the cluster.
pub(super) struct Lane<'a> {
    pub(super) bed: &'a Bed,
    pub(super) proxy: Proxy,
    namespace: String,
}

/// Whether the lock's namespace is there before a run comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Namespace {
    There,
    Missing,
}

impl<'a> Lane<'a> {
    /// A lock that nobody had before.
    pub(super) fn new(bed: &'a Bed, namespace: Namespace) -> Lane<'a> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("dc-k8s-w{:05}", NEXT.fetch_add(1, Ordering::Relaxed));
        if namespace == Namespace::There {
            let object = json!({ "metadata": { "name": name } });
            bed.api().create("/api/v1/namespaces", &object).expect("the bed may do everything");
        }
        Lane { bed, proxy: Proxy::with_lock_in(bed, &name), namespace: name }
    }

    /// The lock that it really is, for what an alias is not for: watches.
    pub(super) fn itself(bed: &'a Bed) -> Lane<'a> {
        Lane { bed, proxy: Proxy::start(bed), namespace: "dc-k8s-system".to_owned() }
    }

    /// Has the lock's namespace deleted, and an object in it keep it from going. Answers where that object is.
    pub(super) fn namespace_that_is_kept(&self) -> String {
        let maps = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let keeps = json!({ "metadata": { "name": "keeps", "finalizers": ["example.com/keep"] } });
        self.bed.api().create(&maps, &keeps).expect("the bed may do everything");
        self.bed.api().delete(&format!("/api/v1/namespaces/{}", self.namespace)).expect("the bed may do everything");
        format!("{maps}/keeps")
    }

    /// Lets that object go.
    pub(super) fn let_go_of(&self, object: &str) {
        let free = json!({ "metadata": { "finalizers": null } });
        self.bed.api().merge(object, &free).expect("the bed may do everything");
    }

    /// The path of its Leases for the API server itself.
    fn leases(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace)
    }

    /// The path of the lock for the API server itself.
    pub(super) fn lock(&self) -> String {
        format!("{}/dcctl", self.leases())
    }

    /// The Lease as it is stored, if there is one.
    pub(super) fn lease(&self) -> Option<Value> {
        self.bed.api().get(&self.lock()).expect("the API server answers")
    }

    /// The holder in the Lease; none when there is no Lease.
    pub(super) fn holder(&self) -> Option<String> {
        self.lease().map(|lease| text(&lease["spec"]["holderIdentity"]))
    }

    /// Writes a Lease of this holder by hand.
    pub(super) fn write(&self, holder: &str) -> Value {
        self.write_spec(&json!({ "holderIdentity": holder, "leaseDurationSeconds": 60, "leaseTransitions": 3,
            "acquireTime": LONG_AGO, "renewTime": LONG_AGO }))
    }

    /// Writes a Lease with this in it by hand.
    pub(super) fn write_spec(&self, spec: &Value) -> Value {
        let lease = json!({ "metadata": { "name": "dcctl" }, "spec": spec });
        self.bed.api().create(&self.leases(), &lease).expect("the bed may do everything")
    }

    /// Changes the Lease by hand, and says what it is then.
    pub(super) fn merge(&self, fields: &Value) -> Value {
        self.bed.api().merge(&self.lock(), fields).expect("the bed may do everything")
    }

    /// A file of this run alone.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        let folder = self.bed.file(&self.namespace);
        fs::create_dir_all(&folder).expect("the test's folder can be written");
        folder.join(name)
    }

    /// A gate at which a command can wait.
    pub(super) fn gate(&self, name: &str) -> Gate {
        let path = self.file(name);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
        Gate::at(path)
    }

    fn dcctl(&self, words: &[&str]) -> Dcctl {
        self.bed
            .dcctl(words.iter().copied().chain(["--kube-context", "bed"]))
            .with_kubeconfig(&self.proxy.kubeconfig("admin"))
            .env("HOME", self.file("home"))
            .env("BED_SUSPENDED", self.file("suspended"))
    }

    /// A script of the shell under the lock, not started yet. `@` in it is this run's own folder.
    pub(super) fn exec(&self, script: &str) -> Dcctl {
        let script = script.replace('@', &self.file("").display().to_string());
        self.dcctl(&["exec", "--output", "jsonl"]).args(["--", "sh", "-c", &script])
    }

    /// The same, waiting for the lock.
    pub(super) fn wait(&self, script: &str) -> Dcctl {
        self.dcctl(&["exec", "--output", "jsonl", "--wait"]).args(["--", "sh", "-c", script])
    }

    /// [`AT_WORK`]. It runs, and the Lease says so.
    pub(super) fn at_work(&self) -> Running {
        self.started(self.exec(AT_WORK))
    }

    /// Starts a run, and waits until the Lease says that its command runs.
    pub(super) fn started(&self, run: Dcctl) -> Running {
        let run = run.start();
        wait::fact("the command to be noted", || self.lease().filter(notes_children));
        run
    }

    /// Lets that command end well.
    pub(super) fn let_go(&self) {
        self.let_end(0);
    }

    /// Lets that command end with this status.
    pub(super) fn let_end(&self, status: u8) {
        self.put("go", &status.to_string());
    }

    /// Puts a whole file there at once.
    pub(super) fn put(&self, name: &str, text: &str) {
        let next = self.file(&format!("{name}.next"));
        fs::write(&next, text).expect("the test's folder can be written");
        fs::rename(next, self.file(name)).expect("the test's folder can be written");
    }

    /// The signals that it was sent, in lines.
    pub(super) fn signals(&self) -> String {
        fs::read_to_string(self.file("signals")).unwrap_or_default()
    }

    /// Waits until the Lease was renewed once more than now, and says what it is then.
    pub(super) fn renewed(&self) -> Value {
        let at = |lease: &Value| lease["spec"]["renewTime"].clone();
        let before = self.lease().map(|lease| at(&lease));
        wait::fact("the lock to be renewed", || self.lease().filter(|lease| Some(at(lease)) != before))
    }

    /// The kubeconfig of `admin` through the proxy, with something changed in it.
    pub(super) fn kubeconfig(&self, change: impl FnOnce(&mut Value)) -> PathBuf {
        let text = fs::read_to_string(self.proxy.kubeconfig("admin")).expect("it was written just now");
        let mut value: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        change(&mut value);
        let path = self.file("kubeconfig");
        fs::write(&path, value.to_string()).expect("the test's folder can be written");
        path
    }

    /// A person who sits down to reclaim the lock.
    pub(super) fn reclaim(&self) -> Seat {
        self.reclaim_with(&self.proxy.kubeconfig("admin"))
    }

    /// The same with this kubeconfig.
    pub(super) fn reclaim_with(&self, kubeconfig: &Path) -> Seat {
        Seat::take(self.dcctl(&["instances", "reclaim"]).with_kubeconfig(kubeconfig).env("TERM", "xterm"))
    }

    /// The machine was suspended for this long, in all, as far as this run can tell.
    pub(super) fn suspend(&self, seconds: u64) {
        self.put("suspended", &seconds.to_string());
    }

    /// How many requests have met a rule of the proxy.
    pub(super) fn suffered(&self) -> usize {
        self.proxy.seen().iter().filter(|seen| seen.fault.is_some()).count()
    }
}

/// A command that runs until it is let go or asked to stop, which it notes.
pub(super) const AT_WORK: &str =
    "trap 'echo TERM >> @/signals; exit 5' TERM; while [ ! -e @/go ]; do sleep 0.2; done; exit $(cat @/go)";

fn notes_children(lease: &Value) -> bool {
    lease["metadata"]["annotations"].get("dcctl.devicechain.io/children").is_some()
}

/// Does this for every row, so many at a time. Fails the test with everything that went wrong, once all rows are done.
#[track_caller]
pub(super) fn all_at_once<R: Sync>(
    rows: &[R],
    lanes: usize,
    name: impl Fn(&R) -> String + Sync,
    row: impl Fn(&R) + Sync,
) {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..lanes.min(rows.len()) {
            scope.spawn(|| {
                while let Some(this) = rows.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| row(this)));
                    if let Err(panic) = done {
                        let said = panic.downcast_ref::<String>().cloned();
                        let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
                        let said = format!("{}: {}", name(this), said.unwrap_or_default());
                        wrong.lock().unwrap_or_else(PoisonError::into_inner).push(said);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(wrong.is_empty(), "{} of {} rows went wrong:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}
