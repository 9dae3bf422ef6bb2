//! What makes a log easy to read: nothing said twice, and lines that stay below one another where there is little room.

use crate::event::{
    BusyManner, Diagnostic, LockBlocked, ProcessInterruptReported, ProcessInterrupted, ProcessOutput, ProcessStarted,
    ResourceCompleted, ResourceFailed, RunOutcome, Seen, Severity, StepOutcome, StepProgressed, StopCause, StopManner,
    StopRequested, Stream,
};
use crate::failure::Code;
use crate::report::human::tests::{PLAIN, shown};
use crate::report::human::{Again, Options};
use crate::report::stories::{self, HOLDER, Story};

#[test]
fn a_run_that_waits_for_the_lock_is_not_said_to_be_at_work() {
    let mut story = Story::bootstrap();
    story.start(1);
    story.say(LockBlocked {
        holder: HOLDER.into(),
        instance: None,
        age_ms: Some(4_000),
        stale: false,
        text: "held".into(),
        job_url: None,
        manner: BusyManner::Waits,
        waited_ms: Some(0),
    });
    story.later(15_000);
    story.say(StepProgressed { in_flight: Vec::new(), duration_ms: 15_000 });
    let log = shown(&story.cut_off(), PLAIN);
    assert!(log.contains("… still waiting for the lock (15s)") && !log.contains("at work for"), "{log}");
}

/// A stop by SIGINT: of a person at a terminal, or of a process of this user.
fn interrupted(sender_uid: Option<u32>) -> Vec<Seen> {
    let mut story = Story::bootstrap();
    story.start(4);
    story.say(StopRequested {
        cause: StopCause::Signal,
        signals: vec!["SIGINT".into()],
        sender_pid: None,
        sender_uid,
        manner: StopManner::Graceful,
        budget_ms: 1_200_000,
        deadline: None,
    });
    story.cut_off()
}

#[test]
fn who_may_force_is_told_how_and_how_long_that_takes() {
    let hint = "Ctrl+C again kills it after 8 s at most and leaves the lock behind";
    let rows = [
        (Again::Forces, None, true),
        (Again::Nothing, None, false),
        // It was no key, and then a key is the first one.
        (Again::Forces, Some(1000), false),
    ];
    for (again, sender, expected) in rows {
        let log = shown(&interrupted(sender), Options { again, ..PLAIN });
        let words = log.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains(hint), expected, "{again:?}, {sender:?}: {log}");
    }
}

/// What OpenTofu gave up because it was interrupted again may well be there.
#[test]
fn what_was_cut_off_by_a_second_interrupt_is_not_said_to_be_not_created() {
    let log = |interrupts: u32| {
        let mut story = Story::bootstrap();
        story.start(4);
        story.say(ProcessStarted { program: "tofu apply".into(), pid: 7 });
        for times in 1..=interrupts {
            let (program, signal, why) = ("tofu apply".to_owned(), "SIGINT".into(), "a stop was requested".into());
            story.say(ProcessInterrupted { program: program.clone(), pid: 7, signal, why });
            story.say(ProcessInterruptReported { program, times, sent: times });
        }
        story.say(ResourceFailed { address: "a.b".into(), action: "create".into(), elapsed_ms: 16_000 });
        story.end(StepOutcome::Stopped, "it ended", None);
        shown(&story.cut_off(), PLAIN)
    };
    let (once, twice) = (log(1), log(2));
    assert!(once.contains("not created") && once.contains("1 failed"), "{once}");
    assert!(twice.contains("a.b  cut off  ") && twice.contains("1 cut off"), "{twice}");
    assert!(!twice.contains("not created") && !twice.contains("failed"), "{twice}");
    // Our own second interrupt is nothing to be warned of.
    assert!(twice.contains("says that it was interrupted again") && !twice.contains("! tofu apply says"), "{twice}");
}

#[test]
fn the_mistakes_of_a_refusal_are_listed_once_and_all_of_them() {
    let causes: Vec<String> = (2..=9).map(|line| format!("bundle.yaml:{line}:1: verify: unknown key")).collect();
    let message = "bundle.yaml:1:1: images: unknown key (the first of 9 mistakes)";
    let mut story = Story::bootstrap();
    story.say(Diagnostic {
        severity: Severity::Error,
        code: Some(Code::BundleInvalid.name().into()),
        origin: "dcctl".into(),
        summary: message.into(),
        detail: causes.join("\n"),
        address: None,
        source: None,
    });
    let failure = crate::event::Failed { causes: causes.clone(), ..stories::failed(Code::BundleInvalid, message) };
    let journal = story.finish(|finished| {
        finished.outcome = RunOutcome::Refused;
        finished.exit_code = 3;
        finished.failure = Some(failure);
    });
    let log = shown(&journal, PLAIN);
    for line in causes.iter().map(String::as_str).chain([message]) {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
}

#[test]
fn what_a_tool_printed_is_not_given_as_a_reason_below_it() {
    let mut story = Story::bootstrap();
    story.start(7);
    for text in ["checking", "no good"] {
        let program = "verify: API answers".to_owned();
        story.say(ProcessOutput { program, stream: Stream::Stdout, text: text.into(), lossy: false, more: false });
    }
    let causes = vec!["checking".to_owned(), "no good".to_owned(), "it was late".to_owned()];
    let failure = stories::failed(Code::VerifyFailed, "\"API answers\" failed with exit status 1");
    story.end(StepOutcome::Failed, "", Some(crate::event::Failed { causes, ..failure }));
    let log = shown(&story.cut_off(), PLAIN);
    assert!(log.contains("     what it printed:\n       │ checking\n       │ no good\n"), "{log}");
    assert!(!log.contains("because checking") && log.contains("because it was late"), "{log}");
}

#[test]
fn the_words_after_addresses_stay_below_one_another_in_a_narrow_log() {
    let mut story = Story::bootstrap();
    story.start(4);
    for address in ["demo_object.database", "module.a_broker_with_a_long_name.demo_object.replica", "time_sleep.a"] {
        story.say(ResourceCompleted { address: address.into(), action: "create".into(), elapsed_ms: 4_000 });
    }
    let log = shown(&story.cut_off(), Options { width: 60, ..PLAIN });
    let columns: Vec<usize> = log.lines().filter_map(|line| line.find("created")).collect();
    assert_eq!(columns.len(), 3, "{log}");
    assert!(columns[1] == columns[2], "{log}");
    assert!(log.lines().any(|line| line.ends_with("demo_object.replica")), "{log}");
}

#[test]
fn things_to_do_are_wrapped_beside_their_numbers() {
    let story = Story::bootstrap();
    let journal = story.finish(|finished| {
        finished.exit_code = 1;
        finished.outcome = RunOutcome::Failed;
        finished.next = vec!["one two three four five six seven eight nine ten".into(), "eleven".into()];
    });
    let log = shown(&journal, Options { width: 40, ..PLAIN });
    assert!(log.contains("  do now      1. one two three four five\n                 six seven"), "{log}");
    assert!(log.contains("\n              2. eleven\n"), "{log}");
}

#[test]
fn the_run_directory_is_named_again_only_when_something_is_to_be_seen_there() {
    for (exit_code, expected) in [(0, 1), (1, 2)] {
        let journal = Story::bootstrap().finish(|finished| {
            finished.exit_code = exit_code;
            let path = "/home/alice/.local/state/dcctl/runs/01je2x4q7cv8t0r9".into();
            finished.kept = vec![crate::event::Kept { what: "the run directory".into(), path }];
        });
        let log = shown(&journal, PLAIN);
        assert_eq!(log.matches("01je2x4q7cv8t0r9").count(), expected, "{log}");
    }
}

#[test]
fn what_a_tool_printed_is_not_shown_where_a_guard_refused() {
    let mut story = Story::bootstrap();
    story.start(7);
    let (program, text) = ("tofu init".to_owned(), "Installed a provider".to_owned());
    story.say(ProcessOutput { program, stream: Stream::Stdout, text, lossy: false, more: false });
    story.end(StepOutcome::Failed, "", Some(stories::failed(Code::PlanReplaces, "the plan would take it away")));
    let log = shown(&story.cut_off(), PLAIN);
    assert!(!log.contains("Installed a provider") && log.contains("the plan would take it away"), "{log}");
}
