//! Folders that cannot keep a lock, each said with what to do, before anything is started.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::bed::child::command;
use crate::bed::disk::SmallDisk;
use crate::direct::{Rig, text};

/// An `exec` with this lock folder.
fn exec(rig: &Rig, folder: &Path) -> crate::bed::Dcctl {
    let run = rig.bare(&["exec", "--output", "jsonl", "--substrate", "direct", "--lock-dir"]).arg(folder);
    run.args(["--", "touch", "started"])
}

/// It is refused with 4, and both other commands say the same. Answers the failure.
#[track_caller]
fn refused(rig: &Rig, folder: &Path, says: &[&str]) -> Value {
    let verdict = exec(rig, folder).run().expect_code(4).verdict();
    let failure = verdict["data"]["failure"].clone();
    assert_eq!(failure["code"], "surroundings.lock_dir", "{failure}");
    assert!(text(&failure["message"]).contains(&folder.display().to_string()), "{failure}");
    let told = failure.to_string();
    for part in says {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    let status = rig.bare(&["lock", "status", "--substrate", "direct", "--lock-dir"]).arg(folder).run().expect_code(4);
    assert!(status.stderr.contains("(surroundings.lock_dir, exit code 4)"), "{}", status.stderr);
    assert_eq!(rig.read("started"), None);
    failure
}

#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let rig = Rig::new();
    let folder = rig.file("missing");
    refused(&rig, &folder, &["No such file or directory", "install -d -m 2770"]);
    assert!(!folder.exists());
}

#[test]
fn a_file_and_a_link_are_no_folders() {
    let rig = Rig::new();
    fs::write(rig.file("file"), "").expect("the test's folder can be written");
    refused(&rig, &rig.file("file"), &["Not a directory", "Name a folder"]);
    // Whoever may turn a link could move the lock from under everybody. Before the last part of the path it is fine.
    symlink(rig.lock_dir(), rig.file("link")).expect("the test's folder can be written");
    let real = rig.lock_dir().canonicalize().expect("it is there").display().to_string();
    refused(&rig, &rig.file("link"), &["is a symbolic link", &real]);
    symlink(rig.scratch.path(), rig.file("above")).expect("the test's folder can be written");
    exec(&rig, &rig.file("above/lock")).run().expect_code(0);
}

/// With something behind it the system follows a link before it looks at what it found.
#[test]
fn a_link_is_refused_whatever_stands_behind_it_and_two_runs_never_hold_two_locks() {
    let rig = Rig::new();
    let link = rig.file("link");
    symlink(rig.lock_dir(), &link).expect("the test's folder can be written");
    for behind in ["/", "//", "/.", "/./", "/.//./"] {
        let folder = format!("{}{behind}", link.display());
        let verdict = exec(&rig, Path::new(&folder)).run().expect_code(4).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(failure["code"], "surroundings.lock_dir", "{folder}: {failure}");
        assert!(text(&failure["message"]).contains("is a symbolic link"), "{folder}: {failure}");
        let status = rig.bare(&["lock", "status", "--substrate", "direct", "--lock-dir", &folder]);
        assert!(status.run().expect_code(4).stderr.contains("is a symbolic link"), "{folder}");
    }
    assert_eq!(rig.read("started"), None);
    // The folder itself has one name, and one lock, by each of them.
    for behind in ["/", "//", "/.", "/./"] {
        let folder = format!("{}{behind}", rig.lock_dir().display());
        let events = exec(&rig, Path::new(&folder)).run().expect_code(0).events();
        assert_eq!(events[0]["data"]["lock_dir"], rig.lock_dir().display().to_string());
    }
}

/// `/proc` is on every machine, and nobody shares it.
#[test]
fn a_file_system_whose_locks_nobody_else_is_known_to_see_is_refused_by_its_name() {
    let rig = Rig::new();
    refused(&rig, Path::new("/proc/self"), &["is a symbolic link"]);
    refused(&rig, Path::new("/proc"), &["is on proc, and dcctl does not know that a file lock there", "on NFS"]);
    refused(&rig, Path::new("/sys"), &["is on sysfs, "]);
}

#[test]
fn other_disks_of_this_machine_can_keep_a_lock() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.file("disk"), 1024, "") else { return };
    let finished = exec(&rig, disk.path()).run().expect_code(0);
    let note = finished.events().iter().find(|event| event["type"] == "step.finished").cloned().expect("a step");
    assert!(text(&note["data"]["note"]).contains("shared by the processes of this machine"), "{note}");
}

#[test]
fn the_inside_of_a_container_is_said_to_be_that() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.file("disk"), 4096, "") else { return };
    let part = |name: &str| disk.path().join(name);
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(part(name)).expect("the disk can be written");
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        part("lower").display(),
        part("upper").display(),
        part("work").display()
    );
    let mounted =
        command(Path::new("mount")).args(["-t", "overlay", "-o", &options, "over"]).arg(part("merged")).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        crate::bed::untested::say("a lock folder on overlay", &format!("{mounted:?}"));
        return;
    }
    let finished = exec(&rig, &part("merged")).run();
    let _ = command(Path::new("umount")).arg(part("merged")).output();
    let events = finished.expect_code(0).events();
    let said = events.iter().any(|event| text(&event["data"]["note"]).contains("mostly one container's own"));
    assert!(said, "{events:?}");
}

#[test]
fn a_disk_that_is_full_or_read_only_is_said() {
    let rig = Rig::new();
    let Some(disk) = SmallDisk::mount(&rig.file("disk"), 16, "") else { return };
    fs::write(disk.path().join("filling"), vec![0; 64 << 10]).expect_err("it is small");
    let verdict = exec(&rig, disk.path()).run().expect_code(4).verdict();
    let failure = &verdict["data"]["failure"];
    assert!(failure["causes"].to_string().contains("No space left on device"), "{failure}");
    assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&"surroundings.lock_dir".into(), &"never_taken".into()));
    drop(disk);
    let Some(disk) = SmallDisk::mount(&rig.file("disk"), 64, ",ro") else { return };
    let verdict = exec(&rig, disk.path()).run().expect_code(4).verdict();
    assert!(verdict.to_string().contains("Read-only file system"), "{verdict}");
    assert!(
        verdict.to_string().contains("mount it for writing") && !verdict.to_string().contains("chmod"),
        "{verdict}"
    );
    // One may look at it.
    rig.bare(&["lock", "status", "--substrate", "direct", "--lock-dir"]).arg(disk.path()).run().expect_code(0);
}

#[test]
fn a_path_that_leads_back_to_itself_is_said_at_once() {
    let rig = Rig::new();
    symlink("loop", rig.file("loop")).expect("the test's folder can be written");
    refused(&rig, &rig.file("loop/x"), &["Too many levels of symbolic links", "leads back to itself"]);
}
