//! The world of one schedule: its time, its Lease, its runs, and a person who reclaims.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Code, Failure};
use crate::lock::change::Change;
use crate::lock::protocol::life::{Effect, Input};
use crate::lock::protocol::reclaim;
use crate::lock::protocol::schedules::candidate::{Candidate, Clocks, Mistake, Stage, Stray};
use crate::lock::protocol::schedules::chance::{Chance, Dice};
use crate::lock::protocol::schedules::event::{Event, Party, is_for_the_person, sleeper};
use crate::lock::protocol::schedules::fortune::{Act, Farewell, Fortune};
use crate::lock::protocol::schedules::person::{self, Person};
use crate::lock::protocol::{Answer, Ask, ClaimError, Lost};
use crate::lock::store::{Created, Deleted, Replaced, Trouble};
use crate::lock::timing::Timing;
use crate::lock::twin::Cell;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const END: Duration = Duration::from_secs(600);

/// What must never happen. The names are suffixes of identities.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Violation {
    TwoMayAct(Duration, String, String),
    /// A run may act while the Lease names another, or nobody.
    ActsUnnamed(Duration, String),
    /// A step was let begin without the right to.
    BeginsWithoutRight(Duration, String),
    /// The fence that the program acts by is not the one that it told.
    FencesDiffer(Duration, String),
    TakenFromTheLiving(Duration, String),
    ForeignReplace(Duration, String),
    ForeignDelete(Duration, String),
    CreatedByReplace,
    LeftBehind(String),
    /// It was neither killed, nor has it come to an end.
    NeverEnded(String),
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

/// How a schedule begins.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) runs: Vec<Candidate>,
    pub(super) person: Person,
    /// What runs do, and when.
    pub(super) plans: Vec<(Duration, usize, Act)>,
    /// There is a Lease that names nobody.
    pub(super) emptied: bool,
}

/// One schedule.
#[derive(Debug)]
pub(super) struct World<F> {
    now: Duration,
    pub(super) fortune: F,
    cell: Cell,
    runs: Vec<Candidate>,
    person: Person,
    events: BTreeMap<(Duration, u64), Event>,
    counter: u64,
    away_until: Duration,
    violation: Option<Violation>,
    pub(super) seen: Seen,
}

impl World<Chance> {
    /// A schedule that is drawn.
    pub(super) fn drawn(seed: u64, mistake: Mistake) -> World<Chance> {
        let mut dice = Dice::new(seed);
        let trouble_in = [3, 6, 15, 60][usize::try_from(dice.number(4)).expect("small")];
        let many = 2 + dice.number(2);
        let hour = 3_600_000;
        let clocks = |dice: &mut Dice| Clocks {
            boot: dice.millis(0, 1_000_000),
            wall: i64::try_from(dice.number(2 * hour)).expect("small") - i64::try_from(hour).expect("small"),
            pace: [980, 1_000, 1_020][usize::try_from(dice.number(3)).expect("small")],
        };
        let runs = (1..=many).map(|number| Candidate::new(number, mistake, clocks(&mut dice))).collect();
        let person = Person::new(mistake, clocks(&mut dice));
        let mut plans = Vec::new();
        for run in 0..usize::try_from(many).expect("small") {
            let start = dice.millis(0, 20_000);
            plans.push((start, run, Act::Claim));
            if dice.one_in(3) {
                plans.push((start + dice.millis(0, 8_000), run, Act::Release));
            }
            if dice.one_in(3) {
                plans.push((dice.millis(0, 120_000), run, Act::Suspend(dice.millis(1_000, 150_000))));
            }
            if dice.one_in(3) {
                plans.push((dice.millis(0, 120_000), run, Act::CutOff));
            }
            if dice.one_in(8) {
                plans.push((dice.millis(0, 120_000), run, Act::Die));
            }
        }
        let emptied = dice.one_in(2);
        let looks = if dice.one_in(2) { 1 + dice.number(6) } else { 0 };
        World::new(Setting { runs, person, plans, emptied }, Chance { dice, trouble_in, looks })
    }
}

impl<F: Fortune> World<F> {
    pub(super) fn new(setting: Setting, fortune: F) -> World<F> {
        let Setting { runs, person, plans, emptied } = setting;
        let mut world = World {
            now: Duration::ZERO,
            fortune,
            cell: Cell::default(),
            runs,
            person,
            events: BTreeMap::new(),
            counter: 0,
            away_until: Duration::ZERO,
            violation: None,
            seen: Seen::default(),
        };
        if emptied {
            world.cell.put(json!({ "spec": {} }));
        }
        for (at, run, act) in plans {
            world.plan(at, Event::Run(run, act));
        }
        world
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
        match (self.left_behind(), self.never_ended()) {
            (Some(name), _) => Err(Violation::LeftBehind(name)),
            (None, Some(name)) => Err(Violation::NeverEnded(name)),
            (None, None) => Ok(()),
        }
    }

    fn happen(&mut self, event: Event) {
        if let Some(run) = sleeper(&event)
            && self.is_beyond_reach(run, &event)
        {
            return;
        }
        if let Some(until) = self.person.sleeps_until(self.now)
            && is_for_the_person(&event)
        {
            self.plan(until, event);
            return;
        }
        match event {
            Event::Run(run, act) => self.act(run, act),
            Event::Tick(Party::Run(run)) => self.advance(run, Input::Tick),
            Event::Tick(Party::Person(number)) => self.person(number, reclaim::Input::Tick),
            Event::Arrives { from, request, ask, body, reply, stray } => {
                if self.away_until <= self.now {
                    let answer = self.served(from, &ask, body.as_ref());
                    self.has_stored(from, &answer, stray);
                    self.person_notices(from, &answer);
                    if let Some(delay) = reply {
                        self.plan_in(delay, Event::Replied { to: from, request, answer });
                    }
                }
            }
            Event::Replied { to, request, answer } => self.answered(to, request, answer),
            Event::TimedOut { to, request } => {
                if self.waits_for(to) == Some(request) {
                    self.seen.unclear += 1;
                    let answer = self.unanswered(to);
                    self.answered(to, request, answer);
                }
            }
            Event::Looks => {
                let effects = self.person.begins();
                self.person_does(effects);
            }
            Event::Types(number, line) => self.person(number, reclaim::Input::Typed(line)),
            Event::Befalls(number, Farewell::Interrupts) => self.person(number, reclaim::Input::Interrupted),
            Event::Befalls(number, Farewell::Dies) => self.person.dies(number),
            Event::Befalls(number, Farewell::Sleeps(asleep)) => self.person.sleeps(number, self.now + asleep),
        }
    }

    /// Whether a run does not notice this: it is dead, or asleep, and then it notices when it wakes.
    fn is_beyond_reach(&mut self, run: usize, event: &Event) -> bool {
        if self.runs[run].stage == Stage::Dead {
            return true;
        }
        let takes_part = matches!(event, Event::Run(..) | Event::Replied { .. } | Event::TimedOut { .. });
        if self.runs[run].suspended_until <= self.now
            && takes_part
            && !matches!(self.runs[run].stage, Stage::Over(_))
            && let Some(fate) = self.fortune.befalls()
        {
            self.act(run, fate);
        }
        let until = self.runs[run].suspended_until;
        if until > self.now {
            self.plan(until, event.clone());
        }
        until > self.now || self.runs[run].stage == Stage::Dead
    }

    fn waits_for(&self, party: Party) -> Option<u64> {
        match party {
            Party::Run(run) => self.runs[run].waits_for,
            Party::Person(number) => self.person.waits_for.filter(|_| self.person.number == number),
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
                self.runs[run].has_nothing();
                self.advance(run, Input::Release);
            }
            Act::Suspend(asleep) => self.runs[run].suspended_until = self.now + asleep,
            Act::CutOff => self.runs[run].cut_off = true,
            Act::Die => self.runs[run].stage = Stage::Dead,
            Act::Claim | Act::Check | Act::Note | Act::Release => {}
        }
    }

    fn answered(&mut self, to: Party, request: u64, answer: Answer) {
        if self.waits_for(to) != Some(request) {
            return;
        }
        match to {
            Party::Run(run) => {
                self.runs[run].waits_for = None;
                if answer.silence().is_none() {
                    self.runs[run].answered.insert(request);
                }
                let answer = self.runs[run].believes(answer, self.now);
                self.advance(run, Input::Answer(answer));
            }
            Party::Person(number) => {
                self.person.waits_for = None;
                self.person(number, reclaim::Input::Answer(answer));
            }
        }
    }

    fn advance(&mut self, run: usize, input: Input) {
        let now = self.runs[run].now(self.now);
        for effect in self.runs[run].life.advance(input, now) {
            match effect {
                Effect::Ask(ask) => self.send(Party::Run(run), &ask),
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
                Effect::Checked(_, answer) => self.checked(run, answer.is_ok()),
                Effect::Tell(Change::RenewalFailed { .. } | Change::Waiting { .. } | Change::Releasing { .. }) => {}
                Effect::Released(released) => {
                    self.seen.released += 1;
                    self.runs[run].stage = Stage::Over(released);
                }
            }
        }
        if let Some(due) = self.runs[run].due() {
            self.plan(due.max(self.now), Event::Tick(Party::Run(run)));
        }
    }

    /// A step begins, if it may.
    fn checked(&mut self, run: usize, yes: bool) {
        // Who gives the lock back begins nothing more, whatever is said to what it asked before.
        let works = self.runs[run].stage == Stage::Working;
        let begins = works && (yes || self.runs[run].mistake == Mistake::BeginsUnasked);
        let holds = self.cell.holder().is_some_and(|holder| self.runs[run].is(holder));
        if begins && !(holds && self.runs[run].may_begin(self.now)) {
            self.violate(Violation::BeginsWithoutRight(self.now, self.runs[run].id.to_string()));
        }
    }

    /// The steps of a run that has the lock.
    fn work(&mut self, run: usize) {
        for (at, act) in self.fortune.work() {
            self.plan_in(at, Event::Run(run, act));
        }
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
        let pause = self.fortune.pause();
        self.plan_in(pause, Event::Run(run, act));
    }

    fn lost(&mut self, run: usize, lost: &Lost) {
        self.seen.lost += 1;
        if self.runs[run].misses(lost) {
            return;
        }
        self.runs[run].has_nothing();
        let stopping = self.fortune.stops();
        self.plan_in(stopping, Event::Run(run, Act::Release));
    }

    fn send(&mut self, from: Party, ask: &Ask) {
        self.counter += 1;
        let request = self.counter;
        let mut way = self.fortune.way(ask);
        self.away_until = self.away_until.max(self.now + way.outage);
        let doubled = way.arrivals.len() > 1;
        let late = way.arrivals.iter().any(|(there, _)| *there >= Timing::STANDARD.look_again_after());
        self.seen.doubled += u64::from(doubled);
        self.seen.late += u64::from(late);
        let (mut body, mut claims) = (None, false);
        match from {
            Party::Run(run) => {
                let run = &mut self.runs[run];
                run.waits_for = Some(request);
                if run.cut_off {
                    way.arrivals.clear();
                }
                if let Ask::Replace(record) = ask {
                    body = Some(run.writes(record));
                }
                // Only a claim has consequences after its sender has ended: everything else names what it is about.
                claims = matches!(ask, Ask::Create(_)) || run.stage == Stage::Claiming;
                run.asked = Some(ask.clone());
            }
            Party::Person(_) => {
                self.person.waits_for = Some(request);
                self.person.asked = Some(ask.clone());
            }
        }
        for (there, reply) in way.arrivals {
            let late = there >= Timing::STANDARD.look_again_after();
            let stray = (claims && (doubled || late)).then_some(Stray { request, late });
            let event = Event::Arrives { from, request, ask: ask.clone(), body: body.clone(), reply, stray };
            self.plan_in(there, event);
        }
        self.plan_in(REQUEST_TIMEOUT, Event::TimedOut { to: from, request });
    }

    /// What a request without an answer looks like.
    fn unanswered(&self, party: Party) -> Answer {
        let trouble = Trouble::Unclear(Failure::new(Code::ClusterUnreachable, "no answer in time"));
        let asked = match party {
            Party::Run(run) => &self.runs[run].asked,
            Party::Person(_) => &self.person.asked,
        };
        match asked.as_ref().expect("it waits for something") {
            Ask::Create(_) => Answer::Created(Err(trouble)),
            Ask::CreateNamespace => Answer::NamespaceCreated(Err(trouble)),
            Ask::Read => Answer::Read(Err(trouble)),
            Ask::Replace(_) => Answer::Replaced(Err(trouble)),
            Ask::Delete { .. } => Answer::Deleted(Err(trouble)),
        }
    }

    /// The API server does a request.
    fn served(&mut self, from: Party, ask: &Ask, body: Option<&Value>) -> Answer {
        match from {
            Party::Run(run) => self.serve_run(run, ask, body),
            Party::Person(number) => self.serve_person(number, ask),
        }
    }

    /// What became of a write of a run: from here on the Lease is what this one made of it.
    fn has_stored(&mut self, from: Party, answer: &Answer, stray: Option<Stray>) {
        let stored =
            matches!(answer, Answer::Replaced(Ok(Replaced::Stored(_))) | Answer::Created(Ok(Created::Stored(_))));
        if let Party::Run(run) = from
            && stored
        {
            self.runs[run].unseen = stray;
        }
    }

    fn serve_run(&mut self, from: usize, ask: &Ask, body: Option<&Value>) -> Answer {
        let victim = self.cell.holder().filter(|holder| !self.runs[from].is(holder)).map(str::to_owned);
        match ask {
            Ask::Create(draft) => Answer::Created(self.cell.create(draft)),
            Ask::CreateNamespace => Answer::NamespaceCreated(self.cell.create_namespace()),
            Ask::Read => Answer::Read(self.cell.read()),
            Ask::Replace(_) => {
                let answer = self.cell.replace(body.expect("a replace has a body"));
                if let (Some(victim), Ok(Replaced::Stored(_))) = (victim, &answer) {
                    self.violate(Violation::ForeignReplace(self.now, victim));
                }
                Answer::Replaced(answer)
            }
            Ask::Delete { uid, version } => {
                let careless = self.runs[from].mistake == Mistake::DeleteWithoutPreconditions;
                let found = self.cell.record().filter(|_| careless);
                let (uid, version) =
                    found.as_ref().map_or((uid.as_str(), version.as_str()), |found| (found.uid(), found.version()));
                let answer = self.cell.delete(uid, version);
                if let (Some(victim), Ok(Deleted::Gone)) = (victim, &answer) {
                    self.violate(Violation::ForeignDelete(self.now, victim));
                }
                Answer::Deleted(answer)
            }
        }
    }

    fn serve_person(&mut self, number: u64, ask: &Ask) -> Answer {
        let own = person::name(number);
        let victim = self.cell.holder().filter(|holder| !own.is(holder)).map(str::to_owned);
        let answer = self.person.served(&mut self.cell, ask);
        if let Some(victim) = victim {
            if Person::has_taken(&answer) {
                self.seen.reclaims += 1;
                if self.runs.iter().any(|run| run.is(&victim) && run.may_act(self.now)) {
                    self.violate(Violation::TakenFromTheLiving(self.now, victim));
                }
            } else if Person::has_deleted(&answer) {
                self.violate(Violation::ForeignDelete(self.now, victim));
            }
        }
        answer
    }

    fn person_notices(&mut self, from: Party, answer: &Answer) {
        let written =
            matches!(answer, Answer::Replaced(Ok(Replaced::Stored(_))) | Answer::Created(Ok(Created::Stored(_))));
        if written
            && matches!(from, Party::Run(_))
            && let Some(delay) = self.fortune.looks()
        {
            self.plan_in(delay, Event::Looks);
        }
    }

    fn person(&mut self, number: u64, input: reclaim::Input) {
        if self.person.number == number {
            let effects = self.person.advance(input, self.now);
            self.person_does(effects);
        }
    }

    fn person_does(&mut self, effects: Vec<reclaim::Effect>) {
        let number = self.person.number;
        for effect in effects {
            match effect {
                reclaim::Effect::Ask(ask) => self.send(Party::Person(number), &ask),
                reclaim::Effect::Show(seen) => {
                    let holder = seen.record().holder().unwrap_or_default().to_owned();
                    let typing = self.fortune.types();
                    self.plan_in(typing, Event::Types(number, holder));
                    if let Some((delay, farewell)) = self.fortune.breaks_off() {
                        self.plan_in(delay, Event::Befalls(number, farewell));
                    }
                }
                reclaim::Effect::Tell(_) => {}
                reclaim::Effect::Ended(end) => self.person.ends(end),
            }
        }
        if let Some(due) = self.person.due() {
            self.plan(due.max(self.now), Event::Tick(Party::Person(number)));
        }
    }

    fn violate(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    fn check(&mut self) {
        let acting: Vec<&Candidate> = self.runs.iter().filter(|run| run.may_act(self.now)).collect();
        let found = match acting.as_slice() {
            [] => None,
            [one] if self.cell.holder().is_some_and(|holder| one.is(holder)) => None,
            [one] => Some(Violation::ActsUnnamed(self.now, one.id.to_string())),
            [one, other, ..] => Some(Violation::TwoMayAct(self.now, one.id.to_string(), other.id.to_string())),
        };
        if let Some(violation) = found {
            self.violate(violation);
        }
        if let Some(run) = self.runs.iter().find(|run| !run.fences_agree()) {
            self.violate(Violation::FencesDiffer(self.now, run.id.to_string()));
        }
        if self.cell.created_by_replace > 0 {
            self.violate(Violation::CreatedByReplace);
        }
    }

    /// Whether the Lease bears the name of a run that is over, by a claim that was doubled or very late.
    pub(super) fn is_left_by_the_unlucky(&self) -> bool {
        let over = |run: &&Candidate| matches!(run.stage, Stage::Over(_)) && run.is_unlucky();
        self.cell.holder().is_some_and(|holder| self.runs.iter().filter(over).any(|run| run.is(holder)))
    }

    /// Who is named in the Lease although they said that nothing of theirs is there.
    fn left_behind(&self) -> Option<String> {
        let holder = self.cell.holder()?;
        let silent = self.runs.iter().any(|run| run.is(holder) && !run.is_unlucky() && !run.has_said_so());
        let untold = self.person.id.is(holder) && !self.person.was_told();
        (silent || untold).then(|| holder.to_owned())
    }

    /// Who is still at it, although there was time enough for everything.
    fn never_ended(&self) -> Option<String> {
        let over = |run: &&Candidate| matches!(run.stage, Stage::Over(_) | Stage::Dead);
        let run = self.runs.iter().find(|run| !over(run)).map(|run| run.id.to_string());
        run.or_else(|| self.person.is_at_it().then(|| self.person.id.to_string()))
    }
}
