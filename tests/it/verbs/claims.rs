//! What an instance may not take from another one.

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::verbs::rig::Demo;

const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

/// Another instance, with this host in its spec and these claims in its annotation.
fn other(host: Option<&str>, claims: Option<&Value>) -> Value {
    let annotations = claims.map(|claims| json!({ "dcctl.devicechain.io/claims": claims.to_string() }));
    json!({ "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
        "metadata": { "name": "other", "annotations": annotations },
        "spec": { "provider": "existing", "managed": false, "host": host.unwrap_or_default() } })
}

#[test]
fn what_another_instance_has_is_refused_by_name_before_anything_is_touched() {
    let demo = Demo::on(Bed::take());
    let definition = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
    demo.bed.api().apply(definition).expect("the bed may do everything");
    let place = "/api/v1/namespaces/dci-one";
    let (host, port) = (json!({ "ingressHost": "one.example.com" }), json!({ "localMqttPort": 1883 }));
    let many = json!({ "connections": 541 });
    let cases = [
        (other(Some("one.example.com"), None), "the ingress host one.example.com is served by the instance \"other\""),
        (other(None, Some(&host)), "the ingress host one.example.com is served by the instance \"other\""),
        (other(None, Some(&port)), "the local MQTT port 1883 is that of the instance \"other\""),
        (
            other(None, Some(&many)),
            "the connection budget does not fit: this instance claims 60, the others have 541, and the cluster has 600",
        ),
    ];
    for (object, says) in cases {
        crate::bed::wait::fact("Instances to be served", || demo.bed.api().create(INSTANCES, &object).ok());
        let before = demo.writes_of("admin").len();
        let verdict = demo.bootstrap("one", 1883).run().expect_code(6).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!((&failure["code"], &failure["message"]), (&json!("guard.claim_conflict"), &json!(says)));
        assert_eq!(verdict["data"]["lock"], "released");
        let mut written = demo.writes_of("admin").split_off(before);
        written.retain(|request| !request.contains("/leases"));
        assert_eq!((written, demo.get(place), demo.state_dir("one").exists()), (Vec::new(), None, false));
        demo.bed.api().delete(&format!("{INSTANCES}/other")).expect("the bed may do everything");
    }
}
