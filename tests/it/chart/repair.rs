//! A release that a dead Helm left half way: refused while that Helm may live, repaired when it cannot.

use std::fs;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use rustix::process::Signal;
use serde_json::Value;

use crate::bed::dcctl::Finished;
use crate::bed::wait;
use crate::chart::rig::{Rig, reasons, signal};

fn notes(finished: &Finished) -> Vec<String> {
    let notes = finished.events().into_iter().filter(|event| event["type"] == "note.made");
    notes.map(|event| event["data"]["text"].as_str().unwrap_or_default().to_owned()).collect()
}

fn programs(finished: &Finished) -> Vec<String> {
    let started = finished.events().into_iter().filter(|event| event["type"] == "process.started");
    started.map(|event| event["data"]["program"].as_str().unwrap_or_default().to_owned()).collect()
}

fn uid(object: Option<Value>) -> Value {
    object.expect("it is there")["metadata"]["uid"].clone()
}

#[test]
fn a_pending_install_of_an_unknown_helm_is_refused_while_young_and_adopted_when_old() {
    let rig = Rig::new();
    rig.make_namespace();
    rig.kill_a_helm();
    assert_eq!(rig.history(), ["pending-install"]);
    let service = uid(rig.object("services", "web"));

    let finished = rig.bootstrap().run().expect_code(6);
    let verdict = rig.assert_failed(&finished, "guard.release_pending");
    assert!(verdict["failure"]["message"].to_string().contains("pending-install"), "{verdict}");
    assert!(reasons(&verdict).contains("run the same command again"), "{verdict}");
    assert_eq!(rig.history(), ["pending-install"], "nothing was touched");

    let finished = rig.bootstrap_when_old();
    assert!(notes(&finished).iter().any(|note| note.contains("pending-install")), "{:?}", notes(&finished));
    assert!(!programs(&finished).contains(&"helm uninstall".to_owned()), "that would take volumes along");
    assert_eq!(rig.history(), ["deployed"]);
    assert_eq!(uid(rig.object("services", "web")), service, "what was there is adopted");
}

#[test]
fn the_helm_of_a_run_of_this_machine_that_was_killed_is_known_to_be_gone() {
    let rig = Rig::declared();
    let (run, helm) = rig.start_in_vain();
    signal(helm, Signal::KILL);
    let finished = run.finish().expect_code(1);
    let verdict = rig.assert_failed(&finished, "chart.failed");
    assert!(verdict["failure"].to_string().contains("signal 9"), "{verdict}");
    assert_eq!(rig.history(), ["pending-install"]);
    assert_eq!(rig.phase().as_deref(), Some("Failed"));

    let finished = rig.bootstrap().run().expect_code(0);
    assert!(notes(&finished).iter().any(|note| note.contains("has ended on this machine")), "{:?}", notes(&finished));
    assert_eq!(rig.history(), ["deployed"]);
}

#[test]
fn a_pending_upgrade_is_rolled_back_to_what_was_deployed() {
    let rig = Rig::new();
    rig.bootstrap().run().expect_code(0);
    let (run, helm) = rig.start_in_vain();
    signal(helm, Signal::KILL);
    run.finish().expect_code(1);
    assert_eq!(rig.history(), ["deployed", "pending-upgrade"]);

    let finished = rig.bootstrap().run().expect_code(0);
    assert!(programs(&finished).contains(&"helm rollback".to_owned()), "{:?}", programs(&finished));
    assert_eq!(rig.history(), ["superseded", "pending-upgrade", "superseded", "deployed"]);
}

#[test]
fn a_pending_upgrade_that_nothing_was_deployed_before_is_forgotten() {
    let rig = Rig::new();
    rig.bootstrap_in_vain("2s").run().expect_code(1);
    let (run, helm) = rig.start_in_vain();
    signal(helm, Signal::KILL);
    run.finish().expect_code(1);
    assert_eq!(rig.history(), ["failed", "pending-upgrade"]);

    rig.bootstrap().run().expect_code(0);
    assert_eq!(rig.history(), ["superseded", "deployed"]);
}

#[test]
fn a_release_whose_helm_still_runs_on_this_machine_is_left_alone() {
    let rig = Rig::new();
    let (run, helm) = rig.start_in_vain();
    let supervisor = run.supervisor();
    // The front first, so that it takes over from nobody.
    run.signal(Signal::KILL);
    signal(supervisor, Signal::KILL);
    wait::fact("the holder to be gone", || rustix::process::test_kill_process(supervisor).is_err().then_some(()));
    rig.reclaim();
    let finished = rig.bootstrap().run().expect_code(6);
    let verdict = rig.assert_failed(&finished, "guard.release_pending");
    assert!(verdict["failure"].to_string().contains(&helm.as_raw_nonzero().to_string()), "{verdict}");

    signal(helm, Signal::KILL);
    wait::fact("Helm to be gone", || rustix::process::test_kill_process(helm).is_err().then_some(()));
    rig.bootstrap().run().expect_code(0);
    assert_eq!(rig.history(), ["deployed"]);
}

#[test]
fn an_uninstall_that_was_left_is_finished_first() {
    let rig = Rig::new();
    rig.bootstrap().run().expect_code(0);
    rig.rewrite("uninstalling");
    let finished = rig.bootstrap_when_old();
    assert!(programs(&finished).contains(&"helm uninstall".to_owned()), "{:?}", programs(&finished));
    assert_eq!(rig.history(), ["deployed"]);
}

#[test]
fn a_rollback_that_was_left_with_nothing_deployed_is_forgotten() {
    let rig = Rig::new();
    rig.bootstrap().run().expect_code(0);
    rig.bootstrap().run().expect_code(0);
    rig.rewrite("pending-rollback");
    let finished = rig.bootstrap_when_old();
    assert!(!programs(&finished).contains(&"helm rollback".to_owned()), "nothing is deployed to go back to");
    assert_eq!(rig.history(), ["superseded", "deployed"]);
}

#[test]
fn a_dry_run_refuses_as_the_run_would_or_says_the_repair_and_does_nothing() {
    let rig = Rig::new();
    rig.make_namespace();
    rig.kill_a_helm();
    let finished = rig.bootstrap().arg("--dry-run").run().expect_code(6);
    assert_eq!(finished.verdict()["data"]["failure"]["code"], "guard.release_pending");

    rig.bootstrap_when_old();
    let (run, helm) = rig.start_in_vain();
    signal(helm, Signal::KILL);
    run.finish().expect_code(1);
    let finished = rig.bootstrap().arg("--dry-run").run().expect_code(0);
    assert!(finished.stdout.contains("it is rolled back to revision 1 first"), "{}", finished.stdout);
    assert_eq!(rig.history(), ["deployed", "pending-upgrade"]);
}

#[test]
fn a_living_helm_of_a_person_s_is_not_taken_for_one_of_ours_that_ended_before_it_began_a_revision() {
    let rig = Rig::new();
    let broken = rig.bundle().join("chart/templates/broken.yaml");
    for before in [&[][..], &["deployed"]] {
        fs::write(&broken, "{{ fail \"not today\" }}\n").expect("the test's folder can be written");
        rig.bootstrap().run().expect_code(1);
        assert_eq!(rig.history(), before, "it had not begun a revision");
        fs::remove_file(&broken).expect("it is there");

        // It gets the number that ours would have had.
        let mut person = rig.start_a_helm();
        let pending = rig.history();
        for more in [&["--dry-run"][..], &[]] {
            let refused = rig.bootstrap().args(more).run().expect_code(6);
            let verdict = refused.verdict()["data"].clone();
            assert_eq!(verdict["failure"]["code"], "guard.release_pending", "{verdict}");
            assert!(reasons(&verdict).contains("no run of this machine shows that the Helm"), "{verdict}");
        }
        assert_eq!(rig.history(), pending, "nothing was repaired beside a Helm that lives");
        person.kill().expect("it is our child");
        person.wait().expect("it is our child");
        rig.bootstrap_when_old();
        assert_eq!(rig.history().last().map(String::as_str), Some("deployed"));
        // So that the second round begins with one revision.
        rig.destroy().run().expect_code(0);
        rig.bootstrap().run().expect_code(0);
    }
}

#[test]
fn a_record_that_was_written_after_its_helm_had_ended_is_not_repaired_before_its_time() {
    let rig = Rig::new();
    rig.bootstrap().run().expect_code(0);
    let before = rig.history();
    // Somebody sets the revision back, marks and all, when our Helm is long gone.
    let later = System.wall() + Duration::from_secs(8);
    wait::fact("our Helm to be long gone", || (System.wall() > later).then_some(()));
    rig.rewrite("pending-upgrade");
    let refused = rig.bootstrap().run().expect_code(6);
    let verdict = rig.assert_failed(&refused, "guard.release_pending");
    assert!(reasons(&verdict).contains("no run of this machine shows"), "{verdict}");
    assert_eq!((before.len(), rig.history()), (1, vec!["pending-upgrade".to_owned()]), "nothing was touched");
}
