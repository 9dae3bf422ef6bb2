//! Options whose value cannot be used: exit code 3, before anything is asked of a cluster.

use std::fs;
use std::os::unix::fs::symlink;

use crate::bed::Bed;
use crate::refused::{HEAD, install, small_bundle, told};

#[test]
fn a_device_is_refused_as_a_report_by_whatever_name_and_nothing_is_written_to_it() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    symlink("/proc/self/fd", bed.file("link")).expect("the test's folder can be written");
    let through_link = bed.file("link/1");
    let around = bed.file("../../../../../../../proc/self/fd/1");
    for device in
        ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", &through_link.to_string_lossy(), &around.to_string_lossy()]
    {
        let run = || install(&bed, &bundle).arg("--events-file").arg(device);
        told(&bed, run, 3, "config.option").never_began().says(&["--events-file", device, "--output jsonl"]);
    }
    // Not with /dev/stdout: if this ever failed, the report would stand in its place for everybody on this machine.
    for device in ["/proc/self/fd/1", &through_link.to_string_lossy()] {
        let finished = install(&bed, &bundle).args(["--output", "jsonl", "--junit", device]).run().expect_code(3);
        assert_eq!(finished.events().len(), 3, "{}", finished.stdout);
    }
}

#[test]
fn a_report_that_cannot_be_a_file_is_refused() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let folder = bed.scratch().to_owned();
    for option in ["--events-file", "--junit"] {
        let finished = install(&bed, &bundle).arg(option).arg(&folder).args(["--output", "human"]).run().expect_code(3);
        assert!(finished.stdout.contains(&format!("{option} {} is a folder", folder.display())), "{}", finished.stdout);
    }
    // A link to a file is followed: the report takes the place of the file.
    fs::write(bed.file("real.xml"), "").expect("the test's folder can be written");
    symlink("real.xml", bed.file("report.xml")).expect("the test's folder can be written");
    install(&bed, &bed.file("missing")).arg("--junit").arg(bed.file("report.xml")).run().expect_code(3);
    assert!(bed.file("report.xml").is_symlink());
    assert!(fs::read_to_string(bed.file("real.xml")).expect("it is there").starts_with("<?xml"));
}

#[test]
fn a_run_directory_that_has_a_journal_is_not_used_again() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let run_dir = bed.file("run");
    let run = || install(&bed, &bundle).arg("--run-dir").arg(&run_dir);
    run().run().expect_code(0);
    let journal = fs::read(run_dir.join("events.jsonl")).expect("a run has a journal");
    let says = format!("--run-dir {} already holds the journal of another run", run_dir.display());
    told(&bed, run, 3, "config.option").never_began().says(&[&says, "give each run a folder of its own"]);
    assert_eq!(fs::read(run_dir.join("events.jsonl")).expect("it is still there"), journal);
}

#[test]
fn a_values_file_and_a_variables_file_that_are_not_there_are_named() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let run = || install(&bed, &bundle).args(["--values", "missing.yaml"]);
    told(&bed, run, 3, "config.option").never_began().says(&["--values missing.yaml: there is no such file"]);
    let run = || install(&bed, &bundle).args(["--var-file", "missing.yaml"]);
    told(&bed, run, 3, "config.variable").never_began().says(&["missing.yaml", "--var-file", "No such file"]);
    bed.write("wrong.yaml", "pin: 1\nsize: [1, 2\n");
    let run = || install(&bed, &bundle).args(["--var-file", "wrong.yaml"]);
    told(&bed, run, 3, "config.variable").never_began().says(&["wrong.yaml:2:7: this is not YAML"]);
}

#[test]
fn a_variable_that_the_bundle_does_not_ask_for_is_named_and_its_value_is_not() {
    let bed = Bed::take();
    let bundle = bed.write("asks/bundle.yaml", &format!("{HEAD}vars: {{ size: 1 }}\n"));
    let bundle = bundle.parent().expect("it is in a folder");
    let run = || install(&bed, bundle).args(["--var", &format!("sise={}", crate::refused::SECRET)]);
    let said = told(&bed, run, 3, "config.variable").never_began().says(&["--var sise", "size", "Correct the name"]);
    assert!(!said.text.contains("DCCTL_VAR_NAME"), "{}", said.text);
    let run = || install(&bed, bundle).args(["--var", crate::refused::SECRET]);
    told(&bed, run, 3, "config.variable").never_began().says(&["--var NAME=VALUE"]);
}

#[test]
fn a_command_that_never_became_a_run_leaves_no_run_directory() {
    let bed = Bed::take();
    install(&bed, &bed.file("missing")).run().expect_code(3);
    install(&bed, &small_bundle(&bed)).args(["--kube-context", "missing"]).run().expect_code(4);
    let runs = bed.file("home/.local/state/dcctl/runs");
    assert_eq!(fs::read_dir(runs).map_or(0, Iterator::count), 0);
}
