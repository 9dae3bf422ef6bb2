//! What installing the chart would change, without changing it.
//!
//! Helm renders the chart against the API server (`--dry-run=server`); where the namespace or a kind is not there yet,
//! it renders alone. What comes out carries the chart's secrets, so it is read here and shown to nobody: only kinds
//! and names are said, each compared with the release that is there.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::cluster::discovery::Scope;
use crate::cluster::document::{self, Document};
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::process::{Exit, Manner};
use crate::step::helm::{End, Work};
use crate::step::helm_deployed::{self, Deployed, deployed};
use crate::step::helm_release::Revision;
use crate::step::helm_says::Says;
use crate::step::invoke::{Raw, words};
use crate::step::tofu_outputs::Given;
use crate::step::{Mode, ObjectChange, ObjectName, Outcome, Severity, Update};

/// What of a rendered release is needed.
#[derive(Debug, Default, Deserialize)]
struct Rendered {
    #[serde(default)]
    manifest: String,
    #[serde(default)]
    hooks: Vec<Hook>,
    /// The API server was asked about it.
    #[serde(skip)]
    is_checked: bool,
}

#[derive(Debug, Deserialize)]
struct Hook {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    events: Vec<String>,
    #[serde(default)]
    manifest: String,
}

/// Says what would change.
pub(crate) async fn plan(work: &Work<'_>) -> Result<Outcome, End> {
    let (kit, release) = (work.kit, &work.chart.release);
    let history = work.history().await?;
    if let Some(half) = work.consider(&history).await? {
        kit.course.change();
        // Until that is done, Helm refuses to say anything about an upgrade.
        return Ok(Outcome::Done(format!(
            "{}; in a real run {}, and then the chart is installed",
            half.shown,
            half.deed()
        )));
    }
    say_what_is_unknown(work);
    let Some(rendered) = render(work, Schema::Compared).await? else {
        kit.course.change();
        return Ok(Outcome::Nothing(format!(
            "what would change of release {release} cannot be told before the infrastructure is applied"
        )));
    };
    let wanted = objects(&rendered.manifest)?;
    let (there, gone, is_as) = match deployed(&history) {
        Some(revision) => {
            let (there, gone) = tokio::join!(helm_deployed::get(work, revision), helm_deployed::missing(work, &wanted));
            let (there, gone) = (there?, gone?);
            let is_newest = history.last().is_some_and(|last| last.revision == revision);
            let is_as = is_newest && rendered.is_checked && is_as(&rendered, &wanted, &there)?;
            (objects(&there.manifest)?, gone.into_iter().map(key).collect(), is_as)
        }
        None => (Vec::new(), BTreeSet::new(), false),
    };
    // A bootstrap goes on with what failed, and upgrades whatever is there.
    if let (Verb::Upgrade, true, true, Some(last)) = (kit.verb, is_as, gone.is_empty(), history.last()) {
        return Ok(Outcome::Nothing(up_to_date(release, last.revision)));
    }
    kit.course.change();
    let counts = compare(work, &wanted, &there, &gone).await;
    let moment = if is_there(&history) { "upgrade" } else { "install" };
    for hook in rendered.hooks.iter().filter(|hook| hook.is_run_by(moment)) {
        kit.updates.send(Update::Note(format!("would run the chart's hook {} {}", hook.kind, hook.name)));
    }
    Ok(Outcome::Done(format!("would {moment} release {release}: {counts}")))
}

/// Whether Helm would upgrade the release: it installs one anew that was uninstalled and kept its history.
fn is_there(history: &[Revision]) -> bool {
    history.last().is_some_and(|last| last.status != "uninstalled")
}

/// What is said of a release with nothing to do.
pub(crate) fn up_to_date(release: &str, revision: u64) -> String {
    format!("release {release} is up to date (revision {revision})")
}

impl Hook {
    /// Whether an install or an upgrade runs it: a test, or what belongs to a rollback, it does not.
    fn is_run_by(&self, moment: &str) -> bool {
        self.events
            .iter()
            .any(|event| event.strip_prefix("pre-").or_else(|| event.strip_prefix("post-")) == Some(moment))
    }
}

/// The chart's values that a dry run cannot know.
fn unknown(work: &Work<'_>) -> Vec<String> {
    let unknown = |(_, output): &(&String, &String)| matches!(work.kit.outputs.get(output), Some(Given::Unknown));
    let values = work.chart.outputs.iter().filter(unknown);
    values.map(|(key, output)| format!("{key} (output `{output}`)")).collect()
}

fn say_what_is_unknown(work: &Work<'_>) {
    let values = unknown(work);
    if !values.is_empty() {
        let note =
            format!("chart values that are known only once the infrastructure is applied: {}", values.join(", "));
        work.kit.updates.send(Update::Note(note));
    }
}

/// Whether Helm compares each object that it renders with the API server's schema of it, which takes it several times as long as
/// all the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schema {
    /// It does: what would be applied is to be sound.
    Compared,
    /// It need not: what is as deployed was compared when it was, and all else is before it is applied.
    Spared,
}

/// Has Helm render the chart. None when a value that a dry run cannot know keeps it from that, which is said.
async fn render(work: &Work<'_>, schema: Schema) -> Result<Option<Rendered>, End> {
    let mut args = words(&["upgrade", "--install", &work.chart.release]);
    args.push(work.chart.path.clone().into());
    args.extend(work.in_namespace());
    let values = work.values()?;
    args.extend(values.clone());
    args.extend(words(&["--dry-run=server", "-o", "json"]));
    if schema == Schema::Spared {
        args.push("--disable-openapi-validation".into());
    }
    let mut call = work.call("helm upgrade --dry-run", args, Manner::Query);
    call.raw = Raw::Secret;
    let (says, done) = work.hear(call).await?;
    if done.ended.exit.is_success() {
        let answer = done.answer()?;
        // Helm may say a sentence before the JSON.
        let begin = answer.iter().position(|byte| *byte == b'{').unwrap_or(0);
        let rendered =
            serde_json::from_slice(&answer[begin..]).map(|rendered| Rendered { is_checked: true, ..rendered });
        return rendered.map(Some).map_err(|error| unreadable(work).because(&error).into());
    }
    stop_if_asked(work)?;
    if !says.is_about_order() {
        return refused(work, &says, done.ended.exit);
    }
    let why = says.summary().unwrap_or("it did not say why").to_owned();
    work.kit
        .updates
        .send(Update::Note(format!("the API server could not check the chart ({why}); it is rendered alone")));
    let mut args = words(&["template", &work.chart.release]);
    args.push(work.chart.path.clone().into());
    args.extend(work.in_namespace());
    args.extend(values);
    args.push("--no-hooks".into());
    let mut call = work.call("helm template", args, Manner::Query);
    call.raw = Raw::Secret;
    let (says, done) = work.hear(call).await?;
    if !done.ended.exit.is_success() {
        stop_if_asked(work)?;
        return refused(work, &says, done.ended.exit);
    }
    let manifest = String::from_utf8_lossy(&done.answer()?).into_owned();
    Ok(Some(Rendered { manifest, hooks: Vec::new(), is_checked: false }))
}

/// Helm did not render it: a failure, unless what stands for an unknown value may be all that is wrong.
fn refused(work: &Work<'_>, says: &Says, exit: Exit) -> Result<Option<Rendered>, End> {
    if work.kit.mode == Mode::DryRun && says.is_about_values() && !unknown(work).is_empty() {
        let why = says.summary().unwrap_or("it did not say why");
        work.kit.updates.send(Update::Note(format!("Helm cannot render the chart without those values: {why}")));
        return Ok(None);
    }
    if let Some(diagnostic) = says.diagnostic(Severity::Error) {
        work.kit.updates.send(diagnostic);
    }
    let sentence = format!("a dry run of release {} failed: Helm ended with {exit}", work.chart.release);
    Err(says.lines().fold(Failure::new(Code::ChartFailed, sentence), Failure::cause).into())
}

/// What a real upgrade would find.
pub(crate) enum Compared {
    /// This revision is what the chart renders to, and all of it is there.
    AsDeployed(u64),
    /// It is what the chart renders to, and these of its objects are gone.
    Missing(Vec<String>),
    /// It is not, or that cannot be told.
    Other,
}

/// Compares what the chart renders to, objects and hooks, with what is deployed and with what is there.
pub(crate) async fn compare_with_deployed(work: &Work<'_>, history: &[Revision]) -> Result<Compared, End> {
    let Some(last) = history.last().filter(|last| last.status == "deployed") else { return Ok(Compared::Other) };
    let Some(rendered) = render(work, Schema::Spared).await?.filter(|rendered| rendered.is_checked) else {
        return Ok(Compared::Other);
    };
    let wanted = objects(&rendered.manifest)?;
    let (there, missing) = tokio::join!(helm_deployed::get(work, last.revision), helm_deployed::missing(work, &wanted));
    if !is_as(&rendered, &wanted, &there?)? {
        return Ok(Compared::Other);
    }
    let missing: Vec<String> = missing?.into_iter().map(Document::title).collect();
    if !missing.is_empty() {
        return Ok(Compared::Missing(missing));
    }
    work.kit.course.keep_named(helm_deployed::workloads(work, &wanted));
    Ok(Compared::AsDeployed(last.revision))
}

/// Whether this is what is deployed, hooks included.
fn is_as(rendered: &Rendered, wanted: &[Document], there: &Deployed) -> Result<bool, Failure> {
    let hooks: Vec<&str> = rendered.hooks.iter().map(|hook| hook.manifest.as_str()).collect();
    Ok(is_same(wanted, &objects(&there.manifest)?)
        && is_same(&objects(&hooks.join("\n---\n"))?, &objects(&there.hooks)?))
}

/// Whether two manifests have the same objects, in whatever order.
fn is_same(one: &[Document], other: &[Document]) -> bool {
    let sorted = |objects: &'_ [Document]| {
        let mut objects: Vec<(Key, serde_json::Value)> =
            objects.iter().map(|document| (key(document), document.object.clone())).collect();
        objects.sort_by(|one, other| one.0.cmp(&other.0));
        objects
    };
    sorted(one) == sorted(other)
}

/// The objects in a manifest.
pub(crate) fn objects(manifest: &str) -> Result<Vec<Document>, Failure> {
    document::parse("the chart", manifest).map_err(|failure| Failure { code: Code::ChartFailed, ..failure })
}

pub(crate) fn unreadable(work: &Work<'_>) -> Failure {
    Failure::new(Code::ChartFailed, format!("what Helm rendered for release {} cannot be read", work.chart.release))
}

pub(crate) fn stop_if_asked(work: &Work<'_>) -> Result<(), End> {
    if !work.kit.stop.is_asked() {
        return Ok(());
    }
    Err(End::stopped("stopped while planning the chart"))
}

type Key = (String, Option<String>, String);

fn key(document: &Document) -> Key {
    (document.kind.clone(), document.namespace.clone(), document.name.clone())
}

/// Says each object with what would happen to it, and counts. What is deployed and gone is made anew.
async fn compare(work: &Work<'_>, wanted: &[Document], there: &[Document], gone: &BTreeSet<Key>) -> String {
    let mut before: BTreeMap<Key, &Document> = there.iter().map(|document| (key(document), document)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for document in wanted {
        let (change, word) = match before.remove(&key(document)) {
            Some(_) if gone.contains(&key(document)) => (ObjectChange::Created, "to create"),
            None => (ObjectChange::Created, "to create"),
            Some(former) if former.object == document.object => (ObjectChange::Unchanged, "unchanged"),
            Some(_) => (ObjectChange::Configured, "to change"),
        };
        *counts.entry(word).or_default() += 1;
        say(work, document, change).await;
    }
    for document in before.into_values() {
        *counts.entry("to delete").or_default() += 1;
        say(work, document, ObjectChange::Deleted).await;
    }
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if counts.is_empty() { "no objects".to_owned() } else { counts.join(", ") }
}

/// Says what would happen to an object.
pub(crate) async fn say(work: &Work<'_>, document: &Document, change: ObjectChange) {
    // A kind that is not served yet has no known scope; then only what the chart says is said.
    let resource = work.kit.cluster.resource(&document.api_version, &document.kind).await.ok().flatten();
    let namespace = match resource.map(|resource| resource.scope) {
        Some(Scope::Namespaced) => document.namespace.clone().or_else(|| Some(work.chart.namespace.clone())),
        Some(Scope::Cluster) => None,
        None => document.namespace.clone(),
    };
    let object = ObjectName { kind: document.kind.clone(), namespace, name: document.name.clone() };
    work.kit.updates.send(Update::Object { object, change, taken_over: Vec::new() });
}
