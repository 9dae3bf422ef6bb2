//! `bed serve`: one control plane, for as long as somebody holds the other end of standard input.
//!
//! Whoever starts it keeps a pipe to it. When that process ends, by whatever signal, the pipe closes, and the bed
//! ends everything that it started and everything that was started with its mark.

use std::io::{self, IsTerminal, Read, Stderr, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::bed::control_plane::{ControlPlane, Start};
use crate::bed::{Tools, folder};

/// The end of a bed: its standard input closes, or a signal asks for it.
#[derive(Debug)]
pub(crate) struct End(Mutex<Receiver<String>>);

impl End {
    /// Watches for both from now on.
    pub(crate) fn watch() -> io::Result<End> {
        let (closed, end) = channel();
        send_on_signal(closed.clone())?;
        thread::spawn(move || {
            let mut ignored = [0; 256];
            while io::stdin().read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
            closed.send("standard input closed".to_owned())
        });
        Ok(End(Mutex::new(end)))
    }

    /// Watches for signals alone: standard input belongs to somebody else.
    pub(crate) fn of_signals() -> io::Result<End> {
        let (asked, end) = channel();
        send_on_signal(asked)?;
        Ok(End(Mutex::new(end)))
    }

    /// An error when the end has already come.
    pub(crate) fn has_come(&self) -> Option<io::Error> {
        match self.0.lock().expect("nobody panics with it").try_recv() {
            Ok(reason) => Some(io::Error::other(format!("ended before it was ready: {reason}"))),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    /// Waits for the end and says why it came.
    pub(crate) fn wait(&self) -> String {
        self.0.lock().expect("nobody panics with it").recv().unwrap_or_default()
    }
}

fn send_on_signal(asked: Sender<String>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        let signal = signals.forever().next();
        asked.send(format!("signal {}", signal.unwrap_or(0)))
    });
    Ok(())
}

/// Starts a control plane, describes it in one line, waits for the end, and ends everything.
pub(crate) fn serve(start: Start, out: &mut dyn Write, err: &mut Stderr) -> io::Result<()> {
    folder::remove_abandoned();
    let end = End::watch()?;
    // Whoever looks on has nothing to see until it is there; a program that reads has the line.
    if err.is_terminal() {
        writeln!(err, "starting etcd and the API server, which takes 10 to 60 seconds")?;
    }
    let plane = ControlPlane::start(Tools::get(), start, &end)?;
    writeln!(out, "{}", serde_json::to_string(plane.described())?)?;
    out.flush()?;
    end.wait();
    drop(plane);
    Ok(())
}
