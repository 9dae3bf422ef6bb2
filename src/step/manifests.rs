//! *Install the operator*: its manifests, server-side, in an order that works at the first run.
//!
//! Namespaces first, then definitions, which are waited for, then the rest by kind, whatever the files are called.
//! The operator's own Deployment is stamped with the bundle's version, so that a later upgrade knows which release
//! runs here, and waited for.

use std::time::Duration;

use crate::cluster::apply::{Applied, Change, Manner};
use crate::cluster::document::{self, Document};
use crate::cluster::instances::{RELEASE, SHARED_NAMESPACE};
use crate::cluster::{Conflicts, Store, apply};
use crate::config::{Bundle, Deployment, Operator};
use crate::failure::{Code, Failure};
use crate::step::halt::{Or, drive, stopped, unless_stopped};
use crate::step::readiness::{Target, until_ready};
use crate::step::{Kit, Mode, ObjectChange, ObjectName, Outcome, TakenOver, Update, record};

/// How long the operator may take to become available.
const OPERATOR_LIMIT: Duration = Duration::from_secs(300);

/// The step *Install the operator*. It begins with the install record: from here on the cluster is being changed.
pub async fn install_operator(kit: &Kit) -> Outcome {
    drive(kit, install(kit)).await
}

/// Checks all that can be checked of a bundle's manifests without the API server. Called before the lock is claimed, it
/// says early what is wrong.
///
/// # Errors
/// `config.bundle`, with file and line.
pub fn check_manifests(bundle: &Bundle) -> Result<(), Failure> {
    bundle.operator.as_ref().map_or(Ok(()), |operator| read_manifests(bundle, operator).map(drop))
}

/// Reads an operator's manifests, in the order in which they are applied.
fn read_manifests(bundle: &Bundle, operator: &Operator) -> Result<Vec<Document>, Failure> {
    let mut documents = document::in_order(document::read(&bundle.root, &operator.manifests)?);
    documents.iter().try_for_each(is_not_ours)?;
    if let Some(deployment) = &operator.deployment {
        stamp(&mut documents, deployment, &bundle.version)?;
    }
    Ok(documents)
}

/// What dcctl itself keeps on a cluster: group, kind, namespace, name, and what it is for.
const OURS: [(&str, &str, &str, &str, &str); 2] = [
    ("coordination.k8s.io", "Lease", "dc-k8s-system", "dcctl", "the lock of the cluster"),
    ("", "ConfigMap", SHARED_NAMESPACE, crate::cluster::record::NAME, "the install record"),
];

/// Refuses a manifest of what dcctl itself keeps: applying it would take the run's own lock away. One without a namespace
/// may mean it, too.
fn is_not_ours(document: &Document) -> Result<(), Failure> {
    let is_it = |(group, kind, namespace, name, _): &&(&str, &str, &str, &str, &str)| {
        let place = document.namespace.as_deref();
        (document.group(), document.kind.as_str(), document.name.as_str()) == (*group, *kind, *name)
            && place.is_none_or(|place| place == *namespace)
    };
    let Some((.., for_what)) = OURS.iter().find(is_it) else { return Ok(()) };
    let (place, title) = (&document.place, document.title());
    let failure =
        Failure::new(Code::BundleInvalid, format!("{place}: {title} is {for_what}, which dcctl itself writes"));
    Err(failure.hint("take it out of the bundle"))
}

async fn install(kit: &Kit) -> Result<Outcome, Failure> {
    let operator = kit.bundle.operator.as_ref();
    let documents = operator.map_or(Ok(Vec::new()), |operator| read_manifests(&kit.bundle, operator))?;
    record::begin_install(kit).await?;
    let Some(operator) = operator else {
        return Ok(Outcome::Nothing("the bundle has no operator".to_owned()));
    };
    let mut changes = Changes::default();
    if let Or::Stopped = apply_all(kit, &documents, &mut changes).await? {
        return Ok(stopped(format!("stopped after {} of {} objects", changes.total(), documents.len())));
    }
    if let (Some(deployment), Mode::Act) = (&operator.deployment, kit.mode) {
        let target = Target::Deployment(deployment);
        let waited = until_ready(kit, target, OPERATOR_LIMIT, Code::ManifestRejected).await?;
        if waited == Or::Stopped {
            return Ok(stopped("everything was applied; stopped waiting for the operator"));
        }
    }
    Ok(Outcome::Done(changes.note(kit.mode)))
}

/// Applies documents in the order given; between the definitions and the rest, waits until they are established.
async fn apply_all(kit: &Kit, documents: &[Document], changes: &mut Changes) -> Result<Or<()>, Failure> {
    let manner = manner(kit, documents);
    let mut awaited: Vec<&Document> = Vec::new();
    for document in documents {
        if kit.stop.is_asked() {
            return Ok(Or::Stopped);
        }
        if !document.is_definition() && establish(kit, &mut awaited).await? == Or::Stopped {
            return Ok(Or::Stopped);
        }
        let applied = kit.cluster.apply(document, &manner).await?;
        changes.count(applied.change);
        kit.updates.send(said(document, applied));
        if document.is_definition() {
            awaited.push(document);
        }
    }
    establish(kit, &mut awaited).await
}

/// Waits until the definitions that were applied are served. A dry run applied none.
async fn establish(kit: &Kit, awaited: &mut Vec<&Document>) -> Result<Or<()>, Failure> {
    for definition in awaited.drain(..) {
        if kit.mode == Mode::DryRun {
            continue;
        }
        let established = kit.cluster.wait_until_established(definition, kit.clock.as_ref());
        match unless_stopped(kit, established).await {
            Or::Ended(ended) => ended?,
            Or::Stopped => return Ok(Or::Stopped),
        }
    }
    Ok(Or::Ended(()))
}

fn manner(kit: &Kit, documents: &[Document]) -> Manner {
    let defined = documents.iter().filter_map(Document::defines);
    Manner {
        store: store(kit.mode),
        conflicts: if kit.force_conflicts { Conflicts::TakeOver } else { Conflicts::Report },
        defined: defined.map(|(group, kind)| (group.to_owned(), kind.to_owned())).collect(),
        clock: kit.clock.clone(),
    }
}

/// What a mode means for the API server.
pub(in crate::step) fn store(mode: Mode) -> Store {
    match mode {
        Mode::Act => Store::Yes,
        Mode::DryRun => Store::DryRun,
    }
}

/// Writes the release on the operator's Deployment, before anything is applied: it costs no request of its own.
fn stamp(documents: &mut [Document], deployment: &Deployment, release: &str) -> Result<(), Failure> {
    let found = documents.iter_mut().find(|document| {
        document.kind == "Deployment"
            && document.group() == "apps"
            && document.name == deployment.name
            && document.namespace.as_deref() == Some(&deployment.namespace)
    });
    let Some(found) = found else {
        return Err(Failure::new(
            Code::BundleInvalid,
            format!(
                "bundle.yaml: operator.deployment names {}/{}, and none of the manifests has it",
                deployment.namespace, deployment.name
            ),
        ));
    };
    found.annotate(RELEASE, release);
    Ok(())
}

fn said(document: &Document, applied: Applied) -> Update {
    let former = |former: apply::TakenOver| TakenOver { manager: former.manager, fields: former.fields };
    Update::Object {
        object: ObjectName { kind: document.kind.clone(), namespace: applied.namespace, name: document.name.clone() },
        change: match applied.change {
            Change::Created => ObjectChange::Created,
            Change::Configured => ObjectChange::Configured,
            Change::Unchanged => ObjectChange::Unchanged,
        },
        taken_over: applied.taken_over.into_iter().map(former).collect(),
    }
}

/// How many objects fared how.
#[derive(Debug, Default)]
struct Changes {
    created: usize,
    configured: usize,
    unchanged: usize,
}

impl Changes {
    fn count(&mut self, change: Change) {
        match change {
            Change::Created => self.created += 1,
            Change::Configured => self.configured += 1,
            Change::Unchanged => self.unchanged += 1,
        }
    }

    fn total(&self) -> usize {
        self.created + self.configured + self.unchanged
    }

    fn note(&self, mode: Mode) -> String {
        let would = if mode == Mode::DryRun { "would be " } else { "" };
        let parts = [(self.created, "created"), (self.configured, "configured"), (self.unchanged, "unchanged")];
        let told: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {would}{word}"))
            .collect();
        if told.is_empty() { "the manifests hold no object".to_owned() } else { told.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_stamped_with_the_release() {
        let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: a, namespace: ns }\n---\n\
                    apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: b, namespace: ns, annotations: { x: why } }\n";
        let mut documents = document::parse("f.yaml", text).expect("two documents");
        let deployment = Deployment { namespace: "ns".to_owned(), name: "b".to_owned() };
        stamp(&mut documents, &deployment, "0.9.2").expect("it is there");
        assert!(documents[0].object["metadata"]["annotations"].is_null());
        let annotations = &documents[1].object["metadata"]["annotations"];
        assert_eq!((annotations[RELEASE].as_str(), annotations["x"].as_str()), (Some("0.9.2"), Some("why")));
        let missing = Deployment { namespace: "m".to_owned(), name: "b".to_owned() };
        assert_eq!(stamp(&mut documents, &missing, "1").expect_err("not there").code, Code::BundleInvalid);
    }

    #[test]
    fn the_note_counts_what_happened() {
        let mut changes = Changes::default();
        assert_eq!(changes.note(Mode::Act), "the manifests hold no object");
        for change in [Change::Created, Change::Created, Change::Unchanged] {
            changes.count(change);
        }
        assert_eq!(changes.note(Mode::Act), "2 created, 1 unchanged");
        assert_eq!(changes.note(Mode::DryRun), "2 would be created, 1 would be unchanged");
    }
}
