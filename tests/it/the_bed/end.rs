//! The end of the bed: nothing stays, however it comes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal};

use crate::bed::child::{Mark, command};
use crate::bed::control_plane::Start;
use crate::bed::described::Described;
use crate::bed::pool::Plane;
use crate::bed::{Bed, wait};

/// A process that lives on, in a session of its own, and carries the bed's mark.
fn start_straggler(mark: &Mark) {
    let mut straggler = command(Path::new("setsid"));
    straggler.args(["--fork", "sleep", "600"]).env(Mark::VARIABLE, mark.value()).stdin(Stdio::null());
    assert!(straggler.status().expect("setsid is part of util-linux").success());
    wait::fact("the straggler", || (!mark.pids().is_empty()).then_some(()));
}

fn wait_until_gone(described: &Described) {
    for (name, pid) in &described.pids {
        let path = PathBuf::from(format!("/proc/{pid}"));
        wait::fact(&format!("{name} to be gone"), || (!path.exists()).then_some(()));
    }
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).expect("a child that was not waited for can be killed");
}

/// Set in the process that the test below starts, to the file in which that one describes its bed.
const KEEPER: &str = "BED_TEST_KEEPER";

#[test]
#[expect(clippy::disallowed_methods, reason = "it plays two parts, and the environment says which")]
fn a_killed_test_process_leaves_nothing() {
    if let Some(file) = std::env::var_os(KEEPER) {
        let bed = Bed::fresh();
        start_straggler(&bed.mark());
        let text = serde_json::to_string(bed.described()).expect("it can be written as JSON");
        fs::write(Path::new(&file).with_extension("part"), text).expect("the test's folder can be written");
        fs::rename(Path::new(&file).with_extension("part"), &file).expect("the test's folder can be written");
        // Until it is killed.
        loop {
            std::thread::park();
        }
    }
    let scratch = tempfile::tempdir().expect("the temporary folder can be written");
    let file = scratch.path().join("described.json");
    let mut keeper = command(&std::env::current_exe().expect("a program knows where it is"))
        .args(["--exact", "the_bed::end::a_killed_test_process_leaves_nothing", "--nocapture"])
        .env(KEEPER, &file)
        .stdout(Stdio::null())
        .spawn()
        .expect("the tests can be started again");
    let described = wait::fact("the description of its bed", || fs::read(&file).ok());
    let described: Described = serde_json::from_slice(&described).expect("it was written as JSON");
    kill(keeper.id());
    keeper.wait().expect("it is our child");
    wait_until_gone(&described);
    wait::fact("the folder to be gone", || (!described.folder.exists()).then_some(()));
    assert_eq!(Mark::of(&described.folder).pids(), []);
}

#[test]
fn a_killed_bed_leaves_no_process() {
    let plane = Plane::start(Start::Pristine).expect("a control plane starts");
    let described = plane.described.clone();
    kill(plane.server_pid());
    wait_until_gone(&described);
    // The folder stays, as nobody is left to remove it; the next bed does, when it is old enough.
    fs::remove_dir_all(&described.folder).expect("it is still there");
}

#[test]
fn a_panic_gives_the_control_plane_back() {
    let panicked = std::thread::spawn(|| {
        let bed = Bed::take();
        start_straggler(&bed.mark());
        std::panic::resume_unwind(Box::new(bed.mark()))
    });
    let mark = panicked.join().expect_err("it panics").downcast::<Mark>().expect("it is what it panicked with");
    assert_eq!(mark.pids(), []);
    drop(Bed::take());
}
