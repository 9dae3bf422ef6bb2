//! Clients of the API server that never guess and never repeat a request behind our back.
//!
//! Built from the run's own kubeconfig alone: the library's guessing (`infer`) and its debugging variables would let
//! the environment redirect a run. Its retry layer is off, because it repeats writes; what may be repeated is decided
//! where it is known to be harmless. Every request has a time limit.

use std::fmt;
use std::sync::{Arc, Once, PoisonError, RwLock};
use std::time::Duration;

use kube::config::ExecAuthCluster;
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::cluster::credentials::trim_token_file;
use crate::cluster::discovery::Discovery;
use crate::cluster::error::classify;
use crate::cluster::kubeconfig::Kubeconfig;
use crate::cluster::permission::MayWrite;
use crate::cluster::proxy::{self, Proxies};
use crate::cluster::request::{Ask, Refusal};
use crate::failure::{Code, Failure};

/// How long a connection may take: name, TCP and TLS. It is shorter than the limit of any request, so that a connection
/// that hangs is told as such, and a request that was not sent is known not to have been.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(4);

/// How long the making of a client may take: it runs the kubeconfig's exec plugin, three times.
const BUILD_LIMIT: Duration = Duration::from_secs(30);

/// Everything that is needed to make clients of one cluster, in any runtime. `Debug` shows no credential.
#[derive(Clone)]
pub struct Connection {
    config: Arc<Config>,
    context: String,
    server: String,
    /// The proxy on the way there, without a password.
    proxy: Option<String>,
    /// The command of the exec plugin, for messages.
    plugin: Option<String>,
}

impl Connection {
    /// Reads the certificates that the kubeconfig names and decides about the proxy. Talks to nobody.
    ///
    /// Fails with `surroundings.kubeconfig`, or `surroundings.cluster_unreachable` for an unusable proxy.
    pub fn new(kubeconfig: &Kubeconfig, proxies: &Proxies) -> Result<Connection, Failure> {
        install_ring();
        let server = kubeconfig.server();
        let invalid = |what: &str| {
            Failure::new(Code::KubeconfigInvalid, format!("context \"{}\" cannot be used: {what}", kubeconfig.context))
        };
        let url = server.parse().map_err(|error| invalid(&format!("`{server}` is not an address")).because(&error))?;
        let mut config = Config::new(url);
        config.default_namespace = kubeconfig.namespace.clone().unwrap_or_else(|| "default".to_owned());
        config.root_cert = authorities(kubeconfig, &invalid)?;
        // A pod's certificate authority changes while it runs, so a file is read again.
        let data = kubeconfig.cluster.certificate_authority_data.is_some();
        config.root_cert_file = kubeconfig.cluster.certificate_authority.as_ref().filter(|_| !data).map(Into::into);
        config.accept_invalid_certs = kubeconfig.cluster.insecure_skip_tls_verify.unwrap_or(false);
        config.tls_server_name.clone_from(&kubeconfig.cluster.tls_server_name);
        config.auth_info = kubeconfig.user.clone();
        if let Some(exec) = &mut config.auth_info.exec
            && exec.provide_cluster_info
        {
            let about = ExecAuthCluster::try_from(&kubeconfig.cluster);
            exec.cluster = Some(about.map_err(|error| invalid("its certificate authority").because(&error))?);
        }
        let proxy = proxy::decide(server, kubeconfig.cluster.proxy_url.as_deref(), proxies)?;
        if let Some(proxy) = &proxy {
            let url = proxy.parse().map_err(|error| invalid("the proxy's address is none").because(&error))?;
            config.proxy_url = Some(url);
        }
        config.connect_timeout = Some(CONNECT_LIMIT);
        config.default_retry = false;
        let plugin = kubeconfig.user.exec.as_ref().and_then(|exec| exec.command.clone());
        Ok(Connection {
            config: Arc::new(config),
            context: kubeconfig.context().to_owned(),
            server: server.to_owned(),
            proxy: proxy.as_deref().map(proxy::without_user),
            plugin,
        })
    }

    /// The name of the context.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The API server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The API server's address and the way there, for messages.
    pub(in crate::cluster) fn whereabouts(&self) -> String {
        match &self.proxy {
            Some(proxy) => format!("{} (through the proxy {proxy})", self.server),
            None => self.server.clone(),
        }
    }

    /// Whether a client that is made later may have other credentials: those of a plugin, or of a file.
    pub fn credentials_may_change(&self) -> bool {
        let user = &self.config.auth_info;
        self.plugin.is_some()
            || user.auth_provider.is_some()
            || (user.token_file.is_some() && user.token.is_none())
            || (user.client_certificate.is_some() && user.client_certificate_data.is_none())
    }

    /// Makes a client of its own, bound to the runtime that it is called in. An exec plugin runs on a thread of its
    /// own, and is given up after 30 s; the thread then stays until the plugin ends.
    ///
    /// Fails with `surroundings.credentials`, `surroundings.cluster_untrusted` or `surroundings.kubeconfig`.
    pub async fn client(&self) -> Result<Client, Failure> {
        let answer = self.start_building();
        match timeout(BUILD_LIMIT, answer).await {
            Ok(Ok(built)) => built,
            Ok(Err(_)) => panic!("the thread that makes a client always answers"),
            Err(_) => Err(self.plugin_hangs()),
        }
    }

    /// The same from code that is not asynchronous but runs inside a runtime's context, such as the start of a
    /// thread that drives its own runtime.
    pub fn client_now(&self) -> Result<Client, Failure> {
        let (send, receive) = std::sync::mpsc::channel();
        self.build_on_thread(move |built| {
            // The receiver is gone only when it has given up.
            let _ = send.send(built);
        });
        receive.recv_timeout(BUILD_LIMIT).unwrap_or_else(|_| Err(self.plugin_hangs()))
    }

    fn start_building(&self) -> oneshot::Receiver<Result<Client, Failure>> {
        let (send, receive) = oneshot::channel();
        self.build_on_thread(move |built| {
            let _ = send.send(built);
        });
        receive
    }

    /// Not on the runtime's pool of blocking threads: a runtime waits for those when it ends, and a plugin may hang.
    fn build_on_thread(&self, answer: impl FnOnce(Result<Client, Failure>) + Send + 'static) {
        let connection = self.clone();
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let _inside = runtime.enter();
            let mut config = Config::clone(&connection.config);
            trim_token_file(&mut config.auth_info);
            let built = Client::try_from(config);
            answer(built.map_err(|error| classify(&error, "make a client", &connection.whereabouts())));
        });
    }

    fn plugin_hangs(&self) -> Failure {
        let plugin = self.plugin.as_deref().unwrap_or("none");
        Failure::new(Code::CredentialsRefused, format!("no credentials for {} within 30s", self.server))
            .cause(format!("the kubeconfig's exec plugin `{plugin}` did not end"))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("context", &self.context)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// The certificate authorities that the kubeconfig names, as DER; none means those of the operating system.
fn authorities(kubeconfig: &Kubeconfig, invalid: &dyn Fn(&str) -> Failure) -> Result<Option<Vec<Vec<u8>>>, Failure> {
    use base64::Engine as _;
    let cluster = &kubeconfig.cluster;
    let pem = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .map_err(|error| invalid("its certificate-authority-data is not base64").because(&error))?,
        (None, Some(path)) => std::fs::read(path)
            .map_err(|error| invalid(&format!("its certificate authority {path} cannot be read")).because(&error))?,
        (None, None) => return Ok(None),
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| invalid("its certificate authority is not PEM").because(&error))?;
    if certificates.is_empty() {
        return Err(invalid("its certificate authority holds no certificate"));
    }
    Ok(Some(certificates.iter().map(|certificate| certificate.to_vec()).collect()))
}

/// Makes ring the one crypto provider of this process. A second call changes nothing.
fn install_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails only when one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Whether credentials were asked for anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cluster) enum Refreshed {
    Yes,
    No,
}

/// The API server, connected and known to answer.
#[derive(Clone)]
pub struct Cluster {
    connection: Connection,
    /// Made anew when its credentials have run out; all clones see the new one.
    client: Arc<RwLock<Client>>,
    pub(in crate::cluster) discovery: Arc<Discovery>,
    version: String,
    may_write: MayWrite,
}

impl Cluster {
    /// Makes a client and asks the API server for its version, so that whatever answers is known to be one. Nothing is
    /// ever written through it but with this permission.
    ///
    /// Fails with a code of the group `surroundings`.
    pub async fn connect(kubeconfig: &Kubeconfig, proxies: &Proxies, may_write: MayWrite) -> Result<Cluster, Failure> {
        Cluster::over(Connection::new(kubeconfig, proxies)?, may_write).await
    }

    /// The same over a connection that was made before.
    pub async fn over(connection: Connection, may_write: MayWrite) -> Result<Cluster, Failure> {
        let client = Arc::new(RwLock::new(connection.client().await?));
        let mut cluster = Cluster { connection, client, discovery: Arc::default(), version: String::new(), may_write };
        // Asked once: a run that cannot reach its cluster should say so at once.
        let asked: Result<Version, Refusal> =
            cluster.ask(&Ask::get_once("/version"), "ask for the API server's version").await;
        cluster.version = match asked {
            Ok(version) => version.git_version,
            // A cluster that hides its version is still one: the answer is a proper refusal.
            Err(refusal) if refusal.failure.code == Code::Forbidden => "unknown".to_owned(),
            Err(refusal) => return Err(refusal.into()),
        };
        Ok(cluster)
    }

    /// Whether a write may be sent at this moment. Every write asks by itself; this is for whoever would do something else
    /// when it may not.
    ///
    /// # Errors
    /// Why not.
    pub fn may_write(&self) -> Result<(), Failure> {
        self.may_write.now()
    }

    pub(in crate::cluster) fn permission(&self) -> &MayWrite {
        &self.may_write
    }

    /// What makes further clients of this cluster.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The client of this connection, for looking at the lock. Requests made with it directly have no time limit, and are
    /// not asked about: whatever else is written goes through this cluster.
    pub fn client(&self) -> Client {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the client anew, so that an exec plugin is asked again and files are read again. The library does so by
    /// itself only for tokens that say when they end, and for token files once a minute. Says whether there was anything
    /// to ask.
    pub(in crate::cluster) async fn refresh(&self) -> Result<Refreshed, Failure> {
        if !self.connection.credentials_may_change() {
            return Ok(Refreshed::No);
        }
        let client = self.connection.client().await?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(Refreshed::Yes)
    }

    /// The namespace of objects that name none: the context's, as with kubectl.
    pub(in crate::cluster) fn default_namespace(&self) -> &str {
        &self.connection.config.default_namespace
    }

    /// The API server's address.
    pub fn server(&self) -> &str {
        self.connection.server()
    }

    /// The API server's version, `v1.33.2`; `unknown` when it hides it.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// The part of `/version` that is worth saying.
#[derive(Deserialize)]
struct Version {
    #[serde(rename = "gitVersion")]
    git_version: String,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("connection", &self.connection)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
