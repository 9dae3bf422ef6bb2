//! A run is killed right after each of its events: its front, its supervisor, or both. Whatever the moment, what is
//! said is true, everybody sees whose the lock is, and a person and the next run get on from there.
//!
//! The supervisor is asked to stand still when its journal has the event, so the moment is exact.

mod points;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::dcctl::Journal;
use crate::bed::junit::Report;
use crate::bed::terminal::Seat;
use crate::bed::{Dcctl, wait};
use crate::lock::rig::{Rig, is_live_message, soak, text};

/// Asks a program that was built for tests to stand still.
const BREAK: &str = "DCCTL_TEST_BREAK";
/// Longer than a reclaim watches.
const WINDOW: u64 = 70;

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Front,
    Supervisor,
    Both,
}

const VICTIMS: [Victim; 3] = [Victim::Front, Victim::Supervisor, Victim::Both];

/// A cluster on which one run after the other is killed.
struct Morgue {
    rig: Rig,
    /// How many runs there were.
    runs: u64,
}

/// One run in front of its end.
struct Doomed {
    instance: String,
    after: String,
    victim: Victim,
    run_dir: PathBuf,
    holder: String,
}

impl Doomed {
    fn journal(&self) -> Vec<Value> {
        Journal::at(self.run_dir.join("events.jsonl")).events()
    }

    fn junit(&self) -> PathBuf {
        self.run_dir.with_extension("xml")
    }

    fn is_finished(&self) -> bool {
        self.after == "run.finished"
    }

    fn context(&self) -> String {
        format!("{:?} killed after {}, {}", self.victim, self.after, self.run_dir.display())
    }
}

impl Morgue {
    fn new() -> Morgue {
        Morgue { rig: Rig::new().slow_thing(0.0).declared().checked("exit 0"), runs: 0 }
    }

    /// The types of the events of a run that goes well, in the order of their first.
    fn types(&self) -> Vec<String> {
        let events = self.rig.bootstrap("whole").run().expect_code(0).events();
        let mut known = BTreeSet::new();
        let types = events.iter().map(|event| text(&event["type"]));
        types.filter(|kind| known.insert(kind.clone())).collect()
    }

    /// Kills a run, and goes through all that comes after it.
    fn kill(&mut self, after: &str, victim: Victim) {
        self.runs += 1;
        let instance = format!("k{}", self.runs);
        let run_dir = self.rig.bed.file(&format!("run-{instance}"));
        let run = self.rig.bootstrap(&instance).env(BREAK, format!("after:{after}")).arg("--run-dir").arg(&run_dir);
        let run = run.arg("--junit").arg(run_dir.with_extension("xml")).start();
        let supervisor = run.supervisor();
        wait::fact("the supervisor to stand still", || stands_still(supervisor).then_some(()));
        let holder = text(&run.wait_for("run.started", |_| true)["data"]["holder"]);
        let doomed = Doomed { instance, after: after.to_owned(), victim, run_dir, holder };
        let kill = |signal| rustix::process::kill_process(supervisor, signal).expect("it stands still");
        match victim {
            Victim::Front => {
                run.signal(Signal::KILL);
                assert_eq!(run.finish().killed_by(), Some(9));
                kill(Signal::CONT);
            }
            Victim::Supervisor => {
                kill(Signal::KILL);
                let code = i32::from(!doomed.is_finished());
                assert_eq!(run.finish().code(), Some(code), "{}", doomed.context());
            }
            Victim::Both => {
                // The front has no time to see that the supervisor is gone.
                run.signal(Signal::STOP);
                kill(Signal::KILL);
                run.signal(Signal::KILL);
                assert_eq!(run.finish().killed_by(), Some(9));
            }
        }
        self.look_at_what_it_said(&doomed);
        self.recover(&doomed);
    }

    /// What the run directory tells, beside what is in the cluster.
    fn look_at_what_it_said(&self, doomed: &Doomed) {
        let context = doomed.context();
        // A supervisor that lives sees its run through, and a tool that nobody signals runs to its end.
        wait::fact("nothing of the run to be left", || self.rig.bed.mark().pids().is_empty().then_some(()));
        let journal = doomed.journal();
        let last = journal.last().expect("there is a first event");
        let holder = self.rig.holder();
        if let Some(holder) = &holder {
            assert_eq!(*holder, doomed.holder, "{context}");
        }
        if doomed.victim == Victim::Both && !doomed.is_finished() {
            assert!(journal.iter().any(|event| event["type"] == doomed.after.as_str()), "{context}");
            assert_ne!(last["type"], "run.finished", "{context}");
            // Nobody was left to say more: its directory tells by which name to look for the lock.
            assert_eq!(text(&journal[0]["data"]["holder"]), doomed.holder, "{context}");
            self.look_at_the_reports(doomed);
            return;
        }
        assert_eq!(last["type"], "run.finished", "{context}");
        let verdict = &last["data"];
        let (code, lock) = (verdict["exit_code"].as_u64(), text(&verdict["lock"]));
        let failure = text(&verdict["failure"]["code"]);
        let expected: &[u64] = match doomed.victim {
            _ if doomed.is_finished() => &[0],
            Victim::Front => &[0, 10, 11],
            Victim::Supervisor | Victim::Both => &[1],
        };
        assert!(code.is_some_and(|code| expected.contains(&code)), "{context}: {verdict}");
        assert_eq!(failure == "supervisor.killed", code == Some(1), "{context}: {verdict}");
        let said: &[&str] = match (&holder, doomed.victim) {
            (Some(_), _) => &["left", "unknown"],
            (None, _) => &["released", "never_taken"],
        };
        assert!(said.contains(&lock.as_str()), "{context}: {verdict}");
        // Whoever is left of the two gives it back.
        assert!(doomed.victim == Victim::Both || holder.is_none(), "{context}: {verdict}");
    }

    /// The report of a run that nobody could end: what was written is whole, and what is made of the journal claims nothing.
    fn look_at_the_reports(&self, doomed: &Doomed) {
        let context = doomed.context();
        if doomed.junit().exists() {
            let report = Report::read(&doomed.junit());
            assert!(!report.with("error").is_empty(), "{context}: {}", report.text);
        }
        let made = self.rig.bed.file(&format!("made-{}.xml", doomed.instance));
        let again = self.rig.bed.dcctl(["report", "junit"]).arg(&doomed.run_dir).arg("-o").arg(&made);
        again.run().expect_code(0);
        let report = Report::read(&made);
        assert!(!report.with("error").is_empty(), "{context}: {}", report.text);
    }

    /// What everybody else sees and does, here and on a machine that knows nothing of the run.
    fn recover(&self, doomed: &Doomed) {
        let context = doomed.context();
        if let Some(holder) = self.rig.holder() {
            for run in [self.again(doomed), self.elsewhere(self.again(doomed))] {
                let blocked = run.run().expect_code(20);
                let said = text(&blocked.verdict()["data"]["failure"]["message"]);
                assert!(is_live_message(&said, &doomed.instance, &holder), "{context}: {said}");
            }
            for status in [self.rig.lock_status("human"), self.elsewhere(self.rig.lock_status("human"))] {
                let status = status.arg("--exit-code").run().expect_code(20).stdout;
                assert!(status.contains(&holder) && status.contains("bootstrap"), "{context}: {status}");
            }
            self.reclaim(&holder);
        }
        let again = self.again(doomed).run();
        // What had come to its end is live, and says so.
        let expected = if self.rig.phase(&doomed.instance).as_deref() == Some("Ready") { [0, 6] } else { [0, 0] };
        let code = again.code().unwrap_or(-1);
        assert!(expected.contains(&code), "{context}: {code}\n{}\n{}", again.stdout, again.stderr);
        assert_eq!(self.rig.phase(&doomed.instance).as_deref(), Some("Ready"), "{context}");
        assert_eq!(self.rig.holder(), None, "{context}");
        let things = usize::try_from(self.runs).expect("few") + 1;
        assert_eq!(self.rig.ledger.living("slow").len(), things, "{context}: a thing is missing, or is there twice");
    }

    /// A person on another machine, whose clock goes on for longer than the lock is valid.
    fn reclaim(&self, holder: &str) {
        let dcctl = self.rig.bed.dcctl(["instances", "reclaim", "--kube-context", "bed"]);
        let dcctl = dcctl.env("BED_SUSPENDED", self.rig.suspended()).env("TERM", "xterm");
        let seat = Seat::take(self.elsewhere(dcctl));
        seat.wait_for("or anything else to abort:\n> ");
        seat.type_line(holder);
        seat.wait_for("no renewal so far; ");
        self.rig.suspend(self.runs * WINDOW);
        assert!(seat.expect_code(0).ends_with("the cluster lock is now free\n"));
    }

    fn again(&self, doomed: &Doomed) -> Dcctl {
        self.rig.bootstrap(&doomed.instance)
    }

    fn elsewhere(&self, dcctl: Dcctl) -> Dcctl {
        let home = self.rig.bed.file("another-home");
        fs::create_dir_all(&home).expect("the test's folder can be written");
        dcctl.env("HOME", home)
    }
}

/// Whether a process was stopped.
fn stands_still(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

#[test]
fn whoever_is_killed_after_whichever_event_what_is_said_is_true_and_the_next_run_gets_on() {
    let mut morgue = Morgue::new();
    let types = morgue.types();
    for kind in ["run.started", "lock.claimed", "process.started", "resource.started", "lock.releasing", "run.finished"]
    {
        assert!(types.iter().any(|known| known == kind), "a run has no {kind}: {types:?}");
    }
    for (at, kind) in types.iter().enumerate() {
        // One after the other in turn; all of them with `DCCTL_SOAK=1`.
        for (number, victim) in VICTIMS.into_iter().enumerate() {
            if soak() || number == at % VICTIMS.len() {
                morgue.kill(kind, victim);
            }
        }
    }
}
