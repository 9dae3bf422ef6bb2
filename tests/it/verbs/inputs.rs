//! Which of several values wins, seen in what OpenTofu and Helm were really given.

use std::fs;
use std::io::{Read, Write};

use serde_json::{Value, json};

use crate::bed::{Bed, wait};
use crate::lock::rig::Rig;

const BUNDLE: &str = r#"
apiVersion: dcctl.devicechain.io/v1
kind: Bundle
metadata: { name: inputs, version: 1.2.3 }
vars: { a: bundle, b: bundle, c: bundle, d: bundle, number: 1, list: [1, 2] }
instance:
  namespace: "dci-${instance}"
  infrastructure:
    root: infra
    vars: { given: { a: "${var.a}", b: "${var.b}", c: "${var.c}", d: "${var.d}", number: "${var.number}",
      list: "${var.list}", text: "n${var.number}", instance: "${instance}", version: "${version}" } }
    secrets: { hidden: from_env, buried: from_file }
  chart:
    path: chart/
    release: "r-${instance}"
    values: [values.yaml]
    set: { set.number: "${var.number}", set.context: "${kube_context}", both: set }
    outputs: { output.plain: plain, output.sensitive: sensitive }
    secrets: { secret.it: from_env }
"#;

const ROOT: &str = r#"
variable "given" { type = any }
variable "hidden" {
  type      = string
  sensitive = true
}
variable "buried" {
  type      = string
  sensitive = true
}
resource "terraform_data" "all" { input = var.given }
output "plain" { value = var.given.instance }
output "sensitive" {
  value     = "${var.hidden}/${var.buried}"
  sensitive = true
}
"#;

/// A chart that shows everything that it was given.
const SHOWS: &str = "apiVersion: v1
kind: Secret
metadata: { name: values }
stringData: { values: {{ .Values | toJson | quote }} }
";

#[test]
fn the_command_line_wins_over_files_over_the_environment_over_the_bundle() {
    let bed = Bed::take();
    let write = |name: &str, text: &str| {
        let path = bed.file(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the test's folder can be written");
        fs::write(path, text).expect("the test's folder can be written");
    };
    write("bundle/bundle.yaml", BUNDLE);
    write("bundle/infra/main.tf", ROOT);
    write("bundle/chart/Chart.yaml", "{ apiVersion: v2, name: shows, version: 1.0.0 }");
    write("bundle/chart/values.yaml", "{ own: chart, both: chart, last: chart }");
    write("bundle/chart/templates/shows.yaml", SHOWS);
    write("bundle/values.yaml", "{ both: bundle, ours: bundle, last: bundle }");
    write("first.yaml", "{ c: file, d: file, number: 7, from_file: first-secret }");
    write("second.yaml", "{ from_file: second-secret }");
    write("mine.yaml", "{ last: mine, set: { more: mine } }");

    let secret = "env-secret";
    let run = bed
        .dcctl(["bootstrap", "one", "--output", "jsonl", "--bundle", "bundle", "--state-dir", "state"])
        .args(["--var-file", "first.yaml", "--var-file", "second.yaml", "--var", "d=line", "--values", "mine.yaml"])
        .env("DCCTL_VAR_B", "environment")
        .env("DCCTL_VAR_c", "environment")
        .env("DCCTL_VAR_d", "environment")
        .env("DCCTL_VAR_FROM_ENV", secret);
    let done = run.run().expect_code(0);

    let state: Value = serde_json::from_slice(&fs::read(bed.file("state/infrastructure.tfstate")).expect("a state"))
        .expect("a state is JSON");
    let given = &state["resources"][0]["instances"][0]["attributes"]["input"]["value"];
    let expected = json!({ "a": "bundle", "b": "environment", "c": "file", "d": "line", "number": 7, "list": [1, 2],
        "text": "n7", "instance": "one", "version": "1.2.3" });
    assert_eq!(given, &expected);

    let shown = wait::fact("the chart's object", || {
        bed.api().get("/api/v1/namespaces/dci-one/secrets/values").expect("an answer")
    });
    let shown = decoded(&shown["data"]["values"]);
    let expected = json!({ "own": "chart", "ours": "bundle", "both": "set", "last": "mine",
        "set": { "number": 7, "context": "bed", "more": "mine" },
        "output": { "plain": "one", "sensitive": "env-secret/second-secret" }, "secret": { "it": "env-secret" } });
    assert_eq!(shown, expected);
    for hidden in [secret, "second-secret"] {
        assert!(!done.stdout.contains(hidden), "{hidden} was said:\n{}", done.stdout);
    }
}

#[test]
fn standard_input_is_never_read_and_nothing_waits_for_it() {
    let rig = Rig::new().slow_thing(0.0).checked("if read line; then exit 9; fi");
    let (mut unread, given) = std::io::pipe().expect("a pipe can be made");
    let mut ours = given.try_clone().expect("a descriptor is free");
    ours.write_all(b"yes\n").expect("a pipe takes four bytes");
    let mut run = rig.bootstrap("one");
    run.command().stdin(unread.try_clone().expect("a descriptor is free"));
    // The other end stays open: who reads to the end would wait for ever.
    run.run().expect_code(0);
    drop((ours, given));
    let mut left = String::new();
    unread.read_to_string(&mut left).expect("it is text");
    assert_eq!(left, "yes\n");
}

fn decoded(value: &Value) -> Value {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().expect("text")).expect("base64");
    serde_json::from_slice(&bytes).expect("JSON")
}
