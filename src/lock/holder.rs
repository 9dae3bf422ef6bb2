//! Who holds the lock: `user@host/pid/<16 hex>`.
//!
//! User, host and pid are for people: they say where to look. The protocol compares the suffix alone, so a second run
//! of the same user on the same host, even with the same pid, is never taken for the first.

use std::fmt;

/// The longest user or host that is written; holder identities are read in messages.
const LONGEST_PART: usize = 63;

/// The identity of one run, as it is written into the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderId {
    user: String,
    host: String,
    pid: u32,
    suffix: u64,
}

impl HolderId {
    /// An identity. `pid` is the process that a person would look for; `suffix` must be random. Characters that would
    /// break the form or a terminal are replaced by `-`, an empty part by `unknown`.
    pub fn new(user: &str, host: &str, pid: u32, suffix: u64) -> HolderId {
        HolderId { user: part(user), host: part(host), pid, suffix }
    }

    /// Reads an identity as it is written into the Lease. Nothing else than [`HolderId`]'s own form is one.
    pub fn parse(text: &str) -> Option<HolderId> {
        let mut parts = text.rsplitn(3, '/');
        let (suffix, pid, who) = (parts.next()?, parts.next()?, parts.next()?);
        let (user, host) = who.rsplit_once('@')?;
        let hex = suffix.len() == 16 && suffix.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let suffix = u64::from_str_radix(suffix, 16).ok().filter(|_| hex)?;
        let whole = !user.is_empty() && !host.is_empty();
        whole.then_some(HolderId { user: user.to_owned(), host: host.to_owned(), pid: pid.parse().ok()?, suffix })
    }

    /// The user who started the run.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The machine it runs on.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The process to look for there.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is that of the run with this id.
    pub fn is_run(&self, run: &str) -> bool {
        u64::from_str_radix(run, 16) == Ok(self.suffix)
    }

    /// Whether this is what the Lease says. The suffix decides.
    pub fn is(&self, written: &str) -> bool {
        HolderId::parse(written).is_some_and(|other| other.suffix == self.suffix)
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}/{}/{:016x}", self.user, self.host, self.pid, self.suffix)
    }
}

/// A user or a host without anything that has a meaning in an identity or in a terminal.
fn part(text: &str) -> String {
    let harmless = |c: char| if c.is_control() || c.is_whitespace() || matches!(c, '/' | '@') { '-' } else { c };
    let part: String = text.trim().chars().map(harmless).take(LONGEST_PART).collect();
    if part.is_empty() { "unknown".to_owned() } else { part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_written_as_the_documents_show_it_and_reads_back() {
        let holder = HolderId::new("alice", "build-01", 48213, 0x9f3c_1a20_b7e4_d5c6);
        assert_eq!(holder.to_string(), "alice@build-01/48213/9f3c1a20b7e4d5c6");
        assert_eq!(HolderId::parse(&holder.to_string()), Some(holder));
    }

    #[test]
    fn only_the_suffix_says_whether_it_is_the_same_run() {
        let mine = HolderId::new("alice", "build-01", 48213, 1);
        assert!(mine.is("alice@build-01/48213/0000000000000001"));
        assert!(mine.is("root@elsewhere/7/0000000000000001"));
        assert!(!mine.is("alice@build-01/48213/0000000000000002"));
        assert!(!mine.is("0000000000000001"));
        assert!(!mine.is(""));
    }

    #[test]
    fn nothing_in_a_name_breaks_the_form() {
        let holder = HolderId::new("DOMAIN/al ice@corp", "\u{1b}[31mhost\n", 0, u64::MAX);
        assert_eq!(holder.to_string(), "DOMAIN-al-ice-corp@-[31mhost/0/ffffffffffffffff");
        assert_eq!(HolderId::parse(&holder.to_string()), Some(holder));
        assert_eq!(HolderId::new("", " ", 1, 0).to_string(), "unknown@unknown/1/0000000000000000");
        assert_eq!(HolderId::new(&"x".repeat(500), "h", 1, 0).user().len(), 63);
    }

    #[test]
    fn what_is_not_an_identity_is_not_read_as_one() {
        for text in ["", "alice", "alice@h/1", "alice@h/1/ABCDEF0123456789", "alice@h/x/0123456789abcdef"] {
            assert_eq!(HolderId::parse(text), None, "{text}");
        }
        for text in ["alice@h/1/123", "@h/1/0123456789abcdef", "a@/1/0123456789abcdef", "a/1/0123456789abcdef"] {
            assert_eq!(HolderId::parse(text), None, "{text}");
        }
    }
}
