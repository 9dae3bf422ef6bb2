//! The take-over: what the front does when the process that owned the run has ended without a verdict.
//!
//! From here on the front is the owner. It goes on renewing the lock under the run's identity, finds the tools that were
//! left, sees each to its end with the same machine that the supervisor drives, says what their last words tell, and
//! writes the verdict in the supervisor's place. It begins nothing: no step, no tool, no claim.
//!
//! # How to read it
//! [`remains`] reads the journal and `ending` decides the verdict, both pure. `owner` is the loop between them; [`paper`]
//! is about the journal's file, and `callers` are those who still ask something of the run.

mod callers;
mod ending;
mod owner;
mod paper;
mod remains;

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::clock::Clock;
use crate::event::Event;
use crate::failure::{Code, Failure};
use crate::redact::Redactor;
use crate::run::chronicle::Chronicle;
use crate::run::drill::Halt;
use crate::run::journal::{Journal, Settled, Voice};
use crate::run::link::{Asked, Finished};
use crate::run::machine::Strength;
use crate::run::reports::{GoingOn, Paths, Reports, Unwritten};
use crate::run::spec::{Purpose, Spec};
use crate::step;

pub use paper::{complete, verdict_of};
pub use remains::Gone;

use remains::Remains;

/// How long the last lines may take to be written.
const FLUSH: Duration = Duration::from_secs(5);

/// Takes over a run whose supervisor has ended, unless that said a verdict which did not get into the journal. Says how
/// it ended, and which reports could not be written. The journal is open for reading and appending. More requests to stop
/// change nothing; force ends the tools at once.
///
/// # Errors
/// When the journal can neither be read nor written.
pub async fn take_over(
    spec: &Spec,
    clock: &Arc<dyn Clock>,
    file: &File,
    gone: Gone,
    requests: UnboundedReceiver<(Asked, Strength)>,
) -> Result<(Finished, Vec<Unwritten>), Failure> {
    let begun = match resume(spec, clock, file, gone)? {
        Resumed::Said(finished) => return Ok((finished, Vec::new())),
        Resumed::At(begun) => *begun,
    };
    let Beginning { remains, silent, mut told, redactor } = begun;
    let holder = spec.holder(gone.pid);
    if silent {
        for event in crate::run::opening(spec, &holder.to_string()) {
            told.tell(None, event);
        }
    }
    let mut owner = owner::Owner::new(spec, holder, remains, told, redactor, clock.clone());
    let (ask, asked) = unbounded_channel();
    let ending = callers::heard(&spec.run_dir, requests, ask, owner.own(asked)).await;
    let mut told = owner.told;
    told.written(FLUSH).await;
    told.note_loss();
    let finished = ending::finished(spec, ending, &told);
    let exit_code = finished.exit_code;
    told.tell(None, Event::RunFinished(finished));
    let Settled { unwritten, lines } = told.settle_now(FLUSH);
    Ok((Finished { exit_code, lines }, unwritten))
}

/// Where a take-over begins.
enum Resumed {
    /// There is a verdict.
    Said(Finished),
    /// Here.
    At(Box<Beginning>),
}

/// What a take-over begins with.
struct Beginning {
    remains: Remains,
    /// Nothing was told at all.
    silent: bool,
    told: Chronicle,
    redactor: Redactor,
}

/// Reads the journal and goes on with it.
fn resume(spec: &Spec, clock: &Arc<dyn Clock>, file: &File, gone: Gone) -> Result<Resumed, Failure> {
    let path = spec.journal();
    let unusable = |error: &io::Error| {
        let sentence =
            format!("the supervisor of this run was killed, and its journal {} cannot be used", path.display());
        Failure::new(Code::SupervisorKilled, sentence).because(error)
    };
    let text = paper::read_from(file, 0).map_err(|error| unusable(&error))?;
    let text = String::from_utf8_lossy(&text);
    let mut remains = Remains::of(&text, spec.began);
    remains.doubt(spec.mode);
    let is_silent = remains.next_seq == 0;
    if is_silent {
        remains = Remains::of_nothing(spec, gone);
    }
    paper::end_torn_line(file, &text).map_err(|error| unusable(&error))?;
    if let Some(finished) = paper::said_elsewhere(spec, remains.next_seq) {
        let mut file = file;
        // A journal that does not take it is shown it all the same.
        let _ = file.write_all(finished.lines.as_deref().unwrap_or_default().as_bytes());
        return Ok(Resumed::Said(finished));
    }
    let mut reports =
        Reports::start(Paths { events: spec.events_file.clone(), junit: spec.junit.clone(), going_on: GoingOn::Yes });
    text.split_inclusive('\n').for_each(|line| reports.recall(line));
    let redactor = spec.redactor();
    if let Purpose::Bundle(with) = &spec.purpose {
        step::learn(&with.bundle, &spec.run_dir, &redactor);
    }
    let voice = Voice {
        run: spec.run.clone(),
        began: spec.began,
        clock: clock.clone(),
        redactor: redactor.clone(),
        seq: remains.next_seq,
        halt: Halt::default(),
    };
    let file = file.try_clone().map_err(|error| unusable(&error))?;
    let journal = Journal::over(file, &path, voice, reports).map_err(|error| unusable(&error))?;
    let tally = std::mem::take(&mut remains.tally);
    let told = Chronicle::go_on(journal, tally, clock.clone());
    Ok(Resumed::At(Box::new(Beginning { remains, silent: is_silent, told, redactor })))
}
