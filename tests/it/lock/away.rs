//! The API server does not answer: for a while, and for longer than the lock is valid.

use serde_json::json;

use crate::bed::{Fault, Proxy, Rule, wait};
use crate::lock::rig::{Rig, of_kind, text};

#[test]
fn an_api_server_that_is_away_for_a_while_costs_nothing() {
    let rig = Rig::new().gated();
    let gate = rig.gate("one");
    let run = rig.bootstrap("one").start();
    run.wait_for("process.started", |_| true);
    rig.bed.freeze("kube-apiserver");
    let failed = |journal: &crate::bed::dcctl::Journal| of_kind(&journal.events(), "lock.renewal_failed").len();
    let journal = run.journal();
    wait::fact("two renewals to fail", || (failed(&journal) >= 2).then_some(()));
    rig.bed.thaw("kube-apiserver");
    let renewed_after = |events: &[serde_json::Value]| {
        let last = events.iter().rposition(|event| event["type"] == "lock.renewal_failed")?;
        events[last..].iter().find(|event| event["type"] == "lock.renewed").map(|_| ())
    };
    wait::fact("the lock to be renewed again", || renewed_after(&journal.events()));
    gate.open(0);
    let done = run.finish().expect_code(0);
    assert_eq!(done.verdict()["data"]["lock"], "released");
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_run_that_cannot_renew_for_a_whole_validity_counts_itself_lost_and_stops() {
    let rig = Rig::new().slow_thing(300.0);
    let run = rig.bootstrap("one").start();
    rig.wait_until_in_flight(&run);
    let holder = rig.holder();
    rig.bed.freeze("kube-apiserver");
    let ended = run.finish().expect_code(22);
    let verdict = ended.verdict();
    let said = text(&verdict["data"]["failure"]["message"]);
    let begins = "stopping \"Apply infrastructure\": this cluster's lock could not be renewed for 1m0s";
    assert!(said.starts_with(begins), "{said}");
    assert_eq!((&verdict["data"]["lock"], of_kind(&ended.events(), "process.interrupted").len()), (&json!("lost"), 1));
    // By what it saw last the Lease is its own, and nobody else will give it back.
    assert_eq!(verdict["data"]["holder"], json!(holder));
    assert_eq!(of_kind(&ended.events(), "lock.lost")[0]["data"]["holder"], json!(holder));
    let next = verdict["data"]["next"].to_string();
    for part in ["still named this run", "dcctl lock status --kube-context bed", "dcctl instances reclaim"] {
        assert!(next.contains(part), "{next}");
    }
    // A connection that nobody takes is told as such, and not as a request without an answer.
    let events = ended.events();
    let failed = of_kind(&events, "lock.renewal_failed");
    assert!(failed.iter().any(|event| event["data"]["why"] == "the API server cannot be reached"), "{failed:?}");
    rig.bed.thaw("kube-apiserver");
    let lease = wait::fact("the API server to answer", || rig.bed.api().get(crate::lock::rig::LEASE).ok());
    assert_eq!(lease.map(|lease| text(&lease["spec"]["holderIdentity"])), holder, "the Lease is left alone");
}

#[test]
fn from_half_a_minute_without_a_renewal_on_no_step_begins_until_there_is_one() {
    let rig = Rig::new().declared().gated();
    let gate = rig.gate("one");
    let proxy = Proxy::start(&rig.bed);
    let run = rig.bootstrap("one").with_kubeconfig(&proxy.kubeconfig("admin")).env("BED_SUSPENDED", rig.suspended());
    let run = run.start();
    let journal = run.journal();
    journal.wait_for("process.started", |_| true);
    rig.wait_for_renewal();
    proxy.add(Rule::on("*", "/leases/dcctl").request(Fault::Drop));
    journal.wait_for("lock.renewal_failed", |_| true);
    rig.suspend(31);
    gate.open(0);
    journal.wait_for("step.finished", |event| event["step"] == "verify");
    // At the step's border the API server is asked again and again.
    let before = proxy.seen().len();
    wait::fact("it to be asked again", || (proxy.seen().len() >= before + 3).then_some(()));
    let begins = |event: &serde_json::Value| event["type"] == "step.started" && event["step"] == "record-the-phase";
    assert!(!journal.events().iter().any(begins), "a step began");
    proxy.clear();
    let events = run.finish().expect_code(0).events();
    let renewed = events.iter().rposition(|event| event["data"].get("gap_ms").is_some()).expect("it was renewed again");
    assert!(events.iter().position(begins) > Some(renewed), "the step began before the renewal");
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
}
