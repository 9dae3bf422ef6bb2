//! What a test tells the proxy: which requests, which side of them, and what happens.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::bed::wait;

/// What happens to a request or to its reply.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It is carried on after this time.
    Delay(Duration),
    /// It is carried on when the test opens the gate. The server gets a held request even when the client has long
    /// given up: that is how a late POST is made.
    Hold(Gate),
    /// It is swallowed, and the connection is closed.
    Drop,
    /// It is swallowed, and the connection is reset.
    Reset,
    /// It is swallowed, and the connection stays open in silence until the client gives up.
    HalfOpen,
    /// Only this many bytes of its body are carried on, then the connection is closed. (On a request: of the request.)
    Truncate(usize),
    /// The client gets this status and JSON body. On a request the server never hears of it; on a reply it has done
    /// what it was asked.
    Answer(u16, String),
    /// The same with fields of the head in their lines, each with its end.
    AnswerWith(u16, String, String),
    /// The server gets the request twice; the client gets the second answer.
    Twice,
}

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::Delay(_) => "delayed",
            Fault::Hold(_) => "held",
            Fault::Drop => "dropped",
            Fault::Reset => "reset",
            Fault::HalfOpen => "half open",
            Fault::Truncate(_) => "truncated",
            Fault::Answer(..) | Fault::AnswerWith(..) => "answered",
            Fault::Twice => "doubled",
        }
    }
}

/// On which side of the API server a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Request,
    Reply,
}

/// Which requests, and what happens to them.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    method: String,
    path: String,
    which: Which,
    /// The method and a part of the path of the request that has to come first.
    begins: Option<(String, String)>,
    matched: usize,
    fault: Option<(Side, Fault)>,
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Every,
    Only(usize),
    From(usize),
}

impl Rule {
    /// Every request of this method (`*` for any) whose path and query contain this.
    pub(crate) fn on(method: &str, path: &str) -> Rule {
        let (method, path) = (method.to_owned(), path.to_owned());
        Rule { method, path, which: Which::Every, begins: None, matched: 0, fault: None }
    }

    /// Of those only this one, counted from 1 since the rule was added.
    #[must_use]
    pub(crate) fn nth(mut self, number: usize) -> Rule {
        self.which = Which::Only(number);
        self
    }

    /// Of those this one and all later ones.
    #[must_use]
    pub(crate) fn from(mut self, number: usize) -> Rule {
        self.which = Which::From(number);
        self
    }

    /// Counted only from the first request of this other kind on. Add it before a rule that takes that one.
    #[must_use]
    pub(crate) fn after(mut self, method: &str, path: &str) -> Rule {
        self.begins = Some((method.to_owned(), path.to_owned()));
        self
    }

    /// The fault happens before the API server hears of the request.
    #[must_use]
    pub(crate) fn request(mut self, fault: Fault) -> Rule {
        self.fault = Some((Side::Request, fault));
        self
    }

    /// The fault happens after the API server has done what it was asked.
    #[must_use]
    pub(crate) fn reply(mut self, fault: Fault) -> Rule {
        self.fault = Some((Side::Reply, fault));
        self
    }

    /// Counts a request, and says what happens to it if it is one of this rule's.
    pub(super) fn applies(&mut self, method: &str, path: &str) -> Option<(Side, Fault)> {
        if self.begins.as_ref().is_some_and(|(first, part)| first == method && path.contains(part)) {
            self.begins = None;
        }
        if self.begins.is_some() || !((self.method == "*" || self.method == method) && path.contains(&self.path)) {
            return None;
        }
        self.matched += 1;
        let chosen = match self.which {
            Which::Every => true,
            Which::Only(number) => self.matched == number,
            Which::From(number) => self.matched >= number,
        };
        self.fault.clone().filter(|_| chosen)
    }

    /// Opens its gate, so that no thread waits there for ever.
    pub(super) fn let_go(&self) {
        if let Some((_, Fault::Hold(gate))) = &self.fault {
            gate.open();
        }
    }
}

/// Where requests wait until the test lets them through.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    open: bool,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Gate {
        Gate::default()
    }

    /// Lets everything through, now and later.
    pub(crate) fn open(&self) {
        self.change(|state| state.open = true);
    }

    /// Waits until this many requests have come to it.
    #[track_caller]
    pub(crate) fn wait_for(&self, number: usize) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let arrived = changed.wait_timeout_while(state, wait::GENEROUS, |state| state.arrived < number);
        let timed_out = arrived.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        assert!(!timed_out, "no {number} requests came to the gate");
    }

    /// Passes through it, when it is open.
    pub(super) fn pass(&self) {
        self.change(|state| state.arrived += 1);
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(state, |state| !state.open));
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let (state, changed) = &*self.0;
        change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }
}
