//! The verdict of a run that was taken over: only what was seen. Pure, but for where the run directory is.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::event::{self, LockEnd, RunOutcome};
use crate::failure::{Code, Failure};
use crate::process;
use crate::run::chronicle::Chronicle;
use crate::run::spec::{Mode, Purpose, Spec};
use crate::run::tidy;
use crate::run::translate::millis;
use crate::step::{self, Stopped, Witness};

/// A tool that was seen to its end.
pub(super) struct Seen {
    pub(super) program: String,
    pub(super) witness: Rc<RefCell<Witness>>,
    pub(super) ended: process::Ended,
    pub(super) outputs: Vec<PathBuf>,
}

/// All that the verdict is made of.
#[derive(Debug)]
pub(super) struct Ending {
    /// The programs of which nothing was found, with their processes.
    pub(super) unseen: BTreeMap<String, u32>,
    /// What the ends of the others mean.
    pub(super) judged: Vec<(String, Stopped)>,
    /// Of some of those nobody saw the end: they were waited for no longer.
    pub(super) given_up: bool,
    /// What still lives, with its short name.
    pub(super) alive: BTreeMap<u32, String>,
    /// What that may still read, and nobody will remove by itself.
    pub(super) secrets: Vec<String>,
    /// Where the lock is.
    pub(super) lock: LockEnd,
    /// Whom the Lease names, as far as is known.
    pub(super) holder: Option<String>,
    /// Why it could not be given back.
    pub(super) why: Option<Failure>,
    /// How it was lost.
    pub(super) lost: Option<String>,
    /// The end was forced.
    pub(super) forced: bool,
    /// The run's identity.
    pub(super) owner: String,
    /// The command of the run may have been started, if it is for one.
    pub(super) command_begun: bool,
}

impl Ending {
    /// Whether the Lease may still bear the run's name.
    fn bears_our_name(&self) -> bool {
        match self.lock {
            LockEnd::Left | LockEnd::Unknown => true,
            LockEnd::Lost => self.holder.as_ref() == Some(&self.owner),
            LockEnd::Released | LockEnd::NeverTaken | LockEnd::NotHeld => false,
        }
    }

    fn code(&self) -> Code {
        let kept = matches!(self.lock, LockEnd::Left | LockEnd::Unknown);
        if self.forced && kept { Code::StoppedForced } else { Code::SupervisorKilled }
    }

    /// What became of the run, in what was seen of its tools and of its lock.
    fn sentence(&self) -> String {
        let killed = "the process that owned this run was killed";
        let all_seen = !self.given_up && self.unseen.is_empty();
        let forced = self.code() == Code::StoppedForced;
        let tools = match (forced, self.judged.is_empty() && self.unseen.is_empty(), all_seen) {
            (true, true, _) => ", and the end was forced",
            (true, false, true) => ", and its tools were ended by force",
            (true, false, false) => ", and the end was forced, but not all of its tools were seen to end",
            (false, _, _) if self.judged.is_empty() => {
                return "the process that owned this run ended without a verdict".to_owned();
            }
            (false, _, true) => "; its tools were seen to their end in its place",
            (false, _, false) => "; its tools were waited for in its place, and not all of them were seen to end",
        };
        let lock = match self.lock {
            LockEnd::Left if forced => ": the lock was left behind",
            LockEnd::Unknown if forced => ": it cannot be told where the lock is",
            LockEnd::Left
            | LockEnd::Unknown
            | LockEnd::Lost
            | LockEnd::Released
            | LockEnd::NeverTaken
            | LockEnd::NotHeld => "",
        };
        format!("{killed}{tools}{lock}")
    }

    fn failure(&self) -> Failure {
        let mut failure = Failure::new(self.code(), self.sentence());
        failure = self.lost.iter().cloned().fold(failure, Failure::cause);
        failure = self.judged.iter().map(|(_, stopped)| stopped.note.clone()).fold(failure, Failure::cause);
        for (program, pid) in &self.unseen {
            failure = failure.cause(if self.alive.contains_key(pid) {
                format!("nobody saw the end of {program} (process {pid}); it may still be at work")
            } else {
                format!("nobody saw how {program} (process {pid}) ended; it is not there any more")
            });
        }
        for (pid, name) in self.alive.iter().filter(|(pid, _)| !self.unseen.values().any(|known| known == *pid)) {
            failure = failure.cause(format!("process {pid} ({name}), which this run had started, is still there"));
        }
        self.why.iter().map(|why| why.message.clone()).fold(failure, Failure::cause)
    }

    /// What to do now, in this order.
    fn next(&self, spec: &Spec, unfinished: &[String]) -> Vec<String> {
        let mut next = Vec::new();
        if !self.alive.is_empty() {
            next.push("wait until the processes named above are gone".to_owned());
        }
        if !self.secrets.is_empty() {
            next.push(format!("then remove {}: there are credentials in it", self.secrets.join(" and ")));
        }
        if self.bears_our_name() {
            let (who, look) = (&self.owner, spec.place().status_command());
            next.push(format!("see with `{look}` whether the lock still names {who}: nobody renews it now"));
        }
        next.extend(again(spec, self.command_begun, unfinished));
        next
    }
}

/// How to go on. What a command of the caller's had done by then only a look can tell.
fn again(spec: &Spec, command_begun: bool, unfinished: &[String]) -> Vec<String> {
    let subject = spec.subject();
    match (&spec.purpose, step::look_first(unfinished)) {
        (Purpose::Command(command), _) if !command_begun => {
            vec![format!("run it again: `{}` was not started", command.name())]
        }
        (Purpose::Command(command), _) => {
            vec![format!("look at what `{}` had done by then before you run it again", command.name())]
        }
        (Purpose::Bundle(_), Some(look)) => vec![look, format!("run `dcctl {subject}` again")],
        (Purpose::Bundle(_), None) => {
            vec![format!("run `dcctl {subject}` again: it goes on from what is there")]
        }
    }
}

/// The last event.
pub(super) fn finished(spec: &Spec, ending: Ending, told: &Chronicle) -> event::RunFinished {
    let judged = ending.judged.iter().flat_map(|(_, stopped)| stopped.unfinished.clone());
    let unfinished: std::collections::BTreeSet<String> = told.unfinished().into_iter().chain(judged).collect();
    let unfinished = Vec::from_iter(unfinished);
    let failure = ending.failure();
    let next = ending.next(spec, &unfinished);
    let kept = tidy::stays(spec, &ending.secrets);
    event::RunFinished {
        subject: spec.subject(),
        outcome: if failure.code == Code::StoppedForced { RunOutcome::Forced } else { RunOutcome::Failed },
        exit_code: failure.code.exit(),
        failure: Some(event::Failed::from(failure)),
        command_end: None,
        lock: ending.lock,
        counts: told.counts(),
        unfinished,
        survived: told.survived(),
        holder: if ending.bears_our_name() || ending.lock == LockEnd::Lost { ending.holder } else { None },
        kept,
        next,
        dry_run: spec.mode == Mode::DryRun,
        duration_ms: millis(told.elapsed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending() -> Ending {
        Ending {
            unseen: BTreeMap::new(),
            judged: Vec::new(),
            given_up: false,
            alive: BTreeMap::new(),
            secrets: Vec::new(),
            lock: LockEnd::Released,
            holder: None,
            why: None,
            lost: None,
            forced: false,
            owner: "us".to_owned(),
            command_begun: true,
        }
    }

    fn with_a_tool() -> Ending {
        let stopped = Stopped { clean: true, unfinished: Vec::new(), note: "it ended".to_owned() };
        Ending { judged: vec![("tofu apply".to_owned(), stopped)], ..ending() }
    }

    #[test]
    fn no_more_is_said_than_was_seen_of_the_tools_and_of_the_lock() {
        use Code::{StoppedForced, SupervisorKilled};
        let given_up = || Ending { given_up: true, ..with_a_tool() };
        let not_found = || Ending { unseen: BTreeMap::from([("helm upgrade".to_owned(), 7)]), ..with_a_tool() };
        let forced = |ending: Ending, lock| Ending { forced: true, lock, ..ending };
        let (without, seen) = ("ended without a verdict", "; its tools were seen to their end in its place");
        let unseen = "; its tools were waited for in its place, and not all of them were seen to end";
        let (left, unknown) = (LockEnd::Left, LockEnd::Unknown);
        let rows = [
            (ending(), SupervisorKilled, without),
            (Ending { lock: left, ..ending() }, SupervisorKilled, without),
            (with_a_tool(), SupervisorKilled, seen),
            (Ending { lock: unknown, ..with_a_tool() }, SupervisorKilled, seen),
            (given_up(), SupervisorKilled, unseen),
            (not_found(), SupervisorKilled, unseen),
            (forced(ending(), left), StoppedForced, "was killed, and the end was forced: the lock was left behind"),
            (forced(with_a_tool(), left), StoppedForced, "its tools were ended by force: the lock was left behind"),
            (
                forced(with_a_tool(), unknown),
                StoppedForced,
                "its tools were ended by force: it cannot be told where the lock is",
            ),
            (
                forced(given_up(), left),
                StoppedForced,
                "not all of its tools were seen to end: the lock was left behind",
            ),
            (
                forced(not_found(), unknown),
                StoppedForced,
                "not all of its tools were seen to end: it cannot be told where the lock is",
            ),
            // Force that leaves no lock is no code of its own here.
            (forced(with_a_tool(), LockEnd::Released), SupervisorKilled, seen),
            (forced(with_a_tool(), LockEnd::Lost), SupervisorKilled, seen),
        ];
        for (ending, code, said) in rows {
            let failure = ending.failure();
            assert_eq!(failure.code, code, "{ending:?}");
            assert!(failure.message.ends_with(said), "{said}: {ending:?} {failure:?}");
        }
    }

    #[test]
    fn a_tool_that_was_not_found_is_named_with_whether_it_lives() {
        let unseen = || BTreeMap::from([("helm upgrade".to_owned(), 7)]);
        let gone = Ending { unseen: unseen(), ..ending() }.failure();
        assert_eq!(gone.causes, ["nobody saw how helm upgrade (process 7) ended; it is not there any more"]);
        let alive = BTreeMap::from([(7, "helm".to_owned()), (8, "provider".to_owned())]);
        let there = Ending { unseen: unseen(), alive, ..ending() }.failure();
        assert_eq!(
            there.causes,
            [
                "nobody saw the end of helm upgrade (process 7); it may still be at work",
                "process 8 (provider), which this run had started, is still there",
            ]
        );
    }

    #[test]
    fn the_lease_may_bear_the_run_s_name_unless_it_is_known_not_to() {
        let lost = |holder: &str| Ending { lock: LockEnd::Lost, holder: Some(holder.to_owned()), ..ending() };
        for (ending, bears) in [
            (Ending { lock: LockEnd::Left, ..ending() }, true),
            (Ending { lock: LockEnd::Unknown, ..ending() }, true),
            (lost("us"), true),
            (lost("another"), false),
            (ending(), false),
            (Ending { lock: LockEnd::NeverTaken, ..ending() }, false),
        ] {
            assert_eq!(ending.bears_our_name(), bears, "{ending:?}");
        }
    }
}
