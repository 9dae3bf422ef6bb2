//! The world of one schedule: its time, its Lease, its network, its runs, and one person who reclaims.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Code, Failure};
use crate::lock::change::Change;
use crate::lock::protocol::life::{Effect, Input};
use crate::lock::protocol::schedules::candidate::{Candidate, Mistake, Stage};
use crate::lock::protocol::schedules::network::{Dice, Weather};
use crate::lock::protocol::{Answer, Ask, ClaimError, Lost};
use crate::lock::record::Record;
use crate::lock::store::{Created, Deleted, Replaced, Trouble};
use crate::lock::timing::Timing;
use crate::lock::twin::Cell;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(600);
const BOB: &str = "bob@laptop/1/00000000000000b0";

/// What must never happen. The names are suffixes of identities.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Violation {
    TwoMayAct(Duration, String, String),
    TakenFromTheLiving(Duration, String),
    ForeignReplace(Duration, String),
    ForeignDelete(Duration, String),
    CreatedByReplace,
    LeftBehind(String),
}

/// How much happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) claims: u64,
    pub(super) busy: u64,
    pub(super) lost: u64,
    pub(super) released: u64,
    pub(super) reclaims: u64,
    pub(super) unclear: u64,
    pub(super) late: u64,
    pub(super) doubled: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Seen) {
        self.claims += other.claims;
        self.busy += other.busy;
        self.lost += other.lost;
        self.released += other.released;
        self.reclaims += other.reclaims;
        self.unclear += other.unclear;
        self.late += other.late;
        self.doubled += other.doubled;
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// The run does something.
    Run(usize, Act),
    /// The machine is due, or was when this was planned.
    Tick(usize),
    Arrives {
        from: usize,
        request: u64,
        ask: Ask,
        body: Option<Value>,
        reply: Option<Duration>,
    },
    Replied {
        to: usize,
        request: u64,
        answer: Answer,
    },
    TimedOut {
        to: usize,
        request: u64,
    },
    Bob(Bob),
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Claim,
    Check,
    Note,
    Release,
    Suspend(Duration),
    /// From here on nothing that it sends arrives, and nothing reaches it.
    CutOff,
    Die,
}

/// The person who reclaims a lock whose run seems gone: watches it for a whole validity on their own clock, takes it,
/// and gives it back. No margin on top here, so that a deadline which is late by a moment is found.
#[derive(Debug, Clone)]
enum Bob {
    Looks,
    LooksAgain(Box<Record>),
    Takes(Box<Record>),
    GivesBack(Box<Record>),
}

/// One schedule.
#[derive(Debug)]
pub(super) struct World {
    now: Duration,
    dice: Dice,
    weather: Weather,
    cell: Cell,
    runs: Vec<Candidate>,
    bob_holds: bool,
    /// How many more times the person begins to watch right after a write, the worst moment for the holder.
    bob_watches: u64,
    events: BTreeMap<(Duration, u64), Event>,
    counter: u64,
    violation: Option<Violation>,
    pub(super) seen: Seen,
}

impl World {
    pub(super) fn new(seed: u64, mistake: Mistake) -> World {
        let mut dice = Dice::new(seed);
        let weather = Weather { trouble_in: [3, 6, 15, 60][usize::try_from(dice.number(4)).expect("small")] };
        let many = 2 + dice.number(2);
        let hour = 3_600_000;
        let runs = (1..=many)
            .map(|number| {
                let wall = i64::try_from(dice.number(2 * hour)).expect("small") - i64::try_from(hour).expect("small");
                Candidate::new(number, mistake, dice.millis(0, 1_000_000), wall)
            })
            .collect();
        let mut world = World {
            now: Duration::ZERO,
            dice,
            weather,
            cell: Cell::default(),
            runs,
            bob_holds: false,
            bob_watches: 0,
            events: BTreeMap::new(),
            counter: 0,
            violation: None,
            seen: Seen::default(),
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        for run in 0..self.runs.len() {
            let start = self.dice.millis(0, 20_000);
            self.plan(start, Event::Run(run, Act::Claim));
            if self.dice.one_in(3) {
                let at = start + self.dice.millis(0, 8_000);
                self.plan(at, Event::Run(run, Act::Release));
            }
            if self.dice.one_in(3) {
                let at = self.dice.millis(0, 120_000);
                let asleep = self.dice.millis(1_000, 150_000);
                self.plan(at, Event::Run(run, Act::Suspend(asleep)));
            }
            if self.dice.one_in(3) {
                let at = self.dice.millis(0, 120_000);
                self.plan(at, Event::Run(run, Act::CutOff));
            }
            if self.dice.one_in(8) {
                let at = self.dice.millis(0, 120_000);
                self.plan(at, Event::Run(run, Act::Die));
            }
        }
        if self.dice.one_in(2) {
            self.cell.put(json!({ "spec": {} }));
        }
        if self.dice.one_in(2) {
            self.bob_watches = 1 + self.dice.number(6);
        }
    }

    fn plan(&mut self, at: Duration, event: Event) {
        self.counter += 1;
        self.events.insert((at, self.counter), event);
    }

    fn plan_in(&mut self, delay: Duration, event: Event) {
        self.plan(self.now + delay, event);
    }

    /// Plays the schedule to its end, or to the first violation.
    pub(super) fn play(&mut self) -> Result<(), Violation> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > END {
                break;
            }
            self.now = self.now.max(at);
            self.happen(event);
            self.check();
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        match self.left_behind() {
            Some(name) => Err(Violation::LeftBehind(name)),
            None => Ok(()),
        }
    }

    fn happen(&mut self, event: Event) {
        let sleeper = match &event {
            Event::Run(run, _) | Event::Tick(run) => Some(*run),
            Event::Replied { to, .. } | Event::TimedOut { to, .. } => Some(*to),
            Event::Arrives { .. } | Event::Bob(_) => None,
        };
        if let Some(run) = sleeper {
            if self.runs[run].stage == Stage::Dead {
                return;
            }
            let until = self.runs[run].suspended_until;
            if until > self.now {
                return self.plan(until, event);
            }
        }
        match event {
            Event::Run(run, act) => self.act(run, act),
            Event::Tick(run) => self.advance(run, Input::Tick),
            Event::Arrives { from, request, ask, body, reply } => {
                let answer = self.apply(from, &ask, body.as_ref());
                self.bob_notices(&answer);
                if let Some(delay) = reply {
                    self.plan_in(delay, Event::Replied { to: from, request, answer });
                }
            }
            Event::Replied { to, request, answer } => self.answered(to, request, answer),
            Event::TimedOut { to, request } => {
                if self.runs[to].waits_for == Some(request) {
                    self.seen.unclear += 1;
                    let asked = self.unanswered(to);
                    self.answered(to, request, asked);
                }
            }
            Event::Bob(bob) => self.bob(bob),
        }
    }

    fn act(&mut self, run: usize, act: Act) {
        match act {
            Act::Claim if self.runs[run].stage == Stage::Before => {
                self.runs[run].stage = Stage::Claiming;
                self.advance(run, Input::Claim);
            }
            Act::Check if self.runs[run].stage == Stage::Working => self.advance(run, Input::Check),
            Act::Note if self.runs[run].stage == Stage::Working => {
                self.advance(run, Input::Note(BTreeMap::from([("step".to_owned(), Some("x".to_owned()))])));
            }
            Act::Release if !matches!(self.runs[run].stage, Stage::Releasing | Stage::Over(_)) => {
                self.runs[run].stage = Stage::Releasing;
                self.runs[run].has_nothing(None);
                self.advance(run, Input::Release);
            }
            Act::Suspend(asleep) => self.runs[run].suspended_until = self.now + asleep,
            Act::CutOff => self.runs[run].cut_off = true,
            Act::Die => self.runs[run].stage = Stage::Dead,
            Act::Claim | Act::Check | Act::Note | Act::Release => {}
        }
    }

    fn answered(&mut self, run: usize, request: u64, answer: Answer) {
        if self.runs[run].waits_for == Some(request) {
            self.runs[run].waits_for = None;
            let answer = self.runs[run].believes(answer, self.now);
            self.advance(run, Input::Answer(answer));
        }
    }

    fn advance(&mut self, run: usize, input: Input) {
        let now = self.runs[run].now(self.now);
        for effect in self.runs[run].life.advance(input, now) {
            match effect {
                Effect::Ask(ask) => self.send(run, ask),
                Effect::Claimed(Ok(claimed)) => {
                    self.seen.claims += 1;
                    if self.runs[run].stage == Stage::Claiming {
                        self.runs[run].stage = Stage::Working;
                        self.runs[run].has_until(claimed.sent_at, self.now);
                        self.work(run);
                    }
                }
                Effect::Claimed(Err(error)) => self.no_claim(run, &error),
                Effect::Tell(Change::Renewed { sent_at, .. }) => {
                    if self.runs[run].stage == Stage::Working {
                        self.runs[run].has_until(sent_at, self.now);
                    }
                }
                Effect::Tell(Change::Lost(lost)) => self.lost(run, &lost),
                Effect::Checked(..)
                | Effect::Tell(Change::RenewalFailed { .. } | Change::Waiting { .. } | Change::Releasing { .. }) => {}
                Effect::Released(released) => {
                    self.seen.released += 1;
                    self.runs[run].stage = Stage::Over(released);
                }
            }
        }
        if let Some(due) = self.runs[run].due() {
            self.plan(due.max(self.now), Event::Tick(run));
        }
    }

    /// The steps of a run that has the lock.
    fn work(&mut self, run: usize) {
        for _ in 0..self.dice.number(6) {
            let at = self.dice.millis(0, 60_000);
            let act = if self.dice.one_in(2) { Act::Check } else { Act::Note };
            self.plan_in(at, Event::Run(run, act));
        }
        let end = self.dice.millis(100, 90_000);
        self.plan_in(end, Event::Run(run, Act::Release));
    }

    fn no_claim(&mut self, run: usize, error: &ClaimError) {
        if let ClaimError::Busy(_) = error {
            self.seen.busy += 1;
        }
        if self.runs[run].stage != Stage::Claiming {
            return;
        }
        self.runs[run].stage = Stage::Before;
        let act = if self.runs[run].tries_again(error) { Act::Claim } else { Act::Release };
        let pause = self.dice.millis(10, 30_000);
        self.plan_in(pause, Event::Run(run, act));
    }

    fn lost(&mut self, run: usize, lost: &Lost) {
        self.seen.lost += 1;
        self.runs[run].has_nothing(Some(lost));
        let stopping = self.dice.millis(100, 20_000);
        self.plan_in(stopping, Event::Run(run, Act::Release));
    }

    fn send(&mut self, run: usize, ask: Ask) {
        self.counter += 1;
        let request = self.counter;
        self.runs[run].waits_for = Some(request);
        let mut way = self.weather.way(&mut self.dice);
        if self.runs[run].cut_off {
            way.arrivals.clear();
        }
        let body = match &ask {
            Ask::Replace(record) => Some(self.runs[run].writes(record)),
            Ask::Create(_) | Ask::CreateNamespace | Ask::Read | Ask::Delete { .. } => None,
        };
        let doubled = way.arrivals.len() > 1;
        let late = way.arrivals.iter().any(|delay| *delay >= Timing::STANDARD.look_again_after());
        self.seen.doubled += u64::from(doubled);
        self.seen.late += u64::from(late);
        // Only a claim has consequences after its sender has ended: everything else names what it is about.
        let claims = matches!(ask, Ask::Create(_)) || self.runs[run].stage == Stage::Claiming;
        self.runs[run].unlucky |= claims && (doubled || late);
        for (arrival, reply) in way.arrivals.into_iter().zip(way.replies) {
            let event = Event::Arrives { from: run, request, ask: ask.clone(), body: body.clone(), reply };
            self.plan_in(arrival, event);
        }
        self.plan_in(REQUEST_TIMEOUT, Event::TimedOut { to: run, request });
        self.runs[run].asked = Some(ask);
    }

    /// What a request without an answer looks like.
    fn unanswered(&self, run: usize) -> Answer {
        let trouble = Trouble::Unclear(Failure::new(Code::ClusterUnreachable, "no answer in time"));
        match self.runs[run].asked.as_ref().expect("it waits for something") {
            Ask::Create(_) => Answer::Created(Err(trouble)),
            Ask::CreateNamespace => Answer::NamespaceCreated(Err(trouble)),
            Ask::Read => Answer::Read(Err(trouble)),
            Ask::Replace(_) => Answer::Replaced(Err(trouble)),
            Ask::Delete { .. } => Answer::Deleted(Err(trouble)),
        }
    }

    /// The API server does a request.
    fn apply(&mut self, from: usize, ask: &Ask, body: Option<&Value>) -> Answer {
        let foreign = |world: &World| {
            let holder = world.cell.holder()?;
            (!world.runs[from].is(holder)).then(|| holder.to_owned())
        };
        match ask {
            Ask::Create(draft) => Answer::Created(self.cell.create(draft)),
            Ask::CreateNamespace => Answer::NamespaceCreated(self.cell.create_namespace()),
            Ask::Read => Answer::Read(self.cell.read()),
            Ask::Replace(_) => {
                let before = foreign(self);
                let answer = self.cell.replace(body.expect("a replace has a body"));
                if let (Some(victim), Ok(Replaced::Stored(_))) = (before, &answer) {
                    self.violate(Violation::ForeignReplace(self.now, victim));
                }
                Answer::Replaced(answer)
            }
            Ask::Delete { uid, version } => {
                let before = foreign(self);
                let careless = self.runs[from].mistake == Mistake::DeleteWithoutPreconditions;
                let found = self.cell.record().filter(|_| careless);
                let (uid, version) =
                    found.as_ref().map_or((uid.as_str(), version.as_str()), |found| (found.uid(), found.version()));
                let answer = self.cell.delete(uid, version);
                if let (Some(victim), Ok(Deleted::Gone)) = (before, &answer) {
                    self.violate(Violation::ForeignDelete(self.now, victim));
                }
                Answer::Deleted(answer)
            }
        }
    }

    fn bob_notices(&mut self, answer: &Answer) {
        let written =
            matches!(answer, Answer::Replaced(Ok(Replaced::Stored(_))) | Answer::Created(Ok(Created::Stored(_))));
        if written && self.bob_watches > 0 && self.dice.one_in(3) {
            self.bob_watches -= 1;
            let delay = self.dice.millis(0, 1_000);
            self.plan_in(delay, Event::Bob(Bob::Looks));
        }
    }

    /// One more thing that the reclaiming person does. Their requests are done at once or not at all; what the network
    /// does to them is tested where reclaiming is.
    fn bob(&mut self, bob: Bob) {
        match bob {
            Bob::Looks => {
                if let Some(record) = self.cell.record().filter(|record| record.holder().is_some()) {
                    self.plan_in(record.validity(), Event::Bob(Bob::LooksAgain(Box::new(record))));
                }
            }
            Bob::LooksAgain(before) => {
                if self.cell.record().as_ref() == Some(&*before) {
                    let delay = self.dice.millis(0, 500);
                    self.plan_in(delay, Event::Bob(Bob::Takes(before)));
                }
            }
            Bob::Takes(before) => self.bob_takes(&before),
            Bob::GivesBack(taken) => {
                self.bob_holds = false;
                drop(self.cell.delete(taken.uid(), taken.version()));
            }
        }
    }

    fn bob_takes(&mut self, before: &Record) {
        let mut body = before.json().clone();
        body["spec"]["holderIdentity"] = json!(BOB);
        let Ok(Replaced::Stored(taken)) = self.cell.replace(&body) else { return };
        self.seen.reclaims += 1;
        self.bob_holds = true;
        let victim = before.holder().unwrap_or_default();
        if let Some(living) = self.runs.iter().find(|run| run.is(victim) && run.may_act(self.now)) {
            let name = living.id.to_string();
            self.violate(Violation::TakenFromTheLiving(self.now, name));
        }
        let delay = self.dice.millis(10, 10_000);
        self.plan_in(delay, Event::Bob(Bob::GivesBack(Box::new(taken))));
    }

    fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    fn check(&mut self) {
        let acting: Vec<String> =
            self.runs.iter().filter(|run| run.may_act(self.now)).map(|run| run.id.to_string()).collect();
        if let [one, other, ..] = acting.as_slice() {
            self.violate(Violation::TwoMayAct(self.now, one.clone(), other.clone()));
        } else if let [one] = acting.as_slice()
            && self.bob_holds
        {
            self.violate(Violation::TwoMayAct(self.now, one.clone(), BOB.to_owned()));
        }
        if self.cell.created_by_replace > 0 {
            self.violate(Violation::CreatedByReplace);
        }
    }

    /// Who is named in the Lease although they said that nothing of theirs is there.
    fn left_behind(&self) -> Option<String> {
        let holder = self.cell.holder()?;
        let run = self.runs.iter().find(|run| run.is(holder))?;
        (!run.unlucky && !run.has_said_so()).then(|| holder.to_owned())
    }
}
