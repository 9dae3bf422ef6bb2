//! *Wait for readiness*, and the wait for the operator: looks at workloads until all are ready, the time is up, or a
//! stop is asked for.
//!
//! What is said meanwhile is what changed: a workload that is not ready and why, and that it is ready now. A pod that
//! merely takes its time is said after a while only; one in trouble at once.
//!
//! What is waited for is everything that runs in the instance's namespace, and whatever its release's manifest names,
//! wherever that is: a workload that somebody deleted is not there to be looked at, and yet not ready.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::{Instant, human};
use crate::cluster::wait::{Look, Named, Seen, State, Workload};
use crate::config::Deployment;
use crate::failure::{Code, Failure};
use crate::step::halt::{Or, drive, stopped, unless_stopped};
use crate::step::helm_deployed::named_workloads;
use crate::step::{Kit, Mode, ObjectName, Outcome, Update};

/// How often workloads are looked at: often at first, because most are ready soon.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often they are looked at after [`PATIENCE`].
const LOOK_EVERY_LATER: Duration = Duration::from_secs(1);

/// How often workloads are looked at while something else waits for them.
const LOOK_MEANWHILE: Duration = Duration::from_secs(2);

/// How long a pod may take before it is said that it takes its time.
const PATIENCE: Duration = Duration::from_secs(15);

/// The step *Wait for readiness*.
pub async fn wait_for_readiness(kit: &Kit) -> Outcome {
    // Not below: a force that drops what it waits for would leave a Helm to itself.
    let named = match named_workloads(kit).await {
        Ok(named) => named,
        Err(end) => return end.into_outcome(),
    };
    drive(kit, async {
        let Some(instance) = &kit.bundle.instance else {
            return Ok(Outcome::Nothing("the bundle has no instance".to_owned()));
        };
        if kit.mode == Mode::DryRun {
            return Ok(Outcome::Nothing("a dry run starts nothing to wait for".to_owned()));
        }
        let target = Target::Instance { namespace: &instance.namespace, named: &named };
        match until_ready(kit, target, instance.readiness_timeout, Code::ReadinessTimedOut).await? {
            Or::Ended(look) => Ok(Outcome::Done(count(&look))),
            Or::Stopped => Ok(stopped("stopped waiting; nothing was changed")),
        }
    })
    .await
}

/// What is waited for.
#[derive(Debug, Clone, Copy)]
pub(in crate::step) enum Target<'a> {
    /// One Deployment and its pods.
    Deployment(&'a Deployment),
    /// Every workload of a namespace, and what has to be there.
    Instance {
        /// The namespace.
        namespace: &'a str,
        /// What the release names.
        named: &'a [Named],
    },
}

impl Target<'_> {
    fn namespace(&self) -> &str {
        match self {
            Target::Deployment(deployment) => &deployment.namespace,
            Target::Instance { namespace, .. } => namespace,
        }
    }

    fn title(&self) -> String {
        match self {
            Target::Deployment(deployment) => format!("Deployment {}/{}", deployment.namespace, deployment.name),
            Target::Instance { namespace, .. } => format!("the instance in {namespace}"),
        }
    }
}

/// Waits until the target is ready. Fails with `timed_out` after `limit`, with every workload that is not and why.
pub(in crate::step) async fn until_ready(
    kit: &Kit,
    target: Target<'_>,
    limit: Duration,
    timed_out: Code,
) -> Result<Or<Look>, Failure> {
    let started = kit.clock.now();
    let mut watch = Watch::new(started);
    loop {
        let looked = async {
            match target {
                Target::Deployment(deployment) => {
                    kit.cluster.look_at_deployment(&deployment.namespace, &deployment.name).await
                }
                Target::Instance { namespace, named } => kit.cluster.look_at_named(namespace, named).await,
            }
        };
        let seen = match unless_stopped(kit, looked).await {
            Or::Ended(seen) => seen?,
            Or::Stopped => return Ok(Or::Stopped),
        };
        let now = kit.clock.now();
        for update in watch.heed(&seen, now) {
            kit.updates.send(update);
        }
        if let Seen::Look(look) = &seen
            && look.is_ready()
        {
            return Ok(Or::Ended(look.clone()));
        }
        let waited = now.since(started);
        if waited >= limit {
            return Err(too_late(target, limit, timed_out, &seen));
        }
        let pause = if waited < PATIENCE { LOOK_EVERY } else { LOOK_EVERY_LATER };
        if unless_stopped(kit, sleep(pause.min(limit.saturating_sub(waited)))).await == Or::Stopped {
            return Ok(Or::Stopped);
        }
    }
}

/// Says what is not ready and why, for as long as something else works and waits for it.
///
/// It only tells. What it may not see, or is not answered, is the other's to find out.
pub(in crate::step) async fn tell_meanwhile<T>(kit: &Kit, namespace: &str, work: impl Future<Output = T>) -> T {
    let telling = async {
        let mut watch = Watch::new(kit.clock.now());
        loop {
            sleep(LOOK_MEANWHILE).await;
            match kit.cluster.look_at_namespace(namespace).await {
                Ok(Seen::Look(look)) => {
                    let seen = Seen::Look(Look { unseen: Vec::new(), ..look });
                    watch.heed(&seen, kit.clock.now()).into_iter().for_each(|update| kit.updates.send(update));
                }
                Ok(Seen::NoAnswer(_)) => {}
                Err(_) => std::future::pending().await,
            }
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        never = telling => never,
    }
}

fn too_late(target: Target<'_>, limit: Duration, code: Code, seen: &Seen) -> Failure {
    let failure = Failure::new(code, format!("{} was not ready within {}", target.title(), human(limit)));
    let look = match seen {
        Seen::Look(look) => look,
        Seen::NoAnswer(last) => return last.causes.iter().fold(failure.cause(&last.message), Failure::cause),
    };
    let tell = |of: fn(&State) -> Option<&str>| {
        look.workloads.iter().filter_map(move |workload| {
            let why = of(&workload.state)?;
            let Workload { kind, namespace, name, .. } = workload;
            let elsewhere = if namespace == target.namespace() { String::new() } else { format!("{namespace}/") };
            Some(format!("{kind} {elsewhere}{name}: {why}"))
        })
    };
    let troubled = tell(|state| if let State::Trouble(why) = state { Some(why) } else { None });
    let starting = tell(|state| if let State::Starting(why) = state { Some(why) } else { None });
    troubled.chain(starting).fold(failure, Failure::cause)
}

/// `2 Deployments and 3 Pods are ready`.
fn count(look: &Look) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for workload in &look.workloads {
        *counts.entry(workload.kind).or_default() += 1;
    }
    let mut parts: Vec<String> =
        counts.iter().map(|(kind, count)| format!("{count} {kind}{}", if *count == 1 { "" } else { "s" })).collect();
    match (parts.pop(), look.workloads.len()) {
        (None, _) => "nothing runs there".to_owned(),
        (Some(last), 1) => format!("{last} is ready"),
        (Some(last), _) if parts.is_empty() => format!("{last} are ready"),
        (Some(last), _) => format!("{} and {last} are ready", parts.join(", ")),
    }
}

/// What was said so far, so that only what changed is said.
struct Watch {
    started: Instant,
    said: BTreeMap<(&'static str, String, String), String>,
    unseen: Vec<String>,
    silent: bool,
}

impl Watch {
    fn new(started: Instant) -> Watch {
        Watch { started, said: BTreeMap::new(), unseen: Vec::new(), silent: false }
    }

    fn heed(&mut self, seen: &Seen, now: Instant) -> Vec<Update> {
        let look = match seen {
            Seen::Look(look) => look,
            Seen::NoAnswer(_) if self.silent => return Vec::new(),
            Seen::NoAnswer(failure) => {
                self.silent = true;
                return vec![Update::Note(format!("{}; looking again", failure.message))];
            }
        };
        self.silent = false;
        let mut updates = Vec::new();
        for sentence in &look.unseen {
            if !self.unseen.contains(sentence) {
                self.unseen.push(sentence.clone());
                updates.push(Update::Note(format!("{sentence}; what of it there is, is seen through its pods")));
            }
        }
        let patient = now.since(self.started) < PATIENCE;
        updates.extend(look.workloads.iter().filter_map(|workload| self.of_workload(workload, patient)));
        updates
    }

    fn of_workload(&mut self, workload: &Workload, patient: bool) -> Option<Update> {
        let Workload { kind, namespace, name, .. } = workload.clone();
        let object = ObjectName { kind: kind.to_owned(), namespace: Some(namespace.clone()), name: name.clone() };
        let key = (kind, namespace, name);
        match &workload.state {
            State::Ready => self.said.remove(&key).map(|_| Update::Ready { object }),
            State::Starting(_) if workload.kind == "Pod" && patient => None,
            State::Starting(why) | State::Trouble(why) => {
                let before = self.said.insert(key, why.clone());
                (before.as_ref() != Some(why)).then(|| Update::Waiting { object, why: why.clone() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(workloads: &[(&'static str, &str, State)]) -> Seen {
        let workloads = workloads.iter().map(|(kind, name, state)| Workload {
            kind,
            namespace: "n".to_owned(),
            name: (*name).to_owned(),
            state: state.clone(),
        });
        Seen::Look(Look { workloads: workloads.collect(), unseen: Vec::new() })
    }

    fn at(seconds: u64) -> Instant {
        Instant::since_boot(Duration::from_secs(seconds))
    }

    fn said(updates: &[Update]) -> Vec<String> {
        updates
            .iter()
            .map(|update| match update {
                Update::Waiting { object, why } => format!("{} {}: {why}", object.kind, object.name),
                Update::Ready { object } => format!("{} {} ready", object.kind, object.name),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn only_what_changed_is_said() {
        let mut watch = Watch::new(at(0));
        let starting = State::Starting("0 of 1 pods are available".to_owned());
        let slow = State::Starting("it is being started".to_owned());
        let pulled = State::Trouble("no image".to_owned());
        let both = |pod: &State| look(&[("Deployment", "d", starting.clone()), ("Pod", "p", pod.clone())]);
        assert_eq!(said(&watch.heed(&both(&slow), at(1))), ["Deployment d: 0 of 1 pods are available"]);
        assert!(watch.heed(&both(&slow), at(2)).is_empty());
        assert_eq!(said(&watch.heed(&both(&pulled), at(3))), ["Pod p: no image"]);
        assert!(watch.heed(&both(&pulled), at(4)).is_empty());
        assert_eq!(said(&watch.heed(&both(&slow), at(20))), ["Pod p: it is being started"]);
        let done = look(&[("Deployment", "d", State::Ready), ("Pod", "p", State::Ready), ("Pod", "q", State::Ready)]);
        assert_eq!(said(&watch.heed(&done, at(21))), ["Deployment d ready", "Pod p ready"]);
    }

    #[test]
    fn a_pod_that_went_away_is_not_called_ready() {
        let mut watch = Watch::new(at(0));
        watch.heed(&look(&[("Pod", "p", State::Trouble("no image".to_owned()))]), at(1));
        assert!(watch.heed(&look(&[]), at(2)).is_empty());
    }

    #[test]
    fn what_is_not_ready_in_time_is_named_troubles_first() {
        let seen = look(&[
            ("Deployment", "d", State::Starting("0 of 1 pods are available".to_owned())),
            ("Pod", "p", State::Trouble("no image".to_owned())),
            ("Pod", "q", State::Ready),
        ]);
        let target = Target::Instance { namespace: "n", named: &[] };
        let failure = too_late(target, Duration::from_secs(300), Code::ReadinessTimedOut, &seen);
        assert_eq!(failure.message, "the instance in n was not ready within 5m0s");
        assert_eq!(failure.causes, ["Pod p: no image", "Deployment d: 0 of 1 pods are available"]);
    }

    #[test]
    fn the_count_reads_like_a_sentence() {
        let of = |workloads: &[(&'static str, &str, State)]| match look(workloads) {
            Seen::Look(look) => count(&look),
            Seen::NoAnswer(_) => unreachable!("made above"),
        };
        let ready = |kind: &'static str, name: &'static str| (kind, name, State::Ready);
        assert_eq!(of(&[]), "nothing runs there");
        assert_eq!(of(&[ready("Pod", "p")]), "1 Pod is ready");
        assert_eq!(of(&[ready("Pod", "p"), ready("Pod", "q")]), "2 Pods are ready");
        let three = [ready("Pod", "p"), ready("Pod", "q"), ready("Deployment", "d")];
        assert_eq!(of(&three), "1 Deployment and 2 Pods are ready");
    }
}
