//! The real arithmetic of a stop, twenty minutes and one, on a clock that the test moves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dcctl::clock::{Clock, Instant, System};
use dcctl::process::{Directly, Exit, Fate, Limits, Manner, Tie, Update, drive, stop_channel};

use crate::bed::freezer::Freezer;
use crate::process::{Bench, FOREVER, PATIENCE, passed, wait_for};

/// The clock of this machine, and what the test puts it ahead by.
#[derive(Debug, Default)]
struct Ahead(Mutex<Duration>);

impl Ahead {
    fn leap(&self, by: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for Ahead {
    fn now(&self) -> Instant {
        System.now() + *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wall(&self) -> jiff::Timestamp {
        System.wall()
    }
}

type Seen = Arc<Mutex<Vec<(Instant, Update)>>>;

/// When the first such update came.
fn when(seen: &Seen, fact: impl Fn(&Update) -> bool) -> Option<Instant> {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().find(|(_, update)| fact(update)).map(|(at, _)| *at)
}

fn interrupts(seen: &Seen) -> usize {
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.iter().filter(|(_, update)| matches!(update, Update::Interrupted { .. })).count()
}

/// An apply that nobody interrupts has no limit; from the first request on there are twenty minutes, eight seconds, and
/// one minute after the twenty the waiting ends, although the tool is still there.
#[tokio::test]
async fn twenty_minutes_from_the_first_request_eight_seconds_and_a_minute_after_them_the_waiting_ends() {
    let Some(freezer) = Freezer::new() else { return };
    let (bench, clock, seen) = (Bench::new(), Ahead::default(), Seen::default());
    let (stopper, stop) = stop_channel();
    let spec = bench.spec(Manner::OpenTofu, &format!("on=INT {{ }} file=@/ready {FOREVER}"));
    let note = |update| seen.lock().unwrap_or_else(PoisonError::into_inner).push((clock.now(), update));
    let driven = tokio::time::timeout(PATIENCE * 2, drive(spec, Limits::default(), stop, &clock, note));
    let minute = Duration::from_secs(60);
    let act = async {
        let pid = bench.pid("ready").await;
        freezer.freeze(pid);
        clock.leap(minute * 60 * 24 * 30);
        passed(Duration::from_millis(500)).await;
        assert_eq!(interrupts(&seen), 0, "a month passed, and nobody had asked for a stop");
        let asked = clock.now();
        stopper.graceful(asked, Directly::No);
        wait_for(|| interrupts(&seen) == 1).await;
        clock.leap(minute * 19);
        // More requests change nothing.
        stopper.graceful(clock.now(), Directly::No);
        passed(Duration::from_millis(500)).await;
        assert_eq!(interrupts(&seen), 1, "the budget is not over");
        clock.leap(minute);
        wait_for(|| interrupts(&seen) == 2).await;
        clock.leap(Duration::from_secs(8));
        wait_for(|| when(&seen, |update| matches!(update, Update::Killed { .. })).is_some()).await;
        clock.leap(Duration::from_secs(52));
        wait_for(|| when(&seen, |update| matches!(update, Update::Finished { .. })).is_some()).await;
        (asked, pid)
    };
    let (ended, (asked, pid)) = tokio::join!(driven, act);
    let ended = ended.expect("it ended in time").expect("it was started");
    let after = |fact: &dyn Fn(&Update) -> bool| when(&seen, fact).expect("it came").since(asked);
    let killed = after(&|update| matches!(update, Update::Killed { .. }));
    let given_up = after(&|update| matches!(update, Update::Finished { exit: Exit::Unseen, .. }));
    assert!(killed >= minute * 20 + Duration::from_secs(8), "{killed:?}");
    assert!(given_up >= minute * 21, "{given_up:?}");
    // What the test itself took is on the clock, too.
    assert!(given_up < minute * 22, "{given_up:?}");
    let [left] = &ended.left_behind[..] else { panic!("{:?}", ended.left_behind) };
    assert_eq!((left.pid, &left.ties[..], left.state, left.fate), (pid, &[Tie::Itself][..], 'D', Fate::Alive));
    assert!(when(&seen, |update| matches!(update, Update::Survived(left) if left.pid == pid)).is_some());
}
