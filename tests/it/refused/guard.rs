//! What is on the cluster or on this machine speaks against the run: exit code 6, the object named, and nothing of it
//! changed.

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::refused::failing::Rig;
use crate::refused::{HEAD, Told, small_bundle, told};

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
        "complete what is named, or remove it if that instance is gone",
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
