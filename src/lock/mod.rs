//! Who may act on the cluster.
//!
//! Every run that changes a cluster needs that cluster's one lock. It is the Lease `dcctl` in the namespace
//! `dc-k8s-system`. This module claims it, renews it, gives it back, and says at once when it is lost.
//!
//! # Promise
//! While one run's [`Fence`] stands, no other run has one, however wrong the two machines' clocks are, whatever is
//! delayed, lost or sent twice on the way, as long as the machines' clocks *tick* at about the same rate. Nobody's lock
//! is overwritten or deleted: a claim creates the one name, and every later write says which object and version it is about.
//!
//! # Not promised
//! A request that is already under way when the fence falls may still land: the API server checks the Lease, not what a
//! tool does meanwhile. A machine that is paused from outside, clocks and all, learns of it only when it goes on. A
//! person may edit the Lease by hand, and is believed.
//!
//! # The protocol
//! | | request | what decides |
//! |---|---|---|
//! | claim | create | the API server: one create wins. A Lease that names a holder is busy, however old it looks |
//! | renew | read, replace | ours only while uid and holder are; the replace names uid and version |
//! | fence | read | asked before every step; without an answer the last good renewal counts, for a while |
//! | reclaim | read, replace, delete | a person types the holder; unchanged for a whole validity; the replace names uid and version |
//! | release | delete | names uid and version; a conflict is read, and if it is still ours tried once more |
//!
//! No answer (too late, cut off, 5xx, 429, unreadable) is never taken for a no: a read tells. A claim can land long after
//! it was given up, so a run that is not sure looks again before its verdict, and says what it cannot settle.
//! A lock is never taken from a holder here, and waiting never makes it ours: that takes a person.
//!
//! # Timing ([`Timing`])
//! | seconds after the last good renewal was *sent* | |
//! |---|---|
//! | 10 | the next renewal; after a failure again after 1, 2 and 4 s |
//! | 30 | no new step starts |
//! | 60 | the lock counts as lost; others may begin to think so not before |
//!
//! One request takes at most 5 s, giving back at most 30 s, and the look for a late claim comes 10 s after it.
//!
//! # Why the deadline counts from the request
//! The reply may be late. Counted from the reply, a fence could outlive the lease that a person has, rightly, already
//! reclaimed. It counts on a clock that goes on while the machine is suspended.
//!
//! # How to read it
//! [`protocol`] decides and is pure; start with its table. [`driver`] carries it out, [`thread`] gives it a place that
//! nothing else can block, and [`Keeper`] is the end that a run holds; whoever writes asks its [`Right`]. [`store`] is the
//! seam to what keeps the Lease: the API server ([`lease_api`]), or a folder ([`direct`]), where everything above that is said of
//! the API server is true of the folder. What people read is in [`message`].

mod change;
pub mod direct;
mod driver;
mod fence;
mod follower;
mod holder;
mod keeper;
pub mod lease_api;
mod lease_watch;
pub mod message;
pub mod notes;
mod observation;
#[cfg(test)]
mod paused;
mod place;
pub mod protocol;
pub mod reclaim;
mod record;
mod reply;
mod right;
pub mod status;
pub mod store;
mod substrate;
mod thread;
mod timing;
#[cfg(any(test, feature = "test-tools"))]
pub mod twin;

pub use change::{Act, Change, Waits};
pub use direct::LockFolder;
pub use fence::{Fence, Standing};
pub use follower::Follower;
pub use holder::HolderId;
pub use keeper::Keeper;
pub use lease_api::{LeaseApi, MakeAnew};
pub use observation::{Observation, observe};
pub use place::Place;
pub use protocol::claim::Namespace;
pub use protocol::follow::Sight;
pub use protocol::life::Estate;
pub use protocol::{ClaimError, Claimed, Lost, Released};
pub use record::{LEASE_FILE, NAME, NAMESPACE, Record, Request};
pub use right::Right;
pub use store::LeaseStore;
pub use substrate::Store;
pub use timing::{Numbers, Timing, Unsafe};
