//! Credentials that end while a run holds the lock, and are renewed where the kubeconfig says how.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::bed::{Bed, wait};
use crate::lock::rig::{of_kind, text};
use crate::wire::lane::{Lane, Namespace, all_at_once};

const CORE: &str = "/api/v1/namespaces/default";

/// How a kubeconfig says where the token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A plugin prints it, without saying when it ends.
    Plugin,
    /// A file, as a pod has it.
    File,
}

#[test]
fn a_token_that_ends_in_mid_run_is_had_anew_from_where_it_came() {
    let bed = Bed::take();
    let account = json!({ "metadata": { "name": "runner" } });
    bed.api().create(&format!("{CORE}/serviceaccounts"), &account).expect("the bed may do everything");
    let binding = json!({ "metadata": { "name": "runner" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "runner", "namespace": "default" }] });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    bed.api().create(bindings, &binding).expect("the bed may do everything");
    all_at_once(
        &[Source::Plugin, Source::File],
        2,
        |row| format!("{row:?}"),
        |source| ends_and_is_renewed(&bed, *source),
    );
}

fn ends_and_is_renewed(bed: &Bed, source: Source) {
    let lane = Lane::new(bed, Namespace::There);
    let put = |token: String| lane.put("token", &token);
    let first = format!("{source:?}-first").to_lowercase();
    put(token(bed, &first));
    let kubeconfig = lane.kubeconfig(|value| value["users"][0]["user"] = user(&lane, source));
    let script = "while [ ! -e @/go ]; do sleep 0.2; done";
    let run = lane.started(lane.exec(script).with_kubeconfig(&kubeconfig));
    put(token(bed, &format!("{source:?}-second").to_lowercase()));
    // The API server does not know a token any more whose secret is gone; it may remember it for some seconds.
    bed.api().delete(&format!("{CORE}/secrets/{first}")).expect("the bed may do everything");
    let refused = |seen: &crate::bed::proxy::Seen| seen.status == Some(401);
    wait::fact("the first token to be refused", || lane.proxy.seen().iter().any(refused).then_some(()));
    let again = run.journal().wait_for("lock.renewed", |event| event["data"].get("gap_ms").is_some());
    assert!(again["data"]["gap_ms"].as_u64() < Some(30_000), "it was had anew too late: {again}");
    lane.let_go();
    let done = run.finish().expect_code(0);
    let failed = of_kind(&done.events(), "lock.renewal_failed").len();
    assert!(failed <= 3, "{failed} tries failed: {}", done.stdout);
    assert_eq!((&done.verdict()["data"]["lock"], lane.lease()), (&json!("released"), None));
}

/// A token that is good as long as this secret is there.
fn token(bed: &Bed, secret: &str) -> String {
    let made = bed.api().create(&format!("{CORE}/secrets"), &json!({ "metadata": { "name": secret } }));
    let uid = made.expect("the bed may do everything")["metadata"]["uid"].clone();
    let bound = json!({ "apiVersion": "v1", "kind": "Secret", "name": secret, "uid": uid });
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": 3600, "boundObjectRef": bound } });
    let answer = bed.api().create(&format!("{CORE}/serviceaccounts/runner/token"), &request);
    text(&answer.expect("the bed may do everything")["status"]["token"])
}

fn user(lane: &Lane<'_>, source: Source) -> Value {
    let file = lane.file("token").display().to_string();
    match source {
        Source::File => json!({ "tokenFile": file }),
        Source::Plugin => {
            let credential = r#"{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$(cat TOKEN)\"}}"#;
            let script = format!("#!/bin/sh\necho \"{}\"\n", credential.replace("TOKEN", &file));
            let (draft, plugin) = (lane.file("plugin.draft"), lane.file("plugin"));
            // Written under another name first: a file that is open for writing cannot be run.
            fs::write(&draft, script).expect("the test's folder can be written");
            fs::set_permissions(&draft, PermissionsExt::from_mode(0o700)).expect("it is ours");
            fs::rename(draft, &plugin).expect("it is there");
            json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
                "command": plugin.display().to_string() } })
        }
    }
}
