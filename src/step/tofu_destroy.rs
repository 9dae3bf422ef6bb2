//! *Destroy infrastructure*: everything in the state of the instance's OpenTofu root goes.
//!
//! OpenTofu takes what is in the state, so without the right state nothing would be destroyed, and an instance's databases
//! would be forgotten. Whether the state is the right one is asked before anything else. Whoever has lost it for good may
//! abandon what it knew: then that is named, as far as it can be.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Root;
use crate::failure::Failure;
use crate::step::invoke::words;
use crate::step::record::{find, recorded_lineage};
use crate::step::tofu::{End, Work, is_local};
use crate::step::tofu_end::{self, Applied};
use crate::step::tofu_plan::Wanted;
use crate::step::tofu_root::declared_backend;
use crate::step::tofu_state::{self, Part, StateFile};
use crate::step::{Fate, Kit, Mode, Outcome, Severity, Update, invoke, origin, tofu_first};

/// The step *Destroy infrastructure*.
pub async fn destroy(kit: &Kit) -> Outcome {
    let part = Part::Infrastructure;
    let root = part.root(&kit.bundle);
    if kit.choices.infrastructure == Fate::Abandoned {
        return abandon(kit, root).await.unwrap_or_else(Outcome::Failed);
    }
    let Some(root) = root else {
        return match origin::own_state(kit, part).await {
            Ok(_) => Outcome::Nothing("the bundle has no infrastructure".to_owned()),
            Err(failure) => Outcome::Failed(failure),
        };
    };
    let work = Work::on(kit, part, root);
    let ended = match kit.mode {
        Mode::Act => work.destroy().await,
        Mode::DryRun => work.plan_destruction().await,
    };
    ended.unwrap_or_else(|end| end.into_outcome(kit))
}

impl Work<'_> {
    async fn destroy(&self) -> Result<Outcome, End> {
        let kit = self.kit;
        if let Some(nothing) = self.is_destroyed().await? {
            self.clean_up().await?;
            return Ok(nothing);
        }
        let path = self.part.state(&kit.state_dir);
        let cwd = self.begin().await?;
        let mut args = words(&["destroy", "-json", "-input=false", "-auto-approve"]);
        args.extend(self.common(&path));
        let before = StateFile::look(&path);
        let (ui, tail, done) = self.run_locked("destroy", args, &cwd).await?;
        let state = if self.has_local_state() {
            self.look_after(&before, &ui)
        } else {
            self.look_after_remote(&done.ended, None, &cwd).await
        };
        tofu_state::make_private(&kit.state_dir);
        let unsaved = self.rescue(&ui, &done, &cwd);
        let name = self.name();
        let is_gone = state.as_ref().is_some_and(|state| state.trouble.is_some());
        let (deed, ended) = ("destroy", &done.ended);
        let applied = Applied { deed, name: &name, ui: &ui, tail: &tail, ended, unsaved: unsaved.as_deref(), state };
        if !ended.exit.is_success() || unsaved.is_some() || is_gone {
            origin::write_down_here(kit, self.part).await;
            return Ok(tofu_end::judge(&applied, kit.stop.now(), kit.clock.now()));
        }
        self.clean_up().await?;
        Ok(Outcome::Done(ui.summary().unwrap_or_else(|| "destroyed".to_owned())))
    }

    async fn plan_destruction(&self) -> Result<Outcome, End> {
        match self.is_destroyed().await? {
            Some(nothing) => Ok(nothing),
            None => self.plan(Wanted::Nothing).await,
        }
    }

    /// Whether nothing is left to destroy: a state that knows nothing, or none where none was ever recorded.
    async fn is_destroyed(&self) -> Result<Option<Outcome>, Failure> {
        let kit = self.kit;
        tofu_state::refuse_errored(self.part, &kit.state_dir)?;
        origin::refuse_while_at_work(kit)?;
        if origin::own_state(kit, self.part).await?.is_none() {
            return Ok(None);
        }
        origin::refuse_empty(kit)?;
        let path = self.part.state(&kit.state_dir);
        Ok(match StateFile::look(&path) {
            StateFile::State(_) if tofu_state::addresses(&path).is_empty() => {
                Some(Outcome::Nothing("nothing is in its state".to_owned()))
            }
            StateFile::State(_) | StateFile::Unreadable | StateFile::Empty => None,
            StateFile::Missing => Some(Outcome::Nothing(match find(kit).await?.flatten() {
                Some(_) => "there is no state of it, and the declaration names none".to_owned(),
                None => self.unknown(&path),
            })),
        })
    }

    /// No declaration tells whether there ever was a state. That is said loudly: on a machine which is not the one that
    /// built the instance, all that it has stays.
    fn unknown(&self, path: &Path) -> String {
        warn(
            self.kit,
            "whether the instance has infrastructure is not known".to_owned(),
            format!(
                "No declaration of it says so, and there is no `{}`. If it was built on another machine or with another \
                 --state-dir, all that OpenTofu had made stays: run the destroy there.",
                path.display()
            ),
        );
        "there is no state of it here, and whether there is one elsewhere is not known".to_owned()
    }

    /// Nothing is left, so the declaration names no state any more, and the files of the state go: a backup of it would
    /// keep the instance's secrets. Where nothing is declared, a state with nothing in it stays until the namespace is gone:
    /// a run that goes on from there would not know else that nothing is left.
    async fn clean_up(&self) -> Result<(), Failure> {
        let kit = self.kit;
        origin::forget(kit).await?;
        if !self.has_local_state() {
            return Ok(());
        }
        let is_declared = find(kit).await?.flatten().is_some();
        let Some(last) = tofu_state::lineage(&kit.state_dir, self.part).filter(|_| !is_declared) else {
            remove_files(kit, &self.part.files(&kit.state_dir));
            return Ok(());
        };
        let state = self.part.state(&kit.state_dir);
        // What OpenTofu leaves after a destroy has nothing in it, and says by its serial that it was worked from.
        if last.serial < tofu_first::SETTLED {
            let text = tofu_first::empty(self.tofu_version(), &last.lineage, tofu_first::SETTLED);
            invoke::write_private(&state, text.as_bytes())?;
        }
        let rest: Vec<PathBuf> = self.part.files(&kit.state_dir).into_iter().filter(|file| *file != state).collect();
        remove_files(kit, &rest);
        Ok(())
    }
}

/// Nothing is left of the instance, so that this is no news to anybody any more: a state with nothing in it goes, too.
pub(in crate::step) fn remove_empty_state(kit: &Kit) {
    let part = Part::Infrastructure;
    let is_asked = kit.mode == Mode::Act && kit.choices.infrastructure == Fate::Destroyed;
    let path = part.state(&kit.state_dir);
    let is_settled = tofu_state::lineage(&kit.state_dir, part).is_some_and(|_| !tofu_first::is_as_begun(&path));
    if is_asked && is_settled && part.root(&kit.bundle).is_some() && tofu_state::addresses(&path).is_empty() {
        remove_files(kit, &part.files(&kit.state_dir));
    }
}

fn remove_files(kit: &Kit, files: &[PathBuf]) {
    for file in files {
        match fs::remove_file(file) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                kit.updates.send(Update::Note(format!("`{}` could not be removed: {error}", file.display())));
            }
        }
    }
    // Only when nothing of anybody else is in it.
    let _ = fs::remove_dir(&kit.state_dir);
}

fn warn(kit: &Kit, summary: String, detail: String) {
    kit.updates.send(Update::Diagnostic {
        severity: Severity::Warning,
        origin: "dcctl".to_owned(),
        summary,
        detail,
        address: None,
        source: None,
    });
}

/// Leaves the infrastructure where it is, and names what is known of it.
async fn abandon(kit: &Kit, root: Option<&Root>) -> Result<Outcome, Failure> {
    origin::refuse_while_at_work(kit)?;
    let recorded = recorded_lineage(kit).await?;
    let known = known(kit, root, recorded.as_deref());
    let (would, is) = match kit.mode {
        Mode::Act => ("", "is"),
        Mode::DryRun => ("would be ", "would be"),
    };
    if root.is_none() && recorded.is_none() {
        return Ok(Outcome::Nothing("the bundle has no infrastructure".to_owned()));
    }
    let (what, detail) = match known {
        Known::All(addresses) if addresses.is_empty() => {
            return Ok(Outcome::Nothing("nothing is in its state".to_owned()));
        }
        Known::All(addresses) => {
            let listed = addresses.iter().cloned().collect::<Vec<_>>().join(", ");
            (format!("{} of its state: {listed}", addresses.len()), listed)
        }
        Known::Once(addresses) => {
            let listed = addresses.iter().cloned().collect::<Vec<_>>().join(", ");
            let detail = format!(
                "Its state is not here. The backup of an earlier version of it has {listed}; what was made after that \
                 cannot be named: look for what bears the instance's name."
            );
            (format!("{} of the backup of its state: {listed}; and what is not known here", addresses.len()), detail)
        }
        Known::AtBackend(backend) => (
            format!("whatever the `{backend}` backend has of it"),
            format!(
                "That is not asked here: `tofu state list`, in an initialised copy of the root, names what the `{backend}` \
                 backend has. What it does not have bears the instance's name at best."
            ),
        ),
        Known::Nothing => (
            "what is not known here".to_owned(),
            "No state here tells what OpenTofu had made of it, so that cannot be named: look for what bears the instance's \
             name."
                .to_owned(),
        ),
    };
    warn(kit, format!("the instance's infrastructure {is} abandoned: it stays, and dcctl forgets it"), detail);
    origin::forget(kit).await?;
    Ok(Outcome::Done(format!("{would}abandoned: {what}")))
}

/// What can be said of what is abandoned.
enum Known {
    /// The addresses in its state.
    All(BTreeSet<String>),
    /// The addresses in the backup of its state, which is lost: what an earlier version of it had.
    Once(BTreeSet<String>),
    /// A backend of this kind has the state, or had it.
    AtBackend(String),
    /// No state of it is here, or one into which nothing ever came.
    Nothing,
}

fn known(kit: &Kit, root: Option<&Root>, recorded: Option<&str>) -> Known {
    let backend = root.and_then(|root| declared_backend(&root.dir));
    if let Some(backend) = backend.filter(|backend| !is_local(Some(backend))) {
        return Known::AtBackend(backend.kind);
    }
    let [state, backup, ..] = Part::Infrastructure.files(&kit.state_dir);
    // What another one has is nothing of this instance's.
    let is_its_own = |path: &Path| match StateFile::look(path) {
        StateFile::State(state) => recorded.is_none_or(|recorded| recorded == state.lineage),
        StateFile::Missing | StateFile::Empty | StateFile::Unreadable => false,
    };
    if is_its_own(&state) && !tofu_first::is_as_begun(&state) {
        return Known::All(tofu_state::addresses(&state));
    }
    let once = if is_its_own(&backup) { tofu_state::addresses(&backup) } else { BTreeSet::new() };
    // An empty one was made before anything was.
    if once.is_empty() { Known::Nothing } else { Known::Once(once) }
}
