//! The one place that decides the exit code.
//!
//! When several reasons apply the order is: forced, lock lost, front broken, stopped, failed, lock left, report not written. Each
//! row of that order is a row of the table in the tests.

use crate::event::{LockEnd, RunOutcome};
use crate::failure::{Code, Failure};
use crate::run::machine::{Ending, Strength};
use crate::step::look_first;

/// How a run ended, for the exit code and the last event.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// In one word.
    pub outcome: RunOutcome,
    /// Why, unless all is well.
    pub failure: Option<Failure>,
}

impl Verdict {
    /// The exit status.
    pub fn exit(&self) -> u8 {
        self.failure.as_ref().map_or(0, |failure| failure.code.exit())
    }

    /// With why the lock could not be given back. Where the Lease is kept by something that reclaiming it would not help, what
    /// helps takes the place of the table's advice.
    #[must_use]
    pub fn explained(self, why: Option<&Failure>) -> Verdict {
        let explain = |failure: Failure| match why {
            Some(why) if failure.code == Code::StoppedForced => {
                let failure = failure.cause(why.message.clone());
                let hints = if failure.hints.is_empty() { why.hints.clone() } else { Vec::new() };
                hints.into_iter().fold(failure, Failure::hint)
            }
            Some(_) | None => failure,
        };
        Verdict { failure: self.failure.map(explain), ..self }
    }

    /// A run that was refused before it began.
    pub fn refused(failure: Failure) -> Verdict {
        Verdict { outcome: outcome_of(failure.code), failure: Some(failure) }
    }
}

/// Decides. `lock` is where the lock is after the release; `report` why a report could not be written.
pub fn decide(ending: &Ending, lock: LockEnd, report: Option<Failure>) -> Verdict {
    if ending.stop == Some(Strength::Force) {
        return forced(ending, lock);
    }
    if let Some(lost) = &ending.lost {
        let failure = with_unfinished(with_failure(lost.clone(), ending), ending);
        return Verdict { outcome: RunOutcome::Failed, failure: Some(failure) };
    }
    if let Some(broke) = &ending.broke {
        return broken(broke.clone(), ending);
    }
    if ending.stop.is_some() {
        return stopped(ending, lock);
    }
    if let Some(failure) = &ending.failure {
        return failed(failure.clone(), ending);
    }
    match (lock, report) {
        (LockEnd::Left, _) => left("everything was done, but the lock could not be given back"),
        (LockEnd::Unknown, _) => left("everything was done, but it cannot be told whether the lock was given back"),
        (_, Some(failure)) => Verdict { outcome: RunOutcome::Succeeded, failure: Some(failure) },
        (_, None) => Verdict { outcome: RunOutcome::Succeeded, failure: None },
    }
}

/// A bug in the front stops the run, and must not pass for a stop on request.
fn broken(failure: Failure, ending: &Ending) -> Verdict {
    let failure = if ending.partial { failure.cause("treat the infrastructure as PARTIALLY APPLIED") } else { failure };
    let failure = with_unfinished(with_failure(failure, ending), ending);
    Verdict { outcome: RunOutcome::Failed, failure: Some(failure) }
}

/// A refusal that comes after something was begun is none: the API server forbids the third thing, say, of a step.
fn failed(failure: Failure, ending: &Ending) -> Verdict {
    match Verdict::refused(failure) {
        Verdict { outcome: RunOutcome::Refused, failure } if ending.begun => {
            Verdict { outcome: RunOutcome::Failed, failure }
        }
        verdict => verdict,
    }
}

fn forced(ending: &Ending, lock: LockEnd) -> Verdict {
    let sentence = match lock {
        LockEnd::Left => "ended by force: the lock was left behind",
        LockEnd::Unknown => "ended by force: it cannot be told where the lock is",
        LockEnd::Released | LockEnd::NeverTaken | LockEnd::NotHeld | LockEnd::Lost => return stopped(ending, lock),
    };
    let failure = with_failure(Failure::new(Code::StoppedForced, sentence), ending);
    Verdict { outcome: RunOutcome::Forced, failure: Some(with_unfinished(failure, ending)) }
}

fn stopped(ending: &Ending, lock: LockEnd) -> Verdict {
    let failure = if ending.partial {
        let sentence = "stopped on request: treat the infrastructure as PARTIALLY APPLIED";
        let failure = Failure::new(Code::StoppedPartial, sentence);
        with_unfinished(with_failure(failure, ending), ending)
    } else {
        match lock {
            LockEnd::Left => return left("stopped on request, but the lock could not be given back"),
            LockEnd::Unknown => {
                return left("stopped on request, but it cannot be told whether the lock was given back");
            }
            LockEnd::Released | LockEnd::NeverTaken | LockEnd::NotHeld | LockEnd::Lost => {
                Failure::new(Code::StoppedClean, "stopped on request; everything that was begun was finished")
            }
        }
    };
    Verdict { outcome: RunOutcome::Stopped, failure: Some(failure) }
}

fn left(sentence: &str) -> Verdict {
    Verdict { outcome: RunOutcome::Failed, failure: Some(Failure::new(Code::StoppedForced, sentence)) }
}

/// With the failure that a step had beside it: what it says of things that may be in no state is said nowhere else.
fn with_failure(failure: Failure, ending: &Ending) -> Failure {
    let Some(beside) = &ending.failure else { return failure };
    let said = std::iter::once(&beside.message).chain(&beside.causes);
    let failure = said.fold(failure, |failure, cause| failure.cause(cause.clone()));
    let remedy = (failure.hints.is_empty() && !beside.hints.is_empty()).then(|| failure.code.row().remedy);
    let failure = beside.hints.iter().fold(failure, |failure, hint| failure.hint(hint.clone()));
    remedy.into_iter().fold(failure, Failure::hint)
}

/// What comes first is what a re-run cannot mend.
fn with_unfinished(failure: Failure, ending: &Ending) -> Failure {
    let Some(look) = look_first(&ending.unfinished) else { return failure };
    let remedy = failure.hints.is_empty().then(|| failure.code.row().remedy);
    let failure =
        failure.cause(format!("begun, and not seen to complete: {}", ending.unfinished.join(", "))).hint(look);
    remedy.into_iter().fold(failure, Failure::hint)
}

/// Codes below 10 that are not a step's failure refuse a run before it changes anything.
fn outcome_of(code: Code) -> RunOutcome {
    match code.exit() {
        2..=6 => RunOutcome::Refused,
        20 | 21 => RunOutcome::Blocked,
        10 | 11 => RunOutcome::Stopped,
        12 => RunOutcome::Forced,
        _ => RunOutcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        Ending::default()
    }

    #[test]
    fn every_combination_has_its_exit_code() {
        let broke = || Some(Failure::new(Code::ChartFailed, "helm failed"));
        let lost = || Some(Failure::new(Code::LockLost, "lost"));
        let bug = || Some(Failure::new(Code::Internal, "a bug"));
        let graceful = Some(Strength::Graceful);
        let force = Some(Strength::Force);
        let report = || Some(Failure::new(Code::ReportUnwritten, "disk full"));
        let rows: Vec<(Ending, LockEnd, Option<Failure>, u8)> = vec![
            (ending(), LockEnd::Released, None, 0),
            (ending(), LockEnd::NeverTaken, None, 0),
            (ending(), LockEnd::Released, report(), 40),
            (ending(), LockEnd::Left, report(), 12),
            (ending(), LockEnd::Unknown, None, 12),
            (Ending { failure: broke(), ..ending() }, LockEnd::Released, report(), 1),
            (Ending { failure: broke(), ..ending() }, LockEnd::Left, None, 1),
            (Ending { stop: graceful, ..ending() }, LockEnd::Released, report(), 10),
            (Ending { stop: graceful, ..ending() }, LockEnd::NeverTaken, None, 10),
            (Ending { stop: graceful, ..ending() }, LockEnd::Left, None, 12),
            (Ending { stop: graceful, partial: true, ..ending() }, LockEnd::Released, None, 11),
            (Ending { stop: graceful, partial: true, failure: broke(), ..ending() }, LockEnd::Left, None, 11),
            (Ending { stop: force, partial: true, ..ending() }, LockEnd::Left, None, 12),
            (Ending { stop: force, partial: true, ..ending() }, LockEnd::NeverTaken, None, 11),
            (Ending { stop: force, ..ending() }, LockEnd::NeverTaken, None, 10),
            (Ending { stop: force, lost: lost(), partial: true, ..ending() }, LockEnd::Lost, None, 11),
            (Ending { lost: lost(), stop: graceful, partial: true, ..ending() }, LockEnd::Lost, None, 22),
            (Ending { lost: lost(), failure: broke(), ..ending() }, LockEnd::Lost, None, 22),
            (Ending { lost: lost(), broke: bug(), ..ending() }, LockEnd::Lost, None, 22),
            (Ending { broke: bug(), ..ending() }, LockEnd::Released, report(), 70),
            (Ending { broke: bug(), stop: graceful, partial: true, ..ending() }, LockEnd::Released, None, 70),
            (Ending { broke: bug(), stop: force, ..ending() }, LockEnd::Left, None, 12),
        ];
        for (ending, lock, report, exit) in rows {
            assert_eq!(decide(&ending, lock, report).exit(), exit, "{ending:?} {lock:?}");
        }
    }

    /// Where the lock can be after each way in which a run may have had it.
    const LOCKS: [LockEnd; 6] =
        [LockEnd::Released, LockEnd::NeverTaken, LockEnd::NotHeld, LockEnd::Lost, LockEnd::Left, LockEnd::Unknown];

    /// Every combination of what ended a run and of where the lock is then, against what the exit codes promise: each
    /// claims only what was witnessed.
    #[test]
    fn no_combination_of_ends_claims_more_than_was_witnessed() {
        let code = |code, message: &str| Some(Failure::new(code, message));
        let failures =
            [None, code(Code::ChartFailed, "failed"), code(Code::Forbidden, "no"), code(Code::LockHeld, "held")];
        let losses = [None, code(Code::LockLost, "lost")];
        let bugs = [None, code(Code::Internal, "a bug")];
        let reports = [None, code(Code::ReportUnwritten, "disk full")];
        let stops = [None, Some(Strength::Graceful), Some(Strength::Force)];
        let mut seen = 0;
        for failure in &failures {
            for (lost, broke) in losses.iter().flat_map(|lost| bugs.iter().map(move |broke| (lost, broke))) {
                for (stop, partial) in stops.into_iter().flat_map(|stop| [(stop, false), (stop, true)]) {
                    for (lock, report) in
                        LOCKS.into_iter().flat_map(|lock| reports.iter().map(move |report| (lock, report)))
                    {
                        let (failure, lost, broke) = (failure.clone(), lost.clone(), broke.clone());
                        let ending =
                            Ending { failure, lost, broke, stop, partial, begun: partial, ..Ending::default() };
                        assert_witnessed(&ending, lock, report.as_ref());
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 4 * 2 * 2 * 6 * 6 * 2);
    }

    #[track_caller]
    fn assert_witnessed(ending: &Ending, lock: LockEnd, report: Option<&Failure>) {
        let verdict = decide(ending, lock, report.cloned());
        let (exit, about) = (verdict.exit(), format!("{ending:?} {lock:?} {report:?}: {verdict:?}"));
        let is_held = matches!(lock, LockEnd::Left | LockEnd::Unknown);
        let went_well = ending.failure.is_none() && ending.lost.is_none() && ending.broke.is_none();
        let says = |word: &str| {
            verdict.failure.as_ref().is_some_and(|failure| {
                std::iter::once(&failure.message).chain(&failure.causes).any(|said| said.contains(word))
            })
        };
        match exit {
            0 => assert!(went_well && ending.stop.is_none() && !is_held && report.is_none(), "{about}"),
            10 => assert!(ending.stop.is_some() && !ending.partial && !is_held, "{about}"),
            11 => assert!(ending.stop.is_some() && ending.partial && says("PARTIALLY APPLIED"), "{about}"),
            12 => assert!(is_held && (ending.stop.is_some() || went_well), "{about}"),
            22 => assert!(ending.lost.is_some() && ending.stop != Some(Strength::Force), "{about}"),
            40 => assert!(went_well && ending.stop.is_none() && !is_held && report.is_some(), "{about}"),
            70 => assert!(ending.broke.is_some() && ending.lost.is_none(), "{about}"),
            1 | 5 | 20 => assert!(ending.failure.is_some() && ending.stop.is_none(), "{about}"),
            other => panic!("{other}: {about}"),
        }
        // A forced run never passes for a clean one while it has left the lock.
        assert!(!(ending.stop == Some(Strength::Force) && is_held) || exit == 12, "{about}");
        // That something may be half done is never kept back.
        let silent = ending.partial && ending.lost.is_none() && ending.stop == Some(Strength::Graceful);
        assert!(!silent || says("PARTIALLY APPLIED"), "{about}");
        let is_stop = matches!(verdict.outcome, RunOutcome::Stopped);
        assert!(!is_stop || ending.stop.is_some(), "{about}");
        assert_eq!(verdict.outcome == RunOutcome::Succeeded, exit == 0 || exit == 40, "{about}");
    }

    #[test]
    fn what_keeps_the_lock_is_a_cause_and_its_hint_comes_instead_of_the_table_s() {
        let kept = Failure::new(Code::StoppedForced, "finalizers keep it").hint("take them off");
        let explained = |ending, lock| decide(&ending, lock, None).explained(Some(&kept)).failure.expect("a failure");
        let left = explained(ending(), LockEnd::Left);
        assert_eq!((left.causes, left.hints), (vec![kept.message.clone()], kept.hints.clone()));
        let broke = Failure::new(Code::ChartFailed, "helm failed");
        assert_eq!(explained(Ending { failure: Some(broke.clone()), ..ending() }, LockEnd::Left), broke);
        let silent = Failure::new(Code::ClusterUnreachable, "no answer");
        let left = decide(&ending(), LockEnd::Unknown, None).explained(Some(&silent)).failure.expect("a failure");
        assert!(left.hints.is_empty() && left.causes == ["no answer"], "{left:?}");
    }

    #[test]
    fn what_is_said_about_force_is_how_long_it_takes() {
        let grace = crate::process::Limits::default().last_grace;
        let said = crate::event::facts::stop::FORCE_ENDS_TOOLS;
        assert!(said.contains(&format!("after {} s at most", grace.as_secs())), "{said}");
    }

    #[test]
    fn only_what_was_not_begun_is_refused() {
        let failure = Some(Failure::new(Code::Forbidden, "no"));
        let outcome = |begun| {
            let ending = Ending { failure: failure.clone(), begun, ..Ending::default() };
            decide(&ending, LockEnd::Released, None).outcome
        };
        assert_eq!((outcome(false), outcome(true)), (RunOutcome::Refused, RunOutcome::Failed));
    }

    #[test]
    fn what_a_failed_step_says_is_not_lost_when_the_run_was_stopped() {
        let failure = Failure::new(Code::InfrastructureFailed, "killed").cause("in no state: a").hint("look at a");
        for stop in [Strength::Graceful, Strength::Force] {
            let ending = Ending { stop: Some(stop), partial: true, failure: Some(failure.clone()), ..ending() };
            let told = decide(&ending, LockEnd::Left, None).failure.expect("a failure");
            assert_eq!(told.causes, ["killed", "in no state: a"], "{stop:?}");
            assert_eq!(told.hints[0], "look at a", "{stop:?}");
            assert_eq!(told.hints[1], told.code.row().remedy, "{stop:?}");
        }
    }

    #[test]
    fn what_was_not_seen_to_complete_is_named() {
        let ending = Ending {
            stop: Some(Strength::Graceful),
            partial: true,
            unfinished: vec!["bed_thing.a".to_owned(), "bed_thing.b".to_owned()],
            ..Ending::default()
        };
        let failure = decide(&ending, LockEnd::Released, None).failure.expect("a failure");
        assert_eq!(failure.causes, ["begun, and not seen to complete: bed_thing.a, bed_thing.b"]);
    }
}
