//! One kubeconfig file as it is written, with the paths in it made absolute.
//!
//! It is read as any value first, and then as a kubeconfig: a reader of YAML for each of its types is a third of a megabyte.
//! Text that looks like a number or a truth value (`token: 12345`, `name: yes`) is text, as kubectl reads it.

use std::fmt;
use std::path::Path;

use kube::config::{Kubeconfig, KubeconfigError};
use serde_json::Value;

/// Fields that are no text.
const NOT_TEXT: [&str; 4] = ["insecure-skip-tls-verify", "disable-compression", "provideClusterInfo", "colors"];

/// Why a file is no kubeconfig that can be used. Nothing of what is in it is told, only where.
#[derive(Debug)]
pub(in crate::cluster) enum Unreadable {
    /// The file itself.
    File(std::io::Error),
    /// It is not YAML.
    NotYaml(Place),
    /// It is YAML of something else.
    NotOne(Place),
    /// Its documents do not go together.
    NotTogether(KubeconfigError),
}

/// Where in the file.
#[derive(Debug)]
pub(in crate::cluster) enum Place {
    /// Line and column, from 1.
    At(u64, u64),
    /// A field, by its path.
    Field(String),
    /// Nobody knows.
    Unknown,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::At(line, column) => write!(f, " (line {line}, column {column})"),
            Place::Field(path) => write!(f, " (field {path})"),
            Place::Unknown => Ok(()),
        }
    }
}

/// Reads a file. Its documents are merged, the first that names something wins; an empty file is an empty kubeconfig.
///
/// # Errors
/// Why it is none.
pub(in crate::cluster) fn read(path: &Path) -> Result<Kubeconfig, Unreadable> {
    let text = decoded(std::fs::read(path).map_err(Unreadable::File)?)?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).map_err(|error| {
        Unreadable::NotYaml(error.location().map_or(Place::Unknown, |at| Place::At(at.line(), at.column())))
    })?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut merged = Kubeconfig::default();
    for mut document in documents {
        if !document.is_object() && !document.is_null() {
            return Err(Unreadable::NotOne(Place::At(1, 1)));
        }
        if document.is_null() {
            continue;
        }
        as_text(&mut document);
        let mut config: Kubeconfig = serde_path_to_error::deserialize(document)
            .map_err(|error| Unreadable::NotOne(Place::Field(error.path().to_string())))?;
        make_absolute(&mut config, folder);
        merged = merged.merge(config).map_err(Unreadable::NotTogether)?;
    }
    Ok(merged)
}

/// A file may begin with a mark of its encoding, as editors on Windows write it.
fn decoded(bytes: Vec<u8>) -> Result<String, Unreadable> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, _) = bytes.as_chunks::<2>();
        String::from_utf16(&pairs.iter().map(|pair| unit(*pair)).collect::<Vec<u16>>()).ok()
    };
    let text = match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => wide(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or(Unreadable::NotYaml(Place::Unknown))
}

/// Makes text of every number and truth value that stands where a kubeconfig has text.
fn as_text(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let texts =
                fields.iter_mut().filter(|(name, _)| !NOT_TEXT.contains(&name.as_str()) && *name != "extensions");
            texts.for_each(|(_, field)| as_text(field));
        }
        Value::Array(values) => values.iter_mut().for_each(as_text),
        Value::Number(_) | Value::Bool(_) => *value = Value::String(value.to_string()),
        Value::String(_) | Value::Null => {}
    }
}

/// Paths in a kubeconfig are relative to it. A plugin without a folder in its name is looked up on `PATH`.
fn make_absolute(config: &mut Kubeconfig, folder: &Path) {
    let absolute = |path: &mut Option<String>| {
        if let Some(given) = path.as_deref().filter(|given| !given.is_empty() && Path::new(given).is_relative()) {
            *path = folder.join(given).to_str().map(str::to_owned).or_else(|| path.clone());
        }
    };
    for cluster in config.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in config.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.as_deref().is_some_and(|it| it.contains('/')))
        {
            absolute(&mut exec.command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Result<Kubeconfig, Unreadable> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        std::fs::write(&path, bytes).expect("ours");
        read(&path)
    }

    #[test]
    fn what_looks_like_a_number_or_a_truth_value_is_text_where_text_belongs() {
        let text = "current-context: 7\ncontexts: [{name: 7, context: {cluster: yes, user: 1, namespace: 2}}]\n\
                    users: [{name: 1, user: {username: true, exec: {command: c, args: [1, false], env: [{name: A, value: 3}]}}}]\n\
                    clusters: [{name: a, cluster: {server: b, insecure-skip-tls-verify: true}}]\n";
        let found = of(text.as_bytes()).expect("a kubeconfig");
        assert_eq!((found.current_context.as_deref(), found.contexts[0].name.as_str()), (Some("7"), "7"));
        let user = found.auth_infos[0].auth_info.as_ref().expect("a user");
        let exec = user.exec.as_ref().expect("a plugin");
        assert_eq!(
            (user.username.as_deref(), exec.args.clone()),
            (Some("true"), Some(vec!["1".into(), "false".into()]))
        );
        let cluster = found.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.insecure_skip_tls_verify, Some(true));
    }

    #[test]
    fn every_encoding_that_editors_write_is_read() {
        let text = "current-context: ü\n";
        let wide = |unit: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        for bytes in [
            text.as_bytes().to_vec(),
            [&[0xef, 0xbb, 0xbf], text.as_bytes()].concat(),
            [vec![0xff, 0xfe], wide(u16::to_le_bytes)].concat(),
            [vec![0xfe, 0xff], wide(u16::to_be_bytes)].concat(),
        ] {
            assert_eq!(of(&bytes).expect("a kubeconfig").current_context.as_deref(), Some("ü"));
        }
        assert!(of(&[0xff, 0x41]).is_err());
    }

    #[test]
    fn several_documents_are_merged_and_an_empty_file_is_an_empty_kubeconfig() {
        let found = of(b"current-context: one\n---\ncurrent-context: two\nkind: Config\n").expect("a kubeconfig");
        assert_eq!((found.current_context.as_deref(), found.kind.as_deref()), (Some("one"), Some("Config")));
        assert!(of(b"").expect("nothing is wrong with it").contexts.is_empty());
    }

    #[test]
    fn a_field_of_the_wrong_type_is_named_and_its_value_is_not() {
        let wrong = of(b"users: [{name: u, user: {token: {s3cret: 1}}}]\n").expect_err("a token is text");
        assert!(matches!(&wrong, Unreadable::NotOne(Place::Field(path)) if path.contains("users[0]")), "{wrong:?}");
        assert!(!format!("{wrong:?}").contains('1'), "{wrong:?}");
        assert!(matches!(of(b"hello\n"), Err(Unreadable::NotOne(Place::At(1, 1)))));
    }
}
