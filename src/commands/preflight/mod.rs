//! `dcctl preflight [VERB]`: whether a verb could do its work here, with a line and a fix for each thing that it needs.
//!
//! Three parts: [`gather`] reads what was typed and what it names, [`ask`] asks the cluster, and both hand what they found
//! to [`judge`], which makes lines of it ([`check`]) and does nothing else. Where a verb checks something itself before it
//! asks for the lock, the same function is called here. Nothing is written to the cluster, and no lock is taken.

mod ask;
mod check;
mod gather;
mod human;
mod judge;
mod machine;

use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use crate::cli::{PreflightArgs, PreflightVerb, StatusOutput};
use crate::commands::preflight::check::{Check, Level, exit_code, gravest};
use crate::commands::{Desk, runtime, say, told};
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::process::{Directly, StopWatch, stop_channel};
use crate::redact::Redactor;
use crate::signal;

/// How long what is under way may still take when a person wants no more of it.
const LAST: Duration = Duration::from_secs(2);

/// The version of the document. A field is only ever added.
const VERSION: u32 = 1;

/// Everything that was found, as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    version: u32,
    dcctl: &'static str,
    verb: Option<&'static str>,
    instance: Option<String>,
    kube_context: Option<String>,
    user: Option<String>,
    outcome: Level,
    exit_code: u8,
    checks: Vec<Check>,
    not_asked: Vec<&'static str>,
}

/// Looks, and says what was found.
pub(crate) fn preflight(desk: &Desk, args: &PreflightArgs) -> u8 {
    let looked = runtime().and_then(|runtime| {
        let looked = runtime.block_on(look(desk, args));
        runtime.shutdown_background();
        looked
    });
    let said = looked.and_then(|report| {
        say(&match args.output {
            StatusOutput::Human => human::text(&report),
            StatusOutput::Json => serde_json::to_string_pretty(&report).expect("it is plain JSON") + "\n",
        })?;
        Ok(report.exit_code)
    });
    said.unwrap_or_else(|failure| told(&failure))
}

/// What is looked at so far.
pub(crate) struct Looking<'a> {
    desk: &'a Desk,
    args: &'a PreflightArgs,
    verb: Option<Verb>,
    /// What must never be said.
    redactor: Redactor,
    stop: StopWatch,
    checks: Vec<Check>,
    not_asked: Vec<&'static str>,
}

impl Looking<'_> {
    /// One more line, unless it says a failure that was said before.
    fn add(&mut self, check: Check) {
        if !check.repeats(&self.checks) {
            self.checks.push(check);
        }
    }

    /// Something that could not be looked at.
    fn skip(&mut self, ids: &[&'static str]) {
        self.not_asked.extend(ids);
    }
}

async fn look(desk: &Desk, args: &PreflightArgs) -> Result<Report, Failure> {
    let mut signals = signal::install()
        .map_err(|error| Failure::new(Code::Internal, "the signal handlers could not be installed").because(&error))?;
    let (stopper, stop) = stop_channel();
    let mut looking = Looking {
        desk,
        args,
        verb: args.verb.map(verb),
        redactor: Redactor::default(),
        stop,
        checks: Vec::new(),
        not_asked: Vec::new(),
    };
    let mut work = Box::pin(all(&mut looking));
    let found = tokio::select! {
        biased;
        _ = signals.next() => {
            stopper.graceful(desk.clock.now(), Directly::No);
            // A tool that was asked for its version is waited for.
            let _ = timeout(LAST, &mut work).await;
            return Err(Failure::new(Code::StoppedClean, "stopped on request; nothing was changed"));
        }
        found = &mut work => found,
    };
    drop(work);
    Ok(report(looking, found))
}

/// What of it stands at the top of the document.
struct Found {
    kube_context: Option<String>,
    user: Option<String>,
}

/// In the order in which things are best mended.
async fn all(looking: &mut Looking<'_>) -> Found {
    let gathered = gather::gather(looking);
    let kube_context = gathered.kubeconfig.as_ref().map(|kubeconfig| kubeconfig.context().to_owned());
    let user = ask::ask(looking, gathered).await;
    Found { kube_context, user }
}

fn report(looking: Looking<'_>, found: Found) -> Report {
    let Looking { args, verb, redactor, checks, not_asked, .. } = looking;
    let checks: Vec<Check> = checks.into_iter().map(|check| check.without_secrets(&redactor)).collect();
    Report {
        version: VERSION,
        dcctl: env!("CARGO_PKG_VERSION"),
        verb: verb.map(Verb::word),
        instance: args.instance.clone(),
        kube_context: found.kube_context,
        user: found.user,
        outcome: gravest(&checks),
        exit_code: exit_code(&checks),
        checks,
        not_asked,
    }
}

fn verb(typed: PreflightVerb) -> Verb {
    match typed {
        PreflightVerb::Install => Verb::Install,
        PreflightVerb::Bootstrap => Verb::Bootstrap,
        PreflightVerb::Upgrade => Verb::Upgrade,
        PreflightVerb::Destroy => Verb::Destroy,
        PreflightVerb::Exec => Verb::Exec,
    }
}
