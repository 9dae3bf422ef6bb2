//! The steps of a destroy that talk to the API server: *Mark destroying*, *Delete namespace*, *Release the declaration*.
//!
//! Each may be met half done, by a run that goes on where an earlier one ended, and what is gone already is nothing to do.
//! The declaration goes last: while anything of the instance may be left, it says so.

use std::time::Duration;

use tokio::time::sleep;

use crate::clock::human;
use crate::cluster::instances::{PHASE, Phase};
use crate::cluster::removal::{Leaving, LetGo};
use crate::failure::{Code, Failure};
use crate::step::elsewhere::Own;
use crate::step::halt::{Or, drive, stopped, unless_stopped};
use crate::step::record::{Found, find, identity};
use crate::step::tofu_destroy::remove_empty_state;
use crate::step::tofu_remote::look_before_destroying;
use crate::step::{Kit, Mode, ObjectChange, ObjectName, Outcome, Update, elsewhere, origin};

/// How long a namespace may take to go.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(300);

/// How often it is looked at: often at first, because most go soon.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often it is looked at after [`PATIENCE`].
const LOOK_EVERY_LATER: Duration = Duration::from_secs(2);

/// How long a namespace may take before it is said what keeps it: what is in it needs its time to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The step *Mark destroying*. It refuses what would harm another instance, or forget this one's infrastructure, before
/// anything is touched.
pub async fn mark_destroying(kit: &Kit) -> Outcome {
    // Not below: a force that drops what it waits for would leave an OpenTofu to itself.
    if let Err(end) = look_before_destroying(kit).await {
        return end.into_outcome(kit);
    }
    drive(kit, async {
        if let Some((name, namespace)) = names(kit) {
            let own = match kit.cluster.leaving(namespace).await? {
                None => Own::Missing,
                Some(leaving) => {
                    is_its_own(name, namespace, &leaving)?;
                    Own::There
                }
            };
            elsewhere::refuse_another_home(kit, own).await?;
        }
        origin::refuse_lost_state(kit).await?;
        let Some(found) = find(kit).await? else {
            return Ok(Outcome::Nothing("the bundle declares nothing".to_owned()));
        };
        let (api_version, name) = identity(kit).expect("the bundle has a declaration");
        let Some(Found { uid, phase, .. }) = found else {
            remove_empty_state(kit);
            return Ok(Outcome::Nothing(format!("\"{name}\" is not declared on this cluster")));
        };
        if phase.as_deref() == Some(Phase::Destroying.word()) {
            return Ok(Outcome::Nothing("an earlier run has marked it; this one goes on from there".to_owned()));
        }
        if kit.mode == Mode::Act {
            let annotations = [(PHASE, Some(Phase::Destroying.word()))];
            kit.cluster.annotate_declaration(api_version, (name, &uid), &annotations).await?;
        }
        say(kit, "Instance", name, ObjectChange::Configured);
        Ok(Outcome::Done(match kit.mode {
            Mode::Act => format!("\"{name}\" is {}", Phase::Destroying.word()),
            Mode::DryRun => format!("\"{name}\" would be {}", Phase::Destroying.word()),
        }))
    })
    .await
}

/// The instance and its namespace.
fn names(kit: &Kit) -> Option<(&str, &str)> {
    Some((kit.instance.as_deref()?, kit.bundle.instance.as_ref()?.namespace.as_str()))
}

/// Refuses a namespace that is another instance's, or nobody's.
fn is_its_own(name: &str, namespace: &str, leaving: &Leaving) -> Result<(), Failure> {
    let refused = |why: String| Failure::new(Code::ClaimConflict, why);
    match &leaving.instance {
        Some(owner) if owner == name => Ok(()),
        Some(owner) => Err(refused(format!("namespace {namespace} belongs to the instance \"{owner}\""))),
        None => {
            let label = crate::cluster::instances::INSTANCE_LABEL;
            let why = format!("namespace {namespace} is there, and nothing says that it is the instance \"{name}\"'s");
            Err(refused(why).hint(format!("if it is, say so: kubectl label namespace {namespace} {label}={name}")))
        }
    }
}

fn say(kit: &Kit, kind: &str, name: &str, change: ObjectChange) {
    kit.updates.send(Update::Object { object: cluster_wide(kind, name), change, taken_over: Vec::new() });
}

fn cluster_wide(kind: &str, name: &str) -> ObjectName {
    ObjectName { kind: kind.to_owned(), namespace: None, name: name.to_owned() }
}

/// The step *Delete namespace*.
pub async fn delete_namespace(kit: &Kit) -> Outcome {
    drive(kit, async {
        let Some((name, namespace)) = names(kit) else {
            return Ok(Outcome::Nothing("the bundle has no instance".to_owned()));
        };
        let Some(leaving) = kit.cluster.leaving(namespace).await? else {
            return Ok(Outcome::Nothing(format!("namespace {namespace} is not there")));
        };
        is_its_own(name, namespace, &leaving)?;
        if kit.mode == Mode::DryRun {
            say_what_is_in(kit, namespace).await?;
            say(kit, "Namespace", namespace, ObjectChange::Deleted);
            return Ok(Outcome::Done(format!("namespace {namespace} would be deleted, with everything in it")));
        }
        if !leaving.is_deleted {
            kit.cluster.delete_namespace(namespace, &leaving.uid).await?;
        }
        match until_gone(kit, namespace, &leaving.uid).await? {
            Or::Ended(()) => {
                say(kit, "Namespace", namespace, ObjectChange::Deleted);
                Ok(Outcome::Done(format!("namespace {namespace} is gone")))
            }
            Or::Stopped => Ok(stopped(format!("namespace {namespace} is being deleted; stopped waiting for that"))),
        }
    })
    .await
}

/// Names what a namespace holds, as far as this account may list it.
async fn say_what_is_in(kit: &Kit, namespace: &str) -> Result<(), Failure> {
    let held = kit.cluster.held(namespace).await?;
    for (kind, name) in held.objects {
        let object = ObjectName { kind, namespace: Some(namespace.to_owned()), name };
        kit.updates.send(Update::Object { object, change: ObjectChange::Deleted, taken_over: Vec::new() });
    }
    if !held.unlisted.is_empty() {
        let kinds = held.unlisted.join(", ");
        kit.updates.send(Update::Note(format!(
            "{kinds} cannot be listed in {namespace}: what there is of them would go, too"
        )));
    }
    Ok(())
}

/// Waits until the namespace of this uid is gone, and says what keeps it.
async fn until_gone(kit: &Kit, namespace: &str, uid: &str) -> Result<Or<()>, Failure> {
    let started = kit.clock.now();
    let mut said: Option<String> = None;
    loop {
        let looked = match unless_stopped(kit, kit.cluster.leaving(namespace)).await {
            Or::Ended(looked) => looked?,
            Or::Stopped => return Ok(Or::Stopped),
        };
        let Some(leaving) = looked.filter(|leaving| leaving.uid == uid) else { return Ok(Or::Ended(())) };
        let waited = kit.clock.now().since(started);
        if waited >= NAMESPACE_LIMIT {
            return Err(stuck(namespace, &leaving));
        }
        let why = leaving.keeps.join("; ");
        if waited >= PATIENCE && !why.is_empty() && said.as_ref() != Some(&why) {
            kit.updates.send(Update::Waiting { object: cluster_wide("Namespace", namespace), why: why.clone() });
            said = Some(why);
        }
        let pause = if waited < PATIENCE { LOOK_EVERY } else { LOOK_EVERY_LATER };
        if unless_stopped(kit, sleep(pause)).await == Or::Stopped {
            return Ok(Or::Stopped);
        }
    }
}

fn stuck(namespace: &str, leaving: &Leaving) -> Failure {
    let sentence = format!("namespace {namespace} is not gone after {}", human(NAMESPACE_LIMIT));
    let failure = Failure::new(Code::NamespaceStuck, sentence);
    if leaving.keeps.is_empty() {
        return failure.cause("its conditions do not say what keeps it");
    }
    let has = |word: &str| leaving.keeps.iter().any(|why| why.contains(word));
    let (finalizers, discovery) = (has("finalizer"), has("iscovery failed"));
    let failure = leaving.keeps.iter().fold(failure, |failure, why| failure.cause(why.clone()));
    let failure = if discovery {
        failure.hint("an API service does not answer: see `kubectl get apiservices`, and mend or delete the one that is not available")
    } else {
        failure
    };
    let failure = if finalizers {
        failure.hint("whoever owns the finalizer that is named has to let go: see whether its controller runs; take it off by hand only when what it guards is gone")
    } else {
        failure
    };
    failure.hint("then run the same command again: it goes on from there")
}

/// The step *Release the declaration*: nothing of the instance is left, so its name is free.
pub async fn release_declaration(kit: &Kit) -> Outcome {
    drive(kit, async {
        let Some(found) = find(kit).await? else {
            remove_empty_state(kit);
            return Ok(Outcome::Nothing("the bundle declares nothing".to_owned()));
        };
        let (api_version, name) = identity(kit).expect("the bundle has a declaration");
        let Some(Found { uid, phase, .. }) = found else {
            remove_empty_state(kit);
            return Ok(Outcome::Nothing(format!("\"{name}\" is not declared on this cluster")));
        };
        if kit.mode == Mode::DryRun {
            say(kit, "Instance", name, ObjectChange::Deleted);
            return Ok(Outcome::Done(format!(
                "the declaration of \"{name}\" would be deleted, and its finalizer taken off"
            )));
        }
        // It may be at work without the lock, so what another run wrote meanwhile stays.
        if phase.as_deref() != Some(Phase::Destroying.word()) {
            let phase = phase.as_deref().unwrap_or("none");
            let sentence = format!("the declaration of \"{name}\" is in phase {phase}, which this run did not write");
            return Err(Failure::new(Code::CannotTell, sentence).cause("another run has worked on it meanwhile"));
        }
        elsewhere::refuse_a_rest(kit, name).await?;
        remove_empty_state(kit);
        let gone = match kit.cluster.let_go(api_version, name, &uid).await? {
            LetGo::Gone => format!("\"{name}\" is not declared any more"),
            LetGo::KeptBy(finalizers) => {
                let finalizers = finalizers.join(", ");
                format!("dcctl has let \"{name}\" go; its declaration stays until whoever wrote {finalizers} does, too")
            }
        };
        say(kit, "Instance", name, ObjectChange::Deleted);
        say_what_bears_its_name(kit, name).await;
        Ok(Outcome::Done(gone))
    })
    .await
}

/// Secrets that all share may bear the name of an instance that is gone: the next bootstrap would ask whose they are.
async fn say_what_bears_its_name(kit: &Kit, name: &str) {
    let Ok(stamped) = kit.cluster.stamped_secrets().await else { return };
    for secret in stamped.into_iter().filter(|secret| secret.instance.as_deref() == Some(name)) {
        let shared = crate::cluster::instances::SHARED_NAMESPACE;
        let text =
            format!("Secret {shared}/{} still bears the name of \"{name}\": remove it if nobody needs it", secret.name);
        kit.updates.send(Update::Note(text));
    }
}
