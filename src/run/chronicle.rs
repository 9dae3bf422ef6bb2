//! What a run tells: the journal, and the tally that is kept from the same events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Clock, Instant};
use crate::event::{Counts, Event, NoteMade, ProcessSurvived};
use crate::run::journal::{Journal, Last, Settled};
use crate::run::reports::Unwritten;
use crate::run::tally::Tally;
use crate::step::Backlog;

/// The journal and what follows from it.
#[derive(Debug)]
pub struct Chronicle {
    journal: Journal,
    tally: Tally,
    clock: Arc<dyn Clock>,
}

impl Chronicle {
    /// A chronicle over a journal that was just opened.
    pub fn new(journal: Journal, clock: Arc<dyn Clock>) -> Chronicle {
        Chronicle { journal, tally: Tally::default(), clock }
    }

    /// Goes on with a journal that another process has written until now, of which this is the tally.
    pub fn go_on(journal: Journal, tally: Tally, clock: Arc<dyn Clock>) -> Chronicle {
        Chronicle { journal, tally, clock }
    }

    /// Tells one fact.
    pub fn tell(&mut self, step: Option<&str>, event: Event) {
        self.tally.take(&event, self.clock.now());
        self.journal.tell(step, event);
    }

    /// Tells a fact that has no type of its own.
    pub fn note(&mut self, text: String) {
        self.tell(None, Event::NoteMade(NoteMade { text }));
    }

    /// Tells what is in flight in this step.
    pub fn progress(&mut self, step: &str, took: Duration) {
        let progress = self.tally.progress(took, self.clock.now());
        self.tell(Some(step), Event::StepProgressed(progress));
    }

    /// How much was done so far.
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }

    /// The addresses whose change was begun and whose end nobody saw.
    pub fn unfinished(&self) -> BTreeSet<String> {
        self.tally.unfinished().clone()
    }

    /// The processes of the run that could not be ended.
    pub fn survived(&self) -> Vec<ProcessSurvived> {
        self.tally.survived().to_vec()
    }

    /// Now, for decisions.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Now, for people.
    pub fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// How much of what tools printed waits to be written.
    pub fn backlog(&self) -> Arc<Backlog> {
        self.journal.backlog()
    }

    /// Since when the run is at work.
    pub fn elapsed(&self) -> Duration {
        self.journal.elapsed()
    }

    /// See [`Journal::settle_reports`].
    pub async fn settle_reports(&mut self, limit: Duration) -> Vec<Unwritten> {
        self.journal.settle_reports(limit).await
    }

    /// Says what a disk without room has cost, see [`Journal::lost`].
    pub fn note_loss(&mut self) {
        if let Some(text) = self.journal.lost() {
            self.note(text);
        }
    }

    /// See [`Journal::written`].
    pub fn written(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        self.journal.written(limit)
    }

    /// See [`Journal::settle_now`].
    pub fn settle_now(&mut self, limit: Duration) -> Settled {
        self.journal.settle_now(limit)
    }

    /// See [`Journal::offer_last`].
    ///
    /// # Errors
    /// The same.
    pub async fn offer_last(&mut self, event: Event, limit: Duration) -> Result<Last, Vec<Unwritten>> {
        self.tally.take(&event, self.clock.now());
        self.journal.offer_last(event, limit).await
    }

    /// See [`Journal::conclude`].
    pub fn conclude(&mut self, last: Last) {
        self.journal.conclude(last);
    }

    /// See [`Journal::flush`].
    pub async fn flush(&mut self, limit: Duration) -> Option<String> {
        self.journal.flush(limit).await
    }
}
