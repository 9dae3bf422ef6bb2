//! `dcctl lock status`: who holds the lock, with every fact needed to check.

use crate::cli::LockStatusArgs;
use crate::cluster::Cluster;
use crate::commands::{Desk, apply, complain, print, runtime};
use crate::failure::Failure;
use crate::lock::{self, LeaseApi, Timing, message};

/// Prints it. Free or held, the exit code is 0.
pub(crate) fn status(desk: &Desk, args: &LockStatusArgs) -> u8 {
    let said = runtime().and_then(|runtime| {
        let said = runtime.block_on(look(desk, args));
        runtime.shutdown_background();
        said
    });
    match said {
        Ok(text) => print(&text),
        Err(failure) => {
            complain(&failure);
            failure.code.exit()
        }
    }
}

async fn look(desk: &Desk, args: &LockStatusArgs) -> Result<String, Failure> {
    let kubeconfig = apply::find_kubeconfig(desk, &args.target)?;
    let cluster = Cluster::connect(&kubeconfig, &apply::proxies(desk)).await?;
    let store = LeaseApi::new(cluster.client().clone(), Timing::STANDARD);
    let seen = lock::observe(&store).await?;
    let text = seen.map(|seen| message::busy(&seen, kubeconfig.context(), desk.clock.wall()).text);
    Ok(text.unwrap_or_default())
}
