//! Instances that live elsewhere than where a bundle says: another bundle, an older or a newer one, was given.

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::{Bed, wait};
use crate::lock::rig::Rig;
use crate::verbs::rig::{Demo, files, quiet};

const DECLARED: &str = "/apis/core.devicechain.io/v1beta1/instances/one";
const NAMESPACES: &str = "/api/v1/namespaces";

/// A cluster with the instance `one`, whose bundle the test may change.
fn with_one() -> Demo {
    let demo = Demo::copied(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    demo
}

/// The failure of a run that was refused because the instance is elsewhere.
#[track_caller]
fn elsewhere(finished: Finished) -> Value {
    let verdict = finished.expect_code(6).verdict()["data"].clone();
    assert_eq!(verdict["failure"]["code"], "guard.instance_elsewhere", "{verdict}");
    verdict["failure"].clone()
}

#[test]
fn whoever_names_another_namespace_than_the_instance_has_is_told_both_and_changes_nothing() {
    let demo = with_one();
    demo.edit("bundle.yaml", "namespace: \"dci-${instance}\"", "namespace: \"other-${instance}\"");
    let (before, state) = (quiet(&demo.bed.api()), files(&demo.state_dir("one")));
    let runs = [
        demo.destroy("one"),
        demo.destroy("one").arg("--dry-run"),
        demo.destroy("one").arg("--abandon-infrastructure"),
        demo.upgrade("one", 1883, 1),
        demo.upgrade("one", 1883, 1).arg("--dry-run"),
    ];
    for run in runs {
        let failure = elsewhere(run.run());
        assert_eq!(
            failure["message"],
            "the instance \"one\" lives in namespace dci-one, and this bundle says other-one"
        );
        assert!(failure["causes"].to_string().contains("the Helm release dc-one in dci-one"), "{failure}");
        let hints = failure["hints"].to_string();
        assert!(hints.contains("`instance.namespace` is dci-one"), "{failure}");
        assert!(!hints.contains("dcctl destroy") && !hints.contains("dcctl bootstrap"), "{failure}");
    }
    assert_eq!((quiet(&demo.bed.api()), files(&demo.state_dir("one"))), (before, state));

    // Nor is it built a second time when no declaration tells of it any more.
    demo.bed.dcctl(["instances", "release", "one", "--kube-context", "bed", "--yes"]).run().expect_code(0);
    elsewhere(demo.bootstrap("one", 1883).run());
    assert_eq!((demo.get(DECLARED), demo.get(&format!("{NAMESPACES}/other-one"))), (None, None));

    demo.edit("bundle.yaml", "namespace: \"other-${instance}\"", "namespace: \"dci-${instance}\"");
    demo.bootstrap("one", 1883).run().expect_code(0);
    demo.destroy("one").run().expect_code(0);
    assert_eq!((demo.get(DECLARED), demo.get(&format!("{NAMESPACES}/dci-one"))), (None, None));
}

#[test]
fn a_declaration_does_not_go_while_a_namespace_still_bears_the_instance_s_name() {
    let demo = with_one();
    let labels = json!({ "core.devicechain.io/instance": "one" });
    let finalizers = ["bed.test/held"];
    let object = json!({ "metadata": { "name": "jobs-of-one", "labels": labels, "finalizers": finalizers } });
    demo.bed.api().create(NAMESPACES, &object).expect("the bed may do everything");
    let failure = elsewhere(demo.destroy("one").run());
    let says = "namespace jobs-of-one still bears the name of \"one\", so its declaration stays";
    assert_eq!(failure["message"], says);
    let hints = failure["hints"].to_string();
    for part in
        ["kubectl delete namespace jobs-of-one", "kubectl label namespace jobs-of-one core.devicechain.io/instance-"]
    {
        assert!(hints.contains(part), "{part} is not in {failure}");
    }
    assert_eq!(demo.phase("one").as_deref(), Some("Destroying"));
    assert_eq!(demo.get(&format!("{NAMESPACES}/dci-one")), None, "all before that is done");
    // What nobody needs is removed as it was said; while it is on its way out there is nothing to do but to wait.
    let path = format!("{NAMESPACES}/jobs-of-one");
    demo.bed.api().delete(&path).expect("the bed may do everything");
    let failure = elsewhere(demo.destroy("one").run());
    let hints = failure["hints"].to_string();
    assert!(hints.contains("wait until jobs-of-one is gone") && !hints.contains("kubectl delete"), "{failure}");
    // Then the same command goes on.
    let let_go = json!({ "metadata": { "finalizers": null } });
    demo.bed.api().merge(&path, &let_go).expect("the bed may do everything");
    let gone = || demo.get(&format!("{NAMESPACES}/jobs-of-one")).is_none().then_some(());
    wait::fact("the namespace to be gone", gone);
    demo.destroy("one").run().expect_code(0);
    assert_eq!(demo.get(DECLARED), None);
}

/// A bundle with one thing, which is replaced when this changes.
fn with_thing(rig: &Rig, replace_on: &str) {
    let root = rig.bed.file("bundle/infra/main.tf");
    let text = std::fs::read_to_string(&root).expect("it is there");
    let head = &text[..text.find("resource").expect("it has one")];
    let thing = format!("resource \"bed_thing\" \"slow\" {{\n  name = \"slow\"\n  replace_on = \"{replace_on}\"\n}}\n");
    std::fs::write(&root, format!("{head}{thing}")).expect("the test's folder can be written");
}

#[test]
fn what_was_complete_once_is_not_bootstrapped_over_after_an_upgrade_failed_but_upgraded() {
    let rig = Rig::new().declared().slow_thing(0.0).gated();
    let gate = rig.gate("one");
    with_thing(&rig, "a");
    let run = rig.bootstrap("one").start();
    gate.open(0);
    run.finish().expect_code(0);
    std::fs::write(rig.bed.file("bundle/infra/more.tf"), "resource \"bed_thing\" \"more\" {\n  name = \"more\"\n}\n")
        .expect("the test's folder can be written");
    let run = rig.upgrade("one").start();
    gate.open(1);
    run.finish().expect_code(1);
    assert_eq!(rig.phase("one").as_deref(), Some("Failed"));

    with_thing(&rig, "b");
    for more in [&[][..], &["--dry-run"]] {
        let verdict = rig.bootstrap("one").args(more).run().expect_code(6).verdict()["data"].clone();
        let failure = &verdict["failure"];
        assert_eq!(failure["code"], "guard.live_instance", "{verdict}");
        assert_eq!(
            failure["message"],
            "the instance \"one\" was completely built once, of release 1.0.0 (phase Failed now)"
        );
        assert!(failure["hints"].to_string().contains("`dcctl upgrade one` goes on with it"), "{failure}");
    }
    let refused = rig.upgrade("one").run().expect_code(6).verdict();
    assert_eq!(refused["data"]["failure"]["code"], "guard.plan_replaces");
    assert_eq!((rig.ledger.created("slow"), rig.ledger.living("slow").len()), (1, 1), "nothing was taken away");
    assert_eq!(rig.phase("one").as_deref(), Some("Failed"));

    let run = rig.upgrade("one").arg("--allow-replace=bed_thing.slow").start();
    gate.open(0);
    run.finish().expect_code(0);
    assert_eq!((rig.ledger.created("slow"), rig.phase("one").as_deref()), (2, Some("Ready")));
}

/// The way of the guide: instances first, then their declarations, then what they claim.
#[test]
fn instances_that_were_built_without_declarations_get_theirs_and_then_their_claims() {
    let demo = Demo::copied(Bed::take());
    let path = demo.bundle().join("bundle.yaml");
    let whole = std::fs::read_to_string(&path).expect("it is there");
    let place = |field: &str| whole.find(field).expect("the demo has it");
    let (declaration, claims, after) = (place("  declaration:"), place("  claims:"), place("\ncluster:"));
    let write = |text: &str| std::fs::write(&path, text).expect("the test's folder can be written");
    write(&[&whole[..declaration], &whole[after..]].concat());
    demo.install().run().expect_code(0);
    for (name, port) in [("a", 1883), ("b", 1884)] {
        demo.bootstrap(name, port).run().expect_code(0);
    }

    // With claims at once nobody can tell what the others have, and the refusal says how to go on.
    write(&whole);
    let verdict = demo.bootstrap("c", 1885).run().expect_code(6).verdict();
    let failure = &verdict["data"]["failure"];
    assert_eq!(failure["code"], "guard.cannot_tell");
    let hints = failure["hints"].to_string();
    for name in ["a", "b"] {
        for part in [
            format!(
                "`dcctl bootstrap {name}` with a bundle that has an `instance.declaration` and no `instance.claims`"
            ),
            format!("then `dcctl upgrade {name}` with its claims"),
            format!("if it is gone: helm uninstall dc-{name} -n dci-{name}"),
        ] {
            assert!(hints.contains(&part), "{part} is not in {failure}");
        }
    }

    write(&[&whole[..claims], &whole[after..]].concat());
    for (name, port) in [("a", 1883), ("b", 1884)] {
        let done = demo.bootstrap(name, port).run().expect_code(0);
        let begun = done.events().iter().filter(|event| event["type"] == "resource.started").count();
        assert_eq!((begun, demo.phase(name).as_deref()), (0, Some("Ready")), "nothing is made twice");
    }
    write(&whole);
    for (name, port) in [("a", 1883), ("b", 1884)] {
        demo.upgrade(name, port, 1).run().expect_code(0);
    }
    demo.bootstrap("c", 1885).run().expect_code(0);
    let taken = demo.bootstrap("d", 1884).run().expect_code(6).verdict();
    let says = "the local MQTT port 1884 is that of the instance \"b\"";
    assert_eq!(taken["data"]["failure"]["message"], says, "{taken}");
}
