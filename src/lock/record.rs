//! Our view of the Lease.
//!
//! A [`Record`] keeps the object exactly as the API server gave it, and reads from it what the protocol needs. What we
//! write back is the same object with our own few fields changed, so nothing that is another's is ever lost: foreign
//! annotations, labels, finalizers, and fields that a newer API server has and we do not know.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::clock;
use crate::lock::holder::HolderId;
use crate::lock::notes;

/// The namespace of the lock.
pub const NAMESPACE: &str = "dc-k8s-system";
/// The name of the lock.
pub const NAME: &str = "dcctl";
/// The file that is the lock where a folder keeps it.
pub const LEASE_FILE: &str = "dcctl.lease.json";

/// The validity of a Lease that names none.
const DEFAULT_VALIDITY: Duration = Duration::from_secs(60);
/// A longer validity than this is not believed.
const LONGEST_VALIDITY: Duration = Duration::from_secs(600);

/// What a run wants to have written into the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The run's identity.
    pub holder: HolderId,
    /// The instance worked on, if one is.
    pub instance: Option<String>,
    /// The run's first notes, by the keys of [`notes`].
    pub notes: BTreeMap<String, String>,
}

/// A [`Request`] as it stands now: notes change while a run goes on, and a note may have been taken away.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) holder: HolderId,
    instance: Option<String>,
    annotations: BTreeMap<String, Option<String>>,
    validity_seconds: i32,
}

impl Wish {
    pub(crate) fn new(request: Request, validity_seconds: i32) -> Wish {
        let notes = request.notes.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let mut wish =
            Wish { holder: request.holder, instance: request.instance, annotations: BTreeMap::new(), validity_seconds };
        wish.note(notes);
        wish
    }

    /// Takes over new notes; `None` takes a note away.
    pub(crate) fn note(&mut self, notes: BTreeMap<String, Option<String>>) {
        let written = |(key, value): (String, Option<String>)| {
            (notes::annotation(&key), value.map(|text| notes::value(&text).to_owned()))
        };
        self.annotations.extend(notes.into_iter().map(written));
    }

    /// Writes all annotations of ours into an object's.
    fn annotate(&self, raw: &mut Value) {
        let annotations = object_at(raw, &["metadata", "annotations"]);
        if let Some(instance) = &self.instance {
            annotations.insert(notes::INSTANCE_ANNOTATION.to_owned(), json!(instance));
        } else {
            annotations.remove(notes::INSTANCE_ANNOTATION);
        }
        for (key, value) in &self.annotations {
            match value {
                Some(value) => drop(annotations.insert(key.clone(), json!(value))),
                None => drop(annotations.remove(key)),
            }
        }
    }

    /// The object that a claim creates.
    pub(crate) fn draft(&self, stamp: Timestamp) -> Value {
        let mut raw = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": NAME, "namespace": NAMESPACE },
            "spec": {
                "holderIdentity": self.holder.to_string(),
                "leaseDurationSeconds": self.validity_seconds,
                "acquireTime": clock::rfc3339(stamp),
                "renewTime": clock::rfc3339(stamp),
                "leaseTransitions": 0,
            },
        });
        self.annotate(&mut raw);
        raw
    }
}

/// A Lease as the API server gave it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    raw: Value,
}

impl Record {
    /// A Lease of which nothing is known but its uid. Nothing may be written about it before it was read.
    pub(crate) fn named(uid: &str) -> Record {
        Record { raw: json!({ "metadata": { "name": NAME, "namespace": NAMESPACE, "uid": uid } }) }
    }

    /// A Lease from its JSON. None when it has no uid or no resourceVersion: nothing safe can be done with it.
    pub fn from_json(raw: Value) -> Option<Record> {
        let record = Record { raw };
        let whole = !record.uid().is_empty() && !record.version().is_empty();
        whole.then_some(record)
    }

    /// The object as it was given, or as it is to be written.
    pub fn json(&self) -> &Value {
        &self.raw
    }

    /// Which object it is: a Lease that was deleted and made anew has another.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid").unwrap_or_default()
    }

    /// Which state of the object it is.
    pub fn version(&self) -> &str {
        self.text("/metadata/resourceVersion").unwrap_or_default()
    }

    /// Who holds it. None: nobody; it is free.
    pub fn holder(&self) -> Option<&str> {
        self.text("/spec/holderIdentity").filter(|holder| !holder.is_empty())
    }

    /// The instance that the holder says it works on.
    pub fn instance(&self) -> Option<&str> {
        self.annotation(notes::INSTANCE_ANNOTATION).filter(|instance| !instance.is_empty())
    }

    /// One of the holder's notes, by a key of [`notes`].
    pub fn note(&self, key: &str) -> Option<&str> {
        self.annotation(&notes::annotation(key)).filter(|value| !value.is_empty())
    }

    /// When the holder claimed it, by the holder's clock.
    pub fn acquired_at(&self) -> Option<Timestamp> {
        self.time("/spec/acquireTime")
    }

    /// When the holder last renewed it, by the holder's clock.
    pub fn renewed_at(&self) -> Option<Timestamp> {
        self.time("/spec/renewTime")
    }

    /// How long it counts after a renewal: what it says, else 60 s, and at most ten minutes.
    pub fn validity(&self) -> Duration {
        self.written_validity().unwrap_or(DEFAULT_VALIDITY).min(LONGEST_VALIDITY)
    }

    /// How long it says that it counts after a renewal, however absurd.
    pub fn written_validity(&self) -> Option<Duration> {
        let seconds = self.raw.pointer("/spec/leaseDurationSeconds").and_then(Value::as_u64).filter(|n| *n > 0);
        seconds.map(Duration::from_secs)
    }

    /// How many times the lock has changed hands.
    pub fn transitions(&self) -> i32 {
        let written = self.raw.pointer("/spec/leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
        i32::try_from(written.max(0)).unwrap_or(i32::MAX)
    }

    /// Since when it is being deleted; it then only waits for its finalizers.
    pub fn deleting_since(&self) -> Option<&str> {
        self.text("/metadata/deletionTimestamp").filter(|time| !time.is_empty())
    }

    /// What must be taken off it before it goes away.
    pub fn finalizers(&self) -> Vec<String> {
        let list = self.raw.pointer("/metadata/finalizers").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// The same Lease, renewed. Everything that is not ours stays as it is.
    pub(crate) fn renewed(&self, wish: &Wish, stamp: Timestamp) -> Record {
        let mut raw = self.raw.clone();
        let spec = object_at(&mut raw, &["spec"]);
        spec.insert("holderIdentity".to_owned(), json!(wish.holder.to_string()));
        spec.insert("leaseDurationSeconds".to_owned(), json!(wish.validity_seconds));
        spec.insert("renewTime".to_owned(), json!(clock::rfc3339(stamp)));
        wish.annotate(&mut raw);
        Record { raw }
    }

    /// The same Lease, claimed while it was free. The notes of whoever had it before go; the lock changes hands.
    pub(crate) fn claimed(&self, wish: &Wish, stamp: Timestamp) -> Record {
        let mut before = self.clone();
        object_at(&mut before.raw, &["metadata", "annotations"]).retain(|key, _| !key.starts_with(notes::PREFIX));
        let mut record = before.renewed(wish, stamp);
        let spec = object_at(&mut record.raw, &["spec"]);
        spec.insert("acquireTime".to_owned(), json!(clock::rfc3339(stamp)));
        spec.insert("leaseTransitions".to_owned(), json!(self.transitions().saturating_add(1)));
        record
    }

    /// The same Lease, held by nobody: what a release leaves when it may not delete.
    pub(crate) fn emptied(&self) -> Record {
        let mut raw = self.raw.clone();
        object_at(&mut raw, &["spec"]).insert("holderIdentity".to_owned(), json!(""));
        Record { raw }
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.raw.get("metadata")?.get("annotations")?.get(name)?.as_str()
    }

    fn text(&self, pointer: &str) -> Option<&str> {
        self.raw.pointer(pointer)?.as_str()
    }

    fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer)?.parse().ok()
    }
}

/// The object at a path, made where it is missing.
fn object_at<'a>(raw: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut place = raw;
    for name in path {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[*name];
    }
    if !place.is_object() {
        *place = json!({});
    }
    place.as_object_mut().expect("it was made an object just now")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        let notes = BTreeMap::from([(notes::VERB.to_owned(), "bootstrap".to_owned())]);
        let holder = HolderId::new("alice", "build-01", 48213, 7);
        Wish::new(Request { holder, instance: Some("prod".to_owned()), notes }, 60)
    }

    fn stamp(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(1_796_000_000_000_000 + micros).expect("a time")
    }

    /// A Lease that another tool, a newer API server and a person have all had their hands in.
    fn foreign() -> Record {
        Record::from_json(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": NAME, "namespace": NAMESPACE, "uid": "u1", "resourceVersion": "41",
                "creationTimestamp": "2026-11-30T00:00:00Z",
                "labels": { "team": "blue" },
                "annotations": { "note.example.com/a": "b", "dcctl.devicechain.io/step": "Verify" },
                "finalizers": ["example.com/keep"],
                "managedFields": [{ "manager": "kubectl", "fieldsV1": { "f:x": {} } }],
            },
            "spec": {
                "holderIdentity": "alice@build-01/48213/0000000000000007",
                "leaseTransitions": 3, "strategy": "OldestEmulationVersion", "preferredHolder": "x",
                "fieldFromTheFuture": { "deep": [1, 2] },
            },
        }))
        .expect("whole")
    }

    #[test]
    fn a_claim_says_all_that_the_documents_promise() {
        let raw = wish().draft(stamp(100_000));
        let spec = &raw["spec"];
        assert_eq!(spec["holderIdentity"], "alice@build-01/48213/0000000000000007");
        assert_eq!((&spec["leaseDurationSeconds"], &spec["leaseTransitions"]), (&json!(60), &json!(0)));
        assert_eq!(spec["renewTime"], "2026-11-30T00:53:20.100000Z", "exactly six digits");
        assert_eq!(spec["acquireTime"], spec["renewTime"]);
        assert_eq!(raw["metadata"]["annotations"]["core.devicechain.io/instance"], "prod");
        assert_eq!(raw["metadata"]["annotations"]["dcctl.devicechain.io/verb"], "bootstrap");
    }

    #[test]
    fn a_renewal_changes_only_what_is_ours() {
        let before = foreign();
        let mut wish = wish();
        wish.note(BTreeMap::from([("step".to_owned(), None), ("children".to_owned(), Some("tofu".to_owned()))]));
        let after = before.renewed(&wish, stamp(0));

        let mut expected = before.json().clone();
        expected["spec"]["leaseDurationSeconds"] = json!(60);
        expected["spec"]["renewTime"] = json!("2026-11-30T00:53:20.000000Z");
        let annotations = object_at(&mut expected, &["metadata", "annotations"]);
        annotations.remove("dcctl.devicechain.io/step");
        annotations.insert("core.devicechain.io/instance".to_owned(), json!("prod"));
        annotations.insert("dcctl.devicechain.io/verb".to_owned(), json!("bootstrap"));
        annotations.insert("dcctl.devicechain.io/children".to_owned(), json!("tofu"));
        assert_eq!(after.json(), &expected);
        assert_eq!((after.uid(), after.version()), ("u1", "41"));
    }

    #[test]
    fn claiming_a_free_lease_changes_hands_and_drops_the_former_holders_notes() {
        let record = foreign().emptied();
        assert_eq!(record.holder(), None);
        let claimed = record.claimed(&wish(), stamp(5));
        assert_eq!(claimed.transitions(), 4);
        assert_eq!(claimed.note(notes::STEP), None);
        assert_eq!(claimed.note(notes::VERB), Some("bootstrap"));
        assert_eq!(claimed.json()["metadata"]["annotations"]["note.example.com/a"], "b");
        assert_eq!(claimed.acquired_at(), claimed.renewed_at());
    }

    #[test]
    fn transitions_never_overflow() {
        let mut raw = foreign().json().clone();
        raw["spec"]["leaseTransitions"] = json!(i32::MAX);
        let record = Record::from_json(raw).expect("whole");
        assert_eq!(record.claimed(&wish(), stamp(0)).transitions(), i32::MAX);
    }

    #[test]
    fn a_lease_without_a_spec_is_free_and_can_be_claimed() {
        let raw = json!({ "metadata": { "name": NAME, "uid": "u", "resourceVersion": "1" } });
        let record = Record::from_json(raw).expect("whole");
        assert_eq!((record.holder(), record.transitions()), (None, 0));
        assert_eq!(record.validity(), Duration::from_secs(60));
        assert!(wish().holder.is(record.claimed(&wish(), stamp(0)).holder().expect("ours now")));
    }

    #[test]
    fn nothing_in_a_lease_is_believed_beyond_reason() {
        let with = |seconds: Value| {
            let mut raw = foreign().json().clone();
            raw["spec"]["leaseDurationSeconds"] = seconds;
            Record::from_json(raw).expect("whole").validity().as_secs()
        };
        assert_eq!([with(json!(15)), with(json!(0)), with(json!(i32::MAX)), with(json!("x"))], [15, 60, 600, 60]);
        assert!(Record::from_json(json!({ "metadata": { "uid": "u" } })).is_none(), "no resourceVersion");
        assert!(Record::from_json(json!("nonsense")).is_none());
    }
}
