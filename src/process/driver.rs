//! To be written.
use crate::clock::Clock;
use crate::failure::{Code, Failure};
use crate::process::{Ended, Limits, Sink, Spec, StopWatch};

/// Runs a tool to its end.
///
/// # Errors
/// When it could not be started.
pub async fn drive(
    _spec: Spec,
    _limits: Limits,
    _stop: StopWatch,
    _clock: &dyn Clock,
    _sink: impl Sink,
) -> Result<Ended, Failure> {
    Err(Failure::new(Code::Internal, "not yet"))
}
