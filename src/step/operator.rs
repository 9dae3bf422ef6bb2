//! *Check the operator's release*: an instance is moved only under the operator of the same release.
//!
//! Which release the operator in the cluster is of is told by the first of these that there is: the annotation that an
//! install writes on its Deployment, the label `app.kubernetes.io/version`, the tag of its first container's image. One
//! with none of them was installed by hand by somebody who knows what they do, and is let through with a note.

use serde_json::Value;

use crate::cluster::instances::RELEASE;
use crate::config::Deployment;
use crate::failure::{Code, Failure};
use crate::step::halt::drive;
use crate::step::{Kit, Outcome, Update};

/// The label that says a version.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The step *Check the operator's release*. It only reads.
pub async fn check_operator(kit: &Kit) -> Outcome {
    drive(kit, async {
        let Some(operator) = &kit.bundle.operator else {
            return Ok(Outcome::Nothing("the bundle has no operator".to_owned()));
        };
        let Some(deployment) = &operator.deployment else {
            return Ok(Outcome::Nothing("the bundle does not name its operator's Deployment".to_owned()));
        };
        let Deployment { namespace, name } = deployment;
        let version = &kit.bundle.version;
        let install = || format!("`dcctl install` with this bundle brings the operator of release {version}");
        let Some(found) = kit.cluster.deployment(namespace, name).await? else {
            let sentence = format!("the operator is not on this cluster: there is no Deployment {namespace}/{name}");
            return Err(Failure::new(Code::OperatorMissing, sentence).hint(install()));
        };
        match release(&found) {
            Some(told) if same(&told.release, version) => {
                Ok(Outcome::Done(format!("the operator is of release {} ({})", told.release, told.by)))
            }
            Some(told) => {
                let sentence = format!("the operator is of release {}, and this bundle is {version}", told.release);
                let cause = format!("{} of Deployment {namespace}/{name} says so", told.by);
                Err(Failure::new(Code::OperatorMissing, sentence).cause(cause).hint(install()))
            }
            None => {
                let text = format!(
                    "which release the operator is of cannot be told: Deployment {namespace}/{name} has neither the \
                     annotation {RELEASE}, nor the label {VERSION_LABEL}, nor an image tag. It was installed by hand, and \
                     this run goes on"
                );
                kit.updates.send(Update::Note(text));
                Ok(Outcome::Done("the operator was installed by hand".to_owned()))
            }
        }
    })
    .await
}

/// A release, and what told it.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    release: String,
    by: &'static str,
}

fn release(deployment: &Value) -> Option<Told> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let metadata = &deployment["metadata"];
    let told = |by, release: Option<String>| release.map(|release| Told { release, by });
    let image = || deployment.pointer("/spec/template/spec/containers/0/image").and_then(Value::as_str).and_then(tag);
    told("the annotation", text(&metadata["annotations"][RELEASE]))
        .or_else(|| told("the label", text(&metadata["labels"][VERSION_LABEL])))
        .or_else(|| told("the image tag", image()))
}

/// The tag of an image; one that only says that it is the newest tells no release.
fn tag(image: &str) -> Option<String> {
    let image = image.split('@').next().unwrap_or(image);
    let name = image.rsplit('/').next().unwrap_or(image);
    let (_, tag) = name.split_once(':')?;
    (!tag.is_empty() && tag != "latest").then(|| tag.to_owned())
}

/// Whether two releases are the same, whether written with a leading `v` or without.
fn same(one: &str, other: &str) -> bool {
    let bare = |release: &str| release.strip_prefix('v').unwrap_or(release).to_owned();
    bare(one) == bare(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_that_tells_the_release_counts() {
        let deployment = |annotation: Value, label: Value, image: &str| {
            json!({ "metadata": { "annotations": { RELEASE: annotation }, "labels": { VERSION_LABEL: label } },
                "spec": { "template": { "spec": { "containers": [{ "image": image }] } } } })
        };
        let none = Value::Null;
        for (found, expected) in [
            (deployment(json!("1.0"), json!("2.0"), "a:3.0"), Some(("1.0", "the annotation"))),
            (deployment(none.clone(), json!("2.0"), "a:3.0"), Some(("2.0", "the label"))),
            (deployment(none.clone(), json!(""), "host:5000/a/b:v3.0@sha256:ab"), Some(("v3.0", "the image tag"))),
            (deployment(none.clone(), none.clone(), "host:5000/a/b"), None),
            (deployment(none.clone(), none.clone(), "a:latest"), None),
            (deployment(none.clone(), none.clone(), "a@sha256:ab"), None),
            (json!({}), None),
        ] {
            let told = release(&found);
            assert_eq!(told.as_ref().map(|told| (told.release.as_str(), told.by)), expected, "{found}");
        }
        assert!(same("v1.2", "1.2") && same("1.2", "v1.2") && !same("1.2", "1.2.0"));
    }
}
