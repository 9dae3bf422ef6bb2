//! Seeded random schedules: several candidates and a reclaiming person over one Lease, and a network that delays,
//! loses and doubles requests and replies, each on its own.
//!
//! In every schedule, at every moment: no two runs have the right to act, no write changes or removes what another run
//! holds, and no Lease appears by a renewal. At its end nobody's identity is left in the Lease who did not say so.
//!
//! A test that cannot fail proves nothing, so the same schedules are played with one mistake planted in a candidate,
//! for each mistake that we, or others, have made. They have to be found.

mod candidate;
mod chance;
mod choices;
mod event;
mod fortune;
mod person;
mod search;
mod world;

use candidate::Mistake;
use world::{Violation, World};

/// Plays schedules until one is violated, and says which.
fn first_violation(mistake: Mistake, schedules: u64) -> Option<(u64, Violation)> {
    (0..schedules).find_map(|seed| World::drawn(seed, mistake).play().err().map(|violation| (seed, violation)))
}

#[test]
fn no_schedule_lets_two_runs_act_or_touches_what_is_anothers() {
    assert_eq!(first_violation(Mistake::None, 3_000), None);
}

#[test]
fn the_schedules_are_not_idle() {
    let mut seen = world::Seen::default();
    for seed in 0..300 {
        let mut world = World::drawn(seed, Mistake::None);
        world.play().expect("no violation");
        seen.add(&world.seen);
    }
    assert!(seen.claims > 100 && seen.busy > 100 && seen.lost > 20 && seen.reclaims > 3, "{seen:?}");
    assert!(seen.released > 100 && seen.unclear > 100 && seen.late > 50 && seen.doubled > 50, "{seen:?}");
}

/// How many schedules a planted mistake may survive at most.
const FOUND_WITHIN: u64 = 3_000;

fn is_found(mistake: Mistake, expected: impl Fn(&Violation) -> bool) {
    let (seed, violation) = first_violation(mistake, FOUND_WITHIN).expect("the mistake is found");
    assert!(expected(&violation), "schedule {seed} violates something else: {violation:?}");
}

#[test]
fn a_deadline_longer_than_the_lease_is_found() {
    is_found(Mistake::DeadlineLongerThanLease, |found| {
        matches!(found, Violation::TwoMayAct(..) | Violation::TakenFromTheLiving(..))
    });
}

#[test]
fn a_replace_without_the_uid_is_found() {
    is_found(Mistake::ReplaceWithoutUid, |found| matches!(found, Violation::CreatedByReplace));
}

#[test]
fn a_delete_without_preconditions_is_found() {
    is_found(Mistake::DeleteWithoutPreconditions, |found| matches!(found, Violation::ForeignDelete(..)));
}

#[test]
fn a_claim_that_trusts_the_age_of_a_lease_is_found() {
    is_found(Mistake::StaleIsFree, |found| {
        matches!(found, Violation::TwoMayAct(..) | Violation::TakenFromTheLiving(..) | Violation::ForeignReplace(..))
    });
}

#[test]
fn taking_no_answer_to_a_claim_for_a_no_is_found() {
    is_found(Mistake::NoAnswerIsNo, |found| matches!(found, Violation::LeftBehind(..)));
}

#[test]
fn not_looking_again_for_a_late_claim_is_found() {
    is_found(Mistake::NoSecondLook, |found| matches!(found, Violation::LeftBehind(..)));
}

#[test]
fn holding_on_after_another_claimed_is_found() {
    is_found(Mistake::FenceIsAFlag, |found| {
        matches!(found, Violation::TwoMayAct(..) | Violation::TakenFromTheLiving(..))
    });
}
