//! Reads published images. Each chunk is verified before it is returned.

use std::ops::Range;

use crate::place::lazy::{FetchError, RangeSource};
use crate::place::store::Location;
use bytes::{Bytes, BytesMut};
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

    /// Reads a range of the image. Returns either the whole range or an error.
    ///
    /// # Errors
    /// If a chunk is missing, if it is damaged and still damaged after a second fetch, or if the store fails.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes, Error> {
        let (len, chunk_bytes) =
            (self.manifest.image_bytes(), u64::from(self.manifest.chunk_bytes()));
        if range.start > range.end || range.end > len {
            let (start, end) = (range.start, range.end);
            return Err(Error::Usage(format!(
                "bytes {start} to {end} are past the end of the image ({len} bytes)"
            )));
        }
        let first = range.start / chunk_bytes;
        let numbers = first..range.end.div_ceil(chunk_bytes).max(first);
        if numbers.end - numbers.start == 1 {
            let start = (range.start - first * chunk_bytes) as usize;
            let count = (range.end - range.start) as usize;
            return Ok(self.chunk(first as u32).await?.slice(start..start + count));
        }
        let chunks = stream::iter(numbers).map(|number| async move {
            let chunk = self.chunk(number as u32).await?;
            let start = number * chunk_bytes;
            let inside = |at: u64| at.saturating_sub(start).min(chunk.len() as u64) as usize;
            Ok(chunk.slice(inside(range.start)..inside(range.end)))
        });
        let all = BytesMut::with_capacity((range.end - range.start) as usize);
        let append = |mut all: BytesMut, chunk: Bytes| async move {
            all.extend_from_slice(&chunk);
            Ok(all)
        };
        Ok(chunks.buffered(AT_A_TIME).try_fold(all, append).await?.freeze())
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

    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, FetchError>> {
        self.read(range).map_err(of_fetch).boxed()
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
