//! Renewals that do not come through: for a while, and for longer than the lock is valid.

use serde_json::{Value, json};

use crate::bed::dcctl::Running;
use crate::bed::{Bed, Fault, Rule, wait};
use crate::lock::rig::{of_kind, text};
use crate::wire::lane::{Lane, Namespace, all_at_once};
use crate::wire::mishap::{FORBIDDEN, status};

/// What stands between a run and its renewals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// Every request is swallowed.
    Cut,
    /// The Lease can be read and not written.
    ReadsAlone,
    ServerError,
    TooManyRequests,
    GatewayTimeout,
    Garbage,
    /// Connections stay open, and nothing comes.
    Nothing,
    /// Somebody has taken the right away.
    Forbidden,
    /// Nobody knows the credentials any more.
    Unauthorized,
}

const SILENCES: [Silence; 9] = [
    Silence::Cut,
    Silence::ReadsAlone,
    Silence::ServerError,
    Silence::TooManyRequests,
    Silence::GatewayTimeout,
    Silence::Garbage,
    Silence::Nothing,
    Silence::Forbidden,
    Silence::Unauthorized,
];

impl Silence {
    fn rule(self) -> Rule {
        let all = || Rule::on("*", "/leases/dcctl");
        let with = |code, fields: &str, body: &str| Fault::AnswerWith(code, fields.to_owned(), body.to_owned());
        match self {
            Silence::Cut => Rule::on("*", "/").request(Fault::Drop),
            Silence::ReadsAlone => Rule::on("PUT", "/leases/dcctl").request(Fault::Drop),
            Silence::ServerError => all().request(Fault::Answer(500, status(500, "InternalError", "no leader"))),
            Silence::TooManyRequests => {
                all().request(with(429, "Content-Type: text/plain\r\nRetry-After: 1\r\n", "Too many requests"))
            }
            Silence::GatewayTimeout => all().request(with(504, "Content-Type: text/html\r\n", "<html>gave up</html>")),
            Silence::Garbage => all().request(with(200, "Content-Type: application/json\r\n", "{\"kind\":\"Lease\",")),
            Silence::Nothing => all().request(Fault::HalfOpen),
            Silence::Forbidden => all().request(Fault::Answer(403, status(403, "Forbidden", FORBIDDEN))),
            Silence::Unauthorized => all().request(Fault::Answer(401, status(401, "Unauthorized", "Unauthorized"))),
        }
    }
}

/// For how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// More than two renewals long.
    AWhile,
    /// Longer than the lock is valid.
    TooLong,
}

#[test]
fn renewals_that_fail_for_a_while_cost_nothing_and_for_a_minute_they_cost_the_lock() {
    let rows: Vec<(Silence, Length)> =
        SILENCES.iter().flat_map(|silence| [(*silence, Length::AWhile), (*silence, Length::TooLong)]).collect();
    let bed = Bed::take();
    all_at_once(
        &rows,
        rows.len(),
        |row| format!("{row:?}"),
        |(silence, length)| {
            let lane = Lane::new(&bed, Namespace::There);
            let run = lane.at_work();
            run.journal().wait_for("lock.renewed", |_| true);
            lane.proxy.add(silence.rule());
            match length {
                Length::AWhile => goes_on(&lane, run),
                Length::TooLong => is_lost(&lane, run),
            }
        },
    );
}

fn goes_on(lane: &Lane<'_>, run: Running) {
    let journal = run.journal();
    let valid_for = |event: &Value| event["data"]["valid_for_ms"].as_u64().expect("a number");
    journal.wait_for("lock.renewal_failed", |event| valid_for(event) < 40_000);
    lane.proxy.clear();
    let again = journal.wait_for("lock.renewed", |event| event["data"].get("gap_ms").is_some());
    assert!(again["data"]["gap_ms"].as_u64() > Some(20_000) && again["level"] == "info", "{again}");
    lane.let_go();
    let done = run.finish().expect_code(0);
    let verdict = &done.verdict()["data"];
    assert_eq!((&verdict["lock"], &verdict["counts"]["renewal_gaps"]), (&json!("released"), &json!(1)), "{verdict}");
    assert_eq!((lane.lease(), lane.signals()), (None, String::new()));
    said_once(&done.events());
}

/// People are told of a gap once, however many tries fail in it.
#[track_caller]
fn said_once(events: &[Value]) {
    let failed = of_kind(events, "lock.renewal_failed");
    let warned = failed.iter().filter(|event| event["level"] == "warn").count();
    assert!(failed.len() > 1 && warned == 1, "{failed:#?}");
}

fn is_lost(lane: &Lane<'_>, run: Running) {
    let before = lane.lease().expect("it is held");
    let journal = run.journal();
    let lost = wait::until(wait::GENEROUS * 2, "the lock to be lost", || {
        journal.events().into_iter().find(|event| event["type"] == "lock.lost")
    });
    let lost = lost.expect("a minute passes");
    let asked = lane.proxy.seen().len();
    let ended = run.finish().expect_code(22);
    assert_eq!(lane.proxy.seen().len(), asked, "something was asked after the loss: {:#?}", lane.proxy.seen());
    let verdict = &ended.verdict()["data"];
    let says = "stopping \"Run the command\": this cluster's lock could not be renewed for 1m0s";
    assert!(text(&lost["data"]["text"]).starts_with(says), "{lost}");
    assert_eq!((&verdict["lock"], &verdict["counts"]["renewal_gaps"]), (&json!("lost"), &json!(1)), "{verdict}");
    assert_eq!(lane.signals(), "TERM\n", "the command is asked to stop, once");
    assert_eq!(verdict["command_end"], json!({ "exit_code": 5 }));
    // It is still the run's by name, and left for whoever looks.
    let after = lane.lease().expect("it is left alone");
    assert_eq!(
        (&after["metadata"]["uid"], text(&after["spec"]["holderIdentity"])),
        (&before["metadata"]["uid"], text(&verdict["holder"]))
    );
    said_once(&ended.events());
}
