//! A run is hit at a random moment by a random sequence of what systems and people do to runs. Whatever it is, nothing that
//! exists is lost without a word, nothing is left running, and the last line says where the lock is.
//!
//! A round is drawn by lot from its seed, which is printed. `DCCTL_SEED=N` plays the round of that seed alone.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

use crate::bed::junit::Report;
use crate::bed::terminal::{CTRL_C, CTRL_Z};
use crate::bed::{LEASE, wait};
use crate::cancel::job::{Job, Shape, all_end_within, is_program, send, send_all};
use crate::lock::rig::soak;
use crate::stopping::rig::Rig;

/// The rounds; `DCCTL_SOAK=1` makes them five hundred.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, read where it is used")]
fn seeds() -> Vec<u64> {
    match std::env::var("DCCTL_SEED") {
        Ok(seed) => vec![seed.parse().expect("DCCTL_SEED is a number")],
        Err(_) => (0..if soak() { 500 } else { 12 }).collect(),
    }
}

/// What a GitHub runner's clean-up looks for in the environment of every process.
const TRACKED: &str = "RUNNER_TRACKING_ID";

/// One thing that is done to a run.
#[derive(Debug, Clone, Copy)]
enum Blow {
    /// A signal to the front.
    Front(Signal),
    /// A signal to the group of the front.
    Group(Signal),
    /// A signal to every process of the tree of the front, children first.
    Tree(Signal),
    /// SIGTERM to every process, the youngest or the oldest first.
    Every { youngest_first: bool },
    /// SIGKILL to every process whose environment has [`TRACKED`].
    Tracked,
    /// SIGKILL to the shell of a step.
    Parent,
    /// Ctrl+C.
    Interrupt,
    /// Ctrl+Z, and `fg` so much later.
    Suspend(Duration),
    /// A signal to whoever has worked on the thing in flight.
    Plugin(Signal),
    /// A signal to OpenTofu.
    Tofu(Signal),
    /// The front stands still for so long.
    StandStill(Duration),
    /// The supervisor stands still for so long.
    Freeze(Duration),
    /// SIGKILL to the supervisor.
    Supervisor,
    /// SIGKILL to the supervisor and to the front, which has no time to see that.
    Both,
    /// `dcctl runs stop`, or with `--force`.
    Command { force: bool },
}

/// The shell of a step, as a job has one.
const STEP: Shape = Shape::Shell("sh -c '\"$@\"; :' step");

impl Blow {
    fn draw(dice: &mut fastrand::Rng, shape: Shape) -> Blow {
        let polite = [Signal::INT, Signal::TERM, Signal::HUP];
        let any = [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL];
        let a_while = |dice: &mut fastrand::Rng| Duration::from_millis(dice.u64(50..1500));
        match dice.u8(..24) {
            0..=3 => Blow::Front(polite[dice.usize(..3)]),
            4 => Blow::Front(Signal::KILL),
            5 => Blow::Front(Signal::QUIT),
            6 => Blow::StandStill(a_while(dice)),
            7 | 8 => Blow::Group(any[dice.usize(..4)]),
            9 | 10 => Blow::Tree(any[dice.usize(..4)]),
            11 => Blow::Every { youngest_first: dice.bool() },
            12 => Blow::Plugin(any[dice.usize(1..4)]),
            13 | 14 => Blow::Tofu(any[dice.usize(..4)]),
            15 => Blow::Supervisor,
            16 => Blow::Both,
            17 | 18 => Blow::Command { force: dice.u8(..4) == 0 },
            19 => Blow::Tracked,
            20..=22 if shape == STEP => Blow::Parent,
            20 | 21 if shape == Shape::Terminal => Blow::Interrupt,
            22 if shape == Shape::Terminal => Blow::Suspend(a_while(dice)),
            _ => Blow::Freeze(a_while(dice)),
        }
    }

    /// A request to stop that reaches no tool, or the loss of who had started the run or shows it, which is one.
    fn is_polite(self) -> bool {
        match self {
            Blow::Front(signal) | Blow::Group(signal) | Blow::Tree(signal) => signal != Signal::QUIT,
            Blow::Command { force } => !force,
            Blow::Tracked | Blow::Parent | Blow::Interrupt => true,
            Blow::Every { .. }
            | Blow::Suspend(_)
            | Blow::Plugin(_)
            | Blow::Tofu(_)
            | Blow::StandStill(_)
            | Blow::Freeze(_)
            | Blow::Supervisor
            | Blow::Both => false,
        }
    }

    /// Whether it kills the front.
    fn kills_the_front(self) -> bool {
        match self {
            Blow::Front(signal) | Blow::Group(signal) | Blow::Tree(signal) => signal == Signal::KILL,
            Blow::Both | Blow::Tracked => true,
            _ => false,
        }
    }

    fn strike(self, rig: &Rig, job: &Job<'_>) {
        match self {
            Blow::Front(signal) => {
                if let Some(front) = job.front() {
                    send(front, signal);
                }
            }
            Blow::Group(signal) => {
                let group = job.front().and_then(|front| rustix::process::getpgid(Some(front)).ok());
                if let Some(group) = group {
                    let _ = rustix::process::kill_process_group(group, signal);
                }
            }
            Blow::Tree(signal) => send_all(&job.tree(), signal),
            Blow::Every { youngest_first } => {
                let mut members = job.members();
                if youngest_first {
                    members.reverse();
                }
                send_all(&members, Signal::TERM);
            }
            Blow::Tracked => send_all(&job.with_variable(TRACKED), Signal::KILL),
            Blow::Parent => send(job.entry(), Signal::KILL),
            Blow::Interrupt => press(job, CTRL_C),
            Blow::Suspend(pause) => {
                press(job, CTRL_Z);
                let _ = job.ends_within(pause);
                to_the_front(job);
            }
            Blow::Plugin(signal) => {
                let last = rig.entries().pop().and_then(|entry| Pid::from_raw(i32::try_from(entry.pid).ok()?));
                // Its number may be somebody else's by now.
                let plugin = last.filter(|pid| job.members().contains(pid));
                if let Some(pid) = plugin {
                    send(pid, signal);
                }
            }
            Blow::Tofu(signal) => {
                let tofu = job.members().into_iter().find(|pid| is_program(*pid, "tofu"));
                if let Some(pid) = tofu {
                    send(pid, signal);
                }
            }
            Blow::StandStill(pause) => {
                stand_still(job.front(), pause);
                to_the_front(job);
            }
            Blow::Freeze(pause) => stand_still(job.supervisor(), pause),
            Blow::Supervisor => {
                if let Some(supervisor) = job.supervisor() {
                    send(supervisor, Signal::KILL);
                }
            }
            Blow::Both => {
                let (Some(supervisor), Some(front)) = (job.supervisor(), job.front()) else { return };
                send(front, Signal::STOP);
                send_all(&[supervisor, front], Signal::KILL);
                to_the_front(job);
            }
            Blow::Command { force } => {
                let words = ["runs", "stop"].into_iter().chain(force.then_some("--force"));
                // Before its beginning and after its end there is no run to be asked.
                let _ = rig.bed().dcctl(words).arg(rig.bed().file("run")).run();
            }
        }
    }
}

/// Stops a process for so long.
fn stand_still(pid: Option<Pid>, pause: Duration) {
    let Some(pid) = pid else { return };
    send(pid, Signal::STOP);
    let _ = all_end_within(&[pid], pause);
    send(pid, Signal::CONT);
}

/// Has the shell at a terminal look again at a run that was stopped.
fn to_the_front(job: &Job<'_>) {
    if job.seat().is_some() {
        press(job, b"\r");
    }
}

/// Presses these keys at the terminal of a job.
fn press(job: &Job<'_>, keys: &[u8]) {
    job.seat().expect("only a job at a terminal draws it").press(keys);
}

/// Four rounds by itself, four in the shell of a step, four at a terminal, and so on.
fn shape(seed: u64) -> Shape {
    [Shape::Itself, STEP, Shape::Terminal][(seed / 4 % 3) as usize]
}

/// Every second round begins when the slow thing is being created, and of those every second has polite blows alone: there
/// all that was promised of a cancel can be asked for.
fn is_in_flight(seed: u64) -> bool {
    seed % 2 == 1
}

fn is_polite(seed: u64) -> bool {
    seed % 4 == 1
}

/// What was drawn: blows, each after a pause.
fn draw(seed: u64) -> Vec<(Duration, Blow)> {
    let mut dice = fastrand::Rng::with_seed(seed);
    let first = dice.u64(..if is_in_flight(seed) { 900 } else { 4500 });
    let many = dice.usize(1..=4);
    let pauses: Vec<u64> = (0..many).map(|index| if index == 0 { first } else { dice.u64(..900) }).collect();
    let mut keys = 0;
    let mut blow = || loop {
        let blow = Blow::draw(&mut dice, shape(seed));
        keys += usize::from(matches!(blow, Blow::Interrupt));
        // A second Ctrl+C is force.
        let is_force = matches!(blow, Blow::Interrupt) && keys > 1;
        if blow.is_polite() && !is_force || !is_polite(seed) {
            return blow;
        }
    };
    pauses.into_iter().map(|pause| (Duration::from_millis(pause), blow())).collect()
}

#[test]
fn whatever_hits_an_apply_nothing_that_exists_is_lost_without_a_word() {
    let seeds = seeds();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let mine: Vec<u64> = seeds.iter().copied().skip(worker).step_by(2).collect();
            scope.spawn(move || mine.into_iter().for_each(round));
        }
    });
}

fn round(seed: u64) {
    let blows = draw(seed);
    let context = format!("DCCTL_SEED={seed} {blows:?}");
    let rig = Rig::new(if is_in_flight(seed) { 4.0 } else { 1.5 });
    let junit = rig.bed().file("junit.xml");
    let shape = shape(seed);
    let run = rig.own().env(TRACKED, "github_1");
    let job = Job::start(rig.bed(), if shape == STEP { run.env("CI", "true") } else { run }, shape);
    if is_in_flight(seed) {
        rig.wait_until_slow(&job.journal);
    }
    for (pause, blow) in &blows {
        let _ = job.ends_within(*pause);
        blow.strike(&rig, &job);
    }
    let blows: Vec<Blow> = blows.into_iter().map(|(_, blow)| blow).collect();
    wait::fact(&format!("nothing of the run to be left: {context}"), || job.members().is_empty().then_some(()));
    let events = job.journal.events();
    let there = rig.bed().api().get(LEASE).expect("the API server answers");
    let Some(last) = events.last() else {
        // It was ended before it began.
        assert!(there.is_none() && rig.entries().is_empty(), "{context}");
        return;
    };
    let holder = there.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned));
    let context = format!("{context}\n{}", log(&events));
    let verdict = last["data"].clone();
    if last["type"] == "run.finished" {
        assert_told(&rig, &verdict, holder.as_deref(), &context);
    } else {
        assert_silenced(&blows, &events, holder.as_deref(), &context);
    }
    // It is replaced as a whole, so whatever there is of it can be read.
    if last["type"] == "run.finished" || junit.exists() {
        Report::read(&junit);
    }
    let keys = blows.iter().filter(|blow| matches!(blow, Blow::Interrupt)).count();
    if blows.iter().all(|blow| blow.is_polite()) && keys <= 1 {
        assert_interrupted_once(&events, &context);
        if is_in_flight(seed) {
            let of_apply = |event: &&Value| event["data"]["program"] == "tofu apply";
            let interrupts = events.iter().filter(|event| event["type"] == "process.interrupted").filter(of_apply);
            assert_eq!((interrupts.count(), &verdict["exit_code"]), (1, &10.into()), "{context}");
        }
        assert_eq!(rig.not_in_state(), Vec::<String>::new(), "{context}");
    }
    assert_run_again(&rig, holder.is_some(), verdict["exit_code"] == 0, &context);
}

/// What is lost is named, and the lock is where the exit code says.
fn assert_told(rig: &Rig, verdict: &Value, holder: Option<&str>, context: &str) {
    let said = verdict.to_string();
    for name in rig.not_in_state() {
        let address = format!("bed_thing.{name}");
        assert!(said.contains(&address), "nobody is told of {address}: {context}");
        assert_ne!(verdict["exit_code"], 10, "{context}");
    }
    let given_back = ["released", "never_taken"].contains(&verdict["lock"].as_str().unwrap_or_default());
    match verdict["exit_code"].as_u64() {
        Some(0 | 1 | 10 | 11) => assert!(given_back, "{context}"),
        Some(12) => assert_eq!(verdict["lock"], "left", "{context}"),
        // OpenTofu was hit while it was asked for its version.
        Some(4) => {
            assert_eq!(verdict["lock"], "never_taken", "{context}");
            assert!(said.contains("it ended with signal "), "{context}");
        }
        code => panic!("an exit code that nothing here leads to, {code:?}: {context}"),
    }
    assert_eq!(holder, verdict["holder"].as_str().filter(|_| !given_back), "{context}");
}

/// No verdict is there: both processes of the run were killed, and the lock stays as it was.
fn assert_silenced(blows: &[Blow], events: &[Value], holder: Option<&str>, context: &str) {
    let supervisor = blows.iter().any(|blow| matches!(blow, Blow::Supervisor | Blow::Both));
    assert!(supervisor && blows.iter().any(|blow| blow.kills_the_front()), "no verdict: {context}");
    let has = |kind: &str| events.iter().any(|event| event["type"] == kind);
    if has("lock.claimed") && !has("lock.releasing") {
        assert!(holder.is_some(), "somebody gave the lock back: {context}");
    }
}

/// Polite requests make one interrupt of each tool at most, and exactly one of an apply that was at work after the hold.
fn assert_interrupted_once(events: &[Value], context: &str) {
    let of = |kind: &str, program: &str| {
        let found = events.iter().filter(|event| event["type"] == kind && event["data"]["program"] == program);
        found.filter_map(|event| event["elapsed_ms"].as_u64()).collect::<Vec<_>>()
    };
    for event in events.iter().filter(|event| event["type"] == "process.interrupted") {
        let program = event["data"]["program"].as_str().unwrap_or_default();
        assert_eq!(of("process.interrupted", program).len(), 1, "{program}: {context}");
    }
    let asked = events.iter().find(|event| event["type"] == "stop.requested");
    let asked = asked.and_then(|event| event["elapsed_ms"].as_u64());
    let (began, ended) = (of("process.started", "tofu apply"), of("process.finished", "tofu apply"));
    if let (Some(asked), [began], [ended]) = (asked, &began[..], &ended[..])
        && *began < asked
        && asked + 1_000 < *ended
    {
        assert_eq!(of("process.interrupted", "tofu apply").len(), 1, "{context}");
    }
}

/// The same command again is refused while the lock is held; else it makes what is missing, and nothing twice that is known.
fn assert_run_again(rig: &Rig, held: bool, done: bool, context: &str) {
    if done {
        return;
    }
    let adrift = rig.not_in_state();
    let again = rig.own().run();
    assert_eq!(again.code(), Some(if held { 20 } else { 0 }), "{context}\nrun again: {}", again.stdout);
    if !held {
        for name in ["before", "slow", "after"] {
            let lost = adrift.iter().filter(|lost| *lost == name).count();
            assert_eq!(rig.living(name), 1 + lost, "{name}: {context}\nrun again: {}", again.stdout);
        }
    }
}

/// The messages of a journal.
fn log(events: &[Value]) -> String {
    let line = |event: &Value| format!("{:>6} {}", event["elapsed_ms"], event["msg"].as_str().unwrap_or_default());
    let relevant = events.iter().filter(|event| event["level"] != "debug");
    relevant.map(line).collect::<Vec<_>>().join("\n")
}
