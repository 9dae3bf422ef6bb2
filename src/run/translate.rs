//! What the islands say in their own words becomes events here: exhaustive, and decides nothing.

use std::time::Duration;

use crate::event::{self, Event};
use crate::pipeline::{Action, Plan};
use crate::process;
use crate::run::granted;
use crate::run::spec::{Mode, Purpose, Spec};
use crate::step::{ObjectChange, ObjectName, Outcome, ResourceState, Severity, Update};

/// A duration as events carry it.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What a step said.
pub(crate) fn update(update: Update, mode: Mode) -> Event {
    match update {
        Update::Process { program, update } => of_process(program, update),
        Update::Object { object, change, taken_over } => Event::ObjectApplied(event::ObjectApplied {
            kind: object.kind,
            namespace: object.namespace,
            name: object.name,
            action: of_change(change),
            dry_run: mode == Mode::DryRun,
            taken_over: taken_over
                .into_iter()
                .map(|former| event::Former { manager: former.manager, fields: former.fields })
                .collect(),
        }),
        Update::Resource { address, action, state, elapsed } => of_resource(address, action, state, elapsed),
        Update::Diagnostic { severity, origin, summary, detail, address, source } => {
            let severity = match severity {
                Severity::Warning => event::Severity::Warning,
                Severity::Error => event::Severity::Error,
            };
            Event::Diagnostic(event::Diagnostic { severity, code: None, origin, summary, detail, address, source })
        }
        Update::Note(text) => Event::NoteMade(event::NoteMade { text }),
        Update::Waiting { object: ObjectName { kind, namespace, name }, why } => {
            Event::ObjectWaiting(event::ObjectWaiting { kind, namespace, name, why })
        }
        Update::Ready { object: ObjectName { kind, namespace, name } } => {
            Event::ObjectReady(event::ObjectReady { kind, namespace, name })
        }
    }
}

fn of_process(program: String, update: process::Update) -> Event {
    match update {
        process::Update::Started { pid } => Event::ProcessStarted(event::ProcessStarted { program, pid }),
        process::Update::Line { stream, text, lossy, more } => {
            let stream = match stream {
                process::Stream::Stdout => event::Stream::Stdout,
                process::Stream::Stderr => event::Stream::Stderr,
            };
            Event::ProcessOutput(event::ProcessOutput { program, stream, text, lossy, more })
        }
        process::Update::Interrupted { pid, signal, why } => Event::ProcessInterrupted(event::ProcessInterrupted {
            program,
            pid,
            signal: signal.name().to_owned(),
            why: why.to_string(),
        }),
        process::Update::InterruptReported { times, sent } => {
            Event::ProcessInterruptReported(event::ProcessInterruptReported { program, times, sent })
        }
        process::Update::Killed { pid, why } => {
            Event::ProcessKilled(event::ProcessKilled { program, pid, why: why.to_string() })
        }
        process::Update::LeftBehind { pid, name, age, ties } => {
            let relations = ties.into_iter().map(of_tie).collect();
            Event::ProcessLeftBehind(event::ProcessLeftBehind { program, pid, name, age_ms: millis(age), relations })
        }
        process::Update::Survived(left) => Event::ProcessSurvived(event::ProcessSurvived {
            program,
            pid: left.pid,
            name: left.name,
            age_ms: millis(left.age),
            relations: left.ties.into_iter().map(of_tie).collect(),
            state: left.state.to_string(),
        }),
        process::Update::NoRoom { kept } => Event::NoteMade(event::NoteMade {
            text: format!(
                "the disk has no room for what {program} prints: {kept} bytes of that were kept, and what it prints from now \
                 on is lost"
            ),
        }),
        process::Update::RoomAgain { after } => Event::NoteMade(event::NoteMade {
            text: format!(
                "the disk has room again for what {program} prints, after {:.1} s in which it was lost",
                after.as_secs_f64()
            ),
        }),
        process::Update::Unnamed(crowd) => Event::NoteMade(event::NoteMade { text: not_named(&program, crowd) }),
        process::Update::Unread { stream, why } => {
            Event::NoteMade(event::NoteMade { text: not_read(&program, stream, why) })
        }
        process::Update::Finished { exit, took } => {
            let (exit_code, signal) = match exit {
                process::Exit::Code(code) => (Some(code), None),
                process::Exit::Signal(signal) => (None, Some(signal)),
                process::Exit::Unseen | process::Exit::Unknown => (None, None),
            };
            let duration_ms = millis(took);
            Event::ProcessFinished(event::ProcessFinished { program, pid: None, exit_code, signal, duration_ms })
        }
    }
}

fn of_tie(tie: process::Tie) -> event::Relation {
    match tie {
        process::Tie::Itself => event::Relation::Itself,
        process::Tie::Child => event::Relation::Child,
        process::Tie::Descendant => event::Relation::Descendant,
        process::Tie::Orphan => event::Relation::Orphan,
        process::Tie::Group => event::Relation::Group,
        process::Tie::Mark => event::Relation::Mark,
        process::Tie::Output => event::Relation::Output,
        process::Tie::Pipe => event::Relation::Pipe,
    }
}

fn not_named(program: &str, crowd: process::Crowd) -> String {
    match crowd {
        process::Crowd::Counted(more) => {
            format!("{program} left {more} more processes behind, which came and went too fast to be named")
        }
        process::Crowd::Unseen => format!(
            "{program} left more processes behind than could be looked at: SIGKILL was sent to their whole process group, and \
             not all of them are named"
        ),
    }
}

fn not_read(program: &str, stream: process::Stream, why: process::Unread) -> String {
    let output = match stream {
        process::Stream::Stdout => "standard output",
        process::Stream::Stderr => "standard error",
    };
    match why {
        process::Unread::Emptied => format!(
            "the {output} of {program} was emptied by something that opened it for writing anew, as `> /dev/stdout` and \
             `> /dev/stderr` do: what was printed before may be missing (`>&1`, `>&2` and `>>` lose nothing)"
        ),
        process::Unread::GivenUp(bytes) => {
            format!("{bytes} bytes of the {output} of {program} were not read: the stop could not wait for them")
        }
    }
}

fn of_change(change: ObjectChange) -> event::ObjectChange {
    match change {
        ObjectChange::Created => event::ObjectChange::Created,
        ObjectChange::Configured => event::ObjectChange::Configured,
        ObjectChange::Unchanged => event::ObjectChange::Unchanged,
        ObjectChange::Deleted => event::ObjectChange::Deleted,
    }
}

fn of_resource(address: String, action: String, state: ResourceState, elapsed: Option<Duration>) -> Event {
    let elapsed_ms = elapsed.map_or(0, millis);
    match state {
        ResourceState::Planned => Event::ResourcePlanned(event::ResourcePlanned { address, action }),
        ResourceState::Started => Event::ResourceStarted(event::ResourceStarted { address, action }),
        ResourceState::Progressed => {
            Event::ResourceProgressed(event::ResourceProgressed { address, action, elapsed_ms })
        }
        ResourceState::Completed => Event::ResourceCompleted(event::ResourceCompleted { address, action, elapsed_ms }),
        ResourceState::Failed => Event::ResourceFailed(event::ResourceFailed { address, action, elapsed_ms }),
    }
}

/// A step's place in its plan, with what events say of it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The stable id.
    pub id: String,
    /// The title.
    pub title: String,
    /// From 0.
    pub index: usize,
    /// How many steps there are.
    pub total: usize,
}

impl Place {
    /// Where this step of the plan stands.
    pub(crate) fn of(plan: &Plan, index: usize) -> Place {
        let action = plan.actions[index];
        Place { id: action.id(), title: action.title().to_owned(), index, total: plan.actions.len() }
    }

    /// `step.started`.
    pub(crate) fn started(&self) -> Event {
        Event::StepStarted(event::StepStarted {
            id: self.id.clone(),
            title: self.title.clone(),
            index: self.index as u64 + 1,
            total: self.total as u64,
        })
    }

    /// `step.finished`.
    pub(crate) fn finished(&self, outcome: &Outcome, took: Duration) -> Event {
        let (word, note, failure, unfinished) = match outcome {
            Outcome::Done(note) => (event::StepOutcome::Done, note.clone(), None, Vec::new()),
            Outcome::Nothing(why) => (event::StepOutcome::Nothing, why.clone(), None, Vec::new()),
            Outcome::Stopped(stopped) => {
                (event::StepOutcome::Stopped, stopped.note.clone(), None, stopped.unfinished.clone())
            }
            Outcome::Failed(failure) => {
                (event::StepOutcome::Failed, String::new(), Some(event::Failed::from(failure)), Vec::new())
            }
        };
        Event::StepFinished(event::StepFinished {
            id: self.id.clone(),
            title: self.title.clone(),
            index: self.index as u64 + 1,
            total: self.total as u64,
            outcome: word,
            note,
            failure,
            unfinished,
            duration_ms: millis(took),
        })
    }
}

/// The first two events of a run that was handed over whole.
pub fn opening(spec: &Spec, holder: &str) -> [Event; 2] {
    [run_started(spec, holder), run_planned(&spec.plan)]
}

/// `run.started`.
fn run_started(spec: &Spec, holder: &str) -> Event {
    let (program, bundle) = match &spec.purpose {
        Purpose::Command(command) => (Some(command.name()), None),
        Purpose::Bundle(with) => {
            let (name, version) = (with.bundle.name.clone(), with.bundle.version.clone());
            let (path, digest) = (with.bundle_path.clone(), with.digest.clone());
            (None, Some(event::BundleFact { name, version, path, digest }))
        }
    };
    Event::RunStarted(event::RunStarted {
        schema: event::SCHEMA_ID.to_owned(),
        schema_version: event::SCHEMA_VERSION.to_owned(),
        dcctl: env!("CARGO_PKG_VERSION").to_owned(),
        command: spec.plan.verb.word().to_owned(),
        instance: spec.instance().map(str::to_owned),
        program,
        bundle,
        kube_context: spec.cluster().map(|cluster| cluster.kube_context.clone()),
        server: spec.cluster().map(|cluster| cluster.server.clone()),
        lock_dir: spec.lock_dir().map(|folder| folder.display().to_string()),
        holder: (spec.mode == Mode::Act).then(|| holder.to_owned()),
        ci: spec
            .job
            .system
            .map(|system| event::CiFact { system: system.title().to_owned(), job_url: spec.job.url.clone() }),
        run_dir: Some(spec.run_dir.display().to_string()),
        stop_budget: Some(granted::stop_budget(spec)),
        dry_run: spec.mode == Mode::DryRun,
    })
}

/// `run.planned`.
fn run_planned(plan: &Plan) -> Event {
    let steps = plan
        .actions
        .iter()
        .map(|action: &Action| event::PlannedStep { id: action.id(), title: action.title().to_owned() });
    Event::RunPlanned(event::RunPlanned { steps: steps.collect() })
}
