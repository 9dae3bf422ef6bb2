//! Two users who share a lock folder. Starting something as another user takes root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;

use crate::bed::tools::own;
use crate::bed::{Dcctl, untested};
use crate::direct::{Rig, text};

/// What both users of these tests have in common.
const GROUP: u32 = 40_100;

/// Another user than the one who tests.
pub(super) struct User {
    uid: u32,
    pub(super) home: PathBuf,
    program: PathBuf,
}

impl User {
    /// A user with this number, who may get at the test's folder and at the program; nothing without root.
    pub(super) fn other(rig: &Rig, uid: u32) -> Option<User> {
        if !rustix::process::geteuid().is_root() {
            untested::say("a second user", "it takes root to start something as one");
            return None;
        }
        mode(rig.scratch.path(), 0o755);
        let home = rig.file(&format!("home-{uid}"));
        fs::create_dir_all(&home).and_then(|()| chown(&home, Some(uid), Some(GROUP))).expect("root may");
        // Where the program was built nobody else may get at it.
        let program = rig.file("dcctl");
        if !program.exists() {
            fs::copy(own("dcctl"), &program).expect("it can be copied");
            mode(&program, 0o755);
        }
        Some(User { uid, home, program })
    }

    /// The program about the rig's lock, as this user.
    pub(super) fn dcctl(&self, rig: &Rig, words: &[&str]) -> Dcctl {
        self.dcctl_in(rig, &rig.lock_dir(), words)
    }

    fn dcctl_in(&self, rig: &Rig, folder: &Path, words: &[&str]) -> Dcctl {
        self.bare(rig, words).args(["--substrate", "direct", "--lock-dir"]).arg(folder)
    }

    /// The program without a word about a lock, as this user.
    pub(super) fn bare(&self, rig: &Rig, words: &[&str]) -> Dcctl {
        let mut run = rig
            .bare(words)
            .env("HOME", &self.home)
            .env("TMPDIR", &self.home)
            .env("USER", format!("user{}", self.uid))
            .by_program(&self.program);
        run.command().uid(self.uid).gid(GROUP).current_dir(&self.home);
        run
    }

    /// A command under the lock of this folder, with this script.
    pub(super) fn sh(&self, rig: &Rig, folder: &Path, script: &str) -> Dcctl {
        self.dcctl_in(rig, folder, &["exec", "--output", "jsonl"]).args(["--", "sh", "-c", script])
    }
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A lock folder of the rig's with this owner and mode, in the users' group.
fn folder(rig: &Rig, owner: u32, bits: u32) -> PathBuf {
    chown(rig.lock_dir(), Some(owner), Some(GROUP)).expect("root may");
    mode(&rig.lock_dir(), bits);
    rig.lock_dir()
}

/// Each uses it after the other, meets the other in it, and takes away what the other left.
#[track_caller]
fn share(rig: &Rig, folder: &Path, users: [&User; 2]) {
    for (first, second) in [(users[0], users[1]), (users[1], users[0])] {
        first.sh(rig, folder, "true").run().expect_code(0);
        let run = first.sh(rig, folder, ": > up; while :; do sleep 0.05; done").start();
        run.wait_for("process.started", |_| true);
        second.sh(rig, folder, "true").run().expect_code(20);
        let status = second.dcctl_in(rig, folder, &["lock", "status"]).run().expect_code(0).stdout;
        assert!(status.contains(&format!("  user:       user{}", first.uid)), "{status}");
        run.signal(Signal::QUIT);
        run.finish().expect_code(12);
        let lease = folder.join("dcctl.lease.json");
        assert_eq!(fs::metadata(&lease).expect("it was left").uid(), first.uid);
        fs::remove_file(lease).expect("root may");
    }
    second_replaces(rig, folder, users);
}

/// The store's own replace by the other user, seen in the owner of the file: a free Lease is claimed by a replace.
#[track_caller]
fn second_replaces(rig: &Rig, folder: &Path, [first, second]: [&User; 2]) {
    let lease = folder.join("dcctl.lease.json");
    fs::write(&lease, crate::direct::lease_of("", crate::direct::LONG_AGO).to_string()).expect("root may");
    chown(&lease, Some(first.uid), Some(GROUP)).expect("root may");
    mode(&lease, 0o660);
    let run = second.sh(rig, folder, "ls -ln \"$0\" > seen").arg(&lease).run().expect_code(0);
    assert_eq!(run.verdict()["data"]["lock"], "released");
    let seen = fs::read_to_string(second.home.join("seen")).expect("it was written");
    assert!(seen.contains(&format!(" {} {GROUP} ", second.uid)), "{seen}");
    assert!(!lease.exists());
}

#[test]
fn two_users_share_a_folder_that_their_group_may_write_to() {
    let rig = Rig::new();
    let Some((one, two)) = User::other(&rig, 40_001).zip(User::other(&rig, 40_002)) else { return };
    let folder = folder(&rig, 40_001, 0o2770);
    share(&rig, &folder, [&one, &two]);
    let flock = fs::metadata(folder.join("dcctl.flock")).expect("it stays");
    assert_eq!((flock.mode() & 0o777, flock.gid()), (0o660, GROUP));
}

#[test]
fn root_and_the_owner_of_a_folder_share_it() {
    let rig = Rig::new();
    let Some(one) = User::other(&rig, 40_001) else { return };
    let folder = folder(&rig, 40_001, 0o700);
    // Root comes first; what it makes is the owner's.
    rig.sh(&[], "true").run().expect_code(0);
    one.sh(&rig, &folder, "true").run().expect_code(0);
    let run = rig.sh(&[], ": > @/up; while :; do sleep 0.05; done").start();
    rig.wait_for("up");
    one.sh(&rig, &folder, "true").run().expect_code(20);
    run.signal(Signal::TERM);
    run.finish().expect_code(10);
}

#[test]
fn a_sticky_folder_with_two_users_is_refused_with_what_to_do() {
    let rig = Rig::new();
    let Some((one, two)) = User::other(&rig, 40_001).zip(User::other(&rig, 40_002)) else { return };
    let folder = folder(&rig, 0, 0o1777);
    // One alone may use it.
    one.sh(&rig, &folder, "true").run().expect_code(0);
    one.sh(&rig, &folder, "true").run().expect_code(0);
    let refused = |run: Dcctl, uid: u32| {
        let verdict = run.run().expect_code(4).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(
            (&failure["code"], &verdict["data"]["lock"]),
            (&json!("surroundings.lock_dir"), &json!("never_taken"))
        );
        let said = text(&failure["message"]);
        let both = format!("is sticky and is used by another user (uid 40001; this is uid {uid})");
        assert!(said.contains(&both) && said.contains(&folder.display().to_string()), "{said}");
        let hints = failure["hints"].to_string();
        assert!(hints.contains("install -d -m 2770 -g GROUP DIR"), "{hints}");
        assert!(hints.contains(&format!("chmod -t {}", folder.display())), "{hints}");
    };
    refused(two.sh(&rig, &folder, "true"), 40_002);
    refused(rig.sh(&[], "true"), 0);
    // Looking is harmless.
    two.dcctl(&rig, &["lock", "status"]).run().expect_code(0);
    // The way out that it names.
    mode(&folder, 0o0777);
    two.sh(&rig, &folder, "true").run().expect_code(0);
}

#[test]
fn a_folder_that_may_not_be_written_to_is_refused() {
    let rig = Rig::new();
    let Some(two) = User::other(&rig, 40_002) else { return };
    for (bits, says) in [(0o755, "cannot write to the lock folder"), (0o700, "cannot be opened")] {
        let folder = folder(&rig, 0, bits);
        let verdict = two.sh(&rig, &folder, "true").run().expect_code(4).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(failure["code"], "surroundings.lock_dir");
        assert!(text(&failure["message"]).contains(says), "{failure}");
        assert!(failure.to_string().contains("Permission denied"), "{failure}");
    }
}
