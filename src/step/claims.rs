//! Whether what an instance claims is still free: a host, a port, database connections.
//!
//! Who cannot be asked about its claims is never taken to have none.

use std::collections::BTreeSet;

use crate::cluster::instances::{CLAIMS, Claims, INSTANCE_LABEL, Instance, RESOURCE, SHARED_NAMESPACE};
use crate::cluster::release::StampedRelease;
use crate::config;
use crate::failure::{Code, Failure};
use crate::step::guard::{Cluster, Wish};

/// Whether nobody else has what this instance claims. The notes are facts that whoever reads the log should know.
///
/// # Errors
/// [`Code::ClaimConflict`] and [`Code::CannotTell`].
pub(in crate::step) fn are_free(wish: &Wish<'_>, cluster: &Cluster<'_>) -> Result<Vec<String>, Failure> {
    host_is_free(wish, cluster.others)?;
    port_is_free(wish, cluster.others)?;
    connections_fit(wish, cluster.others)?;
    everybody_is_known(wish, cluster)
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

/// Something of which nobody can tell what it takes: what, why, and what to do about it.
struct Unknown {
    fact: String,
    why: String,
    remedy: String,
}

/// How it is said what an instance claims that dcctl did not declare.
fn remedy(name: &str, overwrite: &str) -> String {
    format!(
        "say what it claims, here nothing: kubectl annotate{overwrite} {RESOURCE} {name} {CLAIMS}='{{}}'; \
         it may have `ingressHost`, `localMqttPort` and `connections`"
    )
}

/// Refuses when somebody's claims cannot be told and could be what this instance claims.
fn everybody_is_known(wish: &Wish<'_>, cluster: &Cluster<'_>) -> Result<Vec<String>, Failure> {
    let mut notes = Vec::new();
    let mut unknown: Vec<Unknown> = Vec::new();
    let names: BTreeSet<&str> = cluster.others.iter().map(|other| other.name.as_str()).collect();
    for other in cluster.others {
        let name = &other.name;
        match &other.claims {
            Claims::Written(_) => {}
            Claims::HostOnly(_) if wish.claims.local_mqtt_port.is_none() && wish.claims.connections.is_none() => {}
            Claims::HostOnly(host) => notes.push(format!(
                "the instance \"{name}\" says its host ({host}) and nothing else: its MQTT port and its connections are not known"
            )),
            Claims::Unreadable(why) => unknown.push(Unknown {
                fact: format!("what the instance \"{name}\" claims cannot be read"),
                why: format!("its annotation {CLAIMS}: {why}"),
                remedy: remedy(name, " --overwrite"),
            }),
            Claims::Unknown => unknown.push(Unknown {
                fact: format!("what the instance \"{name}\" claims cannot be told"),
                why: format!("its declaration has neither the annotation {CLAIMS} nor a spec.host"),
                remedy: remedy(name, ""),
            }),
        }
    }
    let secrets = cluster.stamped.iter().map(|secret| {
        let remove = format!("kubectl delete secret {} -n {SHARED_NAMESPACE}", secret.name);
        let place = format!("Secret {SHARED_NAMESPACE}/{}", secret.name);
        (place, remove, secret.instance.as_deref().unwrap_or_default())
    });
    let releases = cluster.bearers.releases.iter().map(|StampedRelease { name, namespace, instance, .. }| {
        let remove = format!("helm uninstall {name} -n {namespace}");
        (format!("the Helm release {name} in {namespace}"), remove, instance.as_str())
    });
    for (place, remove, owner) in secrets.chain(releases) {
        match owner {
            "" => unknown.push(Unknown {
                fact: format!("whose {place} is cannot be told"),
                why: format!("its label {INSTANCE_LABEL} names no instance"),
                remedy: format!("give that label the instance's name; if nobody needs it any more: {remove}"),
            }),
            owner if owner == wish.name || names.contains(owner) => {}
            owner => unknown.push(Unknown {
                fact: format!("{place} belongs to the instance \"{owner}\", which has no declaration"),
                why: "what that instance claims cannot be told".to_owned(),
                remedy: format!(
                    "if \"{owner}\" lives, declare it: `dcctl bootstrap {owner}` with a bundle that has an \
                     `instance.declaration` and no `instance.claims`, then `dcctl upgrade {owner}` with its claims; if it is gone: {remove}"
                ),
            }),
        }
    }
    if unknown.is_empty() {
        return Ok(notes);
    }
    if *wish.claims == config::Claims::default() {
        notes.extend(unknown.into_iter().map(|Unknown { fact, .. }| format!("{fact}; this instance claims nothing")));
        return Ok(notes);
    }
    let Unknown { fact, why, remedy } = unknown.swap_remove(0);
    let failure = Failure::new(Code::CannotTell, fact).cause(why).hint(remedy);
    Err(unknown.into_iter().fold(failure, |failure, Unknown { fact, remedy, .. }| {
        if failure.hints.contains(&remedy) { failure.cause(fact) } else { failure.cause(fact).hint(remedy) }
    }))
}
