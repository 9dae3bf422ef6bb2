//! Who we are to the API server, and plugins that say so.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dcctl::cluster::kubeconfig::load;
use dcctl::cluster::namespace::Made;
use dcctl::cluster::{Cluster, MayWrite, Proxies, Sources, Store};
use dcctl::failure::{Code, Failure};
use serde_json::{Value, json};

use crate::bed::{Bed, Fault, Proxy, Rule};

/// What a plugin prints that knows the token.
const CREDENTIAL: &str = r#"echo "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$TOKEN\"}}""#;

/// A kubeconfig of the bed's cluster with this user.
fn kubeconfig(bed: &Bed, user: &Value) -> PathBuf {
    let text = std::fs::read_to_string(bed.kubeconfig("admin")).expect("it is the bed's file");
    let mut value: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    value["users"][0]["user"] = user.clone();
    let path = bed.file("user.kubeconfig");
    std::fs::write(&path, value.to_string()).expect("the scratch folder can be written");
    path
}

fn plugin(bed: &Bed, script: &str) -> Value {
    let path = bed.file("plugin.sh");
    // Written under another name first: a file that is open for writing cannot be run.
    let draft = bed.file("plugin.draft");
    std::fs::write(&draft, format!("#!/bin/sh\n{script}\n")).expect("the scratch folder can be written");
    std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o700)).expect("it is ours");
    std::fs::rename(&draft, &path).expect("it is there");
    json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable",
        "command": "./plugin.sh", "env": [{ "name": "TOKEN", "value": bed.described().user("admin").token }] } })
}

async fn connect(path: &Path) -> Result<Cluster, Failure> {
    Cluster::connect(&load(&Sources::file(path), None)?, &Proxies::default(), MayWrite::always()).await
}

#[tokio::test]
async fn a_token_that_nobody_knows_is_refused() {
    let bed = Bed::take();
    let failure = connect(&kubeconfig(&bed, &json!({ "token": "n0body-kn0ws-this" }))).await.expect_err("not known");
    assert_eq!(failure.code, Code::CredentialsRefused);
    assert!(failure.message.ends_with("does not know these credentials, or they have expired"), "{failure:?}");
    assert!(!format!("{failure:?}").contains("n0body"), "{failure:?}");
}

/// Commands that make a token end its line, and every other client of Kubernetes takes the end off.
#[tokio::test]
async fn a_token_with_a_line_end_is_sent_without_it() {
    let bed = Bed::take();
    let token = format!("{}\n", bed.described().user("admin").token);
    let file = bed.write("token", &token);
    for user in [json!({ "token": token }), json!({ "tokenFile": file })] {
        let kubeconfig = kubeconfig(&bed, &user);
        connect(&kubeconfig).await.expect("the token is admin's");
        // The lock has a client of its own.
        let status = bed.dcctl(["lock", "status", "--kube-context", "bed"]).with_kubeconfig(&kubeconfig);
        status.run().expect_code(0);
    }
}

/// What looks at the lock and what would take it both refuse this kubeconfig in these words, and do not show the secret.
fn assert_refused(bed: &Bed, kubeconfig: &Path, words: &str, secret: &str) {
    let command = |words: &[&str]| bed.dcctl(words).args(["--kube-context", "bed"]).with_kubeconfig(kubeconfig);
    for run in [command(&["lock", "status"]), command(&["exec", "--output", "jsonl"]).args(["--", "true"])] {
        let finished = run.run().expect_code(4);
        let said = finished.stdout + &finished.stderr;
        assert!(said.contains(words) && !said.contains(secret), "{said}");
    }
}

#[test]
fn a_token_that_cannot_be_sent_is_refused_and_not_shown() {
    let bed = Bed::take();
    for token in ["s3cret\r\nX-Other: 1", "s3 cret", "s\u{fc}cret"] {
        let kubeconfig = kubeconfig(&bed, &json!({ "token": token }));
        assert_refused(&bed, &kubeconfig, "its token has characters that cannot be sent", "cret");
    }
}

#[test]
fn a_password_in_the_server_s_address_is_refused_and_not_shown() {
    let bed = Bed::take();
    let text = std::fs::read_to_string(bed.kubeconfig("admin")).expect("it is the bed's file");
    let kubeconfig = bed.write("user.kubeconfig", &text.replace("https://127.0.0.1", "https://bob:hunter22@127.0.0.1"));
    assert_refused(&bed, &kubeconfig, "has a user or a password in it", "hunter22");
}

#[tokio::test]
async fn a_plugin_beside_the_kubeconfig_is_found_and_asked() {
    let bed = Bed::take();
    let user = plugin(&bed, CREDENTIAL);
    connect(&kubeconfig(&bed, &user)).await.expect("the plugin knows the token");
    // From the run's folder, where the plugin is not.
    let kubeconfig = load(&Sources::file(kubeconfig(&bed, &user)), None).expect("a kubeconfig");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let path = elsewhere.path().join("run.kubeconfig");
    kubeconfig.write(&path).expect("the folder can be written");
    connect(&path).await.expect("the path of the plugin was made absolute");
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("it is there")).expect("JSON");
    assert_eq!(written["users"][0]["user"]["exec"]["interactiveMode"], "Never");
}

#[tokio::test]
async fn a_plugin_is_asked_again_when_its_token_is_not_taken_any_more() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let log = bed.file("asked");
    let script = format!("echo asked >> {}\n{CREDENTIAL}", log.display());
    let direct = kubeconfig(&bed, &plugin(&bed, &script));
    let text =
        std::fs::read_to_string(&direct).expect("it was written").replace(&bed.described().server, &proxy.address());
    std::fs::write(&direct, text).expect("the scratch folder can be written");
    let cluster = connect(&direct).await.expect("the plugin knows the token");
    let asked = || std::fs::read_to_string(&log).expect("it was asked").lines().count();
    let before = asked();
    let unknown = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","code":401}"#;
    proxy.add(Rule::on("POST", "namespaces").nth(1).request(Fault::Answer(401, unknown.to_owned())));
    assert_eq!(cluster.make_namespace("dc-test", None, Store::Yes).await, Ok(Made::Now));
    assert!(asked() > before, "the plugin was asked anew");

    proxy.clear();
    proxy.add(Rule::on("GET", "namespaces").request(Fault::Answer(401, unknown.to_owned())));
    assert_eq!(cluster.uid().await.expect_err("never taken").code, Code::CredentialsRefused);
}

#[tokio::test]
async fn what_a_plugin_prints_is_never_repeated() {
    let bed = Bed::take();
    let scripts = [
        ("echo s3cret-out; echo s3cret-err >&2; exit 3", "the kubeconfig's exec plugin failed"),
        ("echo s3cret-out", "the kubeconfig's exec plugin did not print a credential"),
        (
            "echo '{\"kind\":\"ExecCredential\",\"x\":\"s3cret\"}'",
            "the kubeconfig's exec plugin did not print a credential",
        ),
    ];
    for (script, says) in scripts {
        let failure = connect(&kubeconfig(&bed, &plugin(&bed, script))).await.expect_err("it is broken");
        assert_eq!(failure.code, Code::CredentialsRefused);
        assert!(failure.message.ends_with(says), "{failure:?}");
        assert!(!format!("{failure:?}").contains("s3cret"), "{failure:?}");
    }
    let gone = json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "./no-such-plugin" } });
    let failure = connect(&kubeconfig(&bed, &gone)).await.expect_err("it is not there");
    assert!(failure.message.ends_with("could not be started"), "{failure:?}");
}

#[tokio::test]
async fn a_token_file_and_a_client_certificate_that_are_not_there_are_named() {
    let bed = Bed::take();
    let failure = connect(&kubeconfig(&bed, &json!({ "tokenFile": "no-token" }))).await.expect_err("not there");
    assert_eq!(failure.code, Code::CredentialsRefused);
    assert!(failure.message.contains(&format!("{}", bed.file("no-token").display())), "{failure:?}");
    let files = json!({ "client-certificate": "no-cert", "client-key": "no-key" });
    let failure = connect(&kubeconfig(&bed, &files)).await.expect_err("not there");
    assert_eq!(failure.code, Code::KubeconfigInvalid);
    assert!(format!("{failure:?}").contains("no-cert"), "{failure:?}");
}
