//! States that are the right ones, but older than what was written down of them: what was made since is not in them.

use std::fs;

use serde_json::{Value, json};

use crate::bed::Dcctl;
use crate::bed::state_backend::StateBackend;
use crate::lock::rig::{INSTANCES, text};
use crate::state::rig::{Kept, SERIAL, Store};

/// The serial that the declaration names.
fn recorded(kept: &Kept) -> Option<u64> {
    let declared = kept.rig.bed.api().get(&format!("{INSTANCES}/one")).expect("the API server answers")?;
    declared["metadata"]["annotations"][SERIAL].as_str()?.parse().ok()
}

/// The serial of the state itself.
fn serial(kept: &Kept) -> Option<u64> {
    match &kept.store {
        Store::Local => {
            let state = fs::read(kept.rig.state_dir("one").join("infrastructure.tfstate")).ok()?;
            serde_json::from_slice::<Value>(&state).ok()?["serial"].as_u64()
        }
        Store::Server(server) => server.state("one")?["serial"].as_u64(),
        Store::Cluster => None,
    }
}

#[track_caller]
fn refused(run: Dcctl) -> Value {
    let verdict = run.run().expect_code(6).verdict()["data"].clone();
    assert_eq!(verdict["failure"]["code"], "guard.state_missing", "{verdict}");
    verdict["failure"].clone()
}

#[test]
fn an_older_copy_of_the_right_state_is_refused_and_has_a_way_out() {
    let kept = Kept::in_store(Store::Local);
    let rig = &kept.rig;
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!(recorded(&kept), serial(&kept));
    let path = rig.state_dir("one").join("infrastructure.tfstate");
    let older = fs::read(&path).expect("there is a state");
    kept.things(&[("slow", ""), ("volume", "")]);
    rig.upgrade("one").run().expect_code(0);
    let newer = recorded(&kept).expect("it is written down");
    assert_eq!(Some(newer), serial(&kept));

    let now = fs::read(&path).expect("there is a state");
    fs::write(&path, &older).expect("it can be written");
    for run in [rig.upgrade("one"), rig.upgrade("one").arg("--dry-run"), rig.destroy("one")] {
        let failure = refused(run);
        assert!(
            text(&failure["message"]).contains("is an older version of the OpenTofu state of \"one\""),
            "{failure}"
        );
        assert!(failure["causes"].to_string().contains(&format!("ended with serial {newer}")), "{failure}");
        assert!(failure["hints"].to_string().contains(&format!("\\\"serial\\\": {newer}")), "{failure}");
    }
    assert!(refused(rig.destroy("one"))["hints"].to_string().contains("--abandon-infrastructure"));
    assert_eq!((rig.ledger.created("volume"), rig.phase("one").as_deref()), (1, Some("Ready")));

    // The way out: what it lacks is removed by hand, and it says so.
    let mut state: Value = serde_json::from_slice(&older).expect("it is a state");
    state["serial"] = json!(newer);
    fs::write(&path, state.to_string()).expect("it can be written");
    rig.upgrade("one").arg("--dry-run").run().expect_code(0);

    // A newer one is that of a run which was killed before it wrote that down.
    let mut state: Value = serde_json::from_slice(&now).expect("it is a state");
    state["serial"] = json!(newer + 5);
    fs::write(&path, state.to_string()).expect("it can be written");
    rig.upgrade("one").run().expect_code(0);
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.phase("one"), rig.ledger.living("slow").len(), rig.ledger.living("volume").len()), (None, 0, 0));
}

#[test]
fn a_destroy_that_was_stopped_half_way_writes_down_how_old_the_state_is() {
    let kept = Kept::in_store(Store::Local);
    kept.things(&[("first", ""), ("second", "  destroy_seconds = 2\n"), ("third", "")]);
    kept.rig.bootstrap("one").run().expect_code(0);
    let before = recorded(&kept).expect("it is written down");
    let run = kept.rig.destroy("one").start();
    run.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.second");
    run.signal(rustix::process::Signal::TERM);
    run.finish().expect_code(10);
    assert!(recorded(&kept) > Some(before), "{:?}", recorded(&kept));
    assert_eq!(recorded(&kept), serial(&kept));
}

#[test]
fn an_older_version_of_a_state_elsewhere_is_refused() {
    let server = StateBackend::start();
    let kept = Kept::in_store(Store::Server(server.clone()));
    let rig = &kept.rig;
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!(recorded(&kept), serial(&kept));
    let older = server.state("one").expect("there is a state");
    kept.things(&[("slow", ""), ("volume", "")]);
    rig.upgrade("one").run().expect_code(0);
    assert_eq!(recorded(&kept), serial(&kept));
    server.put("one", Some(older.to_string().as_bytes()));
    for run in [rig.upgrade("one"), rig.destroy("one")] {
        let failure = refused(run);
        assert!(
            text(&failure["message"]).contains("has an older version of the OpenTofu state of \"one\""),
            "{failure}"
        );
    }
    assert_eq!((rig.ledger.created("volume"), rig.phase("one").as_deref()), (1, Some("Ready")));
}

#[test]
fn the_refusal_of_a_folder_that_is_another_instance_s_names_the_state_that_is_looked_for() {
    let kept = Kept::in_store(Store::Local);
    let rig = &kept.rig;
    rig.bootstrap("one").run().expect_code(0);
    rig.bootstrap("two").run().expect_code(0);
    let run = rig.bed.dcctl(["upgrade", "one", "--output", "jsonl", "--bundle"]).arg(rig.bed.file("bundle"));
    let failure = refused(run.arg("--state-dir").arg(rig.state_dir("two")));
    assert!(text(&failure["message"]).ends_with("belongs to instance \"two\""), "{failure}");
    let lineage = kept.recorded().expect("it is declared");
    assert_eq!(failure["causes"], json!([format!("the declaration names the state {lineage}")]));
    assert_eq!(failure["hints"], json!(["name the folder of the state of \"one\" with --state-dir"]));
}

#[test]
fn a_bootstrap_that_is_refused_with_another_instance_s_state_writes_nothing_of_that_down() {
    let kept = Kept::in_store(Store::Local);
    let rig = &kept.rig;
    rig.bootstrap("two").run().expect_code(0);
    rig.bootstrap("one").env("DCCTL_TEST_BREAK", "apply-infrastructure").run().expect_code(70);
    // As a run leaves it that was killed before its first apply.
    let killed = json!({ "metadata": { "annotations": { "core.devicechain.io/phase": "Bootstrapping" } } });
    rig.bed.api().merge(&format!("{INSTANCES}/one"), &killed).expect("the bed may do everything");
    let run = rig.bed.dcctl(["bootstrap", "one", "--output", "jsonl", "--bundle"]).arg(rig.bed.file("bundle"));
    let failure = refused(run.arg("--state-dir").arg(rig.state_dir("two")));
    assert!(text(&failure["message"]).ends_with("belongs to instance \"two\""), "{failure}");
    assert_eq!((kept.recorded(), recorded(&kept)), (None, None));
    rig.bootstrap("one").run().expect_code(0);
}
