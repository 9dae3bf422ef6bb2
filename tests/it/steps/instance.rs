//! *Check the cluster*, *Declare the instance*, *Wait for readiness* and *Record the phase*.

use dcctl::cluster::instances::{CLAIMS, FINALIZER, LINEAGE, PHASE};
use dcctl::config::Claims;
use dcctl::failure::Code;
use dcctl::step::declaration::declare_instance;
use dcctl::step::guard::check_cluster;
use dcctl::step::readiness::wait_for_readiness;
use dcctl::step::record::{record_failure, record_phase, record_state, recorded_lineage};
use dcctl::step::{Lineage, Mode, ObjectChange, Outcome, Update};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::steps::bench::{Bench, done, failed};

const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
const OLD_DEFINITION: &str = include_str!("../../../fixtures/schema-old/operator/definition.yaml");
const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

fn declaration(bed: &Bed, name: &str) -> Value {
    bed.api().get(&format!("{INSTANCES}/{name}")).expect("the API server answers").expect("it is declared")
}

fn annotation(bed: &Bed, name: &str, key: &str) -> Value {
    declaration(bed, name)["metadata"]["annotations"][key].clone()
}

fn spec() -> Value {
    json!({ "provider": "existing", "managed": false, "host": "a.test" })
}

fn claims(host: &str, port: u16) -> Claims {
    Claims { ingress_host: Some(host.to_owned()), local_mqtt_port: Some(port), connections: Some(60) }
}

/// A bench on a cluster that knows Instances.
async fn bench<'a>(bed: &'a Bed, user: &str) -> Bench<'a> {
    define(bed, DEFINITION).await;
    Bench::new(bed, user).await
}

/// Defines Instances as `dcctl install` does.
async fn define(bed: &Bed, definition: &str) {
    let mut bench = Bench::new(bed, "admin").await;
    bench.operator(&[("definition.yaml", definition)], None);
    done(dcctl::step::manifests::install_operator(&bench.kit).await);
}

#[tokio::test]
async fn an_instance_goes_from_declared_to_ready() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "ops").await;
    let name = Bed::instance();
    bench.instance(&name, spec(), claims("a.test", 1883));

    assert_eq!(done(check_cluster(&bench.kit).await), "no other instance is declared on this cluster");
    let note = done(declare_instance(&bench.kit).await);
    assert_eq!(note, format!("\"{name}\" declared, phase Bootstrapping; namespace dci-{name} made"));
    let declared = declaration(&bed, &name);
    assert_eq!(declared["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(declared["metadata"]["annotations"][PHASE], "Bootstrapping");
    assert_eq!(
        declared["metadata"]["annotations"][CLAIMS],
        r#"{"ingressHost":"a.test","localMqttPort":1883,"connections":60}"#
    );
    let namespace = bed.api().get(&format!("/api/v1/namespaces/dci-{name}")).expect("an answer").expect("it was made");
    assert_eq!(namespace["metadata"]["labels"]["core.devicechain.io/instance"], name.as_str());

    assert_eq!(recorded_lineage(&bench.kit).await, Ok(None));
    let state = Lineage { lineage: "4b1d-00".to_owned(), serial: 7 };
    record_state(&bench.kit, &state).await.expect("it is declared");
    assert_eq!(recorded_lineage(&bench.kit).await, Ok(Some("4b1d-00".to_owned())));

    assert_eq!(done(wait_for_readiness(&bench.kit).await), "nothing runs there");
    assert_eq!(done(record_phase(&bench.kit).await), "the instance is Ready");
    assert_eq!(annotation(&bed, &name, PHASE), "Ready");
    assert_eq!(annotation(&bed, &name, LINEAGE), "4b1d-00");

    let refused = failed(check_cluster(&bench.kit).await);
    assert_eq!(refused.code, Code::LiveInstance);
    assert!(refused.hints[0].starts_with("it was left as it is"), "{:?}", refused.hints);
    record_failure(&bench.kit).await.expect("nothing to write");
    assert_eq!(annotation(&bed, &name, PHASE), "Ready", "who was refused does not mark a live instance as failed");
}

#[tokio::test]
async fn a_second_run_converges_and_keeps_what_others_wrote() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "ops").await;
    let name = Bed::instance();
    bench.instance(&name, spec(), claims("a.test", 1883));
    done(declare_instance(&bench.kit).await);
    record_failure(&bench.kit).await.expect("it is declared");
    assert_eq!(annotation(&bed, &name, PHASE), "Failed");
    let path = format!("{INSTANCES}/{name}");
    bed.api()
        .merge(&path, &json!({ "metadata": { "annotations": { "someone/else": "x" } }, "spec": { "restored": true } }))
        .expect("the bed may do everything");
    bed.api().merge(&format!("{path}/status"), &json!({ "status": { "seen": true } })).expect("the operator's part");

    done(check_cluster(&bench.kit).await);
    bench.said();
    done(declare_instance(&bench.kit).await);
    assert_eq!(bench.objects(), [(format!("Instance {name}"), ObjectChange::Configured)]);
    let declared = declaration(&bed, &name);
    assert_eq!(declared["metadata"]["annotations"]["someone/else"], "x");
    assert_eq!(declared["metadata"]["annotations"][PHASE], "Bootstrapping");
    assert_eq!((&declared["spec"]["restored"], &declared["status"]["seen"]), (&json!(true), &json!(true)));

    bench.instance(&name, json!({ "provider": "other", "managed": false }), claims("a.test", 1883));
    let failure = failed(declare_instance(&bench.kit).await);
    assert_eq!(failure.code, Code::BindingChanged);
    assert_eq!(
        failure.message,
        format!("spec.provider of \"{name}\" is \"existing\" on the cluster and \"other\" in the bundle")
    );
}

#[tokio::test]
async fn a_spec_that_the_schema_does_not_know_is_a_mistake_in_the_bundle() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "ops").await;
    let name = Bed::instance();
    let mut unknown = spec();
    unknown["colour"] = json!("blue");
    for (spec, says) in [(unknown, "colour"), (json!({ "managed": false }), "spec.provider")] {
        bench.instance(&name, spec, claims("a.test", 1883));
        let failure = failed(declare_instance(&bench.kit).await);
        assert_eq!(failure.code, Code::BundleInvalid);
        assert!(failure.message.contains(says), "{}", failure.message);
    }
    assert_eq!(bed.api().list(INSTANCES).expect("an answer").len(), 0);
}

#[tokio::test]
async fn a_cluster_that_knows_no_instances_has_none_and_can_get_none() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "ops").await;
    bench.instance(&Bed::instance(), spec(), claims("a.test", 1883));
    done(check_cluster(&bench.kit).await);
    let failure = failed(declare_instance(&bench.kit).await);
    assert_eq!(failure.code, Code::OperatorMissing);
    assert!(failure.hints[0].contains("dcctl install"), "{:?}", failure.hints);

    bench.kit.mode = Mode::DryRun;
    bench.said();
    done(declare_instance(&bench.kit).await);
    let said = bench.said();
    assert!(matches!(&said[0], Update::Object { change: ObjectChange::Created, .. }), "{said:?}");
    assert!(matches!(&said[1], Update::Note(note) if note.contains("dcctl install")), "{said:?}");
}

#[tokio::test]
async fn instances_of_an_older_version_count_too() {
    let bed = Bed::take();
    define(&bed, &OLD_DEFINITION.replace("v1beta1", "v1alpha1")).await;
    let mut bench = Bench::new(&bed, "ops").await;
    let old = json!({ "apiVersion": "core.devicechain.io/v1alpha1", "kind": "Instance", "metadata": { "name": "old" },
        "spec": { "configId": "c", "configuration": {}, "description": "d", "name": "n" } });
    bed.api().create("/apis/core.devicechain.io/v1alpha1/instances", &old).expect("it fits the older schema");
    bench.instance(&Bed::instance(), spec(), claims("a.test", 1883));
    let failure = failed(check_cluster(&bench.kit).await);
    assert_eq!(failure.code, Code::CannotTell);
    assert_eq!(failure.message, "what the instance \"old\" claims cannot be told");
}

#[tokio::test]
async fn a_dry_run_declares_nothing() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "ops").await;
    let name = Bed::instance();
    bench.instance(&name, spec(), claims("a.test", 1883));
    bench.kit.mode = Mode::DryRun;
    done(check_cluster(&bench.kit).await);
    assert!(done(declare_instance(&bench.kit).await).contains("would be declared"));
    assert!(matches!(wait_for_readiness(&bench.kit).await, Outcome::Nothing(_)));
    assert!(matches!(record_phase(&bench.kit).await, Outcome::Nothing(_)));
    assert_eq!(bed.api().list(INSTANCES).expect("an answer").len(), 0);
    assert_eq!(bed.api().get(&format!("/api/v1/namespaces/dci-{name}")).expect("an answer"), None);
}

#[tokio::test]
async fn a_declaration_that_was_made_anew_is_not_written_to() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "ops").await;
    let name = Bed::instance();
    bench.instance(&name, spec(), claims("a.test", 1883));
    done(declare_instance(&bench.kit).await);
    let uid = "00000000-0000-0000-0000-000000000000";
    let annotated =
        bench.kit.cluster.annotate_declaration("core.devicechain.io/v1beta1", (&name, uid), &[(PHASE, Some("Ready"))]);
    assert_eq!(annotated.await.expect_err("another uid").code, Code::CannotTell);
    assert_eq!(annotation(&bed, &name, PHASE), "Bootstrapping");
    bed.api()
        .merge(&format!("{INSTANCES}/{name}"), &json!({ "metadata": { "annotations": { PHASE: "Destroying" } } }))
        .expect("an answer");
    assert_eq!(failed(record_phase(&bench.kit).await).code, Code::CannotTell);
    assert_eq!(annotation(&bed, &name, PHASE), "Destroying");
}

#[tokio::test]
async fn workloads_are_waited_for_and_say_why_they_are_not_ready() {
    let bed = Bed::take();
    let mut bench = bench(&bed, "ops").await;
    let name = Bed::instance();
    bench.instance(&name, spec(), claims("a.test", 1883));
    done(declare_instance(&bench.kit).await);
    bed.api().apply(&web(&name, "")).expect("the bed may do everything");
    let note = done(wait_for_readiness(&bench.kit).await);
    assert_eq!(note, "1 Deployment and 2 Pods are ready");
    let said = bench.said();
    assert!(
        said.iter().any(|update| matches!(update, Update::Waiting { object, .. } if object.name == "web")),
        "{said:?}"
    );
    assert!(said.iter().any(|update| matches!(update, Update::Ready { object } if object.name == "web")), "{said:?}");

    bed.api().apply(&web(&name, "nodeSelector: { none: such },")).expect("the bed may do everything");
    bench.kit.bundle.instance.as_mut().expect("it was set").readiness_timeout = std::time::Duration::from_secs(3);
    let failure = failed(wait_for_readiness(&bench.kit).await);
    assert_eq!(failure.code, Code::ReadinessTimedOut);
    assert!(failure.causes[0].starts_with("Pod web-") && failure.causes[0].contains("no node takes it"), "{failure:?}");
    assert!(failure.causes.iter().any(|cause| cause.starts_with("Deployment web: ")), "{failure:?}");
}

fn web(name: &str, more: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{ name: web, namespace: dci-{name} }}
spec:
  replicas: 2
  selector: {{ matchLabels: {{ app: web }} }}
  template:
    metadata: {{ labels: {{ app: web }} }}
    spec: {{ {more} containers: [{{ name: c, image: 'busybox:1' }}] }}
"
    )
}
