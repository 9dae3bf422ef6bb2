//! *Install chart*, with the real Helm.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::config::Chart;
use dcctl::failure::Code;
use dcctl::process::Directly;
use dcctl::redact::Secret;
use dcctl::step::{Mode, ObjectChange, Outcome, Severity, Stopped, Update, install_chart};
use serde_json::{Map, Value, json};

use crate::bed::Bed;
use crate::steps::bench::{Bench, done, failed};
use crate::steps::tofu::{instance, until};

const TEMPLATE: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: app }
spec:
  replicas: {{ .Values.replicas }}
  selector: { matchLabels: { app: app } }
  template:
    metadata: { labels: { app: app, bed.dcctl/never-ready: "{{ .Values.never }}" } }
    spec: { containers: [ { name: app, image: example.test/app:{{ .Values.image.tag }} } ] }
---
apiVersion: v1
kind: Secret
metadata: { name: root-key }
stringData: { key: {{ .Values.secrets.rootKey | quote }}, kind: {{ kindOf .Values.replicas | quote }} }
"#;

const DEFAULTS: &str = "replicas: 9\nnever: false\nimage: { tag: none }\nsecrets: { rootKey: none }\n";

/// A kit whose bundle has a chart of one Deployment and one Secret, in a namespace that is there.
pub(crate) async fn bench(bed: &Bed) -> Bench<'_> {
    let mut bench = Bench::new(bed, "admin").await;
    bench.programs().await;
    bench.instance(&Bed::instance(), Value::Null, dcctl::config::Claims::default());
    let path = bench.kit.bundle.root.join("chart");
    fs::create_dir_all(path.join("templates")).expect("made");
    let write = |name: &str, text: &str| fs::write(path.join(name), text).expect("written");
    write("Chart.yaml", "apiVersion: v2\nname: demo\nversion: 0.1.0\n");
    write("values.yaml", DEFAULTS);
    write("templates/all.yaml", TEMPLATE);
    let bundled = bench.kit.bundle.root.join("bundled.yaml");
    fs::write(&bundled, "replicas: 8\nimage: { tag: bundled }\n").expect("written");
    let namespace = instance(&mut bench).namespace.clone();
    bed.api().create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace } })).expect("made");
    instance(&mut bench).chart = Some(Chart {
        path,
        release: "dc-demo".to_owned(),
        namespace,
        values: vec![bundled],
        set: Map::from_iter([("replicas".to_owned(), json!(1))]),
        outputs: std::collections::BTreeMap::new(),
        secrets: [("secrets.rootKey".to_owned(), Secret::from("hunter22".to_owned()))].into(),
        timeout: Duration::from_secs(60),
    });
    bench
}

pub(crate) fn chart<'a>(bench: &'a mut Bench<'_>) -> &'a mut Chart {
    instance(bench).chart.as_mut().expect("the instance has a chart")
}

/// The text of an object that belongs to the release.
pub(crate) fn object(bench: &Bench<'_>, path: &str) -> Option<Value> {
    let namespace = &bench.kit.bundle.instance.as_ref().expect("an instance").namespace;
    bench.bed.api().get(&path.replace("NS", namespace)).expect("an answer")
}

pub(crate) const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/NS/deployments/app";

/// The status of each revision, by the labels of Helm's records.
pub(crate) fn statuses(bench: &Bench<'_>) -> Vec<String> {
    let namespace = &bench.kit.bundle.instance.as_ref().expect("an instance").namespace;
    let path = format!("/api/v1/namespaces/{namespace}/secrets?labelSelector=owner%3Dhelm");
    let records = bench.bed.api().list(&path).expect("an answer");
    let mut found: Vec<(u64, String)> = records
        .iter()
        .map(|record| {
            let label = |name: &str| record["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
            (label("version").parse().expect("a number"), label("status"))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, status)| status).collect()
}

#[tokio::test]
async fn values_keep_their_order_and_types_and_secrets_stay_secret() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    assert_eq!(done(install_chart(&bench.kit).await), "release dc-demo revision 1 deployed");
    let deployment = object(&bench, DEPLOYMENT).expect("installed");
    assert_eq!(deployment["spec"]["replicas"], 1, "what dcctl sets is stronger than the bundle's values");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "example.test/app:bundled");
    let secret = object(&bench, "/api/v1/namespaces/NS/secrets/root-key").expect("installed");
    // "hunter22" and "float64", as Kubernetes writes them.
    assert_eq!((&secret["data"]["key"], &secret["data"]["kind"]), (&json!("aHVudGVyMjI="), &json!("ZmxvYXQ2NA==")));

    let given = bed.file("given.yaml");
    fs::write(&given, "replicas: 2\n").expect("written");
    bench.kit.values = vec![given];
    bench.next_run("second");
    assert_eq!(done(install_chart(&bench.kit).await), "release dc-demo revision 2 deployed");
    assert_eq!(object(&bench, DEPLOYMENT).expect("there")["spec"]["replicas"], 2, "the command line is strongest");
    assert!(!format!("{:?}", bench.said()).contains("hunter22"));
    let left = fs::read_dir(bench.kit.run_dir.join("output")).expect("there").count();
    assert_eq!(left, 0, "no raw output is kept");
}

#[tokio::test]
async fn a_chart_that_does_not_become_ready_fails_with_what_is_not_ready() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    chart(&mut bench).set.insert("never".to_owned(), json!(true));
    chart(&mut bench).timeout = Duration::from_secs(4);
    let failure = failed(install_chart(&bench.kit).await);
    assert_eq!((failure.code, failure.message.as_str()), (Code::ChartFailed, "Helm could not install release dc-demo"));
    assert!(failure.causes.iter().any(|cause| cause.contains("Deployment app: ")), "{failure:?}");
    assert!(failure.causes.iter().any(|cause| cause.contains("cannot be pulled")), "{failure:?}");
    assert!(failure.causes.iter().any(|cause| cause == "the release is failed at revision 1"), "{failure:?}");
    let error = |update: &Update| matches!(update, Update::Diagnostic { severity: Severity::Error, origin, .. } if origin == "Helm");
    assert!(bench.said().iter().any(error));
}

#[tokio::test]
async fn a_chart_that_cannot_be_rendered_fails_with_helms_own_words() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    fs::write(chart(&mut bench).path.join("templates/bad.yaml"), "{{ fail \"no such thing\" }}").expect("written");
    let failure = failed(install_chart(&bench.kit).await);
    assert!(failure.causes.iter().any(|cause| cause.contains("no such thing")), "{failure:?}");
    assert_eq!(statuses(&bench), [""; 0]);
}

#[tokio::test]
async fn a_stop_while_helm_waits_is_one_interrupt_and_its_record_is_read() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    chart(&mut bench).set.insert("never".to_owned(), json!(true));
    let stop = async {
        until(|| object(&bench, DEPLOYMENT).is_some()).await;
        bench.stopper.graceful(System.now(), Directly::No);
    };
    let (outcome, ()) = tokio::join!(install_chart(&bench.kit), stop);
    let Outcome::Stopped(Stopped { clean, note, .. }) = outcome else { panic!("not stopped: {outcome:?}") };
    assert!(clean, "{note}");
    assert!(note.contains("release dc-demo is failed at revision 1"), "{note}");
    assert_eq!(statuses(&bench), ["failed"]);
    let interrupts = |update: &&Update| format!("{update:?}").contains("Interrupted {");
    assert_eq!(bench.said().iter().filter(interrupts).count(), 1);

    bench.next_run("second");
    chart(&mut bench).set.insert("never".to_owned(), json!(false));
    assert_eq!(done(install_chart(&bench.kit).await), "release dc-demo revision 2 deployed");
}

/// Every object of a namespace that a chart can make, with its version.
fn versions(bench: &Bench<'_>) -> Vec<String> {
    let namespace = &bench.kit.bundle.instance.as_ref().expect("an instance").namespace;
    let collections = ["/api/v1/namespaces/NS/secrets", "/apis/apps/v1/namespaces/NS/deployments"];
    let objects =
        collections.iter().flat_map(|path| bench.bed.api().list(&path.replace("NS", namespace)).expect("an answer"));
    objects.map(|object| format!("{}", object["metadata"]["resourceVersion"])).collect()
}

#[tokio::test]
async fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    bench.kit.mode = Mode::DryRun;
    assert_eq!(done(install_chart(&bench.kit).await), "would install release dc-demo: 2 to create");
    let objects = |said: Vec<Update>| -> Vec<(String, ObjectChange)> {
        said.into_iter()
            .filter_map(|update| match update {
                Update::Object { object, change, .. } => Some((format!("{} {}", object.kind, object.name), change)),
                _ => None,
            })
            .collect()
    };
    let said = bench.said();
    assert!(!format!("{said:?}").contains("hunter22"));
    let expected = ["Deployment app", "Secret root-key"].map(|name| (name.to_owned(), ObjectChange::Created));
    let mut found = objects(said);
    found.sort_by(|left, right| left.0.cmp(&right.0));
    assert_eq!(found, expected);
    assert_eq!(versions(&bench), [""; 0]);

    bench.kit.mode = Mode::Act;
    bench.next_run("second");
    done(install_chart(&bench.kit).await);
    bench.said();
    let before = versions(&bench);
    bench.kit.mode = Mode::DryRun;
    bench.next_run("third");
    chart(&mut bench).set.insert("replicas".to_owned(), json!(3));
    let note = done(install_chart(&bench.kit).await);
    assert_eq!(note, "would upgrade release dc-demo: 1 to change, 1 unchanged");
    // The Deployment's own status moves on by itself; the release and its secrets do not.
    let secrets = |versions: Vec<String>| versions.into_iter().take(2).collect::<Vec<_>>();
    assert_eq!(secrets(versions(&bench)), secrets(before));
    assert_eq!(statuses(&bench), ["deployed"]);
}

#[tokio::test]
async fn a_chart_is_rendered_alone_where_its_namespace_or_kinds_are_not_there_yet() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    bench.kit.mode = Mode::DryRun;
    chart(&mut bench).namespace = "dci-nowhere".to_owned();
    let custom = "apiVersion: example.test/v1\nkind: Widget\nmetadata: { name: w }\n";
    fs::write(chart(&mut bench).path.join("templates/custom.yaml"), custom).expect("written");
    assert_eq!(done(install_chart(&bench.kit).await), "would install release dc-demo: 3 to create");
    assert!(!Path::new("dci-nowhere").exists());
}
