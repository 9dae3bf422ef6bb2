//! Runs that wait for the lock: they say whom they wait for, ask nobody meanwhile, and all of them get their turn.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::{Dcctl, Fault, Proxy, Rule, wait};
use crate::lock::rig::{LEASE, Rig, of_kind, text};

const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";

fn now() -> String {
    format!("{:.6}", dcctl::clock::Clock::wall(&dcctl::clock::System))
}

/// A bootstrap that waits like this, on a machine that can be said to have been suspended.
fn waiting(rig: &Rig, wait: &str) -> Dcctl {
    rig.bootstrap("one").arg(wait).env("BED_SUSPENDED", rig.suspended())
}

/// Waits until it says the so manyth time that it waits.
fn says_that_it_waits(run: &Running, times: usize) -> Value {
    let journal = run.journal();
    wait::fact("a word of waiting", || {
        let events = journal.events();
        of_kind(&events, "lock.blocked").get(times - 1).map(|event| (*event).clone())
    })
}

/// The requests about the lock that came through this proxy, as `GET`, `GET watch`, ….
fn asked(proxy: &Proxy) -> Vec<String> {
    let about = proxy.seen().into_iter().filter(|seen| seen.path.contains("/leases"));
    about.map(|seen| if seen.path.contains("watch=true") { "WATCH".to_owned() } else { seen.method }).collect()
}

#[test]
fn a_run_that_waits_says_whom_it_waits_for_and_claims_when_the_lock_is_free() {
    let rig = Rig::new();
    rig.other_holds(ALICE, &now());
    let proxy = Proxy::start(&rig.bed);
    let run = waiting(&rig, "--wait").with_kubeconfig(&proxy.kubeconfig("admin")).start();
    let said = says_that_it_waits(&run, 1);
    assert_eq!((&said["data"]["manner"], &said["data"]["holder"]), (&json!("waits"), &json!(ALICE)));
    let begins = format!(
        "waiting for the lock: this cluster (working on instance \"prod\") is being worked on by {ALICE}, which renewed "
    );
    assert!(text(&said["data"]["text"]).starts_with(&begins), "{said}");
    // Renewals are heard of and not asked for.
    wait::fact("the watch", || asked(&proxy).contains(&"WATCH".to_owned()).then_some(()));
    for _ in 0..3 {
        rig.bed.api().merge(LEASE, &json!({ "spec": { "renewTime": now() } })).expect("the bed may do everything");
    }
    // It is said again after a minute, with how long it has waited.
    rig.suspend(61);
    let again = says_that_it_waits(&run, 2);
    assert!(again["data"]["waited_ms"].as_u64().is_some_and(|waited| waited >= 60_000), "{again}");
    assert!(text(&again["data"]["text"]).starts_with("waiting for the lock, 1m"), "{again}");
    // The claim that was refused with its read, the read from which the watch goes on, and the watch.
    assert_eq!(asked(&proxy), ["POST", "GET", "GET", "WATCH"]);
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let done = run.finish().expect_code(0);
    assert_eq!(done.verdict()["data"]["lock"], "released");
    let events = done.events();
    let claimed = of_kind(&events, "lock.claimed");
    assert!(claimed[0]["data"]["waited_ms"].as_u64().is_some_and(|waited| waited >= 60_000), "{claimed:?}");
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_holder_that_looks_stale_is_said_to_and_is_never_taken_and_the_time_to_wait_ends() {
    let rig = Rig::new();
    let before = rig.other_holds(ALICE, LONG_AGO);
    let run = waiting(&rig, "--wait=10m").start();
    let said = says_that_it_waits(&run, 1);
    assert_eq!(said["data"]["stale"], true);
    assert!(text(&said["data"]["text"]).contains("by this machine's clock that looks stale"), "{said}");
    rig.suspend(599);
    says_that_it_waits(&run, 2);
    rig.suspend(601);
    let verdict = run.finish().expect_code(21).verdict();
    let failure = &verdict["data"]["failure"];
    assert_eq!((&failure["code"], &verdict["data"]["lock"]), (&json!("lock.held_stale"), &json!("never_taken")));
    assert!(text(&failure["causes"][0]).starts_with("the run waited for it for 10m"), "{verdict}");
    assert_eq!(rig.lease(), Some(before));
    assert_eq!(rig.writes_of("admin"), ["create 409 leases"]);
}

#[test]
fn one_signal_ends_the_waiting_at_once_and_leaves_nothing_behind() {
    let rig = Rig::new();
    let before = rig.other_holds(ALICE, LONG_AGO);
    for signal in [Signal::TERM, Signal::INT] {
        let run = waiting(&rig, "--wait").start();
        says_that_it_waits(&run, 1);
        run.signal(signal);
        let ended = run.finish().expect_code(10);
        let events = ended.events();
        let at =
            |kind: &str| of_kind(&events, kind).last().expect("it is told")["elapsed_ms"].as_u64().expect("a time");
        // It takes a few milliseconds, which `benches/run` holds against its budget; this machine may be busy.
        let took = at("step.finished") - at("stop.requested");
        assert!(took < 2_000, "{took} ms");
        let verdict = ended.verdict();
        assert_eq!((&verdict["data"]["lock"], &verdict["data"]["holder"]), (&json!("never_taken"), &Value::Null));
        wait::fact("every process to end", || rig.bed.mark().pids().is_empty().then_some(()));
    }
    assert_eq!(rig.lease(), Some(before));
    assert_eq!(rig.writes_of("admin"), ["create 409 leases", "create 409 leases"]);
}

#[test]
fn every_verb_waits_for_the_lock_and_one_that_may_go_on_without_it_does_so_only_after_its_time() {
    let rig = Rig::new().declared();
    rig.install().run().expect_code(0);
    rig.bootstrap("one").run().expect_code(0);
    rig.other_holds(ALICE, &now());
    let verbs: [(&str, Dcctl, i32); 4] = [
        ("install", rig.install(), 20),
        ("bootstrap", rig.bootstrap("two"), 20),
        ("upgrade", rig.upgrade("one"), 0),
        ("destroy", rig.destroy("one"), 0),
    ];
    for (verb, run, code) in verbs {
        let run = run.arg("--wait=2s").start();
        let said = says_that_it_waits(&run, 1);
        assert_eq!(said["data"]["holder"], ALICE, "{verb}");
        let ended = run.finish().expect_code(code);
        let lock = if code == 0 { "not_held" } else { "never_taken" };
        assert_eq!(ended.verdict()["data"]["lock"], lock, "{verb}");
    }
}

#[test]
fn waiting_survives_lost_connections_and_a_version_that_is_too_old() {
    let rig = Rig::new();
    rig.other_holds(ALICE, LONG_AGO);
    let proxy = Proxy::start(&rig.bed);
    let gone = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old resource version" });
    let run = waiting(&rig, "--wait").with_kubeconfig(&proxy.kubeconfig("admin")).start();
    says_that_it_waits(&run, 1);
    let watches = |many: usize| {
        let opened = || asked(&proxy).iter().filter(|what| *what == "WATCH").count();
        wait::fact("the next watch", || (opened() >= many).then_some(()));
    };
    watches(1);
    proxy.add(Rule::on("GET", "watch=true").nth(1).request(Fault::Answer(410, gone.to_string())));
    proxy.cut();
    watches(3);
    // Nobody can be reached, and the lock is given back and taken by another meanwhile.
    proxy.add(Rule::on("GET", "/leases").request(Fault::Reset));
    proxy.cut();
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let bob = "bob@laptop/9912/3a7f00c1d2e4b596";
    rig.other_holds(bob, LONG_AGO);
    proxy.clear();
    let said = says_that_it_waits(&run, 2);
    assert_eq!(said["data"]["holder"], bob);
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    run.finish().expect_code(0);
}

#[test]
fn of_many_waiters_all_get_their_turn_one_after_the_other() {
    let many = 20;
    let rig = Rig::new();
    rig.other_holds(ALICE, &now());
    let names: Vec<String> = (1..=many).map(|number| format!("w{number}")).collect();
    let runs: Vec<Running> = names.iter().map(|name| rig.bootstrap(name).arg("--wait=10m").start()).collect();
    for run in &runs {
        says_that_it_waits(run, 1);
    }
    rig.bed.api().delete(LEASE).expect("the bed may do everything");
    let mut turns: Vec<(String, String)> = runs
        .into_iter()
        .map(|run| {
            let events = run.finish().expect_code(0).events();
            let at = |kind: &str| text(&of_kind(&events, kind)[0]["time"]);
            (at("lock.claimed"), at("lock.releasing"))
        })
        .collect();
    turns.sort();
    assert!(turns.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two at once: {turns:#?}");
    assert_eq!(rig.lease(), None);
}

#[test]
fn a_dry_run_waits_for_nobody_and_a_mistyped_wait_is_refused() {
    let rig = Rig::new();
    rig.other_holds(ALICE, LONG_AGO);
    let seen = rig.bootstrap("one").args(["--dry-run", "--wait"]).run().expect_code(0);
    assert_eq!(seen.verdict()["data"]["holder"], ALICE);
    let wrong = rig.bootstrap("one").arg("--wait=soon").run().expect_code(2);
    assert!(text(&wrong.verdict()["data"]["failure"]["message"]).contains("nor `forever`"), "{}", wrong.stdout);
    rig.bootstrap("one").env("DCCTL_WAIT", "1s").run().expect_code(21);
}
