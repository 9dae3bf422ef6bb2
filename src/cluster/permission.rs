//! Whether a write may be sent: asked of whoever made the [`Cluster`](crate::cluster::Cluster), right before every
//! write and before every repeat of one.
//!
//! A `Cluster` cannot be made without a [`MayWrite`], and the one place that sends requests asks it. So no step can
//! forget to. A write that is under way when the permission ends is given up: its connection may still be being made,
//! and then nothing was sent.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use crate::failure::{Code, Failure};

/// Who knows whether a write may be sent.
pub trait Permission: Send + Sync {
    /// Whether one may be sent at this moment. It is asked often, and may not wait for anything.
    ///
    /// # Errors
    /// Why not.
    fn now(&self) -> Result<(), Failure>;

    /// Ends when [`Permission::now`] may say something else than when this was polled first. Safe to drop at any point.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Whether a write may be sent. Clones share it.
#[derive(Clone)]
pub struct MayWrite(Arc<dyn Permission>);

impl MayWrite {
    /// As this one says.
    pub fn as_says(permission: impl Permission + 'static) -> MayWrite {
        MayWrite(Arc::new(permission))
    }

    /// Never: for a command that only looks.
    pub fn never() -> MayWrite {
        MayWrite::as_says(Never)
    }

    /// Always: for tests of single requests, which have a cluster for themselves.
    #[cfg(any(test, feature = "test-tools"))]
    pub fn always() -> MayWrite {
        MayWrite::as_says(Always)
    }

    /// Whether one may be sent at this moment.
    ///
    /// # Errors
    /// Why not.
    pub fn now(&self) -> Result<(), Failure> {
        self.0.now()
    }

    /// Sends a write, unless it may not be sent, and for as long as it may.
    pub(in crate::cluster) async fn send<T>(&self, write: impl Future<Output = T>) -> Result<T, Withheld> {
        self.now().map_err(Withheld::Unsent)?;
        let mut write = pin!(write);
        let mut changed = self.0.changed();
        poll_fn(|context| {
            while changed.as_mut().poll(context).is_ready() {
                changed = self.0.changed();
            }
            // The clock alone can end it, without anybody's word.
            match self.now() {
                Ok(()) => write.as_mut().poll(context).map(Ok),
                Err(why) => Poll::Ready(Err(Withheld::GivenUp(why))),
            }
        })
        .await
    }
}

impl fmt::Debug for MayWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MayWrite").field(&self.now().map_err(|why| why.message)).finish()
    }
}

/// Why a write has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cluster) enum Withheld {
    /// It was not sent.
    Unsent(Failure),
    /// It was under way, and may still take effect.
    GivenUp(Failure),
}

impl Withheld {
    /// As a failure of `doing`, which completes "could not …".
    pub(in crate::cluster) fn into_failure(self, doing: &str) -> Failure {
        let told = |why: Failure| Failure { message: format!("could not {doing}: {}", why.message), ..why };
        match self {
            Withheld::Unsent(why) => told(why),
            Withheld::GivenUp(why) => told(why).cause("the request was under way, and may still take effect"),
        }
    }
}

struct Never;

impl Permission for Never {
    fn now(&self) -> Result<(), Failure> {
        Err(Failure::new(Code::Internal, "this command writes nothing"))
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

#[cfg(any(test, feature = "test-tools"))]
struct Always;

#[cfg(any(test, feature = "test-tools"))]
impl Permission for Always {
    fn now(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::watch;

    /// Given until it is taken back.
    struct Given(watch::Receiver<bool>);

    impl Permission for Given {
        fn now(&self) -> Result<(), Failure> {
            if *self.0.borrow() { Ok(()) } else { Err(Failure::new(Code::LockLost, "the lock is gone")) }
        }

        fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            let mut given = self.0.clone();
            Box::pin(async move {
                given.mark_unchanged();
                if given.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        }
    }

    #[tokio::test]
    async fn without_permission_nothing_is_sent() {
        let may = MayWrite::as_says(Given(watch::channel(false).1));
        let sent: Result<(), Withheld> = may.send(async { panic!("it was sent") }).await;
        let Err(why) = sent else { panic!("it may not be sent") };
        assert_eq!(why.into_failure("write x").message, "could not write x: the lock is gone");
        assert!(MayWrite::never().send(async {}).await.is_err());
        assert_eq!(MayWrite::always().send(async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn a_write_under_way_is_given_up_when_the_permission_ends() {
        let (give, given) = watch::channel(true);
        let may = MayWrite::as_says(Given(given));
        // Whatever else changes, it goes on.
        let write = async {
            give.send(true).expect("somebody listens");
            tokio::task::yield_now().await;
            give.send(false).expect("somebody listens");
            std::future::pending::<()>().await;
        };
        let Err(why) = may.send(write).await else { panic!("it never ends by itself") };
        assert!(matches!(why, Withheld::GivenUp(_)));
        assert_eq!(why.into_failure("write x").causes, ["the request was under way, and may still take effect"]);
    }
}
