//! Looks at what a run needs around it: the API server answers, and the tools are there and new enough, or the command
//! is there. For an install also whether the cluster and the OpenTofu state here are this bundle's: what speaks against
//! it is said before the lock is asked for and anything is written.

use std::rc::Rc;
use std::sync::Arc;

use crate::clock::Clock;
use crate::cluster::{Cluster, MayWrite, Sources, kubeconfig};
use crate::event::{self, Event};
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::process::{Limits, StopWatch};
use crate::redact::Redactor;
use crate::run::chronicle::Chronicle;
use crate::run::keeping;
use crate::run::spec::{ForBundle, ForCommand, Mode, Purpose, Spec};
use crate::step::{self, CommandKit, Equipment, Kit, Means, Tool, Updates};

/// Looks, and gives back everything that steps may use. A stop request ends it at once.
pub(crate) async fn look(
    spec: Rc<Spec>,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    stop: StopWatch,
    send: Updates,
    may_write: MayWrite,
) -> Result<Equipment, Failure> {
    let mut asked = stop.clone();
    let config = kubeconfig::load(&Sources::file(&spec.kubeconfig), None)?;
    let cluster = tokio::select! {
        biased;
        _ = asked.asked() => return Err(stopped()),
        cluster = Cluster::connect(&config, &spec.proxy, may_write) => cluster?,
    };
    let means = means(&spec, cluster, clock, redactor, stop, send);
    if let (Some(outer), Mode::Act) = (&spec.inside, spec.mode) {
        tokio::select! {
            biased;
            _ = asked.asked() => return Err(stopped()),
            refused = keeping::refuse_inside(&means, outer) => refused?,
        }
    }
    // A program that is asked for its version stops by itself, and is waited for.
    let found = match &spec.purpose {
        Purpose::Bundle(bundle) => find_tools(&spec, bundle, means).await.map(Box::new).map(Equipment::Bundle),
        Purpose::Command(command) => find_command(command, means).map(Box::new).map(Equipment::Command),
    };
    if let (Verb::Install, Ok(Equipment::Bundle(kit))) = (spec.plan.verb, &found) {
        tokio::select! {
            biased;
            _ = asked.asked() => return Err(stopped()),
            refused = step::refuse_foreign(kit) => refused?,
        }
    }
    if asked.is_asked() { Err(stopped()) } else { found }
}

fn stopped() -> Failure {
    Failure::new(Code::StoppedClean, "stopped while looking at the surroundings")
}

fn means(
    spec: &Spec,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    stop: StopWatch,
    updates: Updates,
) -> Means {
    Means {
        mode: match spec.mode {
            Mode::Act => step::Mode::Act,
            Mode::DryRun => step::Mode::DryRun,
        },
        run: spec.run.clone(),
        run_dir: spec.run_dir.clone(),
        cluster,
        kubeconfig: spec.kubeconfig.clone(),
        kube_context: spec.kube_context.clone(),
        keep_output: spec.keep_output,
        environment: spec.environment.clone(),
        redactor,
        limits: Limits { budget: spec.stop_after, ..Limits::default() },
        stop,
        updates,
        clock,
    }
}

/// What a bundle's steps use, with the tools that this one needs.
async fn find_tools(spec: &Spec, with: &ForBundle, means: Means) -> Result<Kit, Failure> {
    let mut kit = Kit {
        means,
        bundle: with.bundle.clone(),
        instance: with.instance.clone(),
        tofu: None,
        helm: None,
        state_dir: with.state_dir.clone(),
        values: with.values.clone(),
        build: with.build,
        force_conflicts: with.force_conflicts,
        outputs: step::Outputs::default(),
    };
    if needs_tofu(spec.plan.verb, with) {
        kit.tofu = Some(step::find_tofu(&kit, with.tofu.as_deref()).await?);
        step::check_temporary_folder(&kit)?;
    }
    if needs_helm(spec.plan.verb, with) {
        kit.helm = Some(step::find_helm(&kit, with.helm.as_deref()).await?);
    }
    Ok(kit)
}

fn needs_tofu(verb: Verb, with: &ForBundle) -> bool {
    match verb {
        Verb::Install => with.bundle.prerequisites.is_some(),
        Verb::Bootstrap => with.bundle.instance.as_ref().is_some_and(|instance| instance.infrastructure.is_some()),
        Verb::Exec => false,
    }
}

fn needs_helm(verb: Verb, with: &ForBundle) -> bool {
    match verb {
        Verb::Install | Verb::Exec => false,
        Verb::Bootstrap => with.bundle.instance.as_ref().is_some_and(|instance| instance.chart.is_some()),
    }
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
pub(crate) fn said(equipment: &Equipment) -> String {
    let mut said = format!("Kubernetes {}", equipment.means().cluster.version().trim_start_matches('v'));
    for (name, tool) in tools(equipment) {
        said.push_str(&format!(", {name} {}", tool.version));
    }
    if let Equipment::Command(kit) = equipment {
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
