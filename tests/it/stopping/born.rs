//! A system that signals every process, in the first milliseconds of OpenTofu: it dies of the signal, having said nothing.
//! What nobody has heard is not claimed: "before anything was applied" is said only where OpenTofu's output shows it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::Finished;
use crate::stopping::cast::{pid, signal_each};
use crate::stopping::rig::Rig;

/// So long after OpenTofu's process is there it is signalled.
const MOMENTS: [u64; 5] = [0, 5, 10, 20, 40];

/// How often all moments are gone through until one has met an OpenTofu that had said nothing.
const ROUNDS: usize = 4;

/// What OpenTofu did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    /// It died of the signal, and its outputs are empty.
    DieInSilence,
    /// It died of the signal after it had said something.
    Die,
    /// It heeded the signal.
    Heed,
}

#[test]
fn an_opentofu_that_dies_of_a_systems_sigterm_at_its_birth_is_not_said_to_have_applied_nothing() {
    assert_some_died_in_silence(Signal::TERM);
}

#[test]
fn an_opentofu_that_dies_of_a_systems_sigint_at_its_birth_is_not_said_to_have_applied_nothing() {
    assert_some_died_in_silence(Signal::INT);
}

#[track_caller]
fn assert_some_died_in_silence(signal: Signal) {
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        for after in MOMENTS {
            let did = strike(signal, Duration::from_millis(after));
            seen.push((after, did));
        }
        if seen.iter().any(|(_, did)| *did == Did::DieInSilence) {
            return;
        }
    }
    panic!("no OpenTofu died before it had said anything: {seen:?}");
}

/// Signals OpenTofu and the front so long after OpenTofu's process is there, and holds the run to what is promised.
fn strike(signal: Signal, after: Duration) -> Did {
    let rig = Rig::new(2.0);
    let run_dir = rig.bed().file("run");
    let run = rig.own().arg("--keep-output").arg("--run-dir").arg(&run_dir).start();
    let tofu = born(run.supervisor());
    let at = System.now() + after;
    while System.now() < at {
        std::hint::spin_loop();
    }
    signal_each(&[tofu, pid(run.pid())], signal, Duration::ZERO);
    let finished = run.finish();
    let context = format!("{signal:?} {after:?}: {}", finished.stdout);
    let ended = end_of_the_apply(&finished);
    let did = match (ended["signal"].is_null(), silent(&run_dir)) {
        (true, _) => Did::Heed,
        (false, true) => Did::DieInSilence,
        (false, false) => Did::Die,
    };
    let verdict = &finished.verdict()["data"];
    let expected: &[i32] = if did == Did::Heed { &[10, 11] } else { &[1, 11] };
    assert!(expected.contains(&finished.code().unwrap_or(0)), "{did:?} {context}");
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{did:?} {context}");
    rig.assert_told_what_was_heard(&finished);
    let sent = finished.events().iter().filter(|event| event["type"] == "process.interrupted").count();
    assert_eq!(sent, 0, "{did:?} {context}");
    rig.assert_converges();
    did
}

/// Waits for the process that applies, without a pause: what comes after it is counted in milliseconds.
#[track_caller]
fn born(supervisor: Pid) -> Pid {
    let end = System.now() + crate::bed::wait::GENEROUS;
    loop {
        if let Some(found) = children_of(supervisor).into_iter().find(|pid| applies(*pid)) {
            return found;
        }
        assert!(System.now() < end, "waited in vain for an OpenTofu that applies");
        std::thread::yield_now();
    }
}

/// The children of a process, whichever of its threads has started them.
fn children_of(parent: Pid) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())).into_iter().flatten().flatten();
    let of_each = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<String> = of_each.collect();
    numbers.iter().flat_map(|text| text.split_whitespace()).filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn applies(process: Pid) -> bool {
    let words = fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero())).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0);
    words.next().is_some_and(|program| program.ends_with(b"tofu")) && words.any(|word| word == b"apply")
}

fn end_of_the_apply(finished: &Finished) -> Value {
    let ended = |event: &Value| event["type"] == "process.finished" && event["data"]["program"] == "tofu apply";
    finished.events().into_iter().find(ended).expect("its end was seen")["data"].clone()
}

/// Whether the apply has said nothing at all.
fn silent(run_dir: &Path) -> bool {
    let length = |name: &str| fs::metadata(run_dir.join("output").join(name)).expect("it was kept").len();
    length("tofu-apply.stdout") + length("tofu-apply.stderr") == 0
}
