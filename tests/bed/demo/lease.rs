//! Watches the Lease from outside while a run holds it: `kubectl get leases --watch`, as a person would.

use std::io::{self, BufReader, Write};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};

use crate::bed::demo::stage::Stage;

/// A watch that goes on until it is stopped.
pub(super) struct Watcher {
    kubectl: Child,
    reader: JoinHandle<Story>,
}

/// What was seen of the Lease.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// The Lease as it was last before it was deleted.
    last: Option<Value>,
    changes: usize,
    deleted: bool,
}

impl Watcher {
    /// Watches from now on. It is fine when the namespace is not there yet.
    pub(super) fn start(stage: &Stage) -> io::Result<Watcher> {
        let mut kubectl = stage
            .kubectl()
            .args(["get", "leases", "-n", "dc-k8s-system", "--field-selector", "metadata.name=dcctl"])
            .args(["--watch", "--output-watch-events", "-o", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = kubectl.stdout.take().expect("it was asked for a pipe");
        let reader = thread::spawn(move || {
            let mut story = Story::default();
            for event in serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>() {
                // A watch that is cut in the middle of a word has told what it saw.
                let Ok(event) = event else { break };
                story.take(&event);
            }
            story
        });
        Ok(Watcher { kubectl, reader })
    }

    /// Ends the watch and tells what it saw.
    pub(super) fn stop(mut self) -> io::Result<Story> {
        self.kubectl.kill()?;
        self.kubectl.wait()?;
        self.reader.join().map_err(|_| io::Error::other("the watch of the Lease broke"))
    }
}

impl Story {
    fn take(&mut self, event: &Value) {
        match event["type"].as_str() {
            Some("ADDED") => self.last = Some(event["object"].clone()),
            Some("MODIFIED") => {
                self.changes += 1;
                self.last = Some(event["object"].clone());
            }
            Some("DELETED") => self.deleted = true,
            _ => {}
        }
    }

    /// Shows the Lease as it was, and what became of it.
    pub(super) fn tell(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(lease) = &self.last else {
            return Err(io::Error::other("nobody saw the Lease while the run held it"));
        };
        let (metadata, mut shown) = (&lease["metadata"], json!({}));
        for field in ["name", "namespace", "uid", "resourceVersion", "annotations"] {
            shown[field] = metadata[field].clone();
        }
        let shown = json!({ "metadata": shown, "spec": lease["spec"] });
        let text = serde_saphyr::to_string(&shown).map_err(io::Error::other)?;
        writeln!(out, "\nThe lock during that run, as kubectl last saw it:\n")?;
        text.lines().try_for_each(|line| writeln!(out, "  {line}"))?;
        let end = if self.deleted { "deleted at the end" } else { "not seen to be deleted" };
        writeln!(out, "\n  made once, written again {} times, {end}", self.changes)
    }
}
