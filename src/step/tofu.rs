//! Applies an OpenTofu root: in a copy, with one variables file, its state where the user keeps it.
//!
//! `init`, then `apply`. What OpenTofu says becomes resources and diagnostics; its outputs go to the chart through
//! [`Outputs`](crate::step::Outputs). A stop becomes one interrupt, and then only what was witnessed is said: OpenTofu's
//! exit status is 1 for "failed" and for "stopped" alike, so the account of its lines decides.
//!
//! What a dry run does instead is in `tofu_plan.rs`, how a root is destroyed in `tofu_destroy.rs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::config::{Bundle, Root};
use crate::failure::{Code, Failure};
use crate::process::{Manner, Stdin, Stop};
use crate::step::invoke::{Call, Done, PRIVATE, Raw, Tail, make_folder, words, write_private};
use crate::step::record::find;
use crate::step::tofu_end::{self, Afterwards};
use crate::step::tofu_lock::{self, Held, Use};
use crate::step::tofu_plan::Wanted;
use crate::step::tofu_root::{Backend, copy, declared_backend};
use crate::step::tofu_state::{self, Part, StateFile};
use crate::step::tofu_ui::{Heard, Ui, signs};
use crate::step::{Kit, Mode, Outcome, Severity, Stopped, Tool, Update, origin, tofu_first};

/// The file in which a bundle pins its providers.
const LOCK_FILE: &str = ".terraform.lock.hcl";

/// Refuses a bundle whose roots keep their state on this machine, which in CI is gone with the job.
///
/// # Errors
/// [`Code::OptionInvalid`], naming the root.
pub fn refuse_local_state(bundle: &Bundle) -> Result<(), Failure> {
    let infrastructure = bundle.instance.as_ref().and_then(|instance| instance.infrastructure.as_ref());
    for root in bundle.prerequisites.iter().chain(infrastructure) {
        if is_local(declared_backend(&root.dir).as_ref()) {
            let name = root.dir.strip_prefix(&bundle.root).unwrap_or(&root.dir);
            let sentence =
                format!("`{}` keeps its OpenTofu state on this machine, which a CI job loses", name.display());
            return Err(Failure::new(Code::OptionInvalid, sentence)
                .hint("declare a remote backend in the root: then every job works from the same state")
                .hint("or mount a folder that is kept between the jobs, and is no cache, and name it with --state-dir")
                .hint("or, on a machine whose disk outlives its jobs, name a folder there with --state-dir"));
        }
    }
    Ok(())
}

/// Whether a root keeps its state on this machine.
pub(in crate::step) fn is_local(backend: Option<&Backend>) -> bool {
    backend.is_none_or(|backend| backend.kind == "local")
}

/// Applies a root of the bundle; in a dry run, plans it.
pub async fn apply(kit: &Kit, part: Part) -> Outcome {
    let Some(root) = part.root(&kit.bundle) else {
        return Outcome::Nothing(format!("the bundle has no {}", part.word()));
    };
    let work = Work::on(kit, part, root);
    let ended = match kit.mode {
        Mode::Act => work.apply().await,
        Mode::DryRun => work.plan(Wanted::Everything).await,
    };
    ended.unwrap_or_else(|end| end.into_outcome(kit))
}

/// Why the work on a root ended early.
pub(in crate::step) enum End {
    /// It went wrong.
    Failed(Failure),
    /// It was asked to stop.
    Stopped(Stopped),
}

impl End {
    /// What the step comes to.
    pub(in crate::step) fn into_outcome(self, kit: &Kit) -> Outcome {
        match self {
            End::Stopped(stopped) => Outcome::Stopped(stopped),
            // What was given up because of a stop did not fail.
            End::Failed(failure) if kit.stop.is_asked() && failure.code == Code::StoppedClean => {
                Outcome::Stopped(tofu_end::before_anything())
            }
            End::Failed(failure) => Outcome::Failed(failure),
        }
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

/// One root at work.
pub(in crate::step) struct Work<'a> {
    /// Everything that may be used.
    pub(in crate::step) kit: &'a Kit,
    /// Which root.
    pub(in crate::step) part: Part,
    /// The root.
    root: &'a Root,
    tofu: &'a Tool,
    /// Where it keeps its state; none where it does not say.
    pub(in crate::step) backend: Option<Backend>,
}

impl<'a> Work<'a> {
    /// The root of this part.
    pub(in crate::step) fn on(kit: &'a Kit, part: Part, root: &'a Root) -> Work<'a> {
        let tofu = kit.tofu.as_ref().expect("OpenTofu was found when the surroundings were checked");
        Work { kit, part, root, tofu, backend: declared_backend(&root.dir) }
    }

    async fn apply(&self) -> Result<Outcome, End> {
        let kit = self.kit;
        let state_dir = kit.state_dir.as_path();
        tofu_state::refuse_errored(self.part, state_dir)?;
        if let Some(owner) = origin::own_state(kit, self.part).await? {
            owner.take(self.part, state_dir)?;
            self.check_state();
        }
        let cwd = self.begin().await?;
        self.name_local_state().await?;
        let mut args = words(&["apply", "-json", "-input=false", "-auto-approve"]);
        args.extend(self.common(&self.part.state(state_dir)));
        self.change("apply", args, &cwd).await
    }

    /// Writes down which local state there is, before anything is applied: killed in its first apply it is known, here and
    /// elsewhere. That of an instance is named on its declaration, so a bundle that declares nothing has no place for it;
    /// that of what all instances share in the install record.
    async fn name_local_state(&self) -> Result<(), Failure> {
        let kit = self.kit;
        let is_undeclared = self.part == Part::Infrastructure && find(kit).await?.flatten().is_none();
        if is_undeclared || !self.has_local_state() {
            return Ok(());
        }
        let state = match StateFile::look(&self.part.state(&kit.state_dir)) {
            StateFile::State(state) => state,
            StateFile::Missing => tofu_first::begin(self.part, &kit.run_dir, &kit.state_dir, &self.tofu.version)?,
            StateFile::Empty | StateFile::Unreadable => return Ok(()),
        };
        let recorded = origin::record(kit, self.part, &state).await;
        if recorded.is_err() {
            // No apply comes after this.
            tofu_first::settle(self.part, &kit.run_dir, &kit.state_dir, tofu_first::Known::OwnBeginning);
        }
        recorded
    }

    /// How people call the root: its path in the bundle.
    pub(in crate::step) fn name(&self) -> String {
        self.root.dir.strip_prefix(&self.kit.bundle.root).unwrap_or(&self.root.dir).display().to_string()
    }

    /// The version of OpenTofu.
    pub(in crate::step) fn tofu_version(&self) -> &str {
        &self.tofu.version
    }

    pub(in crate::step) fn has_local_state(&self) -> bool {
        is_local(self.backend.as_ref())
    }

    /// Makes the copy and the variables file.
    pub(in crate::step) async fn prepare(&self) -> Result<PathBuf, Failure> {
        let private = self.kit.run_dir.join(PRIVATE);
        make_folder(&private)?;
        let mut variables: Map<String, Value> = self.root.vars.clone();
        for (name, secret) in &self.root.secrets {
            variables.insert(name.clone(), Value::String(secret.expose().to_owned()));
        }
        let text = serde_json::to_vec(&variables).expect("variables can be written as JSON");
        write_private(&self.variables(), &text)?;
        let (bundle, root, to) = (self.kit.bundle.root.clone(), self.root.dir.clone(), private.join(self.part.word()));
        // A bundle may be large, and meanwhile signals and the lock's changes have to be heard.
        let copied = tokio::task::spawn_blocking(move || copy(&bundle, &root, &to)).await;
        copied.expect("nobody cancels the copy, and it does not panic")
    }

    pub(in crate::step) fn variables(&self) -> PathBuf {
        self.kit.run_dir.join(PRIVATE).join(format!("{}.tfvars.json", self.part.word()))
    }

    /// Looks at the state after an apply, if there has to be one: it was there before, something was begun, or nothing of
    /// OpenTofu's end was heard.
    pub(in crate::step) fn look_after(&self, before: &StateFile, ui: &Ui) -> Option<Afterwards> {
        if ui.started() == 0 && ui.has_ended() && !matches!(before, StateFile::State(_)) {
            return None;
        }
        let path = self.part.state(&self.kit.state_dir);
        let trouble = StateFile::look(&path).trouble(&path);
        Some(Afterwards { trouble, recorded: tofu_state::addresses(&path) })
    }

    /// Says what a state file means into which an apply wrote nothing.
    pub(in crate::step) fn check_state(&self) {
        let path = self.part.state(&self.kit.state_dir);
        // Of an apply that is at work nothing can be said yet.
        let is_empty = StateFile::look(&path) == StateFile::Empty;
        if !(is_empty || tofu_first::is_as_begun(&path)) || Held::on_this_machine(&path).is_some() {
            return;
        }
        let (summary, why) = if is_empty {
            (format!("the state file `{}` is empty", path.display()), "An apply was killed before it could write it")
        } else {
            let summary = format!("the state `{}` is as dcctl began it", path.display());
            (summary, "Nothing came back of the apply that was to fill it")
        };
        self.kit.updates.send(Update::Diagnostic {
            severity: Severity::Warning,
            origin: "dcctl".to_owned(),
            summary,
            detail: tofu_first::made_again(why),
            address: None,
            source: None,
        });
    }

    pub(in crate::step) async fn init(&self, cwd: &Path) -> Result<(), End> {
        let pinned = cwd.join(LOCK_FILE).exists();
        // The settings of a backend may be made of variables, so that each instance has a state of its own.
        let mut args = words(&["init", "-json", "-input=false"]);
        args.push(joined("-var-file=", &self.variables()));
        if pinned {
            args.push("-lockfile=readonly".into());
        }
        let (ui, tail, done) = self.run("init", args, cwd, Manner::Query).await?;
        if done.ended.exit.is_success() {
            if !pinned {
                self.keep_choice(cwd);
            }
            return Ok(());
        }
        if self.kit.stop.is_asked() {
            return Err(End::Stopped(tofu_end::before_anything()));
        }
        let sentence = format!("OpenTofu could not initialise `{}`", self.name());
        Err(End::Failed(tofu_end::explain(sentence, &ui, &tail, &done.ended)))
    }

    /// Without a lock file in the bundle, OpenTofu chose the providers: that is said, and kept.
    fn keep_choice(&self, cwd: &Path) {
        let Ok(text) = std::fs::read_to_string(cwd.join(LOCK_FILE)) else { return };
        let chosen = chosen_providers(&text);
        let mut sentence = format!("`{}` ships no {LOCK_FILE}: OpenTofu chose {}", self.name(), chosen.join(", "));
        if self.kit.mode == Mode::Act {
            let path = self.kit.state_dir.join(format!("{}{LOCK_FILE}", self.part.word()));
            match make_folder(&self.kit.state_dir).and_then(|()| write_private(&path, text.as_bytes())) {
                Ok(()) => sentence.push_str(&format!("; its choice is kept in {}", path.display())),
                Err(failure) => tracing::warn!(%failure, "the choice of providers could not be kept"),
            }
        }
        self.kit.updates.send(Update::Note(sentence));
    }

    /// Ends the work when a stop was asked for between two programs.
    pub(in crate::step) fn go_on(&self) -> Result<(), End> {
        match self.kit.stop.now() {
            Stop::None => Ok(()),
            Stop::Graceful { .. } | Stop::Force { .. } => Err(End::Stopped(tofu_end::before_anything())),
        }
    }

    /// The arguments that `apply` and `plan` share.
    pub(in crate::step) fn common(&self, state: &Path) -> Vec<OsString> {
        let mut args = Vec::new();
        if self.has_local_state() {
            args.push(joined("-state=", state));
        }
        args.push(joined("-var-file=", &self.variables()));
        args
    }

    pub(in crate::step) async fn run(
        &self,
        verb: &str,
        args: Vec<OsString>,
        cwd: &Path,
        manner: Manner,
    ) -> Result<(Ui, Tail, Done), Failure> {
        self.run_about(self.call(verb, args, cwd, manner), None).await
    }

    /// Runs OpenTofu; what it is about is written beside its record, and again when its lines show that it has the lock
    /// of its state.
    pub(in crate::step) async fn run_about(
        &self,
        call: Call,
        mut about: Option<Use>,
    ) -> Result<(Ui, Tail, Done), Failure> {
        let call = Call { about: about.as_ref().map(Use::text), ..call };
        let (mut ui, mut tail) = (Ui::default(), Tail::default());
        let files = call.files(self.kit)?;
        let beside = files.about();
        let hear = |update| match ui.take(update) {
            Heard::Said(said) => {
                let holds = ui.at_work().and_then(|since| about.as_ref()?.has_the_lock(since));
                if let Some(holds) = holds {
                    if let Err(failure) = write_private(&beside, &holds.text()) {
                        tracing::warn!(%failure, "that OpenTofu has the lock of its state could not be written down");
                    }
                    about = Some(holds);
                }
                // Whose lock it is that keeps OpenTofu from its work is told by what is done about it.
                for update in said.into_iter().filter(|update| !tofu_lock::is_about_a_holder(update, &ui)) {
                    self.kit.updates.send(update);
                }
                None
            }
            Heard::Text(update) => {
                if let crate::process::Update::Line { text, .. } = &update {
                    tail.push(text);
                }
                Some(update)
            }
        };
        let done = call.run_in(self.kit, files, Stdin::Null, hear).await?;
        for update in ui.cut_off() {
            self.kit.updates.send(update);
        }
        Ok((ui, tail, done))
    }

    pub(in crate::step) fn call(&self, verb: &str, args: Vec<OsString>, cwd: &Path, manner: Manner) -> Call {
        Call {
            name: format!("tofu {verb}"),
            program: self.tofu.path.clone(),
            args,
            env: vec![("TF_IN_AUTOMATION", "1".into()), ("TF_INPUT", "0".into()), ("CHECKPOINT_DISABLE", "1".into())],
            cwd: cwd.to_owned(),
            manner,
            signs,
            timeout: None,
            raw: Raw::AsAsked,
            about: None,
        }
    }

    /// A state that could not be saved is brought where it stays.
    pub(in crate::step) fn rescue(&self, ui: &Ui, done: &Done, cwd: &Path) -> Option<PathBuf> {
        let (run_dir, state_dir) = (&self.kit.run_dir, &self.kit.state_dir);
        if let Some(path) = tofu_state::rescue(self.part, cwd, run_dir, state_dir) {
            return Some(path);
        }
        if !ui.has_printed_state() {
            return None;
        }
        // Its only copy is in the raw output, so that is kept.
        let kept = self.part.errored_output(run_dir);
        match done.keep_stdout(&kept) {
            Ok(()) => {
                tofu_state::mark(self.part, &kept, state_dir);
                Some(kept)
            }
            Err(error) => {
                tracing::warn!(%error, "the output that carries the unsaved state could not be kept");
                None
            }
        }
    }
}

/// The providers in a lock file, each with its version: `hashicorp/time 0.14.2`.
fn chosen_providers(lock: &str) -> Vec<String> {
    let mut chosen = Vec::new();
    let mut provider = None;
    for line in lock.lines() {
        let quoted = || line.split('"').nth(1).map(str::to_owned);
        if line.starts_with("provider ") {
            // The registry is left out where it is the usual one: it is the first part of three.
            provider = quoted().map(|address| address.split_once('/').map_or(&*address, |(_, name)| name).to_owned());
        } else if line.trim_start().starts_with("version ") {
            chosen.extend(provider.take().zip(quoted()).map(|(name, version)| format!("{name} {version}")));
        }
    }
    if chosen.is_empty() { vec!["no providers".to_owned()] } else { chosen }
}

pub(in crate::step) fn joined(option: &str, path: &Path) -> OsString {
    let mut joined = OsString::from(option);
    joined.push(path);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_of_a_lock_file_are_read() {
        let lock = "# This file…\n\nprovider \"registry.example/hashicorp/time\" {\n  version     = \"0.14.2\"\n  \
                    constraints = \">= 0.9\"\n  hashes = [\n  ]\n}\nprovider \"registry.example/a/b\" {\n  version = \"1.0.0\"\n}\n";
        assert_eq!(chosen_providers(lock), ["hashicorp/time 0.14.2", "a/b 1.0.0"]);
        assert_eq!(chosen_providers("# nothing\n"), ["no providers"]);
    }
}
