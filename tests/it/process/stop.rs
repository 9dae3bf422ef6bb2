//! Stop requests: what a tool gets of them, and when.

use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::process::{Exit, Fate, Intent, Limits, Manner, Recorded, Stream, ToolSignal, Update, Why};

use crate::process::{Bench, FOREVER, PATIENCE, count, is_interrupt, lines, lives, passed, play, run, short, signal};

#[tokio::test]
async fn twenty_requests_are_one_interrupt() {
    let bench = Bench::new();
    let counting = "on=INT { print=INTERRUPTED file=@/interrupted } file=@/ready until=@/go";
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, counting), Limits::default(), async |hand| {
        bench.pid("ready").await;
        for _ in 0..20 {
            hand.stop();
        }
        bench.pid("interrupted").await;
        for _ in 0..20 {
            hand.stop();
        }
        hand.seen(|update| matches!(update, Update::InterruptReported { .. })).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!(lines(&updates, Stream::Stdout), ["INTERRUPTED"]);
    assert_eq!(count(&updates, is_interrupt), 1);
    assert_eq!((ended.interrupts_sent, ended.interrupts_reported, ended.exit), (1, 1, Exit::Code(0)));
    assert!(ended.is_clean());
    let (recorded, intent) = Recorded::read(&bench.path("record")).expect("readable").expect("there");
    assert_eq!((recorded.pid, intent), (ended.pid, Intent::Ended));
    assert!(recorded.is_over());
}

#[tokio::test]
async fn a_tool_that_the_system_interrupted_gets_no_second_interrupt() {
    let bench = Bench::new();
    let counting = "on=INT { print=INTERRUPTED file=@/interrupted } file=@/ready until=@/go";
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, counting), short(), async |hand| {
        let pid = bench.pid("ready").await;
        // A system that signals every process: the tool and us.
        signal(pid, rustix::process::Signal::INT);
        hand.stop();
        hand.seen(|update| matches!(update, Update::InterruptReported { times: 1, sent: 0 })).await;
        // Longer than our own interrupt is held back.
        passed(short().hold * 3).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!(lines(&updates, Stream::Stdout), ["INTERRUPTED"]);
    assert_eq!((ended.interrupts_sent, ended.interrupts_reported), (0, 1));
    assert!(ended.is_clean());
}

#[tokio::test]
async fn a_second_interrupt_from_outside_is_counted_and_said() {
    let bench = Bench::new();
    let counting = "on=INT { print=INTERRUPTED } file=@/ready until=@/go";
    let (ended, _) = play(bench.spec(Manner::OpenTofu, counting), Limits::default(), async |hand| {
        let pid = bench.pid("ready").await;
        hand.stop();
        hand.seen(|update| matches!(update, Update::InterruptReported { times: 1, sent: 1 })).await;
        signal(pid, rustix::process::Signal::INT);
        hand.seen(|update| matches!(update, Update::InterruptReported { times: 2, sent: 1 })).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert!(!ended.is_clean());
}

#[tokio::test]
async fn a_tool_that_ignores_its_interrupt_is_ended_after_the_budget() {
    let bench = Bench::new();
    let deaf = format!("on=INT {{ file=@/deaf }} file=@/ready {FOREVER}");
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, &deaf), short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    let interrupts: Vec<Why> = updates
        .iter()
        .filter_map(|update| match update {
            Update::Interrupted { why, signal: ToolSignal::Interrupt, .. } => Some(*why),
            _ => None,
        })
        .collect();
    assert_eq!(interrupts, [Why::StopRequested, Why::BudgetEnded]);
    assert_eq!((ended.exit, ended.killed, ended.why), (Exit::Signal(9), true, Some(Why::BudgetEnded)));
    assert!(ended.took >= short().budget + short().last_grace);
    assert!(!ended.is_clean());
}

#[tokio::test]
async fn the_watchdog_stops_waiting_and_names_what_is_still_there() {
    let bench = Bench::new();
    let deaf = format!("on=INT {{ }} spawn {{ file=@/child {FOREVER} }} until=@/child file=@/ready {FOREVER}");
    // The watchdog comes before SIGKILL here, so that something is left to be named.
    let limits = Limits { budget: short().hold * 2, watchdog: short().hold, last_grace: PATIENCE, ..short() };
    let (ended, updates) = play(bench.spec(Manner::OpenTofu, &deaf), limits, async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    let child = bench.pid("child").await;
    assert_eq!(ended.exit, Exit::Unseen);
    let left: Vec<_> = ended.left_behind.iter().map(|left| (left.pid, left.name.as_str(), left.fate)).collect();
    assert_eq!(left, [(ended.pid, "fake-tool", Fate::Alive), (child, "fake-tool", Fate::Alive)]);
    assert!(matches!(updates.last(), Some(Update::Survived(_) | Update::Finished { exit: Exit::Unseen, .. })));
    for pid in [ended.pid, child] {
        signal(pid, rustix::process::Signal::KILL);
    }
}

#[tokio::test]
async fn force_ends_a_deaf_tool_and_all_that_it_started() {
    let bench = Bench::new();
    let deaf = format!(
        "on=INT {{ }} spawn {{ setsid quiet on=TERM {{ }} file=@/grandchild {FOREVER} }} until=@/grandchild file=@/ready {FOREVER}"
    );
    let (ended, _) = play(bench.spec(Manner::OpenTofu, &deaf), short(), async |hand| {
        bench.pid("ready").await;
        hand.stopper.force(System.now());
    })
    .await;
    assert_eq!((ended.exit, ended.why), (Exit::Signal(9), Some(Why::Forced)));
    assert_eq!(ended.left_behind.len(), 1);
    assert!(!lives(bench.pid("grandchild").await));
}

#[tokio::test]
async fn a_query_that_does_not_heed_its_interrupt_is_killed_soon() {
    let bench = Bench::new();
    let deaf = format!("on=INT {{ }} file=@/ready {FOREVER}");
    let (ended, updates) = play(bench.spec(Manner::Query, &deaf), short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    assert_eq!((ended.exit, ended.why), (Exit::Signal(9), Some(Why::StopRequested)));
    assert_eq!(count(&updates, is_interrupt), 1);
    assert!(ended.took < PATIENCE);
}

#[tokio::test]
async fn what_must_not_be_signalled_is_left_to_end_by_itself() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::Unsignalled, "file=@/ready until=@/go exit=3");
    let (ended, updates) = play(spec, short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
        passed(short().hold * 3).await;
        std::fs::write(bench.path("go"), "").expect("written");
    })
    .await;
    assert_eq!((ended.exit, ended.interrupts_sent, ended.why), (Exit::Code(3), 0, None));
    assert_eq!(count(&updates, is_interrupt), 0);
}

#[tokio::test]
async fn a_command_of_the_bundle_is_terminated_with_its_whole_group() {
    let bench = Bench::new();
    let tree = format!("spawn {{ file=@/child {FOREVER} }} until=@/child file=@/ready {FOREVER}");
    let (ended, updates) = play(bench.spec(Manner::Group, &tree), short(), async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    assert_eq!(ended.exit, Exit::Signal(15));
    assert!(!lives(bench.pid("child").await));
    assert_eq!(
        count(&updates, |update| matches!(update, Update::Interrupted { signal: ToolSignal::Terminate, .. })),
        1
    );
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended() {
    let bench = Bench::new();
    let mut spec = bench.spec(Manner::Group, &format!("on=TERM {{ }} {FOREVER}"));
    spec.timeout = Some(Duration::from_millis(200));
    let (ended, _) = run(spec).await;
    assert_eq!((ended.exit, ended.why, ended.killed), (Exit::Signal(9), Some(Why::TimedOut), true));
}

#[tokio::test]
async fn a_record_that_cannot_be_renamed_delays_no_signal() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("records")).expect("a folder");
    let mut spec = bench.spec(Manner::OpenTofu, "on=INT { exit=4 } file=@/ready until=@/never");
    spec.record = bench.path("records/record");
    let (ended, _) = play(spec, short(), async |hand| {
        bench.pid("ready").await;
        std::fs::remove_dir_all(bench.path("records")).expect("removed");
        hand.stop();
    })
    .await;
    assert_eq!((ended.exit, ended.interrupts_sent), (Exit::Code(4), 1));
}

#[tokio::test]
async fn the_intent_is_recorded_before_the_signal_is_seen() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::OpenTofu, "on=INT { until=@/record.interrupted exit=0 } file=@/ready until=@/never");
    let (ended, _) = play(spec, Limits { budget: PATIENCE, ..short() }, async |hand| {
        bench.pid("ready").await;
        hand.stop();
    })
    .await;
    assert_eq!(ended.exit, Exit::Code(0));
}
