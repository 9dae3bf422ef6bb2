//! The channel from a step to whoever drives it.
//!
//! Facts always find a place in it. A tool's lines are counted while they wait, here and behind the reader, so that a step
//! can leave its tool's output in its file until there is room, instead of collecting it in memory or losing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::process;
use crate::step::Update;

/// How many bytes of a tool's lines may wait in memory before no more are taken out of its file.
const MOST_WAITING: usize = 2 << 20;

/// What one waiting line costs beside its text, nearly.
const LINE_COST: usize = 256;

/// How much of what tools printed was read by somebody who has not written it yet.
#[derive(Debug, Default)]
pub struct Backlog(AtomicUsize);

impl Backlog {
    /// A line of this many bytes waits.
    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes + LINE_COST, Ordering::Relaxed);
    }

    /// A line of this many bytes waits no longer.
    pub fn take_off(&self, bytes: usize) {
        self.0.fetch_sub(bytes + LINE_COST, Ordering::Relaxed);
    }

    /// What all of it takes in memory, nearly, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes the channel of one run. What its reader has not written yet uses up its room, too.
pub fn updates(behind: Arc<Backlog>) -> (Updates, UpdatesReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(Backlog::default());
    (Updates { sender, waiting: waiting.clone(), behind }, UpdatesReceiver { receiver, waiting })
}

/// The step's end.
#[derive(Debug, Clone)]
pub struct Updates {
    sender: mpsc::UnboundedSender<Update>,
    waiting: Arc<Backlog>,
    behind: Arc<Backlog>,
}

impl Updates {
    /// Says something. When nobody listens any more, the run is over and the update is dropped.
    pub fn send(&self, update: Update) {
        if let Some(bytes) = line_length(&update) {
            self.waiting.add(bytes);
        }
        if let Err(mpsc::error::SendError(update)) = self.sender.send(update) {
            took(&self.waiting, &update);
        }
    }

    /// Whether more lines of a tool should be sent now.
    pub fn room(&self) -> process::Room {
        let bytes = self.waiting.bytes() + self.behind.bytes();
        if bytes < MOST_WAITING { process::Room::Some } else { process::Room::None }
    }
}

/// The end of whoever drives the step.
#[derive(Debug)]
pub struct UpdatesReceiver {
    receiver: mpsc::UnboundedReceiver<Update>,
    waiting: Arc<Backlog>,
}

impl UpdatesReceiver {
    /// The next update; none when every [`Updates`] is gone and all was read. Safe to drop at any point.
    pub async fn recv(&mut self) -> Option<Update> {
        let update = self.receiver.recv().await?;
        took(&self.waiting, &update);
        Some(update)
    }

    /// The next update if one is there already.
    pub fn try_recv(&mut self) -> Option<Update> {
        let update = self.receiver.try_recv().ok()?;
        took(&self.waiting, &update);
        Some(update)
    }
}

/// An update waits no longer.
fn took(waiting: &Backlog, update: &Update) {
    if let Some(bytes) = line_length(update) {
        waiting.take_off(bytes);
    }
}

/// Only a tool's lines are many enough to count.
fn line_length(update: &Update) -> Option<usize> {
    match update {
        Update::Process { update: process::Update::Line { text, .. }, .. } => Some(text.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: usize) -> Update {
        let text = "x".repeat(bytes);
        let update = process::Update::Line { stream: process::Stream::Stdout, text, lossy: false, more: false };
        Update::Process { program: "tofu apply".to_owned(), update }
    }

    #[tokio::test]
    async fn waiting_lines_use_up_the_room_and_reading_them_makes_it() {
        let (sender, mut receiver) = updates(Arc::default());
        for _ in 0..8 {
            assert_eq!(sender.room(), process::Room::Some);
            sender.send(line(MOST_WAITING / 8));
        }
        assert_eq!(sender.room(), process::Room::None);
        sender.send(Update::Note("a fact always finds a place".to_owned()));
        assert_eq!(receiver.recv().await, Some(line(MOST_WAITING / 8)));
        assert_eq!(sender.room(), process::Room::Some);
    }

    #[tokio::test]
    async fn what_its_reader_has_not_written_uses_up_the_room_too() {
        let behind = Arc::new(Backlog::default());
        let (sender, mut receiver) = updates(behind.clone());
        sender.send(line(MOST_WAITING));
        behind.add(MOST_WAITING);
        receiver.recv().await.expect("it was sent");
        assert_eq!(sender.room(), process::Room::None);
        behind.take_off(MOST_WAITING);
        assert_eq!(sender.room(), process::Room::Some);
    }

    #[tokio::test]
    async fn a_channel_without_a_reader_does_not_fill_up() {
        let (sender, receiver) = updates(Arc::default());
        drop(receiver);
        for _ in 0..3 {
            sender.send(line(MOST_WAITING));
        }
        assert_eq!(sender.room(), process::Room::Some);
    }
}
