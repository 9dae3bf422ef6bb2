//! `dcctl instances reclaim` at a real terminal against the real API server.
//!
//! Its window is 65 s long. One test waits for it; the others tell the program that the machine was suspended meanwhile,
//! which the clock that it uses counts.

mod evidence;
mod people;
mod window;
mod wire;

use serde_json::Value;

use crate::bed::terminal::Seat;
use crate::bed::{Dcctl, Proxy};
use crate::lock::rig::Rig;

/// The holder of the documents.
const ALICE: &str = "alice@build-01/48213/9f3c1a20b7e4d5c6";
/// A time that looks stale.
const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";
/// What is asked.
const QUESTION: &str = "Type the holder identity above to take the lock, or anything else to abort:\n> ";
/// What is said when the check begins.
const CHECKING: &str = "checking whether the holder is still renewing (this takes about 1m0s)...";
/// What is said once the check goes on.
const UNCHANGED: &str = "no renewal so far; ";
/// What is said at the end of it all.
const FREE: &str = "the cluster lock is now free";

/// A cluster whose lock Alice left behind, and what it looked like then.
fn left_by_alice() -> (Rig, Value) {
    let rig = Rig::new();
    let lease = rig.other_holds(ALICE, LONG_AGO);
    (rig, lease)
}

/// The command, as `admin`, at a machine that can be said to have been suspended.
fn command(rig: &Rig) -> Dcctl {
    rig.bed
        .dcctl(["instances", "reclaim", "--kube-context", "bed"])
        .env("BED_SUSPENDED", rig.suspended())
        .env("TERM", "xterm")
}

/// Sits down, and is asked.
fn asked(rig: &Rig) -> Seat {
    asked_by(command(rig))
}

fn asked_by(dcctl: Dcctl) -> Seat {
    let seat = Seat::take(dcctl);
    seat.wait_for(QUESTION);
    seat
}

/// Sits down behind this proxy, types the holder, and waits until the check goes on.
fn checking_behind(rig: &Rig, proxy: &Proxy) -> Seat {
    checking_by(command(rig).with_kubeconfig(&proxy.kubeconfig("admin")))
}

/// Types the holder, and waits until the check goes on.
fn checking_by(dcctl: Dcctl) -> Seat {
    let seat = asked_by(dcctl);
    seat.type_line(ALICE);
    seat.wait_for(CHECKING);
    seat.wait_for(UNCHANGED);
    seat
}

fn checking(rig: &Rig) -> Seat {
    checking_by(command(rig))
}

/// Nothing about the lock was written in the person's name, and it is what it was.
#[track_caller]
fn assert_untouched(rig: &Rig, before: &Value) {
    assert_eq!(rig.lease().as_ref(), Some(before));
    assert_eq!(rig.writes_of("admin"), Vec::<String>::new());
}
