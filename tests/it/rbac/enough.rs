//! An account with exactly what `dcctl rbac` prints, and what the bundle needs on top, does everything.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::bed::terminal::Seat;
use crate::bed::{Bed, LEASE, LEASES, wait};
use crate::rbac::{Account, kubectl_apply, printed};
use crate::verbs::rig::Demo;

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// What the demo's manifests need of whoever applies them. Kubernetes lets nobody hand out more than they have.
const OF_THE_MANIFESTS: &str = "
- { apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [create, patch] }
- { apiGroups: [demo.devicechain.io], resources: [profiles], verbs: [get, create, patch] }
- { apiGroups: [apps], resources: [deployments], verbs: [create, patch] }
- { apiGroups: [''], resources: [namespaces], verbs: [patch] }
- { apiGroups: [''], resources: [serviceaccounts], verbs: [get, create, patch] }
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles, clusterrolebindings]
  verbs: [get, create, patch, bind, escalate]
";

/// What its chart needs in the way that `dcctl rbac` lists it: the records of the release, the kinds in the chart, what Helm
/// waits for; and what its verify command looks at.
pub(crate) const OF_THE_CHART: &str = "
- { apiGroups: [''], resources: [secrets], verbs: [get, list, create, update, delete] }
- { apiGroups: [''], resources: [secrets, configmaps, services], verbs: [get, create, patch, delete] }
- { apiGroups: [apps], resources: [deployments], verbs: [get, create, patch, delete] }
- { apiGroups: [batch], resources: [jobs], verbs: [get, create, patch, delete] }
- { apiGroups: [apps], resources: [replicasets], verbs: [list] }
- { apiGroups: [batch], resources: [jobs], verbs: [list, watch] }
- { apiGroups: [''], resources: [pods], verbs: [list, watch] }
- { apiGroups: [apps], resources: [deployments], verbs: [list, watch] }
";

/// Gives a service account the bundle's own rights.
fn grant(account: &Account<'_>, name: &str, rules: &str) {
    let (namespace, own) =
        account.name.strip_prefix("system:serviceaccount:").and_then(|name| name.split_once(':')).expect("one");
    let text = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{ name: {name} }}\nrules:{rules}---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{ name: {name} }}\n\
         roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {name} }}\n\
         subjects: [{{ kind: ServiceAccount, namespace: {namespace}, name: {own} }}]\n"
    );
    account.bed.api().apply(&text).expect("the bed may do everything");
}

/// Alice holds the lock, from a pod, and has not renewed it for years.
fn left_by_alice(bed: &Bed) {
    let lease = json!({
        "metadata": { "name": "dcctl", "annotations": {
            "dcctl.devicechain.io/pod-namespace": "default", "dcctl.devicechain.io/pod-name": "runner-0" } },
        "spec": { "holderIdentity": ALICE, "leaseDurationSeconds": 60, "renewTime": "2020-01-01T00:00:00.000000Z" },
    });
    bed.api().create(LEASES, &lease).expect("the bed may do everything");
}

/// A right as it is granted and as it is used: verb, group, resource, and the namespace, empty for all.
type Right = [String; 4];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn granted(printed: &str) -> BTreeSet<Right> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(printed).expect("it is YAML");
    let mut granted = BTreeSet::new();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    for document in &documents {
        let within = text(&document["metadata"]["namespace"]);
        for rule in document["rules"].as_array().into_iter().flatten() {
            for group in list(&rule["apiGroups"]) {
                for resource in list(&rule["resources"]) {
                    let of = |verb| [verb, group.clone(), resource.clone(), within.clone()];
                    granted.extend(list(&rule["verbs"]).into_iter().map(of));
                }
            }
        }
    }
    granted
}

/// What dcctl itself asked for in this account's name: Helm and kubectl say who they are.
fn used(account: &Account<'_>, granted: &BTreeSet<Right>) -> BTreeSet<Right> {
    let requests = account.requests();
    let ours = |event: &&Value| !["Helm", "kubectl"].iter().any(|other| text(&event["userAgent"]).starts_with(other));
    let right = |event: &Value| {
        let object = &event["objectRef"];
        let part = |namespace| [text(&event["verb"]), text(&object["apiGroup"]), text(&object["resource"]), namespace];
        // In all namespaces, where it is granted so.
        Some(part(String::new()))
            .filter(|right| granted.contains(right))
            .unwrap_or_else(|| part(text(&object["namespace"])))
    };
    requests.iter().filter(ours).map(right).filter(|right| granted.contains(right)).collect()
}

/// Everything that there is to do in this account's name, on a cluster that was never seen before.
fn do_everything(demo: &Demo, account: &Account<'_>) {
    let bed = &demo.bed;
    account.runs(demo.install()).arg("--dry-run").run().expect_code(0);
    account.runs(demo.install()).run().expect_code(0);
    account.runs(demo.install()).run().expect_code(0);
    account.runs(demo.bootstrap("one", 1883)).arg("--dry-run").run().expect_code(0);
    account.runs(demo.bootstrap("one", 1883)).run().expect_code(0);
    assert_eq!(demo.phase("one").as_deref(), Some("Ready"));
    // One that was never completely built is built on.
    let failed = json!({ "core.devicechain.io/phase": "Failed", "dcctl.devicechain.io/release": null });
    let failed = json!({ "metadata": { "annotations": failed } });
    bed.api().merge("/apis/core.devicechain.io/v1beta1/instances/one", &failed).expect("the bed may do everything");
    account.runs(demo.bootstrap("one", 1883)).run().expect_code(0);
    account.runs(demo.upgrade("one", 1885, 1)).arg("--dry-run").run().expect_code(0);
    account.runs(demo.upgrade("one", 1885, 1)).run().expect_code(0);
    account.runs(bed.dcctl(["instances", "list"])).run().expect_code(0);
    account.runs(demo.destroy("one")).run().expect_code(0);
    assert_eq!(demo.phase("one"), None);
    account.runs(bed.dcctl(["exec", "--", "true"])).run().expect_code(0);
    account.runs(bed.dcctl(["exec", "--dry-run", "--", "true"])).run().expect_code(0);
    account.runs(bed.dcctl(["lock", "status"])).run().expect_code(0);

    left_by_alice(bed);
    let waiting = account.runs(bed.dcctl(["exec", "--output", "jsonl", "--wait", "--", "true"])).start();
    waiting.wait_for("lock.blocked", |_| true);
    let suspended = bed.file("suspended");
    let reclaim = bed.dcctl(["instances", "reclaim", "--kube-context", "bed"]).env("BED_SUSPENDED", &suspended);
    let seat = Seat::take(account.runs(reclaim.env("TERM", "xterm")));
    seat.wait_for("Type the holder identity above");
    assert!(seat.screen().contains("default/runner-0 is not in this cluster"), "{}", seat.screen());
    seat.type_line(ALICE);
    seat.wait_for("no renewal so far; ");
    fs::rename(bed.write("suspended.next", "66"), &suspended).expect("the test's folder can be written");
    assert!(seat.expect_code(0).ends_with("the cluster lock is now free\n"));
    waiting.finish().expect_code(0);
    assert_eq!(bed.api().get(LEASE).expect("an answer"), None);
}

#[test]
fn an_account_with_what_dcctl_rbac_prints_can_do_everything_and_every_right_of_it_is_used() {
    let demo = Demo::on(Bed::fresh());
    let account = Account::service(&demo.bed, "runners", "deployer");
    let printed = printed(&demo.bed, &["--install", "--serviceaccount", "runners:deployer"]);
    kubectl_apply(&demo.bed, &printed);
    account.wait_until_it_may_claim();
    grant(&account, "of-the-manifests", OF_THE_MANIFESTS);
    grant(&account, "of-the-chart", OF_THE_CHART);
    do_everything(&demo, &account);
    assert_eq!(account.forbidden(), Vec::<String>::new());
    let granted = granted(&printed);
    // A request that has just ended may take a moment to be in the audit log.
    let whole = |used: &BTreeSet<Right>| used.len() + 1 >= granted.len();
    let _ = wait::until(wait::GENEROUS, "the audit log", || Some(used(&account, &granted)).filter(whole));
    let used = used(&account, &granted);
    let unused: Vec<_> = granted.difference(&used).map(|right| right.join(" ")).collect();
    assert_eq!(unused, Vec::<String>::new(), "this is granted, and nothing uses it");
}

#[test]
fn what_the_bundle_needs_is_not_granted_and_is_told_as_what_it_is() {
    let demo = Demo::on(Bed::fresh());
    let account = Account::service(&demo.bed, "runners", "deployer");
    kubectl_apply(&demo.bed, &printed(&demo.bed, &["--install", "--serviceaccount", "runners:deployer"]));
    account.wait_until_it_may_claim();
    let says = |finished: crate::bed::dcctl::Finished, sentence: &str| {
        let verdict = finished.expect_code(5).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&json!("cluster.forbidden"), &json!("released")));
        let said = format!("User \"{}\" cannot {sentence}", account.name);
        assert!(text(&failure["message"]).contains(&said), "{said}\nis not in\n{failure}");
    };
    says(account.runs(demo.install()).run(), "patch resource \"namespaces\"");
    grant(&account, "of-the-manifests", OF_THE_MANIFESTS);
    let may = || account.runs(demo.install()).run().code() == Some(0);
    wait::fact("the rights to be known", || may().then_some(()));
    says(
        account.runs(demo.bootstrap("one", 1883)).run(),
        "list resource \"secrets\" in API group \"\" in the namespace \"dci-one\"",
    );
}

#[test]
fn without_install_it_is_enough_for_everything_but_an_install() {
    let demo = Demo::on(Bed::fresh());
    let bed = &demo.bed;
    demo.install().run().expect_code(0);
    let account = Account::service(bed, "runners", "deployer");
    kubectl_apply(bed, &printed(bed, &["--serviceaccount", "runners:deployer"]));
    account.wait_until_it_may_claim();
    let refused = account.runs(demo.install()).run().expect_code(5).verdict();
    let failure = &refused["data"]["failure"];
    let lacks = ["get", "update"].map(|verb| json!(format!("it may not {verb} configmaps in dc-system")));
    assert_eq!(failure["causes"], json!(lacks), "{failure}");
    assert!(
        failure["hints"].to_string().contains("`dcctl rbac --install --serviceaccount runners:deployer"),
        "{failure}"
    );
    account.runs(bed.dcctl(["exec", "--", "true"])).run().expect_code(0);
    grant(&account, "of-the-chart", OF_THE_CHART);
    let bootstrap = || account.runs(demo.bootstrap("one", 1883)).run();
    wait::fact("the rights to be known", || (bootstrap().code() == Some(0)).then_some(()));
}
