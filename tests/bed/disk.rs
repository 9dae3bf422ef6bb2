//! Disks that are no good: one that is soon full, a file system in memory of a few pages; and one that does not answer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::bed::child::command;
use crate::bed::untested;

/// A small disk. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Makes one of this many KiB at a folder that is made for it. Mounting needs root; nothing where it is not
    /// allowed, which is said, and fails the test where everything is required, as in CI.
    pub(crate) fn mount(folder: &Path, kibibytes: u32, options: &str) -> Option<SmallDisk> {
        fs::create_dir_all(folder).expect("the test's folder can be written");
        let options = format!("size={kibibytes}k,mode=0700{options}");
        let done = command(Path::new("mount")).args(["-t", "tmpfs", "-o", &options, "small"]).arg(folder).output();
        let why = match done {
            Ok(output) if output.status.success() => return Some(SmallDisk(folder.to_owned())),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("mount: {error}"),
        };
        untested::say("a full disk", &why);
        None
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a supervisor that is still ending has its working folder there.
        let _ = command(Path::new("umount")).arg("--lazy").arg(&self.0).output();
    }
}

/// A file system in a file, which can be frozen. Dropped, it is thawed and gone.
#[derive(Debug)]
pub(crate) struct StuckDisk(PathBuf);

impl StuckDisk {
    /// Makes one. Needs root, and a machine that has such file systems; nothing, and that is said, where not.
    pub(crate) fn mount(folder: &Path) -> Option<StuckDisk> {
        fs::create_dir_all(folder).expect("the test's folder can be written");
        let image = folder.with_extension("image");
        let made = File::create(&image).and_then(|file| file.set_len(16 << 20));
        made.expect("the test's folder can be written");
        let disk = StuckDisk(folder.to_owned());
        if run("mkfs.ext4", &["-q"], &image) && run_both("mount", &["-o", "loop"], &image, folder) {
            return Some(disk);
        }
        untested::say("a disk that does not answer", "no file system of its own could be mounted");
        None
    }

    /// From here on whoever writes there stands still.
    pub(crate) fn freeze(&self) {
        assert!(run("fsfreeze", &["--freeze"], &self.0), "a mounted file system can be frozen");
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) {
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
