//! *Install the operator*.

use dcctl::cluster::instances::RELEASE;
use dcctl::failure::Code;
use dcctl::step::manifests::install_operator;
use dcctl::step::{Mode, ObjectChange, Outcome, TakenOver, Update};
use serde_json::Value;

use crate::bed::Bed;
use crate::steps::bench::{Bench, VERSION, done, failed, tally};

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: gadgets.test.devicechain.io }
spec:
  group: test.devicechain.io
  scope: Namespaced
  names: { kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList }
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: { spec: { type: object, properties: { size: { type: integer } } } }
";

const GADGET: &str = "
apiVersion: test.devicechain.io/v1
kind: Gadget
metadata: { name: one, namespace: dc-test }
spec: { size: 1 }
";

const NAMESPACE: &str = "{ apiVersion: v1, kind: Namespace, metadata: { name: dc-test } }\n";

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: settings, namespace: dc-test }
data: { color: blue }
";

fn controller(image: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{ name: controller, namespace: dc-test }}
spec:
  replicas: 1
  selector: {{ matchLabels: {{ app: controller }} }}
  template:
    metadata: {{ labels: {{ app: controller }} }}
    spec: {{ containers: [{{ name: c, image: '{image}' }}] }}
"
    )
}

/// Files whose names are in the wrong order on purpose.
fn files(controller: &str) -> [(&'static str, String); 5] {
    [
        ("a-gadget.yaml", GADGET.to_owned()),
        ("b-controller.yaml", controller.to_owned()),
        ("c-settings.yaml", SETTINGS.to_owned()),
        ("d-definition.yaml", DEFINITION.to_owned()),
        ("e-namespace.yaml", NAMESPACE.to_owned()),
    ]
}

fn give(bench: &mut Bench<'_>, files: &[(&str, String)]) {
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let stamped = files.iter().any(|(name, _)| name.contains("controller"));
    bench.operator(&files, stamped.then_some(("dc-test", "controller")));
}

fn get(bed: &Bed, path: &str) -> Option<Value> {
    bed.api().get(path).expect("the API server answers")
}

#[tokio::test]
async fn everything_is_applied_at_the_first_run_whatever_the_files_are_called() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    give(&mut bench, &files(&controller("busybox:1")));
    assert_eq!(done(install_operator(&bench.kit).await), "5 created");
    let created: Vec<String> = bench.objects().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        created,
        [
            "Namespace dc-test",
            "CustomResourceDefinition gadgets.test.devicechain.io",
            "ConfigMap settings",
            "Deployment controller",
            "Gadget one"
        ]
    );
    let deployment = get(&bed, "/apis/apps/v1/namespaces/dc-test/deployments/controller").expect("it was applied");
    assert_eq!(deployment["metadata"]["annotations"][RELEASE], VERSION);
    assert_eq!(deployment["status"]["availableReplicas"], 1, "the step waits for the operator");
    assert_eq!(deployment["metadata"]["managedFields"][0]["manager"], "dcctl");

    let note = done(install_operator(&bench.kit).await);
    assert_eq!(note, "5 unchanged", "{:?}", bench.said());
    give(&mut bench, &files(&controller("busybox:2")));
    assert_eq!(done(install_operator(&bench.kit).await), "1 configured, 4 unchanged");
}

#[tokio::test]
async fn fields_of_another_manager_are_taken_over_and_their_owner_is_named() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    bed.api().apply(NAMESPACE).expect("the bed may do everything");
    bed.api().apply(&SETTINGS.replace("blue", "red")).expect("the bed may do everything");
    give(&mut bench, &[("settings.yaml", SETTINGS.to_owned())]);

    bench.kit.force_conflicts = false;
    let failure = failed(install_operator(&bench.kit).await);
    assert_eq!(failure.code, Code::ManifestRejected);
    assert_eq!(failure.message, "settings.yaml:2: ConfigMap dc-test/settings has fields that others own");
    assert_eq!(failure.causes, ["bed owns .data.color"]);
    let color = |bed: &Bed| {
        get(bed, "/api/v1/namespaces/dc-test/configmaps/settings").expect("it is there")["data"]["color"].clone()
    };
    assert_eq!(color(&bed), "red");

    bench.kit.force_conflicts = true;
    bench.said();
    assert_eq!(done(install_operator(&bench.kit).await), "1 configured");
    let expected = [TakenOver { manager: "bed".to_owned(), fields: vec![".data.color".to_owned()] }];
    let taken_over: Vec<Vec<TakenOver>> = bench
        .said()
        .into_iter()
        .filter_map(|update| if let Update::Object { taken_over, .. } = update { Some(taken_over) } else { None })
        .collect();
    assert_eq!(taken_over, [expected]);
    assert_eq!(color(&bed), "blue");
}

#[tokio::test]
async fn a_manifest_that_is_rejected_is_named_with_its_place_and_the_api_server_s_sentence() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    bed.api().apply(NAMESPACE).expect("the bed may do everything");
    let cases = [
        (SETTINGS.replace("\ndata:", "\ndada:"), "m.yaml:2: ConfigMap dc-test/settings was rejected", "dada"),
        (SETTINGS.replace("dc-test", "dc-none"), "m.yaml:2: ConfigMap dc-none/settings was rejected", "dc-none"),
        (GADGET.to_owned(), "m.yaml:2: this cluster has no kind Gadget in test.devicechain.io/v1", "define it"),
        (
            SETTINGS.replace("name: settings", "name: Settings"),
            "m.yaml:2: ConfigMap dc-test/Settings was rejected",
            "RFC 1123",
        ),
    ];
    for (text, message, cause) in cases {
        give(&mut bench, &[("m.yaml", text)]);
        let failure = failed(install_operator(&bench.kit).await);
        assert_eq!((failure.code, failure.message.as_str()), (Code::ManifestRejected, message));
        assert!(failure.causes[0].contains(cause), "{:?}", failure.causes);
    }
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_says_what_would_be_new() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    bench.kit.mode = Mode::DryRun;
    give(&mut bench, &files(&controller("busybox:1")));
    assert_eq!(done(install_operator(&bench.kit).await), "5 would be created");
    assert_eq!(tally(&bench.objects()).get("Created"), Some(&5));
    let writes: Vec<Value> = bed
        .audit()
        .into_iter()
        .filter(|event| event["user"]["username"] == "admin")
        .filter(|event| !["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default()))
        .filter(|event| !event["requestURI"].as_str().unwrap_or_default().contains("dryRun=All"))
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(get(&bed, "/api/v1/namespaces/dc-test"), None);
    assert_eq!(get(&bed, "/api/v1/namespaces/dc-system/configmaps/dc-install"), None);

    bench.kit.mode = Mode::Act;
    done(install_operator(&bench.kit).await);
    bench.objects();
    bench.kit.mode = Mode::DryRun;
    give(&mut bench, &files(&controller("busybox:2")));
    assert_eq!(done(install_operator(&bench.kit).await), "1 would be configured, 4 would be unchanged");
    assert_eq!(bench.objects()[3], ("Deployment controller".to_owned(), ObjectChange::Configured));
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_an_operator_that_never_comes() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    // No node has this label, so no pod of it is ever scheduled.
    let nowhere =
        controller("busybox:1").replace("spec: { containers", "spec: { nodeSelector: { none: such }, containers");
    give(&mut bench, &files(&nowhere));
    let Bench { kit, stopper, .. } = &bench;
    let stop = async {
        // The stop comes when the step says why it waits.
        loop {
            let pods = bed.api().list("/api/v1/namespaces/dc-test/pods").expect("the API server answers");
            if pods.iter().any(|pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable") {
                break stopper.graceful(kit.clock.now(), dcctl::process::Directly::No);
            }
            tokio::task::yield_now().await;
        }
    };
    let (outcome, first) = tokio::join!(install_operator(kit), stop);
    assert!(first);
    let Outcome::Stopped(stopped) = outcome else { panic!("not stopped: {outcome:?}") };
    assert!(stopped.clean, "{stopped:?}");
}

#[tokio::test]
async fn force_does_not_wait_for_an_api_server_that_hangs() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    give(&mut bench, &[("settings.yaml", SETTINGS.to_owned())]);
    bed.freeze("kube-apiserver");
    let Bench { kit, stopper, .. } = &bench;
    let force = async {
        // The step has sent its first request by now, because it was polled first.
        stopper.graceful(kit.clock.now(), dcctl::process::Directly::No);
        stopper.force(kit.clock.now())
    };
    let (outcome, new) = tokio::join!(install_operator(kit), force);
    bed.thaw("kube-apiserver");
    assert!(new);
    let Outcome::Stopped(stopped) = outcome else { panic!("not stopped: {outcome:?}") };
    assert!(!stopped.clean, "nobody knows whether the request took effect");
}
