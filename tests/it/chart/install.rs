//! A chart is installed, or it is said why not.

use serde_json::Value;

use crate::chart::rig::{PASSWORD, Rig, reasons};

#[test]
fn a_chart_is_installed_and_its_pods_are_really_ready() {
    let rig = Rig::declared();
    let finished = rig.bootstrap().run().expect_code(0);
    let web = rig.object("deployments", "web").expect("the chart has a Deployment");
    assert_eq!(web["status"]["readyReplicas"], 2, "`replicas` kept its type and was waited for");
    let configuration = rig.object("configmaps", "web").expect("the chart has a ConfigMap");
    assert_eq!(configuration["data"]["host"], format!("{}.example.com", rig.instance));
    let secret = rig.object("secrets", "web").expect("the chart has a Secret");
    let password = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, PASSWORD);
    assert_eq!(secret["data"]["DATABASE_PASSWORD"], password);
    let hook = format!("/apis/batch/v1/namespaces/{}/jobs", rig.namespace());
    assert!(rig.bed.requests_of("admin").iter().any(|request| request.contains(&hook)), "the hook ran");
    assert_eq!(rig.history(), ["deployed"]);
    assert_eq!(rig.phase().as_deref(), Some("Ready"));
    assert_eq!(rig.lease(), None);
    rig.assert_silent(&finished);
    let folder = finished.events()[0]["data"]["run_dir"].as_str().map(str::to_owned).expect("it is said");
    assert!(!std::path::Path::new(&folder).join("private").exists(), "the values go at the end");
}

#[test]
fn values_from_the_command_line_win_and_what_the_bundle_no_longer_sets_is_gone() {
    let rig = Rig::new();
    let values = rig.bed.file("more.yaml");
    std::fs::write(&values, "replicas: 3\ninstance: { mqttPort: 1999 }\n").expect("the test's folder can be written");
    rig.bootstrap().arg("--values").arg(&values).run().expect_code(0);
    let replicas = |rig: &Rig| rig.object("deployments", "web").expect("it is there")["spec"]["replicas"].clone();
    let port = |rig: &Rig| rig.object("configmaps", "web").expect("it is there")["data"]["mqttPort"].clone();
    assert_eq!((replicas(&rig), port(&rig)), (3.into(), "1999".into()));

    rig.bootstrap().run().expect_code(0);
    assert_eq!((replicas(&rig), port(&rig)), (2.into(), "1883".into()));
    assert_eq!(rig.history(), ["superseded", "deployed"]);
}

#[test]
fn outputs_reach_the_chart_and_a_sensitive_one_is_never_said() {
    let rig = Rig::new();
    let root = rig.bundle().join("infra");
    std::fs::create_dir_all(&root).expect("the test's folder can be written");
    let outputs = "variable \"db_password\" {\n  type = string\n  sensitive = true\n}\n\
                   output \"url\" {\n  value = \"postgres://dc:${strrev(var.db_password)}@db\"\n  sensitive = true\n}\n\
                   output \"ca\" {\n  value = \"the broker's authority\"\n}\n";
    std::fs::write(root.join("main.tf"), outputs).expect("the test's folder can be written");
    let chart = "    outputs: { broker.ca: ca, database.url: url }\n";
    let infrastructure = "  infrastructure: { root: infra, secrets: { db_password: db_password } }\n";
    rig.write(&format!("{chart}{infrastructure}"));
    let finished = rig.bootstrap().arg("--state-dir").arg(rig.bed.file("state")).run().expect_code(0);
    let configuration = rig.object("configmaps", "web").expect("the chart has a ConfigMap");
    assert_eq!(configuration["data"]["brokerCa"], "the broker's authority");
    let reversed: String = PASSWORD.chars().rev().collect();
    let secret = rig.object("secrets", "web").expect("the chart has a Secret");
    let url =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("postgres://dc:{reversed}@db"));
    assert_eq!(secret["data"]["DATABASE_URL"], url);
    assert!(!finished.stdout.contains(&reversed), "{}", finished.stdout);

    // An output that the root does not have is named with the value that it was for.
    rig.write(&format!("{}{infrastructure}", chart.replace(": url", ": uri")));
    let finished = rig.bootstrap().arg("--state-dir").arg(rig.bed.file("state")).run();
    let failure = finished.verdict()["data"]["failure"].clone();
    let message = failure["message"].as_str().unwrap_or_default();
    assert!(message.contains("database.url") && message.contains("uri"), "{failure}");
}

#[test]
fn pods_that_never_become_ready_fail_the_step_at_the_chart_s_timeout_and_the_next_run_converges() {
    let rig = Rig::declared();
    let finished = rig.bootstrap_in_vain("4s").run().expect_code(1);
    let verdict = rig.assert_failed(&finished, "chart.failed");
    let said = reasons(&verdict);
    assert!(said.contains("deadline exceeded"), "Helm's own words: {said}");
    assert!(said.contains("busybox:1.37") && said.contains("cannot be pulled"), "why it waited: {said}");
    let diagnostics: Vec<Value> = finished.events().into_iter().filter(|event| event["type"] == "diagnostic").collect();
    assert!(diagnostics.iter().any(|event| event["data"]["origin"] == "Helm"), "{diagnostics:?}");
    assert_eq!(rig.history(), ["failed"]);
    assert_eq!(rig.phase().as_deref(), Some("Failed"));

    rig.bootstrap().run().expect_code(0);
    assert_eq!(rig.history(), ["superseded", "deployed"]);
    assert_eq!(rig.phase().as_deref(), Some("Ready"));
}

#[test]
fn what_helm_waits_for_is_said_while_it_waits() {
    let rig = Rig::new();
    let run = rig.bootstrap_in_vain("30s").start();
    let waiting = run.wait_for("object.waiting", |event| event["data"]["kind"] == "Pod");
    assert!(waiting["data"]["why"].to_string().contains("cannot be pulled"), "{waiting}");
    assert_eq!(waiting["step"], "install-chart");
}

#[test]
fn a_failing_hook_is_named() {
    let rig = Rig::declared();
    let fails = "template:\n    metadata: { labels: { bed.dcctl/fails: \"true\" } }\n    spec:";
    rig.change("templates/migrate.yaml", "template:\n    spec:", fails);
    rig.change("templates/migrate.yaml", "backoffLimit: 1", "backoffLimit: 0");
    let finished = rig.bootstrap().run().expect_code(1);
    let verdict = rig.assert_failed(&finished, "chart.failed");
    let said = reasons(&verdict);
    assert!(said.contains("post-install") && said.contains("migrate"), "{said}");
    assert_eq!(rig.history(), ["failed"]);
    assert_eq!(rig.phase().as_deref(), Some("Failed"));
}

#[test]
fn a_chart_that_cannot_be_rendered_is_said_with_its_place() {
    let rig = Rig::declared();
    rig.change("templates/configuration.yaml", "| quote }}\n  host", "| nosuchfunction }}\n  host");
    let finished = rig.bootstrap().run().expect_code(1);
    let verdict = rig.assert_failed(&finished, "chart.failed");
    let said = reasons(&verdict);
    assert!(said.contains("configuration.yaml:7") && said.contains("nosuchfunction"), "{said}");
    assert!(rig.history().is_empty(), "Helm had not begun");
}

#[test]
fn an_account_without_rights_is_told_so_in_the_api_server_s_own_words() {
    let rig = Rig::new();
    let finished = rig.bootstrap().with_kubeconfig(rig.bed.kubeconfig("ops")).run().expect_code(5);
    let verdict = rig.assert_failed(&finished, "cluster.forbidden");
    let message = verdict["failure"]["message"].as_str().unwrap_or_default();
    let sentence =
        format!(r#"User "ops" cannot list resource "secrets" in API group "" in the namespace "{}""#, rig.namespace());
    assert!(message.contains(&sentence), "{verdict}");
}

#[test]
fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let rig = Rig::new();
    let note = |finished: &crate::bed::dcctl::Finished| {
        let ended = finished
            .events()
            .into_iter()
            .find(|event| event["type"] == "step.finished" && event["data"]["id"] == "install-chart");
        ended.expect("the step ends")["data"]["note"].as_str().unwrap_or_default().to_owned()
    };
    let before = rig.bed.api().list("/api/v1/secrets").expect("the API server answers").len();
    let finished = rig.bootstrap().arg("--dry-run").run().expect_code(0);
    rig.assert_silent(&finished);
    assert!(note(&finished).starts_with("would install"), "{}", note(&finished));
    let applied: Vec<Value> = finished.events().into_iter().filter(|event| event["type"] == "object.applied").collect();
    let named =
        |kind: &str| applied.iter().any(|event| event["data"]["kind"] == kind && event["data"]["dry_run"] == true);
    assert!(named("Deployment") && named("ConfigMap") && named("Secret"), "{applied:?}");
    assert_eq!(rig.bed.api().list("/api/v1/secrets").expect("the API server answers").len(), before);
    assert_eq!(rig.bed.api().get(&format!("/api/v1/namespaces/{}", rig.namespace())).expect("an answer"), None);

    rig.bootstrap().run().expect_code(0);
    let finished = rig.bootstrap().args(["--dry-run", "--var", "replicas=5"]).run().expect_code(0);
    assert!(note(&finished).starts_with("would upgrade"), "{}", note(&finished));
    assert_eq!(rig.history(), ["deployed"]);

    rig.change("templates/web.yaml", "kind: Deployment", "kind: Gadget");
    rig.change("templates/web.yaml", "apiVersion: apps/v1", "apiVersion: test.devicechain.io/v1");
    let finished = rig.bootstrap().arg("--dry-run").run().expect_code(0);
    let said = finished.events().iter().any(|event| event["data"]["text"].to_string().contains("no matches for kind"));
    assert!(said, "{}", finished.stdout);
}
