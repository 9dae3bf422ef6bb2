//! The channel from a step to whoever drives it.
//!
//! Facts always find a place in it. A tool's lines are counted while they wait, so that a step can leave its tool's
//! output in its file while the reader is behind, instead of collecting it in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::process;
use crate::step::Update;

/// How many bytes of a tool's lines may wait to be read.
const MOST_WAITING: usize = 4 << 20;

/// What one waiting line costs beside its text.
const LINE_COST: usize = 128;

/// Makes the channel of one run.
pub fn updates() -> (Updates, UpdatesReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Updates { sender, waiting: waiting.clone() }, UpdatesReceiver { receiver, waiting })
}

/// The step's end.
#[derive(Debug, Clone)]
pub struct Updates {
    sender: mpsc::UnboundedSender<Update>,
    waiting: Arc<AtomicUsize>,
}

impl Updates {
    /// Says something. When nobody listens any more, the run is over and the update is dropped.
    pub fn send(&self, update: Update) {
        let cost = cost(&update);
        self.waiting.fetch_add(cost, Ordering::Relaxed);
        if self.sender.send(update).is_err() {
            self.waiting.fetch_sub(cost, Ordering::Relaxed);
        }
    }

    /// Whether more lines of a tool should be sent now.
    pub fn room(&self) -> process::Room {
        if self.waiting.load(Ordering::Relaxed) < MOST_WAITING { process::Room::Some } else { process::Room::None }
    }
}

/// The end of whoever drives the step.
#[derive(Debug)]
pub struct UpdatesReceiver {
    receiver: mpsc::UnboundedReceiver<Update>,
    waiting: Arc<AtomicUsize>,
}

impl UpdatesReceiver {
    /// The next update; none when every [`Updates`] is gone and all was read. Safe to drop at any point.
    pub async fn recv(&mut self) -> Option<Update> {
        let update = self.receiver.recv().await?;
        self.waiting.fetch_sub(cost(&update), Ordering::Relaxed);
        Some(update)
    }

    /// The next update if one is there already.
    pub fn try_recv(&mut self) -> Option<Update> {
        let update = self.receiver.try_recv().ok()?;
        self.waiting.fetch_sub(cost(&update), Ordering::Relaxed);
        Some(update)
    }
}

/// Only a tool's lines are many enough to count.
fn cost(update: &Update) -> usize {
    match update {
        Update::Process { update: process::Update::Line { text, .. }, .. } => text.len() + LINE_COST,
        _ => 0,
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
        let (sender, mut receiver) = updates();
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
    async fn a_channel_without_a_reader_does_not_fill_up() {
        let (sender, receiver) = updates();
        drop(receiver);
        for _ in 0..3 {
            sender.send(line(MOST_WAITING));
        }
        assert_eq!(sender.room(), process::Room::Some);
    }
}
