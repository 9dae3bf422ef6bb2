//! A disk that does not answer: whoever writes to it stands still until it does.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::bed::child::command;
use crate::bed::dcctl::Journal;
use crate::lock::rig::{Rig, soak};

/// A file system in a file, which can be frozen. Dropped, it is thawed and gone.
struct StuckDisk(PathBuf);

impl StuckDisk {
    /// Makes one. Needs root, and a machine that has such file systems; nothing, and that is said, where not.
    #[expect(clippy::print_stderr, reason = "what is not tested here has to be seen")]
    fn mount(folder: &Path) -> Option<StuckDisk> {
        fs::create_dir_all(folder).expect("the test's folder can be written");
        let image = folder.with_extension("image");
        let made = File::create(&image).and_then(|file| file.set_len(16 << 20));
        made.expect("the test's folder can be written");
        let disk = StuckDisk(folder.to_owned());
        if run("mkfs.ext4", &["-q"], &image) && run_both("mount", &["-o", "loop"], &image, folder) {
            return Some(disk);
        }
        eprintln!("NOT TESTED: a disk that does not answer. No file system of its own could be mounted");
        None
    }

    fn freeze(&self) {
        assert!(run("fsfreeze", &["--freeze"], &self.0), "a mounted file system can be frozen");
    }

    fn thaw(&self) {
        run("fsfreeze", &["--unfreeze"], &self.0);
    }
}

impl Drop for StuckDisk {
    fn drop(&mut self) {
        self.thaw();
        // Lazily: a supervisor that is still ending has its working folder there.
        run("umount", &["--lazy"], &self.0);
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) -> bool {
    let done = command(Path::new(program)).args(arguments).arg(path).output();
    done.is_ok_and(|done| done.status.success())
}

fn run_both(program: &str, arguments: &[&str], from: &Path, to: &Path) -> bool {
    let done = command(Path::new(program)).args(arguments).arg(from).arg(to).output();
    done.is_ok_and(|done| done.status.success())
}

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
