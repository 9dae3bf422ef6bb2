//! Reaching the API server, or not.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dcctl::cluster::kubeconfig::load;
use dcctl::cluster::{Cluster, Connection, MayWrite, Proxies, Sources};
use dcctl::failure::{Code, Failure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::bed::Bed;

const EXPIRED: &str = include_str!("expired.pem");

/// The user's kubeconfig as it is, or changed.
fn kubeconfig(bed: &Bed, change: impl FnOnce(&mut Value)) -> PathBuf {
    let text = std::fs::read_to_string(bed.kubeconfig("admin")).expect("it is the bed's file");
    let mut value: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    change(&mut value);
    let path = bed.file("changed.kubeconfig");
    std::fs::write(&path, value.to_string()).expect("the scratch folder can be written");
    path
}

/// The part about the cluster `bed`.
fn cluster(value: &mut Value) -> &mut Value {
    &mut value["clusters"][1]["cluster"]
}

async fn connect(path: &Path, context: Option<&str>) -> Result<Cluster, Failure> {
    Cluster::connect(&load(&Sources::file(path), context)?, &Proxies::default(), MayWrite::always()).await
}

/// A server on loopback that answers every connection with this, over TLS if it has a certificate.
fn serve(answer: &'static str, tls: Option<Arc<rustls::ServerConfig>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    // It ends with the test process; each connection is answered and closed.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = talk(stream, answer, tls.clone());
        }
    });
    port
}

fn talk(mut stream: TcpStream, answer: &str, tls: Option<Arc<rustls::ServerConfig>>) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let Some(config) = tls else {
        let _ = stream.read(&mut request)?;
        return stream.write_all(answer.as_bytes());
    };
    let session = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(session, stream);
    let _ = stream.read(&mut request)?;
    stream.write_all(answer.as_bytes())
}

#[tokio::test]
async fn a_cluster_is_reached_and_says_its_version() {
    let bed = Bed::take();
    let cluster = connect(bed.kubeconfig("admin"), None).await.expect("it is there");
    assert_eq!(cluster.version(), "v1.37.2");
    assert_eq!(cluster.server(), bed.described().server);
    let shown = format!("{cluster:?}");
    assert!(!shown.contains(&bed.described().user("admin").token), "{shown}");
}

#[tokio::test]
async fn what_is_written_for_the_run_leads_to_the_same_cluster_and_no_other() {
    let bed = Bed::take();
    let kubeconfig = load(&Sources::file(bed.kubeconfig("admin")), Some("bed")).expect("it has this context");
    let path = bed.file("run.kubeconfig");
    kubeconfig.write(&path).expect("the scratch folder can be written");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).expect("it is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    connect(&path, None).await.expect("its current context is the chosen one");
    let missing = load(&Sources::file(&path), Some("nowhere")).expect_err("it was left out");
    assert!(missing.message.ends_with("it has: bed"), "{}", missing.message);
}

#[test]
fn a_second_client_lives_in_another_runtime() {
    let bed = Bed::take();
    let kubeconfig = load(&Sources::file(bed.kubeconfig("admin")), None).expect("the bed writes good kubeconfigs");
    let connection = Connection::new(&kubeconfig, &Proxies::default()).expect("it can be used");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let one = runtime();
    one.block_on(Cluster::over(connection.clone(), MayWrite::always())).expect("it is there");
    drop(one);
    let other = runtime();
    let client = other.block_on(async { connection.client_now() }).expect("a client of its own");
    let version = other.block_on(client.apiserver_version()).expect("it answers");
    assert_eq!(version.git_version, "v1.37.2");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable() {
    let bed = Bed::take();
    let failure = connect(bed.kubeconfig("admin"), Some("nowhere")).await.expect_err("nobody listens there");
    assert_eq!(failure.code, Code::ClusterUnreachable);
    assert_eq!(
        failure.message,
        "could not ask for the API server's version: the API server at https://127.0.0.1:1 could not be reached"
    );
    assert!(failure.causes[0].contains("Connection refused"), "{:?}", failure.causes);
}

#[tokio::test]
async fn a_certificate_that_is_not_to_be_trusted_is_named_so() {
    let bed = Bed::take();
    let unknown = kubeconfig(&bed, |value| {
        cluster(value)["certificate-authority-data"] = json!(STANDARD.encode(EXPIRED));
    });
    let failure = connect(&unknown, None).await.expect_err("another authority");
    assert_eq!(failure.code, Code::ClusterUntrusted);
    assert!(
        failure.causes[0].contains("not issued by a certificate authority that the kubeconfig names"),
        "{failure:?}"
    );

    let misnamed = kubeconfig(&bed, |value| cluster(value)["tls-server-name"] = json!("other.example.test"));
    let failure = connect(&misnamed, None).await.expect_err("another name");
    assert_eq!(failure.code, Code::ClusterUntrusted);
    assert!(failure.causes[0].contains("for another name"), "{failure:?}");

    let trusting = kubeconfig(&bed, |value| {
        cluster(value)["certificate-authority-data"] = Value::Null;
        cluster(value)["insecure-skip-tls-verify"] = json!(true);
    });
    connect(&trusting, None).await.expect("it was told not to look");
}

#[tokio::test]
async fn an_expired_certificate_is_named_so() {
    let bed = Bed::take();
    let certificate = CertificateDer::from_pem_slice(EXPIRED.as_bytes()).expect("it is in the file");
    let key = PrivateKeyDer::from_pem_slice(EXPIRED.as_bytes()).expect("it is in the file");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring knows them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let port = serve("", Some(Arc::new(config)));
    let path = kubeconfig(&bed, |value| {
        *cluster(value) = json!({ "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": STANDARD.encode(EXPIRED) });
    });
    let failure = connect(&path, None).await.expect_err("it expired in 2020");
    assert_eq!(failure.code, Code::ClusterUntrusted);
    assert!(failure.causes[0].starts_with("it has expired"), "{failure:?}");
}

#[tokio::test]
async fn whatever_is_not_an_api_server_is_said_not_to_be_one() {
    let bed = Bed::take();
    let answers = [
        "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>hi</html>",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 15\r\nConnection: close\r\n\r\n<html>no</html>",
    ];
    for answer in answers {
        let port = serve(answer, None);
        let path = kubeconfig(&bed, |value| *cluster(value) = json!({ "server": format!("http://127.0.0.1:{port}") }));
        let failure = connect(&path, None).await.expect_err("it is something else");
        assert_eq!(failure.code, Code::ClusterUnreachable);
        assert!(failure.message.ends_with("does not speak like a Kubernetes API server"), "{failure:?}");
    }
    let port = serve("SSH-2.0-x\r\n", None);
    let path = kubeconfig(&bed, |value| *cluster(value) = json!({ "server": format!("http://127.0.0.1:{port}") }));
    assert_eq!(connect(&path, None).await.expect_err("not even HTTP").code, Code::ClusterUnreachable);
}

#[tokio::test]
async fn the_kubeconfig_s_own_proxy_is_used() {
    let bed = Bed::take();
    let port = serve("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", None);
    let path =
        kubeconfig(&bed, |value| cluster(value)["proxy-url"] = json!(format!("http://u:pa55word@127.0.0.1:{port}")));
    let failure = connect(&path, None).await.expect_err("the proxy lets nobody through");
    assert_eq!(failure.code, Code::ClusterUnreachable);
    let through = format!("(through the proxy http://127.0.0.1:{port})");
    assert!(failure.message.contains(&through), "{failure:?}");
    assert!(!format!("{failure:?}").contains("pa55word"), "{failure:?}");
}
