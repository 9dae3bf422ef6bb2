//! An OpenTofu that can save its state nowhere but beside its copy of the root, or cannot even do that and prints it. What it
//! left is then the only record of what exists, and stays, whoever sees the end of the run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::Running;
use crate::bed::disk::SmallDisk;
use crate::bed::{LEASE, wait};
use crate::stopping::disks::fill;
use crate::stopping::rig::Rig;

/// What is created takes so long.
const CREATION: f64 = 5.0;

/// Where the state ends that finds no room where it belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a file beside the copy of the root.
    Beside,
    /// In what OpenTofu prints.
    Output,
}

const PLACES: [Place; 2] = [Place::Beside, Place::Output];

/// A run whose OpenTofu will find no room for its state where that belongs. The disk has to be kept until it has ended.
struct Homeless {
    rig: Rig,
    run: Running,
    run_dir: PathBuf,
    disk: SmallDisk,
    place: Place,
}

impl Homeless {
    /// Nothing where no disk can be had.
    fn start(place: Place) -> Option<Homeless> {
        let rig = Rig::new(CREATION);
        let disk = SmallDisk::mount(&rig.state_dir(), 256, "")?;
        let run = rig.start();
        rig.wait_until_in_flight(&run);
        let run_dir = rig.run_folders().pop().expect("a run has one");
        fill(&disk);
        if place == Place::Output {
            // It would replace a file, and a link.
            let copy = run_dir.join("private/infrastructure/infra");
            fs::create_dir_all(copy.join("errored.tfstate/in-the-way")).expect("the run's folder can be written");
        }
        Some(Homeless { rig, run, run_dir, disk, place })
    }

    /// What is kept has the whole state, nobody else may read it, and no tidying takes it away.
    #[track_caller]
    fn assert_kept(rig: &Rig, run_dir: &Path, place: Place) {
        let name = match place {
            Place::Beside => "infrastructure.errored.tfstate",
            Place::Output => "infrastructure.errored-output.jsonl",
        };
        let kept = run_dir.join(name);
        let state = fs::read_to_string(&kept).expect("it is there");
        assert!(state.contains("lineage") && state.contains("slow"), "{state}");
        assert_eq!(fs::metadata(&kept).expect("it is there").permissions().mode() & 0o077, 0);
        let pruned = rig.bed().dcctl(["runs", "prune", "--older-than", "0s"]).run().expect_code(0);
        assert!(kept.exists(), "{}", pruned.stdout);
    }
}

/// The verdict names first what was kept.
#[track_caller]
fn assert_named(verdict: &Value, stdout: &str) {
    assert!(verdict["kept"][0]["what"].to_string().contains("state that could not be saved"), "{verdict}");
    assert!(verdict["failure"].to_string().contains("could not save its state; it is kept in `"), "{verdict}");
    assert_eq!(verdict["lock"], "released", "{verdict}");
    assert!(!stdout.contains("lineage"), "the state was passed on");
}

#[test]
fn a_state_that_finds_no_place_is_kept_and_named_first() {
    for place in PLACES {
        let Some(Homeless { rig, run, run_dir, disk: _disk, place }) = Homeless::start(place) else { return };
        let finished = run.finish().expect_code(1);
        assert_named(&finished.verdict()["data"], &finished.stdout);
        Homeless::assert_kept(&rig, &run_dir, place);
    }
}

#[test]
fn who_takes_over_keeps_a_state_that_finds_no_place_and_names_it_first() {
    for place in PLACES {
        let Some(Homeless { rig, run, run_dir, disk: _disk, place }) = Homeless::start(place) else { return };
        Rig::kill_supervisor(&run);
        let finished = run.finish().expect_code(1);
        let verdict = finished.verdict()["data"].clone();
        assert_eq!(verdict["failure"]["code"], "supervisor.killed", "{verdict}");
        assert_named(&verdict, &finished.stdout);
        Homeless::assert_kept(&rig, &run_dir, place);
    }
}

#[test]
fn a_state_that_finds_no_place_after_both_were_killed_is_kept_and_named_by_the_next_run() {
    for place in PLACES {
        let Some(Homeless { rig, run, run_dir, disk, place }) = Homeless::start(place) else { return };
        let supervisor = run.supervisor();
        run.signal(Signal::STOP);
        rustix::process::kill_process(supervisor, Signal::KILL).expect("it runs");
        run.signal(Signal::KILL);
        run.finish();
        wait::fact("nothing of the run to be left", || rig.bed().mark().pids().is_empty().then_some(()));
        let pruned = rig.bed().dcctl(["runs", "prune", "--older-than", "0s"]).run().expect_code(0);
        assert!(run_dir.exists(), "the only record is gone: {}", pruned.stdout);
        // As a person does who knows that its holder is gone.
        rig.bed().api().delete(LEASE).expect("the bed may do everything");
        fs::remove_file(disk.path().join("fill")).expect("it was filled by the test");
        let next = rig.own().run().expect_code(6);
        let said = "Its OpenTofu could not save its state, which is kept in ";
        assert!(next.stdout.contains(said), "{}", next.stdout);
        assert_eq!(next.verdict()["data"]["failure"]["code"], "guard.state_errored");
        Homeless::assert_kept(&rig, &run_dir, place);
    }
}
