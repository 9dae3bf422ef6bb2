//! Real children: what the process room does to them, seen from outside.
//!
//! Every wait is for a fact (a file, an update, an end). The limits are the shortest that still tell one rule from
//! another.

mod budget;
mod detach;
mod left;
mod output;
mod signals;
mod stop;

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::process::{
    Directly, Ended, Life, Limits, Manner, Sign, Spec, Stdin, Stopper, Stream, Update, drive, stop_channel,
};
use tempfile::TempDir;

const TOOL: &str = env!("CARGO_BIN_EXE_fake-tool");

/// Longer than any wait of a test may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tool that would never end by itself within a test.
const FOREVER: &str = "wait=600000";

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn spec(&self, manner: Manner, args: &str) -> Spec {
        let folder = self.folder.path().display().to_string();
        let args = args.split_whitespace().map(|argument| OsString::from(argument.replace('@', &folder))).collect();
        Spec {
            name: "fake-tool".to_owned(),
            program: PathBuf::from(TOOL),
            args,
            env: vec![("GIVEN".into(), "yes".into())],
            cwd: self.folder.path().to_owned(),
            stdin: Stdin::Null,
            stdout: self.path("stdout"),
            stderr: self.path("stderr"),
            tag: format!("test/{}", self.folder.path().display()),
            manner,
            signs,
            record: self.path("record"),
            timeout: None,
        }
    }

    /// The process number that a tool wrote to a file; waits for the file.
    async fn pid(&self, name: &str) -> u32 {
        let path = self.path(name);
        wait_for(|| path.exists()).await;
        std::fs::read_to_string(path).expect("complete").parse().expect("a number")
    }
}

fn signs(line: &str) -> Option<Sign> {
    match line {
        "INTERRUPTED" => Some(Sign::Interrupted),
        "CONCLUDED" => Some(Sign::Concluded),
        "OPENED" => Some(Sign::Opened),
        "CLOSED" => Some(Sign::Closed),
        _ => None,
    }
}

async fn wait_for(fact: impl Fn() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        let mut look = tokio::time::interval(Duration::from_millis(2));
        while !fact() {
            look.tick().await;
        }
    });
    waited.await.expect("the fact came in time");
}

/// The time in which something would have happened that must not.
async fn passed(time: Duration) {
    let began = System.now();
    wait_for(|| System.now().since(began) >= time).await;
}

fn lives(pid: u32) -> bool {
    Life::of(pid).is_ok_and(|life| !life.is_over())
}

/// Short waits, in the same order as the real ones.
fn short() -> Limits {
    let millis = Duration::from_millis;
    Limits {
        budget: millis(1500),
        watchdog: millis(20_000),
        hold: millis(100),
        hold_directly: millis(400),
        last_grace: millis(300),
        second_interrupt: millis(100),
        query_grace: millis(300),
        sweep_grace: millis(300),
        concluded_silence: millis(200),
        idle_silence: millis(600),
    }
}

/// What a test may do while its tool runs.
struct Hand {
    stopper: Stopper,
    updates: Arc<Mutex<Vec<Update>>>,
}

impl Hand {
    fn stop(&self) {
        self.stopper.graceful(System.now(), Directly::No);
    }

    async fn seen(&self, fact: impl Fn(&Update) -> bool) {
        wait_for(|| self.updates.lock().expect("whole").iter().any(&fact)).await;
    }
}

/// Drives a tool while `act` acts on it. Returns how it ended and all that was said.
async fn play<F: Future<Output = ()>>(
    spec: Spec,
    limits: Limits,
    act: impl FnOnce(Arc<Hand>) -> F,
) -> (Ended, Vec<Update>) {
    let (stopper, stop) = stop_channel();
    let updates = Arc::new(Mutex::new(Vec::new()));
    let hand = Arc::new(Hand { stopper, updates: updates.clone() });
    let sink = |update| updates.lock().expect("whole").push(update);
    let driven = tokio::time::timeout(PATIENCE, drive(spec, limits, stop, &System, sink));
    let (ended, ()) = tokio::join!(driven, act(hand.clone()));
    let ended = ended.expect("it ended in time").expect("it was started");
    let updates = updates.lock().expect("whole").clone();
    (ended, updates)
}

async fn run(spec: Spec) -> (Ended, Vec<Update>) {
    play(spec, short(), |_| async {}).await
}

fn lines(updates: &[Update], wanted: Stream) -> Vec<String> {
    updates
        .iter()
        .filter_map(|update| match update {
            Update::Line { stream, text, .. } if *stream == wanted => Some(text.clone()),
            _ => None,
        })
        .collect()
}

fn count(updates: &[Update], fact: impl Fn(&Update) -> bool) -> usize {
    updates.iter().filter(|update| fact(update)).count()
}

fn is_interrupt(update: &Update) -> bool {
    matches!(update, Update::Interrupted { .. })
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a number")).expect("a number");
    rustix::process::kill_process(pid, signal).expect("it lives");
}

/// Starts `fake-tool` beside the program, with this as its standard input or output.
#[expect(clippy::disallowed_methods, reason = "a test starts a program of its own")]
fn started(args: &[&str], stdout: std::process::Stdio) -> std::process::Child {
    std::process::Command::new(Path::new(TOOL)).args(args).stdout(stdout).spawn().expect("started")
}

#[expect(clippy::disallowed_methods, reason = "a test starts a program of its own")]
fn itself(args: &[&str], bench: &Bench) -> std::process::Child {
    let folder = bench.folder.path().display().to_string();
    let args = args.iter().map(|argument| argument.replace('@', &folder));
    let reader = std::fs::File::open(bench.path("stdout")).expect("it is there");
    std::process::Command::new(Path::new(TOOL)).args(args).stdin(reader).spawn().expect("started")
}

/// Runs `fake-tool` in a process of its own and returns what it printed.
#[expect(clippy::disallowed_methods, reason = "a test starts a program of its own")]
fn output(args: &str, bench: &Bench) -> String {
    let folder = bench.folder.path().display().to_string();
    let args = args.split_whitespace().map(|argument| argument.replace('@', &folder));
    let output = std::process::Command::new(Path::new(TOOL)).args(args).output().expect("started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
