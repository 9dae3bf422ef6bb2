//! Claiming: what counts as free, what does not, and how little is asked.

use serde_json::{Value, json};

use crate::bed::{Dcctl, Fault, Proxy, Rule, wait};
use crate::lock::rig::{LEASE, LEASES, Rig, of_kind, text};

#[test]
fn claim_and_release_are_two_requests() {
    let rig = Rig::new();
    let done = rig.bootstrap("one").run().expect_code(0);
    let verdict = done.verdict();
    assert_eq!((&verdict["data"]["lock"], &verdict["data"]["holder"]), (&json!("released"), &Value::Null));
    assert_eq!(rig.lease(), None);
    let requests = rig.lock_requests("admin");
    assert_eq!(requests.first().map(String::as_str), Some("create 201"), "{requests:?}");
    assert_eq!(requests.last().map(String::as_str), Some("delete 200"), "{requests:?}");
    // What lies between are the questions at the steps' borders, and renewals.
    let between = &requests[1..requests.len() - 1];
    assert!(between.iter().all(|request| request == "get 200" || request == "update 200"), "{requests:?}");
    let events = done.events();
    for kind in ["lock.claimed", "lock.released"] {
        assert_eq!(of_kind(&events, kind).len(), 1, "{kind}");
    }
}

#[test]
fn the_claim_is_the_first_thing_that_a_run_writes_and_the_release_is_the_last() {
    let rig = Rig::new().operator("ours").declared();
    let written = |run: Dcctl, known: usize| {
        run.run().expect_code(0);
        wait::fact("the release to be logged", || {
            let writes = rig.writes_of("admin").split_off(known);
            writes.last().is_some_and(|last| last == "delete 200 leases").then_some(writes)
        })
    };
    let install = written(rig.install(), 0);
    let bootstrap = written(rig.bootstrap("one"), install.len());
    for (writes, applied) in [(install, "configmaps"), (bootstrap, "instances")] {
        assert_eq!(writes.first().map(String::as_str), Some("create 201 leases"), "{writes:?}");
        let once = |verb: &str| writes.iter().filter(|write| **write == format!("{verb} leases")).count();
        assert_eq!((once("create 201"), once("delete 200")), (1, 1), "{writes:?}");
        assert!(writes.iter().any(|write| write.ends_with(applied)), "it wrote nothing in between: {writes:?}");
    }
}

/// Somebody has the lock whenever the run claims it, and nobody whenever it looks who.
#[test]
fn a_lock_that_changes_hands_under_five_claims_is_given_up_and_said_to_be_held() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    let there = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists",
        "code": 409, "message": "leases.coordination.k8s.io \"dcctl\" already exists" });
    proxy.add(Rule::on("POST", "/leases").request(Fault::Answer(409, there.to_string())));
    let refused = rig.bootstrap("one").with_kubeconfig(&proxy.kubeconfig("admin")).run().expect_code(20);
    let verdict = refused.verdict();
    let failure = &verdict["data"]["failure"];
    assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&json!("lock.held"), &json!("never_taken")));
    assert!(text(&failure["message"]).contains("changed hands under every attempt to claim it"), "{failure}");
    let about = |method: &str| {
        proxy.seen().iter().filter(|seen| seen.method == method && seen.path.contains("/leases")).count()
    };
    assert_eq!((about("POST"), about("GET")), (5, 5), "{:#?}", proxy.seen());
    assert_eq!((rig.lease(), rig.writes_of("admin")), (None, Vec::new()));
}

#[test]
fn a_lease_that_names_nobody_is_free_and_is_claimed_as_it_is() {
    let rig = Rig::new().gated();
    let gate = rig.gate("one");
    let free = json!({
        "metadata": { "name": "dcctl", "labels": { "team": "blue" }, "annotations": {
            "example.com/note": "kept", "dcctl.devicechain.io/step": "of the run before" } },
        "spec": { "holderIdentity": "", "leaseTransitions": 4 },
    });
    let free = rig.bed.api().create(LEASES, &free).expect("the bed may do everything");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.started", |_| true);
    let held = rig.lease().expect("it is claimed");
    assert_eq!(held["metadata"]["uid"], free["metadata"]["uid"]);
    assert_eq!(held["spec"]["leaseTransitions"], 5);
    assert_eq!(held["metadata"]["labels"]["team"], "blue");
    assert_eq!(held["metadata"]["annotations"]["example.com/note"], "kept");
    assert_ne!(held["metadata"]["annotations"]["dcctl.devicechain.io/step"], "of the run before");
    gate.open(0);
    run.finish().expect_code(0);
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_lease_that_is_being_deleted_is_not_claimed_and_its_finalizer_is_named() {
    let rig = Rig::new();
    let kept = json!({ "metadata": { "name": "dcctl", "finalizers": ["example.com/keep"] }, "spec": {} });
    rig.bed.api().create(LEASES, &kept).expect("the bed may do everything");
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let before = rig.lease().expect("the finalizer keeps it");
    let refused = rig.bootstrap("one").run().expect_code(21);
    let said = text(&refused.verdict()["data"]["failure"]["message"]);
    assert!(said.contains("is being deleted and cannot be claimed: finalizers keep it: example.com/keep"), "{said}");
    let human = rig.lock_status("human").run().expect_code(0).stdout;
    assert!(human.contains("is free, but cannot be claimed: it is being deleted"), "{human}");
    assert!(human.contains("  finalizers: example.com/keep"), "{human}");
    assert_eq!(rig.lease(), Some(before));
    assert_eq!(refused.verdict()["data"]["lock"], "never_taken");
}
