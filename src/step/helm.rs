//! Installs or upgrades the instance's Helm chart.
//!
//! Before: a release that a dead run left half done is repaired, where that is safe. Then one `helm upgrade --install`
//! that waits. After, whatever its exit status: the release's record is read, because Helm has been seen to say
//! "cancelled" about a release that it had deployed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::rfc3339;
use crate::cluster::wait::{Seen, State, Workload};
use crate::config::Chart;
use crate::failure::{Code, Failure};
use crate::process::{Ended, Exit, Manner, Stream, Update as Said};
use crate::step::helm_plan;
use crate::step::helm_release::{About, Act, Proof, Repair, Revision, decide, look_for_proof};
use crate::step::helm_says::{Heard, Says, signs};
use crate::step::helm_values::values;
use crate::step::invoke::{Call, Done, PRIVATE, Raw, Tail, make_folder, write_private};
use crate::step::{Kit, Mode, Outcome, Stopped, Tool, Update};

/// How many revisions Helm keeps of a release.
const HISTORY: &str = "10";

/// How long reading the history may take.
const HISTORY_LIMIT: Duration = Duration::from_secs(60);

/// Installs or upgrades the chart; in a dry run, says what that would change.
pub async fn install(kit: &Kit) -> Outcome {
    let Some(chart) = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref()) else {
        return Outcome::Nothing("the bundle has no chart".to_owned());
    };
    let helm = kit.helm.as_ref().expect("Helm was found when the surroundings were checked");
    let work = Work { kit, chart, helm };
    let ended = match kit.mode {
        Mode::Act => work.install().await,
        Mode::DryRun => helm_plan::plan(&work).await,
    };
    ended.unwrap_or_else(|end| match end {
        End::Failed(failure) => Outcome::Failed(failure),
        End::Stopped(stopped) => Outcome::Stopped(stopped),
    })
}

/// Why the work on a release ended early.
pub(crate) enum End {
    /// It went wrong.
    Failed(Failure),
    /// It was asked to stop.
    Stopped(Stopped),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

/// One release at work.
pub(crate) struct Work<'a> {
    /// Everything that may be used.
    pub(crate) kit: &'a Kit,
    /// The chart.
    pub(crate) chart: &'a Chart,
    /// Helm.
    pub(crate) helm: &'a Tool,
}

impl Work<'_> {
    async fn install(&self) -> Result<Outcome, End> {
        let mut history = self.history(Manner::Query).await?;
        if self.repair(&history).await? {
            history = self.history(Manner::Query).await?;
        }
        self.go_on()?;
        let before = history.last().map_or(0, |last| last.number);
        let mut args = words(&["upgrade", "--install", &self.chart.release]);
        args.push(self.chart.path.clone().into());
        args.extend(self.in_namespace());
        args.extend(self.values()?);
        args.extend(self.waiting());
        args.extend(words(&["--history-max", HISTORY]));
        let (says, done) = self.change("helm upgrade", args, before, Act::Advance, Manner::Helm).await?;
        // Read whatever was asked meanwhile: it is what tells how things stand.
        let after = self.history(Manner::Unsignalled).await.map(|history| history.into_iter().next_back());
        let now = after.as_ref().ok().and_then(Option::as_ref).filter(|last| last.number > before);
        if done.ended.exit.is_success() {
            return Ok(Outcome::Done(match now {
                Some(last) => format!("release {} revision {} {}", self.chart.release, last.number, last.status),
                None => format!("release {}", self.chart.release),
            }));
        }
        let interrupted = done.ended.interrupts_sent.max(done.ended.interrupts_reported) > 0 || done.ended.killed;
        if self.kit.stop.is_asked() && interrupted {
            return Ok(Outcome::Stopped(self.stopped(&done.ended, now, after.is_ok())));
        }
        Ok(Outcome::Failed(self.explain(&says, &done.ended, now).await))
    }

    /// Repairs what a dead run left half done. Says whether anything was done.
    async fn repair(&self, history: &[Revision]) -> Result<bool, End> {
        let Some(last) = history.last().filter(|last| last.is_half_done()) else { return Ok(false) };
        let (kit, release) = (self.kit, self.chart.release.as_str());
        let proof = look_for_proof(&kit.run_dir, &self.about(0, Act::Advance), last);
        let patience = self.chart.timeout + kit.limits.budget + kit.limits.watchdog;
        let left = format!("release {release} was left {} at revision {}", last.status, last.number);
        let shown = match &proof {
            Proof::Ended => "the Helm that left it has ended on this machine",
            Proof::Lives { .. } | Proof::None => "the Helm that left it can no longer be at work",
        };
        match decide(history, &proof, kit.clock.wall(), patience) {
            Repair::None => return Ok(false),
            Repair::Wait { why, until } => return Err(wait(&left, why, until).into()),
            Repair::Forget(revision) => {
                kit.updates.send(Update::Note(format!(
                    "{left}, and {shown}: its record is deleted, and what it had made is adopted by the install"
                )));
                kit.cluster.delete_release_record(&self.chart.namespace, release, revision).await?;
            }
            Repair::RollBack(revision) => {
                kit.updates
                    .send(Update::Note(format!("{left}, and {shown}: it is rolled back to revision {revision}")));
                let mut args = words(&["rollback", release, &revision.to_string()]);
                args.extend(self.in_namespace());
                args.extend(self.timeout());
                self.mend("helm rollback", args, last.number, Act::Advance).await?;
            }
            Repair::Uninstall => {
                kit.updates.send(Update::Note(format!("{left}, and {shown}: the uninstall is finished first")));
                let mut args = words(&["uninstall", release, "--ignore-not-found", "--wait"]);
                args.extend(self.in_namespace());
                args.extend(self.timeout());
                self.mend("helm uninstall", args, last.number, Act::Uninstall).await?;
            }
        }
        Ok(true)
    }

    /// Runs a repair. It is never interrupted: Helm would leave the release as it found it, or worse.
    async fn mend(&self, name: &str, args: Vec<OsString>, before: u64, act: Act) -> Result<(), End> {
        let (says, done) = self.change(name, args, before, act, Manner::Unsignalled).await?;
        if done.ended.exit.is_success() {
            return Ok(());
        }
        let sentence = format!("release {} could not be repaired by `{name}`", self.chart.release);
        let failure = Failure::new(Code::ChartFailed, sentence);
        let failure = failure.cause(says.summary().map_or_else(|| done.ended.exit.to_string(), str::to_owned));
        Err(End::Failed(failure))
    }

    /// Runs a Helm that changes the release.
    async fn change(
        &self,
        name: &str,
        args: Vec<OsString>,
        before: u64,
        act: Act,
        manner: Manner,
    ) -> Result<(Says, Done), Failure> {
        let mut call = self.call(name, args, manner);
        call.about = Some(serde_json::to_vec(&self.about(before, act)).expect("it can be written as JSON"));
        let (says, done) = self.hear(call).await?;
        if let Some(diagnostic) = says.diagnostic() {
            self.kit.updates.send(diagnostic);
        }
        Ok((says, done))
    }

    /// Runs Helm and reads what it says.
    pub(crate) async fn hear(&self, call: Call) -> Result<(Says, Done), Failure> {
        let mut says = Says::default();
        let secret = call.raw == Raw::Secret;
        let done = call
            .run(self.kit, |update| match says.take(update) {
                Heard::Said(said) => {
                    if let Some(update) = said {
                        self.kit.updates.send(update);
                    }
                    None
                }
                Heard::Text(Said::Line { stream: Stream::Stdout, .. }) if secret => None,
                Heard::Text(update) => Some(update),
            })
            .await?;
        Ok((says, done))
    }

    /// The release's revisions, oldest first; none when there is no such release.
    pub(crate) async fn history(&self, manner: Manner) -> Result<Vec<Revision>, End> {
        let mut args = words(&["history", &self.chart.release, "-o", "json"]);
        args.extend(self.in_namespace());
        let mut call = self.call("helm history", args, manner);
        call.raw = Raw::Secret;
        call.timeout = Some(HISTORY_LIMIT);
        let (mut tail, mut stdout) = (Tail::default(), 0_u64);
        let done = call
            .run(self.kit, |update| {
                if let Said::Line { stream, text, .. } = update {
                    match stream {
                        Stream::Stdout => stdout += 1,
                        Stream::Stderr => tail.push(&text),
                    }
                }
                None
            })
            .await?;
        if done.ended.exit.is_success() {
            return Ok(serde_json::from_slice(&done.answer()?).map_err(|error| {
                let sentence = format!("the history of release {} could not be read", self.chart.release);
                Failure::new(Code::ChartFailed, sentence).because(&error)
            })?);
        }
        if stdout == 0 && tail.last(1).any(|line| line.ends_with("release: not found")) {
            return Ok(Vec::new());
        }
        self.go_on()?;
        let sentence = format!("the history of release {} could not be read", self.chart.release);
        let failure = Failure::new(Code::ChartFailed, sentence);
        Err(End::Failed(tail.last(3).fold(failure, |failure, line| failure.cause(line.trim_start_matches("Error: ")))))
    }

    /// Ends the work when a stop was asked for between two programs.
    fn go_on(&self) -> Result<(), End> {
        if !self.kit.stop.is_asked() {
            return Ok(());
        }
        let note = "stopped before Helm changed anything".to_owned();
        Err(End::Stopped(Stopped { clean: true, unfinished: Vec::new(), note }))
    }

    /// What is known after a stop. Helm reports no single objects, so its own record is what counts.
    fn stopped(&self, ended: &Ended, now: Option<&Revision>, read: bool) -> Stopped {
        let release = &self.chart.release;
        let by_itself = !ended.killed && ended.exit != Exit::Unseen;
        let (clean, note) = match now {
            _ if !by_itself => (false, format!("Helm had to be killed, and release {release} may be left half done")),
            // Before it has a handler, a signal ends it; then it has written nothing.
            None if read => (true, "stopped before Helm changed anything".to_owned()),
            None => (false, format!("what became of release {release} could not be read")),
            Some(last) if last.is_half_done() => {
                (false, format!("release {release} is left {} at revision {}", last.status, last.number))
            }
            Some(last) => (
                true,
                format!(
                    "Helm stopped and wrote its record: release {release} is {} at revision {}; what it had applied stays, \
                     and the same command goes on from there",
                    last.status, last.number
                ),
            ),
        };
        let unfinished = if clean { Vec::new() } else { vec![format!("release {release}")] };
        Stopped { clean, unfinished, note }
    }

    async fn explain(&self, says: &Says, ended: &Ended, now: Option<&Revision>) -> Failure {
        let Chart { release, .. } = self.chart;
        let sentence = format!("Helm could not install release {release}");
        let mut failure = Failure::new(Code::ChartFailed, sentence);
        failure = failure.cause(says.summary().map_or_else(|| format!("it ended with {}", ended.exit), str::to_owned));
        for why in self.unready().await {
            failure = failure.cause(why);
        }
        match now {
            Some(last) if last.status == "deployed" => {
                failure.cause(format!("its record says that revision {} is deployed all the same", last.number))
            }
            Some(last) => failure.cause(format!("the release is {} at revision {}", last.status, last.number)),
            None => failure,
        }
    }

    /// Helm says "context deadline exceeded"; what it was waiting for, the cluster tells.
    async fn unready(&self) -> Vec<String> {
        const MOST: usize = 5;
        match self.kit.cluster.look_at_namespace(&self.chart.namespace).await {
            Ok(Seen::Look(look)) => look.workloads.into_iter().filter_map(unready_workload).take(MOST).collect(),
            Ok(Seen::NoAnswer(_)) | Err(_) => Vec::new(),
        }
    }

    fn about(&self, before: u64, act: Act) -> About {
        About {
            server: self.kit.cluster.server().to_owned(),
            namespace: self.chart.namespace.clone(),
            release: self.chart.release.clone(),
            before,
            act,
        }
    }

    pub(crate) fn call(&self, name: &str, args: Vec<OsString>, manner: Manner) -> Call {
        Call {
            name: name.to_owned(),
            program: self.helm.path.clone(),
            args,
            env: Vec::new(),
            cwd: self.kit.run_dir.clone(),
            manner,
            signs,
            timeout: None,
            raw: Raw::AsAsked,
            about: None,
        }
    }

    pub(crate) fn in_namespace(&self) -> [OsString; 2] {
        ["--namespace".into(), self.chart.namespace.clone().into()]
    }

    fn timeout(&self) -> [OsString; 2] {
        ["--timeout".into(), format!("{}s", self.chart.timeout.as_secs().max(1)).into()]
    }

    /// Helm 4's own waiting hangs on custom resources with an unusual status and needs to watch every kind; its
    /// `legacy` waiting is that of Helm 3.
    fn waiting(&self) -> Vec<OsString> {
        let major = self.helm.version.split('.').next();
        let mut args = vec![if major == Some("3") { "--wait".into() } else { "--wait=legacy".into() }];
        args.extend(self.timeout());
        args
    }

    /// The values, weakest first: the bundle's files, what dcctl sets, the files of the command line.
    pub(crate) fn values(&self) -> Result<Vec<OsString>, Failure> {
        let private = self.kit.run_dir.join(PRIVATE);
        make_folder(&private)?;
        let own = private.join("values.json");
        let values = values(self.chart, &self.kit.outputs)?;
        write_private(&own, &serde_json::to_vec(&values).expect("values can be written as JSON"))?;
        let files = self.chart.values.iter().chain([&own]).chain(&self.kit.values);
        Ok(files.flat_map(|file: &PathBuf| [OsString::from("--values"), file.clone().into()]).collect())
    }
}

/// Nothing can be done yet; from when on it can.
fn wait(left: &str, why: String, until: Option<jiff::Timestamp>) -> Failure {
    let failure = Failure::new(Code::ReleasePending, left).cause(why);
    match until {
        Some(until) => failure.hint(format!(
            "run the same command again from {} on: then no Helm can be at work on it any more",
            rfc3339(until)
        )),
        None => failure.hint("wait until that process has ended, then run the same command again"),
    }
}

fn unready_workload(workload: Workload) -> Option<String> {
    let why = match workload.state {
        State::Ready => return None,
        State::Starting(why) | State::Trouble(why) => why,
    };
    Some(format!("{} {}: {why}", workload.kind, workload.name))
}

pub(crate) fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}
