//! A disk that does not answer: whoever writes to it stands still until it does.

use crate::bed::dcctl::Journal;
use crate::bed::disk::StuckDisk;
use crate::lock::rig::{Rig, soak};

/// Only with `DCCTL_SOAK=1`: a test that is killed in the middle of it leaves a frozen file system behind.
#[test]
fn the_lock_is_renewed_while_the_disk_of_the_run_directory_does_not_answer() {
    if !soak() {
        return;
    }
    let rig = Rig::new().gated();
    let disk = StuckDisk::mount(&rig.bed.file("disk")).expect("a file system that can be frozen: this takes root");
    let gate = rig.gate("one");
    let run_dir = rig.bed.file("disk/run");
    let run = rig.bootstrap("one").arg("--run-dir").arg(&run_dir).start();
    let journal = Journal::at(run_dir.join("events.jsonl"));
    journal.wait_for("process.started", |_| true);
    disk.freeze();
    rig.wait_for_renewal();
    rig.wait_for_renewal();
    rig.wait_for_renewal();
    disk.thaw();
    gate.open(0);
    let done = run.finish().expect_code(0);
    assert_eq!(done.verdict()["data"]["lock"], "released");
    assert_eq!(rig.lease(), None);
}
