//! `docs/reference/env.md` names every environment variable that the program reads, sets, or keeps from its tools.
//!
//! The table of options is made from the command line. The rest is written by hand, and held against every word in the code
//! that could be the name of a variable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::read;
use crate::tree::{self, Strings};

const PAGE: &str = "docs/reference/env.md";

/// Between these lines stands what is made.
const MARKS: [&str; 2] = ["<!-- options: generated from src/cli by `make docs` -->\n", "<!-- end of options -->\n"];

/// Words in capitals that are no variables: names of values in help texts, columns, signals.
const NO_VARIABLES: &[&str] = &[
    "ADDRESS", "AGE", "APPLIED", "CLAIMS", "CMD", "COOKIE", "DIGEST", "DIR", "DURATION", "EVENTS", "FILE", "FORM",
    "ID", "KIND", "MANNER", "NAME", "OF", "PHASE", "PROGRAM", "RELEASE", "RUN", "STATE", "WHEN",
];

/// What only a build for tests, or the build itself, looks at.
const NOT_OF_A_RELEASE: &[&str] =
    &["BED_SUSPENDED", "CARGO_PKG_VERSION", "DCCTL_SOAK", "DCCTL_TEST_BREAK", "DCCTL_TEST_WITNESS"];

/// The page with its table made anew.
pub(super) fn page() -> String {
    let page = read(PAGE);
    let [begin, end] = MARKS;
    let (before, rest) = page.split_once(begin).expect("the page has the mark before its options");
    let (_, after) = rest.split_once(end).expect("the page has the mark after its options");
    format!("{before}{begin}\n{}\n{end}{after}", options())
}

/// Each variable of an option, with the option and the commands that have it.
fn options() -> String {
    let mut found: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    gather(&dcctl::cli::command(), "", &mut found);
    let mut table = "| variable | option | of |\n|---|---|---|\n".to_owned();
    for (variable, (option, commands)) in found {
        let commands: Vec<_> = commands.into_iter().map(|command| format!("`{command}`")).collect();
        writeln!(table, "| `{variable}` | `--{option}` | {} |", commands.join(", ")).expect("a string grows");
    }
    table
}

fn gather(command: &clap::Command, above: &str, found: &mut BTreeMap<String, (String, BTreeSet<String>)>) {
    for argument in command.get_arguments() {
        let (Some(variable), Some(option)) = (argument.get_env(), argument.get_long()) else { continue };
        let entry = found.entry(variable.to_string_lossy().into_owned());
        let (_, commands) = entry.or_insert_with(|| (option.to_owned(), BTreeSet::new()));
        commands.insert(above.trim_start().to_owned());
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        gather(below, &format!("{above} {}", below.get_name()), found);
    }
}

/// The words in quotes that could be a variable, or the beginning of some: capitals, digits and underscores.
fn candidates(code: &str) -> BTreeSet<&str> {
    let is_name = |word: &&str| {
        let fits = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        word.len() > 1 && word.chars().all(fits) && word.starts_with(|c: char| c.is_ascii_uppercase())
    };
    let known = ["https_proxy", "no_proxy"];
    let quoted = code.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
    quoted.filter(|word| is_name(word) || known.contains(word)).collect()
}

#[test]
fn the_page_about_the_environment_names_every_variable_in_the_code() {
    let page = read(PAGE);
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let spared = |word: &str| NO_VARIABLES.contains(&word) || NOT_OF_A_RELEASE.contains(&word);
    // What a table of signals has is not looked up in an environment.
    let is_known = |word: &str| spared(word) || word.starts_with("SIG") && !word.contains('_');
    // `DCCTL_*` speaks of what tools do not get, and names none of our own.
    let groups: Vec<&str> =
        named.iter().filter(|name| **name != "DCCTL_*").filter_map(|name| name.strip_suffix('*')).collect();
    let begins = |word: &str| groups.iter().any(|group| word.starts_with(group)) || word == "DCCTL_";
    let is_named = |word: &str| named.contains(word) || begins(word);
    let mut offences = Vec::new();
    let mut seen = BTreeSet::new();
    for file in tree::rust(&["src/"]) {
        let code = file.code(Strings::Kept);
        for word in candidates(&code[..file.tests_begin()]) {
            seen.insert(word.to_owned());
            if !is_known(word) && !is_named(word) {
                offences.push(format!("{}: {word}", file.path));
            }
        }
    }
    tree::obey("docs/reference/env.md does not name these variables:", &offences);
    for gone in NO_VARIABLES.iter().chain(NOT_OF_A_RELEASE).filter(|word| !seen.contains(**word)) {
        offences.push((*gone).to_owned());
    }
    tree::obey("these words are in no code any more; take them out of the test:", &offences);
}
