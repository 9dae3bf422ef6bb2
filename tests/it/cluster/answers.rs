//! Answers that get lost or come as errors: what may be asked again is, and what is settled by a look is looked at.

use dcctl::cluster::kubeconfig::load;
use dcctl::cluster::namespace::{Made, Maker, Namespace};
use dcctl::cluster::record::{Progress, Record, SCHEMA};
use dcctl::cluster::{Cluster, MayWrite, Proxies, Sources, Store};
use dcctl::failure::Code;
use serde_json::Map;

use crate::bed::{Bed, Fault, Proxy, Rule};

async fn through(proxy: &Proxy) -> Cluster {
    let kubeconfig = load(&Sources::file(proxy.kubeconfig("admin")), None).expect("the proxy writes good kubeconfigs");
    Cluster::connect(&kubeconfig, &Proxies::default(), MayWrite::always()).await.expect("the API server answers")
}

fn asked(proxy: &Proxy, method: &str, path: &str) -> usize {
    proxy.seen().iter().filter(|seen| seen.method == method && seen.path.contains(path)).count()
}

#[tokio::test]
async fn a_read_is_asked_again_and_a_refusal_is_not() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let cluster = through(&proxy).await;
    let busy =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: leader changed","code":503}"#;
    proxy.add(Rule::on("GET", "namespaces/default").nth(1).request(Fault::Answer(503, busy.to_owned())));
    proxy.add(Rule::on("GET", "namespaces/default").nth(1).request(Fault::Reset));
    assert_eq!(cluster.namespace("default").await, Ok(Namespace::There { instance: None, maker: Maker::Other }));
    assert_eq!(asked(&proxy, "GET", "namespaces/default"), 3);

    proxy.clear();
    let refused =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
    proxy.add(Rule::on("GET", "namespaces/kube-public").request(Fault::Answer(403, refused.to_owned())));
    assert_eq!(cluster.namespace("kube-public").await.expect_err("refused").code, Code::Forbidden);
    assert_eq!(asked(&proxy, "GET", "namespaces/kube-public"), 1);
}

#[tokio::test]
async fn a_namespace_whose_making_was_not_answered_is_looked_for() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let cluster = through(&proxy).await;
    proxy.add(Rule::on("POST", "namespaces").nth(1).reply(Fault::Reset));
    assert_eq!(cluster.make_namespace("dc-test", None, Store::Yes).await, Ok(Made::Now));
    proxy.clear();
    proxy.add(Rule::on("POST", "namespaces").nth(1).request(Fault::Reset));
    let failure = cluster.make_namespace("dc-other", None, Store::Yes).await.expect_err("it was never made");
    assert_eq!(failure.code, Code::ClusterUnreachable);
    assert_eq!(asked(&proxy, "POST", "namespaces"), 2, "a create is never sent twice");
}

#[tokio::test]
async fn a_record_whose_writing_was_not_answered_is_read_and_written_again() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let cluster = through(&proxy).await;
    let uid = cluster.uid().await.expect("it has one");
    let record = Record {
        schema: SCHEMA,
        phase: Progress::Applying,
        cluster_uid: uid.clone(),
        dcctl_version: "0.1.0".to_owned(),
        time: "2026-11-30T00:00:00.000000Z".to_owned(),
        settings: Map::new(),
        outputs: Map::new(),
        state: None,
    };
    proxy.add(Rule::on("POST", "configmaps").nth(1).reply(Fault::Drop));
    cluster.write_install_record(&record).await.expect("the second look finds it");
    assert_eq!(cluster.install_record(&uid, "demo").await, Ok(Some(record)));
    assert_eq!((asked(&proxy, "POST", "configmaps"), asked(&proxy, "PUT", "configmaps")), (1, 1));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_no_answer() {
    let bed = Bed::take();
    let proxy = Proxy::start(&bed);
    let cluster = through(&proxy).await;
    proxy.add(Rule::on("GET", "core.devicechain.io").reply(Fault::Truncate(5)));
    let failure = cluster.instances().await.expect_err("half an answer proves nothing");
    assert_eq!(failure.code, Code::ClusterUnreachable);
}
