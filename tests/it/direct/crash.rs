//! A process that is killed at any moment of a change leaves a whole Lease or none, and stands in nobody's way.

use std::process::Stdio;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::lock::store::LeaseStore;
use dcctl::lock::{LockFolder, Timing};
use rustix::process::Signal;

use crate::bed::child::{Mark, command};
use crate::bed::tools::own;
use crate::bed::wait;
use crate::direct::{Rig, soak};

/// Where the moments of the kills come from; printed when something goes wrong.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn seed() -> u64 {
    let given = std::env::var("DCCTL_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| fastrand::u64(..))
}

#[test]
fn a_kill_at_any_moment_of_a_change_leaves_a_whole_lease_or_none() {
    let rig = Rig::new();
    let (began, rounds) = (seed(), if soak() { 3_000 } else { 60 });
    let mut dice = fastrand::Rng::with_seed(began);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = LockFolder::new(rig.lock_dir(), Timing::STANDARD);
    let (mut kept, mut halves) = (0, 0);
    for round in 0..rounds {
        let mut writer = command(&own("bed"))
            .arg("leases")
            .arg(rig.lock_dir())
            .env(Mark::VARIABLE, rig.mark_of_all().value())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Cargo built the bed");
        // It has begun when it has written at all; then the kill comes within the time of a few changes.
        let begun = || rig.names().iter().any(|name| name != "dcctl.flock").then_some(());
        wait::fact("the writer to begin", begun);
        let until = System.now() + Duration::from_micros(dice.u64(..20_000));
        while System.now() < until {
            std::hint::spin_loop();
        }
        writer.kill().expect("it is our child");
        writer.wait().expect("it is our child");
        let read = runtime.block_on(store.read());
        let read = read.unwrap_or_else(|trouble| panic!("round {round} of seed {began}: {}", trouble.into_failure()));
        halves += usize::from(rig.names().iter().any(|name| name == "dcctl.lease.tmp"));
        if let Some(lease) = read {
            kept += 1;
            let deleted = runtime.block_on(store.delete(lease.uid(), lease.version()));
            deleted.unwrap_or_else(|trouble| panic!("round {round} of seed {began}: {}", trouble.into_failure()));
        }
    }
    assert!(kept > 0 && kept < rounds || halves > 0, "of seed {began} no kill met a change");
    // Whatever was left, the next one works.
    rig.sh(&[], "true").run().expect_code(0);
    assert_eq!(rig.names(), ["dcctl.flock"], "of seed {began}");
}

/// A run that is killed with its supervisor leaves its lock, and the next one is told.
#[test]
fn a_run_that_is_killed_whole_leaves_its_lock_to_a_person() {
    let rig = Rig::new();
    let run = rig.hold();
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
    run.signal(Signal::KILL);
    run.finish();
    let left = rig.lease().expect("it was left");
    rig.sh(&[], "true").run().expect_code(20);
    assert_eq!(rig.lease(), Some(left));
    rig.mark("go");
}
