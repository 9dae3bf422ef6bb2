//! A state backend on loopback, with locks, as OpenTofu's `http` backend wants one. Each path is a state of its own.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value;

use crate::bed::message::{Body, Head, read_body};

/// One server. It answers for as long as the test's process lives.
#[derive(Debug, Clone)]
pub(crate) struct StateBackend {
    port: u16,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    states: BTreeMap<String, Vec<u8>>,
    locks: BTreeMap<String, Vec<u8>>,
    refusal: Option<(u16, Vec<u8>)>,
    requests: Vec<String>,
    is_full: bool,
}

impl StateBackend {
    /// Starts one.
    pub(crate) fn start() -> StateBackend {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let backend = StateBackend { port, kept: Arc::default() };
        let server = backend.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                thread::spawn(move || {
                    // A client that is killed breaks off.
                    let _ = server.serve(stream);
                });
            }
        });
        backend
    }

    /// The block of a root that keeps its state here.
    pub(crate) fn block(&self, name: &str) -> String {
        let address = format!("http://127.0.0.1:{}/{name}", self.port);
        format!(
            "terraform {{\n  backend \"http\" {{\n    address        = \"{address}\"\n    lock_address   = \"{address}\"\n    \
             unlock_address = \"{address}\"\n    retry_max      = 0\n  }}\n}}\n"
        )
    }

    /// A state, if there is one.
    pub(crate) fn state(&self, name: &str) -> Option<Value> {
        self.kept().states.get(&format!("/{name}")).map(|text| serde_json::from_slice(text).expect("a state is JSON"))
    }

    /// Puts bytes in a state's place; none removes it.
    pub(crate) fn put(&self, name: &str, bytes: Option<&[u8]>) {
        let path = format!("/{name}");
        match bytes {
            Some(bytes) => drop(self.kept().states.insert(path, bytes.to_vec())),
            None => drop(self.kept().states.remove(&path)),
        }
    }

    /// Who has the lock of a state, as OpenTofu said it.
    pub(crate) fn lock(&self, name: &str) -> Option<Value> {
        self.kept().locks.get(&format!("/{name}")).map(|text| serde_json::from_slice(text).expect("it is JSON"))
    }

    /// Locks a state in somebody's name.
    pub(crate) fn lock_as(&self, name: &str, info: &Value) {
        self.kept().locks.insert(format!("/{name}"), info.to_string().into_bytes());
    }

    /// Takes no state from here on, until it does again.
    pub(crate) fn fill(&self, is_full: bool) {
        self.kept().is_full = is_full;
    }

    /// Answers every attempt to lock with this from now on; none gives locks again.
    pub(crate) fn refuse_locks(&self, answer: Option<(u16, &str)>) {
        self.kept().refusal = answer.map(|(status, body)| (status, body.as_bytes().to_vec()));
    }

    /// Every request so far, as `LOCK /one`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.kept().requests.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(head) = Head::read(&mut reader)? {
            let body = read_body(head.body(Body::Sized(0)), &mut reader)?;
            let (status, answer) = self.answer(&head.word(0), &head.word(1), body);
            let head = format!("HTTP/1.1 {status} Answer\r\nContent-Length: {}\r\n\r\n", answer.len());
            reader.get_mut().write_all(&[head.as_bytes(), &answer].concat())?;
        }
        Ok(())
    }

    fn answer(&self, method: &str, target: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let mut kept = self.kept();
        kept.requests.push(format!("{method} {path}"));
        match method {
            "GET" => kept.states.get(&path).map_or((404, Vec::new()), |state| (200, state.clone())),
            "POST" if kept.is_full => (507, Vec::new()),
            "POST" => {
                kept.states.insert(path, body);
                (200, Vec::new())
            }
            "DELETE" => {
                kept.states.remove(&path);
                (200, Vec::new())
            }
            "LOCK" => {
                if let Some(refusal) = &kept.refusal {
                    return refusal.clone();
                }
                if let Some(held) = kept.locks.get(&path) {
                    return (423, held.clone());
                }
                kept.locks.insert(path, body);
                (200, Vec::new())
            }
            "UNLOCK" => {
                let id = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap_or_default()["ID"].clone();
                match kept.locks.get(&path) {
                    Some(held) if id(held) != id(&body) => (409, held.clone()),
                    _ => {
                        kept.locks.remove(&path);
                        (200, Vec::new())
                    }
                }
            }
            _ => (405, Vec::new()),
        }
    }
}
