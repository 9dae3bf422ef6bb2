//! The search: every schedule up to a bound.
//!
//! Two runs and a person share one Lease. A run claims, is asked once whether it still holds the lock, writes a note,
//! renews, and gives the lock back; the person may begin to reclaim after any write. At every request the network and
//! the API server may do one of eleven things (lose it, lose its reply, delay either to just before or long after its
//! time-out, deliver it twice, be away for 20 s or 75 s), and at every input a run may die, stand still for 8 s or 70 s,
//! or be cut off for good. *A schedule with n deviations* is one in which n of these go otherwise than they should.
//! All schedules with at most so many deviations are played, from every setting: who comes when, whose clock goes 2 %
//! too fast or too slow or is hours off, and whether there was an empty Lease before.
//!
//! One thing is left out, and shown by a test of its own: a copy of a claim that arrives after its sender's last look
//! leaves a Lease that names nobody who lives. It never makes a second holder.

use std::time::Duration;

use crate::lock::protocol::schedules::candidate::{Candidate, Clocks, Mistake};
use crate::lock::protocol::schedules::choices::{Bound, Choices, Deviation};
use crate::lock::protocol::schedules::fortune::Act;
use crate::lock::protocol::schedules::person::Person;
use crate::lock::protocol::schedules::world::{Setting, Violation, World};

const HOUR: i64 = 3_600_000;
const SLOW: Clocks = Clocks { boot: Duration::from_secs(900), wall: 3 * HOUR, pace: 980 };
const FAST: Clocks = Clocks { boot: Duration::from_secs(7), wall: -5 * HOUR, pace: 1_020 };

/// How the second run, and the person, stand to the first.
#[derive(Debug, Clone, Copy)]
struct Start {
    second: Duration,
    clocks: [Clocks; 3],
    emptied: bool,
    /// From when on nothing that the first one sends arrives.
    cut_off: Option<Duration>,
}

impl Start {
    fn all() -> Vec<Start> {
        let mut all = Vec::new();
        // At the same moment; while the first one works; while it gives the lock back.
        for second in [1, 2_500, 13_030].map(Duration::from_millis) {
            for clocks in [[Clocks::RIGHT; 3], [SLOW, FAST, FAST], [FAST, SLOW, SLOW]] {
                for emptied in [false, true] {
                    all.push(Start { second, clocks, emptied, cut_off: None });
                }
            }
        }
        all
    }

    /// The first one loses its connection: while it claims, right after, while it renews, and between renewals.
    fn cut_off() -> Vec<Start> {
        let mut all = Vec::new();
        for start in Start::all().into_iter().filter(|start| !start.emptied) {
            for at in [50, 2_500, 14_050, 15_000].map(Duration::from_millis) {
                all.push(Start { cut_off: Some(at), ..start });
            }
        }
        all
    }

    fn setting(self, mistake: Mistake) -> Setting {
        let [first, second, person] = self.clocks;
        let mut plans = vec![(Duration::ZERO, 0, Act::Claim), (self.second, 1, Act::Claim)];
        plans.extend(self.cut_off.map(|at| (at, 0, Act::CutOff)));
        Setting {
            runs: vec![Candidate::new(1, mistake, first), Candidate::new(2, mistake, second)],
            person: Person::new(mistake, person),
            plans,
            emptied: self.emptied,
        }
    }
}

/// What the search of one start found.
#[derive(Debug, Default)]
struct Found {
    schedules: u64,
    violation: Option<(Vec<usize>, Violation)>,
}

fn search(start: Start, mistake: Mistake, bound: Bound) -> Found {
    let mut found = Found::default();
    let mut next = Some(Choices::plain(bound));
    while let Some(choices) = next {
        let mut world = World::new(start.setting(mistake), choices);
        found.schedules += 1;
        if let Err(violation) = world.play() {
            found.violation = Some((world.fortune.script(), violation));
            return found;
        }
        next = world.fortune.next();
    }
    found
}

fn holds(starts: &[Start], bound: Bound) -> u64 {
    let mut schedules = 0;
    for start in starts {
        let found = search(*start, Mistake::None, bound);
        if let Some((script, violation)) = found.violation {
            panic!("{violation:?} in {start:?} with {script:?}");
        }
        schedules += found.schedules;
    }
    schedules
}

/// Whether the long search was asked for: `make soak`.
#[expect(clippy::disallowed_methods, reason = "a test may ask how long it should take")]
fn is_soak() -> bool {
    std::env::var_os("DCCTL_SOAK").is_some()
}

#[test]
fn every_schedule_with_one_deviation_holds_from_every_start() {
    let schedules = holds(&Start::all(), Bound::all(1));
    assert!(schedules > 3_000, "{schedules}");
}

/// From one start with right clocks and one with wrong ones; in `make soak` from every start.
#[test]
fn every_schedule_with_two_deviations_holds() {
    let all = Start::all();
    let starts = if is_soak() { all } else { vec![all[0], all[2]] };
    let schedules = holds(&starts, Bound::all(2));
    assert!(schedules > 20_000, "{schedules}");
}

/// What keeps a holder from knowing that its lock is another's, beside being cut off.
const IN_THE_DARK: &[Deviation] = &[Deviation::Delay, Deviation::Sleep, Deviation::Reclaim];

/// In `make soak` from every start. (With three deviations it does not end within an hour and a half.)
#[test]
fn every_schedule_in_which_a_holder_is_cut_off_and_reclaimed_holds() {
    let all = Start::cut_off();
    let starts = if is_soak() { &all[..] } else { &all[4..8] };
    let schedules = holds(starts, Bound::long(2, IN_THE_DARK));
    assert!(schedules > 5_000, "{schedules}");
}

/// The one exception. A copy of a claim that the network kept for longer than the sender's last look makes a Lease
/// whose run is over: it is seen in the search as an unlucky run, and every later run finds the lock held by it. Nobody
/// acts on it, and a person can reclaim it.
#[test]
fn a_copy_of_a_claim_that_comes_after_the_last_look_leaves_a_lease_and_no_second_holder() {
    let kinds = &[Deviation::Copy, Deviation::Loss];
    let mut left = 0;
    let mut next = Some(Choices::plain(Bound::only(2, kinds)));
    while let Some(choices) = next {
        let mut world = World::new(Start::all()[0].setting(Mistake::None), choices);
        world.play().expect("no second holder");
        left += u64::from(world.is_left_by_the_unlucky());
        next = world.fortune.next();
    }
    assert!(left > 0);
}

/// The search, with a mistake planted, finds what the mistake leads to.
fn finds(mistake: Mistake, bound: Bound, expected: impl Fn(&Violation) -> bool) {
    finds_from(&Start::all(), mistake, bound, expected);
}

fn finds_from(starts: &[Start], mistake: Mistake, bound: Bound, expected: impl Fn(&Violation) -> bool) {
    let found = starts.iter().find_map(|start| search(*start, mistake, bound).violation);
    let (script, violation) = found.expect("the mistake is found");
    assert!(expected(&violation), "{script:?} violates something else: {violation:?}");
}

/// Two may act, or one whose lock is another's by now.
fn is_double(violation: &Violation) -> bool {
    match violation {
        Violation::TwoMayAct(..)
        | Violation::ActsUnnamed(..)
        | Violation::TakenFromTheLiving(..)
        | Violation::BeginsWithoutRight(..) => true,
        Violation::ForeignReplace(..)
        | Violation::ForeignDelete(..)
        | Violation::CreatedByReplace
        | Violation::FencesDiffer(..)
        | Violation::LeftBehind(_)
        | Violation::NeverEnded(_) => false,
    }
}

#[test]
fn a_replace_without_the_uid_is_found_by_the_search() {
    let found = |found: &Violation| matches!(found, Violation::CreatedByReplace);
    finds(Mistake::ReplaceWithoutUid, Bound::all(2), found);
}

#[test]
fn a_deadline_from_the_reply_is_found_by_the_search() {
    let bound = Bound::long(2, IN_THE_DARK);
    finds_from(&Start::cut_off()[4..8], Mistake::DeadlineFromReply, bound, is_double);
}

#[test]
fn a_release_without_preconditions_is_found_by_the_search() {
    let found = |found: &Violation| is_double(found) || matches!(found, Violation::ForeignDelete(..));
    finds(Mistake::DeleteWithoutPreconditions, Bound::all(2), found);
}

#[test]
fn a_lease_made_anew_on_404_is_found_by_the_search() {
    let found = |found: &Violation| matches!(found, Violation::CreatedByReplace);
    let kinds = &[Deviation::Sleep, Deviation::Reclaim];
    finds(Mistake::RecreateOnMissing, Bound::only(2, kinds), found);
}

#[test]
fn comparing_clocks_is_found_by_the_search() {
    let found = |found: &Violation| is_double(found) || matches!(found, Violation::ForeignReplace(..));
    finds(Mistake::StaleIsFree, Bound::all(1), found);
}

#[test]
fn a_reclaim_without_a_recheck_is_found_by_the_search() {
    finds(Mistake::TakeWithoutRecheck, Bound::long(1, &[Deviation::Reclaim]), is_double);
}

#[test]
fn a_step_that_begins_whatever_is_said_is_found_by_the_search() {
    let found = |found: &Violation| matches!(found, Violation::BeginsWithoutRight(..));
    finds(Mistake::BeginsUnasked, Bound::only(1, &[Deviation::Sleep]), found);
}

#[test]
fn a_claim_by_expiry_is_found_by_the_search() {
    let found = |found: &Violation| is_double(found) || matches!(found, Violation::ForeignReplace(..));
    finds(Mistake::ClaimByExpiry, Bound::only(2, &[Deviation::End, Deviation::Pause]), found);
}

#[test]
fn what_is_found_is_found_again_by_its_choices() {
    let (start, bound) = (Start::all()[0], Bound::long(1, &[Deviation::Reclaim]));
    let (script, violation) = search(start, Mistake::TakeWithoutRecheck, bound).violation.expect("it is found");
    let again = World::new(start.setting(Mistake::TakeWithoutRecheck), Choices::of(script, bound)).play();
    assert_eq!(again, Err(violation));
}
