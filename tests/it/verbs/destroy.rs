//! `dcctl destroy`.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::{Bed, Dcctl, LEASE, LEASES, wait};
use crate::lock::rig::Rig;
use crate::verbs::rig::{Demo, PASSWORD, applied, files, quiet};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const DECLARED: &str = "/apis/core.devicechain.io/v1beta1/instances/one";
const NAMESPACE: &str = "/api/v1/namespaces/dci-one";

/// How each step ended, by its id.
fn steps(finished: &Finished) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let events = finished.events();
    let ends = events.iter().filter(|event| event["type"] == "step.finished");
    ends.map(|event| (text(&event["data"]["id"]), text(&event["data"]["outcome"]))).collect()
}

/// The outcomes of the steps of a destroy, but for the claim, in order.
fn outcomes(finished: &Finished) -> Vec<String> {
    let steps = steps(finished);
    let ids =
        ["mark-destroying", "uninstall-chart", "destroy-infrastructure", "delete-namespace", "release-the-declaration"];
    ids.iter().map(|id| steps.get(*id).cloned().unwrap_or_default()).collect()
}

/// Nothing of the instance is left.
#[track_caller]
fn assert_gone(demo: &Demo) {
    assert_eq!((demo.get(DECLARED), demo.get(NAMESPACE)), (None, None));
    assert!(!demo.state_dir("one").exists(), "the state is still here");
}

/// A cluster with the instance `one`.
fn with_one(bed: Bed) -> Demo {
    let demo = Demo::on(bed);
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    demo
}

#[test]
fn a_destroy_removes_one_instance_and_every_object_of_the_others_stays_as_it_was() {
    let demo = with_one(Bed::take());
    demo.bootstrap("two", 1884).run().expect_code(0);
    let (before, state) = (quiet(&demo.bed.api()), files(&demo.state_dir("two")));
    let service = demo.get(&format!("{NAMESPACE}/services/web")).expect("the chart has one");
    // Kubernetes keeps an object beside each Service, in no namespace.
    let address = format!("/{}", service["spec"]["clusterIP"].as_str().expect("it has an address"));
    let done = demo.destroy("one").run().expect_code(0);
    for said in [&done.stdout, &done.stderr] {
        assert!(!said.contains(PASSWORD), "a secret was said");
    }
    assert_eq!(done.verdict()["data"]["lock"], "released");
    assert_eq!(outcomes(&done), ["done"; 5]);
    assert_gone(&demo);

    let after = quiet(&demo.bed.api());
    let of_one = |place: &&String| {
        let (resource, name) = place.split_once(' ').expect("a resource and a name");
        name.starts_with("dci-one/")
            || (resource.ends_with("/namespaces") && name == "/dci-one")
            || (resource.ends_with("/instances") && name == "/one")
            || (resource.ends_with("/ipaddresses") && name == address)
    };
    let others: BTreeMap<_, _> = before.iter().filter(|(place, _)| !of_one(place)).collect();
    assert_eq!(after.iter().collect::<BTreeMap<_, _>>(), others);
    assert!(before.len() > others.len() + 5, "there was something to remove");
    assert_eq!(files(&demo.state_dir("two")), state);

    let again = demo.destroy("one").run().expect_code(0);
    assert_eq!(outcomes(&again), ["nothing"; 5]);
    demo.bootstrap("one", 1883).run().expect_code(0);
}

#[test]
fn a_dry_run_lists_everything_that_would_go_and_touches_nothing() {
    let demo = with_one(Bed::take());
    let pods = json!({ "metadata": { "name": "by-hand" } });
    demo.bed.api().create(&format!("{NAMESPACE}/configmaps"), &pods).expect("the bed may do everything");
    let (before, state) = (quiet(&demo.bed.api()), files(&demo.state_dir("one")));
    let dry = demo.destroy("one").arg("--dry-run").run().expect_code(0);
    assert_eq!((quiet(&demo.bed.api()), files(&demo.state_dir("one"))), (before, state));
    assert_eq!(dry.verdict()["data"]["lock"], "never_taken");
    let objects = applied(&dry.events());
    for object in ["Deployment web", "ConfigMap by-hand", "Secret web", "Namespace dci-one", "Instance one"] {
        assert!(objects.contains(&(object.to_owned(), "deleted".to_owned())), "{object} is not in {objects:?}");
    }
    let planned = dry.events();
    let planned: Vec<_> = planned.iter().filter(|event| event["type"] == "resource.planned").collect();
    assert_eq!(planned.len(), 4, "{planned:?}");
    assert!(planned.iter().all(|event| event["data"]["action"] == "delete"));
}

#[test]
fn a_lost_state_is_refused_before_the_lock_and_abandoned_only_by_name() {
    let demo = with_one(Bed::take());
    let state = demo.state_dir("one").join("infrastructure.tfstate");
    let before = quiet(&demo.bed.api());
    let refused = |says: &str| {
        for more in [&[][..], &["--dry-run"]] {
            let verdict = demo.destroy("one").args(more).run().expect_code(6).verdict();
            let failure = &verdict["data"]["failure"];
            assert_eq!(
                (&failure["code"], &verdict["data"]["lock"]),
                (&json!("guard.state_missing"), &json!("never_taken"))
            );
            assert_eq!(verdict["data"]["outcome"], "refused");
            assert!(failure["message"].as_str().is_some_and(|said| said.contains(says)), "{failure}");
            assert!(failure["hints"].to_string().contains("--abandon-infrastructure"), "{failure}");
        }
    };
    let kept = fs::read(&state).expect("there is a state");
    fs::remove_file(&state).expect("it is there");
    refused("is not here: there is no `");
    fs::write(&state, "").expect("it can be written");
    refused("is not here: `");
    fs::write(&state, r#"{"version":4,"serial":1,"lineage":"another","resources":[]}"#).expect("written");
    refused("is not the OpenTofu state that \"one\" was built with");
    assert_eq!(quiet(&demo.bed.api()), before);

    // With the state at hand it is named what stays.
    fs::write(&state, kept).expect("it can be written");
    let abandon = || demo.destroy("one").arg("--abandon-infrastructure");
    let dry = abandon().arg("--dry-run").run().expect_code(0);
    assert!(dry.stdout.contains("would be abandoned: 4 of its state: module.broker."), "{}", dry.stdout);
    fs::remove_file(&state).expect("it is there");
    let done = abandon().run().expect_code(0);
    assert!(done.stdout.contains("abandoned: what is not known here"), "{}", done.stdout);
    assert_eq!((demo.get(DECLARED), demo.get(NAMESPACE)), (None, None));
}

#[test]
fn a_state_that_could_not_be_saved_is_named_first() {
    let demo = with_one(Bed::take());
    let unsaved = demo.state_dir("one").join("infrastructure.errored.tfstate");
    fs::write(&unsaved, "{}").expect("it can be written");
    let commands: [&dyn Fn() -> Dcctl; 2] = [&|| demo.destroy("one"), &|| demo.upgrade("one", 1883, 1)];
    for command in commands {
        let verdict = command().run().expect_code(6).verdict();
        assert_eq!(verdict["data"]["failure"]["code"], "guard.state_errored");
        assert_eq!(verdict["data"]["kept"][0]["path"].as_str(), unsaved.to_str());
        assert_eq!((&verdict["data"]["lock"], demo.phase("one").as_deref()), (&json!("never_taken"), Some("Ready")));
    }
}

#[test]
fn a_destroy_that_ended_before_any_of_its_steps_is_gone_on_with() {
    let demo = with_one(Bed::take());
    for (step, phase) in [
        ("mark-destroying", "Ready"),
        ("uninstall-chart", "Destroying"),
        ("destroy-infrastructure", "Destroying"),
        ("delete-namespace", "Destroying"),
        ("release-the-declaration", "Destroying"),
    ] {
        demo.destroy("one").env("DCCTL_TEST_BREAK", step).run().expect_code(70);
        assert_eq!(demo.phase("one").as_deref(), Some(phase), "before {step}");
    }
    let done = demo.destroy("one").run().expect_code(0);
    assert_eq!(outcomes(&done), ["nothing", "nothing", "nothing", "nothing", "done"]);
    assert_gone(&demo);
}

#[test]
fn what_somebody_removed_by_hand_is_nothing_to_do() {
    let demo = with_one(Bed::take());
    // The release's record goes with the namespace, and the declaration waits with its finalizer.
    demo.bed.api().delete(NAMESPACE).expect("the bed may do everything");
    demo.bed.api().delete(DECLARED).expect("the bed may do everything");
    wait::fact("the namespace to be gone", || demo.get(NAMESPACE).is_none().then_some(()));
    assert!(demo.get(DECLARED).is_some(), "the finalizer keeps it");
    let done = demo.destroy("one").run().expect_code(0);
    assert_eq!(outcomes(&done), ["done", "nothing", "done", "nothing", "done"]);
    assert_gone(&demo);
}

#[test]
fn a_namespace_of_somebody_else_is_left_alone() {
    let demo = with_one(Bed::take());
    let label = |owner: Value| json!({ "metadata": { "labels": { "core.devicechain.io/instance": owner } } });
    for (owner, says) in [(json!("two"), "belongs to the instance \"two\""), (Value::Null, "nothing says that it is")] {
        demo.bed.api().merge(NAMESPACE, &label(owner)).expect("the bed may do everything");
        let verdict = demo.destroy("one").run().expect_code(6).verdict();
        let failure = &verdict["data"]["failure"];
        assert_eq!(failure["code"], "guard.claim_conflict");
        assert!(failure["message"].as_str().is_some_and(|said| said.contains(says)), "{failure}");
        assert_eq!(demo.phase("one").as_deref(), Some("Ready"));
    }
}

#[test]
fn a_destroy_warns_about_a_holder_and_goes_on_without_the_lock_and_gives_a_stuck_namespace_up() {
    let demo = with_one(Bed::take());
    let held = json!({ "metadata": { "name": "dcctl" }, "spec": { "leaseDurationSeconds": 60,
        "holderIdentity": ALICE, "renewTime": "2020-01-01T00:00:00.000000Z" } });
    let lease = demo.bed.api().create(LEASES, &held).expect("the bed may do everything");
    let held = json!({ "metadata": { "name": "held", "finalizers": ["bed.dcctl/hold"] } });
    let path = format!("{NAMESPACE}/configmaps");
    demo.bed.api().create(&path, &held).expect("the bed may do everything");

    let suspended = demo.bed.file("suspended");
    let run = demo.destroy("one").env("BED_SUSPENDED", &suspended).start();
    run.wait_for("step.started", |event| event["data"]["id"] == "delete-namespace");
    let kept = || {
        demo.get(NAMESPACE).is_some_and(|found| found["status"]["conditions"].to_string().contains("bed.dcctl/hold"))
    };
    wait::fact("the namespace to say what keeps it", || kept().then_some(()));
    fs::rename(demo.bed.write("suspended.next", "20"), &suspended).expect("the test's folder can be written");
    let waiting = run.wait_for("object.waiting", |event| event["data"]["kind"] == "Namespace");
    assert!(waiting["data"]["why"].as_str().is_some_and(|why| why.contains("bed.dcctl/hold")), "{waiting}");
    fs::rename(demo.bed.write("suspended.next", "301"), &suspended).expect("the test's folder can be written");
    let verdict = run.finish().expect_code(1).verdict();
    let failure = &verdict["data"]["failure"];
    assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&json!("namespace.stuck"), &json!("not_held")));
    assert!(failure["causes"].to_string().contains("bed.dcctl/hold in 1 resource instances"), "{failure}");
    assert!(failure["hints"].to_string().contains("has to let go"), "{failure}");
    assert_eq!(demo.phase("one").as_deref(), Some("Destroying"));

    let free = json!({ "metadata": { "finalizers": null } });
    demo.bed.api().merge(&format!("{path}/held"), &free).expect("the bed may do everything");
    let done = demo.destroy("one").run().expect_code(0);
    let blocked: Vec<_> = done.events().into_iter().filter(|event| event["type"] == "lock.blocked").collect();
    assert_eq!((blocked.len(), &blocked[0]["data"]["manner"]), (1, &json!("continues")));
    let said = blocked[0]["data"]["text"].as_str().unwrap_or_default().to_owned();
    assert!(said.ends_with("but if that run is live, this will fight it"), "{said}");
    assert_eq!(done.verdict()["data"]["lock"], "not_held");
    assert_eq!(demo.get(LEASE), Some(lease), "nobody wrote to it");
    assert_gone(&demo);
    // A person can have it refuse.
    demo.destroy("one").args(["--on-busy", "refuse"]).run().expect_code(21);
}

#[test]
fn an_api_service_that_keeps_a_namespace_is_named() {
    let demo = with_one(Bed::fresh());
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.nobody.example" }, "spec": { "group": "nobody.example", "version": "v1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
        "service": { "namespace": "default", "name": "nobody" } } });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    demo.bed.api().create(services, &service).expect("the bed may do everything");
    let held = json!({ "metadata": { "name": "dcctl" }, "spec": { "leaseDurationSeconds": 60,
        "holderIdentity": ALICE, "renewTime": "2020-01-01T00:00:00.000000Z" } });
    demo.bed.api().create(LEASES, &held).expect("the bed may do everything");
    let suspended = demo.bed.file("suspended");
    let run = demo.destroy("one").env("BED_SUSPENDED", &suspended).start();
    let kept = || {
        demo.get(NAMESPACE).is_some_and(|found| found["status"]["conditions"].to_string().contains("nobody.example/v1"))
    };
    wait::fact("the namespace to say what keeps it", || kept().then_some(()));
    fs::rename(demo.bed.write("suspended.next", "301"), &suspended).expect("the test's folder can be written");
    let verdict = run.finish().expect_code(1).verdict();
    let failure = &verdict["data"]["failure"];
    assert_eq!(failure["code"], "namespace.stuck");
    assert!(failure["causes"].to_string().contains("nobody.example/v1"), "{failure}");
    assert!(failure["hints"].to_string().contains("kubectl get apiservices"), "{failure}");
    demo.bed.api().delete(&format!("{services}/v1.nobody.example")).expect("the bed may do everything");
    demo.destroy("one").run().expect_code(0);
    assert_gone(&demo);
}

#[test]
fn an_uninstall_is_never_signalled_and_a_stop_waits_for_its_end() {
    let demo = with_one(Bed::take());
    let web = format!("{NAMESPACE}/configmaps/web");
    let hold = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    demo.bed.api().merge(&web, &hold(json!(["bed.dcctl/hold"]))).expect("the bed may do everything");
    let run = demo.destroy("one").start();
    run.wait_for("process.started", |event| event["data"]["program"] == "helm uninstall");
    let deleted = || demo.get(&web).filter(|web| !web["metadata"]["deletionTimestamp"].is_null());
    wait::fact("Helm to wait for what is held", deleted);
    run.signal(Signal::INT);
    run.wait_for("stop.requested", |_| true);
    demo.bed.api().merge(&web, &hold(Value::Null)).expect("the bed may do everything");
    let stopped = run.finish().expect_code(10);
    let events = stopped.events();
    assert!(events.iter().all(|event| event["type"] != "process.interrupted"), "{}", stopped.stdout);
    assert_eq!(steps(&stopped)["uninstall-chart"], "done");
    let done = demo.destroy("one").run().expect_code(0);
    assert_eq!(outcomes(&done), ["nothing", "nothing", "done", "done", "done"]);
    assert_gone(&demo);
}

#[test]
fn a_stop_lets_the_destruction_in_flight_end_and_the_next_run_goes_on() {
    let rig = Rig::new().declared().slow_thing(0.0);
    let thing = |name: &str, more: &str| {
        format!("resource \"bed_thing\" \"{name}\" {{\n  name = \"{name}\"\n  destroy_seconds = 2\n{more}}}\n")
    };
    let root = rig.bed.file("bundle/infra/main.tf");
    let text = fs::read_to_string(&root).expect("it is there");
    let head = &text[..text.find("resource").expect("it has one")];
    let things = [thing("first", ""), thing("second", "  depends_on = [bed_thing.first]\n")].concat();
    fs::write(&root, format!("{head}{things}")).expect("it can be written");
    rig.bootstrap("one").run().expect_code(0);

    let run = rig.destroy("one").start();
    run.wait_for("resource.started", |event| event["data"]["address"] == "bed_thing.second");
    run.signal(Signal::TERM);
    let stopped = run.finish().expect_code(10);
    let events = stopped.events();
    assert_eq!(events.iter().filter(|event| event["type"] == "process.interrupted").count(), 1);
    assert_eq!((rig.ledger.living("second").len(), rig.ledger.living("first").len()), (0, 1));
    assert_eq!((rig.phase("one").as_deref(), rig.lease()), (Some("Destroying"), None));

    rig.destroy("one").run().expect_code(0);
    assert_eq!((rig.ledger.living("first").len(), rig.phase("one")), (0, None));
}

/// What it had made is in no state, and may be there.
#[test]
fn a_state_into_which_a_killed_apply_wrote_nothing_is_not_taken_for_one_with_nothing_to_destroy() {
    let rig = Rig::new().declared().slow_thing(600.0);
    let run = rig.bootstrap("one").start();
    rig.wait_until_in_flight(&run);
    let tofu = run.wait_for("process.started", |event| event["data"]["program"] == "tofu apply")["data"]["pid"].clone();
    let tofu = tofu.as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a process id");
    rustix::process::kill_process(tofu, Signal::KILL).expect("it is the test's own");
    run.finish().expect_code(1);
    for more in [&[][..], &["--dry-run"]] {
        let refused = rig.destroy("one").args(more).run().expect_code(6);
        let failure = refused.verdict()["data"]["failure"].clone();
        assert_eq!(failure["code"], "guard.state_missing", "{failure}");
        assert!(failure["message"].to_string().contains("infrastructure.tfstate` is as dcctl began it"), "{failure}");
        assert!(failure["hints"].to_string().contains("--abandon-infrastructure"), "{failure}");
    }
    assert!(rig.phase("one").is_some(), "the declaration is gone");
    let abandoned = rig.destroy("one").arg("--abandon-infrastructure").run().expect_code(0);
    assert!(abandoned.stdout.contains("abandoned: what is not known here"), "{}", abandoned.stdout);
    assert_eq!((rig.phase("one"), rig.ledger.living("slow").len()), (None, 1));
}
