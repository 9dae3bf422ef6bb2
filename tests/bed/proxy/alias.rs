//! Another name for the lock's namespace, so that one cluster can have many locks.
//!
//! The lock's name is fixed, so runs on one cluster take turns. Where every run has a lock of its own, under a name that
//! it does not know, a hundred of them can suffer their faults at once. Both names have the same length: no length of a
//! body and no size of a chunk changes.

/// What dcctl calls the namespace of the lock.
const KNOWN: &str = "dc-k8s-system";

/// The other name.
#[derive(Debug)]
pub(super) struct Alias(String);

impl Alias {
    pub(super) fn of_the_lock(namespace: &str) -> Alias {
        assert_eq!(namespace.len(), KNOWN.len(), "the names have one length, so that no framing changes");
        Alias(namespace.to_owned())
    }

    pub(super) fn for_server(&self, bytes: &[u8]) -> Vec<u8> {
        replaced(bytes, KNOWN.as_bytes(), self.0.as_bytes())
    }

    pub(super) fn for_client(&self, bytes: &[u8]) -> Vec<u8> {
        replaced(bytes, self.0.as_bytes(), KNOWN.as_bytes())
    }
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_owned();
    let mut at = 0;
    while at + from.len() <= bytes.len() {
        if bytes[at..].starts_with(from) {
            bytes[at..at + to.len()].copy_from_slice(to);
            at += to.len();
        } else {
            at += 1;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::Alias;

    #[test]
    fn the_name_is_another_on_each_side_and_nothing_else_changes() {
        let alias = Alias::of_the_lock("dc-k8s-w00007");
        let asked = b"GET /namespaces/dc-k8s-system/leases?a=dc-k8s-system";
        let told = alias.for_server(asked);
        assert_eq!(told, b"GET /namespaces/dc-k8s-w00007/leases?a=dc-k8s-w00007");
        assert_eq!(alias.for_client(&told), asked);
    }
}
