//! Journals that the tests of reports tell: each is what a real run of that kind says, read back from its lines.

use std::time::Duration;

use jiff::Timestamp;

use crate::event::envelope::Open;
use crate::event::{
    BundleFact, BusyManner, Counts, Diagnostic, Envelope, Event, Failed, Former, InFlight, Kept, LockBlocked,
    LockClaimed, LockEnd, LockObserved, LockReleased, LockRenewed, NoteMade, ObjectApplied, ObjectChange, ObjectReady,
    ObjectWaiting, PlannedStep, ProcessFinished, ProcessInterruptReported, ProcessInterrupted, ProcessLeftBehind,
    ProcessOutput, ProcessStarted, Relation, ReleaseManner, ResourceCompleted, ResourceCounts, ResourceFailed,
    ResourcePlanned, ResourceStarted, RunFinished, RunOutcome, RunPlanned, RunStarted, SCHEMA_ID, SCHEMA_VERSION, Seen,
    Severity, SignalEffect, SignalReceived, StepCounts, StepFinished, StepOutcome, StepProgressed, StepStarted,
    StopBudget, StopCause, StopManner, StopRequested, Stream, ToolChecked,
};
use crate::failure::Code;

pub(crate) const HOLDER: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
const OTHER: &str = "bob@laptop/9912/3a7f00c1d2e4b596";
const STEPS: [&str; 9] = [
    "Build images",
    "Claim the cluster",
    "Check the cluster",
    "Declare the instance",
    "Apply infrastructure",
    "Install chart",
    "Wait for readiness",
    "Verify",
    "Record the phase",
];

/// Whether the run acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Act,
    DryRun,
}

/// A journal being told.
pub(crate) struct Story {
    seen: Vec<Seen>,
    now: u64,
    step: Option<usize>,
    began: u64,
    done: u64,
}

impl Story {
    /// Begins with what every bootstrap of `demo` says first.
    pub(crate) fn bootstrap() -> Story {
        Story::begin("bootstrap", Some("demo"), &STEPS, Mode::Act)
    }

    pub(crate) fn begin(command: &str, instance: Option<&str>, steps: &[&str], mode: Mode) -> Story {
        let mut story = Story { seen: Vec::new(), now: 0, step: None, began: 0, done: 0 };
        story.say(RunStarted {
            schema: SCHEMA_ID.into(),
            schema_version: SCHEMA_VERSION.into(),
            dcctl: "0.1.0".into(),
            command: command.into(),
            instance: instance.map(str::to_owned),
            program: None,
            bundle: Some(BundleFact {
                name: "devicechain".into(),
                version: "0.9.2".into(),
                path: "demo".into(),
                digest: None,
            }),
            kube_context: Some("demo-cluster".into()),
            server: Some("https://127.0.0.1:6443".into()),
            lock_dir: None,
            holder: Some(HOLDER.into()),
            ci: None,
            run_dir: Some("/home/alice/.local/state/dcctl/runs/01je2x4q7cv8t0r9".into()),
            stop_budget: Some(StopBudget {
                seconds: 1200,
                source: "--stop-after".into(),
                graceful_seconds: None,
                ends: None,
                note: None,
            }),
            dry_run: mode == Mode::DryRun,
        });
        let step = |title: &&str| PlannedStep { id: id(title), title: (*title).into() };
        story.say(RunPlanned { steps: steps.iter().map(step).collect() });
        story
    }

    pub(crate) fn say(&mut self, event: impl Into<Event>) {
        let time = Timestamp::from_second(1_796_000_000).expect("a time") + Duration::from_millis(self.now);
        let step = self.step.map(|index| id(STEPS[index]));
        let event = event.into();
        let elapsed = Duration::from_millis(self.now);
        let seq = self.seen.len() as u64;
        let line = Envelope::new(seq, time, elapsed, "01je2x4q7cv8t0r9", step.as_deref(), &event).render(&Open);
        self.seen.push(Seen::read(&line).expect("a line"));
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.now += ms;
    }

    pub(crate) fn start(&mut self, index: usize) {
        self.step = Some(index);
        self.began = self.now;
        let title = STEPS[index];
        self.say(StepStarted { id: id(title), title: title.into(), index: index as u64 + 1, total: 9 });
    }

    pub(crate) fn end(&mut self, outcome: StepOutcome, note: &str, failure: Option<Failed>) {
        let index = self.step.take().expect("a step is at work");
        let title = STEPS[index];
        self.step = Some(index);
        self.say(StepFinished {
            id: id(title),
            title: title.into(),
            index: index as u64 + 1,
            total: 9,
            outcome,
            note: note.into(),
            failure,
            unfinished: Vec::new(),
            duration_ms: self.now - self.began,
        });
        self.step = None;
        self.done += u64::from(matches!(outcome, StepOutcome::Done | StepOutcome::Nothing));
    }

    /// A whole step that takes this long and ends well.
    pub(crate) fn pass(&mut self, index: usize, ms: u64, note: &str) {
        self.start(index);
        self.later(ms);
        self.end(StepOutcome::Done, note, None);
    }

    pub(crate) fn finish(mut self, change: impl FnOnce(&mut RunFinished)) -> Vec<Seen> {
        let mut finished = RunFinished {
            subject: "bootstrap demo".into(),
            outcome: RunOutcome::Succeeded,
            exit_code: 0,
            failure: None,
            command_end: None,
            lock: LockEnd::Released,
            holder: None,
            counts: Counts { steps: StepCounts { done: self.done, ..StepCounts::default() }, ..Counts::default() },
            unfinished: Vec::new(),
            survived: Vec::new(),
            kept: Vec::new(),
            next: Vec::new(),
            dry_run: false,
            duration_ms: self.now,
        };
        change(&mut finished);
        self.say(finished);
        self.seen
    }

    /// The journal as it is when the run is cut off here.
    pub(crate) fn cut_off(self) -> Vec<Seen> {
        self.seen
    }

    fn reach_the_infrastructure(&mut self) {
        self.say(ToolChecked { tool: "OpenTofu".into(), version: "1.11.4".into(), path: "/usr/bin/tofu".into() });
        self.say(ToolChecked { tool: "Helm".into(), version: "4.0.1".into(), path: "/usr/bin/helm".into() });
        self.start(0);
        self.end(StepOutcome::Nothing, "nothing to build without --build", None);
        self.start(1);
        self.later(34);
        self.say(LockClaimed {
            holder: HOLDER.into(),
            lease: "dc-k8s-system/dcctl".into(),
            uid: "7d9e6c0a".into(),
            waited_ms: 31,
        });
        self.end(StepOutcome::Done, "the lock is taken", None);
        self.pass(2, 210, "2 other instances, no conflict");
        self.start(3);
        self.later(90);
        self.say(object("Namespace", None, "dci-demo", ObjectChange::Created));
        self.say(object("Instance", None, "demo", ObjectChange::Created));
        self.end(StepOutcome::Done, "", None);
        self.start(4);
        self.later(800);
        self.say(ProcessStarted { program: "tofu apply".into(), pid: 48_301 });
        for address in ADDRESSES {
            self.say(ResourcePlanned { address: address.into(), action: "create".into() });
        }
    }

    fn renew(&mut self) {
        self.say(LockRenewed { took_ms: 4, gap_ms: None });
    }

    fn release(&mut self) {
        self.later(8);
        self.say(LockReleased { manner: ReleaseManner::Deleted, why: None, took_ms: 7 });
    }

    fn created(&mut self, address: &str, ms: u64) {
        self.say(ResourceCompleted { address: address.into(), action: "create".into(), elapsed_ms: ms });
    }

    fn tofu_ended(&mut self, code: i32, ms: u64) {
        let program = "tofu apply".into();
        self.say(ProcessFinished { program, pid: Some(48_301), exit_code: Some(code), signal: None, duration_ms: ms });
    }
}

const ADDRESSES: [&str; 4] = [
    "module.broker.demo_object.primary",
    "module.broker.demo_object.replica[\"eu-west\"]",
    "demo_object.database",
    "time_sleep.settle",
];

fn id(title: &str) -> String {
    title.to_lowercase().replace(' ', "-")
}

fn object(kind: &str, namespace: Option<&str>, name: &str, action: ObjectChange) -> ObjectApplied {
    ObjectApplied {
        kind: kind.into(),
        namespace: namespace.map(str::to_owned),
        name: name.into(),
        action,
        dry_run: false,
        taken_over: Vec::new(),
    }
}

pub(crate) fn failed(code: Code, message: &str) -> Failed {
    Failed {
        code: code.name().into(),
        message: message.into(),
        causes: Vec::new(),
        hints: vec![code.row().remedy.into()],
    }
}

/// The file that this journal is read from.
pub(crate) fn lines(journal: &[Seen]) -> String {
    let line = |seen: &Seen| {
        let event = seen.event.as_ref().expect("stories tell of known events");
        Envelope::new(seen.seq, seen.time, seen.elapsed, &seen.run, seen.step.as_deref(), event).render(&Open)
    };
    journal.iter().map(line).collect()
}

/// Everything goes well.
pub(crate) fn success() -> Vec<Seen> {
    let mut story = Story::bootstrap();
    story.reach_the_infrastructure();
    for address in ADDRESSES {
        story.say(ResourceStarted { address: address.into(), action: "create".into() });
    }
    story.later(4_100);
    story.created(ADDRESSES[0], 4_000);
    story.created(ADDRESSES[3], 4_000);
    story.later(4_500);
    story.renew();
    story.later(6_400);
    story.say(StepProgressed {
        in_flight: vec![
            InFlight { what: format!("creating {}", ADDRESSES[1]), for_ms: 15_000 },
            InFlight { what: format!("creating {}", ADDRESSES[2]), for_ms: 15_000 },
        ],
        duration_ms: 15_800,
    });
    story.later(2_000);
    story.created(ADDRESSES[1], 17_000);
    story.created(ADDRESSES[2], 17_000);
    story.tofu_ended(0, 17_900);
    story.end(StepOutcome::Done, "", None);
    story.start(5);
    story.later(3_200);
    let text = "Release \"dc-demo\" has been upgraded. Happy Helming!".to_owned();
    story.say(ProcessOutput {
        program: "helm upgrade".into(),
        stream: Stream::Stdout,
        text,
        lossy: false,
        more: false,
    });
    story.say(Diagnostic {
        severity: Severity::Warning,
        code: None,
        origin: "Helm".into(),
        summary: "the chart is deprecated".into(),
        detail: String::new(),
        address: None,
        source: None,
    });
    story.end(StepOutcome::Done, "release dc-demo, revision 1", None);
    story.start(6);
    let (kind, namespace, name) = ("Deployment".to_owned(), Some("dci-demo".to_owned()), "api".to_owned());
    let why = "0 of 2 replicas are available".to_owned();
    story.say(ObjectWaiting { kind: kind.clone(), namespace: namespace.clone(), name: name.clone(), why });
    story.later(2_400);
    story.say(ObjectReady { kind, namespace, name });
    story.end(StepOutcome::Done, "", None);
    story.pass(7, 1_300, "1 command passed: API answers");
    story.pass(8, 60, "phase Ready");
    story.release();
    story.finish(|finished| {
        finished.counts.resources.created = 4;
        finished.counts.warnings = 1;
    })
}

/// A resource fails while another is being created.
pub(crate) fn failing_apply() -> Vec<Seen> {
    let mut story = Story::bootstrap();
    story.reach_the_infrastructure();
    for address in &ADDRESSES[..3] {
        story.say(ResourceStarted { address: (*address).into(), action: "create".into() });
    }
    story.later(2_000);
    story.created(ADDRESSES[0], 2_000);
    story.say(ResourceFailed { address: ADDRESSES[2].into(), action: "create".into(), elapsed_ms: 2_000 });
    story.later(1_000);
    story.created(ADDRESSES[1], 3_000);
    story.say(Diagnostic {
        severity: Severity::Error,
        code: None,
        origin: "OpenTofu".into(),
        summary: "The quota of this project is exceeded".into(),
        detail: "The server allows 3 objects and has 3. Ask for a larger quota, or remove an object that nobody \
                 needs.\n::error::this line must not become a command\n##[error]nor this"
            .into(),
        address: Some(ADDRESSES[2].into()),
        source: Some("infra/instance/main.tf line 12, in resource \"demo_object\" \"database\"".into()),
    });
    story.tofu_ended(1, 3_900);
    let failure = failed(Code::InfrastructureFailed, "OpenTofu could not apply infra/instance");
    story.end(StepOutcome::Failed, "", Some(failure.clone()));
    story.say(NoteMade { text: "the phase of instance demo is Failed".into() });
    story.release();
    story.finish(|finished| {
        finished.outcome = RunOutcome::Failed;
        finished.exit_code = 1;
        finished.failure = Some(failure);
        finished.counts.steps = StepCounts { done: 4, failed: 1, skipped: 4, ..StepCounts::default() };
        finished.counts.resources = ResourceCounts { created: 2, failed: 1, ..ResourceCounts::default() };
        finished.next = vec![Code::InfrastructureFailed.row().remedy.into()];
    })
}

/// The bundle is wrong, so nothing was planned.
pub(crate) fn refused() -> Vec<Seen> {
    let mut story = Story { seen: Vec::new(), now: 0, step: None, began: 0, done: 0 };
    story.say(RunStarted {
        schema: SCHEMA_ID.into(),
        schema_version: SCHEMA_VERSION.into(),
        dcctl: "0.1.0".into(),
        command: "bootstrap".into(),
        instance: Some("demo".into()),
        program: None,
        bundle: None,
        kube_context: Some("demo-cluster".into()),
        server: None,
        lock_dir: None,
        holder: None,
        ci: None,
        run_dir: None,
        stop_budget: None,
        dry_run: false,
    });
    story.later(3);
    let message = "demo/bundle.yaml line 12: instance.chart has no field \"relase\"";
    let failure = Failed { hints: vec!["did you mean \"release\"?".into()], ..failed(Code::BundleInvalid, message) };
    story.say(Diagnostic {
        severity: Severity::Error,
        code: Some(failure.code.clone()),
        origin: "dcctl".into(),
        summary: message.into(),
        detail: String::new(),
        address: None,
        source: None,
    });
    story.finish(|finished| {
        finished.outcome = RunOutcome::Refused;
        finished.exit_code = 3;
        finished.failure = Some(failure);
        finished.lock = LockEnd::NeverTaken;
    })
}

/// How another run's lock looks by this machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    Renews,
    LooksStale,
}

/// Another run holds the lock.
pub(crate) fn blocked(holder: Holder) -> Vec<Seen> {
    let stale = holder == Holder::LooksStale;
    let mut story = Story::bootstrap();
    story.start(0);
    story.end(StepOutcome::Nothing, "nothing to build without --build", None);
    story.start(1);
    story.later(18);
    let text = if stale {
        format!(
            "this cluster (working on instance \"prod\") is claimed by {OTHER}, which last renewed 6m12s ago — by this \
             machine's clock that looks stale, but a clock that disagrees looks the same. If that process is genuinely \
             gone, take the claim with `dcctl instances reclaim --kube-context demo-cluster`, which checks properly \
             before it steals"
        )
    } else {
        format!(
            "this cluster (working on instance \"prod\") is being worked on by {OTHER}, which renewed 4s ago; wait for \
             it to finish rather than running a second apply against the same cluster"
        )
    };
    story.say(LockBlocked {
        holder: OTHER.into(),
        instance: Some("prod".into()),
        age_ms: Some(if stale { 372_000 } else { 4_000 }),
        stale,
        text: text.clone(),
        job_url: Some("https://ci.example.com/job/7".into()),
        manner: BusyManner::Refuses,
        waited_ms: None,
    });
    let code = if stale { Code::LockHeldStale } else { Code::LockHeld };
    let failure = failed(code, &text);
    story.end(StepOutcome::Failed, "", Some(failure.clone()));
    story.finish(|finished| {
        finished.outcome = RunOutcome::Blocked;
        finished.exit_code = code.exit();
        finished.failure = Some(failure);
        finished.lock = LockEnd::NeverTaken;
        finished.holder = Some(OTHER.into());
        finished.counts.steps = StepCounts { done: 1, failed: 1, skipped: 7, ..StepCounts::default() };
        finished.next = vec![code.row().remedy.into()];
    })
}

fn interrupted(story: &mut Story) {
    for address in &ADDRESSES[..2] {
        story.say(ResourceStarted { address: (*address).into(), action: "create".into() });
    }
    story.later(3_000);
    story.created(ADDRESSES[0], 3_000);
    story.say(SignalReceived {
        signal: "SIGTERM".into(),
        sender_pid: Some(812),
        sender_uid: Some(1000),
        effect: SignalEffect::Stop,
    });
    story.say(StopRequested {
        cause: StopCause::Signal,
        signals: vec!["SIGTERM".into()],
        sender_pid: Some(812),
        sender_uid: Some(1000),
        manner: StopManner::Graceful,
        budget_ms: 1_200_000,
        deadline: Some("2026-11-30T01:13:24Z".into()),
    });
    story.later(250);
    let why = "a stop was requested".into();
    story.say(ProcessInterrupted { program: "tofu apply".into(), pid: 48_301, signal: "SIGINT".into(), why });
    story.say(ProcessInterruptReported { program: "tofu apply".into(), times: 1, sent: 1 });
    story.later(5_500);
    story.renew();
    story.later(9_500);
    story.say(StepProgressed {
        in_flight: vec![InFlight { what: format!("creating {}", ADDRESSES[1]), for_ms: 18_250 }],
        duration_ms: 19_050,
    });
}

/// Asked to stop in mid-apply; everything in flight is finished.
pub(crate) fn stopped() -> Vec<Seen> {
    let mut story = Story::bootstrap();
    story.reach_the_infrastructure();
    interrupted(&mut story);
    story.later(1_750);
    story.created(ADDRESSES[1], 20_000);
    story.tofu_ended(1, 20_900);
    story.end(StepOutcome::Stopped, "OpenTofu finished what was in flight and wrote its state", None);
    story.release();
    story.finish(|finished| {
        finished.outcome = RunOutcome::Stopped;
        finished.exit_code = 10;
        finished.failure = Some(failed(Code::StoppedClean, "asked to stop by SIGTERM during \"Apply infrastructure\""));
        finished.counts.steps = StepCounts { done: 4, failed: 1, skipped: 4, ..StepCounts::default() };
        finished.counts.resources.created = 2;
        finished.next = vec![Code::StoppedClean.row().remedy.into()];
    })
}

/// Asked to stop in mid-apply; the tool dies with a resource in flight and leaves a process behind.
pub(crate) fn partial() -> Vec<Seen> {
    let mut story = Story::bootstrap();
    story.reach_the_infrastructure();
    interrupted(&mut story);
    story.later(4_000);
    story.tofu_ended(1, 23_000);
    story.say(ProcessLeftBehind {
        program: "tofu apply".into(),
        pid: 48_340,
        name: "terraform-provi".into(),
        age_ms: 22_000,
        relations: vec![Relation::Orphan, Relation::Group],
    });
    story.end(StepOutcome::Stopped, "OpenTofu ended, but nobody saw the end of 1 resource", None);
    story.release();
    story.finish(|finished| {
        finished.outcome = RunOutcome::Stopped;
        finished.exit_code = 11;
        finished.failure = Some(failed(
            Code::StoppedPartial,
            "asked to stop by SIGTERM during \"Apply infrastructure\"; the infrastructure is PARTIALLY APPLIED",
        ));
        finished.counts.steps = StepCounts { done: 4, failed: 1, skipped: 4, ..StepCounts::default() };
        finished.counts.resources.created = 1;
        finished.unfinished = vec![ADDRESSES[1].into()];
        finished.kept = vec![Kept {
            what: "the state that OpenTofu could not save".into(),
            path: "/home/alice/.devicechain/instances/demo/errored.tfstate".into(),
        }];
        finished.next = vec![
            "Push the state that OpenTofu could not save, then remove the file.".into(),
            Code::StoppedPartial.row().remedy.into(),
        ];
    })
}

/// Nothing is written.
pub(crate) fn dry_run() -> Vec<Seen> {
    let mut story = Story::begin("bootstrap", Some("demo"), &STEPS, Mode::DryRun);
    story.start(0);
    story.end(StepOutcome::Nothing, "nothing to build without --build", None);
    story.start(1);
    story.later(20);
    story.say(LockObserved { holder: None, instance: None, age_ms: None, stale: false, text: None });
    story.end(StepOutcome::Done, "a dry run takes no lock", None);
    story.start(3);
    story.later(60);
    for (kind, name) in [("Namespace", "dci-demo"), ("Instance", "demo")] {
        story.say(ObjectApplied { dry_run: true, ..object(kind, None, name, ObjectChange::Created) });
    }
    story.say(ObjectApplied {
        dry_run: true,
        taken_over: vec![Former { manager: "kubectl".into(), fields: vec![".spec.replicas".into()] }],
        ..object("Deployment", Some("dc-k8s-system"), "manager", ObjectChange::Configured)
    });
    story.end(StepOutcome::Done, "", None);
    story.start(4);
    story.later(1_500);
    for address in ADDRESSES {
        story.say(ResourcePlanned { address: address.into(), action: "create".into() });
    }
    story.end(StepOutcome::Done, "", None);
    story.finish(|finished| {
        finished.dry_run = true;
        finished.lock = LockEnd::NeverTaken;
    })
}
