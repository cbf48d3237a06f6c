//! Opens object stores and web servers by address. Credentials come from the same environment variables that each
//! store's own tools use, never from an address. No message contains them.

use std::fmt;
use std::io;
use std::sync::Arc;

use disk::address::Address;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use thiserror::Error;
use url::Url;

use crate::place::runtime;
use crate::place::transport::{Connector, Limits};

/// An invalid or unusable address.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The address cannot be parsed.
    #[error("{address} is not a valid address: {reason}")]
    Address {
        /// The address as given.
        address: Address,
        /// Description of the problem.
        reason: String,
    },
    /// The address contains a user or a password, which would be visible to others.
    #[error(
        "{host}: an address must not contain credentials; set the environment variables of the \
         store's own tools"
    )]
    Credentials {
        /// Host of the address.
        host: String,
    },
    /// The configuration is incomplete or invalid.
    #[error("{address}: {reason}")]
    Configuration {
        /// The address as given.
        address: Address,
        /// Reason given by the store's library.
        reason: String,
    },
    /// The system provides no threads for requests.
    #[error(
        "{address}: cannot start request threads: {source}; raise the process or memory limit \
         (ulimit -u, -v)"
    )]
    Threads {
        /// The address as given.
        address: Address,
        /// The reason.
        source: io::Error,
    },
}

/// A location in a store: an object, or a prefix of objects.
#[derive(Clone)]
pub struct Location {
    /// The bucket, container or server.
    pub store: Arc<dyn ObjectStore>,
    /// Path in the store.
    pub path: Path,
    /// The address as given.
    pub address: Address,
}

/// Omits the store, which may contain credentials.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Opens the store of `address`. Sends no request yet.
///
/// # Errors
/// If the address cannot be parsed or contains credentials, or the environment's configuration is invalid.
pub fn open(address: &Address) -> Result<Location, StoreError> {
    open_within(address, Limits::default())
}

/// Opens the store of `address` with other limits for its server.
///
/// # Errors
/// See [`open`].
pub fn open_within(address: &Address, limits: Limits) -> Result<Location, StoreError> {
    let wrong = |reason: String| StoreError::Address { address: address.clone(), reason };
    let mut url = Url::parse(address.with_secrets()).map_err(|e| wrong(e.to_string()))?;
    if !url.username().is_empty() && !matches!(url.scheme(), "abfs" | "abfss")
        || url.password().is_some()
    {
        return Err(StoreError::Credentials {
            host: url.host_str().unwrap_or_default().to_owned(),
        });
    }
    runtime::start().map_err(|source| StoreError::Threads { address: address.clone(), source })?;
    let query = url.query().map(str::to_owned);
    url.set_fragment(None);
    url.set_query(None);
    let configuration = |error: object_store::Error| {
        let reason = disk::address::safe_line(&error.to_string());
        StoreError::Configuration { address: address.clone(), reason }
    };
    let connector = Connector { limits, query };
    let store = of_scheme(&url, connector).map_err(configuration)?.ok_or_else(|| {
        wrong(format!("{}:// is not supported; use s3, gs, az, abfs, http or https", url.scheme()))
    })?;
    let path = match url.scheme() {
        "http" | "https" => Path::from(""),
        _ => Path::from_url_path(url.path()).map_err(|e| wrong(e.to_string()))?,
    };
    Ok(Location { store, path, address: address.clone() })
}

/// Retries transient errors for a few seconds only, because a caller is waiting.
fn retries(limits: Limits) -> RetryConfig {
    RetryConfig { max_retries: 6, retry_timeout: limits.silence, ..RetryConfig::default() }
}

/// Configures S3 from the environment. Under TLS the payload's digest is not signed, as with the store's own tools,
/// because each side would need as long for the digest as for the transfer.
fn s3_of_environment() -> AmazonS3Builder {
    let builder = AmazonS3Builder::from_env();
    let is_plain = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint]
        .iter()
        .filter_map(|key| builder.get_config_value(key))
        .any(|endpoint| endpoint.starts_with("http://"));
    let is_said = std::env::var_os("AWS_UNSIGNED_PAYLOAD").is_some();
    if is_plain || is_said { builder } else { builder.with_unsigned_payload(true) }
}

/// Returns `None` for an unknown scheme.
fn of_scheme(
    url: &Url,
    connector: Connector,
) -> object_store::Result<Option<Arc<dyn ObjectStore>>> {
    let limits = connector.limits;
    Ok(Some(match url.scheme() {
        "s3" => Arc::new(
            s3_of_environment()
                .with_url(url.as_str())
                .with_http_connector(connector)
                // A server without conditional puts answers with an error, or is found when a volume is created.
                .with_conditional_put(S3ConditionalPut::ETagMatch)
                .with_retry(retries(limits))
                .build()?,
        ),
        "gs" => Arc::new(
            GoogleCloudStorageBuilder::from_env()
                .with_url(url.as_str())
                .with_http_connector(connector)
                .with_retry(retries(limits))
                .build()?,
        ),
        "az" | "abfs" | "abfss" => {
            let azure = MicrosoftAzureBuilder::from_env().with_url(url.as_str());
            Arc::new(azure.with_http_connector(connector).with_retry(retries(limits)).build()?)
        }
        // The whole address without a path, because the store would encode the path again. The connector adds the
        // query.
        "http" | "https" => Arc::new(
            HttpBuilder::new()
                .with_url(url.as_str())
                .with_client_options(ClientOptions::new().with_allow_http(url.scheme() == "http"))
                .with_http_connector(connector)
                .with_retry(retries(limits))
                .build()?,
        ),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_stores_are_reported() {
        assert!(matches!(
            open(&"s3:bucket".into()),
            Err(StoreError::Configuration { .. } | StoreError::Address { .. })
        ));
        assert!(matches!(open(&"ftp://host/file".into()), Err(StoreError::Address { .. })));
        let error = open(&"https://me:secret@host/file".into()).unwrap_err();
        assert!(matches!(error, StoreError::Credentials { .. }));
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn paths_are_those_of_addresses() {
        assert_eq!(
            open(&"s3://bucket/images/root%20fs.img".into()).unwrap().path.as_ref(),
            "images/root fs.img"
        );
        assert_eq!(
            open(&"http://127.0.0.1:1/a/b.img".into()).unwrap().address.with_secrets(),
            "http://127.0.0.1:1/a/b.img"
        );
    }
}
