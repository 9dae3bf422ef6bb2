//! `dcctl rbac`: the rules that dcctl itself needs on a cluster, ready for `kubectl apply`.

use crate::commands::print;

/// Prints them.
pub(crate) fn print_rules() -> u8 {
    print(include_str!("rbac.yaml"))
}
