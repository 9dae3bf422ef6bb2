//! Taking away what belongs to an instance: its namespace, and its declaration with dcctl's finalizer.
//!
//! Each request names the very object that was looked at, by its uid. What was made anew under the same name meanwhile is
//! another one, and stays.

use serde::Deserialize;
use serde_json::Value;

use crate::cluster::client::Cluster;
use crate::cluster::discovery::listable;
use crate::cluster::instances::{FINALIZER, INSTANCE_LABEL, path as declaration};
use crate::cluster::request::{Ask, Refusal, Store, encode};
use crate::failure::{Code, Failure};

/// How often a request is made that somebody else's write got in the way of.
const TRIES: u32 = 5;

/// The finalizer of a namespace that Kubernetes itself takes off when the namespace is empty.
const KUBERNETES: &str = "kubernetes";

/// A namespace that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// Which one it is.
    pub uid: String,
    /// The instance that its label names.
    pub instance: Option<String>,
    /// Whether somebody has deleted it.
    pub is_deleted: bool,
    /// What keeps one that was deleted: finalizers, API services, in the API server's words.
    pub keeps: Vec<String>,
}

/// What is in a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Kind and name of each object.
    pub objects: Vec<(String, String)>,
    /// The resources that may not be listed, and the groups that do not answer.
    pub unlisted: Vec<String>,
}

/// What became of a declaration that was let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetGo {
    /// It is not there any more.
    Gone,
    /// It was deleted and has no finalizer of dcctl's any more; these keep it.
    KeptBy(Vec<String>),
}

#[derive(Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Deserialize)]
struct NamedMetadata {
    #[serde(default)]
    name: String,
}

impl Cluster {
    /// Looks at a namespace that is to go; none when it is not there.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn leaving(&self, namespace: &str) -> Result<Option<Leaving>, Failure> {
        let found = self.find(&space(namespace), &format!("read namespace {namespace}")).await?;
        Ok(found.as_ref().map(look))
    }

    /// Deletes the namespace of this uid. One that is gone, or another by now, is no failure.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn delete_namespace(&self, namespace: &str, uid: &str) -> Result<(), Failure> {
        let doing = format!("delete namespace {namespace}");
        let deleted: Result<Value, Refusal> = self.ask(&Ask::delete_this(space(namespace), uid), &doing).await;
        match deleted {
            Ok(_) => Ok(()),
            // 409: it is being deleted already, or is another one, which the wait for its end tells.
            Err(refusal) if matches!(refusal.code(), Some(404 | 409)) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// What a namespace holds, of every kind that is served. Events are left out: they are about objects and go by
    /// themselves.
    ///
    /// # Errors
    /// What the API server says, but for kinds that this account may not list.
    pub async fn held(&self, namespace: &str) -> Result<Held, Failure> {
        let (resources, unlisted) = listable(self).await?;
        let mut held = Held { objects: Vec::new(), unlisted };
        for (resource, kind) in resources {
            if resource.plural == "events" {
                continue;
            }
            let ask = Ask::get(resource.collection(Some(namespace))).metadata_only();
            match self.list::<Named>(&ask, &format!("list the {} in {namespace}", resource.plural)).await {
                Ok(found) => held.objects.extend(found.into_iter().map(|named| (kind.clone(), named.metadata.name))),
                Err(refusal) if refusal.code() == Some(403) => held.unlisted.push(resource.plural),
                // Served a moment ago, or not to be listed in this form.
                Err(refusal) if matches!(refusal.code(), Some(404..=406)) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(held)
    }

    /// Deletes the declaration of this uid and takes dcctl's finalizer off it.
    ///
    /// # Errors
    /// [`Code::CannotTell`] when it is another one by now; else what the API server says.
    pub async fn let_go(&self, api_version: &str, name: &str, uid: &str) -> Result<LetGo, Failure> {
        let (path, reading) = (declaration(api_version, name), format!("read the declaration of {name}"));
        let mut refused: Option<Failure> = None;
        for _ in 0..TRIES {
            let Some(mut object) = self.find(&path, &reading).await? else { return Ok(LetGo::Gone) };
            if object["metadata"]["uid"] != uid {
                let sentence = format!("the declaration of \"{name}\" is not the one that this run looked at");
                return Err(Failure::new(Code::CannotTell, sentence).cause("it was deleted and made anew"));
            }
            let answer: Result<Value, Refusal> = if object["metadata"]["deletionTimestamp"].is_null() {
                let doing = format!("delete the declaration of {name}");
                self.ask(&Ask::delete_this(path.clone(), uid), &doing).await
            } else if let Some(others) = without_ours(&mut object) {
                let doing = format!("take the finalizer {FINALIZER} off the declaration of {name}");
                let answer = self.ask(&Ask::replace(path.clone(), &object, Store::Yes), &doing).await;
                if answer.is_ok() {
                    return Ok(if others.is_empty() { LetGo::Gone } else { LetGo::KeptBy(others) });
                }
                answer
            } else {
                return Ok(LetGo::KeptBy(finalizers(&object)));
            };
            match answer {
                Ok(_) => {}
                Err(refusal) if matches!(refusal.code(), Some(404 | 409)) || refusal.is_transient => {
                    refused = Some(refusal.failure);
                }
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Err(refused
            .unwrap_or_else(|| Failure::new(Code::CannotTell, format!("the declaration of \"{name}\" keeps changing"))))
    }
}

fn space(namespace: &str) -> String {
    format!("/api/v1/namespaces/{}", encode(namespace))
}

fn texts(value: &Value) -> impl Iterator<Item = String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned))
}

fn finalizers(object: &Value) -> Vec<String> {
    texts(&object["metadata"]["finalizers"]).collect()
}

/// Takes dcctl's finalizer out of an object; the others, or none when it had none of ours.
fn without_ours(object: &mut Value) -> Option<Vec<String>> {
    let all = finalizers(object);
    let others: Vec<String> = all.iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    if others.len() == all.len() {
        return None;
    }
    object["metadata"]["finalizers"] = Value::from(others.clone());
    Some(others)
}

fn look(namespace: &Value) -> Leaving {
    let metadata = &namespace["metadata"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let is_deleted = !metadata["deletionTimestamp"].is_null();
    let mut keeps = Vec::new();
    if is_deleted {
        let conditions = namespace["status"]["conditions"].as_array().into_iter().flatten();
        let holding = conditions.filter(|condition| condition["status"] == "True");
        keeps.extend(holding.filter_map(|condition| text(&condition["message"])));
        let own = texts(&metadata["finalizers"]).chain(texts(&namespace["spec"]["finalizers"]));
        let own: Vec<String> = own.filter(|finalizer| finalizer != KUBERNETES).collect();
        if !own.is_empty() {
            keeps.push(format!("the namespace itself has finalizers: {}", own.join(", ")));
        }
    }
    let instance = text(&metadata["labels"][INSTANCE_LABEL]).filter(|name| !name.is_empty());
    Leaving { uid: text(&metadata["uid"]).unwrap_or_default(), instance, is_deleted, keeps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_keeps_a_namespace_is_read_from_its_conditions_and_finalizers() {
        let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "message": kind });
        let namespace = json!({
            "metadata": { "uid": "u", "labels": { INSTANCE_LABEL: "a" }, "deletionTimestamp": "x", "finalizers": ["theirs"] },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "conditions": [condition("content", "True"), condition("discovery", "False")] },
        });
        let leaving = look(&namespace);
        assert_eq!((leaving.uid.as_str(), leaving.instance.as_deref(), leaving.is_deleted), ("u", Some("a"), true));
        assert_eq!(leaving.keeps, ["content", "the namespace itself has finalizers: theirs"]);
        let alive = look(&json!({ "metadata": { "uid": "u", "finalizers": ["theirs"] } }));
        assert_eq!((alive.is_deleted, alive.keeps.len(), alive.instance), (false, 0, None));
    }

    #[test]
    fn only_the_finalizer_of_dcctl_is_taken_off() {
        let mut object = json!({ "metadata": { "finalizers": ["a", FINALIZER, "b"] } });
        assert_eq!(without_ours(&mut object), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(object["metadata"]["finalizers"], json!(["a", "b"]));
        assert_eq!(without_ours(&mut object), None);
    }
}
