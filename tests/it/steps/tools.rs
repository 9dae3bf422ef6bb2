//! Finding OpenTofu and Helm, and refusing what is not them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dcctl::failure::Code;
use dcctl::step::{find_helm, find_tofu};

use crate::bed::Bed;
use crate::steps::bench::Bench;

fn program(bed: &Bed, name: &str, text: &str) -> PathBuf {
    let path = bed.file(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made a program");
    path
}

fn on_path(bench: &mut Bench<'_>, folder: &Path) {
    let path = bench.kit.environment.iter_mut().find(|(name, _)| name == "PATH").expect("there is a PATH");
    path.1 = folder.display().to_string();
}

#[tokio::test]
async fn the_real_programs_are_found_on_path_and_say_their_versions() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    bench.programs().await;
    let tofu = find_tofu(&bench.kit, None).await.expect("it is on PATH");
    assert_eq!((tofu.version.as_str(), tofu.path.file_name().and_then(|name| name.to_str())), ("1.12.6", Some("tofu")));
    let helm = find_helm(&bench.kit, Some(Path::new("helm"))).await.expect("it is on PATH");
    assert!(helm.version.starts_with('3') || helm.version.starts_with('4'), "{}", helm.version);
    assert_eq!(bench.said(), [], "nobody else hears it");
    assert_eq!(find_tofu(&bench.kit, Some(&tofu.path)).await.expect("it is there").version, "1.12.6");
}

#[tokio::test]
async fn what_is_not_there_is_missing_and_named() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    bench.programs().await;
    let folder = bed.file("empty");
    program(&bed, "empty/terraform", "echo Terraform v1.11.4");
    on_path(&mut bench, &folder);
    let failure = find_tofu(&bench.kit, None).await.expect_err("it is not there");
    assert_eq!((failure.code, failure.message.as_str()), (Code::ToolMissing, "`tofu` is not on PATH"));
    assert!(failure.hints.iter().any(|hint| hint.contains("is Terraform")), "{failure:?}");
    let plain = bed.file("plain");
    fs::write(&plain, "no program").expect("written");
    for (given, why) in [(bed.file("nothing"), "is not there"), (plain, "is not a program")] {
        let failure = find_helm(&bench.kit, Some(&given)).await.expect_err("it cannot be used");
        assert_eq!(failure.code, Code::ToolMissing);
        assert!(failure.message.contains("given with --helm") && failure.message.ends_with(why), "{failure}");
    }
    let failure = find_helm(&bench.kit, Some(Path::new("helm-nowhere"))).await.expect_err("it is not there");
    assert!(failure.message.ends_with("is not on PATH"), "{failure}");
}

#[tokio::test]
async fn what_is_too_old_or_something_else_is_unsuitable() {
    let bed = Bed::take();
    let mut bench = Bench::new(&bed, "admin").await;
    bench.programs().await;
    let refused = [
        ("echo OpenTofu v1.7.3", "is OpenTofu 1.7.3, and dcctl needs 1.8.0 or later"),
        ("echo 'Terraform v1.11.4'; echo on linux", "is Terraform"),
        ("echo hello", "does not say that it is OpenTofu"),
        ("echo 'no such command' >&2; exit 1", "does not say its version: it ended with exit status 1"),
    ];
    for (text, why) in refused {
        let path = program(&bed, "tools/tofu", text);
        let failure = find_tofu(&bench.kit, Some(&path)).await.expect_err("it is refused");
        assert_eq!(failure.code, Code::ToolUnsuitable);
        assert!(failure.message.contains(why), "{failure}");
    }
    let old = program(&bed, "tools/helm", "echo v3.12.0");
    let failure = find_helm(&bench.kit, Some(&old)).await.expect_err("it is refused");
    assert!(failure.message.contains("is Helm 3.12.0, and dcctl needs 3.17.0 or later"), "{failure}");
    let not_for_here = bed.file("tools/foreign");
    fs::write(&not_for_here, [0x7f, b'E', b'L', b'F', 0, 0]).expect("written");
    fs::set_permissions(&not_for_here, fs::Permissions::from_mode(0o755)).expect("made a program");
    let failure = find_helm(&bench.kit, Some(&not_for_here)).await.expect_err("it cannot run here");
    assert_eq!(failure.code, Code::ToolUnsuitable);
}
