//! What a kubeconfig holds that must never be said, and what may not last as long as the run.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;

use crate::cluster::kubeconfig::Kubeconfig;

/// Less than this left on a token is worth a warning: an apply may take longer.
const SHORT_LIVED: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

impl Kubeconfig {
    /// Every credential in it, as name and value, for the redactor: tokens, passwords, keys (as base64 and decoded),
    /// the settings of auth providers and the environment of exec plugins. Files that it names are read too; one
    /// that cannot be read is left to the client to complain about.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let user = &self.user;
        let value = serde_json::to_value(user).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
                found.push((format!("kubeconfig {name}"), value));
            }
        };
        let file = |path: &Option<String>| path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        add("token", text("token"));
        add("token", file(&user.token_file));
        add("password", text("password"));
        if let (Some(name), Some(password)) = (&user.username, text("password")) {
            add("basic authorization", Some(STANDARD.encode(format!("{name}:{password}"))));
        }
        let key = text("client-key-data");
        let decoded = key.as_deref().and_then(|key| STANDARD.decode(key.trim()).ok());
        add("client key", decoded.and_then(|bytes| String::from_utf8(bytes).ok()));
        add("client key", key);
        add("client key", file(&user.client_key));
        for (name, value) in user.auth_provider.iter().flat_map(|provider| &provider.config) {
            add(&format!("auth provider {name}"), Some(value.clone()).filter(|value| is_secret(name, value)));
        }
        for pair in user.exec.iter().flat_map(|exec| exec.env.iter().flatten()) {
            let name = pair.get("name").map_or("", String::as_str);
            add(&format!("plugin variable {name}"), pair.get("value").cloned().filter(|value| is_secret(name, value)));
        }
        add("proxy password", self.cluster.proxy_url.as_deref().and_then(password_of));
        found
    }

    /// What may go wrong later with these credentials, one sentence each.
    ///
    /// `now` is the wall clock; `temporary` are the folders that the surroundings empty when the job ends, besides
    /// the usual ones.
    pub fn warnings(&self, now: Timestamp, temporary: &[PathBuf]) -> Vec<String> {
        let mut said = Vec::new();
        let named = [
            ("token file", &self.user.token_file),
            ("client certificate", &self.user.client_certificate),
            ("client key", &self.user.client_key),
            ("certificate authority", &self.cluster.certificate_authority),
        ];
        for (what, path) in named {
            if let Some(path) = path
                && is_temporary(Path::new(path), temporary)
            {
                said.push(format!(
                    "the {what} {path} is in a temporary folder: if it goes away with the job, the run can neither \
                     renew nor release its lock"
                ));
            }
        }
        let value = serde_json::to_value(&self.user).unwrap_or_default();
        if let Some(ends) = value.get("token").and_then(|token| token.as_str()).and_then(expiry)
            && ends.duration_since(now) < SHORT_LIVED
        {
            said.push(format!(
                "the token of context \"{}\" ends at {ends}: a run that is still at work then can neither renew nor \
                 release its lock",
                self.context
            ));
        }
        if self.cluster.insecure_skip_tls_verify == Some(true) {
            said.push(format!("the certificate of {} is not checked (insecure-skip-tls-verify)", self.server));
        }
        said
    }
}

/// Whether a named setting is worth hiding. A profile called `production` is not: hiding it would hide every mention
/// of production in the log.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_lowercase();
    value.len() >= 20
        || ["token", "secret", "password", "passwd", "key", "credential"].iter().any(|word| name.contains(word))
}

fn is_temporary(path: &Path, more: &[PathBuf]) -> bool {
    let usual = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    usual.iter().chain(more).any(|folder| !folder.as_os_str().is_empty() && path.starts_with(folder))
}

/// When a token ends, if it is a JWT that says so. Its signature is not our business.
fn expiry(token: &str) -> Option<Timestamp> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let payload: serde_json::Value = serde_json::from_slice(&payload).ok()?;
    Timestamp::from_second(payload.get("exp")?.as_i64()?).ok()
}

fn password_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let (user, _) = rest.split_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some(password.to_owned())
}
