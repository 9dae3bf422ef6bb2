//! The systems: how each starts a job, and what it does to one that is cancelled.
//!
//! Every wait is a fifth of the system's own (act, which plays itself, has its own), and so is what `--stop-budget` says; the order and the receivers are the system's.
//! Where a machine, a container or a service ends all that is in it, a PID namespace does.

use std::time::Duration;

use dcctl::clock::{Clock, System as Now};
use rustix::process::{Pid, Signal};

use crate::bed::wait;
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
    /// Everything is ended before the run has, so that there is no verdict.
    pub(crate) lost: bool,
    pub(crate) cancel: fn(&Job<'_>),
}

/// A job that ends on its own account afterwards: nobody has more to do.
const LONG: Duration = Duration::from_secs(60);

const GITHUB: &[(&str, &str)] = &[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("DCCTL_STOP_BUDGET", "48s")];
const SELF_HOSTED: &[(&str, &str)] = &[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("RUNNER_TRACKING_ID", "github_1")];

/// A machine or a pod with GitHub's runner, and a step in it that is the run itself. It outlives the step.
const RUNNER: &str = "sh -c 'RUNNER_TRACKING_ID=github_1 \"$@\"; exec sleep 600' runner";
/// The same, and a step with a shell.
const RUNNER_STEP: &str = "sh -c 'RUNNER_TRACKING_ID=github_1 \"$@\"; exec sleep 600' runner \
                           bash --noprofile --norc -e -o pipefail -c '\"$@\"; :' step";
/// The shell of a step, as GitHub's runner starts it.
const STEP: &str = "bash --noprofile --norc -e -o pipefail -c '\"$@\"; :' step";
/// A service: when its main process has ended, whatever is left of it is killed.
const UNIT: &str = "sh -c 'sh -c \"SYSTEMD_EXEC_PID=\\$\\$ exec \\\"\\$@\\\"\" main \"$@\"; :' unit";
/// The shell of a script, as GitLab's runner writes it.
const SCRIPT: &str = "bash -c 'trap \"exit 1\" TERM; \"$@\"; :' script";
/// Any other shell.
const SHELL: &str = "sh -c '\"$@\"; :' sh";

/// All of them, in the order of the page.
pub(crate) const SYSTEMS: &[System] = &[
    System {
        name: "GitHub Actions, a hosted runner, `exec dcctl …` and a last step that waits for the run",
        sends: "SIGINT to dcctl, 7.5 s later SIGTERM, 2.5 s later SIGKILL; after the last step, or 285 s after the cancel, SIGKILL \
                to whatever has the job's tracking variable, and the machine is gone",
        variables: GITHUB,
        shape: Shape::Contained(RUNNER),
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: hosted,
    },
    System {
        name: "GitHub Actions, a hosted runner, plain `run: dcctl …` and a last step that waits for the run",
        sends: "the same, the signals to the shell of the step alone",
        variables: GITHUB,
        shape: Shape::Contained(RUNNER_STEP),
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: hosted,
    },
    System {
        name: "GitHub Actions, a hosted runner, nothing waits, and something takes longer than 10 s",
        sends: "SIGINT to dcctl, 7.5 s later SIGTERM, 2.5 s later SIGKILL, and the machine is gone",
        variables: GITHUB,
        shape: Shape::Contained(RUNNER),
        seconds: 20.0,
        aim: Aim::Front,
        lost: true,
        cancel: |job| {
            end_step(job);
            job.destroy();
        },
    },
    System {
        name: "GitHub Actions, a runner's pod that is shut down",
        sends: "SIGINT twice to the group of the step, then SIGTERM and SIGKILL to its shell as above; 30 s after the first SIGKILL to \
                all",
        variables: &[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("DCCTL_STOP_BUDGET", "6s")],
        shape: Shape::Contained(RUNNER_STEP),
        seconds: 2.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| {
            let group = job.group_inside();
            send_all(&group, Signal::INT);
            send_all(&group, Signal::INT);
            end_step(job);
            let _ = all_end_within(&job.inside(), scaled(20_000));
            job.destroy();
        },
    },
    System {
        name: "GitHub Actions, a runner that is lost",
        sends: "SIGKILL to the shell of the step and to dcctl",
        variables: SELF_HOSTED,
        shape: Shape::Shell(STEP),
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| send_all(&job.tree(), Signal::KILL),
    },
    System {
        name: "GitHub Actions, a self-hosted runner, plain `run: dcctl …`, nothing waits, and something takes longer than 10 s",
        sends: "SIGINT to the shell of the step, 7.5 s later SIGTERM, 2.5 s later SIGKILL; then at once SIGKILL to whatever has the \
                job's tracking variable",
        variables: SELF_HOSTED,
        shape: Shape::Shell(STEP),
        seconds: 8.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| {
            end(job.entry());
            let found = job.with_variable("RUNNER_TRACKING_ID");
            assert!(!found.is_empty() && job.verdict().is_none(), "the clean-up has to meet a run that is stopping");
            send_all(&found, Signal::KILL);
        },
    },
    System {
        name: "GitHub Actions, `uses: …/actions/run`, played by act",
        sends: "SIGKILL to the first half of the action, which cannot ask for anything; its last half runs at the job's end",
        variables: &[],
        shape: Shape::Act,
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| {
            send(job.entry(), Signal::INT);
            assert!(job.ends_within(LONG), "the job ends with its run");
        },
    },
    System {
        name: "A machine or a pod that is lost with everything on it",
        sends: "nothing; every process is gone at once",
        variables: &[("CI", "true"), ("GITLAB_CI", "true")],
        shape: Shape::Contained(SHELL),
        seconds: 20.0,
        aim: Aim::Front,
        lost: true,
        cancel: |job| job.destroy(),
    },
    System {
        name: "GitLab CI, shell executor",
        sends: "SIGTERM to the group of the script, 10 min later SIGKILL to it",
        variables: &[("CI", "true"), ("GITLAB_CI", "true"), ("CI_SHARED_ENVIRONMENT", "true")],
        shape: Shape::Shell(SCRIPT),
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| {
            job.send_group(Signal::TERM);
            if !job.ends_within(scaled(600_000)) {
                job.send_group(Signal::KILL);
            }
        },
    },
    System {
        name: "GitLab CI, docker executor",
        sends: "SIGTERM to every process but the first, the highest number first, up to 6 s for each and 10 s in all; then SIGTERM \
                to the first, and 10 s later SIGKILL to all",
        variables: &[("CI", "true"), ("GITLAB_CI", "true"), ("DCCTL_STOP_BUDGET", "3s")],
        shape: Shape::Contained(SCRIPT),
        seconds: 3.0,
        aim: Aim::Everything,
        lost: false,
        cancel: docker,
    },
    System {
        name: "GitLab CI, Kubernetes executor",
        sends: "SIGTERM to the children of the script; when they have ended, and at the latest after the 5 min of `after_script`, \
                the pod is deleted: SIGTERM to the first process, 30 s later SIGKILL to all",
        variables: &[("CI", "true"), ("GITLAB_CI", "true"), ("DCCTL_STOP_BUDGET", "6s")],
        shape: Shape::Contained(SCRIPT),
        seconds: 2.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| {
            let Some(step) = job.step() else { return };
            send(step, Signal::TERM);
            let _ = all_end_within(&[step], scaled(300_000));
            let Some(first) = job.init() else { return };
            send(first, Signal::TERM);
            if !all_end_within(&[first], scaled(30_000)) {
                job.destroy();
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
        lost: false,
        cancel: |job| delete_pod(job, scaled(30_000)),
    },
    System {
        name: "A Kubernetes pod with 1320 s",
        sends: "SIGTERM to dcctl, 1320 s later SIGKILL to all",
        variables: &[("DCCTL_STOP_BUDGET", "264s")],
        shape: Shape::Namespace,
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| delete_pod(job, scaled(1_320_000)),
    },
    System {
        name: "systemd, `KillMode=mixed`",
        sends: "SIGTERM to dcctl, SIGKILL to the rest when it has ended, or 90 s later to all",
        variables: &[("DCCTL_STOP_BUDGET", "18s")],
        shape: Shape::Contained(UNIT),
        seconds: 3.0,
        aim: Aim::Front,
        lost: false,
        cancel: |job| {
            let Some(main) = job.step() else { return };
            send(main, Signal::TERM);
            if !all_end_within(&[main], scaled(90_000)) {
                job.destroy();
            }
        },
    },
    System {
        name: "systemd, `KillMode=control-group`",
        sends: "SIGTERM to every process of the service, 90 s later SIGKILL to all",
        variables: &[("DCCTL_STOP_BUDGET", "18s")],
        shape: Shape::Contained(UNIT),
        seconds: 3.0,
        aim: Aim::Everything,
        lost: false,
        cancel: |job| {
            let all = job.inside();
            send_all(&all, Signal::TERM);
            if !all_end_within(&all, scaled(90_000)) {
                job.destroy();
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
        lost: false,
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
        lost: false,
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
        lost: false,
        cancel: |job| {
            job.send_group(Signal::TERM);
            if !job.ends_within(scaled(10_000)) {
                job.send_group(Signal::KILL);
            }
        },
    },
];

/// What GitHub's runner does to a step that is cancelled.
fn end_step(job: &Job<'_>) {
    if let Some(step) = job.step() {
        end(step);
    }
}

fn end(step: Pid) {
    send(step, Signal::INT);
    if !all_end_within(&[step], scaled(7_500)) {
        send(step, Signal::TERM);
        if !all_end_within(&[step], scaled(2_500)) {
            send(step, Signal::KILL);
        }
    }
}

/// A step that is cancelled, another that waits for the run, and the end of the job and its machine.
fn hosted(job: &Job<'_>) {
    end_step(job);
    let _ = wait::until(scaled(275_000), "the run to end", || job.verdict());
    send_all(&job.with_variable("RUNNER_TRACKING_ID"), Signal::KILL);
    job.destroy();
}

fn docker(job: &Job<'_>) {
    let mut others = job.inside();
    others.reverse();
    let end = Now.now() + scaled(10_000);
    for pid in others {
        send(pid, Signal::TERM);
        let _ = all_end_within(&[pid], scaled(6_000).min(end.since(Now.now())));
    }
    let Some(first) = job.init() else { return };
    send(first, Signal::TERM);
    if !all_end_within(&[first], scaled(10_000)) {
        job.destroy();
    }
}

fn delete_pod(job: &Job<'_>, grace: Duration) {
    let Some(front) = job.front() else { return };
    send(front, Signal::TERM);
    if !all_end_within(&[front], grace) {
        send(front, Signal::KILL);
    }
}
