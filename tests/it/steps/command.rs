//! The bundle's own commands, with real programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::config::Command;
use dcctl::failure::Code;
use dcctl::process::{self, Directly};
use dcctl::step::{Mode, Outcome, Update, build_images, verify};

use crate::bed::Bed;
use crate::steps::bench::{Bench, done, failed};
use crate::steps::tofu::until;

async fn bench(bed: &Bed) -> Bench<'_> {
    let mut bench = Bench::new(bed, "admin").await;
    bench.programs().await;
    bench.instance("demo", serde_json::Value::Null, dcctl::config::Claims::default());
    bench
}

/// A program of the bundle.
fn script(bench: &Bench<'_>, name: &str, text: &str) -> String {
    let path = bench.kit.bundle.root.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made a program");
    path.display().to_string()
}

fn check(name: &str, run: &[&str], timeout: Duration) -> Command {
    Command { name: name.to_owned(), run: run.iter().map(|word| (*word).to_owned()).collect(), timeout }
}

fn lines(said: &[Update]) -> Vec<(String, String)> {
    said.iter()
        .filter_map(|update| match update {
            Update::Process { program, update: process::Update::Line { text, .. } } => {
                Some((program.clone(), text.clone()))
            }
            _ => None,
        })
        .collect()
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_command_is_told_what_it_works_for_and_runs_in_the_bundle() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    let told = "echo \"$DCCTL_INSTANCE $DCCTL_NAMESPACE $DCCTL_KUBE_CONTEXT $DCCTL_VERSION\"; pwd; kubectl get ns default -o name";
    let script = script(&bench, "verify.sh", told);
    bench.kit.bundle.verify = vec![check("API answers", &[&script], MINUTE), check("True", &["true"], MINUTE)];
    assert_eq!(done(verify(&bench.kit).await), "2 checks passed");
    let root = bench.kit.bundle.root.canonicalize().expect("there").display().to_string();
    let expected = ["demo dci-demo bed 0.9.2".to_owned(), root, "namespace/default".to_owned()];
    let name = "verify: API answers".to_owned();
    assert_eq!(lines(&bench.said()), expected.map(|line| (name.clone(), line)));
}

#[tokio::test]
async fn a_check_that_fails_says_its_last_words_and_the_next_is_not_run() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    let bad = script(&bench, "bad.sh", "echo looking; echo 'no answer from broker' >&2; exit 7");
    let marker = bed.file("marker").display().to_string();
    bench.kit.bundle.verify = vec![check("Broker", &[&bad], MINUTE), check("Next", &["touch", &marker], MINUTE)];
    let failure = failed(verify(&bench.kit).await);
    assert_eq!((failure.code, failure.message.as_str()), (Code::VerifyFailed, "\"Broker\" failed with exit status 7"));
    assert!(failure.causes.contains(&"no answer from broker".to_owned()), "{failure:?}");
    assert!(!bed.file("marker").exists());
}

#[tokio::test]
async fn a_check_that_takes_too_long_is_ended_with_all_that_it_started() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    let slow = script(&bench, "slow.sh", "sleep 600 & echo $! > child; wait");
    bench.kit.bundle.verify = vec![check("Slow", &[&slow], Duration::from_secs(2))];
    let failure = failed(verify(&bench.kit).await);
    assert_eq!((failure.code, failure.message.as_str()), (Code::VerifyFailed, "\"Slow\" was not done after 2s"));
    let child = fs::read_to_string(bench.kit.bundle.root.join("child")).expect("written");
    let lives = process::Life::of(child.trim().parse().expect("a number")).is_ok_and(|life| !life.is_over());
    assert!(!lives);
}

#[tokio::test]
async fn a_stopped_check_is_no_failure() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    let slow = script(&bench, "slow.sh", "touch began; exec sleep 600");
    bench.kit.bundle.verify = vec![check("Slow", &[&slow], MINUTE)];
    let stop = async {
        until(|| bench.kit.bundle.root.join("began").exists()).await;
        bench.stopper.graceful(System.now(), Directly::No);
    };
    let (outcome, ()) = tokio::join!(verify(&bench.kit), stop);
    assert!(matches!(&outcome, Outcome::Stopped(stopped) if stopped.clean), "{outcome:?}");
}

#[tokio::test]
async fn images_are_built_only_when_asked_for() {
    let bed = Bed::take();
    let mut bench = bench(&bed).await;
    assert_eq!(build_images(&bench.kit).await, Outcome::Nothing("--build was not given".to_owned()));
    bench.kit.build = true;
    assert_eq!(build_images(&bench.kit).await, Outcome::Nothing("the bundle builds no images".to_owned()));
    bench.kit.bundle.build = Some(vec!["sh".to_owned(), "-c".to_owned(), "touch built".to_owned()]);
    bench.kit.mode = Mode::DryRun;
    assert_eq!(build_images(&bench.kit).await, Outcome::Nothing("would run `sh -c touch built`".to_owned()));
    assert!(!bench.kit.bundle.root.join("built").exists());
    bench.kit.mode = Mode::Act;
    assert!(done(build_images(&bench.kit).await).starts_with("built in "));
    assert!(bench.kit.bundle.root.join("built").exists());
    bench.kit.bundle.build = Some(vec!["false".to_owned()]);
    assert_eq!(failed(build_images(&bench.kit).await).code, Code::BuildFailed);
    bench.kit.bundle.build = Some(vec!["no-such-program".to_owned()]);
    assert_eq!(failed(build_images(&bench.kit).await).code, Code::ToolMissing);
}
