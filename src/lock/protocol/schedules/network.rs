//! Chance, and what it does to requests and replies.

use std::time::Duration;

/// A small generator of pseudo-random numbers. The same seed gives the same schedule.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn number(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    pub(super) fn one_in(&mut self, many: u64) -> bool {
        self.number(many) == 0
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.number(to - from))
    }
}

/// The way of one request.
#[derive(Debug, Clone)]
pub(super) struct Way {
    /// After how long it arrives, once or twice; never when it is lost.
    pub(super) arrivals: Vec<Duration>,
    /// How long the reply to each takes; none when it is lost.
    pub(super) replies: Vec<Option<Duration>>,
}

/// How rough the network is in one schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    /// One message in so many has something happen to it.
    pub(super) trouble_in: u64,
}

impl Weather {
    pub(super) fn way(self, dice: &mut Dice) -> Way {
        let mut way = Way { arrivals: Vec::new(), replies: Vec::new() };
        let copies = if dice.one_in(self.trouble_in * 2) { 2 } else { 1 };
        for _ in 0..copies {
            if !dice.one_in(self.trouble_in) {
                way.arrivals.push(self.delay(dice));
                let reply = (!dice.one_in(self.trouble_in)).then(|| self.delay(dice));
                way.replies.push(reply);
            }
        }
        way
    }

    fn delay(self, dice: &mut Dice) -> Duration {
        if !dice.one_in(self.trouble_in) {
            return dice.millis(1, 60);
        }
        match dice.number(8) {
            0..4 => dice.millis(60, 4_950),
            4..6 => dice.millis(4_950, 9_900),
            6 => dice.millis(9_900, 30_000),
            _ => dice.millis(30_000, 150_000),
        }
    }
}
