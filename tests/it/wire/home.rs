//! The lock's namespace is on its way out when a run claims: nothing can be made in it any more.

use serde_json::json;

use crate::bed::Bed;
use crate::lock::rig::text;
use crate::wire::lane::{Lane, Namespace};

#[test]
fn a_namespace_that_is_being_deleted_takes_no_claim_and_that_is_said() {
    let bed = Bed::take();
    let lane = Lane::new(&bed, Namespace::There);
    let kept = lane.namespace_that_is_kept();
    let refused = lane.exec("true").run().expect_code(1);
    let verdict = refused.verdict();
    assert_eq!(verdict["data"]["lock"], "never_taken");
    let failure = &verdict["data"]["failure"];
    assert_eq!(failure["code"], "cluster.request_failed", "it is no lack of a right");
    let said = text(&failure["message"]);
    assert!(said.contains("because it is being terminated"), "the API server's own words: {failure}");
    let hint = "Wait until the namespace dc-k8s-system is gone, then run the same command again.";
    assert!(verdict.to_string().contains(hint), "{verdict}");
    assert!(refused.events().iter().all(|event| event["type"] != "process.started"), "{}", refused.stdout);
    // Waiting for the lock does not mean waiting for that.
    let waits = lane.wait("true").run().expect_code(1);
    assert_eq!((&waits.verdict()["data"]["lock"], lane.lease()), (&json!("never_taken"), None));
    lane.let_go_of(&kept);
}
