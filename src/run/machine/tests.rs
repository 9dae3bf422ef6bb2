//! The tables of a run.

use super::*;
use crate::failure::Code;

fn oops() -> Failure {
    Failure::new(Code::InfrastructureFailed, "it went wrong")
}

fn lost() -> Failure {
    Failure::new(Code::LockLost, "it is gone")
}

fn failed(changing: bool) -> Input {
    Input::StepEnded(StepEnd::Failed { failure: oops(), changing })
}

fn stopped(clean: bool) -> Input {
    Input::StepEnded(StepEnd::Stopped { clean, unfinished: Vec::new() })
}

const SHAPE: Shape = Shape { steps: 3, claims: Some(0), failure: OnFailure::WriteDown };

/// Plays inputs into a run of three steps whose first claims the lock; returns the machine and all effects.
fn play(inputs: Vec<Input>) -> (Machine, Vec<Effect>) {
    let (mut machine, mut effects) = Machine::new(SHAPE);
    for input in inputs {
        effects.extend(machine.advance(input));
    }
    (machine, effects)
}

fn claimed() -> Vec<Input> {
    vec![Input::Prepared(Ok(())), Input::StepEnded(StepEnd::Claimed)]
}

fn then(more: Vec<Input>) -> Vec<Input> {
    claimed().into_iter().chain(more).collect()
}

#[test]
fn a_run_that_goes_well_fences_each_step_and_releases() {
    let done = || Input::StepEnded(StepEnd::Done);
    let inputs = then(vec![Input::FenceHeld, done(), Input::FenceHeld, done(), Input::Released]);
    let (machine, effects) = play(inputs);
    use Effect::{Begin, Fence, Finish, Prepare, Release};
    assert_eq!(effects, [Prepare, Begin(0), Fence(1), Begin(1), Fence(2), Begin(2), Release, Finish]);
    assert_eq!(*machine.ending(), Ending::default());
}

#[test]
fn a_run_without_the_lock_fences_nothing_and_looks_for_a_late_claim_at_its_end() {
    use Effect::{Begin, Close, Release};
    let done = || Input::StepEnded(StepEnd::Done);
    let claim = || vec![Input::Prepared(Ok(())), Input::StepEnded(StepEnd::Without)];
    let without = |more: Vec<Input>| play([claim(), more].concat());
    assert_eq!(without(vec![done(), done()]).1[1..], [Begin(0), Begin(1), Begin(2), Release]);
    assert_eq!(without(vec![failed(true), Input::Closed]).1[2..], [Begin(1), Close, Release]);
    assert_eq!(without(vec![Input::Stop(Strength::Force), stopped(false)]).1.last(), Some(&Release));
    let (mut machine, _) = without(vec![Input::LockLost(lost())]);
    assert_eq!(machine.broke(oops(), Remains::Tools), [Effect::Finish], "what is not held is neither lost nor left");
}

#[test]
fn surroundings_that_do_not_fit_end_the_run_without_a_lock() {
    let (machine, effects) = play(vec![Input::Prepared(Err(oops()))]);
    assert_eq!(effects, [Effect::Prepare, Effect::Finish]);
    assert_eq!(machine.ending().failure, Some(oops()));
}

#[test]
fn a_failure_is_written_down_before_the_lock_is_given_back() {
    let (_, effects) = play(then(vec![Input::FenceHeld, failed(true), Input::Closed, Input::Released]));
    assert_eq!(effects[4..], [Effect::Close, Effect::Release, Effect::Finish]);
}

#[test]
fn a_broken_program_gives_the_lock_back_unless_a_tool_may_live() {
    let bug = || Failure::new(Code::Internal, "a bug");
    for (remains, effect) in [(Remains::Nothing, Effect::Release), (Remains::Tools, Effect::Leave)] {
        let (mut machine, _) = play(then(vec![Input::FenceHeld]));
        assert_eq!(machine.broke(bug(), remains), [effect]);
        assert_eq!(machine.advance(Input::Released), [Effect::Finish]);
        assert_eq!(machine.ending().failure, Some(bug()));
    }
    let (mut early, _) = play(Vec::new());
    assert_eq!(early.broke(bug(), Remains::Nothing), [Effect::Finish]);
    let (mut twice, _) = play(then(vec![Input::FenceHeld]));
    assert_eq!(twice.broke(bug(), Remains::Nothing), [Effect::Release]);
    assert_eq!(twice.broke(bug(), Remains::Nothing), [Effect::Finish]);
}

#[test]
fn a_program_that_breaks_while_it_claims_looks_for_its_claim() {
    let bug = || Failure::new(Code::Internal, "a bug");
    let (mut claiming, _) = play(vec![Input::Prepared(Ok(()))]);
    assert_eq!(claiming.broke(bug(), Remains::Nothing), [Effect::Release]);
    assert_eq!(claiming.advance(Input::Released), [Effect::Finish]);
    let (mut dry, _) = Machine::new(Shape { claims: None, ..SHAPE });
    dry.advance(Input::Prepared(Ok(())));
    assert_eq!(dry.broke(bug(), Remains::Nothing), [Effect::Finish]);
}

#[test]
fn a_program_that_breaks_after_its_lock_was_lost_still_looks_for_a_late_claim() {
    let bug = || Failure::new(Code::Internal, "a bug");
    for (remains, effect) in [(Remains::Nothing, Effect::Release), (Remains::Tools, Effect::Finish)] {
        let (mut machine, _) = play(then(vec![Input::FenceHeld, Input::LockLost(lost())]));
        assert_eq!(machine.broke(bug(), remains), [effect]);
    }
}

#[test]
fn a_failed_claim_is_settled_and_not_written_down() {
    let (_, effects) = play(vec![Input::Prepared(Ok(())), failed(false), Input::Released]);
    assert_eq!(effects[2..], [Effect::Release, Effect::Finish]);
    let (mut dry, _) = Machine::new(Shape { claims: None, ..SHAPE });
    dry.advance(Input::Prepared(Ok(())));
    assert_eq!(dry.advance(failed(false)), [Effect::Finish]);
}

#[test]
fn only_the_first_stop_is_passed_on_and_force_once_more() {
    let mut inputs = then(vec![Input::FenceHeld]);
    inputs.extend((0..20).map(|_| Input::Stop(Strength::Graceful)));
    inputs.extend((0..3).map(|_| Input::Stop(Strength::Force)));
    let (_, effects) = play(inputs);
    assert_eq!(effects[4..], [Effect::PassOn(Strength::Graceful), Effect::PassOn(Strength::Force)]);
}

#[test]
fn a_stop_in_a_step_releases_and_force_leaves() {
    for (strength, last) in [(Strength::Graceful, Effect::Release), (Strength::Force, Effect::Leave)] {
        let (machine, effects) =
            play(then(vec![Input::FenceHeld, Input::Stop(strength), stopped(false), Input::Released]));
        assert_eq!(effects[5..], [last, Effect::Finish]);
        assert_eq!(machine.ending().stop, Some(strength));
        assert!(machine.ending().partial);
    }
}

#[test]
fn a_stop_at_a_fence_keeps_the_next_step_from_beginning() {
    let (machine, effects) = play(then(vec![Input::Stop(Strength::Graceful), Input::FenceHeld, Input::Released]));
    assert_eq!(effects[3..], [Effect::PassOn(Strength::Graceful), Effect::Release, Effect::Finish]);
    assert_eq!(machine.ending().stop, Some(Strength::Graceful));
    assert!(!machine.ending().partial);
}

#[test]
fn a_stop_after_the_last_step_changes_nothing() {
    let done = || Input::StepEnded(StepEnd::Done);
    let inputs =
        vec![Input::FenceHeld, done(), Input::FenceHeld, done(), Input::Stop(Strength::Graceful), Input::Released];
    let (machine, _) = play(then(inputs));
    assert_eq!(machine.ending().stop, None);
    assert_eq!(machine.state(), State::Finished);
}

#[test]
fn a_stop_while_the_surroundings_are_looked_at_is_a_clean_stop() {
    let (machine, effects) = play(vec![Input::Stop(Strength::Graceful), Input::Prepared(Err(oops()))]);
    assert_eq!(effects.last(), Some(&Effect::Finish));
    assert_eq!(machine.ending().stop, Some(Strength::Graceful));
    assert_eq!(machine.ending().failure, None);
}

#[test]
fn a_stop_during_an_unsettled_claim_looks_before_the_verdict() {
    let inputs = vec![Input::Prepared(Ok(())), Input::Stop(Strength::Graceful), stopped(true), Input::Released];
    let (_, effects) = play(inputs);
    assert_eq!(effects[3..], [Effect::Release, Effect::Finish]);
}

#[test]
fn force_leaves_the_lock_however_the_step_ended() {
    for changing in [true, false] {
        let inputs = then(vec![Input::FenceHeld, Input::Stop(Strength::Force), failed(changing), Input::Released]);
        let (machine, effects) = play(inputs);
        assert_eq!(effects[5..], [Effect::Leave, Effect::Finish]);
        assert_eq!((machine.ending().stop, machine.ending().partial), (Some(Strength::Force), changing));
    }
}

#[test]
fn a_failure_after_a_stop_is_partial_when_it_changed_something() {
    for changing in [true, false] {
        let mut inputs = then(vec![Input::FenceHeld, Input::Stop(Strength::Graceful), failed(changing)]);
        if !changing {
            inputs.push(Input::Closed);
        }
        inputs.push(Input::Released);
        let (machine, effects) = play(inputs);
        assert_eq!(machine.ending().partial, changing);
        assert_eq!(effects.contains(&Effect::Close), !changing);
    }
}

#[test]
fn nothing_begins_after_the_lock_was_lost_and_an_earlier_claim_is_still_settled() {
    for inputs in [
        then(vec![Input::FenceLost(lost())]),
        then(vec![Input::FenceHeld, failed(true), Input::LockLost(lost()), Input::Closed]),
        then(vec![Input::FenceHeld, Input::LockLost(lost()), stopped(true)]),
        then(vec![Input::FenceHeld, Input::LockLost(lost()), failed(true)]),
        then(vec![Input::FenceHeld, Input::LockLost(lost()), Input::StepEnded(StepEnd::Done)]),
    ] {
        let at = inputs.iter().position(|input| matches!(input, Input::LockLost(_) | Input::FenceLost(_)));
        let (before, _) = play(inputs[..at.expect("it is lost")].to_vec());
        let (mut machine, effects) = play(inputs);
        assert_eq!(machine.ending().lost, Some(lost()));
        assert_eq!(effects.last(), Some(&Effect::Release), "it asks nobody when nothing is in doubt");
        assert!(!effects.contains(&Effect::Begin(2)));
        assert_eq!(effects.contains(&Effect::Close), before.state() == State::Closing);
        assert_eq!(machine.advance(Input::Released), [Effect::Finish]);
    }
}

#[test]
fn a_loss_asks_the_step_to_stop_at_once_but_once() {
    let (_, effects) = play(then(vec![
        Input::FenceHeld,
        Input::LockLost(lost()),
        Input::LockLost(lost()),
        Input::Stop(Strength::Force),
    ]));
    assert_eq!(effects[4..], [Effect::PassOn(Strength::Graceful), Effect::PassOn(Strength::Force)]);
}
