//! `dcctl install`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::bed::{Bed, LEASES};
use crate::verbs::rig::{Demo, applied};

const CONTROLLER: &str = "/apis/apps/v1/namespaces/dc-k8s-system/deployments/dc-k8s-controller-manager";
const RECORD: &str = "/api/v1/namespaces/dc-system/configmaps/dc-install";

/// On a cluster that knows nothing: the first install, one that finds everything as it should be, and one that finds
/// what somebody else has changed.
#[test]
fn an_install_prepares_a_new_cluster_and_a_second_one_converges() {
    let demo = Demo::copied(Bed::fresh());
    let first = demo.install().run().expect_code(0);
    let events = first.events();
    assert_in_order(&applied(&events));
    assert_prepared(&demo);
    assert_state_is_private(&demo);
    assert_eq!(first.verdict()["data"]["lock"], "released");

    let again = demo.install().run().expect_code(0).events();
    let changed: Vec<_> = applied(&again).into_iter().filter(|(_, action)| action != "unchanged").collect();
    assert_eq!(changed, [("ConfigMap dc-install".to_owned(), "configured".to_owned())], "only the record is written");
    assert!(!again.iter().any(|event| event["type"] == "resource.started"), "OpenTofu had nothing to do");

    assert_takes_over_what_others_own(&demo);
}

/// Namespaces, then definitions, then the rest, whatever the files are called.
fn assert_in_order(applied: &[(String, String)]) {
    let place = |object: &str| {
        let found = applied.iter().position(|(name, _)| name == object);
        found.unwrap_or_else(|| panic!("{object} was not applied: {applied:?}"))
    };
    let order = [
        "Namespace dc-k8s-system",
        "Namespace dc-system",
        "CustomResourceDefinition instances.core.devicechain.io",
        "ServiceAccount dc-k8s-controller-manager",
        "Deployment dc-k8s-controller-manager",
    ];
    assert!(order.map(place).is_sorted(), "{applied:?}");
    assert!(place("CustomResourceDefinition profiles.demo.devicechain.io") < place("Profile small"), "{applied:?}");
    // The lock's namespace was there when the operator came: the claim had made it.
    let made = |object: &str| applied[place(object)].1.clone();
    assert_eq!((made("Namespace dc-k8s-system").as_str(), made("Profile small").as_str()), ("configured", "created"));
}

fn assert_prepared(demo: &Demo) {
    for name in ["instances.core.devicechain.io", "profiles.demo.devicechain.io"] {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        let conditions = demo.get(&path).expect("it is defined")["status"]["conditions"].clone();
        let is = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
        assert!(conditions.as_array().is_some_and(|all| all.iter().any(is)), "{name}: {conditions}");
    }
    let controller = demo.get(CONTROLLER).expect("it was applied");
    assert_eq!(controller["metadata"]["annotations"]["dcctl.devicechain.io/release"], "0.9.2");
    assert_eq!(controller["status"]["availableReplicas"], 1, "it is waited for");
    let labels = demo.get("/api/v1/namespaces/dc-k8s-system").expect("it is there")["metadata"]["labels"].clone();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");

    let record = demo.record().expect("it was written");
    let cluster = demo.get("/api/v1/namespaces/kube-system").expect("every cluster has it");
    assert_eq!((&record["phase"], &record["clusterUid"]), (&json!("installed"), &cluster["metadata"]["uid"]));
    assert_eq!((&record["settings"]["bundle"], &record["settings"]["version"]), (&json!("demo"), &json!("0.9.2")));
}

fn assert_state_is_private(demo: &Demo) {
    let folder = demo.state_dir("cluster");
    let mode = |path: &std::path::Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    let files: Vec<_> = fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()).collect();
    assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    let state = fs::read(folder.join("prerequisites.tfstate")).expect("there is a state");
    let state: Value = serde_json::from_slice(&state).expect("a state is JSON");
    let kinds: Vec<_> = state["resources"].as_array().into_iter().flatten().map(|found| &found["type"]).collect();
    assert_eq!(kinds, ["terraform_data", "time_sleep", "time_static"]);
}

fn assert_takes_over_what_others_own(demo: &Demo) {
    let theirs = "{ apiVersion: v1, kind: Namespace, metadata: { name: dc-system, labels: { app.kubernetes.io/part-of: theirs } } }";
    demo.bed.api().apply(theirs).expect("the bed may do everything");
    let refused = demo.install().arg("--no-force-conflicts").run().expect_code(1);
    let failure = refused.verdict()["data"]["failure"].clone();
    assert_eq!(failure["code"], "manifest.rejected");
    let message = "operator/e-namespaces.yaml:8: Namespace dc-system has fields that others own";
    assert_eq!(
        (&failure["message"], &failure["causes"][0]),
        (&json!(message), &json!("bed owns .metadata.labels.app.kubernetes.io/part-of"))
    );
    assert_eq!(demo.record().expect("it is there")["phase"], "applying", "an install that failed never reads as done");

    let done = demo.install().run().expect_code(0);
    let events = done.events();
    let taken: Vec<_> = events.iter().filter(|event| !event["data"]["taken_over"].is_null()).collect();
    let former = json!([{ "manager": "bed", "fields": [".metadata.labels.app.kubernetes.io/part-of"] }]);
    assert_eq!(
        (taken.len(), &taken[0]["data"]["name"], &taken[0]["data"]["taken_over"]),
        (1, &json!("dc-system"), &former)
    );
    assert!(taken[0]["msg"].as_str().is_some_and(|text| text.contains("taken over: ") && text.contains("from bed")));
    assert_eq!(demo.record().expect("it is there")["phase"], "installed");
}

#[test]
fn an_install_that_is_at_work_or_failed_reads_as_applying() {
    let demo = Demo::copied(Bed::take());
    demo.edit(
        "infra/cluster/main.tf",
        "\"time_static\" \"installed\" {}",
        "\"time_static\" \"installed\" { rfc3339 = \"never\" }",
    );
    let failed = demo.install().run().expect_code(1);
    assert_eq!(failed.verdict()["data"]["failure"]["code"], "infrastructure.failed");
    assert_eq!(failed.verdict()["data"]["lock"], "released");
    assert_eq!(demo.record().expect("it was begun")["phase"], "applying");
    demo.edit("infra/cluster/main.tf", " rfc3339 = \"never\" ", "");
    demo.install().run().expect_code(0);
    assert_eq!(demo.record().expect("it is there")["phase"], "installed");
}

#[test]
fn an_install_moves_the_operator_forward_and_back_only_when_that_is_allowed() {
    let demo = Demo::copied(Bed::take());
    demo.edit("bundle.yaml", "version: 0.9.2", "version: 0.10.0");
    demo.install().run().expect_code(0);
    demo.edit("bundle.yaml", "version: 0.10.0", "version: 0.9.9");
    let before = demo.record();
    for more in [&[][..], &["--dry-run"]] {
        let verdict = demo.install().args(more).run().expect_code(6).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&json!("guard.downgrade"), &json!("never_taken")));
        assert!(failure["hints"].to_string().contains("--allow-downgrade"), "{failure}");
    }
    assert_eq!(demo.record(), before);
    demo.install().arg("--allow-downgrade").run().expect_code(0);
    let operator = "/apis/apps/v1/namespaces/dc-k8s-system/deployments/dc-k8s-controller-manager";
    let release =
        || demo.get(operator).expect("it is there")["metadata"]["annotations"]["dcctl.devicechain.io/release"].clone();
    assert_eq!(
        (release(), &demo.record().expect("it is there")["settings"]["version"]),
        (json!("0.9.9"), &json!("0.9.9"))
    );
    demo.edit("bundle.yaml", "version: 0.9.9", "version: 1.0.0");
    demo.install().run().expect_code(0);
    assert_eq!((release(), &demo.record().expect("it is there")["phase"]), (json!("1.0.0"), &json!("installed")));
}

#[test]
fn an_older_release_is_not_installed_over_a_newer_one_that_was_half_applied_unless_that_is_allowed() {
    let demo = Demo::copied(Bed::take());
    demo.install().run().expect_code(0);
    demo.edit("bundle.yaml", "version: 0.9.2", "version: 0.10.0");
    let (whole, broken) = ("\"time_static\" \"installed\" {}", "\"time_static\" \"installed\" { rfc3339 = \"never\" }");
    demo.edit("infra/cluster/main.tf", whole, broken);
    demo.install().run().expect_code(1);
    let half = demo.record().expect("it was begun");
    assert_eq!((&half["phase"], &half["settings"]["version"]), (&json!("applying"), &json!("0.10.0")));
    demo.edit("bundle.yaml", "version: 0.10.0", "version: 0.9.2");
    demo.edit("infra/cluster/main.tf", broken, whole);
    let verdict = demo.install().run().expect_code(6).verdict();
    assert_eq!(verdict["data"]["failure"]["code"], "guard.downgrade", "{verdict}");
    assert_eq!((demo.record(), &verdict["data"]["lock"]), (Some(half), &json!("never_taken")));
    demo.install().arg("--allow-downgrade").run().expect_code(0);
    let done = demo.record().expect("it is there");
    assert_eq!((&done["phase"], &done["settings"]["version"]), (&json!("installed"), &json!("0.9.2")));
}

#[test]
fn an_install_that_is_refused_touches_neither_operator_nor_prerequisites() {
    let demo = Demo::on(Bed::take());
    let now = dcctl::clock::rfc3339(dcctl::clock::Clock::wall(&dcctl::clock::System));
    let other = json!({ "metadata": { "name": "dcctl" }, "spec": { "leaseDurationSeconds": 60,
        "holderIdentity": "bob@laptop/9912/3a7f00c2d1e4b596", "renewTime": now } });
    demo.bed.api().create(LEASES, &other).expect("the bed may do everything");
    let refused = demo.install().run().expect_code(20);
    let message = refused.verdict()["data"]["failure"]["message"].clone();
    let begins = "this cluster is being worked on by bob@laptop/9912/3a7f00c2d1e4b596, which renewed ";
    assert!(message.as_str().is_some_and(|said| said.starts_with(begins)), "{message}");
    assert_eq!(demo.writes_of("admin"), [format!("create {LEASES}?&fieldManager=dcctl")]);
    assert_eq!((demo.get(RECORD), demo.state_dir("cluster").exists()), (None, false));
}
