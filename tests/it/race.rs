//! Eight runs claim at once and are killed at random moments, and two witnesses that know nothing of the lock never see
//! two of them at once. Each command takes the system's own lock on one file for as long as it lives. And each run notes
//! when it has the right to act, as a step asks for it before each write ([`beliefs`]).
//!
//! Some machines fall asleep under their runs, for longer than a lock is valid. A person reclaims what such a run holds,
//! another run works, and then the machine wakes. What a command does in the second before it is stopped then, no lock
//! can say, so the command of such a run is not watched: whether the run itself would still have acted is.
//!
//! A round is drawn by lot from its seed. `DCCTL_SEED=N` plays the round of that seed alone.

mod beliefs;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::{Journal, Running};
use crate::bed::terminal::Seat;
use crate::bed::tools::own;
use crate::bed::{Bed, Dcctl, LEASE, wait};
use crate::lock::rig::soak;
use crate::race::beliefs::Beliefs;

/// How many runs claim at once.
const RUNS: usize = 8;
/// A run has about as many lines before its verdict.
const LINES: usize = 16;
/// In how many rounds at most, unless there is time, a person reclaims what is left at the end.
const RECLAIMED: usize = 3;

/// The rounds; `DCCTL_SOAK=1` makes them two hundred. Every fourth one was never played before.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn seeds() -> Vec<u64> {
    match std::env::var("DCCTL_SEED") {
        Ok(seed) => vec![seed.parse().expect("DCCTL_SEED is a number")],
        Err(_) => (0..if soak() { 200 } else { 20 })
            .map(|number| if number % 4 == 3 { fastrand::u64(1_000..1_000_000_000) } else { number })
            .collect(),
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
    /// The machine sleeps for longer than a lock is valid.
    Sleep,
}

/// When the blow comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// When its journal has so many lines.
    Line(usize),
    /// When its command is at work.
    AtWork,
}

/// What is drawn for one run.
#[derive(Debug, Clone, Copy)]
struct Lot {
    waits: bool,
    blow: Blow,
    moment: Moment,
    /// How long its command works, in milliseconds.
    work: u64,
}

impl Lot {
    fn draw(dice: &mut fastrand::Rng) -> Lot {
        let blow = match dice.u8(..11) {
            0 | 1 => Blow::Stop,
            2 => Blow::KillFront,
            3 => Blow::KillSupervisor,
            4 => Blow::KillBoth,
            5 | 6 => Blow::Freeze(Duration::from_millis(dice.u64(50..1500))),
            7 => Blow::Sleep,
            _ => Blow::Nothing,
        };
        let line = Moment::Line(dice.usize(1..=LINES));
        let moment = if blow == Blow::Sleep && dice.u8(..4) > 0 { Moment::AtWork } else { line };
        // Long enough to be met at work.
        let work = if blow == Blow::Sleep { 2_000 } else { dice.u64(..200) };
        Lot { waits: dice.bool(), blow, moment, work }
    }

    /// Whether a lock may be left in the name of such a run.
    fn may_leave(self) -> bool {
        matches!(self.blow, Blow::KillSupervisor | Blow::KillBoth | Blow::Sleep)
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
    lost: AtomicUsize,
    reclaimed: AtomicUsize,
    believed: AtomicUsize,
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
        let beliefs = Beliefs::read(&self.folder.join("beliefs"));
        assert_eq!(beliefs.overlap(), None, "{context}\n{beliefs:#?}");
        Seen::count(&self.seen.believed, beliefs.len());
        let verdicts: Vec<Option<Value>> = (0..RUNS).map(|number| self.verdict(number)).collect();
        let left = self.holder();
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
                Some("lost") => {
                    assert_eq!(lot.blow, Blow::Sleep, "{context}\nrun {number} lost the lock");
                    Seen::count(&self.seen.lost, 1);
                }
                Some(other) => panic!("{context}\nthe lock of run {number} is {other}"),
                None => assert_eq!(lot.blow, Blow::KillBoth, "{context}\nrun {number} has no verdict"),
            }
        }
        if let Some(left) = left {
            let whose = holders.iter().position(|holder| *holder == left);
            let whose = whose.unwrap_or_else(|| panic!("{context}\n{left} is nobody of this round: {holders:?}"));
            assert!(lots[whose].may_leave(), "{context}\nrun {whose} left the lock");
            Seen::count(&self.seen.left, 1);
            if soak() || self.seen.reclaimed.load(Ordering::Relaxed) < RECLAIMED {
                assert!(self.reclaim("the-end", &left).is_ok(), "{context}\n{left} was not reclaimed");
                assert_eq!(self.holder(), None, "{context}");
            } else {
                self.bed.api().delete(LEASE).expect("the bed may do everything");
            }
        }
    }

    /// Who is in the Lease.
    fn holder(&self) -> Option<String> {
        let lease = self.bed.api().get(LEASE).expect("the API server answers");
        lease.map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    /// A person reclaims the lock of this run, on a machine whose clock goes on for longer than it is valid. The screen
    /// when the holder showed a sign of life.
    fn reclaim(&self, name: &str, holder: &str) -> Result<(), String> {
        let suspended = self.folder.join(format!("suspended-{name}"));
        let dcctl = self.bed.dcctl(["instances", "reclaim", "--kube-context", "bed"]);
        let seat = Seat::take(dcctl.env("BED_SUSPENDED", &suspended).env("TERM", "xterm"));
        seat.wait_for("or anything else to abort:\n> ");
        seat.type_line(holder);
        seat.wait_for("no renewal so far; ");
        put(&suspended, 66);
        let (code, screen) = seat.end();
        assert!(matches!(code, Some(0 | 24)), "{code:?}; the screen says:\n{screen}");
        Seen::count(&self.seen.reclaimed, usize::from(code == Some(0)));
        if code == Some(0) { Ok(()) } else { Err(screen) }
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
        let run = self.exec(&self.run_dir(number)).env("BED_SUSPENDED", self.suspended(number));
        let run = run.args(lot.waits.then_some("--wait=2s")).arg("--").arg(own("fake-tool"));
        let watched = (lot.blow != Blow::Sleep).then(|| self.witness());
        run.args(watched).arg(format!("wait={}", lot.work)).start()
    }

    /// A command under the lock, not started yet.
    fn exec(&self, run_dir: &Path) -> Dcctl {
        let run = self.bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--run-dir"]).arg(run_dir);
        run.env("DCCTL_TEST_WITNESS", self.folder.join("beliefs"))
    }

    /// What makes a command take the system's own lock.
    fn witness(&self) -> String {
        format!("witness={}", self.folder.join("witness").display())
    }

    /// The file that tells a run for how long its machine slept.
    fn suspended(&self, number: usize) -> PathBuf {
        self.folder.join(format!("suspended-{number}"))
    }

    /// Deals the blow when its moment has come, and waits for the end of the front. The identity of the run.
    fn see_through(&self, number: usize, lot: Lot, run: Running) -> String {
        let started = run.wait_for("run.started", |_| true);
        let holder = started["data"]["holder"].as_str().expect("a run has an identity").to_owned();
        let journal = self.journal(number);
        let is_over = || journal.events().last().is_some_and(|last| last["type"] == "run.finished");
        let is_there = || match lot.moment {
            Moment::Line(line) => journal.events().len() >= line,
            Moment::AtWork => journal.events().iter().any(|event| event["type"] == "process.started"),
        };
        wait::fact("the moment of the blow", || (is_there() || is_over()).then_some(()));
        if !is_over() {
            match lot.blow {
                Blow::Sleep => self.put_to_sleep(number, &holder, run.supervisor()),
                blow => self.deal(blow, &run),
            }
        }
        run.finish();
        self.ended.fetch_add(1, Ordering::Relaxed);
        holder
    }

    fn deal(&self, blow: Blow, run: &Running) {
        let supervisor = run.supervisor();
        match blow {
            Blow::Nothing | Blow::Sleep => return,
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

    /// The machine of a run sleeps for longer than its lock is valid. When it wakes another run is at work, if the lock
    /// was its.
    fn put_to_sleep(&self, number: usize, holder: &str, supervisor: Pid) {
        self.kill(supervisor, Signal::STOP);
        put(&self.suspended(number), 70);
        Seen::count(&self.seen.blows, 1);
        let reclaimed =
            self.holder().as_deref() == Some(holder) && self.reclaim(&format!("by-a-person-{number}"), holder).is_ok();
        let next = reclaimed.then(|| self.exec(&self.folder.join(format!("next-{number}"))));
        let next = next.map(|next| next.arg("--").arg(own("fake-tool")).arg(self.witness()).arg("wait=1000").start());
        if let Some(next) = &next {
            // Somebody else of the round may have been faster.
            let journal = next.journal();
            let far = |event: &Value| event["type"] == "process.started" || event["type"] == "run.finished";
            wait::fact("the next run to be at work", || journal.events().iter().any(far).then_some(()));
        }
        self.kill(supervisor, Signal::CONT);
        if let Some(next) = next {
            let code = next.finish().code();
            assert!(matches!(code, Some(0 | 20 | 21)), "the run after the reclaim ended with {code:?}");
        }
    }

    /// One that has ended meanwhile is past all blows, and its number may be another's by now.
    fn kill(&self, pid: Pid, signal: Signal) {
        if self.bed.mark().pids().contains(&pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Writes a whole number to a file at once.
fn put(path: &Path, number: u64) {
    let next = path.with_extension("next");
    fs::write(&next, number.to_string()).expect("the test's folder can be written");
    fs::rename(next, path).expect("the test's folder can be written");
}

#[test]
#[expect(clippy::print_stdout, reason = "a round is played again by its seed")]
fn of_eight_runs_that_claim_at_once_and_are_killed_at_random_never_two_are_at_work() {
    let bed = Bed::take();
    let seen = Seen::default();
    let seeds = seeds();
    println!("the seeds of the rounds: {seeds:?}");
    for seed in &seeds {
        let folder = bed.file(&format!("round-{seed}"));
        fs::create_dir_all(&folder).expect("the test's folder can be written");
        Round { bed: &bed, seed: *seed, folder, ended: AtomicUsize::new(0), seen: &seen }.play();
    }
    if seeds.len() > 1 {
        let all = seeds.len();
        let more = |counter: &AtomicUsize, than: usize| counter.load(Ordering::Relaxed) > than;
        assert!(more(&seen.began, all) && more(&seen.blows, all) && more(&seen.released, all / 2), "{seen:?}");
        // In few rounds there may be none that leaves its lock at the end, but some person reclaims one.
        assert!(more(&seen.blocked, all) && (!soak() || more(&seen.left, all / 20)), "{seen:?}");
        assert!(more(&seen.believed, all) && more(&seen.reclaimed, 0) && more(&seen.lost, 0), "{seen:?}");
        println!("{seen:?}");
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
