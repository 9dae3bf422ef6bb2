//! How long a stop may take, and what happens when it takes longer: `--stop-after` from the first request, the second
//! interrupt, SIGKILL, and the moment at which nothing is waited for any more.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::freezer::Freezer;
use crate::stopping::rig::Rig;

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn at(event: &Value) -> u64 {
    event["elapsed_ms"].as_u64().expect("each event has it")
}

/// What was made is in the state or named, and what is in the state is not named.
#[track_caller]
fn assert_lost_is_named(rig: &Rig, verdict: &Value) {
    let unfinished = verdict["unfinished"].to_string();
    let state = rig.state().unwrap_or_default();
    for name in ["before", "slow"] {
        let (is_named, is_recorded) = (unfinished.contains(name), state.contains(&format!("\"name\": \"{name}\"")));
        assert_ne!(is_named, is_recorded, "{name}: {unfinished}\n{state}");
    }
    assert!(unfinished.contains("bed_thing.slow"), "{unfinished}");
}

#[test]
fn an_apply_that_nobody_interrupts_is_waited_for_however_short_the_budget_is() {
    let rig = Rig::new(4.0);
    let finished = rig.own().arg("--stop-after").arg("1s").run().expect_code(0);
    assert_eq!(of_kind(&finished.events(), "process.interrupted").len(), 0);
    assert_eq!(rig.created("after"), 1);
}

/// A creation that no stop shortens, and every fifteen seconds it is said.
#[test]
fn while_a_stop_waits_what_is_in_flight_is_said_every_fifteen_seconds() {
    let rig = Rig::new(34.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    let events = finished.events();
    let asked = at(of_kind(&events, "stop.requested")[0]);
    let said: Vec<&Value> = of_kind(&events, "step.progressed").into_iter().filter(|event| at(event) > asked).collect();
    let [first, second] = said[..] else { panic!("not two in thirty-four seconds: {said:?}") };
    for (progress, since) in [(first, asked), (second, at(first))] {
        assert!((14_500..18_000).contains(&(at(progress) - since)), "{progress}, {since} ms");
        assert_eq!(progress["data"]["in_flight"][0]["what"], "creating bed_thing.slow", "{progress}");
    }
    rig.assert_clean_stop(&events);
}

/// Later requests do not lengthen it. OpenTofu gives up what is in flight at its second interrupt, and its own lock is
/// free; what may exist is named.
#[test]
fn the_budget_counts_from_the_first_request_and_at_its_end_opentofu_is_interrupted_again() {
    let rig = Rig::new(60.0);
    let run = rig.own().arg("--stop-after").arg("6s").start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::TERM);
    run.wait_for("process.interrupt_reported", |_| true);
    run.signal(Signal::TERM);
    run.signal(Signal::INT);
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    let requests = of_kind(&events, "stop.requested");
    let [asked] = requests[..] else { panic!("not one request: {requests:?}") };
    let interrupts = of_kind(&events, "process.interrupted");
    let [_, second] = interrupts[..] else { panic!("not two interrupts: {interrupts:?}") };
    assert!((6_000..9_000).contains(&(at(second) - at(asked))), "{asked} {second}");
    assert_eq!(second["data"]["why"], "the stop budget was used up");
    assert_eq!(of_kind(&events, "process.killed").len(), 0, "it ends by itself within its grace");
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["lock"], "released", "{verdict}");
    assert_lost_is_named(&rig, verdict);
    assert!(verdict["failure"]["message"].as_str().is_some_and(|said| said.contains("PARTIALLY APPLIED")), "{verdict}");
    assert_eq!(rig.lease(), None);
}

/// Waits until OpenTofu is in the middle of its work, and makes it stand still. Its process.
fn freeze_opentofu(rig: &Rig, run: &Running, freezer: &Freezer) -> Value {
    rig.wait_until_in_flight(run);
    let tofu = run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply");
    let pid = tofu["data"]["pid"].clone();
    freezer.freeze(u32::try_from(pid.as_u64().expect("a number")).expect("a number"));
    pid
}

/// OpenTofu stands in a frozen control group: no interrupt and no SIGKILL acts on it.
#[test]
fn what_cannot_be_killed_is_waited_for_no_longer_than_the_watchdog_and_the_message_says_what_was_seen() {
    let rig = Rig::new(60.0);
    let Some(freezer) = Freezer::new() else { return };
    // The minute after the budget is made shorter; that it is a minute is shown on a clock of the test's own.
    let run = rig.own().arg("--stop-after").arg("2s").env("DCCTL_TEST_BREAK", "watchdog:12").start();
    let pid = freeze_opentofu(&rig, &run, &freezer);
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let events = finished.events();
    let asked = at(of_kind(&events, "stop.requested")[0]);
    let interrupts: Vec<u64> =
        of_kind(&events, "process.interrupted").into_iter().map(|event| at(event) - asked).collect();
    let killed = at(of_kind(&events, "process.killed")[0]) - asked;
    let [first, second] = interrupts[..] else { panic!("not two interrupts: {interrupts:?}") };
    assert!(first < 2_000 && second >= 2_000 && killed >= second + 8_000, "{first} {second} {killed}");
    let step = of_kind(&events, "step.finished");
    let step = step.last().expect("the step ends");
    let said = step["data"]["note"].as_str().expect("a note");
    assert!(
        said.starts_with("dcctl stopped waiting for the interrupted OpenTofu command. Nobody saw process "),
        "{said}"
    );
    assert!(said.contains(&format!("process {pid} (tofu, state D)")), "{said}");
    assert!(said.contains("treat this instance's infrastructure as PARTIALLY APPLIED rather than untouched"), "{said}");
    let last = "Assuming nothing happened is the one reading that is not safe (dcctl waited 14s after the interrupt)";
    assert!(said.ends_with(last), "{said}");
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&json!("stopped"), &json!("released")), "{verdict}");
    assert_lost_is_named(&rig, verdict);
    let survived = verdict["survived"].as_array().expect("it is there");
    assert!(survived.iter().any(|left| left["pid"] == pid && left["relations"] == json!(["itself"])), "{verdict}");
    assert_eq!(rig.lease(), None);
}

/// The same for who takes over: neither is it waited for longer, nor is its end told, which nobody saw.
#[test]
fn who_takes_over_waits_no_longer_than_the_watchdog_and_says_the_same() {
    let rig = Rig::new(60.0);
    let Some(freezer) = Freezer::new() else { return };
    let run = rig.own().arg("--stop-after").arg("2s").env("DCCTL_TEST_BREAK", "watchdog:12").start();
    let pid = freeze_opentofu(&rig, &run, &freezer);
    Rig::kill_supervisor(&run);
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    let message = verdict["failure"]["message"].as_str().expect("there is one");
    assert!(message.ends_with("not all of them were seen to end"), "{verdict}");
    let causes = verdict["failure"]["causes"].to_string();
    assert!(causes.contains(&format!("command. Nobody saw process {pid} end; still there")), "{causes}");
    assert!(causes.contains("is not safe (dcctl waited 14s after the interrupt)"), "{causes}");
    assert!(!causes.contains("OpenTofu ended"), "{causes}");
    assert!(verdict["unfinished"].to_string().contains("bed_thing.slow"), "{verdict}");
}
