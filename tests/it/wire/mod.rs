//! The wire between dcctl and the real API server goes wrong: once for each request in each way, for longer than the lock
//! is valid, under a hand that edits the Lease, and with credentials that end.
//!
//! Every run here has a lock of its own behind a proxy of its own ([`lane`]), so that many of them suffer at once, by the
//! real time limits of the program.

mod asleep;
mod certificate;
mod credentials;
mod ends;
mod expected;
mod hands;
mod home;
mod lane;
mod mishap;
mod request;
mod silence;
mod starved;
mod table;
