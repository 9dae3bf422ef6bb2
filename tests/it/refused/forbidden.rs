//! Accounts that may not: exit code 5 with the API server's own sentence, at each call that dcctl makes.
//!
//! Each right that `dcctl rbac` prints is taken away once, alone. What then goes wrong is a row of [`CASES`]; where dcctl
//! can do without, a row of [`SPARED`] says how, and a test beside it shows it. What a verb is sure to need is missed before
//! the lock is asked for, and in the step itself where the API server was not able to tell: both are shown.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::proxy::{Fault, Proxy, Rule};
use crate::bed::{Bed, Dcctl, users, wait};
use crate::refused::{HEAD, Told, told, words};

const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
const RECORD: &str = "/api/v1/namespaces/dc-system/configmaps/dc-install";
const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

/// A right that is taken away: which role it is in, its resource and verb.
pub(crate) type Right = (&'static str, &'static str, &'static str);

/// The run that meets the lack of a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// An install of an operator without objects.
    Install,
    /// One that brings a definition.
    InstallDefinition,
    /// One that brings a Deployment, which is waited for.
    InstallOperator,
    /// A bootstrap of a new instance.
    Bootstrap,
    /// One of an instance that is declared already.
    BootstrapAgain,
    /// A destroy.
    Destroy,
}

/// What is taken away, which run meets it, and in which step where it was not told before.
pub(crate) const CASES: &[(Right, Scene, &str)] = &[
    (("dcctl-lock", "leases", "create"), Scene::Install, "claim-the-cluster"),
    (("dcctl-lock", "leases", "get"), Scene::Install, "claim-the-cluster"),
    (("dcctl-lock", "leases", "update"), Scene::Install, "claim-the-cluster"),
    (("dcctl-install", "configmaps", "get"), Scene::Install, "install-the-operator"),
    (("dcctl-install", "configmaps", "create"), Scene::Install, "install-the-operator"),
    (("dcctl", "namespaces", "get"), Scene::Install, "install-the-operator"),
    (("dcctl-install", "customresourcedefinitions", "get"), Scene::InstallDefinition, "install-the-operator"),
    (("dcctl", "deployments", "get"), Scene::InstallOperator, "install-the-operator"),
    (("dcctl-instances", "instances", "list"), Scene::Bootstrap, "check-the-cluster"),
    (("dcctl-shared", "secrets", "list"), Scene::Bootstrap, "check-the-cluster"),
    (("dcctl", "namespaces", "get"), Scene::Bootstrap, "check-the-cluster"),
    (("dcctl-instances", "instances", "get"), Scene::Bootstrap, "check-the-cluster"),
    (("dcctl-instances", "instances", "create"), Scene::Bootstrap, "declare-the-instance"),
    (("dcctl-instances", "instances", "update"), Scene::BootstrapAgain, "declare-the-instance"),
    (("dcctl", "namespaces", "create"), Scene::Bootstrap, "declare-the-instance"),
    (("dcctl", "deployments", "list"), Scene::Bootstrap, "wait-for-readiness"),
    (("dcctl", "pods", "list"), Scene::Bootstrap, "wait-for-readiness"),
    (("dcctl-instances", "instances", "patch"), Scene::Bootstrap, "record-the-phase"),
    (("dcctl-install", "configmaps", "update"), Scene::Install, "record-the-install"),
    (("dcctl", "namespaces", "delete"), Scene::Destroy, "delete-namespace"),
    (("dcctl-instances", "instances", "delete"), Scene::Destroy, "release-the-declaration"),
];

/// What dcctl can do without, in one way or another.
pub(crate) const SPARED: &[Right] = &[
    // It is said that it was not looked: `namespaces_that_an_account_may_not_list_are_said_and_never_taken_for_none`.
    ("dcctl", "namespaces", "list"),
    // The holder is emptied instead: `who_may_not_delete_the_lock_empties_it_in_every_command_that_gives_it_back`.
    ("dcctl-lock", "leases", "delete"),
    // Only waiting needs it: `who_may_not_watch_the_lock_cannot_wait_for_it_and_is_told_so`.
    ("dcctl-lock", "leases", "watch"),
    // Their pods are seen all the same: `workloads_that_may_not_be_listed_are_said_and_seen_through_their_pods`.
    ("dcctl", "statefulsets", "list"),
    ("dcctl", "daemonsets", "list"),
    // It is said that it cannot be told: `whoever_may_not_see_the_holder_s_pod_is_told_so_and_can_reclaim_all_the_same`.
    ("dcctl", "pods", "get"),
];

/// The rules that are bound to `ops`, as JSON documents.
fn granted() -> Vec<Value> {
    serde_saphyr::from_multiple(users::RBAC_OPS).expect("the bed's rights are YAML")
}

/// Gives `nobody` the rights of `ops`, without one of them.
pub(crate) fn grant_all_but(bed: &Bed, without: Option<Right>) {
    let mut documents = granted();
    documents.retain(|document| document["kind"] != "Namespace");
    for document in &mut documents {
        let name = document["metadata"]["name"].as_str().expect("it has a name").to_owned();
        document["metadata"]["name"] = format!("{name}-nobody").into();
        if let Some(role) = document["roleRef"]["name"].as_str() {
            document["roleRef"]["name"] = format!("{role}-nobody").into();
            document["subjects"][0]["name"] = "nobody".into();
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
        let resources = rule["resources"].as_array_mut().expect("a rule has resources");
        if !resources.contains(&resource.into()) {
            continue;
        }
        if resources.len() > 1 {
            // All of these have one verb.
            resources.retain(|known| known != resource);
        } else {
            rule["verbs"].as_array_mut().expect("a rule has verbs").retain(|known| known != verb);
        }
    }
    rules.retain(|rule| rule["verbs"].as_array().is_some_and(|verbs| !verbs.is_empty()));
}

/// The API server's view of rights lags behind; it is asked until it says what was granted.
fn wait_until_granted(bed: &Bed, without: Option<Right>) {
    let rights = || CASES.iter().map(|(right, ..)| right).chain(SPARED);
    wait::fact("the rights to be known", || {
        rights().all(|right| may(bed, *right) == (without != Some(*right))).then_some(())
    });
}

fn may(bed: &Bed, (role, resource, verb): Right) -> bool {
    let namespace = match (role, resource) {
        ("dcctl-lock", _) => "dc-k8s-system",
        ("dcctl-shared", _) | ("dcctl-install", "configmaps") => "dc-system",
        _ => "",
    };
    let group = match resource {
        "leases" => "coordination.k8s.io",
        "instances" => "core.devicechain.io",
        "deployments" | "statefulsets" | "daemonsets" => "apps",
        "customresourcedefinitions" => "apiextensions.k8s.io",
        _ => "",
    };
    let review = json!({ "spec": { "resourceAttributes": {
        "namespace": namespace, "group": group, "resource": resource, "verb": verb,
    } } });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    bed.api_as("nobody").create(path, &review).expect("everybody may ask")["status"]["allowed"] == true
}

/// A bundle that makes every call of a bootstrap, and an operator of these manifests.
fn bundle(bed: &Bed, operator: &str, manifests: &str) -> PathBuf {
    let rest = "instance:\n  namespace: \"dci-${instance}\"\n  declaration:\n    \
                apiVersion: core.devicechain.io/v1beta1\n    spec: { provider: existing, managed: false }\n";
    bed.write(&format!("{operator}/operator/manifests.yaml"), manifests);
    let deployment = "deployment: { namespace: default, name: small-operator }";
    let deployment = if operator == "operated" { deployment } else { "" };
    let operated = format!("operator:\n  manifests: operator/\n  {deployment}\n");
    let file = bed.write(&format!("{operator}/bundle.yaml"), &format!("{HEAD}{operated}{rest}"));
    file.parent().expect("it is in a folder").to_owned()
}

/// A run of this scene as `nobody`, of an instance that no other one has.
pub(crate) fn run(bed: &Bed, scene: Scene) -> impl Fn() -> Dcctl + '_ {
    let instance = Bed::instance();
    let bundle = match scene {
        Scene::Install | Scene::Bootstrap | Scene::BootstrapAgain | Scene::Destroy => {
            bundle(bed, "plain", "# Nothing.\n")
        }
        Scene::InstallDefinition => bundle(bed, "defining", DEFINITION),
        Scene::InstallOperator => bundle(bed, "operated", OPERATOR),
    };
    // The first install of a cluster makes the record, and the next ones write over it.
    bed.api().delete(RECORD).expect("the bed may do everything");
    if scene == Scene::Destroy {
        let labels = json!({ "core.devicechain.io/instance": instance });
        let namespace = json!({ "metadata": { "name": format!("dci-{instance}"), "labels": labels } });
        bed.api().create("/api/v1/namespaces", &namespace).expect("the bed may do everything");
    }
    if matches!(scene, Scene::BootstrapAgain | Scene::Destroy) {
        let spec = json!({ "provider": "existing", "managed": false });
        let declared = json!({ "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
            "metadata": { "name": instance, "finalizers": ["core.devicechain.io/instance"] }, "spec": spec });
        bed.api().create(INSTANCES, &declared).expect("the bed may do everything");
    }
    move || {
        let words: &[&str] = match scene {
            Scene::Install | Scene::InstallDefinition | Scene::InstallOperator => &["install"],
            Scene::Bootstrap | Scene::BootstrapAgain => &["bootstrap", &instance],
            Scene::Destroy => &["destroy", &instance],
        };
        bed.dcctl(words).arg("--bundle").arg(&bundle).with_kubeconfig(bed.kubeconfig("nobody"))
    }
}

const OPERATOR: &str = "apiVersion: apps/v1\nkind: Deployment\n\
    metadata: { name: small-operator, namespace: default }\nspec:\n  selector: { matchLabels: { app: small } }\n  \
    template:\n    metadata: { labels: { app: small } }\n    spec: { containers: [ { name: c, image: busybox } ] }\n";

/// Instances are served from here on.
pub(crate) fn define(bed: &Bed) {
    bed.api().apply(DEFINITION).expect("the bed may do everything");
    wait::fact("the definition to be served", || bed.api().get(INSTANCES).ok().flatten());
}

/// It was refused, and nobody speaks of an outage: neither the verdict, nor the log, nor the report.
#[track_caller]
pub(crate) fn assert_no_outage(said: &Told) {
    for text in [&said.text, &said.human, &said.report.text] {
        for word in ["unreachable", "could not be reached", "cannot be reached", "no answer", "did not answer"] {
            assert!(!text.contains(word), "{word:?} is said:\n{text}");
        }
    }
}

/// What a verb uses in some cases only, which nobody asks about beforehand.
fn is_only_sometimes_used((role, resource, verb): Right) -> bool {
    let sometimes: &[(&str, &str)] = &[
        ("instances", "create"),
        ("instances", "update"),
        ("instances", "delete"),
        ("namespaces", "create"),
        ("namespaces", "delete"),
        ("customresourcedefinitions", "get"),
    ];
    sometimes.contains(&(resource, verb)) || (role == "dcctl-install" && verb == "create")
}

#[test]
fn each_missing_right_is_told_in_the_api_servers_own_words() {
    let bed = Bed::take();
    define(&bed);
    let proxy = Proxy::start(&bed);
    proxy.add(Rule::on("POST", "selfsubjectaccessreviews").request(Fault::Answer(403, "{}".to_owned())));
    for (right, scene, step) in CASES {
        let (_, resource, missing) = *right;
        grant_all_but(&bed, Some(*right));
        let run = run(&bed, *scene);
        let run = || run().with_kubeconfig(&proxy.kubeconfig("nobody"));
        let sentence = format!("User \"nobody\" cannot {missing} resource \"{resource}\"");
        let said = told(&bed, run, 5, "cluster.forbidden").says(&[&sentence, "dcctl rbac"]);
        let failed: Vec<_> = said.events.iter().filter(|event| event["data"]["outcome"] == "failed").collect();
        assert_eq!(failed[0]["step"], *step, "{failed:?}");
        let bad = said.report.only_bad();
        assert!(bad.body.contains(&sentence) && bad.result == "error", "{}", bad.body);
        assert_no_outage(&said);
    }
}

#[test]
fn a_right_that_a_verb_is_sure_to_need_is_missed_before_the_lock_is_asked_for() {
    let bed = Bed::take();
    define(&bed);
    for (right, scene, _) in CASES.iter().filter(|(right, ..)| !is_only_sometimes_used(*right)) {
        let (_, resource, missing) = *right;
        grant_all_but(&bed, Some(*right));
        let sentence = format!("it may not {missing} {resource}");
        let install = if right.0 == "dcctl-install" { " --install" } else { "" };
        let grant = format!("dcctl rbac{install} --user nobody | kubectl apply -f -");
        let said = told(&bed, run(&bed, *scene), 5, "cluster.forbidden").says(&[&sentence, &grant]);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
        assert_eq!(verdict["failure"]["causes"].as_array().map(Vec::len), Some(1), "{verdict}");
        assert_no_outage(&said);
    }
}

#[test]
fn rights_that_are_given_for_one_instance_alone_are_enough_for_it() {
    let bed = Bed::take();
    define(&bed);
    let rule = |group: &str, resource: &str, verbs: &str| {
        format!("- {{ apiGroups: ['{group}'], resources: [{resource}], verbs: [{verbs}] }}\n")
    };
    let own = rule("", "namespaces", "get") + &rule("apps", "deployments", "list") + &rule("", "pods", "list");
    let cluster = rule("core.devicechain.io", "instances", "get, list, create, update, patch")
        + &rule("coordination.k8s.io", "leases", "get, create, update, delete")
        + &rule("", "secrets", "list");
    let instance = Bed::instance();
    let role = |kind: &str, namespace: &str, rules: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{ name: for-one{namespace} }}\nrules:\n{rules}---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata: {{ name: for-one{namespace} }}\n\
             roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: for-one }}\n\
             subjects: [{{ apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody }}]\n---\n"
        )
    };
    let namespace = format!("dci-{instance}");
    let labels = json!({ "core.devicechain.io/instance": instance });
    let made = json!({ "metadata": { "name": namespace, "labels": labels } });
    bed.api().create("/api/v1/namespaces", &made).expect("the bed may do everything");
    bed.api().apply(&role("ClusterRole", "", &cluster)).expect("the bed may do everything");
    bed.api().apply(&role("Role", &format!(", namespace: {namespace}"), &own)).expect("the bed may do everything");
    wait::fact("the rights to be known", || may(&bed, ("dcctl-lock", "leases", "create")).then_some(()));
    let bundle = bundle(&bed, "plain", "# Nothing.\n");
    let run = bed.dcctl(["bootstrap", &instance, "--bundle"]).arg(bundle).with_kubeconfig(bed.kubeconfig("nobody"));
    run.run().expect_code(0);
}

#[test]
fn every_right_that_is_printed_is_taken_away_by_some_test() {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let mut printed = BTreeSet::new();
    for role in granted() {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for resource in rule["resources"].as_array().expect("a rule has resources") {
                let verbs = rule["verbs"].as_array().expect("a rule has verbs");
                printed.extend(verbs.iter().map(|verb| (text(&role["metadata"]["name"]), text(resource), text(verb))));
            }
        }
    }
    let owned = |(role, resource, verb): &Right| (role.to_string(), resource.to_string(), verb.to_string());
    let covered: BTreeSet<_> = CASES.iter().map(|(right, ..)| right).chain(SPARED).map(owned).collect();
    assert_eq!(printed, covered, "CASES and SPARED are not what is printed");
}

#[test]
fn an_account_with_no_right_at_all_is_told_all_of_them_at_once() {
    let bed = Bed::take();
    define(&bed);
    for (scene, more) in [
        (Scene::Install, "it may not update configmaps in dc-system"),
        (Scene::Bootstrap, "it may not list instances.core.devicechain.io"),
    ] {
        let lease = "it may not create leases.coordination.k8s.io in dc-k8s-system";
        let said = told(&bed, run(&bed, scene), 5, "cluster.forbidden").says(&[lease, more]);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
        assert_no_outage(&said);
    }
}

#[test]
fn with_every_right_that_is_documented_nothing_is_forbidden() {
    let bed = Bed::take();
    define(&bed);
    grant_all_but(&bed, None);
    for scene in [Scene::Install, Scene::Bootstrap, Scene::BootstrapAgain, Scene::Destroy] {
        run(&bed, scene)().run().expect_code(0);
    }
}

#[test]
fn a_namespace_for_the_lock_that_may_not_be_made_is_told_as_that() {
    let bed = Bed::fresh();
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: leases }\nrules:\n\
                - { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update, delete] }\n\
                - { apiGroups: ['*'], resources: ['*'], verbs: [get, list, update, patch] }\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: leases }\n\
                roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: leases }\n\
                subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody }]\n";
    bed.api().apply(role).expect("the bed may do everything");
    wait::fact("the rights to be known", || may(&bed, ("dcctl-lock", "leases", "create")).then_some(()));
    let says = "User \"nobody\" cannot create resource \"namespaces\" in API group \"\" at the cluster scope";
    for scene in [Scene::Install, Scene::Bootstrap] {
        let said = told(&bed, run(&bed, scene), 5, "cluster.forbidden").says(&[says, "dcctl rbac"]);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
        assert_no_outage(&said);
    }
    let exec = bed.dcctl(["exec", "--", "true"]).with_kubeconfig(bed.kubeconfig("nobody")).run().expect_code(5);
    assert!(words(&exec.stderr).contains(says), "{}", exec.stderr);
}
