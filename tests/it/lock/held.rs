//! While a run holds the lock: what the Lease says, that it is renewed, and what others are told.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::lock::rig::{Rig, holder_parts, is_live_message, of_kind, text};

#[test]
fn the_lease_says_who_works_on_what_and_is_renewed_while_a_step_is_at_work() {
    let rig = Rig::new().slow_thing(120.0);
    let run = rig.bootstrap("one").start();
    rig.wait_until_in_flight(&run);
    let lease = rig.lease().expect("the run holds the lock");
    let holder = assert_says_who_and_what(&lease, &run);

    // The end of a tool's start may still ride on the first of these; the next two are ten seconds apart.
    let first = rig.wait_for_renewal();
    let second = rig.wait_for_renewal();
    let third = rig.wait_for_renewal();
    let at = |lease: &Value| text(&lease["spec"]["renewTime"]).parse::<jiff::Timestamp>().expect("a time");
    let between = at(&third).duration_since(at(&second)).as_secs();
    assert!((9..20).contains(&between), "{between} s between two renewals");
    for field in ["holderIdentity", "acquireTime", "leaseTransitions", "leaseDurationSeconds"] {
        assert_eq!(third["spec"][field], lease["spec"][field], "{field}");
    }
    assert_eq!(first["metadata"]["uid"], third["metadata"]["uid"], "it is renewed and never made anew");

    assert_status_shows_it(&rig, &holder);
    assert_a_second_run_is_told(&rig, &holder);

    run.signal(Signal::TERM);
    let stopped = run.finish();
    assert!(matches!(stopped.code(), Some(10 | 11)), "{:?}\n{}", stopped.code(), stopped.stdout);
    assert_eq!(stopped.verdict()["data"]["lock"], "released");
    assert_eq!(rig.lease(), None);
}

/// Everything that the documents say the Lease shows. Answers the holder.
fn assert_says_who_and_what(lease: &Value, run: &Running) -> String {
    let (spec, annotations) = (&lease["spec"], &lease["metadata"]["annotations"]);
    assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(60), &json!(0)));
    let holder = text(&spec["holderIdentity"]);
    let (who, pid, suffix) = holder_parts(&holder);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(who.ends_with(&format!("@{host}")) && who.len() > host.len() + 1, "{holder}");
    assert!(suffix.len() == 16 && suffix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{holder}");
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).expect("the process in the identity is alive");
    assert!(program.ends_with("dcctl") && pid != run.pid(), "the supervisor is named, which outlives the front");

    assert_eq!(annotations["core.devicechain.io/instance"], "one");
    let started = run.wait_for("run.started", |_| true);
    let note = |key: &str| annotations[format!("dcctl.devicechain.io/{key}")].clone();
    assert_eq!((note("run"), note("verb")), (started["run"].clone(), json!("bootstrap")));
    assert_eq!(note("step"), "Apply infrastructure");
    assert!(text(&note("children")).starts_with("tofu apply (process "), "{annotations}");
    text(&note("started")).parse::<jiff::Timestamp>().expect("a time");
    holder
}

fn assert_status_shows_it(rig: &Rig, holder: &str) {
    let human = rig.lock_status("human").run().expect_code(0).stdout;
    let begins = "the lock of this cluster (Lease dcctl in dc-k8s-system) is held\n";
    assert!(human.starts_with(begins), "{human}");
    let (who, pid, _) = holder_parts(holder);
    let (user, host) = who.split_once('@').expect("user@host");
    for line in [
        &format!("  held by:    {holder}"),
        &format!("  user:       {user}"),
        &format!("  host:       {host}"),
        &format!("  pid:        {pid}"),
        "  instance:   one",
        "  command:    bootstrap",
        "  step:       Apply infrastructure",
    ] {
        assert!(human.lines().any(|said| said == line), "{line} is not in\n{human}");
    }
    for begin in [
        "  started:    2",
        "  claimed:    2",
        "  renewed:    2",
        "  looks:      live: ",
        "  last will:  still running: tofu apply (process ",
    ] {
        assert!(human.lines().any(|said| said.starts_with(begin)), "{begin} is not in\n{human}");
    }
    let said = rig.lock_status("json").run().expect_code(0).stdout;
    assert_eq!(said.lines().count(), 1, "{said}");
    let json: Value = serde_json::from_str(&said).expect("one object");
    assert_eq!((&json["state"], &json["looks"]), (&json!("held"), &json!("live")));
    assert_eq!(json["holder"]["identity"], holder);
    assert_eq!(json["work"]["instance"], "one");
    let age = json["renewed_ms_ago"].as_u64().expect("it was renewed");
    assert!(age < 60_000, "{age}");
}

/// The second run is by the same user on the same host, and on the same instance.
fn assert_a_second_run_is_told(rig: &Rig, holder: &str) {
    let before = rig.lease();
    let second = rig.bootstrap("one").run().expect_code(20);
    let verdict = second.verdict();
    assert_eq!((&verdict["data"]["outcome"], &verdict["data"]["lock"]), (&json!("blocked"), &json!("never_taken")));
    assert_eq!(
        (&verdict["data"]["failure"]["code"], &verdict["data"]["holder"]),
        (&json!("lock.held"), &json!(holder))
    );
    let said = text(&verdict["data"]["failure"]["message"]);
    assert!(is_live_message(&said, "one", holder), "{said}");
    let events = second.events();
    let blocked = of_kind(&events, "lock.blocked");
    assert_eq!((blocked.len(), text(&blocked[0]["data"]["text"])), (1, said));
    let begun: Vec<String> = of_kind(&events, "step.started").iter().map(|event| text(&event["step"])).collect();
    assert_eq!(begun, ["build-images", "claim-the-cluster"], "it is refused at its second step");
    let (mine, theirs) = (before.expect("held"), rig.lease().expect("still held"));
    assert_eq!(mine["spec"]["holderIdentity"], theirs["spec"]["holderIdentity"]);
    assert_eq!(rig.ledger.created("slow"), 1, "the second run applied nothing");
}

#[test]
fn lock_status_of_a_free_lock_says_so() {
    let rig = Rig::new();
    let free = "the lock of this cluster (Lease dcctl in dc-k8s-system) is free\n  next:       nothing: the next run can claim it";
    assert_eq!(rig.lock_status("human").run().expect_code(0).stdout, free);
    let json: Value = serde_json::from_str(&rig.lock_status("json").run().expect_code(0).stdout).expect("one object");
    assert_eq!((&json["state"], &json["holder"]), (&json!("free"), &Value::Null));
}

#[test]
fn a_lock_that_looks_stale_is_never_taken_and_the_message_says_what_to_do() {
    let rig = Rig::new();
    let holder = "alice@build-01/48213/9f3c1a20b7e4d5c6";
    let written = rig.other_holds(holder, "2020-01-01T00:00:00.000000Z");
    let human = rig.lock_status("human").run().expect_code(0).stdout;
    for part in ["is held", holder, "looks:      stale: ", "look for process 48213 on build-01", "--kube-context bed`"]
    {
        assert!(human.contains(part), "{part} is not in\n{human}");
    }
    let json: Value = serde_json::from_str(&rig.lock_status("json").run().expect_code(0).stdout).expect("one object");
    assert_eq!((&json["looks"], &json["holder"]["pid"]), (&json!("stale"), &json!(48213)));

    // The bundle asks for a Lease of 60 s. An age of hours is written in hours and minutes.
    let blocked = rig.bootstrap("one").run().expect_code(21);
    let verdict = blocked.verdict();
    assert_eq!(verdict["data"]["failure"]["code"], "lock.held_stale");
    let said = text(&verdict["data"]["failure"]["message"]);
    let begins = format!("this cluster (working on instance \"prod\") is claimed by {holder}, which last renewed ");
    let ends = " ago — by this machine's clock that looks stale, but a clock that disagrees looks the same. If that \
                process is genuinely gone, take the claim with `dcctl instances reclaim --kube-context bed`, which \
                checks properly before it steals";
    assert!(said.starts_with(&begins) && said.ends_with(ends), "{said}");
    assert_eq!(rig.lease(), Some(written), "not a byte of it was changed");
}
