//! The run's side of the lock: asks for it, and turns what the keeper says into events and into the verdict.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::interval;

use crate::clock::{Clock, Instant};
use crate::cluster::{CONNECT_LIMIT, Cluster, Connection};
use crate::event::{self, BusyManner, Event, LockEnd};
use crate::failure::{Code, Failure};
use crate::lock::{
    self, Act, Change, ClaimError, Claimed, Estate, HolderId, Keeper, LeaseApi, LockFolder, Lost, MakeAnew,
    Observation, Place, Released, Request, Store, Timing, Waits, message, notes,
};
use crate::process::StopWatch;
use crate::run::chronicle::Chronicle;
use crate::run::spec::Spec;
use crate::run::translate::millis;
use crate::run::{surroundings, waiting};
use crate::step::Outcome;

/// How long the record that the lock is given back may take. Then it is given back without.
pub(crate) const INTENT: Duration = Duration::from_secs(2);

/// How often a weak fence is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How long a forced end waits for its last will to be written.
const LAST_WILL: Duration = Duration::from_secs(1);

/// Where the lock is, as far as this run has to say it at the end.
#[derive(Debug)]
pub(crate) struct End {
    /// In one word. While the lock is held it is what would be true if the run ended now: left.
    pub(crate) lock: LockEnd,
    /// Who holds it, when that is known and not nobody.
    pub(crate) holder: Option<String>,
    /// Why it could not be given back, or why that cannot be told.
    pub(crate) why: Option<Failure>,
    /// The step that the next fence is for.
    pub(crate) next_step: Option<String>,
    /// When the last claim or renewal was sent that came through, or may have: to others the Lease may look live for a
    /// validity after it.
    renewed_at: Option<Instant>,
}

impl Default for End {
    fn default() -> End {
        End { lock: LockEnd::NeverTaken, holder: None, why: None, next_step: None, renewed_at: None }
    }
}

impl End {
    /// The step that has not begun yet, for sentences.
    pub(crate) fn next_title(&self) -> String {
        self.next_step.clone().unwrap_or_else(|| "the next step".to_owned())
    }

    /// Where the lock is as far as another process of this run has told.
    pub(crate) fn inherited(lock: LockEnd, holder: Option<String>) -> End {
        End { lock, holder, ..End::default() }
    }

    pub(crate) fn take_claim(&mut self, claim: &Claim, ours: &HolderId) {
        if claim.goes_on_without() {
            self.lock = LockEnd::NotHeld;
        }
        match claim {
            Claim::Held { claimed, .. } => {
                (self.lock, self.holder) = (LockEnd::Left, Some(ours.to_string()));
                self.renewed_at = Some(claimed.sent_at);
            }
            Claim::Unsettled => (self.lock, self.holder) = (LockEnd::Unknown, Some(ours.to_string())),
            Claim::Busy { observation, .. } => self.holder = observation.holder().map(message::plain),
            Claim::Seen(observation) => {
                self.holder = observation.as_ref().and_then(|seen| seen.0.holder()).map(message::plain);
            }
            Claim::Unavailable { .. } | Claim::None => {}
        }
    }

    pub(crate) fn take_release(&mut self, released: &Released, ours: &HolderId) {
        let last_seen = |lost: &Lost| holder_after(lost, ours);
        let ours = Some(ours.to_string());
        if let Released::Left(why) | Released::Unknown { why, .. } = released {
            self.why = Some(why.clone());
        }
        (self.lock, self.holder) = match released {
            // A run without the lock had nothing to give back, but for a claim that landed late.
            Released::NeverTaken | Released::Deleted | Released::AlreadyGone if self.lock == LockEnd::NotHeld => return,
            Released::NeverTaken => {
                (LockEnd::NeverTaken, self.holder.take().filter(|holder| Some(holder) != ours.as_ref()))
            }
            Released::Deleted | Released::Emptied(_) | Released::AlreadyGone => (LockEnd::Released, None),
            Released::NotOurs { holder } => (LockEnd::Lost, holder.as_deref().map(message::plain)),
            Released::Lost(lost) => (LockEnd::Lost, last_seen(lost)),
            Released::Left(_) => (LockEnd::Left, ours),
            Released::Unknown { .. } => (LockEnd::Unknown, ours),
        };
    }

    pub(crate) fn lose(&mut self, lost: &Lost, ours: &HolderId) {
        (self.lock, self.holder) = (LockEnd::Lost, holder_after(lost, ours));
    }

    /// Takes a change that is not the loss, and tells it.
    pub(crate) fn take_change(&mut self, change: &Change, told: &mut Chronicle) {
        if let Change::Renewed { sent_at, .. } | Change::RenewalFailed { in_doubt: Some(sent_at), .. } = change {
            self.renewed_at = self.renewed_at.max(Some(*sent_at));
        }
        tell_change(change, told);
    }

    /// From when on a Lease that still bears this run's name surely looks stale to others, if that is known.
    pub(crate) fn looks_stale_from(&self, told: &Chronicle) -> Option<Timestamp> {
        let age = told.now().since(self.renewed_at?);
        Some(told.wall() - age + Timing::STANDARD.validity())
    }

    pub(crate) fn leave(&mut self, ours: &HolderId, why: &str, told: &mut Chronicle) {
        (self.lock, self.holder) = (LockEnd::Left, Some(ours.to_string()));
        told.tell(None, Event::LockLeft(event::LockLeft { holder: ours.to_string(), why: why.to_owned() }));
    }
}

/// Whose name the Lease bore when it was last seen. A run that could not renew has seen nobody else's, and may not say
/// that nobody holds it.
fn holder_after(lost: &Lost, ours: &HolderId) -> Option<String> {
    match lost {
        Lost::Taken { by } => Some(by.clone()),
        Lost::Gone => None,
        Lost::Expired { .. } | Lost::Unsure { .. } | Lost::Broken(_) => Some(ours.to_string()),
    }
}

/// What the lock is asked for with.
pub(crate) fn request(spec: &Spec, holder: &HolderId) -> Request {
    let mut said = BTreeMap::new();
    let mut note = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            said.insert(key.to_owned(), value);
        }
    };
    let pod = spec.job.pod.clone();
    note(notes::RUN, Some(spec.run.clone()));
    note(notes::VERB, Some(spec.plan.verb.word().to_owned()));
    note(notes::STARTED, Some(crate::clock::rfc3339(spec.began_at)));
    note(notes::CI, spec.job.system.map(|system| system.title().to_owned()));
    note(notes::JOB_URL, spec.job.url.clone());
    note(notes::JOB_ATTEMPT, spec.job.attempt.map(|attempt| attempt.to_string()));
    note(notes::POD_NAMESPACE, pod.as_ref().and_then(|pod| pod.namespace.clone()));
    note(notes::POD_NAME, pod.as_ref().and_then(|pod| pod.name.clone()));
    note(notes::POD_UID, pod.and_then(|pod| pod.uid));
    Request { holder: holder.clone(), instance: spec.instance().map(str::to_owned), notes: said }
}

// A connection that hangs has to be told as such, and not as a request without an answer.
const _: () = assert!(CONNECT_LIMIT.as_millis() < Timing::STANDARD.request_timeout().as_millis());

/// What keeps the lock of a run, once it was reached.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// The API server of this cluster.
    Cluster(Cluster),
    /// This folder.
    Folder(LockFolder),
}

impl Origin {
    /// For looking at the lock.
    pub(crate) fn store(&self) -> Store {
        match self {
            Origin::Cluster(cluster) => lease_store(cluster),
            Origin::Folder(folder) => Store::Direct(folder.clone()),
        }
    }

    /// For the keeper, which shares nothing with anybody. Called on its thread.
    fn store_apart(&self) -> Result<Store, Failure> {
        Ok(match self {
            Origin::Cluster(cluster) => {
                let connection = cluster.connection();
                Store::Kubernetes(LeaseApi::over(connection.client_now()?, make_anew(connection), Timing::STANDARD))
            }
            Origin::Folder(folder) => Store::Direct(folder.apart()),
        })
    }
}

/// Starts the keeper, with a store of its own.
pub(crate) fn start(lock: Origin, request: Request, clock: Arc<dyn Clock>) -> (Keeper, Changes) {
    let mut keeper = Keeper::start(move || lock.store_apart(), request, Timing::STANDARD, clock);
    let changes = Changes { order: Order::ClaimFirst, kept_back: VecDeque::new(), more: keeper.changes() };
    (keeper, changes)
}

/// Goes on with what another process of this run left of its lock.
pub(crate) fn inherit(spec: &Spec, holder: &HolderId, estate: Estate, clock: Arc<dyn Clock>) -> (Keeper, Changes) {
    let request = request(spec, holder);
    let (cluster, folder) = (spec.cluster().cloned(), spec.lock_dir().map(Path::to_owned));
    let make_store = move || match (cluster, folder) {
        (Some(on), _) => {
            let connection = surroundings::way_to(&on)?;
            let client = connection.client_now()?;
            Ok(Store::Kubernetes(LeaseApi::over(client, make_anew(&connection), Timing::STANDARD)))
        }
        (None, Some(folder)) => Ok(Store::Direct(LockFolder::new(folder, Timing::STANDARD).apart())),
        (None, None) => Err(Failure::new(Code::Internal, "this run has nothing that keeps a lock")),
    };
    let mut keeper = Keeper::inherit(make_store, request, estate, Timing::STANDARD, clock);
    let changes = Changes { order: Order::AsTheyCome, kept_back: VecDeque::new(), more: keeper.changes() };
    (keeper, changes)
}

/// The Lease of this cluster, over the client that everything else uses, and with credentials that are had anew where
/// the kubeconfig says how.
pub(crate) fn lease_store(cluster: &Cluster) -> Store {
    Store::Kubernetes(LeaseApi::over(cluster.client(), make_anew(cluster.connection()), Timing::STANDARD))
}

/// How a client with other credentials is had, when the API server does not know the first ones any more.
fn make_anew(connection: &Connection) -> Option<MakeAnew> {
    let connection = connection.credentials_may_change().then(|| connection.clone())?;
    Some(Box::new(move || {
        let connection = connection.clone();
        Box::pin(async move { connection.client().await })
    }))
}

/// What the keeper tells. Until it was told what came of the claim, only that the claim waits is passed on: what happens
/// to a lock is told after that it is ours.
pub(crate) struct Changes {
    order: Order,
    kept_back: VecDeque<Change>,
    more: UnboundedReceiver<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    ClaimFirst,
    AsTheyCome,
}

impl Changes {
    /// What came of the claim was told.
    pub(crate) fn claim_is_told(&mut self) {
        self.order = Order::AsTheyCome;
    }

    /// Takes the next change. Safe to drop at any point.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        if self.order == Order::AsTheyCome
            && let Some(change) = self.kept_back.pop_front()
        {
            return Some(change);
        }
        loop {
            let change = self.more.recv().await?;
            match (self.order, change) {
                (Order::AsTheyCome, change) | (Order::ClaimFirst, change @ Change::Waiting { .. }) => {
                    return Some(change);
                }
                (
                    Order::ClaimFirst,
                    change @ (Change::Renewed { .. }
                    | Change::RenewalFailed { .. }
                    | Change::Lost(_)
                    | Change::Releasing { .. }),
                ) => self.kept_back.push_back(change),
            }
        }
    }
}

/// What came of a claim.
pub(crate) enum Claim {
    /// It is ours.
    Held { claimed: Claimed, waited: Duration },
    /// Somebody else holds it, and this is what the run does about it.
    Busy { observation: Box<Observation>, busy: message::Busy, manner: BusyManner },
    /// Nobody holds it, and it cannot be had either. The run goes on without it.
    Unavailable { why: String },
    /// There was no definite answer.
    Unsettled,
    /// It was not got for another reason.
    None,
    /// A dry run looked: the holder that it would have met.
    Seen(Option<Box<(Observation, message::Busy)>>),
}

impl Claim {
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Claim::Held { .. })
    }

    /// Whether the run goes on although it does not have it.
    pub(crate) fn goes_on_without(&self) -> bool {
        matches!(self, Claim::Busy { manner: BusyManner::Continues, .. } | Claim::Unavailable { .. })
    }

    /// The event that belongs to it.
    pub(crate) fn tell(self, place: &Place, told: &mut Chronicle) {
        let event = match self {
            Claim::Held { claimed, waited } => {
                if claimed.namespace == lock::Namespace::Created {
                    told.note(format!("namespace {} was created for the lock", lock::NAMESPACE));
                }
                let lease = place.lease_path();
                Event::LockClaimed(event::LockClaimed {
                    holder: claimed.holder,
                    lease,
                    uid: claimed.uid,
                    waited_ms: millis(waited),
                })
            }
            Claim::Busy { observation, busy, manner } => waiting::blocked(&observation, busy, manner, None),
            Claim::Unavailable { why } => Event::NoteMade(event::NoteMade { text: message::going_on(&why) }),
            Claim::Seen(seen) => Event::LockObserved(match seen {
                Some(seen) => {
                    let (observation, busy) = *seen;
                    event::LockObserved {
                        holder: observation.holder().map(message::plain),
                        instance: observation.record().instance().map(message::plain),
                        age_ms: busy.age.map(millis),
                        stale: busy.stale,
                        text: Some(busy.text),
                    }
                }
                None => event::LockObserved { holder: None, instance: None, age_ms: None, stale: false, text: None },
            }),
            Claim::Unsettled | Claim::None => return,
        };
        told.tell(Some("claim-the-cluster"), event);
    }
}

/// The lock is ours. It is renewed once before anything is begun.
pub(crate) async fn claimed(keeper: &Keeper, claimed: Claimed, waited: Duration, stop: StopWatch) -> (Claim, Outcome) {
    let outcome = match first_renewal(keeper, stop).await {
        Some(forbidden) => Outcome::Failed(forbidden),
        // `lock.claimed` says by whom.
        None => Outcome::Done("the lock is taken".to_owned()),
    };
    (Claim::Held { claimed, waited }, outcome)
}

/// An account that may claim the lock and not renew it would lose it in the middle of its work, so it is told before
/// anything is begun. Whatever else goes wrong may go well the next time.
async fn first_renewal(keeper: &Keeper, mut stop: StopWatch) -> Option<Failure> {
    keeper.note(BTreeMap::new());
    tokio::select! {
        biased;
        _ = stop.asked() => None,
        renewal = keeper.renewal() => renewal.err().filter(|failure| failure.code == Code::Forbidden),
    }
}

/// The run ends because it did not get the lock.
pub(crate) fn refused(error: ClaimError, place: &Place, clock: &dyn Clock) -> (Claim, Outcome) {
    let failure = message::claim_failure(&error, place, clock.wall());
    let claim = match error {
        ClaimError::Busy(observation) => busy(observation, BusyManner::Refuses, place, clock),
        ClaimError::Unsettled { .. } | ClaimError::GivenUp => Claim::Unsettled,
        ClaimError::BeingDeleted(_)
        | ClaimError::NamespaceTerminating(_)
        | ClaimError::Forbidden(_)
        | ClaimError::Contended
        | ClaimError::Failed(_) => Claim::None,
    };
    (claim, Outcome::Failed(failure))
}

/// The run goes on without the lock, as it was told to. It writes neither it nor anything into it.
pub(crate) fn without(error: ClaimError, place: &Place, clock: &dyn Clock) -> (Claim, Outcome) {
    let note = Outcome::Done("not claimed; the run goes on without the lock".to_owned());
    let claim = match error {
        ClaimError::Busy(observation) => busy(observation, BusyManner::Continues, place, clock),
        error => Claim::Unavailable { why: message::claim_failure(&error, place, clock.wall()).message },
    };
    (claim, note)
}

fn busy(observation: Observation, manner: BusyManner, place: &Place, clock: &dyn Clock) -> Claim {
    let busy = message::busy(&observation, place, clock.wall());
    Claim::Busy { observation: Box::new(observation), busy, manner }
}

/// A dry run looks at the lock and takes nothing.
pub(crate) async fn observe(store: &Store, place: &Place, clock: &dyn Clock) -> (Claim, Outcome) {
    match lock::observe(store).await {
        Err(failure) => (Claim::Seen(None), Outcome::Failed(failure)),
        Ok(Some(observation)) if observation.holder().is_some() => {
            let busy = message::busy(&observation, place, clock.wall());
            let note =
                format!("not claimed; it is held by {}", message::plain(observation.holder().unwrap_or_default()));
            (Claim::Seen(Some(Box::new((observation, busy)))), Outcome::Done(note))
        }
        Ok(_) => (Claim::Seen(None), Outcome::Done("a dry run takes no lock".to_owned())),
    }
}

/// Refuses a run that was started by the run which holds this lock: it would wait for itself. Where the lock
/// cannot be read now, the claim will say so.
pub(crate) async fn refuse_inside(store: &Store, outer: &str) -> Result<(), Failure> {
    let Ok(Some(seen)) = lock::observe(store).await else { return Ok(()) };
    match seen.holder().and_then(HolderId::parse) {
        Some(holder) if holder.is_run(outer) => Err(message::inside(&holder, seen.record().note(notes::VERB))),
        Some(_) | None => Ok(()),
    }
}

/// Asks whether the lock is ours. A fence that is weak for the moment is asked again until it is firm or has fallen,
/// unless the run is to stop: then no step begins, whatever the answer would be, and nobody waits for it.
pub(crate) async fn fence(keeper: &Keeper, stop: &StopWatch) -> Result<(), Lost> {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        _ = stop.asked() => Ok(()),
        answer = firm(keeper) => answer,
    }
}

/// Leaves the lock where it is. The last will is written first, as far as the API server answers at once: whoever finds the
/// lock has nothing else to go by.
pub(crate) async fn leave(keeper: &Keeper) {
    // Why it could not be asked changes nothing by now.
    let _ = tokio::time::timeout(LAST_WILL, keeper.fence()).await;
    keeper.leave();
}

async fn firm(keeper: &Keeper) -> Result<(), Lost> {
    let mut again = interval(ASK_AGAIN);
    loop {
        again.tick().await;
        match keeper.fence().await {
            Err(Lost::Unsure { .. }) => {}
            answer => return answer,
        }
    }
}

/// The failure of a run that was fenced before this step.
pub(crate) fn lost_before(step: &str, lost: &Lost) -> Failure {
    message::lost_failure(message::lost_before(step, lost), lost)
}

/// The failure of a run that was fenced during this step.
pub(crate) fn lost_during(step: &str, lost: &Lost) -> Failure {
    message::lost_failure(message::lost_during(step, lost), lost)
}

/// `lock.lost`.
pub(crate) fn tell_loss(lost: &Lost, ours: &HolderId, failure: &Failure, told: &mut Chronicle) {
    let event = event::LockLost { holder: holder_after(lost, ours), text: failure.message.clone() };
    told.tell(None, Event::LockLost(event));
}

/// What a claim or a release waits for, since it began.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Which of the two.
    pub(crate) act: Act,
    /// The last that was heard.
    pub(crate) why: Waits,
}

impl Waiting {
    /// `lock.waiting`.
    pub(crate) fn tell(&self, since: Instant, told: &mut Chronicle) {
        let now = told.now();
        let (act, step) = match self.act {
            Act::Claim => (event::LockAct::Claim, Some("claim-the-cluster")),
            Act::Release => (event::LockAct::Release, None),
        };
        let why = match &self.why {
            Waits::NoAnswer(failure) => failure.message.clone(),
            Waits::LateClaim { look_at } => match look_at.since(now).as_secs() {
                0 => "a claim that had no answer may still arrive, and is looked for now".to_owned(),
                _ => format!(
                    "a claim that had no answer may still arrive, and is looked for in {}",
                    crate::clock::human(look_at.since(now))
                ),
            },
        };
        let waited_ms = millis(now.since(since));
        told.tell(step, Event::LockWaiting(event::LockWaiting { act, why, waited_ms }));
    }
}

/// What a change that is not the loss is told as.
fn tell_change(change: &Change, told: &mut Chronicle) {
    let event = match change {
        Change::Renewed { sent_at, gap, .. } => {
            let took_ms = millis(told.now().since(*sent_at));
            Event::LockRenewed(event::LockRenewed { took_ms, gap_ms: gap.map(millis) })
        }
        Change::RenewalFailed { failure, age, tries, .. } => Event::LockRenewalFailed(event::LockRenewalFailed {
            why: failure.message.clone(),
            valid_for_ms: millis(Timing::STANDARD.lost_after().saturating_sub(*age)),
            tries: u64::from(*tries),
        }),
        Change::Waiting { .. } | Change::Releasing { .. } | Change::Lost(_) => return,
    };
    told.tell(None, event);
}

/// What a release is told as.
pub(crate) fn tell_release(released: &Released, ours: &str, took: Duration, told: &mut Chronicle) {
    let took_ms = millis(took);
    let event = match released {
        Released::NeverTaken | Released::Lost(_) => return,
        Released::Deleted => event::LockReleased { manner: event::ReleaseManner::Deleted, why: None, took_ms },
        Released::Emptied(why) => {
            let why = Some(why.message.clone());
            event::LockReleased { manner: event::ReleaseManner::Emptied, why, took_ms }
        }
        Released::AlreadyGone => event::LockReleased { manner: event::ReleaseManner::AlreadyGone, why: None, took_ms },
        Released::NotOurs { holder } => {
            let text = match holder {
                Some(holder) => {
                    format!("the lock was not this run's any more when it was to be released: {holder} holds it")
                }
                None => "the lock was not this run's any more when it was to be released".to_owned(),
            };
            return told.tell(None, Event::LockLost(event::LockLost { holder: holder.clone(), text }));
        }
        Released::Left(why) => {
            let left = event::LockLeft { holder: ours.to_owned(), why: why.message.clone() };
            return told.tell(None, Event::LockLeft(left));
        }
        Released::Unknown { holder, why } => {
            let sentence = format!("it cannot be told whether the Lease still bears {holder}: {}", why.message);
            return told.note(sentence);
        }
    };
    told.tell(None, Event::LockReleased(event));
}
