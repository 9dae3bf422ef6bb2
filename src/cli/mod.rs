//! What may be typed: commands, options, their environment variables and help texts. Nothing happens here.
//!
//! `clap` stops at this folder. A command line that cannot be read is a [`Failure`] like any other, so that it reaches
//! the event stream and the JUnit report as far as the options could be read: [`read`] returns what it could tell.

mod instances;
mod options;
mod preflight;
mod rbac;
mod report;
mod runs;
mod salvage;

pub use instances::{InstancesCommand, InstancesListArgs, ReclaimArgs, ReleaseArgs};
pub use options::{
    ApplyOptions, BootstrapArgs, BusyOptions, Cli, Color, Command, DestroyArgs, ExecArgs, ExplainArgs, GivenOptions,
    InstallArgs, LockCommand, LockStatusArgs, OnBusy, OnChartFailure, Output, ReportOptions, SchemaArgs, SchemaOf,
    StatusOutput, StopBudget, StopOptions, Substrate, SubstrateOptions, TargetOptions, ToolOptions, UpgradeArgs, Wait,
};
pub use preflight::{PreflightArgs, PreflightVerb};
pub use rbac::{RbacArgs, ServiceAccount};
pub use report::{ReportArgs, ReportCommand, ReportHumanArgs};
pub use runs::{
    DetachOptions, RunsAttachArgs, RunsCommand, RunsListArgs, RunsPruneArgs, RunsShowArgs, RunsStopArgs, RunsWaitArgs,
};
pub use salvage::Salvaged;

use std::ffi::{OsStr, OsString};

use clap::builder::{BoolishValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory, FromArgMatches};

use crate::failure::{Code, Failure};

/// What a command line turned out to be.
#[derive(Debug)]
pub enum Reading {
    /// A command.
    Command(Box<Cli>),
    /// Help or the version was asked for: print this and end well.
    Text(String),
    /// It cannot be read.
    Wrong(Failure, Salvaged),
}

/// Reads a command line; the first word is the program's name. A variable that is empty counts as not set.
pub fn read(words: &[OsString], is_empty: impl Fn(&OsStr) -> bool) -> Reading {
    let heeding = with_each_option(command(), &|option| {
        let is_empty = option.get_env().is_some_and(&is_empty);
        if is_empty { option.env(None::<&'static str>) } else { option }
    });
    let read = heeding.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    match read.map_err(|error| error.format(&mut command())) {
        Ok(cli) => Reading::Command(Box::new(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // The whole help, with every variable.
            let text = command().try_get_matches_from(words).err().unwrap_or(error);
            Reading::Text(text.render().to_string())
        }
        Err(error) => {
            let variable = variable_of(&error, words);
            let failure = failure(&error);
            let failure = match variable {
                Some(variable) => failure.cause(format!("the value is that of the variable {variable}")),
                None => failure,
            };
            Reading::Wrong(failure, Salvaged::from_words(words))
        }
    }
}

/// The variable that a wrong value came from: that of an option which was not typed.
fn variable_of(error: &clap::Error, words: &[OsString]) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let option = shown.split([' ', '=', '[']).next()?.to_owned();
    let typed = |word: &OsString| {
        word.to_str().is_some_and(|word| word.split_once('=').map_or(word, |(name, _)| name) == option)
    };
    if words.iter().take_while(|word| *word != "--").any(typed) {
        return None;
    }
    // An option has the same variable with every command.
    let name = option.strip_prefix("--")?;
    variable_in(&command(), name)
}

fn variable_in(command: &clap::Command, name: &str) -> Option<String> {
    let own = command.get_arguments().find(|option| option.get_long() == Some(name)).and_then(clap::Arg::get_env);
    let own = own.map(|variable| variable.to_string_lossy().into_owned());
    own.or_else(|| command.get_subcommands().find_map(|command| variable_in(command, name)))
}

/// Whether a variable's value switches a flag on.
pub fn is_yes(value: &str) -> bool {
    BoolishValueParser::new().parse_ref(&command(), None, OsStr::new(value)).unwrap_or(false)
}

/// clap's own words without its layout: the first line is the sentence, its tips are the hints.
fn failure(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // `dcctl lock` knows its own commands.
        let usage = error.render().to_string();
        let usage = usage.lines().find_map(|line| line.trim().strip_prefix("Usage: "));
        let group = usage
            .and_then(|usage| usage.split_whitespace().nth(1))
            .filter(|word| word.starts_with(char::is_alphabetic));
        let help = group.map_or_else(|| "dcctl help".to_owned(), |group| format!("dcctl {group} --help"));
        return Failure::new(Code::UsageInvalid, "a command is missing").hint(format!("`{help}` lists the commands"));
    }
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut sentence = lines.next().unwrap_or("the command line is wrong").trim_start_matches("error: ").to_owned();
    let mut hints = Vec::new();
    for line in lines {
        if let Some(tip) = line.strip_prefix("tip: ") {
            hints.push(tip.to_owned());
        } else if let Some(usage) = line.strip_prefix("Usage: ") {
            hints.push(format!("usage: {usage}"));
        } else if line.starts_with("For more information") {
            break;
        } else if hints.is_empty() {
            sentence.push(' ');
            sentence.push_str(line);
        }
    }
    if let Some(value) = error.get(ContextKind::InvalidSubcommand) {
        hints.insert(0, format!("`{value}` is not a command of dcctl; `dcctl help` lists them"));
    }
    Failure { code: Code::UsageInvalid, message: sentence, causes: Vec::new(), hints }
}

const ONLY_KUBERNETES: &str =
    "What keeps the lock; this verb changes a cluster, whose API server keeps it: `direct` is refused";
const NO_FOLDER: &str = "A lock folder is for `exec`, `lock status` and `instances reclaim`; this verb refuses it";

const STATE_OF_AN_INSTANCE: &str = "Where local OpenTofu state lives [default: ~/.devicechain/instances/INSTANCE]";
const GOES_ON: &str =
    "What to do when another run holds the lock, and still does after the wait [default: warn, and go on without it]";

/// What an option means to one verb alone: the verb, the option, the whole help text.
const OF_ONE_VERB: [(&str, &str, &str); 20] = [
    ("install", "state_dir", "Where local OpenTofu state lives [default: ~/.devicechain/clusters/CONTEXT]"),
    ("bootstrap", "state_dir", STATE_OF_AN_INSTANCE),
    ("install", "values", "Values files are for the chart of an instance; an install has none and does not use them"),
    ("install", "helm", "The Helm program is for the chart of an instance; an install does not use it"),
    ("install", "substrate", ONLY_KUBERNETES),
    ("install", "lock_dir", NO_FOLDER),
    ("bootstrap", "substrate", ONLY_KUBERNETES),
    ("bootstrap", "lock_dir", NO_FOLDER),
    ("upgrade", "state_dir", STATE_OF_AN_INSTANCE),
    ("upgrade", "no_force_conflicts", "An upgrade applies no manifests of the operator, so it takes over no fields"),
    ("upgrade", "on_busy", GOES_ON),
    ("upgrade", "substrate", ONLY_KUBERNETES),
    ("upgrade", "lock_dir", NO_FOLDER),
    ("destroy", "state_dir", STATE_OF_AN_INSTANCE),
    ("destroy", "values", "Values files are for installing the chart; a destroy does not use them"),
    ("destroy", "no_force_conflicts", "A destroy applies nothing, so it takes over no fields"),
    ("destroy", "on_busy", GOES_ON),
    (
        "preflight",
        "on_busy",
        "As for the verb; who holds the lock today changes nothing of what is found [default: the verb's]",
    ),
    ("destroy", "substrate", ONLY_KUBERNETES),
    ("destroy", "lock_dir", NO_FOLDER),
];

/// The whole command tree.
pub fn command() -> clap::Command {
    let command = with_each_option(Cli::command(), &|option| {
        let is_flag = matches!(option.get_action(), ArgAction::SetTrue) && option.get_env().is_some();
        // For what its variable may hold.
        if is_flag { option.value_parser(BoolishValueParser::new()) } else { option }
    });
    command.mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        verb.mut_args(|option| {
            let own = OF_ONE_VERB.iter().find(|(verb, id, _)| *verb == name && option.get_id() == *id);
            own.map(|(.., help)| *help).map_or(option.clone(), |help| option.help(help))
        })
    })
}

/// The command and its subcommands with every option changed.
fn with_each_option(command: clap::Command, change: &impl Fn(clap::Arg) -> clap::Arg) -> clap::Command {
    command.mut_args(change).mut_subcommands(|command| with_each_option(command, change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_command_tree_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn each_verb_says_its_own_default() {
        for (verb, says, not) in
            [("install", "clusters/CONTEXT", "INSTANCE"), ("bootstrap", "instances/INSTANCE", "CONTEXT]")]
        {
            let Reading::Text(text) = read(&words(&format!("dcctl {verb} --help")), |_| false) else {
                panic!("no help")
            };
            let help = text.split_once("--state-dir").expect("it is an option").1;
            let help = &help[..help.find("--tofu").expect("it comes after")];
            assert!(help.contains(says) && !help.contains(not), "{help}");
        }
    }

    #[test]
    fn a_missing_command_points_to_the_help_that_lists_it() {
        for (line, help) in [("dcctl", "`dcctl help`"), ("dcctl lock", "`dcctl lock --help`")] {
            let Reading::Wrong(failure, _) = read(&words(line), |_| false) else { panic!("a command is missing") };
            assert!(matches!(failure.hints.as_slice(), [only] if only.starts_with(help)), "{failure:?}");
        }
    }

    #[test]
    fn an_unknown_flag_is_named_and_what_could_be_read_is_kept() {
        let Reading::Wrong(failure, salvaged) =
            read(&words("dcctl bootstrap prod --bundel x --output jsonl --junit report.xml"), |_| false)
        else {
            panic!("a wrong flag was accepted");
        };
        assert_eq!(failure.code, Code::UsageInvalid);
        assert!(failure.message.contains("--bundel"), "{failure:?}");
        assert!(failure.hints.iter().any(|hint| hint.contains("--bundle")), "{failure:?}");
        assert_eq!(salvaged.verb.as_deref(), Some("bootstrap"));
        assert_eq!(salvaged.junit.as_deref(), Some(std::path::Path::new("report.xml")));
        assert_eq!(salvaged.output, Some(Output::Jsonl));
    }
}
