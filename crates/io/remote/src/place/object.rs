//! Reads one version of an object, even if the object is replaced.

use std::error::Error as _;
use std::ops::Range;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStoreExt};

use crate::place::lazy::{FetchError, Pieces, RangeSource};
use crate::place::runtime;
use crate::place::store::Location;

/// Unit of fetches in bytes. A request for it takes as long as a request for one byte.
pub const CHUNK_BYTES: u64 = 128 << 10;

/// Size of the first request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    /// Number of bytes.
    pub(crate) bytes: u64,
    /// Number of attempts, in addition to the retries of the store's library.
    pub(crate) tries: u32,
}

impl Default for Opening {
    fn default() -> Self {
        Self { bytes: CHUNK_BYTES, tries: 3 }
    }
}

/// An object, pinned to the version at the time of opening.
///
/// The version is the ETag: each request sends it as a condition, and each answer is compared with it. Without ETags
/// the modification time is used, and without both only the length, which [`Self::of`] logs as a warning.
pub struct ObjectSource {
    location: Location,
    shown: String,
    identity: String,
    pin: Pin,
    /// First bytes of the object, fetched when it was opened.
    head: Bytes,
}

/// The properties that identify a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) etag: Option<String>,
    /// Modification time in seconds; 0 if the server reports none.
    pub(crate) modified: i64,
    len: u64,
}

impl ObjectSource {
    /// Opens an object with one request, which also fetches its first bytes.
    ///
    /// # Errors
    /// If it cannot be read in ranges.
    pub fn of(location: Location) -> Result<Self, FetchError> {
        runtime::block_on(Self::open(location, Opening::default()))
    }

    /// Opens an object with a first request of another size.
    pub(crate) async fn open(location: Location, opening: Opening) -> Result<Self, FetchError> {
        let shown = location.address.to_string();
        let mut answer = first(&location, &shown, opening.bytes).await;
        for _ in 1..opening.tries {
            if !matches!(answer, Err(FetchError::Transient { .. })) {
                break;
            }
            answer = first(&location, &shown, opening.bytes).await;
        }
        let (pin, head) = answer?;
        if pin.etag.is_none() && pin.modified == 0 {
            tracing::warn!(
                "{shown}: the server sends neither ETag nor Last-Modified; a replaced object is \
                 detected only by its length"
            );
        }
        let identity = format!("{shown} {pin}");
        Ok(Self { location, shown, identity, pin, head })
    }

    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the first bytes, which were fetched when the object was opened.
    pub(crate) fn head(&self) -> &Bytes {
        &self.head
    }

    pub(crate) const fn pin(&self) -> &Pin {
        &self.pin
    }

    async fn fetch_range(&self, range: Range<u64>) -> Result<Vec<Bytes>, FetchError> {
        let options = GetOptions {
            if_match: self.pin.etag.clone().filter(|etag| !is_weak(etag)),
            ..GetOptions::new().with_range(Some(GetRange::Bounded(range)))
        };
        let answer = match get(&self.location, &self.shown, options).await {
            Err(FetchError::Changed { .. }) => return Err(self.replaced().await),
            answer => answer?,
        };
        let found = Pin::of(&answer.meta);
        if found != self.pin {
            return Err(self.changed(found.to_string()));
        }
        body(answer, CHUNK_BYTES, &self.location, &self.shown).await
    }

    /// Returns the error for a replaced object, with its current version.
    async fn replaced(&self) -> FetchError {
        match self.location.store.head(&self.location.path).await {
            Ok(meta) => self.changed(Pin::of(&meta).to_string()),
            Err(_) => self.changed("another".into()),
        }
    }

    fn changed(&self, found: String) -> FetchError {
        FetchError::Changed { address: self.shown.clone(), expected: self.pin.to_string(), found }
    }
}

impl RangeSource for ObjectSource {
    fn len(&self) -> u64 {
        self.pin.len
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Bytes>, FetchError>> {
        if range.end <= self.head.len() as u64 {
            let bytes = &self.head[range.start as usize..range.end as usize];
            let pieces = bytes.chunks(CHUNK_BYTES as usize).map(|piece| self.head.slice_ref(piece));
            return std::future::ready(Ok(pieces.collect())).boxed();
        }
        self.fetch_range(range).boxed()
    }

    fn chunk_bytes(&self) -> u64 {
        CHUNK_BYTES
    }
}

impl Pin {
    fn of(meta: &ObjectMeta) -> Self {
        Self { etag: meta.e_tag.clone(), modified: meta.last_modified.timestamp(), len: meta.size }
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len)?;
        match &self.etag {
            Some(etag) => write!(f, " with the ETag {}", disk::address::safe_line(etag)),
            None if self.modified != 0 => write!(f, " of {} s", self.modified),
            None => Ok(()),
        }
    }
}

/// Weak tags are compared here, because servers need not support them in conditions (RFC 9110, 13.1.1).
fn is_weak(etag: &str) -> bool {
    etag.starts_with("W/")
}

async fn get(
    location: &Location,
    shown: &str,
    options: GetOptions,
) -> Result<GetResult, FetchError> {
    let answer = location.store.get_opts(&location.path, options).await;
    answer.map_err(|error| told(&error, &location.path, shown))
}

/// Returns the current version of the object and its first bytes.
async fn first(location: &Location, shown: &str, bytes: u64) -> Result<(Pin, Bytes), FetchError> {
    let options = GetOptions::new().with_range(Some(GetRange::Bounded(0..bytes)));
    let answer = get(location, shown, options).await?;
    let pin = Pin::of(&answer.meta);
    let head = body(answer, bytes.max(1), location, shown).await?;
    let head = head.into_iter().next().unwrap_or_default();
    if head.len() as u64 == pin.len.min(bytes) {
        return Ok((pin, head));
    }
    let reason = format!("the server sent {} of the first {bytes} bytes", head.len());
    Err(FetchError::Transient { address: shown.to_owned(), reason })
}

/// Reads the body of an answer into pieces.
async fn body(
    answer: GetResult,
    piece_bytes: u64,
    location: &Location,
    shown: &str,
) -> Result<Vec<Bytes>, FetchError> {
    let len = answer.range.end - answer.range.start;
    let (mut pieces, mut found) = (Pieces::new(piece_bytes as usize, len), 0);
    let mut parts = answer.into_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| told(&error, &location.path, shown))?;
        found += part.len() as u64;
        if found > len {
            let reason = format!("the server sent more than the {len} requested bytes");
            return Err(FetchError::Transient { address: shown.into(), reason });
        }
        pieces.extend(&part);
    }
    Ok(pieces.finish())
}

/// Converts an error of the library. Its text may contain an address with a signature in its query, so it is not
/// repeated.
fn told(error: &Error, path: &Path, shown: &str) -> FetchError {
    let address_shown = shown.to_owned();
    let denied = |reason: &str| FetchError::Denied {
        address: address_shown.clone(),
        reason: reason.to_owned(),
    };
    match error {
        Error::NotFound { .. } => FetchError::Absent { address: address_shown },
        Error::PermissionDenied { .. } => {
            denied("access denied; check the credentials in the environment")
        }
        Error::Unauthenticated { .. } => {
            denied("the server requires valid credentials; set them in the environment")
        }
        Error::NotSupported { .. } => FetchError::Refused {
            address: address_shown,
            reason:
                "the server does not support range requests; copy the object to a local file or \
                     to a server that does"
                    .to_owned(),
        },
        Error::Precondition { .. } => FetchError::Changed {
            address: address_shown,
            expected: String::new(),
            found: path.to_string(),
        },
        error => {
            let mut reason = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                let text = error.to_string();
                if !reason.contains(&text) {
                    reason = format!("{reason}: {text}");
                }
                cause = error.source();
            }
            FetchError::Transient {
                address: address_shown,
                reason: disk::address::safe_line(&reason),
            }
        }
    }
}
