//! What the front does when the supervisor is gone: reads its verdict from the journal, or writes one.
//!
//! Written here is only what was seen: that the supervisor ended without a verdict, which programs it had started and
//! nobody saw end, and what the journal last said about the lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::event::{self, Event, LockEnd, RunOutcome, Seen};
use crate::failure::{Code, Failure};
use crate::pipeline::Action;
use crate::run::{GoingOn, Journal, Paths, Purpose, Reports, Spec, Tally, Unwritten, Voice};

/// How long the front waits for its own last lines to be written.
const FLUSH: Duration = Duration::from_secs(5);

/// The exit code in the journal's last line, if that is a verdict. Reads the end of the file only.
pub(crate) fn verdict_of(journal: &Path) -> Option<u8> {
    let mut file = File::open(journal).ok()?;
    let length = file.metadata().ok()?.len();
    let longest = event::LONGEST_LINE as u64 + 1;
    file.seek(SeekFrom::Start(length.saturating_sub(longest))).ok()?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).ok()?;
    let line = end.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()?;
    let event = Seen::read(std::str::from_utf8(line).ok()?).ok()?.event?;
    if let Event::RunFinished(finished) = event { Some(finished.exit_code) } else { None }
}

/// What a journal without a verdict tells.
#[derive(Debug)]
struct Remains {
    next_seq: u64,
    holder: Option<String>,
    lock: LockEnd,
    programs: BTreeMap<String, u32>,
    resources: BTreeSet<String>,
    tally: Tally,
}

impl Remains {
    fn of(text: &str) -> Remains {
        let mut remains = Remains {
            next_seq: 0,
            holder: None,
            lock: LockEnd::NeverTaken,
            programs: BTreeMap::new(),
            resources: BTreeSet::new(),
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
            Event::LockBlocked(_) | Event::LockObserved(_) => self.lock = LockEnd::NeverTaken,
            Event::LockReleasing(_) => self.lock = LockEnd::Unknown,
            Event::LockReleased(_) => self.lock = LockEnd::Released,
            Event::LockLost(_) => self.lock = LockEnd::Lost,
            Event::StepFinished(finished) if finished.index == finished.total && self.lock == LockEnd::Left => {
                self.lock = LockEnd::Unknown;
            }
            Event::ProcessStarted(started) => drop(self.programs.insert(started.program, started.pid)),
            Event::ProcessFinished(finished) => drop(self.programs.remove(&finished.program)),
            Event::ResourceStarted(started) => {
                self.resources.insert(started.address);
            }
            Event::ResourceCompleted(completed) => {
                self.resources.remove(&completed.address);
            }
            Event::ResourceFailed(failed) => {
                self.resources.remove(&failed.address);
            }
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
            | Event::ProcessOutput(_)
            | Event::OutputDropped(_)
            | Event::ObjectApplied(_)
            | Event::ObjectWaiting(_)
            | Event::ObjectReady(_)
            | Event::ResourcePlanned(_)
            | Event::ResourceProgressed(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::StopRequested(_)
            | Event::SignalReceived(_)
            | Event::Diagnostic(_)
            | Event::NoteMade(_)
            | Event::ReportFailed(_) => {}
        }
    }

    fn bears_our_name(&self) -> bool {
        matches!(self.lock, LockEnd::Left | LockEnd::Unknown)
    }
}

/// Writes the verdict of a run whose supervisor was killed. Returns its exit code, and which reports could not be
/// written.
///
/// # Errors
/// When the journal can neither be read nor written.
pub(crate) fn write(spec: &Spec, clock: &Arc<dyn Clock>) -> Result<(u8, Vec<Unwritten>), Failure> {
    let path = spec.journal();
    let unusable = |error: &io::Error| {
        let sentence =
            format!("the supervisor of this run was killed, and its journal {} cannot be used", path.display());
        Failure::new(Code::SupervisorKilled, sentence).because(error)
    };
    let text = std::fs::read(&path).map_err(|error| unusable(&error))?;
    let text = String::from_utf8_lossy(&text);
    let remains = Remains::of(&text);
    end_torn_line(&path).map_err(|error| unusable(&error))?;
    let mut reports =
        Reports::start(Paths { events: spec.events_file.clone(), junit: spec.junit.clone(), going_on: GoingOn::Yes });
    text.lines().for_each(|line| reports.recall(line));
    let redactor = spec.redactor();
    let voice =
        Voice { run: spec.run.clone(), began: spec.began, clock: clock.clone(), redactor, seq: remains.next_seq };
    let mut journal = Journal::open(&path, voice, reports).map_err(|error| unusable(&error))?;
    let finished = finished(spec, remains, crate::run::millis(journal.elapsed()));
    let code = finished.exit_code;
    journal.tell(None, Event::RunFinished(finished));
    Ok((code, journal.settle_now(FLUSH)))
}

/// A line that was cut off in the middle is ended, so that readers skip it alone.
fn end_torn_line(path: &Path) -> io::Result<()> {
    let mut file = File::options().read(true).append(true).open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn finished(spec: &Spec, remains: Remains, duration_ms: u64) -> event::RunFinished {
    let mut failure = Failure::new(Code::SupervisorKilled, "the process that owned this run ended without a verdict");
    for (program, pid) in &remains.programs {
        failure = failure.cause(format!("nobody saw the end of {program} (process {pid}); it may still be at work"));
    }
    let mut next = Vec::new();
    if !remains.programs.is_empty() {
        next.push("wait until the processes named above are gone".to_owned());
    }
    if remains.bears_our_name() {
        let who = remains.holder.as_deref().unwrap_or("this run");
        next.push(format!("see with `dcctl lock status` whether the lock still names {who}: nobody renews it now"));
    }
    next.push(match &spec.purpose {
        Purpose::Bundle(_) => format!("run `dcctl {}` again: it reconciles what was left half done", spec.subject()),
        Purpose::Command(command) => {
            format!("look at what `{}` had done by then before you run it again", command.name())
        }
    });
    event::RunFinished {
        subject: spec.subject(),
        outcome: RunOutcome::Failed,
        exit_code: failure.code.exit(),
        failure: Some(event::Failed::from(failure)),
        command_end: None,
        lock: remains.lock,
        counts: remains.tally.counts(),
        holder: if remains.bears_our_name() { remains.holder } else { None },
        unfinished: remains.resources.into_iter().collect(),
        kept: vec![event::Kept { what: "the run directory".to_owned(), path: spec.run_dir.display().to_string() }],
        next,
        dry_run: spec.mode == crate::run::Mode::DryRun,
        duration_ms,
    }
}
