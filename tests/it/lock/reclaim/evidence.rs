//! What a person is shown before they type.

use serde_json::{Value, json};

use crate::bed::terminal::CTRL_C;
use crate::lock::reclaim::{ALICE, QUESTION, asked_by, assert_untouched, command};
use crate::lock::rig::{LEASES, Rig, text};

/// A Lease of Alice's with these notes.
fn left_with(rig: &Rig, notes: &[(&str, &str)]) -> Value {
    let mut annotations = json!({ "core.devicechain.io/instance": "prod" });
    for (key, value) in notes {
        annotations[format!("dcctl.devicechain.io/{key}")] = json!(value);
    }
    let lease = json!({
        "metadata": { "name": "dcctl", "annotations": annotations },
        "spec": { "holderIdentity": ALICE, "leaseDurationSeconds": 60, "renewTime": "2020-01-01T00:00:00.000000Z" },
    });
    rig.bed.api().create(LEASES, &lease).expect("the bed may do everything")
}

/// The screen when the question is asked.
fn shown(rig: &Rig, user: &str) -> String {
    let seat = asked_by(command(rig).with_kubeconfig(rig.bed.kubeconfig(user)));
    let screen = seat.screen();
    seat.press(CTRL_C);
    seat.expect_code(10);
    screen
}

#[test]
fn holder_instance_and_age_come_first_and_everything_that_can_be_checked_below() {
    let rig = Rig::new();
    let before = left_with(
        &rig,
        &[
            ("verb", "bootstrap"),
            ("step", "Apply infrastructure"),
            ("ci", "GitLab CI"),
            ("job-url", "https://forge.example/job/7"),
            ("stop-requested", "2020-01-01T00:00:00Z"),
            ("stop-signal", "SIGTERM"),
            ("children", "tofu apply (process 4711)"),
        ],
    );
    let screen = shown(&rig, "admin");
    let first = format!("  held by:   {ALICE}\n  instance:  prod\n  renewed:   ");
    assert!(screen.starts_with(&first), "{screen}");
    for line in [
        "  looks:     stale: not renewed within its 60 s by this machine's clock. That is evidence, not a verdict: ",
        "  command:   bootstrap, at \"Apply infrastructure\", in GitLab CI\n",
        "  job:       https://forge.example/job/7\n",
        "  last will: a stop was requested at 2020-01-01T00:00:00Z by SIGTERM; still running: tofu apply (process 4711)\n",
        "  tools:     tofu apply (process 4711) was at work at its last renewal, and may still be; no limit is known: look \
         for pid 48213 on host build-01, and for what it started\n",
    ] {
        assert!(screen.contains(line), "{line}\nis not in\n{screen}");
    }
    assert!(screen.ends_with(&format!("\n\n{QUESTION}")), "{screen}");
    assert_untouched(&rig, &before);
}

#[test]
fn the_holder_s_pod_is_looked_for_and_what_cannot_be_told_is_said() {
    let rig = Rig::new();
    let pod = json!({ "metadata": { "name": "runner-0" },
        "spec": { "containers": [{ "name": "c", "image": "example.com/c:1" }] } });
    let pods = "/api/v1/namespaces/default/pods";
    let made = rig.bed.api().create(pods, &pod).expect("the bed may do everything");
    let uid = text(&made["metadata"]["uid"]);
    let names = |name: &'static str| vec![("pod-namespace", "default"), ("pod-name", name)];
    let cases = [
        ("admin", [names("runner-0"), vec![("pod-uid", uid.as_str())]].concat(), "default/runner-0 is there ("),
        (
            "admin",
            [names("runner-0"), vec![("pod-uid", "another")]].concat(),
            "default/runner-0 is gone: the pod that has its name now is another one\n",
        ),
        (
            "admin",
            names("runner-1"),
            "default/runner-1 is not in this cluster: it is gone, or it belongs to another cluster\n",
        ),
        ("admin", vec![("pod-name", "runner-0")], "whether runner-0 is still there cannot be told: it does not say"),
    ];
    for (user, notes, said) in cases {
        left_with(&rig, &notes);
        let screen = shown(&rig, user);
        assert!(screen.contains(&format!("  pod:       {said}")), "{said}\nis not in\n{screen}");
        rig.bed.api().delete(crate::lock::rig::LEASE).expect("the bed may do everything");
    }
    rig.bed.api().delete(&format!("{pods}/runner-0")).expect("the bed may do everything");
}
