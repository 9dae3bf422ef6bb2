//! The fault proxy in front of the real API server.

use serde_json::{Value, json};

use crate::bed::{Api, Bed, Fault, Gate, LEASE, LEASES, Proxy, Rule, wait};

/// The API server as `ops` sees it through the proxy.
fn through(bed: &Bed, proxy: &Proxy) -> Api {
    let port = proxy.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address with a port");
    Api::new(port, &bed.described().certificates, &bed.described().user("ops").token).expect("good files")
}

fn lease() -> Value {
    json!({ "metadata": { "name": "dcctl" }, "spec": { "holderIdentity": "somebody" } })
}

fn exists(bed: &Bed) -> bool {
    bed.api().get(LEASE).expect("admin may read it").is_some()
}

#[test]
fn without_rules_it_is_transparent_and_records() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let api = through(&bed, &proxy);
    api.create(LEASES, &lease()).expect("it passes");
    assert!(api.get(LEASE).expect("it passes").is_some());
    let seen: Vec<_> = proxy.seen().into_iter().map(|seen| (seen.method, seen.status, seen.fault)).collect();
    assert_eq!(seen, [("POST".to_owned(), Some(201), None), ("GET".to_owned(), Some(200), None)]);
}

#[test]
fn a_swallowed_request_never_reaches_the_server_and_a_swallowed_reply_does() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let api = through(&bed, &proxy);
    proxy.add(Rule::on("POST", "/leases").nth(1).request(Fault::Drop));
    proxy.add(Rule::on("POST", "/leases").nth(1).reply(Fault::Reset));
    assert!(api.create(LEASES, &lease()).is_err());
    assert!(!exists(&bed), "the request was swallowed");
    assert!(api.create(LEASES, &lease()).is_err());
    assert!(exists(&bed), "only the reply was swallowed");
    let seen: Vec<_> = proxy.seen().into_iter().map(|seen| (seen.status, seen.fault)).collect();
    assert_eq!(seen, [(None, Some("dropped")), (Some(201), Some("reset"))]);
}

#[test]
fn it_answers_in_the_servers_place() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let api = through(&bed, &proxy);
    proxy.add(Rule::on("POST", "/leases").request(Fault::Answer(503, r#"{"message":"not now"}"#.to_owned())));
    let said = api.create(LEASES, &lease()).expect_err("it is refused").to_string();
    assert!(said.ends_with("503 not now"), "{said}");
    assert!(!exists(&bed));
}

#[test]
fn a_held_request_arrives_late_even_when_its_client_has_given_up() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let gate = Gate::new();
    proxy.add(Rule::on("POST", "/leases").request(Fault::Hold(gate.clone())));
    let api = through(&bed, &proxy);
    let client = std::thread::spawn(move || api.create(LEASES, &lease()).is_ok());
    gate.wait_for(1);
    assert!(!exists(&bed), "it waits at the gate");
    gate.open();
    wait::fact("the late request to arrive", || exists(&bed).then_some(()));
    assert!(client.join().expect("it does not panic"));
}

#[test]
fn a_doubled_request_is_answered_by_its_second_answer() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    proxy.add(Rule::on("POST", "/leases").request(Fault::Twice));
    let said = through(&bed, &proxy).create(LEASES, &lease()).expect_err("the second is refused").to_string();
    assert!(said.contains("409") && exists(&bed), "{said}");
}

#[test]
fn a_reply_can_be_cut_short() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    proxy.add(Rule::on("GET", "/api/v1/namespaces/dc-system").reply(Fault::Truncate(10)));
    let api = through(&bed, &proxy);
    let said = api.send("GET", "/api/v1/namespaces/dc-system", None).expect_err("it ends too early").to_string();
    assert_eq!(said, "unexpected end of file");
    proxy.clear();
    assert!(api.get("/api/v1/namespaces/dc-system").expect("it passes").is_some());
}

#[tokio::test]
async fn the_client_that_dcctl_uses_watches_through_it() {
    use futures_util::StreamExt;
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let client = proxy.client("ops").await;
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> = kube::Api::namespaced(client, "dc-k8s-system");
    let watched = kube::api::WatchParams::default().fields("metadata.name=dcctl");
    let mut changes = leases.watch(&watched, "0").await.expect("ops may watch").boxed();
    bed.api().create(LEASES, &lease()).expect("created");
    let added = async {
        while let Some(change) = changes.next().await {
            if matches!(change, Ok(kube::api::WatchEvent::Added(_))) {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(wait::GENEROUS, added).await.expect("it comes at once"));
}

#[test]
fn a_lock_under_another_name_is_another_lock_and_nobody_who_asks_can_tell() {
    let bed = Bed::take();
    bed.api().create("/api/v1/namespaces", &json!({ "metadata": { "name": "dc-k8s-w99999" } })).expect("it may");
    let proxy = Proxy::with_lock_in(&bed, "dc-k8s-w99999");
    let port = proxy.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("an address with a port");
    let api = Api::new(port, &bed.described().certificates, &bed.described().user("admin").token).expect("good files");
    let made = api.create(LEASES, &lease()).expect("it passes");
    assert_eq!(made["metadata"]["namespace"], "dc-k8s-system");
    assert!(!exists(&bed), "the lock itself is untouched");
    assert!(bed.api().get(&LEASE.replace("dc-k8s-system", "dc-k8s-w99999")).expect("it may").is_some());
    // A rule that begins after another request counts from there.
    proxy.add(Rule::on("GET", "/leases").after("DELETE", "/leases").request(Fault::Answer(500, "{}".to_owned())));
    assert!(api.get(LEASE).expect("it passes").is_some());
    api.delete(LEASE).expect("it passes");
    assert!(api.get(LEASE).is_err());
    proxy.vanish();
    assert!(api.get(LEASE).is_err(), "nobody listens");
}

#[test]
fn a_kind_whose_storage_is_not_ready_yet_is_asked_for_again() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let unready = r#"{"message":"storage is (re)initializing"}"#.to_owned();
    proxy.add(Rule::on("GET", "/leases").nth(1).request(Fault::Answer(429, unready)));
    proxy.add(Rule::on("GET", "/leases").nth(1).request(Fault::Answer(429, r#"{"message":"slower"}"#.to_owned())));
    let api = through(&bed, &proxy);
    let said = api.get(LEASE).expect_err("any other 429 is an answer").to_string();
    assert!(said.ends_with("429 slower"), "{said}");
    assert_eq!(proxy.seen().len(), 2);
}
