//! Server-side apply of single objects, and what has to be waited for between them.
//!
//! dcctl asks without force first. When another manager owns a field, its name and the fields are kept, and only then
//! is it taken over, or refused. Whether an object was created, configured or left as it was is read off what was there
//! before and what is there after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::clock::Clock;
use crate::cluster::client::Cluster;
use crate::cluster::discovery::{Resource, Scope};
use crate::cluster::document::Document;
use crate::cluster::error::{is_not_of_its_schema, sentence};
use crate::cluster::request::{Ask, Conflicts, Refusal, Store};
use crate::failure::{Code, Failure};

/// How long a definition may take until its kind is served.
const ESTABLISHED_LIMIT: Duration = Duration::from_secs(60);

/// How long a kind may be missing after its definition was established: the API server's parts learn of it one by one.
const SERVED_LIMIT: Duration = Duration::from_secs(15);

/// How often a definition or a kind is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often an apply is repeated that met another writer's change.
const TRIES: u32 = 5;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not there.
    Created,
    /// It was there and is different now.
    Configured,
    /// It was as it should be.
    Unchanged,
}

/// Fields that another manager owned, and dcctl owns now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// The former owner.
    pub manager: String,
    /// The fields, as the API server writes them.
    pub fields: Vec<String>,
}

/// An object that was applied; in a dry run, would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The namespace it is in.
    pub namespace: Option<String>,
    /// What happened to it.
    pub change: Change,
    /// Whose fields were taken over.
    pub taken_over: Vec<TakenOver>,
}

/// How a set of manifests is applied.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Whether anything is stored.
    pub store: Store,
    /// What happens to fields that another manager owns.
    pub conflicts: Conflicts,
    /// The kinds that this set defines itself, as group and kind: they may be missing for a moment, and in a dry run
    /// altogether.
    pub defined: Vec<(String, String)>,
    /// For the limits of waits.
    pub clock: Arc<dyn Clock>,
}

impl Manner {
    fn defines(&self, document: &Document) -> bool {
        self.defined.iter().any(|(group, kind)| group == document.group() && *kind == document.kind)
    }
}

impl Cluster {
    /// Applies one object.
    ///
    /// In a dry run an object whose namespace is not there yet, or whose kind this set defines itself, counts as
    /// created. Fails with `manifest.rejected` naming the manifest's file and line, or as
    /// [`classify`](crate::cluster::error::classify) says.
    pub async fn apply(&self, document: &Document, manner: &Manner) -> Result<Applied, Failure> {
        let Some(resource) = self.resource_of(document, manner).await? else {
            let created =
                Applied { namespace: document.namespace.clone(), change: Change::Created, taken_over: Vec::new() };
            return Ok(created);
        };
        let namespace = match resource.scope {
            Scope::Namespaced => Some(document.namespace.as_deref().unwrap_or(self.default_namespace())),
            Scope::Cluster => None,
        };
        let path = resource.path(namespace, &document.name);
        let doing = format!("apply {} ({})", document.title(), document.place);
        let before = self.find(&path, &format!("read {}", document.title())).await?;
        let applied = |change, taken_over| Applied { namespace: namespace.map(str::to_owned), change, taken_over };
        let mut taken_over = Vec::new();
        let mut conflicts = Conflicts::Report;
        let started = manner.clock.now();
        let mut tries = 1;
        loop {
            let ask = Ask::apply(&path, &document.object, conflicts, manner.store);
            let refusal = match self.ask::<Value>(&ask, &doing).await {
                Ok(after) => return Ok(applied(change(before.as_ref(), &after), taken_over)),
                Err(refusal) => refusal,
            };
            let owners = owners(&refusal);
            if !owners.is_empty() && conflicts == Conflicts::Report {
                if manner.conflicts == Conflicts::Report {
                    return Err(owned_by_others(document, &owners));
                }
                (taken_over, conflicts) = (owners, Conflicts::TakeOver);
            } else if refusal.code() == Some(409) && tries < TRIES {
                tries += 1;
            } else if misses_namespace(&refusal) && manner.store == Store::DryRun {
                return Ok(applied(Change::Created, taken_over));
            } else if is_not_served(&refusal)
                && manner.defines(document)
                && manner.clock.now().since(started) < SERVED_LIMIT
            {
                sleep(LOOK_EVERY).await;
            } else {
                return Err(rejected(refusal, document));
            }
        }
    }

    /// The resource of a document's kind. None only in a dry run, for a kind that is to be defined.
    async fn resource_of(&self, document: &Document, manner: &Manner) -> Result<Option<Resource>, Failure> {
        let started = manner.clock.now();
        loop {
            if let Some(resource) = self.resource(&document.api_version, &document.kind).await? {
                return Ok(Some(resource));
            }
            let defined = manner.defines(document);
            if defined && manner.store == Store::DryRun {
                return Ok(None);
            }
            if !defined || manner.clock.now().since(started) >= SERVED_LIMIT {
                let (kind, version) = (&document.kind, &document.api_version);
                return Err(Failure::new(
                    Code::ManifestRejected,
                    format!("{}: this cluster has no kind {kind} in {version}", document.place),
                )
                .cause("neither the cluster nor these manifests define it"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Reads an object; none when it is not there.
    pub(in crate::cluster) async fn find(&self, path: &str, doing: &str) -> Result<Option<Value>, Refusal> {
        match self.ask(&Ask::get(path), doing).await {
            Ok(object) => Ok(Some(object)),
            Err(refusal) if refusal.code() == Some(404) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Waits until the kind that a definition describes is served. Safe to drop at any point.
    ///
    /// Fails with `manifest.rejected` when its names are taken, or after a minute.
    pub async fn wait_until_established(&self, definition: &Document, clock: &dyn Clock) -> Result<(), Failure> {
        let path = format!("/apis/{}/customresourcedefinitions/{}", definition.api_version, definition.name);
        let started = clock.now();
        loop {
            let found = self.find(&path, &format!("read {}", definition.title())).await?;
            let why = match found.as_ref().map(established) {
                Some(Established::Yes) => return Ok(()),
                Some(Established::Never(why)) => {
                    let message = format!("{}: the names of {} are not accepted", definition.place, definition.name);
                    return Err(Failure::new(Code::ManifestRejected, message).cause(why));
                }
                Some(Established::NotYet(why)) => why,
                None => "it is gone".to_owned(),
            };
            if clock.now().since(started) >= ESTABLISHED_LIMIT {
                let message = format!("{}: {} was not established within 1m", definition.place, definition.name);
                return Err(Failure::new(Code::ManifestRejected, message).cause(why));
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

enum Established {
    Yes,
    NotYet(String),
    Never(String),
}

fn established(definition: &Value) -> Established {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    let condition = |name: &str| conditions.into_iter().flatten().find(|condition| condition["type"] == name);
    let message = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    match (condition("Established"), condition("NamesAccepted")) {
        (Some(yes), _) if yes["status"] == "True" => Established::Yes,
        (_, Some(no)) if no["status"] == "False" => Established::Never(message(no)),
        (Some(no), _) => Established::NotYet(message(no)),
        (None, _) => Established::NotYet("the API server has not looked at it yet".to_owned()),
    }
}

/// The owners that a refused apply names, each with its fields.
fn owners(refusal: &Refusal) -> Vec<TakenOver> {
    let details = refusal.status.as_ref().and_then(|status| status.details.as_ref());
    let causes = details.map_or(&[][..], |details| &details.causes);
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for cause in causes.iter().filter(|cause| cause.reason == "FieldManagerConflict") {
        // conflict with "kubectl-client-side-apply" using apps/v1
        let manager = cause.message.split('"').nth(1).unwrap_or(&cause.message);
        owners.entry(manager.to_owned()).or_default().push(cause.field.clone());
    }
    owners.into_iter().map(|(manager, fields)| TakenOver { manager, fields }).collect()
}

fn owned_by_others(document: &Document, owners: &[TakenOver]) -> Failure {
    let message = format!("{}: {} has fields that others own", document.place, document.title());
    let failure = owners.iter().fold(Failure::new(Code::ManifestRejected, message), |failure, owner| {
        failure.cause(format!("{} owns {}", owner.manager, owner.fields.join(", ")))
    });
    failure.hint("without --no-force-conflicts they are taken over")
}

/// A refusal because of what the manifest says, or as it is.
fn rejected(refusal: Refusal, document: &Document) -> Failure {
    let status = refusal.status.as_deref();
    let is_about_it = matches!(refusal.code(), Some(400 | 409 | 422)) || status.is_some_and(is_not_of_its_schema);
    if !is_about_it && !misses_namespace(&refusal) {
        return refusal.failure;
    }
    let said = status.map(sentence).unwrap_or_default();
    Failure::new(Code::ManifestRejected, format!("{}: {} was rejected", document.place, document.title())).cause(said)
}

/// Whether the namespace of the object is what is not there.
fn misses_namespace(refusal: &Refusal) -> bool {
    let details = refusal.status.as_ref().and_then(|status| status.details.as_ref());
    refusal.code() == Some(404) && details.is_some_and(|details| details.kind == "namespaces")
}

/// Whether the resource itself is not served: a 404 that names no object.
fn is_not_served(refusal: &Refusal) -> bool {
    let details = refusal.status.as_ref().and_then(|status| status.details.as_ref());
    refusal.code() == Some(404) && details.is_none_or(|details| details.name.is_empty())
}

/// What happened, by content: a new `resourceVersion` may come from the bookkeeping of field owners or from a
/// controller that wrote the status meanwhile, and in a dry run there is none.
fn change(before: Option<&Value>, after: &Value) -> Change {
    let Some(before) = before else { return Change::Created };
    if content(before) == content(after) { Change::Unchanged } else { Change::Configured }
}

/// An object without what changes by itself.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_configured_when_its_content_changed() {
        let object = |version: &str, color: &str, status: &str| {
            json!({ "metadata": { "name": "a", "resourceVersion": version, "managedFields": [{ "time": version }] },
                "data": { "color": color }, "status": status })
        };
        let before = object("1", "blue", "x");
        let cases = [
            (None, object("1", "blue", "x"), Change::Created),
            (Some(&before), object("1", "blue", "x"), Change::Unchanged),
            (Some(&before), object("2", "blue", "y"), Change::Unchanged),
            (Some(&before), object("2", "red", "x"), Change::Configured),
            (Some(&before), object("1", "red", "x"), Change::Configured),
        ];
        for (before, after, expected) in cases {
            assert_eq!(change(before, &after), expected, "{after}");
        }
    }
}
