//! Servers that are not the cluster's API server, for what a run says when it meets one of them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rcgen::{CertificateParams, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::bed::message::{Body, Head, read_body};
use crate::bed::{Bed, users};

/// What every request gets: a good answer of a server of another kind.
const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 28\r\nConnection: close\r\n\r\n\
                    <html><p>It works</p></html>";

/// A client that never says anything is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is wrong with a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Nothing.
    Good,
    /// It ended in the last century.
    Expired,
    /// It begins in a later one.
    NotYetValid,
    /// It is for another name.
    OfAnotherName,
    /// It was issued by an authority that the kubeconfig does not name.
    OfAnotherAuthority,
}

/// A running server. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Impostor {
    port: u16,
    ended: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
    kubeconfig: PathBuf,
}

impl Impostor {
    /// Speaks HTTP with TLS, under such a certificate.
    pub(crate) fn with(bed: &Bed, certificate: Certificate) -> Impostor {
        let (config, authority) = made(certificate);
        Impostor::start(bed, Some(Arc::new(config)), &authority)
    }

    /// Speaks HTTP without TLS.
    pub(crate) fn without_tls(bed: &Bed) -> Impostor {
        Impostor::start(bed, None, &made(Certificate::Good).1)
    }

    /// A kubeconfig of `admin` that leads here.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn start(bed: &Bed, config: Option<Arc<ServerConfig>>, authority: &str) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port of this machine is free");
        let port = listener.local_addr().expect("it is bound").port();
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = ended.clone();
        let acceptor = thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if has_ended.load(Ordering::SeqCst) {
                    return;
                }
                // A client that breaks off is what is tested.
                let _ = client.set_read_timeout(Some(PATIENCE)).and_then(|()| match &config {
                    None => answer(client),
                    Some(config) => {
                        let session = ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
                        answer(StreamOwned::new(session, client))
                    }
                });
            }
        });
        let kubeconfig = bed.file(&format!("impostor-{port}.kubeconfig"));
        let text = users::kubeconfig("admin", bed.described().user("admin"), port, authority.as_bytes());
        fs::write(&kubeconfig, text).expect("the test's folder can be written");
        Impostor { port, ended, acceptor: Some(acceptor), kubeconfig }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The acceptor looks at the flag after each connection: this is the last one.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn answer(client: impl Read + Write) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    // The first byte of a TLS client; a server that expects a method answers without waiting for more.
    if client.fill_buf()?.first() == Some(&0x16) {
        client.get_mut().write_all(PAGE.replace("200 OK", "400 Bad Request").as_bytes())?;
    } else if let Some(head) = Head::read(&mut client)? {
        read_body(head.body(Body::Sized(0)), &mut client)?;
        client.get_mut().write_all(PAGE.as_bytes())?;
    }
    client.get_mut().flush()
}

/// A server's side of TLS, and the certificate of the authority that the kubeconfig trusts, as PEM.
fn made(certificate: Certificate) -> (ServerConfig, String) {
    const FINE: &str = "the parts are well-formed";
    let authority = |name: &str| {
        let mut params = CertificateParams::new([]).expect(FINE);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().expect(FINE);
        (params.self_signed(&key).expect(FINE).pem(), Issuer::new(params, key))
    };
    let ((trusted, issuer), (_, other)) = (authority("trusted"), authority("another"));
    let name = if certificate == Certificate::OfAnotherName { "elsewhere.test" } else { "127.0.0.1" };
    let mut params = CertificateParams::new([name.to_owned()]).expect(FINE);
    match certificate {
        Certificate::Expired => {
            (params.not_before, params.not_after) = (date_time_ymd(1998, 1, 1), date_time_ymd(1999, 1, 1));
        }
        Certificate::NotYetValid => params.not_before = date_time_ymd(3000, 1, 1),
        Certificate::Good | Certificate::OfAnotherName | Certificate::OfAnotherAuthority => {}
    }
    let issuer = if certificate == Certificate::OfAnotherAuthority { other } else { issuer };
    let key = KeyPair::generate().expect(FINE);
    let leaf = params.signed_by(&key, &issuer).expect(FINE);
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect(FINE);
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect(FINE)
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect(FINE);
    (config, trusted)
}
