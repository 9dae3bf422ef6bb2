//! Disks that are full while OpenTofu is at work: that of the run directory, and that of the state.

use std::fs;

use rustix::process::{Pid, Signal};

use crate::bed::disk::SmallDisk;
use crate::bed::wait;
use crate::stopping::rig::Rig;

/// Writes until nothing more fits.
pub(super) fn fill(disk: &SmallDisk) {
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

/// The journal has room of its own, so nothing but the disk of the output can tell: it is told when it is full, and when it
/// has room again. What came before it was full is there, and OpenTofu is not hurt.
#[test]
fn where_only_the_output_of_opentofu_finds_no_room_that_is_said_and_for_how_long() {
    let rig = Rig::new(8.0);
    let run_dir = rig.bed().file("run");
    let Some(disk) = SmallDisk::mount(&run_dir.join("output"), 128, "") else { return };
    let run = rig.own().arg("--run-dir").arg(&run_dir).start();
    rig.wait_until_in_flight(&run);
    fill(&disk);
    let note = |part: &'static str| {
        move |event: &serde_json::Value| event["data"]["text"].as_str().is_some_and(|text| text.contains(part))
    };
    let full = run.wait_for("note.made", note("the disk has no room for what tofu apply prints: "));
    let kept = full["data"]["text"].as_str().and_then(|text| text.split(": ").nth(1)?.split(' ').next()?.parse().ok());
    assert!(kept.is_some_and(|kept: u64| kept > 500), "{full}");
    fs::remove_file(disk.path().join("fill")).expect("it was filled by the test");
    let again = run.wait_for("note.made", note("the disk has room again for what tofu apply prints, after "));
    let finished = run.finish().expect_code(0);
    assert!(again["data"]["text"].as_str().is_some_and(|text| text.ends_with(" s in which it was lost")), "{again}");
    let out_of_room = |event: &serde_json::Value| event.to_string().contains("was out of room");
    assert!(!finished.events().iter().any(out_of_room), "the journal had room: {}", finished.stdout);
    let verdict = &finished.verdict()["data"];
    assert_eq!((&verdict["lock"], rig.lease()), (&"released".into(), None), "{verdict}");
    assert_eq!(rig.created("after"), 1);
    rig.assert_converges();
}

/// Nothing it says is heard, so nothing is said to have been left undone: neither that it was stopped before anything, nor
/// that all of it is complete.
#[test]
fn a_stop_of_an_opentofu_whose_output_finds_no_room_is_not_called_clean() {
    for is_killed in [false, true] {
        let rig = Rig::new(8.0);
        let run_dir = rig.bed().file("run");
        let Some(disk) = SmallDisk::mount(&run_dir.join("output"), 128, "") else { return };
        let run = rig.own().arg("--run-dir").arg(&run_dir).start();
        let pid =
            run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply")["data"]["pid"].clone();
        fill(&disk);
        wait::fact("the creation to begin", || (rig.created("slow") == 1).then_some(()));
        run.signal(Signal::TERM);
        if is_killed {
            run.wait_for("process.interrupted", |_| true);
            let pid = pid.as_i64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?)).expect("a number");
            rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
        }
        let finished = run.finish().expect_code(11);
        let verdict = &finished.verdict()["data"];
        assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&"stopped.partial".into(), &"released".into()));
        let said = verdict.to_string();
        assert!(said.contains("PARTIALLY APPLIED") && !said.contains("before anything"), "{said}");
    }
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
