//! A process that does nothing but change the Lease of a lock folder, through the program's own store: to be killed at any
//! moment, and to contend with others of its kind.
//!
//! `dcctl` itself changes its Lease every few seconds, so a kill would next to never meet it while it does.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use dcctl::lock::store::{Created, Deleted, LeaseStore, Replaced};
use dcctl::lock::{LockFolder, NAME, Record, Timing};
use serde_json::{Value, json};

/// How often it renews before it gives the lock back.
const RENEWALS: u32 = 3;

/// `bed leases FOLDER [WITNESS]`. With a witness it writes `begin` and `end` there while it holds the lock, and ends by
/// itself after so many claims as the file's name says: `witness.25`.
pub(crate) fn leases(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let folder = arguments.next().map(PathBuf::from).ok_or_else(|| io::Error::other("bed leases: give a folder"))?;
    let witness = arguments.next().map(PathBuf::from);
    let claims = witness.as_ref().and_then(|path| path.extension()?.to_str()?.parse().ok());
    let witness = witness.map(|path| OpenOptions::new().create(true).append(true).open(path)).transpose()?;
    let store = LockFolder::new(folder, Timing::STANDARD);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut done = 0_u32;
    while claims.is_none_or(|claims| done < claims) {
        done += runtime.block_on(claim_and_release(&store, witness.as_ref()))?;
    }
    Ok(())
}

/// One round; how many claims came through.
async fn claim_and_release(store: &LockFolder, witness: Option<&File>) -> io::Result<u32> {
    let mut lease = match store.create(&draft()).await {
        Ok(Created::Stored(lease)) => lease,
        Ok(Created::Exists) => return Ok(0),
        other => return Err(unexpected(&other)),
    };
    say(witness, "begin")?;
    for round in 0..RENEWALS {
        lease = match store.replace(&renewed(&lease, round)).await {
            Ok(Replaced::Stored(lease)) => lease,
            other => return Err(unexpected(&other)),
        };
    }
    say(witness, "end")?;
    match store.delete(lease.uid(), lease.version()).await {
        Ok(Deleted::Gone) => Ok(1),
        other => Err(unexpected(&other)),
    }
}

/// One write, so that lines never mix.
fn say(witness: Option<&File>, word: &str) -> io::Result<()> {
    let Some(mut witness) = witness else { return Ok(()) };
    witness.write_all(format!("{word} {}\n", std::process::id()).as_bytes())
}

fn draft() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": NAME },
        "spec": { "holderIdentity": format!("bed@here/{}/0123456789abcdef", std::process::id()), "leaseTransitions": 0 },
    })
}

/// Longer and shorter ones take turns, so that a torn one could not pass for whole.
fn renewed(lease: &Record, round: u32) -> Record {
    let mut json = lease.json().clone();
    let long = "x".repeat(usize::try_from(round % 2).unwrap_or(0) * 20_000);
    json["metadata"]["annotations"] = json!({ "note.example.com/filling": long });
    Record::from_json(json).expect("it has a uid and a version")
}

fn unexpected(answer: &impl std::fmt::Debug) -> io::Error {
    io::Error::other(format!("bed leases: {answer:?}"))
}
