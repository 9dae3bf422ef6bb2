//! `dcctl install` and `dcctl bootstrap`: gathers everything about a run, then hands it to the front.
//!
//! Whatever is wrong here is a refusal: it is told like a run that ended at once, and nothing was started.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::{self, ApplyOptions, BootstrapArgs, InstallArgs};
use crate::clock::Instant;
use crate::cluster::{Kubeconfig, Proxies, Sources, kubeconfig};
use crate::commands::{Desk, complain, runtime, terminal};
use crate::config::{Bundle, Given, Inputs, Job};
use crate::failure::{Code, Failure};
use crate::front::{self, Broken, Refusal, Surroundings};
use crate::pipeline::{Plan, Verb};
use crate::redact::Redactor;
use crate::run::{self, Mode, OnBusy, Spec, Wait};
use crate::signal::Signals;

pub(crate) mod files;

/// `dcctl install`.
pub(crate) fn install(desk: &Desk, args: InstallArgs) -> u8 {
    apply(desk, Asked { verb: Verb::Install, instance: None, build: false, options: args.apply })
}

/// `dcctl bootstrap INSTANCE`.
pub(crate) fn bootstrap(desk: &Desk, args: BootstrapArgs) -> u8 {
    let BootstrapArgs { instance, build, apply: options } = args;
    apply(desk, Asked { verb: Verb::Bootstrap, instance: Some(instance), build, options })
}

/// What was asked for.
struct Asked {
    verb: Verb,
    instance: Option<String>,
    build: bool,
    options: ApplyOptions,
}

impl Asked {
    fn mode(&self) -> Mode {
        if self.options.dry_run { Mode::DryRun } else { Mode::Act }
    }
}

/// A new run's id: 16 hexadecimal digits from the system's source of randomness.
pub(crate) fn new_run_id() -> String {
    let number = getrandom::u64().expect("the system has a source of randomness");
    format!("{number:016x}")
}

fn apply(desk: &Desk, asked: Asked) -> u8 {
    let attempt = Attempt { desk: desk.clone(), asked: Arc::new(asked), run: new_run_id(), began: desk.clock.now() };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(failure) => return attempt.refused(failure),
    };
    let code = runtime.block_on(async {
        let made = run::caught(attempt.clone().make()).await;
        made.unwrap_or_else(|why| attempt.refused(Failure::new(Code::Internal, format!("dcctl itself broke: {why}"))))
    });
    runtime.shutdown_background();
    code
}

/// A command that may become a run.
#[derive(Clone)]
struct Attempt {
    desk: Desk,
    asked: Arc<Asked>,
    run: String,
    began: Instant,
}

impl Attempt {
    async fn make(self) -> u8 {
        // Armed before anything else: from here on a signal is a request to stop and never an end.
        let mut signals = match crate::signal::install() {
            Ok(signals) => signals,
            Err(error) => {
                let (code, sentence) = (Code::Internal, "the signal handlers could not be installed");
                return self.refused(Failure::new(code.unless_exhausted(&error), sentence).because(&error));
            }
        };
        let Desk { environment, clock } = &self.desk;
        let given = self.asked.options.report.run_dir.as_deref();
        let mut folder = match files::RunFolder::make(given, environment, clock.wall(), &self.run) {
            Ok(folder) => folder,
            Err(failure) => return self.refused(failure),
        };
        let spec = match self.gather(&mut signals, folder.path()).await {
            Ok(spec) => spec,
            Err(failure) => return self.refused(failure),
        };
        folder.keep();
        match start(&self.desk, spec, signals, self.showing()).await {
            Ok(code) => code,
            Err(Broken::NotStarted(failure)) => {
                folder.give_up();
                self.refused(failure)
            }
            Err(Broken::NoVerdict(failure)) => {
                complain(&failure);
                failure.code.exit()
            }
        }
    }

    /// Files are read on a thread of their own: one of them may be a pipe that nobody writes, or lie on a drive that
    /// hangs, and a request to stop is heeded all the same.
    async fn gather(&self, signals: &mut Signals, run_dir: &Path) -> Result<Spec, Failure> {
        let (attempt, run_dir) = (self.clone(), run_dir.to_path_buf());
        let reading = tokio::task::spawn_blocking(move || {
            gather(&attempt.desk, &attempt.asked, &attempt.run, attempt.began, run_dir)
        });
        tokio::select! {
            biased;
            _ = signals.next() => Err(Failure::new(Code::StoppedClean, "stopped on request before the run began")),
            read = reading => read.unwrap_or_else(|error| {
                Err(Failure::new(Code::Internal, "reading the bundle broke off").because(&error))
            }),
        }
    }

    fn showing(&self) -> front::Showing {
        let report = &self.asked.options.report;
        terminal::showing(&self.desk, report.output, report.color)
    }

    fn refused(&self, failure: Failure) -> u8 {
        let asked = &self.asked;
        let report = &asked.options.report;
        let refusal = Refusal {
            failure,
            run: self.run.clone(),
            began: self.began,
            command: asked.verb.word().to_owned(),
            instance: asked.instance.clone(),
            kube_context: asked.options.target.kube_context.clone(),
            mode: asked.mode(),
            events_file: reportable("--events-file", report.events_file.as_deref()),
            junit: reportable("--junit", report.junit.as_deref()),
            redactor: Redactor::default(),
        };
        front::refuse(&refusal, self.showing())
    }
}

/// A report's path, if a refusal may be written there.
pub(crate) fn reportable(option: &str, given: Option<&Path>) -> Option<PathBuf> {
    files::report_path(option, given).ok().flatten()
}

async fn start(
    desk: &Desk,
    spec: Spec,
    signals: crate::signal::Signals,
    showing: front::Showing,
) -> Result<u8, Broken> {
    let program = std::env::current_exe().map_err(|error| {
        let code = Code::CommandFailed.unless_exhausted(&error);
        Broken::NotStarted(Failure::new(code, "this program cannot tell where it is").because(&error))
    })?;
    let surroundings = Surroundings {
        program,
        environment: desk.environment.for_supervisor(),
        clock: desk.clock.clone(),
        signals,
        complaints: terminal::stderr(),
        terminal: terminal::foreground(),
    };
    front::run(spec, showing, surroundings).await
}

/// Everything about the run, in the order in which mistakes are best told: options, bundle, kubeconfig, variables.
fn gather(desk: &Desk, asked: &Asked, run: &str, began: Instant, run_dir: PathBuf) -> Result<Spec, Failure> {
    let options = &asked.options;
    let environment = &desk.environment;
    let events_file = files::report_path("--events-file", options.report.events_file.as_deref())?;
    let junit = files::report_path("--junit", options.report.junit.as_deref())?;
    let values = files::values(&options.values)?;
    let written = Bundle::open(&options.bundle, &run_dir.join("bundle"))?;
    let kubeconfig = find_kubeconfig(desk, &options.target)?;
    let kubeconfig_path = run_dir.join(files::KUBECONFIG);
    let given = Given::gather(&options.vars, &options.var_files, environment)?;
    let inputs = Inputs {
        instance: asked.instance.clone(),
        kube_context: kubeconfig.context().to_owned(),
        kubeconfig: kubeconfig_path.clone(),
        run_id: run.to_owned(),
        given,
    };
    let bundle = written.resolve(&inputs)?;
    let job = Job::detect(environment, std::process::id());
    let state_dir =
        files::state_dir(options.state_dir.as_deref(), asked.instance.as_deref(), kubeconfig.context(), environment)?;
    crate::step::refuse_local_state_in_ci(&bundle, job.ci, options.state_dir.is_some())?;
    kubeconfig.write(&kubeconfig_path)?;
    let tools = environment.for_tools();
    let secrets = secrets(&bundle, &kubeconfig);
    Ok(Spec {
        run: run.to_owned(),
        began,
        began_at: desk.clock.wall(),
        plan: Plan::of(asked.verb),
        mode: asked.mode(),
        instance: asked.instance.clone(),
        bundle,
        bundle_path: options
            .bundle
            .file_name()
            .map_or_else(|| ".".to_owned(), |name| name.to_string_lossy().into_owned()),
        kube_context: kubeconfig.context().to_owned(),
        server: kubeconfig.server().to_owned(),
        user: environment.user_name(),
        host: files::host_name(),
        notes: notes(desk, &kubeconfig, &job),
        job,
        run_dir,
        kubeconfig: kubeconfig_path,
        proxy: proxies(desk),
        state_dir,
        values,
        build: asked.build,
        force_conflicts: !options.no_force_conflicts,
        keep_output: options.keep_output,
        tofu: options.tofu.clone(),
        helm: options.helm.clone(),
        environment: tools.kept,
        dropped: tools.dropped,
        path: environment.text("PATH").unwrap_or_default().to_owned(),
        events_file,
        junit,
        wait: options.wait.map_or(Wait::No, |wait| match wait {
            cli::Wait::AtMost(limit) => Wait::AtMost(limit),
            cli::Wait::Forever => Wait::Forever,
        }),
        on_busy: options.on_busy.map_or(OnBusy::preset(asked.verb), |on_busy| match on_busy {
            cli::OnBusy::Refuse => OnBusy::Refuse,
            cli::OnBusy::Warn => OnBusy::Warn,
        }),
        stop_after: options.stop_after,
        secrets,
        #[cfg(feature = "test-tools")]
        break_at: environment.text("DCCTL_TEST_BREAK").map(str::to_owned),
    })
}

/// The kubeconfig's one context that the run uses.
pub(crate) fn find_kubeconfig(desk: &Desk, target: &crate::cli::TargetOptions) -> Result<Kubeconfig, Failure> {
    let environment = &desk.environment;
    let sources = Sources {
        explicit: target.kubeconfig.clone(),
        list: environment.raw("KUBECONFIG").map(ToOwned::to_owned),
        home: environment.home(),
        service_host: environment.text("KUBERNETES_SERVICE_HOST").map(str::to_owned),
        service_port: environment.text("KUBERNETES_SERVICE_PORT").map(str::to_owned),
        service_account: None,
    };
    kubeconfig::load(&sources, target.kube_context.as_deref())
}

/// What the client may use to get to the API server.
pub(crate) fn proxies(desk: &Desk) -> Proxies {
    let first = |names: [&str; 2]| names.into_iter().find_map(|name| desk.environment.text(name)).map(str::to_owned);
    Proxies { https: first(["HTTPS_PROXY", "https_proxy"]), except: first(["NO_PROXY", "no_proxy"]) }
}

fn secrets(bundle: &Bundle, kubeconfig: &Kubeconfig) -> std::collections::BTreeMap<String, crate::redact::Secret> {
    let of_bundle =
        bundle.secrets().enumerate().map(|(index, (name, secret))| (format!("{index} {name}"), secret.clone()));
    of_bundle.chain(kubeconfig.secrets()).collect()
}

fn notes(desk: &Desk, kubeconfig: &Kubeconfig, job: &Job) -> Vec<String> {
    // What CI systems empty when a job ends: credentials that lie there end with it, the run may not.
    let temporary: Vec<PathBuf> = ["RUNNER_TEMP", "CI_PROJECT_DIR", "WORKSPACE", "TMPDIR"]
        .iter()
        .filter_map(|name| desk.environment.path(name))
        .collect();
    let mut notes = kubeconfig.warnings(desk.clock.wall(), &temporary);
    if let Some(system) = job.system {
        notes.push(format!("this run was started by {}", system.title()));
    }
    notes
}

/// Makes a path absolute without looking at the file system.
fn absolute(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        Failure::new(Code::OptionInvalid, format!("{option} {} is not a path", path.display())).because(&error)
    })
}
