//! The HTTP client of all stores, configured from the environment.
//!
//! The store's library has its own client, but that one sends the whole address as `Referer` to the target of a
//! redirect. The signature in a query would reach another server.

use std::str::FromStr;
use std::time::Duration;

use object_store::{ClientConfigKey as Key, ClientOptions, Error, Result};
use reqwest::redirect::Policy;
use reqwest::{Client, NoProxy, Proxy};

/// Maximum number of redirects.
const REDIRECTS_MAX: usize = 10;

pub(super) fn build(options: &ClientOptions) -> Result<Client> {
    // Fails if a provider is installed already. That one is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let failed = |error: reqwest::Error| Error::Generic {
        store: "HTTP",
        source: Box::new(error.without_url()),
    };
    let text = |key| options.get_config_value(&key);
    let is_set = |key| text(key).and_then(|value| bool::from_str(&value).ok()).unwrap_or(false);
    let time = |key| text(key).and_then(|value| duration(&value));
    let mut builder = Client::builder()
        .referer(false)
        .redirect(Policy::limited(REDIRECTS_MAX))
        .user_agent(
            text(Key::UserAgent)
                .unwrap_or_else(|| concat!("diskwright/", env!("CARGO_PKG_VERSION")).into()),
        )
        .https_only(!is_set(Key::AllowHttp))
        .tls_danger_accept_invalid_certs(is_set(Key::AllowInvalidCertificates))
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate();
    if is_set(Key::NoSystemCertificates) {
        builder = builder.tls_certs_only([]);
    }
    if is_set(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if let Some(time) = time(Key::ConnectTimeout) {
        builder = builder.connect_timeout(time);
    }
    if let Some(time) = time(Key::PoolIdleTimeout) {
        builder = builder.pool_idle_timeout(time);
    }
    if let Some(count) = text(Key::PoolMaxIdlePerHost).and_then(|value| value.parse().ok()) {
        builder = builder.pool_max_idle_per_host(count);
    }
    if let Some(url) = text(Key::ProxyUrl) {
        let excluded = text(Key::ProxyExcludes).and_then(|hosts| NoProxy::from_string(&hosts));
        if let Some(certificate) = text(Key::ProxyCaCertificate) {
            let certificate = reqwest::tls::Certificate::from_pem(certificate.as_bytes());
            builder = builder.tls_certs_merge([certificate.map_err(failed)?]);
        }
        builder = builder.proxy(Proxy::all(url).map_err(failed)?.no_proxy(excluded));
    }
    builder.build().map_err(failed)
}

/// Parses a duration in the format of the store's library.
fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}
