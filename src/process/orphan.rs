//! Finds the tools of a run whose owner has ended: by their records, and by the tag in their environment.
//!
//! The owner may have been killed at any moment: before it wrote down which process a tool is, or before that process had
//! become the tool. So the search is over only when a second brought no tool that was not known.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use crate::clock::Clock;
use crate::process::group::Life;
use crate::process::machine::Before;
use crate::process::proc::{self, Stat};
use crate::process::record::{Care, Intent, NOT_YET, Record, Recorded};
use crate::process::spec::Manner;

/// How long nothing new has to come before the search is over.
const NOTHING_NEW: Duration = Duration::from_secs(1);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// A tool that runs, or has run, without anybody who looks after it.
#[derive(Debug)]
pub struct Orphan {
    /// What people call it.
    pub name: String,
    pub(crate) tag: String,
    pub(crate) pid: u32,
    pub(crate) started: u64,
    pub(crate) life: Option<Life>,
    pub(crate) care: Care,
    pub(crate) record: Record,
    pub(crate) before: Before,
}

impl Orphan {
    /// Its process, as far as it is known.
    pub fn pid(&self) -> Option<u32> {
        (self.pid != NOT_YET).then_some(self.pid)
    }

    /// Whether its process lives.
    pub fn lives(&self) -> bool {
        self.life.as_ref().is_some_and(|life| !life.is_over())
    }

    /// How it may be asked to stop.
    pub fn manner(&self) -> Manner {
        self.care.manner
    }

    /// Its output files.
    pub fn outputs(&self) -> [&Path; 2] {
        [&self.care.stdout, &self.care.stderr]
    }
}

/// What is known of a run's tools beside what can be found.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The processes that were started and whose end nobody told.
    pub at_work: BTreeSet<u32>,
    /// The programs that are known to have been interrupted, and how often.
    pub interrupted: BTreeMap<String, u32>,
}

/// Finds them. `guess` says how a tool is looked after of which there is no record; it gets the second part of its tag.
pub async fn orphans(
    run: &str,
    records: &Path,
    heard: &Heard,
    guess: impl Fn(&str) -> (String, Care),
    clock: &dyn Clock,
) -> Vec<Orphan> {
    let mut known = BTreeSet::new();
    let mut since = clock.now();
    loop {
        let tagged = proc::tagged_beginning(&format!("{run}/"));
        // A tool that is known starts what it likes: that is no news, or there would be no end of it.
        let fresh = tagged.iter().filter(|(_, step)| known.insert(step.clone())).count();
        if fresh > 0 {
            since = clock.now();
        } else if clock.now().since(since) >= NOTHING_NEW {
            return gather(run, records, heard, guess, &tagged);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn gather(
    run: &str,
    records: &Path,
    heard: &Heard,
    guess: impl Fn(&str) -> (String, Care),
    tagged: &[(Stat, String)],
) -> Vec<Orphan> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for (base, recorded, intent) in Recorded::all(records) {
        let step = recorded.tag.strip_prefix(&format!("{run}/")).unwrap_or_default().to_owned();
        let is_missed = intent != Intent::Ended || heard.at_work.contains(&recorded.pid);
        if is_missed || tagged.iter().any(|(_, tag)| *tag == step) {
            found.extend(recorded_one(&base, recorded, intent, heard, leader(tagged, &step)));
        }
        seen.insert(step);
    }
    for (_, step) in tagged {
        if seen.insert(step.clone())
            && let Some(leader) = leader(tagged, step)
        {
            let (name, care) = guess(step);
            let recorded = Recorded::before(&name, &format!("{run}/{step}"), care);
            found.extend(recorded_one(&records.join(step), recorded, Intent::Running, heard, Some(leader)));
        }
    }
    found
}

/// One of which there is a record. A record without a process is that of whoever leads what carries its tag; if nothing
/// does, it was never started.
fn recorded_one(
    base: &Path,
    recorded: Recorded,
    intent: Intent,
    heard: &Heard,
    leader: Option<&Stat>,
) -> Option<Orphan> {
    let recorded = match (recorded.pid, leader) {
        (NOT_YET, None) => return None,
        (NOT_YET, Some(leader)) => Recorded { pid: leader.pid, started: leader.started, ..recorded },
        _ => recorded,
    };
    let sent = heard.interrupted.get(&recorded.name).copied().unwrap_or(0);
    let before = match intent {
        Intent::Running | Intent::Ended if sent == 0 => Before::Nothing,
        Intent::Interrupt if sent == 0 => Before::Intended,
        Intent::Running | Intent::Ended | Intent::Interrupt => Before::Sent,
        Intent::InterruptAgain => Before::SentAgain,
        Intent::Kill => Before::Killed,
    };
    Some(Orphan {
        life: hold(&recorded),
        name: recorded.name,
        tag: recorded.tag,
        pid: recorded.pid,
        started: recorded.started,
        care: recorded.care?,
        record: Record::inherit(base, intent),
        before,
    })
}

/// A hold on the recorded process and no other that has its number now.
fn hold(recorded: &Recorded) -> Option<Life> {
    let life = Life::of(recorded.pid).ok()?;
    let same = Stat::of(recorded.pid).is_some_and(|stat| stat.started == recorded.started && !stat.is_over());
    (same && !recorded.is_over()).then_some(life)
}

/// The tool's own process: the oldest of those with its tag that lead a group.
fn leader<'a>(tagged: &'a [(Stat, String)], step: &str) -> Option<&'a Stat> {
    let of_step = tagged.iter().filter(|(_, tag)| tag == step).map(|(stat, _)| stat);
    of_step.filter(|stat| stat.pid == stat.group).min_by_key(|stat| (stat.started, stat.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: u32, group: u32, started: u64) -> (Stat, String) {
        let name = "tool".to_owned();
        (Stat { pid, name, state: 'S', parent: 1, group, session: 1, started }, "tofu-apply".to_owned())
    }

    fn record(base: &Path, name: &str, intent: Intent) {
        let care = Care { manner: Manner::OpenTofu, stdout: base.into(), stderr: base.into() };
        let (mut record, written) = Record::create(base, &Recorded::before(name, "run/tofu-apply", care));
        written.and_then(|()| record.intend(intent)).expect("the test's folder can be written");
    }

    /// What was done to the one tool that is found, and its process.
    fn found(intent: Intent, interrupted: u32, tagged: &[(Stat, String)]) -> Option<(u32, Before)> {
        let folder = tempfile::tempdir().expect("a folder");
        record(&folder.path().join("tofu-apply"), "tofu apply", intent);
        let interrupted = (interrupted > 0).then(|| ("tofu apply".to_owned(), interrupted)).into_iter().collect();
        let heard = Heard { at_work: BTreeSet::new(), interrupted };
        let mut found = gather("run", folder.path(), &heard, |_| unreachable!("there is a record"), tagged);
        assert!(found.len() < 2);
        found.pop().map(|orphan| (orphan.pid, orphan.before))
    }

    #[test]
    fn a_tool_whose_process_was_not_written_down_is_the_oldest_leader_with_its_tag() {
        let tagged = [stat(4_000_012, 4_000_010, 5), stat(4_000_011, 4_000_011, 7), stat(4_000_010, 4_000_010, 5)];
        assert_eq!(found(Intent::Running, 0, &tagged), Some((4_000_010, Before::Nothing)));
        assert_eq!(found(Intent::Running, 0, &[]), None, "it was never started");
    }

    #[test]
    fn what_was_done_to_it_is_what_was_recorded_and_told() {
        let tagged = [stat(4_000_010, 4_000_010, 5)];
        let rows = [
            (Intent::Running, 0, Before::Nothing),
            (Intent::Interrupt, 0, Before::Intended),
            (Intent::Interrupt, 1, Before::Sent),
            // A record that could not be renamed delays no signal.
            (Intent::Running, 1, Before::Sent),
            (Intent::InterruptAgain, 1, Before::SentAgain),
            (Intent::Kill, 2, Before::Killed),
            (Intent::Ended, 0, Before::Nothing),
        ];
        for (intent, told, before) in rows {
            assert_eq!(found(intent, told, &tagged), Some((4_000_010, before)), "{intent:?} {told}");
        }
    }

    #[test]
    fn a_tool_without_a_record_is_looked_after_as_its_tag_suggests() {
        let folder = tempfile::tempdir().expect("a folder");
        let heard = Heard { at_work: BTreeSet::new(), interrupted: BTreeMap::new() };
        let care = Care { manner: Manner::Helm, stdout: "out".into(), stderr: "err".into() };
        let guess = |step: &str| (format!("guessed from {step}"), care.clone());
        let found = gather("run", folder.path(), &heard, guess, &[stat(4_000_010, 4_000_010, 5)]);
        let [orphan] = &found[..] else { panic!("{found:?}") };
        assert_eq!((orphan.name.as_str(), orphan.care.manner), ("guessed from tofu-apply", Manner::Helm));
        assert_eq!((orphan.tag.as_str(), orphan.pid(), orphan.lives()), ("run/tofu-apply", Some(4_000_010), false));
    }
}
