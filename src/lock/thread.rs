//! The keeper's thread: its runtime, its store, and its end.
//!
//! The store is made on the runtime's blocking pool, because credential plugins run then and may hang. The runtime is
//! never waited for at the end: a look-up that hangs in the resolver cannot be cancelled, and would hold up the exit.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::Runtime;

use crate::failure::{Code, Failure};
use crate::lock::change::Change;
use crate::lock::driver::{Command, Driver, Ends, Left};
use crate::lock::protocol::{ClaimError, Lost, Released};
use crate::lock::store::LeaseStore;
use crate::lock::timing::Timing;

/// Starts the thread. When that fails the ends are dropped, and every call of the keeper is answered by "broken".
pub(crate) fn start<S, F, D>(make_store: F, driver: D, ends: Ends, timing: Timing)
where
    S: LeaseStore,
    F: FnOnce() -> Result<S, Failure> + Send + 'static,
    D: FnOnce(Ends) -> Driver + Send + 'static,
{
    spawn(make_store, driver, ends, (timing, Beginning::Anew));
}

/// The same for a lock that this holder may have already: without a store it is not given back, and nobody can say where
/// it is.
pub(crate) fn go_on<S, F, D>(make_store: F, driver: D, ends: Ends, (timing, holder): (Timing, String))
where
    S: LeaseStore,
    F: FnOnce() -> Result<S, Failure> + Send + 'static,
    D: FnOnce(Ends) -> Driver + Send + 'static,
{
    spawn(make_store, driver, ends, (timing, Beginning::Inherited { holder }));
}

/// What there is before the first request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Beginning {
    /// Nothing.
    Anew,
    /// What another process of the same run has left.
    Inherited {
        /// The identity of the run.
        holder: String,
    },
}

fn spawn<S, F, D>(make_store: F, driver: D, ends: Ends, beginning: (Timing, Beginning))
where
    S: LeaseStore,
    F: FnOnce() -> Result<S, Failure> + Send + 'static,
    D: FnOnce(Ends) -> Driver + Send + 'static,
{
    let started = std::thread::Builder::new().name("lock".to_owned()).spawn(move || {
        keep(make_store, driver, ends, beginning);
    });
    // The thread is not joined: it ends by itself after the release, and nothing may wait for it before.
    drop(started);
}

fn keep<S, F, D>(make_store: F, driver: D, mut ends: Ends, (timing, beginning): (Timing, Beginning))
where
    S: LeaseStore,
    F: FnOnce() -> Result<S, Failure> + Send + 'static,
    D: FnOnce(Ends) -> Driver,
{
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let code = Code::Internal.unless_exhausted(&error);
            let failure = Failure::new(code, "the runtime that keeps the lock cannot start").because(&error);
            return refuse(&mut ends, Vec::new(), &failure, &beginning);
        }
    };
    let mut waiting = Vec::new();
    let making = runtime.spawn_blocking(make_store);
    match runtime.block_on(prepared(making, &mut ends, &mut waiting, (timing, &beginning))) {
        Prepared::Store(store) => drive(&runtime, &mut driver(ends), &store, waiting),
        Prepared::Failed(failure) => refuse(&mut ends, waiting, &failure, &beginning),
        Prepared::NotNeeded => give_up(&mut ends, waiting),
    }
    runtime.shutdown_background();
}

/// Works until the lock is given back, or left. A panic is a bug: the run must not go on believing in a lock that nobody
/// renews. But what was claimed, or may have been, is still looked for when the run asks for its release. The second
/// panic is the end, and all that is left to say is that nobody knows.
fn drive<S: LeaseStore>(runtime: &Runtime, driver: &mut Driver, store: &S, waiting: Vec<Command>) {
    // What the driver knew is not looked at again.
    if catch_unwind(AssertUnwindSafe(|| runtime.block_on(driver.run(store, waiting)))).is_ok() {
        return;
    }
    let asked = driver.wreck(&Failure::new(Code::Internal, "the thread that keeps the lock has panicked"));
    drop(catch_unwind(AssertUnwindSafe(|| runtime.block_on(driver.run(store, asked)))));
}

/// What came of making the store.
enum Prepared<S> {
    Store(S),
    Failed(Failure),
    /// The run gave the lock up before there was anything to claim it with.
    NotNeeded,
}

/// Waits for the store. Commands that come meanwhile wait too, except those that end everything.
async fn prepared<S>(
    making: tokio::task::JoinHandle<Result<S, Failure>>,
    ends: &mut Ends,
    waiting: &mut Vec<Command>,
    (timing, beginning): (Timing, &Beginning),
) -> Prepared<S> {
    let too_long = tokio::time::sleep(timing.prepare_timeout());
    tokio::pin!(making, too_long);
    loop {
        tokio::select! {
            made = &mut making => return match made {
                Ok(Ok(store)) => Prepared::Store(store),
                Ok(Err(failure)) => Prepared::Failed(failure),
                Err(panic) => Prepared::Failed(
                    Failure::new(Code::Internal, "making the client for the lock went wrong").because(&panic),
                ),
            },
            command = ends.commands.recv() => match command {
                Some(Command::Release | Command::Leave) | None if *beginning == Beginning::Anew => {
                    return Prepared::NotNeeded;
                }
                // Nobody is left who could ask for anything.
                None => return Prepared::NotNeeded,
                Some(command) => waiting.push(command),
            },
            () = &mut too_long => return Prepared::Failed(
                Failure::new(Code::CredentialsRefused, "making the client for the lock took too long")
                    .hint("Look at the credential plugin that the kubeconfig names: it may be waiting for somebody."),
            ),
        }
    }
}

/// The run does not want the lock any more, and nothing was sent.
fn give_up(ends: &mut Ends, waiting: Vec<Command>) {
    for command in waiting {
        if let Command::Claim(answer) = command {
            drop(answer.send(Err(ClaimError::GivenUp)));
        }
    }
    ends.known.send_modify(|known| known.released = Some(Released::NeverTaken));
}

/// Answers everything by why there is no store, until the run lets go.
fn refuse(ends: &mut Ends, waiting: Vec<Command>, why: &Failure, beginning: &Beginning) {
    if let Beginning::Inherited { .. } = beginning {
        // Nobody renews it.
        drop(ends.changes.send(Change::Lost(Lost::Broken(why.clone()))));
    }
    let mut waiting = waiting.into_iter();
    while let Some(command) = waiting.next().or_else(|| ends.commands.blocking_recv()) {
        match command {
            Command::Claim(answer) => drop(answer.send(Err(ClaimError::Failed(why.clone())))),
            Command::Check(answer) => drop(answer.send(Err(Lost::Broken(why.clone())))),
            Command::Note(_) => {}
            Command::Release => match beginning {
                Beginning::Anew => return give_up(ends, Vec::new()),
                Beginning::Inherited { holder } => {
                    let released = Released::Unknown { holder: holder.clone(), why: why.clone() };
                    return ends.known.send_modify(|known| known.released = Some(released));
                }
            },
            Command::Leave => return ends.known.send_modify(|known| known.left = Left::OnRequest),
        }
    }
}

#[cfg(test)]
mod tests;
