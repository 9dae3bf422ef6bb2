//! A store in memory with the semantics of the API server, for tests.
//!
//! [`Cell`] is the one object and what the API server does with it, as measured: a replace that names no uid *creates*
//! a Lease that is not there; a delete that meets a finalizer answers with the object. [`Twin`] is a [`LeaseStore`] over
//! a cell that can lose, delay or refuse single requests, and keeps a log of all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::failure::{Code, Failure};
use crate::lock::record::{NAME, NAMESPACE, Record};
use crate::lock::store::{Created, Deleted, LeaseStore, Replaced, Trouble};

/// One of the five requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Create the Lease.
    Create,
    /// Create its namespace.
    CreateNamespace,
    /// Read the Lease.
    Read,
    /// Replace the Lease.
    Replace,
    /// Delete the Lease.
    Delete,
}

/// The state of the namespace that the Lease is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Home {
    /// It is there.
    #[default]
    There,
    /// It is not.
    Missing,
    /// It is being deleted.
    Terminating,
}

/// The one object of the store.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    object: Option<Value>,
    version: u64,
    uids: u64,
    /// The namespace.
    pub home: Home,
    /// What the account may not do.
    pub forbidden: BTreeSet<Verb>,
    /// How many times a replace has created a Lease.
    pub created_by_replace: u64,
}

impl Cell {
    /// The Lease, if there is one.
    pub fn record(&self) -> Option<Record> {
        self.object.clone().and_then(Record::from_json)
    }

    /// Who holds it, without a copy.
    pub fn holder(&self) -> Option<&str> {
        self.object.as_ref()?["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())
    }

    /// Changes the object as another program or a person would.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.object.take() {
            change(&mut object);
            self.store(object);
        }
    }

    /// Puts an object there whatever was there before, with a new uid.
    pub fn put(&mut self, object: Value) -> Record {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        self.store_as(object, &uid)
    }

    /// Takes the object away, as a person with `kubectl` would.
    pub fn remove(&mut self) {
        self.object = None;
    }

    fn store(&mut self, object: Value) -> Record {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.store_as(object, &uid)
    }

    fn store_as(&mut self, mut object: Value, uid: &str) -> Record {
        self.version += 1;
        object["kind"] = json!("Lease");
        object["metadata"]["name"] = json!(NAME);
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let record = Record::from_json(object.clone()).expect("it has both");
        let finished = record.deleting_since().is_some() && record.finalizers().is_empty();
        self.object = (!finished).then_some(object);
        record
    }

    fn may(&self, verb: Verb) -> Result<(), Trouble> {
        if self.forbidden.contains(&verb) {
            let said = format!("leases.coordination.k8s.io is forbidden: User \"alice\" cannot {verb:?} it");
            return Err(Trouble::Forbidden(Failure::new(Code::Forbidden, said)));
        }
        Ok(())
    }

    /// POST of the Lease.
    pub fn create(&mut self, draft: &Value) -> Result<Created, Trouble> {
        self.may(Verb::Create)?;
        match self.home {
            Home::Missing => Ok(Created::NoNamespace(failure("namespaces \"dc-k8s-system\" not found"))),
            // The API server looks at the namespace before it looks for the object.
            Home::Terminating => Err(Trouble::NamespaceTerminating(failure("it is being terminated"))),
            Home::There if self.object.is_some() => Ok(Created::Exists),
            Home::There => Ok(Created::Stored(self.put(draft.clone()))),
        }
    }

    /// POST of the namespace.
    pub fn create_namespace(&mut self) -> Result<(), Trouble> {
        self.may(Verb::CreateNamespace)?;
        if self.home == Home::Missing {
            self.home = Home::There;
        }
        Ok(())
    }

    /// GET of the Lease.
    pub fn read(&self) -> Result<Option<Record>, Trouble> {
        self.may(Verb::Read)?;
        Ok(self.record())
    }

    /// PUT of the Lease, which creates one when there is none and the body names no uid.
    pub fn replace(&mut self, body: &Value) -> Result<Replaced, Trouble> {
        self.may(Verb::Replace)?;
        let named = |name: &str| body["metadata"][name].as_str().filter(|text| !text.is_empty());
        let Some(before) = self.record() else {
            if named("uid").is_some() {
                return Ok(Replaced::Conflict);
            }
            self.created_by_replace += 1;
            return Ok(Replaced::Stored(self.put(body.clone())));
        };
        let Some(version) = named("resourceVersion") else {
            return Err(Trouble::Refused(failure("metadata.resourceVersion: must be specified for an update")));
        };
        if version != before.version() || named("uid").is_some_and(|uid| uid != before.uid()) {
            return Ok(Replaced::Conflict);
        }
        Ok(Replaced::Stored(self.store_as(body.clone(), before.uid())))
    }

    /// DELETE of the Lease with both preconditions.
    pub fn delete(&mut self, uid: &str, version: &str) -> Result<Deleted, Trouble> {
        self.may(Verb::Delete)?;
        let Some(before) = self.record() else { return Ok(Deleted::Absent) };
        if before.uid() != uid || before.version() != version {
            return Ok(Deleted::Conflict);
        }
        if before.finalizers().is_empty() {
            self.object = None;
            return Ok(Deleted::Gone);
        }
        let mut object = before.json().clone();
        object["metadata"]["deletionTimestamp"] = json!("2026-11-30T00:00:00Z");
        Ok(Deleted::Kept(self.store(object)))
    }
}

/// What happens to one request on its way.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It never arrives; the sender waits in vain.
    LoseRequest,
    /// It is done, and the sender waits for the answer in vain.
    LoseReply,
    /// The sender waits in vain, and it is done that long after it was sent.
    Late(Duration),
    /// The answer comes that much later.
    SlowReply(Duration),
    /// This is the answer, and nothing is done.
    Answer(Trouble),
}

type Operation = Box<dyn FnOnce(&mut Cell) + Send>;

#[derive(Default)]
struct Inner {
    cell: Cell,
    faults: BTreeMap<Verb, VecDeque<Fault>>,
    down: Option<Trouble>,
    late: Vec<(tokio::time::Instant, Operation)>,
    log: Vec<Verb>,
    patience: Duration,
}

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct Twin(Arc<Mutex<Inner>>);

impl std::fmt::Debug for Twin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Twin").field(&self.inner().cell).finish()
    }
}

impl Twin {
    /// An empty store whose callers wait that long for an answer.
    pub fn new(patience: Duration) -> Twin {
        Twin(Arc::new(Mutex::new(Inner { patience, ..Inner::default() })))
    }

    /// Looks at the object, or changes it.
    pub fn cell<T>(&self, look: impl FnOnce(&mut Cell) -> T) -> T {
        let mut inner = self.inner();
        inner.land_late();
        look(&mut inner.cell)
    }

    /// Lets this happen to the next request of that kind that has no fault yet.
    pub fn fault(&self, verb: Verb, fault: Fault) {
        self.inner().faults.entry(verb).or_default().push_back(fault);
    }

    /// Answers everything like this from now on; `None` answers again.
    pub fn down(&self, trouble: Option<Trouble>) {
        self.inner().down = trouble;
    }

    /// Every request so far, in the order in which they were sent.
    pub fn log(&self) -> Vec<Verb> {
        self.inner().log.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn exchange<T: Send>(
        &self,
        verb: Verb,
        operation: impl FnOnce(&mut Cell) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let (fault, patience) = {
            let mut inner = self.inner();
            inner.log.push(verb);
            let fault = inner.faults.get_mut(&verb).and_then(VecDeque::pop_front);
            (fault.or(inner.down.clone().map(Fault::Answer)), inner.patience)
        };
        let in_vain = async || {
            tokio::time::sleep(patience).await;
            Err(Trouble::Unclear(Failure::new(Code::ClusterUnreachable, "no answer in time")))
        };
        match fault {
            None => self.cell(operation),
            Some(Fault::Answer(trouble)) => Err(trouble),
            Some(Fault::SlowReply(delay)) => {
                let answer = self.cell(operation);
                tokio::time::sleep(delay).await;
                answer
            }
            Some(Fault::LoseRequest) => in_vain().await,
            Some(Fault::LoseReply) => {
                drop(self.cell(operation));
                in_vain().await
            }
            Some(Fault::Late(delay)) => {
                let at = now() + delay;
                self.inner().late.push((at, Box::new(move |cell| drop(operation(cell)))));
                in_vain().await
            }
        }
    }
}

/// The runtime's time, which a test can stop.
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl Inner {
    /// Does what was delayed until now.
    fn land_late(&mut self) {
        let now = now();
        for (at, operation) in std::mem::take(&mut self.late) {
            if at <= now {
                operation(&mut self.cell);
            } else {
                self.late.push((at, operation));
            }
        }
    }
}

impl LeaseStore for Twin {
    async fn create(&self, draft: &Value) -> Result<Created, Trouble> {
        let draft = draft.clone();
        self.exchange(Verb::Create, move |cell| cell.create(&draft)).await
    }

    async fn create_namespace(&self) -> Result<(), Trouble> {
        self.exchange(Verb::CreateNamespace, Cell::create_namespace).await
    }

    async fn read(&self) -> Result<Option<Record>, Trouble> {
        self.exchange(Verb::Read, |cell| cell.read()).await
    }

    async fn replace(&self, record: &Record) -> Result<Replaced, Trouble> {
        let body = record.json().clone();
        self.exchange(Verb::Replace, move |cell| cell.replace(&body)).await
    }

    async fn delete(&self, uid: &str, version: &str) -> Result<Deleted, Trouble> {
        let (uid, version) = (uid.to_owned(), version.to_owned());
        self.exchange(Verb::Delete, move |cell| cell.delete(&uid, &version)).await
    }
}

fn failure(message: &str) -> Failure {
    Failure::new(Code::ClusterRequestFailed, format!("{message} ({NAMESPACE})"))
}
