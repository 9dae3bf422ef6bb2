//! `dcctl __supervise`: the process that owns a run. People never type it.

use crate::commands::{complain, runtime};
use crate::config::Environment;

/// Runs the run that the front hands over.
pub(crate) fn supervise(environment: &Environment) -> u8 {
    let filter = environment.text("DCCTL_LOG").unwrap_or("warn,kube_client=off").to_owned();
    let writer = crate::commands::terminal::stderr_of_the_log;
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false).try_init();
    let result = runtime().and_then(|runtime| {
        let result = runtime.block_on(crate::run::supervise());
        // A look-up that hangs in the resolver must not hold up the end.
        runtime.shutdown_background();
        result
    });
    result.unwrap_or_else(|failure| {
        complain(&failure);
        failure.code.exit()
    })
}
