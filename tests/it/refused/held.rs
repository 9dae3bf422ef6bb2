//! A lock that somebody else holds: exit codes 20 and 21, the documented sentences, and nothing touched.

use dcctl::clock::{Clock, System, rfc3339};
use serde_json::json;

use crate::bed::Bed;
use crate::bed::LEASE;
use crate::bed::inventory::inventory;
use crate::refused::{HEAD, Told, told};

const HOLDER: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";

/// A bundle that would change much: definitions, an object, an instance.
fn bundle(bed: &Bed) -> std::path::PathBuf {
    let rest = "operator: { manifests: operator/ }\ninstance:\n  namespace: \"dci-${instance}\"\n";
    bed.write("bundle/operator/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: { name: touched }\n");
    let file = bed.write("bundle/bundle.yaml", &format!("{HEAD}{rest}"));
    file.parent().expect("it is in a folder").to_owned()
}

/// Somebody holds the lock, and renewed it this many seconds ago.
fn hold(bed: &Bed, ago: u64) {
    let renewed = rfc3339(System.wall() - std::time::Duration::from_secs(ago));
    let lease = json!({
        "metadata": { "name": "dcctl", "annotations": { "core.devicechain.io/instance": "prod" } },
        "spec": {
            "holderIdentity": HOLDER, "leaseDurationSeconds": 60, "leaseTransitions": 0,
            "acquireTime": renewed, "renewTime": renewed,
        },
    });
    let leases = LEASE.trim_end_matches("/dcctl");
    bed.api().create(leases, &lease).expect("the bed may do everything");
}

/// Both verbs, with nothing touched by either; `sentence` is what is said, with the age left out.
#[track_caller]
fn both_are_blocked(bed: &Bed, exit: i32, code: &str, sentence: (&str, &str)) {
    let bundle = bundle(bed);
    let before = inventory(&bed.api()).expect("the API server answers");
    for verb in [&["install"][..], &["bootstrap", "demo"]] {
        let said = told(bed, || bed.dcctl(verb).arg("--bundle").arg(&bundle), exit, code);
        let line = said.text.lines().next().expect("there is a sentence");
        let age = line.strip_prefix(sentence.0).and_then(|rest| rest.strip_suffix(sentence.1));
        assert!(age.is_some_and(is_age), "another sentence: {line}");
        assert_told_everywhere(&said, line);
        assert_eq!(inventory(&bed.api()).expect("the API server answers"), before, "something was touched");
    }
}

/// `4s`, `6m12s`.
fn is_age(text: &str) -> bool {
    text.ends_with('s') && text.starts_with(|first: char| first.is_ascii_digit()) && !text.contains(' ')
}

#[track_caller]
fn assert_told_everywhere(said: &Told, sentence: &str) {
    let blocked = said.events.iter().find(|event| event["type"] == "lock.blocked").expect("it is an event");
    let data = &blocked["data"];
    assert_eq!((&data["text"], &data["holder"]), (&sentence.into(), &HOLDER.into()));
    assert_eq!((&data["instance"], &data["manner"]), (&"prod".into(), &"refuses".into()));
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["holder"]), (&"blocked".into(), &HOLDER.into()), "{verdict}");
    assert_eq!(verdict["lock"], "never_taken", "{verdict}");
    // One error, which is the claim; whatever comes after it was not run, and says why.
    let bad = said.report.only_bad();
    assert_eq!(
        (&*bad.suite, &*bad.name, &*bad.result, &*bad.kind),
        ("dcctl.lock", "acquire", "error", "dcctl.LockBlocked")
    );
    assert!(bad.body.starts_with(sentence), "{}", bad.body);
    let skipped = said.report.with("skipped");
    let not_run = format!("not run: lock held by {HOLDER}");
    let (release, steps): (Vec<_>, Vec<_>) = skipped.into_iter().partition(|case| case.name == "release");
    assert_eq!(release.len(), 1, "{}", said.report.text);
    assert!(steps.len() >= 3 && steps.iter().all(|case| case.message == not_run), "{}", said.report.text);
    // Only what comes before the claim ran.
    assert_eq!(said.report.with("passed").len(), 1, "{}", said.report.text);
    assert!(said.human.contains("is blocked: exit code "), "{}", said.human);
}

#[test]
fn a_lock_that_is_renewed_blocks_both_verbs_with_the_documented_sentence() {
    let bed = Bed::take();
    hold(&bed, 4);
    let sentence = (
        "this cluster (working on instance \"prod\") is being worked on by alice@build-01/48213/9f3c1a20b7e4d5c6, which \
         renewed ",
        " ago; wait for it to finish rather than running a second apply against the same cluster",
    );
    both_are_blocked(&bed, 20, "lock.held", sentence);
}

#[test]
fn a_lock_that_looks_stale_blocks_both_verbs_with_the_documented_sentence() {
    let bed = Bed::take();
    hold(&bed, 372);
    let sentence = (
        "this cluster (working on instance \"prod\") is claimed by alice@build-01/48213/9f3c1a20b7e4d5c6, which last \
         renewed ",
        " ago — by this machine's clock that looks stale, but a clock that disagrees looks the same. If that process is \
         genuinely gone, take the claim with `dcctl instances reclaim --kube-context bed`, which checks properly before \
         it steals",
    );
    both_are_blocked(&bed, 21, "lock.held_stale", sentence);
}
