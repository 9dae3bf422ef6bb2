//! What is on the cluster or on this machine speaks against the run: exit code 6, the object named, and nothing of it
//! changed.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::refused::failing::Rig;
use crate::refused::{HEAD, Told, install, small_bundle, told};

const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";
const CONFIG_MAPS: &str = "/api/v1/namespaces/dc-system/configmaps";

/// Declares an instance, as another run did.
fn declare(rig: &Rig, name: &str, annotations: &Value, spec: &Value) {
    let object = json!({ "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
        "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    rig.bed.api().create(INSTANCES, &object).expect("the bed may do everything");
}

/// A bootstrap that is refused with this code, and leaves the declaration of this instance as it was.
#[track_caller]
fn refused(rig: &Rig, code: &str, about: &str) -> Told {
    let declaration = || rig.bed.api().get(&format!("{INSTANCES}/{about}")).expect("the API server answers");
    let before = declaration();
    let said = told(&rig.bed, || rig.bed.dcctl(["bootstrap", &rig.instance, "--bundle"]).arg(&rig.bundle), 6, code);
    assert_eq!(declaration(), before);
    said
}

#[test]
fn an_instance_is_not_declared_anew_with_another_binding() {
    let rig = Rig::new("");
    let name = rig.instance.clone();
    let failed = json!({ "core.devicechain.io/phase": "Failed", "dcctl.devicechain.io/claims": "{}" });
    declare(&rig, &name, &failed, &json!({ "provider": "aws", "managed": true, "host": "a.test" }));
    refused(&rig, "guard.binding_changed", &name).says(&[
        &format!("spec.provider of \"{name}\" is \"aws\" on the cluster and \"existing\" in the bundle"),
        "give the instance another name",
    ]);
}

#[test]
fn an_instance_whose_claims_cannot_be_told_is_named() {
    let rig = Rig::new("  claims: { ingressHost: a.test }\n");
    declare(&rig, "silent", &json!({}), &json!({ "provider": "existing", "managed": false, "host": "" }));
    refused(&rig, "guard.cannot_tell", "silent").says(&[
        "what the instance \"silent\" claims cannot be told",
        "neither the annotation dcctl.devicechain.io/claims nor a spec.host",
        "kubectl annotate instances.core.devicechain.io silent dcctl.devicechain.io/claims='{}'",
    ]);
}

#[test]
fn an_install_record_that_is_not_dcctl_s_is_not_overwritten() {
    let bed = Bed::take();
    let foreign = json!({ "metadata": { "name": "dc-install" }, "data": { "install.json": "theirs" } });
    bed.api().create(CONFIG_MAPS, &foreign).expect("the bed may do everything");
    let record = || bed.api().get(&format!("{CONFIG_MAPS}/dc-install")).expect("the API server answers");
    let (before, bundle) = (record(), small_bundle(&bed));
    let said = told(&bed, || bed.dcctl(["install", "--bundle"]).arg(&bundle), 6, "guard.record");
    said.says(&["ConfigMap dc-system/dc-install was not written by dcctl", "dcctl does not overwrite it"]);
    assert_eq!(record(), before);
}

#[test]
fn an_install_record_of_another_cluster_or_of_a_newer_dcctl_is_not_overwritten() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    install(&bed, &bundle).run().expect_code(0);
    let path = format!("{CONFIG_MAPS}/dc-install");
    let read = || bed.api().get(&path).expect("the API server answers").expect("it was written");
    let known = read()["data"]["install.json"].as_str().expect("it is text").to_owned();
    for (field, value, says) in
        [("clusterUid", json!("another"), "record of another cluster"), ("schema", json!(99), "newer")]
    {
        let mut record: Value = serde_json::from_str(&known).expect("it is JSON");
        record[field] = value;
        let change = json!({ "data": { "install.json": record.to_string() } });
        bed.api().merge(&path, &change).expect("the bed may do everything");
        let before = read();
        told(&bed, || install(&bed, &bundle), 6, "guard.record").says(&[says]);
        assert_eq!(read(), before, "{field}");
    }
}

/// An operator of one object, and prerequisites whose state is local.
fn with_a_marker(bed: &Bed, name: &str) -> PathBuf {
    let marker = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: marker, namespace: dc-system }\n";
    bed.write(&format!("{name}/operator/marker.yaml"), marker);
    bed.write(&format!("{name}/infra/main.tf"), "");
    let head = HEAD.replace("small", name);
    let rest = "operator: { manifests: operator/ }\nprerequisites: { root: infra }\n";
    let file = bed.write(&format!("{name}/bundle.yaml"), &format!("{head}{rest}"));
    file.parent().expect("it is in a folder").to_owned()
}

/// An install that was refused before it asked for the lock, and applied nothing.
#[track_caller]
fn refused_untouched(bed: &Bed, said: &Told) {
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
    assert_eq!(bed.api().get(&format!("{CONFIG_MAPS}/marker")).expect("the API server answers"), None);
}

#[test]
fn another_bundle_is_not_installed_over_the_first() {
    let bed = Bed::take();
    let (first, other) = (small_bundle(&bed), with_a_marker(&bed, "other"));
    install(&bed, &first).run().expect_code(0);
    let record = || bed.api().get(&format!("{CONFIG_MAPS}/dc-install")).expect("the API server answers");
    let before = record();
    let run = || install(&bed, &other).arg("--state-dir").arg(bed.file("state"));
    let said = told(&bed, run, 6, "guard.other_bundle").says(&[
        "this cluster was installed from the bundle \"small\", and this is \"other\"",
        "give \"other\" a cluster of its own",
        "delete ConfigMap dc-system/dc-install",
    ]);
    refused_untouched(&bed, &said);
    run().arg("--dry-run").run().expect_code(6);
    assert_eq!(record(), before);
    install(&bed, &first).run().expect_code(0);
}

/// Says whose the state in the test's folder is: that of a cluster that is not this one.
fn of_another_cluster(bed: &Bed, part: &str, instance: Option<&str>) {
    let owner = json!({ "instance": instance, "cluster": "11111111-2222-3333-4444-555555555555",
        "server": "https://127.0.0.1:1" });
    bed.write(&format!("state/{part}.owner.json"), &owner.to_string());
}

#[test]
fn an_install_with_the_state_of_another_cluster_is_refused_before_anything_is_written() {
    let bed = Bed::take();
    let bundle = with_a_marker(&bed, "small");
    of_another_cluster(&bed, "prerequisites", None);
    let run = || install(&bed, &bundle).arg("--state-dir").arg(bed.file("state"));
    let said = told(&bed, run, 6, "guard.state_missing").says(&["belongs to another cluster (https://127.0.0.1:1)"]);
    refused_untouched(&bed, &said);
    assert_eq!(bed.api().get(&format!("{CONFIG_MAPS}/dc-install")).expect("the API server answers"), None);
}

#[test]
fn a_bootstrap_with_the_state_of_another_cluster_is_refused_before_anything_is_declared() {
    let rig = Rig::new("  infrastructure: { root: infra }\n");
    rig.write("infra/main.tf", "");
    of_another_cluster(&rig.bed, "infrastructure", Some(&rig.instance));
    let run = || {
        let run = rig.bed.dcctl(["bootstrap", &rig.instance, "--bundle"]).arg(&rig.bundle);
        run.arg("--state-dir").arg(rig.bed.file("state"))
    };
    let said = told(&rig.bed, run, 6, "guard.state_missing");
    let whose = format!("belongs to instance \"{}\" of another cluster (https://127.0.0.1:1)", rig.instance);
    let said = said.says(&[&whose]);
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"released".into()), "{verdict}");
    for path in [format!("{INSTANCES}/{}", rig.instance), format!("/api/v1/namespaces/dci-{}", rig.instance)] {
        assert_eq!(rig.bed.api().get(&path).expect("the API server answers"), None, "{path}");
    }
}

#[test]
fn a_state_that_waits_to_be_pushed_is_not_built_over() {
    let bed = Bed::take();
    bed.write("bundle/infra/main.tf", "");
    let rest = "instance:\n  namespace: \"dci-${instance}\"\n  infrastructure: { root: infra }\n";
    let file = bed.write("bundle/bundle.yaml", &format!("{HEAD}{rest}"));
    let bundle = file.parent().expect("it is in a folder");
    let waiting = bed.write("state/infrastructure.errored.tfstate", "{}");
    let run = || bed.dcctl(["bootstrap", "one", "--bundle"]).arg(bundle).arg("--state-dir").arg(bed.file("state"));
    told(&bed, run, 6, "guard.state_errored").says(&[
        &format!("a state that OpenTofu could not save is waiting in `{}`", waiting.display()),
        "tofu state push",
    ]);
    assert_eq!(std::fs::read_to_string(waiting).expect("it is still there"), "{}");
}
