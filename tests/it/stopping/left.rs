//! What a provider leaves behind: it holds nobody up, it is named, and it is ended before the lock is given back.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::wait;
use crate::stopping::rig::Rig;

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn place(events: &[Value], kind: &str) -> usize {
    events.iter().position(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}: {events:?}"))
}

fn lives(pid: &Value) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A create that ends after three seconds, with a child that holds the provider's standard error for ten minutes, in a
/// session of its own and deaf to every polite signal.
fn with_a_holder() -> Rig {
    let settings = "  seconds = 3\n  behaviour = \"hold_stderr\"\n  hold_seconds = 600\n  hold_stubborn = true\n";
    Rig::with_slow(settings)
}

/// OpenTofu waits for the end of the provider's standard error before it says its last word, and ends as soon as the
/// holder is gone: it is not OpenTofu that is ended.
#[test]
fn a_child_of_a_provider_that_holds_its_output_is_ended_and_opentofu_finishes_by_itself() {
    let rig = with_a_holder();
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(10);
    let events = finished.events();
    let left = of_kind(&events, "process.left_behind");
    let [holder] = left[..] else { panic!("not one was left behind: {left:?}") };
    let relations = &holder["data"]["relations"];
    assert!(relations.as_array().is_some_and(|all| all.contains(&json!("pipe"))), "{holder}");
    assert!(
        holder["data"]["age_ms"].as_u64().is_some_and(|age| age >= 10_000),
        "after ten seconds of silence: {holder}"
    );
    assert!(!lives(&holder["data"]["pid"]), "the holder lives");
    let ended =
        events.iter().rfind(|event| event["data"]["program"] == "tofu apply" && event["type"] == "process.finished");
    let ended = ended.expect("its end was seen");
    assert_eq!(ended["data"]["exit_code"], 1, "it ended by itself: {ended}");
    assert_eq!(of_kind(&events, "process.killed").len(), 0);
    let (named, over) = (&holder["elapsed_ms"], &ended["elapsed_ms"]);
    // SIGTERM is ignored; five seconds later comes SIGKILL, and OpenTofu ends right after it.
    let took = over.as_u64().zip(named.as_u64()).map(|(over, named)| over - named);
    assert!(took.is_some_and(|took| (4_000..15_000).contains(&took)), "{took:?}");
    assert!(place(&events, "process.left_behind") < place(&events, "lock.releasing"));
    rig.assert_clean_stop(&events);
}

/// A provider is killed together with nothing else of OpenTofu when OpenTofu dies: it lives on and goes on creating.
#[test]
fn a_provider_that_outlives_opentofu_is_named_and_ended_before_the_lock_is_given_back() {
    let rig = Rig::new(30.0);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let provider = rig.entries().into_iter().find(|entry| entry.name == "slow").expect("it was begun").pid;
    let started = run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply");
    let tofu = i32::try_from(started["data"]["pid"].as_i64().expect("a pid")).expect("a pid");
    let raw = rustix::process::Pid::from_raw(tofu).expect("a pid");
    rustix::process::kill_process(raw, Signal::KILL).expect("it is the test's own");
    let finished = run.finish().expect_code(1);
    let events = finished.events();
    let left = of_kind(&events, "process.left_behind");
    let left = left.iter().find(|event| event["data"]["pid"] == provider).expect("the provider is named");
    let relations = left["data"]["relations"].as_array().expect("it is related");
    assert!(relations.contains(&json!("orphan")) && relations.contains(&json!("mark")), "{left}");
    assert!(place(&events, "process.left_behind") < place(&events, "lock.releasing"));
    assert!(!lives(&json!(provider)), "the provider lives");
    wait::fact("the Lease to be gone", || rig.lease().is_none().then_some(()));
    assert_eq!(finished.verdict()["data"]["lock"], "released");
}
