//! Looks at what a run needs around it: the API server answers or the lock folder can be used, and the tools are there and
//! new enough, or the command is there. For an install also whether the cluster and the OpenTofu state here are this
//! bundle's: what speaks against it is said before the lock is asked for and anything is written.

use std::ffi::OsString;
use std::rc::Rc;
use std::sync::Arc;

use crate::clock::Clock;
use crate::cluster::{Cluster, Connection, MayWrite, Sources, kubeconfig};
use crate::event::{self, Event};
use crate::failure::{Code, Failure};
use crate::lock::direct::Intent;
use crate::lock::{self, LockFolder, Timing};
use crate::pipeline::Verb;
use crate::process::StopWatch;
use crate::redact::Redactor;
use crate::run::chronicle::Chronicle;
use crate::run::drill;
use crate::run::keeping::{self, Origin};
use crate::run::spec::{ForBundle, ForCommand, Mode, OnCluster, Purpose, Spec, Substrate};
use crate::step::{self, CommandKit, Equipment, Kit, Means, Tool, Updates};

/// What there is around a run.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// What steps may use.
    pub(crate) kit: Equipment,
    /// What keeps the lock. No step sees it.
    pub(crate) lock: Origin,
    /// What was reached, in a few words.
    reached: String,
}

/// Looks, and gives back everything that was found. A stop request ends it at once.
pub(crate) async fn look(
    spec: Rc<Spec>,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    stop: StopWatch,
    send: Updates,
    may_write: MayWrite,
) -> Result<Found, Failure> {
    let mut asked = stop.clone();
    let means = means(&spec, may_write.clone(), (clock, redactor, stop, send));
    // A program that is asked for its version stops by itself, and is waited for.
    let found = match &spec.purpose {
        Purpose::Bundle(bundle) => {
            let (cluster, reached) = unless_stopped(&mut asked, connect(&bundle.cluster, may_write)).await?;
            let lock = Origin::Cluster(cluster.clone());
            refuse_inside(&spec, &lock, &mut asked).await?;
            // Both wait, the one for programs and the other for the API server.
            let (kit, rights) = tokio::join!(
                find_tools(&spec, bundle, cluster.clone(), means),
                unless_stopped(&mut asked, refuse_without_rights(&spec, bundle, &cluster)),
            );
            let kit = kit.and_then(|kit| rights.map(|()| kit));
            kit.map(|kit| Found { kit: Equipment::Bundle(Box::new(kit)), lock, reached })
        }
        Purpose::Command(command) => {
            let reaching = reach(&command.substrate, spec.mode, may_write);
            let (lock, reached) = unless_stopped(&mut asked, reaching).await?;
            refuse_inside(&spec, &lock, &mut asked).await?;
            let kit = find_command(command, means);
            kit.map(|kit| Found { kit: Equipment::Command(Box::new(kit)), lock, reached })
        }
    };
    if let Ok(Found { kit: Equipment::Bundle(kit), .. }) = &found {
        unless_stopped(&mut asked, refuse_early(spec.plan.verb, kit)).await?;
    }
    if asked.is_asked() { Err(stopped()) } else { found }
}

/// Reaches what keeps the lock of a command.
async fn reach(substrate: &Substrate, mode: Mode, may_write: MayWrite) -> Result<(Origin, String), Failure> {
    match substrate {
        Substrate::Kubernetes(cluster) => {
            connect(cluster, may_write).await.map(|(cluster, reached)| (Origin::Cluster(cluster), reached))
        }
        Substrate::Direct(path) => {
            let folder = LockFolder::new(path.clone(), Timing::STANDARD);
            let intent = match mode {
                Mode::Act => Intent::Change,
                Mode::DryRun => Intent::Look,
            };
            let reach = folder.check(intent).await?;
            Ok((Origin::Folder(folder), format!("lock folder {}, {reach}", path.display())))
        }
    }
}

/// The way to the API server of a run, without asking it anything.
pub(crate) fn way_to(on: &OnCluster) -> Result<Connection, Failure> {
    let config = kubeconfig::load(&Sources::file(&on.kubeconfig), None)?;
    Connection::new(&config, &on.proxy)
}

async fn connect(on: &OnCluster, may_write: MayWrite) -> Result<(Cluster, String), Failure> {
    let config = kubeconfig::load(&Sources::file(&on.kubeconfig), None)?;
    let cluster = Cluster::connect(&config, &on.proxy, may_write).await?;
    let reached = format!("Kubernetes {}", cluster.version().trim_start_matches('v'));
    Ok((cluster, reached))
}

/// A run that was started by the one which holds the lock would wait for itself.
async fn refuse_inside(spec: &Spec, lock: &Origin, asked: &mut StopWatch) -> Result<(), Failure> {
    match (&spec.inside, spec.mode) {
        (Some(outer), Mode::Act) => unless_stopped(asked, keeping::refuse_inside(&lock.store(), outer)).await,
        (Some(_), Mode::DryRun) | (None, _) => Ok(()),
    }
}

/// A right that is sure to be missed. A dry run writes nothing, and what it may not look at is told there.
async fn refuse_without_rights(spec: &Spec, bundle: &ForBundle, cluster: &Cluster) -> Result<(), Failure> {
    match spec.mode {
        Mode::Act => {
            let about = (spec.plan.verb, bundle.instance.as_deref());
            step::rights::refuse_without_rights(cluster, &bundle.bundle, about, lock::NAME).await
        }
        Mode::DryRun => Ok(()),
    }
}

/// What speaks against a run and is better said before the lock is asked for. The steps ask again.
async fn refuse_early(verb: Verb, kit: &Kit) -> Result<(), Failure> {
    match verb {
        Verb::Install => step::refuse_foreign(kit).await,
        Verb::Upgrade | Verb::Destroy => step::refuse_lost_state(kit).await,
        Verb::Bootstrap => step::refuse_unsaved_state(kit),
        Verb::Exec => Ok(()),
    }
}

async fn unless_stopped<T>(
    asked: &mut StopWatch,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        _ = asked.asked() => Err(stopped()),
        done = work => done,
    }
}

fn stopped() -> Failure {
    Failure::new(Code::StoppedClean, "stopped while looking at the surroundings")
}

fn means(
    spec: &Spec,
    may_write: MayWrite,
    (clock, redactor, stop, updates): (Arc<dyn Clock>, Redactor, StopWatch, Updates),
) -> Means {
    Means {
        mode: match spec.mode {
            Mode::Act => step::Mode::Act,
            Mode::DryRun => step::Mode::DryRun,
        },
        run: spec.run.clone(),
        holder: spec.holder(std::process::id()).to_string(),
        run_dir: spec.run_dir.clone(),
        may_write,
        leading: leading(spec),
        keep_output: spec.keep_output,
        environment: spec.environment.clone(),
        redactor,
        limits: drill::patience(spec, spec.limits()),
        stop,
        updates,
        clock,
    }
}

/// What leads a tool to the cluster of the run. A command gets the name that dcctl itself would take, too.
fn leading(spec: &Spec) -> Vec<(&'static str, OsString)> {
    let Some(cluster) = spec.cluster() else { return Vec::new() };
    let kubeconfig = || OsString::from(&cluster.kubeconfig);
    let mut leading = vec![("KUBECONFIG", kubeconfig()), ("KUBE_CONFIG_PATH", kubeconfig())];
    match &spec.purpose {
        Purpose::Bundle(_) => {}
        Purpose::Command(_) => leading.push(("DCCTL_KUBE_CONTEXT", OsString::from(&cluster.kube_context))),
    }
    leading
}

/// What a bundle's steps use, with the tools that this one needs.
async fn find_tools(spec: &Spec, with: &ForBundle, cluster: Cluster, means: Means) -> Result<Kit, Failure> {
    let mut kit = Kit {
        means,
        cluster,
        kube_context: with.cluster.kube_context.clone(),
        bundle: with.bundle.clone(),
        instance: with.instance.clone(),
        tofu: None,
        helm: None,
        state_dir: with.state_dir.clone(),
        values: with.values.clone(),
        build: with.build,
        force_conflicts: with.force_conflicts,
        verb: spec.plan.verb,
        choices: with.choices.clone(),
        course: step::Course::default(),
        outputs: step::Outputs::default(),
    };
    if step::needs_tofu(spec.plan.verb, &with.bundle, &with.choices) {
        kit.tofu = Some(step::find_tofu(&kit, with.tofu.as_deref()).await?);
        step::check_temporary_folder(&kit)?;
    }
    if step::needs_helm(spec.plan.verb, &with.bundle) {
        kit.helm = Some(step::find_helm(&kit, with.helm.as_deref()).await?);
    }
    Ok(kit)
}

/// What the command is run with. No tool of a bundle is looked for.
fn find_command(command: &ForCommand, means: Means) -> Result<CommandKit, Failure> {
    let program = step::find_command(&means.environment, &command.program, &command.folder)?;
    Ok(CommandKit {
        means,
        name: command.name(),
        program,
        args: command.args.clone(),
        folder: command.folder.clone(),
        stdout: command.stdout.clone(),
        stderr: command.stderr.clone(),
    })
}

/// What was found, in a few words.
pub(crate) fn said(found: &Found) -> String {
    let mut said = found.reached.clone();
    for (name, tool) in tools(&found.kit) {
        said.push_str(&format!(", {name} {}", tool.version));
    }
    if let Equipment::Command(kit) = &found.kit {
        said.push_str(&format!(", {}", kit.program.display()));
    }
    said
}

/// `tool.checked` for each.
pub(crate) fn tell(equipment: &Equipment, told: &mut Chronicle) {
    for (name, tool) in tools(equipment) {
        // Where it really is: a link on PATH may be gone when the log is read.
        let path = tool.path.canonicalize().unwrap_or_else(|_| tool.path.clone()).display().to_string();
        let event = event::ToolChecked { tool: name.to_owned(), version: tool.version.clone(), path };
        told.tell(None, Event::ToolChecked(event));
    }
}

fn tools(equipment: &Equipment) -> impl Iterator<Item = (&'static str, &Tool)> {
    let (tofu, helm) = match equipment {
        Equipment::Bundle(kit) => (kit.tofu.as_ref(), kit.helm.as_ref()),
        Equipment::Command(_) => (None, None),
    };
    let tofu = tofu.into_iter().map(|tool| ("OpenTofu", tool));
    tofu.chain(helm.map(|tool| ("Helm", tool)))
}
