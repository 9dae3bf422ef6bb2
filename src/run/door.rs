//! The socket in the run directory at which other processes of this user ask something of a run: `dcctl runs`.
//!
//! One visitor at a time is let in, says one word, gets one answer, and goes. A visitor who says nothing is shown out
//! after a moment. Nothing here can hold up a run: where the socket cannot be made, the run goes on without it.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Sleep;

use crate::run::link::{Answer, Ear, Link, Mouth, Word};

/// Its name in the run directory.
pub const DOOR: &str = "door";

/// How long a visitor may take to say a word, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who is at the door, and by when they have to say something.
struct Visitor {
    ear: Ear,
    mouth: Mouth,
    until: Pin<Box<Sleep>>,
}

/// The supervisor's side.
pub(crate) struct Door {
    listener: Option<UnixListener>,
    visitor: Option<Visitor>,
}

impl Door {
    /// Opens it in this folder, for this user alone.
    pub(crate) fn open(folder: &Path) -> Door {
        let listener = listen(folder);
        if let Err(error) = &listener {
            tracing::warn!(%error, "`dcctl runs` cannot ask anything of this run");
        }
        Door { listener: listener.ok(), visitor: None }
    }

    /// The next word of a visitor of this user. Safe to drop at any point.
    pub(crate) async fn next(&mut self) -> Word {
        let Some(listener) = &self.listener else { return std::future::pending().await };
        loop {
            if let Some(Visitor { ear, until, .. }) = &mut self.visitor {
                let word = tokio::select! {
                    biased;
                    word = ear.next::<Word>() => word,
                    () = until => None,
                };
                match word {
                    // Who has given up does not expect any more to be heard, and may have been told so.
                    Some(word) if !ear.is_alone() => return word,
                    Some(_) | None => self.visitor = None,
                }
            } else if let Ok((stream, _)) = listener.accept().await {
                self.visitor = admit(stream);
            } else {
                // No descriptors are left, for now.
                tokio::time::sleep(PATIENCE).await;
            }
        }
    }

    /// Shows the visitor out who said the last word.
    pub(crate) fn show_out(&mut self) {
        self.visitor = None;
    }

    /// Answers the visitor who said the last word, who may be gone.
    pub(crate) async fn answer(&mut self, answer: &Answer) {
        if let Some(Visitor { mut mouth, .. }) = self.visitor.take() {
            let _ = tokio::time::timeout(PATIENCE, mouth.say(answer)).await;
        }
    }
}

/// Whether somebody listens at the door of the run in this folder.
pub(crate) fn is_open(folder: &Path) -> bool {
    short(folder).and_then(|(_folder, path)| StdStream::connect(path)).is_ok()
}

/// Anybody else is shown out.
fn admit(stream: UnixStream) -> Option<Visitor> {
    let ours = rustix::process::geteuid().as_raw();
    let peer = stream.peer_cred().ok()?;
    if peer.uid() != ours && peer.uid() != 0 {
        return None;
    }
    let (ear, mouth) = Link::of(stream).split();
    Some(Visitor { ear, mouth, until: Box::pin(tokio::time::sleep(PATIENCE)) })
}

fn listen(folder: &Path) -> io::Result<UnixListener> {
    let (_folder, path) = short(folder)?;
    // What is there under this name was left by a run whose folder this was before.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Says one word at the door of the run in this folder, and hears the answer.
///
/// # Errors
/// When nobody opens: the run is over, or belongs to somebody else.
pub async fn knock(folder: &Path, word: &Word) -> io::Result<Answer> {
    let stream = {
        let (_folder, path) = short(folder)?;
        StdStream::connect(path)?
    };
    let (mut ear, mut mouth) = Link::new(OwnedFd::from(stream))?.split();
    let conversation = async {
        mouth.say(word).await?;
        ear.next().await.ok_or_else(|| io::Error::from(io::ErrorKind::ConnectionReset))
    };
    tokio::time::timeout(PATIENCE * 10, conversation).await?
}

/// The socket's path through a descriptor of its folder, which has to be kept meanwhile: an address takes 107 bytes, and
/// a path may be longer.
fn short(folder: &Path) -> io::Result<(OwnedFd, std::path::PathBuf)> {
    let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{DOOR}", folder.as_raw_fd());
    Ok((folder, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody knocks, and is answered.
    async fn visited(door: &mut Door, folder: &Path) -> Answer {
        let inside = async {
            assert!(matches!(door.next().await, Word::Ping));
            door.answer(&Answer::Pong).await;
        };
        tokio::join!(knock(folder, &Word::Ping), inside).0.expect("somebody opened")
    }

    #[tokio::test]
    async fn a_word_is_heard_and_answered_however_long_the_path_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = folder.path().join("x".repeat(200));
        std::fs::create_dir(&long).expect("ours");
        let mut door = Door::open(&long);
        assert_eq!(visited(&mut door, &long).await, Answer::Pong);
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_shown_out_and_the_next_one_is_heard() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut door = Door::open(folder.path());
        let _silent = StdStream::connect(folder.path().join(DOOR)).expect("it is open");
        assert_eq!(visited(&mut door, folder.path()).await, Answer::Pong);
    }

    #[tokio::test]
    async fn a_word_whose_sender_has_given_up_is_not_heard() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut door = Door::open(folder.path());
        let stream = StdStream::connect(folder.path().join(DOOR)).expect("it is open");
        let (ear, mut mouth) = Link::new(OwnedFd::from(stream)).expect("a socket").split();
        mouth.say(&Word::Ping).await.expect("it waits in the socket");
        drop((ear, mouth));
        let heard = tokio::time::timeout(PATIENCE, door.next()).await;
        assert!(heard.is_err(), "{heard:?}");
        assert_eq!(visited(&mut door, folder.path()).await, Answer::Pong);
    }

    #[tokio::test]
    async fn a_folder_without_a_door_is_said_to_be_one() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(knock(folder.path(), &Word::Ping).await.is_err());
        drop(Door::open(folder.path()));
        assert!(knock(folder.path(), &Word::Ping).await.is_err(), "nobody listens any more");
    }
}
