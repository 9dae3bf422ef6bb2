//! What `cron/` ships: a CronJob, a systemd service and its timer, a line for crontab, an image; and what they lean on: dcctl
//! as the first process of a container, and an upgrade that has nothing to do.

mod first;
mod manifests;
mod nothing;
mod scheduled;
mod units;
