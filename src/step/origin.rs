//! Which OpenTofu state a run may work from: that of its own cluster and instance, and the one that the instance was
//! built with, which is written on its declaration. It is compared by a step that only looks, so that a refusal comes
//! before anything is written, and again before the next apply.
//!
//! An apply from another state, or from none, would make everything a second time. Here it is asked of local state, which
//! can be looked at before the lock; of what a backend keeps, in `tofu_remote.rs`.

use std::path::{Path, PathBuf};

use crate::cluster::instances::Phase;
use crate::cluster::namespace::{Maker, Namespace};
use crate::config::Bundle;
use crate::failure::{Code, Failure, shell_word};
use crate::pipeline::Verb;
use crate::step::record::{find, forget_lineage, record_shared_state, record_state, recorded_lineage, shared_state};
use crate::step::tofu::is_local;
use crate::step::tofu_lock::Held;
use crate::step::tofu_root::declared_backend;
use crate::step::tofu_state::{Lineage, Owner, Part, StateFile, lineage};
use crate::step::{Fate, Kit, Update, tofu_first, tofu_state};

/// Refuses to work from another's local state, and says whose this run's is. None when this part of the bundle has no
/// root, and the instance was built with none, or when it keeps its state elsewhere.
///
/// # Errors
/// [`Code::StateMissing`], or when the cluster cannot be asked.
pub(in crate::step) async fn own_state(kit: &Kit, part: Part) -> Result<Option<Owner>, Failure> {
    if part == Part::Infrastructure {
        refuse_undeclaring(kit).await?;
    }
    let Some(root) = part.root(&kit.bundle) else {
        refuse_left_out(kit, part).await?;
        return Ok(None);
    };
    if !is_local(declared_backend(&root.dir).as_ref()) {
        return Ok(None);
    }
    let owner = Owner::of(kit).await?;
    if let Err(failure) = owner.check(part, &kit.state_dir) {
        return Err(name_the_own(kit, part, failure).await);
    }
    match part {
        Part::Infrastructure => refuse_another(kit).await?,
        Part::Prerequisites => refuse_another_shared(kit).await?,
    }
    Ok(Some(owner))
}

/// Says which state it is that is looked for, of a refusal because of a folder that is another's.
async fn name_the_own(kit: &Kit, part: Part, failure: Failure) -> Failure {
    let (name, written) = match part {
        Part::Infrastructure => {
            let lineage = recorded_lineage(kit).await.unwrap_or_default();
            let name = format!("\"{}\"", kit.instance.as_deref().unwrap_or_default());
            (name, lineage.map(|lineage| format!("the declaration names the state {lineage}")))
        }
        Part::Prerequisites => {
            let state = shared_state(kit).await.unwrap_or_default();
            let written = state.map(|state| format!("the install record names the state {}", state.lineage));
            ("what all instances of this cluster share".to_owned(), written)
        }
    };
    match written {
        Some(written) => {
            failure.cause(written).hint(format!("name the folder of the state of {name} with --state-dir"))
        }
        None => failure.hint(format!(
            "name the folder of the state of {name} with --state-dir, or, where it has none yet, one that is empty"
        )),
    }
}

/// Refuses a bundle that declares nothing for an instance that is declared: what its declaration says of its state and of
/// its phase would be passed over, and a destroy would leave it behind.
///
/// # Errors
/// [`Code::CannotTell`], or when the cluster cannot be asked.
async fn refuse_undeclaring(kit: &Kit) -> Result<(), Failure> {
    let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else { return Ok(()) };
    if instance.declaration.is_some() || kit.cluster.any_declaration(name).await?.is_none() {
        return Ok(());
    }
    let sentence = format!("\"{name}\" is declared on this cluster, and this bundle has no `instance.declaration`");
    Err(Failure::new(Code::CannotTell, sentence)
        .cause("what the declaration says of its phase, its claims and its OpenTofu state is not this bundle's to pass over")
        .hint("use a bundle that has it: the one that the instance was built from, or a newer release of that")
        .hint(format!(
            "if the instance shall have none from now on: `dcctl instances release {name}` takes it away and destroys nothing"
        )))
}

/// Refuses a run while a state of its instance waits that an earlier one could not save.
///
/// # Errors
/// [`Code::StateErrored`].
pub fn refuse_unsaved_state(kit: &Kit) -> Result<(), Failure> {
    let part = Part::Infrastructure;
    if part.root(&kit.bundle).is_some() { tofu_state::refuse_errored(part, &kit.state_dir) } else { Ok(()) }
}

/// Refuses a run on a live instance whose infrastructure it could only forget or make twice: its state is not here, is
/// another's, or an earlier one waits that could not be saved. It only reads; it is asked before the lock, and by the first step.
///
/// # Errors
/// [`Code::StateMissing`], [`Code::StateErrored`], or when the cluster cannot be asked.
pub async fn refuse_lost_state(kit: &Kit) -> Result<(), Failure> {
    let part = Part::Infrastructure;
    let destroys = kit.verb == Verb::Destroy;
    if destroys {
        // What that makes is in no state yet: whoever abandons could not be told of it either.
        refuse_while_at_work(kit)?;
    }
    if kit.choices.infrastructure == Fate::Abandoned {
        return refuse_undeclaring(kit).await;
    }
    refuse_unsaved_state(kit)?;
    match own_state(kit, part).await {
        // What an account may not do it is told by the step that has to do it.
        Err(failure) if failure.code == Code::Forbidden => Ok(()),
        Err(failure) if failure.code == Code::StateMissing && destroys => Err(failure.hint(ABANDON)),
        Ok(Some(_)) if destroys => refuse_empty(kit),
        looked => looked.map(drop),
    }
}

/// Refuses a destroy beside an OpenTofu that is at work on the local state: what that makes is not in it yet.
///
/// # Errors
/// [`Code::StateLocked`].
pub(in crate::step) fn refuse_while_at_work(kit: &Kit) -> Result<(), Failure> {
    let part = Part::Infrastructure;
    let Some(root) = part.root(&kit.bundle) else { return Ok(()) };
    let name = root.dir.strip_prefix(&kit.bundle.root).unwrap_or(&root.dir);
    let local = is_local(declared_backend(&root.dir).as_ref());
    match Held::on_this_machine(&part.state(&kit.state_dir)).filter(|_| local) {
        Some(held) => Err(held.at_work_here(&name.display().to_string())),
        None => Ok(()),
    }
}

/// Refuses a destroy from a local state that knows nothing of an apply which had begun: nothing is left of it but the file,
/// or nothing ever came into it; whatever the declaration names.
///
/// # Errors
/// [`Code::StateMissing`].
pub(in crate::step) fn refuse_empty(kit: &Kit) -> Result<(), Failure> {
    let path = Part::Infrastructure.state(&kit.state_dir);
    let shown = path.display();
    let sentence = if StateFile::look(&path) == StateFile::Empty {
        format!("the OpenTofu state `{shown}` is empty: what an apply may have made is not in it")
    } else if tofu_first::is_as_begun(&path) {
        format!("the OpenTofu state `{shown}` is as dcctl began it: nothing of the apply that was to fill it came back")
    } else {
        return Ok(());
    };
    Err(Failure::new(Code::StateMissing, sentence)
        .cause("what that apply may have made is in no state: a destroy would find nothing and leave all that there is")
        .hint("bring the state back from a backup, or see what bears the instance's name and remove it by hand")
        .hint(ABANDON))
}

/// Where an OpenTofu root keeps its state, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateSeen {
    /// On this machine.
    Local {
        /// Its file.
        path: PathBuf,
        /// What that is.
        file: StateFile,
    },
    /// Where OpenTofu itself looks for it.
    Remote {
        /// `s3`, `kubernetes`…
        backend: String,
    },
}

/// Looks where the state of a part of the bundle is. None when it has no such root.
pub fn look_at_state(bundle: &Bundle, part: Part, state_dir: &Path) -> Option<StateSeen> {
    let backend = declared_backend(&part.root(bundle)?.dir);
    Some(match backend {
        Some(backend) if !is_local(Some(&backend)) => StateSeen::Remote { backend: backend.kind },
        Some(_) | None => {
            let path = part.state(state_dir);
            StateSeen::Local { file: StateFile::look(&path), path }
        }
    })
}

/// What to do about infrastructure whose state is lost for good.
pub(in crate::step) const ABANDON: &str = "if that state is gone for good: with --abandon-infrastructure the destroy goes on without it, and \
                       what OpenTofu had made stays";

/// The same for who wants to go on with the instance.
pub(in crate::step) fn lost_for_good(name: &str) -> String {
    format!(
        "if that state is gone for good, nothing can go on from it: `dcctl destroy {name} --abandon-infrastructure` removes the rest of \
         the instance and says what it leaves, and a bootstrap builds it anew"
    )
}

/// The instance has no infrastructure any more that anybody knows of: its declaration names no state from here on.
///
/// # Errors
/// When the cluster cannot be asked.
pub(in crate::step) async fn forget(kit: &Kit) -> Result<(), Failure> {
    forget_lineage(kit).await
}

/// Refuses a bundle without infrastructure for an instance that was built with some: nothing that it knows of would tell of
/// that any more.
///
/// # Errors
/// [`Code::StateMissing`], or when the declaration cannot be read.
async fn refuse_left_out(kit: &Kit, part: Part) -> Result<(), Failure> {
    if part != Part::Infrastructure {
        return Ok(());
    }
    let Some(recorded) = recorded_lineage(kit).await? else { return Ok(()) };
    let name = kit.instance.as_deref().unwrap_or_default();
    let sentence = format!("\"{name}\" has infrastructure, and this bundle has no `instance.infrastructure`");
    Err(Failure::new(Code::StateMissing, sentence)
        .cause(format!("the declaration names the OpenTofu state {recorded}"))
        .cause("what is in it would stay, and nothing would tell of it")
        .hint("use a bundle that has it; to have it removed by an upgrade, keep the root with nothing in it: the plan then says what goes"))
}

/// Refuses to work from another state than the one that the instance was built with, or from an older version of it.
///
/// # Errors
/// [`Code::StateMissing`], or when the declaration cannot be read.
async fn refuse_another(kit: &Kit) -> Result<(), Failure> {
    let (path, name) = (Part::Infrastructure.state(&kit.state_dir), kit.instance.as_deref().unwrap_or_default());
    let declared = find(kit).await?.flatten();
    let (lineage, serial) = declared.as_ref().map_or((None, None), |found| (found.lineage.as_ref(), found.serial));
    if let Some(lineage) = lineage {
        let written = Written { of: format!("\"{name}\""), by: "the declaration", lineage, serial };
        let is_older = matches!(StateFile::look(&path), StateFile::State(state) if state.lineage == *lineage);
        let is_last = kit.verb == Verb::Destroy || is_older;
        return written
            .refuse_another(&path)
            .map_err(|failure| if is_last { failure } else { failure.hint(lost_for_good(name)) });
    }
    let found = StateFile::look(&path);
    let lost = match found {
        StateFile::Missing => format!("the OpenTofu state of \"{name}\" is not here: there is no `{}`", path.display()),
        StateFile::Empty => format!("the OpenTofu state of \"{name}\" is not here: `{}` is empty", path.display()),
        StateFile::Unreadable | StateFile::State(_) => return Ok(()),
    };
    let Some(declared) = declared else { return refuse_traces(kit, &path, lost).await };
    if is_built(kit.verb, declared.phase.as_deref().and_then(Phase::parse)) {
        let why = "the declaration names no state: the instance had no infrastructure, or was built before states were named on it";
        return Err(unnamed(kit, &path, Failure::new(Code::StateMissing, lost).cause(why)));
    }
    match found {
        // An apply may begin anew from nothing, and says so; to forget it all is not for us to do.
        StateFile::Empty if kit.verb == Verb::Destroy => Err(Failure::new(Code::StateMissing, lost)
            .cause("what an apply that began had made is not in it, so a destroy would remove none of it")),
        StateFile::Missing | StateFile::Empty | StateFile::Unreadable | StateFile::State(_) => Ok(()),
    }
}

/// Refuses, without a state and without a declaration, an instance of which there is more than that: its own namespace says
/// that a run was here, and whether that made infrastructure nobody can tell.
///
/// # Errors
/// [`Code::StateMissing`], or when the cluster cannot be asked.
async fn refuse_traces(kit: &Kit, path: &Path, lost: String) -> Result<(), Failure> {
    let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else { return Ok(()) };
    let Namespace::There { instance: owner, maker } = kit.cluster.namespace(&instance.namespace).await? else {
        return Ok(());
    };
    if owner.as_ref() != Some(name) {
        return Ok(());
    }
    // Killed before its first apply, a bootstrap that declares nothing leaves just that, and is gone on with. And one that
    // somebody else made may have been prepared for the instance, by whoever may make namespaces.
    let has_begun_only = kit.verb == Verb::Bootstrap && (instance.declaration.is_none() || maker == Maker::Other);
    if has_begun_only && !has_a_release(kit).await? {
        return Ok(());
    }
    let failure = Failure::new(Code::StateMissing, lost).cause(format!(
        "no declaration names one, and the namespace {} is there and bears the name of \"{name}\": what it was built with \
         cannot be told",
        instance.namespace
    ));
    let failure = unnamed(kit, path, failure);
    Err(if kit.verb == Verb::Destroy {
        failure
    } else {
        failure.hint(format!(
            "if the instance is to be built anew: `dcctl destroy {name} --abandon-infrastructure` removes what is left of it first"
        ))
    })
}

/// Whether a Helm release of the instance is in its place: the chart comes after the infrastructure.
async fn has_a_release(kit: &Kit) -> Result<bool, Failure> {
    let Some(chart) = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref()) else {
        return Ok(false);
    };
    let releases = kit.cluster.stamped_releases(Some(&chart.namespace)).await?;
    Ok(releases.iter().any(|release| Some(&release.instance) == kit.instance.as_ref()))
}

/// Refuses to work from another state than the one that the install record names, or from an older version of it.
///
/// # Errors
/// [`Code::StateMissing`], or when the record cannot be read.
async fn refuse_another_shared(kit: &Kit) -> Result<(), Failure> {
    let Some(state) = shared_state(kit).await? else { return Ok(()) };
    let (path, of) = (Part::Prerequisites.state(&kit.state_dir), "what all instances of this cluster share".to_owned());
    let written = Written { of, by: "the install record", lineage: &state.lineage, serial: Some(state.serial) };
    written.refuse_another(&path).map_err(|failure| {
        let first = tofu_first::empty("", &state.lineage, state.serial);
        failure.hint(format!(
            "if it is gone for good, see what there is of it and remove that by hand; then begin it anew: {}",
            put_there(kit, &path, &first)
        ))
    })
}

/// What is written down on the cluster of a state.
struct Written<'a> {
    /// Whose it is.
    of: String,
    /// What says so.
    by: &'static str,
    lineage: &'a str,
    /// How old it was when a run on it ended last.
    serial: Option<u64>,
}

impl Written<'_> {
    /// Refuses what is here when it is not that state, or an older version of it. A newer one is that of a run which ended
    /// before it could write that down.
    fn refuse_another(&self, path: &Path) -> Result<(), Failure> {
        let Written { of, by, lineage, serial } = self;
        let shown = path.display();
        let refused = |sentence: String| {
            Failure::new(Code::StateMissing, sentence).cause(format!("{by} names the state {lineage}"))
        };
        let other = |sentence: String| {
            Err(refused(sentence)
                .cause(
                    "from another one an apply would make everything a second time, and a destroy would remove nothing",
                )
                .hint(ELSEWHERE))
        };
        match StateFile::look(path) {
            StateFile::State(state) if state.lineage == *lineage => match serial.filter(|newer| state.serial < *newer) {
                None => Ok(()),
                Some(newer) => Err(refused(format!("`{shown}` is an older version of the OpenTofu state of {of}"))
                    .cause(format!("its serial is {}, and a run on it ended with serial {newer}", state.serial))
                    .cause("what was made since then is not in it: an apply would make that a second time, and a destroy would leave it")
                    .hint(ELSEWHERE)
                    .hint(format!(
                        "if the newer one is gone for good: import into this one what it lacks, or remove that by hand; then \
                         write \"serial\": {newer} into it"
                    ))),
            },
            StateFile::State(_) => other(format!("`{shown}` is not the OpenTofu state that {of} was built with")),
            StateFile::Missing => other(format!("the OpenTofu state of {of} is not here: there is no `{shown}`")),
            StateFile::Empty => other(format!("the OpenTofu state of {of} is not here: `{shown}` is empty")),
            StateFile::Unreadable => other(format!("the OpenTofu state of {of} cannot be read: `{shown}`")),
        }
    }
}

/// The command that puts this state where it is looked for.
fn put_there(kit: &Kit, path: &Path, state: &str) -> String {
    let [folder, file] = [&kit.state_dir, path].map(|path| shell_word(&path.display().to_string()));
    format!("mkdir -p {folder} && echo '{state}' > {file}")
}

/// Whether an instance in this phase was once completely built, so that it had a state then if it has infrastructure. One
/// that is being destroyed may have lost its own on the way; only what was built is upgraded.
pub(in crate::step) fn is_built(verb: Verb, phase: Option<Phase>) -> bool {
    match phase {
        Some(Phase::Ready | Phase::Upgrading) => true,
        Some(Phase::Failed) => verb == Verb::Upgrade,
        Some(Phase::Bootstrapping | Phase::Destroying) | None => false,
    }
}

/// A built instance of which nothing names a state, and there is none here.
fn unnamed(kit: &Kit, path: &Path, failure: Failure) -> Failure {
    let failure = failure
        .cause("without it an apply would make everything a second time, and a destroy would remove nothing")
        .hint(ELSEWHERE);
    if kit.verb == Verb::Destroy {
        return failure;
    }
    let first = tofu_first::empty("", &tofu_first::new_lineage(), tofu_first::SETTLED);
    failure.hint(format!(
        "if it never had any infrastructure, put a state there that has nothing in it: {}",
        put_there(kit, path, &first)
    ))
}

/// What to do about a state that is not here.
const ELSEWHERE: &str = "run where that state is, or name its folder with --state-dir";

/// Writes down on the cluster which state that is, and how old.
///
/// # Errors
/// When the cluster cannot be asked, or does not take it.
pub(in crate::step) async fn record(kit: &Kit, part: Part, state: &Lineage) -> Result<(), Failure> {
    match part {
        Part::Infrastructure => record_state(kit, state).await,
        Part::Prerequisites => record_shared_state(kit, state).await,
    }
}

/// The same after a run on it, unless the lock was lost. The state is the right one without it, so trouble is only said.
pub(in crate::step) async fn write_down(kit: &Kit, part: Part, state: &Lineage) {
    if kit.cluster.may_write().is_err() {
        return;
    }
    if let Err(failure) = record(kit, part, state).await {
        let text = format!("how old the OpenTofu state is by now could not be written down: {}", failure.message);
        kit.updates.send(Update::Note(text));
    }
}

/// The same of the state on this machine, if it is kept here.
pub(in crate::step) async fn write_down_here(kit: &Kit, part: Part) {
    if let Some(state) = here(kit, part) {
        write_down(kit, part, &state).await;
    }
}

/// The instance's state on this machine, if it has one here.
pub(in crate::step) fn of_instance(kit: &Kit) -> Option<Lineage> {
    here(kit, Part::Infrastructure)
}

fn here(kit: &Kit, part: Part) -> Option<Lineage> {
    let root = part.root(&kit.bundle)?;
    is_local(declared_backend(&root.dir).as_ref()).then(|| lineage(&kit.state_dir, part)).flatten()
}
