//! What may be typed about reports of recorded journals.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::options::Color;

/// `dcctl report …`
#[derive(Debug, Subcommand)]
pub enum ReportCommand {
    /// JUnit, for GitLab, Jenkins and the test reporters of GitHub: what `--junit` writes
    Junit(ReportArgs),
    /// Markdown for the summary page of a CI job
    Summary(ReportArgs),
    /// The lines that people read: what `--output human` shows
    Human(ReportHumanArgs),
    /// One page for a browser that stands alone: verdict, timeline, resources, diagnostics, the whole log with a search
    Html(ReportArgs),
}

/// `dcctl report junit`, `summary` and `html`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The events: a file that `--events-file` wrote, `-` for standard input, the directory of a run, or a run as
    /// `dcctl runs show` names it
    #[arg(value_name = "EVENTS")]
    pub events: PathBuf,

    /// Where the report goes, also `-o FILE`; a file that is there is replaced as a whole [default: standard output]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub output_file: Option<PathBuf>,

    /// Of a file with several runs, the one with this id or the beginning of it [default: the one that begins last]
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
}

/// `dcctl report human`
#[derive(Debug, Args)]
pub struct ReportHumanArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub report: ReportArgs,

    /// Colour in the log
    #[arg(long, env = "DCCTL_COLOR", value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}
