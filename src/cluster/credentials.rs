//! What a kubeconfig holds that must never be said, and what may not last as long as the run.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::cluster::certificate;
use crate::cluster::kubeconfig::Kubeconfig;
use crate::cluster::proxy::password;
use crate::redact::Secret;

/// Less than this left on credentials is worth a warning: an apply may take longer.
const SHORT_LIVED: Duration = Duration::from_secs(3600);

/// Takes the line end off a token that is written into the kubeconfig itself.
///
/// # Errors
/// A sentence, when what is left cannot be sent: a request has no place for other characters than visible ones.
pub(in crate::cluster) fn trim_token(user: &mut AuthInfo) -> Result<(), &'static str> {
    let Some(token) = field(user, "token") else { return Ok(()) };
    let trimmed = token.trim();
    if !trimmed.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its token has characters that cannot be sent");
    }
    if trimmed != token {
        user.token = Some(trimmed.to_owned().into());
    }
    Ok(())
}

/// Takes the line end off a token that is in a file, as every other client does and the library does not. A file
/// without one is left to the library, which reads it again by itself.
pub(in crate::cluster) fn trim_token_file(user: &mut AuthInfo) {
    if user.token.is_none()
        && let Some(path) = &user.token_file
        && let Ok(token) = std::fs::read_to_string(path)
        && token.trim() != token
    {
        user.token = Some(token.trim().to_owned().into());
    }
}

/// A field of the user that the library does not show.
fn field(user: &AuthInfo, key: &str) -> Option<String> {
    let value = serde_json::to_value(user).unwrap_or_default();
    value.get(key).and_then(serde_json::Value::as_str).map(str::to_owned)
}

impl Kubeconfig {
    /// Every credential in it with the name of what it is, for the redactor: tokens, passwords, keys (as base64 and
    /// decoded), the settings of auth providers and the environment of exec plugins. Files that it names are read
    /// too; one that cannot be read is left to the client to complain about.
    pub fn secrets(&self) -> Vec<(String, Secret)> {
        let user = &self.user;
        let value = serde_json::to_value(user).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(serde_json::Value::as_str).map(str::to_owned);
        let file = |path: &Option<String>| path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let key = text("client-key-data");
        let decoded = key.as_deref().and_then(|key| STANDARD.decode(key.trim()).ok());
        let basic = user.username.as_ref().zip(text("password"));
        let mut found = vec![
            ("token".to_owned(), text("token")),
            ("token file".to_owned(), file(&user.token_file)),
            ("password".to_owned(), text("password")),
            ("basic authorization".to_owned(), basic.map(|(user, word)| STANDARD.encode(format!("{user}:{word}")))),
            ("client key".to_owned(), decoded.and_then(|bytes| String::from_utf8(bytes).ok())),
            ("client key data".to_owned(), key),
            ("client key file".to_owned(), file(&user.client_key)),
            ("proxy password".to_owned(), self.cluster.proxy_url.as_deref().and_then(password).map(str::to_owned)),
        ];
        for (name, value) in user.auth_provider.iter().flat_map(|provider| &provider.config) {
            let secret = is_secret(name, value).then(|| value.clone());
            found.push((format!("auth provider's {name}"), secret));
        }
        for pair in user.exec.iter().flat_map(|exec| exec.env.iter().flatten()) {
            let (name, value) = (pair.get("name").map_or("", String::as_str), pair.get("value"));
            let secret = value.filter(|value| is_secret(name, value)).cloned();
            found.push((format!("plugin's variable {name}"), secret));
        }
        let kept = found.into_iter().filter_map(|(name, value)| {
            let value = value?.trim().to_owned();
            (!value.is_empty()).then(|| (format!("kubeconfig: {name}"), Secret::from(value)))
        });
        kept.collect()
    }

    /// What may go wrong later with these credentials, one sentence each.
    ///
    /// `now` is the wall clock; `temporary` are the folders that the surroundings empty when the job ends, besides
    /// the usual ones; `stop_after` is how long a stop may take, in which the lock is renewed and given back.
    pub fn warnings(&self, now: Timestamp, temporary: &[PathBuf], stop_after: Duration) -> Vec<String> {
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
        let token = value.get("token").and_then(|token| token.as_str()).and_then(expiry);
        let (certificate, unless) = self.certificate_ends();
        for (what, ends, unless) in [("token", token, ""), ("client certificate", certificate, unless)] {
            if let Some(ends) = ends
                && ends < now + SHORT_LIVED.max(stop_after)
            {
                said.push(format!(
                    "the {what} of context \"{}\" ends at {ends}{unless}: a run that is still at work then can neither \
                     renew nor release its lock",
                    self.context
                ));
            }
        }
        if self.cluster.insecure_skip_tls_verify == Some(true) {
            said.push(format!("the certificate of {} is not checked (insecure-skip-tls-verify)", self.server));
        }
        said
    }

    /// When the client's certificate ends, and what may come before that.
    fn certificate_ends(&self) -> (Option<Timestamp>, &'static str) {
        let (data, file) = (&self.user.client_certificate_data, &self.user.client_certificate);
        let (pem, unless) = match (data, file) {
            (Some(data), _) => (STANDARD.decode(data.trim()).ok(), ""),
            (None, Some(path)) => (std::fs::read(path).ok(), " unless its file is written anew by then"),
            (None, None) => (None, ""),
        };
        let first = pem.and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
        (first.and_then(|der| certificate::ends(&der)), unless)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::kubeconfig::{Sources, load};

    const NOW: &str = "2026-11-30T00:00:00Z";

    fn with_user(user: &str) -> Kubeconfig {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: https://127.0.0.1:1, proxy-url: 'http://u:proxypass@127.0.0.1:2'}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\nusers:\n- name: u\n  user: {user}\n"
        );
        std::fs::write(&path, text).expect("a file");
        load(&Sources::file(&path), None).expect("a kubeconfig")
    }

    fn secrets(user: &str) -> Vec<String> {
        with_user(user).secrets().iter().map(|(_, secret)| secret.expose().to_owned()).collect()
    }

    #[test]
    fn every_kind_of_credential_is_a_secret() {
        assert_eq!(secrets("{token: tok-en}"), ["tok-en", "proxypass"]);
        let basic = STANDARD.encode("me:pass");
        assert_eq!(secrets("{username: me, password: pass}"), ["pass", &basic, "proxypass"]);
        let key = "-----BEGIN KEY-----\nabc\n-----END KEY-----";
        let data = STANDARD.encode(key);
        assert_eq!(secrets(&format!("{{client-key-data: {data}}}")), [key, &data, "proxypass"]);
        let exec =
            "{exec: {apiVersion: v1, command: p, env: [{name: API_TOKEN, value: abcd}, {name: PROFILE, value: prod}]}}";
        assert_eq!(secrets(exec), ["proxypass", "abcd"]);
        assert_eq!(secrets("{auth-provider: {name: oidc, config: {id-token: abcd}}}"), ["proxypass", "abcd"]);
    }

    #[test]
    fn nothing_of_it_is_in_the_debug_form() {
        let shown = format!("{:?}", with_user("{token: tok-en}"));
        assert!(!shown.contains("tok-en") && !shown.contains("proxypass"), "{shown}");
    }

    #[test]
    fn credentials_that_end_with_the_job_are_warned_about() {
        let now: Timestamp = NOW.parse().expect("a time");
        let stop_after = Duration::from_secs(1200);
        let said = |user: &str, temporary: &[PathBuf]| with_user(user).warnings(now, temporary, stop_after);
        assert!(said("{tokenFile: /var/run/token}", &[])[..].is_empty());
        assert_eq!(said("{tokenFile: /tmp/token}", &[]).len(), 1);
        assert_eq!(said("{tokenFile: /builds/tmp/token}", &[PathBuf::from("/builds/tmp")]).len(), 1);
        let jwt = |left: i64| {
            let payload = format!("{{\"exp\":{}}}", now.as_second() + left);
            format!("{{token: h.{}.s}}", URL_SAFE_NO_PAD.encode(payload))
        };
        assert_eq!(said(&jwt(1800), &[]).len(), 1);
        assert!(said(&jwt(36000), &[]).is_empty());
        assert_eq!(with_user(&jwt(36000)).warnings(now, &[], Duration::from_secs(40_000)).len(), 1, "of a long stop");
        let pem = include_str!("../../tests/it/cluster/expired.pem");
        let data = format!("{{client-certificate-data: {}}}", STANDARD.encode(pem));
        let told = "the client certificate of context \"x\" ends at 2020-01-02T00:00:00Z: a run that is still at work \
                    then can neither renew nor release its lock";
        assert_eq!(said(&data, &[]), [told]);
    }
}
