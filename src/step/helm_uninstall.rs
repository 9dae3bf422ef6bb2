//! *Uninstall chart*: the instance's Helm release goes, whatever state it is in.
//!
//! Helm's uninstall works on a release that was left half way, so nothing is repaired first; but while another Helm may be
//! at work on it, it is left alone. An uninstall is never signalled: Helm would leave the release as `uninstalling`, with
//! half of its objects gone.

use crate::cluster::document::Document;
use crate::failure::{Code, Failure};
use crate::process::Manner;
use crate::step::halt::{Asked, was_stopped};
use crate::step::helm::{End, Work};
use crate::step::helm_release::Act;
use crate::step::invoke::words;
use crate::step::{Kit, Mode, ObjectChange, Outcome, Stopped, Update};
use crate::step::{helm_deployed, helm_plan};

/// The step *Uninstall chart*.
pub async fn uninstall(kit: &Kit) -> Outcome {
    let Some(chart) = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref()) else {
        return Outcome::Nothing("the bundle has no chart".to_owned());
    };
    let helm = kit.helm.as_ref().expect("Helm was found when the surroundings were checked");
    let work = Work { kit, chart, helm };
    remove(&work).await.unwrap_or_else(End::into_outcome)
}

async fn remove(work: &Work<'_>) -> Result<Outcome, End> {
    let (kit, release) = (work.kit, work.chart.release.as_str());
    let history = work.history().await?;
    let Some(last) = history.last() else {
        return Ok(Outcome::Nothing(format!("there is no release {release} in {}", work.chart.namespace)));
    };
    if let Some(half) = work.consider(&history).await? {
        kit.updates.send(Update::Note(half.shown));
    }
    if kit.mode == Mode::DryRun {
        return would_remove(work, last.revision).await;
    }
    work.go_on("stopped before the release was uninstalled")?;
    let mut args = words(&["uninstall", release, "--ignore-not-found"]);
    args.extend(work.in_namespace());
    args.extend(work.waiting());
    let about = work.about(last.revision, Act::Uninstall);
    let (says, done) = work.change("helm uninstall", args, &about, Manner::Unsignalled).await?;
    let ended = &done.ended;
    if ended.exit.is_success() {
        return Ok(Outcome::Done(format!("release {release} is uninstalled")));
    }
    if was_stopped(ended, Asked::of(kit)) {
        let note = format!("`helm uninstall` had to be ended; release {release} is not gone");
        return Err(End::Stopped(Stopped { clean: false, unfinished: vec![format!("release {release}")], note }));
    }
    // Its record may have gone with its namespace meanwhile.
    if work.history().await?.is_empty() {
        return Ok(Outcome::Done(format!("release {release} is gone")));
    }
    let sentence = format!("release {release} could not be uninstalled: Helm ended with {}", ended.exit);
    let failure = says.lines().fold(Failure::new(Code::ChartFailed, sentence), Failure::cause);
    Err(failure.hint("mend what keeps it, then run the same command again: it goes on from there").into())
}

/// Says each object of the release that would go.
async fn would_remove(work: &Work<'_>, revision: u64) -> Result<Outcome, End> {
    let objects: Vec<Document> = helm_plan::objects(&helm_deployed::get(work, revision).await?.manifest)?;
    for object in &objects {
        helm_plan::say(work, object, ObjectChange::Deleted).await;
    }
    Ok(Outcome::Done(format!("would uninstall release {}: {} to delete", work.chart.release, objects.len())))
}
