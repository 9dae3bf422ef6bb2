//! A small client of the API server, for what the bed and the tests themselves ask it.
//!
//! It is deliberately not the client that dcctl uses: it blocks, and needs no runtime. One connection is kept between
//! requests, because a new one costs the API server more than most requests do.

use std::fs;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::bed::message::{Body, Head, read_body};
use crate::bed::wait;

/// Longer than the API server lets any request but a watch take.
const PATIENCE: Duration = Duration::from_secs(70);

/// The API server as one user sees it.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    port: u16,
    tls: Arc<ClientConfig>,
    token: String,
    kept: Arc<Mutex<Option<Connection>>>,
}

type Connection = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// What the API server answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The body as it came.
    pub(crate) body: Vec<u8>,
}

impl Api {
    /// The API server at this port of 127.0.0.1, trusted by the certificates in a file.
    pub(crate) fn new(port: u16, certificates: &Path, token: &str) -> io::Result<Api> {
        Ok(Api { port, tls: Arc::new(trusting(certificates)?), token: token.to_owned(), kept: Arc::default() })
    }

    /// Sends a request and reads the whole answer, whatever its status. `content` is a type and a body.
    pub(crate) fn send(&self, method: &str, path: &str, content: Option<(&str, &[u8])>) -> io::Result<Answer> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut connection = match kept.filter(is_open) {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let (kind, body) = content.unwrap_or(("application/json", b""));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\nAccept: application/json\r\nUser-Agent: bed\r\n\r\n",
            self.token,
            body.len()
        );
        connection.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        connection.get_mut().flush()?;
        let head = Head::read(&mut connection)?
            .ok_or_else(|| io::Error::other(format!("{method} {path}: the connection ended without an answer")))?;
        let answer = Answer { status: head.status(), body: read_body(head.body(Body::UntilEnd), &mut connection)? };
        if !head.is_last() {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
        }
        Ok(answer)
    }

    /// The same once the API server has the storage of the kind ready: until a moment after a CRD was made or changed, it
    /// answers that it has not (429), and has done nothing.
    fn ask(&self, method: &str, path: &str, content: Option<(&str, &[u8])>) -> io::Result<Answer> {
        wait::until(PATIENCE, "the API server to have the storage of a kind ready", || {
            let answer = self.send(method, path, content);
            let unready = answer.as_ref().is_ok_and(Answer::is_of_storage_that_is_not_ready);
            (!unready).then_some(answer)
        })?
    }

    fn connect(&self) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let session = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        Ok(BufReader::new(StreamOwned::new(session, stream)))
    }

    /// Reads an object; `None` when there is none (404).
    pub(crate) fn get(&self, path: &str) -> io::Result<Option<Value>> {
        let answer = self.ask("GET", path, None)?;
        if answer.status == 404 { Ok(None) } else { answer.good("GET", path).map(Some) }
    }

    /// The items of a collection; none when nothing of the kind is served (404).
    pub(crate) fn list(&self, path: &str) -> io::Result<Vec<Value>> {
        let found = self.get(path)?.unwrap_or_default();
        Ok(found["items"].as_array().cloned().unwrap_or_default())
    }

    /// Makes an object in a collection.
    pub(crate) fn create(&self, path: &str, object: &Value) -> io::Result<Value> {
        let body = object.to_string();
        self.ask("POST", path, Some(("application/json", body.as_bytes())))?.good("POST", path)
    }

    /// Changes some fields of an object (JSON merge patch).
    pub(crate) fn merge(&self, path: &str, fields: &Value) -> io::Result<Value> {
        let body = fields.to_string();
        self.ask("PATCH", path, Some(("application/merge-patch+json", body.as_bytes())))?.good("PATCH", path)
    }

    /// Deletes an object; fine when there is none. It may live on while it has finalizers.
    pub(crate) fn delete(&self, path: &str) -> io::Result<()> {
        let answer = self.ask("DELETE", path, None)?;
        if answer.status == 404 { Ok(()) } else { answer.good("DELETE", path).map(drop) }
    }

    /// Applies the documents of a YAML text server-side, in their order, as field manager `bed`.
    pub(crate) fn apply(&self, text: &str) -> io::Result<()> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(io::Error::other)?;
        documents.iter().filter(|document| !document.is_null()).try_for_each(|document| {
            let path = format!("{}?fieldManager=bed&force=true", self.place(document)?);
            let body = document.to_string();
            self.ask("PATCH", &path, Some(("application/apply-patch+yaml", body.as_bytes())))?.good("PATCH", &path)?;
            Ok(())
        })
    }

    /// The path of an object, by asking the API server for the plural of its kind.
    fn place(&self, object: &Value) -> io::Result<String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (version, kind) = (text("/apiVersion").unwrap_or(""), text("/kind").unwrap_or(""));
        let name = text("/metadata/name").unwrap_or("");
        let prefix = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let served = self.get(&prefix)?.unwrap_or_default();
        let resources = served["resources"].as_array().map_or(&[][..], Vec::as_slice);
        let main = |resource: &&Value| resource["kind"] == kind && !resource["name"].to_string().contains('/');
        let Some(resource) = resources.iter().find(main) else {
            return Err(io::Error::other(format!("the API server does not serve {kind} of {version}")));
        };
        let plural = resource["name"].as_str().unwrap_or("");
        if resource["namespaced"] == true {
            let namespace = text("/metadata/namespace").unwrap_or("default");
            Ok(format!("{prefix}/namespaces/{namespace}/{plural}/{name}"))
        } else {
            Ok(format!("{prefix}/{plural}/{name}"))
        }
    }
}

impl Answer {
    fn is_of_storage_that_is_not_ready(&self) -> bool {
        self.status == 429 && String::from_utf8_lossy(&self.body).contains("storage is (re)initializing")
    }

    /// The body of a good answer; an error with the server's own sentence for any other.
    fn good(self, method: &str, path: &str) -> io::Result<Value> {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        if (200..300).contains(&self.status) {
            return Ok(body);
        }
        let said = body["message"].as_str().map_or_else(|| String::from_utf8_lossy(&self.body), Into::into);
        Err(io::Error::other(format!("{method} {path}: {} {said}", self.status)))
    }
}

/// Whether a kept connection can be used again. The other side has nothing to say now but that it has closed it.
fn is_open(connection: &Connection) -> bool {
    let socket = &connection.get_ref().sock;
    let silent = |byte: &mut [u8]| matches!(socket.peek(byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    socket.set_nonblocking(true).is_ok() && silent(&mut [0]) && socket.set_nonblocking(false).is_ok()
}

/// A client's side of TLS that trusts the certificates in a file and nothing else.
pub(crate) fn trusting(certificates: &Path) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&fs::read(certificates)?) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
