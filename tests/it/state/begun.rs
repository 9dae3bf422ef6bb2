//! The state that dcctl begins before a first apply: it means that nothing is known until OpenTofu's end was witnessed.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::{Finished, Running};
use crate::bed::wait;
use crate::lock::rig::{of_kind, text};
use crate::state::rig::{Kept, SERIAL, Store, kill, kill_both, kill_tofu, tofu};

/// Which version of its state the instance has here.
fn serial(kept: &Kept) -> u64 {
    let state = fs::read(kept.rig.state_dir("one").join("infrastructure.tfstate")).expect("it was begun");
    let state: Value = serde_json::from_slice(&state).expect("it is a whole state");
    state["serial"].as_u64().expect("it has one")
}

/// A destroy says that it cannot tell what there is.
#[track_caller]
fn cannot_tell(kept: &Kept) {
    let failure = kept.rig.destroy("one").run().expect_code(6).verdict()["data"]["failure"].clone();
    assert_eq!(failure["code"], "guard.state_missing", "{failure}");
    assert!(text(&failure["message"]).contains("infrastructure.tfstate` is as dcctl began it"), "{failure}");
    assert!(failure["hints"].to_string().contains("--abandon-infrastructure"), "{failure}");
    assert!(kept.rig.phase("one").is_some());
}

/// A destroy knows that there is nothing.
#[track_caller]
fn finds_nothing(kept: &Kept) {
    assert_eq!(serial(kept), 1);
    let done = kept.rig.destroy("one").run().expect_code(0);
    assert!(done.stdout.contains("nothing is in its state"), "{}", done.stdout);
    assert_eq!((kept.rig.phase("one"), kept.rig.ledger.living("slow").len()), (None, 0));
}

fn warns(finished: &Finished, of: &str) -> bool {
    of_kind(&finished.events(), "diagnostic").iter().any(|event| event["data"].to_string().contains(of))
}

/// Its creation fails before it makes anything.
const FAILS: &str = "  ledger = \"/dev/null/none\"\n";

/// With a thing that cannot be made, and something to read that takes its time.
fn reading(kept: &Kept) {
    kept.thing(FAILS);
    let main = kept.rig.bed.file("bundle/infra/main.tf");
    let whole = fs::read_to_string(&main).expect("it is there");
    fs::write(&main, format!("{whole}data \"bed_reading\" \"long\" {{\n  name = \"long\"\n  seconds = 6\n}}\n"))
        .expect("written");
}

fn wait_until_it_reads(kept: &Kept, run: &Running) {
    tofu(run, "tofu apply");
    wait::fact("OpenTofu to read", || {
        fs::read_to_string(kept.rig.ledger.path()).is_ok_and(|text| text.contains("long")).then_some(())
    });
}

#[test]
fn an_apply_over_a_state_into_which_nothing_came_goes_on_and_says_so() {
    let kept = Kept::in_store(Store::Local);
    kept.thing("  seconds = 600\n");
    let run = kept.rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    kill_tofu(&run, "tofu apply");
    run.finish().expect_code(1);
    assert_eq!(serial(&kept), 0);
    // What the first one made nobody knows, also when this one makes nothing.
    kept.thing(FAILS);
    let failed = kept.rig.bootstrap("one").run().expect_code(1);
    assert!(warns(&failed, "is as dcctl began it"), "{}", failed.stdout);
    cannot_tell(&kept);
    kept.thing("");
    let done = kept.rig.bootstrap("one").run().expect_code(0);
    assert!(warns(&done, "is as dcctl began it"), "{}", done.stdout);
    assert_eq!((kept.rig.ledger.created("slow"), kept.rig.phase("one").as_deref()), (2, Some("Ready")));
    kept.rig.destroy("one").run().expect_code(0);
}

#[test]
fn a_first_apply_that_was_seen_to_make_nothing_leaves_nothing_to_destroy() {
    let kept = Kept::in_store(Store::Local);
    kept.thing(FAILS);
    kept.rig.bootstrap("one").run().expect_code(1);
    finds_nothing(&kept);
}

#[test]
fn whoever_takes_a_first_apply_over_sees_whether_it_made_anything() {
    let kept = Kept::in_store(Store::Local);
    kept.thing("  seconds = 600\n");
    let run = kept.rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    kill(run.supervisor());
    kill_tofu(&run, "tofu apply");
    run.finish().expect_code(1);
    assert_eq!(serial(&kept), 0);
    cannot_tell(&kept);

    let kept = Kept::in_store(Store::Local);
    reading(&kept);
    let run = kept.rig.bootstrap("one").start();
    wait_until_it_reads(&kept, &run);
    kill(run.supervisor());
    run.finish().expect_code(1);
    finds_nothing(&kept);
}

#[test]
fn where_nobody_saw_the_end_of_a_first_apply_nobody_knows() {
    let kept = Kept::in_store(Store::Local);
    kept.thing("  seconds = 600\n");
    let run = kept.rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    let pid = tofu(&run, "tofu apply");
    kill_both(&kept.rig, &run);
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
    wait::fact("OpenTofu to be gone", || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z')).then_some(())
    });
    assert_eq!(serial(&kept), 0);
    cannot_tell(&kept);
}

/// The serial on the declaration: it is there once an end was witnessed.
fn counted(kept: &Kept) -> Option<String> {
    kept.declared(SERIAL)
}

#[test]
fn a_state_elsewhere_into_which_nothing_came_is_told_from_one_with_nothing_in_it() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        kept.thing("  seconds = 600\n");
        let run = kept.rig.bootstrap("one").start();
        Kept::wait_until_in_flight(&run);
        assert!(kept.recorded().is_some() && counted(&kept).is_none());
        kill_tofu(&run, "tofu apply");
        run.finish().expect_code(1);
        for attempt in 0..2 {
            let failure = kept.rig.destroy("one").run().expect_code(6).verdict()["data"]["failure"].clone();
            assert_eq!(failure["code"], "guard.state_missing", "{failure}");
            assert!(text(&failure["message"]).contains("as it was begun"), "{failure}");
            assert!(failure["hints"].to_string().contains("--abandon-infrastructure"), "{failure}");
            if attempt == 0 {
                // What the first one made nobody knows, also when this one makes nothing.
                kept.thing(FAILS);
                let failed = kept.rig.bootstrap("one").run().expect_code(1);
                assert!(warns(&failed, "is as it was begun"), "{}", failed.stdout);
            }
        }
        kept.thing("");
        let done = kept.rig.bootstrap("one").run().expect_code(0);
        assert!(warns(&done, "is as it was begun"), "{}", done.stdout);
        assert!(counted(&kept).is_some());
        kept.rig.destroy("one").run().expect_code(0);
        assert_eq!(kept.rig.phase("one"), None);
    }
}

#[test]
fn a_first_apply_on_a_state_elsewhere_that_was_seen_to_make_nothing_leaves_nothing_to_destroy() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        kept.thing(FAILS);
        kept.rig.bootstrap("one").run().expect_code(1);
        assert!(counted(&kept).is_some());
        kept.rig.destroy("one").run().expect_code(0);
        assert_eq!((kept.rig.phase("one"), kept.rig.ledger.living("slow").len()), (None, 0));

        // Nor does one that was stopped before it made anything.
        reading(&kept);
        let run = kept.rig.bootstrap("one").start();
        wait_until_it_reads(&kept, &run);
        run.signal(Signal::TERM);
        run.finish().expect_code(10);
        assert_eq!(kept.rig.ledger.created("slow"), 0);
        kept.rig.destroy("one").run().expect_code(0);
        assert_eq!(kept.rig.phase("one"), None);
    }
}
