//! What a run depends on is gone in the middle of it: its directory, its journal, its supervisor. What is said is what
//! was seen, and the front ends as the supervisor did.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::dcctl::{Finished, Journal, Running};
use crate::bed::disk::SmallDisk;
use crate::bed::{Bed, Dcctl, Fault, Gate, Proxy, Rule, wait};
use crate::lock::rig::{Gate as Opening, Rig};
use crate::stopping::disks::fill;

/// The instance of every run here.
const INSTANCE: &str = "one";

/// The processes of a test whose command line has this word.
fn with_word(bed: &Bed, word: &str) -> Vec<Pid> {
    let says = |pid: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|said| said == word.as_bytes())
    };
    bed.mark().pids().into_iter().filter(says).collect()
}

/// Kills the supervisor of the one run of a test.
fn kill_supervisor(bed: &Bed) {
    let pid = wait::fact("the supervisor to be there", || with_word(bed, "__supervise").pop());
    rustix::process::kill_process(pid, Signal::KILL).expect("it is the test's own");
}

/// The same, once it stands still where it was told to.
fn kill_supervisor_that_stands_still(bed: &Bed) {
    let stands = |pid: &Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.contains(") T ")
    };
    let pid = wait::fact("the supervisor to stand still", || with_word(bed, "__supervise").into_iter().find(stands));
    rustix::process::kill_process(pid, Signal::KILL).expect("it is the test's own");
}

/// A run in a directory that the test knows.
fn in_directory(rig: &Rig, name: &str) -> (Dcctl, PathBuf) {
    let run_dir = rig.bed.file(name);
    (rig.bootstrap(INSTANCE).arg("--run-dir").arg(&run_dir), run_dir)
}

/// The last line that was shown is the supervisor's verdict, and the front ended with its code.
#[track_caller]
fn assert_the_supervisors_verdict(finished: &Finished, code: i32) -> Value {
    let verdict = finished.verdict()["data"].clone();
    assert_eq!(verdict["exit_code"], code, "{verdict}\n{}", finished.stderr);
    assert_eq!(finished.code(), Some(code), "{verdict}\n{}", finished.stderr);
    assert_ne!(verdict["failure"]["code"], "supervisor.killed", "{verdict}");
    verdict
}

/// Removes a folder that is written to meanwhile.
fn remove(folder: &Path) {
    wait::fact("the folder to be gone", || {
        let _ = fs::remove_dir_all(folder);
        (!folder.exists()).then_some(())
    });
}

#[test]
fn a_run_whose_directory_is_deleted_ends_with_the_verdict_of_its_supervisor() {
    let rig = Rig::new().gated();
    let gate = rig.gate(INSTANCE);
    let (run, run_dir) = in_directory(&rig, "run");
    let run = run.start();
    run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
    remove(&run_dir);
    gate.open(0);
    let verdict = assert_the_supervisors_verdict(&run.finish(), 0);
    assert_eq!(verdict["lock"], "released", "{verdict}");
    assert!(!verdict["kept"].to_string().contains("the run directory"), "{verdict}");
    assert_eq!(rig.holder(), None);
}

#[test]
fn a_stop_of_a_run_whose_directory_is_deleted_is_told_as_the_stop_that_it_is() {
    let rig = Rig::new().slow_thing(600.0);
    let (run, run_dir) = in_directory(&rig, "run");
    let run = run.start();
    rig.wait_until_in_flight(&run);
    remove(&run_dir);
    run.signal(Signal::TERM);
    let finished = run.finish();
    let code = finished.code().expect("it ended by itself");
    assert!([10, 11].contains(&code), "{}\n{}", finished.stdout, finished.stderr);
    let verdict = assert_the_supervisors_verdict(&finished, code);
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"stopped".into(), &"released".into()), "{verdict}");
    assert_eq!(rig.holder(), None);
}

/// A run whose check prints what the test wants when the gate is opened, on a disk that has no room any more: what tools print
/// has some elsewhere, what the run says has none but its ballast, if that is left.
struct Cramped {
    run: Running,
    gate: Opening,
    run_dir: PathBuf,
    _disk: SmallDisk,
}

impl Cramped {
    /// Nothing where no disk can be had.
    fn start(rig: &Rig, has_ballast: bool) -> Option<Cramped> {
        let gate = rig.gate(INSTANCE);
        let disk = SmallDisk::mount(&rig.bed.file("disk"), 1024, "")?;
        let run_dir = disk.path().join("run");
        let elsewhere = rig.bed.file("elsewhere");
        for folder in [&run_dir, &elsewhere] {
            fs::create_dir_all(folder).expect("the test's folder can be written");
        }
        symlink(&elsewhere, run_dir.join("output")).expect("the test's folder can be written");
        let run = rig.bootstrap(INSTANCE).arg("--run-dir").arg(&run_dir).env("GATE", gate.path()).start();
        run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
        if !has_ballast {
            fs::remove_file(run_dir.join("ballast")).expect("a run has some");
        }
        fill(&disk);
        assert_eq!(run_dir.join("ballast").exists(), has_ballast);
        Some(Cramped { run, gate, run_dir, _disk: disk })
    }
}

#[test]
fn a_verdict_that_the_full_disk_does_not_take_is_shown_all_the_same() {
    let rig = Rig::new().checked("read status < \"$GATE\" && seq 100000 101999");
    let Some(Cramped { run, gate, run_dir, _disk }) = Cramped::start(&rig, false) else { return };
    gate.open(0);
    let finished = run.finish();
    let verdict = assert_the_supervisors_verdict(&finished, 0);
    assert_eq!(verdict["lock"], "released", "{verdict}");
    let journal = Journal::at(run_dir.join("events.jsonl")).events();
    assert_eq!(journal.last().map(|event| &event["type"]), Some(&"run.finished".into()), "output makes way for it");
    assert!(finished.events().len() > journal.len() + 1500, "what had no room was not shown");
}

/// The ballast goes as soon as a line finds no room, while the tool is still at work: nothing else frees any by then.
#[test]
fn on_a_full_disk_the_ballast_makes_room_for_the_rest_of_the_journal_and_the_verdict() {
    let rig = Rig::new().checked("read status < \"$GATE\" && seq 100000 100199 && read status < \"$GATE\"");
    let Some(Cramped { run, gate, run_dir, _disk }) = Cramped::start(&rig, true) else { return };
    gate.open(0);
    Journal::at(run_dir.join("events.jsonl")).wait_for("process.output", |event| event["data"]["text"] == "100199");
    assert!(!run_dir.join("ballast").exists(), "the disk was not full");
    gate.open(0);
    let finished = run.finish();
    let verdict = assert_the_supervisors_verdict(&finished, 0);
    assert_eq!(verdict["lock"], "released", "{verdict}");
    let journal = Journal::at(run_dir.join("events.jsonl")).events();
    assert_eq!(journal, finished.events(), "a line is missing");
    let note = |event: &Value| event["data"]["text"].as_str().is_some_and(|said| said.contains("was out of room"));
    assert!(journal.iter().any(note), "that the disk was full was not said");
}

#[test]
fn what_stands_in_the_place_of_the_journal_is_somebody_else_s_and_stays() {
    let rig = Rig::new();
    for name in ["a-link", "a-folder"] {
        let (run, run_dir) = in_directory(&rig, name);
        fs::create_dir_all(&run_dir).expect("the test's folder can be written");
        let place = run_dir.join("events.jsonl");
        match name {
            "a-link" => symlink("missing/journal", &place),
            _ => fs::create_dir(&place),
        }
        .expect("the test's folder can be written");
        let finished = run.with_junit().run().expect_code(3);
        let verdict = finished.verdict()["data"].clone();
        assert_eq!(verdict["failure"]["code"], "config.option", "{verdict}");
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
        assert_eq!(finished.junit().only_bad().result, "error");
        assert!(!run_dir.join("kubeconfig").exists(), "a run that did not begin left its credentials");
        assert!(place.symlink_metadata().is_ok(), "what was there is gone");
        assert_eq!(rig.holder(), None);
    }
}

#[test]
fn a_supervisor_that_is_killed_before_its_first_word_leaves_a_whole_journal() {
    let rig = Rig::new();
    let (run, run_dir) = in_directory(&rig, "run");
    let run = run.env("DCCTL_TEST_BREAK", "stand:first-word").with_junit().start();
    kill_supervisor_that_stands_still(&rig.bed);
    let finished = run.finish().expect_code(1);
    let events = finished.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!((&kinds[..2], kinds.last()), (&["run.started", "run.planned"][..], Some(&"run.finished")), "{kinds:?}");
    let verdict = &events[events.len() - 1]["data"];
    assert_eq!(verdict["failure"]["code"], "supervisor.killed", "{verdict}");
    assert_eq!(verdict["counts"]["steps"]["skipped"], 9, "{verdict}");
    assert_ne!(verdict["lock"], "left", "{verdict}");
    assert_eq!(Journal::at(run_dir.join("events.jsonl")).events(), events);
    assert_eq!(finished.junit().with("error").len(), 1);
    assert!(!run_dir.join("kubeconfig").exists(), "the credentials were left");
}

#[test]
fn whoever_says_the_verdict_of_a_killed_supervisor_removes_the_credentials() {
    let rig = Rig::new();
    let (proxy, gate) = (Proxy::start(&rig.bed), Gate::new());
    proxy.add(Rule::on("GET", "/leases/dcctl").request(Fault::Hold(gate.clone())));
    let (run, run_dir) = in_directory(&rig, "run");
    let run = run.with_kubeconfig(&proxy.kubeconfig("admin")).start();
    gate.wait_for(1);
    let secret = run_dir.join("private/secret");
    fs::create_dir_all(run_dir.join("private")).and_then(|()| fs::write(&secret, "")).expect("it can be written");
    assert!(run_dir.join("kubeconfig").exists());
    kill_supervisor(&rig.bed);
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["failure"]["code"], "supervisor.killed", "{verdict}");
    for name in ["kubeconfig", "private", "ballast"] {
        assert!(!run_dir.join(name).exists(), "{name} was left");
    }
}

#[test]
fn a_check_whose_supervisor_was_killed_is_ended_and_its_credentials_are_removed() {
    let rig = Rig::new().gated();
    let _gate = rig.gate(INSTANCE);
    let (run, run_dir) = in_directory(&rig, "run");
    let run = run.start();
    run.wait_for("process.started", |event| event["data"]["program"] == "verify: It works");
    kill_supervisor(&rig.bed);
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    // Verify, the eighth, had begun.
    let steps = json!({ "done": 7, "failed": 1, "cut_off": 0, "skipped": 1 });
    assert_eq!(verdict["counts"]["steps"], steps, "{verdict}");
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&json!("supervisor.killed"), &json!("released")));
    let causes = verdict["failure"]["causes"].to_string();
    assert!(causes.contains("`verify: It works` ended when it was asked to stop"), "{verdict}");
    assert!(!run_dir.join("kubeconfig").exists(), "the credentials were left");
    assert!(rig.bed.mark().pids().is_empty(), "something of the run lives");
    assert_eq!(rig.holder(), None);
}
