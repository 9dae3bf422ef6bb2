//! Surroundings that nobody would choose: what can be used is used, and what cannot be is told before the lock.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::bed::disk::SmallDisk;
use crate::refused::{install, small_bundle, told};

/// The admin's kubeconfig, changed.
fn changed(bed: &Bed, name: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let text = fs::read_to_string(bed.kubeconfig("admin")).expect("the bed has it");
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    change(&mut kubeconfig);
    bed.write(name, &kubeconfig.to_string())
}

#[test]
fn a_home_that_cannot_be_written_to_is_told_before_the_lock_and_needed_for_nothing_else() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let Some(disk) = SmallDisk::mount(&bed.file("disk"), 1024, ",ro") else { return };
    let run = || install(&bed, &bundle).env("HOME", disk.path());
    let verdict = run().args(["--output", "jsonl"]).run().expect_code(4).verdict()["data"].clone();
    assert_eq!(
        (&verdict["failure"]["code"], &verdict["lock"]),
        (&json!("surroundings.run_dir"), &json!("never_taken"))
    );
    for said in ["the run directory ", "cannot be used", "Read-only file system", "--run-dir"] {
        assert!(verdict.to_string().contains(said), "nobody says {said:?}: {verdict}");
    }
    run().arg("--run-dir").arg(bed.file("run")).run().expect_code(0);
    run().env("XDG_STATE_HOME", bed.file("states")).run().expect_code(0);
    assert!(bed.file("states/dcctl/runs").is_dir());
}

#[test]
fn a_proxy_of_the_environment_is_not_asked_for_this_machine_and_one_of_the_kubeconfig_is() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let mut run = install(&bed, &bundle);
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY"] {
        run = run.env(name, "http://127.0.0.1:9");
    }
    run.run().expect_code(0);
    let of_another_kind = changed(&bed, "socks.kubeconfig", |kubeconfig| {
        for named in kubeconfig["clusters"].as_array_mut().expect("it has clusters") {
            named["cluster"]["proxy-url"] = json!("socks5://127.0.0.1:9");
        }
    });
    told(&bed, || install(&bed, &bundle).with_kubeconfig(&of_another_kind), 4, "surroundings.cluster_unreachable")
        .says(&["the kubeconfig's proxy-url names a proxy of kind socks5"]);
}

#[test]
fn of_many_kubeconfigs_the_first_to_name_something_wins_and_a_missing_one_is_passed_over() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let admin = bed.kubeconfig("admin").display().to_string();
    let mine = changed(&bed, "mine.kubeconfig", |kubeconfig| {
        let contexts = kubeconfig["contexts"].as_array().expect("it has contexts");
        let context = contexts.iter().find(|named| named["name"] == "bed").expect("it has the bed's");
        let mine = json!({ "name": "mine", "context": context["context"] });
        *kubeconfig = json!({ "apiVersion": "v1", "kind": "Config", "contexts": [mine], "current-context": "mine" });
    });
    let elsewhere = changed(&bed, "elsewhere.kubeconfig", |kubeconfig| {
        for named in kubeconfig["clusters"].as_array_mut().expect("it has clusters") {
            named["cluster"]["server"] = json!("https://127.0.0.1:9");
        }
    });
    let missing = bed.file("missing.kubeconfig");
    let list = format!("{}:{}::{admin}:{}", missing.display(), mine.display(), elsewhere.display());
    let done = install(&bed, &bundle).env("KUBECONFIG", &list).args(["--output", "jsonl"]).run().expect_code(0);
    assert!(done.events()[0].to_string().contains("\"mine\""), "{}", done.events()[0]);
    let nothing = format!("{}:{}", missing.display(), bed.file("gone.kubeconfig").display());
    told(&bed, || install(&bed, &bundle).env("KUBECONFIG", &nothing), 4, "surroundings.kubeconfig")
        .never_began()
        .says(&["none of the files in KUBECONFIG is there", "missing.kubeconfig", "gone.kubeconfig"]);
}
