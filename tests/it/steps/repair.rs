//! Releases that a dead run left half done, with the real Helm.

use std::fs;

use dcctl::failure::Code;
use dcctl::process::Intent;
use dcctl::step::{RECORDS, Update, install_chart};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::steps::bench::{Bench, done, failed};
use crate::steps::helm::{DEPLOYMENT, bench, chart, object, statuses};
use crate::steps::tofu::until;

/// Installs a chart that never becomes ready and kills Helm in the middle; nobody sees it end.
async fn killed_run(bench: &mut Bench<'_>, run: &str) {
    bench.next_run(run);
    chart(bench).set.insert("never".to_owned(), json!(true));
    chart(bench).set.insert("image.tag".to_owned(), json!(run));
    let record = bench.kit.run_dir.join(RECORDS).join("helm-upgrade");
    let in_the_middle = || {
        let image = |object: Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        object(bench, DEPLOYMENT).is_some_and(|object| image(object) == json!(format!("example.test/app:{run}")))
    };
    // Dropping the step leaves Helm alone, as a killed supervisor does.
    tokio::select! {
        outcome = install_chart(&bench.kit) => panic!("it waits for what never comes: {outcome:?}"),
        () = until(in_the_middle) => {}
    }
    let (recorded, intent) = dcctl::process::Recorded::read(&record).expect("readable").expect("there");
    assert_eq!(intent, Intent::Running);
    assert!(!recorded.is_over());
    let pid = Pid::from_raw(i32::try_from(recorded.pid).expect("a number")).expect("a number");
    rustix::process::kill_process(pid, Signal::KILL).expect("it lives");
    until(|| recorded.is_over()).await;
    chart(bench).set.insert("never".to_owned(), json!(false));
}

fn notes(bench: &mut Bench<'_>) -> Vec<String> {
    let said = bench.said().into_iter();
    said.filter_map(|update| if let Update::Note(text) = update { Some(text) } else { None }).collect()
}

#[tokio::test]
async fn a_first_install_that_was_killed_is_adopted() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    killed_run(&mut bench, "dead").await;
    assert_eq!(statuses(&bench), ["pending-install"]);
    let before = object(&bench, DEPLOYMENT).expect("there")["metadata"]["uid"].clone();
    bench.said();
    bench.next_run("alive");
    assert_eq!(done(install_chart(&bench.kit).await), "release dc-demo revision 1 deployed");
    assert_eq!(object(&bench, DEPLOYMENT).expect("there")["metadata"]["uid"], before, "it was adopted");
    let said = notes(&mut bench);
    let expected =
        "release dc-demo was left pending-install at revision 1, and the Helm that left it has ended on this machine";
    assert!(said.iter().any(|note| note.starts_with(expected)), "{said:?}");
}

#[tokio::test]
async fn an_upgrade_that_was_killed_is_rolled_back_first() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    done(install_chart(&bench.kit).await);
    killed_run(&mut bench, "dead").await;
    assert_eq!(statuses(&bench), ["deployed", "pending-upgrade"]);
    bench.next_run("alive");
    assert_eq!(done(install_chart(&bench.kit).await), "release dc-demo revision 4 deployed");
    let deployed = statuses(&bench).iter().filter(|status| *status == "deployed").count();
    assert_eq!(deployed, 1);
}

#[tokio::test]
async fn without_proof_that_helm_has_ended_nothing_is_touched() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    killed_run(&mut bench, "dead").await;
    // What a person on another machine has: the same cluster, and none of the run directories.
    fs::remove_dir_all(bed.file("runs")).expect("removed");
    bench.next_run("elsewhere");
    let failure = failed(install_chart(&bench.kit).await);
    assert_eq!(failure.code, Code::ReleasePending);
    assert_eq!(failure.message, "release dc-demo was left pending-install at revision 1");
    assert!(failure.hints[0].starts_with("run the same command again from 20"), "{failure:?}");
    assert_eq!(statuses(&bench), ["pending-install"]);
}

#[tokio::test]
async fn an_uninstall_that_was_left_is_finished_first() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    done(install_chart(&bench.kit).await);
    let namespace = chart(&mut bench).namespace.clone();
    let kubeconfig = bed.kubeconfig("admin").to_owned();
    let helm = bench.kit.helm.as_ref().expect("there").path.clone();
    // A finalizer keeps the Deployment, so that the uninstall waits and can be killed.
    let path = DEPLOYMENT.replace("NS", &namespace);
    let keep = |finalizers: Value| json!({ "metadata": { "finalizers": finalizers } });
    bed.api().merge(&path, &keep(json!(["example.test/keep"]))).expect("changed");
    let mut child = crate::bed::child::command(&helm)
        .args(["uninstall", "dc-demo", "--namespace", &namespace, "--wait", "--kubeconfig"])
        .arg(&kubeconfig)
        .spawn()
        .expect("started");
    until(|| statuses(&bench) == ["uninstalling"]).await;
    child.kill().expect("ours to end");
    child.wait().expect("it ended");
    bed.api().merge(&path, &keep(Value::Null)).expect("changed");

    bench.next_run("too early");
    assert_eq!(failed(install_chart(&bench.kit).await).code, Code::ReleasePending);
    // The same, once no Helm can be at work any more: a timeout and a budget of nothing are over at once.
    bench.next_run("later");
    bench.kit.limits.budget = std::time::Duration::ZERO;
    bench.kit.limits.watchdog = std::time::Duration::ZERO;
    chart(&mut bench).timeout = std::time::Duration::from_secs(5);
    until(|| {
        let record = object(&bench, "/api/v1/namespaces/NS/secrets/sh.helm.release.v1.dc-demo.v1").expect("there");
        let label = record["metadata"]["labels"]["modifiedAt"].as_str().unwrap_or_default().to_owned();
        let now = dcctl::clock::Clock::wall(&dcctl::clock::System).as_second();
        label.parse::<i64>().is_ok_and(|modified| now > modified + 6)
    })
    .await;
    chart(&mut bench).timeout = std::time::Duration::from_secs(5);
    assert_eq!(done(install_chart(&bench.kit).await), "release dc-demo revision 1 deployed");
}
