//! Lets this process stand still at a moment that a test names, so that it can be killed there. Only a build with the
//! feature `test-tools` can be asked; in every other one there is nothing here.

/// A moment of which there is no event: the process that would tell it is to be killed in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A tool runs, and nothing says which process it is.
    Started,
    /// An interrupt is recorded and not sent.
    Intended,
    /// It was sent, and nothing says so.
    Sent,
}

/// Stands still if this moment of this tool was asked for.
pub(crate) fn halt(at: Moment, tool: &str) {
    #[cfg(feature = "test-tools")]
    {
        let word = match at {
            Moment::Started => "started",
            Moment::Intended => "intended",
            Moment::Sent => "sent",
        };
        if ASKED.get().is_some_and(|asked| *asked == format!("{word}:{tool}")) {
            crate::process::stand_still();
        }
    }
    #[cfg(not(feature = "test-tools"))]
    let _ = (at, tool);
}

#[cfg(feature = "test-tools")]
static ASKED: std::sync::OnceLock<String> = std::sync::OnceLock::new();

/// Asks for one moment, once: `intended:tofu apply`.
#[cfg(feature = "test-tools")]
pub fn halt_at(moment: &str) {
    let _ = ASKED.set(moment.to_owned());
}
