//! The events that a run which goes well has not: it waits, is in doubt, is stopped, fails, or has to kill. A run is
//! killed right after each of them, too.

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::{Journal, Running};
use crate::bed::{Bed, Dcctl, Fault, Proxy, Rule, wait};
use crate::killed::{BREAK, VICTIMS, Victim, stands_still};
use crate::lock::rig::{LEASE, Rig, soak, text};

/// Who holds the lock that a run waits for.
const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// What the run is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// It waits for the lock.
    Blocked,
    /// Its claim got no answer.
    Doubt,
    /// It was asked to stop while OpenTofu is at work.
    Stop,
    /// OpenTofu fails.
    Diagnostic,
    /// Its command does not end, and is killed.
    Kill,
}

const POINTS: [Point; 5] = [Point::Blocked, Point::Doubt, Point::Stop, Point::Diagnostic, Point::Kill];

impl Point {
    fn event(self) -> &'static str {
        match self {
            Point::Blocked => "lock.blocked",
            Point::Doubt => "lock.waiting",
            Point::Stop => "stop.requested",
            Point::Diagnostic => "diagnostic",
            Point::Kill => "process.killed",
        }
    }

    /// A run that comes to it, not started yet, on a cluster that is made for it.
    fn run(self, bed: Bed) -> (Rig, Option<Proxy>, Dcctl) {
        let rig = Rig::on(bed);
        match self {
            Point::Blocked => {
                rig.other_holds(ALICE, "2020-01-01T00:00:00.000000Z");
                let run = rig.bootstrap("one").arg("--wait=30s");
                (rig, None, run)
            }
            Point::Doubt => {
                let proxy = Proxy::start(&rig.bed);
                proxy.add(Rule::on("POST", "/leases").nth(1).reply(Fault::Drop));
                let run = rig.bootstrap("one").with_kubeconfig(&proxy.kubeconfig("admin"));
                (rig, Some(proxy), run)
            }
            Point::Stop => {
                let rig = rig.stubborn_thing(6.0);
                let run = rig.bootstrap("one");
                (rig, None, run)
            }
            Point::Diagnostic => {
                let rig = rig.slow_thing(0.0);
                let broken = "resource \"bed_thing\" \"other\" { name = nowhere.to_be.found }\n";
                rig.bed.write("bundle/infra/more.tf", broken);
                let run = rig.bootstrap("one");
                (rig, None, run)
            }
            Point::Kill => {
                let script = "trap '' TERM; n=0; while [ $n -lt 60 ]; do sleep 0.1; n=$((n+1)); done";
                let run = rig.bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--stop-after", "1s"]);
                (rig, None, run.args(["--", "sh", "-c", script]))
            }
        }
    }

    /// Brings the run there.
    fn bring(self, rig: &Rig, run: &Running) {
        match self {
            Point::Blocked | Point::Doubt | Point::Diagnostic => {}
            Point::Stop => {
                rig.wait_until_in_flight(run);
                run.signal(Signal::TERM);
            }
            Point::Kill => {
                run.journal().wait_for("process.started", |_| true);
                run.signal(Signal::TERM);
            }
        }
    }
}

/// Kills a run there, and looks at what is left.
fn kill(point: Point, victim: Victim) {
    let (rig, _proxy, run) = point.run(Bed::take());
    let run_dir = rig.bed.file("run-dir");
    let run = run.env(BREAK, format!("after:{}", point.event()));
    // Options of dcctl's come before the command that it runs.
    let run = run.env("DCCTL_RUN_DIR", &run_dir).start();
    point.bring(&rig, &run);
    let supervisor = run.supervisor();
    wait::fact("the supervisor to stand still", || stands_still(supervisor).then_some(()));
    let kill = |signal| rustix::process::kill_process(supervisor, signal).expect("it stands still");
    match victim {
        Victim::Front => {
            run.signal(Signal::KILL);
            run.finish();
            kill(Signal::CONT);
        }
        Victim::Supervisor => {
            kill(Signal::KILL);
            let ended = run.finish();
            assert_eq!(ended.verdict()["data"]["failure"]["code"], "supervisor.killed", "{point:?}");
        }
        Victim::Both => {
            run.signal(Signal::STOP);
            kill(Signal::KILL);
            run.signal(Signal::KILL);
            run.finish();
        }
    }
    wait::fact("nothing of the run to be left", || rig.bed.mark().pids().is_empty().then_some(()));
    what_is_left_is_told(&rig, point, victim, &Journal::at(run_dir.join("events.jsonl")).events());
}

fn what_is_left_is_told(rig: &Rig, point: Point, victim: Victim, journal: &[Value]) {
    let context = format!("{victim:?} killed at {point:?}: {:#?}", journal.last());
    assert!(journal.iter().any(|event| event["type"] == point.event()), "{context}");
    let own = text(&journal[0]["data"]["holder"]);
    let (last, holder) = (journal.last().expect("there is a first event"), rig.holder());
    let others = point == Point::Blocked;
    assert!(holder.iter().all(|holder| *holder == if others { ALICE } else { &own }), "{context}: {holder:?}");
    let left = holder.is_some() && !others;
    if victim == Victim::Both {
        // Nobody was there to say more: the directory names the holder, and the Lease bears that name.
        assert_ne!(last["type"], "run.finished", "{context}");
        assert_eq!(left, !others, "{context}: {holder:?}");
    } else {
        assert_eq!(last["type"], "run.finished", "{context}");
        let said = text(&last["data"]["lock"]);
        let true_words: &[&str] = match (left, victim) {
            (true, _) => &["left", "unknown"],
            (false, Victim::Front) => &["released", "never_taken"],
            (false, Victim::Supervisor | Victim::Both) => &["released", "never_taken", "unknown"],
        };
        assert!(true_words.contains(&said.as_str()), "{context}: {holder:?}");
        assert!(victim != Victim::Front || !left, "{context}: {holder:?}");
    }
    if left {
        let status = rig.lock_status("human").arg("--exit-code").run().expect_code(20).stdout;
        assert!(status.contains(&own), "{context}: {status}");
        rig.bootstrap("two").run().expect_code(20);
    }
    if holder.is_some() {
        rig.bed.api().delete(LEASE).expect("the bed may do everything");
    }
    let next = rig.bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--", "true"]);
    assert_eq!(next.run().expect_code(0).verdict()["data"]["lock"], "released");
}

#[test]
fn who_is_killed_while_it_waits_doubts_stops_or_fails_leaves_what_is_told_of_it() {
    for (at, point) in POINTS.into_iter().enumerate() {
        // One after the other in turn; all of them with `DCCTL_SOAK=1`.
        for (number, victim) in VICTIMS.into_iter().enumerate() {
            if soak() || number == at % VICTIMS.len() {
                kill(point, victim);
            }
        }
    }
}
