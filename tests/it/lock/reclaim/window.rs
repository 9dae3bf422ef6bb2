//! The check: nothing may change over a whole validity of this machine's clock.

use std::collections::BTreeSet;
use std::fs::{self, File};

use dcctl::clock::{Clock, System};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::terminal::Seat;
use crate::bed::wait;
use crate::lock::reclaim::{
    ALICE, CHECKING, FREE, LONG_AGO, QUESTION, UNCHANGED, asked, asked_by, checking, command, left_by_alice,
};
use crate::lock::rig::{LEASE, LEASES, Rig, holder_parts};

/// From a real run that is killed to a cluster that the next run finds free, on a machine that knows nothing of the
/// instance, with standard output elsewhere, and without any help for the clock.
#[test]
fn the_lock_of_a_killed_run_is_free_after_the_real_wait() {
    let rig = Rig::new().gated();
    let _gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.journal().wait_for("process.started", |_| true);
    let holder = rig.holder().expect("the run holds the lock");
    let (who, pid, _) = holder_parts(&holder);
    let host = who.split('@').next_back().unwrap_or_default().to_owned();
    // Both at once, the supervisor first: the front would take it for a request to stop.
    rustix::process::kill_process(i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid"), Signal::KILL)
        .expect("it runs");
    run.signal(Signal::KILL);
    run.finish();

    let (stdout, stderr) = (rig.bed.file("stdout"), rig.bed.file("stderr"));
    let elsewhere = rig.bed.file("another-home");
    fs::create_dir(&elsewhere).expect("the test's folder can be written");
    let file = |path| File::create(path).expect("the test's folder can be written");
    let dcctl = command(&rig).without("BED_SUSPENDED").env("HOME", &elsewhere);
    let seat = Seat::take_redirected(dcctl, file(&stdout), file(&stderr));
    seat.wait_for(QUESTION);
    let screen = seat.screen();
    assert!(screen.contains(&format!("  held by:   {holder}\n  instance:  one\n  renewed:   ")), "{screen}");
    assert!(screen.contains("  command:   bootstrap, at \"Verify\"\n"), "{screen}");
    let look = format!("no limit is known: look for pid {pid} on host {host}");
    assert!(screen.contains(&look), "{screen}");

    let began = System.now();
    seat.type_line(&holder);
    seat.wait_for(CHECKING);
    seat.wait_for(UNCHANGED);
    let screen = seat.expect_code(0);
    let took = System.now().since(began);
    assert!(took.as_secs() >= 65, "it waited for {took:?}");
    assert!(screen.ends_with(&format!("{FREE}\n")), "{screen}");
    let told: BTreeSet<&str> = screen.split(UNCHANGED).skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    assert!(told.len() > 50 && told.contains("1m5s"), "the time that is left is shown: {told:?}");
    assert_eq!(rig.lease(), None);
    assert_eq!(fs::read_to_string(stdout).expect("readable"), "");
    assert_eq!(fs::read_to_string(stderr).expect("readable"), "");
    // The next run finds the cluster free.
    rig.bootstrap("two").arg("--dry-run").run().expect_code(0);
    let last = ["update 200 leases", "delete 200 leases"];
    wait::fact("the take and the release", || rig.writes_of("admin").ends_with(&last.map(str::to_owned)).then_some(()));
}

#[test]
fn a_run_that_is_alive_is_left_alone_and_goes_on() {
    let rig = Rig::new().gated();
    let gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.journal().wait_for("process.started", |_| true);
    let holder = rig.holder().expect("the run holds the lock");
    let seat = asked_by(command(&rig));
    seat.type_line(&holder);
    let screen = seat.expect_code(24);
    // It may renew before the check or in it.
    let said = format!("the holder is alive: {holder} renewed the lock while it was being checked; it was left alone");
    assert!(screen.contains(&said), "{screen}");
    assert_eq!(rig.holder().as_deref(), Some(holder.as_str()));
    gate.open(0);
    assert_eq!(run.finish().expect_code(0).verdict()["data"]["lock"], "released");
}

#[test]
fn whatever_changes_while_the_person_types_or_in_the_window_makes_it_refuse() {
    let (rig, _) = left_by_alice();
    let merge = |fields: &Value| rig.bed.api().merge(LEASE, fields).expect("the bed may do everything");
    // Between what was shown and what was typed.
    let seat = asked(&rig);
    merge(&json!({ "spec": { "renewTime": "2020-01-01T00:00:10.000000Z" } }));
    seat.type_line(ALICE);
    assert!(seat.expect_code(24).contains("the holder is alive"));
    // In the window: the holder, another one, somebody else's hand.
    for (fields, said) in [
        (json!({ "spec": { "renewTime": "2020-01-01T00:00:20.000000Z" } }), "the holder is alive"),
        (json!({ "metadata": { "labels": { "by": "hand" } } }), "somebody wrote to the Lease"),
        (
            json!({ "spec": { "holderIdentity": "bob@laptop/9912/3a7f00c1d2e4b596" } }),
            "the lock changed hands while it was being checked: bob@laptop/9912/3a7f00c1d2e4b596 holds it now",
        ),
    ] {
        let seat = checking(&rig);
        let changed = merge(&fields);
        rig.suspend(66);
        let screen = seat.expect_code(24);
        assert!(screen.contains(said) && screen.contains("it was left alone"), "{said}: {screen}");
        assert_eq!(rig.lease(), Some(changed));
        fs::remove_file(rig.suspended()).expect("it is there");
    }
    assert_eq!(rig.writes_of("admin"), Vec::<String>::new());
}

#[test]
fn a_lock_that_is_given_back_in_the_window_is_free_and_nothing_is_refused() {
    let (rig, _) = left_by_alice();
    let seat = checking(&rig);
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let screen = seat.expect_code(0);
    assert!(screen.contains("the lock was given back meanwhile"), "{screen}");
    assert!(screen.ends_with("this cluster is not claimed; there is nothing to reclaim\n"), "{screen}");
    // Deleted and claimed anew by the same text is another claim.
    rig.other_holds(ALICE, LONG_AGO);
    let seat = checking(&rig);
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let renewed = rig.other_holds(ALICE, "2020-01-01T00:00:10.000000Z");
    rig.suspend(66);
    seat.expect_code(24);
    assert_eq!(rig.lease(), Some(renewed));
}

#[test]
fn an_absurd_validity_is_capped_at_ten_minutes_and_that_is_said() {
    let rig = Rig::new();
    let lease = json!({
        "metadata": { "name": "dcctl" },
        "spec": { "holderIdentity": ALICE, "leaseDurationSeconds": i32::MAX, "renewTime": LONG_AGO },
    });
    let before = rig.bed.api().create(LEASES, &lease).expect("the bed may do everything");
    let seat = asked(&rig);
    seat.type_line(ALICE);
    seat.wait_for("checking whether the holder is still renewing (this takes about 10m0s)...");
    seat.wait_for("the Lease claims to be valid for 596523h14m; more than 10m0s is not believed");
    seat.wait_for(UNCHANGED);
    // A window of 60 s would be over now.
    rig.suspend(560);
    seat.wait_for(" 40s to go");
    assert_eq!(rig.lease(), Some(before));
    rig.suspend(606);
    assert!(seat.expect_code(0).ends_with(&format!("{FREE}\n")));
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_lease_that_finalizers_keep_is_left_alone_and_the_finalizers_are_named() {
    let (rig, _) = left_by_alice();
    let keep = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    rig.bed.api().merge(LEASE, &keep).expect("the bed may do everything");
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let before = rig.lease().expect("it is kept");
    let screen = Seat::take(command(&rig)).expect_code(21);
    assert!(screen.contains("is being deleted, but finalizers keep it: example.com/keep"), "{screen}");
    assert_eq!(rig.lease(), Some(before));
    let free = json!({ "metadata": { "finalizers": null } });
    rig.bed.api().merge(LEASE, &free).expect("the bed may do everything");
}
