//! What may be typed: commands, options, their environment variables and help texts. Nothing happens here.
//!
//! `clap` stops at this folder. A command line that cannot be read is a [`Failure`] like any other, so that it reaches
//! the event stream and the JUnit report as far as the options could be read: [`read`] returns what it could tell.

mod options;
mod salvage;

pub use options::{
    ApplyOptions, BootstrapArgs, BusyOptions, Cli, Color, Command, ExecArgs, ExplainArgs, InstallArgs,
    InstancesCommand, LockCommand, LockStatusArgs, OnBusy, Output, RbacArgs, ReclaimArgs, ReportOptions,
    ServiceAccount, StatusOutput, TargetOptions, Wait,
};
pub use salvage::Salvaged;

use std::ffi::OsString;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

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

/// Reads a command line; the first word is the program's name.
pub fn read(words: &[OsString]) -> Reading {
    let read = command().try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
    match read.map_err(|error| error.format(&mut command())) {
        Ok(cli) => Reading::Command(Box::new(cli)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Reading::Text(error.render().to_string())
        }
        Err(error) => Reading::Wrong(failure(&error), Salvaged::from_words(words)),
    }
}

/// clap's own words without its layout: the first line is the sentence, its tips are the hints.
fn failure(error: &clap::Error) -> Failure {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::new(Code::UsageInvalid, "a command is missing").hint("`dcctl help` lists the commands");
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

/// What an option means to one verb alone: the verb, the option, the whole help text.
const OF_ONE_VERB: [(&str, &str, &str); 4] = [
    ("install", "state_dir", "Where local OpenTofu state lives [default: ~/.devicechain/clusters/CONTEXT]"),
    ("bootstrap", "state_dir", "Where local OpenTofu state lives [default: ~/.devicechain/instances/INSTANCE]"),
    ("install", "values", "Values files are for the chart of an instance; an install has none and does not use them"),
    ("install", "helm", "The Helm program is for the chart of an instance; an install does not use it"),
];

/// The whole command tree.
pub fn command() -> clap::Command {
    Cli::command().mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        verb.mut_args(|option| {
            let own = OF_ONE_VERB.iter().find(|(verb, id, _)| *verb == name && option.get_id() == *id);
            own.map(|(.., help)| *help).map_or(option.clone(), |help| option.help(help))
        })
    })
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
            let Reading::Text(text) = read(&words(&format!("dcctl {verb} --help"))) else { panic!("no help") };
            let help = text.split_once("--state-dir").expect("it is an option").1;
            let help = &help[..help.find("--tofu").expect("it comes after")];
            assert!(help.contains(says) && !help.contains(not), "{help}");
        }
    }

    #[test]
    fn an_unknown_flag_is_named_and_what_could_be_read_is_kept() {
        let Reading::Wrong(failure, salvaged) =
            read(&words("dcctl bootstrap prod --bundel x --output jsonl --junit report.xml"))
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
