//! Run directories that cannot be used, and disks that are full: exit code 4, before the lock.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};

use crate::bed::disk::SmallDisk;
use crate::bed::{Bed, untested};
use crate::refused::{install, small_bundle, told};

#[test]
fn a_run_directory_that_cannot_be_made_is_named() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    for (folder, says) in [("small/bundle.yaml/run", "Not a directory"), ("/proc/run", "No such file")] {
        let run = || install(&bed, &bundle).args(["--run-dir", folder]);
        told(&bed, run, 4, "surroundings.run_dir").never_began().says(&[
            "the run directory ",
            folder,
            "cannot be used",
            says,
            "--run-dir",
        ]);
    }
}

#[test]
fn a_state_folder_of_another_user_is_not_used() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let state = bed.file("home/.local/state/dcctl");
    fs::create_dir_all(&state).expect("the test's folder can be written");
    if chown(&state, Some(1), None).is_err() {
        untested::say("a state folder of another user", "it takes root to give a folder away");
        return;
    }
    told(&bed, || install(&bed, &bundle), 4, "surroundings.run_dir")
        .never_began()
        .says(&["belongs to another user", "--run-dir"]);
    chown(&state, Some(0), None).expect("root may take it back");
    // Nor is one of our own by a link of theirs.
    fs::rename(&state, bed.file("ours")).expect("the test's folder can be written");
    symlink(bed.file("ours"), &state).and_then(|()| lchown(&state, Some(1), None)).expect("root may give it away");
    told(&bed, || install(&bed, &bundle), 4, "surroundings.run_dir").never_began().says(&["belongs to another user"]);
}

#[test]
fn a_full_disk_is_told_before_the_lock() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let Some(disk) = SmallDisk::mount(&bed.file("disk"), 128, "") else { return };
    let run_dir = disk.path().join("run");
    told(&bed, || install(&bed, &bundle).arg("--run-dir").arg(&run_dir), 4, "surroundings.run_dir")
        .never_began()
        .says(&["cannot be used", "No space left on device", "Make room"]);
    assert!(!run_dir.exists(), "what could not be used was left");
}

#[test]
fn a_disk_that_cannot_be_written_is_told_before_the_lock() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let Some(disk) = SmallDisk::mount(&bed.file("disk"), 1024, ",ro") else { return };
    let run_dir = disk.path().join("run");
    told(&bed, || install(&bed, &bundle).arg("--run-dir").arg(&run_dir), 4, "surroundings.run_dir")
        .never_began()
        .says(&["cannot be used", "Read-only file system"]);
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_run_still_takes_its_verdict() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    // Room for the ballast, the kubeconfig, and one page of events.
    let Some(disk) = SmallDisk::mount(&bed.file("disk"), 264, "") else { return };
    let run_dir = disk.path().join("run");
    let run = install(&bed, &bundle).args(["--output", "jsonl", "--run-dir"]).arg(&run_dir).with_junit();
    let finished = run.run().expect_code(0);
    assert_eq!(finished.verdict()["data"]["lock"], "released");
    let journal = fs::read_to_string(run_dir.join("events.jsonl")).expect("it is there");
    assert_eq!(journal, finished.stdout + "\n");
    assert!(journal.len() > 4096, "it would have fitted: {} bytes", journal.len());
}

#[test]
fn a_report_on_a_full_disk_is_40_and_the_lock_is_given_back() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let Some(disk) = SmallDisk::mount(&bed.file("disk"), 4, "") else { return };
    fs::write(disk.path().join("fill"), [0; 4096]).expect("a page fits");
    for (option, name) in [("--events-file", "events.jsonl"), ("--junit", "junit.xml")] {
        let run = install(&bed, &bundle).args(["--output", "jsonl", option]).arg(disk.path().join(name));
        let finished = run.run().expect_code(40);
        let verdict = &finished.verdict()["data"];
        assert_eq!(verdict["lock"], "released", "{verdict}");
        let failed = finished.events().into_iter().find(|event| event["type"] == "report.failed").expect("it is said");
        assert!(failed["data"]["why"].as_str().is_some_and(|why| why.contains("No space left on device")), "{failed}");
    }
}
