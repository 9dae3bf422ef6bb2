//! What a release has, as Helm keeps it, and whether the cluster still has it.
//!
//! What Helm keeps of a revision is asked for once, with a template: its manifest, then its hooks. It carries the chart's
//! secrets, so it is read here and shown to nobody.

use crate::cluster::document::Document;
use crate::cluster::presence::Presence;
use crate::cluster::wait::{Kind, Named};
use crate::failure::Failure;
use crate::process::Manner;
use crate::step::helm::{End, Work};
use crate::step::helm_plan::{objects, stop_if_asked, unreadable};
use crate::step::helm_release::Revision;
use crate::step::invoke::{Raw, words};
use crate::step::{Kit, Mode, Update};

/// What Helm keeps of a revision.
pub(crate) struct Deployed {
    /// Its objects.
    pub(crate) manifest: String,
    /// Its hooks, as a manifest.
    pub(crate) hooks: String,
}

/// The newest revision that is deployed.
pub(crate) fn deployed(history: &[Revision]) -> Option<u64> {
    history.iter().rev().find(|revision| revision.status == "deployed").map(|revision| revision.revision)
}

/// What Helm keeps of this revision.
pub(crate) async fn get(work: &Work<'_>, revision: u64) -> Result<Deployed, End> {
    // No chart can have it in a manifest: it is new with each run.
    let mark = format!("# {}", work.kit.run);
    let hooks = "{{range .Release.Hooks}}\n---\n{{.Manifest}}{{end}}";
    let template = format!("{{{{.Release.Manifest}}}}\n{mark}\n{hooks}");
    let mut args = words(&["get", "all", &work.chart.release, "--revision", &revision.to_string(), "--template"]);
    args.push(template.into());
    args.extend(work.in_namespace());
    let mut call = work.call("helm get all", args, Manner::Query);
    call.raw = Raw::Secret;
    let (says, done) = work.hear(call).await?;
    if !done.ended.exit.is_success() {
        stop_if_asked(work)?;
        let why = says.summary().map_or_else(|| done.ended.exit.to_string(), str::to_owned);
        return Err(unreadable(work).cause(why).into());
    }
    let answer = String::from_utf8_lossy(&done.answer()?).into_owned();
    let (manifest, hooks) = answer.split_once(&mark).ok_or_else(|| unreadable(work))?;
    Ok(Deployed { manifest: manifest.to_owned(), hooks: hooks.to_owned() })
}

/// Those of a release's objects that the cluster does not have. A Job may go when it is done, so it is never missing. What
/// this account may not look at is said, and taken for there.
pub(crate) async fn missing<'a>(work: &Work<'_>, objects: &'a [Document]) -> Result<Vec<&'a Document>, Failure> {
    let mut missing = Vec::new();
    for object in objects.iter().filter(|object| object.group() != "batch" || object.kind != "Job") {
        match work.kit.cluster.presence(object, &work.chart.namespace).await? {
            Presence::There => {}
            Presence::Missing => missing.push(object),
            Presence::Unseen(why) => {
                let text = format!("whether {} is still there was not looked at: {why}", object.title());
                work.kit.updates.send(Update::Note(text));
            }
        }
    }
    Ok(missing)
}

/// The workloads that have to become ready, of these objects.
pub(crate) fn workloads(work: &Work<'_>, objects: &[Document]) -> Vec<Named> {
    let named = |object: &Document| {
        let namespace = object.namespace.clone().unwrap_or_else(|| work.chart.namespace.clone());
        Some(Named { kind: Kind::of(object)?, namespace, name: object.name.clone() })
    };
    objects.iter().filter_map(named).collect()
}

/// The workloads that the instance's release names, as Helm has it; none without a chart, and in a dry run.
pub(in crate::step) async fn named_workloads(kit: &Kit) -> Result<Vec<Named>, End> {
    if let Some(named) = kit.course.take_named() {
        return Ok(named);
    }
    let chart = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref());
    let (Some(chart), Some(helm), Mode::Act) = (chart, &kit.helm, kit.mode) else { return Ok(Vec::new()) };
    let work = Work { kit, chart, helm };
    let Some(revision) = deployed(&work.history().await?) else { return Ok(Vec::new()) };
    let found = get(&work, revision).await?;
    Ok(workloads(&work, &objects(&found.manifest)?))
}
