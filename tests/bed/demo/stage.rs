//! Where the demo plays: a control plane of its own, or the cluster of a context.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bed::child::{Mark, command};
use crate::bed::control_plane::{ControlPlane, Start};
use crate::bed::serve::End;
use crate::bed::{Tools, folder};

/// A cluster and the tools that act on it.
#[derive(Debug)]
pub(crate) struct Stage {
    context: String,
    /// A folder with `tofu`, `helm` and `kubectl`, first on PATH.
    programs: PathBuf,
    tofurc: PathBuf,
    cluster: Cluster,
}

#[derive(Debug)]
enum Cluster {
    /// A control plane that ends with the demo, and a home for what runs on it.
    Own(Box<ControlPlane>, PathBuf),
    /// The user's cluster, with their kubeconfig and their home; the folder holds links to the tools.
    Theirs(tempfile::TempDir),
}

impl Stage {
    /// Starts a control plane. What is missing is built.
    pub(crate) fn own(results: &Path, end: &End, out: &mut dyn Write) -> io::Result<Stage> {
        folder::remove_abandoned();
        let tools = Tools::build(&[])?;
        writeln!(out, "Starting a Kubernetes control plane for this demo, on this machine's loopback …")?;
        out.flush()?;
        let plane = ControlPlane::start(&tools, Start::Pristine, end)?;
        let home = results.join("home");
        fs::create_dir_all(&home)?;
        let described = plane.described();
        writeln!(out, "It listens on {} and took {} ms.", described.server, described.start_ms)?;
        let (programs, tofurc) = (described.programs.clone(), described.tofurc.clone());
        Ok(Stage { context: "bed".into(), programs, tofurc, cluster: Cluster::Own(Box::new(plane), home) })
    }

    /// Uses the user's cluster and tools. What is missing of the tools is built.
    pub(crate) fn theirs(context: String, out: &mut dyn Write) -> io::Result<Stage> {
        let tools = Tools::for_a_cluster()?;
        let links = tempfile::tempdir()?;
        tools.link_into(&links.path().join("bin"))?;
        writeln!(out, "Using the cluster of the context {context}. What the demo makes there stays there.")?;
        let (programs, tofurc) = (links.path().join("bin"), tools.path("tofurc").to_owned());
        Ok(Stage { context, programs, tofurc, cluster: Cluster::Theirs(links) })
    }

    /// The context's name.
    pub(crate) fn context(&self) -> &str {
        &self.context
    }

    /// Gives a command the tools, and on a cluster of our own the credentials and a home for it.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.env("PATH", self.path()).env("TF_CLI_CONFIG_FILE", &self.tofurc);
        if let Cluster::Own(plane, home) = &self.cluster {
            let described = plane.described();
            command
                .env("KUBECONFIG", &described.user("admin").kubeconfig)
                .env("HOME", home)
                .env_remove("XDG_STATE_HOME")
                .env(Mark::VARIABLE, Mark::of(&described.folder).value());
        }
    }

    /// Where the state of OpenTofu belongs, when it must not lie with the state of real clusters.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        match &self.cluster {
            Cluster::Own(_, home) => Some(home.join("state")),
            Cluster::Theirs(_) => None,
        }
    }

    /// kubectl for this cluster.
    pub(crate) fn kubectl(&self) -> Command {
        let mut kubectl = command(&self.programs.join("kubectl"));
        self.prepare(&mut kubectl);
        kubectl.args(["--context", &self.context]);
        kubectl
    }

    #[expect(clippy::disallowed_methods, reason = "the user's PATH, put after the bed's own folder")]
    fn path(&self) -> std::ffi::OsString {
        let mut path = self.programs.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        path
    }
}
