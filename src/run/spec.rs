//! What the front hands to the supervisor: everything about one run, decided before it begins.
//!
//! It goes over the socket between the two, never through a file: it carries secrets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Instant;
use crate::config::{Bundle, Grant, Job};
use crate::lock::{HolderId, Place};
use crate::pipeline::{Plan, Verb};
use crate::redact::{self, Redactor, Secret, exposed_map};
use crate::step::Choices;

/// Whether a run acts, or only says what it would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Do it.
    Act,
    /// Say what would be done; take no lock and write nothing.
    DryRun,
}

/// How long a run waits for a lock that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Not at all.
    No,
    /// For this long, and then it does what [`OnBusy`] says.
    AtMost(Duration),
    /// Until it gets it.
    Forever,
}

/// What a run does about a lock that it does not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnBusy {
    /// It ends.
    Refuse,
    /// It says so and goes on without the lock.
    Warn,
}

impl OnBusy {
    /// What a verb does unless it is told otherwise: who builds refuses, because two builds beside each other make one
    /// thing out of halves; who moves or removes what is live has decided that, and is
    /// not kept from it.
    pub fn preset(verb: Verb) -> OnBusy {
        match verb {
            Verb::Install | Verb::Bootstrap | Verb::Exec => OnBusy::Refuse,
            Verb::Upgrade | Verb::Destroy => OnBusy::Warn,
        }
    }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The run's id: 16 hexadecimal digits, also the last part of the holder identity.
    pub run: String,
    /// When the front began, for `elapsed_ms`.
    pub began: Instant,
    /// The same moment for people.
    pub began_at: Timestamp,
    /// What will be done.
    pub plan: Plan,
    /// Whether to act.
    pub mode: Mode,
    /// What it is for.
    pub purpose: Purpose,
    /// The run that started the process which started this one, if there is one: its id.
    pub inside: Option<String>,
    /// The user part of the holder identity.
    pub user: String,
    /// The host part of the holder identity.
    pub host: String,
    /// The CI system and its job.
    pub job: Job,
    /// The run's directory.
    pub run_dir: PathBuf,
    /// Where the runs of this user are listed.
    pub runs: PathBuf,
    /// Keep the raw output of tools.
    pub keep_output: bool,
    /// The environment that tools start from.
    pub environment: Vec<(String, String)>,
    /// The names of the variables that they do not get.
    pub dropped: Vec<String>,
    /// `PATH`, for finding programs.
    pub path: String,
    /// `--events-file`, absolute.
    pub events_file: Option<PathBuf>,
    /// `--junit`, absolute.
    pub junit: Option<PathBuf>,
    /// How long to wait for the lock.
    pub wait: Wait,
    /// What to do without it.
    pub on_busy: OnBusy,
    /// How long a graceful stop may take.
    pub stop_after: Duration,
    /// After how long the run is asked to stop by itself; none: never.
    pub max_run_time: Option<Duration>,
    /// What the surroundings grant it.
    pub grant: Grant,
    /// What must never be said, with the name of what it is for.
    #[serde(with = "exposed_map")]
    pub secrets: std::collections::BTreeMap<String, Secret>,
    /// Facts worth saying at the start, a sentence each.
    pub notes: Vec<String>,
    /// Where a test asks the program to break, see [`crate::run::drill`].
    #[cfg(feature = "test-tools")]
    pub break_at: Option<String>,
    /// Where a test wants to be told when the run may write, see [`crate::run::drill`].
    #[cfg(feature = "test-tools")]
    pub witness: Option<PathBuf>,
}

/// What a run is for: what it works with beside the cluster and its lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The steps of a bundle.
    Bundle(Box<ForBundle>),
    /// One command, whatever it does.
    Command(Box<ForCommand>),
}

/// A cluster, and the way to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OnCluster {
    /// The kubeconfig's name for the cluster.
    pub kube_context: String,
    /// The API server's URL.
    pub server: String,
    /// The run's own kubeconfig, in its directory.
    pub kubeconfig: PathBuf,
    /// What the client may use to get to the API server, from the environment.
    pub proxy: crate::cluster::Proxies,
}

/// What keeps the lock of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Substrate {
    /// The API server of a cluster.
    Kubernetes(OnCluster),
    /// This folder, absolute. There is no cluster then.
    Direct(PathBuf),
}

/// What a run of a bundle works with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForBundle {
    /// The cluster. It keeps the lock, too.
    pub cluster: OnCluster,
    /// The instance; none for `install`.
    pub instance: Option<String>,
    /// The bundle, resolved.
    pub bundle: Bundle,
    /// The path that the bundle was read from, absolute.
    pub bundle_path: String,
    /// The digest of the archive that it was unpacked from.
    #[serde(default)]
    pub digest: Option<String>,
    /// Where local OpenTofu state lives.
    pub state_dir: PathBuf,
    /// Values files for the chart from the command line, absolute.
    pub values: Vec<PathBuf>,
    /// Build the bundle's images first.
    pub build: bool,
    /// Take over fields that another manager owns.
    pub force_conflicts: bool,
    /// What the caller chose.
    pub choices: Choices,
    /// `--tofu`, if given.
    pub tofu: Option<PathBuf>,
    /// `--helm`, if given.
    pub helm: Option<PathBuf>,
}

/// What a run of one command works with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ForCommand {
    /// What keeps the lock.
    pub substrate: Substrate,
    /// The program, as it was typed.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it runs: the folder that the front was started in, whatever its name is made of.
    #[serde(with = "any_path")]
    pub folder: PathBuf,
    /// The file that gets its standard output; the front follows it.
    pub stdout: PathBuf,
    /// The file that gets its standard error; the front follows it.
    pub stderr: PathBuf,
    /// It reads what the front reads.
    pub stdin: bool,
    /// The run ends with the command's own exit status when that is all there is to tell.
    pub propagate: bool,
}

/// A path that need not be text, which it is for serde by itself.
mod any_path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(deserializer).map(PathBuf::from)
    }
}

impl OnCluster {
    fn place(&self) -> Place {
        Place::Cluster(self.kube_context.clone())
    }
}

impl ForCommand {
    /// What people call it: the program's name, without its folder. Arguments are never said: they may be secret.
    pub fn name(&self) -> String {
        let name = Path::new(&self.program).file_name().unwrap_or(&self.program);
        name.to_string_lossy().chars().filter(|character| !character.is_control()).collect()
    }
}

impl Spec {
    /// The identity under which this run claims the lock when this process owns it.
    pub fn holder(&self, pid: u32) -> HolderId {
        let suffix = u64::from_str_radix(&self.run, 16).expect("a run's id is 16 hexadecimal digits");
        HolderId::new(&self.user, &self.host, pid, suffix)
    }

    /// The instance worked on, if the run is for one.
    pub fn instance(&self) -> Option<&str> {
        match &self.purpose {
            Purpose::Bundle(bundle) => bundle.instance.as_deref(),
            Purpose::Command(_) => None,
        }
    }

    /// The cluster, if the run has to do with one.
    pub fn cluster(&self) -> Option<&OnCluster> {
        match &self.purpose {
            Purpose::Bundle(bundle) => Some(&bundle.cluster),
            Purpose::Command(command) => match &command.substrate {
                Substrate::Kubernetes(cluster) => Some(cluster),
                Substrate::Direct(_) => None,
            },
        }
    }

    /// The folder that keeps the lock, if one does.
    pub fn lock_dir(&self) -> Option<&Path> {
        match &self.purpose {
            Purpose::Bundle(_) => None,
            Purpose::Command(command) => match &command.substrate {
                Substrate::Kubernetes(_) => None,
                Substrate::Direct(folder) => Some(folder),
            },
        }
    }

    /// Where the lock is, for what people are told.
    pub fn place(&self) -> Place {
        match &self.purpose {
            Purpose::Bundle(bundle) => bundle.cluster.place(),
            Purpose::Command(command) => match &command.substrate {
                Substrate::Kubernetes(cluster) => cluster.place(),
                Substrate::Direct(folder) => Place::Folder(folder.clone()),
            },
        }
    }

    /// `bootstrap demo`, `exec deploy.sh`.
    pub fn subject(&self) -> String {
        let verb = self.plan.verb.word();
        match &self.purpose {
            Purpose::Command(command) => format!("{verb} {}", command.name()),
            Purpose::Bundle(bundle) => match &bundle.instance {
                Some(instance) => format!("{verb} {instance}"),
                None => verb.to_owned(),
            },
        }
    }

    /// Whether a command of the run reads what the front reads.
    pub(crate) fn takes_input(&self) -> bool {
        match &self.purpose {
            Purpose::Bundle(_) => false,
            Purpose::Command(command) => command.stdin && self.mode == Mode::Act,
        }
    }

    /// The journal's file.
    pub fn journal(&self) -> PathBuf {
        self.run_dir.join(JOURNAL)
    }
}

/// The journal's name in the run directory.
pub const JOURNAL: &str = "events.jsonl";

impl Spec {
    /// Everything that must never be said, ready for use.
    pub fn redactor(&self) -> Redactor {
        let redactor = Redactor::default();
        self.teach(&redactor);
        redactor
    }

    /// The names of the secrets that are too short to be hidden by their value.
    pub fn unhidden(&self) -> Vec<&str> {
        let short = self.secrets.iter().filter(|(_, secret)| redact::is_too_short(secret.expose()));
        short.map(|(name, _)| name.trim_start_matches(|digit: char| digit.is_ascii_digit()).trim_start()).collect()
    }

    /// Tells the redactor what must never be said.
    pub fn teach(&self, redactor: &Redactor) {
        for (name, secret) in &self.secrets {
            redactor.add(name, secret.expose());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_called_by_its_name_alone() {
        for (program, name) in [("./deploy.sh", "deploy.sh"), ("/usr/bin/env", "env"), ("sh", "sh"), ("a\u{1b}b", "ab")]
        {
            let command = ForCommand {
                substrate: Substrate::Direct(PathBuf::new()),
                program: program.into(),
                args: vec!["hunter2".into()],
                folder: PathBuf::new(),
                stdout: PathBuf::new(),
                stderr: PathBuf::new(),
                stdin: false,
                propagate: false,
            };
            assert_eq!(command.name(), name);
        }
    }
}
