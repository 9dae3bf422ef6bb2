//! A run directory that has no more room, or a journal that somebody cuts short, while the command runs.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::bed::disk::SmallDisk;
use crate::bed::{Dcctl, wait};
use crate::exec::Rig;

/// A script of the shell in which `"$@"` is a run: it may write no file larger than this many units, which are half a
/// KiB or one, as the shell has it.
fn limited(units: u32) -> String {
    format!("ulimit -f {units} && exec \"$@\"")
}

/// A run that a shell starts, its outputs read by the test.
fn read(mut run: Dcctl) -> Dcctl {
    run.command().stdout(Stdio::piped()).stderr(Stdio::piped());
    run
}

/// Nothing of the run is left that somebody would have to look after.
#[track_caller]
fn assert_tidy(rig: &Rig, run_dir: &Path) {
    assert_eq!(rig.lease(), None);
    assert!(!run_dir.join("kubeconfig").exists(), "credentials were left");
}

#[test]
fn a_limit_on_the_size_of_files_ends_neither_the_run_nor_its_verdict() {
    let rig = Rig::new();
    let (run_dir, journal) = rig.run_dir("run");
    let at = run_dir.display().to_string();
    // The command prints less than the limit, the lines of the journal are more. Its own file is its own affair.
    let script = "i=0; while [ $i -lt 4000 ]; do printf '%0100d\\n' $i; i=$((i+1)); done; \
                  head -c 9000000 /dev/zero > @/large; echo $? > @/status";
    let run = rig.sh(&["--run-dir", &at], script).by_shell(&limited(1024));
    let finished = read(run).run().expect_code(0);
    let last = finished.stderr.lines().find(|line| line.starts_with("exec sh succeeded"));
    assert!(last.is_some_and(|line| line.ends_with("exit code 0, the lock was released")), "{}", finished.stderr);
    assert!(finished.stderr.contains("was out of room for a time"), "{}", finished.stderr);
    let said = format!("dcctl: the journal {} is not complete", journal.path().display());
    assert!(finished.stderr.contains(&said), "{}", finished.stderr);
    assert_eq!(finished.stdout.lines().count(), 4000);
    let text = fs::read_to_string(journal.path()).expect("it is there");
    assert!(text.len() > 500_000 && text.ends_with("}\n"), "the journal has no whole last line");
    // The command has the system's own way with that limit: SIGXFSZ.
    assert_eq!(rig.read("status"), Some(b"153\n".to_vec()));
    assert_tidy(&rig, &run_dir);
}

#[test]
fn a_limit_that_leaves_no_room_for_a_run_is_told_before_the_lock() {
    let rig = Rig::new();
    let (run_dir, _) = rig.run_dir("run");
    let at = run_dir.display().to_string();
    for units in [0, 1, 20] {
        let run = rig.bed.dcctl(["exec", "--output", "jsonl", "--run-dir", &at, "--", "true"]);
        let finished = read(run.by_shell(&limited(units))).run().expect_code(4);
        let failure = finished.verdict()["data"]["failure"].clone();
        assert_eq!(failure["code"], "surroundings.run_dir", "{failure}");
        assert!(failure["causes"].to_string().contains("File too large"), "{failure}");
        assert_tidy(&rig, &run_dir);
    }
}

#[test]
fn a_disk_that_was_full_has_the_whole_journal_once_the_output_is_gone() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.bed.file("disk"), 1024, "") else { return };
    let run_dir = disk.path().join("run");
    let at = run_dir.display().to_string();
    // Some 200 KiB, of which the journal makes 900: either fits, both do not.
    let script = "i=0; while [ $i -lt 2050 ]; do printf '%0100d\\n' $i; i=$((i+1)); done";
    let finished = rig.sh(&["--output", "jsonl", "--run-dir", &at], script).run().expect_code(0);
    assert!(finished.stdout.contains("was out of room for a time"), "the disk was never full");
    let journal = fs::read_to_string(run_dir.join("events.jsonl")).expect("it is there");
    assert_eq!(journal.lines().count(), finished.stdout.lines().count());
    assert!(journal == finished.stdout.clone() + "\n", "the journal has something else");
    assert_eq!(finished.stderr, "");
    assert_tidy(&rig, &run_dir);
}

#[test]
fn in_a_journal_that_does_not_fit_when_all_is_over_output_makes_way_for_the_verdict_and_that_is_said() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.bed.file("disk"), 1024, "") else { return };
    let run_dir = disk.path().join("run");
    let at = run_dir.display().to_string();
    let script = "i=0; while [ $i -lt 5000 ]; do printf '%0100d\\n' $i; i=$((i+1)); done; : > @/done";
    let finished = rig.sh(&["--run-dir", &at], script).run().expect_code(0);
    assert!(finished.stderr.contains("was out of room for a time"), "{}", finished.stderr);
    let said =
        finished.stderr.lines().find(|line| line.contains(&format!("the journal {at}/events.jsonl is not complete: ")));
    assert!(said.is_some_and(|line| line.ends_with(" events are missing in it")), "{}", finished.stderr);
    assert!(finished.stderr.contains("exit code 0, the lock was released"), "{}", finished.stderr);
    let journal = fs::read_to_string(run_dir.join("events.jsonl")).expect("it is there");
    assert!(journal.ends_with("}\n"), "the journal has no whole last line");
    assert!(journal.lines().last().is_some_and(|line| line.contains("\"type\":\"run.finished\"")), "it has no verdict");
    assert_tidy(&rig, &run_dir);
}

/// The lines that said that it has the lock are gone, and a later one is there.
#[test]
fn who_takes_over_after_the_journal_was_cut_short_gives_the_lock_back_all_the_same() {
    let rig = Rig::new();
    let (run_dir, journal) = rig.run_dir("run");
    // Given by the shell, so that nobody holds this journal against the rules.
    let by = format!("DCCTL_RUN_DIR={} exec \"$@\"", run_dir.display());
    let run = read(rig.sh(&[], ": > @/up; exec sleep 600").by_shell(&by)).start();
    rig.wait_for("up");
    let holder = rig.lease().expect("it has the lock")["spec"]["holderIdentity"].clone();
    let supervisor = holder.as_str().and_then(|holder| holder.split('/').nth(1)?.parse().ok()).and_then(Pid::from_raw);
    File::options().write(true).open(journal.path()).and_then(|file| file.set_len(0)).expect("it is there");
    wait::fact("a renewal to be told", || fs::read_to_string(journal.path()).ok().filter(|text| text.ends_with('\n')));
    rustix::process::kill_process(supervisor.expect("a process id"), Signal::KILL).expect("it runs");
    run.finish().expect_code(1);
    assert_eq!(rig.lease(), None, "the lock was left");
    assert_tidy(&rig, &run_dir);
}

#[test]
fn a_journal_that_is_cut_short_under_way_is_said_and_the_verdict_is_shown() {
    let rig = Rig::new();
    let (run_dir, journal) = rig.run_dir("cut");
    let script = "[ -s @/cut/events.jsonl ] && : > @/cut/events.jsonl && echo after";
    // Given by the shell, so that nobody holds this journal against the rules.
    let by = format!("DCCTL_RUN_DIR={} exec \"$@\"", run_dir.display());
    let finished = read(rig.sh(&[], script).by_shell(&by)).run().expect_code(0);
    assert_eq!(finished.stdout, "after");
    let last = finished.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("exec sh succeeded"), "{}", finished.stderr);
    assert!(finished.stderr.contains("was cut short by somebody else"), "{}", finished.stderr);
    let text = fs::read_to_string(journal.path()).expect("it is there");
    assert!(text.lines().last().is_some_and(|line| line.contains("\"type\":\"run.finished\"")), "{text}");
    assert_tidy(&rig, &run_dir);
}
