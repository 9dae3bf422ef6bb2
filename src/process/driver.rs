//! Drives one machine against one tool: starts it, watches it, carries out what the machine decides.

use std::io;
use std::time::Duration;

use crate::clock::{Clock, Instant};
use crate::failure::{Code, Failure};
use crate::process::group::{self, Life, Signal};
use crate::process::halt::{Moment, halt};
use crate::process::kin::{Kin, Member};
use crate::process::leader::Leader;
use crate::process::left::Leftovers;
use crate::process::machine::{Effect, Force, Input, Machine};
use crate::process::orphan::Orphan;
use crate::process::output::{Emptied, anywhere};
use crate::process::outputs::{More, Output, Shortage, lengths, line};
use crate::process::proc::{self, Stat};
use crate::process::record::{Care, Intent, Record, Recorded};
use crate::process::spec::{Limits, Manner, Sign, Spec};
use crate::process::start;
use crate::process::stop::{Stop, StopWatch};
use crate::process::update::{Ended, Exit, Fate, Left, Room, Sink, Stream, Tie, ToolSignal, Unread, Update, Why};

/// How often a silent output file is looked at. After output came it is looked at sooner.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The pause after output came, while leftovers are ended, and while there is no room for lines.
const SHORTEST_PAUSE: Duration = Duration::from_millis(4);

/// How often orphans of a running tool are let go of.
const REAP_EVERY: Duration = Duration::from_secs(5);

/// How often it is written down who belongs to a running tool whose orphans we cannot adopt.
const REMEMBER_EVERY: Duration = Duration::from_millis(500);

/// What those are called of whom the number of their process group alone is known.
const GROUP: &str = "whoever is in its process group";

/// How long a reader that takes no line may delay the end, once the tool and all that it left is gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same when a stop was asked for: somebody's patience is measured.
const STOPPING_PATIENCE: Duration = Duration::from_secs(10);

/// How long signs are looked for before anything else has its turn.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a tool to its end, and ends what it leaves behind.
///
/// Dropping this leaves the tool alone: it runs on, its output in its files.
///
/// # Errors
/// [`Code::ToolMissing`] or [`Code::CommandFailed`] when it could not be started or watched. Then nothing of it runs.
pub async fn drive(
    spec: Spec,
    limits: Limits,
    stop: StopWatch,
    clock: &dyn Clock,
    sink: impl Sink,
) -> Result<Ended, Failure> {
    let mut drive = Drive::start(spec, limits, stop, clock, sink)?;
    drive.sink.take(Update::Started { pid: drive.pid });
    Ok(drive.run().await)
}

/// Goes on with a tool whose owner has ended: sees it to its end, and ends what it leaves behind. Its output is handed on
/// from its beginning.
pub async fn see_out(
    orphan: Orphan,
    with: (Limits, fn(&str) -> Option<Sign>),
    stop: StopWatch,
    clock: &dyn Clock,
    sink: impl Sink,
) -> Ended {
    let (mut drive, first) = Drive::inherit(orphan, with, stop, clock, sink);
    drive.catch_up().await;
    for effect in first {
        drive.carry_out(effect);
    }
    drive.run().await
}

/// The end of the tool's process, as it was seen.
struct Seen {
    exit: Exit,
    took: Duration,
    /// How long the outputs were then. Lines up to there are handed on before the end is said.
    lengths: [u64; 2],
    said: bool,
}

struct Drive<'a, S> {
    name: String,
    manner: Manner,
    signs: fn(&str) -> Option<Sign>,
    pid: u32,
    clock: &'a dyn Clock,
    sink: S,
    stop: StopWatch,
    machine: Machine,
    leader: Leader,
    /// None when it had ended before we could take hold of it.
    life: Option<Life>,
    kin: Kin,
    record: Record,
    outputs: [Output; 2],
    shortage: Shortage,
    leftovers: Leftovers,
    /// Since the tool's end there was always somebody in its process group, so that its number is nobody else's.
    group_lives: bool,
    began: Instant,
    reaped: Instant,
    pause: Duration,
    seen: Option<Seen>,
    /// What it left behind is being counted again and again.
    counting: bool,
    /// Once all is over: when handing on lines is given up, and how long the outputs were.
    over: Option<(Instant, [u64; 2])>,
}

impl<'a, S: Sink> Drive<'a, S> {
    fn start(
        mut spec: Spec,
        limits: Limits,
        stop: StopWatch,
        clock: &'a dyn Clock,
        sink: S,
    ) -> Result<Drive<'a, S>, Failure> {
        let command = start::prepare(&mut spec)?;
        let unreadable = |error: io::Error| {
            let code = Code::RunDirUnusable.unless_exhausted(&error);
            Failure::new(code, format!("the output of `{}` cannot be read", spec.name)).because(&error)
        };
        let outputs = [
            Output::open(Stream::Stdout, &spec.stdout).map_err(unreadable)?,
            Output::open(Stream::Stderr, &spec.stderr).map_err(unreadable)?,
        ];
        let care = Care { manner: spec.manner, stdout: spec.stdout.clone(), stderr: spec.stderr.clone() };
        let recorded = Recorded::before(&spec.name, &spec.tag, care);
        let (record, written) = Record::create(&spec.record, &recorded);
        let (child, life) = start::start(&spec, command).inspect_err(|_| record.forget())?;
        let pid = life.pid();
        halt(Moment::Started, &spec.name);
        if let Err(error) = written.and_then(|()| record.complete(&recorded.started_as(pid))) {
            tracing::warn!(path = %spec.record.display(), %error, "the record of a tool could not be written");
        }
        let kin = Kin::of(pid, &spec.tag, [&spec.stdout, &spec.stderr]);
        let now = clock.now();
        Ok(Drive {
            machine: Machine::new(spec.manner, limits, spec.timeout, now),
            name: spec.name,
            manner: spec.manner,
            signs: spec.signs,
            pid,
            clock,
            sink,
            stop,
            leader: Leader::Child(child),
            life: Some(life),
            kin,
            record,
            outputs,
            shortage: Shortage::of(&spec.stdout),
            leftovers: Leftovers::default(),
            group_lives: true,
            began: now,
            reaped: now,
            pause: SHORTEST_PAUSE,
            seen: None,
            counting: false,
            over: None,
        })
    }

    fn inherit(
        orphan: Orphan,
        (limits, signs): (Limits, fn(&str) -> Option<Sign>),
        stop: StopWatch,
        clock: &'a dyn Clock,
        sink: S,
    ) -> (Drive<'a, S>, Vec<Effect>) {
        let now = clock.now();
        let Orphan { name, tag, pid, started, life, care, record, before, .. } = orphan;
        let outputs = [&care.stdout, &care.stderr];
        let paths = outputs.map(std::path::PathBuf::as_path);
        let kin = match &life {
            Some(life) => Kin::of(life.pid(), &tag, paths),
            None => Kin::without_leader(started, &tag, paths),
        };
        let (machine, first) = Machine::inherit(care.manner, limits, before, now);
        let mut drive = Drive {
            name,
            manner: care.manner,
            signs,
            pid,
            clock,
            sink,
            stop,
            machine,
            leader: Leader::Inherited,
            life,
            kin,
            record,
            outputs: [Output::inherit(Stream::Stdout, paths[0]), Output::inherit(Stream::Stderr, paths[1])],
            shortage: Shortage::of(paths[0]),
            leftovers: Leftovers::default(),
            // Whether its number was given away since its end nobody can tell.
            group_lives: false,
            began: if started > 0 { proc::at(started) } else { now },
            reaped: now,
            pause: SHORTEST_PAUSE,
            seen: None,
            counting: false,
            over: None,
        };
        drive.remember();
        (drive, first)
    }

    /// What OpenTofu has said until now may tell that it was interrupted already, and a second interrupt would cost its
    /// state, so all of it is read first. Meanwhile everything else has its turn. Of another tool nothing is learned from that.
    async fn catch_up(&mut self) {
        let said = lengths(&self.outputs);
        while self.manner == Manner::OpenTofu
            && self.look() == More::Came
            && self.outputs.iter().zip(said).any(|(output, length)| output.head.offset() < length)
        {
            tokio::task::yield_now().await;
        }
    }

    async fn run(mut self) -> Ended {
        let asked = self.stop.now();
        self.input(Input::Asked(asked));
        loop {
            let behind = self.look();
            self.input(Input::Tick);
            if self.counting {
                self.count();
            }
            self.reap();
            let outputs = &self.outputs;
            if let Some(update) = self.shortage.look(|| lengths(outputs), self.clock.now()) {
                self.sink.take(update);
            }
            let more = self.hand_on().or(behind);
            self.say_end();
            if self.is_done() {
                return self.finish();
            }
            self.wait(more).await;
        }
    }

    /// Waits for the next thing: a stop request, the tool's end, a moment that the machine wants, or more output.
    async fn wait(&mut self, more: More) {
        let now = self.clock.now();
        let due = self.machine.due().map_or(LONGEST_PAUSE, |due| due.since(now));
        self.pause = match more {
            More::Waiting | More::Came => SHORTEST_PAUSE,
            More::None if self.counting => SHORTEST_PAUSE,
            More::None => (self.pause * 2).min(LONGEST_PAUSE),
        };
        let pause = due.min(self.pause);
        tokio::select! {
            biased;
            stop = self.stop.changed() => self.input(Input::Asked(stop)),
            ended = self.leader.ended(self.life.as_ref()), if self.seen.is_none() => self.leader_ended(ended),
            () = tokio::task::yield_now(), if more == More::Came => {}
            () = tokio::time::sleep(pause), if more != More::Came => {}
        }
    }

    fn input(&mut self, input: Input) {
        for effect in self.machine.take(input, self.clock.now()) {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let pid = self.pid;
        match effect {
            Effect::Interrupt(signal, why) => self.interrupt(signal, why),
            Effect::SayReported => {
                let (times, sent) = (self.machine.reported(), self.machine.sent());
                self.sink.take(Update::InterruptReported { times, sent });
            }
            Effect::Kill(why) => {
                self.remember();
                self.intend(Intent::Kill);
                let to = if self.manner == Manner::Group { To::Group } else { To::Leader };
                note(pid, self.send(Signal::Kill, to));
                self.sink.take(Update::Killed { pid, why });
            }
            Effect::KillTree => {
                self.note_members();
                self.leftovers.sweep(Force::Kill);
            }
            Effect::Unblock(reach) => {
                let holders = self.kin.holders(reach);
                self.say_left(&holders);
                self.leftovers.end(&holders);
            }
            Effect::List => {
                self.counting = true;
                self.count();
            }
            Effect::Sweep(force) => {
                self.leftovers.sweep(force);
                if force == Force::Kill && self.group_lives() {
                    // All at once: one that forks faster than it can be looked for is out of reach one by one.
                    note(pid, group::signal_group(pid, Signal::Kill));
                }
            }
            Effect::Finish => {
                self.counting = false;
                self.over = Some((self.clock.now() + self.patience(), lengths(&self.outputs)));
                if self.seen.is_none() {
                    // The watchdog: what is still there is named, and waited for no longer.
                    self.note_members();
                    self.see(Exit::Unseen);
                }
            }
        }
    }

    fn interrupt(&mut self, signal: ToolSignal, why: Why) {
        let pid = self.pid;
        self.remember();
        self.intend(if self.machine.sent() > 1 { Intent::InterruptAgain } else { Intent::Interrupt });
        halt(Moment::Intended, &self.name);
        let sent = match signal {
            ToolSignal::Interrupt => self.send(Signal::Interrupt, To::Leader),
            ToolSignal::Terminate => self.send(Signal::Terminate, To::Group),
        };
        note(pid, sent);
        halt(Moment::Sent, &self.name);
        self.sink.take(Update::Interrupted { pid, signal, why });
    }

    fn send(&self, signal: Signal, to: To) -> io::Result<()> {
        let Some(life) = &self.life else { return Err(io::ErrorKind::NotFound.into()) };
        match (to, &self.leader) {
            (To::Leader, _) => life.signal(signal),
            (To::Group, Leader::Child(_)) => group::signal_group(life.pid(), signal),
            (To::Group, Leader::Inherited) => group::signal_members(life, signal),
        }
    }

    /// Records what is about to be done. If that fails, it is done all the same.
    fn intend(&mut self, intent: Intent) {
        if let Err(error) = self.record.intend(intent) {
            tracing::warn!(tool = self.name, ?intent, %error, "an intent could not be recorded");
        }
    }

    /// Reads the signs in what the tool has printed so far. Where that is very much it goes on at the next turn: a stop
    /// request does not wait for it.
    fn look(&mut self) -> More {
        let until = self.clock.now() + LOOK;
        let mut more = More::None;
        let signs = self.signs;
        let mut found = Vec::new();
        let mut heard = false;
        for output in &mut self.outputs {
            let end = output.head.length();
            while output.head.offset() < end {
                if self.clock.now() >= until {
                    more = More::Came;
                    break;
                }
                let read = output.head.read(anywhere, |piece| {
                    found.extend(piece.first.then(|| signs(&piece.text)).flatten());
                });
                match read {
                    Ok(0) => break,
                    Ok(_) => heard = true,
                    Err(error) => {
                        tracing::warn!(tool = self.name, %error, "an output file could not be read");
                        break;
                    }
                }
            }
        }
        if heard {
            self.input(Input::Heard(None));
        }
        for sign in found {
            self.input(Input::Heard(Some(sign)));
        }
        more
    }

    /// Hands on one block of lines of each output, while there is room for them.
    fn hand_on(&mut self) -> More {
        let mut more = More::None;
        for output in &mut self.outputs {
            if self.sink.room() == Room::None {
                let waits = output.tail.offset() < output.tail.length();
                more = if waits && more == More::None { More::Waiting } else { more };
                continue;
            }
            let stream = output.stream;
            let sink = std::cell::RefCell::new(&mut self.sink);
            let cut = |line: &[u8], at| sink.borrow().cut(line, at);
            let read = output.tail.read(cut, |piece| sink.borrow_mut().take(line(stream, piece)));
            if output.tail.emptied() == Emptied::Yes {
                self.sink.take(Update::Unread { stream, why: Unread::Emptied });
            }
            match read {
                Ok(0) => {}
                Ok(_) => more = More::Came,
                Err(error) => tracing::warn!(tool = self.name, %error, "an output file could not be read"),
            }
        }
        let (now, patience, stop) = (self.clock.now(), self.patience(), self.stop.now());
        if let Some((until, _)) = &mut self.over {
            match (stop, more) {
                (Stop::None, More::Came) => *until = now + patience,
                (Stop::None, More::None | More::Waiting) => {}
                (Stop::Graceful { .. } | Stop::Force { .. }, _) => *until = (*until).min(now + patience),
            }
        }
        more
    }

    fn leader_ended(&mut self, ended: io::Result<Exit>) {
        let exit = ended.unwrap_or_else(|error| {
            tracing::warn!(tool = self.name, %error, "how a tool ended could not be learned");
            Exit::Unseen
        });
        self.see(exit);
        self.shortage.hurry();
        self.intend(Intent::Ended);
        self.look();
        self.input(Input::LeaderEnded);
    }

    fn see(&mut self, exit: Exit) {
        let took = self.clock.now().since(self.began);
        self.seen = Some(Seen { exit, took, lengths: lengths(&self.outputs), said: false });
    }

    /// Says the tool's end, once everything that it printed before was handed on.
    fn say_end(&mut self) {
        let Some(seen) = &mut self.seen else { return };
        let gave_up = self.over.is_some_and(|(until, _)| self.clock.now() >= until);
        let handed_on = self.outputs.iter().zip(seen.lengths).all(|(output, length)| output.tail.offset() >= length);
        if seen.said || !(handed_on || gave_up) {
            return;
        }
        seen.said = true;
        let (exit, took) = (seen.exit, seen.took);
        self.finish_lines();
        self.sink.take(Update::Finished { exit, took });
    }

    /// Hands on the line that was never finished.
    fn finish_lines(&mut self) {
        for output in &mut self.outputs {
            let stream = output.stream;
            let sink = &mut self.sink;
            output.tail.rest(|piece| sink.take(line(stream, piece)));
        }
    }

    fn count(&mut self) {
        let fresh = self.note_members();
        let mut alive = self.leftovers.alive();
        if alive == 0 && self.group_lives() {
            // Nobody was seen, and somebody is there: one that was never seen as long as it lived.
            alive = 1;
            self.leftovers.miss();
        }
        self.input(Input::Left { alive, fresh });
    }

    /// Whether there is still somebody in the process group of a tool that has ended. Where orphans are not ours to let
    /// go of, one that has ended and that nobody reaps would count.
    fn group_lives(&mut self) -> bool {
        if self.seen.is_none() || !group::is_adopting() {
            return false;
        }
        group::reap_orphans(&[self.pid]);
        self.group_lives = self.group_lives && group::is_populated(self.pid);
        self.group_lives
    }

    /// Looks twice: a process that starts another and ends while it is looked for could escape one look.
    fn note_members(&mut self) -> usize {
        let mut fresh = 0;
        for _ in 0..2 {
            let members = self.kin.members();
            fresh += self.say_left(&members);
        }
        fresh
    }

    fn say_left(&mut self, seen: &[Member]) -> usize {
        let news = self.leftovers.note(seen, self.clock.now());
        for update in news.updates {
            self.sink.take(update);
        }
        news.fresh
    }

    /// Lets go of orphans that ended while the tool runs.
    fn reap(&mut self) {
        let now = self.clock.now();
        if group::is_adopting() && now.since(self.reaped) >= REAP_EVERY {
            self.reaped = now;
            group::reap_orphans(&[self.pid]);
        }
        if now.since(self.reaped) >= REMEMBER_EVERY {
            self.remember();
        }
    }

    /// Writes down who belongs to a tool that somebody else started, as long as it lives to tell.
    fn remember(&mut self) {
        if matches!(self.leader, Leader::Inherited) && self.seen.is_none() {
            self.kin.remember();
            self.reaped = self.clock.now();
        }
    }

    fn is_done(&self) -> bool {
        let now = self.clock.now();
        let said = self.seen.as_ref().is_some_and(|seen| seen.said);
        let Some((until, lengths)) = self.over else { return false };
        let handed_on = self.outputs.iter().zip(lengths).all(|(output, length)| output.tail.offset() >= length);
        said && (handed_on || now >= until)
    }

    /// How long the end waits for lines that are not handed on yet.
    fn patience(&self) -> Duration {
        match self.stop.now() {
            Stop::None => PATIENCE,
            Stop::Graceful { .. } => STOPPING_PATIENCE,
            Stop::Force { .. } => Duration::ZERO,
        }
    }

    fn finish(mut self) -> Ended {
        self.finish_lines();
        for output in &self.outputs {
            let bytes = output.tail.length().saturating_sub(output.tail.offset());
            if bytes > 0 {
                self.sink.take(Update::Unread { stream: output.stream, why: Unread::GivenUp(bytes) });
            }
        }
        if let Some(crowd) = self.leftovers.unnamed() {
            self.sink.take(Update::Unnamed(crowd));
        }
        let group_lives = self.group_lives();
        let seen = self.seen.as_ref().expect("a tool is over when its end was seen or given up");
        let mut left_behind = self.leftovers.report();
        if group_lives && left_behind.iter().all(|left| left.fate == Fate::Ended) {
            // Nobody of them was met alive, and they may not be signalled.
            let (pid, name, ties) = (self.pid, GROUP.to_owned(), vec![Tie::Group]);
            left_behind.push(Left { pid, name, age: seen.took, ties, state: '?', fate: Fate::Alive });
        }
        if seen.exit == Exit::Unseen && self.life.as_ref().is_some_and(|life| !life.is_over()) {
            let stat = Stat::of(self.pid);
            let (name, state) = stat.map_or(("?".to_owned(), '?'), |stat| (stat.name, stat.state));
            let (pid, ties) = (self.pid, vec![Tie::Itself]);
            left_behind.insert(0, Left { pid, name, age: seen.took, ties, state, fate: Fate::Alive });
        }
        for left in left_behind.iter().filter(|left| left.fate == Fate::Alive) {
            self.sink.take(Update::Survived(left.clone()));
        }
        Ended {
            pid: self.pid,
            exit: seen.exit,
            interrupts_sent: self.machine.sent(),
            interrupts_reported: self.machine.reported(),
            why: self.machine.why(),
            killed: self.machine.killed(),
            left_behind,
            took: seen.took,
        }
    }
}

/// Who of a tool gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// Its own process.
    Leader,
    /// Its process group.
    Group,
}

fn note(pid: u32, sent: io::Result<()>) {
    if let Err(error) = sent {
        // It ended in the same moment; its end is on its way to us.
        tracing::debug!(pid, %error, "a tool could not be signalled");
    }
}
