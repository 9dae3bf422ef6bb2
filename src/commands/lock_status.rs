//! `dcctl lock status`: who holds the lock, with every fact needed to check.

use crate::cli::{LockStatusArgs, StatusOutput};
use crate::cluster::{Cluster, MayWrite};
use crate::commands::{Desk, apply, complain, print, runtime};
use crate::failure::Failure;
use crate::lock::{self, LeaseApi, Timing, status};

/// Prints it. Free or held, the exit code is 0.
pub(crate) fn status(desk: &Desk, args: &LockStatusArgs) -> u8 {
    let seen = runtime().and_then(|runtime| {
        let seen = runtime.block_on(look(desk, args));
        runtime.shutdown_background();
        seen
    });
    match seen {
        Ok(seen) => print(&written(&seen, args.output)),
        Err(failure) => {
            complain(&failure);
            failure.code.exit()
        }
    }
}

async fn look(desk: &Desk, args: &LockStatusArgs) -> Result<status::Status, Failure> {
    let kubeconfig = apply::find_kubeconfig(desk, &args.target)?;
    let cluster = Cluster::connect(&kubeconfig, &apply::proxies(desk), MayWrite::never()).await?;
    let store = LeaseApi::new(cluster.client().clone(), Timing::STANDARD);
    let seen = lock::observe(&store).await?;
    Ok(status::status(seen.as_ref(), kubeconfig.context(), desk.clock.wall()))
}

fn written(seen: &status::Status, output: StatusOutput) -> String {
    let mut text = match output {
        StatusOutput::Human => seen.text(),
        StatusOutput::Json => serde_json::to_string_pretty(seen).expect("a status is plain JSON"),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
