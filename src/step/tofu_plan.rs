//! What an OpenTofu root would change.
//!
//! A dry run plans without taking the state's lock, on a copy of the state. A backend that is written to by `init` alone
//! cannot be planned against without writing, and that is said.

use crate::failure::Failure;
use crate::process::Manner;
use crate::step::invoke::{PRIVATE, words, write_private};
use crate::step::tofu::{End, Work, joined};
use crate::step::tofu_end::{self, Applied};
use crate::step::{Outcome, origin, tofu_state};

/// Backends that `tofu init` itself writes to: an empty state, a schema.
const WRITTEN_BY_INIT: [&str; 2] = ["kubernetes", "pg"];

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::step) enum Wanted {
    /// That everything in the root is there.
    Everything,
    /// The same of a live instance, of which nothing may go unasked.
    Upgraded,
    /// That nothing of it is.
    Nothing,
}

impl Work<'_> {
    /// Says what would change, without changing it.
    pub(in crate::step) async fn plan(&self, wanted: Wanted) -> Result<Outcome, End> {
        let kit = self.kit;
        tofu_state::refuse_errored(self.part, &kit.state_dir)?;
        if let Some(backend) = self.written_by_init().await? {
            self.unknown_outputs();
            return Ok(Outcome::Nothing(format!(
                "cannot plan without writing: `{}` keeps its state in a `{backend}` backend, and initialising that may write to it",
                self.name()
            )));
        }
        let state = self.part.state(&kit.state_dir);
        if origin::own_state(kit, self.part).await?.is_some() {
            self.check_state();
        }
        let cwd = self.prepare().await?;
        let copied = kit.run_dir.join(PRIVATE).join(format!("{}.planned.tfstate", self.part.word()));
        if let Ok(bytes) = std::fs::read(&state) {
            write_private(&copied, &bytes)?;
        }
        self.init(&cwd).await?;
        self.own_remote(&cwd).await?;
        self.go_on()?;
        let mut args = words(&["plan", "-json", "-input=false", "-lock=false"]);
        if wanted == Wanted::Nothing {
            args.push("-destroy".into());
        }
        args.extend(self.common(&copied));
        let saved = kit.run_dir.join(PRIVATE).join(format!("{}.planned.tfplan", self.part.word()));
        let feeds = wanted != Wanted::Nothing && self.feeds_the_chart();
        if feeds {
            args.push(joined("-out=", &saved));
        }
        let (ui, tail, done) = self.run("plan", args, &cwd, Manner::OpenTofu).await?;
        self.unknown_outputs();
        if !done.ended.exit.is_success() {
            let name = self.name();
            let ended = &done.ended;
            let planned =
                Applied { deed: tofu_end::PLAN, name: &name, ui: &ui, tail: &tail, ended, unsaved: None, state: None };
            return Ok(tofu_end::judge(&planned, kit.stop.now(), kit.clock.now()));
        }
        if wanted == Wanted::Upgraded {
            self.refuse_doom(ui.doomed())?;
        }
        if feeds {
            self.take_planned(&saved, &cwd).await?;
        }
        if ui.planned().is_some() {
            kit.course.change();
        }
        Ok(Outcome::Done(
            ui.planned().map_or_else(|| "no changes".to_owned(), |counts| format!("would change: {counts}")),
        ))
    }

    /// The kind of the backend, if initialising it might write. A `kubernetes` backend is written to once only: its
    /// state is there afterwards.
    async fn written_by_init(&self) -> Result<Option<&str>, Failure> {
        let Some(backend) = self.backend.as_ref().filter(|backend| WRITTEN_BY_INIT.contains(&&*backend.kind)) else {
            return Ok(None);
        };
        if let Some((namespace, name)) = backend.secret()
            && self.kit.cluster.has_secret(&namespace, &name).await?
        {
            return Ok(None);
        }
        Ok(Some(&backend.kind))
    }
}
