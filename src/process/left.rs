//! What a tool left behind: found, named, ended, noticed.
//!
//! Invariant: what is kept of the ended is a few words, and no descriptor. A process that forks as fast as it can be
//! looked for leaves thousands of them.

use std::time::Duration;

use crate::clock::Instant;
use crate::process::group::{Life, Signal};
use crate::process::kin::Member;
use crate::process::machine::Force;
use crate::process::proc::Stat;
use crate::process::update::{Crowd, Fate, Left, Tie, Update};

/// How many are named one by one. More than these are found only of something that never stops forking.
const NAMED: usize = 100;

/// How often somebody must have been missed to be one that forks and ends, and not one that was about to end.
const MISSED: usize = 10;

/// Everything that was found so far, the living and the ended.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    found: Vec<Found>,
    /// How often somebody was there whom nobody saw.
    missed: usize,
}

#[derive(Debug)]
struct Found {
    pid: u32,
    started: u64,
    name: String,
    age: Duration,
    ties: Vec<Tie>,
    /// It was asked to end.
    asked: bool,
    /// None once it has ended.
    life: Option<Life>,
}

/// What one look at them brought.
#[derive(Debug)]
pub(crate) struct News {
    /// How many were seen for the first time.
    pub(crate) fresh: usize,
    /// What is to be said of them.
    pub(crate) updates: Vec<Update>,
}

impl Leftovers {
    /// Takes hold of those that were not known before, and names them.
    pub(crate) fn note(&mut self, seen: &[Member], now: Instant) -> News {
        let mut news = News { fresh: 0, updates: Vec::new() };
        for Member { stat, ties } in seen {
            if self.find(stat).is_some() {
                continue;
            }
            let Ok(life) = Life::of(stat.pid) else { continue };
            // The number may have been given away between the look and the hold.
            if Stat::of(stat.pid).is_none_or(|again| again.started != stat.started) {
                continue;
            }
            let (pid, name, age, ties) = (stat.pid, stat.name.clone(), stat.age(now), ties.clone());
            news.fresh += 1;
            if self.found.len() < NAMED {
                news.updates.push(Update::LeftBehind { pid, name: name.clone(), age, ties: ties.clone() });
            }
            self.found.push(Found { pid, started: stat.started, name, age, ties, asked: false, life: Some(life) });
        }
        news
    }

    /// Nobody who was found lived any more, and somebody was there.
    pub(crate) fn miss(&mut self) {
        self.missed += 1;
    }

    /// What there was beside those that were named one by one.
    pub(crate) fn unnamed(&self) -> Option<Crowd> {
        let more = self.found.len().saturating_sub(NAMED);
        if self.missed >= MISSED {
            return Some(Crowd::Unseen);
        }
        (more > 0).then_some(Crowd::Counted(more))
    }

    /// How many live. Those that have ended and became our children are reaped.
    pub(crate) fn alive(&mut self) -> usize {
        self.found.iter_mut().filter_map(Found::lives).count()
    }

    /// Asks those that were not asked yet to end, or kills them all.
    pub(crate) fn sweep(&mut self, force: Force) {
        for found in &mut self.found {
            match force {
                Force::Ask if found.asked => {}
                Force::Ask => found.signal(Signal::Terminate),
                Force::Kill => found.signal(Signal::Kill),
            }
        }
    }

    /// Asks these to end; kills those among them that were asked before.
    pub(crate) fn end(&mut self, these: &[Member]) {
        for member in these {
            if let Some(found) = self.find(&member.stat) {
                found.signal(if found.asked { Signal::Kill } else { Signal::Terminate });
            }
        }
    }

    /// The list, as it stands now: the named ones, and of the others those that live.
    pub(crate) fn report(&mut self) -> Vec<Left> {
        let report = |(at, found): (usize, &mut Found)| {
            let fate = if found.lives().is_some() { Fate::Alive } else { Fate::Ended };
            let state = if fate == Fate::Ended { 'X' } else { Stat::of(found.pid).map_or('?', |stat| stat.state) };
            let (pid, name, age, ties) = (found.pid, found.name.clone(), found.age, found.ties.clone());
            (at < NAMED || fate == Fate::Alive).then_some(Left { pid, name, age, ties, state, fate })
        };
        self.found.iter_mut().enumerate().filter_map(report).collect()
    }

    fn find(&mut self, stat: &Stat) -> Option<&mut Found> {
        self.found.iter_mut().find(|found| found.pid == stat.pid && found.started == stat.started)
    }
}

impl Found {
    fn signal(&mut self, signal: Signal) {
        self.asked = true;
        let Some(life) = &self.life else { return };
        // It may have just ended, or belong to another user; either shows in the next count.
        if let Err(error) = life.signal(signal) {
            tracing::debug!(pid = self.pid, %error, "a process that a tool left behind could not be signalled");
        }
    }

    /// Some if it does.
    fn lives(&mut self) -> Option<()> {
        if self.life.as_ref()?.is_over() {
            let life = self.life.take()?;
            life.reap();
            return None;
        }
        Some(())
    }
}
