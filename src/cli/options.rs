//! The options themselves. Every option of a run has an environment variable `DCCTL_…`, so a CI system can set it once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cli::instances::InstancesCommand;
use crate::cli::preflight::PreflightArgs;
use crate::cli::rbac::RbacArgs;
use crate::cli::report::ReportCommand;
use crate::cli::runs::{DetachOptions, RunsCommand};

/// Change a Kubernetes cluster unattended, under the cluster's one lock.
///
/// Exit codes: 0 done, 1 a step failed, 2 wrong command line, 3 wrong bundle or configuration, 4 surroundings,
/// 5 forbidden, 6 refused by a guard, 10 stopped cleanly, 11 partially applied, 12 lock left behind,
/// 20 blocked by a live run, 21 blocked by a stale lock, 22 lock lost, 23 reclaiming needs a person at a terminal,
/// 24 reclaim refused because the lock is alive, 30 the run that was waited for goes on, 40 report not written,
/// 70 a bug in dcctl.
/// `dcctl explain CODE` tells more about each.
#[derive(Debug, Parser)]
#[command(name = "dcctl", version, subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prepare a cluster once: the operator, its definitions and the prerequisites
    Install(InstallArgs),
    /// Build an instance in its own namespace
    Bootstrap(BootstrapArgs),
    /// Move a live instance to the bundle's release
    Upgrade(UpgradeArgs),
    /// Remove an instance: its chart, its infrastructure, its namespace and its declaration
    Destroy(DestroyArgs),
    /// Run any command under the cluster's lock: `dcctl exec -- CMD [ARG…]`
    Exec(ExecArgs),
    /// Look at the cluster's lock
    #[command(subcommand)]
    Lock(LockCommand),
    /// Look after what runs have left on the cluster
    #[command(subcommand)]
    Instances(InstancesCommand),
    /// Look whether a verb could do its work here: tools, cluster, permissions, state, disks, stop budget; changes nothing
    Preflight(Box<PreflightArgs>),
    /// Look after the runs of this machine, those that go on by themselves included
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Make a report of a recorded run: a page, a summary, JUnit, or the lines that people read
    #[command(subcommand)]
    Report(ReportCommand),
    /// Explain an exit code or a failure code: `dcctl explain 20`, `dcctl explain lock.held`
    Explain(ExplainArgs),
    /// Print a JSON Schema: of the event lines, or of bundle.yaml for editors
    Schema(SchemaArgs),
    /// Print the rights that dcctl needs on a cluster, for `kubectl apply`
    Rbac(RbacArgs),
    /// The process that owns a run; started by the front, not by people
    #[command(name = "__supervise", hide = true)]
    Supervise,
}

/// `dcctl schema`
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_enum, value_name = "OF", default_value = "events")]
    pub of: SchemaOf,
}

/// What there is a schema of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The event lines
    Events,
    /// bundle.yaml
    Bundle,
}

/// `dcctl lock …`
#[derive(Debug, Subcommand)]
pub enum LockCommand {
    /// Say whether the cluster is locked, by whom, and every fact needed to check
    Status(LockStatusArgs),
}

/// `dcctl install`
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Put an older release in the place of a newer one
    #[arg(long, env = "DCCTL_ALLOW_DOWNGRADE")]
    pub allow_downgrade: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub apply: ApplyOptions,
}

/// `dcctl bootstrap`
#[derive(Debug, Args)]
pub struct BootstrapArgs {
    /// The instance's name: lower case letters, digits and hyphens
    pub instance: String,

    /// Build the bundle's images first, before the lock
    #[arg(long, env = "DCCTL_BUILD")]
    pub build: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub apply: ApplyOptions,
}

/// `dcctl upgrade`
#[derive(Debug, Args)]
pub struct UpgradeArgs {
    /// The instance's name
    pub instance: String,

    /// Let the plan delete or replace what has this address, or with no address anything; may be given more than once. Also
    /// DCCTL_ALLOW_REPLACE=ADDRESS or =*
    #[arg(long, env = "DCCTL_ALLOW_REPLACE", value_name = "ADDRESS", num_args = 0..=1, require_equals = true,
        default_missing_value = "*")]
    pub allow_replace: Vec<String>,

    /// What to do when the chart's upgrade fails
    #[arg(long, env = "DCCTL_ON_CHART_FAILURE", value_enum, value_name = "MANNER", default_value = "leave")]
    pub on_chart_failure: OnChartFailure,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub apply: ApplyOptions,
}

/// `dcctl destroy`
///
/// It asks nothing: the command names the instance, and `--dry-run` lists everything that would go.
#[derive(Debug, Args)]
pub struct DestroyArgs {
    /// The instance's name
    pub instance: String,

    /// Go on although the OpenTofu state is lost, or is not to be used: what OpenTofu had made stays, and is named as far
    /// as it is known
    #[arg(long, env = "DCCTL_ABANDON_INFRASTRUCTURE")]
    pub abandon_infrastructure: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub apply: ApplyOptions,
}

/// `dcctl exec`
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that may be typed")]
pub struct ExecArgs {
    /// The command and its arguments; `--` comes before it
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub target: TargetOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub substrate: SubstrateOptions,

    /// Say what would be run; take no lock and run nothing
    #[arg(long, env = "DCCTL_DRY_RUN")]
    pub dry_run: bool,

    /// Let the command read this command's standard input, through a pipe [default: it reads nothing]
    #[arg(long, env = "DCCTL_STDIN")]
    pub stdin: bool,

    /// End with the command's own exit status when its failure is all there is to tell; 128 and the number of the signal
    /// if one ended it
    #[arg(long, env = "DCCTL_PROPAGATE_EXIT_CODE")]
    pub propagate_exit_code: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub busy: BusyOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub stop: StopOptions,

    /// Keep the raw output of the command in the run directory, secrets included
    #[arg(long, env = "DCCTL_KEEP_OUTPUT")]
    pub keep_output: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub detach: DetachOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub report: ReportOptions,
}

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub struct TargetOptions {
    /// The kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's own account]
    #[arg(long, env = "DCCTL_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context in it [default: its current context]
    #[arg(long, env = "DCCTL_KUBE_CONTEXT", value_name = "NAME")]
    pub kube_context: Option<String>,
}

/// What keeps the lock.
#[derive(Debug, Clone, Args)]
pub struct SubstrateOptions {
    /// What keeps the lock: the API server of the cluster, or a folder, without any cluster
    #[arg(long, env = "DCCTL_SUBSTRATE", value_enum, value_name = "KIND", default_value = "kubernetes")]
    pub substrate: Substrate,

    /// The folder that keeps the lock, with `--substrate direct`; all who share the lock can write to it
    #[arg(long, env = "DCCTL_LOCK_DIR", value_name = "DIR")]
    pub lock_dir: Option<PathBuf>,
}

/// What a bundle is given from outside.
#[derive(Debug, Args)]
pub struct GivenOptions {
    /// A variable of the bundle; may be given more than once. Also DCCTL_VAR_NAME
    #[arg(long = "var", value_name = "NAME=VALUE")]
    pub vars: Vec<String>,

    /// A YAML or JSON file of variables and secrets; may be given more than once, later files win
    #[arg(long = "var-file", env = "DCCTL_VAR_FILE", value_name = "FILE", value_delimiter = ',')]
    pub var_files: Vec<PathBuf>,

    /// A values file for the chart, after the bundle's own; may be given more than once
    #[arg(long, env = "DCCTL_VALUES", value_name = "FILE", value_delimiter = ',')]
    pub values: Vec<PathBuf>,
}

/// The programs that a bundle's steps run.
#[derive(Debug, Args)]
pub struct ToolOptions {
    /// The OpenTofu program [default: `tofu` on PATH]
    #[arg(long, env = "DCCTL_TOFU", value_name = "PROGRAM")]
    pub tofu: Option<PathBuf>,

    /// The Helm program [default: `helm` on PATH]
    #[arg(long, env = "DCCTL_HELM", value_name = "PROGRAM")]
    pub helm: Option<PathBuf>,
}

/// What every command that changes a cluster takes.
#[derive(Debug, Args)]
pub struct ApplyOptions {
    /// The bundle: a folder with `bundle.yaml`, or a `.tar.gz` of one
    #[arg(long, env = "DCCTL_BUNDLE", value_name = "DIR|FILE")]
    pub bundle: PathBuf,

    /// The digest of the `.tar.gz`, `sha256:` and 64 digits; another archive is refused before anything of it is unpacked
    #[arg(long, env = "DCCTL_BUNDLE_DIGEST", value_name = "DIGEST")]
    pub bundle_digest: Option<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub target: TargetOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub substrate: SubstrateOptions,

    /// Say what would be done; take no lock and write nothing
    #[arg(long, env = "DCCTL_DRY_RUN")]
    pub dry_run: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub given: GivenOptions,

    /// Where local OpenTofu state lives
    #[arg(long, env = "DCCTL_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub tools: ToolOptions,

    /// Refuse to take over fields that another field manager owns
    #[arg(long, env = "DCCTL_NO_FORCE_CONFLICTS")]
    pub no_force_conflicts: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub busy: BusyOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub stop: StopOptions,

    /// Keep the raw output of the tools in the run directory, secrets included
    #[arg(long, env = "DCCTL_KEEP_OUTPUT")]
    pub keep_output: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub detach: DetachOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub report: ReportOptions,
}

/// What a run does about a lock that another run holds.
#[derive(Debug, Clone, Args)]
pub struct BusyOptions {
    /// Wait for the lock while another run holds it, for this long, or until it is free. Also DCCTL_WAIT=30m or =forever
    #[arg(long, env = "DCCTL_WAIT", value_name = "DURATION", num_args = 0..=1, require_equals = true,
        default_missing_value = "forever", value_parser = wait)]
    pub wait: Option<Wait>,

    /// What to do when another run holds the lock, and still does after the wait [default: refuse]
    #[arg(long, env = "DCCTL_ON_BUSY", value_enum, value_name = "MANNER")]
    pub on_busy: Option<OnBusy>,
}

/// How long a stop may take.
#[derive(Debug, Clone, Args)]
pub struct StopOptions {
    /// How long a graceful stop may take, counted from the first request
    #[arg(long, env = "DCCTL_STOP_AFTER", value_name = "DURATION", default_value = "20m", value_parser = duration)]
    pub stop_after: Duration,

    /// When everything is ended after a cancel, as a pod or a service is; or `unlimited` [default: by the surroundings]
    #[arg(long, env = "DCCTL_STOP_BUDGET", value_name = "DURATION", value_parser = stop_budget)]
    pub stop_budget: Option<StopBudget>,
}

/// What the surroundings grant a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopBudget {
    /// Everything is ended after this long.
    AtMost(Duration),
    /// Nothing is ended.
    Unlimited,
}

/// Where a run says what happens.
#[derive(Debug, Clone, Args)]
pub struct ReportOptions {
    /// What standard output carries [default: human at a terminal, else jsonl; for `exec` always human]
    #[arg(long, env = "DCCTL_OUTPUT", value_enum, value_name = "FORM")]
    pub output: Option<Output>,

    /// Also write every event to this file, one JSON object a line
    #[arg(long, env = "DCCTL_EVENTS_FILE", value_name = "FILE")]
    pub events_file: Option<PathBuf>,

    /// Write a JUnit report; valid and truthful at every moment
    #[arg(long, env = "DCCTL_JUNIT", value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// The run's own directory [default: a new one under the user's state folder]
    #[arg(long, env = "DCCTL_RUN_DIR", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,

    /// Colour in the human log
    #[arg(long, env = "DCCTL_COLOR", value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// `dcctl lock status`
#[derive(Debug, Args)]
pub struct LockStatusArgs {
    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub target: TargetOptions,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the group documents itself")]
    pub substrate: SubstrateOptions,

    /// What standard output carries
    // Without a variable: DCCTL_OUTPUT is set for the runs of a whole job, and has other values.
    #[arg(long, value_enum, value_name = "FORM", default_value = "human")]
    pub output: StatusOutput,

    /// Go on, and say it again whenever it changes, until interrupted; as JSON one object a line, renewals included
    #[arg(long)]
    pub watch: bool,

    /// Exit with 20 or 21 when somebody holds the lock, as a blocked run would
    #[arg(long)]
    pub exit_code: bool,
}

/// `dcctl explain`
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// An exit code (`20`) or a failure code (`lock.held`)
    pub code: String,
}

/// The forms of standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// One JSON object a line, and nothing else
    Jsonl,
    /// Readable lines
    Human,
}

impl Output {
    /// Reads one as it is typed.
    pub fn parse(text: &str) -> Option<Output> {
        Output::from_str(text, true).ok()
    }
}

/// What keeps the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Substrate {
    /// The API server of the cluster
    Kubernetes,
    /// A folder
    Direct,
}

/// The forms of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusOutput {
    /// Readable lines
    Human,
    /// One JSON object
    Json,
}

/// What a run does without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnBusy {
    /// End, with exit code 20 or 21
    Refuse,
    /// Say so and go on without the lock
    Warn,
}

/// What is done about a chart whose upgrade failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnChartFailure {
    /// Leave the release as Helm left it
    Leave,
    /// Roll it back to the revision that was deployed before
    Rollback,
}

/// How long to wait for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// For so long.
    AtMost(Duration),
    /// Until it is free.
    Forever,
}

/// When the human log is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// At a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Reads a duration, or `forever`.
fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        text => duration(text).map(Wait::AtMost).map_err(|why| format!("{why}, nor `forever`")),
    }
}

/// Reads a duration, or `unlimited`.
fn stop_budget(text: &str) -> Result<StopBudget, String> {
    match text {
        "unlimited" => Ok(StopBudget::Unlimited),
        text => duration(text).map(StopBudget::AtMost).map_err(|why| format!("{why}, nor `unlimited`")),
    }
}

/// Reads `20m`, `90s`, `1h30m`; a bare number would be ambiguous and is refused.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration such as 90s, 20m or 1h30m");
    let mut total = Duration::ZERO;
    let mut digits = String::new();
    for character in text.chars() {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        let count: u32 = digits.parse().map_err(|_| wrong())?;
        digits.clear();
        let unit = match character {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return Err(wrong()),
        };
        total =
            Duration::from_secs(unit).checked_mul(count).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
    }
    if !digits.is_empty() || total.is_zero() {
        return Err(wrong());
    }
    if total > LONGEST { Err(format!("`{text}` is longer than a year, which is 8760h")) } else { Ok(total) }
}

/// What is longer is a slip: no moment that is counted from one of these may lie beyond the end of the calendar.
const LONGEST: Duration = Duration::from_secs(8760 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_has_a_limit_or_none() {
        assert_eq!(wait("forever"), Ok(Wait::Forever));
        assert_eq!(wait("30m"), Ok(Wait::AtMost(Duration::from_secs(1800))));
        assert!(wait("true").is_err() && wait("0s").is_err() && wait("").is_err());
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("8760h"), Ok(LONGEST));
        for wrong in ["", "20", "20x", "m", "0s", "1h5", "99999999999h", "8760h1s", "4294967295h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
