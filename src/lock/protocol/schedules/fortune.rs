//! What happens that no run decides: the network, the machines, and when people act.

use std::time::Duration;

use crate::lock::protocol::Ask;

/// Something that befalls a run, or that it does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Claim,
    Check,
    Note,
    Release,
    Suspend(Duration),
    /// From here on nothing that it sends arrives, and nothing reaches it.
    CutOff,
    Die,
}

/// What befalls the person who reclaims, or their process.
#[derive(Debug, Clone, Copy)]
pub(super) enum Farewell {
    /// They break it off.
    Interrupts,
    Dies,
    Sleeps(Duration),
}

/// The way of one request.
#[derive(Debug, Clone, Default)]
pub(super) struct Way {
    /// After how long it arrives, once or twice, and after how long more the reply to that is there, if it ever is.
    pub(super) arrivals: Vec<(Duration, Option<Duration>)>,
    /// From now on the API server is away for so long: what arrives is lost.
    pub(super) outage: Duration,
}

/// Decides everything that is open in a schedule. Two sources of the same answers give the same schedule.
pub(super) trait Fortune {
    /// What the network does to a request.
    fn way(&mut self, ask: &Ask) -> Way;
    /// What befalls a run that is about to take an answer, or to act.
    fn befalls(&mut self) -> Option<Act>;
    /// Somebody wrote to the Lease: after how long the person begins to look at it. None: not now.
    fn looks(&mut self) -> Option<Duration>;
    /// How long the person reads and types.
    fn types(&mut self) -> Duration;
    /// What befalls the person after the holder was shown, and after how long. None: nothing.
    fn breaks_off(&mut self) -> Option<(Duration, Farewell)>;
    /// What a run does that has the lock, and after how long. The last is a release.
    fn work(&mut self) -> Vec<(Duration, Act)>;
    /// How long a run that did not get the lock waits before it goes on.
    fn pause(&mut self) -> Duration;
    /// How long a run that lost the lock takes to stop.
    fn stops(&mut self) -> Duration;
}
