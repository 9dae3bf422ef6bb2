//! The log of whole journals, as a CI job shows it, and what a terminal gets.

use std::time::Duration;

use crate::clock::Instant;
use crate::event::{
    Level, LockAct, LockEnd, LockLeft, LockLost, LockWaiting, ProcessOutput, RunOutcome, Seen, StepOutcome, Stream,
};
use crate::failure::Code;
use crate::report::human::{Again, Color, Human, Options, Screen, ToolOutput};
use crate::report::stories::{self, HOLDER, Holder, Story};

pub(super) const PLAIN: Options = Options {
    color: Color::Off,
    screen: Screen::Plain,
    width: 100,
    output: ToolOutput::OnFailure,
    again: Again::Nothing,
};
const TERMINAL: Options = Options { color: Color::On, screen: Screen::Live, ..PLAIN };

pub(super) fn shown(journal: &[Seen], options: Options) -> String {
    let mut out = Vec::new();
    let mut human = Human::new(&mut out, options);
    for seen in journal {
        human.take(seen).expect("a vector takes it");
    }
    human.finish().expect("a vector takes it");
    String::from_utf8(out).expect("UTF-8")
}

fn log(journal: &[Seen]) -> String {
    shown(journal, PLAIN)
}

/// From a step on, for what differs from a run that goes well only there.
fn log_from(step: &str, journal: &[Seen]) -> String {
    let log = log(journal);
    log[log.find(step).expect("the step")..].to_owned()
}

#[test]
fn a_successful_bootstrap() {
    insta::assert_snapshot!(log(&stories::success()), @r#"
    dcctl 0.1.0  bootstrap demo
      bundle      devicechain 0.9.2
      cluster     demo-cluster, https://127.0.0.1:6443
      files       /home/alice/.local/state/dcctl/runs/01je2x4q7cv8t0r9
      a stop      may take up to 20m0s (--stop-after)
      OpenTofu    1.11.4, /usr/bin/tofu
      Helm        4.0.1, /usr/bin/helm

    1/9  Build images
         – nothing to build without --build

    2/9  Claim the cluster
         held as alice@build-01/48213/9f3c1a20b7e4d5c6
         ✓ the lock is taken

    3/9  Check the cluster
         ✓ 2 other instances, no conflict (0.2s)

    4/9  Declare the instance
         ✓ 2 objects created

    5/9  Apply infrastructure
         plan: 4 to create
         + module.broker.demo_object.primary             created           4s
         + time_sleep.settle                             created           4s
         … still creating module.broker.demo_object.replica["eu-west"] (15s), creating
           demo_object.database (15s)
         + module.broker.demo_object.replica["eu-west"]  created          17s
         + demo_object.database                          created          17s
         ✓ 4 created (17s)

    6/9  Install chart          +18s
         ! Helm: the chart is deprecated
         ✓ release dc-demo, revision 1 (3s)

    7/9  Wait for readiness     +21s
         ✓ Deployment dci-demo/api is ready (2s)
         ✓ done (2s)

    8/9  Verify                 +23s
         ✓ 1 command passed: API answers (1s)

    9/9  Record the phase       +25s
         ✓ phase Ready

      resources   4 created
      warnings    1, see above
      time        25s, most of it: Apply infrastructure 17s, Install chart 3s, Wait for readiness 2s

    bootstrap demo succeeded after 25s: exit code 0, the lock was released
    "#);
}

#[test]
fn a_failing_apply() {
    insta::assert_snapshot!(log_from("5/9", &stories::failing_apply()), @r#"
    5/9  Apply infrastructure
         plan: 4 to create
         + module.broker.demo_object.primary             created           2s
         ✗ demo_object.database                          not created       2s
         + module.broker.demo_object.replica["eu-west"]  created           3s
         ✗ demo_object.database: The quota of this project is exceeded
           The server allows 3 objects and has 3. Ask for a larger quota, or remove an object that
           nobody needs.
           : :error::this line must not become a command
           # #[error]nor this
           infra/instance/main.tf line 12, in resource "demo_object" "database"
         ✗ failed after 3s: OpenTofu could not apply infra/instance
         the phase of instance demo is Failed

      why         OpenTofu could not apply infra/instance
                  demo_object.database: The quota of this project is exceeded
      where       step 5/9, Apply infrastructure
      do now      Read its diagnostics (what was printed is in events.jsonl of the run directory), mend
                  the cause and run the same command again: an apply goes on from what is in its state.
      resources   2 created, 1 failed
      steps       4 done, 1 failed, 4 not begun

    bootstrap demo failed after 4s: exit code 1 (infrastructure.failed), the lock was released
    "#);
}

#[test]
fn blocked_by_a_live_run() {
    insta::assert_snapshot!(log_from("2/9", &stories::blocked(Holder::Renews)), @r#"
    2/9  Claim the cluster
         ✗ held by bob@laptop/9912/3a7f00c1d2e4b596, at work on prod, renewed 4s ago

      why         this cluster (working on instance "prod") is being worked on by
                  bob@laptop/9912/3a7f00c1d2e4b596, which renewed 4s ago; wait for it to finish rather
                  than running a second apply against the same cluster
      where       step 2/9, Claim the cluster
      their job   https://ci.example.com/job/7
      do now      Wait for it to finish, then run the same command again.
      steps       1 done, 1 blocked, 7 not begun

    bootstrap demo is blocked: exit code 20 (lock.held), the lock was never taken
    "#);
}

#[test]
fn blocked_by_a_lock_that_looks_stale() {
    insta::assert_snapshot!(log_from("2/9", &stories::blocked(Holder::LooksStale)), @r#"
    2/9  Claim the cluster
         ✗ held by bob@laptop/9912/3a7f00c1d2e4b596, at work on prod, renewed 6m12s ago

      why         this cluster (working on instance "prod") is claimed by
                  bob@laptop/9912/3a7f00c1d2e4b596, which last renewed 6m12s ago — by this machine's
                  clock that looks stale, but a clock that disagrees looks the same. If that process is
                  genuinely gone, take the claim with
                  `dcctl instances reclaim --kube-context demo-cluster`, which checks properly before it
                  steals
      where       step 2/9, Claim the cluster
      their job   https://ci.example.com/job/7
      do now      Make sure that the holder is gone, then reclaim the lock.
      steps       1 done, 1 blocked, 7 not begun

    bootstrap demo is blocked: exit code 21 (lock.held_stale), the lock was never taken
    "#);
}

#[test]
fn refused_before_anything_was_planned() {
    insta::assert_snapshot!(log(&stories::refused()), @r#"
    dcctl 0.1.0  bootstrap demo
      cluster     demo-cluster

      why         demo/bundle.yaml line 12: instance.chart has no field "relase"
      do now      did you mean "release"?

    bootstrap demo was refused: exit code 3 (config.bundle), the lock was never taken
    "#);
}

#[test]
fn a_stop_that_ends_cleanly() {
    insta::assert_snapshot!(log_from("5/9", &stories::stopped()), @r#"
    5/9  Apply infrastructure
         plan: 4 to create
         + module.broker.demo_object.primary             created           3s
         ■ asked to stop by SIGTERM from process 812 of user 1000; this may take up to 20m0s, until
           01:13:24 UTC
           what is in flight is finished first, then the lock is given back
           tofu apply (process 48301) was sent SIGINT: a stop was requested
           tofu apply says that it was interrupted and is stopping
         … still creating module.broker.demo_object.replica["eu-west"] (18s)
         + module.broker.demo_object.replica["eu-west"]  created          20s
         ■ stopped after 20s: OpenTofu finished what was in flight and wrote its state; 2 created

      why         asked to stop by SIGTERM during "Apply infrastructure"
      where       step 5/9, Apply infrastructure
      do now      Run the same command again when you want to go on.
      resources   2 created
      steps       4 done, 1 stopped, 4 not begun

    bootstrap demo was stopped after 21s: exit code 10 (stopped.clean), the lock was released
    "#);
}

#[test]
fn a_stop_that_leaves_the_infrastructure_partially_applied() {
    insta::assert_snapshot!(log_from("5/9", &stories::partial()), @r#"
    5/9  Apply infrastructure
         plan: 4 to create
         + module.broker.demo_object.primary             created           3s
         ■ asked to stop by SIGTERM from process 812 of user 1000; this may take up to 20m0s, until
           01:13:24 UTC
           what is in flight is finished first, then the lock is given back
           tofu apply (process 48301) was sent SIGINT: a stop was requested
           tofu apply says that it was interrupted and is stopping
         … still creating module.broker.demo_object.replica["eu-west"] (18s)
         ! tofu apply left process 48340 (terraform-provi) behind, 22s old: an orphan, in its process
           group
         ■ stopped after 23s: OpenTofu ended, but nobody saw the end of 1 resource; 1 created

      why         asked to stop by SIGTERM during "Apply infrastructure"; the infrastructure is
                  PARTIALLY APPLIED
      where       step 5/9, Apply infrastructure
      do now      1. Push the state that OpenTofu could not save, then remove the file.
                  2. Run the same command again: the apply goes on from what is in its state.
      unfinished  module.broker.demo_object.replica["eu-west"]
      look at     /home/alice/.devicechain/instances/demo/errored.tfstate (the state that OpenTofu could
                  not save)
      resources   1 created
      steps       4 done, 1 stopped, 4 not begun

    bootstrap demo was stopped after 23s: exit code 11 (stopped.partial), the lock was released
    "#);
}

#[test]
fn a_dry_run() {
    insta::assert_snapshot!(log(&stories::dry_run()), @r#"
    dcctl 0.1.0  bootstrap demo
      dry run     nothing will be written
      bundle      devicechain 0.9.2
      cluster     demo-cluster, https://127.0.0.1:6443
      files       /home/alice/.local/state/dcctl/runs/01je2x4q7cv8t0r9
      a stop      may take up to 20m0s (--stop-after)

    1/9  Build images
         – nothing to build without --build

    2/9  Claim the cluster
         nobody holds the lock of this cluster
         ✓ a dry run takes no lock

    4/9  Declare the instance
         + Namespace dci-demo                        to create
         + Instance demo                             to create
         ~ Deployment dc-k8s-system/manager          to configure
         ! would take over .spec.replicas of Deployment dc-k8s-system/manager from kubectl
         ✓ 2 objects to create, 1 to configure

    5/9  Apply infrastructure
         + module.broker.demo_object.primary             to create
         + module.broker.demo_object.replica["eu-west"]  to create
         + demo_object.database                          to create
         + time_sleep.settle                             to create
         ✓ 4 to create (1s)

    dry run of bootstrap demo succeeded after 1s: exit code 0, the lock was never taken
    "#);
}

#[test]
fn a_lock_that_was_left_behind() {
    let mut story = Story::bootstrap();
    story.start(5);
    story.end(StepOutcome::Stopped, "ended by force", None);
    story.say(LockLeft { holder: HOLDER.into(), why: "the run was ended by force".into() });
    let failure = stories::failed(Code::StoppedForced, "ended by force during \"Install chart\"");
    let journal = story.finish(|finished| {
        finished.outcome = RunOutcome::Forced;
        finished.exit_code = 12;
        finished.failure = Some(failure);
        finished.lock = LockEnd::Left;
        finished.holder = Some(HOLDER.into());
    });
    insta::assert_snapshot!(log_from("6/9", &journal), @r#"
    6/9  Install chart
         ■ stopped: ended by force
         ✗ the lock was left behind, held by alice@build-01/48213/9f3c1a20b7e4d5c6: the run was ended by
           force

      why         ended by force during "Install chart"
      where       step 6/9, Install chart
      do now      Make sure that nothing of this run lives, then reclaim the lock.
      lock        held by alice@build-01/48213/9f3c1a20b7e4d5c6; when nothing of this run lives any
                  more, `dcctl instances reclaim --kube-context demo-cluster`

    bootstrap demo was ended by force: exit code 12 (stopped.forced), the lock WAS LEFT BEHIND
    "#);
}

#[test]
fn a_lock_that_was_lost_because_nothing_could_be_renewed() {
    let mut story = Story::bootstrap();
    story.start(5);
    let said = "stopping \"Install chart\": this cluster's lock could not be renewed for 1m0s, at least as long as it is \
                valid, so another run may rightly hold it by now";
    story.say(LockLost { holder: Some(HOLDER.into()), text: said.into() });
    story.end(StepOutcome::Stopped, "Helm ended after one interrupt", None);
    story.say(LockWaiting { act: LockAct::Release, why: "the API server cannot be reached".into(), waited_ms: 5_000 });
    let failure = stories::failed(Code::LockLost, said);
    let journal = story.finish(|finished| {
        finished.outcome = RunOutcome::Failed;
        finished.exit_code = 22;
        finished.failure = Some(failure);
        finished.lock = LockEnd::Lost;
        finished.holder = Some(HOLDER.into());
    });
    insta::assert_snapshot!(log_from("6/9", &journal), @r#"
    6/9  Install chart
         ✗ stopping "Install chart": this cluster's lock could not be renewed for 1m0s, at least as long
           as it is valid, so another run may rightly hold it by now
         ■ stopped: Helm ended after one interrupt
         ! where the lock is cannot be said yet, after 5s: the API server cannot be reached

      why         stopping "Install chart": this cluster's lock could not be renewed for 1m0s, at least
                  as long as it is valid, so another run may rightly hold it by now
      where       step 6/9, Install chart
      do now      See who holds it now; run the same command again when it is free.
      lock        it still named this run, alice@build-01/48213/9f3c1a20b7e4d5c6, when it was last seen

    bootstrap demo failed: exit code 22 (lock.lost), the lock was lost
    "#);
}

/// A chart that fails with nothing but output.
fn failing_chart() -> Vec<Seen> {
    let mut story = Story::bootstrap();
    story.start(5);
    for index in 0..30 {
        let text = format!("line {index}: \u{1b}[31mred\u{1b}[0m ::warning::x");
        let program = "helm upgrade".to_owned();
        story.say(ProcessOutput { program, stream: Stream::Stderr, text, lossy: false, more: false });
    }
    story.later(2_000);
    story.end(StepOutcome::Failed, "", Some(stories::failed(Code::ChartFailed, "Helm could not install dc-demo")));
    story.cut_off()
}

#[test]
fn output_is_shown_when_nothing_else_explains_a_failure() {
    let log = log_from("6/9", &failing_chart());
    assert!(log.contains("the end of what it printed:\n       │ line 10: red ::warning::x\n"), "{log}");
    assert!(log.contains("│ line 29: red ::warning::x\n     ✗ failed after 2s: Helm could not install"), "{log}");
    assert!(!log.contains("line 9:"), "{log}");
}

#[test]
fn all_output_is_shown_when_asked_for() {
    let log = shown(&failing_chart(), Options { output: ToolOutput::Always, ..PLAIN });
    assert!(log.contains("│ line 0: red ::warning::x\n"), "{log}");
}

#[test]
fn a_plain_log_has_no_control_characters_and_no_commands() {
    for journal in [stories::success(), stories::failing_apply(), stories::partial(), failing_chart()] {
        let log = log(&journal);
        assert!(!log.chars().any(|letter| letter.is_control() && letter != '\n'), "{log:?}");
        assert!(!log.lines().any(|line| line.trim_start().starts_with("::")) && !log.contains("##["), "{log}");
        assert!(log.lines().all(|line| line.trim_end() == line && line.chars().count() <= 100), "{log}");
    }
}

#[test]
fn the_last_line_is_the_verdict() {
    for options in [PLAIN, Options { color: Color::Off, ..TERMINAL }] {
        let log = shown(&stories::stopped(), options);
        let last = "bootstrap demo was stopped after 21s: exit code 10 (stopped.clean), the lock was released";
        assert_eq!(log.lines().last(), Some(last));
        assert!(log.ends_with('\n'));
    }
}

#[test]
fn on_a_terminal_one_live_line_is_rewritten_in_place() {
    let journal = stories::success();
    let begun = journal.iter().position(|seen| seen.type_name == "resource.started").expect("a start");
    let mut out = Vec::new();
    let mut human = Human::new(&mut out, Options { color: Color::Off, ..TERMINAL });
    for seen in &journal[..=begun] {
        human.take(seen).expect("a vector takes it");
    }
    human.out.clear();
    let at = |seconds| Instant::since_boot(Duration::from_secs(seconds));
    for second in [100, 100, 101, 103] {
        human.tick(at(second)).expect("a vector takes it");
    }
    human.finish().expect("a vector takes it");
    let live = |seconds: u64| format!("\r\u{1b}[2K     … creating module.broker.demo_object.primary ({seconds}s)");
    let expected = format!("{}{}\r\u{1b}[2K", live(1), live(3));
    assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
}

#[test]
fn what_changes_nothing_on_the_screen_writes_nothing() {
    let journal = failing_chart();
    let first = journal.iter().position(|seen| seen.type_name == "process.output").expect("output");
    let mut out = Vec::new();
    let mut human = Human::new(&mut out, TERMINAL);
    for seen in &journal[..first] {
        human.take(seen).expect("a vector takes it");
    }
    human.out.clear();
    for seen in &journal[first..first + 30] {
        human.take(seen).expect("a vector takes it");
    }
    assert_eq!(String::from_utf8(out).expect("UTF-8"), "");
}

#[test]
fn a_live_line_never_wraps() {
    let journal = stories::success();
    let log = shown(&journal, Options { width: 44, color: Color::Off, ..TERMINAL });
    let live = log.split(['\n', '\r']).filter(|line| line.contains('…') && line.contains("creating"));
    for line in live {
        assert!(line.trim_start_matches("\u{1b}[2K").chars().count() < 44, "{line:?}");
    }
}

#[test]
fn colour_is_always_taken_off_again() {
    let log = shown(&stories::failing_apply(), TERMINAL);
    for line in log.lines() {
        let last = line.rfind("\u{1b}[").map(|at| &line[at..]);
        assert!(last.is_none_or(|code| code.starts_with("\u{1b}[0m") || code.starts_with("\u{1b}[2K")), "{line:?}");
    }
}

#[test]
fn a_journal_without_a_verdict_is_said_to_be_cut_off() {
    let mut out = Vec::new();
    let mut human = Human::new(&mut out, PLAIN);
    human.take(&stories::success()[0]).expect("a vector takes it");
    human.cut_off().expect("a vector takes it");
    assert!(String::from_utf8(out).expect("UTF-8").contains("the run was cut off or goes on; its end was not seen"));
}

#[test]
fn what_a_newer_dcctl_found_grave_is_shown() {
    let mut journal = stories::success();
    let mut seen = journal[2].clone();
    (seen.event, seen.level, seen.msg) = (None, Level::Warn, "the moon is in the way".to_owned());
    journal.insert(3, seen.clone());
    (seen.level, seen.msg) = (Level::Info, "the moon is up".to_owned());
    journal.insert(4, seen);
    let log = log(&journal);
    assert!(log.contains("! the moon is in the way") && !log.contains("the moon is up"), "{log}");
}
