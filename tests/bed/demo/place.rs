//! What is free for the demo's instance on a cluster that earlier demos, or others, have built on.
//!
//! A live instance is not bootstrapped again, so the next demo builds the next one beside it: `demo`, `demo-2`, …, each
//! with a port of its own. One that an earlier demo could not finish is gone on with.

use std::fs;
use std::io;

use serde_json::Value;

use crate::bed::demo::stage::Stage;

/// Of which many fit into the bundle's connections; the guard says so to who wants more.
const MOST: u16 = 99;

/// An instance to build.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) port: u16,
}

impl Place {
    /// The port that the bundle says.
    pub(super) const FIRST_PORT: u16 = 1883;

    /// Asks the cluster, and marks the place as the demo's own by the folder of its state.
    pub(super) fn find(stage: &Stage) -> io::Result<Place> {
        let answer = stage.ask(&["get", "instances.core.devicechain.io", "-o", "json"])?;
        let instances: Value = serde_json::from_str(&answer)?;
        let instances = instances["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_ours = |name: &str| stage.state().join(name).exists();
        let mut places = (1..=MOST).map(Place::nth);
        let free = places.find(|place| place.is_free(instances, is_ours(&place.name)));
        let place = free.ok_or_else(|| io::Error::other(format!("{MOST} demos are on this cluster already")))?;
        fs::create_dir_all(stage.state().join(&place.name))?;
        Ok(place)
    }

    fn nth(n: u16) -> Place {
        let name = if n == 1 { "demo".to_owned() } else { format!("demo-{n}") };
        Place { name, port: Place::FIRST_PORT + n - 1 }
    }

    fn is_free(&self, instances: &[Value], is_ours: bool) -> bool {
        instances.iter().all(|seen| {
            let (metadata, annotations) = (&seen["metadata"], &seen["metadata"]["annotations"]);
            if metadata["name"] == *self.name {
                let phase = annotations["core.devicechain.io/phase"].as_str();
                let unfinished = matches!(phase, Some("Bootstrapping" | "Failed"));
                return is_ours && unfinished && metadata["deletionTimestamp"].is_null();
            }
            let claims = annotations["dcctl.devicechain.io/claims"].as_str().unwrap_or_default();
            let claims: Value = serde_json::from_str(claims).unwrap_or_default();
            claims["localMqttPort"] != self.port
        })
    }
}
