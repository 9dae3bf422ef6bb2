//! What a journal tells, line by line.

use super::*;
use crate::event::Envelope;
use crate::redact::Redactor;

fn began() -> Instant {
    Instant::since_boot(Duration::from_secs(1000))
}

/// A journal in which one event comes a second after the other.
fn journal(events: &[Event]) -> String {
    let mut text = String::new();
    for (seq, event) in events.iter().enumerate() {
        let mut line = String::new();
        let elapsed = Duration::from_secs(seq as u64);
        let time = jiff::Timestamp::UNIX_EPOCH;
        Envelope::new(seq as u64, time, elapsed, "run", None, event).render_into(&Redactor::default(), &mut line);
        text.push_str(&line);
    }
    text
}

fn read(events: &[Event]) -> Remains {
    Remains::of(&journal(events), began())
}

fn step(id: &str, index: u64) -> Event {
    Event::StepStarted(event::StepStarted { id: id.to_owned(), title: id.to_owned(), index, total: 3 })
}

fn ended(id: &str, index: u64, outcome: StepOutcome) -> Event {
    let (id, title, note) = (id.to_owned(), id.to_owned(), String::new());
    let (failure, unfinished, duration_ms) = (None, Vec::new(), 0);
    let finished = event::StepFinished { id, title, index, total: 3, outcome, note, failure, unfinished, duration_ms };
    Event::StepFinished(finished)
}

fn claimed(waited_ms: u64) -> Event {
    let (holder, lease, uid) = ("a".to_owned(), "b/c".to_owned(), "uid-1".to_owned());
    Event::LockClaimed(event::LockClaimed { holder, lease, uid, waited_ms })
}

fn renewed(took_ms: u64) -> Event {
    Event::LockRenewed(event::LockRenewed { took_ms, gap_ms: None })
}

fn held(millis: u64) -> Lock {
    Lock::Held { uid: "uid-1".to_owned(), renewed_at: began() + Duration::from_millis(millis) }
}

const CLAIM: &str = "claim-the-cluster";

#[test]
fn each_word_about_the_lock_says_what_there_is_to_go_on_with() {
    use StepOutcome::{Done, Failed, Stopped};
    let asked = || step(CLAIM, 1);
    let got = || vec![asked(), claimed(200), ended(CLAIM, 1, Done)];
    let after = |more: &[Event]| got().into_iter().chain(more.iter().cloned()).collect::<Vec<Event>>();
    let releasing = Event::LockReleasing(event::LockReleasing { holder: "a".to_owned() });
    let left = Event::LockLeft(event::LockLeft { holder: "a".to_owned(), why: "w".to_owned() });
    let lost = Event::LockLost(event::LockLost { holder: None, text: "t".to_owned() });
    let observed = crate::event::examples().into_iter().find(|event| matches!(event, Event::LockObserved(_)));
    let observed = observed.expect("each event has an example");
    let rows: Vec<(Vec<Event>, Lock)> = vec![
        (vec![], Lock::Never),
        (vec![step("build-images", 1)], Lock::Never),
        (vec![asked()], Lock::Asked),
        (vec![asked(), ended(CLAIM, 1, Done)], Lock::Without { claim_in_doubt: true }),
        (vec![asked(), ended(CLAIM, 1, Failed)], Lock::Asked),
        // It was sent before the claim was told.
        (got(), held(800)),
        (after(&[renewed(99)]), held(2900)),
        (after(&[step("two", 2), ended("two", 2, Done)]), held(800)),
        (after(&[step("two", 2), ended("two", 2, Failed)]), Lock::Returning),
        (after(&[step("two", 2), ended("two", 2, Stopped)]), Lock::Returning),
        (after(&[step("three", 3), ended("three", 3, Done)]), Lock::Returning),
        (after(&[releasing]), Lock::Returning),
        (after(&[left]), Lock::Left),
        (after(&[lost]), Lock::Lost { holder: None }),
        // A dry run looks at it and asks for nothing.
        (vec![observed], Lock::Never),
    ];
    for (events, lock) in rows {
        assert_eq!(read(&events).lock, lock, "{events:?}");
    }
}

#[test]
fn only_what_may_be_in_the_lease_is_gone_on_with() {
    assert_eq!(Lock::Never.estate(), None);
    assert_eq!(Lock::Released.estate(), None);
    assert_eq!(Lock::Left.estate(), None, "it was left on purpose");
    assert_eq!(Lock::Lost { holder: None }.estate(), None, "it is not touched any more");
    assert_eq!(Lock::Without { claim_in_doubt: false }.estate(), None);
    assert_eq!(Lock::Without { claim_in_doubt: true }.estate(), Some(Estate::Asked));
    assert_eq!(Lock::Asked.estate(), Some(Estate::Asked));
    assert_eq!(Lock::Returning.estate(), Some(Estate::Returning));
    assert!(matches!(held(0).estate(), Some(Estate::Held { .. })));
}

#[test]
fn what_was_told_of_a_program_is_not_told_again_and_the_rest_is() {
    let program = || "tofu apply".to_owned();
    let started = Event::ProcessStarted(event::ProcessStarted { program: program(), pid: 7 });
    let resource = |address: &str| {
        let (address, action) = (address.to_owned(), "create".to_owned());
        Event::ResourceStarted(event::ResourceStarted { address, action })
    };
    let sent =
        event::ProcessInterrupted { program: program(), pid: 7, signal: "SIGINT".to_owned(), why: "w".to_owned() };
    let mut remains = read(&[
        step("apply", 2),
        resource("of.another"),
        started,
        resource("a"),
        Event::ProcessInterrupted(sent),
        Event::OutputDropped(event::OutputDropped { lines: 1 }),
    ]);
    let heard = remains.heard();
    assert!(heard.at_work.contains(&7) && heard.interrupted["tofu apply"] == 1, "{heard:?}");
    assert_eq!(remains.step.as_ref().map(|step| (step.index, step.id.as_str())), Some((1, "apply")));
    let told = remains.told.get_mut("tofu apply").expect("it was started");
    let again = |address: &str| {
        let (address, action) = (address.to_owned(), "create".to_owned());
        Update::Resource { address, action, state: crate::step::ResourceState::Started, elapsed: None }
    };
    let line = || {
        let (stream, text) = (process::Stream::Stdout, "x".to_owned());
        Update::Process {
            program: program(),
            update: process::Update::Line { stream, text, lossy: false, more: false },
        }
    };
    assert_eq!([told.has(&again("a")), told.has(&again("b"))], [true, false]);
    assert_eq!([told.has(&line()), told.has(&line())], [true, false], "a dropped line is not told later");
    let reported = process::Update::InterruptReported { times: 1, sent: 1 };
    assert!(!told.has(&Update::Process { program: program(), update: reported }));
}

#[test]
fn the_first_request_to_stop_counts_and_the_strongest_manner() {
    let asked = |manner| {
        let (cause, signals) = (event::StopCause::Signal, Vec::new());
        let (sender_pid, sender_uid, budget_ms, deadline) = (None, None, 0, None);
        let asked = event::StopRequested { cause, signals, sender_pid, sender_uid, manner, budget_ms, deadline };
        Event::StopRequested(asked)
    };
    let remains = read(&[asked(StopManner::Graceful), asked(StopManner::Force)]);
    assert_eq!(remains.stopping, Some(Stopping { since: began(), manner: StopManner::Force }));
    assert_eq!(remains.next_seq, 2);
}

#[test]
fn a_torn_line_tells_nothing() {
    let text = journal(&[step(CLAIM, 1), claimed(0)]);
    let remains = Remains::of(&text[..text.len() - 9], began());
    assert_eq!((remains.next_seq, remains.lock), (1, Lock::Asked));
}

#[test]
fn where_lines_are_missing_it_is_not_told_that_the_lock_was_never_asked_for() {
    let whole = journal(&[step("two", 2), ended("two", 2, StepOutcome::Done), renewed(99)]);
    let cut = &whole[whole.find('\n').expect("lines") + 1..];
    for (text, mode, lock) in [
        (cut, Mode::Act, Lock::Asked),
        (&whole, Mode::Act, Lock::Never),
        (cut, Mode::DryRun, Lock::Never),
        ("", Mode::Act, Lock::Never),
    ] {
        let mut remains = Remains::of(text, began());
        remains.doubt(mode);
        assert_eq!(remains.lock, lock, "{mode:?}: {text}");
    }
    // What it says after the gap stands.
    let mut held = read(&[step(CLAIM, 1), claimed(200)]);
    held.is_torn = true;
    held.doubt(Mode::Act);
    assert!(matches!(held.lock, Lock::Held { .. }));
}
