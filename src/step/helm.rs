//! Installs or upgrades the instance's Helm chart.
//!
//! Before: a release that a dead run left half done is repaired, where that is safe. Then one `helm upgrade --install`
//! that waits. After, whatever its exit status: the release's record is read, because Helm has been seen to say
//! "cancelled" about a release that it had deployed.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use jiff::{Timestamp, Unit};
use tokio::time::timeout;

use crate::clock::human;
use crate::cluster::instances::{HELM_LABEL, INSTANCE_LABEL};
use crate::cluster::wait::{Seen, State, Workload};
use crate::config::Chart;
use crate::failure::{Code, Failure};
use crate::process::{Manner, Stream, Update as Said};
use crate::step::halt::{Asked, Or, unless_forced, unless_stopped, was_stopped};
use crate::step::helm_end::{Left, Upgraded};
use crate::step::helm_plan;
use crate::step::helm_release::{About, Act, Proof, Repair, Revision, decide, look_for_proof};
use crate::step::helm_says::{Heard, Says, signs};
use crate::step::helm_values::values;
use crate::step::invoke::{Call, Done, Kept, PRIVATE, Raw, make_folder, words, write_private};
use crate::step::readiness::tell_meanwhile;
use crate::step::{Kit, Mode, Outcome, Severity, Stopped, Tool, Update};

/// How many revisions Helm keeps of a release.
const HISTORY: &str = "10";

/// How long a look at what Helm left may take. It must not hold up a stop.
const LOOK_LIMIT: Duration = Duration::from_secs(15);

/// What is said of a stop that came early.
const BEFORE_ANYTHING: &str = "stopped before Helm changed anything";

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
    ended.unwrap_or_else(End::into_outcome)
}

/// Refuses a release that another Helm may be at work on, before anything is touched. What can be repaired is left to the
/// chart's own step.
pub(in crate::step) async fn refuse_pending(kit: &Kit) -> Result<(), End> {
    let chart = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref());
    let (Some(chart), Some(helm)) = (chart, &kit.helm) else { return Ok(()) };
    let work = Work { kit, chart, helm };
    work.consider(&work.history().await?).await.map(drop)
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

impl End {
    /// What the step comes to.
    pub(crate) fn into_outcome(self) -> Outcome {
        match self {
            End::Failed(failure) => Outcome::Failed(failure),
            End::Stopped(stopped) => Outcome::Stopped(stopped),
        }
    }

    /// A stop that leaves nothing half done.
    pub(crate) fn stopped(note: &str) -> End {
        End::Stopped(Stopped { clean: true, unfinished: Vec::new(), note: note.to_owned() })
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
    /// Repairs what has to be, and runs `helm upgrade --install`.
    pub(crate) async fn install(&self) -> Result<Outcome, End> {
        // First, because a mistake in them is no reason to touch the release.
        let values = self.values()?;
        let mut history = self.history().await?;
        if self.repair(&history).await? {
            self.go_on("the release was repaired, and nothing was installed")?;
            history = self.history().await?;
        }
        self.go_on(BEFORE_ANYTHING)?;
        let before = history.last().map_or(0, |last| last.revision);
        let mut args = words(&["upgrade", "--install", &self.chart.release]);
        args.push(self.chart.path.clone().into());
        args.extend(self.in_namespace());
        // Without it, Helm goes on with the former values when it is given none.
        args.push("--reset-values".into());
        args.extend(values);
        args.extend(self.waiting());
        args.extend(words(&["--history-max", HISTORY]));
        // So that whoever finds the record, and nothing else of the instance, knows whose it is.
        if let Some(instance) = &self.kit.instance {
            args.push("--labels".into());
            args.push(format!("{INSTANCE_LABEL}={instance}").into());
        }
        let mark = format!("{}.{}", self.kit.run, before + 1);
        args.push("--labels".into());
        args.push(format!("{HELM_LABEL}={mark}").into());
        let about = About { mark: Some(mark), ..self.about(before, Act::Advance) };
        let upgrading = self.change("helm upgrade", args, &about, Manner::Helm);
        let (says, done) = tell_meanwhile(self.kit, self.namespace(), upgrading).await?;
        let left = self.left(before).await;
        let (release, ended) = (self.chart.release.as_str(), &done.ended);
        let upgraded = Upgraded { release, says: &says, ended, left: &left };
        if ended.exit.is_success() {
            return Ok(upgraded.done());
        }
        if was_stopped(ended, Asked::of(self.kit)) {
            return Err(End::Stopped(upgraded.stopped()));
        }
        // What never began cannot wait for anything.
        let unready = if left == Left::Untouched { Vec::new() } else { self.unready().await };
        Ok(Outcome::Failed(upgraded.failed(unready)))
    }

    /// What became of the release. A stop does not keep it from being read; force does.
    async fn left(&self, before: u64) -> Left {
        let reading = timeout(LOOK_LIMIT, self.kit.cluster.release(&self.chart.namespace, &self.chart.release));
        match unless_forced(self.kit, reading).await {
            Or::Stopped => Left::Unread("force was requested".to_owned()),
            Or::Ended(Err(_)) => Left::Unread(format!("no answer within {}", human(LOOK_LIMIT))),
            Or::Ended(Ok(Err(failure))) => Left::Unread(failure.message),
            Or::Ended(Ok(Ok(records))) => match records.into_iter().next_back() {
                Some(last) if last.revision > before => Left::At(last.into()),
                Some(_) | None => Left::Untouched,
            },
        }
    }

    /// Where the chart's workloads are.
    fn namespace(&self) -> &str {
        self.kit.bundle.instance.as_ref().map_or(&self.chart.namespace, |instance| &instance.namespace)
    }

    /// What has to be repaired first, if it may be; none when nothing was left half done.
    pub(crate) async fn consider(&self, history: &[Revision]) -> Result<Option<HalfDone>, End> {
        let Some(last) = history.last().filter(|last| last.is_half_done()) else { return Ok(None) };
        let (kit, release) = (self.kit, self.chart.release.as_str());
        // Records are dated by the API server, so that is whose time counts.
        let now = self.unless_stopped(kit.cluster.time()).await?;
        let ahead = now.duration_since(kit.clock.wall());
        let proof = look_for_proof(&kit.run_dir, &self.about(0, Act::Advance), last, ahead);
        let shown = match &proof {
            Proof::Ended => "the Helm that left it has ended on this machine",
            Proof::Lives { .. } => "the Helm that left it is at work",
            Proof::None => "its record is older than this chart's timeout and this run's stop budget together",
        };
        let left = format!("release {release} was left {} at revision {}", last.status, last.revision);
        let patience = self.chart.timeout.saturating_add(kit.limits.budget);
        match decide(history, &proof, now, patience) {
            Repair::None => Ok(None),
            Repair::Wait { why, until } => Err(wait(&left, why, until).into()),
            repair @ (Repair::Forget(_) | Repair::RollBack(_) | Repair::Uninstall) => {
                Ok(Some(HalfDone { repair, revision: last.revision, shown: format!("{left}, and {shown}") }))
            }
        }
    }

    /// Repairs what a dead run left half done. Says whether anything was done.
    async fn repair(&self, history: &[Revision]) -> Result<bool, End> {
        let Some(half) = self.consider(history).await? else { return Ok(false) };
        let (kit, release) = (self.kit, self.chart.release.as_str());
        kit.updates.send(Update::Note(format!("{}: {}", half.shown, half.deed())));
        match half.repair {
            Repair::None | Repair::Wait { .. } => return Ok(false),
            Repair::Forget(revision) => {
                let forgetting = kit.cluster.delete_release_record(&self.chart.namespace, release, revision);
                let Or::Ended(forgotten) = unless_forced(kit, forgetting).await else {
                    return Err(End::Stopped(Stopped {
                        clean: false,
                        unfinished: vec![format!("release {release}")],
                        note: "the request that deletes a release record was given up; it may still take effect"
                            .to_owned(),
                    }));
                };
                forgotten?;
            }
            Repair::RollBack(revision) => {
                let mut args = words(&["rollback", release, &revision.to_string()]);
                args.extend(self.in_namespace());
                args.extend(self.timeout());
                self.mend("helm rollback", args, half.revision, Act::Advance).await?;
            }
            Repair::Uninstall => {
                let mut args = words(&["uninstall", release, "--ignore-not-found"]);
                args.extend(self.in_namespace());
                args.extend(self.waiting());
                self.mend("helm uninstall", args, half.revision, Act::Uninstall).await?;
            }
        }
        Ok(true)
    }

    /// Runs a repair. It is never interrupted: Helm would leave the release as it found it, or worse.
    async fn mend(&self, name: &str, args: Vec<OsString>, before: u64, act: Act) -> Result<(), End> {
        let about = self.about(before, act);
        let (says, done) = self.change(name, args, &about, Manner::Unsignalled).await?;
        let (release, ended) = (&self.chart.release, &done.ended);
        if ended.exit.is_success() {
            return Ok(());
        }
        if was_stopped(ended, Asked::of(self.kit)) {
            let note = format!("`{name}` had to be ended; the repair of release {release} is not complete");
            return Err(End::Stopped(Stopped { clean: false, unfinished: vec![format!("release {release}")], note }));
        }
        let sentence = format!("release {release} could not be repaired: `{name}` ended with {}", ended.exit);
        Err(says.lines().fold(Failure::new(Code::ChartFailed, sentence), Failure::cause).into())
    }

    /// Runs a Helm that changes the release.
    pub(crate) async fn change(
        &self,
        name: &str,
        args: Vec<OsString>,
        about: &About,
        manner: Manner,
    ) -> Result<(Says, Done), Failure> {
        let mut call = self.call(name, args, manner);
        call.about = Some(serde_json::to_vec(about).expect("it can be written as JSON"));
        let (says, done) = self.hear(call).await?;
        self.forget_what_began_nothing(about, &done).await;
        let stopped = was_stopped(&done.ended, Asked::of(self.kit));
        let severity = if stopped { Severity::Warning } else { Severity::Error };
        if let Some(diagnostic) = says.diagnostic(severity) {
            self.kit.updates.send(diagnostic);
        }
        Ok((says, done))
    }

    /// A Helm that bears no mark, and ended before it began anything, proves nothing about what comes after it. Where that
    /// cannot be seen, its revision is later taken for its own.
    async fn forget_what_began_nothing(&self, about: &About, done: &Done) {
        if about.mark.is_some() || done.ended.exit.is_success() {
            return;
        }
        let began = match (about.act, self.left(about.before).await) {
            (_, Left::Unread(_)) => true,
            (Act::Advance, left) => left != Left::Untouched,
            (Act::Uninstall, _) => match self.left(about.before.saturating_sub(1)).await {
                Left::At(last) => last.status == "uninstalling",
                Left::Untouched | Left::Unread(_) => true,
            },
        };
        if !began {
            let _ = std::fs::remove_file(done.about());
        }
    }

    /// Runs Helm and reads what it says.
    pub(crate) async fn hear(&self, call: Call) -> Result<(Says, Done), Failure> {
        let (mut kept, mut says) = (Kept::default(), Says::default());
        let secret = call.raw == Raw::Secret;
        let done = call
            .run(self.kit, |update| {
                let line = kept.take(&self.kit.redactor, &update);
                if let Said::Line { stream: Stream::Stdout, .. } = update {
                    return (!secret).then_some(update);
                }
                let Some(text) = line else { return Some(update) };
                match says.take(&text) {
                    Heard::Text => Some(update),
                    Heard::Said(said) => {
                        if let Some(update) = said {
                            self.kit.updates.send(update);
                        }
                        None
                    }
                }
            })
            .await?;
        Ok((says, done))
    }

    /// The release's revisions, oldest first; none when there is no such release.
    pub(crate) async fn history(&self) -> Result<Vec<Revision>, End> {
        let records = self.unless_stopped(self.kit.cluster.release(&self.chart.namespace, &self.chart.release)).await?;
        Ok(records.into_iter().map(Revision::from).collect())
    }

    /// Waits for an answer that nothing depends on yet, but no longer than until a stop is asked for.
    async fn unless_stopped<T>(&self, wait: impl Future<Output = Result<T, Failure>>) -> Result<T, End> {
        match unless_stopped(self.kit, wait).await {
            Or::Ended(answer) => Ok(answer?),
            Or::Stopped => Err(End::stopped(BEFORE_ANYTHING)),
        }
    }

    /// Ends the work when a stop was asked for between two programs.
    pub(crate) fn go_on(&self, note: &str) -> Result<(), End> {
        if self.kit.stop.is_asked() { Err(End::stopped(note)) } else { Ok(()) }
    }

    /// Helm says "context deadline exceeded"; what it was waiting for, the cluster tells.
    async fn unready(&self) -> Vec<String> {
        const MOST: usize = 5;
        let looking = timeout(LOOK_LIMIT, self.kit.cluster.look_at_namespace(self.namespace()));
        match unless_stopped(self.kit, looking).await {
            Or::Ended(Ok(Ok(Seen::Look(look)))) => {
                look.workloads.into_iter().filter_map(unready_workload).take(MOST).collect()
            }
            Or::Ended(_) | Or::Stopped => Vec::new(),
        }
    }

    pub(crate) fn about(&self, before: u64, act: Act) -> About {
        About {
            server: self.kit.cluster.server().to_owned(),
            namespace: self.chart.namespace.clone(),
            release: self.chart.release.clone(),
            before,
            act,
            mark: None,
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
    pub(crate) fn waiting(&self) -> Vec<OsString> {
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

/// A release that was left half done, and that may be repaired.
pub(crate) struct HalfDone {
    /// How.
    repair: Repair,
    /// Its newest revision.
    revision: u64,
    /// What was left, and how it is known that nobody is at work on it.
    pub(crate) shown: String,
}

impl HalfDone {
    /// What a repair does, in words.
    pub(crate) fn deed(&self) -> String {
        match self.repair {
            Repair::None | Repair::Wait { .. } => "nothing is repaired".to_owned(),
            Repair::Forget(_) => "its record is deleted, and what it had made is adopted by the install".to_owned(),
            Repair::RollBack(revision) => format!("it is rolled back to revision {revision} first"),
            Repair::Uninstall => "the uninstall is finished first".to_owned(),
        }
    }
}

fn wait(left: &str, why: String, until: Option<Timestamp>) -> Failure {
    let failure =
        Failure::new(Code::ReleasePending, format!("{left}, and another Helm may be at work on it")).cause(why);
    match until {
        Some(until) => failure.hint(format!(
            "run the same command again from {} on: then it counts as left by a dead run, and is repaired",
            until.round(Unit::Second).unwrap_or(until)
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
