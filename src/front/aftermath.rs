//! What the front does when the supervisor is gone: reads its verdict from the journal, or writes one.
//!
//! Written here is only what was seen: that the supervisor ended without a verdict, which programs it had started and
//! nobody saw end, which of them are still there, and what the journal last said about the lock.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::event::{self, BusyManner, Event, LockEnd, RunOutcome, Seen};
use crate::failure::{Code, Failure};
use crate::pipeline::Action;
use crate::run::drill::Halt;
use crate::run::{Finished, GoingOn, Journal, Mode, Paths, Purpose, Reports, Settled, Spec, Tally, Unwritten, Voice};

/// How long the front waits for its own last lines to be written.
const FLUSH: Duration = Duration::from_secs(5);

/// What is known of a supervisor that has ended.
#[derive(Debug)]
pub(crate) struct Gone {
    /// Its process.
    pub(crate) pid: u32,
    /// Whether it had said that it has the spec. Before that it asks nobody for anything.
    pub(crate) hello: bool,
}

/// The exit code in the journal's last line, if that is a verdict.
pub(crate) fn verdict_of(journal: &File) -> Option<u8> {
    exit_code(&Seen::read(&last_line(journal)?).ok()?)
}

fn exit_code(seen: &Seen) -> Option<u8> {
    if let Some(Event::RunFinished(finished)) = &seen.event { Some(finished.exit_code) } else { None }
}

/// The last line of a file, if it is whole. Reads the end only.
fn last_line(file: &File) -> Option<String> {
    let longest = event::LONGEST_LINE as u64 + 1;
    let end = read_from(file, file.metadata().ok()?.len().saturating_sub(longest)).ok()?;
    let line = end.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()?;
    String::from_utf8(line.to_owned()).ok()
}

/// The verdict that the events file has and the journal has not: the supervisor was killed between the two. It had said
/// it, so it stands. What went into a pipe cannot be read again.
fn said_elsewhere(spec: &Spec, next_seq: u64) -> Option<Finished> {
    let path = spec.events_file.as_deref().filter(|path| path.is_file())?;
    let line = last_line(&File::open(path).ok()?)?;
    let seen = Seen::read(&line).ok().filter(|seen| seen.run == spec.run && seen.seq == next_seq)?;
    Some(Finished { exit_code: exit_code(&seen)?, lines: Some(line + "\n") })
}

/// The file from here on, whoever else reads it.
fn read_from(file: &File, from: u64) -> io::Result<Vec<u8>> {
    const BLOCK: usize = 64 * 1024;
    let mut bytes = Vec::new();
    loop {
        let have = bytes.len();
        bytes.resize(have + BLOCK, 0);
        let count = file.read_at(&mut bytes[have..], from + have as u64)?;
        bytes.truncate(have + count);
        if count == 0 {
            return Ok(bytes);
        }
    }
}

/// Appends to the journal the last lines of a run, the first of which may be in it in part. Gives back how many events
/// before them are missing. The journal is open for reading and appending.
///
/// # Errors
/// When it still does not take them. Then it ends with a whole line all the same.
pub(crate) fn complete(mut journal: &File, lines: &str) -> io::Result<u64> {
    let length = journal.metadata()?.len();
    // Its last whole line, and a torn one after that.
    let end = read_from(journal, length.saturating_sub(2 * (event::LONGEST_LINE as u64 + 1)))?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = &end[whole..];
    journal.set_len(length - torn.len() as u64)?;
    if let Err(error) = journal.write_all(lines.as_bytes()) {
        let written = journal.metadata()?.len();
        let last = read_from(journal, written.saturating_sub(event::LONGEST_LINE as u64 + 1))?;
        let torn = last.len() - last.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        journal.set_len(written - torn as u64)?;
        return Err(error);
    }
    let seq = |line: &str| Seen::read(line).ok().map(|seen| seen.seq);
    let before = String::from_utf8_lossy(&end[..whole]);
    let next = before.lines().next_back().and_then(seq).map_or(0, |seq| seq + 1);
    Ok(lines.lines().next().and_then(seq).map_or(0, |first| first.saturating_sub(next)))
}

/// What a journal without a verdict tells.
#[derive(Debug)]
struct Remains {
    next_seq: u64,
    holder: Option<String>,
    lock: LockEnd,
    programs: BTreeMap<String, u32>,
    tally: Tally,
}

impl Remains {
    /// A journal without a word is that of a supervisor that may have got as far as to ask for the lock before the disk
    /// took its first line.
    fn of_nothing(spec: &Spec, gone: &Gone) -> Remains {
        let remains = Remains::of("");
        match (spec.mode, gone.hello) {
            (Mode::Act, true) => {
                Remains { lock: LockEnd::Unknown, holder: Some(spec.holder(gone.pid).to_string()), ..remains }
            }
            (Mode::Act, false) | (Mode::DryRun, _) => remains,
        }
    }

    fn of(text: &str) -> Remains {
        let mut remains = Remains {
            next_seq: 0,
            holder: None,
            lock: LockEnd::NeverTaken,
            programs: BTreeMap::new(),
            tally: Tally::default(),
        };
        for seen in text.lines().filter_map(|line| Seen::read(line).ok()) {
            remains.next_seq = seen.seq + 1;
            if let Some(event) = seen.event {
                remains.tally.take(&event, Instant::since_boot(seen.elapsed));
                remains.take(event);
            }
        }
        remains
    }

    /// A supervisor that was killed while it asked for the lock, or while it gave it back, left no word of the answer.
    fn take(&mut self, event: Event) {
        match event {
            Event::RunStarted(started) => self.holder = started.holder,
            Event::StepStarted(started) if started.id == Action::ClaimCluster.id() => self.lock = LockEnd::Unknown,
            Event::LockClaimed(_) | Event::LockLeft(_) => self.lock = LockEnd::Left,
            Event::LockReleasing(_) => self.lock = LockEnd::Unknown,
            Event::LockBlocked(blocked) => {
                self.lock = match blocked.manner {
                    BusyManner::Refuses => LockEnd::NeverTaken,
                    BusyManner::Continues => LockEnd::NotHeld,
                    // It claims as soon as it may.
                    BusyManner::Waits => LockEnd::Unknown,
                }
            }
            Event::LockObserved(_) => self.lock = LockEnd::NeverTaken,
            Event::LockReleased(_) => self.lock = LockEnd::Released,
            Event::LockLost(_) => self.lock = LockEnd::Lost,
            Event::StepFinished(finished) if finished.index == finished.total && self.lock == LockEnd::Left => {
                self.lock = LockEnd::Unknown;
            }
            Event::ProcessStarted(started) => drop(self.programs.insert(started.program, started.pid)),
            Event::ProcessFinished(finished) => drop(self.programs.remove(&finished.program)),
            Event::RunPlanned(_)
            | Event::RunFinished(_)
            | Event::StepStarted(_)
            | Event::StepFinished(_)
            | Event::StepProgressed(_)
            | Event::LockWaiting(_)
            | Event::LockRenewed(_)
            | Event::LockRenewalFailed(_)
            | Event::ProcessInterrupted(_)
            | Event::ProcessInterruptReported(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::ProcessOutput(_)
            | Event::OutputDropped(_)
            | Event::ObjectApplied(_)
            | Event::ObjectWaiting(_)
            | Event::ObjectReady(_)
            | Event::ResourcePlanned(_)
            | Event::ResourceStarted(_)
            | Event::ResourceProgressed(_)
            | Event::ResourceCompleted(_)
            | Event::ResourceFailed(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::StopRequested(_)
            | Event::SignalReceived(_)
            | Event::Diagnostic(_)
            | Event::NoteMade(_)
            | Event::ReportFailed(_) => {}
        }
    }

    fn unfinished(&self) -> Vec<String> {
        self.tally.unfinished().iter().cloned().collect()
    }

    fn bears_our_name(&self) -> bool {
        matches!(self.lock, LockEnd::Left | LockEnd::Unknown)
    }
}

/// Writes the verdict of a run whose supervisor was killed, unless it said one that did not get into the journal. Says how it ended, and which reports could not be written.
/// The journal is open for reading and appending.
///
/// # Errors
/// When the journal can neither be read nor written.
pub(crate) fn write(
    spec: &Spec,
    clock: &Arc<dyn Clock>,
    file: &File,
    gone: &Gone,
) -> Result<(Finished, Vec<Unwritten>), Failure> {
    let path = spec.journal();
    let unusable = |error: &io::Error| {
        let sentence =
            format!("the supervisor of this run was killed, and its journal {} cannot be used", path.display());
        Failure::new(Code::SupervisorKilled, sentence).because(error)
    };
    let text = read_from(file, 0).map_err(|error| unusable(&error))?;
    let text = String::from_utf8_lossy(&text);
    let mut remains = Remains::of(&text);
    let is_silent = remains.next_seq == 0;
    if is_silent {
        remains = Remains::of_nothing(spec, gone);
    }
    end_torn_line(file, &text).map_err(|error| unusable(&error))?;
    if let Some(finished) = said_elsewhere(spec, remains.next_seq) {
        let mut file = file;
        // A journal that does not take it is shown it all the same.
        let _ = file.write_all(finished.lines.as_deref().unwrap_or_default().as_bytes());
        return Ok((finished, Vec::new()));
    }
    let mut reports =
        Reports::start(Paths { events: spec.events_file.clone(), junit: spec.junit.clone(), going_on: GoingOn::Yes });
    text.lines().for_each(|line| reports.recall(line));
    let redactor = spec.redactor();
    let voice = Voice {
        run: spec.run.clone(),
        began: spec.began,
        clock: clock.clone(),
        redactor,
        seq: remains.next_seq,
        halt: Halt::default(),
    };
    let file = file.try_clone().map_err(|error| unusable(&error))?;
    let mut journal = Journal::over(file, &path, voice, reports).map_err(|error| unusable(&error))?;
    if is_silent {
        for event in crate::run::opening(spec, &spec.holder(gone.pid).to_string()) {
            remains.tally.take(&event, clock.now());
            journal.tell(None, event);
        }
    }
    let left = Left::look(spec, &remains);
    for text in left.untidied.iter().cloned() {
        journal.tell(None, Event::NoteMade(event::NoteMade { text }));
    }
    let finished = finished(spec, remains, left, crate::run::millis(journal.elapsed()));
    let exit_code = finished.exit_code;
    journal.tell(None, Event::RunFinished(finished));
    let Settled { unwritten, lines } = journal.settle_now(FLUSH);
    Ok((Finished { exit_code, lines }, unwritten))
}

/// A line that was cut off in the middle is ended, so that readers skip it alone.
fn end_torn_line(mut file: &File, text: &str) -> io::Result<()> {
    if text.is_empty() || text.ends_with('\n') { Ok(()) } else { file.write_all(b"\n") }
}

/// What the supervisor left: processes that still live, or nothing, and then what was made for them is removed.
#[derive(Debug, Default)]
struct Left {
    /// By their numbers, each with its short name.
    alive: BTreeMap<u32, String>,
    /// What they may still read, and nobody will remove by itself.
    secrets: Vec<String>,
    /// What could not be removed, a sentence each.
    untidied: Vec<String>,
}

impl Left {
    fn look(spec: &Spec, remains: &Remains) -> Left {
        let alive = crate::run::alive(spec, remains.programs.values().copied());
        if alive.is_empty() {
            Left { untidied: crate::run::tidy(spec), ..Left::default() }
        } else {
            Left { alive, secrets: crate::run::untidied(spec), untidied: Vec::new() }
        }
    }
}

fn failure(remains: &Remains, left: &Left) -> Failure {
    let mut failure = Failure::new(Code::SupervisorKilled, "the process that owned this run ended without a verdict");
    for (program, pid) in &remains.programs {
        failure = failure.cause(if left.alive.contains_key(pid) {
            format!("nobody saw the end of {program} (process {pid}); it may still be at work")
        } else {
            format!("nobody saw how {program} (process {pid}) ended; it is not there any more")
        });
    }
    let others = left.alive.iter().filter(|(pid, _)| !remains.programs.values().any(|known| known == *pid));
    others.fold(failure, |failure, (pid, name)| {
        failure.cause(format!("process {pid} ({name}), which this run had started, is still there"))
    })
}

/// What to do now, in this order.
fn next(spec: &Spec, remains: &Remains, left: &Left) -> Vec<String> {
    let mut next = Vec::new();
    if !left.alive.is_empty() {
        next.push("wait until the processes named above are gone".to_owned());
    }
    if !left.secrets.is_empty() {
        next.push(format!("then remove {}: there are credentials in it", left.secrets.join(" and ")));
    }
    if remains.bears_our_name() {
        let who = remains.holder.as_deref().unwrap_or("this run");
        let look = spec.place().status_command();
        next.push(format!("see with `{look}` whether the lock still names {who}: nobody renews it now"));
    }
    next.extend(again(spec, &remains.unfinished()));
    next
}

/// How to go on. What a command of the caller's had done by then only a look can tell.
fn again(spec: &Spec, unfinished: &[String]) -> Vec<String> {
    let subject = spec.subject();
    match (&spec.purpose, crate::run::look_first(unfinished)) {
        (Purpose::Command(command), _) => {
            vec![format!("look at what `{}` had done by then before you run it again", command.name())]
        }
        (Purpose::Bundle(_), Some(look)) => vec![look, format!("run `dcctl {subject}` again")],
        (Purpose::Bundle(_), None) => {
            vec![format!("run `dcctl {subject}` again: it goes on from what is there")]
        }
    }
}

fn finished(spec: &Spec, remains: Remains, left: Left, duration_ms: u64) -> event::RunFinished {
    let failure = failure(&remains, &left);
    let next = next(spec, &remains, &left);
    let kept = |what: &str, path: String| event::Kept { what: what.to_owned(), path };
    let mut files: Vec<event::Kept> =
        left.secrets.into_iter().map(|path| kept("what tools of this run may still read", path)).collect();
    if spec.run_dir.exists() {
        files.push(kept("the run directory", spec.run_dir.display().to_string()));
    }
    event::RunFinished {
        subject: spec.subject(),
        outcome: RunOutcome::Failed,
        exit_code: failure.code.exit(),
        failure: Some(event::Failed::from(failure)),
        command_end: None,
        lock: remains.lock,
        counts: remains.tally.counts(),
        unfinished: remains.unfinished(),
        survived: remains.tally.survived().to_vec(),
        holder: if remains.bears_our_name() { remains.holder } else { None },
        kept: files,
        next,
        dry_run: spec.mode == Mode::DryRun,
        duration_ms,
    }
}
