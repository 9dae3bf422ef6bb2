//! What dcctl does without a right that it can spare: it says so in the API server's own words, and goes on as far as it
//! goes.

use serde_json::{Value, json};

use crate::bed::terminal::Seat;
use crate::bed::{Bed, LEASE, LEASES};
use crate::refused::forbidden::{Scene, assert_no_outage, define, grant_all_but, run};
use crate::refused::{told, words};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// Alice holds the lock, from this pod, and has not renewed it for years.
fn left_by_alice(bed: &Bed, pod: &str) {
    let lease = json!({
        "metadata": { "name": "dcctl", "annotations": {
            "dcctl.devicechain.io/pod-namespace": "default", "dcctl.devicechain.io/pod-name": pod } },
        "spec": { "holderIdentity": ALICE, "leaseDurationSeconds": 60, "renewTime": "2020-01-01T00:00:00.000000Z" },
    });
    bed.api().create(LEASES, &lease).expect("the bed may do everything");
}

#[test]
fn who_may_not_delete_the_lock_empties_it_in_every_command_that_gives_it_back() {
    let bed = Bed::take();
    define(&bed);
    grant_all_but(&bed, Some(("dcctl-lock", "leases", "delete")));
    let sentence = "User \"nobody\" cannot delete resource \"leases\" in API group \"coordination.k8s.io\" in the \
                    namespace \"dc-k8s-system\"";
    let as_nobody = |words: &[&str]| bed.dcctl(words).with_kubeconfig(bed.kubeconfig("nobody"));
    let runs = [
        run(&bed, Scene::Install)().args(["--output", "jsonl"]),
        run(&bed, Scene::Bootstrap)().args(["--output", "jsonl"]),
        as_nobody(&["exec", "--output", "jsonl", "--", "true"]),
    ];
    for run in runs {
        // Each takes the Lease as the one before has left it.
        let done = run.run().expect_code(0);
        assert_eq!(done.verdict()["data"]["lock"], "released");
        let events = done.events();
        let released = events.iter().find(|event| event["type"] == "lock.released").expect("it is said");
        let why = released["data"]["why"].as_str().unwrap_or_default();
        assert!(released["data"]["manner"] == "emptied" && why.contains(sentence), "{released}");
        let lease = bed.api().get(LEASE).expect("an answer").expect("it is still there");
        assert_eq!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), "");
    }
    let human = as_nobody(&["exec", "--", "true"]).run().expect_code(0);
    assert!(words(&human.stderr).contains(&words(sentence)), "people are not told:\n{}", human.stderr);
    assert!(as_nobody(&["lock", "status"]).run().expect_code(0).stdout.contains("is free"));
}

#[test]
fn who_may_not_watch_the_lock_cannot_wait_for_it_and_is_told_so() {
    let bed = Bed::take();
    define(&bed);
    grant_all_but(&bed, Some(("dcctl-lock", "leases", "watch")));
    // Who does not wait does not need it.
    run(&bed, Scene::Bootstrap)().run().expect_code(0);
    left_by_alice(&bed, "runner-0");
    run(&bed, Scene::Bootstrap)().run().expect_code(21);
    let sentence = "User \"nobody\" cannot watch resource \"leases\" in API group \"coordination.k8s.io\" in the \
                    namespace \"dc-k8s-system\"";
    let waiting = run(&bed, Scene::Bootstrap);
    let said = told(&bed, || waiting().arg("--wait"), 5, "cluster.forbidden").says(&[sentence, "dcctl rbac"]);
    assert_no_outage(&said);
    let watching = bed.dcctl(["lock", "status", "--watch"]).with_kubeconfig(bed.kubeconfig("nobody"));
    let watching = watching.run().expect_code(5);
    assert!(watching.stdout.contains(ALICE) && watching.stderr.contains(sentence), "{}", watching.stderr);
}

#[test]
fn workloads_that_may_not_be_listed_are_said_and_seen_through_their_pods() {
    let bed = Bed::take();
    define(&bed);
    for plural in ["statefulsets", "daemonsets"] {
        grant_all_but(&bed, Some(("dcctl", plural, "list")));
        let done = run(&bed, Scene::Bootstrap)().args(["--output", "jsonl"]).run().expect_code(0);
        let sentence = format!("User \"nobody\" cannot list resource \"{plural}\" in API group \"apps\"");
        let says = |event: &Value| {
            let text = event["data"]["text"].as_str().unwrap_or_default();
            text.contains(&sentence) && text.ends_with("what of it there is, is seen through its pods")
        };
        let said: Vec<_> = done.events().into_iter().filter(|event| event["step"] == "wait-for-readiness").collect();
        assert!(said.iter().any(says), "{said:?}");
    }
}

#[test]
fn namespaces_that_an_account_may_not_list_are_said_and_never_taken_for_none() {
    let bed = Bed::take();
    define(&bed);
    grant_all_but(&bed, Some(("dcctl", "namespaces", "list")));
    for scene in [Scene::Bootstrap, Scene::Destroy] {
        let done = run(&bed, scene)().args(["--output", "jsonl"]).run().expect_code(0);
        let says = "was not looked at: this account may not list namespaces";
        let said = |event: &Value| event["data"]["text"].as_str().is_some_and(|text| text.ends_with(says));
        assert!(done.events().iter().any(said), "{scene:?}:\n{}", done.stdout);
    }
}

#[test]
fn whoever_may_not_see_the_holder_s_pod_is_told_so_and_can_reclaim_all_the_same() {
    let bed = Bed::take();
    define(&bed);
    grant_all_but(&bed, Some(("dcctl", "pods", "get")));
    left_by_alice(&bed, "runner-0");
    let suspended = bed.file("suspended");
    let reclaim = bed.dcctl(["instances", "reclaim", "--kube-context", "bed"]).env("BED_SUSPENDED", &suspended);
    let seat = Seat::take(reclaim.env("TERM", "xterm").with_kubeconfig(bed.kubeconfig("nobody")));
    seat.wait_for("Type the holder identity above");
    // The whole sentence is longer than what is shown of a text that somebody else wrote.
    let says = "  pod:       whether default/runner-0 is still there cannot be told: could not look for the pod \
                default/runner-0: pods \"runner-0\" is forbidden: User \"nobody\" cannot get resource \"pods\"";
    assert!(seat.screen().contains(says), "{}", seat.screen());
    seat.type_line(ALICE);
    seat.wait_for("no renewal so far; ");
    bed.write("suspended.next", "66");
    std::fs::rename(bed.file("suspended.next"), &suspended).expect("the test's folder can be written");
    assert!(seat.expect_code(0).ends_with("the cluster lock is now free\n"));
    assert_eq!(bed.api().get(LEASE).expect("an answer"), None);
}
