//! Who may import whom.
//!
//! The table below is the law, and `docs/architecture.md` shows the same table to people; one test keeps the two
//! equal, the others walk `src/` for offenders. They see `crate::` paths only, which is why the house writes nothing
//! else: no `super::super`, no glob imports.

use crate::tree::{self, Source, Strings};

/// A module of the crate, and the modules it may mention as `crate::…`.
const TABLE: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("failure", &[]),
    ("redact", &[]),
    ("signal", &["clock"]),
    ("event", &["failure"]),
    ("lock", &["clock", "failure"]),
    ("process", &["clock", "failure", "redact"]),
    ("cluster", &["clock", "failure", "redact"]),
    ("config", &["failure", "redact"]),
    ("pipeline", &["failure"]),
    ("step", &["clock", "cluster", "config", "failure", "pipeline", "process", "redact"]),
    ("report", &["clock", "event", "failure", "redact"]),
    (
        "run",
        &[
            "clock", "cluster", "config", "event", "failure", "lock", "pipeline", "process", "redact", "report",
            "signal", "step",
        ],
    ),
    ("front", &["clock", "event", "failure", "pipeline", "redact", "report", "run", "signal"]),
    ("cli", &["failure"]),
    (
        "commands",
        &[
            "cli", "clock", "cluster", "config", "event", "failure", "front", "lock", "pipeline", "process", "redact",
            "report", "run", "signal", "step",
        ],
    ),
];

/// Somebody else's vocabulary, and the files where it stops.
struct Border {
    /// The path as it is written: a crate, or a module of one.
    path: &'static str,
    /// Files, and folders with a slash at their end, below `src/`.
    within: &'static [&'static str],
    /// Why it stops there.
    why: &'static str,
}

const BORDERS: &[Border] = &[
    Border {
        path: "kube",
        within: &["cluster/", "lock/lease_api.rs", "lock/lease_watch.rs", "lock/record.rs"],
        why: "the API server's client is known to `cluster` and to the lock's one adapter",
    },
    Border {
        path: "k8s_openapi",
        within: &["cluster/", "lock/lease_api.rs", "lock/record.rs"],
        why: "Kubernetes types are known to `cluster` and to the lock's one adapter",
    },
    Border { path: "clap", within: &["cli/"], why: "only `cli` knows how a command line is parsed" },
    Border {
        path: "rustix::process",
        within: &["process/group.rs", "process/detach.rs"],
        why: "processes are signalled, adopted and reaped in one place",
    },
    Border {
        path: "libc",
        within: &["process/child.rs"],
        why: "what no safe crate can do is done between fork and exec alone",
    },
    Border { path: "signal_hook", within: &["signal.rs"], why: "signal handlers are installed in one place" },
    Border { path: "signal_hook_tokio", within: &["signal.rs"], why: "signal handlers are installed in one place" },
    Border {
        path: "junit_report",
        within: &["report/sanitise.rs"],
        why: "no string reaches the XML writer but through the sanitiser",
    },
];

/// `lock/keeper.rs` belongs to `lock`, `clock.rs` to `clock`.
fn module_of(path: &str) -> &str {
    let below = path.strip_prefix("src/").expect("only files below src/ are asked for");
    below.split('/').next().unwrap_or(below).trim_end_matches(".rs")
}

/// The modules of the crate itself are declared in `lib.rs`; `main.rs` only uses them.
fn has_a_row(file: &Source) -> bool {
    !["src/lib.rs", "src/main.rs"].contains(&file.path.as_str())
}

/// A name that follows `root::`.
struct Mention<'a> {
    /// Where the path begins.
    at: usize,
    name: String,
    /// What follows the name.
    after: &'a str,
}

/// Every name that follows `root::`: one for a plain path, one an item for a group.
fn mentions<'a>(code: &'a str, root: &'a str) -> Vec<Mention<'a>> {
    let mut found = Vec::new();
    for at in tree::words(code, root) {
        if code[..at].trim_end().ends_with("::") {
            continue;
        }
        let Some(tail) = code[at + root.len()..].trim_start().strip_prefix("::") else { continue };
        let items = heads(tail.trim_start());
        found.extend(items.into_iter().map(|head| {
            let name = name_at(head);
            Mention { at, after: &head[name.len()..], name }
        }));
    }
    found
}

/// Where each item begins: one for a plain path, several for a use group.
fn heads(path: &str) -> Vec<&str> {
    let Some(group) = path.strip_prefix('{') else { return vec![path] };
    let (mut heads, mut depth, mut expected) = (Vec::new(), 1_usize, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => expected = expected || depth == 1,
            c if expected && !c.is_whitespace() => {
                heads.push(&group[at..]);
                expected = false;
            }
            _ => {}
        }
    }
    heads
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn a_module_imports_only_what_the_table_allows() {
    let mut offences = Vec::new();
    for file in tree::rust(&["src/"]).iter().filter(|file| has_a_row(file)) {
        let module = module_of(&file.path);
        let Some((_, allowed)) = TABLE.iter().find(|(name, _)| *name == module) else {
            offences.push(format!("{}: `{module}` has no row in the import table", file.path));
            continue;
        };
        for Mention { at, name, .. } in mentions(&file.code(Strings::Kept), "crate") {
            if name != module && !allowed.contains(&name.as_str()) {
                offences.push(format!("{}: `{module}` may not import `crate::{name}`", file.place(at)));
            }
        }
    }
    tree::obey("docs/architecture.md, \"Who may import whom\", is broken here:", &offences);
}

#[test]
fn the_table_names_the_modules_of_the_crate() {
    let lib = std::fs::read_to_string(tree::root().join("src/lib.rs")).expect("src/lib.rs can be read");
    let mut declared: Vec<_> =
        lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    declared.sort_unstable();
    let mut listed: Vec<_> = TABLE.iter().map(|(name, _)| *name).collect();
    listed.sort_unstable();
    assert_eq!(declared, listed, "src/lib.rs declares other modules than the import table has rows");
}

#[test]
fn the_table_in_the_docs_is_the_table_of_this_test() {
    let page = std::fs::read_to_string(tree::root().join("docs/architecture.md")).expect("the page can be read");
    let section = page.split("\n## Who may import whom\n").nth(1).expect("the page has the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let shown: Vec<_> = section.lines().filter_map(row_of_page).collect();
    let law: Vec<_> = TABLE
        .iter()
        .map(|(module, allowed)| ((*module).to_owned(), allowed.iter().map(ToString::to_string).collect::<Vec<_>>()))
        .collect();
    assert_eq!(shown, law, "docs/architecture.md shows another import table than tests/it/layering.rs");
}

/// `| `lock` | `clock`, `failure` |` as a row; none for any other line.
fn row_of_page(line: &str) -> Option<(String, Vec<String>)> {
    let (module, allowed) = line.strip_prefix("| `")?.split_once("` |")?;
    let allowed = allowed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((module.to_owned(), allowed))
}

#[test]
fn a_module_is_reached_by_its_crate_path_alone() {
    let modules: Vec<_> = TABLE.iter().map(|(name, _)| *name).collect();
    let mut offences = Vec::new();
    for file in tree::rust(&["src/"]) {
        let code = file.code(Strings::Blanked);
        for Mention { at, name, .. } in mentions(&code, "super") {
            let top = file.path.matches('/').count() == 1 || file.path.ends_with("/mod.rs");
            if name == "super" || top && modules.contains(&name.as_str()) {
                offences.push(format!("{}: write `crate::…` for `super::{name}`", file.place(at)));
            }
        }
        if file.path != "src/main.rs" {
            for Mention { at, .. } in mentions(&code, "dcctl") {
                offences.push(format!("{}: write `crate::…` for `dcctl::…`", file.place(at)));
            }
        }
    }
    tree::obey("the import table can only be held to paths that begin with `crate::`:", &offences);
}

#[test]
fn nothing_is_imported_by_a_glob_outside_tests() {
    let mut offences = Vec::new();
    for file in tree::rust(&["src/"]) {
        let code = file.code(Strings::Blanked);
        for (at, _) in code[..file.tests_begin()].match_indices("::*") {
            offences.push(format!("{}: name what is imported", file.place(at)));
        }
        for (at, _) in code[..file.tests_begin()].match_indices("::{*") {
            offences.push(format!("{}: name what is imported", file.place(at)));
        }
    }
    tree::obey("a glob import hides who is used:", &offences);
}

#[test]
fn foreign_vocabularies_stop_at_their_borders() {
    let mut offences = Vec::new();
    for file in tree::rust(&["src/"]) {
        let below = file.path.strip_prefix("src/").expect("only files below src/ are asked for");
        let code = file.code(Strings::Blanked);
        for border in BORDERS {
            let inside = |place: &str| if place.ends_with('/') { below.starts_with(place) } else { below == place };
            if border.within.iter().any(|place| inside(place)) {
                continue;
            }
            for at in crossings(&code, border.path) {
                let within = border.within.join(", ");
                offences.push(format!("{}: `{}` stays in {within}: {}", file.place(at), border.path, border.why));
            }
        }
    }
    tree::obey("a foreign vocabulary is used beyond its border:", &offences);
}

/// Where code reaches into a foreign crate; of one module of it, only where it can do something. Types may travel, and
/// so may questions: what begins with `get` changes nothing.
fn crossings(code: &str, path: &str) -> Vec<usize> {
    let (root, module) = path.split_once("::").map_or((path, None), |(root, module)| (root, Some(module)));
    let reached = |mention: &Mention| module.is_none_or(|module| module == mention.name && may_act(mention.after));
    mentions(code, root).iter().filter(|mention| reached(mention)).map(|mention| mention.at).collect()
}

/// Whether what follows a module's name is more than types, whose names begin with a capital, and questions.
fn may_act(after: &str) -> bool {
    let Some(items) = after.trim_start().strip_prefix("::") else { return true };
    heads(items.trim_start()).iter().any(|head| !head.starts_with(char::is_uppercase) && !head.starts_with("get"))
}

#[test]
fn the_walk_sees_every_form_of_an_import() {
    let code = "use crate::{clock, failure::{Code, Failure}, lock::keeper};\nfn a() { crate :: event::b(); }\n\
                pub(crate) use crate::redact::Secret; macro_rules! m { () => { $crate::signal::c() } }";
    let names: Vec<_> = mentions(code, "crate").into_iter().map(|mention| mention.name).collect();
    assert_eq!(names, ["clock", "failure", "lock", "event", "redact", "signal"]);
    let calls = "use rustix::{fs, process::kill}; use rustix::process::{Pid, self}; rustix::process::kill_process(a); ";
    assert_eq!(crossings(calls, "rustix::process").len(), 3);
    let none = "use rustix::{fs, process::Pid}; use rustix::process::{Pid, Signal}; rustix::process::getpid(); a::rustix::process";
    assert!(crossings(none, "rustix::process").is_empty());
}
