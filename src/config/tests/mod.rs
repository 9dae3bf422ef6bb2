//! Whole bundles: one that is right, and a table of ways to get it wrong with what is said then.

mod form;
mod mistakes;
mod size;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::config::{Bundle, Environment, Given, Inputs, Written};
use crate::failure::{Code, Failure};

const GOOD: &str = r#"apiVersion: dcctl.devicechain.io/v1
kind: Bundle
metadata: { name: shop, version: 0.9.2 }
images: { build: ["make", "images"] }
operator:
  manifests: operator/
  deployment: { namespace: dc-k8s-system, name: dc-controller-manager }
prerequisites:
  root: infra/cluster
  vars: { kubeconfig_path: "${kubeconfig}", create_namespace: false }
  secrets: { license: license }
instance:
  namespace: "dci-${instance}"
  infrastructure:
    root: infra/instance
    vars: { kubeconfig_path: "${kubeconfig}", name: "${instance}", ha: false, replicas: 1, note: "${var.note}" }
    secrets: { db_password: db_password }
  chart:
    path: chart
    release: "dc-${instance}"
    values: [values.yaml]
    set: { instance.id: "${namespace}", port: "${var.mqtt_port}" }
    outputs: { broker.ca: nats_ca }
    secrets: { secrets.rootKey: root_key }
    timeout: 90s
  readiness: { timeout: 1h30m }
  declaration:
    apiVersion: core.devicechain.io/v1beta1
    spec: { provider: existing, managed: false, host: "${instance}.example.com", imageVersion: "${version}" }
  claims: { ingressHost: "${instance}.example.com", localMqttPort: "${var.mqtt_port}", connections: 60 }
cluster: { maxConnections: 600 }
vars: { mqtt_port: 1883, site: "${instance}-site" }
verify: [{ name: API answers, run: ["./verify.sh", "${kube_context}", "${run_id}", "${var.site}"] }]
"#;

/// A bundle in a temporary folder.
struct Place(tempfile::TempDir);

impl Place {
    fn new(text: &str) -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        for file in [
            "operator/a.yaml",
            "operator/b/c.json",
            "infra/cluster/main.tf",
            "infra/instance/main.tofu",
            "chart/Chart.yaml",
            "values.yaml",
        ] {
            place.write(file, "");
        }
        place.write("verify.sh", "#!/bin/sh\n");
        fs::set_permissions(place.path("verify.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
        place.write("bundle.yaml", text);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.0.path()).expect("its real path").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    fn open(&self) -> Result<Written, Failure> {
        Bundle::open(&self.path(""), Path::new("/nonexistent"), None)
    }

    /// What is said of this bundle, without the folder it is in.
    fn said(&self, inputs: &Inputs) -> Vec<String> {
        let Err(failure) = self.open().and_then(|written| written.resolve(inputs)) else { return Vec::new() };
        let folder = self.path("").display().to_string();
        let mut all = vec![failure.message];
        all.extend(failure.causes);
        all.into_iter().map(|sentence| sentence.replace(&folder, "")).collect()
    }
}

fn given(line: &[&str], environment: &[(&str, &str)]) -> Given {
    let line: Vec<_> = line.iter().map(|argument| (*argument).to_owned()).collect();
    let secrets = [
        ("DCCTL_VAR_DB_PASSWORD", "hunter2-db"),
        ("DCCTL_VAR_root_key", "hunter2-root"),
        ("DCCTL_VAR_LICENSE", "hunter2-lic"),
    ];
    let environment = Environment::of(secrets.into_iter().chain(environment.iter().copied()));
    Given::gather(&line, &[], &environment).expect("good variables")
}

fn inputs(instance: Option<&str>, given: Given) -> Inputs {
    Inputs {
        instance: instance.map(str::to_owned),
        kube_context: "kind-kind".to_owned(),
        kubeconfig: PathBuf::from("/run/kubeconfig"),
        run_id: "r1".to_owned(),
        given,
    }
}

fn demo() -> Inputs {
    inputs(Some("demo"), given(&["note=007"], &[]))
}

fn resolve(place: &Place, inputs: &Inputs) -> Bundle {
    place.open().and_then(|written| written.resolve(inputs)).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn a_good_bundle_means_what_it_says_for_an_instance() {
    let place = Place::new(GOOD);
    let bundle = resolve(&place, &demo());
    assert_eq!((bundle.name.as_str(), bundle.version.as_str(), bundle.root.clone()), ("shop", "0.9.2", place.path("")));
    assert_eq!(bundle.build, Some(vec!["make".to_owned(), "images".to_owned()]));
    let operator = bundle.operator.expect("an operator");
    assert_eq!(operator.manifests, [place.path("operator/a.yaml"), place.path("operator/b/c.json")]);
    assert_eq!(operator.deployment.expect("a deployment").name, "dc-controller-manager");
    assert!(bundle.prerequisites.is_none());
    assert_eq!(bundle.max_connections, Some(600));
    assert_eq!(bundle.verify.len(), 1);
    let verify = &bundle.verify[0];
    assert_eq!(verify.run, [place.path("verify.sh").to_str().expect("text"), "kind-kind", "r1", "demo-site"]);
    assert_eq!(verify.timeout, Duration::from_secs(120));

    let instance = bundle.instance.expect("an instance");
    assert_eq!(instance.namespace, "dci-demo");
    assert_eq!(instance.readiness_timeout, Duration::from_secs(5400));
    let infrastructure = instance.infrastructure.expect("a root");
    assert_eq!(infrastructure.dir, place.path("infra/instance"));
    assert_eq!(
        serde_json::Value::Object(infrastructure.vars),
        json!({"kubeconfig_path": "/run/kubeconfig", "name": "demo", "ha": false, "replicas": 1, "note": "007"})
    );
    assert_eq!(infrastructure.secrets["db_password"].expose(), "hunter2-db");
    let chart = instance.chart.expect("a chart");
    assert_eq!((chart.release.as_str(), chart.namespace.as_str()), ("dc-demo", "dci-demo"));
    assert_eq!((chart.path, chart.values), (place.path("chart"), vec![place.path("values.yaml")]));
    assert_eq!(serde_json::Value::Object(chart.set), json!({"instance.id": "dci-demo", "port": 1883}));
    assert_eq!(chart.outputs["broker.ca"], "nats_ca");
    assert_eq!(chart.secrets["secrets.rootKey"].expose(), "hunter2-root");
    assert_eq!(chart.timeout, Duration::from_secs(90));
    let declaration = instance.declaration.expect("a declaration");
    assert_eq!(
        declaration.spec,
        json!({"provider": "existing", "managed": false, "host": "demo.example.com", "imageVersion": "0.9.2"})
    );
    assert_eq!(instance.claims.ingress_host.as_deref(), Some("demo.example.com"));
    assert_eq!((instance.claims.local_mqtt_port, instance.claims.connections), (Some(1883), Some(60)));
}

#[test]
fn a_run_on_the_cluster_needs_nothing_of_an_instance() {
    let place = Place::new(GOOD);
    let only_license = Given::gather(&[], &[], &Environment::of([("DCCTL_VAR_LICENSE", "hunter2")])).expect("good");
    let bundle = resolve(&place, &inputs(None, only_license));
    let prerequisites = bundle.prerequisites.expect("a root");
    assert_eq!(prerequisites.secrets["license"].expose(), "hunter2");
    assert_eq!(prerequisites.vars["create_namespace"], json!(false));
    assert!(
        bundle.operator.is_some() && bundle.instance.is_none() && bundle.verify.is_empty() && bundle.build.is_none()
    );
}

#[test]
fn a_bundle_of_nothing_but_its_name_is_a_bundle() {
    let place =
        Place::new("apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: { name: a, version: '1' }\nverify:\n");
    let bundle = resolve(&place, &inputs(Some("demo"), Given::default()));
    assert!(bundle.operator.is_none() && bundle.instance.is_none() && bundle.verify.is_empty());
}

#[test]
fn a_bundle_crosses_the_socket_and_shows_no_secret() {
    let place = Place::new(GOOD);
    let bundle = resolve(&place, &demo());
    let text = serde_json::to_string(&bundle).expect("JSON");
    let back: Bundle = serde_json::from_str(&text).expect("a bundle");
    assert_eq!(serde_json::to_string(&back).expect("JSON"), text);
    let mut secrets: Vec<_> = back.secrets().map(|(name, secret)| (name, secret.expose())).collect();
    secrets.sort_unstable();
    assert_eq!(secrets, [("db_password", "hunter2-db"), ("secrets.rootKey", "hunter2-root")]);
    assert!(!format!("{bundle:?}").contains("hunter2"));
}

#[test]
fn what_is_given_overrides_the_bundle_with_the_bundles_types() {
    let place = Place::new(GOOD);
    let inputs = inputs(
        Some("demo"),
        given(&["note=x", "replicas=3", "mqtt_port=1884"], &[("DCCTL_VAR_HA", "true"), ("DCCTL_VAR_SITE", "")]),
    );
    let instance = resolve(&place, &inputs).instance.expect("an instance");
    let vars = instance.infrastructure.expect("a root").vars;
    assert_eq!((&vars["replicas"], &vars["ha"], &vars["note"]), (&json!(3), &json!(true), &json!("x")));
    assert_eq!(instance.claims.local_mqtt_port, Some(1884));
}

#[test]
fn a_text_without_a_type_is_read_as_the_number_that_a_field_needs() {
    let text = GOOD.replace("mqtt_port: 1883, ", "").replace(", port: \"${var.mqtt_port}\"", "");
    let place = Place::new(&text);
    let good = inputs(Some("demo"), given(&["note=x", "mqtt_port=1884"], &[]));
    assert_eq!(resolve(&place, &good).instance.expect("an instance").claims.local_mqtt_port, Some(1884));
    let bad = inputs(Some("demo"), given(&["note=x", "mqtt_port=99999"], &[]));
    assert_eq!(
        place.said(&bad),
        ["bundle.yaml:30:68: instance.claims.localMqttPort: a whole number from 1 to 65535 belongs here"]
    );
}

#[test]
fn what_is_not_a_bundle_is_said_in_one_sentence() {
    let begins = "a bundle begins with `apiVersion: dcctl.devicechain.io/v1` and `kind: Bundle`";
    let cases = [
        ("", format!("bundle.yaml:1:1: is empty; {begins}")),
        ("- a\n", format!("bundle.yaml:1:1: this is not a bundle; {begins}")),
        ("kind: Bundle\n", format!("bundle.yaml:1:1: this is not a bundle; {begins}")),
        ("apiVersion: v1\nkind: Pod\n", format!("bundle.yaml:2:7: kind: this is not a bundle but `Pod`; {begins}")),
        (
            "apiVersion: dcctl.devicechain.io/v2\nkind: Bundle\n",
            "bundle.yaml:1:13: apiVersion: this dcctl reads `dcctl.devicechain.io/v1`, not `dcctl.devicechain.io/v2`"
                .to_owned(),
        ),
        ("kind: Bundle\nkind: Bundle\n", "bundle.yaml:2:1: the key `kind` is there twice".to_owned()),
        ("a: [\n", "bundle.yaml:1:4: this is not YAML: unclosed bracket '['".to_owned()),
    ];
    for (text, expected) in cases {
        assert_eq!(Place::new(text).said(&demo()), [expected], "{text}");
    }
    let place = Place::new("");
    fs::write(place.path("bundle.yaml"), b"kind: Bundle\nname: \xff\n").expect("a file");
    assert_eq!(place.said(&demo()), ["bundle.yaml:2: this is not UTF-8 text"]);
}

#[test]
fn a_bundle_that_is_not_there_is_said_with_what_to_give() {
    let place = Place::new(GOOD);
    let open = |name: &str| {
        let failure = Bundle::open(&place.path(name), Path::new("/nonexistent"), None).expect_err(name);
        assert_eq!(failure.code, Code::BundleInvalid);
        (failure.message.replace(&place.path("").display().to_string(), ""), failure.hints.join(" "))
    };
    let hint = "Give the folder that holds bundle.yaml, or its .tar.gz, with --bundle.";
    assert_eq!(open("gone"), ("there is no bundle at gone".to_owned(), hint.to_owned()));
    assert_eq!(
        open("chart"),
        ("chart is not a bundle: there is no `bundle.yaml` in the bundle".to_owned(), String::new())
    );
    let not_a_folder = "bundle.yaml is not a bundle: it is neither a folder nor a .tar.gz".to_owned();
    assert_eq!(open("bundle.yaml"), (not_a_folder, "Give the folder that bundle.yaml is in.".to_owned()));
    fs::rename(place.path("bundle.yaml"), place.path("bundle.yml")).expect("renamed");
    assert_eq!(open("").1, "Rename bundle.yml to bundle.yaml.");
}

#[test]
fn nothing_in_a_bundle_may_lead_out_of_it() {
    let outside = tempfile::NamedTempFile::new().expect("a file");
    let cases = [
        ("chart/files/x", "bundle.yaml:19:11: instance.chart.path: the link `chart/files/x` leaves the bundle"),
        (
            "infra/instance/x.tf",
            "bundle.yaml:15:11: instance.infrastructure.root: the link `infra/instance/x.tf` leaves the bundle",
        ),
        ("operator/z.yaml", "bundle.yaml:6:14: operator.manifests: the link `operator/z.yaml` leaves the bundle"),
    ];
    for (link, expected) in cases {
        let place = Place::new(GOOD);
        fs::create_dir_all(place.path(link).parent().expect("a parent")).expect("folders");
        symlink(outside.path(), place.path(link)).expect("a link");
        assert_eq!(place.said(&demo()), [expected]);
    }
    let place = Place::new(GOOD);
    fs::remove_file(place.path("values.yaml")).expect("removed");
    symlink(outside.path(), place.path("values.yaml")).expect("a link");
    assert_eq!(
        place.said(&demo()),
        ["bundle.yaml:21:14: instance.chart.values[0]: `values.yaml` leaves the bundle by a link"]
    );
    fs::remove_file(place.path("bundle.yaml")).expect("removed");
    symlink(outside.path(), place.path("bundle.yaml")).expect("a link");
    assert_eq!(place.said(&demo()), [" is not a bundle: `bundle.yaml` leaves the bundle by a link"]);
}

#[test]
fn a_kustomization_is_not_a_manifest() {
    let place = Place::new(GOOD);
    place.write("operator/kustomization.yaml", "");
    let expected = "bundle.yaml:6:14: operator.manifests: `operator/kustomization.yaml` is for kustomize, and manifests are applied as they are: build them first";
    assert_eq!(place.said(&demo()), [expected]);
}

#[test]
fn what_is_given_and_cannot_be_used_is_said() {
    let place = Place::new(GOOD);
    let said = |line: &[&str], environment: &[(&str, &str)]| {
        let line: Vec<_> = line.iter().copied().chain(["note=x"]).collect();
        place.said(&inputs(Some("demo"), given(&line, environment)))
    };
    assert_eq!(
        said(&["db_password=hunter2"], &[]),
        [
            "--var db_password: a secret may not be on a command line, which everybody on the machine can see: set DCCTL_VAR_DB_PASSWORD, or give it in a --var-file"
        ]
    );
    assert_eq!(
        said(&["mqtt_prt=1"], &[]),
        ["--var mqtt_prt: this bundle asks for no variable `mqtt_prt`; did you mean `mqtt_port`?"]
    );
    assert_eq!(said(&["replicas=two"], &[]), ["--var replicas: a number belongs here, as in the bundle"]);
    assert_eq!(said(&["create_namespace=true"], &[]), [""; 0]);
    let pinned = "the variable kubeconfig_path: the bundle makes it from `${kubeconfig}` or `${kube_context}`, and a run acts on the cluster that it locks: use --kube-context";
    assert_eq!(said(&["kubeconfig_path=/other"], &[]), [pinned]);
    assert_eq!(said(&[], &[("DCCTL_VAR_KUBECONFIG_PATH", "/other")]), [pinned]);
    assert_eq!(
        said(&[], &[("DCCTL_VAR_DB_PASSWORD", "")]),
        [
            "bundle.yaml:17:29: instance.infrastructure.secrets.db_password: the secret `db_password` is not given (DCCTL_VAR_DB_PASSWORD is set but empty): set DCCTL_VAR_DB_PASSWORD, or give it in a --var-file"
        ]
    );
}

#[test]
fn a_name_in_a_file_that_nobody_asks_for_is_worth_a_note() {
    let place = Place::new(GOOD);
    place.write("vars.yaml", "note: x\nmqtt_prt: 1\nlicense: y\n");
    let environment = Environment::of([("DCCTL_VAR_DB_PASSWORD", "x"), ("DCCTL_VAR_ROOT_KEY", "y")]);
    let given = Given::gather(&[], &[place.path("vars.yaml")], &environment).expect("good variables");
    let bundle = resolve(&place, &inputs(Some("demo"), given));
    let note = "this bundle asks for no variable `mqtt_prt`; did you mean `mqtt_port`?";
    assert_eq!(bundle.notes, [format!("{}:2:1: mqtt_prt: {note}", place.path("vars.yaml").display())]);
}

#[test]
fn a_wrong_instance_name_is_the_callers() {
    let place = Place::new(GOOD);
    let failure = place
        .open()
        .and_then(|written| written.resolve(&inputs(Some("Demo"), Given::default())))
        .expect_err("a bad name");
    assert_eq!(failure.code, Code::UsageInvalid);
}

#[test]
fn an_archive_is_a_bundle_too() {
    let place = Place::new(GOOD);
    let archive =
        place.path("../").join(format!("{}.tar.gz", place.0.path().file_name().expect("a name").to_string_lossy()));
    let gzip = flate2::write::GzEncoder::new(fs::File::create(&archive).expect("a file"), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    builder.append_dir_all("shop-0.9.2", place.path("")).expect("everything");
    builder.into_inner().and_then(flate2::write::GzEncoder::finish).expect("an archive");
    let scratch = tempfile::tempdir().expect("a folder");
    let written = Bundle::open(&archive, &scratch.path().join("bundle"), None).expect("a bundle");
    let digest = written.digest().cloned().expect("an archive has one");
    let again = Bundle::open(&archive, &scratch.path().join("again"), Some(&digest)).expect("it is that one");
    assert_eq!(again.digest(), Some(&digest));
    let folder =
        Bundle::open(&place.path(""), Path::new("/nonexistent"), Some(&digest)).expect_err("a folder has none");
    assert_eq!(folder.code, Code::OptionInvalid);
    fs::remove_file(&archive).expect("removed");
    assert_eq!(written.root(), fs::canonicalize(scratch.path()).expect("real").join("bundle/shop-0.9.2"));
    assert_eq!(written.resolve(&demo()).expect("resolved").verify.len(), 1);
}

#[test]
fn the_bundles_that_the_project_ships_are_good() {
    let open = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
        Bundle::open(&path, Path::new("/nonexistent"), None).unwrap_or_else(|failure| panic!("{failure:?}"))
    };
    let resolve =
        |name: &str, inputs: &Inputs| open(name).resolve(inputs).unwrap_or_else(|failure| panic!("{failure:?}"));
    let install = resolve("demo", &inputs(None, Given::default()));
    assert_eq!(install.operator.map(|operator| operator.manifests.len()), Some(5));
    assert_eq!(install.prerequisites.map(|root| root.vars["pause"].clone()), Some(json!("2s")));
    let instance = resolve("demo", &inputs(Some("demo"), given(&["pause=1ms"], &[]))).instance.expect("an instance");
    assert_eq!(instance.infrastructure.map(|root| root.vars["pause"].clone()), Some(json!("1ms")));
    assert_eq!(instance.chart.map(|chart| chart.set["replicas"].clone()), Some(json!(2)));
    let old = resolve("schema-old", &inputs(Some("demo"), Given::default()));
    assert_eq!(old.instance.map(|instance| instance.namespace), Some("dci-demo".to_owned()));
}

#[test]
fn whatever_a_bundle_says_it_is_read_or_refused_in_words() {
    let place = Place::new(GOOD);
    let mut dice = fastrand::Rng::with_seed(42);
    let mut lot = |below: usize| dice.usize(..below);
    let pieces = [
        "${instance}",
        "${",
        "${var.site}",
        "{",
        "]",
        "&a ",
        "*a",
        "- ",
        "\n",
        ": ",
        "~",
        "7",
        "'",
        "\u{7f}",
        "é",
        "<<: *a",
    ];
    for _ in 0..150 {
        let mut text: Vec<char> = GOOD.chars().collect();
        for _ in 0..=lot(3) {
            let at = lot(text.len());
            let until = (at + lot(30)).min(text.len());
            let piece: Vec<char> = pieces[lot(pieces.len())].chars().collect();
            text.splice(at..until, piece);
        }
        let text: String = text.into_iter().collect();
        place.write("bundle.yaml", &text);
        for instance in [None, Some("demo")] {
            if let Err(failure) =
                place.open().and_then(|written| written.resolve(&inputs(instance, given(&["note=x"], &[]))))
            {
                assert!(!failure.message.is_empty() && !failure.message.contains("hunter2"), "{text}");
            }
        }
    }
}
