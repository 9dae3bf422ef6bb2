//! What the cluster has beside what the chart names: things that somebody deleted, and a release under another name.

use serde_json::{Value, json};

use crate::bed::dcctl::Finished;
use crate::bed::wait;
use crate::chart::rig::{DECLARATION, PASSWORD, Rig, reasons};

/// What a step said at its end, and how it ended.
fn step(finished: &Finished, id: &str) -> (String, String) {
    let ended = |event: &Value| event["type"] == "step.finished" && event["data"]["id"] == id;
    let event = finished.events().into_iter().find(ended).unwrap_or_else(|| panic!("{id}: {}", finished.stdout));
    let word = |key: &str| event["data"][key].as_str().unwrap_or_default().to_owned();
    (word("outcome"), word("note"))
}

fn programs(finished: &Finished) -> Vec<String> {
    let started = finished.events().into_iter().filter(|event| event["type"] == "process.started");
    started.map(|event| event["data"]["program"].as_str().unwrap_or_default().to_owned()).collect()
}

/// A live instance that a command looks at.
fn live() -> Rig {
    let rig = Rig::declared();
    rig.write(&format!("{DECLARATION}verify: [ {{ name: looks, run: [sh, -c, \"true\"], timeout: 9s }} ]\n"));
    rig.bootstrap().run().expect_code(0);
    rig
}

fn delete(rig: &Rig, collection: &str, name: &str) {
    let path = format!("{collection}/{name}").replace("NAMESPACE", &rig.namespace());
    rig.bed.api().delete(&path).expect("the bed may do everything");
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/NAMESPACE/deployments";
const MAPS: &str = "/api/v1/namespaces/NAMESPACE/configmaps";

#[test]
fn what_was_deleted_by_hand_is_made_anew_by_an_upgrade_and_looked_at() {
    let rig = live();
    delete(&rig, DEPLOYMENTS, "web");
    let told = rig.upgrade().arg("--dry-run").run().expect_code(0);
    let made = |event: &Value| event["data"]["kind"] == "Deployment" && event["data"]["action"] == "created";
    assert!(told.events().iter().any(made), "{}", told.stdout);
    assert!(step(&told, "upgrade-chart").1.contains("1 to create"), "{}", told.stdout);
    assert!(step(&told, "verify").1.contains("looks"), "{}", told.stdout);
    assert_eq!(rig.object("deployments", "web"), None, "a dry run makes nothing");

    let done = rig.upgrade().run().expect_code(0);
    assert!(done.stdout.contains("Deployment web is not there"), "{}", done.stdout);
    assert_eq!(rig.object("deployments", "web").expect("it was made anew")["status"]["readyReplicas"], 2);
    assert!(step(&done, "wait-for-readiness").1.contains("1 Deployment"), "{}", done.stdout);
    assert_eq!(step(&done, "verify").0, "done");
    assert_eq!((rig.history(), rig.phase().as_deref()), (vec!["superseded".into(), "deployed".into()], Some("Ready")));

    // What is no workload is missed as well.
    delete(&rig, MAPS, "web");
    rig.upgrade().run().expect_code(0);
    assert!(rig.object("configmaps", "web").is_some());

    // With nothing to do Helm is asked twice, and neither to change anything.
    let idle = rig.upgrade().run().expect_code(0);
    assert_eq!(step(&idle, "verify").0, "nothing");
    assert_eq!(step(&idle, "upgrade-chart").1, format!("release {} is up to date (revision 3)", rig.release()));
    assert!(step(&idle, "wait-for-readiness").1.contains("1 Deployment"), "{}", idle.stdout);
    let helms: Vec<String> = programs(&idle).into_iter().filter(|program| program.starts_with("helm")).collect();
    assert_eq!(helms, ["helm upgrade --dry-run", "helm get all"]);
    let told = rig.upgrade().arg("--dry-run").run().expect_code(0);
    assert!(step(&told, "upgrade-chart").1.contains("is up to date (revision 3)"), "{}", told.stdout);
}

#[test]
fn what_the_release_names_and_the_cluster_does_not_have_is_waited_for() {
    let rig = Rig::new();
    // The hook runs when Helm has seen the pods ready, and ends when this test lets it.
    let held = "template:\n    metadata: { labels: { bed.dcctl/never-ready: \"true\" } }\n    spec:";
    rig.change("templates/migrate.yaml", "template:\n    spec:", held);
    let bundle = rig.bundle().join("bundle.yaml");
    let text = std::fs::read_to_string(&bundle).expect("it was written");
    std::fs::write(&bundle, text.replace("readiness: { timeout: 1m }", "readiness: { timeout: 2s }")).expect("written");
    let run = rig.bootstrap().start();
    let hook = wait::fact("the hook to be at work", || {
        let of_hook = |pod: &Value| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "migrate";
        rig.pods().into_iter().find(of_hook)
    });
    delete(&rig, DEPLOYMENTS, "web");
    let name = hook["metadata"]["name"].as_str().expect("it has one");
    let let_go = json!({ "metadata": { "labels": { "bed.dcctl/never-ready": "false" } } });
    let path = format!("/api/v1/namespaces/{}/pods/{name}", rig.namespace());
    rig.bed.api().merge(&path, &let_go).expect("the bed may do everything");
    let verdict = rig.assert_failed(&run.finish().expect_code(1), "readiness.timed_out");
    assert!(reasons(&verdict).contains("Deployment web: it is not there"), "{verdict}");
    assert_eq!(rig.history(), ["deployed"], "Helm knows of nothing");
}

#[test]
fn a_release_of_the_instance_under_another_name_is_refused_before_anything_is_changed() {
    let rig = live();
    let bundle = rig.bundle().join("bundle.yaml");
    let text = std::fs::read_to_string(&bundle).expect("it was written");
    std::fs::write(&bundle, text.replace("release: \"dc-${instance}\"", "release: \"rel-${instance}\""))
        .expect("written");
    for verb in [rig.upgrade(), rig.upgrade().arg("--dry-run"), rig.destroy()] {
        let verdict = verb.run().expect_code(6).verdict()["data"].clone();
        assert_eq!(verdict["failure"]["code"], "guard.instance_elsewhere", "{verdict}");
        let message = verdict["failure"]["message"].as_str().unwrap_or_default();
        let (theirs, ours) = (rig.release(), format!("rel-{}", rig.instance));
        assert!(message.contains(&theirs) && message.contains(&ours), "{verdict}");
        assert!(reasons(&verdict).contains(&format!("helm uninstall {theirs}")), "{verdict}");
    }
    assert_eq!((rig.history(), rig.phase().as_deref()), (vec!["deployed".to_owned()], Some("Ready")));
    assert!(rig.object("deployments", "web").is_some());

    // One that is uninstalled, and only remembered, is in nobody's way.
    let mut helm = rig.helm(&["uninstall", &rig.release(), "--keep-history"]);
    assert!(helm.status().expect("the bed has Helm").success());
    rig.upgrade().run().expect_code(0);
    assert!(rig.object("deployments", "web").is_some());
}

#[test]
fn a_release_at_which_another_helm_may_be_at_work_is_refused_before_the_infrastructure_is_touched() {
    let rig = Rig::declared();
    let root = rig.bundle().join("infra");
    std::fs::create_dir_all(&root).expect("the test's folder can be written");
    std::fs::write(root.join("main.tf"), "resource \"terraform_data\" \"one\" {}\n").expect("it can be written");
    rig.write(&format!("  infrastructure: {{ root: infra }}\n{DECLARATION}"));
    let state = rig.bed.file("state");
    rig.bootstrap().arg("--state-dir").arg(&state).run().expect_code(0);
    rig.kill_a_helm();
    for verb in [rig.upgrade(), rig.upgrade().arg("--dry-run")] {
        let refused = verb.arg("--state-dir").arg(&state).run().expect_code(6);
        assert_eq!(refused.verdict()["data"]["failure"]["code"], "guard.release_pending", "{}", refused.stdout);
        assert!(!programs(&refused).iter().any(|program| program.starts_with("tofu plan")), "{}", refused.stdout);
    }
    assert_eq!((rig.history().len(), rig.phase().as_deref()), (2, Some("Ready")), "nothing was touched");
}

#[test]
fn a_dry_run_knows_the_outputs_that_are_known_and_calls_what_hangs_on_the_others_untold() {
    let rig = Rig::declared();
    let root = rig.bundle().join("infra");
    std::fs::create_dir_all(&root).expect("the test's folder can be written");
    let write = |more: &str| {
        let text = format!(
            "variable \"db_password\" {{\n  type = string\n  sensitive = true\n}}\n\
             resource \"terraform_data\" \"one\" {{ input = {{ url = \"postgres://dc:${{strrev(var.db_password)}}@db\" }} }}\n\
             output \"url\" {{\n  value = terraform_data.one.output\n  sensitive = true\n}}\n\
             output \"ca\" {{ value = \"the authority\" }}\n{more}"
        );
        std::fs::write(root.join("main.tf"), text).expect("the test's folder can be written");
    };
    write("");
    // A placeholder has no field `url`.
    rig.change("templates/configuration.yaml", ".Values.database.url", ".Values.database.url.url");
    let test = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: tried\n  annotations: { helm.sh/hook: test }\n\
                spec: { containers: [ { name: a, image: busybox } ] }\n";
    std::fs::write(rig.bundle().join("chart/templates/tried.yaml"), test).expect("it can be written");
    rig.write(&format!(
        "    outputs: {{ broker.ca: ca, database.url: url }}\n  infrastructure: {{ root: infra, secrets: {{ db_password: db_password }} }}\n{DECLARATION}"
    ));
    let state = rig.bed.file("state");
    let run = |command: crate::bed::Dcctl| command.arg("--state-dir").arg(&state).run();
    let said = |finished: &Finished, text: &str| finished.stdout.contains(text);

    let told = run(rig.bootstrap().arg("--dry-run")).expect_code(0);
    assert!(step(&told, "install-chart").1.contains("cannot be told"), "{}", told.stdout);
    assert!(said(&told, "database.url (output `url`)") && !said(&told, "broker.ca (output"), "{}", told.stdout);

    run(rig.bootstrap()).expect_code(0);
    let told = run(rig.upgrade().arg("--dry-run")).expect_code(0);
    assert!(step(&told, "upgrade-chart").1.contains("is up to date (revision 1)"), "{}", told.stdout);
    assert!(!said(&told, "known only once"), "{}", told.stdout);
    let reversed: String = PASSWORD.chars().rev().collect();
    assert!(!said(&told, &reversed), "{}", told.stdout);
    rig.assert_silent(&told);

    // Other changes leave what is known known.
    write("resource \"terraform_data\" \"two\" {}\n");
    let told = run(rig.upgrade().arg("--dry-run").args(["--var", "replicas=3"])).expect_code(0);
    assert!(step(&told, "upgrade-chart").1.contains("would upgrade"), "{}", told.stdout);
    assert!(step(&told, "record-the-release").1.contains("would be of release"), "{}", told.stdout);
    assert!(said(&told, "hook Job migrate") && !said(&told, "hook Pod tried"), "{}", told.stdout);
}
