//! Accounts that may not: exit code 5 with the API server's own sentence, at each call that dcctl makes.

use serde_json::{Value, json};

use crate::bed::{Bed, users, wait};
use crate::refused::{HEAD, told};

const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

/// A right that is taken away: which role it is in, its resource and verb.
type Right = (&'static str, &'static str, &'static str);

/// What is taken away, which verb meets it, and where.
const CASES: &[(Right, &str, &str)] = &[
    (("dcctl-lock", "leases", "create"), "install", "claim-the-cluster"),
    (("dcctl-lock", "leases", "get"), "install", "claim-the-cluster"),
    (("dcctl-lock", "leases", "update"), "install", "claim-the-cluster"),
    (("dcctl-system", "configmaps", "get"), "install", "install-the-operator"),
    (("dcctl-system", "configmaps", "create"), "install", "install-the-operator"),
    (("dcctl", "instances", "list"), "bootstrap", "check-the-cluster"),
    (("dcctl-system", "secrets", "list"), "bootstrap", "check-the-cluster"),
    (("dcctl", "instances", "get"), "bootstrap", "declare-the-instance"),
    (("dcctl", "instances", "create"), "bootstrap", "declare-the-instance"),
    (("dcctl", "namespaces", "get"), "bootstrap", "check-the-cluster"),
    (("dcctl", "deployments", "list"), "bootstrap", "wait-for-readiness"),
    (("dcctl", "instances", "patch"), "bootstrap", "record-the-phase"),
    (("dcctl-system", "configmaps", "update"), "install", "record-the-install"),
];

/// Gives `nobody` the rights of `ops`, without one of them.
fn grant_all_but(bed: &Bed, without: Option<Right>) {
    let text = users::RBAC_OPS.replace("name: ops", "name: nobody");
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("the bed's rights are YAML");
    documents.retain(|document| document["kind"] != "Namespace");
    for document in &mut documents {
        let name = document["metadata"]["name"].as_str().expect("it has a name").to_owned();
        document["metadata"]["name"] = format!("{name}-nobody").into();
        if let Some(role) = document["roleRef"]["name"].as_str() {
            document["roleRef"]["name"] = format!("{role}-nobody").into();
        }
        if let (Some((_, resource, verb)), Some(rules)) =
            (without.filter(|(role, ..)| *role == name), document.get_mut("rules").and_then(Value::as_array_mut))
        {
            take_away(rules, resource, verb);
        }
    }
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    bed.api().apply(&text.join("\n---\n")).expect("the bed may do everything");
    wait_until_granted(bed, without);
}

/// Takes a verb out of every rule about this resource; a rule without verbs is none.
fn take_away(rules: &mut Vec<Value>, resource: &str, verb: &str) {
    for rule in rules.iter_mut() {
        if rule["resources"].as_array().is_some_and(|resources| resources.contains(&resource.into())) {
            rule["verbs"].as_array_mut().expect("a rule has verbs").retain(|known| known != verb);
        }
    }
    rules.retain(|rule| rule["verbs"].as_array().is_some_and(|verbs| !verbs.is_empty()));
}

/// The API server's view of rights lags behind; it is asked until it says what was granted.
fn wait_until_granted(bed: &Bed, without: Option<Right>) {
    wait::fact("the rights to be known", || {
        CASES.iter().all(|(right, ..)| may(bed, *right) == (without != Some(*right))).then_some(())
    });
}

fn may(bed: &Bed, (role, resource, verb): (&str, &str, &str)) -> bool {
    let namespace = match role {
        "dcctl-lock" => "dc-k8s-system",
        "dcctl-system" => "dc-system",
        _ => "",
    };
    let group = match resource {
        "leases" => "coordination.k8s.io",
        "instances" => "core.devicechain.io",
        "deployments" => "apps",
        _ => "",
    };
    let review = json!({ "spec": { "resourceAttributes": {
        "namespace": namespace, "group": group, "resource": resource, "verb": verb,
    } } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    bed.api_as("nobody").create(path, &review).expect("everybody may ask")["status"]["allowed"] == true
}

/// A bundle that makes every call.
fn bundle(bed: &Bed) -> std::path::PathBuf {
    let rest = "operator: { manifests: operator/ }\ninstance:\n  namespace: \"dci-${instance}\"\n  declaration:\n    \
                apiVersion: core.devicechain.io/v1beta1\n    spec: { provider: existing, managed: false }\n";
    bed.write("bundle/operator/none.yaml", "# An operator that needs nothing.\n");
    let file = bed.write("bundle/bundle.yaml", &format!("{HEAD}{rest}"));
    bed.api().apply(DEFINITION).expect("the bed may do everything");
    wait::fact("the definition to be served", || bed.api().get(INSTANCES).ok().flatten());
    file.parent().expect("it is in a folder").to_owned()
}

#[test]
fn each_missing_right_is_told_in_the_api_servers_own_words() {
    let bed = Bed::take();
    let bundle = bundle(&bed);
    for (right, verb, step) in CASES {
        let (_, resource, missing) = *right;
        grant_all_but(&bed, Some(*right));
        let instance = Bed::instance();
        let run = || {
            let words: &[&str] = if *verb == "install" { &["install"] } else { &["bootstrap", &instance] };
            bed.dcctl(words).arg("--bundle").arg(&bundle).with_kubeconfig(bed.kubeconfig("nobody"))
        };
        let sentence = format!("User \"nobody\" cannot {missing} resource \"{resource}\"");
        let said = told(&bed, run, 5, "cluster.forbidden").says(&[&sentence, "dcctl rbac"]);
        let failed: Vec<_> = said.events.iter().filter(|event| event["data"]["outcome"] == "failed").collect();
        assert_eq!(failed[0]["step"], *step, "{failed:?}");
        let bad = said.report.only_bad();
        assert!(bad.body.contains(&sentence) && bad.result == "error", "{}", bad.body);
        assert!(!said.text.contains("unreachable") && !said.text.contains("could not be reached"), "{}", said.text);
    }
}

#[test]
fn an_account_with_no_right_at_all_is_told_the_first_call() {
    let bed = Bed::take();
    let bundle = bundle(&bed);
    for verb in [&["install"][..], &["bootstrap", "demo"]] {
        let run = || bed.dcctl(verb).arg("--bundle").arg(&bundle).with_kubeconfig(bed.kubeconfig("nobody"));
        let said = told(&bed, run, 5, "cluster.forbidden").says(&[
            "leases.coordination.k8s.io is forbidden: User \"nobody\" cannot create resource \"leases\" in API group \
             \"coordination.k8s.io\" in the namespace \"dc-k8s-system\"",
        ]);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
    }
}

#[test]
fn with_every_right_that_is_documented_nothing_is_forbidden() {
    let bed = Bed::take();
    let bundle = bundle(&bed);
    grant_all_but(&bed, None);
    let as_nobody =
        |words: &[&str]| bed.dcctl(words).arg("--bundle").arg(&bundle).with_kubeconfig(bed.kubeconfig("nobody"));
    as_nobody(&["install"]).run().expect_code(0);
    as_nobody(&["bootstrap", &Bed::instance()]).run().expect_code(0);
}

#[test]
fn a_namespace_for_the_lock_that_may_not_be_made_is_told_as_that() {
    let bed = Bed::fresh();
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: leases }\nrules:\n\
                - { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update, delete] }\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: leases }\n\
                roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: leases }\n\
                subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody }]\n";
    bed.api().apply(role).expect("the bed may do everything");
    wait::fact("the rights to be known", || may(&bed, ("dcctl-lock", "leases", "create")).then_some(()));
    let bundle = crate::refused::small_bundle(&bed);
    let run = || crate::refused::install(&bed, &bundle).with_kubeconfig(bed.kubeconfig("nobody"));
    told(&bed, run, 5, "cluster.forbidden")
        .says(&["User \"nobody\" cannot create resource \"namespaces\" in API group \"\" at the cluster scope"]);
}
