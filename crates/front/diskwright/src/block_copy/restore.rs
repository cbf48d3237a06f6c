//! Applying an increment to the copy that it was made for.
//!
//! First the increment and the whole copy are verified, so that nothing is changed with a wrong base. Then a marker
//! replaces the beginning of the copy until all changes are durable. An interrupted restore is completed by another one:
//! each changed chunk then has its contents before or after the change.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use disk::FileAt;
use disk::output::{Error as OutputError, Raw, for_each_chunk};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::Progress;
use super::chunk::{CHUNK_BYTES, Digest, chunk_bytes};
use super::increment::{ChunkChange, IncrementIndex};
use super::raw::without;
use super::source::HashedDevice;
use super::state::ChunkDigest;
use super::target::{InPlace, Marker};
use crate::copy_error::CopyError;
use crate::text::hex;
use crate::{Error, Result, lock};

/// Word of the marker.
const VERB: &str = "restore";

/// Threads that read.
const READERS: usize = 2;

/// Result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Length of the file system in bytes.
    pub image_bytes: u64,
    /// Number of chunks that were written.
    pub written_chunks: u64,
    /// Bytes of these chunks.
    pub written_bytes: u64,
    /// SHA-256 of the copy, as in the state file of the increment.
    pub sha256: String,
}

/// Changes `out`, a raw copy in a file or on a block device, to the state of an increment.
///
/// # Errors
/// If the increment is damaged, or `out` is not the copy that it was made for. Nothing is changed then. If `out` cannot be
/// written, it begins with a marker until the next restore of the same increment is complete.
pub fn restore(increment: &Path, out: &Path, progress: Progress<'_>) -> Result<RestoreReport> {
    if crate::is_same_file(increment, out) {
        return Err(Error::Usage("the increment and the copy are the same file".into()));
    }
    let file = lock::open_to_read(increment, false)?;
    let (index, id) = IncrementIndex::read(increment, &file)?;
    let data = IncrementData { path: increment, file: &file, index: &index };
    data.verify(progress)?;
    let mut target = InPlace::open(out, index.system.bytes, false)?;
    let marker = Marker::new(VERB, id);
    let found = verify_base(&index, &target, out, &marker, progress)?;
    let (image_bytes, sha256) = (index.system.bytes, hex(&index.new_digest()));
    let mut report = RestoreReport { image_bytes, sha256, ..RestoreReport::default() };
    let is_new = |change: &ChunkChange| found.get(&change.number).copied() == change.new;
    if index.changes.iter().filter(|change| change.has_data).all(is_new) {
        return Ok(report);
    }
    target.mark(&marker)?;
    let mut buffer = Vec::new();
    for (change, place) in index.contents() {
        // The first chunk is the marker now.
        if change.number != 0 && is_new(&change) {
            continue;
        }
        data.read(&change, place, &mut buffer)?;
        target.write(change.number * CHUNK_BYTES, &buffer)?;
        report.written_chunks += 1;
        report.written_bytes += buffer.len() as u64;
        if progress("writing changes", change.number * CHUNK_BYTES, image_bytes).is_break() {
            return Err(Error::Stopped);
        }
    }
    for freed in index.changes.iter().filter(|change| change.new.is_none()) {
        target.free(freed.number * CHUNK_BYTES, CHUNK_BYTES)?;
    }
    target.finish()?;
    Ok(report)
}

/// Contents of an increment.
struct IncrementData<'i> {
    path: &'i Path,
    file: &'i File,
    index: &'i IncrementIndex,
}

impl IncrementData<'_> {
    /// Reads all contents and compares them with their digests.
    fn verify(&self, progress: Progress<'_>) -> Result<()> {
        let mut buffer = Vec::new();
        for (change, place) in self.index.contents() {
            let done = change.number * CHUNK_BYTES;
            if progress("verifying the increment", done, self.index.system.bytes).is_break() {
                return Err(Error::Stopped);
            }
            self.read(&change, place, &mut buffer)?;
        }
        Ok(())
    }

    /// Reads the contents of a chunk, and compares them with its digest.
    fn read(&self, change: &ChunkChange, place: u64, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.resize(chunk_bytes(change.number, self.index.system.bytes) as usize, 0);
        let read = self.file.read_exact_at(buffer, place);
        read.map_err(|e| Error::host("read", self.path, e))?;
        let found: Digest = Sha256::digest(&*buffer).into();
        if Some(found) == change.new {
            return Ok(());
        }
        let expected = hex(&change.new.unwrap_or_default());
        let what = format!("SHA-256 of chunk {}", change.number);
        let file = self.path.to_owned();
        Err(CopyError::Increment { file, what, expected, found: hex(&found) }.into())
    }
}

/// Reads all chunks of the copy that matter and compares them with the base. Returns their digests.
fn verify_base(
    index: &IncrementIndex,
    target: &InPlace,
    out: &Path,
    marker: &Marker,
    progress: Progress<'_>,
) -> Result<HashMap<u64, Digest>> {
    let failed = |e| Error::host("read", out, e);
    let device = target.device()?;
    let total = device.len();
    // Chunks that were not in use may have any contents.
    let relevant = |change: &&ChunkChange| change.old.is_some() && change.new.is_some();
    let chunks: Vec<ChunkDigest> = index
        .changes
        .iter()
        .filter(|change| relevant(change) || change.has_data)
        .map(|change| ChunkDigest { number: change.number, sha256: change.old.unwrap_or_default() })
        .collect();
    let hashed = HashedDevice::new(&*device);
    let raw = Raw::of_device(&hashed, without(total, &chunks)).readers(READERS);
    let tell = |done| hashed.note(progress("verifying the copy", done, total));
    let read = for_each_chunk(&raw, &tell, |_, _: &[u8]| Ok::<(), OutputError>(()));
    hashed.check_stopped()?;
    read.map_err(|error| failed(std::io::Error::other(error)))?;
    drop(raw);
    let digests = hashed.into_digests();
    let found: HashMap<u64, Digest> =
        digests.into_iter().map(|chunk| (chunk.number, chunk.sha256)).collect();
    for change in index.changes.iter().filter(relevant) {
        let here = found.get(&change.number).copied();
        if here == change.old || here == change.new {
            continue;
        }
        if change.number == 0 {
            let mut first = vec![0; chunk_bytes(0, total) as usize];
            device.read_at(0, &mut first).map_err(failed)?;
            if marker.is_at_start(&first) {
                continue;
            }
        }
        let start = change.number * CHUNK_BYTES;
        return Err(CopyError::Base {
            file: out.to_owned(),
            start,
            end: start + chunk_bytes(change.number, total),
            expected: hex(&change.old.unwrap_or_default()),
            found: hex(&here.unwrap_or_default()),
        }
        .into());
    }
    Ok(found)
}
