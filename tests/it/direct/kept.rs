//! A lock that is kept for longer than one renewal.

use serde_json::{Value, json};

use crate::bed::disk::StuckDisk;
use crate::bed::wait;
use crate::direct::{Rig, of_kind, soak, text};

#[test]
fn it_is_renewed_every_ten_seconds_and_the_file_is_another_each_time() {
    use std::os::unix::fs::MetadataExt;
    let rig = Rig::new();
    let run = rig.hold();
    let inode = || std::fs::metadata(rig.lease_path()).expect("it is held").ino();
    let of = |lease: &Value, pointer: &str| text(lease.pointer(pointer).unwrap_or_default());
    let first = rig.settled();
    let (was, at) = (inode(), of(&first, "/spec/renewTime"));
    let second = wait::fact("a renewal", || rig.lease().filter(|lease| of(lease, "/spec/renewTime") != at));
    let version = |lease: &Value| of(lease, "/metadata/resourceVersion").parse::<u64>().expect("a number");
    assert_eq!(version(&second), version(&first) + 1);
    assert_eq!(of(&second, "/metadata/uid"), of(&first, "/metadata/uid"));
    assert_ne!(inode(), was, "it was written over in place");
    rig.mark("go");
    let events = run.finish().expect_code(0).events();
    let renewed = of_kind(&events, "lock.renewed");
    // One before anything began, one for the command's start, and one by time.
    assert!(renewed.len() >= 3, "{renewed:?}");
    assert!(renewed.iter().all(|event| event["data"]["took_ms"].as_u64().is_some_and(|took| took < 5_000)));
}

/// Only with `DCCTL_SOAK=1`: a test that is killed in the middle of it leaves a frozen file system behind.
#[test]
fn a_lock_folder_whose_disk_does_not_answer_is_said_and_costs_nothing_if_it_comes_back() {
    if !soak() {
        return;
    }
    let rig = Rig::new();
    let disk = StuckDisk::mount(&rig.lock_dir()).expect("a file system that can be frozen: this takes root");
    let run = rig.hold();
    rig.settled();
    disk.freeze();
    let failed = run.wait_for("lock.renewal_failed", |_| true);
    assert!(text(&failed["data"]["why"]).contains("the file system of"), "{failed}");
    // Looking is not writing, and one signal ends whoever waits for a disk.
    rig.dcctl(&["lock", "status"]).run().expect_code(0);
    disk.thaw();
    run.wait_for("lock.renewed", |event| event["elapsed_ms"].as_u64() > failed["elapsed_ms"].as_u64());
    rig.mark("go");
    let finished = run.finish().expect_code(0);
    assert_eq!((&finished.verdict()["data"]["lock"], rig.lease()), (&json!("released"), None));
}
