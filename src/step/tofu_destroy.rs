//! *Destroy infrastructure*: everything in the state of the instance's OpenTofu root goes.
//!
//! OpenTofu takes what is in the state, so without the right state nothing would be destroyed, and an instance's databases
//! would be forgotten. Whether the state is the right one is asked before anything else. Whoever has lost it for good may
//! abandon what it knew: then that is named, as far as it can be.

use std::collections::BTreeSet;
use std::fs;

use crate::config::Root;
use crate::failure::Failure;
use crate::process::Manner;
use crate::step::invoke::words;
use crate::step::tofu::{End, LOCK_TIMEOUT, Work, is_local};
use crate::step::tofu_end::{self, Applied};
use crate::step::tofu_plan::Wanted;
use crate::step::tofu_root::declared_backend;
use crate::step::tofu_state::{self, Part, StateFile};
use crate::step::{Fate, Kit, Mode, Outcome, Severity, Update, origin};

/// The step *Destroy infrastructure*.
pub async fn destroy(kit: &Kit) -> Outcome {
    let part = Part::Infrastructure;
    let Some(root) = part.root(&kit.bundle) else {
        return Outcome::Nothing("the bundle has no infrastructure".to_owned());
    };
    if kit.choices.infrastructure == Fate::Abandoned {
        return abandon(kit, root).await.unwrap_or_else(Outcome::Failed);
    }
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
        let cwd = self.prepare().await?;
        self.init(&cwd).await?;
        self.go_on()?;
        let mut args = words(&["destroy", "-json", "-input=false", "-auto-approve"]);
        args.push(format!("-lock-timeout={LOCK_TIMEOUT}").into());
        args.extend(self.common(&path));
        let before = StateFile::look(&path);
        let (ui, tail, done) = self.run("destroy", args, &cwd, Manner::OpenTofu).await?;
        let state = self.has_local_state().then(|| self.look_after(&before, &ui)).flatten();
        tofu_state::make_private(&kit.state_dir);
        let unsaved = self.rescue(&ui, &done, &cwd);
        let name = self.name();
        let is_gone = state.as_ref().is_some_and(|state| state.trouble.is_some());
        let (deed, ended) = ("destroy", &done.ended);
        let applied = Applied { deed, name: &name, ui: &ui, tail: &tail, ended, unsaved: unsaved.as_deref(), state };
        if !ended.exit.is_success() || unsaved.is_some() || is_gone {
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
        if origin::own_state(kit, self.part).await?.is_none() {
            return Ok(None);
        }
        let path = self.part.state(&kit.state_dir);
        Ok(match StateFile::look(&path) {
            StateFile::State(_) if tofu_state::addresses(&path).is_empty() => {
                Some(Outcome::Nothing("nothing is in its state".to_owned()))
            }
            StateFile::State(_) | StateFile::Unreadable => None,
            StateFile::Missing | StateFile::Empty => {
                Some(Outcome::Nothing("there is no state of it, and the declaration names none".to_owned()))
            }
        })
    }

    /// Nothing is left, so the declaration names no state any more, and the files of the state go: a backup of it would
    /// keep the instance's secrets.
    async fn clean_up(&self) -> Result<(), Failure> {
        let kit = self.kit;
        origin::forget(kit).await?;
        if !self.has_local_state() {
            return Ok(());
        }
        for file in self.part.files(&kit.state_dir) {
            match fs::remove_file(&file) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    kit.updates.send(Update::Note(format!("`{}` could not be removed: {error}", file.display())));
                }
            }
        }
        // Only when nothing of anybody else is in it.
        let _ = fs::remove_dir(&kit.state_dir);
        Ok(())
    }
}

/// Leaves the infrastructure where it is, and names what is known of it.
async fn abandon(kit: &Kit, root: &Root) -> Result<Outcome, Failure> {
    let known = known(kit, root);
    let (would, is) = match kit.mode {
        Mode::Act => ("", "is"),
        Mode::DryRun => ("would be ", "would be"),
    };
    let (what, detail) = match &known {
        Some(addresses) if addresses.is_empty() => {
            return Ok(Outcome::Nothing("nothing is in its state".to_owned()));
        }
        Some(addresses) => {
            (format!("{} of its state", addresses.len()), addresses.iter().cloned().collect::<Vec<_>>().join(", "))
        }
        None => {
            let why =
                "Its state is not here, so what it had made cannot be named: look for what bears the instance's name.";
            ("what nobody can name".to_owned(), why.to_owned())
        }
    };
    kit.updates.send(Update::Diagnostic {
        severity: Severity::Warning,
        origin: "dcctl".to_owned(),
        summary: format!("the instance's infrastructure {is} abandoned: it stays, and dcctl forgets it"),
        detail: detail.clone(),
        address: None,
        source: None,
    });
    origin::forget(kit).await?;
    Ok(Outcome::Done(match known {
        Some(_) => format!("{would}abandoned: {what}: {detail}"),
        None => format!("{would}abandoned: {what}"),
    }))
}

/// The addresses in the state, or in its backup where the state was lost; none when neither is there.
fn known(kit: &Kit, root: &Root) -> Option<BTreeSet<String>> {
    if !is_local(declared_backend(&root.dir).as_ref()) {
        return None;
    }
    let [state, backup, ..] = Part::Infrastructure.files(&kit.state_dir);
    let found = [state, backup].into_iter().find(|path| matches!(StateFile::look(path), StateFile::State(_)))?;
    Some(tofu_state::addresses(&found))
}
