//! The component as a file: GitLab's schema, what its README says of it.

use std::collections::BTreeSet;

use crate::bed::child::command;
use crate::gitlab::project::{TEMPLATE, fetched};

const README: &str = include_str!("../../../gitlab/README.md");

/// The part after the header, which is a job.
fn body() -> &'static str {
    TEMPLATE.split_once("\n---\n").expect("a header and a job").1
}

/// The names of the inputs, in their order.
fn inputs() -> Vec<&'static str> {
    let header = TEMPLATE.split_once("\n---\n").expect("a header and a job").0;
    let name = |line: &'static str| line.strip_prefix("    ")?.strip_suffix(':').filter(|name| !name.starts_with(' '));
    header.lines().filter_map(name).collect()
}

#[test]
fn the_job_of_the_component_is_what_gitlabs_schema_wants() {
    let Some(tools) = fetched(&["check-jsonschema"], "the GitLab component against GitLab's schema") else { return };
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let check = |text: &str| {
        let file = folder.path().join("job.yml");
        std::fs::write(&file, text).expect("the test's folder can be written");
        let mut check = command(tools.path("check-jsonschema"));
        check.args(["--data-transform", "gitlab-ci", "--builtin-schema", "vendor.gitlab-ci"]).arg(file);
        let done = check.output().expect("it was fetched");
        (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    assert_eq!(check(body()), (true, "ok -- validation done\n".to_owned()));
    let (accepted, said) = check(&body().replace("exit_codes:", "exit_codez:"));
    assert!(!accepted && said.contains("exit_codez"), "the schema knows no such key: {said}");
}

#[test]
fn the_job_of_the_component_is_what_a_run_that_outlives_a_cancel_needs() {
    for line in [
        "  interruptible: false",
        "  resource_group: \"$[[ inputs.resource-group ]]\"",
        "    when: always",
        "      junit: dcctl-report/junit.xml",
        "    paths: [dcctl-report/]",
        "    DCCTL_JUNIT: dcctl-report/junit.xml",
        "    DCCTL_EVENTS_FILE: dcctl-report/events.jsonl",
        "    exit_codes: [20]",
        "    RUNNER_AFTER_SCRIPT_TIMEOUT: 25m",
        "        dcctl runs wait \"$run\" --timeout 24m || ended=$?",
    ] {
        assert!(body().lines().any(|found| found == line), "the job has no line {line:?}");
    }
}

#[test]
fn every_input_of_the_component_has_its_row_in_the_readme_and_is_used() {
    let rows = README.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name));
    let rows: BTreeSet<_> = rows.collect();
    let inputs = inputs();
    assert!(inputs.len() > 10, "{inputs:?}");
    for input in &inputs {
        assert!(rows.contains(input), "gitlab/README.md has no row for {input}");
        assert!(body().contains(&format!("$[[ inputs.{input} ]]")), "nothing uses {input}");
    }
    for used in body().split("$[[ inputs.").skip(1).filter_map(|rest| rest.split_once(" ]]")) {
        assert!(inputs.contains(&used.0), "there is no input {}", used.0);
    }
}
