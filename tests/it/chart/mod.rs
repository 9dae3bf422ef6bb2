//! *Install chart*, *Verify* and *Build images* from outside: the real Helm against a real API server, with pods that
//! really become ready, or never do.

mod commands;
mod drift;
mod install;
mod repair;
mod rig;
mod stop;
mod upgrade;
mod volume;
