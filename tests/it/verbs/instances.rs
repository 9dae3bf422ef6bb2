//! `dcctl instances list` and `dcctl instances release`.

use std::fs;

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::terminal::Seat;
use crate::bed::{Bed, LEASES};
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

fn release(demo: &Demo, more: &[&str]) -> Finished {
    demo.bed.dcctl(["instances", "release", "one", "--kube-context", "bed"]).args(more).run()
}

#[test]
fn a_release_takes_the_declaration_away_and_destroys_nothing() {
    let demo = Demo::on(Bed::take());
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
    for part in
        ["destroys nothing", "namespace dci-one: with everything in it", "OpenTofu state ", "\"one\" is released"]
    {
        assert!(done.stdout.contains(part), "{part} is not in\n{}", done.stdout);
    }
    assert_eq!(demo.get(DECLARED), None);
    before.retain(|place, _| !(place.contains("/instances ") && place.ends_with("/one")));
    assert_eq!(quiet(&demo.bed.api()), before);
    let again = release(&demo, &["--yes"]).expect_code(0);
    assert!(again.stdout.contains("there is nothing to release"), "{}", again.stdout);
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
