//! Conditions of access: the secret in the address or the password, and the headers that browsers send.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Uri};

use crate::options::{WebdavAccess, WebdavOptions};

/// Reason to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The header `Host` is missing or invalid.
    NoHost,
    /// The client used a name of the host that may be another site's (DNS rebinding), or the page of another site made
    /// the request.
    ForeignSite,
    /// The path does not start with the secret.
    NotFound,
    /// The password is missing or wrong.
    Unauthorized,
}

/// Checks the headers of a request, and the password or the secret.
///
/// # Errors
/// The reason to refuse it.
pub(crate) fn check(
    options: &WebdavOptions,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    check_site(options, headers)?;
    match &options.access {
        WebdavAccess::Secret(secret) => {
            let first = uri.path().split('/').nth(1).unwrap_or("");
            let is_secret = is_equal(first.as_bytes(), secret.as_str().as_bytes());
            if is_secret { Ok(()) } else { Err(Refusal::NotFound) }
        }
        WebdavAccess::Password(password) => {
            let sent = headers.get(AUTHORIZATION).and_then(|value| sent_password(value.as_bytes()));
            let is_right = sent.is_some_and(|sent| is_equal(&sent, password.as_bytes()));
            if is_right { Ok(()) } else { Err(Refusal::Unauthorized) }
        }
    }
}

/// Checks that the request is for this host, and not from the page of another site.
pub(crate) fn check_site(options: &WebdavOptions, headers: &HeaderMap) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::NoHost) };
    let host = host.to_str().map_err(|_| Refusal::NoHost)?;
    if !is_own(options, host) {
        return Err(Refusal::ForeignSite);
    }
    let is_same = |origin: &http::HeaderValue| {
        let origin = origin.to_str().unwrap_or("");
        origin.strip_prefix("http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host))
    };
    if headers.get_all(ORIGIN).iter().all(is_same) { Ok(()) } else { Err(Refusal::ForeignSite) }
}

/// Returns whether the value of `Host` is an IP address, `localhost` or a name of the options. Other sites can make their
/// names lead to this host, but not these.
fn is_own(options: &WebdavOptions, host: &str) -> bool {
    let name = without_port(host);
    let is_address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()),
        None => name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()),
    };
    let is_name = |own: &str| own.eq_ignore_ascii_case(name);
    is_address || is_name("localhost") || options.host_names.iter().any(|own| is_name(own))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Returns the password of basic authentication (RFC 7617).
fn sent_password(value: &[u8]) -> Option<Vec<u8>> {
    let value = std::str::from_utf8(value).ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

/// Compares secrets. The time does not depend on the number of equal bytes.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::WebdavSecret;

    fn headers(all: &[(http::HeaderName, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        all.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }

    #[test]
    fn only_own_hosts_and_origins_are_served() {
        let mut options = WebdavOptions::new(WebdavAccess::Password("x".into()));
        options.host_names.push("nas.example".into());
        let site = |all: &[(http::HeaderName, &str)]| check_site(&options, &headers(all));
        for host in ["127.0.0.1:80", "127.0.0.1", "[::1]:80", "LOCALHOST:1", "nas.example:80"] {
            assert_eq!(site(&[(HOST, host)]), Ok(()), "{host}");
            let origin = format!("http://{host}");
            assert_eq!(site(&[(HOST, host), (ORIGIN, &origin)]), Ok(()), "{host}");
        }
        let foreign = Err(Refusal::ForeignSite);
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "::1", "[1]", ""] {
            assert_eq!(site(&[(HOST, host)]), foreign, "{host}");
        }
        for origin in ["null", "http://evil.example", "https://localhost", "http://localhost:1"] {
            assert_eq!(site(&[(HOST, "localhost"), (ORIGIN, origin)]), foreign, "{origin}");
        }
        assert_eq!(site(&[]), Err(Refusal::NoHost));
        let mut two = headers(&[(HOST, "localhost")]);
        two.append(HOST, HeaderValue::from_static("localhost"));
        assert_eq!(check_site(&options, &two), Err(Refusal::NoHost));
    }

    #[test]
    fn passwords_and_secrets_are_compared() {
        let options = WebdavOptions::new(WebdavAccess::Password("p:ä".into()));
        let uri = Uri::from_static("/file");
        let sent = |user_and_password: &str| {
            let basic = format!("Basic {}", STANDARD.encode(user_and_password));
            check(&options, &uri, &headers(&[(HOST, "localhost"), (AUTHORIZATION, &basic)]))
        };
        assert_eq!(sent("user:p:ä"), Ok(()));
        assert_eq!(sent(":p:ä"), Ok(()));
        for wrong in ["p:ä", "user:p", "user:", "user:p:ää", "", ":"] {
            assert_eq!(sent(wrong), Err(Refusal::Unauthorized), "{wrong}");
        }
        let secret = WebdavSecret::random().unwrap();
        let options = WebdavOptions::new(WebdavAccess::Secret(secret.clone()));
        let at =
            |path: String| check(&options, &path.parse().unwrap(), &headers(&[(HOST, "[::1]")]));
        assert_eq!(at(format!("/{}", secret.as_str())), Ok(()));
        assert_eq!(at(format!("/{}/a/b", secret.as_str())), Ok(()));
        for path in
            ["/".into(), format!("//{}/", secret.as_str()), format!("/{}x", secret.as_str())]
        {
            assert_eq!(at(path), Err(Refusal::NotFound));
        }
    }
}
