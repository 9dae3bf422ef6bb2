//! Every expected way to go wrong: its stable name, its exit status, and who can mend it.
//!
//! A [`Code`] has a dotted name that scripts may rely on, and an exit status that they do rely on. The table in
//! this file is the only one: `dcctl explain`, `docs/reference/exit-codes.md`, the verdict and the JUnit report
//! all read it. Numbers are grouped by area, so a CI job can decide by range.
//!
//! Errors cross the borders of modules as a [`Failure`]: a code, one sentence, the causes beneath it, and what to do
//! now. A broken invariant is not a failure: it panics with a sentence, and the run reports `internal`.

use std::error::Error;
use std::{fmt, io};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// One row of the table: everything that is known about a code before it happens.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The code itself.
    pub code: Code,
    /// Its name on the wire, `area.what`.
    pub name: &'static str,
    /// The exit status of a run that ends with it.
    pub exit: u8,
    /// What it means, in one sentence.
    pub meaning: &'static str,
    /// Who has to act.
    pub who: &'static str,
    /// What that person does.
    pub remedy: &'static str,
}

macro_rules! codes {
    ($($variant:ident $name:literal $exit:literal $who:literal $meaning:literal $remedy:literal;)*) => {
        /// A stable failure code. Its name on the wire is that of its [`Row`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $(#[doc = $meaning] #[serde(rename = $name)] $variant,)*
        }

        /// The table of codes, in the order of their exit status.
        pub const TABLE: &[Row] = &[
            $(Row { code: Code::$variant, name: $name, exit: $exit, meaning: $meaning, who: $who, remedy: $remedy },)*
        ];
    };
}

codes! {
    BuildFailed "build.failed" 1 "author of the change"
        "The bundle's image build failed."
        "Read the build's own output above; nothing was changed on the cluster.";
    ManifestRejected "manifest.rejected" 1 "author of the change"
        "The API server did not accept a manifest, or what it describes did not become ready."
        "Mend the manifest that the verdict names and run the same command again.";
    ProviderLost "infrastructure.provider_lost" 1 "operator"
        "A provider of OpenTofu was gone in the middle of its work: killed, out of memory, or broken."
        "See first whether what the verdict names exists and is in the state; then find out what ended the provider, and run the same command again.";
    InfrastructureFailed "infrastructure.failed" 1 "author of the change"
        "OpenTofu failed."
        "Read its diagnostics (what was printed is in events.jsonl of the run directory), mend the cause and run the same command again: an apply goes on from what is in its state.";
    ChartFailed "chart.failed" 1 "author of the change"
        "Helm failed."
        "Read its message above, mend the cause and run the same command again.";
    NamespaceStuck "namespace.stuck" 1 "operator"
        "The instance's namespace was deleted and did not go within its budget."
        "Mend what the message says keeps it, then run the same command again.";
    ReadinessTimedOut "readiness.timed_out" 1 "author of the change"
        "The instance did not become ready within its budget."
        "Look at the workloads that the verdict names, mend the cause and run the same command again.";
    VerifyFailed "verify.failed" 1 "author of the change"
        "A verify command of the bundle failed."
        "Read its output above.";
    ExecFailed "exec.failed" 1 "author of the command"
        "The command of `dcctl exec` did not end with status 0."
        "Read what it printed; how it ended is in the verdict.";
    CommandFailed "command.failed" 1 "author of the change"
        "A program that the run started could not be started or supervised."
        "Make the program that the message names start on this machine: try it by hand.";
    ClusterRequestFailed "cluster.request_failed" 1 "operator"
        "The API server answered a request with an error that has no code of its own."
        "Mend what the API server's own sentence in the message names, then run the same command again.";
    SupervisorKilled "supervisor.killed" 1 "operator"
        "The process that owned the run was killed; its tools were stopped in its place, as far as they could be found."
        "See in the verdict what was finished and where the lock is, then run the same command again.";
    UsageInvalid "usage.invalid" 2 "caller"
        "The command line is wrong."
        "Correct the option that the message names; `dcctl help` lists the commands, and each has --help.";
    BundleInvalid "config.bundle" 3 "caller"
        "The bundle is missing or not valid."
        "Mend the bundle: the message names file, line and field.";
    VariableInvalid "config.variable" 3 "caller"
        "A variable or a secret that the bundle asks for is missing or wrong."
        "Do what the message says: a secret is given with --var-file or DCCTL_VAR_NAME, anything else also with --var.";
    OptionInvalid "config.option" 3 "caller"
        "The value of an option, or a combination of options, cannot be used."
        "Correct the option: the message names it and what it takes.";
    NestedRun "config.nested" 3 "caller"
        "dcctl was started by a run of dcctl that holds the lock of the same cluster."
        "What a run starts has the lock already: start the inner command without `dcctl exec`.";
    JournalUnreadable "report.no_journal" 3 "caller"
        "What a report was to be made from is no recorded journal, or not one that this dcctl can read."
        "Give it what --events-file wrote, or the directory of a run: the message says what was found instead.";
    ToolMissing "surroundings.tool_missing" 4 "image owner"
        "A program that the run needs is not there."
        "Install it; OpenTofu and Helm may be named with --tofu and --helm.";
    ToolUnsuitable "surroundings.tool_unsuitable" 4 "image owner"
        "A program that the run needs is too old, or is not what its name says."
        "Install one that is new enough: the message names the version found and the oldest that works.";
    KubeconfigInvalid "surroundings.kubeconfig" 4 "image owner"
        "There is no kubeconfig, it cannot be read, or it has no such context."
        "Give another kubeconfig or another context: the message names the file, and the contexts that it has.";
    ClusterUnreachable "surroundings.cluster_unreachable" 4 "image owner"
        "The API server could not be reached."
        "Check the address, the network and the proxy settings that the message names.";
    ClusterUntrusted "surroundings.cluster_untrusted" 4 "image owner"
        "The API server's certificate is not one that this kubeconfig trusts, or has expired."
        "Renew the certificate, or the certificate authority in the kubeconfig.";
    CredentialsRefused "surroundings.credentials" 4 "image owner"
        "The API server does not know these credentials, or they have expired."
        "Renew the credentials of this context.";
    LockDirUnusable "surroundings.lock_dir" 4 "image owner"
        "The lock folder is not there, cannot be used by this account, or lies where locks are not shared."
        "Mend what the message names, or name another folder with --lock-dir.";
    LockDirUnanswered "surroundings.lock_dir_unanswered" 4 "operator"
        "The lock folder did not answer in time, or another process kept its file lock."
        "Look at the file system or the process that the message names, then run the same command again.";
    LockRecordUnreadable "surroundings.lock_record" 4 "operator"
        "The file that is the lock is torn, empty, or not dcctl's. It was left as it is."
        "Look at the file that the message names; move it away only when nothing lives any more that used this lock.";
    RunDirUnusable "surroundings.run_dir" 4 "image owner"
        "The run directory cannot be made or written."
        "Make room or give another one with --run-dir.";
    TemporaryFolderUnusable "surroundings.tmpdir" 4 "image owner"
        "The folder for temporary files cannot be used, and OpenTofu's providers need one."
        "Make the folder that the message names, or point TMPDIR at another one.";
    ProcUnusable "surroundings.proc" 4 "image owner"
        "/proc is not mounted, or shows the processes of another PID namespace: nobody could be told apart there."
        "Give the namespace a /proc of its own (`unshare --mount-proc`; containers have one), then run the same command again.";
    MachineExhausted "surroundings.exhausted" 4 "image owner"
        "The machine, or a limit that this run was started with, gives no more open files, processes or memory."
        "Raise the limit that the cause names (`ulimit -n`, `ulimit -u`, that of the container), or run less beside it.";
    Forbidden "cluster.forbidden" 5 "cluster admin"
        "The API server forbids it."
        "Have that granted to this account: the message names it. `dcctl rbac` prints all that dcctl needs, and with `--install` what an install needs on top.";
    OperatorMissing "guard.operator" 6 "operator"
        "The cluster has no operator that this bundle can work with."
        "Run `dcctl install` with the same bundle first.";
    LiveInstance "guard.live_instance" 6 "operator"
        "The instance is live, and this command would build over it."
        "Leave it as it is, or do what the message says.";
    ClaimConflict "guard.claim_conflict" 6 "operator"
        "Another instance of this cluster has what this one claims."
        "Change the claim that the message names, or the other instance.";
    CannotTell "guard.cannot_tell" 6 "operator"
        "What another instance claims, or whether this one exists, cannot be told."
        "Complete the object that the message names, then run the same command again.";
    BindingChanged "guard.binding_changed" 6 "operator"
        "The declaration's binding would change, which it never may."
        "Give the field its old value again, or the instance another name: the message names the field and both values.";
    StateMissing "guard.state_missing" 6 "operator"
        "The OpenTofu state here is not the one to work from: it is missing, or belongs to another cluster or instance."
        "Run where the right state is, or name its folder with --state-dir.";
    InstanceMissing "guard.instance_missing" 6 "operator"
        "The instance is not there, or was never completely built, so it cannot be moved to another release."
        "Build it with `dcctl bootstrap`.";
    InstanceElsewhere "guard.instance_elsewhere" 6 "operator"
        "The instance lives elsewhere than where the bundle says: in another namespace, or as another Helm release."
        "Use the bundle that it was built from; the message names what bears the instance's name.";
    PlanReplaces "guard.plan_replaces" 6 "operator"
        "The plan would delete or replace something of a live instance."
        "Mend the bundle, or allow what the message names with --allow-replace=ADDRESS.";
    ReleasePending "guard.release_pending" 6 "operator"
        "Another Helm process may still be at work on this release."
        "Wait until the time that the message names, then run the same command again.";
    RecordForeign "guard.record" 6 "operator"
        "The install record is not this cluster's, or not dcctl's."
        "Look at the object that the message names; dcctl does not overwrite it.";
    OtherBundle "guard.other_bundle" 6 "operator"
        "The cluster was installed from another bundle, and it can have one."
        "Give this bundle a cluster of its own.";
    Downgrade "guard.downgrade" 6 "operator"
        "The cluster has a newer release than the bundle."
        "Install that release or a newer one, or allow the older one with --allow-downgrade.";
    StateErrored "guard.state_errored" 6 "operator"
        "A state that OpenTofu could not save is waiting to be pushed."
        "Push the file that the message names, then remove it.";
    StateLocked "guard.state_locked" 6 "operator"
        "Another OpenTofu has locked the state, and nothing here shows that it has ended."
        "Wait until the process that the message names has ended; if it is gone for good, take its lock off with the command that the message prints.";
    StoppedClean "stopped.clean" 10 "nobody"
        "Stopped on request. Every tool ended by itself; the lock, if it was taken, was released."
        "Run the same command again when you want to go on.";
    StoppedPartial "stopped.partial" 11 "caller, by a re-run"
        "Stopped, and the infrastructure is partially applied; the lock, if it was taken, was released."
        "Run the same command again: the apply goes on from what is in its state.";
    StoppedForced "stopped.forced" 12 "operator"
        "Ended by force, or the lock could not be given back: the lock was left behind."
        "Make sure that nothing of this run lives, then reclaim the lock.";
    LockHeld "lock.held" 20 "caller, later"
        "The cluster is locked by a run that renews its lock."
        "Wait for it to finish, then run the same command again.";
    LockHeldStale "lock.held_stale" 21 "a person at a terminal"
        "The cluster is locked, and by this machine's clock the lock looks stale."
        "Make sure that the holder is gone, then reclaim the lock.";
    LockLost "lock.lost" 22 "operator"
        "The lock was lost while the run was at work."
        "See who holds it now; run the same command again when it is free.";
    PersonMissing "reclaim.needs_person" 23 "a person at a terminal"
        "Reclaiming a lock, or releasing an instance without --yes, takes a person at a terminal, and there is none here, or `CI` is set."
        "Run it from a terminal of your own, outside of any job.";
    ReclaimRefused "reclaim.refused" 24 "caller, later"
        "The lock changed while it was checked: its holder is alive, or somebody else is at work on it. It was left alone."
        "Wait for the holder to finish; `dcctl lock status` shows who it is now.";
    RunGoesOn "runs.goes_on" 30 "caller, later"
        "The run that was waited for goes on: the time to wait is over, or the waiting was cancelled."
        "Wait for it again, or ask it to stop with `dcctl runs stop`.";
    ReportUnwritten "report.unwritten" 40 "CI owner"
        "The run went well, but a report could not be written."
        "Make the path that the message names writable.";
    Internal "internal" 70 "us"
        "A bug in dcctl."
        "Report it, with the run directory that the verdict names.";
}

impl Code {
    /// This code's row of the [`TABLE`].
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.code == self).expect("the table is made from the same list as the enum")
    }

    /// The name on the wire, `area.what`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The exit status of a run that ends with this code.
    pub fn exit(self) -> u8 {
        self.row().exit
    }

    /// [`Code::MachineExhausted`] when that is what the system's error means, else this code.
    #[must_use]
    pub fn unless_exhausted(self, error: &io::Error) -> Code {
        if is_exhausted(error) { Code::MachineExhausted } else { self }
    }

    /// Reads a name as written on the wire.
    pub fn parse(name: &str) -> Option<Code> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.code)
    }
}

/// Whether the system refused something because there is no more of it: open files (of the process or the machine),
/// memory, processes.
pub fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN].contains(&errno))
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An expected way to go wrong, that happened: what people and scripts are told about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stable code.
    pub code: Code,
    /// One sentence: what went wrong, and where. It does not repeat the causes.
    pub message: String,
    /// What lies beneath, outermost first.
    pub causes: Vec<String>,
    /// What to do now, most helpful first.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure with its sentence and nothing beneath it.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), causes: Vec::new(), hints: Vec::new() }
    }

    /// Adds an error and its whole source chain as causes. A cause that repeats the one before it is left out.
    #[must_use]
    pub fn because(mut self, error: &(dyn Error + 'static)) -> Failure {
        let mut next = Some(error);
        while let Some(error) = next {
            self = self.cause(error.to_string());
            next = error.source();
        }
        self
    }

    /// Adds one cause in words.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Failure {
        let cause = cause.into();
        if !cause.is_empty() && self.causes.last() != Some(&cause) {
            self.causes.push(cause);
        }
        self
    }

    /// Adds one thing to do now.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hints.push(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {}

/// A word of a command that people are told to type, as a shell reads it: quoted where it has to be. What shows nothing,
/// or would make a terminal act, is spelt out.
pub fn shell_word(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+,".contains(c);
    let unseen = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    if !word.chars().any(unseen) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut spelt = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => spelt.extend(['\\', c]),
            c if unseen(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    spelt.push_str(&format!("\\x{byte:02x}"));
                }
            }
            c => spelt.push(c),
        }
    }
    spelt.push('\'');
    spelt
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_unique_and_reads_back() {
        let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for row in TABLE {
            assert_eq!(Code::parse(row.name), Some(row.code));
            assert_eq!(serde_json::to_value(row.code).expect("a name"), row.name);
        }
    }

    #[test]
    fn a_word_is_what_a_shell_makes_of_it() {
        for (word, typed) in [
            ("/srv/lock", "/srv/lock"),
            ("arn:aws:eks:eu-1:7:cluster/x", "arn:aws:eks:eu-1:7:cluster/x"),
            ("/srv/my lock", "'/srv/my lock'"),
            ("it's; ok", r"'it'\''s; ok'"),
            ("", "''"),
            ("a\u{1b}[31m\n'b\\", r"$'a\x1b[31m\x0a\'b\\'"),
        ] {
            assert_eq!(shell_word(word), typed);
        }
    }

    #[test]
    fn the_table_is_in_the_order_of_exit_status() {
        assert!(TABLE.windows(2).all(|pair| pair[0].exit <= pair[1].exit));
    }

    #[test]
    fn what_the_system_has_no_more_of_is_told_from_other_trouble() {
        let code = |errno: Errno| Code::ToolMissing.unless_exhausted(&errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN] {
            assert_eq!(code(errno), Code::MachineExhausted, "{errno:?}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOSPC] {
            assert_eq!(code(errno), Code::ToolMissing, "{errno:?}");
        }
        assert_eq!(Code::Internal.unless_exhausted(&io::Error::other("x")), Code::Internal);
    }

    #[test]
    fn the_causes_are_the_source_chain_without_repeats() {
        let inner = std::io::Error::other(Failure::new(Code::Internal, "the socket closed"));
        let failure = Failure::new(Code::ClusterUnreachable, "could not reach it").because(&inner);
        assert_eq!(failure.causes, ["the socket closed"]);
    }
}
