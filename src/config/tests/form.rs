//! The schema of `bundle.yaml` says what the loader says: of whole bundles, of each key, and of a table of wrong ones.

use serde_json::Value;

use super::{GOOD, Place, demo};
use crate::config::form::schema;

/// Wrong in a way that can be told without the folder and without the values of placeholders: what is changed, and into what.
const WRONG: &[(&str, &str)] = &[
    ("dcctl.devicechain.io/v1", "dcctl.devicechain.io/v2"),
    ("kind: Bundle", "kind: Bundel"),
    ("metadata: { name: shop, version: 0.9.2 }\n", ""),
    ("name: shop", "name: Shop"),
    ("name: shop", "name: \"${instance}\""),
    ("name: shop,", ""),
    ("version: 0.9.2", "version: 0.9"),
    ("version: 0.9.2", "version: \"0.9 beta\""),
    ("version: 0.9.2", "version: \"\""),
    ("version: 0.9.2", "version: 0.9.2, licence: MIT"),
    ("[\"make\", \"images\"]", "[]"),
    ("[\"make\", \"images\"]", "make images"),
    ("[\"make\", \"images\"]", "[7]"),
    ("[\"make\", \"images\"]", "[make, [images]]"),
    ("{ build: [\"make\", \"images\"] }", "{}"),
    ("manifests: operator/", "manifests: /operator"),
    ("manifests: operator/", "manifests: 7"),
    ("  manifests: operator/\n", ""),
    ("namespace: dc-k8s-system,", ""),
    ("namespace: dc-k8s-system", "namespace: dc.k8s"),
    ("name: dc-controller-manager", "name: dc_controller"),
    ("  root: infra/cluster\n", ""),
    ("create_namespace: false", "0name: false"),
    ("license: license", "license: my-license"),
    ("license: license", "license: 7"),
    ("\"dci-${instance}\"", "kube-system"),
    ("\"dci-${instance}\"", "default"),
    ("\"dci-${instance}\"", "\"kube-${instance}\""),
    ("\"dci-${instance}\"", "Shop"),
    ("values: [values.yaml]", "values: values.yaml"),
    ("values: [values.yaml]", "values: [7]"),
    ("set: { instance.id: \"${namespace}\", port: \"${var.mqtt_port}\" }", "set: [instance.id]"),
    ("broker.ca: nats_ca", "broker.ca: 7up"),
    ("secrets.rootKey: root_key", "secrets.rootKey: [root_key]"),
    ("timeout: 90s", "timeout: 90"),
    ("timeout: 90s", "timeout: 90 s"),
    ("timeout: 90s", "timeout: 0s"),
    ("timeout: 90s", "timeout: 5m1h"),
    ("timeout: 1h30m", "timeout: soon"),
    ("timeout: 1h30m", "timeuot: 1h30m"),
    ("core.devicechain.io/v1beta1", "core.devicechain.io"),
    ("core.devicechain.io/v1beta1", "example.com/v1"),
    (
        "    spec: { provider: existing, managed: false, host: \"${instance}.example.com\", imageVersion: \"${version}\" }\n",
        "",
    ),
    ("\"${instance}.example.com\", localMqttPort", "shop_1, localMqttPort"),
    ("localMqttPort: \"${var.mqtt_port}\"", "localMqttPort: 0"),
    ("localMqttPort: \"${var.mqtt_port}\"", "localMqttPort: 65536"),
    ("localMqttPort: \"${var.mqtt_port}\"", "localMqttPort: \"1883\""),
    ("localMqttPort: \"${var.mqtt_port}\"", "localMqttPort: \"1${var.mqtt_port}\""),
    ("connections: 60", "connections: many"),
    ("connections: 60", "connections: 1.5"),
    ("maxConnections: 600", "maxConnections: -1"),
    ("maxConnections: 600", "max: 600"),
    ("vars: { mqtt_port: 1883,", "vars: { mqtt-port: 1883,"),
    ("vars: { mqtt_port: 1883, site: \"${instance}-site\" }", "vars: [1883]"),
    ("name: API answers,", ""),
    ("verify: [{", "verify: [7, {"),
    ("cluster: {", "clutser: {"),
];

fn complaints(text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).expect("a valid schema");
    let bundle: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    validator.iter_errors(&bundle).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn a_whole_bundle_satisfies_the_schema() {
    assert_eq!(complaints(GOOD), Vec::<String>::new());
}

#[test]
fn what_the_schema_refuses_the_loader_refuses_too_and_both_see_each_of_these() {
    for (right, wrong) in WRONG {
        assert!(GOOD.contains(right), "{right}");
        let text = GOOD.replacen(right, wrong, 1);
        assert_ne!(complaints(&text), Vec::<String>::new(), "the schema takes {wrong:?} for {right:?}");
        assert_ne!(Place::new(&text).said(&demo()), Vec::<String>::new(), "the loader takes {wrong:?} for {right:?}");
    }
}

#[test]
fn what_the_loader_takes_the_schema_takes_too() {
    let vars =
        "vars: { files: [values.yaml], release: dc, for: 90s, a_map: { ingressHost: a.example.com }, mqtt_port: 1883,";
    for (right, other) in [
        ("connections: 60", "connections: \"${var.mqtt_port}\""),
        ("maxConnections: 600", "maxConnections: \"${var.mqtt_port}\""),
        ("maxConnections: 600", "maxConnections:"),
        ("namespace: \"dci-${instance}\"", "namespace:"),
        ("\"make\", \"images\"", "\"make\", 7, true, \"\""),
        ("manifests: operator/", "manifests: ./operator"),
        ("values: [values.yaml]", "values: \"${var.files}\""),
        ("release: \"dc-${instance}\"", "release: \"${var.release}\""),
        ("timeout: 90s", "timeout: \"${var.for}\""),
        ("set: { instance.id: \"${namespace}\", port: \"${var.mqtt_port}\" }", "set: \"${var.a_map}\""),
        (
            "{ ingressHost: \"${instance}.example.com\", localMqttPort: \"${var.mqtt_port}\", connections: 60 }",
            "\"${var.a_map}\"",
        ),
    ] {
        assert!(GOOD.contains(right), "{right}");
        let text = GOOD.replacen("vars: { mqtt_port: 1883,", vars, 1).replacen(right, other, 1);
        assert_eq!(Place::new(&text).said(&demo()), Vec::<String>::new(), "{other}");
        assert_eq!(complaints(&text), Vec::<String>::new(), "{other}");
    }
}

/// The loader names the keys it knows when it meets one that is like none of them.
#[test]
fn the_schema_has_each_key_that_the_loader_knows_and_no_other() {
    let schema = schema();
    let keys = |definition: &Value| -> Vec<String> {
        let mut keys: Vec<_> =
            definition["properties"].as_object().expect("a section has properties").keys().cloned().collect();
        keys.sort();
        keys
    };
    let section = |name: &str| keys(&schema["$defs"][name]);
    let places = [
        ("apiVersion: d", "qqqqqqqqqqqq: 1\napiVersion: d", keys(&schema)),
        ("metadata: {", "metadata: { qqqqqqqqqqqq: 1,", section("Metadata")),
        ("images: {", "images: { qqqqqqqqqqqq: 1,", section("Images")),
        ("  manifests: operator/", "  manifests: operator/\n  qqqqqqqqqqqq: 1", section("Operator")),
        ("deployment: {", "deployment: { qqqqqqqqqqqq: 1,", section("Deployment")),
        ("  root: infra/cluster", "  root: infra/cluster\n  qqqqqqqqqqqq: 1", section("Root")),
        ("    root: infra/instance", "    root: infra/instance\n    qqqqqqqqqqqq: 1", section("Root")),
        ("  infrastructure:", "  qqqqqqqqqqqq: 1\n  infrastructure:", section("Instance")),
        ("    path: chart", "    path: chart\n    qqqqqqqqqqqq: 1", section("Chart")),
        ("readiness: {", "readiness: { qqqqqqqqqqqq: 1,", section("Readiness")),
        ("  declaration:\n", "  declaration:\n    qqqqqqqqqqqq: 1\n", section("Declaration")),
        ("claims: {", "claims: { qqqqqqqqqqqq: 1,", section("Claims")),
        ("cluster: {", "cluster: { qqqqqqqqqqqq: 1,", section("Cluster")),
        ("verify: [{", "verify: [{ qqqqqqqqqqqq: 1,", section("Verification")),
    ];
    let sections = schema["$defs"].as_object().expect("definitions").values();
    assert_eq!(
        sections.filter(|kind| kind.get("properties").is_some()).count() + 2,
        places.len(),
        "a root is in two places"
    );
    for (right, wrong, wanted) in places {
        assert!(GOOD.contains(right), "{right}");
        let said = Place::new(&GOOD.replacen(right, wrong, 1)).said(&demo()).join("\n");
        let known = said.split("unknown key; known are ").nth(1).unwrap_or_else(|| panic!("{wrong}: {said}"));
        let mut known: Vec<_> = known.lines().next().expect("a line").split(", ").map(str::to_owned).collect();
        known.sort();
        assert_eq!(known, wanted, "{wrong}");
    }
}

#[test]
fn every_section_and_field_is_described() {
    let schema = schema();
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        assert!(definition["description"].is_string(), "{name}");
        for (field, described) in definition["properties"].as_object().into_iter().flatten() {
            assert!(described["description"].is_string(), "{name}.{field}: {described}");
        }
    }
}
