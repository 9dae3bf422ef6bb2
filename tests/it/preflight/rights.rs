//! Every right that a verb uses has its line, and the list of them is the one that `dcctl rbac` prints.

use std::collections::BTreeSet;

use dcctl::cluster::access::Right;
use dcctl::pipeline::Verb;
use dcctl::step::rights::needs;
use serde_json::{Value, json};

use crate::bed::{Bed, Dcctl, wait};
use crate::preflight::{Said, preflight, text};
use crate::refused::forbidden::{CASES, SPARED, Scene, define, grant_all_but};
use crate::verbs::rig::Demo;

const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

/// A preflight as `nobody` of the verb of this scene, of an instance that no other scene has.
fn looked(demo: &Demo, scene: Scene, code: i32) -> Said {
    let instance = Bed::instance();
    let api = demo.bed.api();
    if matches!(scene, Scene::BootstrapAgain | Scene::Destroy) {
        let spec = json!({ "provider": "existing", "managed": false });
        let declared = json!({ "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
            "metadata": { "name": instance }, "spec": spec });
        api.create(INSTANCES, &declared).expect("the bed may do everything");
    }
    if scene == Scene::Destroy {
        let labels = json!({ "core.devicechain.io/instance": instance });
        let namespace = json!({ "metadata": { "name": format!("dci-{instance}"), "labels": labels } });
        api.create("/api/v1/namespaces", &namespace).expect("the bed may do everything");
    }
    let words: &[&str] = match scene {
        Scene::Install | Scene::InstallDefinition | Scene::InstallOperator => &["install"],
        Scene::Bootstrap | Scene::BootstrapAgain => &["bootstrap", &instance],
        Scene::Destroy => &["destroy", &instance],
    };
    let run = preflight(demo, words, &instance).with_kubeconfig(demo.bed.kubeconfig("nobody"));
    let said = Said::by(run.run(), code);
    api.delete(&format!("{INSTANCES}/{instance}")).expect("the bed may do everything");
    said
}

/// The lines about rights that the account does not have, as `verb resource`.
fn lacking<'a>(said: &'a Said, level: &str) -> Vec<(String, &'a Value)> {
    let lacks = |check: &&&Value| check["id"] == "permission" && check["facts"]["allowed"] == false;
    let name = |check: &'a Value| {
        let facts = &check["facts"];
        (format!("{} {}", text(&facts["verb"]), text(&facts["resource"])), check)
    };
    said.of_level(level).iter().filter(lacks).map(|check| name(check)).collect()
}

#[test]
fn each_right_that_is_missing_is_a_failure_with_the_command_that_grants_it() {
    let demo = Demo::on(Bed::take());
    define(&demo.bed);
    for (right, scene, _) in CASES {
        let (_, resource, verb) = *right;
        grant_all_but(&demo.bed, Some(*right));
        let said = looked(&demo, *scene, 5);
        let failures = lacking(&said, "failure");
        let [(name, line)] = &failures[..] else { panic!("{right:?}: {failures:#?}") };
        assert_eq!(*name, format!("{verb} {resource}"));
        assert_eq!((&line["code"], &line["facts"]["user"]), (&json!("cluster.forbidden"), &json!("nobody")));
        assert!(text(&line["message"]).starts_with(&format!("nobody may not {verb} {resource}")), "{line:#}");
        assert!(text(&line["fix"]).contains("dcctl rbac") && text(&line["fix"]).contains("--user nobody"), "{line:#}");
    }
}

#[test]
fn a_right_that_can_be_spared_is_a_warning_that_says_what_happens_instead() {
    let demo = Demo::on(Bed::take());
    define(&demo.bed);
    for right in SPARED {
        let (_, resource, verb) = *right;
        grant_all_but(&demo.bed, Some(*right));
        let said = looked(&demo, Scene::Bootstrap, 0);
        assert_eq!(lacking(&said, "failure"), Vec::new());
        let name = format!("{verb} {resource}");
        match name.as_str() {
            // Only waiting uses it, and only a reclaim the other one.
            "watch leases" => assert_eq!(lacking(&said, "ok")[0].0, name),
            "get pods" => assert!(lacking(&said, "ok").is_empty() && lacking(&said, "warning").is_empty()),
            _ => assert_eq!(lacking(&said, "warning")[0].0, name),
        }
    }
    grant_all_but(&demo.bed, Some(("dcctl-lock", "leases", "watch")));
    let waits = preflight(&demo, &["bootstrap", "one", "--wait"], "one").with_kubeconfig(demo.bed.kubeconfig("nobody"));
    assert_eq!(lacking(&Said::by(waits.run(), 5), "failure")[0].0, "watch leases");
}

#[test]
fn a_namespace_of_the_lock_that_is_missing_and_may_not_be_made_is_a_failure() {
    let bed = Bed::fresh();
    let run = || bed.dcctl(["preflight", "exec", "--output", "json"]).with_kubeconfig(bed.kubeconfig("nobody")).run();
    let said = Said::by(run(), 5);
    assert_eq!(said.check("lock_namespace")["facts"]["state"], "unknown");
    let failed: BTreeSet<String> = lacking(&said, "failure").into_iter().map(|(name, _)| name).collect();
    let expected = ["get leases", "create leases", "update leases"].map(str::to_owned);
    assert_eq!(failed, BTreeSet::from(expected));
    // Whoever may see that it is missing is told so.
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: leases }\nrules:\n\
                - { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update, delete] }\n\
                - { apiGroups: [''], resources: [namespaces], verbs: [get] }\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: leases }\n\
                roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: leases }\n\
                subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody }]\n";
    bed.api().apply(role).expect("the bed may do everything");
    let said = wait::fact("the rights to be known", || {
        let said: Value = serde_json::from_str(&run().stdout).expect("it is JSON");
        let said = Said(said);
        (lacking(&said, "failure").len() == 1).then_some(said)
    });
    assert_eq!(said.check("lock_namespace")["code"], "cluster.forbidden", "{:#}", said.check("lock_namespace"));
    assert_eq!(lacking(&said, "failure")[0].0, "create namespaces");
}

/// What dcctl itself asked for as `ops` since the last time, as rights that `dcctl rbac` prints.
fn used(bed: &Bed, known: &BTreeSet<Right>, from: &mut usize) -> BTreeSet<Right> {
    let audit = bed.audit();
    let new = &audit[*from..];
    *from = audit.len();
    let ours = |event: &&Value| {
        let agent = text(&event["userAgent"]);
        event["user"]["username"] == "ops"
            && !["Helm", "kubectl", "OpenTofu"].iter().any(|other| agent.starts_with(other))
    };
    let is_it = |event: &Value, right: &Right| {
        let object = &event["objectRef"];
        text(&event["verb"]) == right.verb
            && text(&object["apiGroup"]) == right.group
            && text(&object["resource"]) == right.resource
            && right.namespace.is_none_or(|namespace| text(&object["namespace"]) == namespace)
    };
    let of = |event: &Value| known.iter().filter(|right| is_it(event, right)).copied().collect::<Vec<_>>();
    new.iter().filter(ours).flat_map(of).collect()
}

#[test]
fn a_verb_uses_no_right_that_is_not_listed_for_it() {
    const VERBS: [Verb; 5] = [Verb::Install, Verb::Bootstrap, Verb::Upgrade, Verb::Destroy, Verb::Exec];
    let demo = Demo::on(Bed::take());
    let bed = &demo.bed;
    // What the bundle needs on top is not in question here.
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: ops-of-the-bundle }\n\
                   roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin }\n\
                   subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: ops }]\n";
    bed.api().apply(binding).expect("the bed may do everything");
    let as_ops = |run: Dcctl| run.with_kubeconfig(bed.kubeconfig("ops"));
    wait::fact("the rights to be known", || (as_ops(demo.install()).run().code() == Some(0)).then_some(()));
    let known: BTreeSet<Right> = VERBS.into_iter().flat_map(needs).map(|need| need.right).collect();
    let mut from = 0;
    let _ = used(bed, &known, &mut from);
    for verb in VERBS {
        let run = match verb {
            Verb::Install => demo.install(),
            Verb::Bootstrap => demo.bootstrap("one", 1883),
            Verb::Upgrade => demo.upgrade("one", 1885, 1),
            Verb::Destroy => demo.destroy("one"),
            Verb::Exec => bed.dcctl(["exec", "--", "true"]),
        };
        as_ops(run).run().expect_code(0);
        let listed: BTreeSet<Right> = needs(verb).into_iter().map(|need| need.right).collect();
        // The Lease is given back in the end; once that is in the audit log, everything is.
        let whole = || {
            bed.audit()[from..]
                .iter()
                .any(|event| event["verb"] == "delete" && event["objectRef"]["resource"] == "leases")
        };
        wait::fact("the audit log", || whole().then_some(()));
        let used = used(bed, &known, &mut from);
        // With all rights it may see in the end whether secrets still bear the name, which is no need.
        let spare = |right: &&Right| verb == Verb::Destroy && right.resource == "secrets";
        let more: Vec<String> = used.difference(&listed).filter(|right| !spare(right)).map(Right::to_string).collect();
        assert_eq!(more, Vec::<String>::new(), "{verb:?} uses these, and the roles do not say so");
    }
}

#[test]
fn each_right_is_asked_about_once_and_few_questions_are_asked_besides() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let before = demo.bed.requests_of("admin").len();
    let said = Said::by(preflight(&demo, &["bootstrap", "one"], "one").run(), 0);
    let rights = said.checks().iter().filter(|check| check["id"] == "permission").count();
    assert_eq!(rights, needs(Verb::Bootstrap).len());
    let review = "create /apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let asked = wait::fact("the audit log", || {
        let asked = demo.bed.requests_of("admin").split_off(before);
        (asked.iter().filter(|request| *request == review).count() > rights).then_some(asked)
    });
    // One more is of *Check the cluster*, which asks where it may look for Helm's records.
    assert_eq!(asked.iter().filter(|request| *request == review).count(), rights + 1);
    assert!(asked.len() <= rights + 20, "{asked:#?}");
}
