//! Starting and ending a real control plane: etcd, the API server, the controller manager, the scheduler and kwok.
//!
//! All of them listen on 127.0.0.1 or not at all. The end is a SIGKILL for each at once: a polite end takes ten
//! seconds, and nobody needs what it would save.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use dcctl::clock::{Clock, System};

use crate::bed::Tools;
use crate::bed::child::{Child, Mark};
use crate::bed::described::Described;
use crate::bed::folder::Folder;
use crate::bed::http::Api;
use crate::bed::serve::End;
use crate::bed::{keys, kwok, users, wait};

/// How long the programs may take to be ready: they need half a minute of a core, which a loaded machine gives late. One
/// that has ended is not waited for.
const LIMIT: Duration = Duration::from_secs(300);

const AUDIT_POLICY: &str = include_str!("audit-policy.yaml");

/// What a new control plane already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// Nothing but what Kubernetes itself makes.
    Pristine,
    /// The rights of user `ops`, and the namespaces that they are given in.
    Granted,
}

/// A running control plane. Dropped, it ends at once and leaves neither a process nor a file.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    // In the order of their end: what watches first, then what is watched, the folder last.
    children: Vec<Child>,
    described: Described,
    folder: Folder,
}

impl ControlPlane {
    /// Starts one and waits until a pod could become ready on it. Call it from the main thread: the programs' lives
    /// are tied to the thread that starts them. It gives up as soon as `end` has come.
    pub(crate) fn start(tools: &Tools, start: Start, end: &End) -> io::Result<ControlPlane> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_start(tools, start, end) {
                // Somebody took the port between our look and the program's.
                Err(error) if tries < 4 && error.to_string().contains("address already in use") => {}
                other => return other,
            }
        }
    }

    /// Everything that its users need to know.
    pub(crate) fn described(&self) -> &Described {
        &self.described
    }

    fn try_start(tools: &Tools, start: Start, end: &End) -> io::Result<ControlPlane> {
        let began = System.now();
        let mut plane = Self::prepare(tools)?;
        plane.start_store_and_server(tools)?;
        let api = plane.wait_for_server(end)?;
        let (port, certificates) = (plane.described.port, plane.described.certificates.clone());
        users::write_kubeconfigs(&plane.described.users, port, &certificates)?;
        plane.start_the_rest(tools)?;
        kwok::create_node(&api)?;
        if start == Start::Granted {
            api.apply(users::RBAC_OPS)?;
        }
        plane.wait("the node to become ready", end, || kwok::ready(&api).ok().filter(|ready| *ready))?;
        let pids = plane.children.iter().map(|child| (child.name().to_owned(), child.pid()));
        plane.described.pids = pids.collect();
        plane.described.start_ms = u64::try_from(System.now().since(began).as_millis()).unwrap_or(u64::MAX);
        Ok(plane)
    }

    /// Makes the folder and every file that is needed before the first program starts.
    fn prepare(tools: &Tools) -> io::Result<ControlPlane> {
        let folder = Folder::new()?;
        let at = folder.path();
        keys::write_pair(at)?;
        keys::write_client_authority(at)?;
        fs::write(at.join("audit-policy.yaml"), AUDIT_POLICY)?;
        fs::write(at.join("stages.yaml"), kwok::STAGES)?;
        tools.link_into(&at.join("bin"))?;
        let port = free_port()?;
        let described = Described {
            server: format!("https://127.0.0.1:{port}"),
            port,
            users: users::write_tokens(at)?,
            pids: std::collections::BTreeMap::new(),
            folder: at.to_owned(),
            certificates: at.join("certificates/apiserver.crt"),
            certificate_key: at.join("certificates/apiserver.key"),
            audit_log: at.join("audit.jsonl"),
            programs: at.join("bin"),
            tofurc: tools.path("tofurc").to_owned(),
            start_ms: 0,
        };
        Ok(ControlPlane { children: Vec::new(), described, folder })
    }

    fn start_store_and_server(&mut self, tools: &Tools) -> io::Result<()> {
        let store = free_port()?;
        let folder = self.folder.path().to_owned();
        self.run("etcd", tools, etcd_arguments(&folder, store))?;
        self.run("kube-apiserver", tools, server_arguments(&folder, store, self.described.port))
    }

    fn start_the_rest(&mut self, tools: &Tools) -> io::Result<()> {
        let folder = self.folder.path().to_owned();
        let kubeconfig = |user: &str| self.described.user(user).kubeconfig.clone();
        let controllers = vec![
            format!("--kubeconfig={}", kubeconfig("bed-controller-manager").display()),
            format!("--service-account-private-key-file={}", folder.join("sa.key").display()),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ];
        let scheduler = vec![
            format!("--kubeconfig={}", kubeconfig("bed-scheduler").display()),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ];
        let kwok = kwok::arguments(&kubeconfig("bed-kwok"), &folder.join("stages.yaml"));
        self.run("kube-controller-manager", tools, controllers)?;
        self.run("kube-scheduler", tools, scheduler)?;
        self.run("kwok", tools, kwok)
    }

    fn run(&mut self, name: &'static str, tools: &Tools, arguments: Vec<String>) -> io::Result<()> {
        let child = Child::start(name, tools.path(name), arguments, self.folder.path())?;
        self.children.insert(0, child);
        Ok(())
    }

    /// The API server writes its certificate while it starts; then it has to say that it is ready.
    fn wait_for_server(&mut self, end: &End) -> io::Result<Api> {
        let described = self.described.clone();
        let ready = |api: &Api| api.send("GET", "/readyz", None).is_ok_and(|answer| answer.status == 200);
        self.wait("the API server to become ready", end, || described.api("bed").ok().filter(ready))
    }

    /// Waits for a fact, and gives up when a program has ended or the end has come.
    fn wait<T>(&mut self, what: &str, end: &End, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
        wait::until(LIMIT, what, || {
            let trouble = self.children.iter_mut().find_map(|child| child.check().err()).or_else(|| end.has_come());
            trouble.map(Err).or_else(|| look().map(Ok))
        })?
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.children.clear();
        Mark::of(self.folder.path()).sweep();
    }
}

fn etcd_arguments(folder: &Path, port: u16) -> Vec<String> {
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:0".into(),
        "--unsafe-no-fsync".into(),
        "--log-level=error".into(),
    ]
}

/// Without the two endpoint flags the API server would publish the machine's own address. The services' addresses
/// come from a range that is reserved for documentation: nobody has them, and nobody here connects to a service.
fn server_arguments(folder: &Path, store: u16, port: u16) -> Vec<String> {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    vec![
        format!("--etcd-servers=http://127.0.0.1:{store}"),
        file("cert-dir", "certificates"),
        format!("--secure-port={port}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        file("service-account-key-file", "sa.pub"),
        file("service-account-signing-key-file", "sa.key"),
        "--service-cluster-ip-range=198.51.100.0/24".into(),
        "--authorization-mode=RBAC".into(),
        file("token-auth-file", "tokens.csv"),
        file("client-ca-file", "clients.crt"),
        "--allow-privileged=true".into(),
        file("audit-policy-file", "audit-policy.yaml"),
        file("audit-log-path", "audit.jsonl"),
    ]
}

/// A port of 127.0.0.1 that nobody listens on at this moment.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
