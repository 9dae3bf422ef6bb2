//! *Check the cluster* on the wire: what is asked for, and what an answer that is none is taken for.

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::{Bed, Fault, Proxy, Rule, crowd, wait};
use crate::verbs::rig::Demo;

const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";
const DEFINITION: &str = include_str!("../../../fixtures/demo/operator/d-definitions.yaml");

/// The demo on a cluster that knows instances and has none.
fn defined(demo: &Demo) {
    demo.bed.api().apply(DEFINITION).expect("the bed may do everything");
    wait::fact("instances to be served", || demo.bed.api().get(INSTANCES).ok().flatten());
}

/// Nothing was made: the run stopped when it could not tell who else is there.
#[track_caller]
fn assert_untouched(demo: &Demo, finished: &Finished) -> Value {
    let verdict = finished.verdict()["data"].clone();
    assert!(![Some(0), Some(70)].contains(&finished.code()), "{verdict}");
    assert_eq!(verdict["lock"], "released", "{verdict}");
    assert_eq!((demo.get("/api/v1/namespaces/dci-one"), demo.state_dir("one").exists()), (None, false), "{verdict}");
    let step = finished
        .events()
        .into_iter()
        .find(|event| event["type"] == "step.finished" && event["data"]["id"] == "check-the-cluster");
    assert_eq!(step.expect("the step ended")["data"]["outcome"], "failed");
    verdict
}

#[test]
fn secrets_and_release_records_are_asked_for_as_metadata_and_nothing_else() {
    let demo = Demo::on(Bed::take());
    let proxy = Proxy::start(&demo.bed);
    let through = proxy.kubeconfig("admin");
    demo.install().with_kubeconfig(&through).run().expect_code(0);
    demo.bootstrap("one", 1883).with_kubeconfig(&through).run().expect_code(0);
    demo.upgrade("one", 1883, 2).with_kubeconfig(&through).run().expect_code(0);
    demo.destroy("one").with_kubeconfig(&through).run().expect_code(0);
    let seen = proxy.seen();
    // Helm reads its own records whole, and says that it is Helm.
    let ours: Vec<_> = seen.iter().filter(|seen| seen.path.contains("/secrets") && seen.agent.is_empty()).collect();
    let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let one = list.replace("MetadataList", "Metadata");
    assert!(ours.iter().all(|seen| seen.accept == list || seen.accept == one), "{ours:?}");
    let about = |verb: &str| ours.iter().filter(|seen| seen.path.contains(verb)).count();
    for part in ["/namespaces/dc-system/", "/api/v1/secrets?", "owner%3Dhelm%2Cname%3Ddc-one"] {
        assert!(about(part) >= 2, "{part}: {ours:?}");
    }
}

#[test]
fn what_cannot_be_told_stops_the_run_and_is_never_nothing() {
    let demo = Demo::on(Bed::take());
    defined(&demo);
    let proxy = Proxy::start(&demo.bed);
    let bootstrap = || demo.bootstrap("one", 1883).with_kubeconfig(&proxy.kubeconfig("admin")).run();
    let bare = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 });
    let broken = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "etcd has no leader", "code": 500 });
    // A path that somebody on the way does not know, while the kind is served.
    proxy.add(Rule::on("GET", "/v1beta1/instances").request(Fault::Answer(404, bare.to_string())));
    assert_untouched(&demo, &bootstrap());
    proxy.clear();
    for part in ["/v1beta1/instances", "/namespaces/dc-system/secrets", "/api/v1/secrets?", "/namespaces/dci-one"] {
        proxy.add(Rule::on("GET", part).request(Fault::Answer(500, broken.to_string())));
        let verdict = assert_untouched(&demo, &bootstrap());
        assert!(verdict["failure"].to_string().contains("etcd has no leader"), "{part}: {verdict}");
        proxy.clear();
    }
    // The third page of a list that was good so far.
    crowd::make(demo.bed.described(), 1001).expect("the bed may do everything");
    proxy.add(Rule::on("GET", "continue=").from(2).request(Fault::Answer(500, broken.to_string())));
    assert_untouched(&demo, &bootstrap());
    proxy.clear();
    let done = bootstrap();
    let pages = proxy
        .seen()
        .iter()
        .filter(|seen| seen.path.contains("/v1beta1/instances?") && seen.status == Some(200))
        .count();
    assert!(done.stdout.contains("1001 other instances are declared on this cluster"), "{}", done.stdout);
    assert!(pages >= 3 + 2, "{pages} pages came through");
    demo.bed.api().send("DELETE", &format!("{INSTANCES}?labelSelector=!none"), None).expect("the API server answers");
}

#[test]
fn ten_thousand_instances_are_one_list_in_pages_and_nothing_is_asked_of_each() {
    let demo = Demo::on(Bed::fresh());
    defined(&demo);
    crowd::make(demo.bed.described(), 10_000).expect("the bed may do everything");
    let proxy = Proxy::start(&demo.bed);
    let run = demo.bootstrap("one", 1883).arg("--dry-run").with_kubeconfig(&proxy.kubeconfig("admin"));
    let done = run.run().expect_code(0);
    assert!(done.stdout.contains("10000 other instances are declared on this cluster"), "{}", done.stdout);
    let seen = proxy.seen();
    let about: Vec<&str> = seen.iter().map(|seen| seen.path.as_str()).filter(|path| path.contains(INSTANCES)).collect();
    let (pages, others): (Vec<&str>, Vec<&str>) = about.iter().partition(|path| path.contains("?limit="));
    assert_eq!(pages.len(), 10_000 / 500, "{pages:?}");
    assert_eq!(pages.iter().filter(|path| path.contains("continue=")).count(), pages.len() - 1, "{pages:?}");
    assert!(others.iter().all(|path| path.contains("/instances/one") || path.contains("dryRun=All")), "{others:?}");
}

#[test]
fn an_aggregated_api_that_is_down_stops_the_run() {
    let demo = Demo::on(Bed::fresh());
    // Somebody serves instances from elsewhere, and cannot be reached.
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1beta1.core.devicechain.io" }, "spec": { "group": "core.devicechain.io", "version": "v1beta1",
        "groupPriorityMinimum": 100, "versionPriority": 100, "insecureSkipTLSVerify": true,
        "service": { "namespace": "default", "name": "nobody" } } });
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    demo.bed.api().create(services, &service).expect("the bed may do everything");
    let down = || demo.bed.api().send("GET", INSTANCES, None).ok().filter(|answer| answer.status == 503).map(drop);
    wait::fact("the API to be down", down);
    assert_untouched(&demo, &demo.bootstrap("one", 1883).run());
}

#[test]
fn a_release_tells_of_its_instance_when_nothing_else_does() {
    let demo = Demo::copied(Bed::take());
    demo.edit("bundle.yaml", "release: \"dc-${instance}\"", "release: web\n    namespace: shared");
    demo.edit(
        "bundle.yaml",
        "- { name: The instance answers, run: [\"./verify.sh\"], timeout: 1m }",
        "- { name: Fine, run: [\"true\"] }",
    );
    demo.bed
        .api()
        .create("/api/v1/namespaces", &json!({ "metadata": { "name": "shared" } }))
        .expect("the bed may do everything");
    demo.install().run().expect_code(0);
    demo.bootstrap("one", 1883).run().expect_code(0);
    // One name for all: the second would upgrade what the first has.
    let refused = demo.bootstrap("two", 1884).run().expect_code(6).verdict()["data"]["failure"].clone();
    assert_eq!(
        (&refused["code"], &refused["message"]),
        (&json!("guard.claim_conflict"), &json!("the Helm release web in shared is that of the instance \"one\""))
    );
    assert_eq!(demo.get("/api/v1/namespaces/dci-two"), None);

    demo.edit("bundle.yaml", "release: web", "release: \"web-${instance}\"");
    let path = format!("{INSTANCES}/one");
    demo.bed.api().merge(&path, &json!({ "metadata": { "finalizers": null } })).expect("the bed may do everything");
    demo.bed.api().delete(&path).expect("the bed may do everything");
    let refused = demo.bootstrap("two", 1884).run().expect_code(6).verdict()["data"]["failure"].clone();
    assert_eq!(refused["code"], "guard.cannot_tell");
    let says = "the Helm release web in shared belongs to the instance \"one\", which has no declaration";
    assert_eq!(refused["message"], says);
}

#[test]
fn releases_that_an_account_may_not_look_for_are_said() {
    let demo = Demo::on(Bed::take());
    demo.install().run().expect_code(0);
    let run = demo.bootstrap("one", 1883).with_kubeconfig(demo.bed.kubeconfig("ops")).run();
    let note = "the Helm releases of other namespaces than dci-one were not looked at: this account may not list secrets there";
    assert!(run.stdout.contains(note), "{}", run.stdout);
}
