//! Instances of which there is a declaration that the bundle does not know of, or none but a namespace: what cannot be told
//! is never taken for nothing.

use std::fs;

use serde_json::{Value, json};

use crate::bed::Dcctl;
use crate::lock::rig::{INSTANCES, Rig, text};
use crate::state::rig::take_the_way_on;

#[track_caller]
fn refused(run: Dcctl, code: &str) -> Value {
    let verdict = run.run().expect_code(6).verdict()["data"].clone();
    assert_eq!(verdict["failure"]["code"], code, "{verdict}");
    verdict["failure"].clone()
}

/// This verb on the instance, with a folder for its state in which there is none.
fn elsewhere(rig: &Rig, verb: &str, name: &str) -> Dcctl {
    let run = rig.bed.dcctl([verb, name, "--output", "jsonl", "--bundle"]).arg(rig.bed.file("bundle"));
    run.arg("--state-dir").arg(rig.bed.file("elsewhere"))
}

fn is_there(rig: &Rig, name: &str) -> bool {
    rig.bed.api().get(&format!("/api/v1/namespaces/dci-{name}")).expect("the API server answers").is_some()
}

#[test]
fn a_bundle_that_declares_nothing_is_refused_for_an_instance_that_is_declared() {
    let rig = Rig::new().declared().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    let bundle = rig.bed.file("bundle/bundle.yaml");
    let whole = fs::read_to_string(&bundle).expect("it is there");
    let without: Vec<&str> = whole.lines().filter(|line| !line.contains("declaration:")).collect();
    fs::write(&bundle, without.join("\n")).expect("it can be written");
    for run in [
        rig.destroy("one"),
        elsewhere(&rig, "destroy", "one"),
        elsewhere(&rig, "destroy", "one").arg("--abandon-infrastructure"),
        elsewhere(&rig, "destroy", "one").arg("--dry-run"),
        rig.upgrade("one"),
        elsewhere(&rig, "upgrade", "one"),
    ] {
        let failure = refused(run, "guard.cannot_tell");
        assert!(text(&failure["message"]).contains("this bundle has no `instance.declaration`"), "{failure}");
    }
    let half_built = json!({ "core.devicechain.io/phase": "Failed", "dcctl.devicechain.io/release": null });
    let half_built = json!({ "metadata": { "annotations": half_built } });
    rig.bed.api().merge(&format!("{INSTANCES}/one"), &half_built).expect("the bed may do everything");
    refused(rig.bootstrap("one"), "guard.cannot_tell");
    assert_eq!((rig.ledger.living("slow").len(), rig.ledger.created("slow"), is_there(&rig, "one")), (1, 1, true));
    // Another instance, which is not declared, is no business of that.
    rig.bootstrap("two").run().expect_code(0);
}

#[test]
fn an_instance_of_which_nothing_but_its_namespace_tells_is_neither_built_a_second_time_nor_forgotten() {
    let rig = Rig::new().declared().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    rig.bed.dcctl(["instances", "release", "one", "--yes"]).run().expect_code(0);
    assert_eq!(rig.phase("one"), None);
    for run in [
        elsewhere(&rig, "bootstrap", "one"),
        elsewhere(&rig, "bootstrap", "one").arg("--dry-run"),
        elsewhere(&rig, "destroy", "one"),
    ] {
        let failure = refused(run, "guard.state_missing");
        assert!(failure["causes"].to_string().contains("the namespace dci-one is there"), "{failure}");
    }
    let failure = refused(elsewhere(&rig, "bootstrap", "one"), "guard.state_missing");
    assert!(failure["hints"].to_string().contains("dcctl destroy one --abandon-infrastructure"), "{failure}");
    assert_eq!((rig.ledger.created("slow"), rig.phase("one")), (1, None));
    // Where its state is, it is declared again, and nothing is made twice.
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!((rig.ledger.created("slow"), rig.phase("one").as_deref()), (1, Some("Ready")));
}

#[test]
fn without_any_declaration_a_destroy_needs_the_state_or_to_be_told_to_abandon_it() {
    let rig = Rig::new().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    let failure = refused(elsewhere(&rig, "destroy", "one"), "guard.state_missing");
    assert!(failure["hints"].to_string().contains("--abandon-infrastructure"), "{failure}");
    assert!(is_there(&rig, "one"));
    // A run that ended between the two goes on: it is known that nothing is left.
    rig.destroy("one").env("DCCTL_TEST_BREAK", "delete-namespace").run().expect_code(70);
    assert_eq!((rig.ledger.living("slow").len(), is_there(&rig, "one")), (0, true));
    let done = rig.destroy("one").run().expect_code(0);
    assert!(done.stdout.contains("nothing is in its state"), "{}", done.stdout);
    assert!(!is_there(&rig, "one") && !rig.state_dir("one").exists());

    rig.bootstrap("two").run().expect_code(0);
    elsewhere(&rig, "destroy", "two").arg("--abandon-infrastructure").run().expect_code(0);
    assert_eq!((rig.ledger.living("slow").len(), is_there(&rig, "two")), (1, false));
}

#[test]
fn an_undeclared_instance_gets_its_first_infrastructure_by_the_way_out_that_the_refusal_names() {
    let rig = Rig::new();
    rig.bootstrap("one").run().expect_code(0);
    let rig = rig.slow_thing(0.0);
    take_the_way_on(&refused(rig.upgrade("one"), "guard.state_missing"), "nothing in it: ");
    rig.upgrade("one").run().expect_code(0);
    assert_eq!(rig.ledger.living("slow").len(), 1);
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.ledger.living("slow").len(), is_there(&rig, "one")), (0, false));
}

#[test]
fn a_bootstrap_that_declares_nothing_and_was_killed_before_its_first_apply_is_gone_on_with() {
    let rig = Rig::new().slow_thing(0.0);
    rig.bootstrap("one").env("DCCTL_TEST_BREAK", "apply-infrastructure").run().expect_code(70);
    assert!(is_there(&rig, "one") && !rig.state_dir("one").join("infrastructure.tfstate").exists());
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!(rig.ledger.created("slow"), 1);
}

/// A namespace of an instance's that somebody else made and gave its label.
fn prepared(rig: &Rig, name: &str) {
    let labels = json!({ "core.devicechain.io/instance": name });
    let object = json!({ "metadata": { "name": format!("dci-{name}"), "labels": labels } });
    rig.bed.api().create("/api/v1/namespaces", &object).expect("the bed may do everything");
}

#[test]
fn a_namespace_that_was_prepared_for_an_instance_is_no_trace_of_one() {
    let rig = Rig::new().declared().slow_thing(0.0);
    prepared(&rig, "one");
    for run in [elsewhere(&rig, "destroy", "one"), elsewhere(&rig, "destroy", "one").arg("--dry-run")] {
        refused(run, "guard.state_missing");
    }
    rig.bootstrap("one").arg("--dry-run").run().expect_code(0);
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!((rig.ledger.created("slow"), rig.phase("one").as_deref()), (1, Some("Ready")));
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.ledger.living("slow").len(), is_there(&rig, "one")), (0, false));
}
