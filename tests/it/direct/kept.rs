//! A lock that is kept for longer than one renewal.

use serde_json::Value;

use crate::bed::wait;
use crate::direct::{Rig, of_kind, text};

#[test]
fn it_is_renewed_every_ten_seconds_and_the_file_is_another_each_time() {
    use std::os::unix::fs::MetadataExt;
    let rig = Rig::new();
    let run = rig.sh(&[], ": > @/up; until [ -e @/go ]; do sleep 0.05; done").start();
    rig.wait_for("up");
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
