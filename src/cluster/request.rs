//! One request to the API server: made, sent within a time limit, repeated where that is harmless, and answered.
//!
//! Requests are written out here instead of through typed interfaces of the library, for three reasons: a create with
//! strict validation and lists of metadata have no method there; an answer that cannot be read would be printed
//! whole, secrets included; and only what is needed of an object is kept in memory.

use std::time::Duration;

use http::Method;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use crate::cluster::client::{Cluster, Refreshed};
use crate::cluster::error::{classify, is_transient, timed_out};
use crate::cluster::permission::Withheld;
use crate::failure::Failure;

/// dcctl's name as the owner of fields.
pub const FIELD_MANAGER: &str = "dcctl";

/// How long one request may take. Admission webhooks may take up to 30 s; a busy server queues.
const LIMIT: Duration = Duration::from_secs(40);

/// The pauses between tries of a request that may be repeated.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// The longest pause that the API server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long a request is repeated. A stop waits for it.
const LONGEST_TRYING: Duration = Duration::from_secs(30);

/// What makes the API server answer with the metadata of objects alone.
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The same for one object.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Whether a write is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// It is.
    Yes,
    /// The API server checks it and stores nothing (`dryRun=All`).
    DryRun,
}

/// What server-side apply does about fields that another manager owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflicts {
    /// It refuses and names them.
    Report,
    /// It takes them over.
    TakeOver,
}

/// Whether a request may be sent again when its answer got lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Harmless,
    Never,
}

/// What a request does to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It stores nothing.
    Nothing,
    /// It stores something, so it needs permission.
    Stores,
}

/// A request, not yet sent.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Ask {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    accept: &'static str,
    content_type: &'static str,
    body: Vec<u8>,
    repeat: Repeat,
    effect: Effect,
}

impl Ask {
    fn new(method: Method, path: impl Into<String>, repeat: Repeat) -> Ask {
        let (accept, content_type) = ("application/json", "application/json");
        let effect = if method.is_safe() { Effect::Nothing } else { Effect::Stores };
        Ask { method, path: path.into(), query: Vec::new(), accept, content_type, body: Vec::new(), repeat, effect }
    }

    /// Reads an object, or whatever is at this path.
    pub(in crate::cluster) fn get(path: impl Into<String>) -> Ask {
        Ask::new(Method::GET, path, Repeat::Harmless)
    }

    /// The same, sent once: for finding out whether anybody answers.
    pub(in crate::cluster) fn get_once(path: impl Into<String>) -> Ask {
        Ask::new(Method::GET, path, Repeat::Never)
    }

    /// Puts a question that is an object; nothing is stored of it.
    pub(in crate::cluster) fn question(path: impl Into<String>, object: &Value) -> Ask {
        let mut ask = Ask::new(Method::POST, path, Repeat::Never).object(object);
        ask.effect = Effect::Nothing;
        ask
    }

    /// Makes an object, with strict validation. Never repeated: a lost answer has to be settled by reading.
    pub(in crate::cluster) fn create(path: impl Into<String>, object: &Value, store: Store) -> Ask {
        Ask::new(Method::POST, path, Repeat::Never).object(object).strict().store(store)
    }

    /// Replaces an object, with strict validation. Never repeated, as above.
    pub(in crate::cluster) fn replace(path: impl Into<String>, object: &Value, store: Store) -> Ask {
        Ask::new(Method::PUT, path, Repeat::Never).object(object).strict().store(store)
    }

    /// Applies an object server-side, with strict validation. Repeating it changes nothing more.
    pub(in crate::cluster) fn apply(
        path: impl Into<String>,
        object: &Value,
        conflicts: Conflicts,
        store: Store,
    ) -> Ask {
        let mut ask = Ask::new(Method::PATCH, path, Repeat::Harmless).object(object).strict().store(store);
        ask.content_type = "application/apply-patch+yaml";
        match conflicts {
            Conflicts::TakeOver => ask.with("force", "true"),
            Conflicts::Report => ask,
        }
    }

    /// Merges a patch into an object. Repeating it changes nothing more.
    pub(in crate::cluster) fn merge(path: impl Into<String>, change: &Value) -> Ask {
        let mut ask = Ask::new(Method::PATCH, path, Repeat::Harmless).object(change);
        ask.content_type = "application/merge-patch+json";
        ask
    }

    /// Deletes exactly the object that was read. Repeating it cannot delete another one.
    pub(in crate::cluster) fn delete(path: impl Into<String>, uid: &str, resource_version: &str) -> Ask {
        let mut ask = Ask::new(Method::DELETE, path, Repeat::Harmless);
        let preconditions = serde_json::json!({ "uid": uid, "resourceVersion": resource_version });
        let options =
            serde_json::json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
        ask.body = serde_json::to_vec(&options).expect("a JSON value can be written");
        ask
    }

    /// Deletes exactly the object with this uid, whatever was written to it meanwhile.
    pub(in crate::cluster) fn delete_this(path: impl Into<String>, uid: &str) -> Ask {
        let mut ask = Ask::new(Method::DELETE, path, Repeat::Harmless);
        let options =
            serde_json::json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": uid } });
        ask.body = serde_json::to_vec(&options).expect("a JSON value can be written");
        ask
    }

    /// Asks for the metadata of one object only.
    #[must_use]
    pub(in crate::cluster) fn metadata_of_one(mut self) -> Ask {
        self.accept = METADATA;
        self
    }

    /// Asks for the metadata of a list's objects only.
    #[must_use]
    pub(in crate::cluster) fn metadata_only(mut self) -> Ask {
        self.accept = METADATA_LIST;
        self
    }

    /// Adds one parameter.
    #[must_use]
    pub(in crate::cluster) fn with(mut self, name: &'static str, value: impl Into<String>) -> Ask {
        self.query.push((name, value.into()));
        self
    }

    fn object(mut self, object: &Value) -> Ask {
        self.body = serde_json::to_vec(object).expect("a JSON value can be written");
        self.with("fieldManager", FIELD_MANAGER)
    }

    fn strict(self) -> Ask {
        self.with("fieldValidation", "Strict")
    }

    fn store(mut self, store: Store) -> Ask {
        match store {
            Store::Yes => self,
            Store::DryRun => {
                self.effect = Effect::Nothing;
                self.with("dryRun", "All")
            }
        }
    }

    fn http(&self) -> http::Request<Vec<u8>> {
        let query: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let uri = if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) };
        http::Request::builder()
            .method(self.method.clone())
            .uri(uri)
            .header(http::header::ACCEPT, self.accept)
            .header(http::header::CONTENT_TYPE, self.content_type)
            .body(self.body.clone())
            .expect("paths and parameters are encoded")
    }
}

/// Writes a text so that it can stand in a path or a parameter.
pub(in crate::cluster) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").expect("a String takes everything"),
        }
    }
    encoded
}

/// Why a request was not granted: the failure to report, and the API server's status if it answered.
#[derive(Debug, Clone)]
pub(in crate::cluster) struct Refusal {
    pub(in crate::cluster) failure: Failure,
    pub(in crate::cluster) status: Option<Box<Status>>,
    /// The same request may succeed a moment later.
    pub(in crate::cluster) is_transient: bool,
}

impl Refusal {
    fn of(error: kube::Error, doing: &str, server: &str) -> Refusal {
        let failure = classify(&error, doing, server);
        let is_transient = is_transient(&error);
        let status = if let kube::Error::Api(status) = error { Some(status) } else { None };
        Refusal { failure, status, is_transient }
    }

    /// The HTTP status of the answer; none when there was no answer.
    pub(in crate::cluster) fn code(&self) -> Option<u16> {
        self.status.as_ref().map(|status| status.code)
    }

    /// How long the API server asks to wait.
    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status.as_ref()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(LONGEST_PAUSE))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        refusal.failure
    }
}

impl Cluster {
    /// Sends a request and reads the answer; `doing` completes "could not …". At most five tries, and only of a
    /// request that may be repeated.
    pub(in crate::cluster) async fn ask<T: DeserializeOwned>(&self, ask: &Ask, doing: &str) -> Result<T, Refusal> {
        // The library's futures are large, and every step would carry several.
        let text = Box::pin(self.ask_for_text(ask, doing)).await?;
        let place = self.connection().whereabouts();
        serde_json::from_str(&text).map_err(|error| Refusal::of(kube::Error::SerdeError(error), doing, &place))
    }

    async fn ask_for_text(&self, ask: &Ask, doing: &str) -> Result<String, Refusal> {
        let place = self.connection().whereabouts();
        let mut pauses = PAUSES.iter();
        let started = Instant::now();
        let mut refreshed = Refreshed::No;
        loop {
            let refusal = match self.send(ask).await {
                Ok(Ok(Ok(text))) => return Ok(text),
                Ok(Ok(Err(error))) => Refusal::of(error, doing, &place),
                Ok(Err(_)) => Refusal { failure: timed_out(LIMIT, doing, &place), status: None, is_transient: true },
                Err(why) => Refusal { failure: why.into_failure(doing), status: None, is_transient: false },
            };
            // A request that was refused at the door did nothing, so it may be repeated whatever it is.
            if refusal.code() == Some(401) && refreshed == Refreshed::No {
                refreshed = self.refresh().await.map_err(|failure| Refusal { failure, ..refusal.clone() })?;
                if refreshed == Refreshed::Yes {
                    continue;
                }
            }
            match pauses.next() {
                Some(pause)
                    if refusal.is_transient && ask.repeat == Repeat::Harmless && started.elapsed() < LONGEST_TRYING =>
                {
                    sleep(refusal.retry_after().unwrap_or(*pause)).await;
                }
                Some(_) | None => return Err(refusal),
            }
        }
    }

    /// Sends a request once. Nothing else in this module sends one, so this is where a write needs permission.
    async fn send(&self, ask: &Ask) -> Result<Result<Result<String, kube::Error>, Elapsed>, Withheld> {
        let client = self.client();
        let exchange = timeout(LIMIT, client.request_text(ask.http()));
        match ask.effect {
            Effect::Nothing => Ok(exchange.await),
            Effect::Stores => self.permission().send(exchange).await,
        }
    }
}

/// How many objects one page of a list holds.
const PAGE: usize = 500;

/// How often a list is begun anew because its continuation had expired.
const FRESH_STARTS: u32 = 3;

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    /// An empty list of metadata comes as `null`.
    items: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl Cluster {
    /// Reads a whole list, page by page. All pages are of one moment: when the API server no longer has it, the list
    /// is begun anew.
    pub(in crate::cluster) async fn list<T: DeserializeOwned>(
        &self,
        ask: &Ask,
        doing: &str,
    ) -> Result<Vec<T>, Refusal> {
        let ask = ask.clone().with("limit", PAGE.to_string());
        let mut fresh_starts = 0;
        let mut items = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let page = match &next {
                Some(token) => self.ask::<Page<T>>(&ask.clone().with("continue", token), doing).await,
                None => self.ask::<Page<T>>(&ask, doing).await,
            };
            match page {
                Ok(page) => {
                    items.extend(page.items.unwrap_or_default());
                    next = page.metadata.next.filter(|token| !token.is_empty());
                    if next.is_none() {
                        return Ok(items);
                    }
                }
                Err(refusal) if refusal.code() == Some(410) && fresh_starts < FRESH_STARTS => {
                    fresh_starts += 1;
                    items.clear();
                    next = None;
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }
}
