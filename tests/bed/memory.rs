//! A control group with hardly any memory: the kernel kills a process in it that needs more, as it does with those of a
//! container that has reached its limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::bed::{untested, wait};

/// Where version 1 of the kernel's control groups has it.
const FIRST: &str = "/sys/fs/cgroup/memory";
/// Where version 2 has all of them.
const SECOND: &str = "/sys/fs/cgroup";

/// One such group. Dropped, it is gone, and those in it are back where they could have what they need.
#[derive(Debug)]
pub(crate) struct Scarcity {
    folder: PathBuf,
    /// The file in which the kernel counts whom it killed.
    counted: &'static str,
}

impl Scarcity {
    /// Makes one. Needs root and a machine that lets it; nothing where not, which is said, and fails the test where everything
    /// is required, as in CI.
    pub(crate) fn new() -> Option<Scarcity> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("dcctl-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let kinds = [(FIRST, "memory.limit_in_bytes", "memory.oom_control"), (SECOND, "memory.max", "memory.events")];
        let mut why = String::new();
        for (place, limit, counted) in kinds {
            let folder = Path::new(place).join(&name);
            let made = fs::create_dir(&folder).and_then(|()| {
                let group = Scarcity { folder, counted };
                // There it has no such file where the group above does not hand it on.
                fs::write(group.folder.join(limit), "65536").map(|()| group)
            });
            match made {
                Ok(group) => return Some(group),
                Err(error) => why = format!("{place}: {error}"),
            }
        }
        untested::say("a process that the kernel kills because memory ran out", &why);
        None
    }

    /// From here on this process gets no more memory: the next time that it needs some, the kernel kills it.
    pub(crate) fn confine(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("the group is ours");
    }

    /// Waits until the kernel has killed it.
    pub(crate) fn wait_for_the_kill(&self) {
        let killed = || {
            let text = fs::read_to_string(self.folder.join(self.counted)).unwrap_or_default();
            let count = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse::<u64>().ok());
            count.is_some_and(|count| count > 0).then_some(())
        };
        wait::fact("the kernel to kill it", killed);
    }
}

impl Drop for Scarcity {
    fn drop(&mut self) {
        let above = self.folder.with_file_name("cgroup.procs");
        for pid in fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(&above, pid);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}
