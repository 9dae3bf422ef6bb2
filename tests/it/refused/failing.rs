//! Steps that fail: exit code 1 with the tool's own words in the events, the JUnit case and the human log; the phase is
//! `Failed`, and the lock is given back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::{Bed, wait};
use crate::refused::{HEAD, Told, told};

const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");
const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

/// What every instance of these tests is declared as.
const INSTANCE: &str = "instance:\n  namespace: \"dci-${instance}\"\n  declaration:\n    \
                        apiVersion: core.devicechain.io/v1beta1\n    spec: { provider: existing, managed: false }\n";

/// One control plane that knows what an instance is, and one bundle.
pub(crate) struct Rig {
    pub(crate) bed: Bed,
    pub(crate) instance: String,
    pub(crate) bundle: PathBuf,
}

impl Rig {
    /// The bundle declares an instance; `rest` follows, in the section of the instance as long as it is indented.
    pub(crate) fn new(rest: &str) -> Rig {
        let bed = Bed::take();
        bed.api().apply(DEFINITION).expect("the bed may do everything");
        wait::fact("the definition to be served", || bed.api().get(INSTANCES).ok().flatten());
        let file = bed.file("bundle/bundle.yaml");
        let bundle = file.parent().expect("it is in a folder").to_owned();
        let rig = Rig { bed, instance: Bed::instance(), bundle };
        rig.write("bundle.yaml", &format!("{HEAD}{INSTANCE}{rest}"));
        rig
    }

    /// A file of the bundle.
    pub(crate) fn write(&self, name: &str, text: &str) -> &Rig {
        self.bed.write(&format!("bundle/{name}"), text);
        self
    }

    /// A program of the bundle.
    pub(crate) fn script(&self, name: &str, text: &str) -> &Rig {
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(self.bundle.join(name), fs::Permissions::from_mode(0o755)).expect("it is the test's own");
        self
    }

    /// A bootstrap that fails in this step, with these words of the tool in every form.
    #[track_caller]
    fn fails(&self, code: &str, step: &str, words: &[&str]) -> Told {
        let run = || self.bed.dcctl(["bootstrap", &self.instance, "--bundle"]).arg(&self.bundle);
        let said = told(&self.bed, run, 1, code);
        assert_in_every_form(&said, step, words);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"failed".into(), &"released".into()), "{verdict}");
        assert_eq!(self.phase(), "Failed");
        said
    }

    fn phase(&self) -> Value {
        let path = format!("{INSTANCES}/{}", self.instance);
        let found = self.bed.api().get(&path).expect("the API server answers").expect("it was declared");
        found["metadata"]["annotations"]["core.devicechain.io/phase"].clone()
    }
}

/// The step is the one that failed; the words are in an event before the verdict, in the report, and in the human log.
#[track_caller]
fn assert_in_every_form(said: &Told, step: &str, words: &[&str]) {
    let failed: Vec<&Value> = said
        .events
        .iter()
        .filter(|event| event["type"] == "step.finished" && event["data"]["outcome"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["step"], step);
    let about: Vec<String> = said.events[..said.events.len() - 1].iter().map(Value::to_string).collect();
    let human = super::words(&said.human);
    for word in words {
        assert!(about.iter().any(|event| event.contains(word)), "no event says {word:?}:\n{}", about.join("\n"));
        assert!(
            said.report.text.contains(&word.replace('"', "&quot;")) || said.report.text.contains(word),
            "{}",
            said.report.text
        );
        assert!(human.contains(&super::words(word)), "people are not told {word:?}:\n{}", said.human);
    }
    let case = said.report.case(step, "step");
    assert!(matches!(case.result.as_str(), "failure" | "error"), "{case:?}");
}

#[test]
fn a_manifest_that_the_api_server_rejects_is_named_with_its_own_sentence() {
    let bed = Bed::take();
    let text = "apiVersion: v1\nkind: Service\nmetadata: { name: wrong, namespace: default }\nspec: { ports: [{ port: 70000 }] }\n";
    bed.write("bundle/operator/wrong.yaml", text);
    bed.write("bundle/bundle.yaml", &format!("{HEAD}operator: {{ manifests: operator/ }}\n"));
    let bundle = bed.file("bundle");
    let said = told(&bed, || bed.dcctl(["install", "--bundle"]).arg(&bundle), 1, "manifest.rejected");
    assert_in_every_form(&said, "install-the-operator", &["wrong.yaml", "70000", "must be between 1 and 65535"]);
    assert_eq!(said.report.only_bad().result, "failure", "{}", said.report.text);
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"failed".into(), &"released".into()), "{verdict}");
}

#[test]
fn a_manifest_of_a_kind_that_nobody_serves_is_named() {
    let bed = Bed::take();
    let text = "apiVersion: shop.test/v1\nkind: Basket\nmetadata: { name: wrong }\n";
    bed.write("bundle/operator/wrong.yaml", text);
    bed.write("bundle/bundle.yaml", &format!("{HEAD}operator: {{ manifests: operator/ }}\n"));
    let bundle = bed.file("bundle");
    let said = told(&bed, || bed.dcctl(["install", "--bundle"]).arg(&bundle), 1, "manifest.rejected");
    assert_in_every_form(&said, "install-the-operator", &["wrong.yaml", "Basket", "shop.test/v1"]);
}

#[test]
fn a_plan_that_opentofu_refuses_is_told_with_its_diagnostic() {
    let rig = Rig::new("  infrastructure: { root: infra }\n");
    rig.write(
        "infra/main.tf",
        "variable \"moon\" { default = \"low\" }\nresource \"terraform_data\" \"gate\" {\n  lifecycle {\n    precondition {\n      condition     = var.moon == \"high\"\n      \
         error_message = \"The moon is in the wrong house.\"\n    }\n  }\n}\n",
    );
    let said = rig.fails("infrastructure.failed", "apply-infrastructure", &["The moon is in the wrong house."]);
    let diagnostic = said.events.iter().find(|event| event["type"] == "diagnostic").expect("there is one");
    assert_eq!(diagnostic["data"]["origin"], "OpenTofu", "{diagnostic}");
    assert_eq!(diagnostic["data"]["severity"], "error", "{diagnostic}");
}

#[test]
fn a_resource_that_fails_has_its_own_case_with_what_opentofu_said() {
    let rig = Rig::new("  infrastructure: { root: infra }\n");
    let ledger = rig.bed.file("ledger.jsonl");
    rig.write(
        "infra/main.tf",
        &format!(
            "terraform {{\n  required_providers {{\n    bed = {{ source = \"dcctl/bed\" }}\n  }}\n}}\n\
             provider \"bed\" {{ ledger = \"{}\" }}\nresource \"terraform_data\" \"fine\" {{}}\n\
             resource \"bed_thing\" \"broken\" {{\n  name = \"dam\"\n  note = \"no clay left\"\n  \
             behaviour = \"fail_half_way\"\n  depends_on = [terraform_data.fine]\n}}\n",
            ledger.display()
        ),
    );
    let words = ["bed_thing.broken", "the thing dam failed half-way", "its note is no clay left"];
    let said = rig.fails("infrastructure.failed", "apply-infrastructure", &words);
    let error = |event: &&Value| event["type"] == "diagnostic" && event["data"]["severity"] == "error";
    let diagnostic = said.events.iter().find(error).expect("there is one");
    assert_eq!(diagnostic["data"]["address"], "bed_thing.broken", "{diagnostic}");
    let broken = said.report.case("apply-infrastructure", "bed_thing.broken");
    assert_eq!(
        (&*broken.result, &*broken.message),
        ("failure", "the thing dam failed half-way"),
        "{}",
        said.report.text
    );
    assert!(broken.body.contains("its note is no clay left"), "{}", broken.body);
    assert_eq!(said.report.case("apply-infrastructure", "terraform_data.fine").result, "passed");
}

#[test]
fn a_chart_that_does_not_render_is_told_in_helms_words() {
    let rig = Rig::new("  chart: { path: chart, release: \"dc-${instance}\" }\n");
    rig.write("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n")
        .write("chart/templates/broken.yaml", "{{ fail \"the tide is too low\" }}\n");
    rig.fails("chart.failed", "install-chart", &["the tide is too low"]);
}

#[test]
fn a_chart_whose_pods_never_become_ready_is_told_with_the_workload() {
    let rig = Rig::new("  chart: { path: chart, release: \"dc-${instance}\", timeout: 2s }\n");
    rig.write("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n")
        .write("chart/templates/web.yaml", &never_ready("web").to_string());
    rig.fails("chart.failed", "install-chart", &["Deployment web", "busybox:1.37", "cannot be pulled"]);
}

#[test]
fn workloads_that_are_not_ready_in_time_are_named_with_the_reason() {
    let rig = Rig::new("  readiness: { timeout: 2s }\n");
    let namespace = format!("dci-{}", rig.instance);
    let labels = json!({ "app.kubernetes.io/managed-by": "dcctl", "core.devicechain.io/instance": rig.instance });
    let api = rig.bed.api();
    api.create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace, "labels": labels } }))
        .expect("the bed may do everything");
    api.create(&format!("/apis/apps/v1/namespaces/{namespace}/deployments"), &never_ready("web"))
        .expect("the bed may do everything");
    wait::fact("its pod to be in trouble", || {
        let pods = api.list(&format!("/api/v1/namespaces/{namespace}/pods")).ok()?;
        pods.first().filter(|pod| pod.to_string().contains("ImagePullBackOff")).map(drop)
    });
    let said =
        rig.fails("readiness.timed_out", "wait-for-readiness", &["Deployment web", "busybox:1.37", "cannot be pulled"]);
    let cases = said.report.with("failure");
    assert!(cases.iter().any(|case| case.name == format!("Deployment/{namespace}/web")), "{}", said.report.text);
}

fn never_ready(name: &str) -> Value {
    let labels = json!({ "app": name, "bed.dcctl/never-ready": "true" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "busybox:1.37" }] },
            },
        },
    })
}

#[test]
fn a_verify_command_that_fails_is_told_with_what_it_printed() {
    let rig = Rig::new(
        "verify:\n  - { name: The sea is calm, run: [./calm.sh] }\n  - { name: The sky is blue, run: [./sky.sh] }\n",
    );
    rig.script("calm.sh", "echo calm").script("sky.sh", "echo looking up; echo 'the sky is grey' >&2; exit 7");
    let said = rig.fails("verify.failed", "verify", &["The sky is blue", "the sky is grey"]);
    assert_eq!(said.report.case("verify", "verify: The sea is calm").result, "passed");
    assert_eq!(said.report.case("verify", "verify: The sky is blue").result, "failure");
    assert!(said.report.case("verify", "step").output.contains("looking up"), "{}", said.report.text);
}

#[test]
fn a_verify_command_that_takes_too_long_is_ended_and_told() {
    let rig = Rig::new("verify:\n  - { name: The tide comes in, run: [sleep, \"600\"], timeout: 1s }\n");
    rig.fails("verify.failed", "verify", &["The tide comes in", "was not done after 1s"]);
}

#[test]
fn an_image_build_that_fails_ends_the_run_before_the_lock() {
    let rig = Rig::new("images: { build: [./build.sh] }\n");
    rig.script("build.sh", "echo 'no clay left' >&2; exit 2");
    let run = || rig.bed.dcctl(["bootstrap", &rig.instance, "--build", "--bundle"]).arg(&rig.bundle);
    let said = told(&rig.bed, run, 1, "build.failed");
    assert_in_every_form(&said, "build-images", &["no clay left"]);
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!(verdict["lock"], "never_taken", "{verdict}");
    assert_eq!(rig.bed.api().list(INSTANCES).expect("the API server answers"), Vec::<Value>::new());
}
