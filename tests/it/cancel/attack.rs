//! A run is hit at a random moment by a random sequence of what systems and people do to runs. Whatever it is, nothing that
//! exists is lost without a word, nothing is left running, and the last line says where the lock is.
//!
//! A round is drawn by lot from its seed, which is printed. `DCCTL_SEED=N` plays the round of that seed alone.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::junit::Report;
use crate::bed::{LEASE, wait};
use crate::cancel::job::{Job, Shape, all_end_within, is_program, send, send_all};
use crate::lock::rig::soak;
use crate::stopping::rig::Rig;

/// The rounds; `DCCTL_SOAK=1` makes them five hundred.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn seeds() -> Vec<u64> {
    match std::env::var("DCCTL_SEED") {
        Ok(seed) => vec![seed.parse().expect("DCCTL_SEED is a number")],
        Err(_) => (0..if soak() { 500 } else { 10 }).collect(),
    }
}

/// One thing that is done to a run.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// A signal to the front.
    Front(Signal),
    /// A signal to the group of the front.
    Group(Signal),
    /// A signal to every process of the tree of the front, children first.
    Tree(Signal),
    /// SIGTERM to every process, the youngest or the oldest first.
    Every { youngest_first: bool },
    /// A signal to whoever has worked on the thing in flight.
    Plugin(Signal),
    /// A signal to OpenTofu.
    Tofu(Signal),
    /// The supervisor stands still for so long.
    Freeze(Duration),
}

impl Blow {
    fn draw(dice: &mut fastrand::Rng) -> Blow {
        let polite = [Signal::INT, Signal::TERM, Signal::HUP];
        let any = [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL];
        match dice.u8(..16) {
            0..=4 => Blow::Front(polite[dice.usize(..3)]),
            5 => Blow::Front(Signal::KILL),
            6 => Blow::Front(Signal::QUIT),
            7 | 8 => Blow::Group(any[dice.usize(..4)]),
            9 | 10 => Blow::Tree(any[dice.usize(..4)]),
            11 => Blow::Every { youngest_first: dice.bool() },
            12 => Blow::Plugin(any[dice.usize(1..4)]),
            13 | 14 => Blow::Tofu(any[dice.usize(..4)]),
            _ => Blow::Freeze(Duration::from_millis(dice.u64(50..1500))),
        }
    }

    fn strike(self, rig: &Rig, job: &Job<'_>) {
        match self {
            Blow::Front(signal) => send(job.entry(), signal),
            Blow::Group(signal) => job.send_group(signal),
            Blow::Tree(signal) => send_all(&job.tree(), signal),
            Blow::Every { youngest_first } => {
                let mut members = job.members();
                if youngest_first {
                    members.reverse();
                }
                send_all(&members, Signal::TERM);
            }
            Blow::Plugin(signal) => {
                let last = rig.entries().pop().and_then(|entry| Pid::from_raw(i32::try_from(entry.pid).ok()?));
                // Its number may be somebody else's by now.
                let plugin = last.filter(|pid| job.members().contains(pid));
                if let Some(pid) = plugin {
                    send(pid, signal);
                }
            }
            Blow::Tofu(signal) => {
                let tofu = job.members().into_iter().find(|pid| is_program(*pid, "tofu"));
                if let Some(pid) = tofu {
                    send(pid, signal);
                }
            }
            Blow::Freeze(pause) => {
                let Some(supervisor) = job.supervisor() else { return };
                send(supervisor, Signal::STOP);
                let _ = all_end_within(&[supervisor], pause);
                send(supervisor, Signal::CONT);
            }
        }
    }
}

/// What was drawn: blows, each after a pause.
fn draw(seed: u64) -> Vec<(Duration, Blow)> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let first = dice.u64(..4500);
    let many = dice.usize(1..=4);
    let pauses: Vec<u64> = (0..many).map(|index| if index == 0 { first } else { dice.u64(..900) }).collect();
    pauses.into_iter().map(|pause| (Duration::from_millis(pause), Blow::draw(&mut dice))).collect()
}

#[test]
fn whatever_hits_an_apply_nothing_that_exists_is_lost_without_a_word() {
    let seeds = seeds();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let mine: Vec<u64> = seeds.iter().copied().skip(worker).step_by(2).collect();
            scope.spawn(move || mine.into_iter().for_each(round));
        }
    });
}

fn round(seed: u64) {
    let blows = draw(seed);
    let context = format!("DCCTL_SEED={seed} {blows:?}");
    let rig = Rig::new(1.5);
    let junit = rig.bed().file("junit.xml");
    let job = Job::start(rig.bed(), rig.own(), Shape::Itself);
    for (pause, blow) in blows {
        let _ = job.ends_within(pause);
        blow.strike(&rig, &job);
    }
    wait::fact(&format!("nothing of the run to be left: {context}"), || job.members().is_empty().then_some(()));
    let events = job.journal.events();
    let there = rig.bed().api().get(LEASE).expect("the API server answers");
    let Some(last) = events.last() else {
        // It was ended before it began.
        assert!(there.is_none() && rig.entries().is_empty(), "{context}");
        return;
    };
    assert_eq!(last["type"], "run.finished", "{context}\n{}", log(&events));
    let verdict = last["data"].clone();
    let said = verdict.to_string();
    for name in rig.not_in_state() {
        let address = format!("bed_thing.{name}");
        assert!(said.contains(&address), "nobody is told of {address}: {context}\n{}", log(&events));
        assert_ne!(verdict["exit_code"], 10, "{context}\n{}", log(&events));
    }
    let holder = there.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned));
    match verdict["lock"].as_str() {
        Some("left") => assert_eq!(holder.as_deref(), verdict["holder"].as_str(), "{context}\n{}", log(&events)),
        _ => assert_eq!(holder, None, "{context}\n{}", log(&events)),
    }
    if junit.exists() {
        Report::read(&junit);
    }
}

/// The messages of a journal.
fn log(events: &[Value]) -> String {
    let line = |event: &Value| format!("{:>6} {}", event["elapsed_ms"], event["msg"].as_str().unwrap_or_default());
    let relevant = events.iter().filter(|event| event["level"] != "debug");
    relevant.map(line).collect::<Vec<_>>().join("\n")
}
