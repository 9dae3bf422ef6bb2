//! Very many instances, made fast: what the check of a cluster has to get through.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;

use serde_json::{Value, json};

use crate::bed::described::Described;

const INSTANCES: &str = "/apis/core.devicechain.io/v1beta1/instances";

/// How many connections make them.
const HANDS: usize = 8;

/// `bed crowd DESCRIBED COUNT`: makes so many instances on the control plane that this file describes.
pub(crate) fn crowd(mut arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    let usage = || io::Error::other("bed crowd: give the file with what `bed serve` said, and how many");
    let described = arguments.next().map(PathBuf::from).ok_or_else(usage)?;
    let count = arguments.next().and_then(|count| count.to_str()?.parse().ok()).ok_or_else(usage)?;
    make(&serde_json::from_slice(&fs::read(described)?)?, count)
}

/// Makes so many instances, `crowd-0` and on, each with a host of its own and annotations that nobody reads.
pub(crate) fn make(described: &Described, count: usize) -> io::Result<()> {
    let hand = |first: usize| -> io::Result<()> {
        let api = described.api("bed")?;
        (first..count).step_by(HANDS).try_for_each(|number| api.create(INSTANCES, &one(number)).map(drop))
    };
    let made = thread::scope(|scope| {
        let hands: Vec<_> = (0..HANDS).map(|first| scope.spawn(move || hand(first))).collect();
        hands.into_iter().map(|hand| hand.join().expect("a hand does not panic")).collect::<Vec<_>>()
    });
    made.into_iter().collect()
}

fn one(number: usize) -> Value {
    let (name, host) = (format!("crowd-{number}"), format!("crowd-{number}.example.com"));
    json!({ "apiVersion": "core.devicechain.io/v1beta1", "kind": "Instance",
        "metadata": { "name": name, "annotations": {
            "core.devicechain.io/phase": "Ready",
            "dcctl.devicechain.io/claims": json!({ "ingressHost": host }).to_string(),
            "note.example.com/filling": "x".repeat(1000) } },
        "spec": { "provider": "existing", "managed": false, "host": host } })
}
