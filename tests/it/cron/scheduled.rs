//! What is scheduled, typed as whoever runs it types it: its own words, its own variables, and in a pod its own account.
//!
//! Only what the files themselves call yours is put in its place: the bundle, the kubeconfig, the folder of the state.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::bed::tools::own;
use crate::bed::{Bed, Dcctl, wait};
use crate::cron::manifests::{command_lines, kubectl};
use crate::rbac::enough::OF_THE_CHART;
use crate::tree;
use crate::verbs::rig::{Demo, PASSWORD};

const NOTHING_TO_DO: &str = "is of release 0.9.2 already; nothing was changed";

fn file(name: &str) -> String {
    fs::read_to_string(tree::root().join("cron").join(name)).expect("it is there")
}

fn words_of(file: &str) -> Vec<String> {
    command_lines().into_iter().find(|(name, _)| *name == file).expect("it has a command line").1
}

/// The demo's variables as the instance was built with them, and where its state is: the demo's roots keep it on the disk.
fn own_settings(demo: &Demo) -> [(&'static str, String); 3] {
    [
        ("DCCTL_VAR_PAUSE", "1ms".to_owned()),
        ("DCCTL_VAR_REPLICAS", "1".to_owned()),
        ("DCCTL_STATE_DIR", demo.state_dir("demo").display().to_string()),
    ]
}

fn built(bed: Bed) -> Demo {
    let demo = Demo::on(bed);
    demo.install().run().expect_code(0);
    demo.bootstrap("demo", 1883).run().expect_code(0);
    demo
}

/// Runs it, and sees that it did what a night with nothing to do is to do.
fn assert_an_idle_night(demo: &Demo, run: Dcctl, settings: &BTreeMap<String, String>) {
    let declared =
        || demo.get("/apis/core.devicechain.io/v1beta1/instances/demo").expect("it is declared")["metadata"].clone();
    let before = declared();
    let run =
        settings.iter().fold(run, |run, (name, value)| run.env(name, value)).env("DCCTL_VAR_DB_PASSWORD", PASSWORD);
    let night =
        own_settings(demo).into_iter().fold(run, |run, (name, value)| run.env(name, value)).run().expect_code(0);
    assert!(night.stdout.contains(NOTHING_TO_DO), "{}", night.stdout);
    assert_eq!(declared(), before);
}

/// The variables of the container, as Kubernetes fills them in for this pod.
fn of_the_container(bundle: &Path) -> BTreeMap<String, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&file("cronjob.yaml")).expect("it is YAML");
    let job = documents.iter().find(|document| document["kind"] == "CronJob").expect("it has one");
    let container = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let value = |variable: &Value| match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        Some("metadata.namespace") => "dcctl".to_owned(),
        Some("metadata.name") => "dcctl-upgrade-demo-29384756-x7k2p".to_owned(),
        Some("metadata.uid") => "5a0c1f0e-7f0b-4a7e-9d55-0f6a7f8d2c11".to_owned(),
        Some(other) => panic!("a field that this test does not know: {other}"),
        None if variable["name"] == "DCCTL_BUNDLE" => bundle.display().to_string(),
        None => variable["value"].as_str().expect("it has one").to_owned(),
    };
    let all = container["env"].as_array().expect("it has some");
    all.iter().map(|variable| (variable["name"].as_str().expect("it has one").to_owned(), value(variable))).collect()
}

#[test]
fn the_cron_job_s_own_command_and_account_do_an_upgrade_that_has_nothing_to_do() {
    let demo = built(Bed::fresh());
    let bed = &demo.bed;
    kubectl(bed, &["apply", "--server-side", "--force-conflicts", "-f", "rbac.yaml", "-f", "cronjob.yaml"]);
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{ name: bundle }}\nrules:{OF_THE_CHART}---\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{ name: bundle }}\n\
         roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: bundle }}\n\
         subjects: [{{ kind: ServiceAccount, namespace: dcctl, name: dcctl }}]\n"
    );
    bed.api().apply(&role).expect("the bed may do everything");
    let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": 3600 } });
    let account = "/api/v1/namespaces/dcctl/serviceaccounts/dcctl/token";
    let answer = bed.api().create(account, &asked).expect("the bed may do everything");
    let token = bed.write("account/token", answer["status"]["token"].as_str().expect("a token"));
    // The account is where Kubernetes puts it, in a file system that only this run sees.
    let script = format!(
        "exec unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /var/run && \
         mkdir -p /var/run/secrets/kubernetes.io/serviceaccount && cd /var/run/secrets/kubernetes.io/serviceaccount && \
         cp {} token && cp {} ca.crt && cd \"$HOME\" && exec \"$@\"' sh \"$@\"",
        token.display(),
        bed.described().certificates.display()
    );
    let in_the_pod = |words: &[String]| {
        let run = bed.dcctl(words).without("KUBECONFIG").env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
        run.env("KUBERNETES_SERVICE_PORT", bed.described().port.to_string()).by_shell(&script).with_pipes()
    };
    let status: Vec<String> = ["lock", "status"].map(str::to_owned).to_vec();
    wait::fact("the rights to be known", || (in_the_pod(&status).run().code() == Some(0)).then_some(()));
    assert_an_idle_night(&demo, in_the_pod(&words_of("cronjob.yaml")), &of_the_container(demo.bundle()));
    let name = "system:serviceaccount:dcctl:dcctl";
    assert!(demo.writes_of(name).iter().any(|write| write.contains("/leases")), "it was somebody else's account");
}

#[test]
fn the_service_s_own_command_and_variables_do_an_upgrade_that_has_nothing_to_do() {
    let demo = built(Bed::take());
    let unit = file("dcctl-upgrade.service");
    let pairs = unit.lines().filter_map(|line| line.strip_prefix("Environment=")).flat_map(str::split_whitespace);
    let mut settings: BTreeMap<String, String> = pairs
        .map(|pair| pair.split_once('=').expect("a variable"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for (name, path) in [("DCCTL_KUBECONFIG", demo.bed.kubeconfig("admin")), ("HOME", demo.bed.scratch())] {
        assert!(settings.insert(name.to_owned(), path.display().to_string()).is_some(), "the unit has no {name}");
    }
    assert!(settings.contains_key("DCCTL_STATE_DIR"), "{settings:?}");
    let words = words_of("dcctl-upgrade.service").into_iter();
    let words = words.map(|word| word.replace("/srv/dcctl/bundle", &demo.bundle().display().to_string()));
    let run = demo.bed.dcctl(words).without("KUBECONFIG");
    assert_an_idle_night(&demo, run, &settings);
}

#[test]
fn the_line_of_the_crontab_does_an_upgrade_that_has_nothing_to_do() {
    let demo = built(Bed::take());
    let text = file("crontab");
    let (_, line) = text.lines().find_map(|line| line.split_once("*  ")).expect("it has one");
    // What cron gives to sh, but for the names that are yours.
    let folder = demo.bed.file("cron-home");
    fs::create_dir_all(&folder).expect("the test's folder can be written");
    std::os::unix::fs::symlink(demo.bundle(), folder.join("bundle")).expect("it is not there yet");
    let line = line.replace("--kube-context production", "--kube-context bed").replacen(
        "dcctl",
        &own("dcctl").display().to_string(),
        1,
    );
    let run = demo.bed.dcctl(["--help"]).by_shell(&line).with_pipes();
    let settings = BTreeMap::from([("HOME".to_owned(), folder.display().to_string())]);
    assert_an_idle_night(&demo, run, &settings);
}

#[test]
fn every_variable_that_is_set_where_dcctl_is_packaged_is_one_that_it_has() {
    let known = fs::read_to_string(tree::root().join("docs/reference/env.md")).expect("it is there");
    let mut seen = 0;
    let of_packages =
        |source: &&tree::Source| ["cron/", "gitlab/templates/"].iter().any(|part| source.path.starts_with(part));
    for source in tree::texts().iter().filter(of_packages) {
        let (path, text) = (&source.path, &source.text);
        for (at, _) in text.match_indices("DCCTL_") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            if name.starts_with("DCCTL_VAR_") {
                continue;
            }
            seen += 1;
            assert!(
                known.contains(&format!("`{name}`")),
                "{path} sets {name}, which docs/reference/env.md does not have"
            );
        }
    }
    assert!(seen > 5, "{seen}");
}
