//! Breaks the program where a test asks for it, so that what becomes of a broken invariant can be seen from outside.
//!
//! Only a build with the feature `test-tools` can be asked; in every other one there is nothing here.

use crate::run::spec::Spec;

/// A place that a test may have asked to break: the id of a step that begins, the type of an event that an activity
/// just caused, or one of the front's own.
pub fn at(spec: &Spec, place: &str) {
    #[cfg(feature = "test-tools")]
    assert!(spec.break_at.as_deref() != Some(place), "a test asked for it at {place}");
    #[cfg(not(feature = "test-tools"))]
    let _ = (spec, place);
}
