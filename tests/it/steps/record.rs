//! *Record the install*.

use dcctl::failure::Code;
use dcctl::step::manifests::install_operator;
use dcctl::step::record::record_install;
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::steps::bench::{Bench, VERSION, done, failed};

const CONFIG_MAPS: &str = "/api/v1/namespaces/dc-system/configmaps";
const RECORD: &str = "/api/v1/namespaces/dc-system/configmaps/dc-install";

fn read(bed: &Bed) -> Value {
    let object = bed.api().get(RECORD).expect("the API server answers").expect("the record is there");
    serde_json::from_str(object["data"]["install.json"].as_str().expect("its one key")).expect("it is JSON")
}

#[tokio::test]
async fn an_install_is_applying_until_it_is_installed() {
    let bed = Bed::fresh();
    let mut bench = Bench::new(&bed, "admin").await;
    // An operator that cannot be applied: the record says that an install began.
    bench.operator(&[("m.yaml", "{ apiVersion: v1, kind: None, metadata: { name: x } }")], None);
    failed(install_operator(&bench.kit).await);
    let kube_system = bed.api().get("/api/v1/namespaces/kube-system").expect("an answer").expect("it is there");
    let record = read(&bed);
    assert_eq!(record["phase"], "applying");
    assert_eq!(record["clusterUid"], kube_system["metadata"]["uid"]);
    assert_eq!(record["settings"]["version"], VERSION);

    assert_eq!(done(record_install(&bench.kit).await), "demo 0.9.2 is installed");
    assert_eq!(read(&bed)["phase"], "installed");
    bench.kit.bundle.operator = None;
    install_operator(&bench.kit).await;
    assert_eq!(read(&bed)["phase"], "applying", "a re-install that has begun never reads as done");
}

#[tokio::test]
async fn a_record_that_is_not_ours_is_left_alone() {
    let bed = Bed::take();
    let bench = Bench::new(&bed, "admin").await;
    let foreign = json!({ "metadata": { "name": "dc-install" }, "data": { "install.json": "{}" } });
    bed.api().create(CONFIG_MAPS, &foreign).expect("the bed may do everything");
    for outcome in [install_operator(&bench.kit).await, record_install(&bench.kit).await] {
        let failure = failed(outcome);
        assert_eq!(failure.code, Code::RecordForeign);
        assert_eq!(failure.message, "ConfigMap dc-system/dc-install was not written by dcctl");
    }
    let labels = json!({ "metadata": { "labels": { "app.kubernetes.io/managed-by": "dcctl" } } });
    bed.api().merge(RECORD, &labels).expect("the bed may do everything");
    let text = json!({ "schema": 1, "phase": "installed", "clusterUid": "another" }).to_string();
    bed.api().merge(RECORD, &json!({ "data": { "install.json": text } })).expect("the bed may do everything");
    let failure = failed(record_install(&bench.kit).await);
    assert_eq!(failure.code, Code::RecordForeign);
    assert!(failure.message.contains("record of another cluster"), "{}", failure.message);
    assert_eq!(read(&bed)["clusterUid"], "another");
}
