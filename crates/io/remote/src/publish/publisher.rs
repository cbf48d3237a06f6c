//! Publishes an image: chunks first, then the manifest, then the name.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::available_parallelism;

use crate::bundle::{Identity, MakeError, Plan, make};
use crate::place::runtime;
use crate::place::store::Location;
use bytes::Bytes;
use disk::BlockDevice;
use futures_util::{StreamExt, stream};

use crate::publish::ask::missing;
use crate::publish::checked::CheckedImage;
use crate::publish::cut::{cut, read_chunk};
use crate::publish::digest::Digest;
use crate::publish::error::Error;
use crate::publish::frame::pack;
use crate::publish::layout::{Prefix, check_name};
use crate::publish::manifest::{Facts, Manifest};
use crate::publish::mark::{Mark, Patience, Work};
use crate::publish::open::{name_object, named};
use crate::publish::request::{put, put_new};

/// Current stage of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the image; counts are bytes.
    Reading,
    /// Sending chunks; counts are chunks.
    Sending,
}

/// Receives the progress of a publication. Called by many threads.
pub trait Observer: Send + Sync {
    /// Reports that `done` of `total` units are complete.
    fn progress(&self, stage: Stage, done: u64, total: u64);
}

/// An observer that ignores all reports.
pub struct NoPublishReports;

impl Observer for NoPublishReports {
    fn progress(&self, _: Stage, _: u64, _: u64) {}
}

/// Options for publishing.
#[derive(Clone, Debug)]
pub struct Options {
    /// Chunk size in bytes: a power of two. Images share chunks only if their chunk sizes are equal.
    pub chunk_bytes: u32,
    /// Number of concurrent requests.
    pub requests: usize,
    /// Parts of the image that a start reads, in that order (see [`crate::publish::record`]).
    pub order: Vec<Range<u64>>,
    /// Parts of the image that its metadata bundle contains, or `None` for no bundle.
    pub bundle: Option<Plan>,
    /// Sends objects that exist already, too.
    pub resend: bool,
    /// Time limits for waiting for others.
    pub patience: Patience,
}

/// Default chunk size in bytes. `docs/anywhere.md` has the measurements.
pub const CHUNK_BYTES_DEFAULT: u32 = 128 << 10;

impl Default for Options {
    fn default() -> Self {
        Self {
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            requests: 16,
            order: Vec::new(),
            bundle: None,
            resend: false,
            patience: Patience::default(),
        }
    }
}

/// Result and cost of a publication.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct UploadReport {
    /// Digest of the manifest: the image's identity.
    pub manifest: String,
    /// Image size in bytes.
    pub image_bytes: u64,
    /// Chunk size in bytes.
    pub chunk_bytes: u32,
    /// Chunks of the image, including zero chunks.
    pub chunks: u64,
    /// Chunks that are not zeros.
    pub chunks_stored: u64,
    /// Distinct chunks that are not zeros.
    pub chunks_distinct: u64,
    /// Chunks that were sent.
    pub chunks_sent: u64,
    /// Size of the metadata bundle; 0 without one.
    pub bundle_bytes: u64,
    /// Total size of all objects sent, compressed.
    pub bytes_sent: u64,
}

/// Publishes an image under a name below a prefix. The name refers to the image when this returns. After a failure or a
/// kill, the name still refers to its previous manifest, and the next attempt sends only what is missing.
///
/// # Errors
/// If the image cannot be read or changes, the store fails, or a sweep runs for longer than [`Patience`] allows.
pub fn publish(
    device: Arc<dyn BlockDevice>,
    location: &Location,
    name: &str,
    facts: Facts,
    options: &Options,
    observer: &dyn Observer,
) -> Result<UploadReport, Error> {
    check_name(name)?;
    Manifest::new(facts.clone(), device.len(), options.chunk_bytes, [])
        .map_err(|e| Error::Usage(format!("the image cannot be divided into such chunks: {e}")))?;
    let total = device.len();
    let progress = |done| observer.progress(Stage::Reading, done, total);
    let threads = available_parallelism().map_or(1, usize::from);
    let chunks = cut(&*device, options.chunk_bytes, threads, &progress)?;
    let mut manifest = Manifest::new(facts, device.len(), options.chunk_bytes, chunks)
        .expect("chunks are in order, and their sizes were checked");
    manifest.set_order(chunks_of(&options.order, options.chunk_bytes, total));
    let bundle = bundle(&*device, &mut manifest, options.bundle.as_ref())?;
    let bytes = Bytes::from(manifest.to_bytes());
    let sending = Sending {
        device,
        prefix: Prefix::new(location),
        digest: Digest::of(&bytes),
        bytes,
        manifest,
        bundle,
        name,
        options,
        observer,
    };
    runtime::block_on(sending.run())
}

/// Makes the bundle, if there is a plan for one, and adds it to the manifest.
fn bundle(
    device: &dyn BlockDevice,
    manifest: &mut Manifest,
    plan: Option<&Plan>,
) -> Result<Bytes, Error> {
    let Some(plan) = plan else { return Ok(Bytes::new()) };
    let identity = Identity::Published { contents: manifest.contents_digest() };
    let made = make(&CheckedImage::new(device, manifest), plan, &identity);
    let bundle = made.map_err(|error| match error {
        MakeError::Image { offset, source } => match source.downcast() {
            Ok(changed @ Error::ImageChanged { .. }) => changed,
            Ok(other) => Error::Image { offset, source: io::Error::other(other) },
            Err(source) => Error::Image { offset, source },
        },
        error => Error::Usage(error.to_string()),
    })?;
    manifest.set_bundle(Some(bundle.digest));
    Ok(bundle.bytes.into())
}

/// Returns the numbers of the chunks that overlap these parts of an image.
fn chunks_of(parts: &[Range<u64>], chunk_bytes: u32, len: u64) -> impl Iterator<Item = u32> {
    let number = move |offset: u64| (offset / u64::from(chunk_bytes)) as u32;
    let inside = parts.iter().map(move |part| part.start..part.end.min(len));
    let parts = inside.filter(|part| part.start < part.end);
    parts.flat_map(move |part| number(part.start)..=number(part.end - 1)).take(ORDER_MAX)
}

/// Maximum number of chunk numbers taken from a record. Parts may overlap, and no start reads more.
const ORDER_MAX: usize = 1 << 24;

struct Sending<'a> {
    device: Arc<dyn BlockDevice>,
    prefix: Prefix,
    manifest: Manifest,
    /// The encoded manifest and its digest.
    bytes: Bytes,
    digest: Digest,
    /// The bundle; empty without one.
    bundle: Bytes,
    name: &'a str,
    options: &'a Options,
    observer: &'a dyn Observer,
}

/// Chunks and bytes sent.
type Sent = (u64, u64);

impl Sending<'_> {
    async fn run(&self) -> Result<UploadReport, Error> {
        let mut mark = Mark::enter(&self.prefix, Work::Publish, self.options.patience).await?;
        let sent = self.send(&mut mark).await;
        mark.leave().await;
        let (sent, distinct) = sent?;
        Ok(UploadReport {
            manifest: self.digest.to_string(),
            image_bytes: self.manifest.image_bytes(),
            chunk_bytes: self.manifest.chunk_bytes(),
            chunks: self.manifest.chunks().into(),
            chunks_stored: self.manifest.digests().len() as u64,
            chunks_distinct: distinct,
            chunks_sent: sent.0,
            bundle_bytes: self.bundle.len() as u64,
            bytes_sent: sent.1,
        })
    }

    async fn send(&self, mark: &mut Mark<'_>) -> Result<(Sent, u64), Error> {
        let mut digests = self.manifest.digests().to_vec();
        digests.sort_unstable();
        digests.dedup();
        let distinct = digests.len() as u64;
        let before = if self.options.resend { None } else { self.before().await? };
        if before.as_ref().is_some_and(|(digest, _)| *digest == self.digest) {
            return Ok(((0, 0), distinct));
        }
        if !self.options.resend {
            digests = self.unknown(digests, before.map(|(_, manifest)| manifest));
            digests = missing(&self.prefix, &digests, self.options.requests).await?;
        }
        let (chunks, chunk_bytes) = self.send_chunks(&digests, mark).await?;
        let name = name_object(self.digest);
        let others = self.bundle.len() + self.bytes.len() + name.len();
        // The renewals prove that no sweep has removed a chunk since the mark was put.
        mark.renew().await?;
        let store = &*self.prefix.store;
        if let Some(digest) = self.manifest.bundle() {
            put(store, &self.prefix.bundle(digest), self.bundle.clone()).await?;
            mark.renew().await?;
        }
        // Put even if it exists: it must not be older than its chunks, or a sweep might remove it.
        put(store, &self.prefix.manifest(self.digest), self.bytes.clone()).await?;
        mark.renew().await?;
        put(store, &self.prefix.name(self.name), name).await?;
        Ok(((chunks, chunk_bytes + others as u64), distinct))
    }

    /// Returns the name's current manifest if it can be read. All its chunks exist.
    async fn before(&self) -> Result<Option<(Digest, Manifest)>, Error> {
        match named(&self.prefix, self.name).await {
            Err(Error::Damaged { .. } | Error::Missing { .. }) => Ok(None),
            found => found,
        }
    }

    /// Returns the digests that the previous manifest does not contain.
    fn unknown(&self, digests: Vec<Digest>, before: Option<Manifest>) -> Vec<Digest> {
        let Some(before) = before else { return digests };
        let mut known = before.digests().to_vec();
        known.sort_unstable();
        digests.into_iter().filter(|digest| known.binary_search(digest).is_err()).collect()
    }

    async fn send_chunks(&self, digests: &[Digest], mark: &mut Mark<'_>) -> Result<Sent, Error> {
        let total = digests.len() as u64;
        let work = self.places(digests);
        let mut sending = stream::iter(work)
            .map(|(number, digest)| self.send_chunk(number, digest))
            .buffer_unordered(self.options.requests);
        let (mut chunks, mut bytes) = (0, 0);
        while let Some(sent) = sending.next().await {
            chunks += 1;
            bytes += sent?;
            self.observer.progress(Stage::Sending, chunks, total);
            mark.renew_if_due().await?;
        }
        Ok((chunks, bytes))
    }

    /// Returns a chunk number for each digest, in image order, so that the image is read sequentially.
    fn places(&self, digests: &[Digest]) -> Vec<(u32, Digest)> {
        let mut wanted: HashMap<Digest, ()> = digests.iter().map(|digest| (*digest, ())).collect();
        let take = |number| {
            let digest = self.manifest.digest_of(number)?;
            wanted.remove(&digest).map(|()| (number, digest))
        };
        (0..self.manifest.chunks()).filter_map(take).collect()
    }

    /// Sends one chunk and returns its stored size in bytes.
    async fn send_chunk(&self, number: u32, digest: Digest) -> Result<u64, Error> {
        let (device, chunk_bytes) = (Arc::clone(&self.device), self.options.chunk_bytes);
        let read = move || {
            let mut contents = Vec::new();
            read_chunk(&*device, chunk_bytes, number, &mut contents)?;
            if Digest::of(&contents) != digest {
                let offset = u64::from(number) * u64::from(chunk_bytes);
                return Err(Error::ImageChanged { offset });
            }
            Ok(Bytes::from(pack(&contents)))
        };
        let packed = runtime::handle().spawn_blocking(read).await;
        let packed = packed.expect("packing a chunk does not panic")?;
        let (path, store) = (self.prefix.chunk(digest), &*self.prefix.store);
        let bytes = packed.len() as u64;
        if self.options.resend {
            put(store, &path, packed).await?;
        } else {
            put_new(store, &path, packed).await?;
        }
        Ok(bytes)
    }
}
