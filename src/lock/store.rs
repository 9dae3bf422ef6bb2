//! The seam between the protocol and whatever keeps the Lease.
//!
//! [`LeaseStore`] has exactly the five requests that the protocol makes, each with the answers that matter to it. The
//! API server is one store ([`crate::lock::lease_api`]); the other is a twin in memory with the same semantics, for
//! tests (`twin`).

use std::future::Future;

use serde_json::Value;

use crate::failure::Failure;
use crate::lock::record::Record;

/// Why a request has none of the answers that the protocol hopes for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing was done: the API server could not be reached, or did not know credentials that are being had anew.
    Unsent(Failure),
    /// It may have been done or not: no answer in time, the connection was lost, 5xx, 429, or an unreadable body.
    Unclear(Failure),
    /// It was not done: this account may not do it. The failure's message is the API server's own sentence.
    Forbidden(Failure),
    /// It was not done: the lock's namespace is being deleted, so nothing can be made in it.
    NamespaceTerminating(Failure),
    /// It was not done, for a reason that trying again does not change.
    Refused(Failure),
}

impl Trouble {
    /// What people are told about it.
    pub fn into_failure(self) -> Failure {
        match self {
            Trouble::Unsent(failure)
            | Trouble::Unclear(failure)
            | Trouble::Forbidden(failure)
            | Trouble::NamespaceTerminating(failure)
            | Trouble::Refused(failure) => failure,
        }
    }
}

/// What came of a create.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// It was created, and is stored like this.
    Stored(Record),
    /// There is a Lease of that name already.
    Exists,
    /// There is no namespace to create it in.
    NoNamespace(Failure),
}

/// What came of a replace.
#[derive(Debug, Clone, PartialEq)]
pub enum Replaced {
    /// It was replaced, and is stored like this.
    Stored(Record),
    /// Nothing was changed: the Lease is another one by now, has changed, or is gone.
    Conflict,
}

/// What came of a delete.
#[derive(Debug, Clone, PartialEq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// It is still there, being deleted: a finalizer of somebody else keeps it.
    Kept(Record),
    /// There was no Lease.
    Absent,
    /// Nothing was deleted: the Lease is another one by now, or has changed.
    Conflict,
}

/// Keeps one Lease. Every call ends by itself within the request timeout, and does its request at most once.
pub trait LeaseStore: Send + Sync + 'static {
    /// Creates the Lease.
    fn create(&self, draft: &Value) -> impl Future<Output = Result<Created, Trouble>> + Send;
    /// Creates the namespace of the Lease. One that is already there is a success.
    fn create_namespace(&self) -> impl Future<Output = Result<(), Trouble>> + Send;
    /// Reads the Lease. `None`: there is none, and the API server said so in so many words.
    fn read(&self) -> impl Future<Output = Result<Option<Record>, Trouble>> + Send;
    /// Replaces the Lease, if it still is the object and the version that the record says.
    fn replace(&self, record: &Record) -> impl Future<Output = Result<Replaced, Trouble>> + Send;
    /// Deletes the Lease, if it still is this object in this version.
    fn delete(&self, uid: &str, version: &str) -> impl Future<Output = Result<Deleted, Trouble>> + Send;
}
