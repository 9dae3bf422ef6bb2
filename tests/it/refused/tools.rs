//! Programs that are missing or are not what their names say: exit code 4, naming the program and the fix.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::bed::disk::SmallDisk;
use crate::bed::tools::own;
use crate::bed::{Bed, Dcctl};
use crate::refused::{HEAD, told};

/// Runs of a bundle with a root and a chart: both verbs for OpenTofu, `bootstrap` alone for Helm.
struct Rig {
    bed: Bed,
    bundle: PathBuf,
}

impl Rig {
    fn new() -> Rig {
        let bed = Bed::take();
        let rest = "prerequisites: { root: root }\ninstance:\n  namespace: \"dci-${instance}\"\n  infrastructure: { root: root }\n  \
                    chart: { path: chart, release: small }\n";
        bed.write("bundle/root/main.tf", "");
        bed.write("bundle/chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n");
        let file = bed.write("bundle/bundle.yaml", &format!("{HEAD}{rest}"));
        let bundle = file.parent().expect("it is in a folder").to_owned();
        Rig { bed, bundle }
    }

    /// A program that says this when it is asked for its version, whatever it is asked.
    fn program(&self, name: &str, says: &str) -> PathBuf {
        let fake = own("fake-tool");
        self.script(name, &format!("exec {} {says}", fake.display()))
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.bed.write(name, &format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is the test's own");
        path
    }

    #[track_caller]
    fn tofu(&self, change: impl Fn(Dcctl) -> Dcctl, code: &str, says: &[&str]) {
        for verb in [&["install"][..], &["bootstrap", "demo"]] {
            self.refused(verb, &change, code, says);
        }
    }

    #[track_caller]
    fn helm(&self, change: impl Fn(Dcctl) -> Dcctl, code: &str, says: &[&str]) {
        self.refused(&["bootstrap", "demo"], &change, code, says);
    }

    #[track_caller]
    fn refused(&self, verb: &[&str], change: &impl Fn(Dcctl) -> Dcctl, code: &str, says: &[&str]) {
        let run = || change(self.bed.dcctl(verb).arg("--bundle").arg(&self.bundle));
        let said = told(&self.bed, run, 4, code).says(says);
        let verdict = &said.events.last().expect("there is a verdict")["data"];
        assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
        assert_eq!(said.report.only_bad().result, "error", "{}", said.report.text);
    }

    /// A PATH on which only these programs of the bed are, beside those of the system.
    fn path(&self, programs: &[&str]) -> String {
        let folder = self.bed.file(&format!("bin-{}", programs.join("-")));
        fs::create_dir_all(&folder).expect("the test's folder can be written");
        for program in programs {
            let link = folder.join(program);
            let _ = std::os::unix::fs::symlink(self.bed.described().programs.join(program), link);
        }
        format!("{}:/usr/bin:/bin", folder.display())
    }
}

const MISSING: &str = "surroundings.tool_missing";
const UNSUITABLE: &str = "surroundings.tool_unsuitable";
const TEMPORARY: &str = "surroundings.tmpdir";

#[test]
fn a_program_that_is_not_on_path_is_named_with_the_option_for_another() {
    let rig = Rig::new();
    let path = rig.path(&["helm"]);
    rig.tofu(|run| run.env("PATH", &path), MISSING, &["`tofu` is not on PATH", "--tofu"]);
    let path = rig.path(&["tofu"]);
    rig.helm(|run| run.env("PATH", &path), MISSING, &["`helm` is not on PATH", "--helm"]);
}

#[test]
fn a_program_that_was_given_and_is_not_there_is_named_with_its_option() {
    let rig = Rig::new();
    let missing = rig.bed.file("missing/tofu");
    let says = [&missing.display().to_string(), "given with --tofu, is not there"];
    rig.tofu(|run| run.arg("--tofu").arg(&missing), MISSING, &says);
    rig.helm(|run| run.env("DCCTL_HELM", &missing), MISSING, &["given with --helm, is not there"]);
    let text = rig.bed.write("notes.txt", "nothing to run\n");
    rig.tofu(|run| run.env("DCCTL_TOFU", &text), MISSING, &["notes.txt", "given with --tofu, is not a program"]);
    rig.helm(|run| run.args(["--helm", "helmm"]), MISSING, &["`helmm`, given with --helm, is not on PATH"]);
}

#[test]
fn a_program_that_is_too_old_or_another_is_told_with_what_works() {
    let rig = Rig::new();
    let tofu = |says: &str, expected: &[&str]| {
        let program = rig.program("tofu", says);
        rig.tofu(|run| run.arg("--tofu").arg(&program), UNSUITABLE, expected);
    };
    tofu("'print=OpenTofu v1.7.9' 'print=on linux_amd64'", &["is OpenTofu 1.7.9, and dcctl needs 1.8.0 or later"]);
    tofu(
        "'print=Terraform v1.11.4' 'print=on linux_amd64'",
        &["is Terraform, and dcctl works with OpenTofu 1.8.0 or later", "install OpenTofu, or name it with --tofu"],
    );
    tofu("'print=hello'", &["does not say that it is OpenTofu", "it said: hello"]);
    tofu("complain=broken exit=3", &["does not say its version", "3", "broken"]);
    let helm = |says: &str, expected: &[&str]| {
        let program = rig.program("helm", says);
        rig.helm(|run| run.arg("--helm").arg(&program), UNSUITABLE, expected);
    };
    helm("print=v3.16.4", &["is Helm 3.16.4, and dcctl needs 3.17.0 or later"]);
    helm("print=v5.0.0", &["is Helm 5.0.0", "install Helm 4"]);
    helm("print=hello", &["does not say that it is Helm", "it said: hello"]);
}

#[test]
fn terraform_on_path_is_not_taken_for_opentofu() {
    let rig = Rig::new();
    let terraform = rig.program("elsewhere/terraform", "'print=Terraform v1.11.4'");
    let path = format!("{}:{}", terraform.parent().unwrap_or(Path::new("/")).display(), rig.path(&["helm"]));
    let says = ["`tofu` is not on PATH", "is Terraform, which dcctl does not use in its place"];
    rig.tofu(|run| run.env("PATH", &path), MISSING, &says);
}

#[test]
fn a_program_that_cannot_be_started_is_told_with_the_reason() {
    let rig = Rig::new();
    let broken = rig.bed.write("broken", "#!/missing/interpreter\n");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).expect("it is the test's own");
    rig.tofu(|run| run.arg("--tofu").arg(&broken), MISSING, &["broken", "No such file"]);
}

#[test]
fn a_folder_for_temporary_files_that_tools_could_not_use_is_told_before_the_lock() {
    let rig = Rig::new();
    let file = rig.bed.write("notes.txt", "no folder\n");
    let long = rig.bed.file(&"deep/".repeat(20));
    fs::create_dir_all(&long).expect("the test's folder can be written");
    let missing = rig.bed.file("missing/tmp");
    let cases = [
        (missing.as_path(), "No such file or directory"),
        (&file, "Not a directory"),
        (&long, "too long for the sockets of OpenTofu's providers"),
        (Path::new("tmp"), "it is no absolute path"),
    ];
    for (folder, why) in cases {
        let named =
            format!("the folder for temporary files `{}`, which TMPDIR names, cannot be used", folder.display());
        rig.tofu(|run| run.env("TMPDIR", folder), TEMPORARY, &[&named, why, "point TMPDIR at another one"]);
    }
    let Some(disk) = SmallDisk::mount(&rig.bed.file("disk"), 64, ",ro") else { return };
    rig.tofu(|run| run.env("TMPDIR", disk.path()), TEMPORARY, &["Read-only file system"]);
}
