//! What a person sits at is gone in the middle of an apply: the pane of a tmux, its server, the connection of an SSH. Each
//! is the one request to stop.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::bed::child::{Mark, command};
use crate::bed::dcctl::Journal;
use crate::bed::tools::Tools;
use crate::bed::{Bed, Dcctl, untested, wait};
use crate::cancel::job::{is_program, send, supervises};
use crate::stopping::CREATION;
use crate::stopping::cast::pid;
use crate::stopping::rig::Rig;

/// A run for a person, and the journal that it will have.
fn shown(rig: &Rig) -> (Dcctl, Journal) {
    let run_dir = rig.bed().file("run");
    let run = rig.own().env("DCCTL_OUTPUT", "human").env("TERM", "screen").arg("--run-dir").arg(&run_dir);
    (run, Journal::at(run_dir.join("events.jsonl")))
}

/// It stopped cleanly at its one request, which was the loss of its terminal.
#[track_caller]
fn assert_stopped_by_the_loss(rig: &Rig, journal: &Journal) {
    let verdict = journal.wait_for("run.finished", |_| true);
    assert_eq!(verdict["data"]["exit_code"], 10, "{verdict}");
    let signal = journal.events().into_iter().find(|event| event["type"] == "signal.received");
    assert_eq!(signal.map(|event| event["data"]["signal"].clone()), Some("SIGHUP".into()), "{verdict}");
    rig.assert_clean_stop(&journal.events());
    wait::fact("the front to be gone", || front(rig.bed()).is_none().then_some(()));
    rig.assert_converges();
}

fn front(bed: &Bed) -> Option<Pid> {
    bed.mark().pids().into_iter().find(|pid| is_program(*pid, "dcctl") && !supervises(*pid))
}

/// Programs of these names, of the machine or fetched; none where they cannot be had, which is said.
fn programs(names: &[&str], what: &str) -> Option<Tools> {
    Tools::fetch(names).inspect_err(|error| untested::say(what, &error.to_string())).ok()
}

/// A tmux with a server of its own, and a run as the program of its one pane.
struct Tmux {
    program: PathBuf,
    socket: PathBuf,
}

impl Tmux {
    fn start(rig: &Rig, mut run: Dcctl) -> Option<Tmux> {
        let tools = programs(&["tmux"], "a tmux that is killed")?;
        let tmux = Tmux { program: tools.path("tmux").to_owned(), socket: rig.bed().file("tmux") };
        let run = run.command();
        let mut started = tmux.command(&["-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "40"]);
        started.arg(run.get_program()).args(run.get_args()).env_clear();
        started.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        started.current_dir(run.get_current_dir().expect("it was given one"));
        assert!(started.status().expect("it starts").success(), "tmux made no session");
        Some(tmux)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut tmux = command(&self.program);
        tmux.arg("-S").arg(&self.socket).args(words).stdin(Stdio::null());
        tmux
    }

    fn ask(&self, words: &[&str]) -> String {
        let said = self.command(words).output().expect("it starts");
        assert!(said.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }
}

#[test]
fn a_tmux_whose_pane_or_server_is_killed_is_the_one_request_to_stop() {
    for server in [false, true] {
        let rig = Rig::new(CREATION);
        let (run, journal) = shown(&rig);
        let Some(tmux) = Tmux::start(&rig, run) else { return };
        rig.wait_until_slow(&journal);
        if server {
            let number = tmux.ask(&["display-message", "-p", "#{pid}"]).parse().expect("a number");
            send(pid(number), Signal::KILL);
        } else {
            tmux.ask(&["kill-pane"]);
        }
        assert_stopped_by_the_loss(&rig, &journal);
    }
}

/// An SSH server of the test's own on this machine alone, with keys of its own. Dropped, it is gone.
struct Server {
    process: Child,
    port: u16,
    folder: PathBuf,
    client: PathBuf,
}

impl Server {
    /// It lives in a mount namespace, in which the user is there whom it wants to have, and what it writes down is lost.
    fn start(bed: &Bed) -> Option<Server> {
        const WHAT: &str = "an SSH connection that is lost";
        if !rustix::process::geteuid().is_root() {
            untested::say(WHAT, "a server that lets anybody in takes root");
            return None;
        }
        let tools = programs(&["ssh", "ssh-keygen", "sshd"], WHAT)?;
        let folder = bed.file("ssh");
        fs::create_dir(&folder).expect("the test's folder can be written");
        for name in ["host", "key"] {
            let mut made = command(tools.path("ssh-keygen"));
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name)).stdin(Stdio::null());
            assert!(made.status().expect("it starts").success(), "no key was made");
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
        let port = listener.local_addr().expect("it has one").port();
        drop(listener);
        let at = folder.display();
        let settings = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nPidFile none\nAuthorizedKeysFile {at}/key.pub\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        );
        fs::write(folder.join("settings"), settings).expect("the test's folder can be written");
        let users = fs::read_to_string("/etc/passwd").expect("every system has some");
        let mut users: Vec<&str> = users.lines().filter(|line| !line.starts_with("sshd:")).collect();
        users.push("sshd:x:65533:65533::/:/bin/false\n");
        fs::write(folder.join("users"), users.join("\n")).expect("the test's folder can be written");
        let script = format!(
            "mount --bind {at}/users /etc/passwd && mount -t tmpfs small /run && mount -t tmpfs small /var/log && \
             mkdir -m 755 /run/sshd && exec \"$@\" -D -e -f {at}/settings"
        );
        let mut server = command(Path::new("unshare"));
        server.args(["--mount", "sh", "-c", &script, "sh"]).arg(tools.path("sshd"));
        server.env(Mark::VARIABLE, bed.mark().value()).stdin(Stdio::null()).stdout(Stdio::null());
        server.stderr(fs::File::create(folder.join("log")).expect("the test's folder can be written"));
        let process = server.spawn().expect("it starts");
        let server = Server { process, port, client: tools.path("ssh").to_owned(), folder };
        let answers = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        if let Err(error) = wait::until(wait::GENEROUS, "the SSH server to answer", answers) {
            let log = fs::read_to_string(server.folder.join("log")).unwrap_or_default();
            untested::say(WHAT, &format!("{error}: {log}"));
            return None;
        }
        Some(server)
    }

    /// A person who logs in and starts this run at a terminal there.
    fn log_in(&self, mut run: Dcctl) -> Child {
        let script = self.folder.join("script");
        fs::write(&script, as_script(run.command())).expect("the test's folder can be written");
        let known = format!("UserKnownHostsFile={}", self.folder.join("known").display());
        let mut client = command(&self.client);
        client.args(["-F", "none", "-tt", "-p", &self.port.to_string(), "-i"]).arg(self.folder.join("key"));
        for option in ["BatchMode=yes", "StrictHostKeyChecking=no", "IdentitiesOnly=yes", &known] {
            client.args(["-o", option]);
        }
        client.arg("root@127.0.0.1").arg(format!("exec sh {}", script.display()));
        client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// This command as a script that becomes it, with its environment alone.
fn as_script(run: &Command) -> String {
    let quoted = |word: &str| format!(" '{}'", word.replace('\'', r"'\''"));
    let variables = run
        .get_envs()
        .filter_map(|(name, value)| Some(quoted(&format!("{}={}", name.to_string_lossy(), value?.to_string_lossy()))));
    let words = std::iter::once(run.get_program()).chain(run.get_args()).map(|word| quoted(&word.to_string_lossy()));
    let folder = run.get_current_dir().expect("it was given one").display().to_string();
    let line: String = variables.chain(words).collect();
    format!("cd{} && exec env -i{line}\n", quoted(&folder))
}

/// The process that holds the terminal of a login: what has started the run's front there.
fn session_of(front: Pid) -> Pid {
    let status = fs::read_to_string(format!("/proc/{}/status", front.as_raw_nonzero())).expect("it lives");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("the kernel says it");
    let parent = pid(parent.trim().parse().expect("a number"));
    assert!(is_program(parent, "sshd"), "{status}");
    parent
}

#[test]
fn an_ssh_connection_that_is_lost_is_the_one_request_to_stop() {
    for by_client in [false, true] {
        let rig = Rig::new(CREATION);
        let Some(server) = Server::start(rig.bed()) else { return };
        let (run, journal) = shown(&rig);
        let mut client = server.log_in(run);
        rig.wait_until_slow(&journal);
        if by_client {
            client.kill().expect("it was not waited for");
        } else {
            send(session_of(front(rig.bed()).expect("it shows the run")), Signal::KILL);
        }
        assert_stopped_by_the_loss(&rig, &journal);
        client.wait().expect("it ends with its connection");
    }
}
