//! What a person sees in each state of the lock.

use serde_json::{Value, json};

use super::*;
use crate::lock::record::NAME;

fn place(context: &str) -> Place {
    Place::Cluster(context.to_owned())
}

fn wall() -> Timestamp {
    "2026-11-30T00:10:00Z".parse().expect("a time")
}

fn seen(change: impl FnOnce(&mut Value)) -> Observation {
    let mut raw = json!({
        "metadata": {
            "name": NAME, "uid": "u", "resourceVersion": "1",
            "annotations": {
                "core.devicechain.io/instance": "prod",
                "dcctl.devicechain.io/verb": "bootstrap",
                "dcctl.devicechain.io/step": "Apply infrastructure",
                "dcctl.devicechain.io/job-url": "https://ci.example.com/7",
                "dcctl.devicechain.io/ci": "GitLab",
                "dcctl.devicechain.io/job-attempt": "2",
                "dcctl.devicechain.io/pod-namespace": "ci",
                "dcctl.devicechain.io/pod-name": "runner-1",
            },
        },
        "spec": {
            "holderIdentity": "alice@build-01/48213/9f3c1a20b7e4d5c6",
            "leaseDurationSeconds": 60, "leaseTransitions": 3,
            "acquireTime": "2026-11-30T00:00:00.000000Z", "renewTime": "2026-11-30T00:09:56.000000Z",
        },
    });
    change(&mut raw);
    Observation::new(Record::from_json(raw).expect("whole"))
}

fn text(seen: &Observation) -> String {
    status(Some(seen), &place("prod-cluster"), wall()).text(&place("prod-cluster"))
}

#[test]
fn a_live_holder_is_shown_with_every_fact() {
    assert_eq!(
        text(&seen(|_| {})),
        "\
the lock of this cluster (Lease dcctl in dc-k8s-system) is held
  held by:    alice@build-01/48213/9f3c1a20b7e4d5c6
  user:       alice
  host:       build-01
  pid:        48213
  instance:   prod
  command:    bootstrap
  step:       Apply infrastructure
  claimed:    2026-11-30T00:00:00.000000Z, 10m0s ago by this machine's clock
  renewed:    2026-11-30T00:09:56.000000Z, 4s ago by this machine's clock
  looks:      live: renewed within its 60 s by this machine's clock. That is evidence, not a verdict: another \
machine's clock wrote the time.
  CI:         GitLab, attempt 2
  job:        https://ci.example.com/7
  pod:        ci/runner-1
  next:       wait for it to finish"
    );
}

#[test]
fn a_stale_holder_is_shown_with_where_to_look_and_its_last_will() {
    let stale = seen(|raw| {
        raw["spec"]["renewTime"] = json!("2026-11-30T00:03:48.000000Z");
        let notes = raw["metadata"]["annotations"].as_object_mut().expect("an object");
        for (key, value) in [
            ("stop-requested", "2026-11-30T00:03:40Z"),
            ("stop-signal", "SIGTERM"),
            ("stop-deadline", "2026-11-30T00:23:40Z"),
            ("children", "tofu apply (pid 99)"),
        ] {
            notes.insert(format!("dcctl.devicechain.io/{key}"), json!(value));
        }
    });
    let said = text(&stale);
    for line in [
        "  renewed:    2026-11-30T00:03:48.000000Z, 6m12s ago by this machine's clock",
        "  looks:      stale: not renewed within its 60 s by this machine's clock. That is evidence, not a verdict: \
         another machine's clock wrote the time.",
        "  last will:  a stop was requested at 2026-11-30T00:03:40Z by SIGTERM; it may take until \
         2026-11-30T00:23:40Z; still running: tofu apply (pid 99)",
        "  next:       look at the job https://ci.example.com/7, look for the pod ci/runner-1, look for process 48213 \
         on build-01; only if it is gone: `dcctl instances reclaim --kube-context prod-cluster`",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\nis not in\n{said}");
    }
}

#[test]
fn a_holder_that_was_asked_to_stop_is_waited_for_no_longer_than_its_stop_may_take() {
    let stopping = seen(|raw| {
        let notes = raw["metadata"]["annotations"].as_object_mut().expect("an object");
        for (key, value) in [("stop-requested", "2026-11-30T00:09:50Z"), ("stop-deadline", "2026-11-30T00:29:50Z")] {
            notes.insert(format!("dcctl.devicechain.io/{key}"), json!(value));
        }
    });
    let next = status(Some(&stopping), &place("prod-cluster"), wall()).next;
    assert_eq!(
        next,
        "it was asked to stop: wait until 2026-11-30T00:29:50Z; if it holds the lock then, look at the job \
         https://ci.example.com/7, look for the pod ci/runner-1, look for process 48213 on build-01; only if it is \
         gone: `dcctl instances reclaim --kube-context prod-cluster`"
    );
}

#[test]
fn a_holder_of_another_form_is_shown_as_it_is() {
    let other = seen(|raw| raw["spec"]["holderIdentity"] = json!("some-controller_\u{1b}[2J1234"));
    let status = status(Some(&other), &place("c"), wall());
    let holder = status.holder.expect("held");
    assert_eq!(holder.identity, "some-controller_\u{fffd}[2J1234");
    assert_eq!((holder.user, holder.host, holder.pid), (None, None, None));
}

#[test]
fn a_renewal_from_the_future_is_said() {
    let ahead = seen(|raw| raw["spec"]["renewTime"] = json!("2026-11-30T01:10:00.000000Z"));
    assert!(text(&ahead).contains("lies 1h0m ahead of this machine's clock, so the two clocks disagree"));
}

#[test]
fn a_free_lock_has_nothing_to_say_but_that() {
    let free = "the lock of this cluster (Lease dcctl in dc-k8s-system) is free\n  next:       nothing: the next run can \
                claim it";
    assert_eq!(status(None, &place("c"), wall()).text(&place("c")), free);
    assert_eq!(text(&seen(|raw| raw["spec"]["holderIdentity"] = json!(""))), free);
}

#[test]
fn a_lease_that_finalizers_keep_is_not_free() {
    let deleting = |raw: &mut Value| {
        raw["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:01:00Z");
        raw["metadata"]["finalizers"] = json!(["example.com/keep"]);
    };
    let held = seen(deleting);
    assert!(text(&held).contains("  deleting:   since 2026-11-30T00:01:00Z\n  finalizers: example.com/keep"));
    let status = status(
        Some(&seen(|raw| {
            deleting(raw);
            raw["spec"] = json!({});
        })),
        &place("c"),
        wall(),
    );
    assert_eq!(status.state, State::BeingDeleted);
    assert!(status.text(&place("c")).contains("take them off"));
}

#[test]
fn as_data_it_says_the_same() {
    let data = serde_json::to_value(status(Some(&seen(|_| {})), &place("c"), wall())).expect("plain data");
    assert_eq!(data["state"], "held");
    assert_eq!(data["looks"], "live");
    assert_eq!(data["holder"]["pid"], 48213);
    assert_eq!(data["renewed_ms_ago"], 4_000);
    assert_eq!(data["work"]["step"], "Apply infrastructure");
}
