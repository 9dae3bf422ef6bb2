//! What the surroundings grant a stop: it is said at the start, the end of a tool is moved inside of it where everything is
//! ended, and no tool is cut short where only the front is.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::Dcctl;
use crate::stopping::rig::Rig;

/// The variables of a system, as it sets them.
type Variables = &'static [(&'static str, &'static str)];

const HOSTED: Variables = &[("CI", "true"), ("GITHUB_ACTIONS", "true"), ("RUNNER_ENVIRONMENT", "github-hosted")];
const DOCKER: Variables = &[("CI", "true"), ("GITLAB_CI", "true"), ("CI_DISPOSABLE_ENVIRONMENT", "true")];
const JENKINS: Variables = &[("JENKINS_URL", "http://jenkins.example/")];

fn within(run: Dcctl, variables: Variables) -> Dcctl {
    variables.iter().fold(run, |run, (name, value)| run.env(name, value))
}

/// When an event of this type was told, in milliseconds from the run's beginning.
#[track_caller]
fn at(events: &[Value], kind: &str) -> u64 {
    let event = events.iter().find(|event| event["type"] == kind);
    event.and_then(|event| event["elapsed_ms"].as_u64()).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn a_run_says_at_its_start_how_long_a_stop_may_take_here_and_what_a_cancel_would_leave() {
    let rig = Rig::new(0.0);
    let rows: [(Variables, &[&str], Value); 6] = [
        (&[], &[], json!({ "seconds": 1200, "source": "--stop-after" })),
        (
            HOSTED,
            &[],
            json!({ "seconds": 240, "source": "GitHub Actions, a machine that goes with the job", "graceful_seconds": 215,
                "ends": "everything", "note": "a cancel would end everything after 4m0s, so a tool has 3m35s to finish what \
                is in flight; then it is interrupted again, and what it was making may be missing from the state; a later \
                step with `if: always()` has to wait for the run, or the machine goes as soon as the job has ended" }),
        ),
        (
            DOCKER,
            &[],
            json!({ "seconds": 15, "source": "GitLab CI, docker executor", "graceful_seconds": 0, "ends": "everything",
                "note": "a cancel would signal every process, the tools and their plugins too, and end everything after 15s: \
                what is in flight is lost, and named; no setting makes it longer; the Kubernetes or the shell executor gives \
                more" }),
        ),
        (
            JENKINS,
            &[],
            json!({ "seconds": 1200, "source": "--stop-after", "ends": "front", "note": "a cancel would end only what shows \
                the run (Jenkins: after 5s); the run itself goes on, finishes what is in flight and gives the lock back" }),
        ),
        (
            JENKINS,
            &["--stop-budget", "22m"],
            json!({ "seconds": 1200, "source": "--stop-after", "ends": "everything", "note": "a cancel would end everything \
                after 22m0s, which is time for all of it" }),
        ),
        (
            HOSTED,
            &["--stop-budget", "unlimited", "--stop-after", "5m"],
            json!({ "seconds": 300, "source": "--stop-after", "note": "a cancel would end only what shows the run" }),
        ),
    ];
    for (variables, options, expected) in rows {
        let run = within(rig.bed().dcctl(["exec", "--output", "jsonl"]), variables).args(options);
        let finished = run.args(["--", "true"]).run().expect_code(0);
        assert_eq!(finished.events()[0]["data"]["stop_budget"], expected, "{variables:?} {options:?}");
    }
    let finished = within(rig.bed().dcctl(["exec"]), HOSTED).args(["--", "true"]).run().expect_code(0);
    let words = "may take up to 4m0s (GitHub Actions, a machine that goes with the job); a cancel would end everything";
    let said = finished.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(words), "{}", finished.stderr);
}

#[test]
fn where_everything_is_ended_the_last_interrupt_the_kill_and_the_release_come_before_that() {
    let rig = Rig::new(60.0);
    let run = rig.own().env("DCCTL_STOP_BUDGET", "12s").start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    let sent: Vec<_> = events.iter().filter(|event| event["type"] == "process.interrupted").collect();
    assert_eq!(sent.len(), 2, "{sent:?}");
    let asked = at(&events, "stop.requested");
    let took = at(&events, "run.finished") - asked;
    assert!(took < 12_000, "everything would have been ended before the verdict, which took {took} ms");
    let asked_to_stop = events.iter().find(|event| event["type"] == "stop.requested").expect("it was asked");
    assert_eq!(asked_to_stop["data"]["budget_ms"], 6000, "{asked_to_stop}");
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["lock"], rig.lease()), (&json!("released"), None), "{verdict}");
    // What was complete is named, too, where OpenTofu had not come to writing it down.
    let unfinished = verdict["unfinished"].as_array().expect("a list");
    assert!(unfinished.contains(&json!("bed_thing.slow")), "{verdict}");
    let open = ["bed_thing.before", "bed_thing.slow"];
    assert!(unfinished.iter().all(|address| open.iter().any(|open| address == open)), "{verdict}");
    assert!(verdict["next"].to_string().contains("made a second time"), "{verdict}");
    rig.assert_no_state_lock();
}

/// Whether the run was asked to stop before its supervisor was killed or not: who takes over keeps to the same time.
#[test]
fn who_takes_over_is_done_before_everything_is_ended() {
    for asked_before in [false, true] {
        let rig = Rig::new(60.0);
        let run = rig.own().env("DCCTL_STOP_BUDGET", "12s").start();
        rig.wait_until_in_flight(&run);
        if asked_before {
            run.signal(Signal::TERM);
            run.wait_for("process.interrupted", |_| true);
        }
        Rig::kill_supervisor(&run);
        let finished = run.finish().expect_code(1);
        let events = finished.events();
        let asked = events.iter().find(|event| event["type"] == "stop.requested").expect("it was asked");
        assert_eq!(asked["data"]["budget_ms"], 6000, "{asked}");
        let took = at(&events, "run.finished") - at(&events, "stop.requested");
        assert!(took < 12_000, "everything would have been ended before the verdict, which took {took} ms");
        let verdict = &finished.verdict()["data"];
        assert_eq!((&verdict["lock"], rig.lease()), (&json!("released"), None), "{verdict}");
        // A busy machine may need longer than its grace to write the state, and then all of it is named.
        assert!(verdict["unfinished"].to_string().contains("bed_thing.slow"), "{verdict}");
    }
}

#[test]
fn where_only_the_front_is_ended_no_tool_is_cut_short() {
    // Longer than Jenkins leaves a job.
    let rig = Rig::new(7.0);
    let run = within(rig.own(), JENKINS).start();
    let journal = run.journal();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::TERM);
    run.wait_for("process.interrupted", |_| true);
    run.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    rig.assert_clean_stop(&journal.events());
    rig.assert_converges();
}
