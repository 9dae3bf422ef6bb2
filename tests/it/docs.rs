//! What the pages say is true.
//!
//! Pages that enumerate are generated here from the code, and compared with what is on disk; `make docs` (which sets
//! `DCCTL_BLESS=1`) writes them anew. `docs/promises.md` may name only tests that exist, and links lead somewhere. What a
//! page tells people to type is held against the command line (`commands`), and what one quotes against the program
//! (`messages`).

mod bundles;
mod commands;
mod environment;
mod messages;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::ArgAction;
use dcctl::failure::TABLE;
use dcctl::lock::Place;
use dcctl::lock::status::{Holder, status};
use ring::digest::{SHA256, digest};
use serde_json::Value;

use crate::tree::{self, Source, Strings};

/// A page that is made from the code.
struct Generated {
    path: &'static str,
    page: fn() -> String,
}

const GENERATED: &[Generated] = &[
    Generated { path: "docs/reference/bundle.schema.json", page: dcctl::config::schema_page },
    Generated { path: "docs/reference/cli.md", page: command_line },
    Generated { path: "docs/reference/config.md", page: dcctl::config::config_page },
    Generated { path: "docs/reference/env.md", page: environment::page },
    Generated { path: "docs/reference/events.md", page: dcctl::event::reference_page },
    Generated { path: "docs/reference/events.schema.json", page: dcctl::event::schema_page },
    Generated { path: "docs/reference/exit-codes.md", page: exit_codes },
    Generated { path: "src/report/html/policy.txt", page: policy_of_the_page },
];

/// Every promise that has to have a row, in the order of the page.
const PROMISES: &[(&str, usize, &[&str])] = &[
    ("L", 16, &[]),
    ("R", 11, &[]),
    ("S", 11, &["S6a", "S8a", "S8b", "S8c", "S8d"]),
    ("V", 8, &["V2b", "V2c", "V5a", "V5b", "V5c", "V5d", "V5e", "V5f", "V5g", "V6a"]),
    ("C", 8, &[]),
    ("E", 6, &[]),
];

fn read(path: &str) -> String {
    fs::read_to_string(tree::root().join(path)).unwrap_or_else(|error| panic!("{path} cannot be read: {error}"))
}

/// The pages that people read.
fn pages() -> Vec<Source> {
    tree::texts().into_iter().filter(|file| file.extension() == "md").collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that may rewrite its expectation is asked to by its environment")]
fn generated_pages_are_current() {
    let bless = std::env::var_os("DCCTL_BLESS").is_some_and(|value| value == "1");
    let mut offences = Vec::new();
    for Generated { path, page } in GENERATED {
        let wanted = page();
        let there = fs::read_to_string(tree::root().join(path)).unwrap_or_default();
        if bless && there != wanted {
            fs::write(tree::root().join(path), wanted).expect("the page can be written");
        } else if there != wanted {
            offences.push((*path).to_owned());
        }
    }
    tree::obey("these pages are not what the code says; run `make docs` and commit them:", &offences);
}

/// What the page of `dcctl report html` allows: the one style sheet and the one script that are in it, by their hashes.
fn policy_of_the_page() -> String {
    let hash = |path: &str| BASE64_STANDARD.encode(digest(&SHA256, read(path).as_bytes()));
    let (style, script) = (hash("src/report/html/page.css"), hash("src/report/html/page.js"));
    format!(
        "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; base-uri 'none'; \
         form-action 'none'\n"
    )
}

fn exit_codes() -> String {
    let mut page = String::from(
        "# Exit codes\n\n\
         <!-- Generated from src/failure.rs. Change it there and run `make docs`. -->\n\n\
         The exit status tells a script what kind of end it was; the failure code, in the verdict and in every report, \
         tells which. Codes that share a status differ in who acts or in what they do. \
         `dcctl explain CODE` prints a row of this table.\n\n\
         Both are stable: a status keeps its meaning, a code keeps its name and its status, and new codes may be added.\n\n\
         | exit | code | what happened | who acts | what they do |\n\
         |---:|---|---|---|---|\n\
         | 0 | | Done, or nothing to do. | nobody | |\n",
    );
    for row in TABLE {
        let cell = |text: &str| text.replace('|', "\\|");
        let (meaning, who, remedy) = (cell(row.meaning), cell(row.who), cell(row.remedy));
        writeln!(page, "| {} | `{}` | {meaning} | {who} | {remedy} |", row.exit, row.name).expect("a string grows");
    }
    page
}

fn command_line() -> String {
    let mut page = String::from(
        "# The command line\n\n\
         <!-- Generated from src/cli. Change it there and run `make docs`. -->\n\n\
         An option that has a variable may be given by it instead; what is typed wins. An empty variable counts as not set. \
         The variable of a flag is `1`, `yes` or `true`, or `0`, `no` or `false`.\n\n\
         The folders of `--events-file` and `--junit` are made when they are missing. Neither may be the other, a file that \
         the run keeps in its own directory, or a file that it reads (3, `config.option`).\n",
    );
    describe(&dcctl::cli::command(), "", &mut page);
    page
}

/// A section for each command that people may type, with its options.
fn describe(command: &clap::Command, above: &str, page: &mut String) {
    let path = format!("{above}{}", command.get_name());
    if !command.has_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let (last, words): (Vec<_>, Vec<_>) = command.get_positionals().partition(|argument| argument.is_last_set());
        let typed = std::iter::once(path.clone()).chain(words.into_iter().map(value)).collect::<Vec<_>>().join(" ");
        let options = if command.get_opts().count() == 0 { "" } else { " [OPTIONS]" };
        let last = last.first().map(|argument| format!(" -- {}…", value(argument))).unwrap_or_default();
        write!(page, "\n## {path}\n\n{about}\n\n```\n{typed}{options}{last}\n```\n").expect("a string grows");
        let mut rows = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(option).peekable();
        if rows.peek().is_some() {
            page.push_str("\n| option | variable | what it is |\n|---|---|---|\n");
            page.extend(rows);
        }
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        describe(below, &format!("{path} "), page);
    }
}

/// What an argument takes: one of its choices, or its value's name.
fn value(argument: &clap::Arg) -> String {
    let choices = argument.get_possible_values();
    if choices.is_empty() {
        return argument.get_value_names().unwrap_or_default().join(" ");
    }
    choices.iter().map(clap::builder::PossibleValue::get_name).collect::<Vec<_>>().join("|")
}

fn option(argument: &clap::Arg) -> String {
    let takes = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let name = match argument.get_long() {
        Some(long) if argument.is_require_equals_set() => format!("--{long}[={}]", value(argument)),
        Some(long) if takes => format!("--{long} {}", value(argument)),
        Some(long) => format!("--{long}"),
        None => value(argument),
    };
    let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if let ([default], true) = (argument.get_default_values(), takes) {
        write!(help, " [default: {}]", default.to_string_lossy()).expect("a string grows");
    }
    if argument.is_required_set() && argument.get_long().is_some() {
        help.push_str(" (required)");
    }
    format!("| `{}` | {variable} | {} |\n", name.replace('|', "\\|"), help.replace('|', "\\|"))
}

#[test]
fn the_readme_lists_every_exit_status() {
    let readme = read("README.md");
    let section = readme.split("\n## Exit codes\n").nth(1).expect("the README has the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let status = |line: &str| line.strip_prefix("| ")?.split(' ').next()?.parse::<u8>().ok();
    let shown: Vec<_> = section.lines().filter_map(status).collect();
    let known: BTreeSet<_> = std::iter::once(0).chain(TABLE.iter().map(|row| row.exit)).collect();
    assert_eq!(shown, known.into_iter().collect::<Vec<_>>(), "the README's table is not that of src/failure.rs");
}

#[test]
fn every_failure_has_its_place_in_the_guide_for_when_something_goes_wrong() {
    let guide = read("docs/guide/troubleshooting.md");
    let mut offences = Vec::new();
    let mut status = 0;
    let mut part = "";
    for row in TABLE {
        if row.exit != status {
            status = row.exit;
            part = guide.split("\n## ").find(|part| covers(part, status)).unwrap_or_default();
        }
        if !part.contains(&format!("`{}`", row.name)) && !part.contains(&format!("({})", row.name)) {
            offences.push(format!("{} has no word under a heading for {status}", row.name));
        }
    }
    tree::obey("docs/guide/troubleshooting.md:", &offences);
}

/// Whether the heading of this part names the exit status: `2 and 3: …`.
fn covers(part: &str, status: u8) -> bool {
    let heading = part.split_once(':').map_or(part, |(before, _)| before);
    heading.split(" and ").any(|number| number.trim().parse() == Ok(status))
}

#[test]
fn the_page_about_the_locks_status_has_each_of_its_fields_and_no_other() {
    let mut status =
        status(None, &Place::Cluster("context".to_owned()), dcctl::clock::Clock::wall(&dcctl::clock::System));
    status.holder = Some(Holder { identity: "somebody".to_owned(), user: None, host: None, pid: None });
    let Ok(Value::Object(status)) = serde_json::to_value(status) else { panic!("it is an object") };
    let mut known = BTreeSet::new();
    for (name, value) in status {
        let below = value.as_object().into_iter().flat_map(|below| below.keys());
        known.extend(below.map(|below| format!("{name}.{below}")));
        known.insert(name);
    }
    let page = read("docs/reference/lock-status.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let shown = cells.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_end_matches('`').to_owned());
    assert_eq!(shown.collect::<BTreeSet<_>>(), known);
}

/// One row of the page of promises.
struct Promise {
    id: String,
    tests: Vec<String>,
    owed: bool,
}

fn promises() -> Vec<Promise> {
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [id, _, proof] = cells[..] else { return None };
        let tests = proof.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Some(Promise { id: id.to_owned(), tests, owed: proof.contains("not yet") })
    };
    let page = read("docs/promises.md");
    page.lines().filter_map(row).filter(|promise| promise.id != "id").collect()
}

#[test]
fn every_promise_has_one_row() {
    let ids: Vec<_> = promises().into_iter().map(|promise| promise.id).collect();
    let mut wanted = Vec::new();
    for (letter, last, more) in PROMISES {
        for number in 1..=*last {
            let id = format!("{letter}{number}");
            let between: Vec<_> = more.iter().filter(|more| more.starts_with(&id)).map(ToString::to_string).collect();
            wanted.push(id);
            wanted.extend(between);
        }
    }
    assert_eq!(ids, wanted, "docs/promises.md has other rows");
}

/// A promise is kept by tests that stand outside the program; what is not proved yet is owed, and the page says so.
#[test]
fn a_promise_names_tests_that_exist_or_says_not_yet() {
    let inside = test_names(&["src/"]);
    let outside = test_names(&["tests/"]);
    let mut offences = Vec::new();
    for Promise { id, tests, owed } in promises() {
        for test in &tests {
            if !inside.contains(test) && !outside.contains(test) {
                offences.push(format!("{id}: there is no test `{test}`"));
            }
        }
        if !owed && !tests.iter().any(|test| outside.contains(test)) {
            offences.push(format!("{id}: no test under tests/ proves it; name one or write \"not yet\""));
        }
    }
    tree::obey("docs/promises.md claims what is not true:", &offences);
}

/// The names of all tests below these folders: Rust's `#[test]` in any form, and Go's.
fn test_names(folders: &[&str]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in tree::rust(folders) {
        names.extend(tests_in(&file.code(Strings::Blanked)));
    }
    for file in tree::texts() {
        if file.path.ends_with("_test.go") && folders.iter().any(|folder| file.path.starts_with(folder)) {
            let name = |line: &str| Some(line.strip_prefix("func Test")?.split('(').next()?.to_owned());
            names.extend(file.text.lines().filter_map(name).map(|name| format!("Test{name}")));
        }
    }
    names
}

fn tests_in(code: &str) -> Vec<String> {
    let (mut names, mut marked) = (Vec::new(), false);
    for line in code.lines().map(str::trim) {
        let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(function) = function.filter(|_| marked) {
            names.extend(function.split('(').next().map(str::to_owned));
            marked = false;
        } else if !line.starts_with('#') && !line.is_empty() {
            marked = false;
        }
    }
    names
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut offences = Vec::new();
    for page in pages() {
        let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (at, _) in page.text.match_indices("](") {
            let target = page.text[at + 2..].split(')').next().unwrap_or_default();
            let (path, heading) = target.split_once('#').map_or((target, None), |(path, rest)| (path, Some(rest)));
            if target.contains("://") {
                continue;
            }
            let file = if path.is_empty() { page.path.clone() } else { format!("{folder}/{path}") };
            let whole = tree::root().join(file.trim_start_matches('/'));
            if !whole.exists() {
                offences.push(format!("{}: {target}", page.place(at)));
            } else if let Some(heading) = heading {
                let text = fs::read_to_string(whole).unwrap_or_default();
                if !anchors(&text).contains(heading) {
                    offences.push(format!("{}: {target} has no such heading", page.place(at)));
                }
            }
        }
    }
    tree::obey("these links lead nowhere:", &offences);
}

/// The anchors of a page's headings, as code forges make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let anchor = |line: &str| {
        let heading = line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
    };
    page.lines().filter_map(anchor).collect()
}
