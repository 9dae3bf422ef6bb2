//! A fault proxy on loopback, between dcctl and the real API server.
//!
//! It ends TLS on both sides (with the API server's own certificate, so a kubeconfig differs in its port only), reads
//! each request, and does what the first matching [`Rule`] says, on the request or on the reply: wait, swallow it,
//! cut the connection, stay silent, answer in the server's place. It records every request. Without rules it is
//! transparent, watches included.
//!
//! [`connection`] carries the messages, [`rule`] is what a test writes, [`alias`] gives many locks to one cluster.

mod alias;
mod connection;
mod rule;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dcctl::clock::{Clock, Instant, System};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ServerConfig};

use crate::bed::message::Head;
use crate::bed::{Bed, hand, http, users, wait};

use alias::Alias;
pub(crate) use rule::{Fault, Gate, Rule};

/// One request as the proxy saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// `GET`, `POST`, …
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    /// In which form the client wants the answer: the field `Accept`.
    pub(crate) accept: String,
    /// Who the client says that it is; dcctl says nothing.
    pub(crate) agent: String,
    /// The status that the API server answered; nothing while it has not, or was never asked.
    pub(crate) status: Option<u16>,
    /// When the request was there, counted from the start of the proxy.
    pub(crate) at: Duration,
    /// What was done to it, if anything.
    pub(crate) fault: Option<&'static str>,
}

/// A running proxy. Dropped, it closes every connection and waits for its threads.
#[derive(Debug)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    folder: PathBuf,
    users: BTreeMap<String, users::User>,
    authority: Vec<u8>,
}

/// What the proxy's threads share.
#[derive(Debug)]
pub(crate) struct Shared {
    port: u16,
    server: SocketAddr,
    began: Instant,
    ended: AtomicBool,
    towards_client: Arc<ServerConfig>,
    towards_server: Arc<ClientConfig>,
    /// Under which other name the lock's namespace is known to the API server.
    alias: Option<Alias>,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Seen>>,
    /// Both ends of every connection, by number, to be cut at the end.
    sockets: Mutex<BTreeMap<u64, TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Proxy {
    /// Starts one in front of this bed's API server.
    pub(crate) fn start(bed: &Bed) -> Proxy {
        Proxy::try_start(bed, None).expect("a proxy needs no more than a port and the bed's files")
    }

    /// The same, with the namespace of the lock being this one, so that runs behind different proxies have different
    /// locks. It is not for watches.
    pub(crate) fn with_lock_in(bed: &Bed, namespace: &str) -> Proxy {
        let alias = Some(Alias::of_the_lock(namespace));
        Proxy::try_start(bed, alias).expect("a proxy needs no more than a port and the bed's files")
    }

    fn try_start(bed: &Bed, alias: Option<Alias>) -> io::Result<Proxy> {
        let described = bed.described();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let authority = fs::read(&described.certificates)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&authority).collect();
        let key = PrivateKeyDer::from_pem_file(&described.certificate_key).map_err(io::Error::other)?;
        let towards_client = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(certificates.map_err(io::Error::other)?, key)
            .map_err(io::Error::other)?;
        let shared = Arc::new(Shared {
            port: listener.local_addr()?.port(),
            server: SocketAddr::from((Ipv4Addr::LOCALHOST, described.port)),
            began: System.now(),
            ended: AtomicBool::new(false),
            towards_client: Arc::new(towards_client),
            towards_server: Arc::new(http::trusting(&described.certificates)?),
            alias,
            rules: Mutex::default(),
            seen: Mutex::default(),
            sockets: Mutex::default(),
            threads: Mutex::default(),
        });
        let accepting = shared.clone();
        let acceptor = Some(thread::spawn(move || accepting.accept(&listener)));
        let folder = bed.scratch().to_owned();
        Ok(Proxy { shared, acceptor, folder, users: described.users.clone(), authority })
    }

    /// A kubeconfig of this user that leads through the proxy.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        let known = self.users.get(user).unwrap_or_else(|| panic!("the bed has no user {user}"));
        let path = self.folder.join(format!("{user}.through-proxy-{}.kubeconfig", self.shared.port));
        let text = users::kubeconfig(user, known, self.shared.port, &self.authority);
        fs::write(&path, text).expect("the test's folder can be written");
        path
    }

    /// A client of the kind that dcctl uses, through the proxy.
    pub(crate) async fn client(&self, user: &str) -> kube::Client {
        hand::client(&self.kubeconfig(user)).await
    }

    /// From now on requests that match meet this rule, unless an earlier rule takes them.
    pub(crate) fn add(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }

    /// From now on there is no rule. What waits at a gate goes on waiting.
    pub(crate) fn clear(&self) {
        lock(&self.shared.rules).clear();
    }

    /// Cuts every connection that there is now, watches included. New ones are carried on.
    pub(crate) fn cut(&self) {
        for socket in lock(&self.shared.sockets).values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// From now on nobody listens here, and every connection is cut: the API server's process is gone.
    pub(crate) fn vanish(&self) {
        self.shared.end_accepting();
        let gone = || TcpStream::connect((Ipv4Addr::LOCALHOST, self.shared.port)).is_err().then_some(());
        wait::fact("the port to be closed", gone);
        self.cut();
    }

    /// Every request so far, in the order of their arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Where it listens, `https://127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.shared.port)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.end_accepting();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for rule in lock(&self.shared.rules).iter() {
            rule.let_go();
        }
        for socket in lock(&self.shared.sockets).values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let threads = std::mem::take(&mut *lock(&self.shared.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if self.has_ended() {
                return;
            }
            let shared = self.clone();
            // What a client breaks off is its own affair; the record says what came of each request.
            let thread = thread::spawn(move || drop(connection::serve(&shared, client)));
            lock(&self.threads).push(thread);
        }
    }

    fn end_accepting(&self) {
        self.ended.store(true, Ordering::SeqCst);
        // The acceptor looks at the flag after each connection: this is the last one.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Records a request and finds out what is to be done about it.
    fn arrived(&self, head: &Head) -> (usize, Option<(rule::Side, Fault)>) {
        let (method, path) = (head.word(0), head.word(1));
        let accept = head.field("accept").unwrap_or_default();
        let agent = head.field("user-agent").unwrap_or_default();
        let found = lock(&self.rules).iter_mut().find_map(|rule| rule.applies(&method, &path));
        let fault = found.as_ref().map(|(_, fault)| fault.name());
        let at = System.now().since(self.began);
        let mut seen = lock(&self.seen);
        seen.push(Seen { method, path, accept, agent, status: None, at, fault });
        (seen.len() - 1, found)
    }

    fn answered(&self, request: usize, status: u16) {
        lock(&self.seen)[request].status = Some(status);
    }

    /// Registers a socket to be cut at the end. The number takes it out again.
    fn register(&self, socket: &TcpStream) -> io::Result<u64> {
        let mut sockets = lock(&self.sockets);
        let number = sockets.last_key_value().map_or(0, |(number, _)| number + 1);
        sockets.insert(number, socket.try_clone()?);
        Ok(number)
    }

    fn forget(&self, number: u64) {
        lock(&self.sockets).remove(&number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
