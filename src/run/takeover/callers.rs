//! Who asks something of a run that was taken over: whoever signals the process that took it over, and whoever comes to the
//! door in the run directory, `dcctl runs stop`. The door of the supervisor is gone with it, so it is opened anew.

use std::path::Path;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::event::StopCause;
use crate::run::door::Door;
use crate::run::link::{Answer, Asked, Word};
use crate::run::machine::Strength;

/// A request to stop.
#[derive(Debug)]
pub(super) struct Request {
    /// By what.
    pub(super) asked: Asked,
    /// How strongly.
    pub(super) strength: Strength,
    /// In which way it came.
    pub(super) cause: StopCause,
}

/// Hears both of them and passes on what they ask, until the take-over is done.
pub(super) async fn heard<T>(
    run_dir: &Path,
    mut signals: UnboundedReceiver<(Asked, Strength)>,
    ask: UnboundedSender<Request>,
    owning: impl Future<Output = T>,
) -> T {
    let mut door = Door::open(run_dir);
    tokio::pin!(owning);
    loop {
        tokio::select! {
            biased;
            Some((asked, strength)) = signals.recv() => {
                // Once the verdict is being written, nobody listens.
                let _ = ask.send(Request { asked, strength, cause: StopCause::Signal });
            }
            word = door.next() => visited(word, &mut door, &ask).await,
            done = &mut owning => return done,
        }
    }
}

async fn visited(word: Word, door: &mut Door, ask: &UnboundedSender<Request>) {
    let asks = |asked, strength| drop(ask.send(Request { asked, strength, cause: StopCause::Command }));
    match word {
        Word::Stop(asked) => asks(asked, Strength::Graceful),
        Word::Force(asked) => asks(asked, Strength::Force),
        Word::Ping => {}
        // A front's words to its supervisor.
        Word::Spec(_) | Word::Broke(_) | Word::Orphaned | Word::Bye => return door.show_out(),
    }
    door.answer(&Answer::Pong).await;
}
