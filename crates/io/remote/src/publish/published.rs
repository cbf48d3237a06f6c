//! Reads published images. Each chunk is verified before it is returned.

use std::ops::Range;

use crate::place::lazy::{FetchError, RangeSource};
use crate::place::store::Location;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, stream};

use crate::publish::digest::Digest;
use crate::publish::error::Error;
use crate::publish::frame::{packed_bytes_max, unpack};
use crate::publish::layout::{BUNDLES, Prefix};
use crate::publish::manifest::Manifest;
use crate::publish::request::get;

/// Number of chunks of one request that are fetched concurrently.
const AT_A_TIME: usize = 16;

/// A published image.
pub struct Published {
    prefix: Prefix,
    manifest: Manifest,
    identity: String,
}

impl Published {
    pub(crate) fn new(prefix: Prefix, digest: Digest, manifest: Manifest) -> Self {
        Self { prefix, manifest, identity: digest.to_string() }
    }

    /// Returns the image's manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the location and the digest of the image's metadata bundle, if it has one.
    pub(crate) fn bundle(&self) -> Option<(Location, Digest)> {
        let digest = self.manifest.bundle()?;
        Some((self.prefix.location(BUNDLES, &digest.to_string()), digest))
    }

    /// Returns the byte ranges that a start reads first, in that order, in whole chunks.
    pub fn order(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let chunk_bytes = u64::from(self.manifest.chunk_bytes());
        self.manifest.order().iter().map(move |&number| {
            let start = u64::from(number) * chunk_bytes;
            start..start + self.manifest.len_of(number) as u64
        })
    }

    /// Reads chunks by their numbers. Returns either all of them or an error.
    ///
    /// # Errors
    /// If a chunk does not exist, is missing in the store, or is damaged and still damaged after a second fetch, or if the
    /// store fails.
    pub async fn read(&self, chunks: Range<u32>) -> Result<Vec<Bytes>, Error> {
        let (count, end) = (self.manifest.chunks(), chunks.end);
        if end > count {
            return Err(Error::Usage(format!(
                "chunk {end} is past the end of the image ({count} chunks)"
            )));
        }
        stream::iter(chunks)
            .map(|number| self.chunk(number))
            .buffered(AT_A_TIME)
            .try_collect()
            .await
    }

    async fn chunk(&self, number: u32) -> Result<Bytes, Error> {
        let len = self.manifest.len_of(number);
        let Some(digest) = self.manifest.digest_of(number) else {
            return Ok(Bytes::from(vec![0; len]));
        };
        let path = self.prefix.chunk(digest);
        let mut problem = String::new();
        for _ in 0..2 {
            let packed = get(&*self.prefix.store, &path, packed_bytes_max(len) as u64).await?;
            let advice = "publish the image again with --resend";
            let packed =
                packed.ok_or_else(|| Error::Missing { object: path.to_string(), advice })?;
            match unpack(&packed, len, digest) {
                Ok(contents) => return Ok(contents.into()),
                Err(found) => problem = found,
            }
        }
        Err(Error::damaged_chunk(&path, problem))
    }
}

impl RangeSource for Published {
    fn len(&self) -> u64 {
        self.manifest.image_bytes()
    }

    /// Returns the digest of the manifest. Equal digests mean equal images.
    fn identity(&self) -> &str {
        &self.identity
    }

    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Bytes>, FetchError>> {
        let chunk_bytes = self.chunk_bytes();
        let (first, end) = (range.start / chunk_bytes, range.end.div_ceil(chunk_bytes));
        self.read(first as u32..end as u32).map_err(of_fetch).boxed()
    }

    fn known_zeros(&self, range: Range<u64>) -> Option<Range<u64>> {
        let chunk_bytes = u64::from(self.manifest.chunk_bytes());
        let numbers = range.start / chunk_bytes..range.end.div_ceil(chunk_bytes);
        let is_zeros = |number: &u64| self.manifest.digest_of(*number as u32).is_none();
        let first = numbers.clone().find(is_zeros)?;
        let last = (first..numbers.end).take_while(is_zeros).last()?;
        Some((first * chunk_bytes).max(range.start)..((last + 1) * chunk_bytes).min(range.end))
    }

    fn chunk_bytes(&self) -> u64 {
        self.manifest.chunk_bytes().into()
    }
}

/// Missing or still damaged objects are permanent errors. Errors of the store may be transient.
fn of_fetch(error: Error) -> FetchError {
    match error {
        Error::Store { object: address, source, .. } => {
            FetchError::Transient { address, reason: source.to_string() }
        }
        Error::Missing { object, advice } => {
            FetchError::Refused { address: object, reason: format!("it is missing; {advice}") }
        }
        Error::Damaged { object, problem, advice } => {
            FetchError::Refused { address: object, reason: format!("damaged: {problem}; {advice}") }
        }
        error => {
            FetchError::Refused { address: "published image".into(), reason: error.to_string() }
        }
    }
}
