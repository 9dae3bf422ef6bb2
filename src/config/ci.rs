//! Which CI system or scheduler this process runs in, told from its environment variables.
//!
//! Nothing here is trusted for a decision about the lock: it goes into events and the Lease, so that whoever meets
//! the lock finds the job, and it selects how long a stop may take.

use serde::{Deserialize, Serialize};

use crate::config::Environment;
use crate::redact;

/// What started the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// GitHub Actions on a machine that GitHub runs.
    GithubHosted,
    /// GitHub Actions on a machine of one's own.
    GithubSelfHosted,
    /// GitLab CI.
    Gitlab,
    /// Buildkite.
    Buildkite,
    /// Jenkins.
    Jenkins,
    /// A pod that no CI system claims: a Job, a CronJob, the controller.
    Kubernetes,
    /// A systemd service whose main process this is.
    Systemd,
    /// `CI` is set, by a system that is not in this list.
    Other,
}

impl System {
    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            System::GithubHosted => "GitHub Actions (hosted runner)",
            System::GithubSelfHosted => "GitHub Actions (self-hosted runner)",
            System::Gitlab => "GitLab CI",
            System::Buildkite => "Buildkite",
            System::Jenkins => "Jenkins",
            System::Kubernetes => "Kubernetes pod",
            System::Systemd => "systemd",
            System::Other => "CI",
        }
    }
}

/// The pod that this process runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// From `POD_NAMESPACE`.
    pub namespace: Option<String>,
    /// From `POD_NAME`, else `HOSTNAME`, which is the pod's name unless the pod says otherwise.
    pub name: Option<String>,
    /// From `POD_UID`.
    pub uid: Option<String>,
}

/// What is known of the job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The system; none at a person's own terminal.
    pub system: Option<System>,
    /// Whether `CI` is set, which makes local state without `--state-dir` a mistake.
    pub ci: bool,
    /// Where a person can look at the job.
    pub url: Option<String>,
    /// Which try of the same job this is, from 1; only where the system counts.
    pub attempt: Option<u32>,
    /// The pod, also under a CI system that runs its jobs in pods.
    pub pod: Option<Pod>,
}

impl Job {
    /// Looks at the environment of a process with this pid.
    pub fn detect(environment: &Environment, pid: u32) -> Job {
        let ci = environment.says_yes("CI");
        let in_pod =
            ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].iter().all(|name| environment.text(name).is_some());
        let pod = in_pod.then(|| Pod::read(environment));
        let text = |name: &str| environment.text(name).map(str::to_owned);
        let number = |name: &str| environment.text(name).and_then(|value| value.parse::<u32>().ok());
        let (system, url, attempt) = if environment.says_yes("GITHUB_ACTIONS") {
            let hosted = environment.text("RUNNER_ENVIRONMENT") == Some("github-hosted");
            let system = if hosted { System::GithubHosted } else { System::GithubSelfHosted };
            (Some(system), github_url(environment), number("GITHUB_RUN_ATTEMPT"))
        } else if environment.says_yes("GITLAB_CI") {
            (Some(System::Gitlab), text("CI_JOB_URL"), None)
        } else if environment.says_yes("BUILDKITE") {
            (
                Some(System::Buildkite),
                buildkite_url(environment),
                number("BUILDKITE_RETRY_COUNT").map(|retries| retries.saturating_add(1)),
            )
        } else if environment.text("JENKINS_URL").is_some() {
            (Some(System::Jenkins), text("BUILD_URL"), None)
        } else if in_pod {
            (Some(System::Kubernetes), None, None)
        } else if number("SYSTEMD_EXEC_PID") == Some(pid) {
            (Some(System::Systemd), None, None)
        } else {
            (ci.then_some(System::Other), None, None)
        };
        // It is written where everybody of the cluster can read it.
        let url = url.map(|url| redact::without_credentials(&url).into_owned());
        Job { system, ci, url, attempt, pod }
    }
}

impl Pod {
    fn read(environment: &Environment) -> Pod {
        let first = |names: [&str; 2]| names.iter().find_map(|name| environment.text(name)).map(str::to_owned);
        Pod {
            namespace: first(["DCCTL_POD_NAMESPACE", "POD_NAMESPACE"]),
            name: first(["DCCTL_POD_NAME", "POD_NAME"]).or_else(|| environment.text("HOSTNAME").map(str::to_owned)),
            uid: first(["DCCTL_POD_UID", "POD_UID"]),
        }
    }
}

fn github_url(environment: &Environment) -> Option<String> {
    let [server, repository, run] =
        ["GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"].map(|name| environment.text(name));
    let page = format!("{}/{}/actions/runs/{}", server?, repository?, run?);
    Some(match environment.text("GITHUB_RUN_ATTEMPT") {
        Some(attempt) => format!("{page}/attempts/{attempt}"),
        None => page,
    })
}

fn buildkite_url(environment: &Environment) -> Option<String> {
    let build = environment.text("BUILDKITE_BUILD_URL")?;
    Some(match environment.text("BUILDKITE_JOB_ID") {
        Some(job) => format!("{build}#{job}"),
        None => build.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Job {
        Job::detect(&Environment::of(variables.iter().copied()), 4711)
    }

    #[test]
    fn a_terminal_is_no_system() {
        assert_eq!(detect(&[("TERM", "xterm"), ("CI", "false")]), Job::default());
    }

    #[test]
    fn github_says_who_runs_the_machine_and_which_attempt_this_is() {
        let common = [
            ("CI", "true"),
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_SERVER_URL", "https://forge.example"),
            ("GITHUB_REPOSITORY", "acme/shop"),
            ("GITHUB_RUN_ID", "42"),
            ("GITHUB_RUN_ATTEMPT", "2"),
        ];
        let own = detect(&common);
        assert_eq!(own.system, Some(System::GithubSelfHosted));
        assert_eq!(own.url.as_deref(), Some("https://forge.example/acme/shop/actions/runs/42/attempts/2"));
        assert_eq!((own.attempt, own.ci, own.pod), (Some(2), true, None));
        let hosted = detect(&[&common[..], &[("RUNNER_ENVIRONMENT", "github-hosted")]].concat());
        assert_eq!(hosted.system, Some(System::GithubHosted));
    }

    #[test]
    fn a_ci_system_in_a_pod_is_that_system_with_a_pod() {
        let job = detect(&[
            ("CI", "true"),
            ("GITLAB_CI", "true"),
            ("CI_JOB_URL", "https://forge.example/job/7"),
            ("KUBERNETES_SERVICE_HOST", "192.0.2.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
            ("HOSTNAME", "runner-0"),
            ("POD_NAMESPACE", "runners"),
        ]);
        assert_eq!(job.system, Some(System::Gitlab));
        assert_eq!(job.url.as_deref(), Some("https://forge.example/job/7"));
        let pod = job.pod.expect("a pod");
        assert_eq!((pod.namespace.as_deref(), pod.name.as_deref(), pod.uid), (Some("runners"), Some("runner-0"), None));
    }

    #[test]
    fn the_other_systems_are_told_apart() {
        let buildkite = detect(&[
            ("CI", "true"),
            ("BUILDKITE", "true"),
            ("BUILDKITE_BUILD_URL", "https://builds.example/9"),
            ("BUILDKITE_JOB_ID", "abc"),
            ("BUILDKITE_RETRY_COUNT", "0"),
        ]);
        assert_eq!(
            (buildkite.system, buildkite.url.as_deref(), buildkite.attempt),
            (Some(System::Buildkite), Some("https://builds.example/9#abc"), Some(1))
        );
        let jenkins = detect(&[("JENKINS_URL", "http://jenkins.example/"), ("BUILD_URL", "http://jenkins.example/1/")]);
        assert_eq!((jenkins.system, jenkins.ci), (Some(System::Jenkins), false));
        assert_eq!(jenkins.url.as_deref(), Some("http://jenkins.example/1/"));
        let named = detect(&[("JENKINS_URL", "x"), ("BUILD_URL", "http://me:hunter2@jenkins.example/1/")]);
        assert_eq!(named.url.as_deref(), Some("http://me:[redacted]@jenkins.example/1/"));
        let half_a_pod = detect(&[("KUBERNETES_SERVICE_HOST", "192.0.2.1")]);
        assert_eq!((half_a_pod.system, half_a_pod.pod), (None, None));
        let pod = detect(&[("KUBERNETES_SERVICE_HOST", "192.0.2.1"), ("KUBERNETES_SERVICE_PORT", "443")]);
        assert_eq!(pod.system, Some(System::Kubernetes));
        assert_eq!(detect(&[("SYSTEMD_EXEC_PID", "4711")]).system, Some(System::Systemd));
        assert_eq!(detect(&[("SYSTEMD_EXEC_PID", "1")]).system, None);
        assert_eq!(detect(&[("CI", "1")]).system, Some(System::Other));
    }
}
