//! `dcctl instances list` and `dcctl instances release`.

use std::fs;

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::terminal::Seat;
use crate::bed::{Bed, LEASES, wait};
use crate::lock::rig::Rig;
use crate::verbs::rig::{Demo, quiet};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const DECLARED: &str = "/apis/core.devicechain.io/v1beta1/instances/one";

fn listed(demo: &Demo) -> Vec<Value> {
    let said = demo.bed.dcctl(["instances", "list", "--output", "json"]).run().expect_code(0);
    let listed: Value = serde_json::from_str(&said.stdout).expect("it is JSON");
    listed["instances"].as_array().expect("a list").clone()
}

fn held_by_alice(demo: &Demo) {
    let lease = json!({ "metadata": { "name": "dcctl", "annotations": {
            "core.devicechain.io/instance": "one", "dcctl.devicechain.io/verb": "upgrade" } },
        "spec": { "leaseDurationSeconds": 60, "holderIdentity": ALICE, "renewTime": "2020-01-01T00:00:00.000000Z" } });
    demo.bed.api().create(LEASES, &lease).expect("the bed may do everything");
}

#[test]
fn the_list_says_what_each_instance_is_who_works_on_it_and_where_its_state_is() {
    let demo = Demo::on(Bed::take());
    assert_eq!(listed(&demo), Vec::<Value>::new());
    let none = demo.bed.dcctl(["instances", "list"]).run().expect_code(0);
    assert_eq!(none.stdout.trim_end(), "no instance is declared on this cluster");

    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let other = json!({ "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance", "metadata": { "name": "other" },
        "spec": { "provider": "existing", "managed": false, "host": "other.test" } });
    demo.bed.api().create("/apis/core.devicechain.io/v1beta1/instances", &other).expect("the bed may do everything");
    let all = listed(&demo);
    let (one, other) = (&all[0], &all[1]);
    assert_eq!((&one["name"], &one["phase"], &one["release"]), (&json!("one"), &json!("Ready"), &json!("0.9.2")));
    let claims = json!({ "ingressHost": "one.example.com", "localMqttPort": 1883, "connections": 60 });
    assert_eq!((&one["claims"], &one["applied_by"]), (&claims, &json!(env!("CARGO_PKG_VERSION"))));
    assert!(one["applied_at"].is_string() && one["declared_at"].is_string() && one["age_seconds"].is_u64(), "{one}");
    assert_eq!((&one["state"], &one["run"]), (&json!("elsewhere"), &Value::Null));
    assert_eq!((&other["phase"], &other["claims"]), (&Value::Null, &json!({ "ingressHost": "other.test" })));
    assert_eq!(other["state"], "none");

    let home = demo.bed.file("home/.devicechain/instances/one");
    fs::create_dir_all(&home).expect("the test's folder can be written");
    let state = demo.state_dir("one").join("infrastructure.tfstate");
    fs::copy(state, home.join("infrastructure.tfstate")).expect("the test's folder can be written");
    held_by_alice(&demo);
    let all = listed(&demo);
    assert_eq!(all[0]["state"], "here");
    assert_eq!(all[0]["run"], json!({ "holder": ALICE, "verb": "upgrade", "step": null, "looks_stale": true }));
    let table = demo.bed.dcctl(["instances", "list"]).run().expect_code(0).stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines.len() == 3, "{table}");
    for part in ["one ", "Ready", "0.9.2", "MQTT 1883", "here", "upgrade by alice@build-01"] {
        assert!(lines[1].contains(part), "{part} is not in\n{table}");
    }
}

#[test]
fn a_state_that_is_older_than_the_declaration_says_is_not_listed_as_the_instance_s() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let home = demo.bed.file("home/.devicechain/instances/one/infrastructure.tfstate");
    fs::create_dir_all(home.parent().expect("it has one")).expect("the test's folder can be written");
    let text = fs::read_to_string(demo.state_dir("one").join("infrastructure.tfstate")).expect("it is there");
    let mut state: Value = serde_json::from_str(&text).expect("a state is JSON");
    let serial = state["serial"].as_u64().expect("a state has one");
    for (serial, says) in [(serial - 1, "older"), (serial, "here"), (serial + 1, "here")] {
        state["serial"] = json!(serial);
        fs::write(&home, state.to_string()).expect("the test's folder can be written");
        assert_eq!(listed(&demo)[0]["state"], says, "{serial}");
    }
}

fn release(demo: &Demo, more: &[&str]) -> Finished {
    demo.bed.dcctl(["instances", "release", "one", "--kube-context", "bed"]).args(more).run()
}

#[test]
fn a_release_takes_the_declaration_away_and_destroys_nothing() {
    let demo = Demo::copied(Bed::take());
    // Its namespace is found by its label, whatever the bundle calls it.
    demo.edit("bundle.yaml", "namespace: \"dci-${instance}\"", "namespace: \"place-of-${instance}\"");
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let mut before = quiet(&demo.bed.api());
    let refused = release(&demo, &[]).expect_code(23);
    assert!(refused.stderr.contains("--yes"), "{}", refused.stderr);
    held_by_alice(&demo);
    let busy = release(&demo, &["--yes"]).expect_code(21);
    assert!(busy.stderr.contains(ALICE), "{}", busy.stderr);
    demo.bed.api().delete(&format!("{LEASES}/dcctl")).expect("the bed may do everything");
    assert_eq!(quiet(&demo.bed.api()), before, "nothing was changed");

    let done = release(&demo, &["--yes"]).expect_code(0);
    for part in [
        "destroys nothing",
        "  namespace place-of-one: with everything in it\n",
        "  Helm release dc-one in place-of-one\n",
        "OpenTofu state ",
        "  dcctl destroy one --kube-context bed --bundle BUNDLE\n",
        "\"one\" is released",
    ] {
        assert!(done.stdout.contains(part), "{part} is not in\n{}", done.stdout);
    }
    assert_eq!(demo.get(DECLARED), None);
    before.retain(|place, _| !(place.contains("/instances ") && place.ends_with("/one")));
    assert_eq!(quiet(&demo.bed.api()), before);
    let again = release(&demo, &["--yes"]).expect_code(0);
    assert!(again.stdout.contains("there is nothing to release"), "{}", again.stdout);
}

#[test]
fn a_release_says_what_this_account_may_not_look_for_and_never_that_nothing_is_there() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: { name: releases }\nrules:\n\
                - { apiGroups: [core.devicechain.io], resources: [instances], verbs: [get, update, delete] }\n\
                - { apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get] }\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: { name: releases }\n\
                roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: releases }\n\
                subjects: [{ apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody }]\n";
    demo.bed.api().apply(role).expect("the bed may do everything");
    let released = || {
        let release = demo.bed.dcctl(["instances", "release", "one", "--kube-context", "bed", "--yes"]);
        let run = release.with_kubeconfig(demo.bed.kubeconfig("nobody")).run();
        (run.code() == Some(0)).then_some(run.stdout)
    };
    let said = wait::fact("the rights to be known", released);
    for part in [
        "namespaces: this account may not list them; whoever may: kubectl get namespaces -l core.devicechain.io/instance=one",
        "Helm releases: this account may not list the secrets of all namespaces",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[test]
fn a_run_that_is_at_work_is_listed_with_its_holder_and_its_step() {
    let rig = Rig::new().declared().gated();
    let gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
    let holder = rig.holder().expect("it holds the lock");
    let said = rig.bed.dcctl(["instances", "list", "--output", "json"]).run().expect_code(0).stdout;
    let listed: Value = serde_json::from_str(&said).expect("it is JSON");
    let one = &listed["instances"][0];
    let at_work = json!({ "holder": holder, "verb": "bootstrap", "step": "Verify", "looks_stale": false });
    assert_eq!((&one["name"], &one["phase"], &one["run"]), (&json!("one"), &json!("Bootstrapping"), &at_work));
    assert_eq!(one["applied_as"], holder.as_str(), "the declaration says whose run wrote it");
    let table = rig.bed.dcctl(["instances", "list"]).run().expect_code(0).stdout;
    let who = holder.split('/').next().unwrap_or_default();
    assert!(table.contains(&format!("ago by {who}, dcctl ")), "{table}");
    assert!(table.contains(&format!("bootstrap by {holder}")) && !table.contains("looks stale"), "{table}");
    gate.open(0);
    run.finish().expect_code(0);
    let said = rig.bed.dcctl(["instances", "list", "--output", "json"]).run().expect_code(0).stdout;
    let listed: Value = serde_json::from_str(&said).expect("it is JSON");
    assert_eq!((&listed["instances"][0]["run"], &listed["instances"][0]["release"]), (&Value::Null, &json!("1.0.0")));
}

/// It is part of the address that is asked: `one/` would be `one`, and `one/status` a part of it.
#[test]
fn what_no_instance_can_be_called_is_not_released() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    let declared = demo.get(DECLARED);
    for name in ["one/", "one/status", "..", "", "One", "one?x"] {
        let released = demo.bed.dcctl(["instances", "release", "--kube-context", "bed", "--yes", "--", name]);
        let said = released.run().expect_code(2);
        assert!(said.stderr.contains("the instance name"), "{name}: {}", said.stderr);
    }
    assert_eq!(demo.get(DECLARED), declared);
    assert!(declared.is_some(), "it was declared");
}

#[test]
fn a_run_that_begins_while_the_name_is_typed_keeps_its_declaration() {
    let rig = Rig::new().declared().gated();
    let gate = rig.gate("one");
    rig.bootstrap("one").env("DCCTL_TEST_BREAK", "verify").run().expect_code(70);
    let seat = Seat::take(rig.bed.dcctl(["instances", "release", "one", "--kube-context", "bed"]).env("TERM", "xterm"));
    seat.wait_for("Type the instance's name");
    let at_work = rig.bootstrap("one").start();
    at_work.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
    seat.type_line("one");
    seat.expect_code(20);
    gate.open(0);
    at_work.finish().expect_code(0);

    // One that has ended by then has left another declaration than the one that was spoken of.
    let seat = Seat::take(rig.bed.dcctl(["instances", "release", "one", "--kube-context", "bed"]).env("TERM", "xterm"));
    seat.wait_for("Type the instance's name");
    rig.destroy("one").env("DCCTL_TEST_BREAK", "delete-namespace").run().expect_code(70);
    seat.type_line("one");
    seat.wait_for("was changed while its name was typed");
    seat.expect_code(6);
    assert_eq!(rig.phase("one").as_deref(), Some("Destroying"));
}

#[test]
fn at_a_terminal_the_name_has_to_be_typed() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    for (typed, code) in [("yes", 10), ("one", 0)] {
        let command = demo.bed.dcctl(["instances", "release", "one", "--kube-context", "bed"]);
        let seat = Seat::take(command.env("TERM", "xterm"));
        seat.wait_for("Type the instance's name");
        assert!(seat.screen().contains("destroys nothing"), "{}", seat.screen());
        assert!(demo.get(DECLARED).is_some());
        seat.type_line(typed);
        seat.expect_code(code);
        assert_eq!(demo.get(DECLARED).is_none(), code == 0);
    }
}
