//! The GitLab component: what it is made of, and its jobs run for real.
//!
//! `gitlab-ci-local` reads a pipeline that includes the component with its inputs, and runs its jobs by a shell on this machine.
//! It knows no `resource_group`, no `interruptible`, no `retry` and no time limits, and a cancel of it runs no `after_script`:
//! these are held against GitLab's schema alone, and `after_script` is run as GitLab would run it.

mod cancel;
mod component;
mod jobs;
mod pages;
pub(crate) mod project;
