//! Reports that would take the place of each other, of a file of the run, or of what the run reads: exit code 3, and
//! nothing is written there, not even the refusal.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::bed::{Bed, Dcctl};
use crate::refused::{HEAD, install, small_bundle};

const EVENTS: &str = "--events-file";
const JUNIT: &str = "--junit";

/// With these reports. A shell says where they go, so that what is there is not taken for reports.
fn with(run: Dcctl, reports: &[(&str, &str)]) -> Dcctl {
    let variable = |option: &str| if option == EVENTS { "DCCTL_EVENTS_FILE" } else { "DCCTL_JUNIT" };
    let given = reports.iter().map(|(option, path)| format!("{}={path} ", variable(option)));
    let mut run = run.by_shell(&format!("{}exec \"$@\"", given.collect::<String>()));
    run.command().stdout(Stdio::piped()).stderr(Stdio::piped());
    run
}

/// It is refused with this sentence, on standard output alone.
#[track_caller]
fn refused(run: Dcctl, reports: &[(&str, &str)], says: &[&str]) {
    let finished = with(run.args(["--output", "jsonl"]), reports).run().expect_code(3);
    let verdict = &finished.verdict()["data"];
    assert_eq!(verdict["failure"]["code"], "config.option", "{verdict}");
    for part in says {
        assert!(verdict.to_string().contains(part), "nobody says {part:?}: {verdict}");
    }
}

#[test]
fn two_reports_in_one_file_are_refused_by_whatever_names() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    fs::create_dir(bed.file("reports")).expect("the test's folder can be written");
    symlink("reports", bed.file("folder")).expect("the test's folder can be written");
    symlink("one", bed.file("reports/link")).expect("the test's folder can be written");
    for (events, junit) in [
        ("reports/one", "reports/one"),
        ("reports/one", "folder/one"),
        ("reports/link", "reports/one"),
        ("reports/one", "reports/link"),
        ("reports/../reports/one", "missing/../reports/one"),
        ("new/one", "new/one"),
    ] {
        let says = [EVENTS, "and --junit", "are the same file", "a file of its own"];
        refused(install(&bed, &bundle), &[(EVENTS, events), (JUNIT, junit)], &says);
        assert!(!bed.file("reports/one").exists() && !bed.file("new").exists(), "{events} and {junit}");
    }
    fs::write(bed.file("reports/one"), "").expect("the test's folder can be written");
    fs::hard_link(bed.file("reports/one"), bed.file("hard")).expect("the test's folder can be written");
    refused(install(&bed, &bundle), &[(EVENTS, "hard"), (JUNIT, "reports/one")], &["are the same file"]);
    assert_eq!(fs::read(bed.file("hard")).expect("it is there"), b"");
}

#[test]
fn a_report_in_the_place_of_a_file_of_the_run_is_refused_and_beside_it_is_not() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let run = || install(&bed, &bundle).args(["--run-dir", "run"]);
    let journal = ["is the journal of the run", "the journal has every event without this option"];
    refused(run(), &[(EVENTS, "run/events.jsonl")], &journal);
    for name in ["events.jsonl", "kubeconfig", "ballast", "supervisor.log", "output/x.xml", "private/x.xml", "tools/x"]
    {
        let says = [JUNIT, "is where the run keeps files of its own", "name another file"];
        refused(run(), &[(JUNIT, &format!("run/{name}"))], &says);
        assert!(!bed.file("run").exists(), "{name}");
    }
    // A refusal of another kind is told beside the run's own files, where the run itself would have told it.
    let junit = ["--run-dir", "run", "--junit", "run/reports/junit.xml"];
    install(&bed, &bed.file("missing")).args(junit).run().expect_code(3);
    assert!(
        fs::read_to_string(bed.file("run/reports/junit.xml")).is_ok_and(|text| text.contains("dcctl.ConfigBundle"))
    );
    let finished = install(&bed, &bundle).args(junit).args(["--output", "jsonl"]).run().expect_code(0);
    assert!(finished.junit().with("error").is_empty());
}

#[test]
fn a_report_does_not_lie_in_the_folder_that_keeps_a_lock() {
    let bed = Bed::take();
    let exec = || bed.dcctl(["exec", "--substrate", "direct", "--lock-dir", "lock", "--output", "jsonl", "--", "true"]);
    for option in [EVENTS, JUNIT] {
        let run = with(exec(), &[(option, "lock/report")]);
        let failure = run.run().expect_code(3).verdict()["data"]["failure"].clone();
        assert!(failure.to_string().contains("lies in the folder that keeps the lock"), "{failure}");
        assert!(!bed.file("lock/report").exists(), "it was written all the same");
    }
}

#[test]
fn a_report_never_takes_the_place_of_what_the_run_reads() {
    let bed = Bed::take();
    let manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: kept, namespace: default }\n";
    bed.write("bundle/operator/kept.yaml", manifest);
    let bundle = bed.write("bundle/bundle.yaml", &format!("{HEAD}operator: {{ manifests: operator/ }}\n"));
    let bundle = bundle.parent().expect("it is in a folder");
    let kubeconfig = fs::read(bed.kubeconfig("admin")).expect("the bed has one");
    fs::write(bed.file("kubeconfig"), kubeconfig).expect("the test's folder can be written");
    bed.write("values.yaml", "a: 1\n");
    bed.write("vars.yaml", "{}\n");
    let read = ["bundle/bundle.yaml", "bundle/operator/kept.yaml", "kubeconfig", "values.yaml", "vars.yaml"];
    let before = read.map(|name| fs::read(bed.file(name)).expect("it is there"));
    for option in ["--events-file", "--junit"] {
        for name in read {
            let run = install(&bed, bundle).without("KUBECONFIG").args(["--kubeconfig", "kubeconfig"]);
            let run = run.args(["--values", "values.yaml", "--var-file", "vars.yaml"]);
            refused(run, &[(option, name)], &[option, name, "name another file"]);
        }
        let says = ["has the name of an OpenTofu state"];
        refused(install(&bed, bundle), &[(option, "terraform.tfstate")], &says);
        // Whatever else is wrong with the command line, and whatever it would have read.
        let wrong = bed.dcctl(["exec", "--bogus", "--kubeconfig", "kubeconfig", "--", "true"]);
        with(wrong, &[(option, "kubeconfig")]).run().expect_code(2);
        let exec = bed.dcctl(["exec", "--", "true"]).env("KUBECONFIG", bed.file("kubeconfig"));
        with(exec, &[(option, "kubeconfig")]).run().expect_code(3);
        assert_eq!(read.map(|name| fs::read(bed.file(name)).expect("it is there")), before);
    }
    // A report of an earlier run is no part of the bundle, wherever it lies.
    for _ in 0..2 {
        install(&bed, bundle).args(["--events-file", "bundle/e.jsonl", "--junit", "bundle/j.xml"]).run().expect_code(0);
    }
}
