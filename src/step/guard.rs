//! *Check the cluster*: refuses what would harm another instance, or build over this one.
//!
//! Three questions, each answered from the cluster and not from memory: is this instance free to be built, is its
//! namespace its own, and is what it claims still free? And one of this machine: is the OpenTofu state here its own? The answers are gathered first and judged in one pure
//! function. Who cannot be asked about its claims is never taken to have none.

use crate::cluster::instances::{INSTANCE_LABEL, Instance, Phase, Stamped};
use crate::cluster::namespace::Namespace;
use crate::cluster::release::StampedRelease;
use crate::config;
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::step::elsewhere::{self, Bearers, Home, Own};
use crate::step::halt::{drive, stopped};
use crate::step::{Kit, Outcome, Part, Update, claims, declaration, helm, origin};

/// The step *Check the cluster*, for a bootstrap or an upgrade. It only reads, so a dry run does the same.
pub async fn check_cluster(kit: &Kit) -> Outcome {
    drive(kit, async {
        let (Some(name), Some(instance)) = (&kit.instance, &kit.bundle.instance) else {
            return Ok(Outcome::Nothing("the bundle has no instance".to_owned()));
        };
        let instances = kit.cluster.instances().await?;
        if kit.stop.is_asked() {
            return Ok(stopped("nothing was changed"));
        }
        let stamped = kit.cluster.stamped_secrets().await?;
        let namespace = kit.cluster.namespace(&instance.namespace).await?;
        let (mine, others): (Vec<Instance>, Vec<Instance>) = instances.into_iter().partition(|seen| seen.name == *name);
        let wish = Wish {
            name,
            namespace: &instance.namespace,
            claims: &instance.claims,
            max_connections: kit.bundle.max_connections,
            verb: kit.verb,
            is_declared: instance.declaration.is_some(),
        };
        let bearers = elsewhere::look(kit, name, instance, Own::of(&namespace)).await?;
        let (mine, release) = (mine.first(), elsewhere::release(instance));
        let seen = Cluster { mine, others: &others, stamped: &stamped, bearers: &bearers, release, namespace };
        let notes = judge(&wish, &seen)?;
        // In a namespace that is yet to be made there is none.
        if seen.namespace != Namespace::Missing
            && let Err(end) = helm::refuse_pending(kit).await
        {
            return Ok(end.into_outcome());
        }
        for note in notes {
            kit.updates.send(Update::Note(note));
        }
        bearers.say_what_is_unseen(kit);
        origin::own_state(kit, Part::Infrastructure).await?;
        if kit.verb == Verb::Upgrade {
            declaration::would_fit(kit).await?;
            if mine.is_some_and(|mine| is_settled(mine, &kit.bundle.version)) {
                kit.course.settle();
            }
        }
        Ok(Outcome::Done(match others.len() {
            0 => "no other instance is declared on this cluster".to_owned(),
            1 => "1 other instance is declared on this cluster; nothing is in the way".to_owned(),
            count => format!("{count} other instances are declared on this cluster; nothing is in the way"),
        }))
    })
    .await
}

/// What a bootstrap or an upgrade wants.
#[derive(Debug, Clone, Copy)]
pub(in crate::step) struct Wish<'a> {
    pub(in crate::step) name: &'a str,
    pub(in crate::step) namespace: &'a str,
    pub(in crate::step) claims: &'a config::Claims,
    pub(in crate::step) max_connections: Option<u32>,
    pub(in crate::step) verb: Verb,
    /// The bundle declares its instances.
    pub(in crate::step) is_declared: bool,
}

/// What is on the cluster.
#[derive(Debug)]
pub(in crate::step) struct Cluster<'a> {
    pub(in crate::step) mine: Option<&'a Instance>,
    pub(in crate::step) others: &'a [Instance],
    pub(in crate::step) stamped: &'a [Stamped],
    pub(in crate::step) bearers: &'a Bearers,
    /// Where this instance's release has its record, and its name.
    pub(in crate::step) release: Option<(&'a str, &'a str)>,
    pub(in crate::step) namespace: Namespace,
}

/// Decides. The notes are facts that whoever reads the log should know.
fn judge(wish: &Wish<'_>, cluster: &Cluster<'_>) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    match (wish.verb, cluster.mine) {
        (Verb::Upgrade, mine) => notes.extend(may_be_moved(wish, mine)?),
        (_, Some(mine)) => notes.extend(may_be_built(mine)?),
        (_, None) => {}
    }
    let home = Home { name: wish.name, namespace: wish.namespace, release: cluster.release, verb: wish.verb };
    elsewhere::judge(&home, Own::of(&cluster.namespace), cluster.bearers)?;
    if wish.verb == Verb::Upgrade && cluster.namespace == Namespace::Missing {
        return Err(has_no_namespace(wish, cluster.bearers.unseen_namespaces.as_deref()));
    }
    is_its_own(wish, &cluster.namespace)?;
    release_is_free(wish, cluster)?;
    notes.extend(claims::are_free(wish, cluster)?);
    Ok(notes)
}

/// What to do about an instance that is on its way out.
pub(in crate::step) const WAIT_FOR_ITS_END: &str =
    "`dcctl destroy` goes on with removing it; when its declaration is gone, it can be built anew";

/// Whether an instance that is declared already may be built, or built on.
pub(in crate::step) fn may_be_built(mine: &Instance) -> Result<Option<String>, Failure> {
    let name = &mine.name;
    let live = |message: String| Failure::new(Code::LiveInstance, message);
    if let Some(deleted_at) = &mine.deleted_at {
        return Err(live(format!(
            "the declaration of \"{name}\" was deleted at {deleted_at} and waits for its instance"
        ))
        .hint(WAIT_FOR_ITS_END));
    }
    let Some(word) = &mine.phase else {
        return Ok(Some(format!("\"{name}\" is declared without a phase: nothing of it was built by dcctl")));
    };
    match Phase::parse(word) {
        Some(Phase::Ready | Phase::Upgrading) => Err(live(format!("the instance \"{name}\" is live (phase {word})"))
            .hint(format!(
                "it was left as it is: `dcctl upgrade {name}` moves a live instance to the bundle's release"
            ))),
        Some(Phase::Destroying) => {
            Err(live(format!("the instance \"{name}\" is being destroyed (phase {word})")).hint(WAIT_FOR_ITS_END))
        }
        Some(Phase::Bootstrapping | Phase::Failed) => match &mine.release {
            // What a bootstrap plans it applies: of what was complete it could take something away, unasked.
            Some(release) => Err(live(format!(
                "the instance \"{name}\" was completely built once, of release {release} (phase {word} now)"
            ))
            .hint(format!("`dcctl upgrade {name}` goes on with it, and takes nothing away unasked"))),
            None => {
                Ok(Some(format!("an earlier run on \"{name}\" ended in phase {word}; this one goes on from there")))
            }
        },
        None => Err(Failure::new(
            Code::CannotTell,
            format!("the declaration of \"{name}\" is in phase \"{word}\", which this dcctl does not know"),
        )
        .hint("use a dcctl that is as new as the one that wrote it")),
    }
}

/// Whether an instance may be moved to another release: one that was completely built once, so that its declaration says
/// of which release it is.
fn may_be_moved(wish: &Wish<'_>, mine: Option<&Instance>) -> Result<Option<String>, Failure> {
    let name = wish.name;
    let missing = |message: String| {
        Err(Failure::new(Code::InstanceMissing, message).hint(format!("`dcctl bootstrap {name}` builds it")))
    };
    let Some(mine) = mine else {
        if wish.is_declared {
            return missing(format!("the instance \"{name}\" is not declared on this cluster"));
        }
        return Ok(None);
    };
    if mine.deleted_at.is_some() {
        return may_be_built(mine);
    }
    let Some(word) = mine.phase.as_deref() else {
        return missing(format!("\"{name}\" is declared without a phase: nothing of it was built by dcctl"));
    };
    match Phase::parse(word) {
        Some(Phase::Ready) => Ok(None),
        Some(Phase::Bootstrapping | Phase::Failed) if mine.release.is_none() => {
            missing(format!("the instance \"{name}\" was never completely built (phase {word})"))
        }
        Some(Phase::Bootstrapping | Phase::Failed | Phase::Upgrading) => {
            Ok(Some(format!("an earlier run on \"{name}\" ended in phase {word}; this one goes on from there")))
        }
        Some(Phase::Destroying) | None => may_be_built(mine),
    }
}

/// An instance that is to be moved, and whose namespace is not there. To remove what is left of it is advice for one that
/// lives nowhere else only.
fn has_no_namespace(wish: &Wish<'_>, unseen: Option<&str>) -> Failure {
    let Wish { name, namespace, .. } = wish;
    let sentence = format!("the namespace {namespace} of the instance \"{name}\" is not there");
    let failure = Failure::new(Code::InstanceMissing, sentence);
    let anew =
        format!("`dcctl destroy {name}` removes what is left of it, and then `dcctl bootstrap {name}` builds it anew");
    let Some(unseen) = unseen else { return failure.hint(anew) };
    failure
        .cause(unseen)
        .hint(format!("look first: kubectl get namespaces -l {INSTANCE_LABEL}={name}"))
        .hint("if there is one, it lives there: use the bundle that it was built from")
        .hint(format!("only if there is none: {anew}"))
}

/// Whether an instance is ready and of this release: what is found unchanged then needs no look.
fn is_settled(mine: &Instance, version: &str) -> bool {
    mine.phase.as_deref() == Some(Phase::Ready.word()) && mine.release.as_deref() == Some(version)
}

fn is_its_own(wish: &Wish<'_>, namespace: &Namespace) -> Result<(), Failure> {
    let (name, instance) = (wish.namespace, wish.name);
    let taken = |message: String| Err(Failure::new(Code::ClaimConflict, message));
    match namespace {
        Namespace::Missing => Ok(()),
        Namespace::There { instance: Some(owner), .. } if owner == instance => Ok(()),
        Namespace::There { instance: Some(owner), .. } => {
            taken(format!("namespace {name} belongs to the instance \"{owner}\""))
        }
        Namespace::There { instance: None, .. } => {
            let failure = Failure::new(
                Code::ClaimConflict,
                format!("namespace {name} is there, and nothing says that it is for the instance \"{instance}\""),
            );
            Err(failure.hint(format!("if it is, say so: kubectl label namespace {name} {INSTANCE_LABEL}={instance}")))
        }
        Namespace::Terminating { why } => {
            let failure = Failure::new(Code::ClaimConflict, format!("namespace {name} is still being deleted"));
            Err(failure.cause(why).hint("wait until it is gone, then run the same command again"))
        }
    }
}

/// Two instances whose releases have one name and one place would upgrade each other's.
fn release_is_free(wish: &Wish<'_>, cluster: &Cluster<'_>) -> Result<(), Failure> {
    let taken = cluster.bearers.releases.iter().find(|seen| {
        cluster.release == Some((&seen.namespace, &seen.name))
            && !seen.instance.is_empty()
            && seen.instance != wish.name
    });
    taken.map_or(Ok(()), |StampedRelease { namespace, name, instance, .. }| {
        let message = format!("the Helm release {name} in {namespace} is that of the instance \"{instance}\"");
        Err(Failure::new(Code::ClaimConflict, message)
            .hint("give `instance.chart.release` a name with ${instance} in it"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cluster::instances::{Claimed, Claims};
    use crate::cluster::namespace::Maker;

    fn instance(name: &str, phase: Option<&str>, claims: Claims) -> Instance {
        Instance {
            name: name.to_owned(),
            phase: phase.map(str::to_owned),
            claims,
            lineage: None,
            serial: None,
            release: None,
            applied: crate::cluster::instances::Applied::default(),
            created_at: None,
            deleted_at: None,
        }
    }

    fn written(host: Option<&str>, port: Option<u16>, connections: Option<u32>) -> Claims {
        Claims::Written(Claimed { ingress_host: host.map(str::to_owned), local_mqtt_port: port, connections })
    }

    fn wanted() -> config::Claims {
        config::Claims { ingress_host: Some("a.test".to_owned()), local_mqtt_port: Some(1883), connections: Some(60) }
    }

    fn ask(claims: &config::Claims, cluster: &Cluster<'_>) -> Result<Vec<String>, Failure> {
        let (verb, is_declared) = (Verb::Bootstrap, true);
        judge(&Wish { name: "a", namespace: "dci-a", claims, max_connections: Some(600), verb, is_declared }, cluster)
    }

    fn nothing(bearers: &Bearers) -> Cluster<'_> {
        let release = Some(("dci-a", "dc-a"));
        Cluster { mine: None, others: &[], stamped: &[], bearers, release, namespace: Namespace::Missing }
    }

    fn among(others: &[Instance], stamped: &[Stamped]) -> Result<Vec<String>, Failure> {
        ask(&wanted(), &Cluster { others, stamped, ..nothing(&Bearers::default()) })
    }

    fn code(answer: Result<Vec<String>, Failure>) -> Option<Code> {
        answer.err().map(|failure| failure.code)
    }

    #[test]
    fn what_another_instance_has_is_refused() {
        let cases = [
            (written(Some("b.test"), Some(1884), Some(540)), None),
            (written(Some("A.test."), None, None), Some(Code::ClaimConflict)),
            (Claims::HostOnly("a.TEST".to_owned()), Some(Code::ClaimConflict)),
            (written(None, Some(1883), None), Some(Code::ClaimConflict)),
            (written(None, None, Some(541)), Some(Code::ClaimConflict)),
            (written(None, None, Some(u32::MAX)), Some(Code::ClaimConflict)),
            (Claims::HostOnly("b.test".to_owned()), None),
            (Claims::Unknown, Some(Code::CannotTell)),
            (Claims::Unreadable("not JSON".to_owned()), Some(Code::CannotTell)),
        ];
        for (claims, expected) in cases {
            for phase in [None, Some("Ready"), Some("Destroying"), Some("Failed")] {
                let answer = among(&[instance("b", phase, claims.clone())], &[]);
                assert_eq!(code(answer), expected, "{claims:?} in {phase:?}");
            }
        }
    }

    #[test]
    fn connections_are_added_up_and_named() {
        let others =
            [instance("b", None, written(None, None, Some(300))), instance("c", None, written(None, None, Some(241)))];
        let failure = among(&others, &[]).expect_err("it does not fit");
        assert_eq!(
            failure.message,
            "the connection budget does not fit: this instance claims 60, the others have 541, and the cluster has 600"
        );
        assert_eq!(failure.causes, ["\"b\" claims 300", "\"c\" claims 241"]);
    }

    #[test]
    fn a_secret_that_names_an_undeclared_instance_or_nobody_is_never_nothing() {
        let stamped =
            |instance: Option<&str>| [Stamped { name: "s".to_owned(), instance: instance.map(str::to_owned) }];
        let other = [instance("b", None, written(None, None, None))];
        assert_eq!(code(among(&other, &stamped(Some("a")))), None);
        assert_eq!(code(among(&other, &stamped(Some("b")))), None);
        assert_eq!(code(among(&other, &stamped(Some("c")))), Some(Code::CannotTell));
        assert_eq!(code(among(&other, &stamped(None))), Some(Code::CannotTell));
    }

    #[test]
    fn a_release_tells_of_an_instance_as_a_secret_does_and_has_its_name_for_itself() {
        let other = [instance("b", None, written(None, None, None))];
        let seen = |namespace: &str, name: &str, owner: &str| {
            let [namespace, name, instance] = [namespace, name, owner].map(str::to_owned);
            let releases = BTreeSet::from([StampedRelease { namespace, name, instance, is_live: true }]);
            ask(&wanted(), &Cluster { others: &other, ..nothing(&Bearers { releases, ..Bearers::default() }) })
        };
        assert_eq!(code(seen("dci-a", "dc-a", "a")), None);
        assert_eq!(code(seen("elsewhere", "dc-a", "b")), None);
        assert_eq!(code(seen("dci-c", "dc-c", "c")), Some(Code::CannotTell));
        assert_eq!(code(seen("dci-c", "dc-c", "")), Some(Code::CannotTell));
        let taken = seen("dci-a", "dc-a", "b").expect_err("it is b's");
        assert_eq!(taken.code, Code::ClaimConflict);
        assert_eq!(taken.message, "the Helm release dc-a in dci-a is that of the instance \"b\"");
    }

    #[test]
    fn who_claims_nothing_conflicts_with_nobody() {
        let others = [instance("b", None, Claims::Unknown)];
        let none = Bearers::default();
        let cluster = Cluster { others: &others, ..nothing(&none) };
        let notes = ask(&config::Claims::default(), &cluster).expect("nothing to conflict about");
        assert_eq!(notes.len(), 1);
    }

    #[test]
    fn an_instance_is_built_only_when_it_is_not_live() {
        let cases = [
            (None, None),
            (Some("Bootstrapping"), None),
            (Some("Failed"), None),
            (Some("Ready"), Some(Code::LiveInstance)),
            (Some("Upgrading"), Some(Code::LiveInstance)),
            (Some("Destroying"), Some(Code::LiveInstance)),
            (Some("Paused"), Some(Code::CannotTell)),
        ];
        for (phase, expected) in cases {
            let mut mine = instance("a", phase, Claims::Unknown);
            let answer = |mine: &Instance| {
                let none = Bearers::default();
                let cluster = Cluster { mine: Some(mine), ..nothing(&none) };
                code(ask(&wanted(), &cluster))
            };
            assert_eq!(answer(&mine), expected, "{phase:?}");
            mine.release = Some("1.0.0".to_owned());
            let complete = expected.or(phase.map(|_| Code::LiveInstance));
            assert_eq!(answer(&mine), complete, "{phase:?}, once complete");
            mine.deleted_at = Some("2026-11-30T00:00:00Z".to_owned());
            assert_eq!(answer(&mine), Some(Code::LiveInstance), "{phase:?}, deleted");
        }
    }

    #[test]
    fn an_instance_is_moved_only_when_it_was_built_once() {
        let claims = config::Claims::default();
        let wish = |is_declared| Wish {
            name: "a",
            namespace: "dci-a",
            claims: &claims,
            max_connections: None,
            verb: Verb::Upgrade,
            is_declared,
        };
        let cases = [
            (None, Some(Code::InstanceMissing), Some(Code::InstanceMissing)),
            (Some("Bootstrapping"), Some(Code::InstanceMissing), None),
            (Some("Failed"), Some(Code::InstanceMissing), None),
            (Some("Ready"), None, None),
            (Some("Upgrading"), None, None),
            (Some("Destroying"), Some(Code::LiveInstance), Some(Code::LiveInstance)),
            (Some("Paused"), Some(Code::CannotTell), Some(Code::CannotTell)),
        ];
        for (phase, never_complete, once_complete) in cases {
            let mut mine = instance("a", phase, Claims::Unknown);
            let answer = |mine: &Instance| may_be_moved(&wish(true), Some(mine)).err().map(|why| why.code);
            assert_eq!(answer(&mine), never_complete, "{phase:?}");
            mine.release = Some("1.0.0".to_owned());
            assert_eq!(answer(&mine), once_complete, "{phase:?}, once complete");
            mine.deleted_at = Some("2026-11-30T00:00:00Z".to_owned());
            assert_eq!(answer(&mine), Some(Code::LiveInstance), "{phase:?}, deleted");
        }
        let without = |is_declared| may_be_moved(&wish(is_declared), None).err().map(|why| why.code);
        assert_eq!((without(true), without(false)), (Some(Code::InstanceMissing), None));
    }

    #[test]
    fn what_may_live_elsewhere_is_not_advised_to_be_destroyed() {
        let wish = Wish {
            name: "a",
            namespace: "dci-a",
            claims: &config::Claims::default(),
            max_connections: None,
            verb: Verb::Upgrade,
            is_declared: false,
        };
        let hints = |unseen: Option<&str>| {
            let bearers = Bearers { unseen_namespaces: unseen.map(str::to_owned), ..Bearers::default() };
            let cluster = nothing(&bearers);
            let failure = judge(&wish, &cluster).expect_err("there is no namespace");
            assert_eq!(failure.code, Code::InstanceMissing);
            failure.hints
        };
        assert!(hints(None)[0].starts_with("`dcctl destroy a`"));
        let [look, there, gone] = &hints(Some("it may not list namespaces"))[..] else { panic!("three hints") };
        assert!(look.contains("kubectl get namespaces -l core.devicechain.io/instance=a"), "{look}");
        assert!(there.contains("lives there") && gone.starts_with("only if there is none"), "{there}; {gone}");
    }

    #[test]
    fn the_namespace_has_to_be_this_instance_s() {
        let there = |owner: Option<&str>| {
            let (instance, maker) = (owner.map(str::to_owned), Maker::Other);
            Namespace::There { instance, maker }
        };
        let cases = [
            (Namespace::Missing, None),
            (there(Some("a")), None),
            (there(Some("b")), Some(Code::ClaimConflict)),
            (there(None), Some(Code::ClaimConflict)),
            (Namespace::Terminating { why: String::new() }, Some(Code::ClaimConflict)),
        ];
        for (namespace, expected) in cases {
            let none = Bearers::default();
            let cluster = Cluster { namespace, ..nothing(&none) };
            assert_eq!(code(ask(&wanted(), &cluster)), expected, "{cluster:?}");
        }
    }
}
