//! What is done with a bundle, and what is left of a run beside it.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::bed::Bed;
use crate::lock::rig::{Rig, of_kind};
use crate::verbs::rig::{Demo, PASSWORD, files};

/// The whole way: an archive, then the same bundle as a folder, and what a run leaves on the disk.
#[test]
fn a_bundle_is_never_written_to_and_a_run_leaves_no_secret_behind() {
    let demo = Demo::copied(Bed::take());
    let archive = demo.bed.file("release.tar.gz");
    pack(demo.bundle(), &archive);
    demo.install().env("DCCTL_BUNDLE", &archive).run().expect_code(0);
    let before = (files(demo.bundle()), files(&archive));
    let done = demo.bootstrap("one", 1883).run().expect_code(0);
    assert_eq!((files(demo.bundle()), files(&archive)), before);

    let run_dir = done.events()[0]["data"]["run_dir"].as_str().expect("it is named").to_owned();
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(Path::new(&run_dir)), 0o700);
    let token = demo.bed.described().user("admin").token.clone();
    for folder in [demo.bed.file("home"), demo.bed.file("tmp")] {
        for (path, (content, _)) in files(&folder) {
            for secret in [PASSWORD, &token] {
                let found = content.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{} holds a secret", path.display());
            }
        }
    }
    assert!(!Path::new(&run_dir).join("kubeconfig").exists() && !Path::new(&run_dir).join("private").exists());
    let state = demo.state_dir("one");
    assert_eq!(mode(&state), 0o700);
    for file in files(&state).into_keys() {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// Packs a folder's content.
fn pack(folder: &Path, archive: &Path) {
    let file = File::create(archive).expect("the test's folder can be written");
    let mut builder = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
    builder.append_dir_all(".", folder).expect("the bundle can be read");
    builder.into_inner().and_then(GzEncoder::finish).expect("the test's folder can be written");
}

#[test]
fn a_bundle_may_be_an_archive() {
    let rig = Rig::new().checked("test -e bundle.yaml && echo found it");
    let archive = rig.bed.file("release.tar.gz");
    pack(&rig.bed.file("bundle"), &archive);
    let done = rig.bed.dcctl(["bootstrap", "one", "--output", "jsonl", "--bundle"]).arg(&archive).run().expect_code(0);
    assert_eq!(done.events()[0]["data"]["bundle"]["path"].as_str(), archive.to_str());
    assert!(done.stdout.contains("found it"), "the bundle's commands run in it:\n{}", done.stdout);

    let digest = digest_of(&archive);
    let again = rig.bed.dcctl(["bootstrap", "two", "--output", "jsonl", "--bundle"]).arg(&archive);
    let again = again.arg("--bundle-digest").arg(&digest).run().expect_code(0);
    let started = &again.events()[0]["data"];
    assert_eq!(started["bundle"]["digest"].as_str(), Some(digest.as_str()));
    let run_dir = Path::new(started["run_dir"].as_str().expect("it is said"));
    assert!(run_dir.exists() && !run_dir.join("private").exists(), "what was unpacked is removed");
}

#[test]
fn another_archive_than_the_expected_one_is_refused_before_anything_of_it_is_unpacked() {
    let rig = Rig::new();
    let archive = rig.bed.file("release.tar.gz");
    pack(&rig.bed.file("bundle"), &archive);
    let right = digest_of(&archive);
    let wrong = format!("sha256:{}", "0".repeat(64));
    let folder = rig.bed.file("bundle");
    let rows = [
        (&archive, wrong.as_str(), "config.bundle", "and --bundle-digest says sha256:0000"),
        (&archive, &right[7..], "config.option", "--bundle-digest is `sha256:` and 64 hexadecimal digits"),
        (&archive, "sha256:abc", "config.option", "--bundle-digest is `sha256:` and 64 hexadecimal digits"),
        (&folder, &right, "config.option", "is a folder"),
    ];
    for (bundle, digest, code, says) in rows {
        let run_dir = rig.bed.file("run");
        fs::create_dir_all(&run_dir).expect("the test's folder can be written");
        let run = rig.bed.dcctl(["bootstrap", "one", "--output", "jsonl", "--bundle"]).arg(bundle);
        let run = run.env("DCCTL_BUNDLE_DIGEST", digest).arg("--run-dir").arg(&run_dir);
        let failure = run.run().expect_code(3).verdict()["data"]["failure"].clone();
        assert_eq!(failure["code"], code, "{failure}");
        assert!(failure["message"].as_str().is_some_and(|said| said.contains(says)), "{failure}");
        assert!(!run_dir.join("private/bundle").exists(), "it was unpacked");
        fs::remove_dir_all(&run_dir).expect("it is ours");
    }
    assert_eq!(rig.lock_requests("admin"), Vec::<String>::new());
}

#[test]
fn an_archive_that_reaches_out_or_is_cut_off_is_refused_and_leaves_nothing() {
    let rig = Rig::new();
    let archive = rig.bed.file("release.tar.gz");
    pack(&rig.bed.file("bundle"), &archive);
    let good = fs::read(&archive).expect("it is there");
    let mut climbing = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    let name = b"../climbed";
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_size(0);
    header.set_cksum();
    climbing.append(&header, &b""[..]).expect("in memory");
    let climbing = climbing.into_inner().and_then(GzEncoder::finish).expect("in memory");
    let rows = [
        (climbing, "leads upwards"),
        (good[..good.len() - 5].to_vec(), "cannot be read as a .tar.gz"),
        ([&good[..], b"more"].concat(), "cannot be read as a .tar.gz"),
        ([&good[..], &good].concat(), "something follows the end of its tar"),
    ];
    for (bytes, says) in rows {
        fs::write(&archive, bytes).expect("it can be written");
        let run_dir = rig.bed.file("run");
        let run = rig.bed.dcctl(["bootstrap", "one", "--output", "jsonl", "--bundle"]).arg(&archive);
        let failure = run.arg("--run-dir").arg(&run_dir).run().expect_code(3).verdict()["data"]["failure"].clone();
        assert_eq!(failure["code"], "config.bundle", "{failure}");
        assert!(failure["message"].as_str().is_some_and(|said| said.contains(says)), "{failure}");
        assert!(!run_dir.exists() && !rig.bed.file("climbed").exists(), "something was left");
    }
}

/// The digest of a file, as people name it.
fn digest_of(file: &Path) -> String {
    let bytes = fs::read(file).expect("it is there");
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    digest.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[test]
fn images_are_built_first_and_without_the_lock() {
    let rig = Rig::new().building("read status < $BUILD_GATE && echo $DCCTL_INSTANCE $DCCTL_VERSION && exit $status");
    let gate = rig.gate("build");
    let run = |code: i32, status: u8| {
        let run = rig.bootstrap("one").arg("--build").env("BUILD_GATE", gate.path()).start();
        run.wait_for("process.started", |event| event["data"]["program"] == "build images");
        assert_eq!((rig.lease(), rig.lock_requests("admin").len()), (None, 0), "it asks nothing about the lock");
        gate.open(status);
        run.finish().expect_code(code)
    };
    let failed = run(1, 7);
    assert_eq!(failed.verdict()["data"]["failure"]["code"], "build.failed");
    assert_eq!((rig.lock_requests("admin").len(), &failed.verdict()["data"]["lock"]), (0, &Value::from("never_taken")));
    let done = run(0, 0);
    assert!(done.stdout.contains("one 1.0.0"), "{}", done.stdout);

    let without = rig.bootstrap("two").run().expect_code(0);
    assert_eq!(of_kind(&without.events(), "process.started").len(), 0, "nothing is built unasked");
}

#[test]
fn in_ci_a_local_state_without_a_folder_of_its_own_is_refused_before_the_lock() {
    let rig = Rig::new().slow_thing(0.0);
    let bundle = rig.bed.file("bundle");
    let bootstrap =
        || rig.bed.dcctl(["bootstrap", "one", "--output", "jsonl", "--bundle"]).arg(&bundle).env("CI", "true");
    let refused = bootstrap().run().expect_code(3);
    let failure = refused.verdict()["data"]["failure"].clone();
    assert_eq!(failure["code"], "config.option");
    assert!(
        failure["message"].as_str().is_some_and(|said| said.contains("`infra` keeps its OpenTofu state")),
        "{failure}"
    );
    assert_eq!(rig.lock_requests("admin"), Vec::<String>::new());
    bootstrap().arg("--state-dir").arg(rig.bed.file("state")).run().expect_code(0);
    // A person's own machine keeps it in the home folder.
    rig.bed.dcctl(["bootstrap", "two", "--output", "jsonl", "--bundle"]).arg(&bundle).run().expect_code(0);
    assert!(rig.bed.file("home/.devicechain/instances/two/infrastructure.tfstate").exists());
}

#[test]
fn tools_get_one_kubeconfig_with_the_chosen_context_alone() {
    let bed = Bed::take();
    let seen = bed.file("seen");
    let script = format!(
        "{{ kubectl config view -o jsonpath='{{.contexts[*].name}} {{.clusters[*].name}} {{.users[*].name}}'; \
         echo; stat -c %a $KUBECONFIG; test $KUBECONFIG = $KUBE_CONFIG_PATH && echo same; env; }} > {}",
        seen.display()
    );
    let rig = Rig::on(bed).checked(&script);
    let leading = [("TF_CLI_ARGS", "-destroy"), ("HELM_KUBECONTEXT", "nowhere"), ("DCCTL_VAR_SECRET", "hush-hush")];
    let mut run = rig.bootstrap("one").args(["--kube-context", "bed"]);
    for (name, value) in leading {
        run = run.env(name, value);
    }
    let done = run.run().expect_code(0);
    let text = fs::read_to_string(seen).expect("the check wrote it");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0].split(' ').collect::<Vec<_>>().len(), 3, "one context, one cluster, one user: {}", lines[0]);
    assert!(lines[0].starts_with("bed "), "{}", lines[0]);
    assert_eq!(lines[1..3], ["600", "same"]);
    let dropped = of_kind(&done.events(), "environment.dropped")[0]["data"]["names"].to_string();
    for (name, _) in leading {
        assert!(!lines.iter().any(|line| line.starts_with(&format!("{name}="))), "{name} reached a tool");
        assert!(dropped.contains(name), "{name} is not said to be dropped: {dropped}");
    }
}
