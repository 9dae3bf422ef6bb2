//! What installing the chart would change, without changing it.
//!
//! Helm renders the chart against the API server (`--dry-run=server`); where the namespace or a kind is not there yet,
//! it renders alone. What comes out carries the chart's secrets, so it is read here and shown to nobody: only kinds
//! and names are said, each compared with the release that is there.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::cluster::discovery::Scope;
use crate::cluster::document::{self, Document};
use crate::failure::{Code, Failure};
use crate::process::{Exit, Manner};
use crate::step::helm::{End, Work};
use crate::step::helm_release::Revision;
use crate::step::helm_says::Says;
use crate::step::invoke::{Raw, words};
use crate::step::tofu_outputs::Given;
use crate::step::{ObjectChange, ObjectName, Outcome, Severity, Update};

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
    manifest: String,
}

/// Says what would change.
pub(crate) async fn plan(work: &Work<'_>) -> Result<Outcome, End> {
    let history = work.history().await?;
    let release = &work.chart.release;
    if let Some(half) = work.consider(&history).await? {
        // Until that is done, Helm refuses to say anything about an upgrade.
        return Ok(Outcome::Done(format!(
            "{}; in a real run {}, and then the chart is installed",
            half.shown,
            half.deed()
        )));
    }
    say_what_is_unknown(work);
    let rendered = render(work).await?;
    let wanted = objects(&rendered.manifest)?;
    let there = match deployed(&history) {
        Some(revision) => objects(&manifest(work, revision).await?)?,
        None => Vec::new(),
    };
    let counts = compare(work, &wanted, &there).await;
    for hook in &rendered.hooks {
        work.kit.updates.send(Update::Note(format!("would run the chart's hook {} {}", hook.kind, hook.name)));
    }
    let verb = if there.is_empty() { "install" } else { "upgrade" };
    Ok(Outcome::Done(format!("would {verb} release {release}: {counts}")))
}

fn say_what_is_unknown(work: &Work<'_>) {
    let unknown = |(_, output): &(&String, &String)| matches!(work.kit.outputs.get(output), Some(Given::Unknown));
    let values = work.chart.outputs.iter().filter(unknown);
    let values: Vec<String> = values.map(|(key, output)| format!("{key} (output `{output}`)")).collect();
    if !values.is_empty() {
        let note =
            format!("chart values that are known only once the infrastructure is applied: {}", values.join(", "));
        work.kit.updates.send(Update::Note(note));
    }
}

fn deployed(history: &[Revision]) -> Option<u64> {
    history.iter().rev().find(|revision| revision.status == "deployed").map(|revision| revision.revision)
}

async fn render(work: &Work<'_>) -> Result<Rendered, End> {
    let mut args = words(&["upgrade", "--install", &work.chart.release]);
    args.push(work.chart.path.clone().into());
    args.extend(work.in_namespace());
    let values = work.values()?;
    args.extend(values.clone());
    args.extend(words(&["--dry-run=server", "-o", "json"]));
    let mut call = work.call("helm upgrade --dry-run", args, Manner::Query);
    call.raw = Raw::Secret;
    let (says, done) = work.hear(call).await?;
    if done.ended.exit.is_success() {
        let answer = done.answer()?;
        // Helm may say a sentence before the JSON.
        let begin = answer.iter().position(|byte| *byte == b'{').unwrap_or(0);
        let rendered =
            serde_json::from_slice(&answer[begin..]).map(|rendered| Rendered { is_checked: true, ..rendered });
        return rendered.map_err(|error| unreadable(work).because(&error).into());
    }
    stop_if_asked(work)?;
    if !says.is_about_order() {
        return Err(refused(work, &says, done.ended.exit));
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
        return Err(refused(work, &says, done.ended.exit));
    }
    let manifest = String::from_utf8_lossy(&done.answer()?).into_owned();
    Ok(Rendered { manifest, hooks: Vec::new(), is_checked: false })
}

fn refused(work: &Work<'_>, says: &Says, exit: Exit) -> End {
    if let Some(diagnostic) = says.diagnostic(Severity::Error) {
        work.kit.updates.send(diagnostic);
    }
    let sentence = format!("a dry run of release {} failed: Helm ended with {exit}", work.chart.release);
    says.lines().fold(Failure::new(Code::ChartFailed, sentence), Failure::cause).into()
}

/// The newest revision, if it is deployed and a real run would render the very same objects and hooks.
pub(crate) async fn is_as_deployed(work: &Work<'_>, history: &[Revision]) -> Result<Option<u64>, End> {
    let Some(last) = history.last().filter(|last| last.status == "deployed") else { return Ok(None) };
    let rendered = render(work).await?;
    if !rendered.is_checked || !is_same(&rendered.manifest, &manifest(work, last.revision).await?)? {
        return Ok(None);
    }
    let hooks: Vec<&str> = rendered.hooks.iter().map(|hook| hook.manifest.as_str()).collect();
    let same = is_same(&hooks.join("\n---\n"), &get(work, "hooks", last.revision).await?)?;
    Ok(same.then_some(last.revision))
}

/// Whether two manifests have the same objects, in whatever order.
fn is_same(one: &str, other: &str) -> Result<bool, Failure> {
    let sorted = |manifest| -> Result<Vec<Document>, Failure> {
        let mut objects = objects(manifest)?;
        objects.sort_by_key(key);
        Ok(objects)
    };
    let (one, other) = (sorted(one)?, sorted(other)?);
    Ok(one.iter().map(|document| &document.object).eq(other.iter().map(|document| &document.object)))
}

/// The manifest of a revision, as Helm keeps it.
pub(crate) async fn manifest(work: &Work<'_>, revision: u64) -> Result<String, End> {
    get(work, "manifest", revision).await
}

/// What Helm keeps of a revision.
async fn get(work: &Work<'_>, what: &str, revision: u64) -> Result<String, End> {
    let mut args = words(&["get", what, &work.chart.release, "--revision", &revision.to_string()]);
    args.extend(work.in_namespace());
    let mut call = work.call(&format!("helm get {what}"), args, Manner::Query);
    call.raw = Raw::Secret;
    let (says, done) = work.hear(call).await?;
    if done.ended.exit.is_success() {
        return Ok(String::from_utf8_lossy(&done.answer()?).into_owned());
    }
    stop_if_asked(work)?;
    let failure = unreadable(work).cause(says.summary().map_or_else(|| done.ended.exit.to_string(), str::to_owned));
    Err(failure.into())
}

/// The objects in a manifest.
pub(crate) fn objects(manifest: &str) -> Result<Vec<Document>, Failure> {
    document::parse("the chart", manifest).map_err(|failure| Failure { code: Code::ChartFailed, ..failure })
}

fn unreadable(work: &Work<'_>) -> Failure {
    Failure::new(Code::ChartFailed, format!("what Helm rendered for release {} cannot be read", work.chart.release))
}

fn stop_if_asked(work: &Work<'_>) -> Result<(), End> {
    if !work.kit.stop.is_asked() {
        return Ok(());
    }
    Err(End::stopped("stopped while planning the chart"))
}

type Key = (String, Option<String>, String);

fn key(document: &Document) -> Key {
    (document.kind.clone(), document.namespace.clone(), document.name.clone())
}

/// Says each object with what would happen to it, and counts.
async fn compare(work: &Work<'_>, wanted: &[Document], there: &[Document]) -> String {
    let mut before: BTreeMap<Key, &Document> = there.iter().map(|document| (key(document), document)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for document in wanted {
        let (change, word) = match before.remove(&key(document)) {
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
