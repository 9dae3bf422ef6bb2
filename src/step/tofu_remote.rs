//! The state of a root that a backend keeps: which one it is, and whether this run may work from it.
//!
//! Beside a state on this machine stands whose it is. A backend has no place for that, and one address is soon given to two
//! instances or used from two clusters. So an instance knows its state by the lineage, which OpenTofu gives each state once:
//! it is written on the declaration before the first apply, and a state that has another one, or things in it when the
//! declaration names none, is not this instance's. What is read here has secrets in it and is shown to nobody.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cluster::instances::{LINEAGE, Phase, RESOURCE};
use crate::failure::{Code, Failure, shell_word};
use crate::pipeline::Verb;
use crate::process::{Ended, Exit, Manner};
use crate::step::invoke::{PRIVATE, words, write_private};
use crate::step::origin::ABANDON;
use crate::step::record::{Found, find, identity, record_begun, record_state};
use crate::step::tofu::{End, Work, joined};
use crate::step::tofu_end::{self, Afterwards};
use crate::step::tofu_first::{self, SETTLED, empty, new_lineage};
use crate::step::tofu_state::{Lineage, Part, addresses_in, version_in};
use crate::step::{Fate, Kit, Mode, Severity, Update, origin};

/// A state that a backend keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Remote {
    /// Which one it is; none when there is none yet.
    lineage: Option<String>,
    /// How old it is.
    serial: u64,
    /// What is in it.
    addresses: BTreeSet<String>,
}

impl Remote {
    /// Whether nobody has ever written anything into it. `init` begins a state of serial 1 in some backends.
    fn is_untouched(&self) -> bool {
        self.lineage.is_none() || self.addresses.is_empty() && self.serial <= SETTLED
    }

    /// Which state it is, and how old; none when there is none.
    fn version(&self) -> Option<Lineage> {
        Some(Lineage { lineage: self.lineage.clone()?, serial: self.serial })
    }
}

/// What to do about the state that was found.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is the instance's own.
    Own,
    /// It is its own, and as it was when an apply was about to begin: nothing came back of that.
    Begun,
    /// It is the instance's from now on.
    Adopted(String),
    /// There is none, and the instance has none yet.
    ToBegin,
    /// It may not be worked from; why, and what a person can do who knows better.
    Refused(String, Way),
}

/// The way on from a refusal, for a person who knows what nothing on the cluster says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// There is none but to bring the right state.
    Back,
    /// The declaration can be told that the state is the instance's.
    Claim,
    /// A state with nothing in it can be put there.
    Begin,
}

/// What the cluster says of the instance.
#[derive(Debug, Clone, Copy)]
struct Known<'a> {
    name: &'a str,
    phase: Option<Phase>,
    lineage: Option<&'a str>,
    /// How old that state was when a run on it ended last.
    serial: Option<u64>,
    /// What is done to it.
    verb: Verb,
}

impl Known<'_> {
    /// Whether it was once completely built, so that it had a state then if it has infrastructure.
    fn is_built(self) -> bool {
        origin::is_built(self.verb, self.phase)
    }
}

/// Decides about a state. `others` are the other instances of the cluster, each with the lineage of its own.
fn decide(instance: Known<'_>, state: &Remote, others: &[(String, String)]) -> Verdict {
    let name = instance.name;
    let count = state.addresses.len();
    let refused = |why: String| Verdict::Refused(why, Way::Back);
    match (instance.lineage, &state.lineage) {
        (Some(recorded), Some(found)) if recorded == found => {
            let is_begun = instance.serial.is_none() && count == 0 && !instance.is_built();
            match instance.serial.filter(|newer| state.serial < *newer) {
                None if is_begun && instance.verb == Verb::Destroy => refused(format!(
                    "has the OpenTofu state of \"{name}\" as it was begun: nothing of the apply that was to fill it came back"
                )),
                None if is_begun => Verdict::Begun,
                None => Verdict::Own,
                Some(newer) => refused(format!(
                    "has an older version of the OpenTofu state of \"{name}\": serial {}, and serial {newer} was written down",
                    state.serial
                )),
            }
        }
        (Some(_), Some(found)) => {
            let whose = others.iter().find(|(_, lineage)| lineage == found);
            let whose = whose.map_or_else(String::new, |(other, _)| format!(": it is that of instance \"{other}\""));
            refused(format!("is not the OpenTofu state that \"{name}\" was built with{whose}"))
        }
        (Some(_), None) => refused(format!("has no OpenTofu state, and \"{name}\" was built with one")),
        _ if instance.lineage.is_none() && instance.is_built() && state.is_untouched() => Verdict::Refused(
            format!(
                "has no OpenTofu state with anything in it, and the declaration of \"{name}\" names none: the instance had no \
                 infrastructure, or was built before states were named on it"
            ),
            Way::Begin,
        ),
        (None, None) => Verdict::ToBegin,
        (None, Some(found)) => match others.iter().find(|(_, lineage)| lineage == found) {
            Some((other, _)) => refused(format!("has the OpenTofu state of instance \"{other}\"")),
            None if count == 0 => Verdict::Adopted(found.clone()),
            // One that was built completely has never been refused its state.
            None if matches!(instance.phase, Some(Phase::Ready | Phase::Upgrading)) => Verdict::Adopted(found.clone()),
            None => Verdict::Refused(
                format!(
                    "has an OpenTofu state with {count} things in it, and nothing on this cluster says that they are those of \"{name}\""
                ),
                Way::Claim,
            ),
        },
    }
}

/// The step before a destroy that changes anything: whether the state that a backend keeps is the instance's own. The
/// initialised copy of the root is kept for the step that needs it.
pub(in crate::step) async fn look_before_destroying(kit: &Kit) -> Result<(), End> {
    let part = Part::Infrastructure;
    let (Some(root), Mode::Act, Fate::Destroyed) = (part.root(&kit.bundle), kit.mode, kit.choices.infrastructure)
    else {
        return Ok(());
    };
    let work = Work::on(kit, part, root);
    if work.has_local_state() {
        return Ok(());
    }
    crate::step::tofu_state::refuse_errored(part, &kit.state_dir)?;
    let cwd = work.begin().await?;
    kit.course.keep_root(cwd);
    Ok(())
}

impl Work<'_> {
    /// The root's copy, initialised, with a state that is this run's to work from.
    pub(in crate::step) async fn begin(&self) -> Result<PathBuf, End> {
        if let Some(cwd) = self.kit.course.take_root() {
            return Ok(cwd);
        }
        let cwd = self.prepare().await?;
        self.init(&cwd).await?;
        self.own_remote(&cwd).await?;
        self.go_on()?;
        Ok(cwd)
    }

    /// Refuses a state in a backend that is not the instance's own, and writes down which one is before anything is
    /// applied. A bundle that declares nothing has nothing to compare it with.
    pub(in crate::step) async fn own_remote(&self, cwd: &Path) -> Result<(), End> {
        let kit = self.kit;
        if self.has_local_state() || self.part != Part::Infrastructure {
            return Ok(());
        }
        let Some(declared) = find(kit).await? else { return Ok(()) };
        let name = kit.instance.as_deref().unwrap_or_default();
        let is_declared = declared.is_some();
        let (phase, lineage, serial) =
            declared.map(|Found { phase, lineage, serial, .. }| (phase, lineage, serial)).unwrap_or_default();
        let phase = phase.as_deref().and_then(Phase::parse);
        let known = Known { name, phase, lineage: lineage.as_deref(), serial, verb: kit.verb };
        let state = self.pull(cwd).await?;
        let others = if known.lineage == state.lineage.as_deref() { Vec::new() } else { others(kit, name).await? };
        match decide(known, &state, &others) {
            Verdict::Own => Ok(()),
            Verdict::Begun => {
                self.warn_begun();
                Ok(())
            }
            Verdict::Refused(why, way) => {
                let failure = self.refusal(&why, known);
                let way = if is_declared { self.way_on(way, name, &state) } else { None };
                Err(way.into_iter().fold(failure, Failure::hint).into())
            }
            Verdict::Adopted(_) | Verdict::ToBegin if kit.mode == Mode::DryRun => Ok(()),
            Verdict::ToBegin if kit.verb == Verb::Destroy || !is_declared => Ok(()),
            Verdict::Adopted(lineage) => {
                Ok(self.record(Lineage { lineage, serial: state.serial }, &state, known).await?)
            }
            Verdict::ToBegin => {
                self.push_empty(cwd).await?;
                let begun = self.pull(cwd).await?;
                match begun.version() {
                    Some(version) => Ok(self.record(version, &begun, known).await?),
                    None => Err(self.refusal("did not keep the state that OpenTofu gave it", known).into()),
                }
            }
        }
    }

    /// Names a state on the declaration before anything is applied; of a first one with nothing in it, that it begins.
    async fn record(&self, version: Lineage, state: &Remote, known: Known<'_>) -> Result<(), Failure> {
        if !state.addresses.is_empty() || known.is_built() {
            return record_state(self.kit, &version).await;
        }
        record_begun(self.kit, &version.lineage).await?;
        self.kit.course.keep_begun(version);
        Ok(())
    }

    /// Says what a state means into which an apply wrote nothing.
    fn warn_begun(&self) {
        let kind = self.backend.as_ref().map(|backend| backend.kind.clone()).unwrap_or_default();
        self.kit.updates.send(Update::Diagnostic {
            severity: Severity::Warning,
            origin: "dcctl".to_owned(),
            summary: format!("the state in the `{kind}` backend of `{}` is as it was begun", self.name()),
            detail: tofu_first::made_again("Nothing came back of the apply that was to fill it"),
            address: None,
            source: None,
        });
    }

    /// What to type for it. A destroy begins no state: what it would forget then is what nobody knows.
    fn way_on(&self, way: Way, name: &str, state: &Remote) -> Option<String> {
        if self.kit.verb == Verb::Destroy && way == Way::Begin {
            return None;
        }
        let claim = |lineage: &str| {
            let (context, lineage) = (shell_word(&self.kit.kube_context), shell_word(lineage));
            format!("kubectl --context {context} annotate {RESOURCE} {name} {LINEAGE}={lineage}")
        };
        const SAY: &str = "say so on its declaration, and run this again";
        match (way, &state.lineage) {
            (Way::Back, _) | (Way::Claim, None) => None,
            (Way::Claim, Some(lineage)) => Some(format!(
                "if they are (it was let go of with `dcctl instances release`, or built by hand), {SAY}: {}",
                claim(lineage)
            )),
            // A state with nothing in it cannot be pushed over another one.
            (Way::Begin, Some(lineage)) => Some(format!(
                "if it never had any infrastructure, and the state there with nothing in it is to be its own, {SAY}: {}",
                claim(lineage)
            )),
            (Way::Begin, None) => {
                // It gets a lineage of its own there, which the next refusal names.
                let first = empty("", &new_lineage(), SETTLED);
                Some(format!(
                    "if it never had any infrastructure, begin a state there, from a copy of `{}`, and run this again, which says how to \
                     go on: tofu init && echo '{first}' | tofu state push -",
                    self.name()
                ))
            }
        }
    }

    fn refusal(&self, why: &str, known: Known<'_>) -> Failure {
        let kind = self.backend.as_ref().map(|backend| backend.kind.clone()).unwrap_or_default();
        let failure = Failure::new(Code::StateMissing, format!("the `{kind}` backend of `{}` {why}", self.name()));
        let failure = match known.lineage {
            Some(recorded) => failure.cause(format!("the declaration names the state {recorded}")),
            None => failure,
        };
        let failure = failure
            .cause("from another one an apply would make everything a second time or take things away, and a destroy would remove what it may not")
            .hint("give each instance of each cluster a state of its own in the settings of the backend, or bring its own one back from a backup");
        match self.kit.verb {
            Verb::Destroy => failure.hint(ABANDON),
            _ if known.lineage.is_some() => failure.hint(origin::lost_for_good(known.name)),
            _ => failure,
        }
    }

    /// Reads the state.
    async fn pull(&self, cwd: &Path) -> Result<Remote, End> {
        let args = words(&["state", "pull"]);
        let Some(answer) = self.ask("state pull", "the state", args, cwd).await? else {
            return Err(End::Stopped(tofu_end::before_anything()));
        };
        let version = version_in(&answer).filter(|version| !version.lineage.is_empty());
        if version.is_none()
            && !answer.trim_ascii().is_empty()
            && serde_json::from_slice::<serde_json::Value>(&answer).is_err()
        {
            let sentence = format!("the state of `{}` cannot be read", self.name());
            return Err(Failure::new(Code::StateMissing, sentence).into());
        }
        let (lineage, serial) = version.map(|version| (Some(version.lineage), version.serial)).unwrap_or_default();
        Ok(Remote { lineage, serial, addresses: addresses_in(&answer) })
    }

    /// Begins a state: an empty one, so that it has a lineage before there is anything in it.
    async fn push_empty(&self, cwd: &Path) -> Result<(), End> {
        self.kit.may_write.now()?;
        let path = self.kit.run_dir.join(PRIVATE).join(format!("{}.first.tfstate", self.part.word()));
        write_private(&path, empty(self.tofu_version(), "", 0).as_bytes())?;
        let mut args = words(&["state", "push"]);
        args.push(joined("-var-file=", &self.variables()));
        args.push(path.into());
        let (ui, tail, done) = self.run("state push", args, cwd, Manner::Query).await?;
        if done.ended.exit.is_success() {
            return Ok(());
        }
        if self.kit.stop.is_asked() {
            return Err(End::Stopped(tofu_end::before_anything()));
        }
        let sentence = format!("OpenTofu could not begin the state of `{}`", self.name());
        Err(End::Failed(tofu_end::explain(sentence, &ui, &tail, &done.ended)))
    }

    /// Writes down how old the state in a backend is by now. Gives back what it kept of the work of an OpenTofu that was torn
    /// out of it; none when it was not, or cannot be asked. `known` is what its end tells of a state that was begun: one with
    /// nothing in it stays as it is until that is known.
    pub(in crate::step) async fn look_after_remote(
        &self,
        ended: &Ended,
        known: Option<tofu_first::Known>,
        cwd: &Path,
    ) -> Option<Afterwards> {
        let torn = matches!(ended.exit, Exit::Signal(_) | Exit::Unseen) || ended.killed;
        let kit = self.kit;
        // A state that is destroyed is forgotten with its name.
        let is_named = identity(kit).is_some() && self.part == Part::Infrastructure;
        let is_over = kit.verb == Verb::Destroy && ended.exit.is_success();
        if self.has_local_state() || !(torn || is_named && !is_over) {
            return None;
        }
        let begun = kit.course.begun();
        if kit.stop.is_asked() {
            // A stop is not kept waiting by another OpenTofu. It is at least as old as it was.
            if let (Some(begun), Some(_)) = (&begun, known) {
                origin::write_down(kit, self.part, begun).await;
            }
            return None;
        }
        let state = self.pull(cwd).await.ok()?;
        let is_known = match known {
            Some(tofu_first::Known::Whole) => true,
            Some(tofu_first::Known::OwnBeginning) => begun.is_some(),
            None => false,
        };
        let is_counted =
            || async { find(kit).await.is_ok_and(|found| found.flatten().is_some_and(|found| found.serial.is_some())) };
        if let Some(version) = state.version()
            && (is_known || !state.addresses.is_empty() || is_counted().await)
        {
            origin::write_down(kit, self.part, &version).await;
        }
        torn.then_some(Afterwards { trouble: None, recorded: state.addresses })
    }
}

/// The other instances of the cluster that have a state, each with its lineage.
async fn others(kit: &Kit, name: &str) -> Result<Vec<(String, String)>, Failure> {
    let instances = kit.cluster.instances().await?;
    let others = instances.into_iter().filter(|instance| instance.name != name);
    Ok(others.filter_map(|instance| Some((instance.name, instance.lineage?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(lineage: Option<&str>, things: &[&str]) -> Remote {
        let addresses = things.iter().map(|thing| (*thing).to_owned()).collect();
        Remote { lineage: lineage.map(str::to_owned), serial: 3, addresses }
    }

    fn about(lineage: Option<&str>, phase: Option<Phase>, state: &Remote) -> Verdict {
        let others = [("two".to_owned(), "of-two".to_owned())];
        decide(Known { name: "one", phase, lineage, serial: Some(3), verb: Verb::Upgrade }, state, &others)
    }

    #[test]
    fn an_instance_works_from_the_state_that_its_declaration_names_and_from_no_other() {
        let building = Some(Phase::Bootstrapping);
        let full = |lineage| state(Some(lineage), &["a.b"]);
        assert_eq!(about(Some("own"), building, &full("own")), Verdict::Own);
        assert_eq!(about(Some("own"), building, &state(Some("own"), &[])), Verdict::Own);
        assert_eq!(about(Some("own"), building, &Remote { serial: 4, ..full("own") }), Verdict::Own);
        let refused = [
            (about(Some("own"), Some(Phase::Ready), &state(None, &[])), "has no OpenTofu state"),
            (about(Some("own"), building, &full("strange")), "is not the OpenTofu state that \"one\" was built with"),
            (about(Some("own"), building, &full("of-two")), "it is that of instance \"two\""),
            (about(None, building, &full("of-two")), "has the OpenTofu state of instance \"two\""),
            (about(None, Some(Phase::Ready), &state(Some("of-two"), &[])), "of instance \"two\""),
            (about(None, building, &full("strange")), "with 1 things in it, and nothing on this cluster"),
            (about(None, Some(Phase::Destroying), &full("strange")), "nothing on this cluster"),
            (about(None, None, &full("strange")), "nothing on this cluster"),
            (about(Some("own"), building, &Remote { serial: 2, ..full("own") }), "has an older version"),
        ];
        for (found, says) in refused {
            assert!(matches!(&found, Verdict::Refused(why, _) if why.contains(says)), "{found:?}");
        }
    }

    #[test]
    fn who_knows_better_has_a_way_on_where_nothing_on_the_cluster_says_otherwise() {
        let way = |found: Verdict| if let Verdict::Refused(_, way) = found { Some(way) } else { None };
        let (nothing, full) = (state(None, &[]), state(Some("strange"), &["a.b"]));
        for phase in [Phase::Bootstrapping, Phase::Failed, Phase::Destroying] {
            assert_eq!(way(about(None, Some(phase), &full)), Some(Way::Claim), "{phase:?}");
        }
        for phase in [Phase::Ready, Phase::Upgrading, Phase::Failed] {
            assert_eq!(way(about(None, Some(phase), &nothing)), Some(Way::Begin), "{phase:?}");
        }
        let begun = Remote { serial: 1, ..state(Some("new"), &[]) };
        assert_eq!(way(about(None, Some(Phase::Ready), &begun)), Some(Way::Begin), "its backend began it");
        assert_eq!(about(None, Some(Phase::Bootstrapping), &begun), Verdict::Adopted("new".to_owned()));
        assert_eq!(way(about(Some("own"), Some(Phase::Ready), &full)), Some(Way::Back));
        assert_eq!(way(about(Some("own"), Some(Phase::Ready), &nothing)), Some(Way::Back));
        assert_eq!(way(about(None, Some(Phase::Ready), &state(Some("of-two"), &["a.b"]))), Some(Way::Back));
    }

    #[test]
    fn a_state_with_nothing_in_it_becomes_the_instance_s_and_one_that_is_not_there_is_begun() {
        let building = Some(Phase::Bootstrapping);
        assert_eq!(about(None, building, &state(None, &[])), Verdict::ToBegin);
        assert_eq!(about(None, building, &state(Some("new"), &[])), Verdict::Adopted("new".to_owned()));
        let built = state(Some("new"), &["a.b"]);
        assert_eq!(about(None, Some(Phase::Ready), &built), Verdict::Adopted("new".to_owned()));
    }
    #[test]
    fn a_state_that_was_begun_and_of_whose_apply_no_end_was_seen_is_known_by_its_missing_serial() {
        let decided = |verb, phase, serial, things: &[&str]| {
            let found = state(Some("own"), things);
            decide(Known { name: "one", phase: Some(phase), lineage: Some("own"), serial, verb }, &found, &[])
        };
        for phase in [Phase::Bootstrapping, Phase::Failed] {
            assert_eq!(decided(Verb::Bootstrap, phase, None, &[]), Verdict::Begun, "{phase:?}");
            let refused = decided(Verb::Destroy, phase, None, &[]);
            assert!(
                matches!(&refused, Verdict::Refused(why, Way::Back) if why.contains("as it was begun")),
                "{refused:?}"
            );
            // An end was seen, or something came back.
            for verb in [Verb::Bootstrap, Verb::Destroy] {
                assert_eq!(decided(verb, phase, Some(3), &[]), Verdict::Own, "{phase:?}");
                assert_eq!(decided(verb, phase, None, &["a.b"]), Verdict::Own, "{phase:?}");
            }
        }
        // One that was complete once may have no infrastructure at all.
        assert_eq!(decided(Verb::Destroy, Phase::Ready, None, &[]), Verdict::Own);
        assert_eq!(decided(Verb::Upgrade, Phase::Failed, None, &[]), Verdict::Own);
    }
}
