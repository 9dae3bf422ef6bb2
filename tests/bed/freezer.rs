//! A control group in which processes stand still so that not even SIGKILL acts on them before they are let go on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bed::{untested, wait};

/// Where version 1 of the kernel's control groups has it. Version 2 lets a frozen process be killed.
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// One such group. Dropped, those in it go on, and it is gone.
#[derive(Debug)]
pub(crate) struct Freezer(PathBuf);

impl Freezer {
    /// Makes one. Needs root, and a machine that has the first version of control groups; nothing where not, which is
    /// said, and fails the test where everything is required, as in CI.
    pub(crate) fn new() -> Option<Freezer> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("dcctl-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Path::new(FREEZER).join(name);
        match fs::create_dir(&folder) {
            Ok(()) => Some(Freezer(folder)),
            Err(error) => {
                untested::say("a process that not even SIGKILL ends", &format!("{}: {error}", folder.display()));
                None
            }
        }
    }

    /// This process stands still from here on.
    pub(crate) fn freeze(&self, pid: u32) {
        self.write("cgroup.procs", &pid.to_string());
        self.write("freezer.state", "FROZEN");
        let state = self.0.join("freezer.state");
        wait::fact("the process to stand still", || {
            fs::read_to_string(&state).is_ok_and(|state| state.trim() == "FROZEN").then_some(())
        });
    }

    /// Those in it go on, or end if they were killed meanwhile.
    pub(crate) fn thaw(&self) {
        self.write("freezer.state", "THAWED");
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).expect("the group is ours");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let parent = self.0.with_file_name("cgroup.procs");
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(&parent, pid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}
