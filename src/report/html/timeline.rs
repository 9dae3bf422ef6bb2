//! The run as a picture: a lane for the lock, one for each step and its programs, one for what asked it to stop.
//!
//! Each lane is a line of a list, so that it can be read aloud and without a style sheet; its picture is an inline SVG whose
//! width is the length of the run. Lines have round ends and a width that does not scale, so that what took no time at all
//! is still a dot.

use std::fmt::Write as _;
use std::time::Duration;

use crate::event::{StepOutcome, StopManner};
use crate::report::account::words::took;
use crate::report::account::{Account, Lock, LockFate, Mark, Program, Step};
use crate::report::html::escaped;

/// How many parts a lane is wide.
const WIDTH: u128 = 10_000;
/// How many programs of a step have a lane.
const PROGRAMS: usize = 8;
/// How many lines there are between the two ends, at most.
const TICKS: u128 = 6;

/// The time that the picture shows.
struct Scale {
    whole: u128,
    /// Where the run was first asked to stop.
    stop: Option<u128>,
    tick: u128,
}

/// The whole picture.
pub(super) fn timeline(account: &Account) -> String {
    let scale = Scale::of(account);
    let mut lanes = vec![scale.axis()];
    lanes.extend(lock(&scale, &account.lock));
    for (index, step) in account.steps.iter().enumerate() {
        lanes.push(step_lane(&scale, account, step, index));
        lanes.extend(programs(&scale, step));
    }
    lanes.extend(asked(&scale, account));
    format!("<ol class=\"lanes\">{}</ol>", lanes.concat())
}

impl Scale {
    fn of(account: &Account) -> Scale {
        let whole = account.length().as_millis().max(1);
        let mut scale = Scale { whole, stop: None, tick: nice(whole) };
        scale.stop = account.stops.first().map(|(at, _)| scale.x(*at));
        scale
    }

    fn x(&self, at: Duration) -> u128 {
        (at.as_millis() * WIDTH / self.whole).min(WIDTH)
    }

    fn ticks(&self) -> impl Iterator<Item = u128> {
        (0..).map(|index| index * self.tick).take_while(|at| *at <= self.whole)
    }

    fn axis(&self) -> String {
        let label = |at: u128| {
            let tenths = at * 1_000 / self.whole;
            let anchor = match tenths {
                0..40 => "start",
                40..=960 => "middle",
                _ => "end",
            };
            let (percent, tenth) = (tenths / 10, tenths % 10);
            format!("<text x=\"{percent}.{tenth}%\" y=\"15\" text-anchor=\"{anchor}\">{}</text>", moment(at))
        };
        let labels: String = self.ticks().map(label).collect();
        format!(
            "<li class=\"lane axis\" aria-hidden=\"true\"><span class=\"name\"></span><svg class=\"bar\">{labels}</svg>\
             <span class=\"time\"></span></li>"
        )
    }

    /// The picture of a lane: the lines of the whole timeline, and beside its title its own. A width in parts of a hundred
    /// stretches and a height does not, so what is its own is a picture in the picture.
    fn picture(&self, own: &str) -> String {
        let mut grid = String::new();
        let mut line = |class: &str, x: u128| {
            let (percent, part) = (x / 100, x % 100);
            write!(
                grid,
                "<line class=\"{class}\" x1=\"{percent}.{part:02}%\" x2=\"{percent}.{part:02}%\" y2=\"100%\"/>"
            )
            .expect("a String takes everything");
        };
        for at in self.ticks() {
            line("grid", at * WIDTH / self.whole);
        }
        if let Some(x) = self.stop {
            line("stop", x);
        }
        format!(
            "<svg class=\"bar\" aria-hidden=\"true\">{grid}<svg class=\"own\" width=\"100%\" height=\"24\" \
             viewBox=\"0 0 {WIDTH} 24\" preserveAspectRatio=\"none\">{own}</svg></svg>"
        )
    }

    /// A line from one moment to another, with what a pointer over it is told.
    fn line(&self, class: &str, from: Duration, to: Duration, said: &str) -> String {
        let (from, to) = (self.x(from), self.x(to));
        format!("<path class=\"{class}\" d=\"M{from} 12H{to}\"><title>{}</title></path>", escaped(said))
    }

    /// A dot at each of these moments, as one path; those that cannot be told apart are one dot.
    fn dots(&self, class: &str, moments: &[Duration], said: &str) -> String {
        let mut places: Vec<u128> = moments.iter().map(|at| self.x(*at) / 10 * 10).collect();
        places.dedup();
        let path = places.iter().fold(String::new(), |mut path, x| {
            write!(path, "M{x} 12h0").expect("a String takes everything");
            path
        });
        if path.is_empty() {
            return path;
        }
        format!("<path class=\"{class}\" d=\"{path}\"><title>{}</title></path>", escaped(said))
    }
}

/// A step of the scale that makes few enough lines.
fn nice(whole: u128) -> u128 {
    const SECOND: u128 = 1_000;
    let steps = [1, 2, 5, 10, 20, 50, 100, 200, 500].into_iter();
    let minutes = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400];
    let steps = steps.chain(minutes.map(|seconds| seconds * SECOND));
    let mut steps = steps.skip_while(|step| whole / step > TICKS);
    steps.next().unwrap_or(whole / TICKS + 1)
}

/// A moment on the axis.
fn moment(ms: u128) -> String {
    let seconds = ms / 1_000;
    match ms {
        0 => "0".to_owned(),
        1..1_000 => format!("{ms}ms"),
        1_000..60_000 if ms.is_multiple_of(1_000) => format!("{seconds}s"),
        1_000..60_000 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60_000..3_600_000 if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        60_000..3_600_000 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ if seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        _ => format!("{}h{}m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// A line of the list.
fn lane(class: &str, name: &str, picture: &str, time: &str) -> String {
    format!(
        "<li class=\"lane {class}\"><span class=\"name\">{name}</span>{picture}<span class=\"time\">{time}</span></li>"
    )
}

/// A mark with its word, which is read aloud.
fn mark(sign: &str, word: &str) -> String {
    format!("<span class=\"mark\" aria-hidden=\"true\">{sign}</span><span class=\"unseen\">{word}: </span>")
}

fn lock(scale: &Scale, lock: &Lock) -> Option<String> {
    let whole = Duration::from_millis(u64::try_from(scale.whole).unwrap_or(u64::MAX));
    let Some(claimed) = lock.claimed else {
        let blocked = lock.blocked?;
        let own = scale.dots("dot bad", &[blocked], "held by another run");
        return Some(lane("lock bad", "Lock<small>held by another run</small>", &scale.picture(&own), ""));
    };
    let (class, said, end) = match lock.ended {
        Some((at, LockFate::Released)) => ("done", "released", at),
        Some((at, LockFate::Left)) => ("failed", "left behind", at),
        Some((at, LockFate::Lost)) => ("failed", "lost", at),
        None => ("open", "end not seen", whole),
    };
    let held = end.saturating_sub(claimed);
    let renewals = lock.renewed.len();
    let own = [
        scale.line(&format!("line {class}"), claimed, end, &format!("held for {}", took(held))),
        scale.dots("dot", &lock.renewed, &format!("{renewals} renewals")),
        scale.dots("dot bad", &lock.failed, "not renewed"),
    ];
    let times = if renewals == 1 { "once".to_owned() } else { format!("{renewals} times") };
    let failed = if lock.failed.is_empty() { String::new() } else { format!(", {} tries failed", lock.failed.len()) };
    let name = format!("Lock<small>{said}; renewed {times}{failed}</small>");
    Some(lane(&format!("lock {class}"), &name, &scale.picture(&own.concat()), &took(held)))
}

fn step_lane(scale: &Scale, account: &Account, step: &Step, index: usize) -> String {
    let end = account.length();
    let (class, sign, word, note) = match &step.ended {
        Some((_, ended)) => {
            let note = ended.failure.as_ref().map_or(&ended.note, |failure| &failure.message).as_str();
            match ended.outcome {
                StepOutcome::Done => ("done", "✓", "done", note),
                StepOutcome::Nothing => ("nothing", "–", "nothing to do", note),
                StepOutcome::Stopped => ("stopped", "■", "stopped", note),
                StepOutcome::Failed => ("failed", "✗", "failed", note),
            }
        }
        None if step.begun.is_some() => ("open", "?", "begun", "its end was not seen"),
        None if account.verdict.is_some() => ("unbegun", "", "not begun", ""),
        None => ("unbegun", "", "not seen to begin", ""),
    };
    let own = step.begun.map(|begun| {
        let ended = step.ended.as_ref().map_or(end, |(at, _)| *at);
        let said = format!("{}: {word}, {}", step.title, took(ended.saturating_sub(begun)));
        scale.line(&format!("line {class}"), begun, ended, &said)
    });
    let note = if note.is_empty() { String::new() } else { format!("<small>{}</small>", escaped(note)) };
    let title = escaped(&step.title);
    let name = format!("{}<a href=\"#log\" data-step=\"{index}\">{title}</a>{note}", mark(sign, word));
    let time = match (&step.ended, step.begun) {
        (Some((_, ended)), _) => took(Duration::from_millis(ended.duration_ms)),
        (None, Some(begun)) => took(end.saturating_sub(begun)),
        (None, None) => "–".to_owned(),
    };
    lane(&format!("step {class}"), &name, &scale.picture(&own.unwrap_or_default()), &time)
}

fn programs(scale: &Scale, step: &Step) -> Vec<String> {
    // Those that took longest are worth a lane.
    let long = |program: &Program| program.ended.as_ref().map_or(u64::MAX, |(_, end)| end.duration_ms);
    let mut shown: Vec<&Program> = step.programs.iter().collect();
    shown.sort_by_key(|program| std::cmp::Reverse((program.marks.len(), long(program))));
    let left_out = shown.len().saturating_sub(PROGRAMS);
    shown.truncate(PROGRAMS);
    shown.sort_by_key(|program| program.begun);
    let mut lanes: Vec<String> = shown.into_iter().map(|program| program_lane(scale, program)).collect();
    if left_out > 0 {
        let name = format!("<span class=\"program\">and {left_out} shorter programs</span>");
        lanes.push(lane("program", &name, &scale.picture(""), ""));
    }
    lanes
}

fn program_lane(scale: &Scale, program: &Program) -> String {
    let whole = Duration::from_millis(u64::try_from(scale.whole).unwrap_or(u64::MAX));
    let (class, how, end) = match &program.ended {
        Some((at, end)) => match (end.exit_code, end.signal) {
            (Some(0), _) => ("done", "ended with 0".to_owned(), *at),
            (Some(code), _) => ("failed", format!("ended with {code}"), *at),
            (None, Some(signal)) => ("failed", format!("ended by signal {signal}"), *at),
            (None, None) => ("open", "its exit status is not known".to_owned(), *at),
        },
        None => ("open", "its end was not seen".to_owned(), whole),
    };
    let process = program.pid.map(|pid| format!("process {pid}, ")).unwrap_or_default();
    let marks = program.marks.iter().map(|(at, mark, said)| {
        let class = match mark {
            Mark::Interrupted => "dot stopmark",
            Mark::Killed => "dot bad",
        };
        scale.dots(class, &[*at], said)
    });
    let marks: String = marks.collect();
    let took = took(end.saturating_sub(program.begun));
    let own = scale.line(&format!("line {class}"), program.begun, end, &format!("{process}{how}, {took}")) + &marks;
    let said = program.marks.iter().map(|(_, _, said)| format!("; {said}")).collect::<Vec<_>>().concat();
    let small = escaped(&format!("{process}{how}{said}")).into_owned();
    let name = format!("<span class=\"program\">{}</span><small>{small}</small>", escaped(&program.name));
    lane("program", &name, &scale.picture(&own), &took)
}

/// What asked the run to stop, and every signal.
fn asked(scale: &Scale, account: &Account) -> Vec<String> {
    let stops = account.stops.iter().map(|(at, stop)| {
        let manner = match stop.manner {
            StopManner::Graceful => "Asked to stop",
            StopManner::Force => "Asked to stop at once",
        };
        let said = format!("{manner} {}", stop.by_whom());
        let name = format!("{manner}<small>{}</small>", escaped(&stop.by_whom()));
        lane("asked", &name, &scale.picture(&scale.dots("dot stopmark", &[*at], &said)), &moment_of(*at))
    });
    let mut lanes: Vec<String> = stops.collect();
    if !account.signals.is_empty() {
        let moments: Vec<Duration> = account.signals.iter().map(|(at, _)| *at).collect();
        let mut names: Vec<&str> = account.signals.iter().map(|(_, signal)| signal.signal.as_str()).collect();
        names.dedup();
        let said = names.join(", ");
        let name = format!("Signals<small>{}</small>", escaped(&said));
        let count = account.signals.len().to_string();
        lanes.push(lane("asked", &name, &scale.picture(&scale.dots("dot stopmark", &moments, &said)), &count));
    }
    lanes
}

fn moment_of(at: Duration) -> String {
    format!("at {}", took(at))
}
