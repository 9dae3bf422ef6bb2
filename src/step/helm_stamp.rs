//! The instance's release by its stamp: what *Check the cluster* and *Mark destroying* ask of it before anything is touched.
//!
//! Helm knows a release by its name alone. A bundle that names another one would install a second beside the first, or
//! destroy the instance around it; the stamp on the record tells whose the first is.

use std::collections::BTreeSet;

use crate::cluster::release::StampedRelease;
use crate::failure::{Code, Failure};
use crate::step::helm::{End, Work};
use crate::step::{Kit, Update, guard};

/// Refuses when the instance has a release that is not the one of this namespace and name.
pub(in crate::step) fn refuse_renamed(
    instance: &str,
    named: Option<(&str, &str)>,
    releases: &BTreeSet<StampedRelease>,
) -> Result<(), Failure> {
    let Some((namespace, name)) = named else { return Ok(()) };
    let another = releases.iter().find(|seen| seen.is_another_of(instance, named));
    let Some(StampedRelease { namespace: place, name: theirs, .. }) = another else { return Ok(()) };
    let message = format!(
        "the instance \"{instance}\" has the Helm release {theirs} in {place}, and this bundle names {name} in {namespace}"
    );
    Err(Failure::new(Code::ClaimConflict, message)
        .cause("Helm does not rename a release: it would make a second one beside the first")
        .hint(format!("if {theirs} is to stay, name it in `instance.chart.release` of the bundle"))
        .hint(format!("if it may go, with all that it has: `helm uninstall {theirs} --namespace {place}`")))
}

/// The same for a destroy, which does not look at other instances.
pub(in crate::step) async fn look_for_renamed(kit: &Kit) -> Result<(), Failure> {
    let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else { return Ok(()) };
    let Some(chart) = &instance.chart else { return Ok(()) };
    let namespace = kit.cluster.namespace(&instance.namespace).await?;
    let (releases, unseen) = guard::releases(kit, instance, &namespace).await?;
    refuse_renamed(name, Some((&chart.namespace, &chart.release)), &releases)?;
    if let Some(note) = unseen {
        kit.updates.send(Update::Note(note));
    }
    Ok(())
}

/// Refuses a release that another Helm may be at work on. What can be repaired is left to the chart's own step.
pub(in crate::step) async fn refuse_pending(kit: &Kit) -> Result<(), End> {
    let chart = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref());
    let (Some(chart), Some(helm)) = (chart, &kit.helm) else { return Ok(()) };
    let work = Work { kit, chart, helm };
    work.consider(&work.history().await?).await.map(drop)
}
