//! Runs the bundle's own commands: the image build, and what verifies an instance.
//!
//! They run in the bundle's folder and are told which cluster and instance they work for. Their output is theirs: it
//! is handed on line by line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::human;
use crate::failure::{Code, Failure};
use crate::process::{Ended, Exit, Manner, Update, Why};
use crate::step::invoke::{Call, Raw, Tail};
use crate::step::{Kit, Mode, Outcome, Stopped};

/// Builds the bundle's images, if that was asked for. Needs no lock.
pub async fn build_images(kit: &Kit) -> Outcome {
    if !kit.build {
        return Outcome::Nothing("--build was not given".to_owned());
    }
    let Some(command) = &kit.bundle.build else {
        return Outcome::Nothing("the bundle builds no images".to_owned());
    };
    if kit.mode == Mode::DryRun {
        return Outcome::Nothing(format!("would run `{}`", command.join(" ")));
    }
    match run(kit, "build images", command, None).await {
        Err(failure) => Outcome::Failed(failure),
        Ok((ended, _)) if ended.exit.is_success() => Outcome::Done(format!("built in {}", human(ended.took))),
        Ok((ended, _)) if kit.stop.is_asked() && ended.why.is_some() => Outcome::Stopped(stopped(&ended)),
        Ok((ended, tail)) => {
            let sentence = format!("`{}` failed with {}", command.join(" "), ended.exit);
            Outcome::Failed(explain(Failure::new(Code::BuildFailed, sentence), &tail))
        }
    }
}

/// Runs the bundle's verify commands, one after another, until one fails.
pub async fn verify(kit: &Kit) -> Outcome {
    let commands = &kit.bundle.verify;
    if commands.is_empty() {
        return Outcome::Nothing("the bundle verifies nothing".to_owned());
    }
    if kit.mode == Mode::DryRun {
        let names: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
        return Outcome::Nothing(format!("would verify: {}", names.join(", ")));
    }
    for command in commands {
        let name = format!("verify: {}", command.name);
        let (ended, tail) = match run(kit, &name, &command.run, Some(command.timeout)).await {
            Ok(done) => done,
            Err(failure) => return Outcome::Failed(failure),
        };
        if ended.exit.is_success() && ended.why.is_none() {
            continue;
        }
        if kit.stop.is_asked() && ended.why.is_some() && ended.why != Some(Why::TimedOut) {
            return Outcome::Stopped(stopped(&ended));
        }
        let sentence = if ended.why == Some(Why::TimedOut) {
            format!("\"{}\" was not done after {}", command.name, human(command.timeout))
        } else {
            format!("\"{}\" failed with {}", command.name, ended.exit)
        };
        return Outcome::Failed(explain(Failure::new(Code::VerifyFailed, sentence), &tail));
    }
    let count = commands.len();
    Outcome::Done(if count == 1 { "1 check passed".to_owned() } else { format!("{count} checks passed") })
}

async fn run(kit: &Kit, name: &str, command: &[String], timeout: Option<Duration>) -> Result<(Ended, Tail), Failure> {
    let (program, args) = command.split_first().expect("a command of a bundle is never empty");
    let call = Call {
        name: name.to_owned(),
        program: PathBuf::from(program),
        args: args.iter().map(OsString::from).collect(),
        env: environment(kit),
        cwd: kit.bundle.root.clone(),
        manner: Manner::Group,
        signs: |_| None,
        timeout,
        raw: Raw::AsAsked,
        about: None,
    };
    let mut tail = Tail::default();
    let done = call
        .run(kit, |update| {
            if let Update::Line { text, .. } = &update {
                tail.push(text);
            }
            Some(update)
        })
        .await?;
    Ok((done.ended.clone(), tail))
}

/// What every command of a bundle is told, beside the kubeconfig that every program gets.
fn environment(kit: &Kit) -> Vec<(&'static str, OsString)> {
    let mut told = vec![
        ("DCCTL_KUBE_CONTEXT", kit.kube_context.clone().into()),
        ("DCCTL_VERSION", kit.bundle.version.clone().into()),
    ];
    if let Some(instance) = &kit.instance {
        told.push(("DCCTL_INSTANCE", instance.into()));
    }
    if let Some(instance) = &kit.bundle.instance {
        told.push(("DCCTL_NAMESPACE", instance.namespace.clone().into()));
    }
    told
}

fn explain(failure: Failure, tail: &Tail) -> Failure {
    tail.last(3).fold(failure, Failure::cause)
}

/// A command of the bundle that was stopped. It writes no state of ours: what it was asked, it did, if it was not
/// killed.
fn stopped(ended: &Ended) -> Stopped {
    let clean = !ended.killed && ended.exit != Exit::Unseen;
    let note = if clean { "the command ended when it was asked to" } else { "the command had to be killed" };
    Stopped { clean, unfinished: Vec::new(), note: note.to_owned() }
}
