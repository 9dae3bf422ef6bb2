//! `--dry-run`: takes no lock, writes nothing, and says what would happen and whom it would have met.

use std::fs;

use dcctl::clock::{Clock, System, rfc3339};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::bed::dcctl::Finished;
use crate::lock::rig::{Rig, of_kind};
use crate::verbs::rig::{Demo, applied, everything, files, quiet};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// Runs it between two looks at the whole cluster and at the state, and proves that neither was changed.
fn changes_nothing(demo: &Demo, run: impl FnOnce() -> Finished) -> Vec<Value> {
    let state = demo.bed.file("state");
    let written = demo.writes_of("admin").len();
    let before = (quiet(&demo.bed.api()), files(&state), state.exists());
    let ended = run().expect_code(0);
    let after = (everything(&demo.bed.api()), files(&state), state.exists());
    assert_eq!(after, before, "a dry run changed something");
    assert_eq!(demo.writes_of("admin").split_off(written), Vec::<String>::new());
    let verdict = ended.verdict();
    assert_eq!((&verdict["data"]["lock"], &verdict["data"]["dry_run"]), (&json!("never_taken"), &json!(true)));
    assert_eq!(of_kind(&ended.events(), "lock.claimed").len(), 0);
    assert_eq!(of_kind(&ended.events(), "lock.observed").len(), 1);
    ended.events()
}

fn actions(events: &[Value], action: &str) -> Vec<String> {
    applied(events).into_iter().filter(|(_, happened)| happened == action).map(|(name, _)| name).collect()
}

/// What comes before the age in a message about a held lock.
fn age_cut(message: &str) -> &str {
    message.split(" ago").next().and_then(|before| before.rsplit_once(' ')).map_or(message, |(before, _)| before)
}

fn notes(events: &[Value]) -> String {
    let ends = of_kind(events, "step.finished");
    ends.iter().map(|event| event["msg"].to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn on_a_new_cluster_it_lists_everything_as_new() {
    let demo = Demo::on(Bed::fresh());
    let events = changes_nothing(&demo, || demo.install().arg("--dry-run").run());
    let new = actions(&events, "created");
    for object in
        ["Namespace dc-k8s-system", "Deployment dc-k8s-controller-manager", "Profile small", "ConfigMap dc-install"]
    {
        assert!(new.iter().any(|name| name == object), "{object} is not among {new:?}");
    }
    assert!(applied(&events).iter().all(|(_, action)| action == "created"), "{:?}", applied(&events));
    let planned: Vec<_> =
        of_kind(&events, "resource.planned").iter().map(|event| event["data"]["address"].clone()).collect();
    assert!(planned.contains(&json!("time_static.installed")), "{planned:?}");
    assert!(notes(&events).contains("would change: "), "{}", notes(&events));

    let events = changes_nothing(&demo, || demo.bootstrap("one", 1883).arg("--dry-run").run());
    assert_eq!(actions(&events, "created")[..2], ["Instance one", "Namespace dci-one"]);
    let said: String = of_kind(&events, "note.made").iter().map(|event| event["msg"].to_string()).collect();
    assert!(said.contains("`dcctl install` comes first"), "{said}");
    assert!(notes(&events).contains("would verify: The instance answers"), "{}", notes(&events));
}

#[test]
fn on_an_installed_cluster_it_says_what_would_change_and_plans_from_a_copy_of_the_state() {
    let demo = Demo::copied(Bed::take());
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    demo.edit("operator/a-controller.yaml", "busybox:1.37", "busybox:1.38");
    demo.edit("operator/b-profiles.yaml", "replicas: 2, connections: 60", "replicas: 3, connections: 60");
    let events = changes_nothing(&demo, || demo.install().arg("--dry-run").run());
    assert_eq!(
        actions(&events, "configured"),
        ["Deployment dc-k8s-controller-manager", "Profile small", "ConfigMap dc-install"]
    );
    assert!(actions(&events, "created").is_empty() && actions(&events, "unchanged").len() > 4);
    assert_eq!(of_kind(&events, "resource.planned").len(), 0, "the prerequisites are as they should be");
    assert!(notes(&events).contains("no changes"), "{}", notes(&events));

    // A live instance is refused by a real run, and so it is by this one.
    let refused = demo.bootstrap("one", 1883).arg("--dry-run").run().expect_code(6).verdict();
    assert_eq!(refused["data"]["failure"]["code"], "guard.live_instance");

    let calls = demo.bed.file("calls");
    let recording = demo.recording_tofu(&calls);
    let planned = || demo.bootstrap("two", 1884).arg("--tofu").arg(&recording).arg("--dry-run").run();
    let events = changes_nothing(&demo, planned);
    assert!(notes(&events).contains("would change: "), "{}", notes(&events));
    let calls = fs::read_to_string(calls).expect("OpenTofu was called");
    let plan = calls.lines().find(|line| line.starts_with("plan ")).expect("it plans");
    assert!(plan.contains(" -lock=false"), "{plan}");
    let states = demo.bed.file("state").display().to_string();
    assert!(!plan.contains(&states), "the state itself is not named: {plan}");
    assert!(!calls.lines().any(|line| line.starts_with("apply") || line.starts_with("state")), "{calls}");
}

#[test]
fn a_remote_backend_that_was_never_initialised_cannot_be_planned_without_writing() {
    let rig = Rig::new().slow_thing(0.0);
    let root = rig.bed.file("bundle/infra/backend.tf");
    fs::write(root, "terraform {\n  backend \"kubernetes\" {\n    secret_suffix = \"x\"\n  }\n}\n")
        .expect("it can be written");
    let before = quiet(&rig.bed.api());
    let done = rig.bootstrap("one").arg("--dry-run").run().expect_code(0);
    assert_eq!(everything(&rig.bed.api()), before);
    let events = done.events();
    assert!(notes(&events).contains("cannot plan without writing"), "{}", notes(&events));
    assert_eq!(rig.ledger.entries(), []);
}

#[test]
fn it_names_the_holder_that_a_real_run_would_have_met_and_still_succeeds() {
    let rig = Rig::new();
    let long_ago = "2020-01-01T00:00:00.000000Z".to_owned();
    for (renewed, stale, part) in [
        (rfc3339(System.wall()), false, "is being worked on by"),
        (long_ago, true, "take the claim with `dcctl instances reclaim --kube-context bed`"),
    ] {
        let written = rig.other_holds(ALICE, &renewed);
        let done = rig.bootstrap("one").arg("--dry-run").run().expect_code(0);
        let events = done.events();
        let observed = of_kind(&events, "lock.observed")[0]["data"].clone();
        assert_eq!((&observed["holder"], &observed["stale"]), (&json!(ALICE), &json!(stale)));
        let said = observed["text"].as_str().map(str::to_owned);
        assert!(said.as_ref().is_some_and(|text| text.contains(part)), "{observed}");
        assert_eq!(done.verdict()["data"]["holder"], ALICE);
        let install = ["install", "--dry-run", "--output", "jsonl", "--bundle", "bundle"];
        let events = rig.bed.dcctl(install).run().expect_code(0).events();
        assert_eq!(
            of_kind(&events, "lock.observed")[0]["data"]["text"].as_str().map(age_cut),
            said.as_deref().map(age_cut)
        );
        assert_eq!(rig.lease(), Some(written), "the Lease was not touched");
        rig.bed.api().delete(crate::lock::rig::LEASE).expect("the bed may do everything");
    }
    let free = rig.bootstrap("one").arg("--dry-run").run().expect_code(0);
    assert!(notes(&free.events()).contains("a dry run takes no lock"), "{}", notes(&free.events()));
}
