//! A run that was left: it goes on, and is seen and stopped from elsewhere.

use serde_json::json;

use crate::bed::dcctl::Journal;
use crate::bed::disk::SmallDisk;
use crate::bed::junit::Report;
use crate::runs::{AT_WORK, REPORTING, Rig, ended, text, told};

#[test]
fn a_run_that_is_left_goes_on_holds_the_lock_and_is_waited_for() {
    let rig = Rig::new();
    let left = rig.detached(&[], AT_WORK).by_shell(REPORTING).with_pipes().run().expect_code(0);
    rig.wait_for("up");
    let id = rig.ids().pop().expect("there is a run");
    assert!(left.stderr.contains(&format!("run {id} goes on without this command, in ")), "{}", left.stderr);
    assert_eq!(rig.lease().expect("it is held")["spec"]["holderIdentity"], rig.list()[0]["holder"]);
    assert_eq!(rig.list()[0]["state"], "running");
    let early = rig.runs(&["wait", &id[..6], "--timeout", "1s"]).run().expect_code(30);
    assert!(early.stderr.contains("goes on, and the time to wait is over"), "{}", early.stderr);
    let waiting = rig.runs(&["wait", "latest"]).start();
    rig.let_go();
    waiting.finish().expect_code(0);
    assert_eq!((told(&rig.list()[0]), rig.lease()), (ended("succeeded", 0, "released"), None));
    // It reports as a run does that nobody has left.
    let events = rig.journal(&id).events();
    assert_eq!(Journal::at(rig.bed.file("left.jsonl")).events(), events);
    rig.bed.dcctl(["report", "junit", &id, "-o", "again.xml"]).run().expect_code(0);
    assert_eq!(Report::read(&rig.bed.file("left.xml")), Report::read(&rig.bed.file("again.xml")));
}

#[test]
fn a_run_that_does_not_get_the_lock_is_not_left_and_its_code_is_the_command_s() {
    let rig = Rig::new();
    let first = rig.at_work();
    let refused = rig.detached(&["--output", "jsonl"], "true").run().expect_code(20);
    assert_eq!(refused.verdict()["data"]["outcome"], "blocked");
    // One that is to wait for it is left waiting.
    rig.detached(&["--wait", "--output", "human"], "true").run().expect_code(0);
    let waits = rig.ids().pop().expect("there is a run");
    assert_eq!(rig.list().last().expect("it is listed")["state"], "running");
    rig.let_go();
    rig.runs(&["wait", &first]).run().expect_code(0);
    rig.runs(&["wait", &waits]).run().expect_code(0);
}

#[test]
fn its_end_is_its_own_exit_code_wherever_it_is_asked_for() {
    let rig = Rig::new();
    rig.detached(&["--propagate-exit-code"], "exit 7").run().expect_code(0);
    rig.runs(&["wait", "latest"]).run().expect_code(7);
    rig.runs(&["attach", "latest"]).run().expect_code(7);
    rig.runs(&["show", "latest"]).run().expect_code(0);
}

#[test]
fn its_verdict_is_in_its_journal_when_the_disk_was_full_of_output() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.bed.file("disk"), 1024, "") else { return };
    let at = disk.path().join("run").display().to_string();
    let flood = "i=0; while [ $i -lt 5000 ]; do printf '%0100d\n' $i; i=$((i+1)); done; exit 4";
    rig.detached(&["--run-dir", &at, "--propagate-exit-code"], flood).run().expect_code(0);
    rig.runs(&["wait", &at]).run().expect_code(4);
    let shown = rig.runs(&["show", &at, "--output", "human"]).run().expect_code(0);
    let last = text(&shown).lines().last().unwrap_or_default();
    assert!(last.contains("exit code 4 (exec.failed), the lock was released"), "{last}");
}

#[test]
fn to_stop_it_is_one_request_however_often_it_is_asked() {
    let rig = Rig::new();
    let id = rig.at_work();
    for _ in 0..3 {
        rig.runs(&["stop", &id]).run().expect_code(0);
    }
    rig.runs(&["wait", &id]).run().expect_code(10);
    assert_eq!((told(&rig.list()[0]), rig.lease()), (ended("stopped", 10, "released"), None));
    let events = rig.journal(&id).events();
    let interrupts = events.iter().filter(|event| event["type"] == "process.interrupted").count();
    let asked = events.iter().find(|event| event["type"] == "stop.requested").expect("it was asked");
    assert_eq!((interrupts, &asked["data"]["cause"]), (1, &json!("command")));
    let over = rig.runs(&["stop", &id]).run().expect_code(0);
    assert!(text(&over).contains("there is nothing to stop"), "{}", over.stdout);
}

#[test]
fn to_force_it_leaves_the_lock_and_says_so() {
    let rig = Rig::new();
    let id = rig.at_work();
    let asked = rig.runs(&["stop", "--force", &id]).run().expect_code(0);
    assert!(text(&asked).contains("end at once, which leaves the lock behind"), "{}", asked.stdout);
    rig.runs(&["wait", &id]).run().expect_code(12);
    assert_eq!(told(&rig.list()[0]), ended("forced", 12, "left"));
    assert!(rig.lease().is_some());
}

#[test]
fn a_run_that_takes_too_long_is_asked_to_stop() {
    let rig = Rig::new();
    rig.detached(&["--max-run-time", "2s", "--output", "human"], AT_WORK).run().expect_code(0);
    rig.runs(&["wait", "latest"]).run().expect_code(10);
    let events = rig.journal(&rig.ids()[0]).events();
    let asked = events.iter().find(|event| event["type"] == "stop.requested").expect("it was asked");
    assert_eq!(asked["data"]["cause"], "max_run_time");
    assert_eq!(rig.lease(), None);
}

#[test]
fn what_needs_the_command_to_stay_cannot_be_left() {
    let rig = Rig::new();
    for option in ["--dry-run", "--stdin"] {
        let refused = rig.detached(&[option, "--output", "jsonl"], "true").run().expect_code(3);
        let said = refused.verdict()["data"]["failure"]["message"].to_string();
        assert!(said.contains(&format!("--detach and {option} do not go together")), "{said}");
    }
}
