//! Reads a layer: verifies it, decompresses it once, and keeps its entries.
//!
//! File contents of a compressed layer are written to one unnamed file shared by all layers (the pool), so that nothing
//! is decompressed twice. Those of an uncompressed layer stay in place.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oci_spec::image::Digest;
use parking_lot::Mutex;

use super::manifest::{Layer, Packing};
use super::pool::{Keeper, Pool};
use super::store::{Store, archive_name};
use super::verify::{Blob, BlobReader, Hasher};
use super::{ContainerFault, Limits};
use crate::content::ArchiveFile;
use crate::tar::compress::{Compression, Gzip, MAGIC_LEN, Zstd};
use crate::tar::readahead::ReadAhead;
use crate::{Body, Content, Entry, EntryKind, Source, SourceError, TarSource};

/// Read size in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Maximum path length of an entry in bytes: the limit of Linux, which unpackers have as well.
pub(super) const PATH_BYTES_MAX: usize = 4096;

/// Memory of an entry in addition to its names and attributes, in bytes.
pub(super) const ENTRY_BYTES: u64 = 256;

/// State observed while a blob is passed to the tar reader.
struct LayerState {
    stored: Mutex<Sum>,
    plain: Mutex<Sum>,
    expands: AtomicBool,
}

/// A running digest.
struct Sum {
    hasher: Option<Hasher>,
    bytes: u64,
}

impl Sum {
    fn of(digest: Option<&Digest>) -> Result<Mutex<Self>, ContainerFault> {
        let hasher = digest.map(Hasher::of).transpose()?;
        Ok(Mutex::new(Self { hasher, bytes: 0 }))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }
}

/// Computes the digest of the stored bytes.
struct Stored {
    inner: BlobReader,
    watch: Arc<LayerState>,
}

impl Read for Stored {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.watch.stored.lock().add(&buf[..n]);
        Ok(n)
    }
}

/// Computes the digest of the decompressed bytes, and enforces their limit.
struct Plain<R> {
    inner: R,
    watch: Arc<LayerState>,
    limit: u64,
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        let mut sum = self.watch.plain.lock();
        sum.add(&buf[..n]);
        if sum.bytes > self.limit {
            self.watch.expands.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the layer is too large"));
        }
        Ok(n)
    }
}

/// A reader of one layer.
pub(super) struct LayerReader<'a> {
    pub(super) store: &'a Store,
    pub(super) layer: &'a Layer,
    pub(super) pool: &'a Pool,
    pub(super) limits: &'a Limits,
    /// Set if another layer failed, so that this one is not needed.
    pub(super) is_cancelled: &'a AtomicBool,
}

impl LayerReader<'_> {
    /// Reads all entries of the layer, in its order.
    pub(super) fn read(&self) -> Result<Vec<Entry>, SourceError> {
        let blob = self.store.blob(&self.layer.name, "the manifest")?;
        self.store.check_size(&blob, self.layer.size)?;
        let io = |e| SourceError::io("read", Path::new(&blob.name), e);
        let packing = self.packing(&blob)?;
        // An uncompressed layer has a single digest.
        let once = self.layer.digest.is_some() && packing == Packing::Plain;
        if once
            && let Some((said, other)) = self.layer.digest.as_ref().zip(self.layer.diff_id.as_ref())
            && said != other
        {
            let (expected, found) = (other.to_string(), said.to_string());
            return Err(self.fault(ContainerFault::DiffId { expected, found }));
        }
        let diff_id = self.layer.diff_id.as_ref().filter(|_| !once);
        let watch = Arc::new(LayerState {
            stored: Sum::of(self.layer.digest.as_ref()).map_err(|e| self.fault(e))?,
            plain: Sum::of(diff_id).map_err(|e| self.fault(e))?,
            expands: AtomicBool::new(false),
        });
        let stored = Stored { inner: blob.reader(), watch: Arc::clone(&watch) };
        let stored = BufReader::with_capacity(BUFFER_BYTES, stored);
        let stream: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(stored),
            Packing::Gzip => Box::new(Gzip::new(stored)),
            Packing::Zstd => Box::new(Zstd::new(stored)),
        };
        let limit = self.limits.expanded(blob.len);
        let plain = Plain { inner: stream, watch: Arc::clone(&watch), limit };
        let ahead = ReadAhead::start(Box::new(plain)).map_err(io)?;
        let path = archive_name(self.store, &blob);
        let mut source = self.source(ahead, &path, packing);
        match self.entries(&mut source, &blob, packing, limit, &path) {
            Ok(entries) => {
                self.verify(&blob, &watch)?;
                Ok(entries)
            }
            Err(error) => Err(self.explain(error, &blob, &watch, limit)),
        }
    }

    /// Returns the tar reader of the decompressed layer. A digest, or the end of a compressed stream, detects
    /// truncation; otherwise the archive's end marker is required.
    fn source(&self, plain: ReadAhead, path: &Path, packing: Packing) -> TarSource {
        let is_summed = self.layer.digest.is_some() || self.layer.diff_id.is_some();
        if is_summed || packing != Packing::Plain {
            TarSource::from_verified(plain, path)
        } else {
            TarSource::from_plain(plain, path)
        }
    }

    fn fault(&self, fault: ContainerFault) -> SourceError {
        fault.of(&self.store.image, Some(&self.layer.name))
    }

    /// Returns the compression of the layer according to its first bytes. The media type must not contradict it.
    fn packing(&self, blob: &Blob) -> Result<Packing, SourceError> {
        let mut head = BufReader::with_capacity(MAGIC_LEN, blob.reader());
        let head = head.fill_buf();
        let head = head.map_err(|e| SourceError::io("read", Path::new(&blob.name), e))?;
        let (found, name) = match Compression::of(head) {
            Compression::None => (Some(Packing::Plain), "not compressed"),
            Compression::Gzip => (Some(Packing::Gzip), "gzip"),
            Compression::Zstd => (Some(Packing::Zstd), "zstd"),
            Compression::Other(name) => (None, name),
        };
        let expected = self.layer.packing;
        match found {
            Some(found) if expected.is_none_or(|expected| expected == found) => Ok(found),
            _ => {
                let expected = match expected {
                    Some(Packing::Plain) => "not compressed",
                    Some(Packing::Gzip) => "gzip",
                    Some(Packing::Zstd) => "zstd",
                    None => "gzip, zstd or not compressed",
                };
                Err(self.fault(ContainerFault::Compression { expected, found: name }))
            }
        }
    }

    fn entries(
        &self,
        source: &mut TarSource,
        blob: &Blob,
        packing: Packing,
        limit: u64,
        path: &Path,
    ) -> Result<Vec<Entry>, SourceError> {
        let in_place =
            Arc::new(ArchiveFile { file: Arc::clone(&blob.file), path: path.to_owned() });
        let mut entries = Vec::new();
        let mut keeper = Keeper::new(self.pool);
        while let Some(mut entry) = source.next_entry()? {
            if self.is_cancelled.load(Ordering::Relaxed) {
                break;
            }
            self.count(&entry)?;
            if let EntryKind::File(content) = &mut entry.kind
                && matches!(content.body(), Body::Stream)
            {
                let (size, runs) = (content.size(), content.sparse().cloned());
                *content = if packing == Packing::Plain {
                    let offset = blob.offset + source.data_offset();
                    Content::archived_shared(size, runs, &in_place, offset)
                } else {
                    let offset = self.keep(source, content.data_len(), limit, blob, &mut keeper)?;
                    Content::archived_shared(size, runs, self.pool.archive(), offset)
                };
            }
            entries.push(entry);
        }
        keeper.finish()?;
        Ok(entries)
    }

    /// Counts the memory of an entry.
    fn count(&self, entry: &Entry) -> Result<(), SourceError> {
        let target = match &entry.kind {
            EntryKind::Symlink(target) | EntryKind::Hardlink(target) => target.len(),
            _ => 0,
        };
        if entry.path.len().max(target) > PATH_BYTES_MAX {
            let fault = ContainerFault::PathLength(PATH_BYTES_MAX);
            return Err(fault.of_entry(&self.store.image, &self.layer.name, &entry.path));
        }
        let kind = match &entry.kind {
            EntryKind::File(content) => content.sparse().map_or(0, |runs| size_of_val(&**runs)),
            _ => target,
        };
        let xattrs = entry.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len() + 48);
        let bytes = (entry.path.len() + kind + xattrs.sum::<usize>()) as u64 + ENTRY_BYTES;
        if self.pool.add_names(bytes) > self.limits.names_bytes {
            return Err(self.fault(ContainerFault::Names { limit: self.limits.names_bytes }));
        }
        Ok(())
    }

    /// Writes the contents of a file to the pool. Returns their location.
    fn keep(
        &self,
        source: &mut TarSource,
        len: u64,
        limit: u64,
        blob: &Blob,
        keeper: &mut Keeper<'_>,
    ) -> Result<u64, SourceError> {
        let expands = || self.fault(ContainerFault::Expands { stored: blob.len, limit });
        if len > limit {
            return Err(expands());
        }
        let fill = |buffer: &mut [u8]| {
            let mut done = 0;
            while done < buffer.len() {
                match source.read(&mut buffer[done..])? {
                    0 => return Err(expands()),
                    n => done += n,
                }
            }
            Ok(())
        };
        keeper.keep(len, fill)?.ok_or_else(expands)
    }

    /// Compares digests after everything was read.
    fn verify(&self, blob: &Blob, watch: &LayerState) -> Result<(), SourceError> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (mut stored, mut plain) = (watch.stored.lock(), watch.plain.lock());
        if let (Some(mut hasher), Some(digest)) = (stored.hasher.take(), &self.layer.digest) {
            // Padding behind compressed data is part of the blob.
            let rest = Blob {
                offset: blob.offset + stored.bytes,
                len: blob.len - stored.bytes,
                ..blob.clone()
            };
            hasher =
                rest.sum(hasher).map_err(|e| SourceError::io("read", Path::new(&blob.name), e))?;
            hasher.check(digest).map_err(|(expected, found)| {
                self.fault(ContainerFault::Digest { expected, found })
            })?;
        }
        if let (Some(hasher), Some(diff_id)) = (plain.hasher.take(), &self.layer.diff_id) {
            hasher.check(diff_id).map_err(|(expected, found)| {
                self.fault(ContainerFault::DiffId { expected, found })
            })?;
        }
        Ok(())
    }

    /// Determines the cause of a read error: a wrong digest of the blob takes precedence over an error in the tar.
    fn explain(
        &self,
        error: SourceError,
        blob: &Blob,
        watch: &LayerState,
        limit: u64,
    ) -> SourceError {
        if watch.expands.load(Ordering::Relaxed) {
            return self.fault(ContainerFault::Expands { stored: blob.len, limit });
        }
        let is_damage =
            matches!(error, SourceError::Damaged { .. } | SourceError::Unsupported { .. });
        if is_damage
            && let Some(digest) = &self.layer.digest
            && let Ok(hasher) = Hasher::of(digest)
            && let Ok(hasher) = blob.sum(hasher)
            && let Err((expected, found)) = hasher.check(digest)
        {
            return self.fault(ContainerFault::Digest { expected, found });
        }
        error
    }
}
