//! The lock is lost while the run is at work: it stops, says who holds it now, and writes nothing more.

use serde_json::{Value, json};

use crate::bed::{Bed, Fault, Gate, Proxy, Rule, wait};
use crate::lock::rig::{LEASE, Rig, of_kind, text};

/// Who takes the lock in these tests.
const BOB: &str = "bob@laptop/9912/3a7f00c2d1e4b596";

/// A run in the middle of a long creation loses its lock by `lose`; it has to end by itself, with `says`.
fn lose_in_mid_apply(lose: impl Fn(&Rig), says: &str) -> (Rig, Value) {
    let rig = Rig::new().declared().slow_thing(120.0);
    let run = rig.bootstrap("one").start();
    rig.wait_until_in_flight(&run);
    lose(&rig);
    let ended = run.finish().expect_code(22);
    let (verdict, events) = (ended.verdict(), ended.events());
    assert_eq!(verdict["data"]["lock"], "lost");
    assert_eq!(verdict["data"]["failure"]["code"], "lock.lost");
    assert_eq!(text(&verdict["data"]["failure"]["message"]), says);
    let lost = of_kind(&events, "lock.lost");
    assert_eq!((lost.len(), text(&lost[0]["data"]["text"])), (1, says.to_owned()));
    // The loss is what the stop was for, and the stop is all that lies between the loss and the interrupt.
    let told: Vec<String> = events.iter().map(|event| text(&event["type"])).filter(|kind| !is_talk(kind)).collect();
    let at = told.iter().position(|kind| kind == "lock.lost").expect("it was lost");
    assert_eq!(told[at + 1..at + 3], ["stop.requested", "process.interrupted"], "{told:?}");
    assert_eq!(of_kind(&events, "process.interrupted").len(), 1);
    assert_eq!(of_kind(&events, "process.interrupt_reported").len(), 1);
    assert_eq!(rig.writes_since_ours("admin"), Vec::<String>::new());
    assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"), "a fenced run does not write the phase");
    (rig, verdict)
}

/// What OpenTofu says of its own accord, at any moment.
fn is_talk(kind: &str) -> bool {
    kind == "process.output" || kind.starts_with("resource.")
}

#[test]
fn a_run_that_is_reclaimed_in_mid_step_interrupts_opentofu_once_and_writes_nothing_more() {
    let says = format!(
        "stopping \"Apply infrastructure\": this cluster was reclaimed by another operator: it is now held by {BOB}"
    );
    let (rig, verdict) = lose_in_mid_apply(|rig| drop(rig.take_away(BOB)), &says);
    assert_eq!(verdict["data"]["holder"], BOB);
    let lease = rig.lease().expect("the Lease is the other's now");
    assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseTransitions"]), (&json!(BOB), &json!(1)));
}

#[test]
fn a_run_whose_lease_is_deleted_in_mid_step_stops_and_never_makes_it_anew() {
    let says = "stopping \"Apply infrastructure\": this cluster's lock was reclaimed or deleted: nobody holds it now";
    let delete = |rig: &Rig| rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let (rig, verdict) = lose_in_mid_apply(delete, says);
    assert_eq!((&verdict["data"]["holder"], rig.lease()), (&Value::Null, None));
}

#[test]
fn what_an_interrupted_tool_still_does_after_the_loss_is_reported() {
    let rig = Rig::new().declared().stubborn_thing(20.0);
    let run = rig.bootstrap("one").start();
    rig.wait_until_in_flight(&run);
    rig.take_away(BOB);
    let ended = run.finish().expect_code(22);
    let (verdict, events) = (ended.verdict(), ended.events());
    let at = |kind: &str| events.iter().position(|event| event["type"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    // OpenTofu was asked to stop, finished what was in flight, and that is said with its address and before the end.
    assert!(at("lock.lost") < at("process.interrupted"), "{}", ended.stdout);
    assert!(at("process.interrupted") < at("resource.completed"), "{}", ended.stdout);
    let completed = of_kind(&events, "resource.completed");
    assert_eq!((completed.len(), &completed[0]["data"]["address"]), (1, &json!("bed_thing.slow")));
    assert_eq!(of_kind(&events, "process.interrupted").len(), 1);
    let after = &events[at("process.interrupted")..];
    let said = of_kind(after, "process.output").len() + of_kind(after, "resource.progressed").len();
    assert!(said > 0, "what it printed is passed on: {}", ended.stdout);
    assert_eq!((rig.ledger.created("slow"), &verdict["data"]["lock"]), (1, &json!("lost")));
    let state = std::fs::read_to_string(rig.state_dir("one").join("infrastructure.tfstate"));
    assert!(state.is_ok_and(|state| state.contains("\"slow\"")), "its state is written");
    assert_eq!(rig.writes_since_ours("admin"), Vec::<String>::new());
}

/// A bootstrap through a proxy that holds back the answer to this write until the test lets it go.
fn lose_between_steps(rig: &Rig, held: Rule, gate: &Gate) -> Value {
    let proxy = Proxy::start(&rig.bed);
    proxy.add(held.reply(Fault::Hold(gate.clone())));
    let run = rig.bootstrap("one").with_kubeconfig(&proxy.kubeconfig("admin")).start();
    gate.wait_for(1);
    // What the step's beginning had to write into the Lease is written; the next renewal is ten seconds away.
    let step = |lease: &Value| lease["metadata"]["annotations"]["dcctl.devicechain.io/step"].clone();
    wait::fact("the step to be noted", || rig.lease().filter(|lease| step(lease) == "Declare the instance"));
    rig.take_away(BOB);
    gate.open();
    let ended = run.finish().expect_code(22);
    assert_eq!(of_kind(&ended.events(), "lock.lost").len(), 1);
    ended.verdict()
}

#[test]
fn a_run_that_is_reclaimed_between_two_steps_stops_before_the_next_one() {
    let rig = Rig::new().declared().slow_thing(0.0);
    let verdict = lose_between_steps(&rig, Rule::on("POST", "/api/v1/namespaces").nth(1), &Gate::new());
    let says = format!(
        "stopping before \"Apply infrastructure\": this cluster was reclaimed by another operator: it is now held by {BOB}"
    );
    assert_eq!(text(&verdict["data"]["failure"]["message"]), says);
    assert_eq!((&verdict["data"]["lock"], &verdict["data"]["holder"]), (&json!("lost"), &json!(BOB)));
    assert_eq!(rig.ledger.created("slow"), 0, "the next step did not begin");
    assert_eq!(rig.writes_since_ours("admin"), Vec::<String>::new());
    assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"));
}

#[test]
fn a_first_bootstrap_that_did_everything_but_was_reclaimed_ends_in_error_without_its_phase() {
    // The check itself is what takes the lock away, as its last act.
    let bed = Bed::take();
    let fields = format!("{{\"spec\":{{\"holderIdentity\":\"{BOB}\",\"leaseTransitions\":1}}}}");
    let script = format!(
        "kubectl --kubeconfig {} -n dc-k8s-system patch lease dcctl --type merge -p '{fields}'",
        bed.kubeconfig("bed").display()
    );
    let rig = Rig::on(bed).declared().slow_thing(0.0).checked(&script);
    let ended = rig.bootstrap("one").run().expect_code(22);
    let said = text(&ended.verdict()["data"]["failure"]["message"]);
    // Whether the last step had ended when that was seen is a matter of milliseconds.
    let reason = format!(": this cluster was reclaimed by another operator: it is now held by {BOB}");
    let told = ["stopping before \"Record the phase\"", "stopping \"Verify\""];
    assert!(told.iter().any(|told| said == format!("{told}{reason}")), "{said}");
    assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"));
    assert_eq!(rig.writes_since_ours("admin"), Vec::<String>::new());
    let next = ended.verdict()["data"]["next"].to_string();
    assert!(next.contains("run the same command again when it is free"), "{next}");
    assert_eq!(rig.holder().as_deref(), Some(BOB));

    // Once the other has given the lock back, the same command ends well.
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    rig.checked("true").bootstrap("one").run().expect_code(0);
}
