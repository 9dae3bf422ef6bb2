//! What went wrong with a request, as a failure: classified by status code first.
//!
//! The API server's own sentence is always carried on. Errors of the client library are not printed as they are:
//! they repeat themselves, and those of exec plugins quote what the plugin printed.

use std::error::Error as StdError;
use std::io;

use kube::Error;
use kube::client::AuthError;
use kube::core::Status;
use rustls::pki_types::UnixTime;

use crate::failure::{Code, Failure};

/// Turns an error of the client library into a failure. `doing` completes "could not …": `list the instances`;
/// `server` is the API server's address.
pub fn classify(error: &Error, doing: &str, server: &str) -> Failure {
    match error {
        Error::Api(status) => answered(status, doing, server),
        Error::Auth(error) => plugin(error, server),
        Error::SerdeError(_) | Error::FromUtf8(_) => not_kubernetes(doing, server).because(error_cause(error)),
        Error::RustlsTls(error) => untrusted(doing, server).because(error),
        Error::InferKubeconfig(error) => {
            Failure::new(Code::KubeconfigInvalid, "the kubeconfig cannot be used").because(error)
        }
        other => no_answer(other, doing, server),
    }
}

/// The failure of a request that got no answer within its time.
pub(in crate::cluster) fn timed_out(limit: std::time::Duration, doing: &str, server: &str) -> Failure {
    unreachable(doing, server).cause(format!("no answer within {}", crate::clock::human(limit)))
}

/// Whether the same request may well succeed a moment later: nothing came back, or the server was busy.
pub(in crate::cluster) fn is_transient(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504) && !is_not_of_its_schema(status),
        Error::HyperError(_) | Error::ReadEvents(_) => true,
        // A broken certificate or a name that does not resolve stays so.
        Error::Service(error) => tls_error(error.as_ref()).is_none() && auth_error(error.as_ref()).is_none(),
        _ => false,
    }
}

/// Whether server-side apply did not understand the object: for a field that a built-in kind does not have, the API
/// server answers 500, as if the fault were its own.
pub(in crate::cluster) fn is_not_of_its_schema(status: &Status) -> bool {
    status.code == 500 && status.message.contains("failed to create typed patch object")
}

/// The API server's sentence, on one line. It is not cut here: half of a secret in it would not be known for one.
pub(in crate::cluster) fn sentence(status: &Status) -> String {
    let text = if status.message.is_empty() { &status.reason } else { &status.message };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.is_empty() { format!("status {}", status.code) } else { text }
}

fn answered(status: &Status, doing: &str, server: &str) -> Failure {
    let said = sentence(status);
    let is_status = status.status.is_some() && status.reason != "Failed to parse error data";
    let terminating =
        status.details.iter().flat_map(|details| &details.causes).any(|c| c.reason == "NamespaceTerminating");
    match status.code {
        401 => Failure::new(
            Code::CredentialsRefused,
            format!(
                "could not {doing}: the API server at {server} does not know these credentials, or they have expired"
            ),
        )
        .cause(said),
        // A 403 is not always RBAC: a namespace that is being deleted answers with it too.
        403 if terminating => Failure::new(Code::ClusterRequestFailed, format!("could not {doing}: {said}"))
            .hint("wait until the namespace is gone, then run the same command again"),
        403 => Failure::new(Code::Forbidden, format!("could not {doing}: {said}")),
        404 if !is_status && !said.starts_with("404 page not found") => not_kubernetes(doing, server).cause(said),
        429 => Failure::new(Code::ClusterRequestFailed, format!("could not {doing}: the API server is too busy"))
            .cause(said),
        _ => Failure::new(Code::ClusterRequestFailed, format!("could not {doing}: {said}")),
    }
}

fn no_answer(error: &Error, doing: &str, server: &str) -> Failure {
    let inner: &(dyn StdError + 'static) = match error {
        Error::Service(error) => error.as_ref(),
        other => other,
    };
    if let Some(error) = auth_error(inner) {
        return plugin(error, server);
    }
    match tls_error(inner) {
        Some(error) if is_about_the_certificate(error) => return untrusted(doing, server).cause(tls_sentence(error)),
        Some(error) => return not_tls(doing, server).cause(error.to_string()),
        None => {}
    }
    if find::<io::Error>(inner).is_some_and(crate::failure::is_exhausted) {
        return Failure::new(
            Code::MachineExhausted,
            format!("could not {doing}: no connection to {server} could be made"),
        )
        .cause(deepest(inner));
    }
    unreachable(doing, server).cause(deepest(inner))
}

fn unreachable(doing: &str, server: &str) -> Failure {
    Failure::new(
        Code::ClusterUnreachable,
        format!("could not {doing}: the API server at {server} could not be reached"),
    )
}

fn untrusted(doing: &str, server: &str) -> Failure {
    Failure::new(
        Code::ClusterUntrusted,
        format!("could not {doing}: the certificate of the API server at {server} is not one to trust"),
    )
}

fn not_tls(doing: &str, server: &str) -> Failure {
    Failure::new(
        Code::ClusterUnreachable,
        format!("could not {doing}: what answers at {server} does not speak TLS as an API server does"),
    )
    .hint("check the server's address and port, and whether a proxy answers in its place")
}

fn not_kubernetes(doing: &str, server: &str) -> Failure {
    Failure::new(
        Code::ClusterUnreachable,
        format!("could not {doing}: what answers at {server} does not speak like a Kubernetes API server"),
    )
    .hint("check the server's address, and whether a proxy answers in its place")
}

/// What went wrong with a credential. What a plugin printed may be a credential, so it is never repeated.
fn plugin(error: &AuthError, server: &str) -> Failure {
    let refused =
        |message: &str| Failure::new(Code::CredentialsRefused, format!("no credentials for {server}: {message}"));
    match error {
        AuthError::AuthExecStart(error) => refused("the kubeconfig's exec plugin could not be started").because(error),
        AuthError::AuthExecRun { out, .. } => refused("the kubeconfig's exec plugin failed")
            .cause(format!("it ended with {}", out.status))
            .hint("run the plugin by hand; what it prints is not repeated here, because it may be a credential"),
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) | AuthError::ExecPluginFailed => {
            refused("the kubeconfig's exec plugin did not print a credential")
        }
        AuthError::ReadTokenFile(error, path) => {
            refused(&format!("the token file {} cannot be read", path.display())).because(error)
        }
        AuthError::InvalidBasicAuth(_) | AuthError::InvalidBearerToken(_) => {
            refused("the token or password has characters that cannot be sent")
        }
        AuthError::MissingCommand => refused("the kubeconfig's exec plugin has no command"),
        AuthError::AuthExec(_) => refused("the kubeconfig's auth provider could not be used")
            .hint("auth providers are gone from Kubernetes; use an exec plugin"),
        _ => refused("the kubeconfig's credentials cannot be used"),
    }
}

/// Finds an error of a given type in a source chain, looking into what I/O errors wrap as well.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|wrapped| find_in_wrapped::<E>(wrapped)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn find_in_wrapped<'a, E: StdError + 'static>(wrapped: &'a (dyn StdError + Send + Sync + 'static)) -> Option<&'a E> {
    find::<E>(wrapped as &(dyn StdError + 'static))
}

fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    find(error)
}

fn auth_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a AuthError> {
    find(error)
}

fn is_about_the_certificate(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::UnsupportedNameType
            | rustls::Error::InvalidCertRevocationList(_)
    )
}

/// What a TLS error means, in words.
fn tls_sentence(error: &rustls::Error) -> String {
    use rustls::CertificateError as Bad;
    match error {
        rustls::Error::InvalidCertificate(Bad::Expired) => "it has expired".to_owned(),
        rustls::Error::InvalidCertificate(Bad::ExpiredContext { not_after, .. }) => {
            format!("it has expired: it was valid until {}", date(*not_after))
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYet) => {
            "it is not valid yet; check this machine's clock".to_owned()
        }
        rustls::Error::InvalidCertificate(Bad::NotValidYetContext { not_before, .. }) => {
            format!("it is not valid yet; check this machine's clock: it will be valid from {}", date(*not_before))
        }
        rustls::Error::InvalidCertificate(Bad::UnknownIssuer) => {
            "it was not issued by a certificate authority that the kubeconfig names".to_owned()
        }
        rustls::Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            format!("it is for another name ({error})")
        }
        other => other.to_string(),
    }
}

/// A moment in a certificate, as people read it.
fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).ok();
    let moment = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    moment.map_or_else(|| "a time that no calendar has".to_owned(), |moment| moment.to_string())
}

/// The innermost cause, which is the one that says something: `connection refused`.
fn deepest(error: &(dyn StdError + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    match innermost.to_string() {
        // The words of the timer that the client library asks.
        text if text == "deadline has elapsed" => "it did not answer in time".to_owned(),
        text => text,
    }
}

fn error_cause(error: &Error) -> &(dyn StdError + 'static) {
    error.source().unwrap_or(error)
}
