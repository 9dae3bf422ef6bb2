//! *Upgrade chart*: moves a live release to the bundle's chart.
//!
//! A chart that renders to what is deployed, all of which is still there, is left alone: an upgrade would only make a
//! revision and run the hooks again. Where something of it is gone, the upgrade makes it anew.
//! Else it is the same `helm upgrade` as for a bootstrap. What failed stays as Helm left it, unless the caller asked to have
//! it rolled back; a rollback is never signalled.

use crate::failure::Failure;
use crate::process::Manner;
use crate::step::helm::{End, Work};
use crate::step::helm_deployed::deployed;
use crate::step::helm_plan::{self, Compared, up_to_date};
use crate::step::helm_release::Act;
use crate::step::invoke::words;
use crate::step::record::begin_upgrade;
use crate::step::{Kit, Mode, OnChartFailure, Outcome, Severity, Update};

/// The step *Upgrade chart*.
pub async fn upgrade(kit: &Kit) -> Outcome {
    let Some(chart) = kit.bundle.instance.as_ref().and_then(|instance| instance.chart.as_ref()) else {
        return Outcome::Nothing("the bundle has no chart".to_owned());
    };
    let helm = kit.helm.as_ref().expect("Helm was found when the surroundings were checked");
    let work = Work { kit, chart, helm };
    let ended = match kit.mode {
        Mode::Act => work.upgrade().await,
        Mode::DryRun => helm_plan::plan(&work).await,
    };
    ended.unwrap_or_else(End::into_outcome)
}

impl Work<'_> {
    async fn upgrade(&self) -> Result<Outcome, End> {
        let kit = self.kit;
        let history = self.history().await?;
        // Before anything is written: while another Helm may be at work, nothing of the instance is touched.
        self.consider(&history).await?;
        match helm_plan::compare_with_deployed(self, &history).await? {
            Compared::AsDeployed(revision) => return Ok(Outcome::Nothing(up_to_date(&self.chart.release, revision))),
            Compared::Missing(titles) => kit.updates.send(self.say_what_is_gone(&titles)),
            Compared::Other => {}
        }
        self.go_on("stopped before Helm changed anything")?;
        begin_upgrade(kit).await?;
        match self.install().await? {
            Outcome::Failed(failure) if kit.choices.on_chart_failure == OnChartFailure::Rollback => {
                Ok(Outcome::Failed(self.roll_back(failure).await))
            }
            outcome => Ok(outcome),
        }
    }

    fn say_what_is_gone(&self, titles: &[String]) -> Update {
        let what = match titles {
            [one] => format!("{one} is not there"),
            more => format!("{} objects are not there", more.len()),
        };
        Update::Diagnostic {
            severity: Severity::Warning,
            origin: "dcctl".to_owned(),
            summary: format!(
                "release {} is deployed, and {what}: the upgrade makes anew what is gone",
                self.chart.release
            ),
            detail: if titles.len() == 1 { String::new() } else { titles.join("\n") },
            address: None,
            source: None,
        }
    }

    /// Goes back to what was deployed before; the failure says what came of that.
    async fn roll_back(&self, failure: Failure) -> Failure {
        let history = match self.history().await {
            Ok(history) => history,
            Err(End::Failed(why)) => return failure.cause(format!("it was not rolled back: {}", why.message)),
            Err(End::Stopped(_)) => return failure.cause("it was not rolled back: the run was asked to stop"),
        };
        let Some(last) = history.last().filter(|last| last.status != "deployed") else { return failure };
        let Some(deployed) = deployed(&history) else {
            return failure.cause("it was not rolled back: no revision of it was ever deployed");
        };
        let mut args = words(&["rollback", &self.chart.release, &deployed.to_string()]);
        args.extend(self.in_namespace());
        args.extend(self.waiting());
        let about = self.about(last.revision, Act::Advance);
        match self.change("helm rollback", args, &about, Manner::Unsignalled).await {
            Ok((_, done)) if done.ended.exit.is_success() => {
                failure.cause(format!("the release was rolled back to revision {deployed}"))
            }
            Ok((says, done)) => {
                let why = says.summary().map_or_else(|| format!("Helm ended with {}", done.ended.exit), str::to_owned);
                failure.cause(format!("and it could not be rolled back to revision {deployed}: {why}"))
            }
            Err(why) => failure.cause(format!("and it could not be rolled back: {}", why.message)),
        }
    }
}
