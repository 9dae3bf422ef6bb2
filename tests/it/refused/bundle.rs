//! Bundles that are none, or wrong: exit code 3, with file, line and field, before anything is asked of a cluster.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::bed::{Bed, Dcctl};
use crate::refused::{HEAD, SECRET, install, told};

/// What comes after the head of a bundle (so it begins in line 4), the code, and what is said.
const MISTAKES: &[(&str, &str, &[&str])] = &[
    // Keys and types.
    ("instanse: {}\n", "config.bundle", &["bundle.yaml:4:1: instanse: unknown key; did you mean `instance`?"]),
    (
        "cluster: { maxConnections: many }\n",
        "config.bundle",
        &["bundle.yaml:4:28: cluster.maxConnections: a number belongs here, not text"],
    ),
    ("verify: yes\n", "config.bundle", &["bundle.yaml:4:9: verify: a list belongs here"]),
    ("instance: { chart: [\n", "config.bundle", &["bundle.yaml:4:20: this is not YAML: unclosed bracket '['"]),
    // Placeholders.
    (
        "instance:\n  namespace: \"dci-${instnce}\"\n",
        "config.bundle",
        &["bundle.yaml:5:14: instance.namespace: unknown placeholder `${instnce}`; did you mean `${instance}`?"],
    ),
    (
        "instance:\n  claims: { ingressHost: \"${var.host}\" }\n",
        "config.variable",
        &[
            "bundle.yaml:5:26: instance.claims.ingressHost: `${var.host}` has no value",
            "--var host=…",
            "DCCTL_VAR_HOST",
        ],
    ),
    // Paths.
    (
        "instance:\n  infrastructure: { root: ../elsewhere }\n",
        "config.bundle",
        &["bundle.yaml:5:27: instance.infrastructure.root: `../elsewhere` leaves the bundle"],
    ),
    (
        "instance:\n  infrastructure: { root: out }\n",
        "config.bundle",
        &["bundle.yaml:5:27: instance.infrastructure.root: `out`", "leaves the bundle"],
    ),
    (
        "instance:\n  infrastructure: { root: /etc }\n",
        "config.bundle",
        &["bundle.yaml:5:27: instance.infrastructure.root: `/etc` is absolute"],
    ),
    (
        "instance:\n  infrastructure: { root: infra }\n",
        "config.bundle",
        &["bundle.yaml:5:27: instance.infrastructure.root: there is no `infra` in the bundle"],
    ),
    (
        "instance:\n  infrastructure: { root: \"a\\0b\" }\n",
        "config.bundle",
        &["bundle.yaml:5:27: instance.infrastructure.root: `a\\0b` has a NUL character, and no path has one"],
    ),
    // Secrets.
    (
        "instance:\n  infrastructure: { root: root, secrets: { password: db_password } }\n",
        "config.variable",
        &[
            "bundle.yaml:5:54: instance.infrastructure.secrets.password: the secret `db_password` is not given",
            "DCCTL_VAR_DB_PASSWORD",
        ],
    ),
    (
        "vars: { db_password: x }\ninstance:\n  infrastructure: { root: root, secrets: { password: db_password } }\n",
        "config.bundle",
        &["bundle.yaml:4:9: vars.db_password: is a secret of this bundle, and a bundle carries none"],
    ),
    // Several at once: the first is the sentence, the others are its causes.
    (
        "instanse: {}\nclutser: {}\n",
        "config.bundle",
        &[
            "bundle.yaml:4:1: instanse: unknown key; did you mean `instance`? (the first of 2 mistakes)",
            "bundle.yaml:5:1: clutser",
        ],
    ),
];

/// A bundle with this text, a root that is fine, and a link that leads out of it.
fn bundle(bed: &Bed, name: &str, text: &str) -> PathBuf {
    let file = bed.write(&format!("{name}/bundle.yaml"), text);
    bed.write(&format!("{name}/root/main.tf"), "variable \"password\" {}\n");
    bed.write("outside/main.tf", "");
    let folder = file.parent().expect("it is in a folder").to_owned();
    symlink("../outside", folder.join("out")).expect("the test's folder can be written");
    folder
}

fn bootstrap(bed: &Bed, bundle: &std::path::Path) -> Dcctl {
    bed.dcctl(["bootstrap", "demo", "--bundle"]).arg(bundle)
}

#[test]
fn a_mistake_in_a_bundle_is_said_with_file_line_and_field() {
    let bed = Bed::take();
    for (index, (text, code, says)) in MISTAKES.iter().enumerate() {
        let bundle = bundle(&bed, &format!("bundle-{index}"), &format!("{HEAD}{text}"));
        let run = || bootstrap(&bed, &bundle).env("DCCTL_VAR_UNUSED", SECRET);
        told(&bed, run, 3, code).never_began().says(says).says(&[&format!("bundle-{index}/bundle.yaml")]);
    }
}

#[test]
fn what_is_no_bundle_is_said_with_what_one_is() {
    let bed = Bed::take();
    let missing = bed.file("missing");
    told(&bed, || bootstrap(&bed, &missing), 3, "config.bundle").never_began().says(&[
        "there is no bundle at",
        "bundle.yaml",
        "--bundle",
    ]);
    let empty = bed.file("empty");
    fs::create_dir(&empty).expect("the test's folder can be written");
    told(&bed, || bootstrap(&bed, &empty), 3, "config.bundle").never_began().says(&["bundle.yaml"]);
    let text = bed.write("notes.txt", "nothing of the kind\n");
    told(&bed, || bootstrap(&bed, &text), 3, "config.bundle").never_began().says(&["notes.txt"]);
    let broken = bed.write("broken.tar.gz", "nothing of the kind\n");
    told(&bed, || bootstrap(&bed, &broken), 3, "config.bundle").never_began().says(&["broken.tar.gz"]);
    let huge = (0..50_000).map(|number| format!("key{number}: 1\n")).collect::<Vec<_>>().concat();
    for (name, text, says) in [
        ("other", "apiVersion: v1\nkind: ConfigMap\n", "bundle.yaml:2:7: kind: this is not a bundle but `ConfigMap`"),
        ("newer", "apiVersion: dcctl.devicechain.io/v2\nkind: Bundle\nmetadata: { name: a, version: \"1\" }\n", "v2"),
        ("nothing", "", "bundle.yaml"),
        ("list", "- a\n- b\n", "bundle.yaml:1:1"),
        ("binary", "\u{0}\u{1}", "bundle.yaml:1"),
        ("huge", &huge, "it has more than 20000 keys, values and elements"),
    ] {
        let bundle = bundle(&bed, name, text);
        told(&bed, || bootstrap(&bed, &bundle), 3, "config.bundle").never_began().says(&[says]);
    }
}

#[test]
fn a_secret_of_another_type_is_refused_without_its_value() {
    let bed = Bed::take();
    let text = format!("{HEAD}instance:\n  infrastructure: {{ root: root, secrets: {{ password: db_password }} }}\n");
    let bundle = bundle(&bed, "bundle", &text);
    let file = bed.write("secrets.yaml", &format!("db_password: [ {SECRET} ]\n"));
    let run = || bootstrap(&bed, &bundle).arg("--var-file").arg(&file);
    told(&bed, run, 3, "config.variable").never_began().says(&["secrets.yaml", "db_password"]);
    let file = bed.write("broken.yaml", &format!("db_password: \"{SECRET}\n"));
    let run = || bootstrap(&bed, &bundle).arg("--var-file").arg(&file);
    told(&bed, run, 3, "config.variable").never_began().says(&["broken.yaml"]);
    // A secret on the command line would be in every list of processes.
    let run = || bootstrap(&bed, &bundle).args(["--var", &format!("db_password={SECRET}")]);
    told(&bed, run, 3, "config.variable").never_began().says(&[
        "--var db_password",
        "DCCTL_VAR_DB_PASSWORD",
        "--var is not for secrets",
    ]);
}

#[test]
fn a_mistake_in_a_manifest_is_said_with_file_and_line_before_the_lock_is_asked_for() {
    let bed = Bed::take();
    let good = "apiVersion: v1\nkind: Namespace\nmetadata: { name: a }\n---\n";
    let metadata = "apiVersion: v1\nkind: ConfigMap\nmetadata:";
    for (index, (text, says)) in [
        ("a: [\n".to_owned(), "operator/m.yaml:"),
        ("a: 1\nb: 2\na: 3\n".to_owned(), "operator/m.yaml:7 is not valid YAML"),
        (format!("{metadata} {{ labels: {{}} }}\n"), "operator/m.yaml:5: metadata.name is missing"),
        ("- a\n- b\n".to_owned(), "operator/m.yaml:5: a manifest is a map"),
        // The Deployment that the bundle names.
        (format!("{metadata} {{ name: b }}\n"), "operator.deployment names ns/o, and none of the manifests has it"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("bundle-{index}");
        bed.write(&format!("{name}/operator/m.yaml"), &format!("{good}{text}"));
        let operator = "operator: { manifests: operator/, deployment: { namespace: ns, name: o } }\n";
        let bundle = bundle(&bed, &name, &format!("{HEAD}{operator}"));
        told(&bed, || install(&bed, &bundle), 3, "config.bundle").never_began().says(&[says]);
    }
}

#[test]
fn a_manifest_of_what_dcctl_itself_writes_is_refused() {
    let bed = Bed::take();
    let lease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:";
    let record = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: dc-install, namespace: dc-system }\n";
    for (index, (text, says)) in [
        (format!("{lease} {{ name: dcctl, namespace: dc-k8s-system }}\n"), "Lease dc-k8s-system/dcctl is the lock"),
        (format!("{lease} {{ name: dcctl }}\n"), "Lease dcctl is the lock of the cluster"),
        (record.to_owned(), "ConfigMap dc-system/dc-install is the install record"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("bundle-{index}");
        bed.write(&format!("{name}/operator/m.yaml"), &text);
        let bundle = bundle(&bed, &name, &format!("{HEAD}operator: {{ manifests: operator/ }}\n"));
        let said = told(&bed, || install(&bed, &bundle), 3, "config.bundle").never_began();
        said.says(&["operator/m.yaml:1: ", says, "take it out of the bundle"]);
    }
    // Another one is the operator's affair.
    let other = format!("{lease} {{ name: other, namespace: default }}\n");
    bed.write("other/operator/m.yaml", &other);
    let bundle = bundle(&bed, "other", &format!("{HEAD}operator: {{ manifests: operator/ }}\n"));
    install(&bed, &bundle).run().expect_code(0);
}
