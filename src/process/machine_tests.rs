//! Tables of the machine: every manner, phase and input, and seeded schedules with the one property that matters.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

const MANNERS: [Manner; 5] = [Manner::OpenTofu, Manner::Helm, Manner::Unsignalled, Manner::Query, Manner::Group];

const INT: ToolSignal = ToolSignal::Interrupt;

fn at(millis: u64) -> Instant {
    Instant::since_boot(Duration::from_millis(1_000_000 + millis))
}

fn graceful(millis: u64) -> Input {
    Input::Asked(Stop::Graceful { since: at(millis), directly: Directly::No })
}

fn forced(millis: u64) -> Input {
    Input::Asked(Stop::Force { since: at(millis) })
}

fn heard(sign: Sign) -> Input {
    Input::Heard(Some(sign))
}

/// Drives a machine by the clock alone: jumps to each moment it asks for, and to each input of the script. Returns
/// what it did and when, in milliseconds.
fn play(mut machine: Machine, script: &[(u64, Input)], until: u64) -> Vec<(u64, Effect)> {
    let mut done = Vec::new();
    let mut inputs = script.iter().copied().peekable();
    let mut now = 0;
    loop {
        let due = machine.due().map_or(u64::MAX, |due| millis(due).max(now));
        let (moment, input) = match inputs.peek() {
            Some((moment, _)) if *moment <= due => inputs.next().expect("it was there"),
            Some(_) | None => (due, Input::Tick),
        };
        if moment > until || moment == u64::MAX {
            return done;
        }
        now = moment;
        done.extend(machine.take(input, at(now)).into_iter().map(|effect| (now, effect)));
    }
}

fn millis(moment: Instant) -> u64 {
    u64::try_from(moment.since(at(0)).as_millis()).expect("a short test")
}

fn machine(manner: Manner) -> Machine {
    Machine::new(manner, Limits::default(), None, at(0))
}

const BUDGET: u64 = 20 * 60 * 1000;

#[test]
fn a_tool_that_nobody_stops_is_waited_for_as_long_as_it_takes() {
    for manner in MANNERS {
        assert_eq!(play(machine(manner), &[], u64::MAX), []);
    }
}

#[test]
fn one_request_is_one_signal_and_the_rest_comes_at_the_end_of_the_budget() {
    use Effect::{Finish, Interrupt, Kill, KillTree};
    use Why::{BudgetEnded, StopRequested};
    let ended = |manner| play(machine(manner), &[(1000, graceful(1000))], u64::MAX);
    let end = 1000 + BUDGET;
    let first = (1250, Interrupt(INT, StopRequested));
    let unblocking = |effects: Vec<(u64, Effect)>| -> Vec<(u64, Effect)> {
        effects.into_iter().filter(|(_, effect)| !matches!(effect, Effect::Unblock(_))).collect()
    };
    assert_eq!(
        unblocking(ended(Manner::OpenTofu)),
        [
            first,
            (end, Interrupt(INT, BudgetEnded)),
            (end + 8000, Kill(BudgetEnded)),
            (end + 9000, KillTree),
            (end + 60_000, Finish)
        ]
    );
    assert_eq!(ended(Manner::Helm), [first, (end, Kill(BudgetEnded)), (end + 1000, KillTree), (end + 60_000, Finish)]);
    assert_eq!(
        ended(Manner::Unsignalled),
        [
            (end, Interrupt(INT, BudgetEnded)),
            (end + 8000, Kill(BudgetEnded)),
            (end + 9000, KillTree),
            (end + 60_000, Finish)
        ]
    );
    assert_eq!(ended(Manner::Query), [first, (11_250, Kill(StopRequested)), (12_250, KillTree), (71_250, Finish)]);
    assert_eq!(
        ended(Manner::Group),
        [
            (1250, Interrupt(ToolSignal::Terminate, StopRequested)),
            (end, Kill(BudgetEnded)),
            (end + 1000, KillTree),
            (end + 60_000, Finish)
        ]
    );
}

#[test]
fn twenty_more_requests_change_nothing() {
    for manner in MANNERS {
        let one = play(machine(manner), &[(0, graceful(0))], BUDGET - 1);
        let many: Vec<_> = (0..21).map(|n| (n * 40, graceful(n * 40))).collect();
        assert_eq!(play(machine(manner), &many, BUDGET - 1), one, "{manner:?}");
    }
}

#[test]
fn a_tool_that_reports_an_interrupt_by_then_gets_none_from_us() {
    for manner in [Manner::OpenTofu, Manner::Helm] {
        for report_at in [0, 100, 249] {
            let script = [(0, graceful(0)), (report_at, heard(Sign::Interrupted))];
            let done = play(machine(manner), &script, 9000);
            assert_eq!(done, [(report_at, Effect::SayReported)], "{manner:?} at {report_at}");
        }
        // Before anybody asked for a stop: the system was faster than its own word to us.
        let script = [(0, heard(Sign::Interrupted)), (500, graceful(500))];
        assert_eq!(play(machine(manner), &script, 9000), [(0, Effect::SayReported)], "{manner:?}");
    }
}

#[test]
fn a_supervisor_that_was_signalled_itself_waits_two_seconds_for_the_report_of_opentofu() {
    let directly = Input::Asked(Stop::Graceful { since: at(0), directly: Directly::Yes });
    let interrupt = Effect::Interrupt(INT, Why::StopRequested);
    assert_eq!(play(machine(Manner::OpenTofu), &[(0, directly)], 5000), [(2000, interrupt)]);
    assert_eq!(play(machine(Manner::Helm), &[(0, directly)], 5000), [(250, interrupt)]);
    let script = [(0, directly), (1999, heard(Sign::Interrupted))];
    assert_eq!(play(machine(Manner::OpenTofu), &script, 5000), [(1999, Effect::SayReported)]);
}

#[test]
fn a_second_interrupt_of_the_system_is_counted() {
    let mut tofu = machine(Manner::OpenTofu);
    tofu.take(graceful(0), at(0));
    tofu.take(Input::Tick, at(250));
    assert_eq!(tofu.take(heard(Sign::Interrupted), at(252)), [Effect::SayReported]);
    assert_eq!((tofu.sent(), tofu.reported()), (1, 1));
    assert_eq!(tofu.take(heard(Sign::Interrupted), at(900)), [Effect::SayReported]);
    assert_eq!((tofu.sent(), tofu.reported()), (1, 2));
}

#[test]
fn a_tool_that_starts_after_the_request_is_still_stopped() {
    let late = play(machine(Manner::OpenTofu), &[(5000, graceful(0))], 6000);
    assert_eq!(late, [(5000, Effect::Interrupt(INT, Why::StopRequested))]);
}

#[test]
fn force_ends_every_tool_within_eight_seconds() {
    for manner in MANNERS {
        for before in [vec![], vec![(0, graceful(0))]] {
            let mut script = before.clone();
            script.push((1000, forced(1000)));
            let done = play(machine(manner), &script, u64::MAX);
            let kill = done.iter().find(|(_, effect)| *effect == Effect::Kill(Why::Forced));
            assert_eq!(kill.map(|(moment, _)| *moment), Some(9000), "{manner:?} after {before:?}");
            assert_eq!(done.last(), Some(&(14_000, Effect::Finish)), "{manner:?} after {before:?}");
        }
    }
}

#[test]
fn a_forced_opentofu_gets_the_second_interrupt_that_frees_its_state_lock() {
    let second = |script: &[(u64, Input)]| {
        let done = play(machine(Manner::OpenTofu), script, 8000);
        done.iter().filter(|(_, effect)| matches!(effect, Effect::Interrupt(..))).map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(second(&[(0, forced(0))]), [0, 2500]);
    assert_eq!(second(&[(0, graceful(0)), (1000, forced(1000))]), [250, 1000]);
    assert_eq!(second(&[(0, graceful(0)), (100, heard(Sign::Interrupted)), (1000, forced(1000))]), [1000]);
}

#[test]
fn a_timeout_ends_a_command_and_what_it_left_is_killed_at_once() {
    let limited = Machine::new(Manner::Group, Limits::default(), Some(SECOND * 30), at(0));
    let script = [(31_000, Input::LeaderEnded), (31_000, Input::Left { alive: 1, fresh: 1 })];
    assert_eq!(
        play(limited, &script, 40_000),
        [
            (30_000, Effect::Interrupt(ToolSignal::Terminate, Why::TimedOut)),
            (31_000, Effect::List),
            (31_000, Effect::Sweep(Force::Kill))
        ]
    );
}

#[test]
fn what_is_left_is_asked_then_killed_then_waited_for_a_minute() {
    for manner in MANNERS {
        let script = [
            (0, Input::LeaderEnded),
            (0, Input::Left { alive: 2, fresh: 2 }),
            (1000, Input::Left { alive: 2, fresh: 1 }),
            (1500, Input::Left { alive: 2, fresh: 0 }),
            (6000, Input::Left { alive: 1, fresh: 1 }),
        ];
        assert_eq!(
            play(machine(manner), &script, u64::MAX),
            [
                (0, Effect::List),
                (0, Effect::Sweep(Force::Ask)),
                (1000, Effect::Sweep(Force::Ask)),
                (5000, Effect::Sweep(Force::Kill)),
                (6000, Effect::Sweep(Force::Kill)),
                (65_000, Effect::Finish)
            ]
        );
    }
}

#[test]
fn a_tool_that_leaves_nothing_is_done_when_it_has_ended() {
    for manner in MANNERS {
        let script = [(0, Input::LeaderEnded), (0, Input::Left { alive: 0, fresh: 0 })];
        assert_eq!(play(machine(manner), &script, u64::MAX), [(0, Effect::List), (0, Effect::Finish)]);
    }
}

#[test]
fn force_during_the_sweep_kills_at_once() {
    let script = [
        (0, Input::LeaderEnded),
        (0, Input::Left { alive: 1, fresh: 1 }),
        (100, forced(100)),
        (101, forced(101)),
        (200, Input::Left { alive: 0, fresh: 0 }),
    ];
    assert_eq!(
        play(machine(Manner::OpenTofu), &script, u64::MAX),
        [(0, Effect::List), (0, Effect::Sweep(Force::Ask)), (100, Effect::Sweep(Force::Kill)), (200, Effect::Finish)]
    );
}

#[test]
fn the_watchdog_covers_a_sweep_too() {
    let limits = Limits { budget: SECOND, watchdog: SECOND * 3, sweep_grace: SECOND * 60, ..Limits::default() };
    let swept = Machine::new(Manner::Helm, limits, None, at(0));
    let script = [(0, graceful(0)), (100, Input::LeaderEnded), (100, Input::Left { alive: 1, fresh: 1 })];
    assert_eq!(play(swept, &script, u64::MAX).last(), Some(&(4000, Effect::Finish)));
}

#[test]
fn a_concluded_tool_that_does_not_exit_is_unblocked_and_not_signalled() {
    let script = [(0, heard(Sign::Opened)), (1000, heard(Sign::Closed)), (2000, heard(Sign::Concluded))];
    let done = play(machine(Manner::OpenTofu), &script, 20_000);
    let unblock = Effect::Unblock(Reach::Anywhere);
    assert_eq!(done, [(12_000, unblock), (17_000, unblock)]);
    for manner in [Manner::Helm, Manner::Unsignalled, Manner::Query, Manner::Group] {
        assert_eq!(play(machine(manner), &script, 20_000), [], "{manner:?}");
    }
}

#[test]
fn silence_alone_unblocks_only_when_everything_begun_is_over() {
    let both = [(0, heard(Sign::Opened)), (0, heard(Sign::Opened)), (1000, heard(Sign::Closed))];
    assert_eq!(play(machine(Manner::OpenTofu), &both, 1_000_000), []);
    assert_eq!(play(machine(Manner::OpenTofu), &[(0, Input::Heard(None))], 1_000_000), []);
    let over = [(0, heard(Sign::Opened)), (1000, heard(Sign::Closed))];
    assert_eq!(play(machine(Manner::OpenTofu), &over, 62_000), [(61_000, Effect::Unblock(Reach::Anywhere))]);
    let spoke = [(0, heard(Sign::Opened)), (1000, heard(Sign::Closed)), (60_000, Input::Heard(None))];
    assert_eq!(play(machine(Manner::OpenTofu), &spoke, 119_000), []);
}

#[test]
fn while_stopping_only_orphans_are_ended_until_everything_begun_is_over() {
    let reach = |script: &[(u64, Input)], until| {
        let done = play(machine(Manner::OpenTofu), script, until);
        done.into_iter()
            .filter_map(|(moment, effect)| match effect {
                Effect::Unblock(reach) => Some((moment, reach)),
                Effect::Interrupt(..)
                | Effect::SayReported
                | Effect::Kill(_)
                | Effect::KillTree
                | Effect::List
                | Effect::Sweep(_)
                | Effect::Finish => None,
            })
            .collect::<Vec<_>>()
    };
    let busy = [(0, heard(Sign::Opened)), (0, graceful(0)), (300, heard(Sign::Interrupted))];
    assert!(reach(&busy, 300_000).iter().all(|(_, reach)| *reach == Reach::Outside));
    assert_eq!(reach(&busy, 16_000), [(10_300, Reach::Outside), (15_300, Reach::Outside)]);
    let over = [(0, heard(Sign::Opened)), (0, graceful(0)), (300, heard(Sign::Closed))];
    assert_eq!(reach(&over, 70_000).last(), Some(&(65_300, Reach::Anywhere)));
}

#[test]
fn every_phase_takes_every_input_and_nothing_happens_after_the_end() {
    let inputs = [
        Input::Heard(None),
        heard(Sign::Interrupted),
        heard(Sign::Concluded),
        Input::Asked(Stop::None),
        graceful(0),
        forced(0),
        Input::Tick,
        Input::LeaderEnded,
        Input::Left { alive: 1, fresh: 1 },
        Input::Left { alive: 0, fresh: 0 },
    ];
    let (soon, later) = (at(1), at(2));
    let phases = [
        Phase::Running,
        Phase::Holding { until: later },
        Phase::Stopping { until: later },
        Phase::Ending { again: None, kill_at: later },
        Phase::Ending { again: Some(later), kill_at: later },
        Phase::Killing { tree_at: Some(later) },
        Phase::Killing { tree_at: None },
        Phase::Listing,
        Phase::Sweeping { kill_at: Some(later) },
        Phase::Sweeping { kill_at: None },
        Phase::Done,
    ];
    for manner in MANNERS {
        for phase in phases {
            for input in inputs {
                let mut machine = machine(manner);
                machine.phase = phase;
                let effects = machine.take(input, soon);
                let quiet = matches!(phase, Phase::Done) && input != heard(Sign::Interrupted);
                assert!(!quiet || effects.is_empty(), "{manner:?} {phase:?} {input:?}: {effects:?}");
                if phase == Phase::Done {
                    assert_eq!(machine.phase, Phase::Done);
                }
            }
        }
    }
}

#[test]
fn whatever_happens_a_tool_gets_one_interrupt_before_the_budget_ends() {
    for seed in 1..40_000_u64 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let manner = MANNERS[dice.usize(..MANNERS.len())];
        let mut script: Vec<(u64, Input)> = (0..dice.u64(..30))
            .map(|_| {
                let moment = dice.u64(..BUDGET);
                let input = match dice.u64(..8) {
                    0 => heard(Sign::Interrupted),
                    1 => heard(Sign::Opened),
                    2 => heard(Sign::Closed),
                    3 => heard(Sign::Concluded),
                    4 | 5 => graceful(moment),
                    6 => Input::Tick,
                    _ => Input::Heard(None),
                };
                (moment, input)
            })
            .collect();
        script.sort_by_key(|(moment, _)| *moment);
        let asked = script.iter().find(|(_, input)| matches!(input, Input::Asked(_))).map(|(moment, _)| *moment);
        let before_end = asked.map_or(2 * BUDGET, |asked| asked + BUDGET - 1);
        let done = play(machine(manner), &script, before_end);
        let signals = done.iter().filter(|(_, effect)| matches!(effect, Effect::Interrupt(..))).count();
        assert!(signals <= 1, "seed {seed}: {manner:?} {script:?} {done:?}");
        assert!(asked.is_some() || signals == 0, "seed {seed}: nobody asked {done:?}");
        let kills = done.iter().any(|(_, effect)| matches!(effect, Effect::Kill(_)));
        assert!(!kills || manner == Manner::Query, "seed {seed}: {manner:?} {done:?}");
    }
}

#[test]
fn every_stop_has_an_end() {
    for seed in 1..10_000_u64 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let manner = MANNERS[dice.usize(..MANNERS.len())];
        let asked = dice.u64(..10_000);
        let mut script = vec![(asked, graceful(asked))];
        if dice.bool() {
            script.push((asked + dice.u64(..2 * BUDGET), forced(0)));
        }
        if dice.bool() {
            let ended = asked + dice.u64(..2 * BUDGET);
            script.push((ended, Input::LeaderEnded));
            script.push((ended, Input::Left { alive: 3, fresh: 3 }));
        }
        script.sort_by_key(|(moment, _)| *moment);
        let done = play(machine(manner), &script, u64::MAX);
        let (last, effect) = done.last().expect("something was done");
        assert_eq!(*effect, Effect::Finish, "seed {seed}");
        assert!(*last <= asked + BUDGET + 60_000, "seed {seed}: {done:?}");
    }
}

fn inherited(manner: Manner, before: Before) -> (Machine, Vec<Effect>) {
    Machine::inherit(manner, Limits::default(), before, at(0))
}

#[test]
fn a_tool_that_is_inherited_gets_the_interrupt_that_it_did_not_have() {
    let row = |manner, before, said: &[(u64, Input)]| -> Vec<(u64, Effect)> {
        let (machine, first) = inherited(manner, before);
        assert_eq!(first, []);
        let script: Vec<(u64, Input)> = said.iter().copied().chain([(0, graceful(0))]).collect();
        let mut script = script;
        script.sort_by_key(|(moment, _)| *moment);
        play(machine, &script, 60_000)
            .into_iter()
            .filter(|(_, effect)| matches!(effect, Effect::Interrupt(..)))
            .collect()
    };
    let because = Why::StopRequested;
    let reported = [(1500, heard(Sign::Interrupted))];
    for manner in [Manner::OpenTofu, Manner::Helm] {
        assert_eq!(row(manner, Before::Nothing, &[]), [(250, Effect::Interrupt(INT, because))], "{manner:?}");
        assert_eq!(row(manner, Before::Intended, &[]), [(2000, Effect::Interrupt(INT, because))], "{manner:?}");
        assert_eq!(row(manner, Before::Intended, &reported), [], "{manner:?}");
        assert_eq!(row(manner, Before::Sent, &[]), [], "{manner:?}");
    }
    let terminate = Effect::Interrupt(ToolSignal::Terminate, because);
    assert_eq!(row(Manner::Group, Before::Nothing, &[]), [(250, terminate)]);
    assert_eq!(row(Manner::Group, Before::Sent, &[]), []);
    for before in [Before::Nothing, Before::Intended, Before::Sent] {
        assert_eq!(row(Manner::Unsignalled, before, &[]), [], "{before:?}");
    }
}

#[test]
fn a_report_of_an_interrupt_that_was_recorded_is_that_of_ours() {
    let (mut machine, _) = inherited(Manner::OpenTofu, Before::Intended);
    machine.take(heard(Sign::Interrupted), at(0));
    machine.take(graceful(10), at(10));
    assert_eq!((machine.sent(), machine.reported(), machine.why()), (1, 1, Some(Why::StopRequested)));
}

#[test]
fn a_tool_that_had_its_last_interrupt_is_killed_after_the_last_grace() {
    let (machine, first) = inherited(Manner::OpenTofu, Before::SentAgain);
    assert_eq!(first, []);
    let done = play(machine, &[(0, graceful(0))], 20_000);
    assert_eq!(done.first(), Some(&(8000, Effect::Kill(Why::BudgetEnded))));
    assert_eq!(inherited(Manner::Helm, Before::Killed).1, [Effect::Kill(Why::BudgetEnded)]);
}

#[test]
fn what_an_inherited_tool_left_behind_is_ended_although_it_has_ended_itself() {
    let (machine, _) = inherited(Manner::OpenTofu, Before::Nothing);
    let left = Input::Left { alive: 1, fresh: 1 };
    let done = play(machine, &[(0, graceful(0)), (1, Input::LeaderEnded), (2, left)], 3000);
    let effects: Vec<Effect> = done.into_iter().map(|(_, effect)| effect).collect();
    assert_eq!(effects, [Effect::List, Effect::Sweep(Force::Ask)]);
}
