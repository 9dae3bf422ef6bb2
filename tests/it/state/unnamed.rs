//! Instances whose infrastructure the bundle or the declaration does not tell of: what is not known is refused or said, and
//! never taken for nothing.

use std::fs;

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::lock::rig::{INSTANCES, Rig, of_kind, text};
use crate::state::rig::{LINEAGE, take_the_way_on};

/// The failure of a run that was refused before it had the lock, and left the instance as it was.
#[track_caller]
fn refused(rig: &Rig, finished: Finished) -> Value {
    let verdict = finished.expect_code(6).verdict()["data"].clone();
    assert_eq!(verdict["failure"]["code"], "guard.state_missing", "{verdict}");
    assert_eq!(verdict["lock"], "never_taken", "{verdict}");
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"), "{verdict}");
    verdict["failure"].clone()
}

/// The warnings of a run.
fn warnings(finished: &Finished) -> Vec<String> {
    let events = finished.events();
    of_kind(&events, "diagnostic").into_iter().map(|event| event["data"].to_string()).collect()
}

fn lineage(rig: &Rig) -> Option<String> {
    let declared = rig.bed.api().get(&format!("{INSTANCES}/one")).expect("the API server answers")?;
    declared["metadata"]["annotations"][LINEAGE].as_str().map(str::to_owned)
}

#[test]
fn a_bundle_that_lost_its_infrastructure_is_refused_for_an_instance_that_has_some_unless_it_is_abandoned() {
    let rig = Rig::new().declared().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    let named = lineage(&rig).expect("the declaration names it");
    let bundle = rig.bed.file("bundle/bundle.yaml");
    let whole = fs::read_to_string(&bundle).expect("it is there");
    fs::write(&bundle, whole.replace("  infrastructure: { root: infra }\n", "")).expect("it can be written");
    for run in [
        rig.destroy("one"),
        rig.destroy("one").arg("--dry-run"),
        rig.upgrade("one"),
        rig.upgrade("one").arg("--dry-run"),
    ] {
        let failure = refused(&rig, run.run());
        assert!(text(&failure["message"]).contains("has no `instance.infrastructure`"), "{failure}");
        assert!(failure["causes"].to_string().contains(&named), "{failure}");
    }
    let hints = refused(&rig, rig.destroy("one").run())["hints"].to_string();
    assert!(hints.contains("use a bundle that has it") && hints.contains("--abandon-infrastructure"), "{hints}");
    let preflight = rig.bed.dcctl(["preflight", "destroy", "one", "--output", "json", "--bundle"]);
    let preflight = preflight.arg(rig.bed.file("bundle")).arg("--state-dir").arg(rig.state_dir("one")).run();
    assert_eq!(preflight.code(), Some(6), "{}", preflight.stdout);
    assert_eq!(rig.ledger.living("slow").len(), 1);

    let abandoned = rig.destroy("one").arg("--abandon-infrastructure").run().expect_code(0);
    assert!(abandoned.stdout.contains("abandoned: 1 of its state: bed_thing.slow"), "{}", abandoned.stdout);
    assert_eq!((rig.phase("one"), rig.ledger.living("slow").len()), (None, 1));
}

#[test]
fn a_built_instance_whose_declaration_names_no_state_is_not_built_a_second_time_from_none() {
    let rig = Rig::new().declared().slow_thing(0.0);
    rig.bootstrap("one").run().expect_code(0);
    let unnamed = json!({ "metadata": { "annotations": { LINEAGE: null } } });
    rig.bed.api().merge(&format!("{INSTANCES}/one"), &unnamed).expect("the bed may do everything");
    let state = rig.state_dir("one").join("infrastructure.tfstate");
    let built = fs::read(&state).expect("there is a state");
    for content in [None, Some("")] {
        match content {
            None => fs::remove_file(&state).expect("it is there"),
            Some(text) => fs::write(&state, text).expect("it can be written"),
        }
        for run in [rig.upgrade("one"), rig.upgrade("one").arg("--dry-run"), rig.destroy("one")] {
            let failure = refused(&rig, run.run());
            assert!(text(&failure["message"]).contains("is not here: "), "{failure}");
            assert!(failure["causes"].to_string().contains("the declaration names no state"), "{failure}");
        }
    }
    let hints = refused(&rig, rig.destroy("one").run())["hints"].to_string();
    assert!(hints.contains("--abandon-infrastructure"), "{hints}");
    assert_eq!(rig.ledger.created("slow"), 1, "it was made a second time");
    // Where the state is, everything goes on.
    fs::write(&state, built).expect("it can be written");
    rig.upgrade("one").run().expect_code(0);
    assert_eq!(rig.ledger.created("slow"), 1);
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.phase("one"), rig.ledger.living("slow").len()), (None, 0));
}

#[test]
fn an_instance_that_never_had_infrastructure_gets_its_first_by_the_way_out_that_the_refusal_names() {
    let rig = Rig::new().declared();
    rig.bootstrap("one").run().expect_code(0);
    let rig = rig.slow_thing(0.0);
    let failure = refused(&rig, rig.upgrade("one").run());
    take_the_way_on(&failure, "nothing in it: ");
    rig.upgrade("one").run().expect_code(0);
    assert_eq!((rig.ledger.created("slow"), lineage(&rig).is_some()), (1, true));
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.phase("one"), rig.ledger.living("slow").len()), (None, 0));
}

#[test]
fn without_a_declaration_and_without_any_trace_it_is_said_that_nobody_knows_whether_there_is_infrastructure() {
    let rig = Rig::new().slow_thing(0.0);
    let says = |finished: &Finished, what: &str| warnings(finished).iter().any(|warning| warning.contains(what));
    for more in [&["--dry-run"][..], &[]] {
        let done = rig.destroy("one").args(more).run().expect_code(0);
        assert!(says(&done, "whether the instance has infrastructure is not known"), "{}", done.stdout);
        assert!(!done.stdout.contains("the declaration names none"), "{}", done.stdout);
    }
}
