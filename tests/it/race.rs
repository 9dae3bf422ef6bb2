//! Eight runs claim at once and are killed at random moments, and a witness that knows nothing of the lock never sees two
//! of them at work: each command takes the system's own lock on one file for as long as it lives.
//!
//! A round is drawn by lot from its seed. `DCCTL_SEED=N` plays the round of that seed alone.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::{Journal, Running};
use crate::bed::tools::own;
use crate::bed::{Bed, LEASE, wait};
use crate::lock::rig::soak;

/// How many runs claim at once.
const RUNS: usize = 8;
/// A run has about as many lines before its verdict.
const LINES: usize = 16;

/// The rounds; `DCCTL_SOAK=1` makes them two hundred.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn seeds() -> Vec<u64> {
    match std::env::var("DCCTL_SEED") {
        Ok(seed) => vec![seed.parse().expect("DCCTL_SEED is a number")],
        Err(_) => (0..if soak() { 200 } else { 20 }).collect(),
    }
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Nothing,
    Stop,
    KillFront,
    KillSupervisor,
    KillBoth,
    /// The supervisor stands still until another run has ended, or for a moment.
    Freeze(Duration),
}

/// What is drawn for one run.
#[derive(Debug, Clone, Copy)]
struct Lot {
    waits: bool,
    blow: Blow,
    /// The blow comes when its journal has so many lines.
    line: usize,
    /// How long its command works, in milliseconds.
    work: u64,
}

impl Lot {
    fn draw(dice: &mut fastrand::Rng) -> Lot {
        let blow = match dice.u8(..10) {
            0 | 1 => Blow::Stop,
            2 => Blow::KillFront,
            3 => Blow::KillSupervisor,
            4 => Blow::KillBoth,
            5 | 6 => Blow::Freeze(Duration::from_millis(dice.u64(50..1500))),
            _ => Blow::Nothing,
        };
        Lot { waits: dice.bool(), blow, line: dice.usize(1..=LINES), work: dice.u64(..200) }
    }

    /// Whether a lock may be left in the name of such a run.
    fn may_leave(self) -> bool {
        matches!(self.blow, Blow::KillSupervisor | Blow::KillBoth)
    }
}

/// What came of all rounds; lots that hit nothing would prove nothing.
#[derive(Debug, Default)]
struct Seen {
    began: AtomicUsize,
    blows: AtomicUsize,
    released: AtomicUsize,
    blocked: AtomicUsize,
    left: AtomicUsize,
}

impl Seen {
    fn count(counter: &AtomicUsize, by: usize) {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

struct Round<'a> {
    bed: &'a Bed,
    seed: u64,
    folder: PathBuf,
    ended: AtomicUsize,
    seen: &'a Seen,
}

impl Round<'_> {
    fn play(&self) {
        let mut dice = fastrand::Rng::with_seed(self.seed);
        let lots: Vec<Lot> = (0..RUNS).map(|_| Lot::draw(&mut dice)).collect();
        let runs: Vec<Running> = lots.iter().enumerate().map(|(number, lot)| self.start(number, *lot)).collect();
        let holders: Vec<String> = thread::scope(|scope| {
            let played: Vec<_> = runs
                .into_iter()
                .zip(&lots)
                .enumerate()
                .map(|(number, (run, lot))| scope.spawn(move || self.see_through(number, *lot, run)))
                .collect();
            played.into_iter().map(|run| run.join().expect("what it saw is in its own words above")).collect()
        });
        // A supervisor whose front was killed sees its run through, and a command whose run is gone ends by itself.
        wait::fact("nothing of the round to be left", || self.bed.mark().pids().is_empty().then_some(()));
        let context = format!("seed {}: {lots:#?}", self.seed);
        let witness = fs::read_to_string(self.folder.join("witness")).unwrap_or_default();
        assert!(!witness.contains("not alone"), "{context}\n{witness}");
        Seen::count(&self.seen.began, witness.lines().count());
        let verdicts: Vec<Option<Value>> = (0..RUNS).map(|number| self.verdict(number)).collect();
        let lease = self.bed.api().get(LEASE).expect("the API server answers");
        let left = lease.map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned());
        for (number, verdict) in verdicts.iter().enumerate() {
            let is_left = left.as_deref() == Some(holders[number].as_str());
            let lot = lots[number];
            match verdict.as_ref().and_then(|verdict| verdict["data"]["lock"].as_str()) {
                Some("released") => {
                    assert!(!is_left, "{context}\nrun {number} says that it gave the lock back");
                    Seen::count(&self.seen.released, 1);
                }
                Some("never_taken") => {
                    assert!(!is_left, "{context}\nrun {number} says that it never had the lock");
                    Seen::count(&self.seen.blocked, 1);
                }
                Some("left" | "unknown") => assert!(lot.may_leave(), "{context}\nrun {number} left the lock"),
                Some(other) => panic!("{context}\nthe lock of run {number} is {other}"),
                None => assert_eq!(lot.blow, Blow::KillBoth, "{context}\nrun {number} has no verdict"),
            }
        }
        if let Some(left) = left {
            let whose = holders.iter().position(|holder| *holder == left);
            let whose = whose.unwrap_or_else(|| panic!("{context}\n{left} is nobody of this round: {holders:?}"));
            assert!(lots[whose].may_leave(), "{context}\nrun {whose} left the lock");
            Seen::count(&self.seen.left, 1);
            // What a person does about it is tested elsewhere.
            self.bed.api().delete(LEASE).expect("the bed may do everything");
        }
    }

    fn run_dir(&self, number: usize) -> PathBuf {
        self.folder.join(format!("run-{number}"))
    }

    fn journal(&self, number: usize) -> Journal {
        Journal::at(self.run_dir(number).join("events.jsonl"))
    }

    fn verdict(&self, number: usize) -> Option<Value> {
        self.journal(number).events().pop().filter(|event| event["type"] == "run.finished")
    }

    fn start(&self, number: usize, lot: Lot) -> Running {
        let run = self.bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--run-dir"]);
        let run = run.arg(self.run_dir(number)).args(lot.waits.then_some("--wait=2s")).arg("--").arg(own("fake-tool"));
        run.arg(format!("witness={}", self.folder.join("witness").display())).arg(format!("wait={}", lot.work)).start()
    }

    /// Deals the blow when its moment has come, and waits for the end of the front. The identity of the run.
    fn see_through(&self, number: usize, lot: Lot, run: Running) -> String {
        let started = run.wait_for("run.started", |_| true);
        let holder = started["data"]["holder"].as_str().expect("a run has an identity").to_owned();
        let journal = self.journal(number);
        let is_over = || journal.events().last().is_some_and(|last| last["type"] == "run.finished");
        wait::fact("the moment of the blow", || (journal.events().len() >= lot.line || is_over()).then_some(()));
        if !is_over() {
            self.deal(lot.blow, &run);
        }
        run.finish();
        self.ended.fetch_add(1, Ordering::Relaxed);
        holder
    }

    fn deal(&self, blow: Blow, run: &Running) {
        let supervisor = run.supervisor();
        match blow {
            Blow::Nothing => return,
            Blow::Stop => run.signal(Signal::TERM),
            Blow::KillFront => run.signal(Signal::KILL),
            Blow::KillSupervisor => self.kill(supervisor, Signal::KILL),
            Blow::KillBoth => {
                self.kill(supervisor, Signal::KILL);
                run.signal(Signal::KILL);
            }
            Blow::Freeze(longest) => {
                let before = self.ended.load(Ordering::Relaxed);
                self.kill(supervisor, Signal::STOP);
                let more = || (self.ended.load(Ordering::Relaxed) > before).then_some(());
                let _ = wait::until(longest, "another run to end", more);
                self.kill(supervisor, Signal::CONT);
            }
        }
        Seen::count(&self.seen.blows, 1);
    }

    /// One that has ended meanwhile is past all blows, and its number may be another's by now.
    fn kill(&self, pid: Pid, signal: Signal) {
        if self.bed.mark().pids().contains(&pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

#[test]
fn of_eight_runs_that_claim_at_once_and_are_killed_at_random_never_two_are_at_work() {
    let bed = Bed::take();
    let seen = Seen::default();
    let seeds = seeds();
    for seed in &seeds {
        let folder = bed.file(&format!("round-{seed}"));
        fs::create_dir_all(&folder).expect("the test's folder can be written");
        Round { bed: &bed, seed: *seed, folder, ended: AtomicUsize::new(0), seen: &seen }.play();
    }
    if seeds.len() > 1 {
        let all = seeds.len();
        let more = |counter: &AtomicUsize, than: usize| counter.load(Ordering::Relaxed) > than;
        assert!(more(&seen.began, all) && more(&seen.blows, all) && more(&seen.released, all / 2), "{seen:?}");
        assert!(more(&seen.blocked, all) && more(&seen.left, all / 20), "{seen:?}");
    }
}

#[test]
fn the_witness_sees_two_that_are_at_work_at_once() {
    let bed = Bed::take();
    let (file, first) = (bed.file("witness"), bed.file("first"));
    let witness = format!("witness={}", file.display());
    let tool = own("fake-tool");
    let held = bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--"]).arg(&tool).arg(&witness);
    let held = held.arg(format!("file={}", first.display())).arg("wait=600000").start();
    wait::fact("the first to be at work", || first.exists().then_some(()));
    // Somebody who does not care for the lock.
    let two = crate::bed::child::command(&tool).arg(&witness).status().expect("it is there");
    assert_eq!(two.code(), Some(97));
    assert!(fs::read_to_string(&file).expect("it is there").contains("not alone"));
    held.signal(Signal::TERM);
    held.finish().expect_code(10);
}
