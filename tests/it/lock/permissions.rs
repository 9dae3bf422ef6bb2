//! Accounts that may do something about the lock, but not everything.

use serde_json::json;

use crate::bed::Bed;
use crate::lock::rig::{LEASE, Rig, text};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Lets `nobody` do this with Leases in every namespace, and what a bootstrap of an empty bundle asks besides.
fn allow(bed: &Bed, leases: &[&str], namespaces: &[&str]) {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    let role = json!({ "metadata": { "name": "some" }, "rules": [
        rule("coordination.k8s.io", "leases", leases),
        rule("", "namespaces", namespaces),
        rule("", "secrets", &["list"]),
        rule("", "pods", &["get", "list"]),
        rule("apps", "deployments", &["get", "list"]),
        rule("apps", "statefulsets", &["get", "list"]),
        rule("apps", "daemonsets", &["get", "list"]),
        rule("apps", "replicasets", &["get", "list"]),
        rule("core.devicechain.io", "instances", &["get", "list"]),
    ] });
    let binding = json!({ "metadata": { "name": "some" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "some" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody" }] });
    bed.api().create(&format!("{RBAC}/clusterroles"), &role).expect("the bed may do everything");
    bed.api().create(&format!("{RBAC}/clusterrolebindings"), &binding).expect("the bed may do everything");
}

#[test]
fn who_may_not_look_at_the_lock_is_told_so_in_the_api_server_s_own_words() {
    let rig = Rig::new();
    let get = r#"User "nobody" cannot get resource "leases" in API group "coordination.k8s.io" in the namespace "dc-k8s-system""#;
    let status = rig.lock_status("human").with_kubeconfig(rig.bed.kubeconfig("nobody")).run().expect_code(5);
    assert!(status.stderr.contains(get) && status.stdout.is_empty(), "{}", status.stderr);
}

#[test]
fn who_may_not_delete_the_lease_empties_it_and_the_next_run_takes_it_as_it_is() {
    let rig = Rig::new();
    allow(&rig.bed, &["get", "create", "update"], &["get", "create"]);
    let done = rig.bootstrap("one").with_kubeconfig(rig.bed.kubeconfig("nobody")).run().expect_code(0);
    assert_eq!(done.verdict()["data"]["lock"], "released");
    let events = done.events();
    let released = events.iter().find(|event| event["type"] == "lock.released").expect("it is said");
    assert_eq!(released["data"]["manner"], "emptied");
    let why = r#"User "nobody" cannot delete resource "leases""#;
    assert!(text(&released["data"]["why"]).contains(why), "{released}");
    assert_eq!(rig.holder().as_deref(), Some(""));
    assert!(rig.lock_status("human").run().expect_code(0).stdout.contains("is free"));
    rig.bootstrap("two").run().expect_code(0);
    assert_eq!(rig.lease(), None);
}

#[test]
fn the_lock_s_namespace_is_made_by_who_may_and_its_lack_is_told_to_who_may_not() {
    let rig = Rig::on(Bed::fresh());
    let namespace = "/api/v1/namespaces/dc-k8s-system";
    allow(&rig.bed, &["get", "create", "update", "delete"], &["get"]);
    let run = |user: &str| rig.bootstrap("one").with_kubeconfig(rig.bed.kubeconfig(user)).run();
    let refused = run("nobody").expect_code(5).verdict();
    let says = r#"User "nobody" cannot create resource "namespaces" in API group """#;
    assert!(text(&refused["data"]["failure"]["message"]).contains(says), "{refused}");
    assert_eq!(rig.bed.api().get(namespace).expect("an answer"), None);
    assert!(rig.lock_status("human").run().expect_code(0).stdout.contains("is free"), "no namespace, no lock");

    let done = run("admin").expect_code(0);
    assert!(done.stdout.contains("namespace dc-k8s-system was created for the lock"), "{}", done.stdout);
    assert!(rig.bed.api().get(namespace).expect("an answer").is_some());
    assert_eq!(rig.bed.api().get(LEASE).expect("an answer"), None);

    // Where the namespace is, the account that may not make it can work.
    let made = json!({ "metadata": { "name": "dci-two", "labels": { "core.devicechain.io/instance": "two" } } });
    rig.bed.api().create("/api/v1/namespaces", &made).expect("the bed may do everything");
    rig.bootstrap("two").with_kubeconfig(rig.bed.kubeconfig("nobody")).run().expect_code(0);
}
