//! Which names Kubernetes, Helm and we ourselves accept.
//!
//! Each function answers what is wrong, as the end of a sentence that begins with the name.

use crate::failure::{Code, Failure};

/// Namespaces that are never an instance's: the lock's, dcctl's records', and those of Kubernetes.
const RESERVED: [(&str, &str); 3] = [
    ("dc-k8s-system", "that holds the cluster's lock"),
    ("dc-system", "that holds dcctl's records"),
    ("default", "that everybody uses"),
];

/// Checks the name of an instance.
///
/// It becomes part of a namespace (`dci-NAME`), which may have 63 characters, and of a Helm release (`dc-NAME`), which
/// may have 53; 50 is what fits both with the names that bundles use.
pub fn check_instance(name: &str) -> Result<(), Failure> {
    const LONGEST: usize = 50;
    let wrong = match label(name) {
        Ok(()) if name.len() <= LONGEST => return Ok(()),
        Ok(()) => format!("has {} characters, and the name of an instance has at most {LONGEST}", name.len()),
        Err(wrong) => wrong,
    };
    let message = format!("the instance name `{}` {wrong}", name.escape_debug());
    Err(Failure::new(Code::UsageInvalid, message).hint("Give a name like `demo` or `shop-eu-1`."))
}

/// A DNS-1123 label: namespaces.
pub(crate) fn label(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if !is_label(name) {
        return Err(
            "is not a DNS label: lower-case letters, digits and hyphens, a letter or digit at both ends".to_owned()
        );
    }
    at_most(name, 63)
}

/// A DNS-1123 subdomain: most Kubernetes objects, and hosts.
pub(crate) fn subdomain(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if !name.split('.').all(is_label) {
        return Err("is not a DNS name: labels of lower-case letters, digits and hyphens, joined by dots".to_owned());
    }
    at_most(name, 253)
}

/// The name of a Helm release.
pub(crate) fn release(name: &str) -> Result<(), String> {
    subdomain(name)?;
    at_most(name, 53)
}

/// The namespace of an instance.
pub(crate) fn instance_namespace(name: &str) -> Result<(), String> {
    label(name)?;
    if let Some((_, why)) = RESERVED.iter().find(|(reserved, _)| *reserved == name) {
        return Err(format!("is the namespace {why}; an instance has one of its own"));
    }
    if name.starts_with("kube-") {
        return Err("is a namespace of Kubernetes itself; an instance has one of its own".to_owned());
    }
    Ok(())
}

/// The name of a variable or a secret: it has to fit an environment variable.
pub(crate) fn variable(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    if starts && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return Ok(());
    }
    Err("is not a variable's name: letters, digits and underscores, not a digit first".to_owned())
}

/// What OpenTofu calls an identifier: its variables and outputs.
pub(crate) fn identifier(name: &str) -> Result<(), String> {
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|letter| letter.is_alphabetic() || letter == '_');
    if starts && letters.all(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-')) {
        return Ok(());
    }
    Err("is not an OpenTofu identifier: letters, digits, underscores and hyphens, not a digit or hyphen first"
        .to_owned())
}

/// The version of a bundle: it goes into annotations and image tags.
pub(crate) fn version(name: &str) -> Result<(), String> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_' | '+');
    if name.is_empty() {
        return Err("is empty".to_owned());
    }
    if !name.chars().all(fits) || !name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) {
        return Err("is not a version: letters, digits and `.-_+`, a letter or digit first".to_owned());
    }
    at_most(name, 128)
}

fn is_label(name: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    !name.is_empty() && name.chars().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

fn at_most(name: &str, longest: usize) -> Result<(), String> {
    if name.len() <= longest {
        return Ok(());
    }
    Err(format!("has {} characters, and at most {longest} are allowed", name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_names_are_labels_that_leave_room() {
        for good in ["demo", "a", "7", "shop-eu-1", &"x".repeat(50)] {
            assert_eq!(check_instance(good), Ok(()), "{good}");
        }
        let cases = [
            ("", "the instance name `` is empty"),
            (
                "Demo",
                "the instance name `Demo` is not a DNS label: lower-case letters, digits and hyphens, a letter or digit at both ends",
            ),
            (
                &"x".repeat(51),
                "the instance name `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` has 51 characters, and the name of an instance has at most 50",
            ),
        ];
        for (name, message) in cases {
            let failure = check_instance(name).expect_err("a bad name");
            assert_eq!((failure.code, failure.message.as_str()), (Code::UsageInvalid, message));
        }
        for bad in ["a.b", "-a", "a-", "a_b", "ü", "a b", "a\u{1b}[31m"] {
            assert!(check_instance(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_instance_never_has_a_namespace_of_the_system() {
        for reserved in ["dc-k8s-system", "dc-system", "default", "kube-system", "kube-anything"] {
            assert!(instance_namespace(reserved).is_err(), "{reserved}");
        }
        for free in ["dci-demo", "kube", "dc-system-2", "defaults"] {
            assert_eq!(instance_namespace(free), Ok(()), "{free}");
        }
    }

    #[test]
    fn the_other_names_have_their_own_rules() {
        assert!(subdomain("demo.example.com").is_ok() && subdomain("demo..com").is_err());
        assert!(release(&"x".repeat(53)).is_ok() && release(&"x".repeat(54)).is_err());
        assert!(variable("db_password").is_ok() && variable("db-password").is_err() && variable("1a").is_err());
        assert!(identifier("db-password").is_ok() && identifier("-a").is_err() && identifier("").is_err());
        assert!(version("0.9.2-rc.1+7").is_ok() && version("v 1").is_err() && version("-1").is_err());
    }
}
