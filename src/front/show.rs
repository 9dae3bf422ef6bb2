//! Shows the journal on standard output, on a thread of its own.
//!
//! A standard output that is gone (`| head`) is said once on standard error and changes nothing else: the journal is
//! still followed to its end.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::event::{Event, Seen};
use crate::front::follow::{Cut, Follower};
use crate::front::relay::{Relay, Streams};
use crate::pipeline::Action;
use crate::report::human::{Human, Options, Screen};
use crate::report::jsonl::Jsonl;

/// How often a live line is redrawn.
const REDRAW: Duration = Duration::from_millis(200);
/// How long the thread waits before it looks at a file that the kernel does not watch.
const LOOK: Duration = Duration::from_secs(1);

/// What standard output carries.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// The lines themselves.
    Jsonl,
    /// Readable lines.
    Human(Options),
}

/// How and where a run is shown.
pub struct Showing {
    /// Standard output.
    pub out: Box<dyn Write + Send>,
    /// Where it is said that standard output is gone.
    pub complaints: Box<dyn Write + Send>,
    /// What it carries.
    pub form: Form,
    /// The clocks, for the live line.
    pub clock: Arc<dyn Clock>,
    /// The width of the terminal, asked again before each redraw.
    pub width: fn() -> Option<usize>,
    /// Where the outputs of the run's command go, if they are passed on beside what is shown.
    pub streams: Option<Streams>,
}

/// The thread that shows.
pub(crate) struct Shown {
    lines: Arc<AtomicU64>,
    rest: mpsc::Sender<String>,
    done: oneshot::Receiver<()>,
}

impl Shown {
    /// Nothing more comes into the journal. It ends with these lines, which may be none.
    pub(crate) fn end_with(&self, rest: String) {
        let _ = self.rest.send(rest);
    }

    /// Waits until everything is shown, as long as it gets on.
    pub(crate) async fn drain(mut self, stalled: Duration) {
        loop {
            let before = self.lines.load(Ordering::Relaxed);
            match tokio::time::timeout(stalled, &mut self.done).await {
                Ok(_) => return,
                Err(_) if self.lines.load(Ordering::Relaxed) == before => return,
                Err(_) => {}
            }
        }
    }
}

/// Starts showing this journal, and what `relay` passes on.
pub(crate) fn start(mut follower: Follower, showing: Showing, relay: Option<Relay>) -> Shown {
    let lines = Arc::new(AtomicU64::new(0));
    let (finished, done) = oneshot::channel();
    let (rest, ended_with) = mpsc::channel();
    let counter = lines.clone();
    let body = move || {
        let mut screen = Screening { relay, shown: counter, ..Screening::new(showing) };
        follow(&mut follower, &mut screen, &ended_with);
        // The command's outputs were removed; only our descriptors keep their room on the disk from the journal.
        drop(screen);
        let _ = finished.send(());
    };
    // Without the thread nothing is shown, and the run goes on all the same; `done` is closed and nobody waits.
    let _ = thread::Builder::new().name("show".to_owned()).spawn(body);
    Shown { lines, rest, done }
}

/// Shows these lines, on a thread of their own: a reader that stands still holds up the end for this long at most.
pub(crate) fn all(lines: Vec<String>, showing: Showing, stalled: Duration) {
    let (shown, progress) = mpsc::channel();
    let body = move || {
        let mut screen = Screening::new(showing);
        for line in lines {
            screen.show(&line);
            let _ = shown.send(());
        }
    };
    drop(thread::Builder::new().name("show".to_owned()).spawn(body));
    while progress.recv_timeout(stalled).is_ok() {}
}

fn follow(follower: &mut Follower, screen: &mut Screening, rest: &mpsc::Receiver<String>) {
    loop {
        // Asked before the file is read: what was written before the end was said is read before the rest is shown.
        let ended_with = rest.try_recv().ok();
        let Ok(mut lines) = follower.lines() else { return };
        if follower.cut() == Cut::Yes {
            screen.complain("the journal of this run was cut short by somebody else; what was in it is gone");
        }
        let ended = match ended_with {
            Some(rest) => {
                lines.extend(follower.rest());
                lines.extend(rest.split_inclusive('\n').map(str::to_owned));
                Ended::Yes
            }
            None => Ended::No,
        };
        let passed = screen.pass_on();
        if lines.is_empty() && passed == 0 && ended == Ended::No {
            screen.tick();
            follower.wait(screen.patience());
            continue;
        }
        for line in lines {
            let last = screen.show(&line);
            screen.shown.fetch_add(1, Ordering::Relaxed);
            if last {
                return;
            }
        }
        if ended == Ended::Yes {
            screen.finish_relay();
            return;
        }
    }
}

/// Whether more may come into the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Yes,
    No,
}

/// Standard output, in one of its forms.
pub(crate) struct Screening {
    form: Drawn,
    complaints: Box<dyn Write + Send>,
    clock: Arc<dyn Clock>,
    width: fn() -> Option<usize>,
    live: bool,
    gone: bool,
    relay: Option<Relay>,
    /// Grows with everything that is shown.
    shown: Arc<AtomicU64>,
}

enum Drawn {
    Jsonl(Jsonl<Box<dyn Write + Send>>),
    Human(Box<Human<Box<dyn Write + Send>>>),
}

impl Screening {
    pub(crate) fn new(showing: Showing) -> Screening {
        let Showing { out, complaints, form, clock, width, streams: _ } = showing;
        let live = matches!(form, Form::Human(Options { screen: Screen::Live, .. }));
        let form = match form {
            Form::Jsonl => Drawn::Jsonl(Jsonl::new(out)),
            Form::Human(options) => Drawn::Human(Box::new(Human::new(out, options))),
        };
        let shown = Arc::new(AtomicU64::new(0));
        Screening { form, complaints, clock, width, live, gone: false, relay: None, shown }
    }

    /// Shows one line; says whether it was the verdict.
    pub(crate) fn show(&mut self, line: &str) -> bool {
        let seen = Seen::read(line);
        let last = matches!(&seen, Ok(Seen { event: Some(Event::RunFinished(_)), .. }));
        if let Ok(Seen { event: Some(event), .. }) = &seen {
            self.relay_at(event);
        }
        if !self.gone {
            let shown = match (&mut self.form, &seen) {
                // A line that a killed supervisor left unfinished.
                (_, Err(_)) => Ok(()),
                (Drawn::Jsonl(out), Ok(_)) => out.take(line),
                (Drawn::Human(human), Ok(seen)) => human.take(seen),
            };
            self.note(shown);
        }
        last
    }

    /// The command's output has its place between the lines that tell of its start and of its end.
    fn relay_at(&mut self, event: &Event) {
        match event {
            Event::ProcessStarted(_) => self.relay.iter_mut().for_each(Relay::begin),
            Event::StepFinished(finished) if finished.id == Action::RunCommand.id() => self.finish_relay(),
            Event::RunFinished(_) => self.finish_relay(),
            _ => {}
        }
    }

    fn finish_relay(&mut self) {
        let Some(relay) = &mut self.relay else { return };
        let shown = &self.shown;
        relay.finish(&mut self.complaints, |bytes| {
            shown.fetch_add(bytes, Ordering::Relaxed);
        });
    }

    fn pass_on(&mut self) -> u64 {
        let Some(relay) = &mut self.relay else { return 0 };
        let passed = relay.pass_on(&mut self.complaints);
        self.shown.fetch_add(passed, Ordering::Relaxed);
        passed
    }

    fn tick(&mut self) {
        if let (false, true, Drawn::Human(human)) = (self.gone, self.live, &mut self.form) {
            if let Some(width) = (self.width)() {
                human.set_width(width);
            }
            let shown = human.tick(self.clock.now());
            self.note(shown);
        }
    }

    fn patience(&self) -> Duration {
        if self.live { REDRAW } else { LOOK }
    }

    fn note(&mut self, shown: io::Result<()>) {
        if let Err(error) = shown {
            self.gone = true;
            self.complain(&format!("standard output is gone ({error}); the run goes on"));
        }
    }

    fn complain(&mut self, sentence: &str) {
        let _ = writeln!(self.complaints, "dcctl: {sentence}");
    }
}
