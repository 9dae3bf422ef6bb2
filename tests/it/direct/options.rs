//! Options that do not go together, and commands that know no lock in a folder.

use serde_json::json;

use crate::bed::terminal::Seat;
use crate::direct::{Rig, text};

/// An `exec` with these options, which is refused with 3 before anything is started.
#[track_caller]
fn refused(rig: &Rig, options: &[&str], variables: &[(&str, &str)], says: &[&str]) {
    let mut run = rig.bare(&["exec", "--output", "jsonl"]).args(options).args(["--", "touch", "started"]);
    for (name, value) in variables {
        run = run.env(name, value);
    }
    let finished = run.run().expect_code(3);
    let events = finished.events();
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types, ["run.started", "diagnostic", "run.finished"]);
    let verdict = &events[2]["data"];
    assert_eq!((&verdict["failure"]["code"], &verdict["lock"]), (&json!("config.option"), &json!("never_taken")));
    let told = format!("{} {}", text(&verdict["failure"]["message"]), verdict["next"]);
    for part in says {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    assert_eq!(rig.read("started"), None);
}

#[test]
fn a_folder_without_its_substrate_and_a_substrate_without_its_folder() {
    let rig = Rig::new();
    let folder = rig.lock_dir().display().to_string();
    refused(&rig, &["--lock-dir", &folder], &[], &["--lock-dir", "`kubernetes`", "add `--substrate direct`"]);
    refused(&rig, &[], &[("DCCTL_LOCK_DIR", &folder)], &["DCCTL_LOCK_DIR"]);
    refused(&rig, &["--substrate", "direct"], &[], &["needs the folder", "--lock-dir DIR"]);
    refused(&rig, &[], &[("DCCTL_SUBSTRATE", "direct")], &["needs the folder"]);
    let empty = rig.bare(&["exec", "--substrate", "direct", "--lock-dir", "", "--", "true"]).run().expect_code(2);
    assert!(empty.stderr.contains("a value is required for '--lock-dir <DIR>'"), "{}", empty.stderr);
}

#[test]
fn a_cluster_and_a_folder_are_not_both_meant() {
    let rig = Rig::new();
    let folder = rig.lock_dir().display().to_string();
    let direct = ["--substrate", "direct", "--lock-dir", &folder];
    let both = |option: &'static str| [&direct[..], &[option, "prod"]].concat();
    refused(&rig, &both("--kube-context"), &[], &["--kube-context", "`direct`"]);
    refused(&rig, &both("--kubeconfig"), &[], &["--kubeconfig", "`direct`"]);
    refused(&rig, &direct, &[("DCCTL_KUBE_CONTEXT", "prod")], &["DCCTL_KUBE_CONTEXT"]);
    // The other two commands say the same.
    for words in [&["lock", "status"][..], &["instances", "reclaim"]] {
        let finished = rig.bare(words).args(both("--kube-context")).run().expect_code(3);
        assert!(finished.stderr.contains("--kube-context (or DCCTL_KUBE_CONTEXT)"), "{}", finished.stderr);
    }
}

#[test]
fn everything_may_come_from_the_environment() {
    let rig = Rig::new();
    let run = rig.bare(&["exec", "--", "touch", "started"]).env("DCCTL_SUBSTRATE", "direct");
    run.env("DCCTL_LOCK_DIR", rig.lock_dir()).run().expect_code(0);
    assert_eq!(rig.read("started").as_deref(), Some(""));
    let status = rig.bare(&["lock", "status"]).env("DCCTL_SUBSTRATE", "direct").env("DCCTL_LOCK_DIR", rig.lock_dir());
    assert!(status.run().expect_code(0).stdout.contains("is free"));
}

#[test]
fn a_relative_folder_is_that_of_the_caller() {
    let rig = Rig::new();
    let run = rig.bare(&["exec", "--output", "jsonl", "--substrate", "direct", "--lock-dir", "lock"]);
    let finished = run.args(["--", "true"]).run().expect_code(0);
    assert_eq!(finished.events()[0]["data"]["lock_dir"], json!(rig.lock_dir()));
}

#[test]
fn a_verb_that_changes_a_cluster_takes_no_lock_from_a_folder() {
    let rig = Rig::new();
    std::fs::create_dir(rig.file("bundle")).expect("the test's folder can be written");
    let head = "apiVersion: dcctl.devicechain.io/v1\nkind: Bundle\nmetadata: { name: small, version: 1.0.0 }\n";
    std::fs::write(rig.file("bundle/bundle.yaml"), head).expect("the test's folder can be written");
    let folder = rig.lock_dir().display().to_string();
    for verb in [&["install"][..], &["bootstrap", "demo"]] {
        for options in [
            &["--substrate", "direct"][..],
            &["--substrate", "direct", "--lock-dir", &folder],
            &["--lock-dir", &folder],
        ] {
            let run = rig.bare(verb).args(["--output", "jsonl", "--bundle", "bundle"]).args(options);
            let verdict = run.run().expect_code(3).verdict();
            let failure = &verdict["data"]["failure"];
            assert_eq!(failure["code"], "config.option", "{verb:?} {options:?}");
            let said = text(&failure["message"]);
            assert!(said.contains(&format!("`dcctl {}` changes a cluster", verb[0])), "{said}");
        }
    }
    assert_eq!(rig.names(), Vec::<String>::new());
}

#[test]
fn whose_lock_is_to_be_taken_has_to_be_named() {
    let rig = Rig::new();
    let screen = Seat::take(rig.bare(&["instances", "reclaim"])).expect_code(2);
    assert!(screen.contains("--kube-context NAME, or --substrate direct --lock-dir DIR"), "{screen}");
}
