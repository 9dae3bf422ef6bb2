//! What a tool leaves behind, and what holds it up.

use std::time::Duration;

use dcctl::clock::{Clock, System};
use dcctl::process::{Exit, Fate, Limits, Manner, Stream, Update};

use crate::process::{Bench, FOREVER, PATIENCE, count, itself, lines, lives, output, play, run, short, wait_for};

#[tokio::test]
async fn a_step_ends_with_its_process_and_the_holder_of_its_output_is_named_and_ended() {
    let bench = Bench::new();
    let spec = bench.spec(Manner::OpenTofu, &format!("spawn {{ file=@/child {FOREVER} }} until=@/child print=done"));
    let (ended, updates) = run(spec).await;
    let child = bench.pid("child").await;
    assert_eq!(ended.exit, Exit::Code(0));
    assert!(ended.took < Duration::from_secs(30));
    assert!(!lives(child));
    let named = |update: &Update| matches!(update, Update::LeftBehind { pid, name, .. } if *pid == child && name == "fake-tool");
    assert_eq!(count(&updates, named), 1);
    let left: Vec<_> = ended.left_behind.iter().map(|left| (left.pid, left.fate)).collect();
    assert_eq!(left, [(child, Fate::Ended)]);
}

#[tokio::test]
async fn a_descendant_in_its_own_session_that_closed_everything_is_found_by_its_tag() {
    let bench = Bench::new();
    let daemon = format!("spawn {{ spawn {{ setsid quiet file=@/daemon {FOREVER} }} }} until=@/daemon");
    let (ended, _) = run(bench.spec(Manner::Helm, &daemon)).await;
    let daemon = bench.pid("daemon").await;
    assert!(!lives(daemon));
    assert!(ended.left_behind.iter().any(|left| left.pid == daemon && left.fate == Fate::Ended));
}

#[tokio::test]
async fn what_ignores_the_request_to_end_is_killed() {
    let bench = Bench::new();
    let stubborn = format!("spawn {{ setsid on=TERM {{ file=@/asked }} file=@/child {FOREVER} }} until=@/child");
    let (ended, _) = run(bench.spec(Manner::OpenTofu, &stubborn)).await;
    bench.pid("asked").await;
    assert!(!lives(bench.pid("child").await));
    assert_eq!(ended.left_behind.iter().map(|left| left.fate).collect::<Vec<_>>(), [Fate::Ended]);
}

#[tokio::test]
async fn an_older_process_and_a_reader_of_the_output_are_left_alone() {
    let bench = Bench::new();
    std::fs::write(bench.path("stdout"), "").expect("written");
    let older = System.now();
    let mut bystander = itself(&["file=@/bystander", FOREVER], &bench);
    bench.pid("bystander").await;
    // Start times are told apart in hundredths of a second.
    wait_for(|| System.now().since(older) > Duration::from_millis(50)).await;
    let spec = bench.spec(Manner::OpenTofu, "print=done");
    let (ended, _) = run(spec).await;
    assert_eq!(ended.left_behind, []);
    assert!(lives(bystander.id()));
    bystander.kill().expect("ours to end");
    bystander.wait().expect("it ended");
}

#[tokio::test]
async fn a_tool_that_waits_for_a_pipe_which_an_orphan_holds_is_unblocked() {
    for (signs, stop) in [("print=OPENED print=CLOSED", false), ("print=CONCLUDED", false), ("print=OPENED", true)] {
        let bench = Bench::new();
        let stuck = format!(
            "on=INT {{ print=INTERRUPTED }} plugin {{ spawn {{ setsid file=@/holder {FOREVER} }} until=@/holder file=@/ready }} print=freed exit=5"
        );
        let (ended, updates) = play(
            bench.spec(Manner::OpenTofu, &format!("{signs} {stuck}")),
            Limits { budget: PATIENCE, ..short() },
            async |hand| {
                bench.pid("ready").await;
                if stop {
                    hand.stop();
                }
            },
        )
        .await;
        let holder = bench.pid("holder").await;
        assert_eq!(ended.exit, Exit::Code(5), "{signs}: the tool itself was not ended");
        assert!(!ended.killed && ended.interrupts_sent == u32::from(stop));
        assert_eq!(lines(&updates, Stream::Stdout).last().map(String::as_str), Some("freed"));
        assert!(ended.left_behind.iter().any(|left| left.pid == holder), "{signs}: the holder was named");
        assert!(!lives(holder));
    }
}

#[tokio::test]
async fn an_orphan_without_tag_group_and_output_is_adopted_and_ended() {
    let bench = Bench::new();
    let hidden = format!("spawn-clean {{ spawn {{ setsid quiet file=@/hidden {FOREVER} }} }} until=@/hidden");
    let said = output(&format!("adopt drive=@ {{ {hidden} }}"), &bench);
    let hidden = bench.pid("hidden").await;
    assert!(said.contains(&format!("LeftBehind {{ pid: {hidden}, ")), "{said}");
    assert!(!lives(hidden));
}
