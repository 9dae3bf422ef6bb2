//! A client certificate that ended, or ends under way: a kubeconfig names it, and nothing can have it anew.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dcctl::clock::{Clock, System};
use rcgen::{CertificateParams, DnType, Issuer, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::bed::{Bed, LEASE, keys, wait};
use crate::lock::rig::{of_kind, text};

/// How long a run may stand without a renewal, and some time around it.
const LOST: Duration = wait::GENEROUS.saturating_mul(2);

/// A kubeconfig with the certificate of somebody who may do everything, good until so many seconds from now.
fn good_for(bed: &Bed, seconds: i64) -> PathBuf {
    const FINE: &str = "the parts are well-formed";
    let key = fs::read_to_string(bed.described().folder.join("clients.key")).expect("the bed wrote it");
    let issuer = Issuer::new(keys::client_authority(), KeyPair::from_pem(&key).expect(FINE));
    let mut params = CertificateParams::new([]).expect(FINE);
    params.distinguished_name.push(DnType::CommonName, "visitor");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    let ends = u64::try_from(System.wall().as_second() + seconds).expect("after 1970");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
    let key = KeyPair::generate().expect(FINE);
    let certificate = params.signed_by(&key, &issuer).expect(FINE).pem();
    let admin = fs::read_to_string(&bed.described().user("admin").kubeconfig).expect("the bed wrote it");
    let mut kubeconfig: Value = serde_saphyr::from_str(&admin).expect("it is YAML");
    kubeconfig["users"][0]["user"] = json!({
        "client-certificate-data": STANDARD.encode(certificate), "client-key-data": STANDARD.encode(key.serialize_pem()),
    });
    bed.write("visitor.json", &kubeconfig.to_string())
}

#[test]
fn a_client_certificate_that_has_ended_is_told_before_anything_is_claimed() {
    let bed = Bed::take();
    let run = bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--", "true"]);
    let ended = run.with_kubeconfig(&good_for(&bed, -3_600)).run();
    let verdict = &ended.expect_code(4).verdict()["data"];
    assert_eq!(verdict["failure"]["code"], "surroundings.credentials", "{verdict}");
    assert_eq!((&verdict["lock"], bed.api().get(LEASE).expect("it answers")), (&json!("never_taken"), None));
}

#[test]
fn a_client_certificate_that_ends_in_mid_run_is_warned_about_and_then_costs_the_lock() {
    let bed = Bed::take();
    let script = "trap 'exit 5' TERM; while :; do sleep 0.2; done";
    let run = bed.dcctl(["exec", "--kube-context", "bed", "--output", "jsonl", "--", "sh", "-c", script]);
    let run = run.with_kubeconfig(&good_for(&bed, 20)).start();
    let journal = run.journal();
    let lost = || journal.events().into_iter().find(|event| event["type"] == "lock.lost");
    let lost = wait::until(LOST, "the lock to be lost", lost).expect("the certificate ends, and then a minute passes");
    let ended = run.finish().expect_code(22);
    let events = ended.events();
    let warned = of_kind(&events, "note.made")
        .into_iter()
        .find(|note| text(&note["msg"]).contains("the client certificate of context"));
    let claimed = of_kind(&events, "lock.claimed")[0];
    assert!(warned.is_some_and(|note| note["seq"].as_u64() < claimed["seq"].as_u64()), "{}", ended.stdout);
    assert!(text(&lost["data"]["text"]).contains("could not be renewed for 1m0s"), "{lost}");
    assert_eq!(ended.verdict()["data"]["lock"], "lost");
}
