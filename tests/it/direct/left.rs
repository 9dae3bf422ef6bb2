//! What a command leaves behind as another user, whom we may not signal. Starting something as one takes root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::direct::Rig;
use crate::direct::users::User;

/// The command is a user's; what it leaves is of another one, as after `sudo`.
#[test]
fn one_of_another_user_is_named_and_said_in_the_verdict() {
    let rig = Rig::new();
    let Some(user) = User::other(&rig, 40_001) else { return };
    chown(rig.lock_dir(), Some(40_001), Some(40_001)).expect("root may");
    let other = rig.file("become-other");
    fs::copy("/usr/bin/setpriv", &other).expect("it is in every Debian");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o4755)).expect("root may");
    let script = format!(
        "{} --reuid 40002 --regid 40002 --clear-groups sleep 600 & echo $! > pid; \
         until [ \"$(stat -c %u /proc/$!)\" = 40002 ]; do :; done",
        other.display()
    );
    let run = user.sh(&rig, &rig.lock_dir(), &script).env("DCCTL_TEST_BREAK", "watchdog:3");
    let finished = run.run().expect_code(0);
    let pid = fs::read_to_string(user.home.join("pid")).expect("it was written");
    let pid: i32 = pid.trim().parse().expect("a number");
    let events = finished.events();
    let place = |kind: &str| {
        events
            .iter()
            .position(|event| event["type"] == kind && (event["data"]["pid"] == pid || kind == "lock.releasing"))
    };
    let [Some(left), Some(survived), Some(releasing)] =
        ["process.left_behind", "process.survived", "lock.releasing"].map(place)
    else {
        panic!("not all was said: {}", finished.stdout)
    };
    assert!(left < survived && survived < releasing);
    let relations = events[left]["data"]["relations"].as_array().expect("it is related");
    assert!(relations.contains(&json!("orphan")) && relations.contains(&json!("group")), "{relations:?}");
    let verdict = &finished.verdict()["data"];
    assert_eq!(
        (&verdict["survived"][0], &verdict["lock"]),
        (&events[survived]["data"], &json!("released")),
        "{verdict}"
    );
    // Who is not root could not end it.
    rustix::process::kill_process(Pid::from_raw(pid).expect("a number"), Signal::KILL).expect("it lives");
}
