//! `dcctl __supervise`: the process that owns a run. People never type it.

use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::commands::{Desk, complain, runtime, terminal};
use crate::config::Environment;
use crate::config::env::LOG;
use crate::redact::Redactor;

/// Runs the run that the front hands over.
pub(crate) fn supervise(desk: &Desk) -> u8 {
    let redactor = Redactor::default();
    start_log(&desk.environment, &redactor);
    let result = runtime().and_then(|runtime| {
        let result = runtime.block_on(crate::run::supervise(desk.clock.clone(), redactor));
        // A look-up that hangs in the resolver must not hold up the end.
        runtime.shutdown_background();
        result
    });
    result.unwrap_or_else(|failure| {
        complain(&failure);
        failure.code.exit()
    })
}

/// The program's own diagnostics, on standard error. `DCCTL_LOG` says which: `debug`, or `warn,dcctl::lock=trace`. They
/// may say what libraries were given, so they go through the redactor, which learns the secrets with the run.
fn start_log(environment: &Environment, redactor: &Redactor) {
    // The client of the API server logs whole answers, and every refusal that we tell better.
    let preset = || Targets::new().with_default(Level::WARN).with_target("kube_client", LevelFilter::OFF);
    let filter = environment.text(LOG).and_then(|text| text.parse().ok()).unwrap_or_else(preset);
    // The log lies in the run directory. On a full disk it loses lines; it must never end the run.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(terminal::log(redactor))
        .with_ansi(false)
        .log_internal_errors(false);
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
