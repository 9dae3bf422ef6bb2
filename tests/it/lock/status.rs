//! `dcctl lock status` for scripts and for those who keep looking.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::{Dcctl, Fault, Proxy, Rule, wait};
use crate::lock::rig::{LEASE, Rig, text};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";

fn watching(rig: &Rig, form: &str, proxy: &Proxy) -> Dcctl {
    rig.lock_status(form).arg("--watch").with_kubeconfig(&proxy.kubeconfig("admin"))
}

fn now() -> Value {
    let now = format!("{:.6}", dcctl::clock::Clock::wall(&dcctl::clock::System));
    json!({ "spec": { "renewTime": now } })
}

/// Waits for a line of JSON with these members.
#[track_caller]
fn wait_for(run: &Running, state: &str, looks: &Value) -> Value {
    let part = format!("{{\"state\":\"{state}\",");
    let line = run.wait_for_last_line(&part, |line| line["looks"] == *looks);
    serde_json::from_str(&line).expect("it is an object")
}

#[test]
fn a_script_can_ask_for_the_exit_code_that_a_blocked_run_would_have() {
    let rig = Rig::new();
    let code = |form: &str, code: i32| drop(rig.lock_status(form).arg("--exit-code").run().expect_code(code));
    code("human", 0);
    rig.other_holds(ALICE, LONG_AGO);
    code("human", 21);
    code("json", 21);
    rig.bed.api().merge(LEASE, &now()).expect("the bed may do everything");
    code("json", 20);
    rig.lock_status("json").run().expect_code(0);
    // Free, and yet nobody can claim it.
    let kept = json!({ "metadata": { "finalizers": ["example.com/keep"] }, "spec": { "holderIdentity": "" } });
    rig.bed.api().merge(LEASE, &kept).expect("the bed may do everything");
    code("human", 0);
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    code("human", 21);
    let free = json!({ "metadata": { "finalizers": null } });
    rig.bed.api().merge(LEASE, &free).expect("the bed may do everything");
}

#[test]
fn a_watch_tells_every_change_as_it_comes_and_does_not_poll() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    let run = watching(&rig, "json", &proxy).arg("--exit-code").start();
    wait_for(&run, "free", &Value::Null);
    rig.other_holds(ALICE, LONG_AGO);
    let held = wait_for(&run, "held", &json!("stale"));
    assert_eq!((&held["holder"]["identity"], &held["work"]["instance"]), (&json!(ALICE), &json!("prod")));
    rig.bed.api().merge(LEASE, &now()).expect("the bed may do everything");
    wait_for(&run, "held", &json!("live"));
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    wait_for(&run, "free", &Value::Null);
    // Created anew by somebody else while the same watch goes on.
    rig.other_holds("bob@laptop/9912/3a7f00c1d2e4b596", LONG_AGO);
    let held = wait_for(&run, "held", &json!("stale"));
    assert_eq!(held["holder"]["user"], "bob");
    let asked: Vec<_> = proxy.seen().into_iter().filter(|seen| seen.path.contains("/leases")).collect();
    let (watches, reads): (Vec<_>, Vec<_>) = asked.iter().partition(|seen| seen.path.contains("watch=true"));
    assert_eq!((watches.len(), reads.len()), (1, 1), "{asked:?}");

    run.signal(Signal::INT);
    let ended = run.finish().expect_code(21);
    assert!(ended.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
}

#[test]
fn a_watch_survives_resets_expired_versions_and_an_api_server_that_is_away() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    let run = watching(&rig, "json", &proxy).start();
    wait_for(&run, "free", &Value::Null);
    let watches = || proxy.seen().iter().filter(|seen| seen.path.contains("watch=true")).count();
    let watched = |many: usize| wait::fact("the next watch", || (watches() >= many).then_some(()));
    watched(1);

    // Every connection is reset, and the Lease is made before there is a new one.
    proxy.cut();
    rig.other_holds(ALICE, LONG_AGO);
    wait_for(&run, "held", &json!("stale"));
    watched(2);

    // The version to go on from is too old: once as an answer, once within the watch.
    let gone = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old resource version" });
    let within = format!("{}\n", json!({ "type": "ERROR", "object": gone }));
    proxy.add(Rule::on("GET", "watch=true").nth(1).request(Fault::Answer(410, gone.to_string())));
    proxy.add(Rule::on("GET", "watch=true").nth(1).request(Fault::Answer(200, within)));
    proxy.cut();
    watched(5);
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    wait_for(&run, "free", &Value::Null);
    assert_eq!(proxy.seen().iter().filter(|seen| seen.fault == Some("answered")).count(), 2);

    // Nothing answers for a while. It is said once, and what has changed meanwhile is seen afterwards.
    proxy.add(Rule::on("GET", "/leases").request(Fault::Reset));
    proxy.cut();
    let resets = || proxy.seen().iter().filter(|seen| seen.fault == Some("reset")).count();
    wait::fact("two reads in vain", || (resets() >= 2).then_some(()));
    rig.other_holds("bob@laptop/9912/3a7f00c1d2e4b596", LONG_AGO);
    proxy.clear();
    let held = wait_for(&run, "held", &json!("stale"));
    assert_eq!(held["holder"]["user"], "bob");
    run.signal(Signal::TERM);
    let ended = run.finish().expect_code(0);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("dcctl: the lock cannot be seen just now: "), "{}", ended.stderr);
}

#[test]
fn for_people_a_watch_tells_what_changes_and_not_every_renewal() {
    let rig = Rig::new();
    let proxy = Proxy::start(&rig.bed);
    let run = watching(&rig, "human", &proxy).start();
    run.wait_for_line("(Lease dcctl in dc-k8s-system) is free");
    rig.other_holds(ALICE, LONG_AGO);
    run.wait_for_line("looks:      stale: ");
    for second in 1..4 {
        let renewed = json!({ "spec": { "renewTime": format!("2020-01-01T00:00:0{second}.000000Z") } });
        rig.bed.api().merge(LEASE, &renewed).expect("the bed may do everything");
    }
    let step = json!({ "metadata": { "annotations": { "dcctl.devicechain.io/step": "Install chart" } } });
    rig.bed.api().merge(LEASE, &step).expect("the bed may do everything");
    run.wait_for_line("step:       Install chart");
    rig.bed.api().merge(LEASE, &now()).expect("the bed may do everything");
    run.wait_for_line("looks:      live: ");
    // Nobody renews it any more, so by this machine's clock it looks stale again; no request tells that.
    let soon = json!({ "spec": { "leaseDurationSeconds": 1 } });
    rig.bed.api().merge(LEASE, &soon).expect("the bed may do everything");
    run.wait_for_line("not renewed within its 1 s by this machine's clock");
    run.signal(Signal::INT);
    let said = run.finish().expect_code(0).stdout;
    let blocks: Vec<&str> = said.split("\n\n").collect();
    assert!((5..=6).contains(&blocks.len()), "{} blocks:\n{said}", blocks.len());
    assert!(blocks.iter().all(|block| block.starts_with("the lock of this cluster ")), "{said}");
}

#[test]
fn who_may_not_watch_is_told_so_in_the_api_server_s_own_words() {
    let rig = Rig::new();
    let rule = json!({ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"] });
    let role = json!({ "metadata": { "name": "reader" }, "rules": [rule] });
    let binding = json!({ "metadata": { "name": "reader" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody" }] });
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    rig.bed.api().create(&format!("{rbac}/clusterroles"), &role).expect("the bed may do everything");
    rig.bed.api().create(&format!("{rbac}/clusterrolebindings"), &binding).expect("the bed may do everything");
    let as_nobody = |dcctl: Dcctl| dcctl.with_kubeconfig(rig.bed.kubeconfig("nobody"));
    as_nobody(rig.lock_status("human")).run().expect_code(0);
    let ended = as_nobody(rig.lock_status("human").arg("--watch")).run().expect_code(5);
    assert!(text(&json!(ended.stderr)).contains(r#"User "nobody" cannot watch resource "leases""#), "{}", ended.stderr);
}
