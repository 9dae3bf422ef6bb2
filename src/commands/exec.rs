//! `dcctl exec -- CMD`: any command under the cluster's lock. It has no bundle.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::{ExecArgs, ReportOptions, TargetOptions};
use crate::commands::apply::{self, files};
use crate::commands::attempt::{self, Begun};
use crate::commands::{Desk, terminal};
use crate::config::Job;
use crate::failure::{Code, Failure};
use crate::front::Showing;
use crate::pipeline::{Plan, Verb};
use crate::run::{ForCommand, Mode, Purpose, Spec};

/// Runs the command.
pub(crate) fn exec(desk: &Desk, args: ExecArgs) -> u8 {
    attempt::make(desk, Asked(args))
}

/// What was asked for.
struct Asked(ExecArgs);

impl Asked {
    /// The program and its arguments; the command line has at least the one.
    fn words(&self) -> (&OsString, &[OsString]) {
        self.0.command.split_first().expect("the command line wants a command")
    }
}

impl attempt::Asked for Asked {
    fn verb(&self) -> Verb {
        Verb::Exec
    }

    fn program(&self) -> Option<String> {
        Some(self.for_command(Path::new(""), PathBuf::new()).name())
    }

    fn target(&self) -> &TargetOptions {
        &self.0.target
    }

    fn report(&self) -> &ReportOptions {
        &self.0.report
    }

    fn mode(&self) -> Mode {
        if self.0.dry_run { Mode::DryRun } else { Mode::Act }
    }

    fn showing(&self, desk: &Desk) -> Showing {
        terminal::showing_beside_a_command(desk, self.0.report.output, self.0.report.color)
    }

    /// In the order in which mistakes are best told: options, kubeconfig. Whether the command is there is asked in the run's
    /// first step.
    fn gather(&self, begun: &Begun, run_dir: PathBuf) -> Result<Spec, Failure> {
        let (args, desk) = (&self.0, &begun.desk);
        let environment = &desk.environment;
        let events_file = files::report_path("--events-file", args.report.events_file.as_deref())?;
        let junit = files::report_path("--junit", args.report.junit.as_deref())?;
        let folder = std::env::current_dir().map_err(|error| {
            Failure::new(Code::OptionInvalid, "the folder that the command is to run in is gone").because(&error)
        })?;
        let kubeconfig = apply::find_kubeconfig(desk, &args.target)?;
        let kubeconfig_path = run_dir.join(files::KUBECONFIG);
        kubeconfig.write(&kubeconfig_path)?;
        let job = Job::detect(environment, std::process::id());
        let given = environment.for_command();
        Ok(Spec {
            run: begun.run.clone(),
            began: begun.began,
            began_at: desk.clock.wall(),
            plan: Plan::of(Verb::Exec),
            mode: attempt::Asked::mode(self),
            purpose: Purpose::Command(Box::new(self.for_command(&run_dir, folder))),
            inside: environment.outer_run(),
            kube_context: kubeconfig.context().to_owned(),
            server: kubeconfig.server().to_owned(),
            user: environment.user_name(),
            host: files::host_name(),
            notes: apply::notes(desk, &kubeconfig, &job, args.stop_after),
            job,
            run_dir,
            kubeconfig: kubeconfig_path,
            proxy: apply::proxies(desk),
            keep_output: args.keep_output,
            environment: given.kept,
            dropped: given.dropped,
            path: environment.text("PATH").unwrap_or_default().to_owned(),
            events_file,
            junit,
            wait: attempt::wait(&args.busy),
            on_busy: attempt::on_busy(&args.busy, Verb::Exec),
            stop_after: args.stop_after,
            secrets: kubeconfig.secrets().into_iter().collect(),
            #[cfg(feature = "test-tools")]
            break_at: environment.text("DCCTL_TEST_BREAK").map(str::to_owned),
        })
    }
}

impl Asked {
    fn for_command(&self, run_dir: &Path, folder: PathBuf) -> ForCommand {
        let (program, args) = self.words();
        let output = run_dir.join("output");
        ForCommand {
            program: program.clone(),
            args: args.to_vec(),
            folder,
            stdout: output.join("command.stdout"),
            stderr: output.join("command.stderr"),
            stdin: self.0.stdin,
            propagate: self.0.propagate_exit_code,
        }
    }
}
