//! Secrets from outside: whatever a tool prints, none is in an output, a report, the journal, or the run directory.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::bed::dcctl::Finished;
use crate::bed::{Dcctl, junit};
use crate::encodings::{self, encoded};
use crate::refused::failing::Rig;

/// A secret of one line, and one of several.
const PASSWORD: &str = "zebra\"cross/ing <4711> & 50%ü";
const KEY: &str = "-----BEGIN TEST KEY-----\nfirst line of the key\nsecond line of the key\n-----END TEST KEY-----\n";

/// Everything that must not be found anywhere: each secret, each line of it that tells something, both in every encoding,
/// the halves of the one-line secret, and what `base64` makes of the other.
fn forms() -> &'static [String] {
    static FORMS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let lines = KEY.lines().filter(|line| !line.starts_with("-----"));
        let secrets: Vec<String> = lines.chain([PASSWORD]).map(str::to_owned).collect();
        let halves = [&PASSWORD[..MIDDLE], &PASSWORD[MIDDLE..]].map(str::to_owned);
        let key = [KEY, KEY.trim_end()].map(|secret| STANDARD.encode(secret)[..40].to_owned());
        // Without Python they are looked for as they are.
        let encoded = junit::python().map(|python| encoded(python, &secrets)).unwrap_or_default();
        encoded.into_iter().map(|[_, _, text]| text).chain(secrets).chain(halves).chain(key).collect()
    });
    &FORMS
}

/// Where the one-line secret is parted: each half is enough to be known by.
const MIDDLE: usize = 11;

/// The two secrets, by the two ways in which they may be given.
fn with_secrets(rig: &Rig, run: Dcctl) -> Dcctl {
    let file = rig.bed.write("secrets.yaml", &format!("key: |\n  {}\n", KEY.trim_end().replace('\n', "\n  ")));
    run.env("DCCTL_VAR_PASSWORD", PASSWORD).arg("--var-file").arg(file)
}

/// What tools have to print: a file outside of the bundle, so that the bundle itself holds no secret.
fn leak(rig: &Rig) -> std::path::PathBuf {
    rig.bed.write("leak", &format!("password is {PASSWORD} here\n{KEY}"))
}

/// A file with the one-line secret, and colour in the middle of it.
fn coloured(rig: &Rig) -> String {
    let (before, after) = PASSWORD.split_at(MIDDLE);
    rig.bed.write("coloured", &format!("{before}\u{1b}[1;31m{after}\u{1b}[0m")).display().to_string()
}

/// Nothing of it is anywhere: the outputs, the reports, the journal, the run directory.
#[track_caller]
fn assert_nothing_leaked(finished: &Finished, folders: &[&Path]) {
    assert_clean("standard output", finished.stdout.as_bytes());
    assert_clean("standard error", finished.stderr.as_bytes());
    for folder in folders {
        assert_clean_folder(folder);
    }
}

#[track_caller]
fn assert_clean(what: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for form in forms() {
        assert!(!text.contains(form), "{what} has {form:?}:\n{text}");
    }
}

#[track_caller]
fn assert_clean_folder(folder: &Path) {
    for entry in fs::read_dir(folder).expect("it is a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            assert_clean_folder(&path);
        } else {
            assert_clean(&path.display().to_string(), &fs::read(&path).expect("it can be read"));
        }
    }
}

/// Runs it in both forms, with every report, and looks everywhere.
#[track_caller]
fn assert_keeps_secrets(rig: &Rig, code: i32) -> String {
    let mut shown = String::new();
    for form in ["jsonl", "human"] {
        let run = rig.bed.dcctl(["bootstrap", &rig.instance, "--output", form, "--bundle"]).arg(&rig.bundle);
        let (reports, runs) = (rig.bed.file("reports"), rig.bed.file("home/.local/state/dcctl/runs"));
        fs::create_dir_all(&reports).expect("the test's folder can be written");
        let run = with_secrets(rig, run)
            .arg("--events-file")
            .arg(reports.join("events.jsonl"))
            .arg("--junit")
            .arg(reports.join("junit.xml"));
        let finished = run.run().expect_code(code);
        assert_nothing_leaked(&finished, &[&reports, &runs]);
        let journal = finished.journal().expect("it was a run").path().with_file_name("supervisor.log");
        assert_clean("supervisor.log", &fs::read(journal).unwrap_or_default());
        shown.push_str(&finished.stdout);
    }
    shown
}

const SECRETS: &str = "secrets: { password: password, key: key }";

/// A root that takes the two secrets and says them in this resource or output.
fn root(rig: &Rig, rest: &str) {
    let variables = "variable \"password\" {\n  type = string\n  sensitive = true\n}\nvariable \"key\" {\n  type = string\n  sensitive = true\n}\n";
    rig.write("infra/main.tf", &format!("{variables}{rest}"));
}

#[test]
fn a_verify_command_that_prints_them_in_every_form_gives_none_away() {
    if junit::python().is_none() {
        return;
    }
    let rig = Rig::new(&format!(
        "  infrastructure: {{ root: infra, {SECRETS} }}\nverify: [{{ name: All is well, run: [./leak.sh] }}]\n"
    ));
    root(&rig, "");
    let leak = leak(&rig).display().to_string();
    let coloured = coloured(&rig);
    let secrets = serde_json::to_string(&[PASSWORD, "first line of the key"]).expect("texts");
    let secrets = rig.bed.write("secrets.json", &secrets).display().to_string();
    let program = rig.bed.write("encodings.py", encodings::PROGRAM).display().to_string();
    // As it is, in every encoding, encoded in one line and in several, with colour in the middle, in the middle of a line
    // that is longer than any piece of output or event, and across the border of such pieces.
    let script = format!(
        "cat {leak}; python3 {program} <{secrets} || exit 9; base64 -w0 {leak}; echo; base64 {leak}; base64 -w64 {leak}\n\
         printf %s '{{\"password\":\"'; head -c {end} {leak} | tail -c {length}; echo '\"}}'\n\
         for length in 8150 8170 8180 8190 16350 16370 16380; do for file in {leak} {coloured}; do\n\
         head -c $length /dev/zero | tr '\\0' x; cat $file; head -c 20000 /dev/zero | tr '\\0' y; echo; done; done\n\
         cat {leak} >&2; cat {coloured} >&2; exit 1",
        end = "password is ".len() + PASSWORD.len(),
        length = PASSWORD.len(),
    );
    rig.script("leak.sh", &script);
    let shown = assert_keeps_secrets(&rig, 1);
    assert!(shown.contains("verify.failed") && shown.contains("password is [redacted] here"), "{shown}");
    assert!(shown.contains("percent, a path segment"), "python3 did not run: {shown}");
}

#[test]
fn an_opentofu_that_says_them_in_an_error_gives_none_away() {
    let rig = Rig::new(&format!("  infrastructure: {{ root: infra, {SECRETS} }}\n"));
    root(
        &rig,
        "resource \"terraform_data\" \"gate\" {\n  input = nonsensitive(var.key)\n  lifecycle {\n    precondition {\n      \
         condition = length(var.password) > 100\n      error_message = \"Wrong: ${nonsensitive(var.password)}, \
         ${nonsensitive(base64encode(var.key))}, ${nonsensitive(var.key)}\"\n    }\n  }\n}\n",
    );
    let shown = assert_keeps_secrets(&rig, 1);
    assert!(shown.contains("infrastructure.failed") && shown.contains("Wrong: [redacted]"), "{shown}");
}

#[test]
fn a_command_that_opentofu_runs_with_them_gives_none_away() {
    let rig = Rig::new(&format!("  infrastructure: {{ root: infra, {SECRETS} }}\n"));
    root(
        &rig,
        &format!(
            "output \"all\" {{\n  value = nonsensitive(\"${{var.password}} ${{base64encode(var.key)}}\")\n}}\n\
         resource \"terraform_data\" \"gate\" {{\n  input = nonsensitive(var.key)\n  provisioner \"local-exec\" {{\n    \
         command = nonsensitive(\"echo '${{urlencode(var.password)}}'; cat {coloured}; echo '${{var.key}}' >&2; exit 1\")\n  }}\n}}\n",
            coloured = coloured(&rig),
        ),
    );
    let shown = assert_keeps_secrets(&rig, 1);
    assert!(shown.contains("infrastructure.failed") && shown.contains("[redacted]"), "{shown}");
}

#[test]
fn a_secret_that_is_too_short_to_be_hidden_is_told_of_at_the_start() {
    let rig = Rig::new(&format!("  infrastructure: {{ root: infra, {SECRETS} }}\n"));
    root(&rig, "output \"short\" {\n  value = [var.password, 7]\n  sensitive = true\n}\n");
    let run = rig.bed.dcctl(["bootstrap", &rig.instance, "--output", "human", "--bundle"]).arg(&rig.bundle);
    let said = with_secrets(&rig, run).env("DCCTL_VAR_PASSWORD", "abc").run().expect_code(0).stdout;
    let (start, steps) = said.split_once("\n1/").expect("there are steps");
    for (part, told) in
        [(start, "the value of password has fewer than four characters"), (steps, "in the output short has")]
    {
        let told_once = part.split_whitespace().collect::<Vec<_>>().join(" ").matches(told).count();
        assert_eq!(told_once, 1, "{told:?} in\n{said}");
    }
}

#[test]
fn a_helm_that_says_them_in_an_error_gives_none_away() {
    let rig =
        Rig::new("  chart: { path: chart, release: \"dc-${instance}\", secrets: { password: password, key: key } }\n");
    rig.write("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n").write(
        "chart/templates/broken.yaml",
        "{{ fail (printf \"%s is wrong, and so is %s, or %s\" .Values.password .Values.key (b64enc .Values.key)) }}\n",
    );
    let shown = assert_keeps_secrets(&rig, 1);
    assert!(shown.contains("chart.failed") && shown.contains("[redacted]"), "{shown}");
}

#[test]
fn an_api_server_that_repeats_one_from_a_manifest_gives_none_away() {
    let rig = Rig::new(&format!(
        "  infrastructure: {{ root: infra, {SECRETS} }}\n  chart: {{ path: chart, release: \"dc-${{instance}}\", secrets: {{ password: password }} }}\n"
    ));
    root(&rig, "");
    rig.write("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n").write(
        "chart/templates/service.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: { name: web }\nspec: { type: {{ .Values.password | quote }}, ports: [{ port: 80 }] }\n",
    );
    let shown = assert_keeps_secrets(&rig, 1);
    assert!(shown.contains("chart.failed") && shown.contains("[redacted]"), "{shown}");
}

#[test]
fn a_run_that_goes_well_leaves_none_behind() {
    let rig = Rig::new(&format!(
        "  infrastructure: {{ root: infra, {SECRETS} }}\n  chart: {{ path: chart, release: \"dc-${{instance}}\", secrets: {{ password: password, key: key }}, outputs: {{ all: all }} }}\nverify: [{{ name: All is well, run: [./leak.sh] }}]\n"
    ));
    root(&rig, "output \"all\" {\n  value = \"${var.password}${var.key}\"\n  sensitive = true\n}\n");
    rig.write("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n").write(
        "chart/templates/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: { name: web }\nstringData: { all: {{ .Values.all | quote }}, key: {{ .Values.key | quote }} }\n",
    );
    let leak = leak(&rig).display().to_string();
    rig.script("leak.sh", &format!("cat {leak}"));
    // The second run is of an instance that is ready, which a bootstrap does not build over.
    let run = rig.bed.dcctl(["bootstrap", &rig.instance, "--output", "jsonl", "--bundle"]).arg(&rig.bundle);
    let finished = with_secrets(&rig, run).with_junit().run().expect_code(0);
    assert!(finished.stdout.contains("[redacted]"), "{}", finished.stdout);
    assert_nothing_leaked(&finished, &[&rig.bed.file("home/.local/state/dcctl/runs")]);
    assert_clean("the report", finished.junit().text.as_bytes());
}
