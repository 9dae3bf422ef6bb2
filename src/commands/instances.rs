//! `dcctl instances list`: the instances of a cluster, as their declarations have them, who works on one, and whether this
//! machine has its OpenTofu state.

use jiff::Timestamp;
use serde::Serialize;

use crate::cli::{InstancesListArgs, StatusOutput, Substrate, SubstrateOptions};
use crate::clock::human;
use crate::cluster::instances::{Claimed, Claims, Instance};
use crate::commands::apply::files;
use crate::commands::substrate::{self, Meant, Reached};
use crate::commands::{Desk, runtime, say, terminal, told};
use crate::config::Environment;
use crate::failure::Failure;
use crate::lock::direct::Intent;
use crate::lock::{self, Observation, notes};
use crate::step::{Part, lineage};

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Listed {
    instances: Vec<Row>,
}

/// One instance.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    phase: Option<String>,
    release: Option<String>,
    declared_at: Option<String>,
    age_seconds: Option<u64>,
    deleted_at: Option<String>,
    claims: Option<Claimed>,
    applied_by: Option<String>,
    applied_as: Option<String>,
    applied_at: Option<String>,
    state: State,
    run: Option<Run>,
}

/// Where the OpenTofu state of an instance is, as far as this machine can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// It is here.
    Here,
    /// The declaration names one, and it is not here: it is on another machine, in another folder, or in a backend.
    Elsewhere,
    /// That one is here, and older than when a run on it ended last.
    Older,
    /// Another one is here than the declaration names.
    Another,
    /// The declaration names none: it has none, or was built before states were named on it.
    None,
}

/// The run that is at work on an instance.
#[derive(Debug, Serialize)]
struct Run {
    holder: String,
    verb: Option<String>,
    step: Option<String>,
    looks_stale: bool,
}

/// Prints them.
pub(crate) fn list(desk: &Desk, args: &InstancesListArgs) -> u8 {
    let listed = runtime().and_then(|runtime| {
        let listed = runtime.block_on(look(desk, args));
        runtime.shutdown_background();
        listed
    });
    let said = listed.and_then(|listed| {
        say(&match args.output {
            StatusOutput::Human => table(&listed, desk.clock.wall()),
            StatusOutput::Json => serde_json::to_string_pretty(&listed).expect("it is plain JSON") + "\n",
        })
    });
    said.map_or_else(|failure| told(&failure), |_| 0)
}

async fn look(desk: &Desk, args: &InstancesListArgs) -> Result<Listed, Failure> {
    let options = SubstrateOptions { substrate: Substrate::Kubernetes, lock_dir: None };
    let meant = substrate::meant(&options, &args.target).unwrap_or(Meant::Kubernetes);
    let Reached { store, cluster, .. } = substrate::reach(desk, meant, &args.target, Intent::Look).await?;
    let mut instances = cluster.expect("the substrate is a cluster").instances().await?;
    instances.sort_by(|one, other| one.name.cmp(&other.name));
    let seen = lock::observe(&store).await?;
    let now = desk.clock.wall();
    let row = |instance| row(instance, seen.as_ref(), &desk.environment, now);
    Ok(Listed { instances: instances.into_iter().map(row).collect() })
}

fn row(instance: Instance, seen: Option<&Observation>, environment: &Environment, now: Timestamp) -> Row {
    let state = state(&instance, environment);
    let run = seen.filter(|seen| seen.record().instance() == Some(&instance.name)).and_then(|seen| {
        let note = |key| seen.record().note(key).map(str::to_owned);
        let (verb, step) = (note(notes::VERB), note(notes::STEP));
        Some(Run { holder: seen.holder()?.to_owned(), verb, step, looks_stale: seen.looks_stale(now) })
    });
    let claims = match instance.claims {
        Claims::Written(claims) => Some(claims),
        Claims::HostOnly(host) => Some(Claimed { ingress_host: Some(host), ..Claimed::default() }),
        Claims::Unreadable(_) | Claims::Unknown => None,
    };
    Row {
        name: instance.name,
        phase: instance.phase,
        release: instance.release,
        age_seconds: seconds_since(instance.created_at.as_deref(), now),
        declared_at: instance.created_at,
        deleted_at: instance.deleted_at,
        claims,
        applied_by: instance.applied.by,
        applied_as: instance.applied.holder,
        applied_at: instance.applied.at,
        state,
        run,
    }
}

/// Only the usual folder is looked at; whoever uses `--state-dir` knows where that is.
fn state(instance: &Instance, environment: &Environment) -> State {
    let folder = files::state_dir(None, Some(&instance.name), "", environment).ok();
    let here = folder.and_then(|folder| lineage(&folder, Part::Infrastructure));
    match (&instance.lineage, here) {
        (None, _) => State::None,
        (Some(named), Some(here)) if here.lineage == *named => {
            if instance.serial.is_some_and(|newer| here.serial < newer) { State::Older } else { State::Here }
        }
        (Some(_), Some(_)) => State::Another,
        (Some(_), None) => State::Elsewhere,
    }
}

fn seconds_since(time: Option<&str>, now: Timestamp) -> Option<u64> {
    let time: Timestamp = time?.parse().ok()?;
    u64::try_from((now - time).get_seconds()).ok()
}

fn table(listed: &Listed, now: Timestamp) -> String {
    if listed.instances.is_empty() {
        return "no instance is declared on this cluster\n".to_owned();
    }
    let heads = ["NAME", "PHASE", "RELEASE", "AGE", "APPLIED", "CLAIMS", "STATE", "RUN"].map(str::to_owned);
    let rows = listed.instances.iter().map(|row| cells(row, now));
    let lines: Vec<[String; 8]> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cells(row: &Row, now: Timestamp) -> [String; 8] {
    let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), terminal::plain);
    let span = |seconds: Option<u64>| seconds.map(|seconds| human(std::time::Duration::from_secs(seconds)));
    let phase = match &row.deleted_at {
        Some(_) => format!("{}, deleted", or_none(&row.phase)),
        None => or_none(&row.phase),
    };
    let ago = span(seconds_since(row.applied_at.as_deref(), now)).map(|ago| format!("{ago} ago"));
    // Of the run's identity what a person asks for: who, and where.
    let who = row.applied_as.as_deref().and_then(|holder| holder.split('/').next()).map(terminal::plain);
    let by = row.applied_by.as_deref().map(|by| format!("dcctl {}", terminal::plain(by)));
    let by: Vec<String> = who.into_iter().chain(by).collect();
    let by = (!by.is_empty()).then(|| format!("by {}", by.join(", ")));
    let applied: Vec<String> = ago.into_iter().chain(by).collect();
    let state = match row.state {
        State::Here => "here",
        State::Elsewhere => "elsewhere",
        State::Older => "older is here",
        State::Another => "another is here",
        State::None => "-",
    };
    let run = row.run.as_ref().map_or_else(
        || "-".to_owned(),
        |run| {
            let verb = run.verb.as_deref().map(|verb| format!("{} by ", terminal::plain(verb))).unwrap_or_default();
            let stale = if run.looks_stale { ", looks stale" } else { "" };
            format!("{verb}{}{stale}", terminal::plain(&run.holder))
        },
    );
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        terminal::plain(&row.name),
        phase,
        or_none(&row.release),
        span(row.age_seconds).unwrap_or_else(|| "-".to_owned()),
        dash(applied.join(" ")),
        dash(row.claims.as_ref().map_or_else(|| "not known".to_owned(), claimed)),
        state.to_owned(),
        run,
    ]
}

fn claimed(claims: &Claimed) -> String {
    let host = claims.ingress_host.as_deref().map(terminal::plain);
    let port = claims.local_mqtt_port.map(|port| format!("MQTT {port}"));
    let connections = claims.connections.map(|count| format!("{count} connections"));
    host.into_iter().chain(port).chain(connections).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_table_stand_under_their_heads() {
        let now: Timestamp = "2026-11-30T10:00:00Z".parse().expect("a time");
        let row = |name: &str, release: Option<&str>| Row {
            name: name.to_owned(),
            phase: Some("Ready".to_owned()),
            release: release.map(str::to_owned),
            declared_at: Some("2026-11-30T08:00:00Z".to_owned()),
            age_seconds: Some(7200),
            deleted_at: None,
            claims: Some(Claimed { local_mqtt_port: Some(1883), ..Claimed::default() }),
            applied_by: Some("0.1.0".to_owned()),
            applied_as: release.map(|_| "alice@build-01/48213/9f3c1a20b7e4d5c6".to_owned()),
            applied_at: Some("2026-11-30T09:59:00Z".to_owned()),
            state: State::Here,
            run: None,
        };
        let text = table(&Listed { instances: vec![row("a", Some("1.0")), row("much-longer", None)] }, now);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("RELEASE"), lines[1].find("1.0"));
        assert_eq!(lines[0].find("STATE"), lines[2].find("here"));
        assert!(lines[1].contains("1m0s ago by alice@build-01, dcctl 0.1.0  "), "{text}");
        assert!(lines[2].contains("1m0s ago by dcctl 0.1.0  "), "{text}");
    }
}
