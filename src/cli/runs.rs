//! What may be typed about runs that go on by themselves: leaving one, and `dcctl runs`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::options::{Color, Output, StatusOutput, duration};

/// Whether a run needs the process that started it.
#[derive(Debug, Clone, Args)]
pub struct DetachOptions {
    /// End once the run has begun, and let it go on by itself; `dcctl runs` shows it, waits for it and stops it
    #[arg(long, env = "DCCTL_DETACH")]
    pub detach: bool,

    /// Ask the run to stop when it has taken this long [default: 24h with --detach, else never]
    #[arg(long, env = "DCCTL_MAX_RUN_TIME", value_name = "DURATION", value_parser = duration)]
    pub max_run_time: Option<Duration>,
}

/// `dcctl runs …`
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List them, the oldest first
    List(RunsListArgs),
    /// Show what a run has said so far, and how it ended
    Show(RunsShowArgs),
    /// Watch a run to its end, and end with its exit code; to leave stops nothing
    Attach(RunsAttachArgs),
    /// Wait for the end of a run, and end with its exit code
    Wait(RunsWaitArgs),
    /// Ask a run to stop, as one Ctrl+C does
    Stop(RunsStopArgs),
    /// Remove the directories of runs that are over
    Prune(RunsPruneArgs),
}

/// `dcctl runs list`
#[derive(Debug, Args)]
pub struct RunsListArgs {
    /// What standard output carries
    #[arg(long, value_enum, value_name = "FORM", default_value = "human")]
    pub output: StatusOutput,
}

/// `dcctl runs show`
#[derive(Debug, Args)]
pub struct RunsShowArgs {
    /// The run: its id or the beginning of it, its directory, or `latest`
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// What standard output carries
    #[arg(long, value_enum, value_name = "FORM", default_value = "human")]
    pub output: Output,

    /// Colour in the human log
    #[arg(long, env = "DCCTL_COLOR", value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// `dcctl runs attach`
#[derive(Debug, Args)]
pub struct RunsAttachArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub show: RunsShowArgs,

    /// Leave out what was said until now
    #[arg(long)]
    pub from_now: bool,
}

/// `dcctl runs wait`
#[derive(Debug, Args)]
pub struct RunsWaitArgs {
    /// The run: its id or the beginning of it, its directory, or `latest`
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// End with 30 when the run still goes on after this long
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// `dcctl runs stop`
#[derive(Debug, Args)]
pub struct RunsStopArgs {
    /// The run: its id or the beginning of it, its directory, or `latest`
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// End its tools at once, and leave the lock
    #[arg(long)]
    pub force: bool,
}

/// `dcctl runs prune`
#[derive(Debug, Args)]
pub struct RunsPruneArgs {
    /// Only runs that ended this long ago
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = age)]
    pub older_than: Duration,

    /// Say what would be removed
    #[arg(long)]
    pub dry_run: bool,
}

/// Reads a duration, and days: `30d`; `0s` is everything.
fn age(text: &str) -> Result<Duration, String> {
    let days = || text.strip_suffix('d')?.parse::<u32>().ok();
    match (text, days()) {
        ("0s", _) => Ok(Duration::ZERO),
        (_, Some(days)) => Ok(Duration::from_secs(86_400) * days),
        (_, None) => duration(text).map_err(|why| format!("{why}, nor a number of days such as 30d")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_may_be_given_in_days() {
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(age("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(age("0s"), Ok(Duration::ZERO));
        assert!(age("d").is_err() && age("1w").is_err() && age("30").is_err());
    }
}
