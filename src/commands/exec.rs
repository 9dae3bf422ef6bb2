//! `dcctl exec -- CMD`: any command under the lock of a cluster, or of a folder. It has no bundle.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::{DetachOptions, ExecArgs, ReportOptions, SubstrateOptions, TargetOptions};
use crate::cluster::Kubeconfig;
use crate::commands::apply::reports::{self, Reads};
use crate::commands::apply::{self, files};
use crate::commands::attempt::{self, Begun};
use crate::commands::substrate::{self, Meant};
use crate::commands::{Desk, terminal};
use crate::config::Job;
use crate::config::env::ToolEnvironment;
use crate::failure::{Code, Failure};
use crate::front::Showing;
use crate::lock::direct::Intent;
use crate::lock::{LockFolder, Timing};
use crate::pipeline::{Plan, Verb};
use crate::run::{ForCommand, Mode, Purpose, Spec, Substrate};

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
        let nowhere = Substrate::Direct(PathBuf::new());
        Some(self.for_command(nowhere, Path::new(""), PathBuf::new()).name())
    }

    fn target(&self) -> &TargetOptions {
        &self.0.target
    }

    fn substrate(&self) -> &SubstrateOptions {
        &self.0.substrate
    }

    fn report(&self) -> &ReportOptions {
        &self.0.report
    }

    fn mode(&self) -> Mode {
        if self.0.dry_run { Mode::DryRun } else { Mode::Act }
    }

    fn detach(&self) -> &DetachOptions {
        &self.0.detach
    }

    fn needs_front(&self) -> Option<&'static str> {
        self.0.stdin.then_some("--stdin")
    }

    fn showing(&self, desk: &Desk) -> Showing {
        terminal::showing_beside_a_command(desk, self.0.report.output, self.0.report.color)
    }

    fn reads(&self, desk: &Desk) -> Reads {
        Reads {
            files: apply::kubeconfigs(desk, &self.0.target),
            bundle: None,
            lock_dir: self.0.substrate.lock_dir.clone(),
        }
    }

    /// In the order in which mistakes are best told: options, kubeconfig or lock folder. Whether the command is there is
    /// asked in the run's first step.
    fn gather(&self, begun: &Begun, run_dir: PathBuf) -> Result<Spec, Failure> {
        let (args, desk) = (&self.0, &begun.desk);
        let environment = &desk.environment;
        let reports = reports::find(&args.report, &run_dir, &attempt::Asked::reads(self, desk))?;
        let folder = std::env::current_dir().map_err(|error| {
            Failure::new(Code::OptionInvalid, "the folder that the command is to run in is gone").because(&error)
        })?;
        let lock = self.lock(desk, &run_dir)?;
        let job = Job::detect(environment, std::process::id());
        let given = lock.environment;
        let proxies = apply::proxies(desk);
        let credentials = lock.kubeconfig.iter().flat_map(|known| apply::credentials(known, &proxies));
        Ok(Spec {
            run: begun.run.clone(),
            began: begun.began,
            began_at: desk.clock.wall(),
            plan: Plan::of(Verb::Exec),
            mode: attempt::Asked::mode(self),
            purpose: Purpose::Command(Box::new(self.for_command(lock.substrate, &run_dir, folder))),
            inside: environment.outer_run(),
            user: environment.user_name(),
            host: files::host_name(),
            notes: apply::notes(desk, lock.kubeconfig.as_ref(), &job, args.stop.stop_after),
            grant: attempt::grant(&args.stop, desk, &job),
            job,
            run_dir,
            runs: files::runs(environment),
            keep_output: args.keep_output,
            environment: given.kept,
            dropped: given.dropped,
            path: environment.text("PATH").unwrap_or_default().to_owned(),
            events_file: reports.events,
            junit: reports.junit,
            wait: attempt::wait(&args.busy),
            on_busy: attempt::on_busy(&args.busy, Verb::Exec),
            stop_after: args.stop.stop_after,
            max_run_time: attempt::max_run_time(&args.detach),
            secrets: credentials.collect(),
            #[cfg(feature = "test-tools")]
            break_at: environment.text("DCCTL_TEST_BREAK").map(str::to_owned),
            #[cfg(feature = "test-tools")]
            witness: environment.path("DCCTL_TEST_WITNESS"),
        })
    }
}

/// What keeps the lock, and what follows from that.
struct Lock {
    substrate: Substrate,
    /// Of a cluster.
    kubeconfig: Option<Kubeconfig>,
    /// What the command starts from.
    environment: ToolEnvironment,
}

impl Asked {
    /// With a lock in a folder no kubeconfig is looked for, and none is made.
    fn lock(&self, desk: &Desk, run_dir: &Path) -> Result<Lock, Failure> {
        let (args, environment) = (&self.0, &desk.environment);
        match substrate::meant(&args.substrate, &args.target)? {
            Meant::Kubernetes => {
                let kubeconfig = apply::find_kubeconfig(desk, &args.target)?;
                let cluster = apply::on_cluster(desk, &kubeconfig, run_dir.join(files::KUBECONFIG))?;
                let substrate = Substrate::Kubernetes(cluster);
                Ok(Lock { substrate, kubeconfig: Some(kubeconfig), environment: environment.for_command() })
            }
            Meant::Direct(path) => {
                let intent = match attempt::Asked::mode(self) {
                    Mode::Act => Intent::Change,
                    Mode::DryRun => Intent::Look,
                };
                LockFolder::new(path.clone(), Timing::STANDARD).check_now(intent)?;
                let environment = environment.for_command_without_cluster();
                Ok(Lock { substrate: Substrate::Direct(path), kubeconfig: None, environment })
            }
        }
    }

    fn for_command(&self, substrate: Substrate, run_dir: &Path, folder: PathBuf) -> ForCommand {
        let (program, args) = self.words();
        let output = run_dir.join(crate::step::OUTPUT);
        ForCommand {
            substrate,
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
