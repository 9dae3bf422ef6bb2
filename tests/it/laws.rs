//! The house rules that a machine can check.
//!
//! `CONTRIBUTING.md` explains them; clippy enforces the ones about code itself. What is forbidden here is spelled in
//! pieces, so that this file keeps the laws too.

use crate::tree::{self, Source, Strings};

/// The longest a file of code may be, its tests included.
const LONGEST: usize = 600;

/// Names that say nothing about what is in a file.
const EMPTY_NAMES: &[&str] =
    &["common", "core", "helper", "helpers", "imp", "manager", "misc", "types", "util", "utils"];

/// Files that machines write; the words in them are not ours.
const LOCK_FILES: &[&str] = &["Cargo.lock", "go.mod", "go.sum", "package-lock.json", ".terraform.lock.hcl"];

/// The loop that looks again and again until a fact is there, which everybody else asks; and the tool whose sleeping is
/// what it is asked for.
const MAY_SLEEP: &[&str] = &["tests/bed/wait.rs", "tests/bed/fake_tool.rs"];

/// The ranges that exist for documentation alone (RFC 5737): text to be matched, no machine ever has one.
const ON_PAPER: &[&str] = &["192.0.2.", "198.51.100.", "203.0.113."];

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Every text file in which the words are ours.
fn ours() -> Vec<Source> {
    let foreign = |path: &str| LOCK_FILES.contains(&name_of(path)) || path == "LICENSE";
    tree::texts().into_iter().filter(|file| !foreign(&file.path)).collect()
}

fn rust() -> Vec<Source> {
    tree::rust(&["src/", "tests/", "benches/"])
}

#[test]
fn no_file_of_code_is_longer_than_600_lines() {
    let code =
        |file: &Source| ["rs", "go", "sh", "js", "ts", "py"].contains(&file.extension()) || file.text.starts_with("#!");
    let length = |file: &Source| file.text.lines().count();
    let offences: Vec<_> = ours()
        .iter()
        .filter(|file| code(file) && length(file) > LONGEST)
        .map(|file| format!("{} has {} lines", file.path, length(file)))
        .collect();
    tree::obey("a file that is longer than 600 lines holds more than one idea:", &offences);
}

#[test]
fn every_file_is_named_for_what_is_in_it() {
    let empty = |part: &str| EMPTY_NAMES.contains(&part.split('.').next().unwrap_or(part));
    let offences: Vec<_> =
        rust().into_iter().filter(|file| file.path.split('/').any(empty)).map(|file| file.path).collect();
    tree::obey("these names say nothing about what is inside:", &offences);
}

#[test]
fn every_file_says_first_why_it_exists() {
    let offences: Vec<_> = rust()
        .into_iter()
        .filter(|file| !file.text.starts_with("//! ") || file.text.starts_with(concat!("//! ", "To be written")))
        .map(|file| file.path)
        .collect();
    tree::obey("these files do not begin with a module doc:", &offences);
}

#[test]
fn every_file_of_the_integration_tests_is_a_module_of_it() {
    let main = std::fs::read_to_string(tree::root().join("tests/it/main.rs")).expect("tests/it/main.rs can be read");
    let listed: Vec<_> = main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    assert!(listed.is_sorted(), "the modules in tests/it/main.rs are in the order of their names");
    let top = |file: Source| {
        let below = file.path.strip_prefix("tests/it/")?;
        let module = below.strip_suffix(".rs").filter(|name| !name.contains('/') && *name != "main")?;
        Some(module.to_owned())
    };
    let offences: Vec<_> =
        rust().into_iter().filter_map(top).filter(|module| !listed.contains(&module.as_str())).collect();
    tree::obey("these files of tests are never compiled; add them to tests/it/main.rs:", &offences);
}

#[test]
fn no_test_is_ignored_or_expected_to_panic() {
    find_in_code(&["#[ignore", "#[should_panic"], "a test states a fact, and is run:");
}

#[test]
fn nothing_is_left_undone() {
    find_in_code(&["todo!(", "unimplemented!(", "dbg!("], "finish it, or take it out:");
}

fn find_in_code(forbidden: &[&str], law: &str) {
    let mut offences = Vec::new();
    for file in rust() {
        let code = file.code(Strings::Blanked);
        for word in forbidden {
            offences.extend(code.match_indices(word).map(|(at, _)| format!("{}: {word}", file.place(at))));
        }
    }
    tree::obey(law, &offences);
}

/// A duration is never a fact. Where the bed itself (a proxy that delays an answer) or a test of a paused clock has to
/// let time pass, a comment `// fact: …` at the sleep says what that is for; the tests from outside never have to.
#[test]
fn tests_wait_for_facts_and_never_for_a_duration() {
    let mut offences = Vec::new();
    for file in rust().iter().filter(|file| !MAY_SLEEP.contains(&file.path.as_str())) {
        let code = file.code(Strings::Blanked);
        let said = |at: usize| {
            let line = file.line(at);
            file.text.lines().skip(line.saturating_sub(2)).take(2).any(|line| line.contains("// fact: "))
        };
        let from_outside = file.path.starts_with("tests/it/");
        for at in sleeps(&code).into_iter().filter(|at| *at >= file.tests_begin()) {
            if from_outside || !said(at) {
                offences.push(file.place(at));
            }
        }
    }
    tree::obey("these tests wait for a duration; wait for a fact with the loop of tests/bed/wait.rs:", &offences);
}

/// Calls of a function `sleep`, whoever's it is; a method or a definition of that name is none.
fn sleeps(code: &str) -> Vec<usize> {
    let called = |at: &usize| code[at + "sleep".len()..].starts_with('(');
    let function = |at: &usize| !code[..*at].ends_with('.') && !code[..*at].ends_with("fn ");
    tree::words(code, "sleep").filter(called).filter(function).collect()
}

#[test]
fn no_path_of_a_machine_is_written_down() {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("../sha", "red")];
    let mut offences = Vec::new();
    for file in ours() {
        for folder in folders {
            let begins = |at: usize| !file.text[..at].ends_with(|c: char| c.is_alphanumeric() || "-_.}".contains(c));
            // Alice is nobody: she is the person of the documents.
            let alice = |at: usize| file.text[at + folder.len()..].starts_with("alice");
            let found = file.text.match_indices(folder).map(|(at, _)| at).filter(|at| begins(*at) && !alice(*at));
            offences.extend(found.map(|at| format!("{}: {folder}…", file.place(at))));
        }
    }
    tree::obey("these paths are of one machine:", &offences);
}

#[test]
fn no_registry_is_named_outside_lock_files() {
    let hosts = [
        ("crates", "io"),
        ("deb.debian", "org"),
        ("docker", "io"),
        ("files.pythonhosted", "org"),
        ("gcr", "io"),
        ("ghcr", "io"),
        ("proxy.golang", "org"),
        ("pypi", "org"),
        ("quay", "io"),
        ("registry.k8s", "io"),
        ("registry.npmjs", "org"),
        ("registry.opentofu", "org"),
        ("registry.terraform", "io"),
        ("sum.golang", "org"),
    ];
    let mut offences = Vec::new();
    for file in ours() {
        for host in hosts.map(|(name, end)| format!("{name}.{end}")) {
            offences.extend(tree::words(&file.text, &host).map(|at| format!("{}: {host}", file.place(at))));
        }
    }
    tree::obey("a registry is the business of the tool that asks it:", &offences);
}

#[test]
fn every_address_is_loopback() {
    let mut offences = Vec::new();
    for file in ours() {
        for (at, address) in addresses(&file.text) {
            // Where a control plane of the bed takes the addresses of Services from: nobody ever talks to one.
            let services = file.line_text(at).contains("service-cluster-ip-range");
            let everything = file.text[at + address.len()..].starts_with("/0");
            let harmless = ["127."].iter().chain(ON_PAPER).any(|range| address.starts_with(range));
            if !harmless && !services && !everything {
                offences.push(format!("{}: {address}", file.place(at)));
            }
        }
    }
    tree::obey("everything here listens on and talks to 127.0.0.1 alone:", &offences);
}

/// Everything that reads as an IPv4 address, with its offset.
fn addresses(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let at = text.len() - rest.len() + start;
        let run = &rest[start..];
        let end = run.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(run.len());
        let address = run[..end].trim_end_matches('.');
        let alone = !text[..at].ends_with(|c: char| c.is_alphanumeric() || ".-_".contains(c))
            && !run[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let parts: Vec<_> = address.split('.').map(str::parse::<u8>).collect();
        if alone && parts.len() == 4 && parts.iter().all(Result::is_ok) {
            found.push((at, address));
        }
        rest = &run[end..];
    }
    found
}

#[test]
fn an_address_is_four_numbers_and_a_version_is_not() {
    let text = concat!("at 127.0.0.1:80, 8.8.", "8.8 or 10.", "0.0.0/24. Not 1.2.3, v1.2.3.4, 1.2.3.4.5, 300.1.1.1");
    let found: Vec<_> = addresses(text).into_iter().map(|(_, address)| address).collect();
    assert_eq!(found, ["127.0.0.1", concat!("8.8.", "8.8"), concat!("10.", "0.0.0")]);
}
