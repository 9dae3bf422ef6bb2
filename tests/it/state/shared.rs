//! The state of what all instances share: the install record names it, and another one, an older one or none is refused
//! before anything is applied.

use std::fs;

use serde_json::{Value, json};

use crate::bed::{Bed, Dcctl};
use crate::lock::rig::{of_kind, text};
use crate::state::rig::take_the_way_on;
use crate::verbs::rig::Demo;

#[track_caller]
fn refused(run: Dcctl) -> Value {
    let verdict = run.run().expect_code(6).verdict()["data"].clone();
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&json!("guard.state_missing"), &json!("never_taken")));
    verdict["failure"].clone()
}

#[test]
fn an_install_from_another_state_than_the_one_that_the_record_names_is_refused() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let path = demo.state_dir("cluster").join("prerequisites.tfstate");
    let built = fs::read(&path).expect("there is a state");
    let state: Value = serde_json::from_slice(&built).expect("it is a state");
    let record = demo.record().expect("it was written");
    assert_eq!(record["state"], json!({ "lineage": state["lineage"], "serial": state["serial"] }));

    let lineage = text(&state["lineage"]);
    let with = |change: Value| {
        let mut other = state.clone();
        other.as_object_mut().expect("a state is an object").extend(change.as_object().expect("an object").clone());
        Some(other.to_string())
    };
    for (found, says) in [
        (None, "is not here: there is no `"),
        (Some(String::new()), "is empty"),
        (
            with(json!({ "lineage": "another" })),
            "is not the OpenTofu state that what all instances of this cluster share",
        ),
        (with(json!({ "serial": 0 })), "is an older version of the OpenTofu state of what all instances"),
    ] {
        match found {
            Some(text) => fs::write(&path, text).expect("it can be written"),
            None => fs::remove_file(&path).expect("it is there"),
        }
        for run in [demo.install(), demo.install().arg("--dry-run")] {
            let failure = refused(run);
            assert!(text(&failure["message"]).contains(says), "{failure}");
            assert!(
                failure["causes"].to_string().contains(&format!("the install record names the state {lineage}")),
                "{failure}"
            );
        }
    }
    // What an install left that did not come to its end names its state, too.
    let mut record = demo.record().expect("it is there");
    record["phase"] = json!("applying");
    let half = json!({ "data": { "install.json": record.to_string() } });
    let place = "/api/v1/namespaces/dc-system/configmaps/dc-install";
    demo.bed.api().merge(place, &half).expect("the bed may do everything");
    let failure = refused(demo.install());

    fs::write(&path, built).expect("it can be written");
    let done = demo.install().run().expect_code(0);
    assert_eq!(of_kind(&done.events(), "resource.started").len(), 0, "{}", done.stdout);

    // The way out, where it is gone for good.
    fs::remove_file(&path).expect("it is there");
    take_the_way_on(&failure, "begin it anew: ");
    let anew = demo.install().run().expect_code(0);
    assert_ne!(of_kind(&anew.events(), "resource.started").len(), 0, "{}", anew.stdout);
}
