//! The table of what comes of each cancel, made by playing all of them: `docs/reference/cancel-matrix.md`.

use std::fmt::Write as _;
use std::fs;
use std::sync::Mutex;

use serde_json::Value;

use crate::bed::junit::Report;
use crate::bed::{Dcctl, LEASE, wait};
use crate::cancel::job::{Job, Shape, can_be_contained};
use crate::cancel::systems::{Aim, SYSTEMS, System};
use crate::stopping::rig::Rig;
use crate::tree;

const PAGE: &str = "docs/reference/cancel-matrix.md";

/// Writes down each SIGTERM, and ends a while after the first, as a tool that has something to finish.
const SLOW_TOOL: &str = "trap 'echo TERM >> @/signals' TERM; : > @/up; \
                         until [ -e @/signals ]; do sleep 0.1; done; n=0; while [ $n -lt # ]; do sleep 1; n=$((n+1)); done; exit 0";

/// Two rows of the page: what came of one cancel of an apply, and of a command.
#[derive(Debug, Clone)]
struct Rows {
    apply: String,
    command: String,
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test that may rewrite its expectation is asked to by its environment")]
fn what_every_system_sends_and_leaves_is_what_the_page_says() {
    let found: Vec<Mutex<Option<Rows>>> = SYSTEMS.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        let work = |from: usize| {
            let mine = SYSTEMS.iter().zip(&found).skip(from).step_by(2);
            for (system, place) in mine.filter(|(system, _)| can_be_played(system)) {
                *place.lock().expect("nobody panics with it") =
                    Some(Rows { apply: apply(system), command: run_command(system) });
            }
        };
        scope.spawn(move || work(0));
        scope.spawn(move || work(1));
    });
    let found: Vec<Option<Rows>> =
        found.into_iter().map(|place| place.into_inner().expect("it was given back")).collect();
    let there = fs::read_to_string(tree::root().join(PAGE)).unwrap_or_default();
    if found.iter().all(Option::is_some) {
        let page = page(&found);
        if std::env::var_os("DCCTL_BLESS").is_some_and(|value| value == "1") {
            fs::write(tree::root().join(PAGE), page).expect("the page can be written");
            return;
        }
        assert_eq!(there, page, "{PAGE} is not what was seen; look whether that is right, and run `make docs`");
    }
    for row in found.iter().flatten().flat_map(|rows| [&rows.apply, &rows.command]) {
        assert!(there.contains(row) || there.is_empty(), "{PAGE} does not say: {row}");
    }
}

fn can_be_played(system: &System) -> bool {
    !matches!(system.shape, Shape::Namespace | Shape::Contained(_)) || can_be_contained(system.name)
}

/// The run with what the system sets around it.
fn within(run: Dcctl, system: &System) -> Dcctl {
    system.variables.iter().fold(run, |run, (name, value)| run.env(name, value))
}

/// How the run ended, as its journal tells; `null` where everything was gone before it had ended.
fn verdict_of(job: &Job<'_>, system: &System) -> Value {
    let over = || job.members().is_empty().then_some(());
    wait::until(wait::GENEROUS * 2, &format!("nothing of the run to be left ({})", system.name), over)
        .unwrap_or_else(|error| panic!("{error}: {:?}", job.members()));
    let verdict = job.verdict();
    assert_eq!(verdict.is_none(), system.lost, "{}: {verdict:?}", system.name);
    verdict.unwrap_or_default()
}

/// The lock of the cluster, as the verdict says and as it is.
fn lock(rig: &Rig, system: &System, verdict: &Value) -> String {
    let there = rig.bed().api().get(LEASE).expect("the API server answers").is_some();
    let said = if system.lost { "left" } else { verdict["lock"].as_str().unwrap_or_default() };
    assert_eq!(there, said == "left", "{}: {verdict}", system.name);
    said.to_owned()
}

/// The exit code. Where the tools are signalled, too, it depends on who was first.
fn exit(system: &System, verdict: &Value) -> String {
    match (system.aim, verdict["exit_code"].as_u64()) {
        (Aim::Everything, Some(1 | 11)) => "11, or 1".to_owned(),
        (_, Some(code)) => code.to_string(),
        (_, None) => "none".to_owned(),
    }
}

fn apply(system: &System) -> String {
    let rig = Rig::new(system.seconds);
    let junit = rig.bed().file("junit.xml");
    let job = Job::start(rig.bed(), within(rig.own(), system), system.shape);
    rig.wait_until_slow(&job.journal);
    (system.cancel)(&job);
    let verdict = verdict_of(&job, system);
    let events = job.journal.events();
    Report::read(&junit);
    let saw = saw(system, &events);
    let state = state(&rig, system, &verdict);
    let (lock, exit) = (lock(&rig, system, &verdict), exit(system, &verdict));
    if !system.lost {
        rig.assert_no_state_lock();
    }
    if exit == "10" {
        rig.assert_clean_stop(&events);
    }
    let next = next(&rig, &lock);
    format!("| {} | {} | {saw} | {state} | {lock} | {exit} | nothing | {next} |", system.name, system.sends)
}

/// What OpenTofu saw.
fn saw(system: &System, events: &[Value]) -> String {
    let sent = events.iter().filter(|event| event["type"] == "process.interrupted").count();
    let reported = events.iter().filter(|event| event["type"] == "process.interrupt_reported").count();
    match (system.aim, sent, reported) {
        (Aim::Everything, 0, _) => "what was sent to it, and nothing from dcctl".to_owned(),
        (Aim::Front, 0, 0) if system.lost => "its end".to_owned(),
        (Aim::Front, 1, 1) if system.lost => "one interrupt, and its end".to_owned(),
        (Aim::Front, 1, 1) => "one interrupt".to_owned(),
        (Aim::Front, 2, 1 | 2) => "one interrupt, and a second one when its time was over".to_owned(),
        (Aim::Front | Aim::Everything, _, _) => format!("{sent} interrupts of dcctl, and {reported} that it reported"),
    }
}

/// What is in OpenTofu's state of what exists.
fn state(rig: &Rig, system: &System, verdict: &Value) -> String {
    let adrift: Vec<String> = rig.not_in_state();
    let said = verdict.to_string();
    for name in adrift.iter().filter(|_| !system.lost) {
        assert!(said.contains(&format!("bed_thing.{name}")), "nobody is told of {name}: {said}");
    }
    let state = match (adrift.is_empty(), system.lost, rig.state().as_deref()) {
        (true, _, _) => "whole",
        (false, true, Some("")) => "empty: what was made is in none, and nobody names it",
        (false, true, _) => "without what was in flight, and nobody names it",
        (false, false, _) => "without what was in flight, which the verdict names",
    };
    state.to_owned()
}

/// What the same command does next: it goes on from the state, unless the lock was left.
fn next(rig: &Rig, lock: &str) -> String {
    let adrift = rig.not_in_state();
    if lock == "left" {
        let holder = rig.lease().expect("it is held");
        let refused = rig.own().run().expect_code(20);
        assert!(refused.verdict().to_string().contains(&holder), "{}", refused.stdout);
        let will = rig.lease_says("/metadata/annotations/dcctl.devicechain.io~1children");
        assert!(will.starts_with("tofu apply (process "), "who looks is not told what was at work: {will}");
        // What a person does who knows that the holder is gone.
        rig.bed().api().delete(LEASE).expect("the bed may do everything");
    }
    rig.own().run().expect_code(0);
    for name in ["before", "slow", "after"] {
        let lost = adrift.iter().filter(|lost| *lost == name).count();
        assert_eq!(rig.living(name), 1 + lost, "{name}: {:?}", rig.entries());
    }
    let goes_on = if adrift.is_empty() { "goes on" } else { "makes a second time what no state knows" };
    if lock == "left" {
        format!("is blocked (20) by the holder that is gone; once a person has reclaimed the lock, it {goes_on}")
    } else {
        goes_on.to_owned()
    }
}

fn run_command(system: &System) -> String {
    let rig = Rig::new(0.0);
    let takes = if system.lost { "6" } else { "2" };
    let script = SLOW_TOOL.replace('@', &rig.bed().scratch().display().to_string()).replace('#', takes);
    let junit = rig.bed().file("junit.xml");
    let run = rig.bed().dcctl(["exec", "--kube-context", "bed", "--junit"]).arg(&junit);
    // The words of the command come last.
    let job = Job::start_with(rig.bed(), within(run, system), system.shape, &["--", "sh", "-c", &script]);
    wait::fact("the command to begin", || rig.bed().file("up").exists().then_some(()));
    (system.cancel)(&job);
    let verdict = verdict_of(&job, system);
    Report::read(&junit);
    let signals = fs::read_to_string(rig.bed().file("signals")).unwrap_or_default().lines().count();
    let events = job.journal.events();
    let sent = events.iter().filter(|event| event["type"] == "process.interrupted").count();
    let saw = match (system.aim, signals, sent) {
        (Aim::Front, 0, 0) if system.lost => "its end".to_owned(),
        (Aim::Front, 1, 1) if system.lost => "one SIGTERM, and its end".to_owned(),
        (Aim::Front, 1, 1) => "one SIGTERM".to_owned(),
        (Aim::Everything, 2, 1) => "what was sent to it, and one SIGTERM".to_owned(),
        (Aim::Front | Aim::Everything, saw, sent) => format!("{saw} times SIGTERM, {sent} of them from dcctl"),
    };
    let (lock, exit) = (lock(&rig, system, &verdict), exit(system, &verdict));
    format!("| {} | {saw} | {lock} | {exit} | nothing |", system.name)
}

fn page(found: &[Option<Rows>]) -> String {
    let mut page = String::from(
        "# What each system sends, and what is left\n\n\
         <!-- Written by tests/it/cancel/matrix.rs. Run `make docs`. -->\n\n\
         Each row was played against a real cluster, the real OpenTofu and a provider in the middle of creating something: a \
         small program did to the run what the system does, with every wait and `--stop-budget` a fifth of the system's \
         (act plays itself, in its own time; `gitlab-ci-local` plays GitLab's shell executor in the component's own tests and makes \
         no row here). \
         Where a machine, a container or a service goes with all that is in it, the run was in a PID namespace that did. \
         What to make of a row, and what to set, is in [stopping](../concepts/stopping.md).\n\n\
         ## A cancel in the middle of an apply\n\n\
         | system | it sends | OpenTofu saw | state | lock of the cluster | exit code | processes left | the same command again |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for rows in found.iter().flatten() {
        let _ = writeln!(page, "{}", rows.apply);
    }
    page.push_str(
        "\nOpenTofu's own state lock was free afterwards in every row with an exit code. That is the one of the verdict in the \
         journal, also where the front was killed; where everything was gone before the run had ended there is none, and \
         what is known is in the Lease: who held the lock, since when it was stopping, and what was at work. Where every \
         process is signalled, the code depends on which is first: OpenTofu ends because its provider is gone before \
         anybody asked the run to stop (1), or after that (11).\n\n\
         ## A cancel of `dcctl exec -- CMD`\n\n\
         The command takes two seconds to end after its first SIGTERM, and six where it is not let end.\n\n\
         | system | the command saw | lock of the cluster | exit code | processes left |\n\
         |---|---|---|---|---|\n",
    );
    for rows in found.iter().flatten() {
        let _ = writeln!(page, "{}", rows.command);
    }
    page
}
