//! A stop, and the death of the supervisor, in the middle of an upgrade of a live instance and of a destroy: what is in
//! flight is finished and recorded, the lock is given back, and the same command goes on from there.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::{Finished, Running};
use crate::lock::rig::{Rig, of_kind};

/// The instance of every run here.
const INSTANCE: &str = "one";

/// A live instance of two things, the second of which needs the first. To change or remove one takes a while.
fn live() -> Rig {
    let rig = Rig::new().declared().slow_thing(0.0);
    write_things(&rig, "old");
    rig.bootstrap(INSTANCE).run().expect_code(0);
    rig
}

fn write_things(rig: &Rig, note: &str) {
    let root = rig.bed.file("bundle/infra/main.tf");
    let text = fs::read_to_string(&root).expect("the bundle has it");
    let head = &text[..text.find("resource").expect("it has one")];
    let thing = |name: &str, more: &str| {
        let settings = format!("  note = \"{note}\"\n  update_seconds = 3\n  destroy_seconds = 3\n{more}");
        format!("resource \"bed_thing\" \"{name}\" {{\n  name = \"{name}\"\n{settings}}}\n")
    };
    let things = [thing("first", ""), thing("second", "  depends_on = [bed_thing.first]\n")].concat();
    fs::write(&root, format!("{head}{things}")).expect("the test's folder can be written");
}

/// An upgrade that changes both, while it changes the first.
fn upgrading(rig: &Rig) -> Running {
    write_things(rig, "new");
    let run = rig.upgrade(INSTANCE).start();
    run.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.first");
    run
}

/// A destroy, while it removes the second.
fn destroying(rig: &Rig) -> Running {
    let run = rig.destroy(INSTANCE).start();
    run.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.second");
    run
}

fn kill_supervisor(run: &Running) {
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it runs");
}

/// How often each of the two was changed.
fn updated(rig: &Rig) -> [usize; 2] {
    let entries = rig.ledger.entries();
    ["first", "second"].map(|name| entries.iter().filter(|act| act.act == "updated" && act.name == name).count())
}

/// How many of each there are.
fn living(rig: &Rig) -> [usize; 2] {
    ["first", "second"].map(|name| rig.ledger.living(name).len())
}

/// One interrupt, what was in flight seen to its end, and a lock that was given back.
#[track_caller]
fn assert_finished_what_was_in_flight(rig: &Rig, finished: &Finished, phase: &str) -> Value {
    let events = finished.events();
    assert_eq!(of_kind(&events, "process.interrupted").len(), 1, "{}", finished.stdout);
    let [reported] = of_kind(&events, "process.interrupt_reported")[..] else { panic!("{}", finished.stdout) };
    assert_eq!(reported["data"]["times"], 1, "{reported}");
    assert_eq!(of_kind(&events, "resource.started").len(), 1, "something began after the stop: {}", finished.stdout);
    let completed = of_kind(&events, "resource.completed").len();
    assert_eq!(completed, 1, "what was in flight was not seen to its end: {}", finished.stdout);
    let verdict = finished.verdict()["data"].clone();
    assert_eq!((&verdict["lock"], rig.lease()), (&json!("released"), None), "{verdict}");
    assert_eq!(rig.phase(INSTANCE).as_deref(), Some(phase), "it is not gone on with");
    verdict
}

/// The upgrade that was cut off is gone on with, and what it had done is not done again.
#[track_caller]
fn assert_upgrade_goes_on(rig: &Rig) {
    assert_eq!(updated(rig), [1, 0]);
    rig.upgrade(INSTANCE).run().expect_code(0);
    assert_eq!((updated(rig), living(rig)), ([1, 1], [1, 1]));
    assert_eq!(rig.phase(INSTANCE).as_deref(), Some("Ready"));
}

/// The same for a destroy.
#[track_caller]
fn assert_destroy_goes_on(rig: &Rig) {
    assert_eq!(living(rig), [1, 0]);
    rig.destroy(INSTANCE).run().expect_code(0);
    assert_eq!((living(rig), rig.phase(INSTANCE)), ([0, 0], None));
}

#[test]
fn a_stop_lets_the_change_in_flight_end_and_the_next_upgrade_goes_on() {
    let rig = live();
    let run = upgrading(&rig);
    run.signal(Signal::TERM);
    assert_finished_what_was_in_flight(&rig, &run.finish().expect_code(10), "Upgrading");
    assert_upgrade_goes_on(&rig);
}

#[test]
fn an_upgrade_whose_supervisor_is_killed_is_seen_to_a_clean_end_and_the_next_one_goes_on() {
    let rig = live();
    let run = upgrading(&rig);
    kill_supervisor(&run);
    let verdict = assert_finished_what_was_in_flight(&rig, &run.finish().expect_code(1), "Upgrading");
    assert_eq!((&verdict["failure"]["code"], &verdict["unfinished"]), (&json!("supervisor.killed"), &Value::Null));
    assert!(verdict["next"].to_string().contains("run `dcctl upgrade one` again"), "{verdict}");
    assert_upgrade_goes_on(&rig);
}

#[test]
fn a_destroy_whose_supervisor_is_killed_is_seen_to_a_clean_end_and_the_next_one_goes_on() {
    let rig = live();
    let run = destroying(&rig);
    kill_supervisor(&run);
    let verdict = assert_finished_what_was_in_flight(&rig, &run.finish().expect_code(1), "Destroying");
    assert_eq!((&verdict["failure"]["code"], &verdict["unfinished"]), (&json!("supervisor.killed"), &Value::Null));
    assert!(verdict["next"].to_string().contains("run `dcctl destroy one` again"), "{verdict}");
    assert_destroy_goes_on(&rig);
}

#[test]
fn a_destroy_whose_front_is_killed_stops_when_what_is_in_flight_has_ended() {
    let rig = live();
    let run = destroying(&rig);
    let journal = run.journal();
    run.signal(Signal::KILL);
    let verdict = journal.wait_for("run.finished", |_| true)["data"].clone();
    assert_eq!((&verdict["exit_code"], &verdict["lock"]), (&json!(10), &json!("released")), "{verdict}");
    assert_eq!(rig.lease(), None);
    assert_destroy_goes_on(&rig);
}
