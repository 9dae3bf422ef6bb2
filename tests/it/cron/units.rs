//! The systemd service and its timer, and the image, held against the tools that read them.

use std::fs;
use std::path::Path;

use crate::bed::child::command;
use crate::bed::tools::own;
use crate::gitlab::project::fetched;
use crate::tree;

fn file(name: &str) -> String {
    fs::read_to_string(tree::root().join("cron").join(name)).unwrap_or_else(|error| panic!("cron/{name}: {error}"))
}

/// What a program has to say about a file of this name with this text, and how it ends.
fn asked(program: &Path, words: &[&str], files: &[(&str, String)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let mut ask = command(program);
    ask.args(words).current_dir(folder.path());
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("the test's folder can be written");
        ask.arg(format!("./{name}"));
    }
    let done = ask.output().expect("it was fetched");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn systemd_has_nothing_to_say_about_the_service_and_its_timer() {
    let Some(tools) = fetched(&["systemd-analyze"], "the systemd units") else { return };
    let verify = |service: String| {
        // Only the program is another one: it has to be there.
        let service = service.replace("/usr/local/bin/dcctl", &own("dcctl").display().to_string());
        let units = [("dcctl-upgrade.service", service), ("dcctl-upgrade.timer", file("dcctl-upgrade.timer"))];
        asked(tools.path("systemd-analyze"), &["verify"], &units)
    };
    let service = file("dcctl-upgrade.service");
    for line in ["KillMode=mixed", "TimeoutStopSec=22min", "Environment=DCCTL_STOP_BUDGET=22m", "Restart=no"] {
        assert!(service.lines().any(|found| found == line), "{line}");
    }
    assert_eq!(verify(service.clone()), (Some(0), String::new()));
    // It ends with 0 all the same where a value is misspelt, so that what it says is what counts.
    for (right, wrong) in [("KillMode=mixed", "KillMode=mixde"), ("TimeoutStopSec=22min", "TimeoutStopSec=22mni")] {
        let (code, said) = verify(service.replace(right, wrong));
        assert!(code == Some(0) && said.contains("Failed to parse"), "{wrong}: {said}");
    }
}

#[test]
fn the_image_is_not_roots_begins_with_dcctl_itself_and_names_no_digest_that_nobody_read() {
    let text = file("Dockerfile");
    let last =
        |instruction: &str| text.lines().rev().find_map(|line| line.strip_prefix(instruction)).unwrap_or_default();
    assert_eq!(last("USER "), "65532:65532");
    assert_eq!(last("ENTRYPOINT "), "[\"/usr/local/bin/dcctl\"]");
    assert!(!text.contains("sha256:"), "a digest is named by a release alone, which has read it");
    let Some(tools) = fetched(&["hadolint"], "the Dockerfile by its linter") else { return };
    let lint = |text: String| asked(tools.path("hadolint"), &[], &[("Dockerfile", text)]);
    assert_eq!(lint(text.clone()), (Some(0), String::new()));
    let (code, said) = lint(text.replace("WORKDIR /var", "WORKDIR var"));
    assert!(code == Some(1) && said.contains("WORKDIR"), "{said}");
}

#[test]
fn a_release_names_the_base_of_the_image_by_the_digest_that_it_has_read() {
    let pin = |digest: &str| {
        let mut pin = command(&tree::root().join(".ci/pin-image"));
        let done = pin.arg(digest).output().expect("it starts");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let (code, pinned) = pin(&digest);
    assert_eq!(code, Some(0));
    assert!(pinned.contains(&format!("ARG BASE=debian:bookworm-slim@{digest}\n")), "{pinned}");
    assert!(!pinned.contains("has no digest"), "{pinned}");
    let rest =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rest(&pinned), rest(&file("Dockerfile")));
    for none in ["", "latest", "sha256:0123", &digest.to_uppercase(), &format!("{digest}|d")] {
        assert_eq!(pin(none), (Some(1), String::new()), "{none}");
    }
    let release = std::fs::read_to_string(tree::root().join(".github/workflows/release.yml")).expect("it is there");
    assert!(
        release.contains(".ci/pin-image \"$(docker buildx imagetools inspect ")
            && release.contains(">packed/Dockerfile")
    );
}
