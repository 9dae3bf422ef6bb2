//! The loop of a take-over: the lock, the tools, signals, and what of it is told.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::{Clock, rfc3339};
use crate::event::{self, Event, LockEnd, SignalEffect, StopCause, StopManner};
use crate::lock::{Change, HolderId, Keeper, notes};
use crate::pipeline::Verb;
use crate::process::{self, Directly, Limits, Orphan, Room, Sink, StopWatch, Stopper, Update};
use crate::redact::Redactor;
use crate::run::chronicle::Chronicle;
use crate::run::drill;
use crate::run::keeping::{self, Changes, End};
use crate::run::machine::Strength;
use crate::run::spec::{Mode, Purpose, Spec};
use crate::run::takeover::callers::Request;
use crate::run::takeover::ending::{Ending, Seen};
use crate::run::takeover::remains::{AtWork, Lock, Remains, Told};
use crate::run::translate::{self, Place, millis};
use crate::step::{self, Outcome, Part, RECORDS, Stopped, Updates, UpdatesReceiver, Witness, updates};

/// How often a tool that is still at work is said to be.
const PROGRESS: Duration = Duration::from_secs(15);

/// One run, owned by the process that took it over.
pub(super) struct Owner<'a> {
    spec: &'a Spec,
    holder: HolderId,
    remains: Remains,
    pub(super) told: Chronicle,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
    end: End,
    keeper: Option<Keeper>,
    changes: Option<Changes>,
    stopper: Stopper,
    watch: StopWatch,
    lost: Option<String>,
}

/// Tools on their way to their end.
type Work<'f> = Vec<(Pin<Box<dyn Future<Output = Seen> + 'f>>, Option<Seen>)>;

/// What the loop was woken by.
enum Woken {
    Asked(Request),
    Lock(Change),
    Update(step::Update),
    Tick,
}

impl<'a> Owner<'a> {
    pub(super) fn new(
        spec: &'a Spec,
        holder: HolderId,
        remains: Remains,
        told: Chronicle,
        redactor: Redactor,
        clock: Arc<dyn Clock>,
    ) -> Owner<'a> {
        let (stopper, watch) = process::stop_channel();
        let (lock, named) = remains.lock.end(&holder.to_string());
        let end = End::inherited(lock, named);
        let estate = remains.lock.estate().filter(|_| spec.mode == Mode::Act);
        let (keeper, changes) = match estate {
            Some(estate) => {
                let (keeper, changes) = keeping::inherit(spec, &holder, estate, clock.clone());
                (Some(keeper), Some(changes))
            }
            None => (None, None),
        };
        Owner { spec, holder, remains, told, redactor, clock, end, keeper, changes, stopper, watch, lost: None }
    }

    /// Sees everything of the run to its end, and gives its lock back.
    pub(super) async fn own(&mut self, mut requests: UnboundedReceiver<Request>) -> Ending {
        let (send, mut receive) = updates(self.told.backlog());
        let orphans = self.find(&mut requests).await;
        if !orphans.is_empty() {
            self.ask_to_stop();
            self.note_will(&orphans);
        }
        let seen = {
            let mut work: Work<'_> = Vec::new();
            let limits = drill::patience(self.spec, self.spec.limits());
            let clock = self.clock.clone();
            for orphan in orphans {
                let program = orphan.name.clone();
                let told = self.begin(&orphan);
                let witness = Witness::of(&program, orphan.manner(), self.redactor.clone());
                let hearing = Hearing { witness: Rc::new(RefCell::new(witness)), told, send: send.clone() };
                let seeing = see(orphan, hearing, limits, self.watch.clone(), clock.clone(), self.redactor.clone());
                work.push((Box::pin(seeing), None));
            }
            self.go_through(work, &mut receive, &mut requests).await
        };
        drop(send);
        while let Some(update) = receive.try_recv() {
            self.tell(update);
        }
        let judged = self.judge(&seen);
        self.end_step(&judged);
        self.give_back(&mut requests).await;
        // Nothing of the run asks the API server any more.
        for (pid, name) in process::end_plugins_of(&self.spec.run).await {
            self.told.note(crate::run::supervise::plugin_ended(pid, &name));
        }
        self.ending(&seen, judged)
    }

    /// Finds the tools. Meanwhile the lock is renewed already, and force is heard.
    async fn find(&mut self, requests: &mut UnboundedReceiver<Request>) -> Vec<Orphan> {
        let (records, run) = (self.spec.run_dir.join(RECORDS), self.spec.run.clone());
        let (run_dir, heard, clock) = (self.spec.run_dir.clone(), self.remains.heard(), self.clock.clone());
        let guess = |tag: &str| step::guess(&run_dir, tag);
        let finding = process::orphans(&run, &records, &heard, guess, &*clock);
        tokio::pin!(finding);
        loop {
            tokio::select! {
                found = &mut finding => return found,
                Some(change) = next(&mut self.changes) => self.heed_lock(change),
                Some(request) = requests.recv() => self.heed(request),
            }
        }
    }

    /// What was told of it already. Its start may not have been.
    fn begin(&mut self, orphan: &Orphan) -> Told {
        if let (None, Some(pid)) = (self.remains.programs.get(&orphan.name), orphan.pid())
            && orphan.lives()
        {
            let started = Event::ProcessStarted(event::ProcessStarted { program: orphan.name.clone(), pid });
            let step = self.remains.step.as_ref().map(|step| step.id.clone());
            self.told.tell(step.as_deref(), started);
            self.remains.programs.insert(orphan.name.clone(), pid);
            return Told::default();
        }
        self.remains.told.get(&orphan.name).cloned().unwrap_or_default()
    }

    /// The run was asked to stop already, or is now.
    fn ask_to_stop(&mut self) {
        let now = self.clock.now();
        match self.remains.stopping {
            Some(asked) if asked.manner == StopManner::Force => drop(self.stopper.force(now)),
            Some(asked) => drop(self.stopper.graceful(asked.since, Directly::No)),
            None => {
                if self.stopper.graceful(now, Directly::No) {
                    self.tell_stop(StopManner::Graceful, StopCause::SupervisorGone, Vec::new());
                }
            }
        }
    }

    fn tell_stop(&mut self, manner: StopManner, cause: StopCause, signals: Vec<String>) {
        let budget = self.spec.limits().budget;
        let event = event::StopRequested {
            cause,
            signals,
            sender_pid: None,
            sender_uid: None,
            manner,
            budget_ms: millis(budget),
            deadline: Some(rfc3339(self.told.wall() + budget)),
        };
        self.told.tell(None, Event::StopRequested(event));
    }

    /// The last will: who looks at the Lease while this process lives, or after it, finds what there was to wait for.
    fn note_will(&self, orphans: &[Orphan]) {
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.end.lock == LockEnd::Left) else { return };
        let now = self.told.wall();
        let living = orphans.iter().filter(|orphan| orphan.lives());
        let at_work: Vec<String> =
            living.map(|orphan| format!("{} (process {})", orphan.name, orphan.pid().unwrap_or_default())).collect();
        let mut will = BTreeMap::from([(notes::CHILDREN.to_owned(), Some(at_work.join(", ")))]);
        if self.remains.stopping.is_none() {
            let over = now + self.spec.limits().budget;
            will.insert(notes::STOP_REQUESTED.to_owned(), Some(rfc3339(now)));
            will.insert(notes::STOP_SIGNAL.to_owned(), Some("the end of the process that owned the run".to_owned()));
            will.insert(notes::STOP_DEADLINE.to_owned(), Some(rfc3339(over)));
        }
        keeper.note(will);
    }

    /// Drives all tools to their end.
    async fn go_through(
        &mut self,
        mut work: Work<'_>,
        updates: &mut UpdatesReceiver,
        requests: &mut UnboundedReceiver<Request>,
    ) -> Vec<Seen> {
        let mut ticks = interval(PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            let woken = tokio::select! {
                biased;
                Some(request) = requests.recv() => Woken::Asked(request),
                Some(change) = next(&mut self.changes) => Woken::Lock(change),
                Some(update) = updates.recv() => Woken::Update(update),
                () = all(&mut work) => return work.into_iter().filter_map(|(_, seen)| seen).collect(),
                _ = ticks.tick() => Woken::Tick,
            };
            match woken {
                Woken::Asked(request) => self.heed(request),
                Woken::Lock(change) => self.heed_lock(change),
                Woken::Update(update) => self.tell(update),
                Woken::Tick => self.tell_progress(),
            }
        }
    }

    fn tell_progress(&mut self) {
        if let Some(AtWork { id, since, .. }) = self.remains.step.clone() {
            let took = self.told.now().since(since);
            self.told.progress(&id, took);
        }
    }

    fn tell(&mut self, update: step::Update) {
        let step = self.remains.step.as_ref().map(|step| step.id.clone());
        self.told.tell(step.as_deref(), translate::update(update, self.spec.mode));
    }

    /// More requests to stop change nothing; force does.
    fn heed(&mut self, Request { asked, strength, cause }: Request) {
        let forces = strength == Strength::Force && self.stopper.force(self.clock.now());
        let effect = if forces { SignalEffect::Force } else { SignalEffect::Nothing };
        let received = event::SignalReceived {
            signal: asked.signal.clone(),
            sender_pid: asked.pid,
            sender_uid: asked.uid,
            effect,
        };
        self.told.tell(None, Event::SignalReceived(received));
        if forces {
            self.tell_stop(StopManner::Force, cause, vec![asked.signal]);
        }
    }

    fn heed_lock(&mut self, change: Change) {
        match change {
            Change::Lost(lost) if self.end.lock == LockEnd::Left => {
                let title = self.remains.step.as_ref().map(|step| self.place(step).title);
                let failure = match &title {
                    Some(step) => keeping::lost_during(step, &lost),
                    None => keeping::lost_before("the release of the lock", &lost),
                };
                self.lost = Some(failure.message.clone());
                self.end.lose(&lost, &self.holder);
                keeping::tell_loss(&lost, &self.holder, &failure, &mut self.told);
            }
            Change::Waiting { act, why } => {
                keeping::Waiting { act, why }.tell(self.clock.now(), &mut self.told);
            }
            change => self.end.take_change(&change, &mut self.told),
        }
    }

    fn place(&self, step: &AtWork) -> Place {
        Place::of(&self.spec.plan, step.index.min(self.spec.plan.actions.len() - 1))
    }

    /// What the tools' ends mean. That an apply made nothing is written down here, too.
    fn judge(&self, seen: &[Seen]) -> Vec<(String, Stopped)> {
        let unsaved = match &self.spec.purpose {
            Purpose::Bundle(with) => step::rescue(&self.spec.run_dir, &with.state_dir),
            Purpose::Command(_) => None,
        };
        let part = match self.spec.plan.verb {
            Verb::Install => Part::Prerequisites,
            Verb::Bootstrap | Verb::Upgrade | Verb::Destroy | Verb::Exec => Part::Infrastructure,
        };
        let root = match &self.spec.purpose {
            Purpose::Bundle(with) => {
                let (run_dir, state_dir) = (&*self.spec.run_dir, &*with.state_dir);
                Some(step::Root { bundle: &with.bundle, part, run_dir, state_dir, unsaved: unsaved.as_deref() })
            }
            Purpose::Command(_) => None,
        };
        let waited = match self.stopper.now() {
            process::Stop::Graceful { since, .. } | process::Stop::Force { since } => self.clock.now().since(since),
            process::Stop::None => Duration::ZERO,
        };
        let judge = |seen: &Seen| seen.witness.borrow().judge(&seen.ended, root, waited);
        let judged = seen.iter().map(|seen| (seen.program.clone(), judge(seen))).collect();
        for seen in seen {
            if let Some(root) = root {
                seen.witness.borrow().settle(&seen.ended, root);
            }
        }
        judged
    }

    /// A step whose tool was seen to its end has ended.
    fn end_step(&mut self, judged: &[(String, Stopped)]) {
        if judged.is_empty() {
            return;
        }
        let Some(step) = self.remains.step.take() else { return };
        let stopped = Stopped {
            clean: judged.iter().all(|(_, stopped)| stopped.clean),
            unfinished: judged.iter().flat_map(|(_, stopped)| stopped.unfinished.clone()).collect(),
            note: judged.iter().map(|(_, stopped)| stopped.note.as_str()).collect::<Vec<_>>().join("; "),
        };
        let finished = self.place(&step).finished(&Outcome::Stopped(stopped), self.told.now().since(step.since));
        self.told.tell(Some(&step.id), finished);
    }

    /// Gives the lock back, unless the end was forced.
    async fn give_back(&mut self, requests: &mut UnboundedReceiver<Request>) {
        let Some(keeper) = self.keeper.take() else { return };
        let forced = matches!(self.stopper.now(), process::Stop::Force { .. });
        if forced && self.end.lock == LockEnd::Left {
            keeping::leave(&keeper).await;
            self.end.leave(&self.holder, "the run was ended by force", &mut self.told);
            return;
        }
        let is_told = matches!(self.remains.lock, Lock::Returning | Lock::Without { .. });
        if !is_told && matches!(self.end.lock, LockEnd::Left | LockEnd::Unknown) {
            let holder = self.holder.to_string();
            self.told.tell(None, Event::LockReleasing(event::LockReleasing { holder }));
            self.told.written(keeping::INTENT).await;
        }
        let began = self.clock.now();
        let releasing = keeper.release();
        tokio::pin!(releasing);
        let released = loop {
            tokio::select! {
                biased;
                released = &mut releasing => break released,
                Some(change) = next(&mut self.changes) => {
                    if let Change::Waiting { act, why } = change {
                        keeping::Waiting { act, why }.tell(began, &mut self.told);
                    }
                }
                Some(Request { asked, .. }) = requests.recv() => {
                    let (signal, effect) = (asked.signal, SignalEffect::Nothing);
                    let received =
                        event::SignalReceived { signal, sender_pid: asked.pid, sender_uid: asked.uid, effect };
                    self.told.tell(None, Event::SignalReceived(received));
                }
            }
        };
        self.end.take_release(&released, &self.holder);
        let took = self.clock.now().since(began);
        keeping::tell_release(&released, &self.holder.to_string(), took, &mut self.told);
    }

    fn ending(&mut self, seen: &[Seen], judged: Vec<(String, Stopped)>) -> Ending {
        if !self.spec.keep_output {
            for path in seen.iter().flat_map(|seen| &seen.outputs) {
                // What the front passes on of them is open already.
                let _ = std::fs::remove_file(path);
            }
        }
        let known: BTreeSet<u32> = self.remains.programs.values().copied().collect();
        let alive = crate::run::alive(self.spec, known.iter().copied());
        let (secrets, untidied) = if alive.is_empty() {
            (Vec::new(), crate::run::tidy(self.spec))
        } else {
            (crate::run::untidied(self.spec), Vec::new())
        };
        for text in untidied {
            self.told.note(text);
        }
        let programs = std::mem::take(&mut self.remains.programs);
        // Without its record a program goes by another name, and by the same number.
        let was_seen = |program: &String, pid: u32| {
            judged.iter().any(|(known, _)| known == program) || seen.iter().any(|seen| seen.ended.pid == pid)
        };
        let unseen = programs.into_iter().filter(|(program, pid)| !was_seen(program, *pid));
        Ending {
            unseen: unseen.collect(),
            judged,
            given_up: seen.iter().any(|seen| seen.ended.exit == process::Exit::Unseen),
            alive,
            secrets,
            lock: self.end.lock,
            holder: self.end.holder.clone(),
            why: self.end.why.clone(),
            lost: self.lost.clone(),
            forced: matches!(self.stopper.now(), process::Stop::Force { .. }),
            owner: self.holder.to_string(),
            command_begun: self.remains.command_begun(),
        }
    }
}

/// Sees one tool to its end.
async fn see(
    orphan: Orphan,
    hearing: Hearing,
    limits: Limits,
    stop: StopWatch,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
) -> Seen {
    let (program, witness) = (orphan.name.clone(), hearing.witness.clone());
    let outputs = orphan.outputs().map(std::path::Path::to_owned).to_vec();
    let send = hearing.send.clone();
    let signs = Witness::signs(orphan.manner());
    let sink = Hears { hearing, redactor };
    let ended = process::see_out(orphan, (limits, signs), stop, &*clock, sink).await;
    let last = witness.borrow_mut().last_words();
    for word in last {
        send.send(word);
    }
    Seen { program, witness, ended, outputs }
}

/// What one tool says, on its way to the journal.
struct Hearing {
    witness: Rc<RefCell<Witness>>,
    told: Told,
    send: Updates,
}

struct Hears {
    hearing: Hearing,
    redactor: Redactor,
}

impl Sink for Hears {
    fn take(&mut self, update: Update) {
        let said = self.hearing.witness.borrow_mut().take(update);
        for update in said {
            if !self.hearing.told.has(&update) {
                self.hearing.send.send(update);
            }
        }
    }

    fn room(&self) -> Room {
        self.hearing.send.room()
    }

    fn cut(&self, line: &[u8], at: usize) -> usize {
        self.redactor.safe_cut(line, at)
    }
}

/// Waits for all of them, each at its own pace. Safe to drop at any point.
async fn all(work: &mut Work<'_>) {
    poll_fn(|context| {
        let mut waits = false;
        for (future, seen) in work.iter_mut().filter(|(_, seen)| seen.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ended) => *seen = Some(ended),
                Poll::Pending => waits = true,
            }
        }
        if waits { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

async fn next(changes: &mut Option<Changes>) -> Option<Change> {
    match changes {
        Some(changes) => changes.next().await,
        None => None,
    }
}
