//! Breaks the program where a test asks for it, or makes it stand still there, so that what becomes of a broken
//! invariant, or of a process that is killed at that very moment, can be seen from outside. It also lets a test see when
//! a run takes itself to have the right to act, which nothing but the run itself can know.
//!
//! Only a build with the feature `test-tools` can be asked; in every other one there is nothing here.

use crate::process::Limits;
use crate::run::spec::Spec;
use crate::run::while_held::WhileHeld;

/// A place that a test may have asked to break: the id of a step that begins, the type of an event that an activity
/// just caused, or one of the front's own.
pub fn at(spec: &Spec, place: &str) {
    #[cfg(feature = "test-tools")]
    assert!(spec.break_at.as_deref() != Some(place), "a test asked for it at {place}");
    #[cfg(not(feature = "test-tools"))]
    let _ = (spec, place);
}

/// Tells `process` where it is to stand still: `tool:intended:tofu apply` is when an interrupt of OpenTofu is recorded and
/// not sent.
pub fn of_tools(spec: &Spec) {
    #[cfg(feature = "test-tools")]
    if let Some(moment) = spec.break_at.as_deref().and_then(|at| at.strip_prefix("tool:")) {
        crate::process::halt_at(moment);
    }
    #[cfg(not(feature = "test-tools"))]
    let _ = spec;
}

/// Stands still where a test asked for it.
pub fn stand_at(spec: &Spec, place: &str) {
    #[cfg(feature = "test-tools")]
    if spec.break_at.as_deref().and_then(|at| at.strip_prefix("stand:")) == Some(place) {
        crate::process::stand_still();
    }
    #[cfg(not(feature = "test-tools"))]
    let _ = (spec, place);
}

/// How long a tool is waited for: with `watchdog:SECONDS` a test waits less than a minute for what cannot be ended.
pub fn patience(spec: &Spec, limits: Limits) -> Limits {
    #[cfg(feature = "test-tools")]
    if let Some(seconds) = spec.break_at.as_deref().and_then(|at| at.strip_prefix("watchdog:")?.parse().ok()) {
        return Limits { watchdog: std::time::Duration::from_secs(seconds), ..limits };
    }
    let _ = spec;
    limits
}

/// From now on notes in a file of the test when this run may write, as a step asks it before each write: the run, and the
/// moments right before and right after an answer that was yes, in nanoseconds of the machine's own clock.
pub(crate) fn witness(spec: &Spec, may_write: &WhileHeld) {
    #[cfg(feature = "test-tools")]
    if let Some(path) = &spec.witness {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("the test made its folder");
        let (run, may_write) = (spec.run.clone(), may_write.clone());
        // It looks on until the process ends.
        drop(std::thread::spawn(move || look_on(&run, &may_write, file)));
    }
    #[cfg(not(feature = "test-tools"))]
    let _ = (spec, may_write);
}

#[cfg(feature = "test-tools")]
fn look_on(run: &str, may_write: &WhileHeld, mut file: std::fs::File) {
    use crate::clock::{Clock, Instant, System};
    use crate::cluster::Permission;
    let nanos = || System.now().since(Instant::since_boot(std::time::Duration::ZERO)).as_nanos();
    loop {
        let before = nanos();
        if may_write.now().is_ok() {
            let line = format!("{run} {before} {}\n", nanos());
            std::io::Write::write_all(&mut file, line.as_bytes()).expect("the test's file takes it");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Where a process is to stand still, once: `after:lock.claimed` is when the journal has the first event of that type.
#[derive(Debug, Default)]
pub struct Halt {
    #[cfg(feature = "test-tools")]
    after: Option<String>,
}

impl Halt {
    /// What a test may have asked of this run.
    pub fn of(spec: &Spec) -> Halt {
        #[cfg(feature = "test-tools")]
        return Halt { after: spec.break_at.as_deref().and_then(|at| at.strip_prefix("after:")).map(str::to_owned) };
        #[cfg(not(feature = "test-tools"))]
        {
            let _ = spec;
            Halt::default()
        }
    }

    /// The journal has an event of this type now.
    pub fn after(&mut self, type_name: &str) {
        #[cfg(feature = "test-tools")]
        if self.after.take_if(|after| after == type_name).is_some() {
            crate::process::stand_still();
        }
        #[cfg(not(feature = "test-tools"))]
        let _ = type_name;
    }
}
