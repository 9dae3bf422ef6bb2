//! The real OpenTofu and Helm in an environment that is set up against them: the outcome is what the bundle says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::bed::disk::SmallDisk;
use crate::bed::{Bed, Dcctl};
use crate::verbs::rig::{Demo, files};

const RELEASE: &str = "/api/v1/namespaces/dci-one/secrets/sh.helm.release.v1.dc-one.v1";

/// Both verbs that build, each changed alike, and what they leave: a live instance, with its state and its release
/// where they belong. Gives back what both said.
fn build(demo: &Demo, change: impl Fn(Dcctl) -> Dcctl) -> String {
    let installed = change(demo.install()).run().expect_code(0);
    let built = change(demo.bootstrap("one", 1883)).run().expect_code(0);
    assert_eq!(demo.phase("one").as_deref(), Some("Ready"));
    assert!(demo.get(RELEASE).is_some(), "the release is recorded elsewhere");
    assert!(demo.state_dir("one").join("infrastructure.tfstate").is_file(), "the state is elsewhere");
    format!("{}\n{}", installed.stdout, built.stdout)
}

#[test]
fn what_would_lead_opentofu_and_helm_astray_reaches_neither() {
    let demo = Demo::on(Bed::take());
    let log = demo.bed.file("tofu.log").display().to_string();
    let astray = [
        ("TF_CLI_ARGS", "-no-such-option"),
        ("TF_CLI_ARGS_apply", "-destroy"),
        ("TF_CLI_ARGS_plan", "-destroy"),
        ("TF_LOG", "TRACE"),
        ("TF_LOG_PATH", &log),
        ("TF_WORKSPACE", "elsewhere"),
        ("TF_DATA_DIR", "/proc/nowhere"),
        ("TF_INPUT", "1"),
        ("TF_VAR_name", "another"),
        ("HELM_DEBUG", "true"),
        ("HELM_DRIVER", "memory"),
        ("HELM_KUBECONTEXT", "nowhere"),
        ("HELM_KUBEAPISERVER", "https://127.0.0.1:9"),
        ("HELM_MAX_HISTORY", "1"),
        ("HELM_NAMESPACE", "default"),
        ("KUBE_CTX", "nowhere"),
    ];
    let said = build(&demo, |run| astray.iter().fold(run, |run, (name, value)| run.env(name, value)));
    assert!(!Path::new(&log).exists(), "OpenTofu wrote a log");
    let dropped = said.lines().find(|line| line.contains("\"environment.dropped\"")).expect("it is said");
    for (name, _) in astray {
        assert!(dropped.contains(&format!("\"{name}\"")), "{name} is not said to be kept back: {dropped}");
    }
}

#[test]
fn without_a_home_the_state_folder_that_is_named_is_used_and_the_tools_work() {
    let demo = Demo::copied(Bed::take());
    let states = demo.bed.file("states");
    let shipped = files(demo.bundle());
    build(&demo, |run| run.without("HOME").env("XDG_STATE_HOME", &states));
    assert_eq!(files(demo.bundle()), shipped, "a kubectl without a home kept its cache in the bundle");
    let runs = fs::read_dir(states.join("dcctl/runs")).expect("the runs are kept there").count();
    assert_eq!(runs, 2);
}

#[test]
fn a_home_that_cannot_be_written_to_is_nothing_to_the_tools() {
    let demo = Demo::on(Bed::take());
    let Some(disk) = SmallDisk::mount(&demo.bed.file("disk"), 1024, ",ro") else { return };
    let states = demo.bed.file("states");
    build(&demo, |run| run.env("HOME", disk.path()).env("XDG_STATE_HOME", &states));
}

#[test]
fn a_umask_of_nothing_opens_no_file_of_a_run_or_a_state_to_others() {
    let demo = Demo::on(Bed::take());
    build(&demo, |run| run.by_shell("umask 0; exec \"$@\"").with_pipes());
    let mut open = Vec::new();
    for folder in [demo.bed.file("home/.local/state/dcctl"), demo.bed.file("state")] {
        open_to_others(&folder, &mut open);
    }
    assert_eq!(open, Vec::<String>::new());
}

/// Everything below a folder, and itself, that somebody else has a right to.
fn open_to_others(path: &Path, open: &mut Vec<String>) {
    let found = fs::symlink_metadata(path).expect("it is there");
    if !found.is_symlink() && found.permissions().mode() & 0o077 != 0 {
        open.push(format!("{} {:o}", path.display(), found.permissions().mode() & 0o7777));
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).expect("it is a folder") {
            open_to_others(&entry.expect("it can be listed").path(), open);
        }
    }
}
