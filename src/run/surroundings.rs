//! Looks at what a run needs around it: the API server answers, and the tools are there and new enough.

use std::rc::Rc;
use std::sync::Arc;

use crate::clock::Clock;
use crate::cluster::{Cluster, MayWrite, Sources, kubeconfig};
use crate::event::{self, Event};
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::process::{Limits, StopWatch};
use crate::run::chronicle::Chronicle;
use crate::run::spec::{Mode, Spec};
use crate::step::{self, Kit, Tool, Updates};

/// Looks, and gives back everything that steps may use. A stop request ends it at once.
pub(crate) async fn look(
    spec: Rc<Spec>,
    clock: Arc<dyn Clock>,
    stop: StopWatch,
    send: Updates,
    may_write: MayWrite,
) -> Result<Kit, Failure> {
    let mut asked = stop.clone();
    let config = kubeconfig::load(&Sources::file(&spec.kubeconfig), None)?;
    let cluster = tokio::select! {
        biased;
        _ = asked.asked() => return Err(stopped()),
        cluster = Cluster::connect(&config, &spec.proxy, may_write) => cluster?,
    };
    // A program that is asked for its version stops by itself, and is waited for.
    let kit = find(spec, cluster, clock, stop, send).await;
    if asked.is_asked() { Err(stopped()) } else { kit }
}

fn stopped() -> Failure {
    Failure::new(Code::StoppedClean, "stopped while looking at the surroundings")
}

async fn find(
    spec: Rc<Spec>,
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    stop: StopWatch,
    send: Updates,
) -> Result<Kit, Failure> {
    let mut kit = Kit {
        mode: match spec.mode {
            Mode::Act => step::Mode::Act,
            Mode::DryRun => step::Mode::DryRun,
        },
        run: spec.run.clone(),
        run_dir: spec.run_dir.clone(),
        bundle: spec.bundle.clone(),
        instance: spec.instance.clone(),
        cluster,
        kubeconfig: spec.kubeconfig.clone(),
        kube_context: spec.kube_context.clone(),
        tofu: None,
        helm: None,
        state_dir: spec.state_dir.clone(),
        values: spec.values.clone(),
        build: spec.build,
        force_conflicts: spec.force_conflicts,
        keep_output: spec.keep_output,
        environment: spec.environment.clone(),
        redactor: spec.redactor(),
        outputs: step::Outputs::default(),
        limits: Limits { budget: spec.stop_after, ..Limits::default() },
        stop,
        updates: send,
        clock,
    };
    if needs_tofu(&spec) {
        kit.tofu = Some(step::find_tofu(&kit, spec.tofu.as_deref()).await?);
        step::check_temporary_folder(&kit)?;
    }
    if needs_helm(&spec) {
        kit.helm = Some(step::find_helm(&kit, spec.helm.as_deref()).await?);
    }
    Ok(kit)
}

fn needs_tofu(spec: &Spec) -> bool {
    match spec.plan.verb {
        Verb::Install => spec.bundle.prerequisites.is_some(),
        Verb::Bootstrap => spec.bundle.instance.as_ref().is_some_and(|instance| instance.infrastructure.is_some()),
    }
}

fn needs_helm(spec: &Spec) -> bool {
    match spec.plan.verb {
        Verb::Install => false,
        Verb::Bootstrap => spec.bundle.instance.as_ref().is_some_and(|instance| instance.chart.is_some()),
    }
}

/// What was found, in a few words.
pub(crate) fn said(kit: &Kit) -> String {
    let mut said = format!("Kubernetes {}", kit.cluster.version().trim_start_matches('v'));
    for (name, tool) in tools(kit) {
        said.push_str(&format!(", {name} {}", tool.version));
    }
    said
}

/// `tool.checked` for each.
pub(crate) fn tell(kit: &Kit, told: &mut Chronicle) {
    for (name, tool) in tools(kit) {
        let path = tool.path.display().to_string();
        let event = event::ToolChecked { tool: name.to_owned(), version: tool.version.clone(), path };
        told.tell(None, Event::ToolChecked(event));
    }
}

fn tools(kit: &Kit) -> impl Iterator<Item = (&'static str, &Tool)> {
    let tofu = kit.tofu.iter().map(|tool| ("OpenTofu", tool));
    tofu.chain(kit.helm.iter().map(|tool| ("Helm", tool)))
}
