//! Watching the Lease in the API server. Beside [`lease_api`](crate::lock::lease_api) the only file of the lock that
//! knows `kube`.
//!
//! Each watch is one request. The API server ends it after a while, and a proxy on the way may end it at any time, or
//! hold a dead connection open without a word. What that means is decided elsewhere.

use std::pin::Pin;

use futures_util::{Stream, StreamExt};
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::failure::{Code, Failure};
use crate::lock::lease_api::{LeaseApi, transport};
use crate::lock::message::plain;
use crate::lock::protocol::follow::NotWatched;
use crate::lock::record::{NAME, NAMESPACE, Record};
use crate::lock::store::Trouble;

/// How long the API server keeps one watch, in seconds; it would choose between five and ten minutes by itself. Proxies
/// commonly end what lasts five minutes, so it ends before that, in good order.
const LASTS: u32 = 290;
/// The HTTP status of a version that is too old.
const GONE: u16 = 410;

/// What a watch says: what the Lease is now, none when it is gone. The first error is the end.
pub(crate) type Changes = Pin<Box<dyn Stream<Item = Result<Option<Record>, NotWatched>> + Send>>;

impl LeaseApi {
    /// Opens a watch from a version on; without one it begins with what is there now.
    pub(crate) async fn watch(&self, from: Option<&str>) -> Result<Changes, NotWatched> {
        let from = from.map(|version| format!("&resourceVersion={version}")).unwrap_or_default();
        let uri = format!(
            "/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases?watch=true\
             &fieldSelector=metadata.name%3D{NAME}&timeoutSeconds={LASTS}{from}"
        );
        let request = http::Request::builder().uri(uri).body(Vec::new());
        let request = request.expect("a version is letters and digits, and the rest is ours");
        let end = Instant::now() + self.limit();
        let client = self.client(end).await.map_err(NotWatched::Trouble)?;
        match timeout_at(end, client.request_events::<Value>(request)).await {
            Ok(Ok(events)) => {
                self.credentials_are_known().await;
                Ok(Box::pin(events.filter_map(async |event| said(event))))
            }
            Ok(Err(error)) => Err(match ended(&error) {
                NotWatched::Trouble(Trouble::Refused(failure))
                    if failure.code == Code::CredentialsRefused && self.credentials_may_be_had_anew().await =>
                {
                    NotWatched::Trouble(Trouble::Unsent(failure))
                }
                why => why,
            }),
            Err(_) => Err(NotWatched::Trouble(Trouble::Unclear(Failure::new(
                Code::ClusterUnreachable,
                "the API server did not begin to tell about the lock in time",
            )))),
        }
    }
}

/// What one event says of the Lease, if anything.
fn said(event: Result<WatchEvent<Value>, kube::Error>) -> Option<Result<Option<Record>, NotWatched>> {
    match event {
        Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => Some(match Record::from_json(lease) {
            Some(record) => Ok(Some(record)),
            None => Err(NotWatched::Closed),
        }),
        Ok(WatchEvent::Deleted(_)) => Some(Ok(None)),
        Ok(WatchEvent::Bookmark(_)) => None,
        Ok(WatchEvent::Error(status)) => Some(Err(ended(&kube::Error::Api(status)))),
        Err(error) => Some(Err(ended(&error))),
    }
}

/// Why a watch has ended, or was not begun.
fn ended(error: &kube::Error) -> NotWatched {
    let kube::Error::Api(status) = error else { return NotWatched::Trouble(transport(error)) };
    let said = plain(&status.message);
    NotWatched::Trouble(match status.code {
        GONE => return NotWatched::Expired,
        403 => Trouble::Forbidden(Failure::new(Code::Forbidden, said)),
        401 => {
            let message = "the API server does not accept the credentials of this kubeconfig";
            Trouble::Refused(Failure::new(Code::CredentialsRefused, message).cause(said))
        }
        code => {
            let message =
                format!("could not watch the lock (Lease {NAME} in {NAMESPACE}): the API server answered {code}");
            Trouble::Unclear(Failure::new(Code::ClusterRequestFailed, message).cause(said))
        }
    })
}
