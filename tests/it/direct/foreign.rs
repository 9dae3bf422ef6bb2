//! Run directories that others can write to: they choose what is overwritten there, where credentials go, and which
//! process is taken for a tool.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::untested;
use crate::direct::Rig;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// A run in this folder is refused; the sentence says these.
#[track_caller]
fn refused(rig: &Rig, folder: &Path, says: &[&str]) {
    let finished = rig.sh(&["--run-dir", &folder.display().to_string()], ": > @/ran").run().expect_code(4);
    let failure = &finished.verdict()["data"]["failure"];
    assert_eq!(failure["code"], "surroundings.run_dir", "{failure}");
    let message = failure["message"].as_str().expect("a sentence");
    assert!(says.iter().all(|part| message.contains(part)), "{message}");
    assert!(rig.read("ran").is_none() && rig.lease().is_none(), "it ran all the same");
}

#[test]
fn a_run_directory_that_others_may_write_to_is_refused_and_no_link_in_it_is_followed() {
    let rig = Rig::new();
    let folder = rig.file("run");
    fs::create_dir(&folder).expect("the test's folder can be written");
    let own = ["run.json", "ballast", "supervisor.log", "kubeconfig"];
    for name in own {
        fs::write(rig.file(name), "precious").expect("the test's folder can be written");
        symlink(rig.file(name), folder.join(name)).expect("the test's folder can be written");
    }
    mode(&folder, 0o777);
    refused(&rig, &folder, &["run", "may be written to by other users (mode 0777)"]);
    // What was put there before stays there.
    mode(&folder, 0o700);
    refused(&rig, &folder, &["kubeconfig is a link"]);
    for name in own {
        assert_eq!(rig.read(name).as_deref(), Some("precious"), "{name} was written through a link");
        fs::remove_file(folder.join(name)).expect("it is ours");
    }
    fs::DirBuilder::new().mode(0o700).create(folder.join("output")).expect("it is ours");
    mode(&folder.join("output"), 0o777);
    refused(&rig, &folder, &["output may be written to by other users"]);
    mode(&folder.join("output"), 0o700);
    rig.sh(&["--run-dir", &folder.display().to_string()], "true").run().expect_code(0);
}

#[test]
fn a_run_directory_of_another_user_or_by_the_link_of_one_is_refused() {
    let rig = Rig::new();
    let folder = rig.file("run");
    fs::create_dir(&folder).expect("the test's folder can be written");
    if chown(&folder, Some(1), None).is_err() {
        untested::say("a run directory of another user", "it takes root to give a folder away");
        return;
    }
    refused(&rig, &folder, &["belongs to another user (uid 1)"]);
    chown(&folder, Some(0), None).expect("root may take it back");
    let link = rig.file("link");
    symlink(rig.scratch.path(), &link).and_then(|()| lchown(&link, Some(1), None)).expect("root may give it away");
    refused(&rig, &link.join("run"), &["the link ", "belongs to another user"]);
    // One of our own may lead there.
    lchown(&link, Some(0), None).expect("root may take it back");
    rig.sh(&["--run-dir", &link.join("run").display().to_string()], "true").run().expect_code(0);
}

#[test]
fn a_state_folder_that_others_may_write_to_is_not_used() {
    let rig = Rig::new();
    let state = rig.file("state");
    fs::create_dir_all(state.join("dcctl/runs")).expect("the test's folder can be written");
    let run = || rig.sh(&[], "true").env("XDG_STATE_HOME", &state).run();
    for folder in ["dcctl/runs", "dcctl"] {
        mode(&state.join(folder), 0o777);
        let finished = run().expect_code(4);
        let failure = &finished.verdict()["data"]["failure"];
        assert!(failure["message"].to_string().contains("may be written to by other users"), "{failure}");
        mode(&state.join(folder), 0o755);
    }
    run().expect_code(0);
}

/// A record that others can have written names a process that has nothing to do with the run.
#[test]
fn a_record_that_others_can_have_written_names_no_tool() {
    let rig = Rig::new();
    let folder = rig.file("run");
    let stubborn = ": > @/up; trap ': > @/asked' TERM; until [ -e @/go ]; do sleep 0.05; done";
    let run = rig.sh(&["--run-dir", &folder.display().to_string()], stubborn).start();
    rig.wait_for("up");
    let mut bystander = command(Path::new("sleep")).arg("600").spawn().expect("every system has it");
    let record = fs::read_to_string(folder.join("tools/command")).expect("the run has written it");
    let mut record: Value = serde_json::from_str(&record).expect("it is JSON");
    let stat = fs::read_to_string(format!("/proc/{}/stat", bystander.id())).expect("it lives");
    let started: u64 =
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(19)?.parse().ok()).expect("a number");
    record["pid"] = json!(bystander.id());
    record["started"] = json!(started);
    let planted = folder.join("tools/another");
    fs::write(&planted, record.to_string()).expect("the folder is ours");
    mode(&planted, 0o666);
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it lives");
    rig.wait_for("asked");
    rig.mark("go");
    run.finish().expect_code(1);
    let lives = bystander.try_wait().expect("it is our child").is_none();
    bystander.kill().and_then(|()| bystander.wait()).expect("it is our child");
    assert!(lives, "a process that has nothing to do with the run was ended");
}
