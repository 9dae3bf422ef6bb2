//! Every choice in turn: what happens is enumerated, up to a number of things that go otherwise than they should.
//!
//! A schedule is a list of choices; the first of each is what happens when nothing goes wrong, and costs nothing. Each
//! other one is a deviation. [`Choices::next`] gives the schedule after this one, until all that have at most so many
//! deviations were played: an exhaustive search to that bound, without a copy of any state.

use std::time::Duration;

use crate::lock::protocol::Ask;
use crate::lock::protocol::schedules::fortune::{Act, Farewell, Fortune, Way};

/// What may go otherwise than it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deviation {
    /// A request is lost, or its reply.
    Loss,
    /// A request arrives late, or its reply.
    Delay,
    /// A request arrives twice.
    Copy,
    /// The API server is away.
    Outage,
    /// A run dies, or is cut off for good; or the process of the person dies.
    End,
    /// A run stands still, or the process of the person.
    Sleep,
    /// A person reclaims.
    Reclaim,
    /// A person breaks a reclaim off.
    BreakOff,
    /// A run waits for longer before it claims again.
    Pause,
}

impl Deviation {
    pub(super) const ALL: &[Deviation] = &[
        Deviation::Loss,
        Deviation::Delay,
        Deviation::Copy,
        Deviation::Outage,
        Deviation::End,
        Deviation::Sleep,
        Deviation::Reclaim,
        Deviation::BreakOff,
        Deviation::Pause,
    ];
}

/// How far a search goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// So many deviations at most in one schedule.
    pub(super) deviations: usize,
    /// And only of these kinds.
    pub(super) kinds: &'static [Deviation],
    /// How long a run that has the lock works.
    pub(super) work: Duration,
}

impl Bound {
    /// So many, of every kind, in short runs: with one renewal of their own.
    pub(super) const fn all(deviations: usize) -> Bound {
        Bound::only(deviations, Deviation::ALL)
    }

    /// So many, of these kinds, in short runs.
    pub(super) const fn only(deviations: usize, kinds: &'static [Deviation]) -> Bound {
        Bound { deviations, kinds, work: millis(13_000) }
    }

    /// So many, of these kinds, in runs that outlast a validity.
    pub(super) const fn long(deviations: usize, kinds: &'static [Deviation]) -> Bound {
        Bound { deviations, kinds, work: millis(100_000) }
    }
}

/// One choice that was made.
#[derive(Debug, Clone, Copy)]
struct Choice {
    taken: usize,
    of: usize,
}

/// A fortune that is enumerated.
#[derive(Debug, Clone)]
pub(super) struct Choices {
    script: Vec<usize>,
    made: Vec<Choice>,
    bound: Bound,
    left: usize,
}

impl Choices {
    /// The schedule in which nothing goes wrong, of all with at most so many deviations.
    pub(super) fn plain(bound: Bound) -> Choices {
        Choices::of(Vec::new(), bound)
    }

    /// The schedule of these choices, of all within this bound.
    pub(super) fn of(script: Vec<usize>, bound: Bound) -> Choices {
        Choices { script, made: Vec::new(), bound, left: bound.deviations }
    }

    /// The choices that made this schedule, up to the last deviation.
    pub(super) fn script(&self) -> Vec<usize> {
        let mut script: Vec<usize> = self.made.iter().map(|choice| choice.taken).collect();
        while script.last() == Some(&0) {
            script.pop();
        }
        script
    }

    /// The next schedule, after this one was played to its end.
    pub(super) fn next(mut self) -> Option<Choices> {
        while let Some(Choice { taken, of }) = self.made.pop() {
            if taken + 1 < of {
                let mut script: Vec<usize> = self.made.iter().map(|choice| choice.taken).collect();
                script.push(taken + 1);
                return Some(Choices::of(script, self.bound));
            }
        }
        None
    }

    /// Chooses among so many.
    fn choose(&mut self, many: usize) -> usize {
        let of = if self.left == 0 { 1 } else { many };
        let taken = self.script.get(self.made.len()).copied().unwrap_or(0);
        assert!(taken < of, "a schedule has to go the same way each time that it is played");
        self.left -= usize::from(taken > 0);
        self.made.push(Choice { taken, of });
        taken
    }

    /// What happens when nothing goes wrong, or one of these deviations.
    fn among<T>(&mut self, plain: T, deviations: Vec<(Deviation, T)>) -> T {
        let mut all = vec![plain];
        all.extend(deviations.into_iter().filter(|(kind, _)| self.bound.kinds.contains(kind)).map(|(_, what)| what));
        let taken = self.choose(all.len());
        all.swap_remove(taken)
    }
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const SOON: Duration = millis(20);

impl Fortune for Choices {
    fn way(&mut self, ask: &Ask) -> Way {
        let once = |there: u64, back: Option<u64>| vec![(millis(there), back.map(millis))];
        let arriving = |arrivals| Way { arrivals, ..Way::default() };
        let away = |outage| Way { arrivals: Vec::new(), outage: millis(outage) };
        let mut ways = vec![
            (Deviation::Loss, Way::default()),
            (Deviation::Delay, arriving(once(20, Some(4_900)))),
            (Deviation::Outage, away(20_000)),
            (Deviation::Outage, away(75_000)),
        ];
        // A read changes nothing: when it arrives is of no matter, and whether it was lost or its reply.
        if !matches!(ask, Ask::Read) {
            ways.extend([
                (Deviation::Loss, arriving(once(20, None))),
                (Deviation::Delay, arriving(once(4_900, Some(200)))),
                (Deviation::Delay, arriving(once(9_800, None))),
                (Deviation::Delay, arriving(once(12_000, None))),
                (Deviation::Copy, arriving(vec![(SOON, Some(SOON)), (millis(3_000), None)])),
                (Deviation::Copy, arriving(vec![(SOON, None), (millis(12_000), None)])),
            ]);
        }
        self.among(arriving(once(20, Some(20))), ways)
    }

    fn befalls(&mut self) -> Option<Act> {
        let fates = vec![
            (Deviation::End, Some(Act::Die)),
            (Deviation::Sleep, Some(Act::Suspend(millis(8_000)))),
            (Deviation::Sleep, Some(Act::Suspend(millis(70_000)))),
            (Deviation::End, Some(Act::CutOff)),
        ];
        self.among(None, fates)
    }

    fn looks(&mut self) -> Option<Duration> {
        self.among(None, vec![(Deviation::Reclaim, Some(SOON))])
    }

    fn types(&mut self) -> Duration {
        SOON
    }

    fn breaks_off(&mut self) -> Option<(Duration, Farewell)> {
        // While the Lease is watched; right when it is taken; while it is given back.
        let [watched, taken, given_back] = [30_000, 65_050, 65_090].map(millis);
        let sleeps = Farewell::Sleeps(millis(70_000));
        let fates = vec![
            (Deviation::BreakOff, Some((watched, Farewell::Interrupts))),
            (Deviation::BreakOff, Some((taken, Farewell::Interrupts))),
            (Deviation::BreakOff, Some((given_back, Farewell::Interrupts))),
            (Deviation::End, Some((taken, Farewell::Dies))),
            (Deviation::End, Some((given_back, Farewell::Dies))),
            (Deviation::Sleep, Some((taken, sleeps))),
            (Deviation::Sleep, Some((given_back, sleeps))),
        ];
        self.among(None, fates)
    }

    fn work(&mut self) -> Vec<(Duration, Act)> {
        vec![(millis(2_000), Act::Check), (millis(4_000), Act::Note), (self.bound.work, Act::Release)]
    }

    fn pause(&mut self) -> Duration {
        self.among(millis(1_000), vec![(Deviation::Pause, millis(70_000))])
    }

    fn stops(&mut self) -> Duration {
        millis(500)
    }
}
