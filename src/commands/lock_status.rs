//! `dcctl lock status`: who holds the lock, with every fact needed to check.

use std::io::Write;

use crate::cli::{LockStatusArgs, StatusOutput};
use crate::commands::substrate::{self, Reached};
use crate::commands::{Desk, Reader, runtime, say, terminal, told};
use crate::event::text::one_line;
use crate::failure::{Code, Failure};
use crate::lock::direct::Intent;
use crate::lock::status::{self, Status};
use crate::lock::{self, Follower, Observation, Place, Sight, Store, Timing};
use crate::signal;

/// Prints it, once or whenever it changes. The exit code is 0, unless it is asked to say whether the lock can be had.
pub(crate) fn status(desk: &Desk, args: &LockStatusArgs) -> u8 {
    let last = runtime().and_then(|runtime| {
        let last = runtime.block_on(look(desk, args));
        runtime.shutdown_background();
        last
    });
    match last {
        Ok(last) if args.exit_code => last.and_then(|status| status.blocked()).map_or(0, Code::exit),
        Ok(_) => 0,
        Err(failure) => told(&failure),
    }
}

/// The last that was seen.
async fn look(desk: &Desk, args: &LockStatusArgs) -> Result<Option<Status>, Failure> {
    if !args.watch {
        let Reached { store, place, .. } = connect(desk, args).await?;
        let seen = lock::observe(&store).await?;
        let why_not = why_not(&store, seen.as_ref()).await;
        let status = status::status(seen.as_ref(), &place, desk.clock.wall()).but(why_not, &place);
        say(&whole(&status, &place, args.output))?;
        return Ok(Some(status));
    }
    let mut signals = signal::install()
        .map_err(|error| Failure::new(Code::Internal, "the signal handlers could not be installed").because(&error))?;
    let mut watching = Watching { desk, output: args.output, seen: Seen::NotYet, why_not: None, shown: None };
    tokio::select! {
        biased;
        _ = signals.next() => {}
        ended = watching.watch(args) => ended?,
    }
    Ok(watching.shown)
}

async fn connect(desk: &Desk, args: &LockStatusArgs) -> Result<Reached, Failure> {
    let meant = substrate::meant(&args.substrate, &args.target)?;
    substrate::reach(desk, meant, &args.target, Intent::Look).await
}

/// Why a run of this account would be refused although nobody holds the lock. Of a folder that can be told without
/// claiming anything; the API server says it to the run.
async fn why_not(store: &Store, seen: Option<&Observation>) -> Option<Failure> {
    match store {
        Store::Direct(folder) if seen.is_none_or(|seen| seen.holder().is_none()) => {
            folder.check(Intent::Change).await.err()
        }
        Store::Direct(_) | Store::Kubernetes(_) => None,
    }
}

/// Somebody who watches the lock on standard output.
struct Watching<'a> {
    desk: &'a Desk,
    output: StatusOutput,
    seen: Seen,
    /// Why nobody here can claim it, although nobody holds it.
    why_not: Option<Failure>,
    shown: Option<Status>,
}

/// The Lease as it was last seen.
enum Seen {
    NotYet,
    Lease(Option<Observation>),
}

/// What is to be shown although it may say the same as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Show {
    /// Nothing.
    Changes,
    /// A renewal, where each of them counts.
    Renewals,
    /// Everything: it could not be seen for a while.
    Everything,
}

impl Watching<'_> {
    /// Watches until nobody reads any more, or the lock may not be seen.
    async fn watch(&mut self, args: &LockStatusArgs) -> Result<(), Failure> {
        let Reached { store, place, .. } = connect(self.desk, args).await?;
        let mut follower = Follower::new(store.clone(), Timing::STANDARD);
        let mut show = Show::Everything;
        loop {
            let sight = tokio::select! {
                biased;
                sight = follower.next() => Some(sight),
                // A lock that nobody writes to may begin to look stale.
                () = tokio::time::sleep(Timing::STANDARD.poll_clock_every()) => None,
            };
            let reader = match sight {
                None => self.show(&place, Show::Changes)?,
                Some(Sight::Lease(seen)) => {
                    self.why_not = why_not(&store, seen.as_ref()).await;
                    self.seen = Seen::Lease(seen);
                    self.show(&place, std::mem::replace(&mut show, Show::Renewals))?
                }
                Some(Sight::Blind(failure)) => {
                    show = Show::Everything;
                    let why = one_line(&failure.message);
                    let said = format!("dcctl: the lock cannot be seen just now: {why}; trying again\n");
                    let _ = terminal::stderr().write_all(said.as_bytes());
                    Reader::There
                }
                Some(Sight::Refused(failure)) => return Err(failure),
            };
            if reader == Reader::Gone {
                return Ok(());
            }
        }
    }

    fn show(&mut self, place: &Place, show: Show) -> Result<Reader, Failure> {
        let Seen::Lease(seen) = &self.seen else { return Ok(Reader::There) };
        let status = status::status(seen.as_ref(), place, self.desk.clock.wall()).but(self.why_not.clone(), place);
        let counts = match (show, self.output) {
            (Show::Everything, _) | (Show::Renewals, StatusOutput::Json) => true,
            (Show::Changes, _) | (Show::Renewals, StatusOutput::Human) => {
                self.shown.as_ref().is_none_or(|before| status.differs_from(before))
            }
        };
        if !counts {
            return Ok(Reader::There);
        }
        let text = match self.output {
            StatusOutput::Human if self.shown.is_some() => format!("\n{}", whole(&status, place, self.output)),
            StatusOutput::Human | StatusOutput::Json => whole(&status, place, self.output),
        };
        self.shown = Some(status);
        say(&text)
    }
}

fn whole(seen: &Status, place: &Place, output: StatusOutput) -> String {
    let mut text = match output {
        StatusOutput::Human => terminal::fitted(&seen.text(place)),
        StatusOutput::Json => serde_json::to_string(seen).expect("a status is plain JSON"),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
