//! A state whose lock OpenTofu does not get, though nothing says who has it: nobody, or somebody who is not named.

use std::fs;

use serde_json::Value;

use crate::bed::dcctl::Finished;
use crate::bed::disk::SmallDisk;
use crate::bed::state_backend::StateBackend;
use crate::lock::rig::text;
use crate::state::rig::{Kept, Store};

/// The failure of the verdict, which has this code.
#[track_caller]
fn failure(finished: &Finished, code: &str) -> Value {
    let verdict = finished.verdict();
    assert_eq!(verdict["data"]["failure"]["code"], code, "{verdict}");
    assert_eq!(verdict["data"]["lock"], "released");
    verdict["data"]["failure"].clone()
}

/// OpenTofu's own reason is a cause, and an event that shows the rest of what it said.
#[track_caller]
fn told_why(finished: &Finished, reason: &str) {
    let failure = failure(finished, "infrastructure.failed");
    let causes = failure["causes"].to_string();
    assert!(causes.contains("Error acquiring the state lock: ") && causes.contains(reason), "{failure}");
    assert!(!failure["hints"].to_string().contains("process that has it"), "{failure}");
    let said = |event: &&Value| {
        let data = &event["data"];
        event["type"] == "diagnostic" && data["origin"] == "OpenTofu" && text(&data["detail"]).contains(reason)
    };
    assert_eq!(finished.events().iter().filter(said).count(), 1, "{}", finished.stdout);
}

#[test]
fn a_server_that_gives_no_lock_for_another_reason_is_told_as_what_it_is() {
    let server = StateBackend::start();
    let kept = Kept::in_store(Store::Server(server.clone()));
    kept.rig.bootstrap("one").run().expect_code(0);
    for (status, reason) in [(500, "giving up after 1 attempt"), (403, "invalid auth"), (404, "response code 404")] {
        server.refuse_locks(Some((status, "<html>nobody has it</html>")));
        told_why(&kept.rig.destroy("one").run().expect_code(1), reason);
    }
    assert_eq!(kept.rig.ledger.living("slow").len(), 1);
}

#[test]
fn a_lock_whose_holder_the_server_does_not_name_is_not_said_to_be_this_run_s_own() {
    let server = StateBackend::start();
    let kept = Kept::in_store(Store::Server(server.clone()));
    let locked = Some((423, "<html>locked</html>"));
    server.refuse_locks(locked);
    // The state is begun by a command that speaks to people.
    let first = failure(&kept.rig.bootstrap("one").run().expect_code(6), "guard.state_locked");
    server.refuse_locks(None);
    kept.rig.bootstrap("one").run().expect_code(0);
    server.refuse_locks(locked);
    let later = failure(&kept.rig.destroy("one").run().expect_code(6), "guard.state_locked");
    assert_eq!(later["message"], "the OpenTofu state of `infra` is locked: who has the lock is not told");
    for failure in [first, later] {
        assert!(!failure.to_string().contains("force-unlock"), "nobody has an id: {failure}");
    }
}

#[test]
fn a_full_disk_below_a_state_is_not_somebody_who_has_its_lock() {
    let kept = Kept::in_store(Store::Local);
    let Some(disk) = SmallDisk::mount(&kept.rig.state_dir("one"), 64, "") else { return };
    kept.rig.bootstrap("one").run().expect_code(0);
    let mut fill = vec![0_u8; 4096];
    fastrand::fill(&mut fill);
    for name in 0.. {
        if fs::write(disk.path().join(format!("filler-{name}")), &fill).is_err() {
            break;
        }
    }
    kept.thing("  note = \"changed\"\n");
    told_why(&kept.rig.upgrade("one").run().expect_code(1), "no space left on device");
}
