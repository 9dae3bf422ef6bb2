//! The take and the release with something wrong on the wire: never over a live claim, and what is said is so.

use serde_json::{Value, json};

use crate::bed::terminal::CTRL_C;
use crate::bed::{Fault, Gate, Proxy, Rule, wait};
use crate::lock::reclaim::{ALICE, FREE, assert_untouched, checking_behind, checking_by, command, left_by_alice};
use crate::lock::rig::{LEASE, holder_parts, text};

fn puts() -> Rule {
    Rule::on("PUT", "/leases/dcctl")
}

fn deletes() -> Rule {
    Rule::on("DELETE", "/leases/dcctl")
}

/// What everybody can see between the take and the release, and that an interrupt there ends nothing early.
#[test]
fn from_the_take_on_ctrl_c_waits_until_the_lock_is_given_back() {
    let (rig, before) = left_by_alice();
    let labels = json!({ "metadata": { "labels": { "team": "blue" }, "annotations": { "a.example/b": "c",
        "dcctl.devicechain.io/step": "Verify" } } });
    rig.bed.api().merge(LEASE, &labels).expect("the bed may do everything");
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(deletes().request(Fault::Hold(gate.clone())));
    let seat = checking_behind(&rig, &proxy);
    rig.suspend(66);
    gate.wait_for(1);

    let taken = rig.lease().expect("it is ours now");
    let holder = text(&taken["spec"]["holderIdentity"]);
    let (_, pid, _) = holder_parts(&holder);
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).expect("the process in the identity is alive");
    assert!(program.ends_with("dcctl"), "{}", program.display());
    assert_eq!((&taken["spec"]["leaseTransitions"], &taken["spec"]["leaseDurationSeconds"]), (&json!(1), &json!(60)));
    assert_eq!(taken["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(taken["metadata"]["labels"]["team"], "blue");
    let annotations = &taken["metadata"]["annotations"];
    assert_eq!(annotations["a.example/b"], "c", "what is another's stays");
    assert_eq!(annotations["dcctl.devicechain.io/verb"], "instances reclaim");
    let gone = [&annotations["dcctl.devicechain.io/step"], &annotations["core.devicechain.io/instance"]];
    assert_eq!(gone, [&Value::Null, &Value::Null], "what the former holder said is not said in our name");

    seat.press(CTRL_C);
    seat.press(CTRL_C);
    seat.wait_for("too late to stop: the lock may be yours by now, so it is given back first");
    gate.open();
    assert!(seat.expect_code(0).ends_with(&format!("{FREE}\n")));
    assert_eq!(rig.lease(), None);
}

#[test]
fn that_nothing_is_seen_of_the_lock_is_not_called_no_renewal() {
    let (rig, _) = left_by_alice();
    let proxy = Proxy::start(&rig.bed);
    let seat = checking_behind(&rig, &proxy);
    proxy.add(Rule::on("GET", "/leases/dcctl").request(Fault::Reset));
    seat.wait_for("the API server does not answer now; ");
    proxy.clear();
    rig.suspend(66);
    assert!(seat.expect_code(0).ends_with(&format!("{FREE}\n")));
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_renewal_between_the_last_look_and_the_take_is_never_overwritten() {
    let (rig, _) = left_by_alice();
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(puts().request(Fault::Hold(gate.clone())));
    let seat = checking_behind(&rig, &proxy);
    rig.suspend(66);
    gate.wait_for(1);
    let renewed = json!({ "spec": { "renewTime": "2020-01-01T00:00:10.000000Z" } });
    let renewed = rig.bed.api().merge(LEASE, &renewed).expect("the bed may do everything");
    gate.open();
    let screen = seat.expect_code(24);
    assert!(screen.contains(&format!("the holder is alive: {ALICE} renewed the lock")), "{screen}");
    assert_eq!(rig.lease(), Some(renewed));
    assert_eq!(rig.writes_of("admin"), ["update 409 leases"]);
}

/// The take arrives only after the person gave up on it: it is looked for late enough.
#[test]
fn an_interrupted_take_that_lands_late_is_given_back() {
    let (rig, _) = left_by_alice();
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(puts().nth(1).request(Fault::Hold(gate.clone())));
    let seat = checking_behind(&rig, &proxy);
    rig.suspend(66);
    gate.wait_for(1);
    seat.press(CTRL_C);
    seat.wait_for("too late to stop");
    // The request times out after five seconds, and is looked at then for the first time.
    seat.wait_for("the API server did not answer to that; looking what came of it");
    wait::fact("the look after the time-out", || {
        let looks =
            || proxy.seen().into_iter().skip_while(|seen| seen.method != "PUT").filter(|seen| seen.method == "GET");
        (looks().count() >= 1 && looks().all(|seen| seen.status.is_some())).then_some(())
    });
    gate.open();
    wait::fact("the take to land", || (rig.holder().as_deref() != Some(ALICE)).then_some(()));
    assert!(seat.expect_code(0).ends_with(&format!("{FREE}\n")));
    assert_eq!(rig.lease(), None);
}

#[test]
fn an_interrupted_take_that_never_lands_changed_nothing() {
    let (rig, before) = left_by_alice();
    let proxy = Proxy::start(&rig.bed);
    proxy.add(puts().request(Fault::HalfOpen));
    let seat = checking_behind(&rig, &proxy);
    rig.suspend(66);
    wait::fact("the take", || proxy.seen().iter().any(|seen| seen.method == "PUT").then_some(()));
    seat.press(CTRL_C);
    let screen = seat.expect_code(10);
    assert!(screen.contains("stopped; nothing was changed"), "{screen}");
    assert_eq!(proxy.seen().iter().filter(|seen| seen.method == "PUT").count(), 1, "it is not sent again");
    assert_untouched(&rig, &before);
}

#[test]
fn what_cannot_be_told_is_said_with_the_identity_to_look_for() {
    let (rig, _) = left_by_alice();
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(puts().request(Fault::Hold(gate.clone())));
    let seat = checking_behind(&rig, &proxy);
    rig.suspend(66);
    // The take is under way, and from here on nothing can be read any more.
    gate.wait_for(1);
    proxy.add(Rule::on("GET", LEASE).request(Fault::Drop));
    seat.wait_for("the API server did not answer to that; looking what came of it");
    rig.suspend(126);
    let screen = seat.expect_code(12);
    gate.open();
    let holder = wait::fact("the take to land", || rig.holder().filter(|holder| holder != ALICE));
    let said = format!("it cannot be told whether the lock was taken: the Lease may bear {holder}.");
    assert!(screen.contains(&said), "{screen}");
    assert!(screen.contains("`dcctl lock status --kube-context bed`"), "{screen}");
}

#[test]
fn a_lock_that_was_taken_and_cannot_be_given_back_is_said_to_be_left() {
    let (rig, _) = left_by_alice();
    let keep = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    rig.bed.api().merge(LEASE, &keep).expect("the bed may do everything");
    let seat = checking_by(command(&rig));
    rig.suspend(66);
    let screen = seat.expect_code(12);
    assert!(screen.contains("the lock was taken, and could not be given back"), "{screen}");
    assert!(screen.contains("example.com/keep"), "{screen}");
    let free = json!({ "metadata": { "finalizers": null } });
    rig.bed.api().merge(LEASE, &free).expect("the bed may do everything");
}
