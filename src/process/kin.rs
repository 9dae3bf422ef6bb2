//! Who belongs to a tool: everything that it started, however it tried to get away.
//!
//! No single mark is enough. A process group is left with `setsid`, the tree by a second fork, the tag by a cleaned
//! environment, the output by closing it. A process belongs to a tool when any of them still points at the tool, or
//! when it is a descendant of one that does.
//!
//! Invariant: what was started before the tool does not belong to it, whatever it has open. So a person who looks at
//! an output file, or an older process that writes to it, is left alone.

use std::path::Path;

use crate::process::group;
use crate::process::machine::Reach;
use crate::process::proc::{self, Opened, Stat, TAG, Way};
use crate::process::update::Tie;

/// Every living process that this run started and that carries its mark, with its short name: tools, what they started,
/// and credential plugins.
pub fn of_run(run: &str) -> Vec<(u32, String)> {
    let mut all = proc::all();
    all.retain(|stat| !stat.is_over() && proc::runs_of(stat.pid).iter().any(|of| of == run));
    all.into_iter().map(|stat| (stat.pid, stat.name)).collect()
}

/// The living process of this number, with its short name; none when there is none.
pub fn look_up(pid: u32) -> Option<(u32, String)> {
    Stat::of(pid).filter(|stat| !stat.is_over()).map(|stat| (stat.pid, stat.name))
}

/// One process that belongs to a tool.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The process.
    pub(crate) stat: Stat,
    /// How it belongs to the tool; at least one.
    pub(crate) ties: Vec<Tie>,
}

/// The marks of one tool.
#[derive(Debug)]
pub(crate) struct Kin {
    leader: u32,
    started: u64,
    tag: String,
    files: Vec<Opened>,
    /// The members that lived at the last [look](Kin::remember), each with its start.
    known: Vec<(u32, u64)>,
}

/// The number of no process: whose tool has ended unseen, its own may be another's by now.
const NOBODY: u32 = u32::MAX;

impl Kin {
    /// The marks of a tool that runs now, or has just ended and is not reaped yet.
    pub(crate) fn of(leader: u32, tag: &str, outputs: [&Path; 2]) -> Kin {
        // Without its own entry, nothing older can be told apart; then everything is looked at.
        let started = Stat::of(leader).map_or(0, |stat| stat.started);
        let files = outputs.into_iter().filter_map(Opened::file).collect();
        Kin { leader, started, tag: format!("{TAG}={tag}"), files, known: Vec::new() }
    }

    /// The marks of a tool of which all that is known is what was recorded: its process has ended, nobody knows when.
    pub(crate) fn without_leader(started: u64, tag: &str, outputs: [&Path; 2]) -> Kin {
        Kin { started, ..Kin::of(NOBODY, tag, outputs) }
    }

    /// Every living process that belongs to the tool, but for the tool's own.
    pub(crate) fn members(&self) -> Vec<Member> {
        let me = std::process::id();
        let adopted_from = group::is_adopting().then(group::own_group);
        let (mut inside, mut others) = (Vec::new(), Vec::new());
        for stat in self.younger() {
            // An orphan of the tool is our child now. Our own children (credential plugins) are in our group.
            let is_adopted = stat.parent == me && adopted_from.is_some_and(|own| own != stat.group);
            let ties = self.ties(&stat, is_adopted);
            if ties.is_empty() { others.push(stat) } else { inside.push(Member { stat, ties }) }
        }
        loop {
            let is_child = |stat: &Stat| inside.iter().any(|parent| parent.stat.pid == stat.parent);
            let (children, rest): (Vec<Stat>, Vec<Stat>) = others.into_iter().partition(is_child);
            others = rest;
            if children.is_empty() {
                return inside;
            }
            inside.extend(children.into_iter().map(|stat| Member { stat, ties: vec![Tie::Descendant] }));
        }
    }

    /// Writes down who belongs to the tool now. Where orphans are not adopted, who has no other mark than its parent
    /// would be lost with it.
    pub(crate) fn remember(&mut self) {
        self.known = self.members().into_iter().map(|member| (member.stat.pid, member.stat.started)).collect();
    }

    fn ties(&self, stat: &Stat, is_adopted: bool) -> Vec<Tie> {
        let seen = [
            (Tie::Descendant, self.known.contains(&(stat.pid, stat.started)) && stat.parent != self.leader),
            (Tie::Child, stat.parent == self.leader),
            (Tie::Orphan, is_adopted),
            (Tie::Group, stat.group == self.leader),
            (Tie::Mark, proc::has_variable(stat.pid, &self.tag)),
            (Tie::Output, proc::holds(stat.pid, &self.files, Way::Write)),
        ];
        seen.into_iter().filter_map(|(tie, is_so)| is_so.then_some(tie)).collect()
    }

    /// The processes that keep a pipe open which the tool reads: what a plugin left behind, and what the tool waits
    /// for. The tool's own plugins are never among them.
    pub(crate) fn holders(&self, reach: Reach) -> Vec<Member> {
        let pipes = proc::pipes(self.leader, Way::Read);
        if pipes.is_empty() {
            return Vec::new();
        }
        let younger = self.younger();
        let holders =
            younger.iter().filter(|stat| stat.parent != self.leader && proc::holds(stat.pid, &pipes, Way::Write));
        let (inside, outside): (Vec<&Stat>, Vec<&Stat>) = holders.partition(|stat| self.is_inside(stat, &younger));
        let (chosen, is_inside) = match reach {
            Reach::Anywhere if outside.is_empty() => (inside, true),
            Reach::Anywhere | Reach::Outside => (outside, false),
        };
        let me = std::process::id();
        let member = |stat: &Stat| {
            let ties = [
                (Tie::Descendant, is_inside),
                (Tie::Orphan, !is_inside && (stat.parent == me || stat.parent == 1)),
                (Tie::Pipe, true),
            ];
            let ties = ties.into_iter().filter_map(|(tie, is_so)| is_so.then_some(tie)).collect();
            Member { stat: stat.clone(), ties }
        };
        chosen.into_iter().map(member).collect()
    }

    fn is_inside(&self, stat: &Stat, all: &[Stat]) -> bool {
        let mut parent = stat.parent;
        // A chain of parents has no ring, but two looks at it may be from different moments.
        for _ in 0..all.len() {
            if parent == self.leader {
                return true;
            }
            match all.iter().find(|stat| stat.pid == parent) {
                Some(next) => parent = next.parent,
                None => return false,
            }
        }
        false
    }

    fn younger(&self) -> Vec<Stat> {
        let me = std::process::id();
        let mut all = proc::all();
        all.retain(|stat| stat.started >= self.started && !stat.is_over() && stat.pid != self.leader && stat.pid != me);
        all
    }
}
