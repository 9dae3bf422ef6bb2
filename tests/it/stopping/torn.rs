//! An apply that is torn: OpenTofu or a provider is killed, or the state is taken away under it. What may exist without
//! being in the state is named, and nobody is told that running the same again is all there is to do.

use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::Running;
use crate::bed::memory::Scarcity;
use crate::stopping::rig::Rig;

/// Long enough that whatever a test does comes while the creation is in flight.
const CREATION: f64 = 3.0;

/// The failure of an apply, with the causes and the things to do in one text each.
struct Failed {
    message: String,
    causes: String,
    next: String,
}

/// Waits for the end of a run that fails because of its infrastructure, and gives its lock back.
#[track_caller]
fn failed(run: Running) -> Failed {
    failed_with(run, "infrastructure.failed")
}

/// The same, with this code.
#[track_caller]
fn failed_with(run: Running, code: &str) -> Failed {
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["failure"]["code"], code, "{verdict}");
    assert_eq!(verdict["lock"], "released", "{verdict}");
    let failure = &verdict["failure"];
    let message = failure["message"].as_str().unwrap_or_default().to_owned();
    Failed { message, causes: failure["causes"].to_string(), next: verdict["next"].to_string() }
}

fn kill(pid: &Value) {
    let pid = pid.as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).expect("it is the test's own");
}

#[test]
fn an_opentofu_that_is_killed_is_told_with_what_it_was_making() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    kill(&run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply")["data"]["pid"]);
    let failed = failed(run);
    assert!(failed.message.contains("was ended by signal 9"), "{}", failed.message);
    assert!(failed.message.contains("dcctl had not sent it"), "{}", failed.message);
    assert!(failed.message.ends_with("the infrastructure is PARTIALLY APPLIED"), "{}", failed.message);
    // Killed in its first apply it leaves an empty state, so what was complete is lost, too.
    for part in ["is empty", "may exist without being in the state", "bed_thing.before", "bed_thing.slow"] {
        assert!(failed.causes.contains(part), "{part:?}: {}", failed.causes);
    }
    for part in ["bed_thing.before", "bed_thing.slow", "made a second time", "import it, or remove it"] {
        assert!(failed.next.contains(part), "{part:?}: {}", failed.next);
    }
}

/// Really: its control group has no memory left. Its state, which it had opened, is a file without a byte, and the next run
/// says so before it begins anew.
#[test]
fn an_opentofu_that_the_kernel_kills_because_memory_ran_out_is_told_with_its_empty_state() {
    let rig = Rig::new(CREATION);
    let Some(scarcity) = Scarcity::new() else { return };
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let tofu = run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply");
    scarcity.confine(u32::try_from(tofu["data"]["pid"].as_u64().expect("a number")).expect("a number"));
    scarcity.wait_for_the_kill();
    let failed = failed(run);
    assert!(failed.message.contains("was ended by signal 9"), "{}", failed.message);
    for part in ["when memory runs out", "infrastructure.tfstate` is empty", "bed_thing.before", "bed_thing.slow"] {
        assert!(failed.causes.contains(part), "{part:?}: {}", failed.causes);
    }
    assert_eq!(rig.state().as_deref(), Some(""));
    assert_eq!(rig.lease(), None);
    let again = rig.own().run().expect_code(0);
    let warned = |event: &Value| event["type"] == "diagnostic" && event["msg"].to_string().contains("is empty");
    assert!(again.events().iter().any(warned), "{}", again.stdout);
    assert_eq!(rig.in_state().len(), 3);
}

#[test]
fn a_provider_that_is_killed_is_told_with_what_it_was_making() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let slow = rig.entries().into_iter().find(|entry| entry.name == "slow").expect("it was begun");
    kill(&slow.pid.into());
    let failed = failed_with(run, "infrastructure.provider_lost");
    assert!(failed.causes.contains("may exist without being in the state: bed_thing.slow\""), "{}", failed.causes);
    assert!(failed.next.contains("bed_thing.slow. What exists outside of it would be made a second time"));
    assert!(!failed.next.contains("bed_thing.before"), "it is in the state: {}", failed.next);
}

#[test]
fn an_opentofu_that_is_killed_after_a_request_to_stop_is_told_with_all_that_it_had_made() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    let pid = run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply")["data"]["pid"].clone();
    run.signal(Signal::TERM);
    run.wait_for("stop.requested", |_| true);
    // Mostly before our own interrupt, which would be a reason of its end, too.
    kill(&pid);
    let finished = run.finish().expect_code(11);
    let verdict = &finished.verdict()["data"];
    let (causes, next) = (verdict["failure"]["causes"].to_string(), verdict["next"].to_string());
    for part in ["bed_thing.before", "bed_thing.slow"] {
        assert!(causes.contains(part) && next.contains(part), "{part:?}: {causes} {next}");
    }
    assert!(next.contains("made a second time"), "{next}");
}

#[test]
fn an_apply_whose_state_folder_is_deleted_under_it_has_not_succeeded() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    fs::remove_dir_all(rig.state_dir()).expect("OpenTofu made it");
    let failed = failed(run);
    assert!(failed.message.contains("the state of `infra` is gone: there is no `"), "{}", failed.message);
    assert!(failed.message.contains("infrastructure.tfstate"), "{}", failed.message);
    let made = "made by this run, and in no state: bed_thing.after, bed_thing.before, bed_thing.slow";
    assert!(failed.causes.contains(made), "{}", failed.causes);
    assert!(failed.next.contains("from a backup") && failed.next.contains("made a second time"), "{}", failed.next);
}

#[test]
fn a_stop_of_an_apply_whose_state_folder_is_deleted_is_not_called_clean() {
    let rig = Rig::new(CREATION);
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    fs::remove_dir_all(rig.state_dir()).expect("OpenTofu made it");
    run.signal(Signal::TERM);
    let finished = run.finish().expect_code(11);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["lock"], "released", "{verdict}");
    assert!(verdict["failure"]["causes"].to_string().contains("the state of `infra` is gone"), "{verdict}");
}
