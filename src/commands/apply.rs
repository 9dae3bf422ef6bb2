//! `dcctl install`, `bootstrap`, `upgrade` and `destroy`: gathers everything about a run of a bundle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::{
    self, ApplyOptions, BootstrapArgs, DestroyArgs, DetachOptions, InstallArgs, ReportOptions, SubstrateOptions,
    TargetOptions, UpgradeArgs,
};
use crate::cluster::{Kubeconfig, Proxies, Sources, kubeconfig};
use crate::commands::apply::reports::Reads;
use crate::commands::attempt::{self, Asked as _, Begun};
use crate::commands::{Desk, substrate, terminal};
use crate::config::{BUNDLE, Bundle, Digest, Given, Inputs, Job};
use crate::failure::{Code, Failure};
use crate::front::Showing;
use crate::pipeline::{Plan, Verb};
use crate::redact::Secret;
use crate::run::{ForBundle, Mode, OnCluster, Purpose, Spec};
use crate::step::{Backwards, Choices, Fate, OnChartFailure, Replace};

pub(crate) mod files;
pub(crate) mod reports;

/// `dcctl install`.
pub(crate) fn install(desk: &Desk, args: InstallArgs) -> u8 {
    let backwards = if args.allow_downgrade { Backwards::Allowed } else { Backwards::Refused };
    let choices = Choices { backwards, ..Choices::default() };
    attempt::make(desk, Asked { verb: Verb::Install, instance: None, build: false, choices, options: args.apply })
}

/// `dcctl bootstrap INSTANCE`.
pub(crate) fn bootstrap(desk: &Desk, args: BootstrapArgs) -> u8 {
    let BootstrapArgs { instance, build, apply: options } = args;
    let (instance, choices) = (Some(instance), Choices::default());
    attempt::make(desk, Asked { verb: Verb::Bootstrap, instance, build, choices, options })
}

/// `dcctl upgrade INSTANCE`.
pub(crate) fn upgrade(desk: &Desk, args: UpgradeArgs) -> u8 {
    let UpgradeArgs { instance, allow_replace, on_chart_failure, apply: options } = args;
    let replace = if allow_replace.is_empty() {
        Replace::Nothing
    } else if allow_replace.iter().any(|address| address == "*") {
        Replace::Everything
    } else {
        Replace::These(allow_replace.into_iter().collect())
    };
    let on_chart_failure = match on_chart_failure {
        cli::OnChartFailure::Leave => OnChartFailure::Leave,
        cli::OnChartFailure::Rollback => OnChartFailure::Rollback,
    };
    let choices = Choices { replace, on_chart_failure, ..Choices::default() };
    attempt::make(desk, Asked { verb: Verb::Upgrade, instance: Some(instance), build: false, choices, options })
}

/// `dcctl destroy INSTANCE`.
pub(crate) fn destroy(desk: &Desk, args: DestroyArgs) -> u8 {
    let DestroyArgs { instance, abandon_infrastructure, apply: options } = args;
    let infrastructure = if abandon_infrastructure { Fate::Abandoned } else { Fate::Destroyed };
    let (instance, choices) = (Some(instance), Choices { infrastructure, ..Choices::default() });
    attempt::make(desk, Asked { verb: Verb::Destroy, instance, build: false, choices, options })
}

/// What was asked for.
struct Asked {
    verb: Verb,
    instance: Option<String>,
    build: bool,
    choices: Choices,
    options: ApplyOptions,
}

impl attempt::Asked for Asked {
    fn verb(&self) -> Verb {
        self.verb
    }

    fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    fn target(&self) -> &TargetOptions {
        &self.options.target
    }

    fn substrate(&self) -> &SubstrateOptions {
        &self.options.substrate
    }

    fn report(&self) -> &ReportOptions {
        &self.options.report
    }

    fn mode(&self) -> Mode {
        if self.options.dry_run { Mode::DryRun } else { Mode::Act }
    }

    fn detach(&self) -> &DetachOptions {
        &self.options.detach
    }

    fn showing(&self, desk: &Desk) -> Showing {
        terminal::showing(desk, self.options.report.output, self.options.report.color)
    }

    fn reads(&self, desk: &Desk) -> Reads {
        let options = &self.options;
        let of_options = options.given.values.iter().chain(&options.given.var_files).cloned();
        let mut files = kubeconfigs(desk, &options.target);
        files.extend(of_options.chain([options.bundle.join(BUNDLE)]));
        Reads { files, bundle: Some(options.bundle.clone()), lock_dir: None }
    }

    fn gather(&self, begun: &Begun, run_dir: PathBuf) -> Result<Spec, Failure> {
        gather(self, begun, run_dir)
    }
}

/// Everything about the run, in the order in which mistakes are best told: options, bundle, kubeconfig, variables.
fn gather(asked: &Asked, begun: &Begun, run_dir: PathBuf) -> Result<Spec, Failure> {
    let (options, desk, run) = (&asked.options, &begun.desk, &begun.run);
    let environment = &desk.environment;
    let reports = reports::find(&options.report, &run_dir, &attempt::Asked::reads(asked, desk))?;
    reports::state_stays(options.state_dir.as_deref(), Some(&run_dir), Some(&options.bundle))?;
    let values = files::values(&options.given.values)?;
    for (option, program) in [("--tofu", &options.tools.tofu), ("--helm", &options.tools.helm)] {
        program.as_deref().map_or(Ok(()), |program| as_text(option, program))?;
    }
    substrate::only_kubernetes(asked.verb.word(), &options.substrate)?;
    let expected = options.bundle_digest.as_deref().map(Digest::parse).transpose()?;
    let written = Bundle::open(&options.bundle, &files::unpacked(&run_dir), expected.as_ref())?;
    let unpacked = files::Unpacked::of(&written, &run_dir);
    let kubeconfig = find_kubeconfig(desk, &options.target)?;
    let kubeconfig_path = run_dir.join(files::KUBECONFIG);
    let given = Given::gather(&options.given.vars, &options.given.var_files, environment)?;
    let inputs = Inputs {
        instance: asked.instance.clone(),
        kube_context: kubeconfig.context().to_owned(),
        kubeconfig: kubeconfig_path.clone(),
        run_id: run.clone(),
        given,
    };
    let bundle = written.resolve(&inputs)?;
    if asked.verb == Verb::Install {
        crate::step::check_manifests(&bundle)?;
    }
    let job = Job::detect(environment, std::process::id());
    let state_dir =
        files::state_dir(options.state_dir.as_deref(), asked.instance.as_deref(), kubeconfig.context(), environment)?;
    crate::step::refuse_local_state_in_ci(&bundle, job.ci, options.state_dir.is_some())?;
    let cluster = on_cluster(desk, &kubeconfig, kubeconfig_path)?;
    let mut tools = environment.for_tools();
    // What dcctl itself reads for the bundle has arrived.
    tools.dropped.retain(|name| !bundle.is_given_by(name));
    let secrets = secrets(&bundle, &kubeconfig, &cluster.proxy);
    let digest = written.digest().map(ToString::to_string);
    unpacked.keep();
    Ok(Spec {
        run: run.clone(),
        began: begun.began,
        began_at: desk.clock.wall(),
        plan: Plan::of(asked.verb),
        mode: asked.mode(),
        purpose: Purpose::Bundle(Box::new(ForBundle {
            digest,
            ..for_bundle(asked, cluster, bundle, (state_dir, values))
        })),
        inside: environment.outer_run(),
        user: environment.user_name(),
        host: files::host_name(),
        notes: notes(desk, Some(&kubeconfig), &job, options.stop.stop_after),
        grant: attempt::grant(&options.stop, desk, &job),
        job,
        run_dir,
        runs: files::runs(environment),
        keep_output: options.keep_output,
        environment: tools.kept,
        dropped: tools.dropped,
        path: environment.text("PATH").unwrap_or_default().to_owned(),
        events_file: reports.events,
        junit: reports.junit,
        wait: attempt::wait(&options.busy),
        on_busy: attempt::on_busy(&options.busy, asked.verb),
        stop_after: options.stop.stop_after,
        max_run_time: attempt::max_run_time(&options.detach),
        secrets,
        #[cfg(feature = "test-tools")]
        break_at: environment.text("DCCTL_TEST_BREAK").map(str::to_owned),
        #[cfg(feature = "test-tools")]
        witness: environment.path("DCCTL_TEST_WITNESS"),
    })
}

fn for_bundle(
    asked: &Asked,
    cluster: OnCluster,
    bundle: Bundle,
    (state_dir, values): (PathBuf, Vec<PathBuf>),
) -> ForBundle {
    let options = &asked.options;
    let bundle_path = std::path::absolute(&options.bundle).unwrap_or_else(|_| options.bundle.clone());
    ForBundle {
        cluster,
        instance: asked.instance.clone(),
        bundle,
        digest: None,
        bundle_path: bundle_path.components().collect::<PathBuf>().display().to_string(),
        state_dir,
        values,
        build: asked.build,
        force_conflicts: !options.no_force_conflicts,
        choices: asked.choices.clone(),
        tofu: options.tools.tofu.clone(),
        helm: options.tools.helm.clone(),
    }
}

/// The files that a kubeconfig may be read from.
pub(crate) fn kubeconfigs(desk: &Desk, target: &TargetOptions) -> Vec<PathBuf> {
    sources(desk, target).files()
}

/// The cluster of a run, with a kubeconfig of the run's own.
pub(crate) fn on_cluster(desk: &Desk, kubeconfig: &Kubeconfig, path: PathBuf) -> Result<OnCluster, Failure> {
    kubeconfig.write(&path)?;
    Ok(OnCluster {
        kube_context: kubeconfig.context().to_owned(),
        server: kubeconfig.server().to_owned(),
        kubeconfig: path,
        proxy: proxies(desk),
    })
}

/// The kubeconfig's one context that the run uses.
pub(crate) fn find_kubeconfig(desk: &Desk, target: &TargetOptions) -> Result<Kubeconfig, Failure> {
    kubeconfig::load(&sources(desk, target), target.kube_context.as_deref())
}

/// Where a kubeconfig may come from.
fn sources(desk: &Desk, target: &TargetOptions) -> Sources {
    let environment = &desk.environment;
    Sources {
        explicit: target.kubeconfig.clone(),
        list: environment.raw("KUBECONFIG").map(ToOwned::to_owned),
        home: environment.home(),
        service_host: environment.text("KUBERNETES_SERVICE_HOST").map(str::to_owned),
        service_port: environment.text("KUBERNETES_SERVICE_PORT").map(str::to_owned),
        service_account: None,
    }
}

/// What the client may use to get to the API server.
pub(crate) fn proxies(desk: &Desk) -> Proxies {
    let first = |names: [&str; 2]| names.into_iter().find_map(|name| desk.environment.text(name)).map(str::to_owned);
    Proxies { https: first(["HTTPS_PROXY", "https_proxy"]), except: first(["NO_PROXY", "no_proxy"]) }
}

/// Everything of a bundle and of the way to the cluster that must never be said, with the name of what it is for.
pub(crate) fn secrets(bundle: &Bundle, kubeconfig: &Kubeconfig, proxy: &Proxies) -> BTreeMap<String, Secret> {
    let of_bundle =
        bundle.secrets().enumerate().map(|(index, (name, secret))| (format!("{index} {name}"), secret.clone()));
    of_bundle.chain(credentials(kubeconfig, proxy)).collect()
}

/// What the way to the cluster needs and nobody may hear: the kubeconfig's credentials, and the password of the proxy.
pub(crate) fn credentials(kubeconfig: &Kubeconfig, proxies: &Proxies) -> Vec<(String, Secret)> {
    let of_proxy = proxies.secret().map(|password| ("the proxy's password".to_owned(), password));
    kubeconfig.secrets().into_iter().chain(of_proxy).collect()
}

/// Facts worth saying at a run's start.
pub(crate) fn notes(desk: &Desk, kubeconfig: Option<&Kubeconfig>, job: &Job, stop_after: Duration) -> Vec<String> {
    // What CI systems empty when a job ends: credentials that lie there end with it, the run may not.
    let temporary: Vec<PathBuf> = ["RUNNER_TEMP", "CI_PROJECT_DIR", "WORKSPACE", "TMPDIR"]
        .iter()
        .filter_map(|name| desk.environment.path(name))
        .collect();
    let warnings = kubeconfig.map(|kubeconfig| kubeconfig.warnings(desk.clock.wall(), &temporary, stop_after));
    let mut notes = warnings.unwrap_or_default();
    if let Some(system) = job.system {
        notes.push(format!("this run was started by {}", system.title()));
    }
    notes
}

/// Makes a path absolute without looking at the file system.
pub(crate) fn absolute(option: &str, path: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(path).map_err(|error| {
        Failure::new(Code::OptionInvalid, format!("{option} {} is not a path", path.display())).because(&error)
    })?;
    as_text(option, &absolute)
        .map_err(|failure| failure.hint("Use a path, in a working folder, whose every name is UTF-8."))?;
    Ok(absolute)
}

/// A path of a run is told in its events, which are text.
pub(crate) fn as_text(what: &str, path: &Path) -> Result<(), Failure> {
    if path.to_str().is_some() {
        return Ok(());
    }
    Err(Failure::new(Code::OptionInvalid, format!("{what} {} is not UTF-8 text", path.display())))
}
