//! A disk that is soon full: a file system in memory, of a few pages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::bed::child::command;

/// A small disk. Dropped, it is gone.
#[derive(Debug)]
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Makes one of this many KiB at a folder that is made for it. Mounting needs root; nothing where it is not
    /// allowed, which is said, and fails the test where everything is required, as in CI.
    #[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
    #[expect(clippy::print_stderr, reason = "what is not tested here has to be seen")]
    pub(crate) fn mount(folder: &Path, kibibytes: u32, options: &str) -> Option<SmallDisk> {
        fs::create_dir_all(folder).expect("the test's folder can be written");
        let options = format!("size={kibibytes}k,mode=0700{options}");
        let done = command(Path::new("mount")).args(["-t", "tmpfs", "-o", &options, "small"]).arg(folder).output();
        match done {
            Ok(output) if output.status.success() => return Some(SmallDisk(folder.to_owned())),
            Ok(output) => eprintln!("NOT TESTED: a full disk. {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => eprintln!("NOT TESTED: a full disk. mount: {error}"),
        }
        let required = std::env::var("DCCTL_REQUIRE_ALL").is_ok_and(|value| value == "1");
        assert!(!required, "a full disk has to be tested here, and no file system could be mounted");
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
