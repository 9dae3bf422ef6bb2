//! A run directory that has no more room, or a journal that somebody cuts short, while the command runs.

use std::fs;
use std::path::Path;

use crate::bed::disk::SmallDisk;
use crate::exec::Rig;

/// Nothing of the run is left that somebody would have to look after.
#[track_caller]
fn assert_tidy(rig: &Rig, run_dir: &Path) {
    assert_eq!(rig.lease(), None);
    assert!(!run_dir.join("kubeconfig").exists(), "credentials were left");
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
fn a_journal_that_does_not_fit_when_all_is_over_ends_with_a_whole_line_and_that_is_said() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.bed.file("disk"), 1024, "") else { return };
    let run_dir = disk.path().join("run");
    let at = run_dir.display().to_string();
    let script = "i=0; while [ $i -lt 5000 ]; do printf '%0100d\\n' $i; i=$((i+1)); done; : > @/done";
    let finished = rig.sh(&["--run-dir", &at], script).run().expect_code(0);
    assert!(finished.stderr.contains("was out of room for a time"), "{}", finished.stderr);
    let said = format!("dcctl: the journal {at}/events.jsonl is not complete: its last lines are missing (No space");
    assert!(finished.stderr.contains(&said), "{}", finished.stderr);
    assert!(finished.stderr.contains("exit code 0, the lock was released"), "{}", finished.stderr);
    let journal = fs::read_to_string(run_dir.join("events.jsonl")).expect("it is there");
    assert!(journal.ends_with("}\n"), "the journal has no whole last line");
    assert_tidy(&rig, &run_dir);
}
