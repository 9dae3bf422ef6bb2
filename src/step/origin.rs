//! Which OpenTofu state a run may work from: that of its own cluster and instance, and the one that the instance was
//! built with, which is written on its declaration. It is compared by a step that only looks, so that a refusal comes
//! before anything is written, and again before the next apply.
//!
//! An apply from another state, or from none, would make everything a second time. Only local state can be missing
//! like that: a remote backend is the same from everywhere.

use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::step::record::{forget_lineage, record_lineage, recorded_lineage};
use crate::step::tofu::is_local;
use crate::step::tofu_root::declared_backend;
use crate::step::tofu_state::{Owner, Part, StateFile, lineage};
use crate::step::{Fate, Kit, Update, tofu_state};

/// Refuses to work from another's local state, and says whose this run's is. None when this part of the bundle has no
/// root, or keeps its state elsewhere.
///
/// # Errors
/// [`Code::StateMissing`], or when the cluster cannot be asked.
pub(in crate::step) async fn own_state(kit: &Kit, part: Part) -> Result<Option<Owner>, Failure> {
    let root = part.root(&kit.bundle);
    if root.is_none_or(|root| !is_local(declared_backend(&root.dir).as_ref())) {
        return Ok(None);
    }
    let owner = Owner::of(kit).await?;
    owner.check(part, &kit.state_dir)?;
    refuse_another(kit, part).await?;
    Ok(Some(owner))
}

/// Refuses a run on a live instance whose infrastructure it could only forget or make twice: its state is not here, is
/// another's, or an earlier one waits that could not be saved. It only reads; it is asked before the lock, and by the first step.
///
/// # Errors
/// [`Code::StateMissing`], [`Code::StateErrored`], or when the cluster cannot be asked.
pub async fn refuse_lost_state(kit: &Kit) -> Result<(), Failure> {
    let part = Part::Infrastructure;
    if kit.choices.infrastructure == Fate::Abandoned || part.root(&kit.bundle).is_none() {
        return Ok(());
    }
    tofu_state::refuse_errored(part, &kit.state_dir)?;
    match own_state(kit, part).await {
        // What an account may not do it is told by the step that has to do it.
        Err(failure) if failure.code == Code::Forbidden => Ok(()),
        Err(failure) if failure.code == Code::StateMissing && kit.verb == Verb::Destroy => Err(failure.hint(ABANDON)),
        looked => looked.map(drop),
    }
}

/// What to do about infrastructure whose state is lost for good.
const ABANDON: &str = "if that state is gone for good: with --abandon-infrastructure the destroy goes on without it, and \
                       what OpenTofu had made stays";

/// The instance has no infrastructure any more that anybody knows of: its declaration names no state from here on.
///
/// # Errors
/// When the cluster cannot be asked.
pub(in crate::step) async fn forget(kit: &Kit) -> Result<(), Failure> {
    forget_lineage(kit).await
}

/// Refuses to work from another state than the one that the instance was built with. A declaration that names none is
/// of an instance that has no state yet.
///
/// # Errors
/// [`Code::StateMissing`], or when the declaration cannot be read.
async fn refuse_another(kit: &Kit, part: Part) -> Result<(), Failure> {
    if part != Part::Infrastructure {
        return Ok(());
    }
    let Some(recorded) = recorded_lineage(kit).await? else { return Ok(()) };
    let (path, name) = (part.state(&kit.state_dir), kit.instance.as_deref().unwrap_or_default());
    let sentence = match StateFile::look(&path) {
        StateFile::State(state) if state.lineage == recorded => return Ok(()),
        StateFile::State(_) => format!("`{}` is not the OpenTofu state that \"{name}\" was built with", path.display()),
        StateFile::Missing => format!("the OpenTofu state of \"{name}\" is not here: there is no `{}`", path.display()),
        StateFile::Empty => format!("the OpenTofu state of \"{name}\" was lost: `{}` is empty", path.display()),
        StateFile::Unreadable => format!("the OpenTofu state of \"{name}\" cannot be read: `{}`", path.display()),
    };
    Err(Failure::new(Code::StateMissing, sentence)
        .cause(format!("the declaration names the state {recorded}"))
        .cause("from another one an apply would make everything a second time, and a destroy would remove nothing")
        .hint("run where that state is, or name its folder with --state-dir"))
}

/// Writes down which state the instance has by now, unless the lock was lost. It is written again with the phase, so
/// trouble is only said.
pub(in crate::step) async fn write_down(kit: &Kit, part: Part) {
    let may = part == Part::Infrastructure && kit.cluster.may_write().is_ok();
    let Some(lineage) = of_instance(kit).filter(|_| may) else { return };
    if let Err(failure) = record_lineage(kit, &lineage).await {
        let text = format!("which OpenTofu state the instance has could not be written down yet: {}", failure.message);
        kit.updates.send(Update::Note(text));
    }
}

/// The lineage of the instance's local state, if it has one.
pub(in crate::step) fn of_instance(kit: &Kit) -> Option<String> {
    let root = Part::Infrastructure.root(&kit.bundle)?;
    is_local(declared_backend(&root.dir).as_ref())
        .then(|| lineage(&kit.state_dir, Part::Infrastructure))
        .flatten()
        .map(|state| state.lineage)
}
