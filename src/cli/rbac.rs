//! `dcctl rbac`: whom rights are given to.

use clap::Args;

/// `dcctl rbac`
///
/// Its options have no variables: whom rights are given to is not the setting of a job.
#[derive(Debug, Args)]
pub struct RbacArgs {
    /// Also what `dcctl install` needs
    #[arg(long)]
    pub install: bool,

    /// Give the rights to this user, as the API server calls them
    #[arg(long, value_name = "NAME", value_parser = subject, conflicts_with_all = ["group", "serviceaccount"])]
    pub user: Option<String>,

    /// Give the rights to this group
    #[arg(long, value_name = "NAME", value_parser = subject, conflicts_with = "serviceaccount")]
    pub group: Option<String>,

    /// Give the rights to this service account
    #[arg(long, value_name = "NAMESPACE:NAME", value_parser = service_account)]
    pub serviceaccount: Option<ServiceAccount>,
}

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// The namespace that it is in.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Reads the name of a user or a group. The API server knows no rules for them.
fn subject(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("the name is empty".to_owned());
    }
    if text.chars().any(char::is_control) {
        return Err("a name has no control characters".to_owned());
    }
    Ok(text.to_owned())
}

/// Reads `ci:runner`.
fn service_account(text: &str) -> Result<ServiceAccount, String> {
    let Some((namespace, name)) = text.split_once(':') else {
        return Err("a service account is written NAMESPACE:NAME, such as ci:runner".to_owned());
    };
    for (what, part) in [("namespace", namespace), ("name", name)] {
        if part.is_empty() {
            return Err(format!("the {what} is empty; a service account is written NAMESPACE:NAME, such as ci:runner"));
        }
    }
    if namespace.len() > 63 || namespace.contains('.') || !is_object_name(namespace) {
        return Err(format!("`{namespace}` is no name of a namespace"));
    }
    if !is_object_name(name) {
        return Err(format!("`{name}` is no name of a service account"));
    }
    Ok(ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Whether the API server takes it as the name of an object: lower case letters, digits, hyphens and dots, with a letter
/// or a digit at the ends of each part.
fn is_object_name(text: &str) -> bool {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_part =
        |part: &str| !part.is_empty() && part.chars().all(inside) && !part.starts_with('-') && !part.ends_with('-');
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_a_namespace_and_a_name() {
        let read = service_account("ci:runner.v2");
        assert_eq!(read, Ok(ServiceAccount { namespace: "ci".to_owned(), name: "runner.v2".to_owned() }));
        let long = format!("{}:x", "n".repeat(64));
        for wrong in ["", "ci", ":", "ci:", ":runner", "a.b:runner", "CI:runner", "ci:run_ner", "ci:-x", "a:b:c", &long]
        {
            assert!(service_account(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_user_or_a_group_is_any_name() {
        for name in ["alice", "system:masters", "https://issuer.example/#alice", "系统", "a b"] {
            assert_eq!(subject(name).as_deref(), Ok(name));
        }
        for wrong in ["", " ", "\t", "a\nb"] {
            assert!(subject(wrong).is_err(), "{wrong:?}");
        }
    }
}
