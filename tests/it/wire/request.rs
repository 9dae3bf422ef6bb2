//! The requests that are made about the lock, and how each is brought about and met by a mishap.

use serde_json::Value;

use crate::bed::dcctl::{Finished, Running};
use crate::bed::{Fault, Gate, Rule, wait};
use crate::lock::rig::of_kind;
use crate::wire::lane::{ALICE, Lane, Namespace};
use crate::wire::mishap::{FORBIDDEN, Mishap, status};

/// One request of a claim, a renewal, a release, or a person's reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// The POST of the claim.
    Claim,
    /// The GET after the POST was answered by 409.
    BusyRead,
    /// The PUT onto a Lease that names nobody.
    Take,
    /// The POST of the namespace, where it is missing.
    NamespaceCreate,
    /// The GET after a POST that came through without an answer.
    SettlingRead,
    /// The GET that looks for a claim that may have landed late.
    LateRead,
    /// The DELETE of such a claim.
    LateDelete,
    /// The PUT of an empty holder, after that DELETE was forbidden.
    LateEmpty,
    /// The GET of the renewal that comes before anything is begun.
    FirstRead,
    /// Its PUT.
    FirstWrite,
    /// The GET of a renewal while the command is at work.
    LaterRead,
    /// Its PUT.
    LaterWrite,
    /// The DELETE that gives the lock back.
    Release,
    /// The GET after that had no answer.
    ReleaseRead,
    /// The PUT of an empty holder, after the DELETE was forbidden.
    ReleaseEmpty,
    /// The GET after that had no answer.
    ReleaseEmptyRead,
    /// The GET whose answer a person is shown.
    PersonLooks,
    /// The GET that confirms what they were shown, once they typed it.
    PersonConfirms,
    /// A GET within the window.
    PersonWatches,
    /// The PUT that takes the lock.
    PersonTakes,
    /// The GET after that had no answer.
    PersonSettles,
    /// The DELETE that gives it back at once.
    PersonReleases,
    /// The GET after that had no answer.
    PersonReleaseRead,
    /// The PUT of an empty holder, after that DELETE was forbidden.
    PersonEmpties,
}

/// How a row ended.
pub(super) struct Ended {
    pub(super) exit: Option<i32>,
    /// The verdict of a run; nothing for a person.
    pub(super) verdict: Option<Value>,
    /// Everything that was said.
    pub(super) said: String,
    /// The Lease as it was before.
    pub(super) before: Option<Value>,
}

impl Request {
    /// All of them. The match in [`Request::rule`] is what the compiler checks.
    pub(super) const ALL: [Request; 24] = [
        Request::Claim,
        Request::BusyRead,
        Request::Take,
        Request::NamespaceCreate,
        Request::SettlingRead,
        Request::LateRead,
        Request::LateDelete,
        Request::LateEmpty,
        Request::FirstRead,
        Request::FirstWrite,
        Request::LaterRead,
        Request::LaterWrite,
        Request::Release,
        Request::ReleaseRead,
        Request::ReleaseEmpty,
        Request::ReleaseEmptyRead,
        Request::PersonLooks,
        Request::PersonConfirms,
        Request::PersonWatches,
        Request::PersonTakes,
        Request::PersonSettles,
        Request::PersonReleases,
        Request::PersonReleaseRead,
        Request::PersonEmpties,
    ];

    /// Whether the lock's namespace is there before.
    pub(super) fn namespace(self) -> Namespace {
        if self == Request::NamespaceCreate { Namespace::Missing } else { Namespace::There }
    }

    /// Exactly the one request, counted from when the rule is added.
    fn rule(self) -> Rule {
        let on = |method: &str| Rule::on(method, "/leases/dcctl");
        match self {
            Request::Claim => creates().nth(1),
            Request::BusyRead | Request::SettlingRead => on("GET").after("POST", "/leases").nth(1),
            Request::NamespaceCreate => Rule::on("POST", "/api/v1/namespaces").nth(1),
            // The first one comes after the time-out of the claim that is held up.
            Request::LateRead => on("GET").nth(2),
            Request::FirstRead
            | Request::LaterRead
            | Request::PersonLooks
            | Request::PersonConfirms
            | Request::PersonWatches => on("GET").nth(1),
            Request::Take | Request::FirstWrite | Request::LaterWrite | Request::PersonTakes => on("PUT").nth(1),
            Request::LateDelete | Request::Release | Request::PersonReleases => on("DELETE").nth(1),
            Request::PersonSettles => on("GET").after("PUT", "/leases").nth(1),
            Request::ReleaseRead | Request::ReleaseEmptyRead | Request::PersonReleaseRead => {
                on("GET").after("DELETE", "/leases").nth(1)
            }
            Request::ReleaseEmpty | Request::LateEmpty | Request::PersonEmpties => {
                on("PUT").after("DELETE", "/leases").nth(1)
            }
        }
    }

    /// What else has to go wrong for it to be made at all.
    fn brought_about_by(self) -> Vec<Rule> {
        let delete = || Rule::on("DELETE", "/leases/dcctl");
        let no = || Fault::Answer(403, status(403, "Forbidden", FORBIDDEN));
        match self {
            Request::SettlingRead => vec![creates().nth(1).reply(Fault::Drop)],
            Request::ReleaseRead | Request::PersonReleaseRead => vec![delete().nth(1).reply(Fault::Drop)],
            Request::ReleaseEmpty | Request::LateEmpty | Request::PersonEmpties => vec![delete().request(no())],
            Request::ReleaseEmptyRead => {
                let empties = Rule::on("PUT", "/leases/dcctl").after("DELETE", "/leases").nth(1);
                vec![empties.reply(Fault::Drop), delete().request(no())]
            }
            Request::PersonSettles => vec![Rule::on("PUT", "/leases/dcctl").nth(1).reply(Fault::Drop)],
            Request::Claim
            | Request::BusyRead
            | Request::Take
            | Request::NamespaceCreate
            | Request::LateRead
            | Request::LateDelete
            | Request::FirstRead
            | Request::FirstWrite
            | Request::LaterRead
            | Request::LaterWrite
            | Request::Release
            | Request::PersonLooks
            | Request::PersonConfirms
            | Request::PersonWatches
            | Request::PersonTakes
            | Request::PersonReleases => Vec::new(),
        }
    }

    /// Brings it about on this lane, lets it meet the mishap, and waits for the end of the row.
    pub(super) fn meets(self, mishap: Mishap, lane: &Lane<'_>) -> Ended {
        let rule = mishap.happens_to(self.rule(), &format!("{}/elsewhere", lane.proxy.address()));
        let rules: Vec<Rule> = std::iter::once(rule).chain(self.brought_about_by()).collect();
        match self {
            Request::Claim
            | Request::NamespaceCreate
            | Request::SettlingRead
            | Request::FirstRead
            | Request::FirstWrite
            | Request::Release
            | Request::ReleaseRead
            | Request::ReleaseEmpty
            | Request::ReleaseEmptyRead => {
                add(lane, rules);
                ended(lane.exec("true").run(), None)
            }
            Request::BusyRead | Request::Take => {
                let before = lane.write("");
                add(lane, rules);
                ended(lane.exec("true").run(), Some(before))
            }
            Request::LateRead | Request::LateDelete | Request::LateEmpty => late(lane, rules),
            Request::LaterRead | Request::LaterWrite => later(lane, rules),
            Request::PersonLooks
            | Request::PersonConfirms
            | Request::PersonWatches
            | Request::PersonTakes
            | Request::PersonSettles
            | Request::PersonReleases
            | Request::PersonReleaseRead
            | Request::PersonEmpties => self.person(mishap, lane, rules),
        }
    }

    /// A person reclaims what Alice left behind.
    fn person(self, mishap: Mishap, lane: &Lane<'_>, rules: Vec<Rule>) -> Ended {
        let before = lane.write(ALICE);
        let expected = crate::wire::expected::expected(self, mishap).exit;
        let mut rules = Some(rules);
        let mut now = |request: bool| add(lane, rules.take_if(|_| request).unwrap_or_default());
        now(self == Request::PersonLooks);
        let seat = lane.reclaim();
        if self != Request::PersonLooks || expected == 0 {
            seat.wait_for("Type the holder identity above");
            now(self == Request::PersonConfirms);
            seat.type_line(ALICE);
            if self != Request::PersonConfirms || expected == 0 {
                seat.wait_for("no renewal so far; ");
                now(true);
                lane.suspend(66);
            }
        }
        let said = seat.expect_code(expected);
        Ended { exit: Some(expected), verdict: None, said, before: Some(before) }
    }
}

/// From now on these rules hold, the first one first.
fn add(lane: &Lane<'_>, rules: Vec<Rule>) {
    for rule in rules {
        lane.proxy.add(rule);
    }
}

fn creates() -> Rule {
    Rule::on("POST", "/namespaces/dc-k8s-system/leases")
}

fn ended(finished: Finished, before: Option<Value>) -> Ended {
    Ended { exit: finished.code(), verdict: Some(finished.verdict()), said: finished.stdout, before }
}

/// A claim is on its way for long; meanwhile the run is told that it may not claim at all, and only then it lands.
fn late(lane: &Lane<'_>, rules: Vec<Rule>) -> Ended {
    let gate = Gate::new();
    add(lane, rules);
    lane.proxy.add(creates().nth(1).request(Fault::Hold(gate.clone())));
    lane.proxy.add(creates().request(Fault::Answer(403, status(403, "Forbidden", FORBIDDEN))));
    let run = lane.exec("true").start();
    wait::fact("the second claim to be refused", || {
        lane.proxy.seen().iter().any(|seen| seen.method == "POST" && seen.fault == Some("answered")).then_some(())
    });
    gate.open();
    wait::fact("the first claim to land", || lane.lease());
    ended(run.finish(), None)
}

/// The command is at work, and has been written into the Lease; then a renewal suffers, and another one follows.
fn later(lane: &Lane<'_>, rules: Vec<Rule>) -> Ended {
    let gate = lane.gate("go");
    let run = lane.exec("read status < @/go && exit $status").start();
    wait::fact("the command to be noted", || {
        lane.lease().filter(|lease| lease["metadata"]["annotations"].get("dcctl.devicechain.io/children").is_some())
    });
    add(lane, rules);
    wait::fact("a renewal to suffer", || (lane.suffered() > 0).then_some(()));
    renewed_after_the_last_failure(lane, &run);
    gate.open(0);
    ended(run.finish(), None)
}

/// Waits until the Lease is newer than what a renewal that suffered could have made it.
fn renewed_after_the_last_failure(lane: &Lane<'_>, run: &Running) {
    let journal = run.journal();
    let before = of_kind(&journal.events(), "lock.renewed").len();
    let at = |lease: Option<Value>| lease.map(|lease| lease["spec"]["renewTime"].clone());
    let then = at(lane.lease());
    wait::fact("the lock to be renewed", || {
        let renewed = of_kind(&journal.events(), "lock.renewed").len() > before;
        (renewed && at(lane.lease()) != then).then_some(())
    });
}
