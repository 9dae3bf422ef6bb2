//! The keys of a run's notes: what a holder writes beside its name, for people and for a later take-over.
//!
//! Notes are annotations `dcctl.devicechain.io/<key>` on the Lease. They decide nothing in the protocol. They ride on
//! renewals, and writing one renews at once.

/// In front of every note's key.
pub const PREFIX: &str = "dcctl.devicechain.io/";
/// The annotation that names the instance worked on.
pub const INSTANCE_ANNOTATION: &str = "core.devicechain.io/instance";

/// The run's id.
pub const RUN: &str = "run";
/// The command: `bootstrap`.
pub const VERB: &str = "verb";
/// The title of the step that is being done.
pub const STEP: &str = "step";
/// When the run started, RFC 3339.
pub const STARTED: &str = "started";
/// The CI system it runs in.
pub const CI: &str = "ci";
/// Where a person reads its log.
pub const JOB_URL: &str = "job-url";
/// The job's attempt, counted by the CI system.
pub const JOB_ATTEMPT: &str = "job-attempt";
/// The namespace of the pod it runs in.
pub const POD_NAMESPACE: &str = "pod-namespace";
/// The name of the pod it runs in.
pub const POD_NAME: &str = "pod-name";
/// The uid of the pod it runs in.
pub const POD_UID: &str = "pod-uid";
/// Last will: when a stop was requested, RFC 3339.
pub const STOP_REQUESTED: &str = "stop-requested";
/// Last will: by which signal, or by what else.
pub const STOP_SIGNAL: &str = "stop-signal";
/// Last will: when the stop's budget ends, RFC 3339.
pub const STOP_DEADLINE: &str = "stop-deadline";
/// Last will: programs of the run that are still running, in words.
pub const CHILDREN: &str = "children";

/// The longest value of a note, in bytes. The API server limits all annotations of an object together to 256 KiB.
const LONGEST_VALUE: usize = 2_000;

/// The annotation for a note's key. Characters that an annotation may not have are replaced by `-`.
pub fn annotation(key: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = key.chars().map(allowed).take(63).collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("{PREFIX}{}", if name.is_empty() { "note" } else { name })
}

/// A value, cut at a character when it is too long.
pub fn value(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_VALUE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_annotations_that_the_api_server_accepts() {
        assert_eq!(annotation(JOB_URL), "dcctl.devicechain.io/job-url");
        assert_eq!(annotation("a b/ü.c_"), "dcctl.devicechain.io/a-b--.c");
        assert_eq!(annotation(""), "dcctl.devicechain.io/note");
        assert_eq!(annotation(&"k".repeat(99)).len(), PREFIX.len() + 63);
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        assert_eq!(value("short"), "short");
        assert_eq!(value(&"ü".repeat(2_000)).len(), 2_000);
        assert_eq!(value(&format!("x{}", "ü".repeat(2_000))).len(), 1_999);
    }
}
