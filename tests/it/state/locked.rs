//! OpenTofu's own lock on a state, when the OpenTofu that has it was killed, lives, or is somebody else's.

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::state_backend::StateBackend;
use crate::bed::wait;
use crate::lock::rig::text;
use crate::state::rig::{Kept, Store, kill, kill_both, kill_tofu, tofu};

const TAKEN_OFF: &str = "has ended and left its state locked; that lock was taken off";

/// The run ended because its OpenTofu was killed.
fn was_killed(finished: Finished) {
    let verdict = finished.expect_code(1).verdict();
    let message = text(&verdict["data"]["failure"]["message"]);
    assert!(message.contains("was ended by signal 9"), "{verdict}");
    assert_eq!(verdict["data"]["lock"], "released");
}

/// The run took the lock with this id off and went on to its end.
fn went_on(kept: &Kept, finished: Finished, id: &str) {
    let done = finished.expect_code(0);
    assert!(done.stdout.contains(TAKEN_OFF) && done.stdout.contains(&format!("lock {id} taken by")), "{}", done.stdout);
    let blocked =
        |event: &Value| event["type"] == "diagnostic" && event.to_string().contains("acquiring the state lock");
    assert!(!done.events().iter().any(blocked), "what was mended is not an error: {}", done.stdout);
    assert_eq!(kept.locked_by(), None);
}

#[track_caller]
fn left_locked(kept: &Kept) -> String {
    kept.locked_by().expect("OpenTofu could not give its lock back")
}

/// In every verb an OpenTofu is killed in the middle of its work, and the same command gets on.
fn the_next_run_gets_on(store: Store) {
    let kept = Kept::in_store(store);
    let rig = &kept.rig;

    kept.thing("  seconds = 60\n");
    let run = rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    kill_tofu(&run, "tofu apply");
    was_killed(run.finish());
    let id = left_locked(&kept);
    kept.thing("");
    went_on(&kept, rig.bootstrap("one").run(), &id);

    kept.thing("  note = \"changed\"\n  update_seconds = 60\n  destroy_seconds = 3\n");
    let run = rig.upgrade("one").start();
    Kept::wait_until_in_flight(&run);
    kill_tofu(&run, "tofu apply");
    was_killed(run.finish());
    let id = left_locked(&kept);
    kept.thing("  note = \"changed\"\n  destroy_seconds = 3\n");
    went_on(&kept, rig.upgrade("one").run(), &id);

    let run = rig.destroy("one").start();
    Kept::wait_until_in_flight(&run);
    kill_tofu(&run, "tofu destroy");
    was_killed(run.finish());
    let id = left_locked(&kept);
    went_on(&kept, rig.destroy("one").run(), &id);
    assert_eq!(rig.phase("one"), None);
}

#[test]
fn an_opentofu_that_is_killed_leaves_a_state_in_the_cluster_locked_and_the_next_run_takes_that_lock_off() {
    the_next_run_gets_on(Store::Cluster);
}

#[test]
fn an_opentofu_that_is_killed_leaves_a_state_on_a_server_locked_and_the_next_run_takes_that_lock_off() {
    the_next_run_gets_on(Store::Server(StateBackend::start()));
}

#[test]
fn a_lock_of_which_nothing_here_shows_that_its_holder_ended_is_explained_and_left() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        rig.bootstrap("one").run().expect_code(0);
        let id = "0b9ab2e0-7d3c-4b63-8a51-111111111111";
        kept.lock_as(&json!({ "ID": id, "Operation": "OperationTypeApply", "Info": "", "Who": "bob@laptop",
            "Version": "1.12.6", "Created": "2026-11-30T20:53:26.5Z", "Path": "" }));
        let refused = rig.destroy("one").run().expect_code(6);
        let failure = refused.verdict()["data"]["failure"].clone();
        assert_eq!(failure["code"], "guard.state_locked");
        let sentence = format!(
            "the OpenTofu state of `infra` is locked: lock {id} taken by bob@laptop for OperationTypeApply at \
             2026-11-30T20:53:26.500000Z with OpenTofu 1.12.6"
        );
        assert_eq!(text(&failure["message"]), sentence);
        assert!(failure["causes"].to_string().contains("no run directory here shows"), "{failure}");
        assert!(failure["hints"].to_string().contains(&format!("tofu force-unlock {id}")), "{failure}");
        assert_eq!(kept.locked_by().as_deref(), Some(id), "it is left alone");
        assert_eq!(refused.verdict()["data"]["lock"], "released");
    }
}

#[test]
fn an_opentofu_that_outlives_its_run_keeps_the_lock_until_it_has_ended() {
    for store in Store::remote().into_iter().chain([Store::Local]) {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        kept.thing("  seconds = 600\n");
        let run = rig.bootstrap("one").start();
        Kept::wait_until_in_flight(&run);
        let pid = tofu(&run, "tofu apply");
        wait::fact("the lock to be known as its own", || holds(&kept).then_some(()));
        kill_both(rig, &run);

        let failure = rig.bootstrap("one").run().expect_code(6).verdict()["data"]["failure"].clone();
        assert_eq!(failure["code"], "guard.state_locked");
        if !matches!(kept.store, Store::Local) {
            let alive = format!("is still at work (process {})", pid.as_raw_nonzero());
            assert!(failure["causes"].to_string().contains(&alive), "{failure}");
        }
        // Its plugin is still there when it is gone.
        let plugin = plugin_of(pid);
        rustix::process::kill_process(plugin, Signal::STOP).expect("it runs");
        kill(pid);
        gone(pid);
        if !matches!(kept.store, Store::Local) {
            let failure = rig.bootstrap("one").run().expect_code(6).verdict()["data"]["failure"].clone();
            assert!(failure["causes"].to_string().contains("something that it had started has not"), "{failure}");
        }
        kill(plugin);
        gone(plugin);
        kept.thing("");
        let done = rig.bootstrap("one").run().expect_code(0);
        assert_eq!(done.stdout.contains(TAKEN_OFF), !matches!(kept.store, Store::Local));
    }
}

/// The plugin process of an OpenTofu. Any of its threads may have started it.
fn plugin_of(tofu: Pid) -> Pid {
    let threads = std::fs::read_dir(format!("/proc/{}/task", tofu.as_raw_nonzero())).expect("it runs");
    let children = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let pid = children.iter().flat_map(|pids| pids.split_whitespace()).next().and_then(|pid| pid.parse().ok());
    pid.and_then(Pid::from_raw).expect("it has a plugin")
}

/// Waits until a process is gone, or is nothing but an entry.
fn gone(pid: Pid) {
    wait::fact("the process to be gone", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')).then_some(())
    });
}

/// Whether it was written down that OpenTofu has the lock of its state.
fn holds(kept: &Kept) -> bool {
    let runs = std::fs::read_dir(kept.rig.bed.file("home/.local/state/dcctl/runs")).into_iter().flatten().flatten();
    let abouts = runs.map(|run| run.path().join("tools/tofu-apply.about.json"));
    let mut had = abouts.filter_map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok());
    had.any(|about| !about["had_lock"].is_null())
}

#[test]
fn a_destroy_beside_a_first_apply_that_is_at_work_forgets_nothing() {
    let kept = Kept::in_store(Store::Local);
    let rig = &kept.rig;
    kept.thing("  seconds = 600\n");
    let run = rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    let pid = tofu(&run, "tofu apply");
    let plugin = plugin_of(pid);
    kill_both(rig, &run);
    // Whoever abandons could not be told of what it makes either.
    for more in [&[][..], &["--dry-run"], &["--abandon-infrastructure"], &["--abandon-infrastructure", "--dry-run"]] {
        let verdict = rig.destroy("one").args(more).run().expect_code(6).verdict();
        assert_eq!(verdict["data"]["failure"]["code"], "guard.state_locked", "{verdict}");
        assert_eq!(verdict["data"]["lock"], "never_taken", "{verdict}");
        let message = text(&verdict["data"]["failure"]["message"]);
        assert!(message.contains("is locked: lock ") && message.contains("for OperationTypeApply"), "{message}");
    }
    assert_eq!(rig.phase("one").as_deref(), Some("Bootstrapping"));
    kill(pid);
    kill(plugin);
    gone(pid);
    // The instance has had a state from before its first apply on, and it names it wherever it is asked.
    let state = rig.state_dir("one").join("infrastructure.tfstate");
    let begun = std::fs::read(&state).expect("it was begun");
    let begun: Value = serde_json::from_slice(&begun).expect("it is a whole state");
    assert_eq!(kept.recorded(), begun["lineage"].as_str().map(str::to_owned));
    kept.thing("");
    for verb in ["bootstrap", "destroy"] {
        let elsewhere = rig.bed.dcctl([verb, "one", "--output", "jsonl", "--bundle"]).arg(rig.bed.file("bundle"));
        let refused = elsewhere.arg("--state-dir").arg(rig.bed.file("elsewhere")).run().expect_code(6);
        assert_eq!(refused.verdict()["data"]["failure"]["code"], "guard.state_missing", "{verb}");
    }
    std::fs::write(&state, "").expect("it can be written");
    rig.destroy("one").run().expect_code(6);
    std::fs::write(&state, begun.to_string()).expect("it can be written");
    rig.bootstrap("one").run().expect_code(0);
}

#[test]
fn the_lock_of_a_state_on_this_machine_ends_with_its_opentofu() {
    let kept = Kept::in_store(Store::Local);
    let rig = &kept.rig;
    kept.thing("  seconds = 60\n");
    let run = rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    let info = rig.state_dir("one").join(".infrastructure.tfstate.lock.info");
    assert!(info.exists());
    kill_tofu(&run, "tofu apply");
    was_killed(run.finish());
    assert!(info.exists(), "it stays, and means nothing");
    kept.thing("");
    let done = rig.bootstrap("one").run().expect_code(0);
    assert!(!done.stdout.contains(TAKEN_OFF), "{}", done.stdout);
    assert!(!info.exists());
}
