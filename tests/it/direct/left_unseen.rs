//! What a command leaves behind when nobody adopts its orphans any more: its supervisor was killed.

use rustix::process::Signal;

use crate::direct::Rig;

/// It has no mark of the run, and a session of its own: only its parent tells whose it is.
#[test]
fn a_child_without_any_mark_is_ended_with_its_parent_also_when_the_supervisor_was_killed() {
    let rig = Rig::new();
    let script = "env -i setsid sleep 600 > /dev/null 2>&1 < /dev/null & echo $! > @/child; : > @/up; wait; sleep 600";
    let run = rig.sh(&[], script).start();
    rig.wait_for("up");
    let pid: u32 = rig.wait_for("child").trim().parse().expect("a number");
    rustix::process::kill_process(run.supervisor(), Signal::KILL).expect("it lives");
    let finished = run.finish().expect_code(1);
    assert_eq!(dcctl::process::look_up(pid), None, "it was left running");
    let events = finished.events();
    let named = events.iter().any(|event| event["type"] == "process.left_behind" && event["data"]["pid"] == pid);
    assert!(named, "{}", finished.stdout);
}
