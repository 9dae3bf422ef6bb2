//! Claims without a definite answer that meet other runs, and what people read meanwhile. What comes of each request by
//! itself is in the table of [`crate::wire`].

use dcctl::clock::{Clock, System};
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::{Fault, Gate, Proxy, Rule, wait};
use crate::lock::rig::{LEASE, Rig, of_kind, text};

fn start(rig: &Rig, proxy: &Proxy) -> Running {
    rig.bootstrap("one").with_kubeconfig(&proxy.kubeconfig("admin")).start()
}

fn creates() -> Rule {
    Rule::on("POST", "/namespaces/dc-k8s-system/leases").nth(1)
}

#[test]
fn a_claim_that_lands_after_the_run_found_the_lock_busy_is_not_left_behind() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(creates().request(Fault::Hold(gate.clone())));
    let other = "bob@laptop/9912/3a7f00c2d1e4b596";
    let run = start(&rig, &proxy);
    gate.wait_for(1);
    rig.other_holds(other, &now());
    let journal = run.journal();
    journal.wait_for("lock.blocked", |event| event["data"]["holder"] == other);
    // The other one ends, and only then the claim arrives.
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    gate.open();
    wait::fact("the claim to land", || rig.lease().map(drop).or_else(|| ended(&journal.events())));
    let ended = run.finish().expect_code(20);
    assert_eq!(rig.lease(), None, "{}", ended.stdout);
}

#[test]
fn a_claim_that_lands_after_the_lock_of_a_second_one_was_lost_is_not_left_behind() {
    let rig = Rig::new().gated();
    let _check = rig.gate("one");
    let proxy = Proxy::start(&rig.bed);
    let gate = Gate::new();
    proxy.add(creates().request(Fault::Hold(gate.clone())));
    let run = start(&rig, &proxy);
    let journal = run.journal();
    // The first claim is still on its way when the run has the lock by a second one.
    journal.wait_for("process.started", |_| true);
    let lost = rig.lease().expect("it is held")["metadata"]["uid"].clone();
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    gate.open();
    let late = |lease: &Value| lease["metadata"]["uid"] != lost;
    wait::fact("the first claim to land", || rig.lease().filter(late).map(drop).or_else(|| ended(&journal.events())));
    let ended = run.finish().expect_code(22);
    assert_eq!(rig.lease(), None, "{}", ended.stdout);
    assert_eq!(ended.verdict()["data"]["lock"], "lost");
}

#[test]
fn a_lock_that_cannot_be_asked_about_any_more_is_said_to_be_unknown() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    // The claim is done, its answer is lost, and from then on nothing about the lock is answered.
    proxy.add(creates().reply(Fault::Drop));
    proxy.add(Rule::on("*", "/leases/dcctl").request(Fault::Drop));
    let ended = start(&rig, &proxy).finish();
    let verdict = ended.verdict();
    assert_eq!(verdict["data"]["lock"], "unknown", "{verdict}");
    assert_eq!(verdict["data"]["holder"], json!(rig.holder()), "the identity to look for is named");
    assert!(text(&verdict["data"]["failure"]["message"]).contains("no answer to the claim"), "{verdict}");
    assert_eq!(ended.code(), Some(4));
    // Nobody had to wonder meanwhile: what is waited for was said at once, and again.
    let events = ended.events();
    let acts: Vec<String> = of_kind(&events, "lock.waiting").iter().map(|event| text(&event["data"]["act"])).collect();
    assert_eq!(acts, ["claim", "release", "release"]);
}

#[test]
fn people_read_what_a_release_waits_for() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    proxy.add(Rule::on("DELETE", "/leases/dcctl").nth(1).request(Fault::HalfOpen));
    let run = rig.bed.dcctl(["bootstrap", "one", "--output", "human", "--bundle"]).arg(rig.bed.file("bundle"));
    let done = run.with_kubeconfig(&proxy.kubeconfig("admin")).run().expect_code(0);
    let words = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "! where the lock is cannot be said yet, after ";
    assert_eq!(words.matches(said).count(), 1, "{}", done.stdout);
    assert!(words.contains("s: the API server gave no answer about the lock within 5s"), "{}", done.stdout);
    assert_eq!(rig.lease(), None);
}

fn now() -> String {
    dcctl::clock::rfc3339(System.wall())
}

fn ended(events: &[Value]) -> Option<()> {
    events.iter().any(|event| event["type"] == "run.finished").then_some(())
}
