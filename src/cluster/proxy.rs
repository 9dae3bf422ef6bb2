//! Whether a proxy stands between us and the API server.
//!
//! The client library asks whether `NO_PROXY` matches the *proxy*, and refuses an empty element in it, so the
//! decision is made here, by the rules that kubectl follows: the kubeconfig's own `proxy-url` always counts;
//! else `HTTPS_PROXY`, unless the API server is this machine or `NO_PROXY` matches it.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};
use crate::redact::Secret;

/// What the environment says about proxies. Both spellings of a variable are the caller's business.
///
/// `Debug` does not show a password in it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proxies {
    /// The value of `HTTPS_PROXY`, else of `https_proxy`.
    pub https: Option<String>,
    /// The value of `NO_PROXY`, else of `no_proxy`.
    pub except: Option<String>,
}

impl Proxies {
    /// The password in the proxy's address, for the redactor.
    pub fn secret(&self) -> Option<Secret> {
        self.https.as_deref().and_then(password).map(|password| Secret::from(password.to_owned()))
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.https.as_deref().map(without_user);
        f.debug_struct("Proxies").field("https", &shown).field("except", &self.except).finish()
    }
}

/// An address without user and password.
pub(in crate::cluster) fn without_user(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((front, host)) => format!("{}{host}", front.find("://").map_or("", |at| &front[..at + 3])),
        None => url.to_owned(),
    }
}

/// The password in an address.
pub(in crate::cluster) fn password(url: &str) -> Option<&str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (user, _) = rest.split('/').next()?.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

/// The proxy for the API server at `server`, if there is one.
///
/// Fails with `surroundings.cluster_unreachable` when it is of a kind that dcctl does not speak.
pub(in crate::cluster) fn decide(
    server: &str,
    own: Option<&str>,
    proxies: &Proxies,
) -> Result<Option<String>, Failure> {
    let own = own.map(str::trim).filter(|url| !url.is_empty());
    let (proxy, source) = match (own, proxies.https.as_deref().map(str::trim).filter(|url| !url.is_empty())) {
        (Some(url), _) => (url, "the kubeconfig's proxy-url"),
        (None, Some(url)) if applies(server, proxies) => (url, "HTTPS_PROXY"),
        (None, _) => return Ok(None),
    };
    let url = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(Some(url));
    }
    let scheme = url.split("://").next().unwrap_or_default();
    Err(Failure::new(
        Code::ClusterUnreachable,
        format!("{source} names a proxy of kind {scheme}, and dcctl speaks to http and https proxies only"),
    ))
}

/// Whether the proxy of the environment is meant for this server.
fn applies(server: &str, proxies: &Proxies) -> bool {
    let Some((host, port)) = host_and_port(server) else { return false };
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return false;
    }
    let except = proxies.except.as_deref().unwrap_or_default();
    server.starts_with("https://") && !except.split(',').map(str::trim).any(|rule| excepts(rule, &host, port, address))
}

/// Whether one element of `NO_PROXY` names this host: `*`, an address, a network, a name with its subdomains, or
/// `.name` and `*.name` for the subdomains alone; each may carry a port.
fn excepts(rule: &str, host: &str, port: u16, address: Option<IpAddr>) -> bool {
    if rule.is_empty() {
        return false;
    }
    if rule == "*" {
        return true;
    }
    if let Some((network, bits)) = rule.split_once('/') {
        return match (network.parse::<IpAddr>(), bits.parse::<u32>(), address) {
            (Ok(network), Ok(bits), Some(address)) => is_in(address, network, bits),
            _ => false,
        };
    }
    let bare = rule.trim_start_matches('[').trim_end_matches(']');
    if let Ok(rule) = bare.parse::<IpAddr>() {
        return address == Some(rule);
    }
    let (name, wanted) = match rule.rsplit_once(':') {
        Some((name, digits)) => match digits.parse::<u16>() {
            Ok(wanted) => (name, Some(wanted)),
            Err(_) => (rule, None),
        },
        None => (rule, None),
    };
    if wanted.is_some_and(|wanted| wanted != port) {
        return false;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']').to_lowercase();
    if let Ok(rule) = name.parse::<IpAddr>() {
        return address == Some(rule);
    }
    let subdomains = name.strip_prefix("*.").or_else(|| name.strip_prefix('.'));
    match subdomains {
        Some(parent) => is_below(host, parent),
        None => host == name || is_below(host, &name),
    }
}

fn is_below(host: &str, parent: &str) -> bool {
    host.strip_suffix(parent).is_some_and(|front| front.ends_with('.') && front.len() > 1)
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let same =
        |a: u128, b: u128, width: u32| bits <= width && (bits == 0 || a >> (width - bits) == b >> (width - bits));
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

/// The host in lower case and the port of an `http://` or `https://` address.
fn host_and_port(server: &str) -> Option<(String, u16)> {
    let (scheme, rest) = server.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let usual = if scheme == "http" { 80 } else { 443 };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(usual), |port| port.parse().ok())?;
    Some((host.to_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(https: &str, except: &str) -> Proxies {
        Proxies { https: Some(https.to_owned()), except: Some(except.to_owned()) }
    }

    #[test]
    fn an_exception_is_for_the_api_server_and_not_for_the_proxy() {
        let server = "https://api.example.test:6443";
        let cases = [
            ("", true),
            (",", true),
            ("other.test, ,", true),
            ("proxy.test", true),
            ("*", false),
            ("api.example.test", false),
            ("API.example.test", false),
            ("example.test", false),
            (".example.test", false),
            ("*.example.test", false),
            (".api.example.test", true),
            ("xample.test", true),
            ("api.example.test:6443", false),
            ("api.example.test:443", true),
            ("a, ,example.test", false),
        ];
        for (except, proxied) in cases {
            let decided = decide(server, None, &proxies("http://proxy.test:3128", except)).expect("a usable proxy");
            assert_eq!(decided.is_some(), proxied, "NO_PROXY={except}");
        }
    }

    #[test]
    fn addresses_are_matched_by_network() {
        let cases = [
            ("192.0.2.0/24", false),
            ("192.0.2.7", false),
            ("192.0.2.7:6443", false),
            ("192.0.2.7:1", true),
            ("198.51.100.0/24", true),
            ("0.0.0.0/0", false),
            ("192.0.2.0/99", true),
            ("2001:db8::/32", true),
        ];
        for (except, proxied) in cases {
            let decided = decide("https://192.0.2.7:6443", None, &proxies("p.test:1", except)).expect("a usable proxy");
            assert_eq!(decided.is_some(), proxied, "NO_PROXY={except}");
        }
        let six = decide("https://[2001:db8::7]:6443", None, &proxies("p.test:1", "2001:db8::/32"));
        assert_eq!(six.expect("a usable proxy"), None);
    }

    #[test]
    fn this_machine_is_reached_without_the_proxy_of_the_environment() {
        for server in ["https://127.0.0.1:6443", "https://localhost", "https://[::1]:6443"] {
            assert_eq!(decide(server, None, &proxies("http://p.test", "")).expect("none"), None, "{server}");
        }
    }

    #[test]
    fn the_kubeconfig_s_own_proxy_always_counts() {
        let decided = decide("https://127.0.0.1:6443", Some("http://p.test:3128"), &proxies("http://q.test", "*"));
        assert_eq!(decided.expect("a usable proxy").as_deref(), Some("http://p.test:3128"));
    }

    #[test]
    fn a_proxy_of_another_kind_is_refused() {
        let refused = decide("https://api.test", Some("socks5://p.test:1080"), &Proxies::default());
        assert_eq!(refused.expect_err("not spoken").code, Code::ClusterUnreachable);
    }
}
