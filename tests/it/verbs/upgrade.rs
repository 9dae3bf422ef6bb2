//! `dcctl upgrade`.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::{Bed, wait};
use crate::lock::rig::{Rig, of_kind};
use crate::verbs::rig::{Demo, PASSWORD, quiet};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const DECLARED: &str = "/apis/core.devicechain.io/v1beta1/instances/one";
const OPERATOR: &str = "/apis/apps/v1/namespaces/dc-k8s-system/deployments/dc-k8s-controller-manager";

/// How each step ended, by its id.
fn steps(finished: &Finished) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = finished.events();
    let ends = events.iter().filter(|event| event["type"] == "step.finished");
    ends.map(|event| (text(&event["data"]["id"]), text(&event["data"]["outcome"]))).collect()
}

/// What every refusal of an upgrade is: its code, and that nothing of the lock is left.
#[track_caller]
fn refused(finished: Finished, code: &str) -> Value {
    let verdict = finished.expect_code(6).verdict()["data"].clone();
    assert_eq!((&verdict["failure"]["code"], &verdict["outcome"]), (&json!(code), &json!("refused")), "{verdict}");
    verdict
}

#[test]
fn an_upgrade_moves_a_live_instance_and_a_second_one_has_nothing_to_do() {
    let demo = Demo::copied(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let release = || {
        demo.get(DECLARED).expect("it is declared")["metadata"]["annotations"]["dcctl.devicechain.io/release"].clone()
    };
    assert_eq!(release(), "0.9.2");
    demo.edit("bundle.yaml", "version: 0.9.2", "version: 0.9.3");
    demo.edit("operator/a-controller.yaml", "version: 0.9.2", "version: 0.9.3");
    let before = quiet(&demo.bed.api());
    let verdict = refused(demo.upgrade("one", 1883, 2).run(), "guard.operator");
    assert_eq!(verdict["failure"]["message"], "the operator is of release 0.9.2, and this bundle is 0.9.3");
    assert!(verdict["next"].to_string().contains("`dcctl install`"), "{verdict}");
    assert_eq!((&verdict["lock"], quiet(&demo.bed.api())), (&json!("never_taken"), before));
    demo.install().run().expect_code(0);

    let dry = demo.upgrade("one", 1883, 2).arg("--dry-run").run().expect_code(0);
    assert!(dry.stdout.contains("would upgrade release dc-one"), "{}", dry.stdout);
    assert_eq!(release(), "0.9.2");
    let done = demo.upgrade("one", 1883, 2).run().expect_code(0);
    assert!(!done.stdout.contains(PASSWORD) && !done.stderr.contains(PASSWORD), "a secret was said");
    let ended = steps(&done);
    let of = |id: &str| ended[id].as_str();
    assert_eq!((of("plan-infrastructure"), of("apply-infrastructure")), ("nothing", "nothing"));
    assert_eq!((of("upgrade-chart"), of("verify"), of("record-the-release")), ("done", "done", "done"));
    let declared = demo.get(DECLARED).expect("it is declared");
    assert_eq!((release(), &declared["spec"]["imageVersion"]), (json!("0.9.3"), &json!("0.9.3")));
    assert_eq!(demo.phase("one").as_deref(), Some("Ready"));
    let web = demo.get("/apis/apps/v1/namespaces/dci-one/deployments/web").expect("it is there");
    assert_eq!(web["status"]["availableReplicas"], 2);

    let before = quiet(&demo.bed.api());
    let again = demo.upgrade("one", 1883, 2).run().expect_code(0);
    assert_eq!(quiet(&demo.bed.api()), before, "nothing was written");
    let ended = steps(&again);
    for id in ["plan-infrastructure", "apply-infrastructure", "upgrade-chart", "verify", "record-the-release"] {
        assert_eq!(ended[id], "nothing", "{id}");
    }
    assert!(again.stdout.contains("is of release 0.9.3 already; nothing was changed"), "{}", again.stdout);
}

#[test]
fn the_operator_s_release_is_told_by_annotation_label_or_tag_and_one_by_hand_is_let_through() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let change = |metadata: Value, image: &str| {
        let container = json!({ "name": "manager", "image": image });
        let found = demo.get(OPERATOR).expect("it is there");
        let mut containers = found["spec"]["template"]["spec"]["containers"].clone();
        containers[0]["image"] = container["image"].clone();
        let spec = json!({ "template": { "spec": { "containers": containers } } });
        let merged = json!({ "metadata": metadata, "spec": spec });
        demo.bed.api().merge(OPERATOR, &merged).expect("the bed may do everything");
    };
    let marks = |annotation: Value, label: Value| {
        json!({ "annotations": { "dcctl.devicechain.io/release": annotation },
            "labels": { "app.kubernetes.io/version": label } })
    };
    let (none, other) = (Value::Null, json!("0.9.1"));
    for (metadata, image, by) in [
        (marks(other.clone(), json!("0.9.2")), "busybox:0.9.2", "the annotation"),
        (marks(none.clone(), other), "busybox:0.9.2", "the label"),
        (marks(none.clone(), none.clone()), "busybox:v0.9.1", "the image tag"),
    ] {
        change(metadata, image);
        let verdict = refused(demo.upgrade("one", 1883, 1).run(), "guard.operator");
        assert!(verdict["failure"]["causes"].to_string().contains(by), "{verdict}");
    }
    for (metadata, image, says) in [
        (marks(none.clone(), none.clone()), "busybox:v0.9.2", "of release v0.9.2 (the image tag)"),
        (marks(none.clone(), none), "busybox", "It was installed by hand, and this run goes on"),
    ] {
        change(metadata, image);
        let done = demo.upgrade("one", 1883, 1).run().expect_code(0);
        assert!(done.stdout.contains(says), "{says}\n{}", done.stdout);
    }
    demo.bed.api().delete(OPERATOR).expect("the bed may do everything");
    wait::fact("the operator to be gone", || demo.get(OPERATOR).is_none().then_some(()));
    let verdict = refused(demo.upgrade("one", 1883, 1).run(), "guard.operator");
    assert!(verdict["next"].to_string().contains("`dcctl install`"), "{verdict}");
}

/// A bundle with one thing, whose note and whose replacement are in the hands of the test.
fn with_thing(rig: &Rig, more: &str) {
    let text = format!(
        "terraform {{\n  required_providers {{\n    bed = {{ source = \"dcctl/bed\" }}\n  }}\n}}\n\
         provider \"bed\" {{ ledger = \"{}\" }}\n{more}\n",
        rig.ledger.path().display()
    );
    fs::write(rig.bed.file("bundle/infra/main.tf"), text).expect("the test's folder can be written");
}

const THING: &str = "resource \"bed_thing\" \"slow\" {\n  name = \"slow\"\n  replace_on = \"a\"\n}\n";

#[test]
fn a_plan_that_takes_something_away_is_refused_by_its_address_unless_that_is_allowed() {
    let rig = Rig::new().declared().slow_thing(0.0);
    let twice = format!("{THING}{}", THING.replace("slow", "other"));
    with_thing(&rig, &twice);
    rig.bootstrap("one").run().expect_code(0);
    // One is replaced, the other leaves the configuration.
    with_thing(&rig, &THING.replace("\"a\"", "\"b\""));
    let nothing_happened = || {
        assert_eq!((rig.ledger.created("slow"), rig.ledger.living("other").len()), (1, 1));
        assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
    };
    for more in [&[][..], &["--dry-run"], &["--allow-replace=bed_thing.third"]] {
        let verdict = refused(rig.upgrade("one").args(more).run(), "guard.plan_replaces");
        let causes = verdict["failure"]["causes"].to_string();
        assert!(causes.contains("bed_thing.slow would be replaced (cannot update)"), "{causes}");
        assert!(causes.contains("bed_thing.other would be deleted (delete because no resource config)"), "{causes}");
        assert!(verdict["next"].to_string().contains("--allow-replace='bed_thing."), "{verdict}");
        nothing_happened();
    }
    let one = rig.upgrade("one").arg("--allow-replace=bed_thing.slow").run();
    let causes = refused(one, "guard.plan_replaces")["failure"]["causes"].to_string();
    assert!(causes.contains("bed_thing.other") && !causes.contains("bed_thing.slow"), "{causes}");
    nothing_happened();
    let named = ["--allow-replace=bed_thing.slow", "--allow-replace=bed_thing.other"];
    rig.upgrade("one").args(named).run().expect_code(0);
    assert_eq!((rig.ledger.created("slow"), rig.ledger.living("slow").len()), (2, 1));
    assert_eq!(rig.ledger.living("other").len(), 0);
    with_thing(&rig, &THING.replace("\"a\"", "\"c\""));
    rig.upgrade("one").arg("--allow-replace").run().expect_code(0);
    assert_eq!(rig.ledger.created("slow"), 3);
}

#[test]
fn exactly_the_plan_that_was_looked_at_is_applied_and_the_phase_is_written_before() {
    let rig = Rig::new().declared().slow_thing(0.0).gated();
    let gate = rig.gate("one");
    with_thing(&rig, THING);
    let run = rig.bootstrap("one").start();
    gate.open(0);
    run.finish().expect_code(0);
    with_thing(&rig, &THING.replace("replace_on", "note = \"new\"\n  replace_on"));
    let (program, calls) = (rig.bed.file("recording-tofu"), rig.bed.file("calls"));
    let real = rig.bed.described().programs.join("tofu");
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\nexec {} \"$@\"\n", calls.display(), real.display());
    fs::write(&program, script).expect("the test's folder can be written");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    for (status, code, phase) in [(1, 1, "Failed"), (0, 0, "Ready")] {
        let run = rig.upgrade("one").arg("--tofu").arg(&program).start();
        run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
        assert_eq!(rig.phase("one").as_deref(), Some(if code == 1 { "Upgrading" } else { "Failed" }));
        gate.open(status);
        run.finish().expect_code(code);
        assert_eq!(rig.phase("one").as_deref(), Some(phase));
    }
    let calls = fs::read_to_string(calls).expect("it was called");
    let of = |verb: &str| calls.lines().filter(|call| call.starts_with(verb)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!((of("plan").len(), of("apply").len()), (2, 1), "{calls}");
    assert!(of("plan")[0].contains("-out=") && of("apply")[0].ends_with("infrastructure.tfplan"), "{calls}");
    assert!(!of("apply")[0].contains("-auto-approve"), "{calls}");
}

#[test]
fn what_is_not_there_or_never_complete_is_refused_and_bootstrap_is_named() {
    let rig = Rig::new().declared().checked("exit 3");
    let verdict = refused(rig.upgrade("one").run(), "guard.instance_missing");
    assert!(verdict["next"].to_string().contains("`dcctl bootstrap one`"), "{verdict}");
    assert_eq!(verdict["lock"], "released");
    rig.bootstrap("one").run().expect_code(1);
    let path = format!("{}/one", crate::lock::rig::INSTANCES);
    // Failed as the bootstrap left it, and as one that was killed leaves it.
    for phase in ["Failed", "Bootstrapping"] {
        let annotations = json!({ "metadata": { "annotations": { "core.devicechain.io/phase": phase } } });
        rig.bed.api().merge(&path, &annotations).expect("the bed may do everything");
        let says = format!("the instance \"one\" was never completely built (phase {phase})");
        let looks = ["preflight", "upgrade", "one", "--output", "json", "--kube-context", "bed", "--bundle"];
        let looked = rig.bed.dcctl(looks).arg(rig.bed.file("bundle")).run().expect_code(6).stdout;
        let looked: Value = serde_json::from_str(&looked).expect("it is JSON");
        let found = |check: &&Value| check["code"] == "guard.instance_missing" && check["message"] == says.as_str();
        assert!(looked["checks"].as_array().is_some_and(|all| all.iter().any(|check| found(&check))), "{looked}");
        let verdict = refused(rig.upgrade("one").run(), "guard.instance_missing");
        assert_eq!(verdict["failure"]["message"], says);
        assert!(verdict["next"].to_string().contains("`dcctl bootstrap one`"), "{verdict}");
        // It may be that of a bootstrap at work, beside which an upgrade goes on without the lock.
        assert_eq!(rig.phase("one").as_deref(), Some(phase));
    }
}

#[test]
fn an_upgrade_from_where_the_state_is_not_is_refused_before_the_lock() {
    let rig = Rig::new().declared().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    let state = rig.state_dir("one").join("infrastructure.tfstate");
    for content in [None, Some(""), Some(r#"{"version":4,"serial":1,"lineage":"another","resources":[]}"#)] {
        match content {
            None => fs::remove_file(&state).expect("it is there"),
            Some(text) => fs::write(&state, text).expect("it can be written"),
        }
        let verdict = refused(rig.upgrade("one").run(), "guard.state_missing");
        assert_eq!(verdict["lock"], "never_taken");
        assert_eq!((rig.ledger.created("slow"), rig.phase("one").as_deref()), (1, Some("Ready")));
    }
}

#[test]
fn an_upgrade_may_not_take_what_another_instance_has() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    demo.bootstrap("two", 1884).run().expect_code(0);
    let verdict = refused(demo.upgrade("one", 1884, 1).run(), "guard.claim_conflict");
    assert_eq!(verdict["failure"]["message"], "the local MQTT port 1884 is that of the instance \"two\"");
    demo.upgrade("one", 1885, 1).run().expect_code(0);
    let claims =
        demo.get(DECLARED).expect("it is declared")["metadata"]["annotations"]["dcctl.devicechain.io/claims"].clone();
    assert!(claims.as_str().is_some_and(|claims| claims.contains("1885")), "{claims}");
}

#[test]
fn an_upgrade_warns_about_a_holder_and_goes_on_without_the_lock() {
    let rig = Rig::new().declared();
    rig.bootstrap("one").run().expect_code(0);
    let before = rig.other_holds(ALICE, "2020-01-01T00:00:00.000000Z");
    let done = rig.upgrade("one").run().expect_code(0);
    let events = done.events();
    let blocked = of_kind(&events, "lock.blocked");
    assert_eq!((blocked.len(), &blocked[0]["data"]["manner"]), (1, &json!("continues")));
    let said = blocked[0]["data"]["text"].as_str().unwrap_or_default();
    assert!(said.ends_with("but if that run is live, this will fight it"), "{said}");
    assert_eq!(done.verdict()["data"]["lock"], "not_held");
    assert_eq!(rig.lease(), Some(before));
    rig.upgrade("one").args(["--on-busy", "refuse"]).run().expect_code(21);
}

#[test]
fn a_binding_that_would_change_is_refused_before_anything_is_applied() {
    let rig = Rig::new().declared().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    let bundle = rig.bed.file("bundle/bundle.yaml");
    let text = fs::read_to_string(&bundle).expect("it is there");
    fs::write(&bundle, text.replace("managed: false", "managed: true")).expect("it can be written");
    let verdict = refused(rig.upgrade("one").run(), "guard.binding_changed");
    assert!(verdict["failure"]["message"].to_string().contains("spec.managed"), "{verdict}");
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
}
