//! Clusters whose definition of Instance is another one than the newest.

use std::path::Path;

use serde_json::json;

use crate::bed::Bed;
use crate::verbs::rig::Demo;

const DECLARED: &str = "/apis/core.devicechain.io/v1beta1/instances/one";

#[test]
fn a_release_with_the_older_schema_is_installed_and_bootstrapped_and_a_newer_one_names_the_field_that_does_not_fit() {
    let demo = Demo::copied(Bed::take());
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/schema-old");
    let old = |words: &[&str]| demo.bed.dcctl(words).args(["--output", "jsonl", "--bundle"]).arg(&old);
    old(&["install"]).run().expect_code(0);
    old(&["bootstrap", "one"]).run().expect_code(0);
    assert_eq!(demo.phase("one").as_deref(), Some("Ready"));
    let spec = demo.get(DECLARED).expect("it is declared")["spec"].clone();
    assert_eq!((&spec["configId"], &spec["configuration"]["persistence"]["replicas"]), (&json!("default"), &json!(1)));
    let refused = demo.bootstrap("two", 1883).run().expect_code(3).verdict();
    let failure = &refused["data"]["failure"];
    assert_eq!(failure["code"], "config.bundle");
    assert!(failure.to_string().contains("spec.provider"), "{failure}");
    assert_eq!(demo.get("/api/v1/namespaces/dci-two"), None, "nothing was built");
    assert_eq!(refused["data"]["lock"], "released");
}

#[test]
fn a_field_that_the_schema_would_drop_is_a_mistake_in_the_bundle() {
    let demo = Demo::copied(Bed::take());
    demo.install().run().expect_code(0);
    demo.edit("bundle.yaml", "      profile: small", "      profile: small\n      colour: blue");
    let refused = demo.bootstrap("one", 1883).run().expect_code(3).verdict();
    assert_eq!(refused["data"]["failure"]["code"], "config.bundle");
    assert!(refused["data"]["failure"].to_string().contains("colour"), "{refused}");
    assert_eq!(demo.get(DECLARED), None);
}
