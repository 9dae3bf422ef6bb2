//! `dcctl instances reclaim`: a person takes the lock of a run that is gone, on evidence, and gives it back.
//!
//! One process does all of it: there is no tool that could outlive it, and a supervisor would go on when the person's
//! terminal is gone. It makes no events and has no `--output`: everything is said to the person, on the controlling
//! terminal, and the exit code says how it ended. Only what is wrong before there is a terminal goes to standard error.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::cli::{ReclaimArgs, TargetOptions};
use crate::clock;
use crate::cluster::Cluster;
use crate::commands::apply::files;
use crate::commands::console::{Console, Opened};
use crate::commands::substrate::{self, Meant, Reached};
use crate::commands::{Desk, complain, complaint, runtime};
use crate::failure::{Code, Failure};
use crate::lock::direct::Intent;
use crate::lock::reclaim::evidence::{self, Pod};
use crate::lock::reclaim::words::{self, Shown};
use crate::lock::reclaim::{Act, Person, Progress};
use crate::lock::{self, HolderId, Observation, Request, Timing, notes};
use crate::signal::{self, Signals};

/// How long the holder's pod is looked for: a person waits meanwhile, and the pod is evidence beside the rest.
const POD_LIMIT: Duration = Duration::from_secs(5);
/// How long the last words may take to be written.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Reclaims, and says what came of it.
pub(crate) fn reclaim(desk: &Desk, args: ReclaimArgs) -> u8 {
    let target = TargetOptions { kubeconfig: args.kubeconfig, kube_context: args.kube_context };
    let meant = substrate::meant(&args.substrate, &target).and_then(|meant| named(meant, &target));
    let opened = meant.and_then(|meant| no_job(desk).and_then(|()| Opened::open()).map(|opened| (meant, opened)));
    let ended = opened.and_then(|(meant, opened)| {
        let runtime = runtime()?;
        let ended = runtime.block_on(at_terminal(desk, meant, &target, opened));
        runtime.shutdown_background();
        ended
    });
    ended.unwrap_or_else(|failure| {
        complain(&failure);
        failure.code.exit()
    })
}

/// A lock is never taken from a cluster that is only the current one.
fn named(meant: Meant, target: &TargetOptions) -> Result<Meant, Failure> {
    if meant == Meant::Kubernetes && target.kube_context.is_none() {
        let said =
            "whose lock is to be taken has to be named: --kube-context NAME, or --substrate direct --lock-dir DIR";
        return Err(Failure::new(Code::UsageInvalid, said));
    }
    Ok(meant)
}

/// In a job nobody decides that a run is gone, even where it has a terminal.
fn no_job(desk: &Desk) -> Result<(), Failure> {
    // Whatever it is set to: a program that reclaims by itself could set it to `false`, too.
    if desk.environment.raw("CI").is_none_or(std::ffi::OsStr::is_empty) {
        return Ok(());
    }
    let said =
        "this takes a person at a terminal, and `CI` is set: this is a job, or a job's own terminal in a browser";
    Err(Failure::new(Code::PersonMissing, said)
        .hint("If you are a person, run it from a terminal of your own, outside of any job."))
}

/// Everything from here on is said on the terminal. Fails only when that cannot be used.
async fn at_terminal(desk: &Desk, meant: Meant, target: &TargetOptions, opened: Opened) -> Result<u8, Failure> {
    let mut signals = signal::install()
        .map_err(|error| Failure::new(Code::Internal, "the signal handlers could not be installed").because(&error))?;
    let mut console = Console::new(opened)?;
    let connected = tokio::select! {
        biased;
        _ = signals.next() => Err(words::interrupted()),
        connected = substrate::reach(desk, meant, target, Intent::Change) => connected,
    };
    let ended = match connected {
        Ok(reached) => {
            let mut terminal = AtTerminal { desk, reached, console, signals, shown: None, looking: None };
            let ended = terminal.reclaim().await;
            console = terminal.console;
            ended
        }
        Err(failure) => Err(failure),
    };
    let code = ended.as_ref().map_or_else(|failure| failure.code.exit(), |_| 0);
    match ended {
        Ok(said) => console.say(&said),
        Err(failure) => console.say(complaint(&failure).trim_end()),
    }
    console.drain(LAST_WORDS).await;
    Ok(code)
}

/// What is known about the holder's pod; none when it names none.
type Looking = Pin<Box<dyn Future<Output = Option<Pod>>>>;

/// The person, as far as a terminal and signals show them.
struct AtTerminal<'a> {
    desk: &'a Desk,
    reached: Reached,
    console: Console,
    signals: Signals,
    /// The holder that they are to be shown.
    shown: Option<Observation>,
    /// What is looked up before that.
    looking: Option<Looking>,
}

impl AtTerminal<'_> {
    async fn reclaim(&mut self) -> Result<String, Failure> {
        let (store, place) = (self.reached.store.clone(), self.reached.place.clone());
        let (request, clock) = (self.request(), self.desk.clock.clone());
        let ended = lock::reclaim::reclaim(&store, request, Timing::STANDARD, &*clock, self).await;
        words::end(&ended, &place)
    }

    fn request(&self) -> Request {
        let Desk { environment, clock } = self.desk;
        let suffix = getrandom::u64().expect("the system has a source of randomness");
        let holder = HolderId::new(&environment.user_name(), &files::host_name(), std::process::id(), suffix);
        let notes = BTreeMap::from([
            (notes::VERB.to_owned(), "instances reclaim".to_owned()),
            (notes::STARTED.to_owned(), clock::rfc3339(clock.wall())),
        ]);
        Request { holder, instance: None, notes }
    }

    /// Everything is known now: show it and ask.
    fn question(&mut self, pod: Option<&Pod>) {
        let Some(seen) = self.shown.take() else { return };
        self.console.say(&evidence::evidence(&seen, pod, &self.reached.place, self.desk.clock.wall()));
        self.console.ask(evidence::QUESTION);
    }
}

impl Person for AtTerminal<'_> {
    async fn next(&mut self) -> Act {
        loop {
            let looking = self.looking.is_some();
            tokio::select! {
                biased;
                _ = self.signals.next() => return Act::Interrupted,
                pod = looked(&mut self.looking) => self.question(pod.as_ref()),
                line = self.console.line(), if !looking => return Act::Typed(line),
            }
        }
    }

    fn show(&mut self, seen: &Observation) {
        self.looking = Some(Box::pin(look_for_pod(self.reached.cluster.clone(), seen.clone())));
        self.shown = Some(seen.clone());
    }

    fn tell(&mut self, progress: &Progress) {
        match words::progress(progress, &self.reached.place) {
            Shown::Line(line) => self.console.say(&line),
            Shown::Fleeting(line) => self.console.say_fleetingly(&line),
        }
    }
}

async fn looked(looking: &mut Option<Looking>) -> Option<Pod> {
    match looking {
        Some(future) => {
            let pod = future.await;
            *looking = None;
            pod
        }
        None => std::future::pending().await,
    }
}

/// What became of the pod that the holder names.
async fn look_for_pod(cluster: Option<Cluster>, seen: Observation) -> Option<Pod> {
    let note = |key: &str| seen.record().note(key);
    let name = note(notes::POD_NAME)?;
    let Some(namespace) = note(notes::POD_NAMESPACE) else {
        return Some(Pod::Unknown { why: "it does not say in which namespace it is".to_owned() });
    };
    let Some(cluster) = cluster else {
        return Some(Pod::Unknown { why: "the lock is in a folder, and no cluster is asked".to_owned() });
    };
    Some(match tokio::time::timeout(POD_LIMIT, cluster.pod(namespace, name)).await {
        Ok(Ok(None)) => Pod::NotThere,
        Ok(Ok(Some(pod))) if note(notes::POD_UID).is_some_and(|uid| uid != pod.uid) => Pod::Another,
        Ok(Ok(Some(pod))) => Pod::There { phase: pod.phase },
        Ok(Err(failure)) => Pod::Unknown { why: failure.message },
        Err(_) => Pod::Unknown { why: format!("no answer within {}", clock::human(POD_LIMIT)) },
    })
}
