//! What a test holds in its hand: one control plane for itself, a folder for its files, and a clean end.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::bed::child::Mark;
use crate::bed::control_plane::Start;
use crate::bed::described::Described;
use crate::bed::pool::{self, Plane};
use crate::bed::{Api, Dcctl, users};

/// One control plane, exclusively, until it is dropped.
#[derive(Debug)]
pub(crate) struct Bed {
    plane: Option<Plane>,
    origin: Origin,
    scratch: TempDir,
    audit_from: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Pool,
    Fresh,
}

impl Bed {
    /// A clean control plane that other tests had before, with the rights of `ops` granted. Waits for its turn.
    pub(crate) fn take() -> Bed {
        Bed::new(pool::take(), Origin::Pool)
    }

    /// A new control plane with nothing in it but what Kubernetes makes; `ops` has no rights yet. Takes some seconds,
    /// so for tests that need a first run, two clusters at once, or that break the cluster itself.
    pub(crate) fn fresh() -> Bed {
        Bed::new(Plane::start(Start::Pristine).unwrap_or_else(|error| panic!("{error}")), Origin::Fresh)
    }

    fn new(plane: Plane, origin: Origin) -> Bed {
        let audit_from = fs::metadata(&plane.described.audit_log).map_or(0, |data| data.len());
        let scratch = tempfile::tempdir().expect("the temporary folder can be written");
        Bed { plane: Some(plane), origin, scratch, audit_from }
    }

    fn plane(&self) -> &Plane {
        self.plane.as_ref().expect("it is there until the bed is dropped")
    }

    /// Everything there is to know about the control plane.
    pub(crate) fn described(&self) -> &Described {
        &self.plane().described
    }

    /// The process id of the `bed serve` that owns the control plane.
    pub(crate) fn server_pid(&self) -> u32 {
        self.plane().server_pid()
    }

    /// The API server in the test's own name (`bed`, who may do everything).
    pub(crate) fn api(&self) -> Api {
        self.api_as("bed")
    }

    /// The API server as `admin`, `ops` or `nobody`.
    pub(crate) fn api_as(&self, user: &str) -> Api {
        self.described().api(user).expect("the API server's certificate is a file of the bed")
    }

    /// A user's kubeconfig, with contexts `bed` (current) and `nowhere`.
    pub(crate) fn kubeconfig(&self, user: &str) -> &Path {
        &self.described().user(user).kubeconfig
    }

    /// A client of the kind that dcctl uses, for tests of its inner parts.
    pub(crate) async fn client(&self, user: &str) -> kube::Client {
        client(self.kubeconfig(user)).await
    }

    /// Gives `ops` its rights, on a fresh control plane.
    pub(crate) fn grant_ops(&self) {
        self.api().apply(users::RBAC_OPS).expect("the bed's own rights can be applied");
    }

    /// A folder of this test alone, removed at its end.
    pub(crate) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// An instance name that no other test of this process uses.
    pub(crate) fn instance() -> String {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        format!("demo-{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// A run of dcctl with these arguments, not started yet; `admin` unless told otherwise.
    pub(crate) fn dcctl<A: AsRef<std::ffi::OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Dcctl {
        Dcctl::new(self, arguments)
    }

    /// The mark of everything that this test starts.
    pub(crate) fn mark(&self) -> Mark {
        Mark::of(&self.described().folder).of_test(self.scratch().file_name().unwrap_or_default())
    }

    /// What was asked of the API server since this test has the control plane, one audit event a request, in the
    /// order of their ends. A request that has just ended may take a moment to be in it.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let mut text = String::new();
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.described().audit_log)?;
            file.seek(SeekFrom::Start(self.audit_from))?;
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().expect("the audit log can be read");
        // The last line may be only half written yet.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The requests of one user among [`Bed::audit`], as `verb /path`, without the question mark and what follows.
    pub(crate) fn requests_of(&self, user: &str) -> Vec<String> {
        let text = |event: &Value, pointer: &str| event.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let said = |event: &Value| {
            let path = text(event, "/requestURI")?;
            Some(format!("{} {}", text(event, "/verb")?, path.split('?').next().unwrap_or("")))
        };
        let own = |event: &Value| text(event, "/user/username").as_deref() == Some(user);
        self.audit().iter().filter(|event| own(event)).filter_map(said).collect()
    }

    /// Stops a program of the control plane where it is (`etcd`, `kube-apiserver`, …), as a machine that hangs would.
    pub(crate) fn freeze(&self, program: &str) {
        self.signal(program, Signal::STOP);
    }

    /// Lets a frozen program go on.
    pub(crate) fn thaw(&self, program: &str) {
        self.signal(program, Signal::CONT);
    }

    /// Sends a signal to a program of the control plane. A killed one is not started again.
    pub(crate) fn signal(&self, program: &str, signal: Signal) {
        let pid = self.described().pids.get(program).unwrap_or_else(|| panic!("the bed runs no {program}"));
        let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw).expect("a process id");
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("it runs, or its parent has it");
        rustix::process::pidfd_send_signal(process, signal).expect("it is ours");
    }

    /// A file of the test's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.scratch().join(name)
    }

    /// Writes a file of the test's folder, with the folders that it is in, and says where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        let folder = path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).and_then(|()| fs::write(&path, text)).expect("the test's folder can be written");
        path
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Nothing that this test started may meet the next one.
        self.mark().sweep();
        let Some(plane) = self.plane.take() else { return };
        for pid in plane.described.pids.values() {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
        }
        match self.origin {
            Origin::Pool => pool::give_back(plane),
            Origin::Fresh => drop(plane),
        }
    }
}

/// A client of the kind that dcctl uses, for the current context of a kubeconfig.
pub(crate) async fn client(kubeconfig: &Path) -> kube::Client {
    // An error says that it was done before, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the bed writes good kubeconfigs");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    kube::Client::try_from(config.expect("the bed writes good kubeconfigs")).expect("its certificates are good")
}
