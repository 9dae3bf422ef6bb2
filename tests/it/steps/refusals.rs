//! What *Check the cluster* refuses, with real objects, and what an account without rights is told.

use dcctl::config::Claims;
use dcctl::failure::Code;
use dcctl::step::declaration::declare_instance;
use dcctl::step::guard::check_cluster;
use dcctl::step::manifests::install_operator;
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::steps::bench::{Bench, done, failed};

const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

async fn bench<'a>(bed: &'a Bed, user: &str) -> Bench<'a> {
    let mut admin = Bench::new(bed, "admin").await;
    admin.operator(&[("definition.yaml", DEFINITION)], None);
    done(install_operator(&admin.kit).await);
    let mut bench = Bench::new(bed, user).await;
    let claims = Claims { ingress_host: Some("a.test".to_owned()), local_mqtt_port: Some(1883), connections: Some(60) };
    bench.instance(&Bed::instance(), json!({ "provider": "existing", "managed": false }), claims);
    bench
}

fn other(annotation: Option<&Value>, host: Option<&str>) -> Value {
    let annotations = annotation.map(|claims| json!({ "dcctl.devicechain.io/claims": claims.to_string() }));
    json!({
        "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
        "metadata": { "name": "other", "annotations": annotations },
        "spec": { "provider": "existing", "managed": false, "host": host.unwrap_or("") },
    })
}

#[tokio::test]
async fn what_another_instance_has_is_refused_by_name() {
    let bed = Bed::take();
    let bench = bench(&bed, "ops").await;
    let cases = [
        (Some(json!({ "ingressHost": "a.test" })), None, "the ingress host a.test is served by the instance \"other\""),
        (None, Some("A.test"), "the ingress host a.test is served by the instance \"other\""),
        (Some(json!({ "localMqttPort": 1883 })), None, "the local MQTT port 1883 is that of the instance \"other\""),
        (
            Some(json!({ "connections": 541 })),
            None,
            "the connection budget does not fit: this instance claims 60, the others have 541, and the cluster has 600",
        ),
    ];
    for (annotation, host, says) in cases {
        bed.api().create(INSTANCES, &other(annotation.as_ref(), host)).expect("it fits the schema");
        let failure = failed(check_cluster(&bench.kit).await);
        assert_eq!((failure.code, failure.message.as_str()), (Code::ClaimConflict, says));
        bed.api().delete(&format!("{INSTANCES}/other")).expect("the bed may do everything");
    }
    bed.api().create(INSTANCES, &other(None, None)).expect("it fits the schema");
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.code, Code::CannotTell);
    assert_eq!(failure.message, "what the instance \"other\" claims cannot be told");
}

#[tokio::test]
async fn a_secret_of_an_undeclared_instance_is_seen_and_its_values_are_not() {
    let bed = Bed::take();
    let bench = bench(&bed, "ops").await;
    let secret = |name: &str, labels: Value| {
        json!({ "metadata": { "name": name, "labels": labels,
        "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "s3cret" } }, "stringData": { "k": "s3cret" } })
    };
    let secrets = "/api/v1/namespaces/dc-system/secrets";
    bed.api().create(secrets, &secret("plain", json!({}))).expect("the bed may do everything");
    done(check_cluster(&bench.kit).await);
    bed.api()
        .create(secrets, &secret("gone-db", json!({ "core.devicechain.io/instance": "gone" })))
        .expect("an answer");
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.code, Code::CannotTell);
    assert_eq!(failure.message, "Secret dc-system/gone-db belongs to the instance \"gone\", which has no declaration");
    bed.api().delete(&format!("{secrets}/gone-db")).expect("the bed may do everything");
    bed.api()
        .create(secrets, &secret("nobody", json!({ "app.kubernetes.io/managed-by": "dcctl" })))
        .expect("an answer");
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.message, "whose Secret dc-system/nobody is cannot be told");
    let lists: Vec<String> = bed.requests_of("ops").into_iter().filter(|request| request.contains("secrets")).collect();
    assert!(lists.iter().all(|request| *request == format!("list {secrets}")), "{lists:?}");
}

#[tokio::test]
async fn a_namespace_of_somebody_else_is_refused() {
    let bed = Bed::take();
    let bench = bench(&bed, "ops").await;
    let name = bench.kit.instance.clone().expect("it was set");
    let namespace = |labels: Value| json!({ "metadata": { "name": format!("dci-{name}"), "labels": labels } });
    bed.api().create("/api/v1/namespaces", &namespace(json!({}))).expect("the bed may do everything");
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.code, Code::ClaimConflict);
    assert!(failure.hints[0].contains("kubectl label namespace"), "{failure:?}");
    let path = format!("/api/v1/namespaces/dci-{name}");
    let label = |owner: &str| json!({ "metadata": { "labels": { "core.devicechain.io/instance": owner } } });
    bed.api().merge(&path, &label("other")).expect("the bed may do everything");
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.message, format!("namespace dci-{name} belongs to the instance \"other\""));
    bed.api().merge(&path, &label(&name)).expect("the bed may do everything");
    done(check_cluster(&bench.kit).await);
}

#[tokio::test]
async fn an_account_without_rights_is_told_so_in_the_api_server_s_own_words() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "nobody").await;
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.code, Code::Forbidden);
    assert!(
        failure
            .message
            .contains(r#"User "nobody" cannot list resource "instances" in API group "core.devicechain.io""#),
        "{failure:?}"
    );
    let failure = failed(declare_instance(&bench.kit).await);
    assert!(failure.message.contains(r#"User "nobody" cannot get resource "instances""#), "{failure:?}");
    bench.operator(&[], None);
    let failure = failed(install_operator(&bench.kit).await);
    assert!(failure.message.contains(r#"User "nobody" cannot get resource "namespaces""#), "{failure:?}");
}
