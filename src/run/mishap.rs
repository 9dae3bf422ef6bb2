//! A broken invariant in the middle of a run: the panic is caught where the run can still give its lock back.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Does the work; the error is what a panic in it said. Whoever catches one looks at nothing that the panic may have
/// left half done.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = pin!(work);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(said(panic.as_ref()))),
    })
    .await
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it does not say why".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_breaks_says_what_it_said() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let later = async {
            tokio::task::yield_now().await;
            panic!("step {} has no kit", 3)
        };
        assert_eq!(caught::<()>(later).await, Err("step 3 has no kit".to_owned()));
    }
}
