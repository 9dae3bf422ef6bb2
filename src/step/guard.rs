//! *Check the cluster*: refuses what would harm another instance, or build over this one.
//!
//! Three questions, each answered from the cluster and not from memory: is this instance free to be built, is its
//! namespace its own, and is what it claims still free? And one of this machine: is the OpenTofu state here its own? The answers are gathered first and judged in one pure
//! function. Who cannot be asked about its claims is never taken to have none.

use crate::cluster::instances::{Claims, Instance, Phase, SHARED_NAMESPACE, Stamped};
use crate::cluster::namespace::Namespace;
use crate::config;
use crate::failure::{Code, Failure};
use crate::pipeline::Verb;
use crate::step::halt::{drive, stopped};
use crate::step::{Kit, Outcome, Part, Update, declaration, origin};

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
        let notes = judge(&wish, &Cluster { mine: mine.first(), others: &others, stamped: &stamped, namespace })?;
        for note in notes {
            kit.updates.send(Update::Note(note));
        }
        origin::own_state(kit, Part::Infrastructure).await?;
        if kit.verb == Verb::Upgrade {
            declaration::would_fit(kit).await?;
            if mine.first().is_some_and(|mine| is_settled(mine, &kit.bundle.version)) {
                kit.course.settle();
            }
        }
        Ok(Outcome::Done(match others.len() {
            0 => "no other instance is on this cluster".to_owned(),
            1 => "1 other instance is on this cluster; nothing is in the way".to_owned(),
            count => format!("{count} other instances are on this cluster; nothing is in the way"),
        }))
    })
    .await
}

/// What a bootstrap or an upgrade wants.
#[derive(Debug, Clone, Copy)]
struct Wish<'a> {
    name: &'a str,
    namespace: &'a str,
    claims: &'a config::Claims,
    max_connections: Option<u32>,
    verb: Verb,
    /// The bundle declares its instances.
    is_declared: bool,
}

/// What is on the cluster.
#[derive(Debug)]
struct Cluster<'a> {
    mine: Option<&'a Instance>,
    others: &'a [Instance],
    stamped: &'a [Stamped],
    namespace: Namespace,
}

/// Decides. The notes are facts that whoever reads the log should know.
fn judge(wish: &Wish<'_>, cluster: &Cluster<'_>) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    match (wish.verb, cluster.mine) {
        (Verb::Upgrade, mine) => notes.extend(may_be_moved(wish, mine, &cluster.namespace)?),
        (_, Some(mine)) => notes.extend(may_be_built(mine)?),
        (_, None) => {}
    }
    is_its_own(wish, &cluster.namespace)?;
    host_is_free(wish, cluster.others)?;
    port_is_free(wish, cluster.others)?;
    connections_fit(wish, cluster.others)?;
    notes.extend(everybody_is_known(wish, cluster)?);
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
        Some(Phase::Bootstrapping | Phase::Failed) => {
            Ok(Some(format!("an earlier run on \"{name}\" ended in phase {word}; this one goes on from there")))
        }
        None => Err(Failure::new(
            Code::CannotTell,
            format!("the declaration of \"{name}\" is in phase \"{word}\", which this dcctl does not know"),
        )
        .hint("use a dcctl that is as new as the one that wrote it")),
    }
}

/// Whether an instance may be moved to another release: one that is there, and was completely built once.
fn may_be_moved(wish: &Wish<'_>, mine: Option<&Instance>, namespace: &Namespace) -> Result<Option<String>, Failure> {
    let name = wish.name;
    let missing = |message: String| Failure::new(Code::InstanceMissing, message);
    let bootstrap = || format!("`dcctl bootstrap {name}` builds it");
    let note = match mine {
        None if wish.is_declared => {
            return Err(missing(format!("the instance \"{name}\" is not declared on this cluster")).hint(bootstrap()));
        }
        None => None,
        Some(mine) => match mine.phase.as_deref().map(|word| (word, Phase::parse(word))) {
            _ if mine.deleted_at.is_some() => return may_be_built(mine),
            Some((_, Some(Phase::Ready))) => None,
            Some((word, Some(Phase::Upgrading | Phase::Failed))) => {
                Some(format!("an earlier run on \"{name}\" ended in phase {word}; this one goes on from there"))
            }
            Some((_, Some(Phase::Destroying) | None)) => return may_be_built(mine),
            Some((word, Some(Phase::Bootstrapping))) => {
                let sentence = format!("the instance \"{name}\" was never completely built (phase {word})");
                return Err(missing(sentence).hint(bootstrap()));
            }
            None => {
                let sentence = format!("\"{name}\" is declared without a phase: nothing of it was built by dcctl");
                return Err(missing(sentence).hint(bootstrap()));
            }
        },
    };
    match namespace {
        Namespace::Missing => {
            let sentence = format!("the namespace {} of the instance \"{name}\" is not there", wish.namespace);
            Err(missing(sentence).hint(format!(
                "`dcctl destroy {name}` removes what is left of it, and then `dcctl bootstrap {name}` builds it anew"
            )))
        }
        Namespace::There { .. } | Namespace::Terminating { .. } => Ok(note),
    }
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
        Namespace::There { instance: Some(owner) } if owner == instance => Ok(()),
        Namespace::There { instance: Some(owner) } => {
            taken(format!("namespace {name} belongs to the instance \"{owner}\""))
        }
        Namespace::There { instance: None } => {
            let failure = Failure::new(
                Code::ClaimConflict,
                format!("namespace {name} is there, and nothing says that it is for the instance \"{instance}\""),
            );
            Err(failure.hint(format!(
                "if it is, say so: kubectl label namespace {name} {}={instance}",
                crate::cluster::instances::INSTANCE_LABEL
            )))
        }
        Namespace::Terminating { why } => {
            let failure = Failure::new(Code::ClaimConflict, format!("namespace {name} is still being deleted"));
            Err(failure.cause(why).hint("wait until it is gone, then run the same command again"))
        }
    }
}

fn host_is_free(wish: &Wish<'_>, others: &[Instance]) -> Result<(), Failure> {
    let Some(host) = &wish.claims.ingress_host else { return Ok(()) };
    let taken = others.iter().find(|other| match &other.claims {
        Claims::Written(claimed) => claimed.ingress_host.as_deref().is_some_and(|theirs| is_same_host(theirs, host)),
        Claims::HostOnly(theirs) => is_same_host(theirs, host),
        Claims::Unreadable(_) | Claims::Unknown => false,
    });
    taken.map_or(Ok(()), |other| {
        let message = format!("the ingress host {host} is served by the instance \"{}\"", other.name);
        Err(Failure::new(Code::ClaimConflict, message))
    })
}

/// Host names do not care about case, nor about the dot of the root.
fn is_same_host(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

fn port_is_free(wish: &Wish<'_>, others: &[Instance]) -> Result<(), Failure> {
    let Some(port) = wish.claims.local_mqtt_port else { return Ok(()) };
    let taken = others.iter().find(|other| match &other.claims {
        Claims::Written(claimed) => claimed.local_mqtt_port == Some(port),
        Claims::HostOnly(_) | Claims::Unreadable(_) | Claims::Unknown => false,
    });
    taken.map_or(Ok(()), |other| {
        let message = format!("the local MQTT port {port} is that of the instance \"{}\"", other.name);
        Err(Failure::new(Code::ClaimConflict, message))
    })
}

fn connections_fit(wish: &Wish<'_>, others: &[Instance]) -> Result<(), Failure> {
    let (Some(mine), Some(budget)) = (wish.claims.connections, wish.max_connections) else { return Ok(()) };
    let claimed = others.iter().filter_map(|other| match &other.claims {
        Claims::Written(claimed) => claimed.connections.map(|connections| (&other.name, connections)),
        Claims::HostOnly(_) | Claims::Unreadable(_) | Claims::Unknown => None,
    });
    let claimed: Vec<(&String, u32)> = claimed.filter(|(_, connections)| *connections > 0).collect();
    let taken: u64 = claimed.iter().map(|(_, connections)| u64::from(*connections)).sum();
    if taken + u64::from(mine) <= u64::from(budget) {
        return Ok(());
    }
    let message = format!(
        "the connection budget does not fit: this instance claims {mine}, the others have {taken}, and the cluster has {budget}"
    );
    let failure = Failure::new(Code::ClaimConflict, message);
    Err(claimed.iter().fold(failure, |failure, (name, count)| failure.cause(format!("\"{name}\" claims {count}"))))
}

/// Refuses when somebody's claims cannot be told and could be what this instance claims.
fn everybody_is_known(wish: &Wish<'_>, cluster: &Cluster<'_>) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    let mut unknown: Vec<(String, String)> = Vec::new();
    for other in cluster.others {
        let name = &other.name;
        match &other.claims {
            Claims::Written(_) => {}
            Claims::HostOnly(_) if wish.claims.local_mqtt_port.is_none() && wish.claims.connections.is_none() => {}
            Claims::HostOnly(host) => notes.push(format!(
                "the instance \"{name}\" says its host ({host}) and nothing else: its MQTT port and its connections are not known"
            )),
            Claims::Unreadable(why) => unknown.push((
                format!("what the instance \"{name}\" claims cannot be read"),
                format!("its annotation {}: {why}", crate::cluster::instances::CLAIMS),
            )),
            Claims::Unknown => unknown.push((
                format!("what the instance \"{name}\" claims cannot be told"),
                format!("its declaration has neither the annotation {} nor a spec.host", crate::cluster::instances::CLAIMS),
            )),
        }
    }
    for secret in cluster.stamped {
        let place = format!("Secret {SHARED_NAMESPACE}/{}", secret.name);
        match &secret.instance {
            None => {
                unknown.push((format!("whose {place} is cannot be told"), "its label names no instance".to_owned()));
            }
            Some(owner) if owner == wish.name || cluster.others.iter().any(|other| other.name == *owner) => {}
            Some(owner) => unknown.push((
                format!("{place} belongs to the instance \"{owner}\", which has no declaration"),
                "what that instance claims cannot be told".to_owned(),
            )),
        }
    }
    if unknown.is_empty() {
        return Ok(notes);
    }
    if *wish.claims == config::Claims::default() {
        notes.extend(unknown.into_iter().map(|(fact, _)| format!("{fact}; this instance claims nothing")));
        return Ok(notes);
    }
    let (message, why) = unknown.swap_remove(0);
    let failure = Failure::new(Code::CannotTell, message).cause(why);
    let failure = unknown.into_iter().fold(failure, |failure, (fact, _)| failure.cause(fact));
    Err(failure.hint("complete what is named, or remove it if that instance is gone"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::instances::Claimed;

    fn instance(name: &str, phase: Option<&str>, claims: Claims) -> Instance {
        Instance {
            name: name.to_owned(),
            phase: phase.map(str::to_owned),
            claims,
            lineage: None,
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

    fn among(others: &[Instance], stamped: &[Stamped]) -> Result<Vec<String>, Failure> {
        ask(&wanted(), &Cluster { mine: None, others, stamped, namespace: Namespace::Missing })
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
    fn who_claims_nothing_conflicts_with_nobody() {
        let others = [instance("b", None, Claims::Unknown)];
        let cluster = Cluster { mine: None, others: &others, stamped: &[], namespace: Namespace::Missing };
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
                let cluster = Cluster { mine: Some(mine), others: &[], stamped: &[], namespace: Namespace::Missing };
                code(ask(&wanted(), &cluster))
            };
            assert_eq!(answer(&mine), expected, "{phase:?}");
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
        let there = || Namespace::There { instance: Some("a".to_owned()) };
        let cases = [
            (None, Some(Code::InstanceMissing)),
            (Some("Bootstrapping"), Some(Code::InstanceMissing)),
            (Some("Failed"), None),
            (Some("Ready"), None),
            (Some("Upgrading"), None),
            (Some("Destroying"), Some(Code::LiveInstance)),
            (Some("Paused"), Some(Code::CannotTell)),
        ];
        for (phase, expected) in cases {
            let mut mine = instance("a", phase, Claims::Unknown);
            let answer = |mine: &Instance| may_be_moved(&wish(true), Some(mine), &there()).err().map(|why| why.code);
            assert_eq!(answer(&mine), expected, "{phase:?}");
            mine.deleted_at = Some("2026-11-30T00:00:00Z".to_owned());
            assert_eq!(answer(&mine), Some(Code::LiveInstance), "{phase:?}, deleted");
        }
        let without = |declared, namespace| may_be_moved(&wish(declared), None, &namespace).err().map(|why| why.code);
        assert_eq!(without(true, there()), Some(Code::InstanceMissing));
        assert_eq!(without(false, there()), None);
        assert_eq!(without(false, Namespace::Missing), Some(Code::InstanceMissing));
    }

    #[test]
    fn the_namespace_has_to_be_this_instance_s() {
        let there = |owner: Option<&str>| Namespace::There { instance: owner.map(str::to_owned) };
        let cases = [
            (Namespace::Missing, None),
            (there(Some("a")), None),
            (there(Some("b")), Some(Code::ClaimConflict)),
            (there(None), Some(Code::ClaimConflict)),
            (Namespace::Terminating { why: String::new() }, Some(Code::ClaimConflict)),
        ];
        for (namespace, expected) in cases {
            let cluster = Cluster { mine: None, others: &[], stamped: &[], namespace };
            assert_eq!(code(ask(&wanted(), &cluster)), expected, "{cluster:?}");
        }
    }
}
