//! `tests/bed/build`: who gets what when several ask, point elsewhere, or lack something.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::bed::Tools;
use crate::bed::child::command;

/// The script, with a cache of its own.
fn build(home: &TempDir, arguments: &[&str]) -> Command {
    let mut build = command(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bed/build"));
    build.args(arguments).env("DCCTL_BED_HOME", home.path()).stdin(Stdio::null());
    for variable in ["DCCTL_BED_PROVIDER_BED", "DCCTL_BED_TOFU", "KUBEBUILDER_ASSETS"] {
        build.env_remove(variable);
    }
    build
}

fn home() -> TempDir {
    tempfile::tempdir().expect("the temporary folder can be written")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn two_builds_at_once_take_turns_and_build_once() {
    let home = home();
    let start = || {
        let mut build = build(&home, &["provider-bed"]);
        build.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash starts")
    };
    let ended: Vec<Output> =
        [start(), start()].into_iter().map(|build| build.wait_with_output().expect("it is our child")).collect();
    for output in &ended {
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert_eq!(text(&ended[0].stdout), text(&ended[1].stdout));
    let built = ended.iter().filter(|output| text(&output.stderr).contains("built provider-bed in")).count();
    assert_eq!(built, 1);
}

#[test]
fn what_is_there_is_neither_built_nor_waited_for() {
    let home = home();
    let first = build(&home, &["provider-bed"]).output().expect("bash starts");
    assert!(first.status.success(), "{}", text(&first.stderr));
    let lock = crate::bed::child::lock_file(&home.path().join("build.lock")).expect("it can be opened");
    assert!(lock.is_some(), "nobody else builds here");
    let second = build(&home, &["provider-bed"]).output().expect("bash starts");
    assert_eq!((text(&second.stdout), text(&second.stderr)), (text(&first.stdout), String::new()));
    drop(lock);

    let cleaned = build(&home, &["clean"]).output().expect("bash starts");
    assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
    assert!(!home.path().join("tools").exists());
}

#[test]
fn a_tool_that_is_pointed_at_is_used() {
    let (home, tofu) = (home(), Tools::get().path("tofu"));
    let output = build(&home, &["tofu"]).env("DCCTL_BED_TOFU", tofu).output().expect("bash starts");
    assert_eq!(text(&output.stdout), format!("DCCTL_BED_TOFU={}\n", tofu.display()));

    let output = build(&home, &["tofu"]).env("DCCTL_BED_TOFU", "/dev/null").output().expect("bash starts");
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert_eq!(said, "bed: DCCTL_BED_TOFU is '/dev/null', which is not a program; unset it to have tofu built\n");
}

/// The programs that the script may use, Go left out; that it says so also proves that it needs no others.
#[test]
fn a_missing_go_is_said_in_one_line() {
    let (home, programs) = (home(), home());
    for program in "bash cat cut df dirname flock mkdir mv rm sha256sum tail tr uname".split(' ') {
        symlink(Path::new("/usr/bin").join(program), programs.path().join(program)).expect("a new link");
    }
    let output = build(&home, &["tofu"]).env("PATH", programs.path()).output().expect("bash starts");
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("install Go 1.26.8 or later, or point DCCTL_BED_TOFU at a ready program"), "{said}");
}

#[test]
fn an_unknown_tool_is_refused() {
    let output = build(&home(), &["tofoo"]).output().expect("bash starts");
    assert!(!output.status.success());
    assert!(text(&output.stderr).starts_with("bed: there is no tool 'tofoo'; there are: etcd "));
}

#[test]
fn the_versions_that_the_script_names_are_the_pinned_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bed");
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).expect("it is part of the tree");
    let script = read("build");
    let named = |name: &str| {
        let line = script.lines().find_map(|line| line.strip_prefix(&format!("{name}_version=")));
        line.unwrap_or_else(|| panic!("the script names no {name}_version")).to_owned()
    };
    for (name, module, pins) in [
        ("k8s", "k8s.io/kubernetes", "controlplane/go.mod"),
        ("k8s", "k8s.io/kubernetes", "kubectl/go.mod"),
        ("helm", "helm.sh/helm/v4", "helm/go.mod"),
        ("time", "github.com/hashicorp/terraform-provider-time", "helm/go.mod"),
        ("act", "github.com/nektos/act", "act/go.mod"),
    ] {
        let pin = format!("{module} v{}", named(name));
        assert!(read(pins).lines().any(|line| line.contains(&pin)), "{pins} does not pin {pin}");
    }
    let version = format!("answer.Version = \"{}\"", named("bed"));
    assert!(read("provider/bed.go").contains(&version), "the provider calls itself something else");
}
