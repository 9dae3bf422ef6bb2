//! *Declare the instance*: writes the object `Instance` and makes the instance's namespace.
//!
//! The phase is on the declaration before the act that it names. What dcctl did not write there survives. The binding
//! (where the instance lives) never changes, and facts that are written once are carried along. The object is compared
//! with what the API server stored: a field that the cluster's schema drops is a mistake in the bundle, not a detail.

use serde_json::{Map, Value, json};

use crate::clock::rfc3339;
use crate::cluster::Store;
use crate::cluster::instances::{
    CLAIMS, Claimed, Declared, FINALIZER, LAST_APPLIED_AS, LAST_APPLIED_AT, LAST_APPLIED_BY, PHASE, Phase, RELEASE,
    Written,
};
use crate::cluster::namespace::{Made, Namespace};
use crate::config::{Claims, Declaration, Instance};
use crate::failure::{Code, Failure};
use crate::step::guard::WAIT_FOR_ITS_END;
use crate::step::halt::{drive, stopped};
use crate::step::manifests::store;
use crate::step::{Kit, Mode, ObjectChange, ObjectName, Outcome, Update};

/// What never changes once it is written: it says where the instance was built.
const BINDING: [&str; 3] = ["provider", "cluster", "managed"];

/// What is written once, by whoever restored the instance, and carried along since.
const ONCE: [&str; 2] = ["restored", "restoredAt"];

/// How often a declaration is written that somebody else wrote at the same time.
const TRIES: u32 = 5;

/// The step *Declare the instance*, for a bootstrap.
pub async fn declare_instance(kit: &Kit) -> Outcome {
    drive(kit, async {
        let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else {
            return Ok(Outcome::Nothing("the bundle has no instance".to_owned()));
        };
        let declared = match &instance.declaration {
            Some(declaration) => declare(kit, name, declaration, &instance.claims).await?,
            None => None,
        };
        if kit.stop.is_asked() {
            return Ok(stopped("stopped before the instance's namespace was made"));
        }
        let made = own_namespace(kit, name, instance).await?;
        let would = if kit.mode == Mode::DryRun { "would be " } else { "" };
        let declared = declared.map(|phase| format!("\"{name}\" {would}declared, phase {}", phase.word()));
        let made = made.map(|namespace| format!("namespace {namespace} {would}made"));
        let parts: Vec<String> = declared.into_iter().chain(made).collect();
        Ok(if parts.is_empty() {
            Outcome::Nothing("the bundle declares nothing, and the namespace is there".to_owned())
        } else {
            Outcome::Done(parts.join("; "))
        })
    })
    .await
}

/// Writes the declaration; the phase it is in now, or none when there was nothing to write it to.
async fn declare(kit: &Kit, name: &str, declaration: &Declaration, claims: &Claims) -> Result<Option<Phase>, Failure> {
    let object = ObjectName { kind: "Instance".to_owned(), namespace: None, name: name.to_owned() };
    let mut tries = 1;
    loop {
        let found = match kit.cluster.declaration(&declaration.api_version, name).await? {
            Declared::There(found) => Some(found),
            Declared::Missing => None,
            Declared::NoDefinition if kit.mode == Mode::DryRun => {
                let version = &declaration.api_version;
                kit.updates.send(Update::Object { object, change: ObjectChange::Created, taken_over: Vec::new() });
                kit.updates.send(Update::Note(format!(
                    "this cluster does not know Instances in {version} yet: `dcctl install` comes first"
                )));
                return Ok(Some(Phase::Bootstrapping));
            }
            Declared::NoDefinition => return Err(not_defined(&declaration.api_version)),
        };
        let wanted = draw_up(found.as_ref(), name, declaration, &annotations(kit, claims, Phase::Bootstrapping))?;
        let change = if found.is_some() { ObjectChange::Configured } else { ObjectChange::Created };
        if kit.mode == Mode::Act {
            kit.course.change();
        }
        match kit.cluster.write_declaration(&wanted, store(kit.mode)).await? {
            Written::Stored(stored) => {
                same(&wanted["spec"], &stored["spec"], &declaration.api_version)?;
                kit.updates.send(Update::Object { object, change, taken_over: Vec::new() });
                return Ok(Some(Phase::Bootstrapping));
            }
            Written::NoDefinition => return Err(not_defined(&declaration.api_version)),
            Written::Again(failure) if tries >= TRIES => return Err(failure),
            Written::Again(_) => tries += 1,
        }
    }
}

fn not_defined(api_version: &str) -> Failure {
    Failure::new(Code::OperatorMissing, format!("this cluster does not know Instances in {api_version}"))
        .hint("`dcctl install` brings the operator and the definition `instances.core.devicechain.io`; if it did, the bundle's declaration.apiVersion is wrong")
}

/// What dcctl writes on a declaration.
fn annotations(kit: &Kit, claims: &Claims, phase: Phase) -> Vec<(&'static str, String)> {
    let claimed = Claimed {
        ingress_host: claims.ingress_host.clone(),
        local_mqtt_port: claims.local_mqtt_port,
        connections: claims.connections,
    };
    let release = (phase == Phase::Ready).then(|| (RELEASE, kit.bundle.version.clone()));
    let mut annotations = vec![
        (PHASE, phase.word().to_owned()),
        (LAST_APPLIED_BY, env!("CARGO_PKG_VERSION").to_owned()),
        (LAST_APPLIED_AS, kit.holder.clone()),
        (LAST_APPLIED_AT, rfc3339(kit.clock.wall())),
        (CLAIMS, serde_json::to_string(&claimed).expect("claims have string keys only")),
    ];
    annotations.extend(release);
    annotations
}

/// The declaration to write: what is there with our part of it.
fn draw_up(
    found: Option<&Value>,
    name: &str,
    declaration: &Declaration,
    annotations: &[(&str, String)],
) -> Result<Value, Failure> {
    let mut spec = declaration.spec.as_object().cloned().unwrap_or_default();
    if let Some(found) = found {
        if !found["metadata"]["deletionTimestamp"].is_null() {
            return Err(Failure::new(
                Code::LiveInstance,
                format!("the declaration of \"{name}\" was deleted and waits for its instance"),
            )
            .hint(WAIT_FOR_ITS_END));
        }
        let written = found["spec"].as_object().cloned().unwrap_or_default();
        is_bound_as_before(name, &written, &spec)?;
        carry_along(name, &written, &mut spec)?;
    }
    let mut object = found.cloned().unwrap_or_else(|| json!({ "metadata": { "name": name } }));
    object["apiVersion"] = json!(declaration.api_version);
    object["kind"] = json!("Instance");
    object["spec"] = Value::Object(spec);
    let metadata = object["metadata"].as_object_mut().expect("every object has metadata");
    let place = metadata.entry("annotations").or_insert_with(|| json!({}));
    for (key, value) in annotations {
        place[*key] = json!(value);
    }
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(finalizers) = finalizers.as_array_mut()
        && !finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    {
        finalizers.push(json!(FINALIZER));
    }
    Ok(object)
}

fn is_bound_as_before(name: &str, written: &Map<String, Value>, wanted: &Map<String, Value>) -> Result<(), Failure> {
    for field in BINDING {
        let (before, after) = (written.get(field), wanted.get(field));
        if before != after {
            return Err(Failure::new(
                Code::BindingChanged,
                format!(
                    "spec.{field} of \"{name}\" is {} on the cluster and {} in the bundle",
                    shown(before),
                    shown(after)
                ),
            )
            .cause("where an instance was first built, its infrastructure is; it cannot be moved by declaring it elsewhere")
            .hint(format!("set spec.{field} back in the bundle, or give the instance another name")));
        }
    }
    Ok(())
}

fn carry_along(name: &str, written: &Map<String, Value>, wanted: &mut Map<String, Value>) -> Result<(), Failure> {
    for field in ONCE {
        let Some(before) = written.get(field) else { continue };
        match wanted.get(field) {
            None => {
                wanted.insert(field.to_owned(), before.clone());
            }
            Some(after) if after == before => {}
            Some(after) => {
                return Err(Failure::new(
                    Code::BindingChanged,
                    format!(
                        "spec.{field} of \"{name}\" is {} on the cluster and {} in the bundle",
                        shown(Some(before)),
                        shown(Some(after))
                    ),
                )
                .cause("it is written once and never changes"));
            }
        }
    }
    Ok(())
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("not set".to_owned(), Value::to_string)
}

/// Whether everything that was sent is what was stored. More may be stored: defaults are.
fn same(sent: &Value, stored: &Value, api_version: &str) -> Result<(), Failure> {
    let Some(field) = first_difference(sent, stored, "spec") else { return Ok(()) };
    Err(Failure::new(
        Code::BundleInvalid,
        format!("bundle.yaml: instance.declaration.{field} is not kept by this cluster's schema of Instances in {api_version}"),
    )
    .hint("take the field out, or install the definition that knows it"))
}

fn first_difference(sent: &Value, stored: &Value, path: &str) -> Option<String> {
    match (sent, stored) {
        (Value::Object(sent), Value::Object(stored)) => sent.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match stored.get(key) {
                Some(kept) => first_difference(value, kept, &path),
                // Nothing is what a null says.
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(sent), Value::Array(stored)) if sent.len() == stored.len() => {
            let pairs = sent.iter().zip(stored).enumerate();
            pairs.into_iter().find_map(|(at, (sent, stored))| first_difference(sent, stored, &format!("{path}[{at}]")))
        }
        (sent, stored) => (sent != stored).then(|| path.to_owned()),
    }
}

/// Refuses a release whose declaration would change what an instance is bound to, or that the cluster does not take; before
/// anything of it is applied. Nothing is stored.
///
/// # Errors
/// As *Declare the instance* would fail.
pub(in crate::step) async fn would_fit(kit: &Kit) -> Result<(), Failure> {
    let Some((name, declaration, claims)) = wanted(kit) else { return Ok(()) };
    let Declared::There(found) = kit.cluster.declaration(&declaration.api_version, name).await? else { return Ok(()) };
    let wanted = draw_up(Some(&found), name, declaration, &annotations(kit, claims, Phase::Upgrading))?;
    match kit.cluster.write_declaration(&wanted, Store::DryRun).await? {
        Written::Stored(stored) => same(&wanted["spec"], &stored["spec"], &declaration.api_version),
        Written::NoDefinition => Err(not_defined(&declaration.api_version)),
        // Somebody wrote to it this very moment; it is written for real later.
        Written::Again(_) => Ok(()),
    }
}

fn wanted(kit: &Kit) -> Option<(&str, &Declaration, &Claims)> {
    let instance = kit.bundle.instance.as_ref()?;
    Some((kit.instance.as_deref()?, instance.declaration.as_ref()?, &instance.claims))
}

/// The step *Record the release*: the declaration says which release the instance is of by now, and is that release's. A
/// declaration that says so already is left as it is.
pub async fn record_release(kit: &Kit) -> Outcome {
    drive(kit, async {
        let Some((name, declaration, claims)) = wanted(kit) else {
            return Ok(Outcome::Nothing("the bundle declares nothing".to_owned()));
        };
        let version = &kit.bundle.version;
        let mut tries = 1;
        loop {
            let Declared::There(found) = kit.cluster.declaration(&declaration.api_version, name).await? else {
                let sentence = format!("the declaration of \"{name}\" is gone, so its release cannot be recorded");
                return Err(Failure::new(Code::CannotTell, sentence));
            };
            if found["metadata"]["annotations"][PHASE] == Phase::Destroying.word() {
                let sentence = format!("the instance \"{name}\" is being destroyed by another run");
                return Err(Failure::new(Code::CannotTell, sentence));
            }
            let wanted = draw_up(Some(&found), name, declaration, &annotations(kit, claims, Phase::Ready))?;
            // A dry run finds the phase as it was before what it would change.
            let would_change = kit.mode == Mode::DryRun && kit.course.has_changed();
            if !would_change && is_recorded(kit, &found, &wanted).await? {
                return Ok(Outcome::Nothing(format!(
                    "\"{name}\" is of release {version} already; nothing was changed"
                )));
            }
            match kit.cluster.write_declaration(&wanted, store(kit.mode)).await? {
                Written::Stored(stored) => {
                    same(&wanted["spec"], &stored["spec"], &declaration.api_version)?;
                    let object = ObjectName { kind: "Instance".to_owned(), namespace: None, name: name.to_owned() };
                    let change = ObjectChange::Configured;
                    kit.updates.send(Update::Object { object, change, taken_over: Vec::new() });
                    return Ok(Outcome::Done(match kit.mode {
                        Mode::Act => format!("\"{name}\" is of release {version}"),
                        Mode::DryRun => format!("\"{name}\" would be of release {version}"),
                    }));
                }
                Written::NoDefinition => return Err(not_defined(&declaration.api_version)),
                Written::Again(failure) if tries >= TRIES => return Err(failure),
                Written::Again(_) => tries += 1,
            }
        }
    })
    .await
}

/// Whether what is there says everything already that would be written, but for when. What the cluster adds to a spec, only
/// the cluster knows.
async fn is_recorded(kit: &Kit, found: &Value, wanted: &Value) -> Result<bool, Failure> {
    let (before, after) = (&found["metadata"]["annotations"], &wanted["metadata"]["annotations"]);
    if [PHASE, RELEASE, CLAIMS].iter().any(|key| before[*key] != after[*key]) {
        return Ok(false);
    }
    Ok(match kit.cluster.write_declaration(wanted, Store::DryRun).await? {
        Written::Stored(stored) => stored["spec"] == found["spec"],
        Written::NoDefinition | Written::Again(_) => false,
    })
}

/// Makes the instance's namespace; its name if it was not there.
async fn own_namespace(kit: &Kit, name: &str, instance: &Instance) -> Result<Option<String>, Failure> {
    let namespace = &instance.namespace;
    let (made, owner) = match kit.cluster.namespace(namespace).await? {
        Namespace::Missing => (kit.cluster.make_namespace(namespace, Some(name), store(kit.mode)).await?, None),
        Namespace::There { instance, .. } => (Made::Before, instance),
        Namespace::Terminating { why } => {
            return Err(Failure::new(Code::ClaimConflict, format!("namespace {namespace} is being deleted")).cause(why));
        }
    };
    match (made, owner) {
        (Made::Now, _) => {
            let object = ObjectName { kind: "Namespace".to_owned(), namespace: None, name: namespace.clone() };
            kit.updates.send(Update::Object { object, change: ObjectChange::Created, taken_over: Vec::new() });
            Ok(Some(namespace.clone()))
        }
        (Made::Before, Some(owner)) if owner == name => Ok(None),
        (Made::Before, _) => Err(Failure::new(
            Code::ClaimConflict,
            format!("namespace {namespace} is not that of the instance \"{name}\""),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration(spec: Value) -> Declaration {
        Declaration { api_version: "core.devicechain.io/v1beta1".to_owned(), spec }
    }

    fn drawn_up(found: Option<&Value>, spec: Value) -> Result<Value, Failure> {
        draw_up(found, "a", &declaration(spec), &[(PHASE, "Bootstrapping".to_owned())])
    }

    fn there(spec: &Value) -> Value {
        json!({
            "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["other/finalizer"],
                "annotations": { "other/annotation": "x", PHASE: "Failed" } },
            "spec": spec, "status": { "ready": true },
        })
    }

    #[test]
    fn a_new_declaration_has_the_phase_and_the_finalizer() {
        let object = drawn_up(None, json!({ "provider": "existing" })).expect("nothing is there");
        assert_eq!(object["metadata"]["annotations"][PHASE], "Bootstrapping");
        assert_eq!(object["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(object["spec"], json!({ "provider": "existing" }));
    }

    #[test]
    fn what_others_wrote_survives() {
        let found = there(&json!({ "provider": "existing", "profile": "small" }));
        let object = drawn_up(Some(&found), json!({ "provider": "existing" })).expect("same binding");
        let metadata = &object["metadata"];
        assert_eq!(metadata["annotations"]["other/annotation"], "x");
        assert_eq!(metadata["annotations"][PHASE], "Bootstrapping");
        assert_eq!(metadata["finalizers"], json!(["other/finalizer", FINALIZER]));
        assert_eq!(metadata["resourceVersion"], "7");
        assert_eq!(object["spec"], json!({ "provider": "existing" }), "the spec is dcctl's alone");
        let again = drawn_up(Some(&object), json!({ "provider": "existing" })).expect("same binding");
        assert_eq!(again, object);
    }

    #[test]
    fn the_binding_never_changes() {
        let bound = json!({ "provider": "existing", "managed": false, "cluster": "c1" });
        let cases = [
            (json!({ "provider": "aws", "managed": false, "cluster": "c1" }), "provider"),
            (json!({ "provider": "existing", "managed": true, "cluster": "c1" }), "managed"),
            (json!({ "provider": "existing", "managed": false, "cluster": "c2" }), "cluster"),
            (json!({ "provider": "existing", "managed": false }), "cluster"),
        ];
        for (spec, field) in cases {
            let failure = drawn_up(Some(&there(&bound)), spec).expect_err(field);
            assert_eq!(failure.code, Code::BindingChanged);
            assert!(failure.message.starts_with(&format!("spec.{field} of \"a\" is ")), "{}", failure.message);
        }
        drawn_up(Some(&there(&bound)), bound).expect("the same binding");
        drawn_up(Some(&there(&json!({ "configId": "x" }))), json!({ "configId": "y" })).expect("a schema without one");
    }

    #[test]
    fn what_is_written_once_is_carried_along() {
        let found = there(&json!({ "restored": true, "restoredAt": "2026-11-01T00:00:00Z" }));
        let object = drawn_up(Some(&found), json!({})).expect("carried along");
        assert_eq!(object["spec"], json!({ "restored": true, "restoredAt": "2026-11-01T00:00:00Z" }));
        let failure = drawn_up(Some(&found), json!({ "restored": false })).expect_err("it changes");
        assert_eq!(failure.code, Code::BindingChanged);
    }

    #[test]
    fn a_deleted_declaration_is_not_written_to() {
        let mut found = there(&json!({}));
        found["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
        assert_eq!(drawn_up(Some(&found), json!({})).expect_err("it is going away").code, Code::LiveInstance);
    }

    #[test]
    fn a_field_that_was_not_kept_is_named() {
        let stored = json!({ "a": 1, "b": { "c": [{ "d": 1 }, { "e": 2 }] }, "default": true });
        let cases = [
            (json!({ "a": 1, "b": { "c": [{ "d": 1 }, {}] } }), None),
            (json!({ "a": 1, "z": null }), None),
            (json!({ "a": 1, "z": 0 }), Some("spec.z")),
            (json!({ "a": 2 }), Some("spec.a")),
            (json!({ "b": { "c": [{ "d": 1 }, { "f": 2 }] } }), Some("spec.b.c[1].f")),
            (json!({ "b": { "c": [{}] } }), Some("spec.b.c")),
        ];
        for (sent, field) in cases {
            assert_eq!(first_difference(&sent, &stored, "spec").as_deref(), field, "{sent}");
        }
    }
}
