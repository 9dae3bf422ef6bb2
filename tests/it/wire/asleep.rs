//! The machine sleeps, or the process stands still, for longer than the lock is valid.

use dcctl::clock::{Clock, System};
use jiff::Timestamp;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use crate::bed::dcctl::Running;
use crate::bed::{Bed, wait};
use crate::lock::rig::{of_kind, text};
use crate::wire::lane::{Lane, Namespace};

/// The run ends because its lock is void. Nothing was asked after it went on, and its command was asked to stop within a
/// second. What the Lease says is not touched.
fn ends_without_a_word(lane: &Lane<'_>, run: Running, asked: usize, went_on: Timestamp) {
    let ended = run.finish().expect_code(22);
    assert_eq!(lane.proxy.seen().len(), asked, "something was asked: {:#?}", lane.proxy.seen());
    let events = ended.events();
    let at = |kind: &str| -> Timestamp { text(&of_kind(&events, kind)[0]["time"]).parse().expect("a time") };
    let until = at("process.interrupted").duration_since(went_on);
    assert!(until.as_millis() < 1000, "the command was asked to stop only after {until:?}");
    assert!(at("lock.lost") <= at("process.interrupted"));
    let verdict = &ended.verdict()["data"];
    assert_eq!((&verdict["lock"], &verdict["holder"]), (&json!("lost"), &json!(lane.holder())), "{verdict}");
    assert_eq!(lane.signals(), "TERM\n");
}

#[test]
fn a_process_that_stood_still_for_seventy_seconds_stops_its_command_at_once_and_asks_nothing() {
    let bed = Bed::take();
    let lane = Lane::new(&bed, Namespace::There);
    let run = lane.at_work();
    // The next renewal is ten seconds away, so that none is under way.
    run.journal().wait_for("lock.renewed", |event| event["elapsed_ms"].as_u64() > Some(8_000));
    let supervisor = run.supervisor();
    kill_process(supervisor, Signal::STOP).expect("it runs");
    let stopped = System.now();
    let asked = lane.proxy.seen().len();
    let passed = || (System.now().since(stopped).as_secs() >= 70).then_some(());
    wait::until(wait::GENEROUS * 2, "seventy seconds to pass", passed).expect("time passes");
    let went_on = System.wall();
    kill_process(supervisor, Signal::CONT).expect("it is there");
    ends_without_a_word(&lane, run, asked, went_on);
}

#[test]
fn a_machine_that_was_asleep_for_longer_than_the_lock_is_valid_wakes_to_a_void_lock() {
    let bed = Bed::take();
    let lane = Lane::new(&bed, Namespace::There);
    let run = lane.at_work();
    run.journal().wait_for("lock.renewed", |event| event["elapsed_ms"].as_u64() > Some(8_000));
    let asked = lane.proxy.seen().len();
    // The clock is read twice a second; every stop has its 250 ms besides.
    let woke = System.wall();
    lane.suspend(70);
    ends_without_a_word(&lane, run, asked, woke);
}
