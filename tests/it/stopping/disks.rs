//! Disks that are full while OpenTofu is at work: that of the run directory, and that of the state.

use std::fs;

use crate::bed::disk::SmallDisk;
use crate::stopping::rig::Rig;

/// Writes until nothing more fits.
fn fill(disk: &SmallDisk) {
    let full = fs::write(disk.path().join("fill"), vec![0; 8 << 20]).expect_err("it is larger than the disk");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

/// What it prints then is lost and that is said. It is not hurt: its state is elsewhere.
#[test]
fn an_opentofu_whose_output_finds_no_room_finishes_and_the_loss_is_said() {
    let rig = Rig::with_slow("  seconds = 3\n  behaviour = \"chatter\"\n  chatter_megabytes = 2\n");
    let Some(disk) = SmallDisk::mount(&rig.bed().file("disk"), 1536, "") else { return };
    let finished = rig.own().arg("--run-dir").arg(disk.path().join("run")).run().expect_code(0);
    let events = finished.events();
    let notes: Vec<&str> = events.iter().filter_map(|event| event["data"]["text"].as_str()).collect();
    assert!(notes.iter().any(|note| note.contains("was out of room for a time")), "{notes:?}");
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
    assert_eq!(rig.created("after"), 1);
    rig.assert_converges();
}

/// OpenTofu can save its state nowhere but beside its copy of the root; the file is kept, named first, and blocks further
/// applies until somebody has dealt with it.
#[test]
fn a_state_that_finds_no_room_is_kept_and_named_first() {
    let rig = Rig::new(3.0);
    let Some(disk) = SmallDisk::mount(&rig.state_dir(), 256, "") else { return };
    let run = rig.start();
    rig.wait_until_in_flight(&run);
    fill(&disk);
    let finished = run.finish().expect_code(1);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["failure"]["code"], "infrastructure.failed", "{verdict}");
    assert!(
        verdict["failure"]["message"].as_str().is_some_and(|said| said.contains("could not save its state")),
        "{verdict}"
    );
    let kept = verdict["kept"][0]["path"].as_str().expect("it was kept");
    let state = fs::read_to_string(kept).expect("it is there");
    assert!(state.contains("\"slow\"") && state.contains("\"lineage\""), "{state}");
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
    // The state's disk had no room for a copy, so the only record is in the directory of the run.
    let pruned = rig.bed().dcctl(["runs", "prune", "--older-than", "0s"]).run().expect_code(0);
    assert!(
        pruned.stdout.contains("kept ") && pruned.stdout.contains("infrastructure.errored.tfstate"),
        "{}",
        pruned.stdout
    );
    assert_eq!(fs::read_to_string(kept).expect("it is there still"), state);
    fs::remove_file(disk.path().join("fill")).expect("it was filled by the test");
    let again = rig.own().run().expect_code(6);
    assert_eq!(again.verdict()["data"]["failure"]["code"], "guard.state_errored");
}
