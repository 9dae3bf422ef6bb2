//! The control plane: its users, its pods, and how it is handed on.

use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::reset::Pristine;
use crate::bed::{Api, Bed, Tools, wait};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "example" }] },
    })
}

/// The status of a pod's condition `Ready` and its reason, once it has one.
fn readiness(api: &Api, name: &str) -> Option<(String, String)> {
    let pod = api.get(&format!("{PODS}/{name}")).expect("admin may read it")?;
    let ready = pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Ready")?.clone();
    let word = |field: &str| ready[field].as_str().unwrap_or("").to_owned();
    Some((word("status"), word("reason")))
}

#[test]
fn pods_become_ready_unless_they_say_otherwise() {
    let bed = Bed::take();
    let api = bed.api();
    api.create(PODS, &pod("good", &json!({}))).expect("created");
    api.create(PODS, &pod("bad", &json!({ "bed.dcctl/never-ready": "true" }))).expect("created");
    wait::fact("the good pod to be ready", || readiness(&api, "good").filter(|(status, _)| status == "True"));
    let bad = wait::fact("a word on the bad pod", || readiness(&api, "bad").filter(|(_, reason)| !reason.is_empty()));
    assert_eq!(bad, ("False".to_owned(), "ContainersNotReady".to_owned()));
}

#[test]
fn a_job_ends_as_its_label_says() {
    let bed = Bed::take();
    let api = bed.api();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (name, fails) in [("good", "false"), ("bad", "true")] {
        let template = json!({
            "metadata": { "labels": { "bed.dcctl/fails": fails } },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example" }] },
        });
        let job = json!({ "metadata": { "name": name }, "spec": { "backoffLimit": 0, "template": template } });
        api.create(jobs, &job).expect("created");
    }
    for (name, end) in [("good", "succeeded"), ("bad", "failed")] {
        wait::fact(&format!("job {name} to have {end}"), || {
            let job = api.get(&format!("{jobs}/{name}")).expect("admin may read it")?;
            (job["status"][end] == 1).then_some(())
        });
    }
}

/// Whether a user may do something, in the API server's own judgement.
fn may(api: &Api, verb: &str, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let attributes = json!({
        "verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name,
    });
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    api.create(path, &review).expect("anybody may ask")["status"]["allowed"] == true
}

#[test]
fn each_user_has_the_rights_that_the_bed_promises() {
    let bed = Bed::take();
    let (lock, leases) = ("dc-k8s-system", "coordination.k8s.io");
    let ops = bed.api_as("ops");
    for verb in ["get", "create", "update", "delete", "watch"] {
        assert!(may(&ops, verb, leases, "leases", lock, "dcctl"), "ops may {verb} the lock");
        assert!(!may(&ops, verb, leases, "leases", "default", "dcctl"), "ops may {verb} leases only there");
    }
    assert!(!may(&ops, "patch", leases, "leases", lock, "dcctl"));
    for verb in ["get", "list", "create", "update", "patch", "delete"] {
        assert!(may(&ops, verb, "core.devicechain.io", "instances", "", ""), "ops may {verb} instances");
    }
    assert!(may(&ops, "list", "", "secrets", "dc-system", ""));
    assert!(!may(&ops, "get", "", "secrets", "dc-system", "any"));
    assert!(may(&ops, "update", "", "configmaps", "dc-system", "dc-install"));
    assert!(!may(&ops, "update", "", "configmaps", "default", "dc-install"));

    for (user, answer) in [("admin", true), ("nobody", false)] {
        assert_eq!(may(&bed.api_as(user), "delete", "", "nodes", "", ""), answer, "{user}");
    }
    let stranger = Api::new(bed.described().port, &bed.described().certificates, "no such token").expect("good files");
    assert_eq!(stranger.send("GET", "/api", None).expect("an answer").status, 401);
}

#[test]
fn a_fresh_control_plane_has_no_namespace_of_dcctl() {
    let bed = Bed::fresh();
    let namespaces = bed.api().list("/api/v1/namespaces").expect("admin may list");
    let mut names: Vec<_> = namespaces.iter().filter_map(|namespace| namespace["metadata"]["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    bed.grant_ops();
    assert!(may(&bed.api_as("ops"), "create", "coordination.k8s.io", "leases", "dc-k8s-system", "dcctl"));
}

const MESS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: instances.core.devicechain.io }
spec:
  group: core.devicechain.io
  scope: Cluster
  names: { kind: Instance, plural: instances, singular: instance }
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: { openAPIV3Schema: { type: object, x-kubernetes-preserve-unknown-fields: true } }
---
apiVersion: v1
kind: Namespace
metadata: { name: elsewhere }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: dc-install, namespace: dc-system }
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: { name: dcctl, namespace: dc-k8s-system, finalizers: [bed.dcctl/foreign] }
spec: { holderIdentity: somebody }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: dc-k8s-controller-manager, namespace: dc-k8s-system }
spec:
  selector: { matchLabels: { app: operator } }
  template:
    metadata: { labels: { app: operator } }
    spec: { containers: [{ name: main, image: example }] }
";

#[test]
fn what_a_test_leaves_behind_is_gone_before_the_next_one() {
    let bed = Bed::take();
    let api = bed.api();
    let before = Pristine::look(&api).expect("admin may look");
    api.apply(MESS).expect("all of it can be applied");
    let instances = "/apis/core.devicechain.io/v1beta1/instances";
    let instance = json!({
        "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
        "metadata": { "name": "left", "finalizers": ["core.devicechain.io/instance"] }, "spec": {},
    });
    // A definition is served a moment after it is made.
    wait::fact("the definition to be served", || api.create(instances, &instance).ok());
    assert_ne!(Pristine::look(&api).expect("admin may look"), before);
    before.restore(&api).expect("all of it can be deleted");
    assert_eq!(Pristine::look(&api).expect("admin may look"), before);
}

#[test]
fn the_audit_log_tells_who_wrote_a_lease_and_what() {
    let bed = Bed::take();
    let lease = json!({ "metadata": { "name": "dcctl" }, "spec": { "holderIdentity": "somebody" } });
    bed.api_as("ops")
        .create("/apis/coordination.k8s.io/v1/namespaces/dc-k8s-system/leases", &lease)
        .expect("ops may make the lock");
    let written = wait::fact("the request in the audit log", || {
        let by_ops = |event: &Value| event["user"]["username"] == "ops" && event["verb"] == "create";
        bed.audit().into_iter().find(by_ops)
    });
    assert_eq!(written["requestObject"]["spec"]["holderIdentity"], "somebody");
    assert_eq!(bed.requests_of("ops"), ["create /apis/coordination.k8s.io/v1/namespaces/dc-k8s-system/leases"]);
}

#[tokio::test]
async fn a_client_of_the_kind_that_dcctl_uses_is_let_in() {
    let bed = Bed::take();
    let client = bed.client("ops").await;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    assert!(namespaces.get_opt("dc-system").await.expect("ops may read namespaces").is_some());
}

const CHART: &str = "apiVersion: v2\nname: small\nversion: 1.0.0\n";
const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web, bed.dcctl/never-ready: "{{ .Values.broken }}" } }
    spec: { containers: [{ name: main, image: example }] }
"#;
const HOOK: &str = "
apiVersion: batch/v1
kind: Job
metadata: { name: prepare, annotations: { helm.sh/hook: pre-install } }
spec:
  template: { spec: { restartPolicy: Never, containers: [{ name: main, image: example }] } }
";

#[test]
fn helm_itself_waits_for_pods_and_hooks() {
    let bed = Bed::take();
    let chart = bed.file("chart");
    std::fs::create_dir_all(chart.join("templates")).expect("the test's folder can be written");
    for (name, text) in [("Chart.yaml", CHART), ("templates/web.yaml", WORKLOAD), ("templates/hook.yaml", HOOK)] {
        std::fs::write(chart.join(name), text).expect("the test's folder can be written");
    }
    let install = |release: &str, broken: &str, timeout: &str| {
        let namespace = Bed::instance();
        command(Tools::get().path("helm"))
            .args(["install", release, "--create-namespace", "--namespace", &namespace, "--wait", "--timeout", timeout])
            .arg("--kubeconfig")
            .arg(bed.kubeconfig("admin"))
            .args(["--set-string", &format!("broken={broken}")])
            .arg(&chart)
            .env("HOME", bed.scratch())
            .output()
            .expect("helm starts")
    };
    let good = install("good", "false", "60s");
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    let bad = install("bad", "true", "3s");
    assert!(!bad.status.success(), "{}", String::from_utf8_lossy(&bad.stdout));
}
