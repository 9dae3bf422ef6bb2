//! What the surroundings grant a stop: how long after a cancel they end what, and how a person makes that longer.
//!
//! No system says how long a stop may take, so what is here are its defaults, as it documents or does them. Whoever knows
//! better says it with `--stop-budget`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::ci::{Job, System};
use crate::config::env::Environment;

/// What is ended when the time of a cancel is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// Every process of the run: the container or the machine goes, or a service with all that it started.
    Everything,
    /// The front, its group or its tree; the run outlives that.
    Front,
    /// Nothing.
    Nothing,
    /// Nobody knows.
    Unknown,
}

/// Whom the first signal of a cancel reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hits {
    /// The front at most, or nobody knows; no tool.
    Front,
    /// Every process: the tools and their plugins, too, so that none of them has any time.
    Everything,
    /// The same, unless a person has set it to spare the tools, which cannot be seen from here.
    EverythingByDefault,
}

/// Who grants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grantor {
    /// `--stop-budget`.
    Option,
    /// GitHub Actions on a machine or in a pod that goes with the job.
    GithubHosted,
    /// GitHub Actions on a machine that stays.
    GithubSelfHosted,
    /// GitLab's shell executor, or another one on a machine that stays.
    GitlabShell,
    /// GitLab's Kubernetes executor.
    GitlabPod,
    /// GitLab's docker executor.
    GitlabDocker,
    /// Buildkite's agent.
    Buildkite,
    /// Jenkins.
    Jenkins,
    /// Any other CI system that runs its jobs in pods.
    CiPod,
    /// A pod that no CI system claims.
    Kubernetes,
    /// A systemd service whose main process this is.
    Systemd,
    /// A CI system that is not in this list.
    OtherCi,
    /// No system at all: a person, or whatever a person has set up.
    Person,
}

/// What the surroundings grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Who does.
    pub by: Grantor,
    /// What is ended.
    pub ends: Ends,
    /// How long after the first request; none where nothing is ended, or nobody knows when.
    pub after: Option<Duration>,
    /// Whom the cancel itself signals.
    pub hits: Hits,
}

/// What `--stop-budget` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// Everything ends this long after the first request.
    Everything(Duration),
    /// Nothing does.
    Nothing,
}

/// Whether a person sits at the terminal that the program was started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seat {
    /// Somebody does.
    Taken,
    /// As far as can be told nobody does.
    Empty,
}

impl Grant {
    /// What was told, else what the system around this job does by default.
    pub fn find(what: Option<Told>, job: &Job, environment: &Environment, seat: Seat) -> Grant {
        let found = Grantor::of(job, environment, seat);
        let told = |ends, after| Grant { by: Grantor::Option, ends, after, hits: found.hits_when_told() };
        match what {
            Some(Told::Everything(after)) => told(Ends::Everything, Some(after)),
            Some(Told::Nothing) => told(Ends::Nothing, None),
            None => Grant::preset(found),
        }
    }

    fn preset(by: Grantor) -> Grant {
        let (ends, seconds) = match by {
            Grantor::GithubHosted => (Ends::Everything, Some(240)),
            Grantor::GithubSelfHosted | Grantor::Buildkite => (Ends::Front, Some(10)),
            Grantor::GitlabShell => (Ends::Front, Some(600)),
            Grantor::GitlabPod | Grantor::CiPod | Grantor::Kubernetes => (Ends::Everything, Some(30)),
            Grantor::GitlabDocker => (Ends::Everything, Some(15)),
            Grantor::Jenkins => (Ends::Front, Some(5)),
            Grantor::Systemd => (Ends::Everything, Some(90)),
            Grantor::OtherCi => (Ends::Unknown, None),
            Grantor::Option | Grantor::Person => (Ends::Nothing, None),
        };
        Grant { by, ends, after: seconds.map(Duration::from_secs), hits: by.hits() }
    }

    /// When everything is ended; none where it is not, so that no tool is cut short for it.
    pub fn everything_ends_after(&self) -> Option<Duration> {
        match self.ends {
            Ends::Everything => self.after,
            Ends::Front | Ends::Nothing | Ends::Unknown => None,
        }
    }
}

impl Grantor {
    fn hits(self) -> Hits {
        match self {
            Grantor::GitlabDocker => Hits::Everything,
            Grantor::Systemd => Hits::EverythingByDefault,
            Grantor::Option
            | Grantor::GithubHosted
            | Grantor::GithubSelfHosted
            | Grantor::GitlabShell
            | Grantor::GitlabPod
            | Grantor::Buildkite
            | Grantor::Jenkins
            | Grantor::CiPod
            | Grantor::Kubernetes
            | Grantor::OtherCi
            | Grantor::Person => Hits::Front,
        }
    }

    /// The same where a person has said `--stop-budget`: whoever grants a service its time is told to spare the tools, too.
    fn hits_when_told(self) -> Hits {
        match self.hits() {
            Hits::EverythingByDefault => Hits::Front,
            hits @ (Hits::Front | Hits::Everything) => hits,
        }
    }

    fn of(job: &Job, environment: &Environment, seat: Seat) -> Grantor {
        let in_pod = job.pod.is_some();
        match job.system {
            Some(System::GithubHosted) => Grantor::GithubHosted,
            // A runner in a pod goes with its job, like a hosted one.
            Some(System::GithubSelfHosted) if in_pod => Grantor::GithubHosted,
            Some(System::GithubSelfHosted) => Grantor::GithubSelfHosted,
            Some(System::Gitlab) if environment.says_yes("CI_SHARED_ENVIRONMENT") => Grantor::GitlabShell,
            Some(System::Gitlab) if in_pod => Grantor::GitlabPod,
            Some(System::Gitlab) => Grantor::GitlabDocker,
            Some(System::Buildkite | System::Jenkins | System::Other) if in_pod => Grantor::CiPod,
            Some(System::Buildkite) => Grantor::Buildkite,
            Some(System::Jenkins) => Grantor::Jenkins,
            Some(System::Other) => Grantor::OtherCi,
            // Somebody who opened a shell in a pod presses Ctrl+C, and the pod stays.
            Some(System::Kubernetes) if seat == Seat::Taken => Grantor::Person,
            Some(System::Kubernetes) => Grantor::Kubernetes,
            Some(System::Systemd) => Grantor::Systemd,
            None => Grantor::Person,
        }
    }

    /// What people call it; none where there is nobody to be named.
    pub fn title(self) -> Option<&'static str> {
        match self {
            Grantor::Option => Some("--stop-budget"),
            Grantor::GithubHosted => Some("GitHub Actions, a machine that goes with the job"),
            Grantor::GithubSelfHosted => Some("GitHub Actions, a machine that stays"),
            Grantor::GitlabShell => Some("GitLab CI, shell executor"),
            Grantor::GitlabPod => Some("GitLab CI, Kubernetes executor"),
            Grantor::GitlabDocker => Some("GitLab CI, docker executor"),
            Grantor::Buildkite => Some("Buildkite"),
            Grantor::Jenkins => Some("Jenkins"),
            Grantor::CiPod => Some("a CI job in a pod"),
            Grantor::Kubernetes => Some("a Kubernetes pod"),
            Grantor::Systemd => Some("a systemd service"),
            Grantor::OtherCi => Some("CI"),
            Grantor::Person => None,
        }
    }

    /// How to get more time here; none where there is nothing to set.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Grantor::GithubHosted => Some(
                "a later step with `if: always()` has to wait for the run, or the machine goes as soon as the job has ended",
            ),
            Grantor::GitlabPod => Some(
                "raise pod_termination_grace_period_seconds, or wait for the run in after_script, and say so with --stop-budget",
            ),
            Grantor::GitlabDocker => {
                Some("no setting makes it longer; the Kubernetes or the shell executor gives more")
            }
            Grantor::CiPod => Some("raise the pod's terminationGracePeriodSeconds, and say so with --stop-budget"),
            Grantor::Kubernetes => Some("set terminationGracePeriodSeconds: 1320 and --stop-budget 22m"),
            Grantor::Systemd => Some("set KillMode=mixed, TimeoutStopSec=22min and --stop-budget 22m"),
            Grantor::Option
            | Grantor::GithubSelfHosted
            | Grantor::GitlabShell
            | Grantor::Buildkite
            | Grantor::Jenkins
            | Grantor::OtherCi
            | Grantor::Person => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found for these variables by process 4711 at an empty seat.
    fn found(variables: &[(&str, &str)]) -> Grant {
        let environment = Environment::of(variables.iter().copied());
        Grant::find(None, &Job::detect(&environment, 4711), &environment, Seat::Empty)
    }

    const GITHUB: (&str, &str) = ("GITHUB_ACTIONS", "true");
    const HOSTED: (&str, &str) = ("RUNNER_ENVIRONMENT", "github-hosted");
    const GITLAB: (&str, &str) = ("GITLAB_CI", "true");

    /// Variables, and what is found for them.
    type Row = (&'static [(&'static str, &'static str)], Grantor, Ends, Option<u64>);

    const POD: [(&str, &str); 2] = [("KUBERNETES_SERVICE_HOST", "192.0.2.1"), ("KUBERNETES_SERVICE_PORT", "443")];

    #[test]
    fn each_system_has_its_preset() {
        let rows: [Row; 13] = [
            (&[GITHUB, HOSTED], Grantor::GithubHosted, Ends::Everything, Some(240)),
            (&[GITHUB, POD[0], POD[1]], Grantor::GithubHosted, Ends::Everything, Some(240)),
            (&[GITHUB], Grantor::GithubSelfHosted, Ends::Front, Some(10)),
            (&[GITLAB, ("CI_SHARED_ENVIRONMENT", "true")], Grantor::GitlabShell, Ends::Front, Some(600)),
            (&[GITLAB, POD[0], POD[1]], Grantor::GitlabPod, Ends::Everything, Some(30)),
            (&[GITLAB, ("CI_DISPOSABLE_ENVIRONMENT", "true")], Grantor::GitlabDocker, Ends::Everything, Some(15)),
            (&[("BUILDKITE", "true")], Grantor::Buildkite, Ends::Front, Some(10)),
            (&[("JENKINS_URL", "http://jenkins.example/")], Grantor::Jenkins, Ends::Front, Some(5)),
            (&[("BUILDKITE", "true"), POD[0], POD[1]], Grantor::CiPod, Ends::Everything, Some(30)),
            (&POD, Grantor::Kubernetes, Ends::Everything, Some(30)),
            (&[("SYSTEMD_EXEC_PID", "4711")], Grantor::Systemd, Ends::Everything, Some(90)),
            (&[("CI", "1")], Grantor::OtherCi, Ends::Unknown, None),
            (&[("TERM", "xterm")], Grantor::Person, Ends::Nothing, None),
        ];
        for (variables, by, ends, seconds) in rows {
            let grant = found(variables);
            let expected = Grant { by, ends, after: seconds.map(Duration::from_secs), hits: by.hits() };
            assert_eq!(grant, expected, "{variables:?}");
            let cut = grant.everything_ends_after().is_some();
            assert_eq!(cut, ends == Ends::Everything, "{variables:?}");
        }
    }

    #[test]
    fn what_is_told_goes_before_what_is_found() {
        let environment = Environment::of([("BUILDKITE", "true")]);
        let job = Job::detect(&environment, 4711);
        let told = |told| Grant::find(Some(told), &job, &environment, Seat::Empty);
        let minute = Duration::from_secs(60);
        assert_eq!(told(Told::Everything(minute)).everything_ends_after(), Some(minute));
        assert_eq!(told(Told::Nothing).everything_ends_after(), None);
        assert_eq!(told(Told::Nothing).by, Grantor::Option);
    }

    #[test]
    fn no_budget_that_is_told_changes_that_docker_signals_the_tools() {
        let docker = Environment::of([GITLAB]);
        let service = Environment::of([("SYSTEMD_EXEC_PID", "4711")]);
        for (environment, hits) in [(docker, Hits::Everything), (service, Hits::Front)] {
            let told = Some(Told::Everything(Duration::from_secs(60)));
            let grant = Grant::find(told, &Job::detect(&environment, 4711), &environment, Seat::Empty);
            assert_eq!((grant.by, grant.hits), (Grantor::Option, hits), "{environment:?}");
        }
    }

    #[test]
    fn a_person_in_a_pod_is_a_person() {
        let environment = Environment::of(POD);
        let job = Job::detect(&environment, 4711);
        assert_eq!(Grant::find(None, &job, &environment, Seat::Taken).by, Grantor::Person);
    }
}
