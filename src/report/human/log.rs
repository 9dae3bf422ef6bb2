//! What is worth a line, and what is going on.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::human;
use crate::event::facts::cluster::object;
use crate::event::facts::stop::FORCE_ENDS_TOOLS;
use crate::event::text::span;
use crate::event::{
    BusyManner, Diagnostic, Event, Level, LockBlocked, ObjectReady, ObjectWaiting, ReleaseManner, RunStarted, Seen,
    Severity, SignalEffect, SignalReceived, StepFinished, StepOutcome, StepProgressed, StepStarted, StopCause,
    StopManner, StopRequested,
};
use crate::report::human::missing::Missing;
use crate::report::human::resources::{CONTENT, Deed, InFlight, Objects, Resources, Undone, in_flight};
use crate::report::human::row::{Row, Style, columns};
use crate::report::human::verdict::{Gathered, verdict};
use crate::report::human::{Again, Screen, ToolOutput};
use crate::report::output::{PieceEnd, Tail, readable};

/// Where the values of the heading and of the verdict begin.
pub(super) const VALUES: usize = 14;

/// A step that begins earlier does not say how far into the run it began.
const WORTH_TELLING: Duration = Duration::from_secs(1);

/// How many lines of a tool's output are shown when its step failed.
const TAIL_LINES: usize = 20;

/// How much of a tool's output is kept for that.
const TAIL_BYTES: usize = 16 * 1024;

/// What the lock is called among what is in flight.
const LOCK: &str = "the lock";

/// The log so far.
#[derive(Debug)]
pub(super) struct Log {
    output: ToolOutput,
    screen: Screen,
    again: Again,
    elapsed: Duration,
    /// The widest title of the plan.
    title_column: usize,
    step: Option<Step>,
    /// A step has begun.
    begun: bool,
    stopping: bool,
    /// Signals that were said to change nothing, by name; each is said once.
    idle_signals: BTreeSet<String>,
    gathered: Gathered,
    missing: Missing,
    over: bool,
}

/// The step at work.
#[derive(Debug)]
struct Step {
    since: Duration,
    resources: Resources,
    objects: Objects,
    in_flight: InFlight,
    program: Option<(String, Duration)>,
    /// How often that was interrupted, by whomever.
    interrupts: u32,
    tail: Tail,
    /// What a tool or dcctl said is wrong.
    errors: Vec<String>,
}

/// Whether somebody typed Ctrl+C: what a process sends has a sender.
fn is_typed(stop: &StopRequested) -> bool {
    stop.sender_uid.is_none() && stop.signals.iter().any(|signal| signal == "SIGINT")
}

impl Log {
    pub(super) fn new(output: ToolOutput, screen: Screen, again: Again) -> Log {
        Log {
            output,
            screen,
            again,
            elapsed: Duration::ZERO,
            title_column: 0,
            step: None,
            begun: false,
            stopping: false,
            idle_signals: BTreeSet::new(),
            gathered: Gathered::default(),
            missing: Missing::default(),
            over: false,
        }
    }

    /// How old the run was at the last event.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// The verdict was said.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// What is happening now.
    pub(super) fn status(&self, elapsed: Duration) -> Option<Row> {
        let step = self.step.as_ref()?;
        let what = step.in_flight.told(elapsed).unwrap_or_else(|| {
            let program = step.program.as_ref().map(|(name, since)| (name.as_str(), *since));
            let (what, since) = program.unwrap_or(("at work", step.since));
            format!("{what} ({})", human(elapsed.saturating_sub(since)))
        });
        let row = Row::new().indent(CONTENT).say(Style::Dim, "… ");
        let row = if self.stopping { row.say(Style::Caution, "stopping: ") } else { row };
        Some(row.say(Style::Dim, &what))
    }

    /// The lines that an event is worth.
    pub(super) fn take(&mut self, seen: &Seen, width: usize) -> Vec<Row> {
        self.elapsed = seen.elapsed;
        let Some(event) = &seen.event else {
            // A newer dcctl said something: only what it found grave is shown.
            let grave = seen.level >= Level::Warn;
            return if grave { vec![marked(Style::Caution, "!", &seen.msg)] } else { Vec::new() };
        };
        let mut rows = self.flush(event);
        if matches!(event, Event::StepFinished(_) | Event::RunFinished(_)) {
            rows.extend(self.missing.rest());
        }
        self.wait_for_the_lock(event);
        self.step.iter_mut().for_each(|step| step.count_interrupts(event));
        rows.extend(self.of_the_run(seen, event, width));
        rows
    }

    /// Objects are counted while they come in a row; when something else comes, the count is told.
    fn flush(&mut self, event: &Event) -> Vec<Row> {
        let waits_on = matches!(event, Event::ObjectApplied(_) | Event::StepFinished(_) | Event::LockRenewed(_));
        let Some(step) = self.step.as_mut().filter(|_| !waits_on) else { return Vec::new() };
        step.objects.summary().map(|summary| Style::Plain.row(CONTENT, &summary)).into_iter().collect()
    }

    /// Who waits for the lock is not at work.
    fn wait_for_the_lock(&mut self, event: &Event) {
        let Some(step) = &mut self.step else { return };
        if let Event::LockBlocked(LockBlocked { manner: BusyManner::Waits, .. }) = event {
            step.in_flight.set(LOCK, "waiting for the lock".to_owned(), self.elapsed);
        } else if let Event::LockClaimed(_) = event {
            step.in_flight.end(LOCK);
        }
    }

    fn of_the_run(&mut self, seen: &Seen, event: &Event, width: usize) -> Vec<Row> {
        match event {
            Event::RunStarted(started) => {
                self.gathered.start(started);
                heading(started)
            }
            Event::RunPlanned(planned) => {
                self.title_column = planned.steps.iter().map(|step| columns(&step.title)).max().unwrap_or(0);
                Vec::new()
            }
            Event::StepStarted(started) => vec![Row::new(), self.begin(started)],
            Event::StepFinished(finished) => self.end(finished, width),
            Event::RunFinished(finished) => {
                self.step = None;
                self.over = true;
                verdict(finished, &self.gathered)
            }
            Event::LockBlocked(blocked) => {
                self.gathered.block(blocked);
                vec![held(blocked)]
            }
            Event::StopRequested(stop) => self.stop(stop),
            Event::SignalReceived(signal) => self.signal(signal),
            Event::Diagnostic(diagnostic) => self.diagnose(diagnostic, seen.truncated.get("/data/detail")),
            Event::LockRenewed(renewed) if renewed.gap_ms.is_some() => {
                vec![Style::Plain.row(self.indent(), &event.message())]
            }
            Event::LockRenewalFailed(failed) if failed.tries > 1 => Vec::new(),
            Event::LockRenewed(_) | Event::LockReleasing(_) => Vec::new(),
            Event::LockReleased(released) if released.manner == ReleaseManner::Deleted && released.why.is_none() => {
                Vec::new()
            }
            Event::LockClaimed(claimed) => vec![Style::Dim.row(CONTENT, &format!("held as {}", claimed.holder))],
            Event::LockObserved(_) | Event::LockReleased(_) | Event::NoteMade(_) | Event::EnvironmentDropped(_) => {
                vec![Style::Plain.row(self.indent(), &event.message())]
            }
            Event::ToolChecked(tool) => {
                let place = format!("{}, {}", tool.version, tool.path);
                vec![labelled(self.indent(), &tool.tool, &place)]
            }
            Event::LockLost(_) | Event::LockLeft(_) => vec![marked(Style::Bad, "✗", &event.message())],
            Event::LockRenewalFailed(_)
            | Event::LockWaiting(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::ReportFailed(_) => vec![marked(Style::Caution, "!", &event.message())],
            Event::OutputDropped(dropped) => self.missing.take(dropped.lines, self.elapsed).into_iter().collect(),
            Event::ProcessInterruptReported(reported) if reported.is_surprising() => {
                vec![marked(Style::Caution, "!", &event.message())]
            }
            Event::ProcessInterrupted(_) | Event::ProcessInterruptReported(_) => {
                vec![Style::Plain.row(CONTENT + 2, &event.message())]
            }
            Event::StepProgressed(_)
            | Event::ProcessStarted(_)
            | Event::ProcessFinished(_)
            | Event::ProcessOutput(_)
            | Event::ObjectApplied(_)
            | Event::ObjectWaiting(_)
            | Event::ObjectReady(_)
            | Event::ResourcePlanned(_)
            | Event::ResourceStarted(_)
            | Event::ResourceProgressed(_)
            | Event::ResourceCompleted(_)
            | Event::ResourceFailed(_) => {
                let (output, screen, elapsed) = (self.output, self.screen, self.elapsed);
                self.step.as_mut().map_or_else(Vec::new, |step| step.take(event, output, screen, elapsed, width))
            }
        }
    }

    /// Before the first step, what is said belongs to the heading.
    fn indent(&self) -> usize {
        if self.begun { CONTENT } else { 2 }
    }

    fn begin(&mut self, started: &StepStarted) -> Row {
        self.begun = true;
        self.step = Some(Step {
            since: self.elapsed,
            resources: Resources::default(),
            objects: Objects::default(),
            in_flight: InFlight::default(),
            program: None,
            interrupts: 0,
            tail: Tail::new(TAIL_BYTES),
            errors: Vec::new(),
        });
        let place = format!("{}/{}", started.index, started.total);
        let row = Row::new().say(Style::Dim, &place).pad_to(CONTENT).say(Style::Bold, &started.title);
        if self.elapsed < WORTH_TELLING {
            return row;
        }
        row.pad_to(CONTENT + self.title_column + 3).say(Style::Dim, &format!("+{}", human(self.elapsed)))
    }

    fn end(&mut self, finished: &StepFinished, width: usize) -> Vec<Row> {
        self.gathered.step(finished);
        let Some(mut step) = self.step.take() else { return Vec::new() };
        let mut rows = step.resources.planned_only(width);
        let mut parts: Vec<String> = (!finished.note.is_empty()).then(|| finished.note.clone()).into_iter().collect();
        // A step that says what it did is not told again what its events were.
        if parts.is_empty() || finished.outcome != StepOutcome::Done {
            parts.extend(step.resources.summary());
            parts.extend(step.objects.summary());
        }
        let told = parts.join("; ");
        match finished.outcome {
            StepOutcome::Done => {
                let told = if told.is_empty() { "done" } else { &told };
                let row = marked(Style::Good, "✓", told);
                rows.push(match took(finished.duration_ms) {
                    Some(took) => row.say(Style::Dim, &format!(" ({took})")),
                    None => row,
                });
            }
            StepOutcome::Nothing => {
                let told = if told.is_empty() { "nothing to do" } else { &told };
                rows.push(Row::new().indent(CONTENT).say(Style::Dim, "– ").hang_here().say(Style::Dim, told));
            }
            StepOutcome::Stopped => rows.push(marked(Style::Caution, "■", &ended("stopped", finished, &told))),
            StepOutcome::Failed => rows.extend(step.failed(finished)),
        }
        rows
    }

    fn stop(&mut self, stop: &StopRequested) -> Vec<Row> {
        self.stopping = true;
        let by = stop.by_whom();
        if stop.manner == StopManner::Force {
            let text =
                format!("asked to stop at once {by}: {FORCE_ENDS_TOOLS}, and a lock that is held is left behind");
            return vec![marked(Style::Bad, "■", &text)];
        }
        let most = human(Duration::from_millis(stop.budget_ms));
        let until = stop.deadline.as_deref().map(|time| format!(", until {}", clock_time(time))).unwrap_or_default();
        let text = format!("asked to stop {by}; this may take up to {most}{until}");
        let mut rows = vec![marked(Style::Caution, "■", &text)];
        let calm = if stop.cause == StopCause::LockLost {
            "what is in flight is finished first; dcctl writes nothing more to the cluster"
        } else if self.again == Again::Forces && is_typed(stop) {
            "what is in flight is finished first; Ctrl+C again kills it after 8 s at most and leaves the lock behind"
        } else {
            "what is in flight is finished first, then the lock is given back"
        };
        rows.push(Style::Dim.row(CONTENT + 2, calm));
        rows
    }

    fn signal(&mut self, signal: &SignalReceived) -> Vec<Row> {
        if signal.effect == SignalEffect::Nothing && self.idle_signals.insert(signal.signal.clone()) {
            let text = format!("{} changes nothing: the run is stopping already", signal.signal);
            return vec![Style::Dim.row(CONTENT + 2, &text)];
        }
        Vec::new()
    }

    fn diagnose(&mut self, diagnostic: &Diagnostic, cut: Option<&u64>) -> Vec<Row> {
        if diagnostic.severity == Severity::Error {
            self.gathered.diagnose(diagnostic);
            match &mut self.step {
                Some(step) => step.errors.push(diagnostic.summary.clone()),
                // A refusal: the verdict follows at once and says the same.
                None if !self.begun && diagnostic.origin == "dcctl" => return Vec::new(),
                None => {}
            }
        }
        let (style, sign) = match diagnostic.severity {
            Severity::Error => (Style::Bad, "✗"),
            Severity::Warning => (Style::Caution, "!"),
        };
        let about = diagnostic.address.as_ref().unwrap_or(&diagnostic.origin);
        let mut rows = vec![marked(style, sign, &format!("{about}: {}", diagnostic.summary))];
        rows.extend(Row::paragraphs(CONTENT + 2, Style::Plain, &diagnostic.detail));
        rows.extend(cut.map(|whole| Style::Dim.row(CONTENT + 2, &format!("[cut: the whole text has {whole} bytes]"))));
        rows.extend(diagnostic.source.as_ref().map(|source| Style::Dim.row(CONTENT + 2, source)));
        rows
    }
}

impl Step {
    /// Who is interrupted twice lets go of what is in flight, and sees no end of it.
    fn count_interrupts(&mut self, event: &Event) {
        if let Event::ProcessStarted(_) = event {
            self.interrupts = 0;
        } else if let Event::ProcessInterrupted(_) = event {
            self.interrupts += 1;
        } else if let Event::ProcessInterruptReported(reported) = event {
            self.interrupts = self.interrupts.max(reported.times);
        }
    }

    /// What belongs to the step at work.
    fn take(&mut self, event: &Event, output: ToolOutput, screen: Screen, now: Duration, width: usize) -> Vec<Row> {
        match event {
            Event::StepProgressed(progressed) => self.progress(progressed, screen).into_iter().collect(),
            Event::ProcessStarted(started) => {
                self.program = Some((started.program.clone(), now));
                let shown = output == ToolOutput::Always;
                shown.then(|| Style::Dim.row(CONTENT + 2, &format!("{}:", started.program))).into_iter().collect()
            }
            Event::ProcessFinished(_) => {
                self.program = None;
                Vec::new()
            }
            Event::ProcessOutput(said) => {
                if output != ToolOutput::Elsewhere {
                    self.tail.push(&said.text, PieceEnd::of(said));
                }
                let shown = output == ToolOutput::Always;
                shown.then(|| printed(&readable(&said.text))).into_iter().collect()
            }
            Event::ObjectApplied(applied) => self.objects.apply(applied),
            Event::ObjectWaiting(waiting) => self.wait(waiting, now),
            Event::ObjectReady(ready) => self.ready(ready, now).into_iter().collect(),
            Event::ResourcePlanned(planned) => {
                self.resources.plan(&planned.address, &planned.action);
                Vec::new()
            }
            Event::ResourceStarted(started) => {
                let what = Deed::of(&started.action).doing(&started.address);
                self.in_flight.set(&started.address, what, now);
                self.resources.begin().into_iter().collect()
            }
            Event::ResourceCompleted(done) => {
                self.in_flight.end(&done.address);
                self.resources.complete(&done.address, &done.action, done.elapsed_ms, width)
            }
            Event::ResourceFailed(failed) => {
                self.in_flight.end(&failed.address);
                let how = if self.interrupts > 1 { Undone::CutOff } else { Undone::Failed };
                self.resources.fail(&failed.address, (&failed.action, how), failed.elapsed_ms, width)
            }
            Event::RunStarted(_)
            | Event::RunPlanned(_)
            | Event::RunFinished(_)
            | Event::StepStarted(_)
            | Event::StepFinished(_)
            | Event::LockWaiting(_)
            | Event::LockClaimed(_)
            | Event::LockRenewed(_)
            | Event::LockRenewalFailed(_)
            | Event::LockBlocked(_)
            | Event::LockLost(_)
            | Event::LockReleasing(_)
            | Event::LockReleased(_)
            | Event::LockLeft(_)
            | Event::LockObserved(_)
            | Event::ProcessInterrupted(_)
            | Event::ProcessInterruptReported(_)
            | Event::ProcessKilled(_)
            | Event::ProcessLeftBehind(_)
            | Event::ProcessSurvived(_)
            | Event::OutputDropped(_)
            | Event::ResourceProgressed(_)
            | Event::ToolChecked(_)
            | Event::EnvironmentDropped(_)
            | Event::StopRequested(_)
            | Event::SignalReceived(_)
            | Event::Diagnostic(_)
            | Event::NoteMade(_)
            | Event::ReportFailed(_) => Vec::new(),
        }
    }

    /// What is waited for is in the line that lives, and has none of its own.
    fn wait(&mut self, waiting: &ObjectWaiting, now: Duration) -> Vec<Row> {
        let name = object(&waiting.kind, waiting.namespace.as_deref(), &waiting.name);
        self.in_flight.set(&name, format!("waiting for {name} ({})", waiting.why), now);
        Vec::new()
    }

    /// Only what was waited for is worth a line.
    fn ready(&mut self, ready: &ObjectReady, now: Duration) -> Option<Row> {
        let name = object(&ready.kind, ready.namespace.as_deref(), &ready.name);
        let since = self.in_flight.end(&name)?;
        let row = Row::new().indent(CONTENT).say(Style::Good, "✓ ").say(Style::Plain, &name);
        let took = human(now.saturating_sub(since));
        Some(row.say(Style::Plain, " is ready").say(Style::Dim, &format!(" ({took})")))
    }

    /// Still at work: on a terminal the live line says so already.
    fn progress(&self, progressed: &StepProgressed, screen: Screen) -> Option<Row> {
        if screen == Screen::Live {
            return None;
        }
        let now = self.since + Duration::from_millis(progressed.duration_ms);
        let what = in_flight(&progressed.in_flight).or_else(|| self.in_flight.told(now));
        let what = what.unwrap_or_else(|| format!("at work for {}", span(progressed.duration_ms)));
        Some(Row::new().indent(CONTENT).say(Style::Dim, "… ").hang_here().say(Style::Dim, &format!("still {what}")))
    }

    /// The end of a step that failed: why, what was not ready, and what the tool printed if nothing else explains it.
    fn failed(&mut self, finished: &StepFinished) -> Vec<Row> {
        let failure = finished.failure.as_ref();
        if failure.is_some_and(|failure| failure.code.starts_with("lock.held")) {
            // Who holds it was the last thing said, and the verdict says the rest.
            return Vec::new();
        }
        let why = failure.map_or("", |failure| failure.message.as_str());
        let why = if self.errors.iter().any(|said| said == why) { "" } else { why };
        let mut rows: Vec<Row> = self.in_flight.whats().map(|what| Style::Plain.row(CONTENT + 2, what)).collect();
        self.in_flight.clear();
        let mut shown: Vec<&str> = Vec::new();
        // A guard refuses what a tool that ended well would have been used for: what that printed explains nothing.
        let is_refusal = failure.is_some_and(|failure| failure.code.starts_with("guard."));
        if self.errors.is_empty() && !self.tail.is_empty() && !is_refusal {
            let (before, lines) = self.tail.last(TAIL_LINES);
            let title = if before > 0 { "the end of what it printed:" } else { "what it printed:" };
            rows.push(Style::Dim.row(CONTENT, title));
            shown = lines.collect();
            rows.extend(shown.iter().map(|line| printed(line)));
        }
        rows.push(marked(Style::Bad, "✗", &ended("failed", finished, why)));
        // What the tool printed is a cause, too, but no reason to print it again.
        let causes = failure.iter().flat_map(|failure| &failure.causes);
        for cause in causes.filter(|cause| !shown.iter().any(|line| line.trim() == cause.trim())) {
            rows.push(Row::new().indent(CONTENT + 2).say(Style::Dim, "because ").hang_here().say(Style::Plain, cause));
        }
        rows
    }
}

/// A line with a sign before it, in the content of a step.
pub(super) fn marked(style: Style, sign: &str, text: &str) -> Row {
    Row::new().indent(CONTENT).say(style, sign).say(Style::Plain, " ").hang_here().say(Style::Plain, text)
}

/// A line of what a tool printed.
fn printed(text: &str) -> Row {
    Row::new().indent(CONTENT + 2).say(Style::Dim, "│ ").hang_here().say(Style::Plain, text)
}

/// A name and its value, values below one another.
pub(super) fn labelled(indent: usize, label: &str, value: &str) -> Row {
    let row = Row::new().indent(indent).say(Style::Dim, label).pad_to(indent + VALUES - 2).hang_here();
    row.say(Style::Plain, value)
}

fn heading(started: &RunStarted) -> Vec<Row> {
    let title = Row::new().say(Style::Dim, &format!("dcctl {}  ", started.dcctl)).say(Style::Bold, &started.command);
    let title = match started.instance.as_ref().or(started.program.as_ref()) {
        Some(object) => title.say(Style::Bold, &format!(" {object}")),
        None => title,
    };
    let mut rows = vec![title];
    let mut line = |label: &str, value: String| rows.push(labelled(2, label, &value));
    if started.dry_run {
        line("dry run", "nothing will be written".to_owned());
    }
    if let Some(bundle) = &started.bundle {
        let digest = bundle.digest.as_ref().map_or_else(String::new, |digest| format!(" ({digest})"));
        line("bundle", format!("{} {}{digest}", bundle.name, bundle.version));
    }
    match (&started.kube_context, &started.server) {
        (Some(context), Some(server)) => line("cluster", format!("{context}, {server}")),
        (Some(one), None) | (None, Some(one)) => line("cluster", one.clone()),
        (None, None) => {}
    }
    if let Some(folder) = &started.lock_dir {
        line("lock", format!("in the folder {folder}"));
    }
    if let Some(job) = started.ci.as_ref().and_then(|ci| ci.job_url.as_ref()) {
        line("job", job.clone());
    }
    if let Some(folder) = &started.run_dir {
        line("files", folder.clone());
    }
    if let Some(budget) = &started.stop_budget {
        let most = human(Duration::from_secs(budget.seconds));
        let note = budget.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
        line("a stop", format!("may take up to {most} ({}){note}", budget.source));
    }
    rows
}

fn held(blocked: &LockBlocked) -> Row {
    let on = blocked.instance.as_ref().map(|instance| format!(", at work on {instance}")).unwrap_or_default();
    let age = blocked.age_ms.map(|age| format!(", renewed {} ago", human(Duration::from_millis(age))));
    let by = format!("held by {}{on}{}", blocked.holder, age.unwrap_or_default());
    match blocked.manner {
        BusyManner::Refuses => marked(Style::Bad, "✗", &by),
        BusyManner::Continues => marked(Style::Caution, "!", &blocked.text),
        BusyManner::Waits => {
            let stale = if blocked.stale { ", which looks stale by this machine's clock and is not taken" } else { "" };
            let waited = blocked.waited_ms.filter(|waited| *waited >= 1_000);
            let so_far = waited.map(|waited| format!(", {} so far", human(Duration::from_millis(waited))));
            marked(Style::Caution, "!", &format!("{by}{stale}; waiting for it{}", so_far.unwrap_or_default()))
        }
    }
}

/// How long something took, when it is worth telling.
pub(super) fn took(ms: u64) -> Option<String> {
    (ms >= 100).then(|| span(ms))
}

/// `failed after 3s: why`.
fn ended(word: &str, finished: &StepFinished, why: &str) -> String {
    let after = took(finished.duration_ms).map(|took| format!(" after {took}")).unwrap_or_default();
    let colon = if why.is_empty() { "" } else { ": " };
    format!("{word}{after}{colon}{why}")
}

/// `01:13:24 UTC`, of a time in RFC 3339.
fn clock_time(time: &str) -> String {
    let clock = time.split_once('T').map_or(time, |(_, clock)| clock);
    format!("{} UTC", clock.split(['.', 'Z']).next().unwrap_or(clock))
}
