//! Every way in which two requests of a reclaim can go wrong on the wire, with what a holder and the person do meanwhile.
//!
//! The Lease is the twin's, so it does what the API server does. Each run of the search is a reclaim from the first read
//! to its end, with up to two faults, at most one act of the holder and at most one interrupt, at every place where each
//! can be. Whatever happens, a claim that was renewed in the window is never overwritten, nothing is deleted but what
//! bears our identity, and the end says truly where the lock is.

use super::*;
use crate::lock::twin::Cell;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// It never arrives, and nobody answers.
    RequestLost,
    /// It is done, and nobody answers.
    ReplyLost,
    /// Nobody answers, and it is done before the next request.
    Late,
    /// Nobody answers, and it is done after the end.
    TooLate,
    /// It is done twice, and the second answer comes.
    Twice,
    /// It is not sent.
    Unsent,
}

const FAULTS: [Fate; 6] = [Fate::RequestLost, Fate::ReplyLost, Fate::Late, Fate::TooLate, Fate::Twice, Fate::Unsent];

/// What the holder does before one request is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Renews,
    Releases,
}

/// One run: the request at which something happens, counted from 0.
#[derive(Debug, Clone, Copy, Default)]
struct Plan {
    faults: [Option<(usize, Fate)>; 2],
    act: Option<(usize, Act)>,
    interrupt: Option<usize>,
}

impl Plan {
    fn fate(&self, request: usize) -> Fate {
        self.faults.iter().flatten().find(|(at, _)| *at == request).map_or(Fate::Done, |(_, fate)| *fate)
    }
}

/// Whether a request changes something. Whether a lost one was done matters only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reads,
    Writes,
}

struct World {
    cell: Cell,
    late: Vec<(Ask, Fate)>,
    requests: Vec<Kind>,
    plan: Plan,
    /// The holder has done something since the person saw it.
    holder_acted: bool,
    /// The person has stopped it before the take.
    interrupted: bool,
    violation: Option<&'static str>,
}

fn apply(cell: &mut Cell, ask: &Ask) -> Answer {
    match ask {
        Ask::Create(draft) => Answer::Created(cell.create(draft)),
        Ask::CreateNamespace => Answer::NamespaceCreated(cell.create_namespace()),
        Ask::Read => Answer::Read(cell.read()),
        Ask::Replace(record) => Answer::Replaced(cell.replace(record.json())),
        Ask::Delete { uid, version } => Answer::Deleted(cell.delete(uid, version)),
    }
}

fn unanswered(ask: &Ask) -> Answer {
    answer(ask, "unclear")
}

impl World {
    fn new(plan: Plan) -> World {
        let mut cell = Cell::default();
        cell.put(lease("same").json().clone());
        let (late, requests) = (Vec::new(), Vec::new());
        World { cell, late, requests, plan, holder_acted: false, interrupted: false, violation: None }
    }

    fn ours(&self) -> bool {
        self.cell.holder().is_some_and(|holder| script::me().is(holder))
    }

    fn land(&mut self, which: Fate) {
        let (now, later): (Vec<_>, Vec<_>) = self.late.drain(..).partition(|(_, fate)| *fate == which);
        self.late = later;
        for (ask, _) in now {
            self.perform(&ask);
        }
    }

    /// Does a request, and notes what must not happen.
    fn perform(&mut self, ask: &Ask) -> Answer {
        if let Ask::Delete { uid, version } = ask {
            let hits = self.cell.record().is_some_and(|now| now.uid() == uid && now.version() == version);
            assert!(!hits || self.ours(), "{:?}: a Lease of another was deleted", self.plan);
        }
        let before = self.ours();
        let answer = apply(&mut self.cell, ask);
        if !before && self.ours() {
            if self.holder_acted {
                self.violation = Some("a live claim was overwritten");
            } else if self.interrupted {
                self.violation = Some("it was taken after the interrupt");
            }
        }
        answer
    }

    /// The next request: what happens on its way, and its answer.
    fn request(&mut self, ask: Ask) -> Answer {
        self.land(Fate::Late);
        if let Some((at, act)) = self.plan.act
            && at == self.requests.len()
            && !self.ours()
            && self.cell.record().is_some()
        {
            self.holder_acted = true;
            match act {
                Act::Renews => self.cell.edit(|raw| raw["spec"]["renewTime"] = json!("2026-11-30T00:59:00.000000Z")),
                Act::Releases => self.cell.remove(),
            }
        }
        let fate = self.plan.fate(self.requests.len());
        self.requests.push(if ask == Ask::Read { Kind::Reads } else { Kind::Writes });
        match fate {
            Fate::Done => self.perform(&ask),
            Fate::RequestLost => unanswered(&ask),
            Fate::ReplyLost => {
                self.perform(&ask);
                unanswered(&ask)
            }
            Fate::Late | Fate::TooLate => {
                let answer = unanswered(&ask);
                self.late.push((ask, fate));
                answer
            }
            Fate::Twice => {
                self.perform(&ask);
                self.perform(&ask)
            }
            Fate::Unsent => answer(&ask, "unsent"),
        }
    }

    /// One reclaim to its end. The clock jumps over the window, as it does when the machine was suspended.
    fn run(mut self) -> (World, End) {
        let (mut machine, mut effects) = Reclaim::begin(request(), Timing::STANDARD);
        let (mut clock, mut asked) = (0, None);
        loop {
            let mut shown = false;
            for effect in effects {
                match effect {
                    Effect::Ask(ask) => asked = Some(ask),
                    Effect::Show(_) => {
                        shown = true;
                        self.holder_acted = false;
                    }
                    Effect::Tell(Progress::Checking(_)) => clock += 65,
                    Effect::Tell(_) => {}
                    Effect::Ended(end) => return (self, end),
                }
            }
            let input = if shown {
                Input::Typed("bob@laptop/9912/3a7f000000000000".to_owned())
            } else if let Some(due) = machine.due() {
                clock = clock.max(seconds(due));
                Input::Tick
            } else {
                if self.plan.interrupt == Some(self.requests.len()) {
                    self.plan.interrupt = None;
                    let writing = matches!(machine.state, State::Taking(_) | State::Settling(_) | State::Releasing(_));
                    self.interrupted |= !writing;
                    effects = machine.advance(Input::Interrupted, at(clock));
                    continue;
                }
                clock += 1;
                let ask = asked.take().expect("it waits for something");
                Input::Answer(self.request(ask))
            };
            effects = machine.advance(input, at(clock));
        }
    }
}

/// What the end says is so, now and after everything that was still under way has landed. Answers the end in a word, and
/// what was requested.
fn judge(plan: Plan) -> (&'static str, Vec<Kind>) {
    let (mut world, ended) = World::new(plan).run();
    let said = end(&ended);
    assert_eq!(world.violation, None, "{plan:?}: and the end was: {said}");
    let word = match &ended {
        End::Unknown { .. } | End::Reclaimed(Released::Unknown { .. } | Released::Left(_)) => "said to be unsettled",
        End::Reclaimed(Released::Deleted | Released::AlreadyGone) | End::Free { .. } | End::GivenBack => {
            assert_eq!(world.cell.holder(), None, "{plan:?}: {said}");
            "free"
        }
        End::Reclaimed(_) | End::BeingDeleted(_) | End::Mistyped(_) => {
            panic!("{plan:?}: nobody does that here: {said}")
        }
        End::Interrupted | End::Refused(_) | End::NotTaken(_) => {
            assert!(!world.ours(), "{plan:?}: it is ours, and the end was: {said}");
            "another's"
        }
    };
    let too_late = world.late.iter().any(|(ask, fate)| *fate == Fate::TooLate && matches!(ask, Ask::Replace(_)));
    world.land(Fate::Late);
    world.land(Fate::TooLate);
    assert_eq!(world.violation, None, "{plan:?}: by a late take, after: {said}");
    // A take that lands ten seconds and more after it was given up is the one thing that no look can see.
    assert!(word == "said to be unsettled" || too_late || !world.ours(), "{plan:?}: ours after the end: {said}");
    (word, world.requests)
}

/// Everything that can be wrong with one of these requests. The first of all is left out: before it nothing is known.
fn faults(requests: &[Kind], after: usize) -> Vec<(usize, Fate)> {
    let numbered = requests.iter().enumerate().skip(after + 1);
    numbered
        .flat_map(|(at, kind)| {
            let fates = if *kind == Kind::Reads { &FAULTS[..1] } else { &FAULTS[..] };
            fates.iter().map(move |fate| (at, *fate))
        })
        .collect()
}

/// How often each end came.
#[derive(Debug, Default)]
struct Ends(std::collections::BTreeMap<&'static str, u64>);

impl Ends {
    fn count(&mut self, plan: Plan) -> Vec<Kind> {
        let (word, requests) = judge(plan);
        *self.0.entry(word).or_default() += 1;
        requests
    }

    /// These faults with one act of the holder, or one interrupt, at every place.
    fn disturb(&mut self, plan: Plan, places: usize) {
        for at in 0..=places {
            for act in [Act::Renews, Act::Releases] {
                self.count(Plan { act: Some((at, act)), ..plan });
            }
            self.count(Plan { interrupt: Some(at), ..plan });
        }
    }

    /// These faults with both.
    fn disturb_twice(&mut self, plan: Plan, places: usize) {
        for at in 0..=places {
            for act in [Act::Renews, Act::Releases] {
                let disturbed = Plan { act: Some((at, act)), ..plan };
                for interrupt in 0..=places {
                    self.count(Plan { interrupt: Some(interrupt), ..disturbed });
                }
            }
        }
    }
}

#[test]
fn whatever_goes_wrong_on_the_wire_no_live_claim_is_taken_and_the_end_is_true() {
    let mut ends = Ends::default();
    let none = Plan::default();
    let whole = ends.count(none);
    assert_eq!(whole.len(), 5, "read, read, read, replace, delete");
    ends.disturb_twice(none, whole.len());
    for first in faults(&whole, 0) {
        let one = Plan { faults: [Some(first), None], ..none };
        let requests = ends.count(one);
        ends.disturb_twice(one, requests.len());
        for second in faults(&requests, first.0) {
            let two = Plan { faults: [Some(first), Some(second)], ..none };
            let requests = ends.count(two);
            ends.disturb(two, requests.len());
        }
    }
    assert!(ends.0.len() == 2 && ends.0.values().all(|times| *times > 500), "{ends:?}");
}
