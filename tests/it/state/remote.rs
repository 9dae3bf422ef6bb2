//! States that a backend keeps: in the cluster, and on a server.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::state_backend::StateBackend;
use crate::bed::wait;
use crate::lock::rig::{of_kind, text};
use crate::state::rig::{Kept, LINEAGE, SERIAL, Store, kill, kill_both, kill_tofu, way_on};

fn failure(verdict: &Value) -> (&str, &str) {
    let failure = &verdict["data"]["failure"];
    (failure["code"].as_str().unwrap_or_default(), failure["message"].as_str().unwrap_or_default())
}

/// An instance is built, moved and removed.
fn lives(store: Store) {
    let kept = Kept::in_store(store);
    let rig = &kept.rig;
    rig.bootstrap("one").run().expect_code(0);
    let lineage = kept.recorded().expect("the declaration names it");
    if let Store::Server(server) = &kept.store {
        assert_eq!(server.state("one").map(|state| text(&state["lineage"])).as_ref(), Some(&lineage));
    }
    let listed = rig.bed.dcctl(["instances", "list", "--output", "json"]).run().expect_code(0).stdout;
    let listed: Value = serde_json::from_str(&listed).expect("it is JSON");
    assert_eq!(listed["instances"][0]["state"], "elsewhere", "{listed}");
    let again = rig.bootstrap("one").run().expect_code(6).verdict();
    assert_eq!(failure(&again).0, "guard.live_instance");
    kept.thing("  note = \"changed\"\n");
    rig.upgrade("one").run().expect_code(0);
    let same = rig.upgrade("one").run().expect_code(0);
    assert_eq!(of_kind(&same.events(), "resource.started").len(), 0);
    assert_eq!(kept.recorded(), Some(lineage));
    assert!(!rig.state_dir("one").join("infrastructure.tfstate").exists());
    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.phase("one"), rig.ledger.living("slow").len(), kept.locked_by()), (None, 0, None));
    // What is left in the backend is an empty state, and a new instance takes it.
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!(rig.ledger.living("slow").len(), 1);
}

#[test]
fn an_instance_lives_with_its_state_in_the_cluster() {
    lives(Store::Cluster);
}

#[test]
fn an_instance_lives_with_its_state_on_a_server() {
    lives(Store::Server(StateBackend::start()));
}

#[test]
fn a_stop_lets_the_creation_end_and_a_state_elsewhere_has_it() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        kept.things(&[("slow", "  seconds = 3\n"), ("after", "")]);
        let run = rig.bootstrap("one").start();
        Kept::wait_until_in_flight(&run);
        run.signal(Signal::TERM);
        let stopped = run.finish().expect_code(10);
        assert_eq!(of_kind(&stopped.events(), "process.interrupted").len(), 1);
        assert_eq!((kept.locked_by(), rig.lease()), (None, None));
        rig.bootstrap("one").run().expect_code(0);
        assert_eq!((rig.ledger.created("slow"), rig.ledger.living("after").len()), (1, 1), "nothing was lost");
    }
}

#[test]
fn a_killed_run_leaves_a_state_elsewhere_whole_and_unlocked() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        kept.thing("  seconds = 3\n");
        // Its front goes on in the supervisor's place.
        let run = rig.bootstrap("one").start();
        Kept::wait_until_in_flight(&run);
        kill(run.supervisor());
        let verdict = run.finish().expect_code(1).verdict();
        assert_eq!(failure(&verdict).0, "supervisor.killed");
        assert_eq!((kept.locked_by(), rig.ledger.living("slow").len()), (None, 1));

        kept.things(&[("slow", "  seconds = 3\n"), ("after", "  seconds = 3\n")]);
        let run = rig.bootstrap("one").start();
        run.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.after");
        kill_both(rig, &run);
        // OpenTofu comes to its end alone.
        wait::fact("the state to be free", || kept.locked_by().is_none().then_some(()));
        rig.bootstrap("one").run().expect_code(0);
        assert_eq!((rig.ledger.created("slow"), rig.ledger.created("after")), (1, 1), "nothing was made twice");
    }
}

#[test]
fn a_state_elsewhere_that_is_gone_is_refused_before_anything_is_changed() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        rig.bootstrap("one").run().expect_code(0);
        kept.lose();
        kept.thing("  note = \"changed\"\n");
        for run in [rig.upgrade("one"), rig.destroy("one"), rig.destroy("one")] {
            let refused = run.run().expect_code(6);
            let verdict = refused.verdict();
            let (code, message) = failure(&verdict);
            assert_eq!(code, "guard.state_missing", "{verdict}");
            assert!(message.contains("\"one\" was built with"), "{message}");
            assert_eq!(rig.phase("one").as_deref(), Some("Ready"), "{verdict}");
            assert_eq!((&verdict["data"]["lock"], rig.ledger.entries().len() > 1), (&json!("released"), false));
            assert_eq!(of_kind(&refused.events(), "resource.started").len(), 0);
        }
        let hints = rig.destroy("one").run().verdict()["data"]["failure"]["hints"].to_string();
        assert!(hints.contains("--abandon-infrastructure"), "{hints}");
        let abandoned = rig.destroy("one").arg("--abandon-infrastructure").run().expect_code(0);
        assert!(
            abandoned.stdout.contains("backend has of it") && !abandoned.stdout.contains("cannot be named"),
            "{}",
            abandoned.stdout
        );
        assert_eq!((rig.phase("one"), rig.ledger.living("slow").len()), (None, 1));
    }
}

#[test]
fn a_state_of_nothing_but_bytes_is_not_taken_for_an_empty_one() {
    let server = StateBackend::start();
    let kept = Kept::in_store(Store::Server(server.clone()));
    let rig = &kept.rig;
    rig.bootstrap("one").run().expect_code(0);
    let whole = server.state("one").expect("there is a state").to_string();
    for bytes in [&b""[..], b"nonsense", b"{}", &whole.as_bytes()[..40]] {
        server.put("one", Some(bytes));
        for run in [rig.upgrade("one"), rig.destroy("one")] {
            let code = run.run().code();
            // What OpenTofu itself cannot read it says itself, and then nothing is applied either.
            assert!(matches!(code, Some(1 | 6)), "{code:?}");
        }
        assert_eq!((rig.phase("one").as_deref(), rig.ledger.living("slow").len()), (Some("Ready"), 1));
    }
    server.put("one", Some(whole.as_bytes()));
    rig.destroy("one").run().expect_code(0);
}

#[test]
fn the_state_of_another_instance_or_another_cluster_is_refused() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        rig.bootstrap("one").run().expect_code(0);
        let refused = rig.bootstrap("two").run().expect_code(6).verdict();
        let (code, message) = failure(&refused);
        assert_eq!(code, "guard.state_missing");
        assert!(message.contains("has the OpenTofu state of instance \"one\""), "{message}");
        assert_eq!(rig.ledger.entries().len(), 1);
        // A cluster that knows nothing of the instance: everything but the state is gone.
        let declared = format!("{}/one", crate::lock::rig::INSTANCES);
        rig.bed
            .api()
            .merge(&declared, &json!({ "metadata": { "finalizers": null } }))
            .expect("the bed may do everything");
        rig.bed.api().delete(&declared).expect("the bed may do everything");
        for run in [rig.destroy("one"), rig.bootstrap("one"), rig.destroy("one")] {
            let refused = run.run().expect_code(6).verdict();
            let (code, message) = failure(&refused);
            assert_eq!(code, "guard.state_missing", "{refused}");
            assert!(message.contains("nothing on this cluster says that they are those of \"one\""), "{message}");
            assert_eq!(rig.ledger.living("slow").len(), 1, "another cluster's thing was taken away");
        }
    }
}

#[test]
fn what_a_killed_opentofu_had_made_and_a_state_elsewhere_does_not_have_is_named() {
    let kept = Kept::in_store(Store::Server(StateBackend::start()));
    let rig = &kept.rig;
    kept.things(&[("first", ""), ("slow", "  seconds = 60\n")]);
    let run = rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    kill_tofu(&run, "tofu apply");
    let verdict = run.finish().expect_code(1).verdict();
    let causes = verdict["data"]["failure"]["causes"].to_string();
    // A backend is written to every twenty seconds at most.
    assert!(causes.contains("bed_thing.first") && causes.contains("bed_thing.slow"), "{causes}");
    assert!(causes.contains("may exist without being in the state"), "{causes}");
}

#[test]
fn a_dry_run_looks_at_a_state_elsewhere_and_writes_nothing() {
    let server = StateBackend::start();
    let kept = Kept::in_store(Store::Server(server.clone()));
    let rig = &kept.rig;
    let only_reads = |run: crate::bed::Dcctl, code: i32| {
        let before = server.requests().len();
        let verdict = run.arg("--dry-run").run().expect_code(code).verdict();
        let asked = server.requests().split_off(before);
        assert!(!asked.is_empty() && asked.iter().all(|request| request.starts_with("GET ")), "{asked:?}");
        verdict
    };
    only_reads(rig.bootstrap("one"), 0);
    rig.bootstrap("one").run().expect_code(0);
    only_reads(rig.upgrade("one"), 0);
    only_reads(rig.destroy("one"), 0);
    kept.lose();
    for run in [rig.upgrade("one"), rig.destroy("one")] {
        assert_eq!(failure(&only_reads(run, 6)).0, "guard.state_missing");
    }
}

/// What OpenTofu could not save is brought to its place by a person, as the refusal says, and the next run goes on from it.
#[test]
fn a_state_that_a_server_did_not_take_is_pushed_by_hand_and_gone_on_from() {
    let server = StateBackend::start();
    let kept = Kept::in_store(Store::Server(server.clone()));
    let rig = &kept.rig;
    kept.thing("  seconds = 3\n");
    let run = rig.bootstrap("one").start();
    Kept::wait_until_in_flight(&run);
    server.fill(true);
    run.finish().expect_code(1);
    server.fill(false);
    let unsaved = rig.state_dir("one").join("infrastructure.errored.tfstate");
    assert!(std::fs::read_to_string(&unsaved).expect("it is kept").contains("bed_thing"));
    let refused = rig.bootstrap("one").run().expect_code(6).verdict();
    let (code, message) = failure(&refused);
    assert_eq!(code, "guard.state_errored");
    assert!(message.contains(&unsaved.display().to_string()), "{message}");

    // An initialised copy of the root, as the refusal says.
    type_in(&kept, "tofu init -input=false");
    let held = server.lock("one").is_some();
    assert!(!held, "the run took its own lock off");
    type_in(&kept, &format!("tofu state push {}", unsaved.display()));
    std::fs::remove_file(&unsaved).expect("it is there");
    rig.bootstrap("one").run().expect_code(0);
    assert_eq!((rig.ledger.created("slow"), rig.ledger.living("slow").len()), (1, 1), "nothing was made twice");
    assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
}

/// Types this in a copy of the root.
#[track_caller]
fn type_in(kept: &Kept, line: &str) {
    let (bed, copy) = (&kept.rig.bed, kept.rig.bed.file("copy"));
    crate::verbs::rig::copy(&bed.file("bundle/infra"), &copy);
    let mut shell = crate::bed::child::command("sh".as_ref());
    let path = format!("{}:/usr/bin:/bin", bed.described().programs.display());
    let kubeconfig = bed.described().folder.join("admin.kubeconfig");
    shell.env("PATH", path).env("TF_CLI_CONFIG_FILE", &bed.described().tofurc).env("KUBECONFIG", &kubeconfig);
    shell.env("KUBE_CONFIG_PATH", kubeconfig).env("HOME", &copy).current_dir(&copy).args(["-ec", line]);
    let ended = shell.output().expect("there is a shell");
    assert!(ended.status.success(), "{line}: {}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn an_instance_that_was_let_go_of_gets_its_state_elsewhere_back_by_the_way_that_the_refusal_names() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        rig.bootstrap("one").run().expect_code(0);
        let lineage = kept.recorded();
        rig.bed.dcctl(["instances", "release", "one", "--yes"]).run().expect_code(0);
        let refused = rig.bootstrap("one").run().expect_code(6).verdict();
        assert_eq!((failure(&refused).0, rig.ledger.created("slow")), ("guard.state_missing", 1), "{refused}");
        type_in(&kept, &way_on(&refused["data"]["failure"], "run this again: "));
        assert_eq!(kept.recorded(), lineage);
        rig.bootstrap("one").run().expect_code(0);
        assert_eq!((rig.ledger.created("slow"), rig.phase("one").as_deref()), (1, Some("Ready")));
        rig.destroy("one").run().expect_code(0);
        assert_eq!(rig.ledger.living("slow").len(), 0);
    }
}

#[test]
fn a_built_instance_whose_declaration_names_no_state_is_not_built_a_second_time_from_an_empty_backend() {
    for store in Store::remote() {
        let kept = Kept::in_store(store);
        let rig = &kept.rig;
        rig.bootstrap("one").run().expect_code(0);
        let unnamed = json!({ LINEAGE: null, SERIAL: null });
        let unnamed = json!({ "metadata": { "annotations": unnamed } });
        rig.bed
            .api()
            .merge(&format!("{}/one", crate::lock::rig::INSTANCES), &unnamed)
            .expect("the bed may do everything");
        kept.lose();
        for run in [rig.upgrade("one"), rig.upgrade("one").arg("--dry-run"), rig.destroy("one")] {
            let refused = run.run().expect_code(6).verdict();
            let (code, message) = failure(&refused);
            assert_eq!(code, "guard.state_missing");
            assert!(message.contains("the declaration of \"one\" names none"), "{message}");
            assert_eq!(rig.phase("one").as_deref(), Some("Ready"));
        }
        let hints = rig.destroy("one").run().verdict()["data"]["failure"]["hints"].to_string();
        assert!(hints.contains("--abandon-infrastructure") && !hints.contains("nothing in it"), "{hints}");
        assert_eq!(rig.ledger.created("slow"), 1, "it was made a second time");
        // Who knows that there was none begins one.
        let refusal = || rig.upgrade("one").run().verdict()["data"]["failure"].clone();
        if matches!(kept.store, Store::Server(_)) {
            type_in(&kept, &way_on(&refusal(), "how to go on: "));
        }
        type_in(&kept, &way_on(&refusal(), "run this again: "));
        rig.upgrade("one").run().expect_code(0);
        assert_eq!((rig.ledger.created("slow"), kept.recorded().is_some()), (2, true));
    }
}
