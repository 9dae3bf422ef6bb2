//! What may be typed: one subject at most, with a name that can be one.

use crate::bed::Bed;
use crate::rbac::printed;

#[test]
fn what_cannot_be_a_subject_is_said_with_exit_code_2_and_nothing_is_printed() {
    let bed = Bed::take();
    let cases: &[(&[&str], &str)] = &[
        (&["--user", "alice", "--group", "ops"], "'--user <NAME>' cannot be used with '--group <NAME>'"),
        (
            &["--user", "alice", "--serviceaccount", "ci:runner"],
            "cannot be used with '--serviceaccount <NAMESPACE:NAME>'",
        ),
        (
            &["--group", "ops", "--serviceaccount", "ci:runner"],
            "cannot be used with '--serviceaccount <NAMESPACE:NAME>'",
        ),
        (&["--user", "alice", "--user", "bob"], "'--user <NAME>' cannot be used multiple times"),
        (&["--user", ""], "the name is empty"),
        (&["--group="], "the name is empty"),
        (&["--user", " "], "the name is empty"),
        (&["--user", "a\nb"], "a name has no control characters"),
        (&["--user"], "a value is required for '--user <NAME>'"),
        (&["--serviceaccount", "runner"], "a service account is written NAMESPACE:NAME, such as ci:runner"),
        (&["--serviceaccount", ""], "a service account is written NAMESPACE:NAME, such as ci:runner"),
        (&["--serviceaccount", ":runner"], "the namespace is empty"),
        (&["--serviceaccount", "ci:"], "the name is empty"),
        (&["--serviceaccount", "CI:runner"], "`CI` is no name of a namespace"),
        (
            &["--serviceaccount", "system:serviceaccount:ci:runner"],
            "`serviceaccount:ci:runner` is no name of a service account",
        ),
        (&["alice"], "unexpected argument 'alice'"),
        (&["--users", "alice"], "--users"),
    ];
    for (options, says) in cases {
        let wrong = bed.dcctl(["rbac"]).args(*options).run().expect_code(2);
        assert!(wrong.stderr.contains(says), "{options:?}: {says:?} is not in\n{}", wrong.stderr);
        assert!(wrong.stderr.contains("(usage.invalid, exit code 2)") && wrong.stdout.is_empty(), "{}", wrong.stderr);
    }
}

#[test]
fn what_is_not_granted_is_said_for_what_it_is() {
    let bed = Bed::take();
    let without = printed(&bed, &[]);
    for part in [
        "# What the lock and the checks of the declarations need.",
        "# What dcctl asks for besides.",
        "# An install needs more: `dcctl rbac --install` prints that, too.",
        "# What the bundle needs. Only its author knows that, and it is not granted here",
        "# For: destroy; and `dcctl instances release`.",
        "# Nobody has these rights yet.",
    ] {
        assert!(without.contains(part), "{part}\nis not in\n{without}");
    }
    let with = printed(&bed, &["--install", "--user", "alice"]);
    assert!(
        with.contains("# What `dcctl install` asks for on top.") && with.contains("# Who gets the rights."),
        "{with}"
    );
    for part in ["An install needs more", "Nobody has these rights yet"] {
        assert!(!with.contains(part), "{with}");
    }
}
