//! Runs the bundle's own commands: the image build, and what verifies an instance.
//!
//! They run in the bundle's folder and are told which cluster and instance they work for. Their output is theirs: it
//! is handed on line by line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::human;
use crate::failure::{Code, Failure};
use crate::process::{Ended, Exit, Fate, Manner, Update, Why};
use crate::step::halt::{Asked, stopped, was_stopped};
use crate::step::invoke::{Call, Kept, PRIVATE, Raw, Tail};
use crate::step::{Kit, Mode, Outcome, Stopped};

/// Builds the bundle's images, if that was asked for. Needs no lock.
pub async fn build_images(kit: &Kit) -> Outcome {
    if !kit.build {
        return Outcome::Nothing("nothing to build without --build".to_owned());
    }
    let Some(command) = &kit.bundle.build else {
        return Outcome::Nothing("the bundle builds no images".to_owned());
    };
    if kit.mode == Mode::DryRun {
        return Outcome::Nothing(format!("would run `{}`", command.join(" ")));
    }
    let title = format!("`{}`", command.join(" "));
    match run(kit, &Job { name: "build images", title: &title, command, timeout: None, code: Code::BuildFailed }).await
    {
        Ok(took) => Outcome::Done(format!("built in {}", human(took))),
        Err(end) => end,
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
        if kit.stop.is_asked() {
            return stopped(format!("stopped before \"{}\"", command.name));
        }
        let (name, title) = (format!("verify: {}", command.name), format!("\"{}\"", command.name));
        let timeout = Some(command.timeout);
        let job = Job { name: &name, title: &title, command: &command.run, timeout, code: Code::VerifyFailed };
        if let Err(end) = run(kit, &job).await {
            return end;
        }
    }
    let count = commands.len();
    Outcome::Done(if count == 1 { "1 check passed".to_owned() } else { format!("{count} checks passed") })
}

/// One command to run.
struct Job<'a> {
    /// What events call it.
    name: &'a str,
    /// What sentences call it.
    title: &'a str,
    command: &'a [String],
    timeout: Option<Duration>,
    /// The code of its failure.
    code: Code,
}

/// Runs a command to its end; says how long it took. Any other end than success is the step's outcome.
async fn run(kit: &Kit, job: &Job<'_>) -> Result<Duration, Outcome> {
    let (program, args) = job.command.split_first().expect("a command of a bundle is never empty");
    let call = Call {
        name: job.name.to_owned(),
        program: PathBuf::from(program),
        args: args.iter().map(OsString::from).collect(),
        env: environment(kit),
        cwd: kit.bundle.root.clone(),
        manner: Manner::Group,
        signs: |_| None,
        timeout: job.timeout,
        raw: Raw::AsAsked,
        about: None,
    };
    let (mut kept, mut tail) = (Kept::default(), Tail::default());
    let heard = |update: Update| {
        if let Some(line) = kept.take(&kit.redactor, &update) {
            tail.push(&line);
        }
        Some(update)
    };
    let done = call.run(kit, heard).await.map_err(|failure| Outcome::Failed(not_run(job, failure)))?;
    match judge(job, &done.ended, Asked::of(kit)) {
        Judged::Well => Ok(done.ended.took),
        Judged::Stopped(stopped) => Err(Outcome::Stopped(stopped)),
        Judged::Failed(sentence) => Err(Outcome::Failed(explain(Failure::new(job.code, sentence), &tail))),
    }
}

/// A program that is not there, or cannot be started, is a mistake of the bundle, and says nothing about what this run
/// needs.
fn not_run(job: &Job<'_>, failure: Failure) -> Failure {
    match failure.code {
        Code::ToolMissing | Code::CommandFailed => Failure { code: job.code, ..failure },
        _ => failure,
    }
}

/// What a command's end means.
#[derive(Debug, PartialEq)]
enum Judged {
    Well,
    Stopped(Stopped),
    Failed(String),
}

fn judge(job: &Job<'_>, ended: &Ended, asked: Asked) -> Judged {
    let title = job.title;
    if was_stopped(ended, asked) {
        return Judged::Stopped(ended_when_asked(title, ended));
    }
    match (ended.why, job.timeout) {
        (Some(Why::TimedOut), Some(timeout)) => {
            Judged::Failed(format!("{title} was not done after {}", human(timeout)))
        }
        _ if ended.exit.is_success() => Judged::Well,
        _ => Judged::Failed(format!("{title} failed with {}", ended.exit)),
    }
}

/// What every command of a bundle is told, beside the kubeconfig that every program gets.
fn environment(kit: &Kit) -> Vec<(&'static str, OsString)> {
    let given = |name: &str| kit.environment.iter().any(|(known, value)| *known == *name && !value.is_empty());
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
    // Without a home kubectl keeps its cache where it is started, and that is the bundle, which is never written to.
    if !given("HOME") && !given("KUBECACHEDIR") {
        told.push(("KUBECACHEDIR", kit.run_dir.join(PRIVATE).join("kube-cache").into()));
    }
    told
}

fn explain(failure: Failure, tail: &Tail) -> Failure {
    tail.last(5).fold(failure, Failure::cause)
}

/// A command of the bundle that was stopped. It writes no state of ours, so nothing of ours is half done when it and
/// all that it started ended as they were asked to.
fn ended_when_asked(title: &str, ended: &Ended) -> Stopped {
    let clean =
        !ended.killed && ended.exit != Exit::Unseen && ended.left_behind.iter().all(|left| left.fate == Fate::Ended);
    let note = if clean { format!("{title} ended when it was asked to") } else { format!("{title} had to be killed") };
    Stopped { clean, unfinished: Vec::new(), note }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(exit: Exit, why: Option<Why>) -> Ended {
        Ended {
            pid: 7,
            exit,
            interrupts_sent: u32::from(why.is_some()),
            interrupts_reported: 0,
            why,
            killed: exit == Exit::Signal(9),
            left_behind: Vec::new(),
            took: Duration::from_secs(1),
        }
    }

    #[test]
    fn each_end_of_a_command_means_something() {
        let timeout = Some(Duration::from_secs(90));
        let job = Job { name: "verify: it", title: "\"it\"", command: &[], timeout, code: Code::VerifyFailed };
        let stopped =
            |clean, note: &str| Judged::Stopped(Stopped { clean, unfinished: Vec::new(), note: note.to_owned() });
        let failed = |sentence: &str| Judged::Failed(sentence.to_owned());
        let requested = Some(Why::StopRequested);
        let rows = [
            (Exit::Code(0), None, Asked::No, Judged::Well),
            (Exit::Code(0), requested, Asked::Yes, Judged::Well),
            (Exit::Code(3), None, Asked::No, failed("\"it\" failed with exit status 3")),
            (Exit::Code(3), None, Asked::Yes, failed("\"it\" failed with exit status 3")),
            (Exit::Signal(11), None, Asked::No, failed("\"it\" failed with signal 11")),
            (Exit::Signal(15), Some(Why::TimedOut), Asked::No, failed("\"it\" was not done after 1m30s")),
            (Exit::Code(0), Some(Why::TimedOut), Asked::No, failed("\"it\" was not done after 1m30s")),
            (Exit::Signal(15), requested, Asked::Yes, stopped(true, "\"it\" ended when it was asked to")),
            (Exit::Code(143), requested, Asked::Yes, stopped(true, "\"it\" ended when it was asked to")),
            (Exit::Signal(9), Some(Why::Forced), Asked::Yes, stopped(false, "\"it\" had to be killed")),
            (Exit::Unseen, Some(Why::BudgetEnded), Asked::Yes, stopped(false, "\"it\" had to be killed")),
        ];
        for (exit, why, asked, expected) in rows {
            assert_eq!(judge(&job, &ended(exit, why), asked), expected, "{exit:?} {why:?} {asked:?}");
        }
    }
}
