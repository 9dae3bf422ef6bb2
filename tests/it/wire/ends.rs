//! The API server is away at the moment at which the lock is to be given back.

use serde_json::json;

use crate::bed::{Bed, Fault, Rule};
use crate::lock::rig::{of_kind, text};
use crate::wire::lane::{Lane, Namespace, all_at_once};

/// How it is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    /// Nobody listens.
    Vanished,
    /// Whatever is asked about the lock is swallowed.
    Swallows,
    /// The same from the moment on at which it has renewed the lock once more, of which the run does not hear.
    KeepsQuiet,
    /// Whatever is asked about the lock is swallowed, until the run has said that it waits.
    ComesBack,
}

/// How the path of the lock ends.
const LOCK: &str = "/leases/dcctl";

#[test]
fn a_release_is_tried_for_half_a_minute_and_then_it_is_said_where_the_lock_is() {
    // How the command ends, and what comes of the run: its own failure counts.
    let rows = [
        (Away::Vanished, 0, 12, "left"),
        (Away::Vanished, 3, 1, "left"),
        (Away::Swallows, 0, 12, "unknown"),
        (Away::Swallows, 3, 1, "unknown"),
        (Away::KeepsQuiet, 0, 12, "left"),
        (Away::ComesBack, 0, 0, "released"),
        (Away::ComesBack, 3, 1, "released"),
    ];
    let bed = Bed::take();
    all_at_once(&rows, rows.len(), |row| format!("{row:?}"), |row| ends(&bed, *row));
}

fn ends(bed: &Bed, (away, status, exit, lock): (Away, u8, i32, &str)) {
    let lane = Lane::new(bed, Namespace::There);
    let run = lane.at_work();
    let journal = run.journal();
    lane.renewed();
    match away {
        Away::Vanished => lane.proxy.vanish(),
        Away::Swallows | Away::ComesBack => lane.proxy.add(Rule::on("*", LOCK).request(Fault::Drop)),
        Away::KeepsQuiet => {
            for method in ["GET", "DELETE"] {
                lane.proxy.add(Rule::on(method, LOCK).after("PUT", LOCK).request(Fault::Drop));
            }
            lane.proxy.add(Rule::on("PUT", LOCK).nth(1).reply(Fault::Drop));
            journal.wait_for("lock.renewal_failed", |_| true);
        }
    }
    lane.let_end(status);
    journal.wait_for("lock.waiting", |event| event["data"]["act"] == "release");
    if away == Away::ComesBack {
        lane.proxy.clear();
    }
    let ended = run.finish().expect_code(exit);
    let verdict = &ended.verdict()["data"];
    assert_eq!((&verdict["lock"], &verdict["holder"]), (&json!(lock), &json!(lane.holder())), "{verdict}");
    assert_eq!(verdict["command_end"], json!({ "exit_code": status }));
    if away == Away::ComesBack {
        assert_eq!(lane.lease(), None);
        return;
    }
    // The Lease looks stale a validity after the renewal that it shows, also when the run has not heard of that one.
    let lease = lane.lease().expect("nobody gave it back");
    let renewed: jiff::Timestamp = text(&lease["spec"]["renewTime"]).parse().expect("a time");
    let next = verdict["next"].to_string();
    let said = next.split("it looks stale from ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it is said");
    let stale: jiff::Timestamp = said.parse().expect("a time");
    assert!((59..=61).contains(&stale.duration_since(renewed).as_secs()), "{said} for {renewed}");
    assert!(next.contains("dcctl instances reclaim --kube-context bed"), "{next}");
    // It tried for as long as it may.
    let at = |kind: &str| of_kind(&ended.events(), kind)[0]["elapsed_ms"].as_u64().expect("a number");
    let tried = at("run.finished") - at("lock.releasing");
    assert!((20_000..40_000).contains(&tried), "it tried for {tried} ms");
}
