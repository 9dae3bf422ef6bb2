//! The Lease in the API server. With `lease_watch` the only file of the lock that knows `kube`.
//!
//! Requests are made one by one, each with a time-out of its own, and are never sent a second time by us. The client has
//! to be one that does not retry either (`default_retry = false`): a create that is retried behind our back comes back
//! as "exists", and the run would take its own lock for somebody else's. Bodies are written and read as plain JSON, so
//! that no field is lost that a typed Lease does not know.
//!
//! Credentials may end while a run holds the lock: a plugin's token that does not say when, a token file that was
//! written anew. The API server does not know them then (401), and has done nothing. Where the kubeconfig says how to
//! have them anew, the client is made anew before the next request, and the protocol tries again as after a connection
//! that could not be made.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::client::{AuthError, Body};
use kube::core::Request;
use kube::core::params::{DeleteParams, GetParams, PostParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::clock;
use crate::failure::{Code, Failure};
use crate::lock::record::{NAME, NAMESPACE, Record};
use crate::lock::reply::Reply;
use crate::lock::store::{Created, Deleted, LeaseStore, Replaced, Trouble};
use crate::lock::timing::Timing;

/// Who the API server writes down as the author of our fields.
const FIELD_MANAGER: &str = "dcctl";
/// How hyper's client names an error before anything was sent. Its type is not ours to name.
const NOT_CONNECTED: &str = "client error (Connect)";

/// A client that is being made.
type Making = Pin<Box<dyn Future<Output = Result<Client, Failure>> + Send>>;
/// Makes a client with credentials that are read, or asked for, anew.
pub type MakeAnew = Box<dyn Fn() -> Making + Send + Sync>;

/// The client of the requests, and how to have another one.
struct Access {
    state: Mutex<(Client, Credentials)>,
    make_anew: Option<MakeAnew>,
}

/// How the API server has taken to the credentials of the client.
enum Credentials {
    /// It knows them, as far as was seen.
    Known,
    /// It did not, and others are asked for. The next request waits for that.
    AskedFor(Making),
    /// They were had anew after it did not, or could not be.
    Anew,
}

impl Access {
    /// The client to ask with, when there is one by then.
    async fn client(&self, by: Instant) -> Result<Client, Trouble> {
        let mut state = self.state.lock().await;
        if let Credentials::AskedFor(making) = &mut state.1 {
            let Ok(made) = timeout_at(by, making).await else {
                let message =
                    "new credentials of this kubeconfig are waited for: the API server did not know the last ones";
                return Err(Trouble::Unsent(Failure::new(Code::CredentialsRefused, message)));
            };
            state.1 = Credentials::Anew;
            if let Ok(client) = made {
                state.0 = client;
            }
        }
        Ok(state.0.clone())
    }

    /// The API server has answered by something else than a 401.
    async fn known(&self) {
        let mut state = self.state.lock().await;
        if matches!(state.1, Credentials::Anew) {
            state.1 = Credentials::Known;
        }
    }

    /// The API server does not know who asked. Says whether it may be otherwise the next time. Of credentials that were had
    /// anew just before that is not said, but they are asked for once more.
    async fn unknown(&self) -> bool {
        let Some(make_anew) = &self.make_anew else { return false };
        let mut state = self.state.lock().await;
        let again = !matches!(state.1, Credentials::Anew);
        state.1 = Credentials::AskedFor(make_anew());
        again
    }
}

/// The one Lease of a cluster, in its API server.
#[derive(Clone)]
pub struct LeaseApi {
    access: Arc<Access>,
    leases: Request,
    namespaces: Request,
    limit: Duration,
}

impl fmt::Debug for LeaseApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseApi").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// One request, before it is HTTP.
enum Call<'a> {
    Create(&'a Value),
    CreateNamespace,
    Read,
    Replace(&'a Record),
    Delete { uid: &'a str, version: &'a str },
}

impl LeaseApi {
    /// The lock of the cluster that the client talks to. The client must not retry by itself, and its connect time-out
    /// should be shorter than [`Timing::request_timeout`], so that "could not connect" is not "no answer".
    /// When the API server does not know its credentials any more, they are had anew if there is a way.
    /// It is used inside a runtime of tokio's, and so is what makes clients.
    pub fn over(client: Client, make_anew: Option<MakeAnew>, timing: Timing) -> LeaseApi {
        LeaseApi {
            access: Arc::new(Access { state: Mutex::new((client, Credentials::Known)), make_anew }),
            leases: Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")),
            namespaces: Request::new("/api/v1/namespaces"),
            limit: timing.request_timeout(),
        }
    }

    /// The client of its requests, when there is one by then.
    pub(crate) async fn client(&self, by: Instant) -> Result<Client, Trouble> {
        self.access.client(by).await
    }

    /// Whether a 401 may be otherwise the next time.
    pub(crate) async fn credentials_may_be_had_anew(&self) -> bool {
        self.access.unknown().await
    }

    /// The API server knows who asks.
    pub(crate) async fn credentials_are_known(&self) {
        self.access.known().await;
    }

    /// The longest that one request may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    async fn send(&self, call: Call<'_>) -> Result<Reply, Trouble> {
        let ours = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let built = match call {
            Call::Create(draft) => self.leases.create(&ours, draft.to_string().into_bytes()),
            Call::CreateNamespace => {
                let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
                self.namespaces.create(&ours, namespace.to_string().into_bytes())
            }
            Call::Read => self.leases.get(NAME, &GetParams::default()),
            Call::Replace(record) => self.leases.replace(NAME, &ours, record.json().to_string().into_bytes()),
            Call::Delete { uid, version } => {
                let preconditions =
                    Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) };
                self.leases
                    .delete(NAME, &DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() })
            }
        };
        let request = built.map_err(|error| {
            Trouble::Refused(
                Failure::new(Code::Internal, "a request about the lock could not be built").because(&error),
            )
        })?;
        let end = Instant::now() + self.limit;
        let client = self.client(end).await?;
        let exchange = async {
            let response = client.send(request.map(Body::from)).await?;
            let code = response.status().as_u16();
            let body = response.into_body().collect_bytes().await?;
            Ok::<_, kube::Error>(Reply::new(code, &body))
        };
        match timeout_at(end, exchange).await {
            Ok(Ok(reply)) => match reply.credentials_refused() {
                Some(failure) if self.credentials_may_be_had_anew().await => Err(Trouble::Unsent(failure)),
                Some(_) => Ok(reply),
                None => {
                    self.credentials_are_known().await;
                    Ok(reply)
                }
            },
            Ok(Err(error)) => Err(transport(&error)),
            Err(_) => Err(Trouble::Unclear(Failure::new(
                Code::ClusterUnreachable,
                format!("the API server gave no answer about the lock within {}", clock::human(self.limit)),
            ))),
        }
    }
}

impl LeaseStore for LeaseApi {
    async fn create(&self, draft: &Value) -> Result<Created, Trouble> {
        self.send(Call::Create(draft)).await?.created()
    }

    async fn create_namespace(&self) -> Result<(), Trouble> {
        self.send(Call::CreateNamespace).await?.namespace_created()
    }

    async fn read(&self) -> Result<Option<Record>, Trouble> {
        self.send(Call::Read).await?.read()
    }

    async fn replace(&self, record: &Record) -> Result<Replaced, Trouble> {
        self.send(Call::Replace(record)).await?.replaced()
    }

    async fn delete(&self, uid: &str, version: &str) -> Result<Deleted, Trouble> {
        self.send(Call::Delete { uid, version }).await?.deleted()
    }
}

/// An exchange that came to no reply.
pub(crate) fn transport(error: &kube::Error) -> Trouble {
    let chain = chain(error);
    if chain.iter().any(|error| error.is::<AuthError>()) {
        // What a credential plugin prints may be a secret, so nothing of the error is repeated.
        let message = "the credentials of this kubeconfig could not be renewed: its credential plugin failed";
        return Trouble::Unsent(Failure::new(Code::CredentialsRefused, message));
    }
    let innermost = if chain.iter().any(|error| error.is::<tokio::time::error::Elapsed>()) {
        "it did not answer in time".to_owned()
    } else {
        chain.last().map(ToString::to_string).unwrap_or_default()
    };
    if !chain.iter().any(|error| error.to_string() == NOT_CONNECTED) {
        let message = "the connection to the API server was lost while it was asked about the lock";
        return Trouble::Unclear(Failure::new(Code::ClusterUnreachable, message).cause(innermost));
    }
    let certificate = |error: &&(dyn Error + 'static)| {
        matches!(error.downcast_ref::<rustls::Error>(), Some(rustls::Error::InvalidCertificate(_)))
    };
    if chain.iter().any(certificate) {
        let message = "the API server's certificate is not trusted";
        return Trouble::Refused(Failure::new(Code::ClusterUntrusted, message).cause(innermost));
    }
    Trouble::Unsent(Failure::new(Code::ClusterUnreachable, "the API server cannot be reached").cause(innermost))
}

/// An error and everything beneath it. What an `io::Error` wraps is beneath it too, though it is not its source.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    let mut chain = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        chain.push(error);
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = wrapped.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source());
    }
    chain
}
