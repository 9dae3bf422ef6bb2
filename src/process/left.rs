//! What a tool left behind: found, named, ended, noticed.

use std::time::Duration;

use crate::clock::Instant;
use crate::process::group::{Life, Signal};
use crate::process::machine::Force;
use crate::process::proc::Stat;
use crate::process::update::{Fate, Left, Update};

/// Everything that was found so far, the living and the ended.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    found: Vec<Found>,
}

#[derive(Debug)]
struct Found {
    pid: u32,
    started: u64,
    name: String,
    age: Duration,
    /// It was asked to end.
    asked: bool,
    life: Life,
}

impl Leftovers {
    /// Takes hold of those that were not known before. Returns one update for each of them.
    pub(crate) fn note(&mut self, seen: &[Stat], now: Instant) -> Vec<Update> {
        let mut updates = Vec::new();
        for stat in seen {
            if self.find(stat).is_some() {
                continue;
            }
            let Ok(life) = Life::of(stat.pid) else { continue };
            // The number may have been given away between the look and the hold.
            if Stat::of(stat.pid).is_none_or(|again| again.started != stat.started) {
                continue;
            }
            let (pid, name, age) = (stat.pid, stat.name.clone(), stat.age(now));
            updates.push(Update::LeftBehind { pid, name: name.clone(), age });
            self.found.push(Found { pid, started: stat.started, name, age, asked: false, life });
        }
        updates
    }

    /// How many live. Those that have ended and became our children are reaped.
    pub(crate) fn alive(&self) -> usize {
        self.found.iter().filter(|found| !found.is_over()).count()
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
    pub(crate) fn end(&mut self, these: &[Stat]) {
        for stat in these {
            if let Some(found) = self.find(stat) {
                found.signal(if found.asked { Signal::Kill } else { Signal::Terminate });
            }
        }
    }

    /// The list, as it stands now.
    pub(crate) fn report(&self) -> Vec<Left> {
        let report = |found: &Found| {
            let fate = if found.is_over() { Fate::Ended } else { Fate::Alive };
            let state = if fate == Fate::Ended { 'X' } else { Stat::of(found.pid).map_or('?', |stat| stat.state) };
            Left { pid: found.pid, name: found.name.clone(), age: found.age, state, fate }
        };
        self.found.iter().map(report).collect()
    }

    fn find(&mut self, stat: &Stat) -> Option<&mut Found> {
        self.found.iter_mut().find(|found| found.pid == stat.pid && found.started == stat.started)
    }
}

impl Found {
    fn signal(&mut self, signal: Signal) {
        self.asked = true;
        // It may have just ended, or belong to another user; either shows in the next count.
        if let Err(error) = self.life.signal(signal) {
            tracing::debug!(pid = self.pid, %error, "a process that a tool left behind could not be signalled");
        }
    }

    fn is_over(&self) -> bool {
        let over = self.life.is_over();
        if over {
            self.life.reap();
        }
        over
    }
}
