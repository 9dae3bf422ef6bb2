//! Two users on one machine: the runs of one are nothing to the other. Starting something as another user takes root.

use std::fs;
use std::os::unix::fs::chown;

use crate::bed::wait;
use crate::direct::Rig;
use crate::direct::users::User;

#[test]
fn the_runs_of_another_user_are_neither_listed_nor_asked_and_root_may() {
    let rig = Rig::new();
    let (Some(one), Some(two)) = (User::other(&rig, 40_001), User::other(&rig, 40_002)) else { return };
    chown(rig.lock_dir(), Some(40_001), Some(40_001)).expect("root may");
    let script = "trap 'exit 5' TERM; : > up; while :; do sleep 0.05; done";
    let left = one.dcctl(&rig, &["exec", "--detach", "--output", "human"]).args(["--", "sh", "-c", script]);
    left.run().expect_code(0);
    wait::fact("the command to begin", || one.home.join("up").exists().then_some(()));
    let runs = one.home.join(".local/state/dcctl/runs");
    let folder = fs::read_dir(&runs).expect("root may").flatten().next().expect("there is a run").path();
    let at = folder.display().to_string();

    let own = two.bare(&rig, &["runs", "list"]).run().expect_code(0);
    assert!(own.stdout.starts_with("no runs in "), "{}", own.stdout);
    for words in [&["runs", "show", &at][..], &["runs", "wait", &at], &["runs", "attach", &at], &["runs", "stop", &at]]
    {
        let refused = two.bare(&rig, words).run().expect_code(3);
        assert!(refused.stderr.contains("Permission denied"), "{words:?}: {}", refused.stderr);
    }
    // To be told that there are none where one may not look would be untrue.
    for words in [["runs", "list"], ["runs", "prune"], ["runs", "show"]] {
        let words = words.iter().copied().chain((words[1] == "show").then_some("latest"));
        let words: Vec<&str> = words.collect();
        let refused = two.bare(&rig, &words).env("XDG_STATE_HOME", one.home.join(".local/state")).run().expect_code(3);
        assert!(refused.stderr.contains("Permission denied"), "{words:?}: {}", refused.stderr);
    }
    assert!(one.bare(&rig, &["runs", "list"]).run().expect_code(0).stdout.contains("goes on"));
    // Root is asked by nobody, and heard.
    rig.bare(&["runs", "stop", &at]).run().expect_code(0);
    one.bare(&rig, &["runs", "wait", "latest"]).run().expect_code(10);
    assert_eq!(rig.lease(), None);
}
