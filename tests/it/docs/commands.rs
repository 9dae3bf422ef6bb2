//! What pages and messages tell people to type can be typed: each command to its last word, and each option with a value
//! that it takes.
//!
//! A mention is `dcctl …` in a code span, or at the beginning of a line (or of a part of a shell's line) in a code block. It
//! is read like a command line, but it may stop anywhere, leave out what is needed, and write values and choices as help
//! texts do: `[--install]`, `--user U|--group G`, `bootstrap INSTANCE`, `…`.

use clap::{Arg, ArgAction, Command};

use crate::docs::pages;
use crate::tree::{self, Source, Strings};

/// What ends a command in a shell's line.
const SHELL: &[&str] = &["|", "||", "&&", ";", ">", ">>", "<", "2>", "&", "#"];

/// What is wrong with a mention of dcctl, `words` being what follows the name; nothing when it can be typed.
fn wrong(words: &str) -> Option<String> {
    let mut command = dcctl::cli::command();
    command.build();
    let mut level = &command;
    let mut positionals = 0;
    let choices = words.replace("|--", " --");
    let mut words = choices.split_whitespace().map(bare);
    while let Some(word) = words.next() {
        if word == "--" || SHELL.contains(&word.as_str()) {
            return None;
        }
        if word.is_empty() || is_open(&word) {
            continue;
        }
        if let Some(option) = word.strip_prefix("--") {
            let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            let Some(found) = find_option(level, name) else {
                return Some(format!("`{}` has no option --{name}", path(level)));
            };
            let given = match value {
                Some(value) => Some(value.to_owned()),
                None if takes_a_word(found) => words.next(),
                None => None,
            };
            if let Some(given) = given.filter(|given| !is_value_of(found, given)) {
                return Some(format!("--{name} of `{}` does not take {given:?}", path(level)));
            }
        } else if let Some(letter) = word.strip_prefix('-') {
            let found = level.get_arguments().find(|argument| argument.get_short() == letter.chars().next());
            let Some(found) = found else { return Some(format!("`{}` has no option -{letter}", path(level))) };
            if found.get_short().is_some() && takes_a_word(found) {
                words.next();
            }
        } else if level.has_subcommands() {
            if word == "help" {
                return None;
            }
            match level.find_subcommand(&word) {
                Some(below) => level = below,
                None => return Some(format!("`{}` has no command {word:?}", path(level))),
            }
        } else {
            positionals += 1;
            if positionals > level.get_positionals().filter(|argument| !argument.is_last_set()).count() {
                return Some(format!("`{}` does not take {word:?}", path(level)));
            }
        }
    }
    None
}

/// A word without what help texts and sentences put around it.
fn bare(word: &str) -> String {
    word.trim_matches(['[', ']', '(', ')', ',', '"', '\'']).trim_end_matches('\\').to_owned()
}

/// A word that stands for others: a name in capitals, a choice, an ellipsis, a part that is filled in.
fn is_open(word: &str) -> bool {
    let placeholder =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c == ':');
    word.contains(['…', '{', '|']) && !word.starts_with("--") || word == "..." || placeholder(word)
}

fn path(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn find_option<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let name = name.trim_end_matches(['[', ']', '…']);
    command.get_arguments().find(|argument| argument.get_long() == Some(name))
}

/// Whether the word after it is its value.
fn takes_a_word(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::Set | ArgAction::Append) && !option.is_require_equals_set()
}

/// Only where there is a choice can a value be wrong; a page may write the choices themselves.
fn is_value_of(option: &Arg, given: &str) -> bool {
    let choices = option.get_possible_values();
    let known = |word: &str| choices.iter().any(|choice| choice.matches(word, false));
    let takes = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    takes && (choices.is_empty() || is_open(given) && !given.contains('|') || given.split('|').all(known))
}

/// A mention: where it is, and what follows the program's name.
struct Mention {
    place: String,
    words: String,
}

/// The mentions in a page.
fn mentions(page: &Source) -> Vec<Mention> {
    let mut found = Vec::new();
    let (mut offset, mut fenced) = (0, false);
    let mut prose = String::new();
    let mut began = 0;
    // A paragraph is read as a whole: a span may go on in the next line.
    let mut lines = page.text.split_inclusive('\n').chain(["\n"]).peekable();
    while let Some(line) = lines.next() {
        let text = line.trim().trim_start_matches("> ").trim_start_matches('>');
        let fence = text.trim_start().starts_with("```");
        if fence || fenced || text.is_empty() {
            found.extend(spans(&prose).map(|words| Mention { place: page.place(began), words }));
            prose.clear();
        }
        if fence {
            fenced = !fenced;
        } else if fenced {
            let mut whole = text.to_owned();
            while let Some(begin) = whole.strip_suffix('\\').map(str::to_owned) {
                let Some(next) = lines.next() else { break };
                offset += next.len();
                whole = format!("{begin} {}", next.trim());
            }
            found.extend(typed(&whole).map(|words| Mention { place: page.place(offset.min(page.text.len())), words }));
        } else {
            if prose.is_empty() {
                began = offset.min(page.text.len());
            }
            prose.push_str(text);
            prose.push(' ');
        }
        offset += line.len();
    }
    found
}

/// What follows `dcctl` in the code spans of a paragraph.
fn spans(prose: &str) -> impl Iterator<Item = String> {
    let spans = prose.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.strip_prefix("dcctl ")).map(str::to_owned)
}

/// What follows `dcctl` where a shell's line, or a part of it, begins with that: after variables, a prompt, or a key of YAML.
fn typed(line: &str) -> impl Iterator<Item = String> {
    let parts = line.split(" | ").flat_map(|part| part.split("&& "));
    parts.filter_map(|part| {
        let mut rest = part.trim();
        let leads = |word: &str| {
            let variable =
                word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
            variable || matches!(word, "$" | "-" | "run:" | "exec" | "if" | "!")
        };
        while let Some((word, after)) = rest.split_once(' ')
            && leads(word)
        {
            rest = after.trim_start();
        }
        rest.strip_prefix("dcctl ").map(str::to_owned)
    })
}

#[test]
fn pages_tell_people_only_what_can_be_typed() {
    let mut offences = Vec::new();
    let mut read = 0;
    for page in pages() {
        for Mention { place, words } in mentions(&page) {
            read += 1;
            offences.extend(wrong(&words).map(|why| format!("{place}: dcctl {words}: {why}")));
        }
    }
    assert!(read > 50, "only {read} mentions were found: the walk is broken");
    tree::obey("these pages tell people to type what cannot be typed:", &offences);
}

#[test]
fn an_option_that_a_page_speaks_of_is_one_of_some_command() {
    let mut command = dcctl::cli::command();
    command.build();
    let mut known = Vec::new();
    gather(&command, &mut known);
    let mut offences = Vec::new();
    for page in pages() {
        for (number, line) in page.text.lines().enumerate() {
            for span in line.split('`').skip(1).step_by(2) {
                let Some(option) =
                    span.strip_prefix("--").filter(|option| !option.is_empty() && !option.starts_with(' '))
                else {
                    continue;
                };
                let name: String = option.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
                if !known.contains(&name) {
                    offences.push(format!("{}:{}: --{name}", page.path, number + 1));
                }
            }
        }
    }
    tree::obey("no command has these options:", &offences);
}

fn gather(command: &Command, into: &mut Vec<String>) {
    into.extend(command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)));
    command.get_subcommands().for_each(|below| gather(below, into));
}

#[test]
fn messages_tell_people_only_what_can_be_typed() {
    let mut offences = Vec::new();
    for file in tree::rust(&["src/"]) {
        let code = file.code(Strings::Kept);
        let code = &code[..file.tests_begin()];
        for (at, start) in code.match_indices("`dcctl ") {
            // A string goes on in the next line after a backslash, and ends with a quotation mark.
            let rest = code[at + start.len()..].split(['`', '"']).next().unwrap_or_default();
            let rest: Vec<&str> = rest.split("\\\n").map(str::trim_start).collect();
            offences.extend(wrong(&rest.concat()).map(|why| format!("{}: {why}", file.place(at))));
        }
    }
    tree::obey("these messages tell people to type what cannot be typed:", &offences);
}

#[test]
fn what_cannot_be_typed_is_found() {
    for good in [
        "bootstrap demo --bundle ./my-bundle --kube-context my-cluster --state-dir ./state",
        "bootstrap INSTANCE --bundle DIR",
        "bootstrap prod --wait=30m …",
        "exec -- kubectl get --no-such-thing",
        "lock status --output human|json",
        "lock status [--watch] [--exit-code]",
        "rbac [--install] [--user U|--group G|--serviceaccount NS:N]",
        "instances reclaim --kube-context {}",
        "{verb}",
        "schema > events.json",
        "schema bundle",
        "VERB",
        "help",
        "--version",
        "lock -h",
        "exec … > file",
    ] {
        assert_eq!(wrong(good), None, "{good}");
    }
    for (bad, says) in [
        ("frobnicate", "`dcctl` has no command \"frobnicate\""),
        ("instances forget", "`dcctl instances` has no command \"forget\""),
        ("lock release", "`dcctl lock` has no command \"release\""),
        ("lock status --yes", "`dcctl lock status` has no option --yes"),
        ("lock status --output jsonl", "--output of `dcctl lock status` does not take \"jsonl\""),
        ("install --no-such=x --bundle y", "`dcctl install` has no option --no-such"),
        ("schema -x", "`dcctl schema` has no option -x"),
        ("schema bundle twice", "`dcctl schema` does not take \"twice\""),
        ("rbac --user U|--role R", "`dcctl rbac` has no option --role"),
        ("lock status --watch=yes", "--watch of `dcctl lock status` does not take \"yes\""),
    ] {
        assert_eq!(wrong(bad).as_deref(), Some(says), "{bad}");
    }
}

#[test]
fn mentions_are_found_in_prose_in_quotes_and_in_blocks() {
    let text = "See `dcctl lock\nstatus` or dcctl itself.\n\n> take it with `dcctl instances\n> reclaim`, which\n\n```\n\
                $ dcctl install --bundle x \\\n    --output jsonl | tee log\nDCCTL_WAIT=1h dcctl exec -- a && dcctl schema\n\
                cargo run\n```\n`dcctl help`";
    let page = Source { path: "page.md".to_owned(), text: text.to_owned() };
    let found: Vec<String> = mentions(&page).into_iter().map(|mention| mention.words.trim().to_owned()).collect();
    let wanted =
        ["lock status", "instances reclaim", "install --bundle x      --output jsonl", "exec -- a", "schema", "help"];
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(found.iter().map(|text| squeezed(text)).collect::<Vec<_>>(), wanted.map(squeezed));
}
