//! An account with exactly what `dcctl rbac` prints, and what a bundle needs on top.

use serde_json::Value;

use crate::bed::Bed;
use crate::lock::rig::Rig;
use crate::verbs::rig::Demo;

/// What the demo's own manifests need of whoever applies them. Kubernetes lets nobody hand out more than they have.
const OF_THE_BUNDLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: of-the-bundle }
rules:
- { apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [create, patch] }
- { apiGroups: [demo.devicechain.io], resources: [profiles], verbs: [get, list, watch, create, patch] }
- { apiGroups: [apps], resources: [deployments], verbs: [create, patch] }
- { apiGroups: [''], resources: [namespaces], verbs: [patch] }
- { apiGroups: [''], resources: [serviceaccounts], verbs: [get, create, patch] }
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles, clusterrolebindings]
  verbs: [get, create, patch, bind, escalate]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: of-the-bundle }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: of-the-bundle }
subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: ops }]
";

/// The requests of `ops` that were answered by a 403.
fn forbidden(bed: &Bed) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let refused = |event: &&Value| event["user"]["username"] == "ops" && event["responseStatus"]["code"] == 403;
    let said = |event: &Value| format!("{} {}", text(&event["verb"]), text(&event["requestURI"]));
    bed.audit().iter().filter(refused).map(said).collect()
}

#[test]
fn an_account_with_what_dcctl_rbac_prints_can_bootstrap_and_every_request_of_dcctl_is_covered() {
    let rig = Rig::new().declared().slow_thing(0.0).checked("kubectl version");
    let printed = rig.bed.dcctl(["rbac"]).run().expect_code(0).stdout;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&printed).expect("it is YAML");
    for role in documents.iter().filter(|document| document["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
    {
        let plural = role["kind"].as_str().unwrap_or_default().to_lowercase() + "s";
        let within = role["metadata"]["namespace"].as_str().map_or(String::new(), |name| format!("namespaces/{name}/"));
        let name = role["metadata"]["name"].as_str().expect("it has a name");
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{within}{plural}/{name}");
        let granted = rig.bed.api().get(&path).expect("an answer").expect("it is granted to ops");
        assert_eq!(granted["rules"], role["rules"], "ops has something else than what is printed: {name}");
    }
    let ops = |instance: &str| rig.bootstrap(instance).with_kubeconfig(rig.bed.kubeconfig("ops"));
    let done = ops("one").run().expect_code(0);
    assert_eq!(
        (done.verdict()["data"]["lock"].as_str(), rig.phase("one").as_deref()),
        (Some("released"), Some("Ready"))
    );
    ops("two").arg("--dry-run").run().expect_code(0);
    rig.lock_status("human").with_kubeconfig(rig.bed.kubeconfig("ops")).run().expect_code(0);
    assert_eq!(forbidden(&rig.bed), Vec::<String>::new());
}

#[test]
fn the_same_account_can_install_when_it_has_what_the_bundle_needs_and_is_told_what_when_not() {
    let demo = Demo::on(Bed::take());
    let install = || demo.install().with_kubeconfig(demo.bed.kubeconfig("ops")).run();
    let refused = install().expect_code(5).verdict();
    let said = refused["data"]["failure"].to_string();
    assert!(said.contains(r#"User \"ops\" cannot patch resource \"namespaces\""#), "{said}");
    assert_eq!(refused["data"]["lock"], "released");
    let before = forbidden(&demo.bed).len();
    demo.bed.api().apply(OF_THE_BUNDLE).expect("the bed may do everything");
    install().expect_code(0);
    assert_eq!(forbidden(&demo.bed)[before..], Vec::<String>::new());
}
