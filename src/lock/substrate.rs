//! The two places that keep a Lease, as one store: so that whoever keeps, follows, shows or takes a lock has one type for
//! both, and no decision about which it is.

use serde_json::Value;

use crate::lock::direct::LockFolder;
use crate::lock::lease_api::LeaseApi;
use crate::lock::lease_watch::Changes;
use crate::lock::protocol::follow::NotWatched;
use crate::lock::record::Record;
use crate::lock::store::{Created, Deleted, LeaseStore, Replaced, Trouble};

/// What keeps a Lease.
#[derive(Debug, Clone)]
pub enum Store {
    /// The API server of a cluster.
    Kubernetes(LeaseApi),
    /// A folder.
    Direct(LockFolder),
}

impl Store {
    /// Opens a watch from a version on; without one it begins with what is there now.
    pub(crate) async fn watch(&self, from: Option<&str>) -> Result<Changes, NotWatched> {
        match self {
            Store::Kubernetes(api) => api.watch(from).await,
            // It tells what is there first, whatever was seen before.
            Store::Direct(folder) => Ok(folder.watch()),
        }
    }
}

impl LeaseStore for Store {
    async fn create(&self, draft: &Value) -> Result<Created, Trouble> {
        match self {
            Store::Kubernetes(api) => api.create(draft).await,
            Store::Direct(folder) => folder.create(draft).await,
        }
    }

    async fn create_namespace(&self) -> Result<(), Trouble> {
        match self {
            Store::Kubernetes(api) => api.create_namespace().await,
            Store::Direct(folder) => folder.create_namespace().await,
        }
    }

    async fn read(&self) -> Result<Option<Record>, Trouble> {
        match self {
            Store::Kubernetes(api) => api.read().await,
            Store::Direct(folder) => folder.read().await,
        }
    }

    async fn replace(&self, record: &Record) -> Result<Replaced, Trouble> {
        match self {
            Store::Kubernetes(api) => api.replace(record).await,
            Store::Direct(folder) => folder.replace(record).await,
        }
    }

    async fn delete(&self, uid: &str, version: &str) -> Result<Deleted, Trouble> {
        match self {
            Store::Kubernetes(api) => api.delete(uid, version).await,
            Store::Direct(folder) => folder.delete(uid, version).await,
        }
    }
}
