//! Says what cannot be tested on this machine.
//!
//! Straight to standard error: what a test prints in the usual way is shown only when the test fails.

use std::io::Write;

/// Says in one line what is not tested, and why. Fails the test where everything is required, as in CI.
#[expect(clippy::disallowed_methods, reason = "the tests' own setting, and the line has to be seen")]
pub(crate) fn say(what: &str, why: &str) {
    let required = std::env::var("DCCTL_REQUIRE_ALL").is_ok_and(|value| value == "1");
    assert!(!required, "{what} has to be tested here: {why}");
    let _ = writeln!(std::io::stderr(), "NOT TESTED: {what} ({why})");
}
