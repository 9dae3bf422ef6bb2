//! Chance: what happens is drawn by lot, from a seed.

use std::time::Duration;

use crate::lock::protocol::Ask;
use crate::lock::protocol::schedules::fortune::{Act, Farewell, Fortune, Way};

/// A small generator of pseudo-random numbers. The same seed gives the same schedule.
#[derive(Debug, Clone)]
pub(super) struct Dice(fastrand::Rng);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(fastrand::Rng::with_seed(seed))
    }

    pub(super) fn number(&mut self, below: u64) -> u64 {
        self.0.u64(..below.max(1))
    }

    pub(super) fn one_in(&mut self, many: u64) -> bool {
        self.number(many) == 0
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.number(to - from))
    }
}

/// A fortune that is drawn.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    pub(super) dice: Dice,
    /// One message in so many has something happen to it.
    pub(super) trouble_in: u64,
    /// How many more times the person begins to look right after a write, the worst moment for the holder.
    pub(super) looks: u64,
}

impl Chance {
    fn delay(&mut self) -> Duration {
        if !self.dice.one_in(self.trouble_in) {
            return self.dice.millis(1, 60);
        }
        match self.dice.number(8) {
            0..4 => self.dice.millis(60, 4_950),
            4..6 => self.dice.millis(4_950, 9_900),
            6 => self.dice.millis(9_900, 30_000),
            _ => self.dice.millis(30_000, 150_000),
        }
    }
}

impl Fortune for Chance {
    fn way(&mut self, _: &Ask) -> Way {
        let mut way = Way::default();
        let copies = if self.dice.one_in(self.trouble_in * 2) { 2 } else { 1 };
        for _ in 0..copies {
            if !self.dice.one_in(self.trouble_in) {
                let there = self.delay();
                let back = (!self.dice.one_in(self.trouble_in)).then(|| self.delay());
                way.arrivals.push((there, back));
            }
        }
        way
    }

    fn befalls(&mut self) -> Option<Act> {
        // Drawn for the whole schedule when it is set up.
        None
    }

    fn looks(&mut self) -> Option<Duration> {
        (self.looks > 0 && self.dice.one_in(3)).then(|| {
            self.looks -= 1;
            self.dice.millis(0, 1_000)
        })
    }

    fn types(&mut self) -> Duration {
        self.dice.millis(0, 500)
    }

    fn breaks_off(&mut self) -> Option<(Duration, Farewell)> {
        let farewell = match self.dice.number(12) {
            0 | 1 => Farewell::Interrupts,
            2 => Farewell::Dies,
            3 => Farewell::Sleeps(self.dice.millis(1_000, 150_000)),
            _ => return None,
        };
        Some((self.dice.millis(0, 90_000), farewell))
    }

    fn work(&mut self) -> Vec<(Duration, Act)> {
        let mut work = Vec::new();
        for _ in 0..self.dice.number(6) {
            let at = self.dice.millis(0, 60_000);
            work.push((at, if self.dice.one_in(2) { Act::Check } else { Act::Note }));
        }
        work.push((self.dice.millis(100, 90_000), Act::Release));
        work
    }

    fn pause(&mut self) -> Duration {
        self.dice.millis(10, 30_000)
    }

    fn stops(&mut self) -> Duration {
        self.dice.millis(100, 20_000)
    }
}
