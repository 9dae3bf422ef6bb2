//! The systems: how each starts a job, and what it does to one that is cancelled.
//!
//! Every wait is a fifth of the system's own, and so is what `--stop-budget` says; the order and the receivers are the system's.

use std::time::Duration;

use rustix::process::Signal;

use crate::cancel::job::{Job, Shape, all_end_within, send, send_all};

/// A wait of so many milliseconds, a fifth of it.
const fn scaled(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds / 5)
}

/// Whether a system signals the tools, too. Then what OpenTofu makes of that depends on which of its processes is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The front, its group, its parent or its tree.
    Front,
    /// Every process that there is.
    Everything,
}

/// One system.
pub(crate) struct System {
    pub(crate) name: &'static str,
    /// What it sends, to whom and when, in words.
    pub(crate) sends: &'static str,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    pub(crate) shape: Shape,
    /// What is in flight takes this long.
    pub(crate) seconds: f64,
    pub(crate) aim: Aim,
    pub(crate) cancel: fn(&Job<'_>),
}

/// A job that ends on its own account afterwards: nobody has more to do.
const LONG: Duration = Duration::from_secs(60);

const GITHUB: &[(&str, &str)] =
    &[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("RUNNER_TRACKING_ID", "github_1"), ("DCCTL_STOP_BUDGET", "48s")];
const SELF_HOSTED: &[(&str, &str)] = &[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("RUNNER_TRACKING_ID", "github_1")];

/// The shell of a step, as GitHub's runner starts it.
const STEP: &str = "bash --noprofile --norc -e -o pipefail -c '\"$@\"; :' step";
/// The shell of a script, as GitLab's runner writes it.
const SCRIPT: &str = "bash -c 'trap \"exit 1\" TERM; \"$@\"; :' script";
/// Any other shell.
const SHELL: &str = "sh -c '\"$@\"; :' sh";

/// All of them, in the order of the page.
pub(crate) const SYSTEMS: &[System] = &[
    System {
        name: "GitHub Actions, `exec dcctl …`",
        sends: "SIGINT to dcctl, 7.5 s later SIGTERM, 2.5 s later SIGKILL; at the job's end SIGKILL to whatever has the job's \
                tracking variable",
        variables: GITHUB,
        shape: Shape::Itself,
        seconds: 3.0,
        aim: Aim::Front,
        cancel: github,
    },
    System {
        name: "GitHub Actions, plain `run: dcctl …`",
        sends: "the same, to the shell of the step alone",
        variables: GITHUB,
        shape: Shape::Shell(STEP),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: github,
    },
    System {
        name: "GitHub Actions, a runner's pod that is shut down",
        sends: "SIGINT twice to the group of the step, then as above",
        variables: GITHUB,
        shape: Shape::Shell(STEP),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| {
            job.send_group(Signal::INT);
            job.send_group(Signal::INT);
            github(job);
        },
    },
    System {
        name: "GitHub Actions, a runner that is lost",
        sends: "SIGKILL to the shell of the step and to dcctl",
        variables: SELF_HOSTED,
        shape: Shape::Shell(STEP),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| send_all(&job.tree(), Signal::KILL),
    },
    System {
        name: "GitLab CI, shell executor",
        sends: "SIGTERM to the group of the script, 10 min later SIGKILL to it",
        variables: &[("CI", "true"), ("GITLAB_CI", "true"), ("CI_SHARED_ENVIRONMENT", "true")],
        shape: Shape::Shell(SCRIPT),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| {
            job.send_group(Signal::TERM);
            if !job.ends_within(LONG) {
                job.send_group(Signal::KILL);
            }
        },
    },
    System {
        name: "GitLab CI, docker executor",
        sends: "SIGTERM to every process but the first, the highest number first, up to 6 s for each and 10 s in all; then SIGTERM \
                to the first, and 10 s later SIGKILL to all",
        variables: &[("CI", "true"), ("GITLAB_CI", "true"), ("DCCTL_STOP_BUDGET", "3s")],
        shape: Shape::Shell(SCRIPT),
        seconds: 3.0,
        aim: Aim::Everything,
        cancel: docker,
    },
    System {
        name: "GitLab CI, Kubernetes executor",
        sends: "SIGTERM to the children of the script; then the pod is deleted: 30 s later SIGKILL to all",
        variables: &[("CI", "true"), ("GITLAB_CI", "true"), ("DCCTL_STOP_BUDGET", "6s")],
        shape: Shape::Shell(SCRIPT),
        seconds: 2.0,
        aim: Aim::Front,
        cancel: |job| {
            let members = job.members();
            send_all(&job.children(), Signal::TERM);
            if !all_end_within(&members, scaled(30_000)) {
                send_all(&job.members(), Signal::KILL);
            }
        },
    },
    System {
        name: "A Kubernetes pod with 30 s, and something that takes longer",
        sends: "SIGTERM to dcctl, 30 s later SIGKILL to all",
        variables: &[("DCCTL_STOP_BUDGET", "6s")],
        shape: Shape::Namespace,
        seconds: 20.0,
        aim: Aim::Front,
        cancel: |job| delete_pod(job, scaled(30_000)),
    },
    System {
        name: "A Kubernetes pod with 1320 s",
        sends: "SIGTERM to dcctl, 1320 s later SIGKILL to all",
        variables: &[("DCCTL_STOP_BUDGET", "264s")],
        shape: Shape::Namespace,
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| delete_pod(job, scaled(1_320_000)),
    },
    System {
        name: "systemd, `KillMode=mixed`",
        sends: "SIGTERM to dcctl, 90 s later SIGKILL to all",
        variables: &[("DCCTL_STOP_BUDGET", "18s")],
        shape: Shape::Itself,
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| {
            let members = job.members();
            send(job.entry(), Signal::TERM);
            if !all_end_within(&members, scaled(90_000)) {
                send_all(&job.members(), Signal::KILL);
            }
        },
    },
    System {
        name: "systemd, `KillMode=control-group`",
        sends: "SIGTERM to every process of the service, 90 s later SIGKILL to all",
        variables: &[("DCCTL_STOP_BUDGET", "18s")],
        shape: Shape::Itself,
        seconds: 3.0,
        aim: Aim::Everything,
        cancel: |job| {
            let members = job.members();
            send_all(&members, Signal::TERM);
            if !all_end_within(&members, scaled(90_000)) {
                send_all(&job.members(), Signal::KILL);
            }
        },
    },
    System {
        name: "Jenkins",
        sends: "SIGTERM to every process that has the job's cookie, children first; 5 s later SIGKILL to them",
        variables: &[
            ("CI", "true"),
            ("JENKINS_URL", "http://jenkins.example/"),
            ("JENKINS_NODE_COOKIE", "cookie"),
            ("JENKINS_SERVER_COOKIE", "cookie"),
            ("BUILD_ID", "7"),
        ],
        shape: Shape::Shell(SHELL),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| {
            let mut found = job.with_variable("JENKINS_NODE_COOKIE");
            found.reverse();
            send_all(&found, Signal::TERM);
            if !all_end_within(&found, scaled(5_000)) {
                send_all(&found, Signal::KILL);
            }
        },
    },
    System {
        name: "Jenkins, by the tree of processes",
        sends: "SIGTERM to every descendant of the job's shell, children first; 5 s later SIGKILL to them",
        variables: &[("CI", "true"), ("JENKINS_URL", "http://jenkins.example/")],
        shape: Shape::Shell(SHELL),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| {
            let tree = job.tree();
            send_all(&tree, Signal::TERM);
            if !all_end_within(&tree, scaled(5_000)) {
                send_all(&tree, Signal::KILL);
            }
        },
    },
    System {
        name: "Buildkite",
        sends: "SIGTERM to the group of the job, 10 s later SIGKILL to it",
        variables: &[("CI", "true"), ("BUILDKITE", "true")],
        shape: Shape::Shell(SHELL),
        seconds: 3.0,
        aim: Aim::Front,
        cancel: |job| {
            job.send_group(Signal::TERM);
            if !job.ends_within(scaled(10_000)) {
                job.send_group(Signal::KILL);
            }
        },
    },
];

/// A step that is cancelled, and then the end of its job.
fn github(job: &Job<'_>) {
    send(job.entry(), Signal::INT);
    if !job.ends_within(scaled(7_500)) {
        send(job.entry(), Signal::TERM);
        if !job.ends_within(scaled(2_500)) {
            send(job.entry(), Signal::KILL);
        }
    }
    send_all(&job.with_variable("RUNNER_TRACKING_ID"), Signal::KILL);
}

fn docker(job: &Job<'_>) {
    let mut others: Vec<_> = job.members().into_iter().filter(|pid| *pid != job.entry()).collect();
    others.reverse();
    for pid in others {
        send(pid, Signal::TERM);
        let _ = all_end_within(&[pid], scaled(6_000));
    }
    send(job.entry(), Signal::TERM);
    if !job.ends_within(scaled(10_000)) {
        send_all(&job.members(), Signal::KILL);
    }
}

fn delete_pod(job: &Job<'_>, grace: Duration) {
    let Some(front) = job.front() else { return };
    send(front, Signal::TERM);
    if !all_end_within(&[front], grace) {
        send(front, Signal::KILL);
    }
}
