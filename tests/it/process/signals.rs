//! Signals that reach a process of ours, as the program sees them.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::Signal;

use crate::process::{signal, started};

/// A process that prints every signal that it gets, and ends at SIGQUIT.
struct Listener {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Listener {
    fn new() -> Listener {
        let mut child = started(&["listen"], Stdio::piped());
        let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        assert_eq!(said.next().expect("a line").expect("text"), "listening");
        Listener { child, said }
    }

    fn send(&self, kind: Signal) {
        signal(self.child.id(), kind);
    }

    fn line(&mut self) -> String {
        self.said.next().expect("a line").expect("text")
    }
}

#[test]
fn a_signal_comes_with_its_sender() {
    let mut listener = Listener::new();
    let (me, user) = (std::process::id(), rustix::process::getuid().as_raw());
    let kinds =
        [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP"), (Signal::QUIT, "SIGQUIT")];
    for (kind, name) in kinds {
        listener.send(kind);
        assert_eq!(listener.line(), format!("{name} from {me} of {user}"));
    }
    assert!(listener.child.wait().expect("it ended").success());
}

#[test]
fn a_burst_of_twenty_arrives_at_least_once_and_ends_nothing() {
    let mut listener = Listener::new();
    for _ in 0..20 {
        listener.send(Signal::TERM);
    }
    // Different signals may come in another order than they were sent, so the last one waits for the first.
    let mut said = vec![listener.line()];
    listener.send(Signal::QUIT);
    said.extend(std::iter::from_fn(|| listener.said.next()).map(|line| line.expect("text")));
    let terms = said.iter().filter(|line| line.starts_with("SIGTERM")).count();
    assert!((1..=20).contains(&terms), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.starts_with("SIGQUIT")).count(), 1);
    assert!(listener.child.wait().expect("it ended").success());
}
