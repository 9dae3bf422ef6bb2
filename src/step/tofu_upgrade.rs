//! *Plan infrastructure*, and the apply of exactly what was planned.
//!
//! OpenTofu deletes what leaves the configuration, and an apply of that *succeeds*: so a plan for a live instance may
//! change things and add some, and whatever it would delete or replace is refused by its address, unless that is allowed.
//! Between the look at the plan and its apply nothing is planned anew.

use crate::failure::{Code, Failure};
use crate::process::Exit;
use crate::step::course::Planned;
use crate::step::invoke::{PRIVATE, words};
use crate::step::record::begin_upgrade;
use crate::step::tofu::{End, Work, joined};
use crate::step::tofu_end::{self, Applied};
use crate::step::tofu_plan::Wanted;
use crate::step::tofu_state::{self, Part, StateFile};
use crate::step::tofu_ui::Doomed;
use crate::step::{Kit, Mode, Outcome, origin, tofu_first};

/// The exit status of a plan with changes in it, when it was asked to say so.
const CHANGES: i32 = 2;

/// The step *Plan infrastructure*.
pub async fn plan(kit: &Kit) -> Outcome {
    let part = Part::Infrastructure;
    let Some(root) = part.root(&kit.bundle) else {
        return Outcome::Nothing("the bundle has no infrastructure".to_owned());
    };
    let work = Work::on(kit, part, root);
    let ended = match kit.mode {
        Mode::Act => work.save_plan().await,
        Mode::DryRun => work.plan(Wanted::Upgraded).await,
    };
    ended.unwrap_or_else(|end| end.into_outcome(kit))
}

/// The step *Apply infrastructure* of an upgrade: applies the plan that was saved.
pub async fn apply_planned(kit: &Kit) -> Outcome {
    let part = Part::Infrastructure;
    let (Some(root), Mode::Act) = (part.root(&kit.bundle), kit.mode) else {
        return Outcome::Nothing("there is nothing to apply".to_owned());
    };
    match kit.course.planned() {
        Planned::Not => unreachable!("an upgrade plans before it applies"),
        Planned::NoChanges => Outcome::Nothing("no changes".to_owned()),
        Planned::Changes { root: cwd, file } => {
            let applied = async {
                begin_upgrade(kit).await?;
                let path = part.state(&kit.state_dir);
                let work = Work::on(kit, part, root);
                let mut args = words(&["apply", "-json", "-input=false"]);
                args.extend(work.common(&path));
                args.push(file.into());
                work.change("apply", args, &cwd).await
            };
            applied.await.unwrap_or_else(|end: End| end.into_outcome(kit))
        }
    }
}

impl Work<'_> {
    async fn save_plan(&self) -> Result<Outcome, End> {
        let kit = self.kit;
        tofu_state::refuse_errored(self.part, &kit.state_dir)?;
        if let Some(owner) = origin::own_state(kit, self.part).await? {
            owner.take(self.part, &kit.state_dir)?;
            self.check_state();
        }
        let cwd = self.begin().await?;
        let file = kit.run_dir.join(PRIVATE).join(format!("{}.tfplan", self.part.word()));
        let mut args = words(&["plan", "-json", "-input=false", "-detailed-exitcode"]);
        args.push(joined("-out=", &file));
        args.extend(self.common(&self.part.state(&kit.state_dir)));
        let (ui, tail, done) = self.run_locked("plan", args, &cwd).await?;
        tofu_state::make_private(&kit.state_dir);
        let ended = &done.ended;
        match ended.exit {
            Exit::Code(0) => {
                self.take_outputs(&ui, &cwd).await?;
                kit.course.keep(Planned::NoChanges);
                Ok(Outcome::Nothing("no changes".to_owned()))
            }
            Exit::Code(CHANGES) => {
                self.refuse_doom(ui.doomed())?;
                kit.course.keep(Planned::Changes { root: cwd, file });
                Ok(Outcome::Done(ui.planned().unwrap_or_else(|| "only outputs change".to_owned())))
            }
            Exit::Code(_) | Exit::Signal(_) | Exit::Unknown | Exit::Unseen => {
                let name = self.name();
                let (deed, unsaved, state) = (tofu_end::PLAN, None, None);
                let planned = Applied { deed, name: &name, ui: &ui, tail: &tail, ended, unsaved, state };
                Ok(tofu_end::judge(&planned, kit.stop.now(), kit.clock.now()))
            }
        }
    }

    /// Refuses a plan that would delete or replace what nobody allowed to go.
    pub(in crate::step) fn refuse_doom(&self, doomed: &[Doomed]) -> Result<(), Failure> {
        let refused = doomed.iter().filter(|doomed| !self.kit.choices.replace.allows(&doomed.address));
        let refused: Vec<&Doomed> = refused.collect();
        if refused.is_empty() {
            return Ok(());
        }
        let name = self.kit.instance.as_deref().unwrap_or_default();
        let sentence = match refused.len() {
            1 => format!("the plan would take something of \"{name}\" away"),
            count => format!("the plan would take {count} things of \"{name}\" away"),
        };
        let failure = refused
            .iter()
            .fold(Failure::new(Code::PlanReplaces, sentence), |failure, doomed| failure.cause(doomed.to_string()));
        let failure = refused.iter().take(3).fold(failure, |failure, doomed| {
            failure.hint(format!("if it may go: --allow-replace='{}'", doomed.address))
        });
        Err(failure.hint("if everything that the plan names may go: --allow-replace"))
    }

    /// Runs an OpenTofu that changes what is in the state, and tells what came of it.
    pub(in crate::step) async fn change(
        &self,
        deed: &str,
        args: Vec<std::ffi::OsString>,
        cwd: &std::path::Path,
    ) -> Result<Outcome, End> {
        let (kit, path) = (self.kit, self.part.state(&self.kit.state_dir));
        let before = StateFile::look(&path);
        let (ui, tail, done) = self.run_locked(deed, args, cwd).await?;
        let unsaved = self.rescue(&ui, &done, cwd);
        let (name, ended) = (self.name(), &done.ended);
        let applied =
            Applied { deed, name: &name, ui: &ui, tail: &tail, ended, unsaved: unsaved.as_deref(), state: None };
        let known = applied.tells_of_the_beginning();
        let state = if self.has_local_state() {
            self.look_after(&before, &ui)
        } else {
            self.look_after_remote(ended, known, cwd).await
        };
        tofu_state::make_private(&kit.state_dir);
        let is_gone = state.as_ref().is_some_and(|state| state.trouble.is_some());
        let applied = Applied { state, ..applied };
        if let Some(known) = known.filter(|_| self.has_local_state()) {
            tofu_first::settle(self.part, &kit.run_dir, &kit.state_dir, known);
        }
        origin::write_down_here(kit, self.part).await;
        if !ended.exit.is_success() || unsaved.is_some() || is_gone {
            return Ok(tofu_end::judge(&applied, kit.stop.now(), kit.clock.now()));
        }
        self.take_outputs(&ui, cwd).await?;
        let summary = ui.summary().unwrap_or_else(|| "applied".to_owned());
        Ok(Outcome::Done(if ui.started() == 0 { format!("no changes ({summary})") } else { summary }))
    }
}
