//! Object stores and web servers by their addresses. Credentials come from the environment, as each kind of store's own
//! tools have them, and never from an address; no message has them.

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use thiserror::Error;
use url::Url;

/// How long a web server may take for a whole answer, which may be megabytes on a slow line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// How long it may say nothing at all.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);

/// An address that names no store, or one that cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The address cannot be read.
    #[error("{address} is no address: {reason}")]
    Address {
        /// As given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address has a user or a password in it, which would be seen by everybody.
    #[error(
        "{host}: credentials do not belong into an address; give them in the environment, as for the store's own tools"
    )]
    Credentials {
        /// The host of the address.
        host: String,
    },
    /// What is configured is not enough or not right.
    #[error("{address}: {source}")]
    Configuration {
        /// As given.
        address: String,
        /// What the store's library says.
        source: object_store::Error,
    },
}

/// A place in a store: an object, or the prefix of many.
#[derive(Clone, Debug)]
pub struct Location {
    /// The bucket, container or server.
    pub store: Arc<dyn ObjectStore>,
    /// Where in it.
    pub path: Path,
    /// As it was named, for messages; without credentials.
    pub address: String,
}

/// The store that `address` is in. Nothing is asked of it yet.
///
/// # Errors
/// If the address cannot be read or has credentials in it, or the environment's configuration is wrong.
pub fn open(address: &str) -> Result<Location, StoreError> {
    let wrong = |reason: String| StoreError::Address { address: address.to_owned(), reason };
    let url = Url::parse(address).map_err(|e| wrong(e.to_string()))?;
    if !url.username().is_empty() && !matches!(url.scheme(), "abfs" | "abfss")
        || url.password().is_some()
    {
        return Err(StoreError::Credentials {
            host: url.host_str().unwrap_or_default().to_owned(),
        });
    }
    // Another provider that was installed before is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let configuration = |source| StoreError::Configuration { address: address.to_owned(), source };
    let store = of_scheme(&url).map_err(configuration)?.ok_or_else(|| {
        wrong(format!("{}:// is not known; s3, gs, az, abfs, http and https are", url.scheme()))
    })?;
    let path = match url.scheme() {
        "http" | "https" => Path::from(""),
        _ => Path::from_url_path(url.path()).map_err(|e| wrong(e.to_string()))?,
    };
    Ok(Location { store, path, address: address.to_owned() })
}

/// How often what passes is tried again: for some seconds, because somebody waits.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 6, retry_timeout: Duration::from_secs(30), ..RetryConfig::default() }
}

/// As the environment says. Where TLS protects what is sent, its digest is not part of the signature, as with the store's
/// own tools: to compute it takes each side as long as to send it.
fn s3_of_environment() -> AmazonS3Builder {
    let builder = AmazonS3Builder::from_env();
    let is_plain = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint]
        .iter()
        .filter_map(|key| builder.get_config_value(key))
        .any(|endpoint| endpoint.starts_with("http://"));
    let is_said = std::env::var_os("AWS_UNSIGNED_PAYLOAD").is_some();
    if is_plain || is_said { builder } else { builder.with_unsigned_payload(true) }
}

/// `None` for a scheme that is not known.
fn of_scheme(url: &Url) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    Ok(Some(match url.scheme() {
        "s3" => Arc::new(
            s3_of_environment()
                .with_url(url.as_str())
                // A server that does not know them answers an error, and never loses an object.
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_retry(retries())
                .build()?,
        ),
        "gs" => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_retry(retries())
                .build()?,
        ),
        "az" | "abfs" | "abfss" => {
            let azure = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
            Arc::new(azure.with_retry(retries()).build()?)
        }
        // The whole address: a query belongs to the object, and a path of the store's own would lose it.
        "http" | "https" => Arc::new(
            HttpBuilder::new()
                .with_url(url.as_str())
                .with_client_options(
                    ClientOptions::new()
                        .with_allow_http(url.scheme() == "http")
                        .with_timeout(REQUEST_TIMEOUT)
                        .with_read_timeout(SILENCE_TIMEOUT),
                )
                .with_retry(retries())
                .build()?,
        ),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_store_is_told() {
        assert!(matches!(
            open("s3:bucket"),
            Err(StoreError::Configuration { .. } | StoreError::Address { .. })
        ));
        assert!(matches!(open("ftp://host/file"), Err(StoreError::Address { .. })));
        let error = open("https://me:secret@host/file").unwrap_err();
        assert!(matches!(error, StoreError::Credentials { .. }));
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn paths_are_those_of_addresses() {
        assert_eq!(
            open("s3://bucket/images/root%20fs.img").unwrap().path.as_ref(),
            "images/root fs.img"
        );
        assert_eq!(
            open("http://127.0.0.1:1/a/b.img").unwrap().address,
            "http://127.0.0.1:1/a/b.img"
        );
    }
}
