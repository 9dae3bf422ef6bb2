//! Everything that is known about the lock, for `dcctl lock status`: as data, and as lines that a person reads.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::clock;
use crate::failure::{Code, Failure};
use crate::lock::holder::HolderId;
use crate::lock::message::plain;
use crate::lock::notes;
use crate::lock::observation::Observation;
use crate::lock::place::Place;
use crate::lock::record::Record;

/// The state of the lock, and every fact that one needs to check it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether anybody holds it.
    pub state: State,
    /// Who, if anybody does.
    pub holder: Option<Holder>,
    /// How the holder looks by this machine's clock. Evidence, not a verdict: the holder's clock wrote the time.
    pub looks: Option<Looks>,
    /// When it was claimed, by the holder's clock, RFC 3339.
    pub claimed_at: Option<String>,
    /// How long ago that was by this machine's clock, in milliseconds.
    pub claimed_ms_ago: Option<u64>,
    /// When it was last renewed, by the holder's clock, RFC 3339.
    pub renewed_at: Option<String>,
    /// How long ago that was by this machine's clock, in milliseconds.
    pub renewed_ms_ago: Option<u64>,
    /// How far the last renewal lies ahead of this machine's clock, in milliseconds: the two clocks disagree.
    pub renewed_ms_ahead: Option<u64>,
    /// How long it counts after a renewal, in seconds.
    pub valid_seconds: u64,
    /// How long it claims to count, in seconds, where that is more than is believed.
    pub valid_seconds_claimed: Option<u64>,
    /// How many times the lock has changed hands.
    pub epoch: i32,
    /// What the holder says about itself.
    pub work: Work,
    /// What the holder left behind for the case that it dies.
    pub last_will: LastWill,
    /// Since when the Lease is being deleted, RFC 3339, by the API server's clock.
    pub deleting_since: Option<String>,
    /// What keeps it from going away.
    pub finalizers: Vec<String>,
    /// Why a run of this account would be refused all the same, when nobody holds it.
    pub cannot_claim: Option<Failure>,
    /// What to do now.
    pub next: String,
}

/// Whether anybody holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody does.
    Free,
    /// Somebody does.
    Held,
    /// Nobody does, and nobody can: the Lease is being deleted, and finalizers keep it.
    BeingDeleted,
}

/// How a held lock looks by this machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Looks {
    /// Renewed within its validity.
    Live,
    /// Older than that.
    Stale,
}

/// A holder, as written and as read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The whole identity.
    pub identity: String,
    /// The user, if the identity has our form.
    pub user: Option<String>,
    /// The machine to look at.
    pub host: Option<String>,
    /// The process to look for there.
    pub pid: Option<u32>,
}

/// What a holder says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// The instance worked on.
    pub instance: Option<String>,
    /// The command.
    pub verb: Option<String>,
    /// The step that is being done.
    pub step: Option<String>,
    /// The run's id.
    pub run: Option<String>,
    /// When the run started.
    pub started: Option<String>,
    /// The CI system.
    pub ci: Option<String>,
    /// Where its log is.
    pub job_url: Option<String>,
    /// The job's attempt.
    pub job_attempt: Option<String>,
    /// The pod, `namespace/name`.
    pub pod: Option<String>,
    /// The pod's uid.
    pub pod_uid: Option<String>,
}

/// What a holder left behind for the case that it dies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LastWill {
    /// When a stop was requested.
    pub stop_requested: Option<String>,
    /// By which signal, or by what else.
    pub stop_signal: Option<String>,
    /// When the stop's budget ends.
    pub stop_deadline: Option<String>,
    /// Programs that were still running.
    pub children: Option<String>,
}

/// What is known about the lock. `None`: there is no Lease.
pub fn status(seen: Option<&Observation>, place: &Place, wall: Timestamp) -> Status {
    let record = seen.map(Observation::record);
    let said = |time: Option<Timestamp>| time.map(clock::rfc3339);
    let held = seen.filter(|seen| seen.holder().is_some());
    let state = match (held, record.and_then(Record::deleting_since)) {
        (Some(_), _) => State::Held,
        (None, Some(_)) => State::BeingDeleted,
        (None, None) => State::Free,
    };
    let mut status = Status {
        state,
        holder: held.and_then(Observation::holder).map(holder),
        looks: held.map(|seen| if seen.looks_stale(wall) { Looks::Stale } else { Looks::Live }),
        claimed_at: held.and_then(|seen| said(seen.record().acquired_at())),
        claimed_ms_ago: held.and_then(|seen| seen.record().acquired_at()).and_then(|at| ago(at, wall)).map(millis),
        renewed_at: held.and_then(|seen| said(seen.last_renewal())),
        renewed_ms_ago: held.and_then(|seen| seen.age(wall)).map(millis),
        renewed_ms_ahead: held.and_then(|seen| seen.ahead(wall)).map(millis),
        valid_seconds: record.map_or(0, |record| record.validity().as_secs()),
        valid_seconds_claimed: record.and_then(unbelievable).map(|claimed| claimed.as_secs()),
        epoch: record.map_or(0, Record::transitions),
        work: held.map(|seen| work(seen.record())).unwrap_or_default(),
        last_will: held.map(|seen| last_will(seen.record())).unwrap_or_default(),
        deleting_since: record.and_then(Record::deleting_since).map(plain),
        finalizers: record.map(Record::finalizers).unwrap_or_default().iter().map(|name| plain(name)).collect(),
        cannot_claim: None,
        next: String::new(),
    };
    status.next = status.next(place);
    status
}

/// The validity that a Lease claims, where it is longer than one that is believed.
fn unbelievable(record: &Record) -> Option<Duration> {
    record.written_validity().filter(|claimed| *claimed > record.validity())
}

fn holder(identity: &str) -> Holder {
    let parsed = HolderId::parse(identity);
    Holder {
        identity: plain(identity),
        user: parsed.as_ref().map(|id| plain(id.user())),
        host: parsed.as_ref().map(|id| plain(id.host())),
        pid: parsed.as_ref().map(HolderId::pid),
    }
}

fn work(record: &Record) -> Work {
    let note = |key| record.note(key).map(plain);
    let pod = note(notes::POD_NAME).map(|name| match note(notes::POD_NAMESPACE) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    });
    Work {
        instance: record.instance().map(plain),
        verb: note(notes::VERB),
        step: note(notes::STEP),
        run: note(notes::RUN),
        started: note(notes::STARTED),
        ci: note(notes::CI),
        job_url: note(notes::JOB_URL),
        job_attempt: note(notes::JOB_ATTEMPT),
        pod,
        pod_uid: note(notes::POD_UID),
    }
}

fn last_will(record: &Record) -> LastWill {
    let note = |key| record.note(key).map(plain);
    LastWill {
        stop_requested: note(notes::STOP_REQUESTED),
        stop_signal: note(notes::STOP_SIGNAL),
        stop_deadline: note(notes::STOP_DEADLINE),
        children: note(notes::CHILDREN),
    }
}

/// A failure in one line.
fn why_not(failure: &Failure) -> String {
    let said = [&failure.message].into_iter().chain(&failure.causes).map(|said| plain(said));
    said.collect::<Vec<_>>().join(": ")
}

fn ago(time: Timestamp, wall: Timestamp) -> Option<Duration> {
    Duration::try_from(wall.duration_since(time)).ok()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A moment, and how long ago it looks.
fn moment(at: &str, ms_ago: Option<u64>) -> String {
    let ago = ms_ago.map(|ms| format!(", {} ago by this machine's clock", clock::human(Duration::from_millis(ms))));
    format!("{at}{}", ago.unwrap_or_default())
}

impl Status {
    /// The same, for who was told why nobody here can claim it although nobody holds it.
    #[must_use]
    pub fn but(mut self, cannot_claim: Option<Failure>, place: &Place) -> Status {
        self.cannot_claim = cannot_claim.filter(|_| self.state == State::Free);
        self.next = self.next(place);
        self
    }

    fn next(&self, place: &Place) -> String {
        match (self.state, self.looks) {
            (State::Free, _) if self.cannot_claim.is_some() => {
                let hints = self.cannot_claim.iter().flat_map(|why| &why.hints);
                let hints: Vec<&str> = hints.map(String::as_str).collect();
                if hints.is_empty() { Code::LockDirUnusable.row().remedy.to_owned() } else { hints.join(" ") }
            }
            (State::Free, _) => "nothing: the next run can claim it".to_owned(),
            (State::BeingDeleted, _) => {
                "whoever put the finalizers on the Lease has to take them off; until then nobody can claim the lock"
                    .to_owned()
            }
            (State::Held, _) if self.deleting_since.is_some() => {
                format!(
                    "{}; the Lease is being deleted and goes away once its finalizers are taken off",
                    self.where_to_look()
                )
            }
            (State::Held, Some(Looks::Live) | None) => match &self.last_will.stop_deadline {
                // It may have ended by force a moment ago and left the lock: it looks live until its validity is over.
                Some(until) => format!(
                    "it was asked to stop: wait until {until}; if it holds the lock then, {}",
                    self.how_to_reclaim(place)
                ),
                None => "wait for it to finish".to_owned(),
            },
            (State::Held, Some(Looks::Stale)) => self.how_to_reclaim(place),
        }
    }

    fn how_to_reclaim(&self, place: &Place) -> String {
        format!("{}; only if it is gone: `{}`", self.where_to_look(), place.reclaim_command())
    }

    /// Where one finds out whether the holder lives.
    fn where_to_look(&self) -> String {
        let process = self.holder.as_ref().and_then(|holder| Some((holder.pid?, holder.host.as_deref()?)));
        let mut places = Vec::new();
        places.extend(self.work.job_url.as_ref().map(|url| format!("look at the job {url}")));
        places.extend(self.work.pod.as_ref().map(|pod| format!("look for the pod {pod}")));
        places.extend(process.map(|(pid, host)| format!("look for process {pid} on {host}")));
        if places.is_empty() { "ask the holder".to_owned() } else { places.join(", ") }
    }

    /// The failure code of a script that asks whether the lock can be claimed. None: it can.
    pub fn blocked(&self) -> Option<Code> {
        match (self.state, self.looks) {
            (State::Free, _) => self.cannot_claim.as_ref().map(|why| why.code),
            (State::BeingDeleted, _) | (State::Held, Some(Looks::Stale)) => Some(Code::LockHeldStale),
            (State::Held, Some(Looks::Live) | None) => Some(Code::LockHeld),
        }
    }

    /// Whether it says something else than before, apart from when the lock was renewed.
    pub fn differs_from(&self, before: &Status) -> bool {
        self.without_renewal() != before.without_renewal()
    }

    fn without_renewal(&self) -> Status {
        Status {
            claimed_ms_ago: None,
            renewed_at: None,
            renewed_ms_ago: None,
            renewed_ms_ahead: self.renewed_ms_ahead.map(|_| 0),
            ..self.clone()
        }
    }

    /// The same for people: one fact a line, without a newline at the end.
    pub fn text(&self, place: &Place) -> String {
        let head = match self.state {
            State::Free if self.cannot_claim.is_some() => "is free, but a run of this account could not claim it",
            State::Free => "is free",
            State::Held => "is held",
            State::BeingDeleted => "is free, but cannot be claimed: it is being deleted",
        };
        let mut text = format!("{} {head}", place.lock());
        for (name, value) in self.lines() {
            write!(text, "\n  {:<12}{value}", format!("{name}:")).expect("a String takes everything");
        }
        text
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let mut line = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
        if let Some(holder) = &self.holder {
            line("held by", Some(holder.identity.clone()));
            line("user", holder.user.clone());
            line("host", holder.host.clone());
            line("pid", holder.pid.map(|pid| pid.to_string()));
        }
        line("instance", self.work.instance.clone());
        line("command", self.work.verb.clone());
        line("step", self.work.step.clone());
        line("run", self.work.run.clone());
        line("started", self.work.started.clone());
        line("claimed", self.claimed_at.as_ref().map(|at| moment(at, self.claimed_ms_ago)));
        line("renewed", self.renewed_at.as_ref().map(|at| moment(at, self.renewed_ms_ago)));
        line("looks", self.looks_said());
        line("CI", self.ci_text());
        line("job", self.work.job_url.clone());
        line("pod", self.work.pod.clone());
        line("last will", self.last_will_said());
        line("deleting", self.deleting_since.as_ref().map(|at| format!("since {at}")));
        line("finalizers", (!self.finalizers.is_empty()).then(|| self.finalizers.join(", ")));
        line("because", self.cannot_claim.as_ref().map(why_not));
        line("next", Some(self.next.clone()));
        lines
    }

    /// How the holder looks, and why that is no verdict.
    pub(crate) fn looks_said(&self) -> Option<String> {
        let seconds = match self.valid_seconds_claimed {
            Some(claimed) => format!("{} s (it claims {claimed} s, which is not believed)", self.valid_seconds),
            None => format!("{} s", self.valid_seconds),
        };
        let evidence = "That is evidence, not a verdict: another machine's clock wrote the time.";
        Some(match (self.looks?, self.renewed_ms_ahead) {
            (Looks::Live, Some(ahead)) => format!(
                "live; but its renewal lies {} ahead of this machine's clock, so the two clocks disagree. {evidence}",
                clock::human(Duration::from_millis(ahead)),
            ),
            (Looks::Live, None) => format!("live: renewed within its {seconds} by this machine's clock. {evidence}"),
            (Looks::Stale, _) if self.renewed_at.is_none() => {
                "it does not say when it was renewed: nothing here tells whether it lives".to_owned()
            }
            (Looks::Stale, _) => {
                format!("stale: not renewed within its {seconds} by this machine's clock. {evidence}")
            }
        })
    }

    fn ci_text(&self) -> Option<String> {
        let ci = self.work.ci.as_ref()?;
        let attempt = self.work.job_attempt.as_ref().map(|attempt| format!(", attempt {attempt}"));
        Some(format!("{ci}{}", attempt.unwrap_or_default()))
    }

    /// What the holder left behind, in one sentence.
    pub(crate) fn last_will_said(&self) -> Option<String> {
        let will = &self.last_will;
        let mut said = Vec::new();
        if let Some(at) = &will.stop_requested {
            let by = will.stop_signal.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            said.push(format!("a stop was requested at {at}{by}"));
        }
        said.extend(will.stop_deadline.as_ref().map(|at| format!("it may take until {at}")));
        said.extend(will.children.as_ref().map(|children| format!("still running: {children}")));
        (!said.is_empty()).then(|| said.join("; "))
    }
}

#[cfg(test)]
mod tests;
