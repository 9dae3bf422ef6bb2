//! `dcctl bootstrap`.

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::lock::rig::Rig;
use crate::verbs::rig::{Demo, PASSWORD};

#[test]
fn instances_are_built_beside_each_other_and_a_second_run_of_one_is_refused_because_it_is_live() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    for (name, port) in [("one", 1883), ("two", 1884)] {
        let done = demo.bootstrap(name, port).run().expect_code(0);
        assert!(!done.stdout.contains(PASSWORD) && !done.stderr.contains(PASSWORD), "a secret was said");
        assert_built(&demo, name, port);
    }
    assert_built(&demo, "one", 1883);

    let before = demo.get("/api/v1/namespaces/dci-one/configmaps/web");
    let live = demo.bootstrap("one", 1883).run().expect_code(6);
    let failure = live.verdict()["data"]["failure"].clone();
    assert_eq!(failure["code"], "guard.live_instance");
    assert_eq!(failure["message"], "the instance \"one\" is live (phase Ready)");
    assert_eq!(live.verdict()["data"]["lock"], "released");
    assert_eq!(
        (demo.phase("one").as_deref(), demo.get("/api/v1/namespaces/dci-one/configmaps/web")),
        (Some("Ready"), before)
    );

    // One that was never complete converges: nothing is made twice.
    let path = "/apis/core.devicechain.io/v1beta1/instances/one";
    let failed = json!({ "core.devicechain.io/phase": "Failed", "dcctl.devicechain.io/release": null });
    let failed = json!({ "metadata": { "annotations": failed } });
    demo.bed.api().merge(path, &failed).expect("the bed may do everything");
    let again = demo.bootstrap("one", 1883).run().expect_code(0);
    let begun = again.events().iter().filter(|event| event["type"] == "resource.started").count();
    assert_eq!(begun, 0, "OpenTofu had nothing to do:\n{}", again.stdout);
    assert_built(&demo, "one", 1883);
}

/// Everything of an instance is where it belongs and says whose it is.
fn assert_built(demo: &Demo, name: &str, port: u16) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = demo.get(&format!("/api/v1/namespaces/dci-{name}")).expect("it was made");
    let labels = &namespace["metadata"]["labels"];
    assert_eq!(text(&labels["core.devicechain.io/instance"]), name);
    assert_eq!(labels["app.kubernetes.io/managed-by"], "dcctl");

    let declared = demo.get(&format!("/apis/core.devicechain.io/v1beta1/instances/{name}")).expect("it is declared");
    assert_eq!(declared["metadata"]["finalizers"], json!(["core.devicechain.io/instance"]));
    let annotations = &declared["metadata"]["annotations"];
    assert_eq!(annotations["core.devicechain.io/phase"], "Ready");
    let claims: Value = serde_json::from_str(&text(&annotations["dcctl.devicechain.io/claims"])).expect("JSON");
    let host = format!("{name}.example.com");
    assert_eq!(claims, json!({ "ingressHost": host, "localMqttPort": port, "connections": 60 }));
    assert_eq!(declared["spec"]["host"], host);

    let web = demo.get(&format!("/api/v1/namespaces/dci-{name}/configmaps/web")).expect("the chart made it");
    assert_eq!((text(&web["data"]["host"]), text(&web["data"]["mqttPort"])), (host, port.to_string()));
    let deployment = demo.get(&format!("/apis/apps/v1/namespaces/dci-{name}/deployments/web")).expect("it was made");
    assert_eq!(deployment["status"]["availableReplicas"], 1);
    let state = std::fs::read(demo.state_dir(name).join("infrastructure.tfstate")).expect("there is a state");
    let state: Value = serde_json::from_slice(&state).expect("a state is JSON");
    assert_eq!(annotations["dcctl.devicechain.io/state-lineage"], state["lineage"]);
}

#[test]
fn the_phase_is_written_before_the_act_and_goes_from_failed_to_ready() {
    let rig = Rig::new().declared().slow_thing(0.0).gated();
    let gate = rig.gate("one");
    for (status, code, phase) in [(1, 1, "Failed"), (0, 0, "Ready")] {
        let run = rig.bootstrap("one").start();
        run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
        assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"));
        gate.open(status);
        let ended = run.finish().expect_code(code);
        assert_eq!(rig.phase("one").as_deref(), Some(phase), "{}", ended.stdout);
    }
    assert_eq!(rig.ledger.living("slow").len(), 1, "the second run converges");
}

#[test]
fn an_instance_is_never_applied_again_from_another_state_than_the_one_it_was_built_with() {
    let rig = Rig::new().declared().slow_thing(0.0).checked("exit 1");
    rig.bootstrap("one").run().expect_code(1);
    let state = rig.state_dir("one").join("infrastructure.tfstate");
    let built = std::fs::read(&state).expect("there is a state");
    let refused = |more: &[&str], says: &str| {
        let verdict = rig.bootstrap("one").args(more).run().expect_code(6).verdict();
        assert_eq!(verdict["data"]["failure"]["code"], "guard.state_missing");
        let message = verdict["data"]["failure"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(says), "{message}");
        assert_eq!(rig.ledger.created("slow"), 1, "it was applied again");
    };
    std::fs::remove_file(&state).expect("it is there");
    refused(&[], "is not here: there is no `");
    refused(&["--dry-run"], "is not here: there is no `");
    std::fs::write(&state, "").expect("it can be written");
    refused(&[], "is not here: `");
    std::fs::write(&state, r#"{"version":4,"serial":1,"lineage":"another","resources":[]}"#).expect("written");
    refused(&[], "is not the OpenTofu state that \"one\" was built with");
    std::fs::write(&state, built).expect("it can be written");
    let rig = rig.checked("true");
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!(rig.ledger.living("slow").len(), 1);
}

#[test]
fn a_bootstrap_on_a_cluster_that_was_never_installed_names_the_command_that_comes_first() {
    let demo = Demo::on(Bed::take());
    let refused = demo.bootstrap("one", 1883).run().expect_code(6);
    let verdict = refused.verdict();
    assert_eq!(verdict["data"]["failure"]["code"], "guard.operator");
    assert!(verdict["data"]["next"].to_string().contains("dcctl install"), "{verdict}");
    assert_eq!(verdict["data"]["lock"], "released");
}
